/* oracle_fourier.c - the discrete Fourier transform from its sum, taken apart by prime factors where n has some. */
#include "oracle/oracle_fourier.h"

#include <math.h>
#include <stdlib.h>

typedef long double wide;

typedef struct transform {
    size_t n;
    const double *x;
    const wide *roots; /* e^(-+2 pi i a / n), pairs */
} transform;

static size_t least_factor(size_t n)
{
    for (size_t p = 2; p * p <= n; p++)
        if (n % p == 0)
            return p;
    return n;
}

/* The transform of the n numbers first, first + step, .. of x: of each of p classes of them, then the sums over the classes. */
static void take_apart(const transform *t, size_t n, size_t first, size_t step, wide *y)
{
    const size_t p = n > 1 ? least_factor(n) : 1, m = n / p;

    if (n == 1) {
        y[0] = (wide)t->x[2 * first];
        y[1] = (wide)t->x[2 * first + 1];
        return;
    }
    for (size_t r = 0; r < p; r++)
        take_apart(t, m, first + r * step, step * p, y + 2 * r * m);
    wide *own = malloc(2 * p * sizeof *own);
    if (own == NULL)
        abort();
    for (size_t k = 0; k < m; k++) {
        for (size_t j = 0; j < p; j++) {
            const size_t turn =
                (k + j * m) * step; /* of each class against the one before, in n-ths of x's n */
            wide re = 0, im = 0;

            for (size_t r = 0, angle = 0; r < p;
                 r++, angle = angle + turn < t->n ? angle + turn : angle + turn - t->n) {
                const wide *root = t->roots + 2 * angle, *v = y + 2 * (r * m + k);

                re += v[0] * root[0] - v[1] * root[1];
                im += v[0] * root[1] + v[1] * root[0];
            }
            own[2 * j] = re;
            own[2 * j + 1] = im;
        }
        for (size_t j = 0; j < p; j++) {
            y[2 * (j * m + k)] = own[2 * j];
            y[2 * (j * m + k) + 1] = own[2 * j + 1];
        }
    }
    free(own);
}

void oracle_dft(size_t n, bool inverse, const double *x, double *y)
{
    wide *roots = malloc(2 * n * sizeof *roots), *z = malloc(2 * n * sizeof *z);
    const transform t = {n, x, roots};

    if (roots == NULL || z == NULL)
        abort();
    for (size_t a = 0; a < n; a++) {
        const wide angle = 2 * 3.141592653589793238462643383279502884L * (wide)a / (wide)n;

        roots[2 * a] = cosl(angle);
        roots[2 * a + 1] = inverse ? sinl(angle) : -sinl(angle);
    }
    take_apart(&t, n, 0, 1, z);
    for (size_t i = 0; i < 2 * n; i++)
        y[i] = (double)z[i];
    free(roots);
    free(z);
}

/* Each of log2 n levels rounds all n numbers once or twice, and every result has a share of each of them: the root of their squares. A result
 * that stands out is rounded by itself at each level, since its parts are as great together as it is; and those of its last butterfly are sums
 * that it is a part of. A length with great prime factors goes through three transforms of up to four times as many. */
void oracle_dft_error(size_t n, const double *x, const double *y, double *error)
{
    double squares = 0, greatest = 0, levels = log2((double)n), times = 1;
    size_t rest = n;

    for (size_t p = 2; p <= 13; p++)
        while (rest % p == 0)
            rest /= p;
    if (rest > 1) {
        levels += 2;
        times = 3;
    }
    for (size_t i = 0; i < 2 * n; i++) {
        squares += x[i] * x[i];
        greatest = fmax(greatest, fabs(y[i]));
    }
    for (size_t k = 0; k < n; k++)
        error[k] = times * (sqrt(squares) * (2 + levels) + greatest + hypot(y[2 * k], y[2 * k + 1]) * levels);
}
