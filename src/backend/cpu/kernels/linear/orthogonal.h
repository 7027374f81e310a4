/* orthogonal.h - Householder's reflections, Jacobi's rotations: matrices of double, row by row. */
#ifndef MICA_CPU_ORTHOGONAL_H
#define MICA_CPU_ORTHOGONAL_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define MOST_SWEEPS 60u /* some ten are enough: every one squares what is left */

/* Column c of a [rows, n] from row k on, reflected by h [m] (from k on), whose square of length is `size`. */
static inline void reflect(double *a, uint64_t n, uint64_t c, const double *h, uint64_t k, uint64_t m,
                           double size)
{
    double dot = 0;
    for (uint64_t i = k; i < m; i++)
        dot += h[i] * a[i * n + c];
    for (uint64_t i = k; i < m && size > 0; i++)
        a[i * n + c] -= 2 * dot / size * h[i];
}

/* The reflection that makes column k of a [m, n] zero below its diagonal, into h [m]; gives its square of length. */
static inline double find_reflection(const double *a, uint64_t m, uint64_t n, uint64_t k, double *h)
{
    double square = 0;
    for (uint64_t i = k; i < m; i++) {
        h[i] = a[i * n + k];
        square += h[i] * h[i];
    }
    h[k] += copysign(sqrt(square), h[k]);
    square = 0;
    for (uint64_t i = k; i < m; i++)
        square += h[i] * h[i];
    return square;
}

/* a [m, n] becomes r, of which the first min(m, n) rows count; q [m, min(m, n)]. `hs` holds min(m, n) reflections of m numbers. */
static inline void factor_qr(double *a, uint64_t m, uint64_t n, double *q, double *hs, double *sizes)
{
    const uint64_t k = m < n ? m : n;
    for (uint64_t j = 0; j < k; j++) {
        sizes[j] = find_reflection(a, m, n, j, hs + j * m);
        for (uint64_t c = j; c < n; c++)
            reflect(a, n, c, hs + j * m, j, m, sizes[j]);
        for (uint64_t i = j + 1; i < m; i++)
            a[i * n + j] = 0;
    }
    memset(q, 0, m * k * sizeof *q);
    for (uint64_t j = 0; j < k; j++)
        q[j * k + j] = 1;
    for (uint64_t j = k; j-- > 0;)
        for (uint64_t c = 0; c < k; c++)
            reflect(q, k, c, hs + j * m, j, m, sizes[j]);
    for (uint64_t j = 0; j < k; j++) { /* a diagonal from 0 up */
        if (!(a[j * n + j] < 0))
            continue;
        for (uint64_t c = j; c < n; c++)
            a[j * n + c] = -a[j * n + c];
        for (uint64_t i = 0; i < m; i++)
            q[i * k + j] = -q[i * k + j];
    }
}

/* Numbers x and y, `step` apart from the next ones, turned by the angle of cosine c and sine s. */
static inline void rotate(double *x, double *y, uint64_t count, uint64_t step, double c, double s)
{
    for (uint64_t i = 0; i < count * step; i += step) {
        const double a = x[i], b = y[i];
        x[i] = c * a - s * b;
        y[i] = s * a + c * b;
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

/* Eigenvalues on the diagonal of a [n, n], symmetric; eigenvectors are the rows of v [n, n]. */
static inline void diagonalise(double *a, uint64_t n, double *v)
{
    double all = 0;
    memset(v, 0, n * n * sizeof *v);
    for (uint64_t i = 0; i < n; i++)
        v[i * n + i] = 1;
    for (uint64_t i = 0; i < n * n; i++)
        all += a[i] * a[i];
    for (uint32_t sweep = 0; sweep < MOST_SWEEPS; sweep++) {
        double rest = 0;
        for (uint64_t p = 0; p + 1 < n; p++)
            for (uint64_t q = p + 1; q < n; q++) {
                const double off = a[p * n + q];
                double c, s;
                rest += off * off;
                if (off == 0)
                    continue;
                find_rotation(a[p * n + p], off, a[q * n + q], &c, &s);
                rotate(a + p, a + q, n, n, c, s);
                rotate(a + p * n, a + q * n, n, 1, c, s);
                a[p * n + q] = a[q * n + p] = 0;
                rotate(v + p * n, v + q * n, n, 1, c, s);
            }
        if (rest <= all * DBL_EPSILON * DBL_EPSILON * 0x1p-6)
            return;
    }
}

static inline double dot(const double *a, const double *b, uint64_t n)
{
    double sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* Makes the k rows of w [k, m] orthogonal by rotations, which the rows of v [k, k] get too, from ones on. */
static inline void orthogonalise(double *w, uint64_t k, uint64_t m, double *v)
{
    const double all = dot(w, w, k * m), little = all * DBL_EPSILON * DBL_EPSILON;
    bool turned = true;
    memset(v, 0, k * k * sizeof *v);
    for (uint64_t i = 0; i < k; i++)
        v[i * k + i] = 1;
    for (uint32_t sweep = 0; sweep < MOST_SWEEPS && turned; sweep++) {
        turned = false;
        for (uint64_t p = 0; p + 1 < k; p++)
            for (uint64_t q = p + 1; q < k; q++) {
                const double pp = dot(w + p * m, w + p * m, m), qq = dot(w + q * m, w + q * m, m);
                const double off = dot(w + p * m, w + q * m, m);
                double c, s;
                if (fabs(off) <= DBL_EPSILON * sqrt(pp * qq) || pp <= little * 0x1p-20 ||
                    qq <= little * 0x1p-20)
                    continue;
                turned = turned || (pp > little && qq > little);
                find_rotation(pp, off, qq, &c, &s);
                rotate(w + p * m, w + q * m, m, 1, c, s);
                rotate(v + p * k, v + q * k, k, 1, c, s);
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
