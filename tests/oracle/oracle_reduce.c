/* oracle_reduce.c - reductions, each output from the list of its terms. */
#include <math.h>

#include "oracle/oracle_ops.h"

/* As numpy: NaN wins; of zeros of two signs the greater is 0. */
static bool is_better(double a, double b, bool greatest)
{
    if (isnan(b))
        return false;
    if (isnan(a))
        return true;
    if (a == b)
        return greatest ? signbit(b) && !signbit(a) : signbit(a) && !signbit(b);
    return greatest ? a > b : a < b;
}

static double extreme(size_t n, const double *x, double none, bool greatest)
{
    double best = n > 0 ? x[0] : none;

    for (size_t i = 1; i < n; i++)
        if (is_better(x[i], best, greatest))
            best = x[i];
    return best;
}

static double sum_of(size_t n, const double *x, double *size)
{
    long double sum = 0, all = 0;

    for (size_t i = 0; i < n; i++) {
        sum += (long double)x[i];
        all += fabsl((long double)x[i]);
    }
    *size = (double)all;
    return (double)sum;
}

static double product_of(size_t n, const double *x)
{
    long double product = 1;

    for (size_t i = 0; i < n; i++)
        product *= (long double)x[i];
    return (double)product;
}

/* Distances to the mean, which moves by a rounding of the terms, are known to a rounding of the greatest of them at worst. */
static double variance_of(size_t n, const double *x, double correction, double *error)
{
    long double mean = 0, squares = 0, rough = 0;

    for (size_t i = 0; i < n; i++) /* counted from the first: equal terms have no distance at all */
        mean += (long double)x[i] - (long double)x[0];
    mean = n > 0 ? (long double)x[0] + mean / (long double)n : (long double)NAN;
    for (size_t i = 0; i < n; i++) {
        const long double d = (long double)x[i] - mean;

        squares += d * d;
        rough += fabsl(d) * fabsl((long double)x[i]);
    }
    const long double over = (double)n > correction ? (long double)n - (long double)correction : 0;
    /* each term is off by its own rounding: 2 |d| |x| eps on the square, as a random walk */
    *error =
        (double)(squares / over) * (2 + 0.25 * sqrt((double)n)) + (double)(rough / over) / sqrt((double)n);
    return (double)(squares / over);
}

/* The argument of an exponent is off by a rounding of itself. */
static double log_sum_of(size_t n, const double *x, double *error)
{
    const double greatest = extreme(n, x, -(double)INFINITY, true);
    long double sum = 0;

    *error = fabs(greatest) + 2 + 0.25 * sqrt((double)n);
    if (isnan(greatest) || isinf(greatest))
        return greatest;
    for (size_t i = 0; i < n; i++)
        sum += expl((long double)x[i] - (long double)greatest);
    return (double)(logl(sum) + (long double)greatest);
}

double oracle_reduce_one(oracle_reduce kind, size_t n, const double *x, const double *ends, double correction,
                         double *error)
{
    double size = 0, value;

    *error = ORACLE_EXACT;
    switch (kind) {
    case ORACLE_REDUCE_SUM:
    case ORACLE_REDUCE_MEAN:
        value = sum_of(n, x, &size);
        *error = size * (1 + 0.25 * sqrt((double)n)) / (kind == ORACLE_REDUCE_MEAN ? (double)n : 1);
        return kind == ORACLE_REDUCE_MEAN ? value / (double)n : value;
    case ORACLE_REDUCE_MAX: return extreme(n, x, ends[0], true);
    case ORACLE_REDUCE_MIN: return extreme(n, x, ends[1], false);
    case ORACLE_REDUCE_PROD:
        value = product_of(n, x);
        *error = fabs(value) * (1 + 0.5 * sqrt((double)n));
        return value;
    case ORACLE_REDUCE_VAR: return variance_of(n, x, correction, error);
    default: return log_sum_of(n, x, error);
    }
}
