/* quote.h - texts as JSON strings, in and out. */
#ifndef TOOL_MODEL_QUOTE_H
#define TOOL_MODEL_QUOTE_H

#include "model/input.h"

/* Appends the text with its quotes; what is no character becomes U+FFFD. 0, or 1 without memory. */
int tool_quote_append(tool_input *out, const char *text, size_t length);
/* The string at *cursor, after blanks, which moves on; 1, or 0 if none is there. A NUL inside is none. */
int tool_quote_read(const char **cursor, tool_input *out);
/* 1 and the cursor moves on if this letter comes next, after blanks. */
int tool_quote_skip(const char **cursor, char letter);

#endif
