/* vocabulary.c: tokens as bytes, and the trie over them. */
#include "grammar/vocabulary.h"

#include <string.h>

#include "base/alloc.h"
#include "base/sort.h"
#include "base/status.h"
#include "base/work.h"
#include "grammar/grammar.h"
#include "text/tokenizer/tokenizer.h"

static mica_status no_memory(void)
{
    return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for the vocabulary");
}

static uint32_t length_of(const mica__vocabulary *v, uint32_t id)
{
    return v->offsets[id + 1] - v->offsets[id];
}

/* ---- trie ----------------------------------------------------------------------------------------------- */

typedef struct ranked {
    const char *bytes;
    uint32_t length, id;
} ranked;

/* By bytes, what is a beginning of another first; equal ones by id. */
static int compare_ranked(const void *a, const void *b)
{
    const ranked *left = a, *right = b;
    const uint32_t shorter = left->length < right->length ? left->length : right->length;
    const int order = memcmp(left->bytes, right->bytes, shorter);
    if (order != 0)
        return order;
    if (left->length != right->length)
        return left->length < right->length ? -1 : 1;
    return left->id < right->id ? -1 : 1;
}

/* Steps to sort them: a comparison of two tokens looks at what they share. */
static uint64_t sorting(const mica__vocabulary *v)
{
    uint64_t levels = 1;
    while (v->rank_count >> levels != 0)
        levels++;
    return ((uint64_t)v->rank_count * 2 + v->offsets[v->count] / 16) * levels;
}

/* Fills ranks with the ids in the order of their bytes. */
static mica_status rank_tokens(mica__vocabulary *v)
{
    ranked *list = mica__alloc(sizeof *list * ((size_t)v->count + 1));
    mica_status status;
    v->ranks = mica__alloc(sizeof *v->ranks * ((size_t)v->count + 1));
    if (list == NULL || v->ranks == NULL) {
        mica__free(list);
        return no_memory();
    }
    for (uint32_t id = 0; id < v->count; id++) {
        const ranked item = {v->bytes + v->offsets[id], length_of(v, id), id};
        if (item.length != 0 && item.length <= MICA__VOCABULARY_LONGEST && !v->ends[id])
            list[v->rank_count++] = item;
    }
    status = mica__spend(sorting(v));
    if (status == MICA_OK)
        status = mica__sort(list, v->rank_count, sizeof *list, compare_ranked);
    for (uint32_t r = 0; r < v->rank_count; r++)
        v->ranks[r] = list[r].id;
    mica__free(list);
    return status;
}

/* How many bytes two tokens begin with alike. */
static uint32_t shared_bytes(const mica__vocabulary *v, uint32_t a, uint32_t b)
{
    const char *left = v->bytes + v->offsets[a], *right = v->bytes + v->offsets[b];
    const uint32_t most = length_of(v, a) < length_of(v, b) ? length_of(v, a) : length_of(v, b);
    uint32_t i = 0;
    while (i < most && left[i] == right[i])
        i++;
    return i;
}

/* The places in the order in which the sorted tokens need them: each adds those beyond what it shares with the last. */
static mica_status build_trie(mica__vocabulary *v)
{
    uint64_t places = 0;
    uint32_t count = 0;
    for (uint32_t r = 0; r < v->rank_count; r++)
        places += length_of(v, v->ranks[r]) - (r == 0 ? 0 : shared_bytes(v, v->ranks[r - 1], v->ranks[r]));
    if (places >= UINT32_MAX)
        return no_memory();
    MICA__TRY(mica__spend((places + v->rank_count) * 2));
    v->places = mica__alloc(sizeof *v->places * ((size_t)places + 1));
    if (v->places == NULL)
        return no_memory();
    for (uint32_t r = 0; r < v->rank_count; r++) {
        const uint32_t id = v->ranks[r], length = length_of(v, id);
        const uint32_t shared = r == 0 ? 0 : shared_bytes(v, v->ranks[r - 1], id);
        for (uint32_t depth = shared; depth < length; depth++) {
            mica__trie_place *place = &v->places[count++];
            place->depth = (uint16_t)(depth + 1);
            place->byte = (uint8_t)v->bytes[v->offsets[id] + depth];
            place->rank = r;
        }
        if (length > v->deepest)
            v->deepest = length;
    }
    v->place_count = count;
    memset(&v->places[count], 0, sizeof *v->places);
    v->places[count].rank = v->rank_count;
    return MICA_OK;
}

/* From the back: the end of what is below a place is the next place that is no deeper. */
static mica_status link_trie(mica__vocabulary *v)
{
    uint32_t *last = mica__alloc(
        sizeof *last * ((size_t)v->deepest + 2)); /* by depth, the place after it that is as deep or less */
    if (last == NULL)
        return no_memory();
    for (uint32_t d = 0; d <= v->deepest; d++)
        last[d] = v->place_count;
    for (uint32_t i = v->place_count, depth = 0; i > 0; i--) {
        mica__trie_place *place = &v->places[i - 1];
        for (; depth < place->depth; depth++) /* deeper places seen before belong to later branches */
            last[depth + 1] = last[depth];
        place->skip = last[place->depth];
        depth = place->depth;
        last[depth] = i - 1;
    }
    mica__free(last);
    return MICA_OK;
}

/* ---- life ----------------------------------------------------------------------------------------------- */

static mica_status vocabulary_new(uint32_t count, mica__vocabulary **out_vocabulary)
{
    mica__vocabulary *v = mica__calloc(1, sizeof *v);
    *out_vocabulary = v;
    if (v == NULL)
        return no_memory();
    atomic_init(&v->references, 1);
    v->count = count;
    v->offsets = mica__calloc((size_t)count + 1, sizeof *v->offsets);
    v->ends = mica__calloc((size_t)count + 1, sizeof *v->ends);
    return v->offsets == NULL || v->ends == NULL ? no_memory() : MICA_OK;
}

/* Hands out a vocabulary whose bytes are there, or releases it. */
static mica_status finish(mica__vocabulary *v, mica_status status, mica__vocabulary **out_vocabulary)
{
    if (status == MICA_OK)
        status = rank_tokens(v);
    if (status == MICA_OK)
        status = build_trie(v);
    if (status == MICA_OK)
        status = link_trie(v);
    if (status != MICA_OK) {
        mica__vocabulary_release(v);
        return status;
    }
    *out_vocabulary = v;
    return MICA_OK;
}

mica_status mica__vocabulary_create(uint32_t count, const char *bytes, const uint32_t *offsets,
                                    const uint8_t *ends, mica__vocabulary **out_vocabulary)
{
    mica__vocabulary *v;
    mica_status status = vocabulary_new(count, &v);
    *out_vocabulary = NULL;
    if (status == MICA_OK) {
        v->bytes = mica__alloc(offsets[count]);
        if (v->bytes == NULL)
            status = no_memory();
    }
    if (status == MICA_OK) {
        memcpy(v->bytes, bytes, offsets[count]);
        memcpy(v->offsets, offsets, sizeof *offsets * ((size_t)count + 1));
        if (ends != NULL)
            memcpy(v->ends, ends, count);
    }
    return finish(v, status, out_vocabulary);
}

mica_string mica__token_bytes(const mica_tokenizer *tokenizer, uint32_t id)
{
    const mica_string none = {"", 0};
    const uint8_t kind = id < tokenizer->count ? tokenizer->token_kind[id] : MICA_TOKEN_UNUSED;
    if (kind == MICA_TOKEN_CONTROL || kind == MICA_TOKEN_UNKNOWN || kind == MICA_TOKEN_UNUSED)
        return none;
    return tokenizer->piece[id];
}

/* The bytes of all tokens, end to end. */
static mica_status read_tokens(mica__vocabulary *v, const mica_tokenizer *tokenizer)
{
    uint64_t total = 0;
    mica__spend_allow(v->count); /* the tokenizer's file was read: what stands in it may be gone through */
    MICA__TRY(mica__spend((uint64_t)v->count * 4));
    for (uint32_t id = 0; id < v->count; id++)
        total += mica__token_bytes(tokenizer, id).length;
    mica__spend_allow(total);
    v->bytes = total < UINT32_MAX ? mica__alloc((size_t)total) : NULL;
    if (v->bytes == NULL)
        return no_memory();
    for (uint32_t id = 0; id < v->count; id++) {
        const mica_string bytes = mica__token_bytes(tokenizer, id);
        if (bytes.length != 0)
            memcpy(v->bytes + v->offsets[id], bytes.data, (size_t)bytes.length);
        v->offsets[id + 1] = v->offsets[id] + (uint32_t)bytes.length;
        v->ends[id] = mica_tokenizer_is_end(tokenizer, id) != 0;
    }
    return MICA_OK;
}

mica_status mica__vocabulary_of(const mica_tokenizer *tokenizer, mica__vocabulary **out_vocabulary)
{
    mica_tokenizer_info info;
    mica__vocabulary *v;
    mica_status status = mica_tokenizer_get_info(tokenizer, &info);
    *out_vocabulary = NULL;
    if (status != MICA_OK)
        return status;
    status = vocabulary_new(info.count, &v);
    if (status == MICA_OK) {
        v->tokenizer = mica__tokenizer_retain(tokenizer);
        status = read_tokens(v, tokenizer);
    }
    return finish(v, status, out_vocabulary);
}

mica__vocabulary *mica__vocabulary_retain(mica__vocabulary *vocabulary)
{
    atomic_fetch_add_explicit(&vocabulary->references, 1, memory_order_relaxed);
    return vocabulary;
}

void mica__vocabulary_release(mica__vocabulary *vocabulary)
{
    if (vocabulary == NULL ||
        atomic_fetch_sub_explicit(&vocabulary->references, 1, memory_order_acq_rel) != 1)
        return;
    mica_tokenizer_release((mica_tokenizer *)vocabulary->tokenizer);
    mica__free(vocabulary->bytes);
    mica__free(vocabulary->offsets);
    mica__free(vocabulary->ends);
    mica__free(vocabulary->ranks);
    mica__free(vocabulary->places);
    mica__free(vocabulary);
}
