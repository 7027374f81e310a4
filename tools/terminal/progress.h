/* progress.h - a bar on a terminal while long work runs, which a signal that was caught ends. */
#ifndef TOOL_TERMINAL_PROGRESS_H
#define TOOL_TERMINAL_PROGRESS_H

#include <stdint.h>

typedef struct tool_progress {
    const char *verb; /* "quantizing" */
    int shown;        /* 1: standard error is a terminal */
    uint64_t began_ns, drawn_ns;
} tool_progress;

/* One at a time. */
void tool_progress_begin(tool_progress *progress, const char *verb);
/* A mica_progress; `context` is the tool_progress. Not 0 after a signal that was caught. */
int tool_progress_step(void *context, const char *what, uint64_t done_bytes, uint64_t total_bytes);
/* Wipes the bar. */
void tool_progress_end(tool_progress *progress);
double tool_progress_seconds(const tool_progress *progress);

#endif
