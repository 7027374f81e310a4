/* chars.h: characters as Python sees them: what is a space, a letter, upper and lower case. */
#ifndef MICA_TEXT_TEMPLATE_CHARS_H
#define MICA_TEXT_TEMPLATE_CHARS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The character at `text`, of which `left` bytes (at least 1) are there, and its bytes. Text is known to be UTF-8. */
uint32_t mica__jinja_char(const char *text, size_t left, size_t *out_bytes);
/* Bytes of the last character of text[0..length), length at least 1. */
size_t mica__jinja_char_before(const char *text, size_t length);
/* How many characters text has. */
size_t mica__jinja_char_count(const char *text, size_t length);
/* The byte offset of character `index`; `length` when there are not so many. */
size_t mica__jinja_char_offset(const char *text, size_t length, size_t index);

bool mica__jinja_is_space(uint32_t code);    /* str.isspace */
bool mica__jinja_is_line_end(uint32_t code); /* str.splitlines */
bool mica__jinja_is_letter(uint32_t code);   /* str.isalpha */
bool mica__jinja_is_decimal(uint32_t code);  /* str.isdecimal */
bool mica__jinja_is_digit(uint32_t code);    /* str.isdigit */
bool mica__jinja_is_numeric(uint32_t code);  /* str.isnumeric */
bool mica__jinja_is_lower(uint32_t code);    /* has case, and it is this one */
bool mica__jinja_is_upper(uint32_t code);
bool mica__jinja_is_printable(uint32_t code); /* shown as itself by repr() */
bool mica__jinja_is_word(uint32_t code);      /* \w */
uint32_t mica__jinja_to_lower(uint32_t code);
uint32_t mica__jinja_to_upper(uint32_t code);
uint32_t mica__jinja_to_title(uint32_t code);

/* The first byte after the white space at `at`. */
size_t mica__jinja_skip_space(const char *text, size_t length, size_t at);
/* The length without the white space at the end, not below `from`. */
size_t mica__jinja_trim_end(const char *text, size_t from, size_t length);

#endif
