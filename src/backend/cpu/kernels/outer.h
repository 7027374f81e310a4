/*
 * outer.h - sums of outer products: sum[i][j] += a[i][s] b[s][j], s rising. Every sum is in rising s whatever the tiles, so that calls may
 * be cut anywhere.
 *
 * a may lie any way, since its values are spread over lanes one by one; the j of b and of the sums lie side by side. Rows of a and columns of
 * b are there up to whole tiles and vectors: memory that callers fill up with zeros.
 */
#ifndef MICA_CPU_OUTER_H
#define MICA_CPU_OUTER_H

#include <stdbool.h>

#include "backend/cpu/kernels/simd/simd.h"

/* As many sums as there are registers, a few kept for the operands. */
#if MICA__ISA_LEVEL == 3
#define OUTER_ROWS 6
#define OUTER_VECTORS 4
#elif MICA__ISA_LEVEL == 2 || defined(__aarch64__)
#define OUTER_ROWS 6
#define OUTER_VECTORS 2
#else
#define OUTER_ROWS 4
#define OUTER_VECTORS 1
#endif
#define OUTER_UNROLL _Pragma("GCC unroll 8")

typedef struct outer {
    const float *a, *b;
    uint64_t a_row, a_step, b_step; /* floats from a row of a, from a step of a and of b to the next */
    uint64_t steps;
    float *sum;
    uint64_t ld;
    bool fresh; /* sums begin at zero */
} outer;

static inline __attribute__((always_inline)) void outer_tile(const outer *o, const float *a, const float *b,
                                                             int vectors, float *sums)
{
    const uint64_t steps = o->steps, a_row = o->a_row, a_step = o->a_step, b_step = o->b_step;
    vf sum[OUTER_ROWS * OUTER_VECTORS];
    OUTER_UNROLL for (int i = 0; i < OUTER_ROWS; i++) OUTER_UNROLL for (int j = 0; j < vectors; j++)
        sum[i * vectors + j] = o->fresh ? vf_zero() : vf_load(sums + (uint64_t)i * o->ld + (uint64_t)j * VW);
    for (uint64_t s = 0; s < steps; s++, a += a_step, b += b_step) {
        vf column[OUTER_VECTORS];
        OUTER_UNROLL for (int j = 0; j < vectors; j++) column[j] = vf_load(b + (uint64_t)j * VW);
        OUTER_UNROLL for (int i = 0; i < OUTER_ROWS; i++)
        {
            const vf row = vf_set1(a[(uint64_t)i * a_row]);
            OUTER_UNROLL for (int j = 0; j < vectors; j++) sum[i * vectors + j] =
                vf_fma(row, column[j], sum[i * vectors + j]);
        }
    }
    OUTER_UNROLL for (int i = 0; i < OUTER_ROWS; i++) OUTER_UNROLL for (int j = 0; j < vectors; j++)
        vf_store(sums + (uint64_t)i * o->ld + (uint64_t)j * VW, sum[i * vectors + j]);
}

/* Columns [at, at + vectors * VW) of all rows. */
static inline void outer_columns(const outer *o, uint64_t rows, uint64_t at, uint64_t vectors)
{
    for (uint64_t i = 0; i < rows; i += OUTER_ROWS) {
        const float *a = o->a + i * o->a_row, *b = o->b + at;
        float *sums = o->sum + i * o->ld + at;
        switch (vectors) {
        case 1: outer_tile(o, a, b, 1, sums); break;
#if OUTER_VECTORS > 1
        case 2: outer_tile(o, a, b, 2, sums); break;
#endif
#if OUTER_VECTORS > 2
        case 3: outer_tile(o, a, b, 3, sums); break;
        case 4: outer_tile(o, a, b, 4, sums); break;
#endif
        default: return;
        }
    }
}

/* All rows by all columns: in tiles as wide as can be, the last two alike. */
static inline void outer_add(const outer *o, uint64_t rows, uint64_t columns)
{
    const uint64_t most = OUTER_VECTORS;
    uint64_t left = (columns + VW - 1) / VW, at = 0;
    while (left > 0) {
        const uint64_t take = left >= 2 * most ? most : left > most ? (left + 1) / 2 : left;
        outer_columns(o, rows, at, take);
        at += take * VW;
        left -= take;
    }
}

#endif
