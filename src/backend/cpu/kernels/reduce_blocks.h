/*
 * reduce_blocks.h - what is known (reduce_wide.h) of some f32 terms: of one output, whose terms are a row, or of many columns, some rows of
 * them. Sums here are short, in f32; those of blocks are added in double.
 */
#ifndef MICA_CPU_REDUCE_BLOCKS_H
#define MICA_CPU_REDUCE_BLOCKS_H

#include "backend/cpu/kernels/reduce_wide.h"
#include "backend/cpu/kernels/rows.h"

/* ---- a row: element i in lane i % VW of sum i / VW % 4; the four are joined as (0, 1), (2, 3) ---- */

static double row_total(const float *x, uint64_t n)
{
    vf sum[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
    uint64_t i = 0;
    for (; i + 4 * VW <= n; i += 4 * VW)
        for (int j = 0; j < 4; j++)
            sum[j] = vf_add(sum[j], vf_load(x + i + j * VW));
    for (int j = 0; i < n; i += VW, j++)
        sum[j] = vf_add(sum[j], vf_load_n(x + i, n - i < VW ? n - i : VW));
    return (double)vf_sum(vf_add(vf_add(sum[0], sum[1]), vf_add(sum[2], sum[3])));
}

/* Greatest, or least: NaN if one is. */
static double row_extreme(const float *x, uint64_t n, bool greatest)
{
    const vf none = vf_set1(greatest ? -INFINITY : INFINITY);
    vf best[4] = {none, none, none, none};
    float lane[VW];
    uint64_t i = 0;
    for (; i + 4 * VW <= n && greatest; i += 4 * VW)
        for (int j = 0; j < 4; j++)
            best[j] = vf_greatest(best[j], vf_load(x + i + j * VW));
    for (; i + 4 * VW <= n; i += 4 * VW)
        for (int j = 0; j < 4; j++)
            best[j] = vf_least(best[j], vf_load(x + i + j * VW));
    for (; i < n; i += VW) {
        const uint64_t left = n - i < VW ? n - i : VW;
        const vf v = vf_merge_n(vf_load_n(x + i, left), none, left);
        best[0] = greatest ? vf_greatest(best[0], v) : vf_least(best[0], v);
    }
    double result = greatest ? -(double)INFINITY : (double)INFINITY;
    for (int j = 0; j < 4; j++) {
        vf_store(lane, best[j]);
        for (int l = 0; l < VW; l++)
            result = greatest ? real_greatest(result, (double)lane[l]) : real_least(result, (double)lane[l]);
    }
    return result;
}

static double row_product(const float *x, uint64_t n)
{
    double product[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    for (uint64_t i = 0; i < n; i++)
        product[i % 8] *= (double)x[i];
    for (int j = 1; j < 8; j++)
        product[0] *= product[j];
    return product[0];
}

/* NaN stays. */
static inline double not_negative(double v)
{
    return v < 0 ? 0 : v;
}

/* Distances to the rounded mean are small and nearly exact; what it has lost is found from their sum. */
static void row_var(const float *x, uint64_t n, double *mean, double *squares)
{
    const float near = (float)(row_total(x, n) / (double)n);
    const vf centre = vf_set1(near);
    vf sum = vf_zero(), square = vf_zero();
    for (uint64_t i = 0; i < n; i += VW) {
        const uint64_t left = n - i < VW ? n - i : VW;
        const vf d = vf_sub(vf_merge_n(vf_load_n(x + i, left), centre, left), centre);
        sum = vf_add(sum, d);
        square = vf_fma(d, d, square);
    }
    const double rest = (double)vf_sum(sum);
    *mean = (double)near + rest / (double)n;
    *squares = not_negative((double)vf_sum(square) - rest * rest / (double)n);
}

/* Sum of e^(x - greatest). */
static double row_exp_total(const float *x, uint64_t n, float greatest)
{
    const vf top = vf_set1(greatest), none = vf_set1(-INFINITY);
    vf sum = vf_zero();
    for (uint64_t i = 0; i < n; i += VW) {
        const uint64_t left = n - i < VW ? n - i : VW;
        sum = vf_add(sum, vf_exp(vf_sub(vf_merge_n(vf_load_n(x + i, left), none, left), top)));
    }
    return (double)vf_sum(sum);
}

static void row_block(uint32_t kind, const float *x, uint64_t n, double *a, double *b)
{
    switch (kind) {
    case MICA_REDUCE_SUM: *a = row_total(x, n); break;
    case MICA_REDUCE_PROD: *a = row_product(x, n); break;
    case MICA_REDUCE_MAX: *a = row_extreme(x, n, true); break;
    case MICA_REDUCE_MIN: *a = row_extreme(x, n, false); break;
    case MICA_REDUCE_VAR: row_var(x, n, a, b); break;
    default: /* NaN and infinities are their own sum */
        *a = row_extreme(x, n, true);
        *b = isfinite(*a) ? row_exp_total(x, n, (float)*a) : *a != *a ? *a : 1;
        break;
    }
}

/* ---- columns: row by row ---- */

static inline void widen(vf v, uint64_t n, double *to)
{
    float lane[VW];
    vf_store(lane, v);
    for (uint64_t l = 0; l < n; l++)
        to[l] = (double)lane[l];
}

/* Four vectors at a time: whole lines of the cache, whatever lies between rows. */
static void columns_total(const float *const *row, uint64_t rows, uint64_t n, double *a)
{
    uint64_t i = 0;
    for (; i + 4 * VW <= n; i += 4 * VW) {
        vf sum[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
        for (uint64_t r = 0; r < rows; r++)
            for (int j = 0; j < 4; j++)
                sum[j] = vf_add(sum[j], vf_load(row[r] + i + j * VW));
        for (int j = 0; j < 4; j++)
            widen(sum[j], VW, a + i + j * VW);
    }
    for (; i < n; i += VW) {
        const uint64_t left = n - i < VW ? n - i : VW;
        vf sum = vf_zero();
        for (uint64_t r = 0; r < rows; r++)
            sum = vf_add(sum, vf_load_n(row[r] + i, left));
        widen(sum, left, a + i);
    }
}

static inline vf columns_extreme(const float *const *row, uint64_t rows, uint64_t i, uint64_t left,
                                 bool greatest)
{
    vf best = vf_load_n(row[0] + i, left);
    for (uint64_t r = 1; r < rows; r++) {
        const vf v = vf_load_n(row[r] + i, left);
        best = greatest ? vf_greatest(best, v) : vf_least(best, v);
    }
    return best;
}

static inline void columns_var(const float *const *row, uint64_t rows, uint64_t i, uint64_t left, double *a,
                               double *b)
{
    vf sum = vf_zero(), square = vf_zero();
    float rest[VW], squares[VW], mean[VW];
    for (uint64_t r = 0; r < rows; r++)
        sum = vf_add(sum, vf_load_n(row[r] + i, left));
    const vf centre = vf_div(sum, vf_set1((float)rows));
    sum = vf_zero();
    for (uint64_t r = 0; r < rows; r++) {
        const vf d = vf_sub(vf_load_n(row[r] + i, left), centre);
        sum = vf_add(sum, d);
        square = vf_fma(d, d, square);
    }
    vf_store(mean, centre);
    vf_store(rest, sum);
    vf_store(squares, square);
    for (uint64_t l = 0; l < left; l++) {
        const double lost = (double)rest[l];
        a[i + l] = (double)mean[l] + lost / (double)rows;
        b[i + l] = not_negative((double)squares[l] - lost * lost / (double)rows);
    }
}

static inline void columns_log(const float *const *row, uint64_t rows, uint64_t i, uint64_t left, double *a,
                               double *b)
{
    const vf greatest = columns_extreme(row, rows, i, left, true);
    vf sum = vf_zero();
    for (uint64_t r = 0; r < rows; r++)
        sum = vf_add(sum, vf_exp(vf_sub(vf_load_n(row[r] + i, left), greatest)));
    widen(greatest, left, a + i);
    widen(sum, left, b + i);
    for (uint64_t l = i; l < i + left; l++)
        if (!isfinite(a[l]))
            b[l] = a[l] != a[l] ? a[l] : 1;
}

/* `rows` rows of n columns, one or more. */
static void columns_block(uint32_t kind, const float *const *row, uint64_t rows, uint64_t n, double *a,
                          double *b)
{
    if (kind == MICA_REDUCE_SUM) {
        columns_total(row, rows, n, a);
        return;
    }
    for (uint64_t i = 0; i < n && kind == MICA_REDUCE_PROD; i++) {
        a[i] = (double)row[0][i];
        for (uint64_t r = 1; r < rows; r++)
            a[i] *= (double)row[r][i];
    }
    for (uint64_t i = 0; i < n && kind != MICA_REDUCE_PROD; i += VW) {
        const uint64_t left = n - i < VW ? n - i : VW;
        if (kind == MICA_REDUCE_VAR)
            columns_var(row, rows, i, left, a, b);
        else if (kind == MICA_REDUCE_LOGSUMEXP)
            columns_log(row, rows, i, left, a, b);
        else
            widen(columns_extreme(row, rows, i, left, kind == MICA_REDUCE_MAX), left, a + i);
    }
}

#endif
