/* tokenizer_encode.c: one text from its bytes to its ids: what is no UTF-8 and what is an added token is taken out, the rest
 * goes through normaliser, splitter and model. */
#include <string.h>

#include "base/utf8.h"
#include "model/tokenizer.h"
#include "model/tokenizer_unicode.h"

#define MOST_TEXT ((uint64_t)1 << 30)

const char *mica__text_find(const char *text, size_t length, size_t from, mica_string what)
{
    while (from < length && length - from >= what.length) {
        const char *at = memchr(text + from, what.data[0], length - from - (size_t)what.length + 1);
        if (at == NULL || memcmp(at, what.data, (size_t)what.length) == 0)
            return at;
        from = (size_t)(at - text) + 1;
    }
    return NULL;
}

void mica__encoder_release(mica__encoder *e)
{
    for (size_t i = 0; i < 2; i++) {
        mica__free(e->normal[i].data);
        mica__free(e->split[i].data);
        mica__free(e->spans[i].data);
    }
    mica__free(e->codes);
    mica__free(e->symbols);
    mica__free(e->heap);
    mica__free(e->paths);
    mica__free(e->cache);
    mica__regex_scratch_release(e->scratch);
}

void mica__encode_unknown(mica__encoder *e, const char *text, size_t length)
{
    const mica_tokenizer *t = e->tokenizer;
    bool bytes = t->byte_fallback && length != 0;
    for (size_t i = 0; i < length && bytes; i++)
        bytes = t->byte_token[(unsigned char)text[i]] != MICA_NO_TOKEN;
    for (size_t i = 0; i < length && bytes; i++)
        mica__encoder_put(e, t->byte_token[(unsigned char)text[i]]);
    if (!bytes && length != 0 && t->unknown != MICA_NO_TOKEN)
        mica__encoder_put(e, t->unknown);
}

static mica_status encode_piece(mica__encoder *e, const char *text, size_t length)
{
    switch (e->tokenizer->kind) {
    case MICA__TOKENIZER_WORDPIECE: return mica__encode_wordpiece(e, text, length);
    case MICA__TOKENIZER_UNIGRAM: return mica__encode_unigram(e, text, length);
    case MICA__TOKENIZER_WORDS: {
        const uint32_t id = mica__token_map_find(&e->tokenizer->by_text, text, length);
        if (id != MICA__NO_WORD)
            mica__encoder_put(e, id);
        else
            mica__encode_unknown(e, text, length);
        return MICA_OK;
    }
    default: return mica__encode_merges(e, text, length);
    }
}

static mica_status encode_normal(mica__encoder *e, const char *text, size_t length, mica__place place)
{
    const mica__spans *spans = NULL;
    const char *pieces = NULL;
    mica_status status = mica__split(e, text, length, place, &pieces, &spans);
    for (size_t i = 0; status == MICA_OK && i < spans->count; i++)
        status = encode_piece(e, pieces + spans->data[i].start, spans->data[i].end - spans->data[i].start);
    return status;
}

/* ---- added tokens ------------------------------------------------------------------------------------------------ */

static bool is_word_at(const char *text, size_t at)
{
    size_t bytes = 0;
    return mica__char_is_word(mica__char_at(text + at, &bytes));
}

/* The longest added token that stands at `at` and may be taken here, NULL if none. */
static const mica__added *added_at(const mica__encoder *e, const mica__wordlist *list, const char *text,
                                   size_t length, size_t at, size_t *out_end)
{
    const mica__added *longest = NULL;
    mica__walk walk = {0};
    for (size_t i = at; i < length && mica__walk_step(list, &walk, (unsigned char)text[i]); i++) {
        const mica__word *word = mica__walk_word(list, &walk);
        const mica__added *added = word == NULL ? NULL : &e->tokenizer->added[word->id];
        if (added == NULL || (added->special && (e->flags & MICA_ENCODE_SPECIAL) == 0))
            continue;
        if (added->word && ((at > 0 && is_word_at(text, mica__char_before(text, at))) ||
                            (i + 1 < length && is_word_at(text, i + 1))))
            continue;
        longest = added;
        *out_end = i + 1;
    }
    return longest;
}

typedef struct added_match {
    size_t start, end, resume; /* with the blanks it eats; where to look on */
    uint32_t id;
} added_match;

/* The next added token in text[from .. length); blanks before `done` are not its to eat. */
static bool find_added(const mica__encoder *e, const mica__wordlist *list, const char *text, size_t length,
                       size_t from, size_t done, added_match *out)
{
    const mica__added *added = NULL;
    size_t at = from, bytes = 0;
    for (; at < length; at++) {
        const unsigned char byte = (unsigned char)text[at];
        if (list->first[byte] != list->first[byte + 1] &&
            (added = added_at(e, list, text, length, at, &out->end)) != NULL)
            break;
    }
    if (added == NULL)
        return false;
    out->id = added->id;
    out->start = at;
    while (added->left && out->start > done) {
        const size_t before = mica__char_before(text, out->start);
        if (!mica__char_is_space(mica__char_at(text + before, &bytes)))
            break;
        out->start = before;
    }
    while (added->right && out->end < length && mica__char_is_space(mica__char_at(text + out->end, &bytes)))
        out->end += bytes;
    return true;
}

static mica_status encode_plain(mica__encoder *e, bool normalized, const char *text, size_t length,
                                mica__place place);

/* The parts between added tokens, and these tokens themselves; first in the raw text, then in the normalised one. */
static mica_status encode_around(mica__encoder *e, bool normalized, const char *text, size_t length,
                                 mica__place place)
{
    const mica__wordlist *list = normalized ? &e->tokenizer->added_normal : &e->tokenizer->added_raw;
    added_match match = {0};
    size_t done = 0;
    mica_status status = MICA_OK;
    while (list->count != 0 && status == MICA_OK && find_added(e, list, text, length, done, done, &match)) {
        if (match.start > done)
            status = encode_plain(e, normalized, text + done, match.start - done, place);
        mica__encoder_put(e, match.id);
        done = match.end;
        place = (mica__place){.first = false, .fresh = true};
    }
    if (done < length && status == MICA_OK)
        status = encode_plain(e, normalized, text + done, length - done, place);
    return status;
}

static mica_status encode_plain(mica__encoder *e, bool normalized, const char *text, size_t length,
                                mica__place place)
{
    const char *normal = NULL;
    size_t normal_length = 0;
    if (normalized)
        return encode_normal(e, text, length, place);
    const mica_status status = mica__normalize(e, text, length, place, &normal, &normal_length);
    return status == MICA_OK ? encode_around(e, true, normal, normal_length, place) : status;
}

/* ---- the whole text ---------------------------------------------------------------------------------------------- */

static size_t valid_run(const char *text, size_t length)
{
    size_t at = 0;
    while (at < length) {
        const size_t bytes = (unsigned char)text[at] < 0x80 ? 1 : mica__utf8_length(text + at, length - at);
        if (bytes == 0)
            break;
        at += bytes;
    }
    return at;
}

/* A byte that is part of no character. */
static void encode_byte(mica__encoder *e, unsigned char byte)
{
    const mica_tokenizer *t = e->tokenizer;
    const uint32_t id = t->byte_fallback || t->raw_bytes ? t->byte_token[byte] : MICA_NO_TOKEN;
    if (id != MICA_NO_TOKEN || t->unknown != MICA_NO_TOKEN)
        mica__encoder_put(e, id != MICA_NO_TOKEN ? id : t->unknown);
}

static mica_status encode_text(mica__encoder *e, const char *text, size_t length)
{
    mica_status status = MICA_OK;
    for (size_t at = 0; at < length && status == MICA_OK;) {
        const size_t run = valid_run(text + at, length - at);
        if (run == 0) {
            encode_byte(e, (unsigned char)text[at++]);
            continue;
        }
        status = encode_around(e, false, text + at, run, (mica__place){.first = at == 0, .fresh = at == 0});
        at += run;
    }
    return status;
}

static mica_status check_encode(const mica_tokenizer *t, const char *text, uint64_t length, uint32_t flags,
                                const uint32_t *ids, uint64_t capacity)
{
    if (t == NULL || (text == NULL && length != 0) || (ids == NULL && capacity != 0))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s is NULL",
                          t == NULL                     ? "tokenizer"
                          : text == NULL && length != 0 ? "text"
                                                        : "ids");
    if ((flags & ~(MICA_ENCODE_ADD | MICA_ENCODE_SPECIAL)) != 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "flags is %u, which has bits that mean nothing", flags);
    if (length > MOST_TEXT)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "length is %llu, at most %llu bytes are taken at once",
                          (unsigned long long)length, (unsigned long long)MOST_TEXT);
    return MICA_OK;
}

mica_status mica_tokenizer_encode(const mica_tokenizer *tokenizer, const char *text, uint64_t length,
                                  uint32_t flags, uint32_t *ids, uint64_t capacity, uint64_t *out_count)
{
    mica__encoder e = {.tokenizer = tokenizer, .flags = flags, .ids = ids, .capacity = capacity};
    if (out_count == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "out_count is NULL");
    *out_count = 0;
    mica_status status = check_encode(tokenizer, text, length, flags, ids, capacity);
    if (status != MICA_OK)
        return status;
    for (uint32_t i = 0; (flags & MICA_ENCODE_ADD) != 0 && i < tokenizer->before_count; i++)
        mica__encoder_put(&e, tokenizer->before[i]);
    status = mica__encoder_remember(&e, (size_t)length);
    if (status == MICA_OK)
        status = encode_text(&e, text, (size_t)length);
    for (uint32_t i = 0; (flags & MICA_ENCODE_ADD) != 0 && i < tokenizer->after_count; i++)
        mica__encoder_put(&e, tokenizer->after[i]);
    mica__encoder_release(&e);
    if (status == MICA_OK)
        *out_count = e.count;
    return status;
}
