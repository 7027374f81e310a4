/* tokenizer_wordpiece.c: the longest token that a word begins with, then the longest that goes on, and so on. A word that
 * cannot be covered so is one unknown token. */
#include "model/tokenizer.h"
#include "model/tokenizer_unicode.h"

mica_status mica__encode_wordpiece(mica__encoder *e, const char *text, size_t length)
{
    const mica_tokenizer *t = e->tokenizer;
    const uint64_t before = e->count;
    size_t letters = 0;
    for (size_t i = 0; i < length; i++)
        letters += ((unsigned char)text[i] & 0xc0) != 0x80;
    size_t at = 0;
    while (at < length && letters <= t->most_letters) {
        const mica__word *word =
            mica__wordlist_longest(at == 0 ? &t->starts : &t->continues, text + at, length - at);
        if (word == NULL)
            break;
        mica__encoder_put(e, word->id);
        at += word->length;
    }
    if (at < length) {
        e->count = before;
        if (t->unknown != MICA_NO_TOKEN)
            mica__encoder_put(e, t->unknown);
    }
    return MICA_OK;
}
