/* wordpiece.c: the longest token that a word begins with, then the longest that goes on, and so on. A word that
 * cannot be covered so is one unknown token. */
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/unicode.h"

mica_status mica__encode_wordpiece(mica__encoder *e, const char *text, size_t length)
{
    const mica_tokenizer *t = e->tokenizer;
    const uint64_t before = e->count;
    size_t letters = 0, walked = 0;
    for (size_t i = 0; i < length; i++)
        letters += ((unsigned char)text[i] & 0xc0) != 0x80;
    size_t at = 0;
    const bool wanted = letters <= t->most_letters;
    mica_status status = wanted && t->starts.long_count != 0
                             ? mica__reach_find(&e->reach[3], &t->starts, text, length)
                             : MICA_OK;
    if (status == MICA_OK && wanted && t->continues.long_count != 0)
        status = mica__reach_find(&e->reach[2], &t->continues, text, length);
    mica__encoder_spend(e, 2 + length / 8);
    while (at < length && wanted && status == MICA_OK) {
        const mica__wordlist *list = at == 0 ? &t->starts : &t->continues;
        uint32_t node = 0;
        const mica__word *word = mica__reach_next(&e->reach[at == 0 ? 3 : 2], list, at, &node);
        if (word == NULL)
            word = mica__wordlist_longest(list, text + at, length - at, &walked);
        if (word == NULL)
            break;
        status = mica__encoder_spend(e, 2 + walked * 2) ? MICA_OK : e->status;
        mica__encoder_put(e, word->id);
        at += word->length;
    }
    if (at < length) {
        e->count = before;
        if (t->unknown != MICA_NO_TOKEN)
            mica__encoder_put(e, t->unknown);
    }
    return status;
}
