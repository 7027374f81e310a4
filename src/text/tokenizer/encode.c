/* encode.c: one text from its bytes to its ids: what is no UTF-8 and what is an added token is taken out, the rest
 * goes through normaliser, splitter and model. */
#include <string.h>

#include "base/argument.h"
#include "base/utf8.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/unicode.h"

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
    for (size_t i = 0; i < sizeof e->reach / sizeof e->reach[0]; i++)
        mica__reach_release(&e->reach[i]);
    mica__free(e->codes);
    mica__free(e->symbols);
    mica__free(e->heap);
    mica__free(e->paths);
    mica__free(e->cache);
    mica__regex_scratch_release(e->scratch);
}

mica_status mica__encoder_find(mica__encoder *e, const mica__regex *regex, const char *text, size_t length,
                               size_t at, bool *out_found, size_t *out_start, size_t *out_end)
{
    *out_found = false;
    const mica_status status =
        e->scratch != NULL ? MICA_OK : mica__regex_scratch_create(e->length, &e->scratch);
    return status == MICA_OK
               ? mica__regex_find(regex, e->scratch, text, length, at, out_found, out_start, out_end)
               : status;
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
        mica__encoder_spend(e, 4 + length / 16);
        if (id != MICA__NO_WORD)
            mica__encoder_put(e, id);
        else
            mica__encode_unknown(e, text, length);
        return MICA_OK;
    }
    default: return mica__encode_merges(e, text, length);
    }
}

static mica_status encode_normal(mica__encoder *e, const char *text, size_t length, mica__text_place place)
{
    const mica__spans *spans = NULL;
    const char *pieces = NULL;
    mica_status status = mica__split(e, text, length, place, &pieces, &spans);
    for (size_t i = 0; status == MICA_OK && i < spans->count && mica__encoder_spend(e, 2); i++)
        status = encode_piece(e, pieces + spans->data[i].start, spans->data[i].end - spans->data[i].start);
    return status == MICA_OK ? e->status : status;
}

/* ---- added tokens ------------------------------------------------------------------------------------------------ */

static bool is_word_at(const char *text, size_t at)
{
    size_t bytes = 0;
    return mica__char_is_word(mica__char_at(text + at, &bytes));
}

/* The added tokens of a text, raw or normalised. */
typedef struct added_text {
    const mica__wordlist *list;
    const mica__reach *reach;
    const char *text;
    size_t length;
} added_text;

/* Whether an added token that stands in [at, end) may be taken there. */
static bool may_take(const mica__encoder *e, const added_text *in, const mica__added *added, size_t at,
                     size_t end)
{
    if (added->special && (e->flags & MICA_ENCODE_SPECIAL) == 0)
        return false;
    return !added->word || ((at == 0 || !is_word_at(in->text, mica__char_before(in->text, at))) &&
                            (end == in->length || !is_word_at(in->text, end)));
}

/* The longest added token that stands at `at` and may be taken here, NULL if none. */
static const mica__added *added_at(mica__encoder *e, const added_text *in, size_t at, size_t *out_end)
{
    const mica__added *longest = NULL;
    const mica__word *word;
    uint64_t steps = 2;
    for (uint32_t node = 0; (word = mica__reach_next(in->reach, in->list, at, &node)) != NULL; steps++)
        if (may_take(e, in, &e->tokenizer->added[word->id], at, at + word->length)) {
            *out_end = at + word->length;
            return &e->tokenizer->added[word->id];
        }
    mica__walk walk = {0};
    size_t i = at;
    for (; i < in->length && mica__walk_step(in->list, &walk, (unsigned char)in->text[i]); i++) {
        word = mica__walk_word(in->list, &walk);
        if (word == NULL || !may_take(e, in, &e->tokenizer->added[word->id], at, i + 1))
            continue;
        longest = &e->tokenizer->added[word->id];
        *out_end = i + 1;
    }
    mica__encoder_spend(e, steps + (i - at) * 2);
    return longest;
}

/* Whether any added token may begin at `at`, by its first byte or as a long one. */
static inline bool may_begin(const added_text *in, size_t at)
{
    const unsigned char byte = (unsigned char)in->text[at];
    return in->list->first[byte] != in->list->first[byte + 1] ||
           (in->list->long_count != 0 && in->reach->node[at] != 0);
}

typedef struct added_match {
    size_t start, end, resume; /* with the blanks it eats; where to look on */
    uint32_t id;
} added_match;

#define SCAN 65536 /* bytes that are passed over between two looks at the limits */

/* The next added token from `done` on; blanks before that are not its to eat. */
static bool find_added(mica__encoder *e, const added_text *in, size_t done, added_match *out)
{
    const mica__added *added = NULL;
    const char *text = in->text;
    const size_t length = in->length;
    size_t at = done, bytes = 0;
    while (at < length && added == NULL && mica__encoder_spend(e, 1)) {
        const size_t end = length - at < SCAN ? length : at + SCAN, start = at;
        for (; at < end; at++)
            if (may_begin(in, at) && (added = added_at(e, in, at, &out->end)) != NULL)
                break;
        mica__encoder_spend(e, (at - start) / 8);
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
                                mica__text_place place);

/* The parts between added tokens, and these tokens themselves; first in the raw text, then in the normalised one. */
static mica_status encode_around(mica__encoder *e, bool normalized, const char *text, size_t length,
                                 mica__text_place place)
{
    const mica__wordlist *list = normalized ? &e->tokenizer->added_normal : &e->tokenizer->added_raw;
    mica__reach *reach = &e->reach[normalized ? 1 : 0];
    const added_text in = {list, reach, text, length};
    added_match match = {0};
    size_t done = 0;
    mica_status status = mica__reach_find(reach, list, text, length);
    while (list->count + list->long_count != 0 && status == MICA_OK && find_added(e, &in, done, &match)) {
        if (match.start > done)
            status = encode_plain(e, normalized, text + done, match.start - done, place);
        mica__encoder_put(e, match.id);
        done = match.end;
        place = (mica__text_place){.first = false, .fresh = true};
    }
    if (status == MICA_OK)
        status = e->status;
    if (done < length && status == MICA_OK)
        status = encode_plain(e, normalized, text + done, length - done, place);
    return status;
}

static mica_status encode_plain(mica__encoder *e, bool normalized, const char *text, size_t length,
                                mica__text_place place)
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
    for (size_t at = 0; at < length && status == MICA_OK && mica__encoder_spend(e, 2);) {
        const size_t run = valid_run(text + at, length - at);
        if (run == 0) {
            encode_byte(e, (unsigned char)text[at++]);
            continue;
        }
        mica__encoder_spend(e, run / 8);
        status =
            encode_around(e, false, text + at, run, (mica__text_place){.first = at == 0, .fresh = at == 0});
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
    MICA__TRY(mica__check_flags("flags", flags, MICA_ENCODE_ADD | MICA_ENCODE_SPECIAL));
    if (length > MOST_TEXT)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "length is %llu, at most %llu bytes are taken at once",
                          (unsigned long long)length, (unsigned long long)MOST_TEXT);
    return MICA_OK;
}

/* What is still owed at the end. */
static mica_status settle(mica__encoder *e, mica_status status)
{
    if (status == MICA_OK)
        status = e->status;
    if (status == MICA_OK)
        status = mica__regex_scratch_settle(e->scratch);
    return status == MICA_OK ? mica__spend(e->debt) : status;
}

static mica_status encode(const mica_tokenizer *tokenizer, const char *text, uint64_t length, uint32_t flags,
                          uint32_t *ids, uint64_t capacity, uint64_t *out_count)
{
    mica__encoder e = {
        .tokenizer = tokenizer, .flags = flags, .length = (size_t)length, .ids = ids, .capacity = capacity};
    if (out_count == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "out_count is NULL");
    *out_count = 0;
    MICA__TRY(check_encode(tokenizer, text, length, flags, ids, capacity));
    mica__spend_allow(length);
    for (uint32_t i = 0; (flags & MICA_ENCODE_ADD) != 0 && i < tokenizer->before_count; i++)
        mica__encoder_put(&e, tokenizer->before[i]);
    mica_status status = mica__encoder_remember(&e, (size_t)length);
    if (status == MICA_OK)
        status = encode_text(&e, text, (size_t)length);
    for (uint32_t i = 0; (flags & MICA_ENCODE_ADD) != 0 && i < tokenizer->after_count; i++)
        mica__encoder_put(&e, tokenizer->after[i]);
    status = settle(&e, status);
    mica__encoder_release(&e);
    if (status == MICA_OK)
        *out_count = e.count;
    return status;
}

mica_status mica_tokenizer_encode(const mica_tokenizer *tokenizer, const char *text, uint64_t length,
                                  uint32_t flags, uint32_t *ids, uint64_t capacity, uint64_t *out_count)
{
    mica__call call;
    mica__call_begin(&call, "tokenizer_encode");
    return mica__call_end(&call, encode(tokenizer, text, length, flags, ids, capacity, out_count));
}
