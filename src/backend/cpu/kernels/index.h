/*
 * index.h - index operands (positions, ids, sequences, page tables) and where a position lies in a cache.
 *
 * Indices are u32 or i32 and come from the caller while the work runs: nothing here trusts them.
 */
#ifndef MICA_CPU_INDEX_H
#define MICA_CPU_INDEX_H

#include <string.h>

#include "backend/cpu/cpu_kernel.h"

/* The index at this byte offset of the view, negative only for i32. */
static inline int64_t index_at(const mica__cpu_view *view, uint64_t offset)
{
    uint32_t bits;
    memcpy(&bits, view->data + offset, sizeof bits);
    return view->dtype == MICA_DTYPE_I32 ? (int64_t)(int32_t)bits : (int64_t)bits;
}

/* A KV cache with what says where a token goes; absent views have no data. */
typedef struct mica__cache {
    const mica__cpu_view *rows, *positions, *sequences, *pages;
    uint32_t ring;
} mica__cache;

/* First byte of head 0 of the slot for this token, or NULL if its position, sequence or page lies outside.
 * rows is [slots, heads, dim], or [pages, page_slots, heads, dim] with pages [sequences, max_pages]. */
static inline unsigned char *cache_slot(const mica__cache *cache, uint64_t token)
{
    const mica__cpu_view *rows = cache->rows, *pages = cache->pages;
    const int64_t signed_position = index_at(cache->positions, token * cache->positions->stride[0]);
    if (signed_position < 0)
        return NULL;
    uint64_t position = (uint64_t)signed_position;
    if (pages->data == NULL) {
        if (cache->ring)
            position %= rows->shape[0];
        return position < rows->shape[0] ? rows->data + position * rows->stride[0] : NULL;
    }
    int64_t sequence = 0;
    if (cache->sequences->data != NULL)
        sequence = index_at(cache->sequences, token * cache->sequences->stride[0]);
    const uint64_t entry = position / rows->shape[1], slot = position % rows->shape[1];
    if (sequence < 0 || (uint64_t)sequence >= pages->shape[0] || entry >= pages->shape[1])
        return NULL;
    const int64_t page = index_at(pages, (uint64_t)sequence * pages->stride[0] + entry * pages->stride[1]);
    if (page < 0 || (uint64_t)page >= rows->shape[0])
        return NULL;
    return rows->data + (uint64_t)page * rows->stride[0] + slot * rows->stride[1];
}

#endif
