/* line.h - lines that a person types: edited and remembered where the tool was built with libedit and the system has a locale
 * of UTF-8, else as the terminal gives them. In a pipe plainly read. */
#ifndef TOOL_TERMINAL_LINE_H
#define TOOL_TERMINAL_LINE_H

#include "model/input.h"

typedef struct tool_line tool_line;

typedef enum tool_line_result { TOOL_LINE_GIVEN, TOOL_LINE_END, TOOL_LINE_INTERRUPTED } tool_line_result;

/* `interactive`: a terminal, with prompts and history. NULL after saying that there is no memory. */
tool_line *tool_line_open(int interactive);
/* The next line without its newline, to be freed; on a terminal lines that were pasted come as one, with newlines in it.
 * Interrupted: Ctrl-C dropped it. */
tool_line_result tool_line_read(tool_line *line, const char *prompt, tool_input *out);
/* One more text that the arrow keys find. */
void tool_line_remember(tool_line *line, const char *text);
/* Writes the history to its file. NULL is fine. */
void tool_line_close(tool_line *line);

#endif
