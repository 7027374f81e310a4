/*
 * product_tile.h - the tile of a product: a panel of ROWS rows times one of COLUMNS columns, both k by k, added to sums. Every sum is in rising k,
 * whatever the panels are cut into.
 */
#ifndef MICA_CPU_PRODUCT_TILE_H
#define MICA_CPU_PRODUCT_TILE_H

#include "backend/cpu/kernels/simd/simd.h"

/* As many sums as there are registers, a few kept for the operands. */
#if MICA__ISA_LEVEL == 3
#define ROWS 8
#define VECTORS 3
#elif MICA__ISA_LEVEL == 2 || defined(__aarch64__)
#define ROWS 4
#define VECTORS 3
#else
#define ROWS 4
#define VECTORS 1
#endif
#define COLUMNS (VECTORS * VW)
#define UNROLL _Pragma("GCC unroll 8")

/* sums [ROWS, COLUMNS], `ld` floats apart, += a panel of a times a panel of b. */
static inline void product_tile(const float *a, const float *b, uint64_t k, float *sums, uint64_t ld)
{
    vf sum[ROWS * VECTORS];
    UNROLL for (int i = 0; i < ROWS; i++) UNROLL for (int j = 0; j < VECTORS; j++) sum[i * VECTORS + j] =
        vf_load(sums + (uint64_t)i * ld + (uint64_t)j * VW);
    for (uint64_t s = 0; s < k; s++, a += ROWS, b += COLUMNS) {
        vf column[VECTORS];
        UNROLL for (int j = 0; j < VECTORS; j++) column[j] = vf_load(b + (uint64_t)j * VW);
        UNROLL for (int i = 0; i < ROWS; i++)
        {
            const vf row = vf_set1(a[i]);
            UNROLL for (int j = 0; j < VECTORS; j++) sum[i * VECTORS + j] =
                vf_fma(row, column[j], sum[i * VECTORS + j]);
        }
    }
    UNROLL for (int i = 0; i < ROWS; i++) UNROLL for (int j = 0; j < VECTORS; j++)
        vf_store(sums + (uint64_t)i * ld + (uint64_t)j * VW, sum[i * VECTORS + j]);
}

#endif
