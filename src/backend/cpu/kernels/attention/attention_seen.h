/*
 * attention_seen.h - the keys that a token of attention sees, from its index operands, and where they lie. Nothing here trusts an index.
 */
#ifndef MICA_CPU_ATTENTION_SEEN_H
#define MICA_CPU_ATTENTION_SEEN_H

#include "backend/cpu/kernels/attention/attention.h"
#include "backend/cpu/kernels/index.h"

/* The keys a token sees: positions [first, last) of its sequence, or places in a list of positions; none if they are equal. */
typedef struct sight {
    uint64_t sequence, position, first, last;
} sight;

static inline const mica__cpu_view *view_of(const mica__cpu_args *args, uint32_t slot)
{
    return &args->view[slot];
}

static inline uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Keys that a sequence can hold. */
static inline uint64_t seen_capacity(const mica__cpu_args *args)
{
    const mica__cpu_view *k = view_of(args, MICA__ATTENTION_K), *pages = view_of(args, MICA__ATTENTION_PAGES);
    return pages->data != NULL ? pages->shape[1] * k->shape[1] : k->shape[0];
}

static inline bool page_exists(const mica__cpu_args *args, uint64_t sequence, uint64_t entry)
{
    const mica__cpu_view *k = view_of(args, MICA__ATTENTION_K), *pages = view_of(args, MICA__ATTENTION_PAGES);
    const int64_t page = index_at(pages, sequence * pages->stride[0] + entry * pages->stride[1]);
    return page >= 0 && (uint64_t)page < k->shape[0];
}

static inline bool pages_exist(const mica__cpu_args *args, const sight *s, const uint32_t *key)
{
    const uint64_t slots = view_of(args, MICA__ATTENTION_K)->shape[1];
    if (view_of(args, MICA__ATTENTION_PAGES)->data == NULL || s->first == s->last)
        return true;
    for (uint64_t i = s->first; key != NULL && i < s->last; i++)
        if (!page_exists(args, s->sequence, key[i] / slots))
            return false;
    for (uint64_t i = s->first / slots; key == NULL && i <= (s->last - 1) / slots; i++)
        if (!page_exists(args, s->sequence, i))
            return false;
    return true;
}

/* Those of the token's own list that lie in what it sees, into `key`; then the sight is places in it. */
static inline void choose_keys(const mica__cpu_args *args, uint64_t token, sight *s, uint32_t *key)
{
    const mica__cpu_view *keys = view_of(args, MICA__ATTENTION_KEYS);
    uint64_t count = 0;
    for (uint64_t i = 0; i < keys->shape[1]; i++) {
        const int64_t at = index_at(keys, token * keys->stride[0] + i * keys->stride[1]);
        if (at >= 0 && (uint64_t)at >= s->first && (uint64_t)at < s->last)
            key[count++] = (uint32_t)at;
    }
    s->first = 0;
    s->last = count;
}

/* What the token sees, from the index operands. False if one of them lies outside. `key`: room for the positions of a list, which is
 * there if the operand is. */
static inline bool look(const mica__cpu_args *args, const mica_attention_params *a, uint64_t token,
                        uint32_t *key, sight *out)
{
    const mica__cpu_view *positions = view_of(args, MICA__ATTENTION_POSITIONS);
    const mica__cpu_view *lengths = view_of(args, MICA__ATTENTION_LENGTHS);
    const mica__cpu_view *sequences = view_of(args, MICA__ATTENTION_SEQUENCES);
    const mica__cpu_view *pages = view_of(args, MICA__ATTENTION_PAGES),
                         *mask = view_of(args, MICA__ATTENTION_MASK);
    const uint64_t room = seen_capacity(args);
    *out = (sight){0};
    const int64_t position = index_at(positions, token * positions->stride[0]);
    const int64_t sequence = sequences->data != NULL ? index_at(sequences, token * sequences->stride[0]) : 0;
    if (position < 0 || sequence < 0 || (uint64_t)sequence >= lengths->shape[0])
        return false;
    if (pages->data != NULL && (uint64_t)sequence >= pages->shape[0])
        return false;
    const int64_t length = index_at(lengths, (uint64_t)sequence * lengths->stride[0]);
    if (length < 0 || (!a->ring && (uint64_t)length > room))
        return false;
    const uint64_t next = (uint64_t)position + 1;
    uint64_t first = a->window != 0 && next > a->window ? next - a->window : 0, last = (uint64_t)length;
    if (a->ring && last > room)
        first = larger(first, last - room);
    if (!a->bidirectional)
        last = smaller(last, next);
    if (mask->data != NULL)
        last = smaller(last, mask->shape[mask->ndim - 1]);
    sight s = {(uint64_t)sequence, (uint64_t)position, first, last};
    if (first >= last)
        s.first = s.last = 0;
    else if (key != NULL)
        choose_keys(args, token, &s, key);
    if (!pages_exist(args, &s, key))
        return false;
    *out = s;
    return true;
}

/* Where the slot of a position begins, in the cache of `slot`. A page that is not there gives any other: nobody sees it. */
static inline const unsigned char *key_place(const mica__cpu_args *args, uint32_t slot, uint64_t sequence,
                                             uint64_t position)
{
    const mica__cpu_view *cache = view_of(args, slot), *pages = view_of(args, MICA__ATTENTION_PAGES);
    const uint64_t slots = cache->shape[cache->ndim - 3];
    const unsigned char *page = cache->data;
    if (pages->data != NULL) {
        const int64_t number =
            index_at(pages, sequence * pages->stride[0] + position / slots * pages->stride[1]);
        if (number >= 0 && (uint64_t)number < cache->shape[0])
            page += (uint64_t)number * cache->stride[0];
    }
    return page + position % slots * cache->stride[cache->ndim - 3];
}

#endif
