/*
 * gemm.h - dot products of dense rows: the one arithmetic of every dense matmul.
 *
 * Element (row of x, row of w) has one vector of partial sums. Value k of the row goes to lane k % VW, in
 * rising k, the last vector masked; the lanes are added by the tree of vf_sum. 16-bit types are widened
 * first, which is exact. So the register tiles, the blocks and the mat-vec below give the same bits, and
 * all that differs between them is what is kept close to the arithmetic.
 *
 * A packed panel holds a few rows interleaved vector by vector (vector s of row i at (s * rows + i) * VW),
 * so that a tile reads it in one rising stream. Nothing here knows a view, a record or an op.
 */
#ifndef MICA_CPU_GEMM_H
#define MICA_CPU_GEMM_H

#include "backend/cpu/kernels/dense.h"
#include "backend/cpu/kernels/rows.h"

#define GEMM_INLINE static inline __attribute__((always_inline))
/* The sums of a tile live in registers only if every loop over them is unrolled. */
#define GEMM_UNROLL _Pragma("GCC unroll 32")

/* Rows of x and of w in a register tile: as many sums as there are registers, a few kept for the operands. */
#if MICA__ISA_LEVEL == 3
#define GEMM_MR 5
#define GEMM_NR 5
#elif MICA__ISA_LEVEL == 2 || defined(__aarch64__)
#define GEMM_MR 3
#define GEMM_NR 4
#else
#define GEMM_MR 2
#define GEMM_NR 2
#endif
#define GEMM_SUMS ((GEMM_MR * GEMM_NR + 3) / 4 * 4) /* of a tile, filled up for gemm_sum4 */

_Static_assert(VW <= MICA__DENSE_LANES && GEMM_NR <= MICA__DENSE_PANEL, "the plan reserves too little");

/* out[i] = vf_sum(v[i]) for four vectors at the price of two. */
static inline void gemm_sum4(const vf *v, float *out)
{
#if MICA__ISA_LEVEL == 3
    const __m512 ab =
        _mm512_add_ps(_mm512_shuffle_f32x4(v[0], v[1], 0x44), _mm512_shuffle_f32x4(v[0], v[1], 0xee));
    const __m512 cd =
        _mm512_add_ps(_mm512_shuffle_f32x4(v[2], v[3], 0x44), _mm512_shuffle_f32x4(v[2], v[3], 0xee));
    __m512 s = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
    s = _mm512_add_ps(s, _mm512_permute_ps(s, 0x4e));
    s = _mm512_add_ps(s, _mm512_permute_ps(s, 0xb1));
    const __m512i first = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    _mm_storeu_ps(out, _mm512_castps512_ps128(_mm512_permutexvar_ps(first, s)));
#elif MICA__ISA_LEVEL == 2
    const __m256 ab =
        _mm256_add_ps(_mm256_permute2f128_ps(v[0], v[1], 0x20), _mm256_permute2f128_ps(v[0], v[1], 0x31));
    const __m256 cd =
        _mm256_add_ps(_mm256_permute2f128_ps(v[2], v[3], 0x20), _mm256_permute2f128_ps(v[2], v[3], 0x31));
    __m256 s = _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));
    s = _mm256_add_ps(_mm256_shuffle_ps(s, s, 0x88), _mm256_shuffle_ps(s, s, 0xdd)); /* a c a c b d b d */
    _mm_storeu_ps(out, _mm_unpacklo_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1)));
#else
    for (int i = 0; i < 4; i++)
        out[i] = vf_sum(v[i]);
#endif
}

GEMM_INLINE vf gemm_load(const unsigned char *row, uint16_t dtype, uint64_t k)
{
    if (dtype == MICA_DTYPE_F32)
        return vf_load(row + 4 * k);
    return dtype == MICA_DTYPE_F16 ? vf_load_f16(row + 2 * k) : vf_load_bf16(row + 2 * k);
}

/* Vectors of a row of k values. */
static inline uint64_t gemm_steps(uint64_t k)
{
    return (k + VW - 1) / VW;
}

/* Puts n values of a row into a panel as its row `i` of `rows`. n may end in a part of a vector. */
static inline void gemm_pack_row(const void *src, uint16_t dtype, uint64_t n, uint32_t i, uint32_t rows,
                                 float *panel)
{
    const unsigned char *from = src;
    float *to = panel + i * VW;
    uint64_t k = 0;
    for (; k + VW <= n; k += VW, to += rows * VW)
        vf_store(to, gemm_load(from, dtype, k));
    if (k < n)
        vf_store(to, row_load_n(from + k * row_element_bytes(dtype), dtype, n - k));
}

static inline void gemm_pack_zero(uint64_t steps, uint32_t i, uint32_t rows, float *panel)
{
    for (uint64_t s = 0; s < steps; s++)
        vf_store(panel + (s * rows + i) * VW, vf_zero());
}

/* Rows of w for a tile: `row` floats from one to the next, `step` from a vector of a row to its next. */
typedef struct gemm_lines {
    const float *from;
    uint64_t row, step;
} gemm_lines;

/* Those of a packed panel of GEMM_NR. */
static inline gemm_lines gemm_panel_lines(const float *panel)
{
    return (gemm_lines){panel, VW, GEMM_NR * VW};
}

/* What a tile does before and after its part of K: the first part starts at zero, the last one ends in
 * sums, and the vectors between them wait in `partial` (GEMM_NR for each row of x; unused if first and
 * last). */
typedef struct gemm_part {
    uint64_t steps;
    bool first, last;
    float *partial;
    const unsigned char *ahead; /* one cache line of it is prefetched per step; may be any address */
} gemm_part;

/* One tile: a panel of mr rows of x, GEMM_NR rows of w. out[i * ld + j] for j < GEMM_NR. */
GEMM_INLINE void gemm_tile_rows(const float *x, gemm_lines lines, const gemm_part *part, int mr, float *out,
                                uint64_t ld)
{
    vf sum[GEMM_SUMS];
    GEMM_UNROLL
    for (int i = 0; i < GEMM_SUMS; i++)
        sum[i] = vf_zero();
    if (!part->first) {
        GEMM_UNROLL
        for (int i = 0; i < mr * GEMM_NR; i++)
            sum[i] = vf_load(part->partial + i * VW);
    }
    const uint64_t steps = part->steps;
    const unsigned char *ahead = part->ahead;
    const float *w = lines.from;
    for (uint64_t s = 0; s < steps; s++) {
        vf a[GEMM_MR];
        __builtin_prefetch(ahead + s * 64, 0, 2);
        for (int i = 0; i < mr; i++)
            a[i] = vf_load(x + i * VW);
        for (int j = 0; j < GEMM_NR; j++) {
            const vf b = vf_load(w + (uint64_t)j * lines.row);
            for (int i = 0; i < mr; i++)
                sum[i * GEMM_NR + j] = vf_fma(a[i], b, sum[i * GEMM_NR + j]);
        }
        x += mr * VW;
        w += lines.step;
    }
    if (!part->last) {
        GEMM_UNROLL
        for (int i = 0; i < mr * GEMM_NR; i++)
            vf_store(part->partial + i * VW, sum[i]);
        return;
    }
    float total[GEMM_SUMS];
    GEMM_UNROLL
    for (int i = 0; i < mr * GEMM_NR; i += 4)
        gemm_sum4(sum + i, total + i);
    for (int i = 0; i < mr; i++)
        for (int j = 0; j < GEMM_NR; j++)
            out[(uint64_t)i * ld + (uint64_t)j] = total[i * GEMM_NR + j];
}

/* With the strides of packed rows known, and not. */
GEMM_INLINE void gemm_tile_lines(const float *x, gemm_lines w, const gemm_part *part, int mr, float *out,
                                 uint64_t ld)
{
    if (w.row == VW)
        gemm_tile_rows(x, gemm_panel_lines(w.from), part, mr, out, ld);
    else
        gemm_tile_rows(x, (gemm_lines){w.from, w.row, VW}, part, mr, out, ld);
}

static inline void gemm_tile(const float *x, gemm_lines w, const gemm_part *part, uint64_t mr, float *out,
                             uint64_t ld)
{
    switch (mr) {
    case 1: gemm_tile_lines(x, w, part, 1, out, ld); return;
    case 2: gemm_tile_lines(x, w, part, 2, out, ld); return;
#if GEMM_MR > 2
    case 3: gemm_tile_lines(x, w, part, 3, out, ld); return;
#endif
#if GEMM_MR > 3
    case 4: gemm_tile_lines(x, w, part, 4, out, ld); return;
    case 5: gemm_tile_lines(x, w, part, 5, out, ld); return;
#endif
    default: return;
    }
}

/* Panels of `rows` rows, as even as can be: panel p of x begins at row mica__dense_cut(rows, panels, p). */
static inline uint64_t gemm_row_panels(uint64_t rows)
{
    return (rows + GEMM_MR - 1) / GEMM_MR;
}

/* A block: rows of x, packed, against rows of w as they lie in memory. Some rows of w at a time pass along all panels of x with a part of
 * K, so that they come from memory once and stay in the first cache, while x stays in the second. */
typedef struct gemm_block {
    const float *x; /* panel that begins at row r: at r * gemm_steps(k) * VW */
    uint64_t rows, k;
    const unsigned char *w; /* `columns` rows of this type, `w_stride` bytes apart */
    uint64_t columns, w_stride;
    uint16_t dtype;
    float *lines;   /* mica__dense_lines_floats: rows of w that cannot be read as they lie */
    float *partial; /* mica__dense_partial_floats */
    float *out;     /* out[i * gemm_out_stride + j]: mica__dense_out_floats */
} gemm_block;

/* Floats from one row of results to the next. */
static inline uint64_t gemm_out_stride(uint64_t columns)
{
    return mica__dense_round(columns, GEMM_NR);
}

/* GEMM_NR rows of w from `column` on, `steps` vectors of each from `step` on: as they lie where that is whole vectors of f32, else widened
 * into a panel; rows that are not there are zeros. */
static inline gemm_lines gemm_lines_of(const gemm_block *b, uint64_t column, uint64_t step, uint64_t steps)
{
    const uint64_t size = row_element_bytes(b->dtype), from = step * VW;
    const uint64_t n = b->k - from < steps * VW ? b->k - from : steps * VW;
    const unsigned char *w = b->w + column * b->w_stride + from * size;
    if (b->dtype == MICA_DTYPE_F32 && n % VW == 0 && column + GEMM_NR <= b->columns &&
        b->w_stride % sizeof(float) == 0)
        return (gemm_lines){(const float *)(const void *)w, b->w_stride / sizeof(float), VW};
    for (uint32_t j = 0; j < GEMM_NR; j++, w += b->w_stride) {
        if (column + j < b->columns)
            gemm_pack_row(w, b->dtype, n, j, GEMM_NR, b->lines);
        else
            gemm_pack_zero(steps, j, GEMM_NR, b->lines);
    }
    return gemm_panel_lines(b->lines);
}

/* The rows of w from `column` on against all of x, for one part of K. While the first panels pass, rows of w that come `next` are asked for. */
static inline void gemm_pass(const gemm_block *b, uint64_t column, uint64_t step, gemm_part part,
                             const unsigned char *next)
{
    const uint64_t steps = gemm_steps(b->k), panels = gemm_row_panels(b->rows),
                   ld = gemm_out_stride(b->columns);
    const gemm_lines w = gemm_lines_of(b, column, step, part.steps);
    for (uint64_t panel = 0; panel < panels; panel++) {
        const uint64_t row = mica__dense_cut(b->rows, panels, panel),
                       mr = mica__dense_cut(b->rows, panels, panel + 1) - row;
        part.partial = b->partial + (column * b->rows + row * GEMM_NR) * VW;
        part.ahead = next + panel * b->w_stride;
        gemm_tile(b->x + (row * steps + step * mr) * VW, w, &part, mr, b->out + row * ld + column, ld);
    }
}

/* Passes in the order of w in memory where all of x stays in the second cache, else a part of K after the other. */
static inline void gemm_run(const gemm_block *b)
{
    const uint64_t steps = gemm_steps(b->k), parts = (b->k + MICA__DENSE_K_PART - 1) / MICA__DENSE_K_PART,
                   tiles = (b->columns + GEMM_NR - 1) / GEMM_NR, passes = parts * tiles;
    const bool near = b->rows * b->k <= MICA__DENSE_NEAR;
    for (uint64_t pass = 0; pass < passes; pass++) {
        const uint64_t i = near ? pass % parts : pass / tiles,
                       then = near ? (pass + 1) % parts : (pass + 1) / tiles;
        const uint64_t tile = near ? pass / parts : pass % tiles,
                       next = near ? (pass + 1) / parts : (pass + 1) % tiles;
        const uint64_t step = mica__dense_cut(steps, parts, i);
        const gemm_part part = {
            .steps = mica__dense_cut(steps, parts, i + 1) - step, .first = i == 0, .last = i + 1 == parts};
        gemm_pass(b, tile * GEMM_NR, step, part,
                  b->w + next * GEMM_NR * b->w_stride +
                      mica__dense_cut(steps, parts, then) * VW * row_element_bytes(b->dtype));
    }
}

/* Mat-vec: rows of w that are read together against m rows of x, so that their sums fill the registers. */
#if MICA__ISA_LEVEL == 3
#define GEMM_DOT_ROWS(m) ((m) < 4 ? 8 : 6)
#elif MICA__ISA_LEVEL == 2 || defined(__aarch64__)
#define GEMM_DOT_ROWS(m) ((m) == 1 ? 8 : (m) == 4 ? 3 : 4)
#else
#define GEMM_DOT_ROWS(m) ((m) == 1 ? 4 : (m) < 4 ? 2 : 1)
#endif
#define GEMM_DOT_SUMS 24

/* A few rows of x (f32, x_stride floats apart) against rows of w. */
typedef struct gemm_dots {
    const float *x;
    uint64_t x_stride, k;
    const unsigned char *w;
    uint64_t w_stride;
    uint16_t dtype;
    float *out; /* out[i * ld + j] */
    uint64_t ld;
} gemm_dots;

/* Rows column, column + apart, .. of w. */
GEMM_INLINE void gemm_dot_tile(const gemm_dots *d, uint64_t column, uint64_t apart, uint16_t dtype, int mx,
                               int nw)
{
    const unsigned char *w = d->w + column * d->w_stride;
    const uint64_t k = d->k, w_stride = apart * d->w_stride, x_stride = d->x_stride,
                   size = row_element_bytes(dtype);
    const float *x = d->x;
    vf sum[GEMM_DOT_SUMS];
    GEMM_UNROLL
    for (int i = 0; i < (mx * nw + 3) / 4 * 4; i++)
        sum[i] = vf_zero();
    uint64_t at = 0;
    for (; at + VW <= k; at += VW) {
        vf a[MICA__DENSE_DOTS];
        for (int i = 0; i < mx; i++)
            a[i] = vf_load(x + (uint64_t)i * x_stride + at);
        for (int j = 0; j < nw; j++) {
            const vf b = gemm_load(w + (uint64_t)j * w_stride, dtype, at);
            for (int i = 0; i < mx; i++)
                sum[i * nw + j] = vf_fma(a[i], b, sum[i * nw + j]);
        }
    }
    if (at < k)
        for (int j = 0; j < nw; j++) {
            const vf b = row_load_n(w + (uint64_t)j * w_stride + at * size, dtype, k - at);
            for (int i = 0; i < mx; i++)
                sum[i * nw + j] =
                    vf_fma(vf_load_n(x + (uint64_t)i * x_stride + at, k - at), b, sum[i * nw + j]);
        }
    float total[GEMM_DOT_SUMS] = {0};
    GEMM_UNROLL
    for (int i = 0; i < mx * nw; i += 4)
        gemm_sum4(sum + i, total + i);
    for (int i = 0; i < mx; i++)
        for (int j = 0; j < nw; j++)
            d->out[(uint64_t)i * d->ld + column + (uint64_t)j * apart] = total[i * nw + j];
}

/* The rows of a tile lie as far apart as they can, so that each tile goes on where the one before stopped reading: a few
 * long streams, which processors follow ahead of the program. */
GEMM_INLINE void gemm_dot_rows(const gemm_dots *d, uint64_t columns, uint16_t dtype, int mx)
{
    const uint64_t apart = columns / GEMM_DOT_ROWS(mx);
    uint64_t column = 0;
    for (; column < apart; column++)
        gemm_dot_tile(d, column, apart, dtype, mx, GEMM_DOT_ROWS(mx));
    for (column = apart * GEMM_DOT_ROWS(mx); column < columns; column++)
        gemm_dot_tile(d, column, 1, dtype, mx, 1);
}

GEMM_INLINE void gemm_dot_type(const gemm_dots *d, uint64_t rows, uint64_t columns, uint16_t dtype)
{
    switch (rows) {
    case 1: gemm_dot_rows(d, columns, dtype, 1); return;
    case 2: gemm_dot_rows(d, columns, dtype, 2); return;
    case 3: gemm_dot_rows(d, columns, dtype, 3); return;
    default: gemm_dot_rows(d, columns, dtype, 4); return;
    }
}

/* 1 to MICA__DENSE_DOTS rows of x against `columns` rows of w. */
static inline void gemm_dot(const gemm_dots *d, uint64_t rows, uint64_t columns)
{
    switch (d->dtype) {
    case MICA_DTYPE_F32: gemm_dot_type(d, rows, columns, MICA_DTYPE_F32); return;
    case MICA_DTYPE_F16: gemm_dot_type(d, rows, columns, MICA_DTYPE_F16); return;
    default: gemm_dot_type(d, rows, columns, MICA_DTYPE_BF16); return;
    }
}

#endif
