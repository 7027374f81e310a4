/* config.h - single values out of a config.json that the library has found to be JSON. */
#ifndef TOOL_FILE_CONFIG_H
#define TOOL_FILE_CONFIG_H

#include <stddef.h>
#include <stdint.h>

/* A member of an object: its key without the quotes and its value, both in the text itself, with no end of their own. */
typedef struct tool_member {
    const char *key, *value;
    size_t key_length, value_length;
} tool_member;

/* The next member of an object; `*cursor` is the object's first letter at first. 0 at the end. */
int tool_config_next(const char **cursor, tool_member *out);
/* Where the value of `key` begins in an object; NULL if there is no such key, or no object. */
const char *tool_config_find(const char *object, const char *key);
/* 1 and the number if `value` begins one that is whole and not negative. */
int tool_config_uint(const char *value, uint64_t *out_number);
/* 1 if `value` begins with these letters: false, "gemma2" with its quotes. */
int tool_config_is(const char *value, const char *letters);
/* The next text of a list: `*cursor` is the list's first letter at first. Its start after the quote; NULL at the end. */
const char *tool_config_next_text(const char **cursor);

#endif
