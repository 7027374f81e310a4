/*
 * quant_dot.h - quantised weights against 8-bit activations: a tile of VW rows by a few columns along K.
 *
 * Weights come packed (quant/packed.h), one panel of eight rows per eight lanes; activations are rows of
 * mica__q8_block. Each output element has one f32 accumulator, its row's lane, and takes the runs of 32 values in
 * order along K. Per run, isum the exact integer dot product, xd and xs the activation's d and s:
 *   q4_0, q8_0  acc = fma(isum, d * xd, acc)                        isum over (code - zero)
 *   q6_k        acc = fma(sa * isum_a + sb * isum_b, d * xd, acc)   halves of 16, an exact integer
 *   q4_k        acc = fma(isum, (d * scale) * xd, acc); acc = fma(-(dmin * min), xs, acc)
 *   affine      acc = fma(isum, scale * xd, acc); acc = fma(bias, xs, acc)
 * so the bits depend on nothing but the instruction set's fma. Integers stay below 2^24 and are exact as f32.
 *
 * Given by each instruction set, over quant_panels p, offsets in bytes into each panel:
 *   quant_f16 quant_bf16 quant_u8     one number per row as f32
 *   quant_dot4 quant_dot6 quant_dot8  sum[c] = isum of the part at `offset` against run `block` of column c; zero
 *                                     is the zero point (dot4: 0 or 8; dot8: 0 or 128)
 *   quant_dot6_halves                 the q6_k sum, i8 scales at `scales` and `scales` + 8, zero point 32
 *   quant_store_i8 quant_vi_sum       for the activations
 */
#ifndef MICA_CPU_QUANT_DOT_H
#define MICA_CPU_QUANT_DOT_H

#include "quant/quant.h"
#include "backend/cpu/kernels/matmul_quant.h"
#include "backend/cpu/kernels/simd.h"

#if MICA__ISA_LEVEL == 3
#include "backend/cpu/kernels/quant_dot_avx512.h"
#elif MICA__ISA_LEVEL == 2
#include "backend/cpu/kernels/quant_dot_avx2.h"
#else
#include "backend/cpu/kernels/quant_dot_portable.h"
#endif

#define QUANT_INLINE static inline __attribute__((always_inline))

/* What a tile works on. acc [columns][VW], MICA__QUANT_ROWS floats from column to column, goes in unless fresh, and
 * comes out. */
typedef struct quant_tile {
    quant_panels panels;
    const mica__q8_block *x[QUANT_COLUMNS]; /* per column, the run that the panels begin with */
    uint64_t runs;                          /* of 32 values */
    uint32_t group_runs;                    /* affine: runs of a group */
    uint16_t scale_dtype;                   /* affine: f16 or bf16 */
    bool fresh;                             /* sums begin at 0 */
    float *acc;
} quant_tile;

QUANT_INLINE void quant_advance(quant_panels *p, uint64_t bytes)
{
    for (int i = 0; i < QUANT_PANELS; i++)
        p->at[i] += bytes;
}

/* Asks for the lines of weights some blocks ahead: with few columns the weights come from memory, read once, in as
 * many streams as there are panels. The address may lie past the weight; nothing is read then. */
QUANT_INLINE void quant_prefetch(const quant_panels *p, uint64_t bytes, const int columns)
{
    for (int i = 0; columns < QUANT_COLUMNS && i < QUANT_PANELS; i++)
        for (uint64_t line = 0; line < bytes; line += 64)
            __builtin_prefetch((const void *)((uintptr_t)p->at[i] + 3072 + line));
}

QUANT_INLINE void quant_fold(vf *acc, const vf *sum, vf scale, const mica__q8_block *const *x, uint64_t run,
                             const int columns)
{
    for (int c = 0; c < columns; c++)
        acc[c] = vf_fma(sum[c], vf_mul(scale, vf_set1(x[c][run].d)), acc[c]);
}

QUANT_INLINE void quant_fold_bias(vf *acc, vf bias, const mica__q8_block *const *x, uint64_t run,
                                  const int columns)
{
    for (int c = 0; c < columns; c++)
        acc[c] = vf_fma(bias, vf_set1(x[c][run].s), acc[c]);
}

QUANT_INLINE void quant_runs_q4_0(const quant_tile *t, vf *acc, const int columns)
{
    quant_panels p = t->panels;
    for (uint64_t run = 0; run < t->runs; run++, quant_advance(&p, 144)) {
        vf sum[QUANT_COLUMNS];
        quant_prefetch(&p, 144, columns);
        quant_dot4(&p, 16, t->x, run, columns, 8, sum);
        quant_fold(acc, sum, quant_f16(&p, 0), t->x, run, columns);
    }
}

QUANT_INLINE void quant_runs_q8_0(const quant_tile *t, vf *acc, const int columns)
{
    quant_panels p = t->panels;
    for (uint64_t run = 0; run < t->runs; run++, quant_advance(&p, 272)) {
        vf sum[QUANT_COLUMNS];
        quant_prefetch(&p, 272, columns);
        quant_dot8(&p, 16, t->x, run, columns, 128, sum);
        quant_fold(acc, sum, quant_f16(&p, 0), t->x, run, columns);
    }
}

/* The 6-bit scales and mins of eight blocks, [12][8] bytes, as [16][8] bytes: scales, then mins. */
QUANT_INLINE void quant_expand_q4_k(const unsigned char *packed, unsigned char *out)
{
    typedef uint32_t u32x8 __attribute__((vector_size(32)));
    u32x8 a, b, c;
    memcpy(&a, packed, 32);
    memcpy(&b, packed + 32, 32);
    memcpy(&c, packed + 64, 32);
    const u32x8 scale_low = a & 0x3f3f3f3f, scale_high = (c & 0x0f0f0f0f) | (a >> 2 & 0x30303030);
    const u32x8 min_low = b & 0x3f3f3f3f, min_high = (c >> 4 & 0x0f0f0f0f) | (b >> 2 & 0x30303030);
    memcpy(out, &scale_low, 32);
    memcpy(out + 32, &scale_high, 32);
    memcpy(out + 64, &min_low, 32);
    memcpy(out + 96, &min_high, 32);
}

QUANT_INLINE void quant_runs_q4_k(const quant_tile *t, vf *acc, const int columns)
{
    quant_panels p = t->panels;
    for (uint64_t run = 0; run < t->runs; run += 8, quant_advance(&p, 1152)) {
        unsigned char bytes[QUANT_PANELS][128];
        quant_panels expanded;
        for (int i = 0; i < QUANT_PANELS; i++) {
            quant_expand_q4_k(p.at[i] + 32, bytes[i]);
            expanded.at[i] = bytes[i];
        }
        const vf d = quant_f16(&p, 0), dmin = vf_sub(vf_zero(), quant_f16(&p, 16));
        for (uint64_t s = 0; s < 8; s++) {
            vf sum[QUANT_COLUMNS];
            quant_panels part = p;
            quant_advance(&part, 128 * s);
            quant_prefetch(&part, 144, columns);
            quant_dot4(&part, 128, t->x, run + s, columns, 0, sum);
            quant_fold(acc, sum, vf_mul(d, quant_u8(&expanded, 8 * s)), t->x, run + s, columns);
            quant_fold_bias(acc, vf_mul(dmin, quant_u8(&expanded, 64 + 8 * s)), t->x, run + s, columns);
        }
    }
}

QUANT_INLINE void quant_runs_q6_k(const quant_tile *t, vf *acc, const int columns)
{
    quant_panels p = t->panels;
    for (uint64_t run = 0; run < t->runs; run += 8, quant_advance(&p, 1680)) {
        const vf d = quant_f16(&p, 0);
        for (uint64_t s = 0; s < 8; s++) {
            vf sum[QUANT_COLUMNS];
            quant_panels part = p;
            quant_advance(&part, 192 * s);
            quant_prefetch(&part, 192, columns);
            quant_dot6_halves(&p, 144 + 192 * s, 16 + 16 * s, t->x, run + s, columns, sum);
            quant_fold(acc, sum, d, t->x, run + s, columns);
        }
    }
}

QUANT_INLINE void quant_runs_affine(const quant_tile *t, vf *acc, const int columns, const int bits)
{
    const uint64_t part_bytes = 32u * (uint64_t)bits;
    quant_panels p = t->panels;
    for (uint64_t run = 0; run < t->runs;) {
        const int half = t->scale_dtype == MICA_DTYPE_F16;
        const vf scale = half ? quant_f16(&p, 0) : quant_bf16(&p, 0);
        const vf bias = half ? quant_f16(&p, 16) : quant_bf16(&p, 16);
        const uint64_t end = t->runs - run < t->group_runs ? t->runs : run + t->group_runs;
        quant_advance(&p, 32);
        for (; run < end; run++, quant_advance(&p, part_bytes)) {
            vf sum[QUANT_COLUMNS];
            quant_prefetch(&p, part_bytes, columns);
            if (bits == 4)
                quant_dot4(&p, 0, t->x, run, columns, 0, sum);
            else if (bits == 6)
                quant_dot6(&p, 0, t->x, run, columns, sum);
            else
                quant_dot8(&p, 0, t->x, run, columns, 0, sum);
            quant_fold(acc, sum, scale, t->x, run, columns);
            quant_fold_bias(acc, bias, t->x, run, columns);
        }
    }
}

QUANT_INLINE void quant_tile_run(const quant_tile *t, const uint16_t dtype, const int columns)
{
    vf acc[QUANT_COLUMNS];
    for (int c = 0; c < columns; c++)
        acc[c] = t->fresh ? vf_zero() : vf_load(t->acc + c * MICA__QUANT_ROWS);
    if (dtype == MICA_DTYPE_Q4_0)
        quant_runs_q4_0(t, acc, columns);
    else if (dtype == MICA_DTYPE_Q8_0)
        quant_runs_q8_0(t, acc, columns);
    else if (dtype == MICA_DTYPE_Q4_K)
        quant_runs_q4_k(t, acc, columns);
    else if (dtype == MICA_DTYPE_Q6_K)
        quant_runs_q6_k(t, acc, columns);
    else
        quant_runs_affine(t, acc, columns,
                          dtype == MICA_DTYPE_AFFINE4   ? 4
                          : dtype == MICA_DTYPE_AFFINE6 ? 6
                                                        : 8);
    for (int c = 0; c < columns; c++)
        vf_store(t->acc + c * MICA__QUANT_ROWS, acc[c]);
}

#endif
