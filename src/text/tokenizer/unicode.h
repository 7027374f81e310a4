/* unicode.h: characters of valid UTF-8 and the classes that tokenizers ask for. Knows no tokenizer. */
#ifndef MICA_TEXT_TOKENIZER_UNICODE_H
#define MICA_TEXT_TOKENIZER_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The character at `text`, which is valid UTF-8, and its bytes. */
static inline uint32_t mica__char_at(const char *text, size_t *out_length)
{
    const unsigned char *at = (const unsigned char *)text;
    if (at[0] < 0x80) {
        *out_length = 1;
        return at[0];
    }
    if (at[0] < 0xe0) {
        *out_length = 2;
        return (at[0] & 0x1fu) << 6 | (at[1] & 0x3fu);
    }
    if (at[0] < 0xf0) {
        *out_length = 3;
        return (at[0] & 0xfu) << 12 | (at[1] & 0x3fu) << 6 | (at[2] & 0x3fu);
    }
    *out_length = 4;
    return (at[0] & 7u) << 18 | (at[1] & 0x3fu) << 12 | (at[2] & 0x3fu) << 6 | (at[3] & 0x3fu);
}

/* Where the character before `at` begins; `at` is not 0. */
static inline size_t mica__char_before(const char *text, size_t at)
{
    at--;
    while (at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80)
        at--;
    return at;
}

/* The property White_Space. */
bool mica__char_is_space(uint32_t code);
/* The categories P*, and all of ASCII that is neither letter, digit, blank nor control. */
bool mica__char_is_punctuation(uint32_t code);
/* Nd, Nl, No. */
bool mica__char_is_number(uint32_t code);
/* Mn; with `all` also Mc and Me. */
bool mica__char_is_mark(uint32_t code, bool all);
/* What \w means: letters, marks, digits, connectors, joiners. */
bool mica__char_is_word(uint32_t code);
/* Cc, Cf, Co. */
bool mica__char_is_other(uint32_t code);
/* Ideographs, as BERT counts them. */
bool mica__char_is_cjk(uint32_t code);
/* Writes the lower case of a character; returns its bytes, at most 8. */
size_t mica__char_lower(uint32_t code, char *out_text);

#endif
