/* input.h - texts that come in: files, standard input, options with escapes. */
#ifndef TOOL_MODEL_INPUT_H
#define TOOL_MODEL_INPUT_H

#include "options.h"

/* Bytes with a NUL after them. */
typedef struct tool_input {
    char *text;
    size_t length;
    size_t room; /* bytes of text that are known to be there; 0: nobody says */
} tool_input;

/* All of a file; "-" is standard input. 0, or the exit status: 1 after printing why not, or a signal's. */
int tool_input_read(const char *path, tool_input *out);
/* A copy of a text. */
int tool_input_copy(const char *text, tool_input *out);
/* 1: standard input is a pipe or a file, not a terminal nor nothing. */
int tool_input_is_piped(void);

/* Where a text comes from. */
typedef enum tool_origin {
    TOOL_ORIGIN_NONE, /* nowhere */
    TOOL_ORIGIN_WORD, /* the command line */
    TOOL_ORIGIN_FILE  /* a file, or standard input */
} tool_origin;

/* The text of a command that has an argument, --prompt and --file: at most one of them; else what is piped in, if that is not
 * empty. Returns the exit status: 2 after printing what is wrong. */
int tool_input_prompt(const tool_call *call, tool_input *out, tool_origin *out_origin);
/* Says that there is none: 2. */
int tool_input_missing(const tool_call *call);
/* Takes away the newline that ends a file, which is the editor's or the shell's. */
void tool_input_end_line(tool_input *input);
void tool_input_free(tool_input *input);
/* Turns \n \t \r \" \' \\ \xHH into what they stand for, in place; other backslashes stay. Returns the length. */
size_t tool_input_unescape(char *text);
/* More text behind it. 0, or 1 when there is no memory, after saying so. */
int tool_input_append(tool_input *input, const char *text, size_t length);

#endif
