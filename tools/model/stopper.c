/* stopper.c - looks for stop texts in what was held back and what is new. */
#include "model/stopper.h"

#include <string.h>

#include "terminal/output.h"

int tool_stopper_add(tool_stopper *stopper, const char *text, size_t length)
{
    if (stopper->count == TOOL_MAX_STOPS)
        return tool_fail("there are more than %d stop texts", TOOL_MAX_STOPS);
    return tool_input_append(&stopper->stop[stopper->count++], text, length);
}

/* How many letters of the stop text stand at `at`; all of them, or up to the end of the held text. */
static size_t matched(const tool_input *held, size_t at, const tool_input *stop)
{
    size_t left = held->length - at, length = left < stop->length ? left : stop->length;
    return memcmp(held->text + at, stop->text, length) == 0 ? length : 0;
}

/* Takes away what the last call let through. */
static void drop_given(tool_stopper *stopper)
{
    if (stopper->given == 0)
        return;
    memmove(stopper->held.text, stopper->held.text + stopper->given,
            stopper->held.length - stopper->given + 1);
    stopper->held.length -= stopper->given;
    stopper->given = 0;
}

int tool_stopper_push(tool_stopper *stopper, const char *text, size_t length, size_t *out_length)
{
    drop_given(stopper);
    *out_length = 0;
    if (tool_input_append(&stopper->held, text, length) != 0)
        return 1;
    size_t at = 0;
    for (; at < stopper->held.length && !stopper->stopped; at++) {
        size_t most = 0;
        for (size_t i = 0; i < stopper->count; i++) {
            size_t letters = matched(&stopper->held, at, &stopper->stop[i]);
            stopper->stopped |= letters == stopper->stop[i].length;
            most = letters > most ? letters : most;
        }
        if (most > 0)
            break;
    }
    *out_length = stopper->given = at;
    return 0;
}

size_t tool_stopper_flush(tool_stopper *stopper)
{
    drop_given(stopper);
    stopper->given = stopper->stopped ? 0 : stopper->held.length;
    return stopper->given;
}

void tool_stopper_reset(tool_stopper *stopper)
{
    stopper->given = stopper->held.length = 0;
    stopper->stopped = 0;
}

void tool_stopper_free(tool_stopper *stopper)
{
    for (size_t i = 0; i < stopper->count; i++)
        tool_input_free(&stopper->stop[i]);
    tool_input_free(&stopper->held);
    stopper->count = 0;
}
