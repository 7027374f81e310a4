/*
 * interrupt.h - Ctrl-C, hangup and termination as a mark that work looks at, instead of the end of the program.
 *
 * The library installs no handlers, so the tool does. While a context is watched, a thread of the tool's own stops what
 * runs on it; a second Ctrl-C in that time ends the program as if nothing had been caught.
 */
#ifndef TOOL_INTERRUPT_H
#define TOOL_INTERRUPT_H

#include "mica/model.h"

/* From here on the signals only leave a mark. Who was started with one ignored, as a shell does for background work,
 * keeps ignoring it. */
void tool_interrupt_catch(void);
/* The number of the signal that came, 0 for none. */
int tool_interrupt_number(void);
/* Forgets the mark. */
void tool_interrupt_clear(void);
/* Whether a signal makes the system calls of this program fail with EINTR, which reading a line wants, or go on. */
void tool_interrupt_break_calls(int yes);

/* Cancels this context when a signal comes, until it is called with NULL. 0, or 1 after printing why not. */
int tool_interrupt_watch(mica_context *context);

#endif
