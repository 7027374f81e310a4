/* input.h - texts that come in: files, standard input, options with escapes. */
#ifndef TOOL_INPUT_H
#define TOOL_INPUT_H

#include "options.h"

/* Bytes with a NUL after them. */
typedef struct tool_input {
    char *text;
    size_t length;
} tool_input;

/* All of a file; "-" is standard input. 0, or 1 after printing why not. */
int tool_input_read(const char *path, tool_input *out);
/* A copy of a text. */
int tool_input_copy(const char *text, tool_input *out);
/* --prompt, or what --file names: exactly one of them. 0, 1, or 2 after printing what is wrong. */
int tool_input_prompt(const tool_call *call, tool_input *out);
void tool_input_free(tool_input *input);
/* Turns \n \t \r \" \' \\ \xHH into what they stand for, in place; other backslashes stay. Returns the length. */
size_t tool_input_unescape(char *text);
/* More text behind it. 0, or 1 when there is no memory, after saying so. */
int tool_input_append(tool_input *input, const char *text, size_t length);

#endif
