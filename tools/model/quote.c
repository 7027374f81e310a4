/* quote.c - JSON strings. */
#include "model/quote.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "terminal/text.h"

int tool_quote_append(tool_input *out, const char *text, size_t length)
{
    uint32_t code;
    size_t step;
    int wrong = tool_input_append(out, "\"", 1);
    for (; !wrong && (step = tool_text_next(text, length, &code)) > 0; text += step, length -= step) {
        char escape[8];
        if (code == '"' || code == '\\' || code < 0x20) {
            int letters = snprintf(escape, sizeof escape, code < 0x20 ? "\\u%04x" : "\\%c", (unsigned)code);
            wrong = tool_input_append(out, escape, (size_t)letters);
        } else if (code == TOOL_NO_CHARACTER) {
            wrong = tool_input_append(out, "\xef\xbf\xbd", 3);
        } else {
            wrong = tool_input_append(out, text, step);
        }
    }
    return wrong || tool_input_append(out, "\"", 1);
}

int tool_quote_skip(const char **cursor, char letter)
{
    *cursor += strspn(*cursor, " \t\r\n");
    if (**cursor != letter)
        return 0;
    *cursor += letter != '\0';
    return 1;
}

/* The number of \u and four digits, -1 if it is none. */
static long code_unit(const char *at)
{
    char digits[5] = {0};
    if (at[0] != '\\' || at[1] != 'u' || strspn(at + 2, "0123456789abcdefABCDEF") < 4)
        return -1;
    memcpy(digits, at + 2, 4);
    return strtol(digits, NULL, 16);
}

static size_t put_code(uint32_t code, char out[4])
{
    static const unsigned char lead[5] = {0, 0, 0xc0, 0xe0, 0xf0};
    size_t length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = length; i-- > 1; code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)(lead[length] | code);
    return length;
}

/* An escape: how many letters it has, 0 if it is none, and its text. */
static size_t read_escape(const char *at, char out[4], size_t *out_length)
{
    static const char known[] = "n\nt\tr\rb\bf\f\"\"\\\\//";
    long first = code_unit(at), second = -1;
    *out_length = 1;
    for (const char *k = known; *k != '\0'; k += 2)
        if (at[1] == *k) {
            out[0] = k[1];
            return 2;
        }
    if (first <= 0)
        return 0;
    if (first >= 0xd800 && first < 0xdc00)
        second = code_unit(at + 6);
    if (second >= 0xdc00 && second < 0xe000) {
        *out_length = put_code((uint32_t)(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)), out);
        return 12;
    }
    *out_length = put_code(first >= 0xd800 && first < 0xe000 ? 0xfffd : (uint32_t)first, out);
    return 6;
}

int tool_quote_read(const char **cursor, tool_input *out)
{
    *out = (tool_input){0};
    if (!tool_quote_skip(cursor, '"') || tool_input_append(out, "", 0) != 0)
        return 0;
    const char *at = *cursor;
    while (*at != '"') {
        char text[4] = {*at};
        size_t length = 1, used = *at == '\\' ? read_escape(at, text, &length) : (unsigned char)*at >= 0x20;
        if (used == 0 || tool_input_append(out, text, length) != 0) {
            tool_input_free(out);
            return 0;
        }
        at += used;
    }
    *cursor = at + 1;
    return 1;
}
