/*
 * conv_tile.h - a convolution over a tile of f32 places: vectors of outputs against single places, or vectors of places against single weights.
 *
 * The products of one output are added in rising channel and tap by one fused multiply-add each, so both ways and all tiles give the same
 * bits. Nothing here knows a view, a record or an op.
 */
#ifndef MICA_CPU_CONV_TILE_H
#define MICA_CPU_CONV_TILE_H

#include "backend/cpu/kernels/image/conv.h"
#include "backend/cpu/kernels/rows.h"

#define CONV_INLINE static inline __attribute__((always_inline))
#define CONV_UNROLL _Pragma("GCC unroll 32")

/* Vectors of outputs in a tile of registers, and places beside one, two, three and four of them. */
#if MICA__ISA_LEVEL == 3
#define CONV_VECTORS 4
#define CONV_PLACES(vectors) ((vectors) == 1 ? 14 : (vectors) == 2 ? 12 : (vectors) == 3 ? 8 : 6)
#else
#define CONV_VECTORS 2
#define CONV_PLACES(vectors) ((vectors) == 1 ? 10 : 6)
#endif
#define CONV_WEIGHT_BYTES 24576u /* that stay in the first cache while the places of a tile go by */

_Static_assert(VW <= MICA__CONV_LANES && CONV_VECTORS <= MICA__CONV_VECTORS, "the plan reserves too little");

typedef struct conv_tap {
    uint64_t at;     /* in a channel of the tile */
    uint64_t weight; /* number of the tap */
} conv_tap;

typedef struct conv_tile {
    const float *x; /* [channel][plane] */
    uint64_t plane, channels;
    const conv_tap *tap;
    uint64_t taps, all_taps; /* of this phase; of the kernel */
    const uint64_t *place;   /* in a channel; filled up with the last one for 16 more */
    uint64_t places;
    float *sums; /* [place][vectors * VW] */
} conv_tile;

/* `places` neighbours in the list, channels [begin, end): sums go on from those of the channels before. */
CONV_INLINE void conv_places(const conv_tile *t, const float *w, uint64_t at, uint64_t begin, uint64_t end,
                             int vectors, int places)
{
    vf sum[CONV_PLACES(1) > 24 ? CONV_PLACES(1) : 24];
    const uint64_t *place = t->place + at;
    float *sums = t->sums + at * (uint64_t)(vectors * VW);
    CONV_UNROLL
    for (int i = 0; i < places * vectors; i++)
        sum[i] = begin > 0 ? vf_load(sums + i * VW) : vf_zero();
    for (uint64_t c = begin; c < end; c++) {
        const float *xc = t->x + c * t->plane, *wc = w + c * t->all_taps * (uint64_t)(vectors * VW);
        for (uint64_t k = 0; k < t->taps; k++) {
            const float *x = xc + t->tap[k].at, *wk = wc + t->tap[k].weight * (uint64_t)(vectors * VW);
            vf b[4];
            CONV_UNROLL
            for (int v = 0; v < vectors; v++)
                b[v] = vf_load(wk + v * VW);
            CONV_UNROLL
            for (int i = 0; i < places; i++) {
                const vf a = vf_set1(x[place[i]]);
                CONV_UNROLL
                for (int v = 0; v < vectors; v++)
                    sum[i * vectors + v] = vf_fma(a, b[v], sum[i * vectors + v]);
            }
        }
    }
    CONV_UNROLL
    for (int i = 0; i < places * vectors; i++)
        vf_store(sums + i * VW, sum[i]);
}

/* All places against one block of packed weights. */
CONV_INLINE void conv_block_of(const conv_tile *t, const float *w, int vectors)
{
    const uint64_t bytes = t->taps * (uint64_t)(vectors * VW) * sizeof(float);
    const uint64_t most = bytes < CONV_WEIGHT_BYTES && bytes > 0 ? CONV_WEIGHT_BYTES / bytes : 1;
    for (uint64_t begin = 0; begin < t->channels; begin += most) {
        const uint64_t end = begin + most < t->channels ? begin + most : t->channels;
        for (uint64_t at = 0; at < t->places; at += (uint64_t)CONV_PLACES(vectors))
            conv_places(t, w, at, begin, end, vectors, CONV_PLACES(vectors));
    }
}

static void conv_block(const conv_tile *t, const float *w, uint32_t vectors)
{
    switch (vectors) {
    case 1: conv_block_of(t, w, 1); return;
    case 2: conv_block_of(t, w, 2); return;
#if CONV_VECTORS > 2
    case 3: conv_block_of(t, w, 3); return;
    default: conv_block_of(t, w, 4); return;
#else
    default: return;
#endif
    }
}

/* `count` vectors of places from `x` on against the weights of one output, which are `lanes` floats apart. */
CONV_INLINE void conv_vectors(const conv_tile *t, const float *x, const float *w, int count, float *out)
{
    vf sum[4];
    CONV_UNROLL
    for (int i = 0; i < count; i++)
        sum[i] = vf_zero();
    for (uint64_t c = 0; c < t->channels; c++, w += t->all_taps * VW)
        for (uint64_t k = 0; k < t->taps; k++) {
            const float *at = x + c * t->plane + t->tap[k].at;
            const vf b = vf_set1(w[t->tap[k].weight * VW]);
            CONV_UNROLL
            for (int i = 0; i < count; i++)
                sum[i] = vf_fma(vf_load(at + i * VW), b, sum[i]);
        }
    CONV_UNROLL
    for (int i = 0; i < count; i++)
        vf_store(out + i * VW, sum[i]);
}

/* A row of `n` neighbouring places, from place `at` of a channel on, of output `lane` of the block; out holds whole vectors, and three more. */
static void conv_row(const conv_tile *t, uint64_t at, const float *w, uint32_t lane, uint64_t n, float *out)
{
    uint64_t i = 0;
    for (; i + 4 * VW <= n; i += 4 * VW)
        conv_vectors(t, t->x + at + i, w + lane, 4, out + i);
    for (; i < n; i += VW)
        conv_vectors(t, t->x + at + i, w + lane, 1, out + i);
}

#endif
