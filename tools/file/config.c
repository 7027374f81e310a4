/* config.c - walks JSON text without building anything: the few keys that the tool wants are found by looking. */
#include "file/config.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *skip_space(const char *at)
{
    while (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r')
        at++;
    return at;
}

/* From a quote to behind the closing one, or to the end of the text. */
static const char *skip_text(const char *at)
{
    for (at++; *at != '\0' && *at != '"'; at++)
        if (*at == '\\' && at[1] != '\0')
            at++;
    return *at == '"' ? at + 1 : at;
}

/* From the start of a value to behind it: a comma or a bracket that is not its own ends it. */
static const char *skip_value(const char *at)
{
    uint64_t depth = 0;
    while (*at != '\0') {
        if (depth == 0 && (*at == ',' || *at == '}' || *at == ']'))
            break;
        if (*at == '"') {
            at = skip_text(at);
            continue;
        }
        depth += *at == '{' || *at == '[';
        depth -= *at == '}' || *at == ']';
        at++;
    }
    return at;
}

int tool_config_next(const char **cursor, tool_member *out)
{
    const char *at = skip_space(*cursor);
    if (*at == '{' || *at == ',')
        at = skip_space(at + 1);
    if (*at != '"')
        return 0;
    out->key = at + 1;
    at = skip_text(at);
    out->key_length = at > out->key ? (size_t)(at - 1 - out->key) : 0;
    at = skip_space(at);
    if (*at != ':')
        return 0;
    out->value = skip_space(at + 1);
    *cursor = at = skip_value(out->value);
    while (at > out->value && isspace((unsigned char)at[-1]))
        at--;
    out->value_length = (size_t)(at - out->value);
    return 1;
}

const char *tool_config_find(const char *object, const char *key)
{
    tool_member member;
    if (object == NULL || *skip_space(object) != '{')
        return NULL;
    while (tool_config_next(&object, &member))
        if (member.key_length == strlen(key) && memcmp(member.key, key, member.key_length) == 0)
            return member.value;
    return NULL;
}

int tool_config_uint(const char *value, uint64_t *out_number)
{
    if (value == NULL || !isdigit((unsigned char)*value))
        return 0;
    double number = strtod(value, NULL);
    if (!(number < 9e15) || number != floor(number))
        return 0;
    *out_number = (uint64_t)number;
    return 1;
}

int tool_config_is(const char *value, const char *letters)
{
    return value != NULL && strncmp(value, letters, strlen(letters)) == 0;
}

const char *tool_config_next_text(const char **cursor)
{
    const char *at = *cursor;
    while (*at == '[' || *at == ',' || isspace((unsigned char)*at))
        at++;
    if (*at != '"')
        return NULL;
    *cursor = skip_text(at);
    return at + 1;
}
