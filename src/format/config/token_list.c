/* token_list.c - tokens of a GGUF found by text, and merges made of scores. */
#include "format/config/token_list.h"

#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/sort.h"
#include "base/utf8.h"
#include "base/work.h"

#define MOST_TOKENS ((uint64_t)1 << 22)

static bool is_text(const mica_string *text)
{
    if (text->length > UINT16_MAX || memchr(text->data, 0, (size_t)text->length) != NULL)
        return false;
    for (uint64_t at = 0; at < text->length;) {
        const size_t size = mica__utf8_length(text->data + at, (size_t)(text->length - at));
        if (size == 0)
            return false;
        at += size;
    }
    return true;
}

/* An array of `type` as long as the tokens, or NULL. */
static const void *array_of(const mica__archive *archive, const char *key, mica_value_type type,
                            uint64_t count)
{
    const mica_value *value = mica__archive_meta(archive, key);
    if (value == NULL || value->type != MICA_VALUE_ARRAY || value->item_type != type || value->count != count)
        return NULL;
    return value->as.items;
}

/* The slot of that text, or the free one where it belongs. */
static uint32_t *find_slot(const mica__token_list *v, const char *text, size_t length)
{
    uint32_t at = (uint32_t)mica__hash_bytes(text, length, v->seed) & (v->slot_count - 1);
    for (; v->slot[at] != 0; at = (at + 1) & (v->slot_count - 1)) {
        const mica_string *other = &v->token[v->slot[at] - 1];
        if (other->length == length && memcmp(other->data, text, length) == 0)
            break;
    }
    return &v->slot[at];
}

/* Which lengths tokens have. */
static mica_status find_lengths(mica__token_list *v)
{
    uint64_t longest = 0;
    for (uint32_t i = 0; i < v->count; i++)
        longest = v->token[i].length > longest ? v->token[i].length : longest;
    const mica_status status =
        mica__limit_check("bytes in the text of a token", mica__limits()->token_bytes, longest);
    if (status != MICA_OK)
        return status;
    v->lengths = mica__calloc((size_t)longest + 1, sizeof *v->lengths);
    if (v->lengths == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for %u tokens", v->count);
    for (uint32_t i = 0; i < v->count; i++)
        v->lengths[v->token[i].length] = true;
    return MICA_OK;
}

static mica_status fill_table(mica__token_list *v)
{
    v->slot_count = 16;
    while (v->slot_count / 2 < v->count)
        v->slot_count *= 2;
    v->seed = mica__hash_seed();
    v->slot = mica__calloc(v->slot_count, sizeof *v->slot);
    if (v->slot == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for %u tokens", v->count);
    mica_status status = find_lengths(v);
    for (uint32_t i = 0; i < v->count && status == MICA_OK; i++) {
        status = mica__spend(8 + v->token[i].length / 16);
        uint32_t *slot = find_slot(v, v->token[i].data, (size_t)v->token[i].length);
        if (*slot == 0)
            *slot = i + 1;
    }
    return status;
}

mica_status mica__token_list_open(const mica__archive *archive, mica__token_list *out, bool *out_usable)
{
    const mica_value *tokens = mica__archive_meta(archive, "tokenizer.ggml.tokens");
    *out = (mica__token_list){0};
    *out_usable = false;
    if (tokens == NULL || tokens->type != MICA_VALUE_ARRAY || tokens->item_type != MICA_VALUE_STRING ||
        tokens->count == 0 || tokens->count > MOST_TOKENS)
        return MICA_OK;
    for (uint64_t i = 0; i < tokens->count; i++)
        if (!is_text((const mica_string *)tokens->as.items + i))
            return MICA_OK;
    out->token = tokens->as.items;
    out->count = (uint32_t)tokens->count;
    out->kind = array_of(archive, "tokenizer.ggml.token_type", MICA_VALUE_I32, tokens->count);
    out->score = array_of(archive, "tokenizer.ggml.scores", MICA_VALUE_F32, tokens->count);
    *out_usable = true;
    return fill_table(out);
}

void mica__token_list_close(mica__token_list *list)
{
    mica__free(list->slot);
    mica__free(list->lengths);
    *list = (mica__token_list){0};
}

uint32_t mica__token_list_find(const mica__token_list *list, const char *text, size_t length)
{
    const uint32_t slot = *find_slot(list, text, length);
    return slot == 0 ? list->count : slot - 1;
}

mica__piece_kind mica__token_list_kind(const mica__token_list *list, uint32_t token)
{
    const int32_t kind = list->kind == NULL ? MICA__PIECE_NORMAL : list->kind[token];
    return kind >= MICA__PIECE_NORMAL && kind <= MICA__PIECE_BYTE ? (mica__piece_kind)kind
                                                                  : MICA__PIECE_NORMAL;
}

/* ---- merges --------------------------------------------------------------------------------------------- */

typedef struct ranked {
    mica__merge_rule merge;
    float score;
} ranked;

typedef struct ranking {
    ranked *item;
    uint32_t count, capacity;
} ranking;

static int by_rank(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    if (x->merge.whole != y->merge.whole)
        return x->merge.whole < y->merge.whole ? -1 : 1;
    if (x->merge.left != y->merge.left)
        return x->merge.left < y->merge.left ? -1 : 1;
    return (x->merge.right > y->merge.right) - (x->merge.right < y->merge.right);
}

static mica_status add_merge(ranking *r, const mica__merge_rule *merge, float score)
{
    if (r->count == r->capacity) {
        const uint32_t capacity = r->capacity == 0 ? 4096 : r->capacity * 2;
        ranked *grown = mica__realloc(r->item, (size_t)capacity * sizeof *grown);
        if (grown == NULL)
            return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for %u merges", capacity);
        r->item = grown;
        r->capacity = capacity;
    }
    r->item[r->count++] = (ranked){*merge, score};
    return MICA_OK;
}

/* All ways to cut one token in two that are tokens. */
static mica_status cut_token(const mica__token_list *v, uint32_t whole, ranking *r)
{
    const mica_string *text = &v->token[whole];
    mica_status status = mica__spend(4 + text->length);
    for (uint64_t at = 0; at < text->length && status == MICA_OK;) {
        at += mica__utf8_length(text->data + at, (size_t)(text->length - at));
        if (at == text->length || !v->lengths[at] || !v->lengths[text->length - at])
            continue; /* no token is as long */
        status = mica__spend(8 + text->length / 16);
        const mica__merge_rule merge = {
            mica__token_list_find(v, text->data, (size_t)at),
            mica__token_list_find(v, text->data + at, (size_t)(text->length - at)), whole};
        if (status == MICA_OK && merge.left < v->count && merge.right < v->count)
            status = add_merge(r, &merge, v->score == NULL ? 0 : v->score[whole]);
    }
    return status;
}

mica_status mica__token_list_merges(const mica__token_list *list, mica__merge_rule **out_merges,
                                    uint32_t *out_count)
{
    ranking r = {0};
    mica_status status = MICA_OK;
    *out_merges = NULL;
    *out_count = 0;
    for (uint32_t i = 0; i < list->count && status == MICA_OK; i++)
        if (mica__token_list_kind(list, i) == MICA__PIECE_NORMAL)
            status = cut_token(list, i, &r);
    if (status == MICA_OK)
        status = mica__sort(r.item, r.count, sizeof *r.item, by_rank);
    if (status == MICA_OK) {
        mica__merge_rule *merges = mica__alloc(((size_t)r.count + 1) * sizeof *merges);
        if (merges == NULL) {
            mica__free(r.item);
            return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for %u merges", r.count);
        }
        for (uint32_t i = 0; i < r.count; i++)
            merges[i] = r.item[i].merge;
        *out_merges = merges;
        *out_count = r.count;
    }
    mica__free(r.item);
    return status;
}
