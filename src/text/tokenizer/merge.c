/* merge.c: byte pair encoding. A piece begins as single characters (or bytes); then the best pair of neighbours
 * becomes one, until no pair is known. The best has the lowest rank, or the highest score; of equal ones the leftmost.
 *
 * Pairs wait in a heap, so a piece of n characters costs n log n. Words that a text has again and again are kept. */
#include <string.h>

#include "base/half.h"
#include "base/hash.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/unicode.h"

#define KNOWN_BYTES 25
#define KNOWN_IDS 8
#define PIECE 4096 /* bytes between two looks at the limits */

/* A word and its ids: one cache line. */
typedef struct mica__known {
    uint32_t tag;
    uint8_t length, count; /* length 0: free */
    char word[KNOWN_BYTES + 1];
    uint32_t ids[KNOWN_IDS];
} mica__known;

static mica_status no_memory(void)
{
    return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory to encode a text");
}

/* ---- the heap of pairs ------------------------------------------------------------------------------------------ */

static bool is_before(const mica__pair *a, const mica__pair *b)
{
    return a->rank < b->rank || (a->rank == b->rank && a->left < b->left);
}

static bool push(mica__encoder *e, mica__pair pair)
{
    if (e->heap_count == e->heap_room) {
        const size_t room = e->heap_room * 2 + 64;
        mica__pair *heap = mica__realloc(e->heap, room * sizeof *heap);
        if (heap == NULL)
            return false;
        e->heap = heap;
        e->heap_room = room;
    }
    size_t at = e->heap_count++;
    for (; at > 0 && is_before(&pair, &e->heap[(at - 1) / 2]); at = (at - 1) / 2)
        e->heap[at] = e->heap[(at - 1) / 2];
    e->heap[at] = pair;
    return true;
}

static mica__pair pop(mica__encoder *e)
{
    const mica__pair best = e->heap[0], last = e->heap[--e->heap_count];
    size_t at = 0;
    for (size_t child; (child = at * 2 + 1) < e->heap_count; at = child) {
        if (child + 1 < e->heap_count && is_before(&e->heap[child + 1], &e->heap[child]))
            child++;
        if (!is_before(&e->heap[child], &last))
            break;
        e->heap[at] = e->heap[child];
    }
    e->heap[at] = last;
    return best;
}

/* ---- merging -------------------------------------------------------------------------------------------------------- */

/* A rank from a score: the higher the score, the lower the number, in the order of floats. */
static uint32_t rank_of(double score)
{
    const uint32_t bits = mica__f32_bits((float)score);
    return ~(bits ^ ((bits >> 31) != 0 ? 0xffffffffu : 0x80000000u));
}

/* Puts the pair in the heap if it is one. False without memory. */
static bool try_pair(mica__encoder *e, const char *text, uint32_t left, uint32_t right)
{
    const mica_tokenizer *t = e->tokenizer;
    if (left == MICA__NO_WORD || right == MICA__NO_WORD)
        return true;
    const mica__symbol *a = &e->symbols[left], *b = &e->symbols[right];
    const uint32_t length = a->length + b->length;
    mica__encoder_spend(e, 4 + length / 32);
    if (t->kind == MICA__TOKENIZER_BPE) {
        const mica__merge *merge = mica__merge_map_find(&t->merges, a->id, b->id);
        return merge == NULL || push(e, (mica__pair){merge->rank, left, right, length, merge->id});
    }
    const uint32_t id =
        length > t->longest_text ? MICA__NO_WORD : mica__token_map_find(&t->by_text, text + a->start, length);
    if (id == MICA__NO_WORD || t->token_kind[id] == MICA_TOKEN_CONTROL ||
        t->token_kind[id] == MICA_TOKEN_UNKNOWN || t->token_kind[id] == MICA_TOKEN_BYTE)
        return true;
    return push(e, (mica__pair){rank_of(t->score[id]), left, right, length, id});
}

static bool merge_symbols(mica__encoder *e, const char *text, size_t count)
{
    bool fits = true;
    e->heap_count = 0;
    for (uint32_t i = 1; i < count && fits && e->status == MICA_OK; i++)
        fits = try_pair(e, text, i - 1, i);
    while (e->heap_count != 0 && fits && mica__encoder_spend(e, 4)) {
        const mica__pair pair = pop(e);
        mica__symbol *left = &e->symbols[pair.left], *right = &e->symbols[pair.right];
        if (left->length == 0 || right->length == 0 || left->length + right->length != pair.length)
            continue; /* one of them is part of something else by now */
        left->length = pair.length;
        left->id = pair.id;
        left->next = right->next;
        right->length = 0;
        if (left->next != MICA__NO_WORD)
            e->symbols[left->next].previous = pair.left;
        fits = try_pair(e, text, left->previous, pair.left) && try_pair(e, text, pair.left, left->next);
    }
    return fits;
}

/* ---- the first symbols ------------------------------------------------------------------------------------------- */

static size_t add_symbol(mica__encoder *e, size_t count, uint32_t id, size_t start, size_t length)
{
    e->symbols[count] = (mica__symbol){id, (uint32_t)start, (uint32_t)length,
                                       count == 0 ? MICA__NO_WORD : (uint32_t)count - 1, (uint32_t)count + 1};
    return count + 1;
}

/* The token of one character, with the marks that this vocabulary puts on the inner and the last ones. */
static uint32_t find_char(const mica_tokenizer *t, const char *text, size_t length, bool first, bool last)
{
    char marked[80];
    const size_t before = first ? 0 : (size_t)t->continued.length,
                 after = last ? (size_t)t->suffix.length : 0;
    if (before + after == 0)
        return mica__token_map_find(&t->by_text, text, length);
    if (before != 0)
        memcpy(marked, t->continued.data, before);
    memcpy(marked + before, text, length);
    if (after != 0)
        memcpy(marked + before + length, t->suffix.data, after);
    return mica__token_map_find(&t->by_text, marked, before + length + after);
}

static bool has_bytes(const mica_tokenizer *t, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (t->byte_token[(unsigned char)text[i]] == MICA_NO_TOKEN)
            return false;
    return t->byte_fallback;
}

static size_t symbols_of_bytes(mica__encoder *e, const char *text, size_t length)
{
    const mica_tokenizer *t = e->tokenizer;
    size_t count = 0;
    for (size_t i = 0; i < length; i++) {
        if (i % PIECE == 0 && !mica__encoder_spend(e, length - i < PIECE ? length - i : PIECE))
            break;
        uint32_t id = t->byte_token[(unsigned char)text[i]];
        if (id == MICA_NO_TOKEN)
            id = t->unknown;
        if (id != MICA_NO_TOKEN)
            count = add_symbol(e, count, id, i, 1);
    }
    return count;
}

static size_t symbols_of_chars(mica__encoder *e, const char *text, size_t length)
{
    const mica_tokenizer *t = e->tokenizer;
    size_t count = 0;
    bool unknown_before = false;
    for (size_t i = 0, bytes; i < length && mica__encoder_spend(e, 4); i += bytes) {
        mica__char_at(text + i, &bytes);
        const uint32_t id = find_char(t, text + i, bytes, i == 0, i + bytes == length);
        const bool unknown = id == MICA__NO_WORD && !has_bytes(t, text + i, bytes);
        if (id != MICA__NO_WORD) {
            count = add_symbol(e, count, id, i, bytes);
        } else if (!unknown) {
            for (size_t k = 0; k < bytes; k++)
                count = add_symbol(e, count, t->byte_token[(unsigned char)text[i + k]], i + k, 1);
        } else if (unknown_before && t->fuse_unknown) {
            e->symbols[count - 1].length += (uint32_t)bytes;
        } else if (t->unknown != MICA_NO_TOKEN) {
            count = add_symbol(e, count, t->unknown, i, bytes);
        }
        unknown_before = unknown && t->unknown != MICA_NO_TOKEN;
    }
    return count;
}

/* Scores choose by the text of a pair, so a character that is no token must stay one symbol. */
static size_t symbols_of_text(mica__encoder *e, const char *text, size_t length)
{
    size_t count = 0;
    for (size_t i = 0, bytes; i < length && mica__encoder_spend(e, 4); i += bytes) {
        mica__char_at(text + i, &bytes);
        const uint32_t id = mica__token_map_find(&e->tokenizer->by_text, text + i, bytes);
        count = add_symbol(e, count, id, i, bytes);
    }
    return count;
}

static mica_status merge_piece(mica__encoder *e, const char *text, size_t length)
{
    const mica_tokenizer *t = e->tokenizer;
    if (length > e->symbol_room) {
        mica__symbol *symbols = mica__realloc(e->symbols, (length + length / 2 + 64) * sizeof *symbols);
        if (symbols == NULL)
            return no_memory();
        e->symbols = symbols;
        e->symbol_room = length + length / 2 + 64;
    }
    const size_t count = t->kind == MICA__TOKENIZER_SPM ? symbols_of_text(e, text, length)
                         : t->raw_bytes                 ? symbols_of_bytes(e, text, length)
                                                        : symbols_of_chars(e, text, length);
    if (count == 0 || e->status != MICA_OK)
        return e->status;
    e->symbols[count - 1].next = MICA__NO_WORD;
    if (!merge_symbols(e, text, count))
        return no_memory();
    if (e->status != MICA_OK)
        return e->status;
    for (uint32_t i = 0; i != MICA__NO_WORD && mica__encoder_spend(e, 1); i = e->symbols[i].next) {
        const mica__symbol *symbol = &e->symbols[i];
        if (symbol->id != MICA__NO_WORD)
            mica__encoder_put(e, symbol->id);
        else
            mica__encode_unknown(e, text + symbol->start, symbol->length);
    }
    return e->status;
}

/* ---- words seen before --------------------------------------------------------------------------------------------- */

static uint32_t whole_word(const mica_tokenizer *t, const char *text, size_t length)
{
    const uint32_t id = mica__token_map_find(t->raw_bytes ? &t->by_piece : &t->by_text, text, length);
    return id != MICA__NO_WORD && t->token_kind[id] == MICA_TOKEN_NORMAL ? id : MICA__NO_WORD;
}

mica_status mica__encode_merges(mica__encoder *e, const char *text, size_t length)
{
    const uint32_t id = e->tokenizer->ignore_merges ? whole_word(e->tokenizer, text, length) : MICA__NO_WORD;
    if (id != MICA__NO_WORD) {
        mica__encoder_put(e, id);
        return MICA_OK;
    }
    if (e->cache == NULL || length > KNOWN_BYTES)
        return merge_piece(e, text, length);
    const uint64_t hash = mica__hash_bytes(text, length, e->seed);
    mica__known *known = &e->cache[(uint32_t)hash & e->cache_mask];
    if (known->length == length && known->tag == (uint32_t)(hash >> 32) &&
        memcmp(known->word, text, length) == 0) {
        for (uint32_t i = 0; i < known->count; i++)
            mica__encoder_put(e, known->ids[i]);
        return MICA_OK;
    }
    const uint64_t start = e->count;
    const mica_status status = merge_piece(e, text, length);
    if (status != MICA_OK || e->count - start > KNOWN_IDS || e->count > e->capacity)
        return status;
    known->tag = (uint32_t)(hash >> 32);
    known->length = (uint8_t)length;
    known->count = (uint8_t)(e->count - start);
    memcpy(known->word, text, length);
    memcpy(known->ids, e->ids + start, known->count * sizeof *known->ids);
    return MICA_OK;
}

/* Short texts do without; long ones get a place for each 16 bytes, 2 MB at most. */
mica_status mica__encoder_remember(mica__encoder *e, size_t length)
{
    uint32_t places = 256;
    if (length < 4096)
        return MICA_OK;
    while (places < 32768 && places < length / 16)
        places *= 2;
    e->cache = mica__calloc(places, sizeof *e->cache);
    if (e->cache == NULL)
        return no_memory();
    e->cache_mask = places - 1;
    e->seed = mica__hash_seed();
    return MICA_OK;
}
