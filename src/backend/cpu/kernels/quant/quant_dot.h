/*
 * quant_dot.h - quantised weights against 8-bit activations: a tile of eight or sixteen rows by a few columns along K.
 *
 * Weights come packed (quant/packed.h), one panel of eight rows per eight lanes; activations are rows of
 * mica__q8_block. A quant_f has a lane for each row of a tile: one vector, or two. Each output element has one f32 accumulator, its row's lane, and takes the runs of 32 values in
 * order along K. Per run, isum the exact integer dot product, xd and xs the activation's d and s:
 *   q4_0 q5_0 q8_0 iq4_nl  acc = fma(isum, d * xd, acc)                        isum over (code - zero) or levels
 *   q3_k q6_k              acc = fma(sa * isum_a + sb * isum_b, d * xd, acc)   halves of 16, an exact integer
 *   q2_k                   as q3_k; acc = fma(ma * sum_a + mb * sum_b, -dmin * xd, acc)   sums of activations
 *   q4_k q5_k              acc = fma(isum, (d * scale) * xd, acc); acc = fma(-(dmin * min), xs, acc)
 *   iq4_xs                 acc = fma(isum, (d * scale) * xd, acc)
 *   mxfp4 fp4 of 32        acc = fma(isum, half * xd, acc)
 *   nvfp4 fp4 of 16        acc = fma(isum_a, half_a * xd, acc); acc = fma(isum_b, half_b * xd, acc)
 *   q4_1 q5_1 affine       acc = fma(isum, scale * xd, acc); acc = fma(bias, xs, acc)
 * so the bits depend on nothing but the instruction set's fma. Integers stay below 2^24 and are exact as f32.
 *
 * Given by each instruction set, over quant_panels p, offsets in bytes into each panel:
 *   quant_f16 quant_bf16 quant_u8  one number per row as f32
 *   quant_dot         sum[c] = isum of the part of 2 to 6 bits at `offset` against run `block` of column c; zero is the
 *                     zero point, 0 or half the range of the codes
 *   quant_dot8        the same of 8 bits: 0 or 128
 *   quant_dot_levels  the same of 4 bits that stand for signed levels
 *   quant_dot_level_halves  the same of each half of 16: first[c], second[c]
 *   quant_dot_halves  sa * isum_a + sb * isum_b of a part of 2 (zero point 0), 3 or 6 bits (half the range): i8 scales at
 *                     `at` and `at` + 8
 *   quant_min_halves  ma * sum_a + mb * sum_b: i8 factors like those scales
 *   quant_store_i8 quant_vi_sum    for the activations
 */
#ifndef MICA_CPU_QUANT_DOT_H
#define MICA_CPU_QUANT_DOT_H

#include "quant/quant.h"
#include "backend/cpu/kernels/quant/matmul_quant.h"
#include "backend/cpu/kernels/simd/simd.h"

#if MICA__ISA_LEVEL == 3
#include "backend/cpu/kernels/quant/quant_dot_avx512.h"
#elif MICA__ISA_LEVEL == 2
#include "backend/cpu/kernels/quant/quant_dot_avx2.h"
#else
#include "backend/cpu/kernels/quant/quant_dot_portable.h"
#endif

#if QUANT_PANELS * MICA__PACKED_ROWS == VW /* else the header above has them */
typedef vf quant_f;
#define quant_f_zero vf_zero
#define quant_f_set1 vf_set1
#define quant_f_load vf_load
#define quant_f_store vf_store
#define quant_f_sub vf_sub
#define quant_f_mul vf_mul
#define quant_f_fma vf_fma
#endif

#define QUANT_INLINE static inline __attribute__((always_inline))
#define QUANT_TILE_ROWS (QUANT_PANELS * MICA__PACKED_ROWS)

/* What a tile works on. acc [columns][QUANT_TILE_ROWS], MICA__QUANT_ROWS floats from column to column, goes in unless
 * fresh, and comes out. */
typedef struct quant_tile {
    quant_panels panels;
    const mica__q8_block *x[QUANT_COLUMNS]; /* per column, the run that the panels begin with */
    uint64_t runs;                          /* of 32 values */
    uint32_t group_size;                    /* affine, fp4 */
    uint16_t scale_dtype;                   /* affine: f16 or bf16 */
    bool fresh;                             /* sums begin at 0 */
    float *acc;
} quant_tile;

QUANT_INLINE void quant_advance(quant_panels *p, uint64_t bytes)
{
    for (int i = 0; i < QUANT_PANELS; i++)
        p->at[i] += bytes;
}

QUANT_INLINE void quant_fold(quant_f *acc, const quant_f *sum, quant_f scale, const mica__q8_block *const *x,
                             uint64_t run, const int columns)
{
    for (int c = 0; c < columns; c++)
        acc[c] = quant_f_fma(sum[c], quant_f_mul(scale, quant_f_set1(x[c][run].d)), acc[c]);
}

QUANT_INLINE void quant_fold_bias(quant_f *acc, quant_f bias, const mica__q8_block *const *x, uint64_t run,
                                  const int columns)
{
    for (int c = 0; c < columns; c++)
        acc[c] = quant_f_fma(bias, quant_f_set1(x[c][run].s), acc[c]);
}

/* Blocks of 32 values with a scale, and with a bias where `biased`. */
QUANT_INLINE void quant_runs_32(const quant_tile *t, quant_f *acc, const int columns, const int bits,
                                const int zero, const int biased)
{
    const uint64_t scales = biased ? 32 : 16, block_bytes = scales + 32u * (uint64_t)bits;
    quant_panels p = t->panels;
    for (uint64_t run = 0; run < t->runs; run++, quant_advance(&p, block_bytes)) {
        quant_f sum[QUANT_COLUMNS];
        if (bits == 8)
            quant_dot8(&p, scales, t->x, run, columns, zero, sum);
        else
            quant_dot(&p, scales, t->x, run, columns, bits, zero, sum);
        quant_fold(acc, sum, quant_f16(&p, 0), t->x, run, columns);
        if (biased)
            quant_fold_bias(acc, quant_f16(&p, 16), t->x, run, columns);
    }
}

static const int8_t quant_iq4_levels[16] = {MICA__IQ4_LEVELS};
static const int8_t quant_fp4_levels[16] = {MICA__FP4_LEVELS};

/* iq4_nl; with scales of bf16 mxfp4. */
QUANT_INLINE void quant_runs_levels(const quant_tile *t, quant_f *acc, const int columns,
                                    const int8_t levels[16], const int bf16)
{
    quant_panels p = t->panels;
    for (uint64_t run = 0; run < t->runs; run++, quant_advance(&p, 144)) {
        quant_f sum[QUANT_COLUMNS];
        quant_dot_levels(&p, 16, t->x, run, columns, levels, sum);
        quant_fold(acc, sum, bf16 ? quant_bf16(&p, 0) : quant_f16(&p, 0), t->x, run, columns);
    }
}

/* nvfp4, two parts a block; fp4 in groups of 16, one. */
QUANT_INLINE void quant_runs_nvfp4(const quant_tile *t, quant_f *acc, const int columns, const uint64_t parts)
{
    quant_panels p = t->panels;
    for (uint64_t run = 0; run < t->runs; run += parts, quant_advance(&p, 160 * parts)) {
        for (uint64_t s = 0; s < parts; s++) {
            quant_f first[QUANT_COLUMNS], second[QUANT_COLUMNS];
            quant_panels part = p;
            quant_advance(&part, 128 * s);
            quant_dot_level_halves(&part, 32 * parts, t->x, run + s, columns, quant_fp4_levels, first,
                                   second);
            quant_fold(acc, first, quant_f16(&p, 32 * s), t->x, run + s, columns);
            quant_fold(acc, second, quant_f16(&p, 32 * s + 16), t->x, run + s, columns);
        }
    }
}

QUANT_INLINE void quant_runs_fp4(const quant_tile *t, quant_f *acc, const int columns)
{
    if (t->group_size == 32)
        quant_runs_levels(t, acc, columns, quant_fp4_levels, 1);
    else
        quant_runs_nvfp4(t, acc, columns, 1);
}

/* Scales of eight rows, unpacked: [count][8] bytes for each panel. */
#define QUANT_SCALES 32
typedef struct quant_scales {
    unsigned char bytes[QUANT_PANELS][8 * QUANT_SCALES];
    quant_panels panels;
} quant_scales;

typedef uint32_t quant_u32x8 __attribute__((vector_size(32)));

QUANT_INLINE void quant_unpack_scales(const quant_panels *p, uint64_t offset, quant_scales *out,
                                      void (*unpack)(const unsigned char *, unsigned char *))
{
    for (int i = 0; i < QUANT_PANELS; i++) {
        unpack(p->at[i] + offset, out->bytes[i]);
        out->panels.at[i] = out->bytes[i];
    }
}

/* The 6-bit scales and mins of eight blocks, [12][8] bytes, as [16][8] bytes: scales, then mins. */
QUANT_INLINE void quant_expand_q4_k(const unsigned char *packed, unsigned char *out)
{
    quant_u32x8 a, b, c;
    memcpy(&a, packed, 32);
    memcpy(&b, packed + 32, 32);
    memcpy(&c, packed + 64, 32);
    const quant_u32x8 scale_low = a & 0x3f3f3f3f, scale_high = (c & 0x0f0f0f0f) | (a >> 2 & 0x30303030);
    const quant_u32x8 min_low = b & 0x3f3f3f3f, min_high = (c >> 4 & 0x0f0f0f0f) | (b >> 2 & 0x30303030);
    memcpy(out, &scale_low, 32);
    memcpy(out + 32, &scale_high, 32);
    memcpy(out + 64, &min_low, 32);
    memcpy(out + 96, &min_high, 32);
}

/* The sixteen 6-bit scales of eight blocks, [12][8] bytes, less 32 as [16][8] signed bytes. */
QUANT_INLINE void quant_expand_q3_k(const unsigned char *packed, unsigned char *out)
{
    typedef int8_t i8x32 __attribute__((vector_size(32)));
    quant_u32x8 even, odd, high;
    memcpy(&even, packed, 32);
    memcpy(&odd, packed + 32, 32);
    memcpy(&high, packed + 64, 32);
    for (int j = 0; j < 4; j++) {
        const quant_u32x8 scale =
            ((j % 2 == 0 ? even : odd) >> j / 2 * 4 & 0x0f0f0f0f) | (high >> 2 * j & 0x03030303) << 4;
        const i8x32 centred = (i8x32)scale - 32;
        memcpy(out + 32 * j, &centred, 32);
    }
}

/* The sixteen 4-bit scales and mins of eight blocks, [16][8] bytes, as [32][8] bytes: scales, then mins. */
QUANT_INLINE void quant_expand_q2_k(const unsigned char *packed, unsigned char *out)
{
    for (int j = 0; j < 4; j++) {
        quant_u32x8 both;
        memcpy(&both, packed + 32 * j, 32);
        const quant_u32x8 scale = both & 0x0f0f0f0f, min = both >> 4 & 0x0f0f0f0f;
        memcpy(out + 32 * j, &scale, 32);
        memcpy(out + 128 + 32 * j, &min, 32);
    }
}

/* The eight 6-bit scales of eight blocks, [2][8] and [4][8] bytes, as [8][8] bytes. */
QUANT_INLINE void quant_expand_iq4_xs(const unsigned char *packed, unsigned char *out)
{
    for (int s = 0; s < 8; s++) {
        uint64_t high, low;
        memcpy(&high, packed + s / 4 * 8, 8);
        memcpy(&low, packed + 16 + s / 2 * 8, 8);
        const uint64_t scale =
            (low >> s % 2 * 4 & 0x0f0f0f0f0f0f0f0f) | (high >> s % 4 * 2 & 0x0303030303030303) << 4;
        memcpy(out + 8 * s, &scale, 8);
    }
}

/* q4_k, q5_k. */
QUANT_INLINE void quant_runs_offset_k(const quant_tile *t, quant_f *acc, const int columns, const int bits)
{
    const uint64_t part_bytes = 32u * (uint64_t)bits;
    quant_panels p = t->panels;
    for (uint64_t run = 0; run < t->runs; run += 8, quant_advance(&p, 128 + 8 * part_bytes)) {
        quant_scales scales;
        quant_unpack_scales(&p, 32, &scales, quant_expand_q4_k);
        const quant_f d = quant_f16(&p, 0), dmin = quant_f_sub(quant_f_zero(), quant_f16(&p, 16));
        for (uint64_t s = 0; s < 8; s++) {
            quant_f sum[QUANT_COLUMNS];
            quant_panels part = p;
            quant_advance(&part, part_bytes * s);
            quant_dot(&part, 128, t->x, run + s, columns, bits, 0, sum);
            quant_fold(acc, sum, quant_f_mul(d, quant_u8(&scales.panels, 8 * s)), t->x, run + s, columns);
            quant_fold_bias(acc, quant_f_mul(dmin, quant_u8(&scales.panels, 64 + 8 * s)), t->x, run + s,
                            columns);
        }
    }
}

QUANT_INLINE void quant_runs_q6_k(const quant_tile *t, quant_f *acc, const int columns)
{
    quant_panels p = t->panels;
    for (uint64_t run = 0; run < t->runs; run += 8, quant_advance(&p, 1680)) {
        const quant_f d = quant_f16(&p, 0);
        for (uint64_t s = 0; s < 8; s++) {
            quant_f sum[QUANT_COLUMNS];
            quant_panels part = p;
            quant_advance(&part, 192 * s);
            quant_dot_halves(&p, 144 + 192 * s, &p, 16 + 16 * s, t->x, run + s, columns, 6, sum);
            quant_fold(acc, sum, d, t->x, run + s, columns);
        }
    }
}

QUANT_INLINE void quant_runs_q3_k(const quant_tile *t, quant_f *acc, const int columns)
{
    quant_panels p = t->panels;
    for (uint64_t run = 0; run < t->runs; run += 8, quant_advance(&p, 880)) {
        quant_scales scales;
        quant_unpack_scales(&p, 16, &scales, quant_expand_q3_k);
        const quant_f d = quant_f16(&p, 0);
        for (uint64_t s = 0; s < 8; s++) {
            quant_f sum[QUANT_COLUMNS];
            quant_panels part = p;
            quant_advance(&part, 96 * s);
            quant_dot_halves(&part, 112, &scales.panels, 16 * s, t->x, run + s, columns, 3, sum);
            quant_fold(acc, sum, d, t->x, run + s, columns);
        }
    }
}

QUANT_INLINE void quant_runs_q2_k(const quant_tile *t, quant_f *acc, const int columns)
{
    quant_panels p = t->panels;
    for (uint64_t run = 0; run < t->runs; run += 8, quant_advance(&p, 672)) {
        quant_scales scales;
        quant_unpack_scales(&p, 32, &scales, quant_expand_q2_k);
        const quant_f d = quant_f16(&p, 0), dmin = quant_f_sub(quant_f_zero(), quant_f16(&p, 16));
        for (uint64_t s = 0; s < 8; s++) {
            quant_f sum[QUANT_COLUMNS], low[QUANT_COLUMNS];
            quant_panels part = p;
            quant_advance(&part, 64 * s);
            quant_dot_halves(&part, 160, &scales.panels, 16 * s, t->x, run + s, columns, 2, sum);
            quant_min_halves(&scales.panels, 128 + 16 * s, t->x, run + s, columns, low);
            quant_fold(acc, sum, d, t->x, run + s, columns);
            quant_fold(acc, low, dmin, t->x, run + s, columns);
        }
    }
}

QUANT_INLINE void quant_runs_iq4_xs(const quant_tile *t, quant_f *acc, const int columns)
{
    quant_panels p = t->panels;
    for (uint64_t run = 0; run < t->runs; run += 8, quant_advance(&p, 1088)) {
        quant_scales scales;
        quant_unpack_scales(&p, 16, &scales, quant_expand_iq4_xs);
        const quant_f d = quant_f16(&p, 0);
        for (uint64_t s = 0; s < 8; s++) {
            quant_f sum[QUANT_COLUMNS];
            quant_panels part = p;
            quant_advance(&part, 128 * s);
            quant_dot_levels(&part, 64, t->x, run + s, columns, quant_iq4_levels, sum);
            const quant_f scale = quant_f_sub(quant_u8(&scales.panels, 8 * s), quant_f_set1(32));
            quant_fold(acc, sum, quant_f_mul(d, scale), t->x, run + s, columns);
        }
    }
}

QUANT_INLINE void quant_runs_affine(const quant_tile *t, quant_f *acc, const int columns, const int bits)
{
    const uint64_t part_bytes = 32u * (uint64_t)bits, group_runs = t->group_size / 32;
    quant_panels p = t->panels;
    for (uint64_t run = 0; run < t->runs;) {
        const int half = t->scale_dtype == MICA_DTYPE_F16;
        const quant_f scale = half ? quant_f16(&p, 0) : quant_bf16(&p, 0);
        const quant_f bias = half ? quant_f16(&p, 16) : quant_bf16(&p, 16);
        const uint64_t end = t->runs - run < group_runs ? t->runs : run + group_runs;
        quant_advance(&p, 32);
        for (; run < end; run++, quant_advance(&p, part_bytes)) {
            quant_f sum[QUANT_COLUMNS];
            if (bits == 8)
                quant_dot8(&p, 0, t->x, run, columns, 0, sum);
            else
                quant_dot(&p, 0, t->x, run, columns, bits, 0, sum);
            quant_fold(acc, sum, scale, t->x, run, columns);
            quant_fold_bias(acc, bias, t->x, run, columns);
        }
    }
}

QUANT_INLINE void quant_runs(const quant_tile *t, quant_f *acc, const uint16_t dtype, const int columns)
{
    switch (dtype) {
    case MICA_DTYPE_Q4_0: quant_runs_32(t, acc, columns, 4, 8, 0); break;
    case MICA_DTYPE_Q4_1: quant_runs_32(t, acc, columns, 4, 0, 1); break;
    case MICA_DTYPE_Q5_0: quant_runs_32(t, acc, columns, 5, 16, 0); break;
    case MICA_DTYPE_Q5_1: quant_runs_32(t, acc, columns, 5, 0, 1); break;
    case MICA_DTYPE_Q8_0: quant_runs_32(t, acc, columns, 8, 128, 0); break;
    case MICA_DTYPE_Q2_K: quant_runs_q2_k(t, acc, columns); break;
    case MICA_DTYPE_Q3_K: quant_runs_q3_k(t, acc, columns); break;
    case MICA_DTYPE_Q4_K: quant_runs_offset_k(t, acc, columns, 4); break;
    case MICA_DTYPE_Q5_K: quant_runs_offset_k(t, acc, columns, 5); break;
    case MICA_DTYPE_Q6_K: quant_runs_q6_k(t, acc, columns); break;
    case MICA_DTYPE_IQ4_NL: quant_runs_levels(t, acc, columns, quant_iq4_levels, 0); break;
    case MICA_DTYPE_IQ4_XS: quant_runs_iq4_xs(t, acc, columns); break;
    case MICA_DTYPE_MXFP4: quant_runs_levels(t, acc, columns, quant_fp4_levels, 1); break;
    case MICA_DTYPE_NVFP4: quant_runs_nvfp4(t, acc, columns, 2); break;
    case MICA_DTYPE_FP4: quant_runs_fp4(t, acc, columns); break;
    case MICA_DTYPE_AFFINE2: quant_runs_affine(t, acc, columns, 2); break;
    case MICA_DTYPE_AFFINE3: quant_runs_affine(t, acc, columns, 3); break;
    case MICA_DTYPE_AFFINE4: quant_runs_affine(t, acc, columns, 4); break;
    case MICA_DTYPE_AFFINE5: quant_runs_affine(t, acc, columns, 5); break;
    case MICA_DTYPE_AFFINE6: quant_runs_affine(t, acc, columns, 6); break;
    default: quant_runs_affine(t, acc, columns, 8); break;
    }
}

QUANT_INLINE void quant_tile_run(const quant_tile *t, const uint16_t dtype, const int columns)
{
    quant_f acc[QUANT_COLUMNS];
    for (int c = 0; c < columns; c++)
        acc[c] = t->fresh ? quant_f_zero() : quant_f_load(t->acc + c * MICA__QUANT_ROWS);
    quant_runs(t, acc, dtype, columns);
    for (int c = 0; c < columns; c++)
        quant_f_store(t->acc + c * MICA__QUANT_ROWS, acc[c]);
}

#endif
