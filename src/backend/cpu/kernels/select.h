/*
 * select.h - the first members of a list in the order of a value, without sorting the list.
 *
 * Values are f32, not negative, not NaN; the order is (value, place in the list). A key is both in one number: the bits
 * of the value above, the place below. A run is the shortest beginning of that order with enough mass and length. Short
 * lists go through a heap. Of long ones mass and length are added up in bins of equal width, and the bin in which the
 * run ends goes through the heap; where too many share that bin, bins of the bits of the values divide them.
 */
#ifndef MICA_CPU_SELECT_H
#define MICA_CPU_SELECT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "backend/cpu/kernels/simd/simd.h"

#define SELECT_HEAP 1024u /* members that a heap serves */
#define SELECT_BINS 2048u
#define SELECT_TILE 64u
#define SELECT_FAR 128.0f /* values from here on share a bin: what weighs exp(-value) is nothing there */

typedef struct select_bin {
    double mass;
    uint64_t count;
} select_bin;

typedef struct select_list {
    const float *value;
    const float *mass; /* NULL: without mass, so that length alone decides */
    uint32_t count;
    uint64_t *heap;  /* [SELECT_HEAP] */
    select_bin *bin; /* [SELECT_BINS] */
} select_list;

/* The last member of a run, and how many it has. */
typedef struct select_end {
    uint64_t key;
    uint64_t count;
} select_end;

/* A run ends where its mass is `target` or more (`above`: more) and its length `least` or more. */
typedef struct select_goal {
    double target;
    bool above;
    uint64_t least;
} select_goal;

static inline uint32_t select_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline uint64_t select_key(float value, uint32_t place)
{
    return (uint64_t)select_bits(value) << 32 | place;
}

/* ---- a heap with the least key on top ---------------------------------------------------------------------- */

static inline void heap_sift(uint64_t *heap, uint32_t root, uint32_t count)
{
    const uint64_t item = heap[root];
    for (uint32_t child = 2 * root + 1; child < count; child = 2 * root + 1) {
        if (child + 1 < count && heap[child + 1] < heap[child])
            child++;
        if (item <= heap[child])
            break;
        heap[root] = heap[child];
        root = child;
    }
    heap[root] = item;
}

static inline void heap_make(uint64_t *heap, uint32_t count)
{
    for (uint32_t i = count / 2; i > 0; i--)
        heap_sift(heap, i - 1, count);
}

/* Takes the least of `count` keys off; count - 1 are left. */
static inline uint64_t heap_pop(uint64_t *heap, uint32_t count)
{
    const uint64_t least = heap[0];
    heap[0] = heap[count - 1];
    heap_sift(heap, 0, count - 1);
    return least;
}

/* ---- runs -------------------------------------------------------------------------------------------------- */

static inline bool select_reached(const select_goal *goal, const select_bin *so_far)
{
    return so_far->count >= goal->least &&
           (goal->above ? so_far->mass > goal->target : so_far->mass >= goal->target);
}

static inline void select_add(const select_list *list, uint32_t place, select_bin *bin)
{
    bin->mass += list->mass != NULL ? (double)list->mass[place] : 0;
    bin->count++;
}

/* The run goes on from *so_far with `count` keys of the heap. */
static inline select_end select_heap(const select_list *list, const select_goal *goal, uint32_t count,
                                     select_bin so_far)
{
    uint64_t key = 0;
    heap_make(list->heap, count);
    for (uint32_t left = count; left > 0 && (left == count || !select_reached(goal, &so_far)); left--) {
        key = heap_pop(list->heap, left);
        select_add(list, (uint32_t)key, &so_far);
    }
    return (select_end){key, so_far.count};
}

static inline select_end select_few(const select_list *list, const select_goal *goal)
{
    for (uint32_t i = 0; i < list->count; i++)
        list->heap[i] = select_key(list->value[i], i);
    return select_heap(list, goal, list->count, (select_bin){0, 0});
}

/* The first bin in which the run can end; *so_far grows by the bins before it. `bins` where none is. */
static inline uint32_t select_walk(const select_list *list, const select_goal *goal, uint32_t bins,
                                   select_bin *so_far)
{
    for (uint32_t b = 0; b < bins; b++) {
        const select_bin with = {so_far->mass + list->bin[b].mass, so_far->count + list->bin[b].count};
        if (list->bin[b].count != 0 && select_reached(goal, &with))
            return b;
        *so_far = with;
    }
    return bins;
}

/* ---- by bits ----------------------------------------------------------------------------------------------- */

/* Fills `bins` bins of 2^shift values of bits each, the first of them `prefix`. */
static inline void select_split(const select_list *list, uint32_t prefix, uint32_t shift, uint32_t bins)
{
    const uint64_t low = prefix, high = low + ((uint64_t)bins << shift);
    memset(list->bin, 0, bins * sizeof *list->bin);
    for (uint32_t i = 0; i < list->count; i++) {
        const uint32_t bits = select_bits(list->value[i]);
        if (bits >= low && bits < high)
            select_add(list, i, &list->bin[(bits - prefix) >> shift]);
    }
}

/* 11, 10 and 10 bits of the values (the sign is 0), then the places of equal ones. */
static inline select_end select_by_bits(const select_list *list, const select_goal *goal)
{
    static const uint32_t shifts[] = {20, 10, 0}, bins[] = {2048, 1024, 1024};
    select_bin so_far = {0, 0};
    uint32_t prefix = 0, last = UINT32_MAX;
    for (uint32_t level = 0; level < 3; level++) {
        select_split(list, prefix, shifts[level], bins[level]);
        const uint32_t b = select_walk(list, goal, bins[level], &so_far);
        if (b == bins[level])
            return (select_end){UINT64_MAX, list->count}; /* everything, to rounding */
        prefix += b << shifts[level];
    }
    for (uint32_t i = 0; i < list->count; i++) {
        if (select_bits(list->value[i]) != prefix)
            continue;
        select_add(list, i, &so_far);
        last = i;
        if (select_reached(goal, &so_far))
            break;
    }
    return (select_end){(uint64_t)prefix << 32 | last, so_far.count};
}

/* ---- by width ---------------------------------------------------------------------------------------------- */

/* The bins of up to SELECT_TILE values from `first` on; `scale` bins to the unit. Returns how many. */
static inline uint32_t select_tile(const select_list *list, uint32_t first, float scale, int32_t *bins)
{
    const uint32_t count = list->count - first < SELECT_TILE ? list->count - first : SELECT_TILE;
    const float *value = list->value + first;
    for (uint32_t i = 0; i < count; i++) {
        const float scaled = value[i] * scale;
        bins[i] = (int32_t)(scaled < SELECT_BINS - 1.0f ? scaled : SELECT_BINS - 1.0f);
    }
    return count;
}

static inline float select_greatest(const select_list *list)
{
    vf most = vf_zero();
    uint32_t i = 0;
    for (; i + VW <= list->count; i += VW)
        most = vf_max(vf_load(list->value + i), most);
    if (i < list->count)
        most = vf_max(vf_load_n(list->value + i, list->count - i), most);
    const float value = vf_hmax(most);
    return value < SELECT_FAR ? value : SELECT_FAR;
}

static inline select_end select_many(const select_list *list, const select_goal *goal)
{
    const float most = select_greatest(list), scale = most > 0 ? (SELECT_BINS - 1.0f) / most : 0.0f;
    select_bin so_far = {0, 0};
    int32_t bins[SELECT_TILE];
    uint32_t found = 0;
    memset(list->bin, 0, SELECT_BINS * sizeof *list->bin);
    for (uint32_t first = 0; first < list->count; first += SELECT_TILE) {
        const uint32_t count = select_tile(list, first, scale, bins);
        for (uint32_t i = 0; i < count; i++)
            select_add(list, first + i, &list->bin[bins[i]]);
    }
    const uint32_t last = select_walk(list, goal, SELECT_BINS, &so_far);
    if (last == SELECT_BINS)
        return (select_end){UINT64_MAX, list->count};
    if (list->bin[last].count > SELECT_HEAP)
        return select_by_bits(list, goal);
    for (uint32_t first = 0; first < list->count; first += SELECT_TILE) {
        const uint32_t count = select_tile(list, first, scale, bins);
        for (uint32_t i = 0; i < count; i++)
            if (bins[i] == (int32_t)last)
                list->heap[found++] = select_key(list->value[first + i], first + i);
    }
    return select_heap(list, goal, found, so_far);
}

/* At least one member, if there is one. */
static inline select_end select_run(const select_list *list, const select_goal *goal)
{
    return list->count <= SELECT_HEAP ? select_few(list, goal) : select_many(list, goal);
}

#endif
