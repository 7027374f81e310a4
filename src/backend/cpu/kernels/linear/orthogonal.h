/* orthogonal.h - Householder's reflections, Jacobi's rotations: matrices of double, row by row. */
#ifndef MICA_CPU_ORTHOGONAL_H
#define MICA_CPU_ORTHOGONAL_H

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "backend/cpu/kernels/linear/doubles.h"

#define MOST_SWEEPS 60u /* some ten are enough: every one squares what is left */

/* Columns [from, n) of a [m, n] from row k on, reflected by h [m] (from k on), whose square of length is `size`. `sums` is a row of work memory; behind a
 * there are numbers of one vector more. */
static inline void reflect(double *a, uint64_t n, uint64_t from, const double *h, uint64_t k, uint64_t m,
                           double size, double *sums)
{
    const uint64_t count = n - from;
    if (!(size > 0))
        return;
    memset(sums, 0, mica__cpu_linear_step(count) * sizeof *sums);
    subtract_rows(sums, a + k * n + from, n, h + k, 1, m - k, count);
    for (uint64_t i = k; i < m; i++)
        add_scaled(a + i * n + from, sums, 2 / size * h[i], count);
}

/* Makes of `count` numbers h the reflection that leaves the first of them alone; gives its square of length. The first becomes itself less h[0]. */
static inline double make_reflection(double *h, uint64_t count)
{
    h[0] += copysign(sqrt(dot(h, h, count)), h[0]);
    return dot(h, h, count);
}

/* a [m, n] becomes r, of which the first min(m, n) rows count; q [m, min(m, n)]. `hs` holds min(m, n) reflections of m numbers, `sums` is a row of work
 * memory. */
static inline void factor_qr(double *a, uint64_t m, uint64_t n, double *q, double *hs, double *sizes,
                             double *sums)
{
    const uint64_t k = m < n ? m : n;
    for (uint64_t j = 0; j < k; j++) {
        for (uint64_t i = j; i < m; i++)
            hs[j * m + i] = a[i * n + j];
        sizes[j] = make_reflection(hs + j * m + j, m - j);
        reflect(a, n, j, hs + j * m, j, m, sizes[j], sums);
        for (uint64_t i = j + 1; i < m; i++)
            a[i * n + j] = 0;
    }
    memset(q, 0, m * k * sizeof *q);
    for (uint64_t j = 0; j < k; j++)
        q[j * k + j] = 1;
    for (uint64_t j = k; j-- > 0;)
        reflect(q, k, j, hs + j * m, j, m, sizes[j], sums); /* columns before j are still those of ones */
    for (uint64_t j = 0; j < k; j++) {                      /* a diagonal from 0 up */
        if (!(a[j * n + j] < 0))
            continue;
        for (uint64_t c = j; c < n; c++)
            a[j * n + c] = -a[j * n + c];
        for (uint64_t i = 0; i < m; i++)
            q[i * k + j] = -q[i * k + j];
    }
}

/* Cosine and sine of the rotation that makes the off-diagonal number `off` of a symmetric [p, off; off, q] zero. */
static inline void find_rotation(double p, double off, double q, double *c, double *s)
{
    const double zeta = (q - p) / (2 * off);
    const double t = isinf(zeta) ? 0 : copysign(1 / (fabs(zeta) + hypot(1, zeta)), zeta);
    *c = 1 / sqrt(1 + t * t);
    *s = *c * t;
}

/* Makes the k rows of w [k, m] orthogonal by rotations, which the rows of v [k, k] get too. `square` [k] is work memory. */
static inline void orthogonalise(double *w, uint64_t k, uint64_t m, double *v, double *square)
{
    const double all = dot(w, w, k * m), little = all * DBL_EPSILON * DBL_EPSILON;
    const double enough = DBL_EPSILON * sqrt((double)m); /* what a sum of m products is off by */
    bool turned = true;
    for (uint32_t sweep = 0; sweep < MOST_SWEEPS && turned; sweep++) {
        turned = false;
        for (uint64_t p = 0; p < k; p++)
            square[p] = dot(w + p * m, w + p * m, m);
        for (uint64_t p = 0; p + 1 < k; p++)
            for (uint64_t q = p + 1; q < k; q++) {
                const double pp = square[p], qq = square[q], off = dot(w + p * m, w + q * m, m);
                double c, s;
                if (fabs(off) <= enough * sqrt(pp * qq) || pp <= little * 0x1p-20 || qq <= little * 0x1p-20)
                    continue;
                turned = turned || (pp > little && qq > little);
                find_rotation(pp, off, qq, &c, &s);
                rotate(w + p * m, w + q * m, m, c, s);
                rotate(v + p * k, v + q * k, k, c, s);
                square[p] = pp - s / c * off;
                square[q] = qq + s / c * off;
            }
    }
}

/* Row j of u [.., m] becomes a unit vector that is orthogonal to the j before it: the axis that they say least of. */
static inline void complete_row(double *u, uint64_t j, uint64_t m)
{
    double *own = u + j * m, least = (double)INFINITY;
    uint64_t axis = 0;
    for (uint64_t i = 0; i < m; i++) {
        double share = 0;
        for (uint64_t r = 0; r < j; r++)
            share += u[r * m + i] * u[r * m + i];
        if (share < least) {
            least = share;
            axis = i;
        }
    }
    memset(own, 0, m * sizeof *own);
    own[axis] = 1;
    for (int twice = 0; twice < 2; twice++)
        for (uint64_t r = 0; r < j; r++) {
            const double part = dot(own, u + r * m, m);
            for (uint64_t i = 0; i < m; i++)
                own[i] -= part * u[r * m + i];
        }
    const double size = sqrt(dot(own, own, m));
    for (uint64_t i = 0; i < m; i++)
        own[i] /= size;
}

#endif
