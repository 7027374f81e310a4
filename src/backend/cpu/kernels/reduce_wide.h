/*
 * reduce_wide.h - what is known of some terms of outputs, in 64 bits: two lists, of doubles, or the first of integers. Terms fold into it one by
 * one, and what is known of two parts becomes what is known of both.
 *
 *   SUM, PROD, MAX, MIN   a: the result over them
 *   VAR                   a: their mean, b: the sum of the squares of their distances to it
 *   LOGSUMEXP             a: the greatest, b: the sum of e^(x - a)
 */
#ifndef MICA_CPU_REDUCE_WIDE_H
#define MICA_CPU_REDUCE_WIDE_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend/cpu/kernels/reduce_number.h"

/* The kinds that kernels tell apart: a mean is a sum until the end, bools are integers; of squares and magnitudes there is the sum and the
 * greatest. */
static inline uint32_t reduce_kind(uint32_t kind)
{
    switch (kind) {
    case MICA_REDUCE_MEAN: return MICA_REDUCE_SUM;
    case MICA_REDUCE_ANY: return MICA_REDUCE_MAX;
    case MICA_REDUCE_ALL: return MICA_REDUCE_MIN;
    case MICA_REDUCE_SUM_SQUARES: return MICA_REDUCE_SUM;
    case MICA_REDUCE_MAX_ABS: return MICA_REDUCE_MAX;
    default: return kind;
    }
}

/* Kinds whose terms are not the elements themselves. */
static inline bool reduce_changes(uint32_t kind)
{
    return kind == MICA_REDUCE_SUM_SQUARES || kind == MICA_REDUCE_MAX_ABS;
}

/* ---- doubles ---- */

static void real_begin(uint32_t kind, uint64_t count, double *a, double *b)
{
    const double first = kind == MICA_REDUCE_PROD                                   ? 1
                         : kind == MICA_REDUCE_MIN                                  ? (double)INFINITY
                         : kind == MICA_REDUCE_MAX || kind == MICA_REDUCE_LOGSUMEXP ? -(double)INFINITY
                                                                                    : 0;
    for (uint64_t i = 0; i < count; i++) {
        a[i] = first;
        b[i] = 0;
    }
}

/* Of n terms and of `more`. */
static inline void var_join(double *a, double *b, double n, double mean, double squares, double more)
{
    const double d = mean - *a, share = more / (n + more);
    *b += squares + d * d * (n * share);
    *a += d * share;
}

/* e^(a - b), 1 where they are equal, infinite ones too. */
static inline double ratio(double a, double b)
{
    return a == b ? 1 : exp(a - b);
}

static inline void log_join(double *a, double *b, double greatest, double sum)
{
    if (greatest > *a) {
        *b = *b * ratio(*a, greatest) + sum;
        *a = greatest;
    } else {
        *b += sum * ratio(greatest, *a);
    }
}

/* `count` outputs: what is known of n terms of each and what is known of `more`. */
static void real_join(uint32_t kind, uint64_t count, double *a, double *b, uint64_t n, const double *more_a,
                      const double *more_b, uint64_t more)
{
    for (uint64_t i = 0; i < count && kind == MICA_REDUCE_SUM; i++)
        a[i] += more_a[i];
    for (uint64_t i = 0; i < count && kind == MICA_REDUCE_PROD; i++)
        a[i] *= more_a[i];
    for (uint64_t i = 0; i < count && kind == MICA_REDUCE_MAX; i++)
        a[i] = real_greatest(a[i], more_a[i]);
    for (uint64_t i = 0; i < count && kind == MICA_REDUCE_MIN; i++)
        a[i] = real_least(a[i], more_a[i]);
    for (uint64_t i = 0; i < count && kind == MICA_REDUCE_VAR; i++)
        var_join(&a[i], &b[i], (double)n, more_a[i], more_b[i], (double)more);
    for (uint64_t i = 0; i < count && kind == MICA_REDUCE_LOGSUMEXP; i++)
        log_join(&a[i], &b[i], more_a[i], more_b[i]);
}

static double real_end(const mica_reduce_params *reduce, uint64_t n, double a, double b)
{
    switch (reduce->kind) {
    case MICA_REDUCE_MEAN: return a / (double)n;
    case MICA_REDUCE_VAR: return b / (double)(n > reduce->correction ? n - reduce->correction : 0);
    case MICA_REDUCE_LOGSUMEXP: return log(b) + a;
    default: return a;
    }
}

/* ---- integers: sums and products wrap ---- */

static void whole_begin(uint32_t kind, uint16_t dtype, uint64_t count, int64_t *a)
{
    for (uint64_t i = 0; i < count; i++)
        a[i] = whole_nothing(kind, dtype);
}

static void whole_join(uint32_t kind, uint64_t count, int64_t *a, const int64_t *more)
{
    for (uint64_t i = 0; i < count && kind == MICA_REDUCE_SUM; i++)
        a[i] = whole_of(MICA_REDUCE_SUM, a[i], more[i]);
    for (uint64_t i = 0; i < count && kind == MICA_REDUCE_PROD; i++)
        a[i] = whole_of(MICA_REDUCE_PROD, a[i], more[i]);
    for (uint64_t i = 0; i < count && kind == MICA_REDUCE_MAX; i++)
        a[i] = whole_of(MICA_REDUCE_MAX, a[i], more[i]);
    for (uint64_t i = 0; i < count && kind == MICA_REDUCE_MIN; i++)
        a[i] = whole_of(MICA_REDUCE_MIN, a[i], more[i]);
}

static int64_t whole_over(uint32_t kind, const int64_t *x, uint64_t n, int64_t a)
{
    for (uint64_t i = 0; i < n && kind == MICA_REDUCE_SUM; i++)
        a = whole_of(MICA_REDUCE_SUM, a, x[i]);
    for (uint64_t i = 0; i < n && kind == MICA_REDUCE_PROD; i++)
        a = whole_of(MICA_REDUCE_PROD, a, x[i]);
    for (uint64_t i = 0; i < n && kind == MICA_REDUCE_MAX; i++)
        a = whole_of(MICA_REDUCE_MAX, a, x[i]);
    for (uint64_t i = 0; i < n && kind == MICA_REDUCE_MIN; i++)
        a = whole_of(MICA_REDUCE_MIN, a, x[i]);
    return a;
}

#endif
