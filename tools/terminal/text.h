/* text.h - text that came out of a file: shown so that it cannot move the cursor, colour the terminal or hide. */
#ifndef TOOL_TERMINAL_TEXT_H
#define TOOL_TERMINAL_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define TOOL_NO_CHARACTER 0xffffffffu /* a byte that belongs to no UTF-8 sequence */
#define TOOL_NO_LIMIT ((size_t)-1)

/* The character at the start of text[0..length): how many bytes it has, 0 at the end. */
size_t tool_text_next(const char *text, size_t length, uint32_t *out_code);
/* 1: a control, a direction mark, an invisible one or no character at all. */
int tool_text_unsafe(uint32_t code);
/* Writes text with escapes for what is unsafe; after `limit` characters "...". Returns the columns it took. */
size_t tool_text_print(FILE *stream, const char *text, size_t length, size_t limit);
/* Writes text that a model made: as it is into a file, with escapes for controls, except for newlines and tabs, on a
 * terminal. */
void tool_text_show(FILE *stream, const char *text, size_t length, int is_terminal);
/* tool_text_print for a string, padded with spaces to `width` columns. */
void tool_text_pad(FILE *stream, const char *text, size_t width);

/* "1,234,567" into `out`. */
#define TOOL_COUNT_BYTES 32
const char *tool_count_text(uint64_t number, char out[TOOL_COUNT_BYTES]);
/* The fewest digits that read back as the same number, as a float if `single`. */
#define TOOL_REAL_BYTES 32
const char *tool_real_text(double number, int single, char out[TOOL_REAL_BYTES]);

#endif
