/*
 * conv_tile.h - the product inside of convolutions: vectors of one operand, step by step, against single elements of the other, which lie where a list
 * of places and a list of steps say.
 *
 *   sums [place][lane] += sum over steps of x [place + step] w [step][lane]
 *
 * The terms of one sum are added in rising step by one fused multiply-add each, so that no bit depends on how places are grouped. Nothing here knows a
 * view, a record or an op.
 */
#ifndef MICA_CPU_CONV_TILE_H
#define MICA_CPU_CONV_TILE_H

#include "backend/cpu/kernels/image/conv.h"
#include "backend/cpu/kernels/rows.h"

#define CONV_INLINE static inline __attribute__((always_inline))
#define CONV_UNROLL _Pragma("GCC unroll 32")

/* Vectors in a tile of registers, and places beside one, two, three and four of them. */
#if MICA__ISA_LEVEL == 3
#define CONV_VECTORS 4
#define CONV_PLACES(vectors) ((vectors) == 1 ? 14 : (vectors) == 2 ? 12 : (vectors) == 3 ? 8 : 6)
#else
#define CONV_VECTORS 2
#define CONV_PLACES(vectors) ((vectors) == 1 ? 10 : 6)
#endif
#define CONV_BLOCK (CONV_VECTORS * VW) /* lanes of a block */
/* Whether the lanes of two steps may lie far apart: single lines would share few sets of a cache, and there are too few registers to say where they are. */
#define CONV_FAR (CONV_BLOCK == MICA__CONV_OUTPUTS)

_Static_assert(CONV_BLOCK <= MICA__CONV_OUTPUTS && VW <= MICA__CONV_LANES, "the plan reserves too little");

typedef struct conv_tile {
    const float *x;
    const uint64_t *place; /* filled up with the last one for 16 more */
    const uint64_t *step;
    uint64_t places, steps;
    uint64_t w_step; /* CONV_FAR: floats between the lanes of two steps */
    const float
        *ahead; /* CONV_FAR: lanes that the tile behind this one reads, asked for meanwhile; NULL: none */
    bool first; /* sums begin at zero */
} conv_tile;

/* `places` neighbours in the list. */
CONV_INLINE void conv_places(const conv_tile *t, const float *w, uint64_t at, float *sums, int vectors,
                             int places)
{
    vf sum[24];
    const uint64_t *place = t->place + at;
    const uint64_t w_step = CONV_FAR ? t->w_step : (uint64_t)(vectors * VW);
    /* a vector of each step's lanes with each group of places, until all are asked for */
    const uint64_t part = at / (uint64_t)places;
    const float *ahead = CONV_FAR && t->ahead != NULL && part < (uint64_t)vectors ? t->ahead + part * VW : w;
    sums += at * (uint64_t)(vectors * VW);
    CONV_UNROLL
    for (int i = 0; i < places * vectors; i++)
        sum[i] = t->first ? vf_zero() : vf_load(sums + i * VW);
    for (uint64_t k = 0; k < t->steps; k++, w += w_step, ahead += w_step) {
        const float *x = t->x + t->step[k];
        if (CONV_FAR)
            __builtin_prefetch(ahead, 0, 2);
        vf b[4];
        CONV_UNROLL
        for (int v = 0; v < vectors; v++)
            b[v] = vf_load(w + v * VW);
        CONV_UNROLL
        for (int i = 0; i < places; i++) {
            const vf a = vf_set1(x[place[i]]);
            CONV_UNROLL
            for (int v = 0; v < vectors; v++)
                sum[i * vectors + v] = vf_fma(a, b[v], sum[i * vectors + v]);
        }
    }
    CONV_UNROLL
    for (int i = 0; i < places * vectors; i++)
        vf_store(sums + i * VW, sum[i]);
}

CONV_INLINE void conv_block_of(const conv_tile *t, const float *w, float *sums, int vectors)
{
    const uint64_t group = (uint64_t)CONV_PLACES(vectors);
    uint64_t at = 0;
    for (; at + group / 2 < t->places; at += group)
        conv_places(t, w, at, sums, vectors, CONV_PLACES(vectors));
    if (at < t->places)
        conv_places(t, w, at, sums, vectors, CONV_PLACES(vectors) / 2);
}

/* All places against `vectors` vectors. Sums have room for 16 places more. A function of its own, which has all registers. */
static __attribute__((noinline)) void conv_block(const conv_tile *t, const float *w, float *sums,
                                                 uint32_t vectors)
{
    switch (vectors) {
    case 1: conv_block_of(t, w, sums, 1); return;
    case 2: conv_block_of(t, w, sums, 2); return;
#if CONV_VECTORS > 2
    case 3: conv_block_of(t, w, sums, 3); return;
    default: conv_block_of(t, w, sums, 4); return;
#else
    default: return;
#endif
    }
}

#endif
