/* progress.h - a bar on a terminal while long work runs, and Ctrl-C that ends the work instead of the program. */
#ifndef TOOL_PROGRESS_H
#define TOOL_PROGRESS_H

#include <stdint.h>

typedef struct tool_progress {
    const char *verb; /* "quantizing" */
    int shown;        /* 1: standard error is a terminal */
    uint64_t began_ns, drawn_ns;
} tool_progress;

/* From here on Ctrl-C, hangup and termination only leave a mark. One at a time. */
void tool_progress_begin(tool_progress *progress, const char *verb);
/* A mica_progress; `context` is the tool_progress. Not 0 after such a signal. */
int tool_progress_step(void *context, const char *what, uint64_t done_bytes, uint64_t total_bytes);
/* Wipes the bar. Returns 0, or the exit status after a signal: 128 and its number. */
int tool_progress_end(tool_progress *progress);
double tool_progress_seconds(const tool_progress *progress);

#endif
