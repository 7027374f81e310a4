/* chars.c: Python's classes of characters over utf8proc's tables. */
#include "text/template/chars.h"

#include <utf8proc.h>

uint32_t mica__jinja_char(const char *text, size_t left, size_t *out_bytes)
{
    static const unsigned char payload[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    const unsigned char *at = (const unsigned char *)text;
    size_t bytes = at[0] < 0x80 ? 1 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
    if (bytes > left)
        bytes = 1;
    uint32_t code = at[0] & payload[bytes];
    for (size_t i = 1; i < bytes; i++)
        code = code << 6 | (at[i] & 0x3fu);
    *out_bytes = bytes;
    return code;
}

size_t mica__jinja_char_before(const char *text, size_t length)
{
    size_t bytes = 1;
    while (bytes < length && bytes < 4 && ((unsigned char)text[length - bytes] & 0xc0) == 0x80)
        bytes++;
    return bytes;
}

size_t mica__jinja_char_count(const char *text, size_t length)
{
    size_t count = 0;
    for (size_t i = 0; i < length; i++)
        count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

size_t mica__jinja_char_offset(const char *text, size_t length, size_t index)
{
    size_t at = 0, bytes;
    for (; at < length && index > 0; index--) {
        (void)mica__jinja_char(text + at, length - at, &bytes);
        at += bytes;
    }
    return at;
}

bool mica__jinja_is_space(uint32_t code)
{
    if (code < 0x80)
        return code == ' ' || (code >= 0x09 && code <= 0x0d) || (code >= 0x1c && code <= 0x1f);
    return code == 0x85 || code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) ||
           code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

bool mica__jinja_is_line_end(uint32_t code)
{
    return (code >= 0x0a && code <= 0x0d) || (code >= 0x1c && code <= 0x1e) || code == 0x85 ||
           code == 0x2028 || code == 0x2029;
}

static utf8proc_category_t category(uint32_t code)
{
    return utf8proc_category((utf8proc_int32_t)code);
}

bool mica__jinja_is_letter(uint32_t code)
{
    const utf8proc_category_t c = category(code);
    return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

bool mica__jinja_is_decimal(uint32_t code)
{
    return category(code) == UTF8PROC_CATEGORY_ND;
}

/* Digits that are no decimals: superscripts, subscripts, and numbers in circles. */
bool mica__jinja_is_digit(uint32_t code)
{
    if (mica__jinja_is_decimal(code))
        return true;
    return code == 0xb2 || code == 0xb3 || code == 0xb9 || code == 0x2070 ||
           (code >= 0x2074 && code <= 0x2079) || (code >= 0x2080 && code <= 0x2089) ||
           (code >= 0x2460 && code <= 0x2468) || (code >= 0x2474 && code <= 0x247c) ||
           (code >= 0x2488 && code <= 0x2490);
}

bool mica__jinja_is_numeric(uint32_t code)
{
    const utf8proc_category_t c = category(code);
    return c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO;
}

bool mica__jinja_is_lower(uint32_t code)
{
    return code < 0x80 ? code >= 'a' && code <= 'z' : category(code) == UTF8PROC_CATEGORY_LL;
}

bool mica__jinja_is_upper(uint32_t code)
{
    return code < 0x80 ? code >= 'A' && code <= 'Z' : category(code) == UTF8PROC_CATEGORY_LU;
}

bool mica__jinja_is_printable(uint32_t code)
{
    if (code < 0x7f)
        return code >= ' ';
    const utf8proc_category_t c = category(code);
    return c != UTF8PROC_CATEGORY_CN && c < UTF8PROC_CATEGORY_ZS;
}

bool mica__jinja_is_word(uint32_t code)
{
    return code == '_' || mica__jinja_is_letter(code) || mica__jinja_is_numeric(code);
}

uint32_t mica__jinja_to_lower(uint32_t code)
{
    if (code < 0x80)
        return code >= 'A' && code <= 'Z' ? code + 32 : code;
    return (uint32_t)utf8proc_tolower((utf8proc_int32_t)code);
}

uint32_t mica__jinja_to_upper(uint32_t code)
{
    if (code < 0x80)
        return code >= 'a' && code <= 'z' ? code - 32 : code;
    return (uint32_t)utf8proc_toupper((utf8proc_int32_t)code);
}

uint32_t mica__jinja_to_title(uint32_t code)
{
    return code < 0x80 ? mica__jinja_to_upper(code) : (uint32_t)utf8proc_totitle((utf8proc_int32_t)code);
}

size_t mica__jinja_skip_space(const char *text, size_t length, size_t at)
{
    size_t bytes;
    while (at < length && mica__jinja_is_space(mica__jinja_char(text + at, length - at, &bytes)))
        at += bytes;
    return at;
}

size_t mica__jinja_trim_end(const char *text, size_t from, size_t length)
{
    size_t bytes;
    while (length > from) {
        const size_t last = mica__jinja_char_before(text + from, length - from);
        if (!mica__jinja_is_space(mica__jinja_char(text + length - last, last, &bytes)))
            break;
        length -= last;
    }
    return length;
}
