/*
 * symmetric.h - eigenvalues and eigenvectors of a symmetric matrix of double: reflections make it tridiagonal, then rotations with Wilkinson's shifts make
 * it diagonal, one eigenvalue after the other. Magnitudes are about 1, so that squares stay in the range.
 */
#ifndef MICA_CPU_SYMMETRIC_H
#define MICA_CPU_SYMMETRIC_H

#include "backend/cpu/kernels/linear/orthogonal.h"

#define MOST_TURNS 60u /* for an eigenvalue; two are enough */

/* The rest of a [n, n] behind row and column k, both sides by the reflection h [n] (from k + 1 on): a - h w^T - w h^T. Rows of work memory: `w`. */
static inline void reflect_both(double *a, uint64_t n, uint64_t k, const double *h, double size, double *w)
{
    const uint64_t first = k + 1, rest = n - first;
    double *corner = a + first * n + first;
    h += first;
    memset(w, 0, mica__cpu_linear_step(rest) * sizeof *w);
    subtract_rows(w, corner, n, h, 1, rest, rest);
    const double along = dot(w, h, rest) / size;
    for (uint64_t i = 0; i < rest; i++)
        w[i] = -2 / size * (w[i] - along * h[i]);
    for (uint64_t i = 0; i < rest; i++)
        add_both(corner + i * n, w, -h[i], h, -w[i], rest);
}

/* a [n, n] becomes tridiagonal: its diagonal d, what stands beside it e [n - 1]; q [n, n] has the reflections' product. `hs` holds n reflections of n
 * numbers, behind a and q there are numbers of one vector more. */
static inline void make_tridiagonal(double *a, uint64_t n, double *d, double *e, double *q, double *hs,
                                    double *row)
{
    for (uint64_t k = 0; k + 1 < n; k++) {
        double *h = hs + k * n, size = 0;
        if (k + 2 < n) {
            memcpy(h + k + 1, a + k * n + k + 1, (n - k - 1) * sizeof *h);
            size = make_reflection(h + k + 1, n - k - 1);
        }
        e[k] = a[k * n + k + 1] - (size > 0 ? h[k + 1] : 0);
        if (size > 0)
            reflect_both(a, n, k, h, size, row);
        d[k] = size;
    }
    memset(q, 0, n * n * sizeof *q);
    for (uint64_t i = 0; i < n; i++)
        q[i * n + i] = 1;
    for (uint64_t k = n; k-- > 0;)
        if (k + 2 < n)
            reflect(q, n, k + 1, hs + k * n, k + 1, n, d[k], row);
    for (uint64_t i = 0; i < n; i++)
        d[i] = a[i * n + i];
}

/* The first place from l on whose neighbour is coupled to it no more. */
static inline uint64_t uncoupled(const double *d, const double *e, uint64_t l, uint64_t n)
{
    while (l + 1 < n && fabs(e[l]) > DBL_EPSILON * (fabs(d[l]) + fabs(d[l + 1])))
        l++;
    return l;
}

/* Rows [l, m] of v [n, n] turned, neighbours by neighbours from the last two on; a row waits in registers for the next. */
VD_INLINE void turn_columns_at(double *v, uint64_t n, uint64_t l, uint64_t m, const double *turns,
                               uint64_t count, int vectors)
{
    vd last[4];
    VD_UNROLL for (int k = 0; k < vectors; k++) last[k] = vd_load_n(v + m * n + k * VD, count);
    for (uint64_t i = m; i-- > l;) {
        const vd c = vd_set1(turns[2 * i]), s = vd_set1(turns[2 * i + 1]), minus = vd_set1(-turns[2 * i + 1]);
        VD_UNROLL for (int k = 0; k < vectors; k++)
        {
            double *row = v + i * n + k * VD;
            const vd own = vd_load_n(row, count);
            vd_store_n(row + n, vd_fma(s, own, c * last[k]), count);
            last[k] = vd_fma(c, own, minus * last[k]);
        }
    }
    VD_UNROLL for (int k = 0; k < vectors; k++) vd_store_n(v + l * n + k * VD, last[k], count);
}

static inline void turn_rows(double *v, uint64_t n, uint64_t l, uint64_t m, const double *turns)
{
    uint64_t at = 0;
    for (; at + 4 * VD <= n; at += 4 * VD)
        turn_columns_at(v + at, n, l, m, turns, VD, 4);
    for (; at < n; at += VD)
        turn_columns_at(v + at, n, l, m, turns, n - at, 1);
}

/* One turn of the block [l, m] with the shift of its first eigenvalue; rows of v turn with it. `turns` holds n cosines and sines. */
static inline void turn_block(double *d, double *e, uint64_t l, uint64_t m, double *v, uint64_t n,
                              double *turns)
{
    const double ratio = (d[l + 1] - d[l]) / (2 * e[l]);
    double g = d[m] - d[l] + e[l] / (ratio + copysign(hypot(ratio, 1), ratio)), s = 1, c = 1, moved = 0;
    for (uint64_t i = m; i-- > l;) {
        const double f = s * e[i], b = c * e[i], r = sqrt(f * f + g * g);
        e[i + 1] = r;
        if (r == 0) { /* the block falls apart here */
            d[i + 1] -= moved;
            e[m] = 0;
            turn_rows(v, n, i + 1, m, turns);
            return;
        }
        s = f / r;
        c = g / r;
        g = d[i + 1] - moved;
        const double t = (d[i] - g) * s + 2 * c * b;
        moved = s * t;
        d[i + 1] = g + moved;
        g = c * t - b;
        turns[2 * i] = c;
        turns[2 * i + 1] = s;
    }
    turn_rows(v, n, l, m, turns);
    d[l] -= moved;
    e[l] = g;
    e[m] = 0;
}

/* Eigenvalues into d, from the tridiagonal matrix of d and e [n]; the rows of v [n, n] turn with them. False: they were not found. */
static inline bool diagonalise(double *d, double *e, uint64_t n, double *v, double *turns)
{
    if (n > 0)
        e[n - 1] = 0;
    for (uint64_t l = 0; l < n; l++)
        for (uint32_t turn = 0;; turn++) {
            const uint64_t m = uncoupled(d, e, l, n);
            if (m == l)
                break;
            if (turn == MOST_TURNS)
                return false;
            turn_block(d, e, l, m, v, n, turns);
        }
    return true;
}

/* Eigenvalues d of a symmetric a [n, n], which is overwritten, and their vectors, the rows of v [n, n]. `q` is as large as v, `work` three rows of
 * work memory. */
static inline bool find_eigen(double *a, uint64_t n, double *d, double *v, double *q, double *work)
{
    const uint64_t step = mica__cpu_linear_step(n);
    double *e = work, *row = e + step;
    make_tridiagonal(a, n, d, e, q, v, row);
    for (uint64_t i = 0; i < n; i++)
        for (uint64_t c = 0; c < n; c++)
            v[i * n + c] = q[c * n + i];
    return diagonalise(d, e, n, v, row);
}

#endif
