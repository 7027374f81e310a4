/* utf8.h: the one check of UTF-8: no overlong forms, no surrogates, nothing past U+10FFFF. */
#ifndef MICA_BASE_UTF8_H
#define MICA_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of the character at `text`, of which `left` bytes are there: 1 to 4, or 0 when it is not UTF-8. */
static inline size_t mica__utf8_length(const char *text, size_t left)
{
    const unsigned char *at = (const unsigned char *)text;
    size_t length;
    unsigned low = 0x80, high = 0xbf; /* range of the second byte, narrower after some first bytes */
    if (left == 0)
        return 0;
    if (at[0] < 0x80)
        return 1;
    if (at[0] < 0xc2 || at[0] > 0xf4)
        return 0;
    length = at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
    if (at[0] == 0xe0)
        low = 0xa0; /* overlong */
    else if (at[0] == 0xed)
        high = 0x9f; /* surrogates */
    else if (at[0] == 0xf0)
        low = 0x90; /* overlong */
    else if (at[0] == 0xf4)
        high = 0x8f; /* past U+10FFFF */
    if (left < length || at[1] < low || at[1] > high)
        return 0;
    for (size_t i = 2; i < length; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    return length;
}

/* Writes a code point that is no surrogate and at most U+10FFFF; returns its bytes, 1 to 4. */
static inline size_t mica__utf8_put(uint32_t code, char *out_text)
{
    static const unsigned char first_bits[] = {0, 0, 0xc0, 0xe0, 0xf0};
    const size_t length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i > 0; i--, code >>= 6)
        out_text[i] = (char)(0x80 | (code & 0x3f));
    out_text[0] = (char)(first_bits[length] | code);
    return length;
}

#endif
