/* unicode.c: the classes, from utf8proc's tables and a few ranges. */
#include "text/tokenizer/unicode.h"

#include <utf8proc.h>

#include "base/utf8.h"

typedef struct range {
    uint32_t first, last;
} range;

static bool in_ranges(uint32_t code, const range *ranges, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (code >= ranges[i].first && code <= ranges[i].last)
            return true;
    return false;
}

bool mica__char_is_space(uint32_t code)
{
    static const range spaces[] = {{0x85, 0x85},     {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
                                   {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}};
    if (code < 0x80)
        return code == ' ' || (code >= 9 && code <= 13);
    return in_ranges(code, spaces, sizeof spaces / sizeof spaces[0]);
}

bool mica__char_is_punctuation(uint32_t code)
{
    if (code < 0x80)
        return (code > 0x20 && code < '0') || (code > '9' && code < 'A') || (code > 'Z' && code < 'a') ||
               (code > 'z' && code < 0x7f);
    const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
    return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

bool mica__char_is_number(uint32_t code)
{
    if (code < 0x80)
        return code >= '0' && code <= '9';
    const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
    return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool mica__char_is_mark(uint32_t code, bool all)
{
    if (code < 0x300)
        return false;
    const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
    return category == UTF8PROC_CATEGORY_MN ||
           (all && (category == UTF8PROC_CATEGORY_MC || category == UTF8PROC_CATEGORY_ME));
}

bool mica__char_is_word(uint32_t code)
{
    const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
    return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) ||
           category == UTF8PROC_CATEGORY_PC || code == 0x200c || code == 0x200d;
}

bool mica__char_is_other(uint32_t code)
{
    if (code < 0x80)
        return code < 0x20 || code == 0x7f;
    const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
    return category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF ||
           category == UTF8PROC_CATEGORY_CO;
}

/* One range begins at 2B920 and not at 2B820: so it was written, and so vocabularies were made. */
bool mica__char_is_cjk(uint32_t code)
{
    static const range ideographs[] = {{0x4e00, 0x9fff},   {0x3400, 0x4dbf},   {0x20000, 0x2a6df},
                                       {0x2a700, 0x2b73f}, {0x2b740, 0x2b81f}, {0x2b920, 0x2ceaf},
                                       {0xf900, 0xfaff},   {0x2f800, 0x2fa1f}};
    return code >= 0x3400 && in_ranges(code, ideographs, sizeof ideographs / sizeof ideographs[0]);
}

size_t mica__char_lower(uint32_t code, char *out_text)
{
    if (code < 0x80) {
        out_text[0] = (char)(code >= 'A' && code <= 'Z' ? code + 32 : code);
        return 1;
    }
    if (code != 0x130)
        return mica__utf8_put((uint32_t)utf8proc_tolower((utf8proc_int32_t)code), out_text);
    out_text[0] = 'i'; /* the only letter whose lower case is two characters */
    return 1 + mica__utf8_put(0x307, out_text + 1);
}
