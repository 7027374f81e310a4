/*
 * interrupt.h - Ctrl-C, hangup and termination as a mark that work looks at, instead of the end of the program.
 *
 * The library installs no handlers, so the tool does: a signal leaves its number, cancels the work that the main thread's
 * calls are charged to, and ends what waits for input. A second Ctrl-C before the first was obeyed ends the program as if
 * nothing had been caught. Commands that have nothing to say or to clear away, and the others before they have, catch nothing:
 * there a signal ends the program at once.
 */
#ifndef TOOL_TERMINAL_INTERRUPT_H
#define TOOL_TERMINAL_INTERRUPT_H

/* From here on the signals only leave a mark. Who was started with one ignored, as a shell does for background work,
 * keeps ignoring it. */
void tool_interrupt_catch(void);
/* The number of the signal that came, 0 for none. */
int tool_interrupt_number(void);
/* Forgets the mark: work may run again. */
void tool_interrupt_clear(void);

/* Waits until the descriptor has something to read or is at its end: 1. 0 if `milliseconds` passed before; -1 waits for ever.
 * -1 after a signal, also one that came before. */
int tool_interrupt_wait(int descriptor, int milliseconds);

#endif
