/*
 * doubles.h - rows of f64, and what matrices of them do to each other.
 *
 * A row of work memory is filled up with zeros to whole vectors, so that vectors may reach beyond its end; of other rows the last vector is masked.
 */
#ifndef MICA_CPU_LINEAR_DOUBLES_H
#define MICA_CPU_LINEAR_DOUBLES_H

#include "backend/cpu/cpu_linear.h"
#include "backend/cpu/kernels/simd/doubles.h"

/* Rows and vectors of a tile: as many sums as there are registers, a few kept for the operands. */
#if MICA__ISA_LEVEL == 3
#define TILE_ROWS 8
#define TILE_VECTORS 3
#else
#define TILE_ROWS 4
#define TILE_VECTORS 2
#endif

static inline double dot(const double *a, const double *b, uint64_t n)
{
    vd sum[4] = {vd_set1(0), vd_set1(0), vd_set1(0), vd_set1(0)};
    uint64_t i = 0;
    for (; i + 4 * VD <= n; i += 4 * VD)
        VD_UNROLL for (uint64_t v = 0; v < 4; v++) sum[v] =
            vd_fma(vd_load(a + i + v * VD), vd_load(b + i + v * VD), sum[v]);
    for (; i < n; i += VD)
        sum[0] = vd_fma(vd_load_n(a + i, n - i), vd_load_n(b + i, n - i), sum[0]);
    return vd_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

/* y += factor x. */
static inline void add_scaled(double *y, const double *x, double factor, uint64_t n)
{
    const vd by = vd_set1(factor);
    for (uint64_t i = 0; i < n; i += VD)
        vd_store_n(y + i, vd_fma(by, vd_load_n(x + i, n - i), vd_load_n(y + i, n - i)), n - i);
}

/* y += by x + also z. */
static inline void add_both(double *y, const double *x, double by, const double *z, double also, uint64_t n)
{
    const vd first = vd_set1(by), second = vd_set1(also);
    for (uint64_t i = 0; i < n; i += VD) {
        const vd sum = vd_fma(first, vd_load_n(x + i, n - i), vd_load_n(y + i, n - i));
        vd_store_n(y + i, vd_fma(second, vd_load_n(z + i, n - i), sum), n - i);
    }
}

/* Both turned by the angle of cosine c and sine s: x = c x - s y, y = s x + c y. */
static inline void rotate(double *x, double *y, uint64_t n, double c, double s)
{
    const vd cosine = vd_set1(c), sine = vd_set1(s), minus = vd_set1(-s);
    for (uint64_t i = 0; i < n; i += VD) {
        const vd a = vd_load_n(x + i, n - i), b = vd_load_n(y + i, n - i);
        vd_store_n(x + i, vd_fma(cosine, a, minus * b), n - i);
        vd_store_n(y + i, vd_fma(sine, a, cosine * b), n - i);
    }
}

/* row [n] -= sum over k of by[k by_step] times row k of `rows`, `ld` apart. Up to whole vectors: row is work memory, of rows what stands behind
 * column n is read. */
static inline void subtract_rows(double *row, const double *rows, uint64_t ld, const double *by,
                                 uint64_t by_step, uint64_t count, uint64_t n)
{
    uint64_t i = 0;
    for (; i + 3 * VD < n; i += 4 * VD) {
        vd sum[4];
        VD_UNROLL for (uint64_t v = 0; v < 4; v++) sum[v] = vd_load(row + i + v * VD);
        for (uint64_t k = 0; k < count; k++) {
            const vd factor = vd_set1(by[k * by_step]);
            VD_UNROLL for (uint64_t v = 0; v < 4; v++) sum[v] =
                vd_fnma(factor, vd_load(rows + k * ld + i + v * VD), sum[v]);
        }
        VD_UNROLL for (uint64_t v = 0; v < 4; v++) vd_store(row + i + v * VD, sum[v]);
    }
    for (; i < n; i += VD) {
        vd sum = vd_load(row + i);
        for (uint64_t k = 0; k < count; k++)
            sum = vd_fnma(vd_set1(by[k * by_step]), vd_load(rows + k * ld + i), sum);
        vd_store(row + i, sum);
    }
}

VD_INLINE void divide_row(double *row, double by, uint64_t n)
{
    const vd divisor = vd_set1(by);
    for (uint64_t i = 0; i < n; i += VD)
        vd_store_n(row + i, vd_load_n(row + i, n - i) / divisor, n - i);
}

/* ---- c [rows, columns] -= a^T b: a [k, rows] and b [k, columns] in work memory ---- */

typedef struct linear_product {
    double *c;
    const double *a, *b;
    uint64_t c_step, a_step, b_step, rows, columns, k;
} linear_product;

/* `n` columns from j on, of TILE_ROWS rows from i on; those that are not there go nowhere. */
VD_INLINE void product_at(const linear_product *p, uint64_t i, uint64_t j, uint64_t n, int vectors)
{
    double nowhere[TILE_VECTORS * VD] = {0}, *row[TILE_ROWS];
    const double *a = p->a + i, *b = p->b + j;
    vd sum[TILE_ROWS * TILE_VECTORS];
    VD_UNROLL for (int r = 0; r < TILE_ROWS; r++)
    {
        row[r] = i + (uint64_t)r < p->rows ? p->c + (i + (uint64_t)r) * p->c_step + j : nowhere;
        VD_UNROLL for (int v = 0; v < vectors; v++) sum[r * vectors + v] = vd_load_n(row[r] + v * VD, n);
    }
    for (uint64_t k = 0; k < p->k; k++, a += p->a_step, b += p->b_step) {
        vd column[TILE_VECTORS];
        VD_UNROLL for (int v = 0; v < vectors; v++) column[v] = vd_load(b + v * VD);
        VD_UNROLL for (int r = 0; r < TILE_ROWS; r++)
        {
            const vd by = vd_set1(a[r]);
            VD_UNROLL for (int v = 0; v < vectors; v++) sum[r * vectors + v] =
                vd_fnma(by, column[v], sum[r * vectors + v]);
        }
    }
    VD_UNROLL for (int r = 0; r < TILE_ROWS; r++) VD_UNROLL for (int v = 0; v < vectors; v++)
        vd_store_n(row[r] + v * VD, sum[r * vectors + v], n);
}

/* `lower`: elements above the diagonal need not be right. */
static inline void subtract_product(const linear_product *p, bool lower)
{
    uint64_t j = 0;
    for (; j + TILE_VECTORS * VD <= p->columns; j += TILE_VECTORS * VD)
        for (uint64_t i = lower ? j / TILE_ROWS * TILE_ROWS : 0; i < p->rows; i += TILE_ROWS)
            product_at(p, i, j, VD, TILE_VECTORS);
    for (; j < p->columns; j += VD)
        for (uint64_t i = lower ? j / TILE_ROWS * TILE_ROWS : 0; i < p->rows; i += TILE_ROWS)
            product_at(p, i, j, p->columns - j, 1);
}

#endif
