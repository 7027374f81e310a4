/*
 * product_pack.h - what a product does before its tiles: lines of an operand, rows of a or columns of b, packed into panels value by value, and the
 * few rows that need no panels of b. All of it is always inlined: `room`, the lines of a panel, and numbers of rows are constants.
 */
#ifndef MICA_CPU_PRODUCT_PACK_H
#define MICA_CPU_PRODUCT_PACK_H

#include "backend/cpu/kernels/product/product_tile.h"
#include "backend/cpu/kernels/rows.h"
#include "backend/cpu/kernels/simd/transpose.h"

/* Rows whose neighbours lie on other pages are asked for so many before: nothing else foresees them. */
#define PACK_AHEAD 8
#define PACK_INLINE static inline __attribute__((always_inline))

/* `count` lines that lie `line` bytes apart, `k` values of each, `step` apart. */
typedef struct product_lines {
    const unsigned char *from;
    uint64_t line, step, count, k;
    uint16_t dtype;
} product_lines;

_Static_assert(VW % ROWS == 0 && COLUMNS % VW == 0, "vectors are whole panels, or panels whole vectors");

/* Value s of the lines from j on, one in each lane. */
PACK_INLINE void pack_put(vf v, uint64_t j, uint64_t s, uint64_t k, uint64_t room, float *panels)
{
    float lane[VW];
    if (room % VW == 0) {
        vf_store(panels + j / room * room * k + s * room + j % room, v);
        return;
    }
    vf_store(lane, v);
    UNROLL for (uint64_t i = 0; i < VW; i += room)
        memcpy(panels + (j + i) * k + s * room, lane + i, room * sizeof lane[0]);
}

/* n values of VW lines, 0 for lines that are not there, transposed: v[s] has value s of each. */
PACK_INLINE void pack_square(const unsigned char *from, uint64_t line, uint64_t lines, uint16_t dtype,
                             uint64_t n, vf *v)
{
    if (lines >= VW && n == VW && dtype == MICA_DTYPE_F32)
        _Pragma("GCC unroll 16") for (uint64_t i = 0; i < VW; i++) v[i] = vf_load(from + i * line);
    else
        for (uint64_t i = 0; i < VW; i++)
            v[i] = i < lines ? row_load_n(from + i * line, dtype, n) : vf_zero();
    vf_transpose(v);
}

PACK_INLINE void pack_element(const product_lines *x, uint64_t j, uint64_t room, float *panels)
{
    for (uint64_t s = 0; s < x->k; s++)
        for (uint64_t i = 0; i < VW; i++)
            panels[(j + i) / room * room * x->k + s * room + (j + i) % room] =
                j + i < x->count ? row_element(x->from + (j + i) * x->line + s * x->step, x->dtype) : 0;
}

/* Panels of `room` lines; lines up to whole panels (and whole vectors) are zeros. */
PACK_INLINE void pack_lines(const product_lines *x, uint64_t room, float *panels)
{
    const uint64_t bytes = row_element_bytes(x->dtype), whole = room > VW ? room : VW,
                   end = (x->count + whole - 1) / whole * whole;
    if (x->line == bytes) { /* neighbours are lines: as they lie */
        for (uint64_t s = 0; s < x->k; s++)
            for (uint64_t j = 0; j < end; j += VW) {
                const uint64_t left = j >= x->count ? 0 : x->count - j < VW ? x->count - j : VW;
                const unsigned char *at = x->from + s * x->step + j * bytes;
                __builtin_prefetch(at + PACK_AHEAD * x->step);
                const vf v = left == VW && x->dtype == MICA_DTYPE_F32 ? vf_load(at)
                             : left > 0                               ? row_load_n(at, x->dtype, left)
                                                                      : vf_zero();
                pack_put(v, j, s, x->k, room, panels);
            }
        return;
    }
    for (uint64_t j = 0; j < end; j += VW) {
        if (x->step != bytes) {
            pack_element(x, j, room, panels);
            continue;
        }
        for (uint64_t s = 0; s < x->k; s += VW) { /* neighbours are values of a line */
            const uint64_t n = x->k - s < VW ? x->k - s : VW, lines = j < x->count ? x->count - j : 0;
            vf v[VW];
            pack_square(x->from + j * x->line + s * bytes, x->line, lines, x->dtype, n, v);
            for (uint64_t i = 0; i < n; i++)
                pack_put(v[i], j, s + i, x->k, room, panels);
        }
    }
}

/* ---- few rows of a, packed in one panel: sums [rows, ld] += a b, with b as it lies ---- */

#define FEW_ROWS 4
/* One row has a whole block's columns in registers, where there are so many. */
#if MICA__ISA_LEVEL == 3
#define FEW_MOST 15
#elif MICA__ISA_LEVEL == 2 || defined(__aarch64__)
#define FEW_MOST 10
#else
#define FEW_MOST 5
#endif
#define FEW_VECTORS(rows) ((rows) == 1 ? FEW_MOST : (rows) == 2 ? 4 : VECTORS)
#define FEW_UNROLL _Pragma("GCC unroll 16")

/* Columns of b lie side by side. */
PACK_INLINE void few_columns(const float *a, const product_lines *b, uint64_t j, uint64_t n, uint16_t dtype,
                             int rows, int vectors, float *sums, uint64_t ld)
{
    const unsigned char *from = b->from + j * row_element_bytes(dtype);
    vf sum[FEW_ROWS * FEW_MOST];
    FEW_UNROLL for (int i = 0; i < rows; i++) FEW_UNROLL for (int v = 0; v < vectors; v++)
        sum[i * vectors + v] = vf_load_n(sums + (uint64_t)i * ld + j + (uint64_t)v * VW, n);
    for (uint64_t s = 0; s < b->k; s++, from += b->step)
        FEW_UNROLL for (int v = 0; v < vectors; v++)
        {
            const unsigned char *at = from + (uint64_t)v * VW * row_element_bytes(dtype);
            const vf column = row_load_n(at, dtype, n);
            __builtin_prefetch(at + PACK_AHEAD * b->step);
            FEW_UNROLL for (int i = 0; i < rows; i++) sum[i * vectors + v] =
                vf_fma(vf_set1(a[s * ROWS + (uint64_t)i]), column, sum[i * vectors + v]);
        }
    FEW_UNROLL for (int i = 0; i < rows; i++) FEW_UNROLL for (int v = 0; v < vectors; v++)
        vf_store_n(sums + (uint64_t)i * ld + j + (uint64_t)v * VW, sum[i * vectors + v], n);
}

/* Values along k lie side by side: squares of two runs of columns at a time, since each sum waits for its last step. */
PACK_INLINE void few_transposed(const float *a, const product_lines *b, uint64_t j, uint16_t dtype, int rows,
                                int runs, float *sums, uint64_t ld)
{
    const uint64_t bytes = row_element_bytes(dtype);
    vf sum[FEW_ROWS * 2];
    FEW_UNROLL for (int i = 0; i < rows; i++) FEW_UNROLL for (int r = 0; r < runs; r++) sum[i * runs + r] =
        vf_load(sums + (uint64_t)i * ld + j + (uint64_t)r * VW);
    for (uint64_t s = 0; s < b->k; s += VW) {
        const uint64_t n = b->k - s < VW ? b->k - s : VW;
        vf v[2][VW];
        FEW_UNROLL for (int r = 0; r < runs; r++)
        {
            const uint64_t at = j + (uint64_t)r * VW;
            pack_square(b->from + at * b->line + s * bytes, b->line, at < b->count ? b->count - at : 0, dtype,
                        n, v[r]);
        }
        for (uint64_t t = 0; t < n; t++)
            FEW_UNROLL for (int i = 0; i < rows; i++) FEW_UNROLL for (int r = 0; r < runs; r++)
                sum[i * runs + r] =
                    vf_fma(vf_set1(a[(s + t) * ROWS + (uint64_t)i]), v[r][t], sum[i * runs + r]);
    }
    FEW_UNROLL for (int i = 0; i < rows; i++) FEW_UNROLL for (int r = 0; r < runs; r++)
        vf_store(sums + (uint64_t)i * ld + j + (uint64_t)r * VW, sum[i * runs + r]);
}

PACK_INLINE void few_rows_of(const float *a, const product_lines *b, uint16_t dtype, int rows, float *sums,
                             uint64_t ld)
{
    uint64_t j = 0;
    if (b->line != row_element_bytes(dtype)) {
        for (; j + VW < b->count; j += 2 * VW)
            few_transposed(a, b, j, dtype, rows, 2, sums, ld);
        if (j < b->count)
            few_transposed(a, b, j, dtype, rows, 1, sums, ld);
        return;
    }
    for (; j + FEW_VECTORS(rows) * VW <= b->count; j += FEW_VECTORS(rows) * VW)
        few_columns(a, b, j, VW, dtype, rows, FEW_VECTORS(rows), sums, ld);
    for (; j < b->count; j += VW)
        few_columns(a, b, j, b->count - j < VW ? b->count - j : VW, dtype, rows, 1, sums, ld);
}

PACK_INLINE void few_rows_typed(const float *a, const product_lines *b, uint64_t rows, uint16_t dtype,
                                float *sums, uint64_t ld)
{
    switch (rows) {
    case 1: few_rows_of(a, b, dtype, 1, sums, ld); return;
    case 2: few_rows_of(a, b, dtype, 2, sums, ld); return;
    case 3: few_rows_of(a, b, dtype, 3, sums, ld); return;
    default: few_rows_of(a, b, dtype, 4, sums, ld); return;
    }
}

/* False: not for so many rows, or not for b with these strides. */
static inline bool product_few(const float *a, const product_lines *b, uint64_t rows, float *sums,
                               uint64_t ld)
{
    const uint64_t bytes = row_element_bytes(b->dtype);
    if (rows > FEW_ROWS || (b->line != bytes && b->step != bytes))
        return false;
    if (b->dtype == MICA_DTYPE_F32)
        few_rows_typed(a, b, rows, MICA_DTYPE_F32, sums, ld);
    else
        few_rows_typed(a, b, rows, b->dtype, sums, ld);
    return true;
}

#endif
