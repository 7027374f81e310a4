/*
 * resize_lanes.h - the last dimension of a resized row by vectors: what tap t of VW places that follow one another reads lies within 2 VW elements, unless
 * the row is made much smaller, and is then picked out of two vectors.
 */
#ifndef MICA_CPU_RESIZE_LANES_H
#define MICA_CPU_RESIZE_LANES_H

#include "backend/cpu/kernels/image/image.h"
#include "backend/cpu/kernels/rows.h"

#define RESIZE_AHEAD 512 /* floats: rows below, which are not asked for in the order of their places */
#define RESIZE_INLINE static inline __attribute__((always_inline))

/* Place i is made of entries [begin[i], begin[i + 1]). */
typedef struct table {
    uint64_t *begin;
    mica__resize_entry *entry;
} table;

enum { TAP_ALL = 1, TAP_NEAR = 2 }; /* every lane has the tap; all lie near enough to be picked */

/* Tap t of the VW places of vector v is number v taps + t; lanes that have no such tap have weight 0. */
typedef struct resize_lanes {
    uint64_t taps;         /* 0: there is no such table */
    uint32_t *first, *how; /* [vector, tap] */
    uint32_t *place;       /* [vector, tap][VW], counted from first on */
    float *weight;         /* the same */
} resize_lanes;

static void resize_lanes_tap(const table *t, uint64_t from, uint64_t count, uint64_t tap, resize_lanes *lanes,
                             uint64_t to)
{
    uint64_t least = UINT64_MAX, most = 0, have = 0;
    for (uint64_t l = 0; l < count; l++)
        if (t->begin[from + l] + tap < t->begin[from + l + 1]) {
            const uint64_t place = t->entry[t->begin[from + l] + tap].place;
            least = place < least ? place : least;
            most = place > most ? place : most;
            have++;
        }
    lanes->first[to] = have > 0 ? (uint32_t)least : 0;
    lanes->how[to] = (have == VW ? TAP_ALL : 0) | (have == 0 || most - least < 2 * VW ? TAP_NEAR : 0);
    for (uint64_t l = 0; l < VW; l++) {
        const bool there = l < count && t->begin[from + l] + tap < t->begin[from + l + 1];
        const mica__resize_entry *entry = there ? &t->entry[t->begin[from + l] + tap] : NULL;
        lanes->place[to * VW + l] = there ? (uint32_t)(entry->place - least) : 0;
        lanes->weight[to * VW + l] = there ? (float)entry->weight : 0;
    }
}

/* `lanes->taps` is what there is room for. */
static void resize_lanes_fill(const table *t, uint64_t n, resize_lanes *lanes)
{
    for (uint64_t from = 0; from < n; from += VW)
        for (uint64_t tap = 0; tap < lanes->taps; tap++)
            resize_lanes_tap(t, from, n - from < VW ? n - from : VW, tap, lanes,
                             from / VW * lanes->taps + tap);
}

static __attribute__((noinline)) vf resize_far(const float *from, const uint32_t *place)
{
    float lane[VW];
    for (int l = 0; l < VW; l++)
        lane[l] = from[place[l]];
    return vf_load(lane);
}

/* VW places of a row. */
RESIZE_INLINE vf resize_vector(const resize_lanes *lanes, const float *row, uint64_t vector, uint64_t taps)
{
    vf sum = vf_zero();
    for (uint64_t k = 0; k < taps; k++) {
        const uint64_t at = vector * taps + k;
        const float *from = row + lanes->first[at];
        const uint32_t *place = lanes->place + at * VW, how = lanes->how[at];
        const vf by = vf_load(lanes->weight + at * VW);
        const vf v = vf_mul(by, (how & TAP_NEAR) != 0 ? vf_pick(from, vf_bits(vf_load(place)))
                                                      : resize_far(from, place));
        sum = vf_add(sum, (how & TAP_ALL) != 0 ? v : vf_select(vf_eq(by, vf_zero()), vf_zero(), v));
    }
    return sum;
}

RESIZE_INLINE void resize_put(const resize_lanes *lanes, const float *row, uint64_t n, uint64_t taps,
                              float *to)
{
    uint64_t i = 0;
    for (; i + VW <= n; i += VW)
        vf_store(to + i, resize_vector(lanes, row, i / VW, taps));
    if (i < n)
        vf_store_n(to + i, resize_vector(lanes, row, i / VW, taps), n - i);
}

/* The n places that a row of sums makes. */
static void resize_put_row(const resize_lanes *lanes, const float *row, uint64_t n, float *to)
{
    switch (lanes->taps) {
    case 1: resize_put(lanes, row, n, 1, to); return;
    case 2: resize_put(lanes, row, n, 2, to); return;
    case 4: resize_put(lanes, row, n, 4, to); return;
    default: resize_put(lanes, row, n, lanes->taps, to);
    }
}

/* ---- rows ---- */

RESIZE_INLINE void resize_add(const float *const *row, const float *weight, uint32_t rows, bool first,
                              uint64_t n, float *sums)
{
    vf by[MICA__CPU_RESIZE_ROWS];
    uint64_t i = 0;
    for (uint32_t r = 0; r < rows; r++)
        by[r] = vf_set1(weight[r]);
    for (; i + VW <= n; i += VW) {
        vf sum = first ? vf_zero() : vf_load(sums + i);
        for (uint32_t r = 0; r < rows; r++) {
            __builtin_prefetch(row[r] + i + RESIZE_AHEAD);
            sum = vf_add(sum, vf_mul(by[r], vf_load(row[r] + i)));
        }
        vf_store(sums + i, sum);
    }
    if (i < n) {
        vf sum = first ? vf_zero() : vf_load(sums + i);
        for (uint32_t r = 0; r < rows; r++)
            sum = vf_add(sum, vf_mul(by[r], vf_load_n(row[r] + i, n - i)));
        vf_store(sums + i, sum);
    }
}

/* Adds a few rows by their weights; `first`: to zeros. There is room behind the sums. */
static void resize_add_rows(const float *const *row, const float *weight, uint32_t rows, bool first,
                            uint64_t n, float *sums)
{
    switch (rows) {
    case 1: resize_add(row, weight, 1, first, n, sums); return;
    case 2: resize_add(row, weight, 2, first, n, sums); return;
    case 3: resize_add(row, weight, 3, first, n, sums); return;
    default: resize_add(row, weight, 4, first, n, sums);
    }
}

_Static_assert(MICA__CPU_RESIZE_ROWS == 4 && MICA__CPU_RESIZE_SLACK >= 2 * VW, "as many as there are cases");

#endif
