/* stopper.h - stop texts: nothing of one is let through, however its letters are spread over tokens. */
#ifndef TOOL_MODEL_STOPPER_H
#define TOOL_MODEL_STOPPER_H

#include "model/input.h"

#define TOOL_MAX_STOPS 64

typedef struct tool_stopper {
    tool_input stop[TOOL_MAX_STOPS];
    size_t count;
    tool_input held; /* text that may be the beginning of a stop text */
    size_t given;    /* bytes of it that were let through by the last call */
    int stopped;
} tool_stopper;

/* One more stop text; an empty one is refused by the caller. 0, or 1 after printing why not. */
int tool_stopper_add(tool_stopper *stopper, const char *text, size_t length);
/* New text: the first *out_length bytes of held.text may be shown, until the next call. `stopped` is set when a stop
 * text is complete; then that is all. 0, or 1 when there is no memory. */
int tool_stopper_push(tool_stopper *stopper, const char *text, size_t length, size_t *out_length);
/* The end: everything that was held may be shown, until the next call. */
size_t tool_stopper_flush(tool_stopper *stopper);
/* Ready for another text. */
void tool_stopper_reset(tool_stopper *stopper);
void tool_stopper_free(tool_stopper *stopper);

#endif
