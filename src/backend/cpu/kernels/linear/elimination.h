/* elimination.h - triangular systems, Cholesky's factor, elimination: matrices of double, row by row. False: there is no result. */
#ifndef MICA_CPU_ELIMINATION_H
#define MICA_CPU_ELIMINATION_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "mica/ops_linear.h"

/* b [n, m] -= factor times row `from` of itself, in row `to`. */
static inline void subtract_row(double *b, uint64_t m, uint64_t to, uint64_t from, double factor)
{
    for (uint64_t c = 0; c < m; c++)
        b[to * m + c] -= factor * b[from * m + c];
}

/* Solves op(a) x = b in b [n, m]. */
static inline bool solve_triangular(const double *a, uint64_t n, double *b, uint64_t m,
                                    const mica_triangular_params *p)
{
    const bool down = (p->upper != 0) == (p->transpose != 0); /* the first unknown first */
    for (uint64_t k = 0; k < n; k++) {
        const uint64_t i = down ? k : n - 1 - k;
        for (uint64_t l = 0; l < k; l++) {
            const uint64_t j = down ? l : n - 1 - l;
            subtract_row(b, m, i, j, p->transpose != 0 ? a[j * n + i] : a[i * n + j]);
        }
        if (p->unit != 0)
            continue;
        if (a[i * n + i] == 0)
            return false;
        for (uint64_t c = 0; c < m; c++)
            b[i * m + c] /= a[i * n + i];
    }
    return true;
}

/* The lower factor of a, in place, from its lower half; the other half becomes 0. */
static inline bool factor_cholesky(double *a, uint64_t n)
{
    for (uint64_t j = 0; j < n; j++) {
        double pivot = a[j * n + j];
        for (uint64_t k = 0; k < j; k++)
            pivot -= a[j * n + k] * a[j * n + k];
        if (!(pivot > 0) || isinf(pivot))
            return false;
        a[j * n + j] = sqrt(pivot);
        for (uint64_t i = j + 1; i < n; i++) {
            double sum = a[i * n + j];
            for (uint64_t k = 0; k < j; k++)
                sum -= a[i * n + k] * a[j * n + k];
            a[i * n + j] = sum / a[j * n + j];
            a[j * n + i] = 0;
        }
    }
    return true;
}

static inline void swap_rows(double *a, uint64_t n, uint64_t i, uint64_t j)
{
    for (uint64_t c = 0; c < n && i != j; c++) {
        const double kept = a[i * n + c];
        a[i * n + c] = a[j * n + c];
        a[j * n + c] = kept;
    }
}

/* Makes a [n, n] upper triangular and does the same to b [n, m] (m 0: there is none); the sign is that of the exchanges of rows. */
static inline bool eliminate(double *a, uint64_t n, double *b, uint64_t m, double *sign)
{
    *sign = 1;
    for (uint64_t k = 0; k < n; k++) {
        uint64_t best = k;
        for (uint64_t i = k + 1; i < n; i++)
            if (fabs(a[i * n + k]) > fabs(a[best * n + k]))
                best = i;
        if (a[best * n + k] == 0)
            return false;
        swap_rows(a, n, k, best);
        swap_rows(b, m, k, best);
        *sign = best != k ? -*sign : *sign;
        for (uint64_t i = k + 1; i < n; i++) {
            const double factor = a[i * n + k] / a[k * n + k];
            for (uint64_t c = k; c < n && factor != 0; c++)
                a[i * n + c] -= factor * a[k * n + c];
            subtract_row(b, m, i, k, factor);
        }
    }
    return true;
}

static inline bool solve_general(double *a, uint64_t n, double *b, uint64_t m)
{
    const mica_triangular_params upper = {.upper = 1};
    double sign;
    return eliminate(a, n, b, m, &sign) && solve_triangular(a, n, b, m, &upper);
}

/* out: the determinant, or its sign and the logarithm of its magnitude. */
static inline void find_determinant(double *a, uint64_t n, bool log_of, double *out)
{
    double sign, product = 1, sum = 0;
    const bool regular = eliminate(a, n, NULL, 0, &sign);
    for (uint64_t i = 0; i < n && regular; i++) {
        product *= a[i * n + i];
        sum += log(fabs(a[i * n + i]));
        sign = a[i * n + i] < 0 ? -sign : sign;
    }
    if (log_of) {
        out[0] = regular ? sign : 0;
        out[1] = regular ? sum : -(double)INFINITY;
    } else {
        out[0] = regular ? copysign(product, sign) : 0;
    }
}

#endif
