/* fft_roots.h - roots of unity, the tables of a transform, and the radices of a length. Knows no instruction set: plans make tables, too. */
#ifndef MICA_CPU_FFT_ROOTS_H
#define MICA_CPU_FFT_ROOTS_H

#include <math.h>
#include <string.h>

#include "backend/cpu/cpu_fourier.h"

/* e^(-2 pi i a / n): the nearest quarter of the circle is taken off in whole numbers, so that the rest is exact. */
static inline void root_of_unity(uint64_t a, uint64_t n, double *out)
{
    a %= n;
    const uint64_t quarter = (8 * a + n) / (2 * n);
    const double rest = (double)((int64_t)(4 * a) - (int64_t)(quarter * n));
    const double angle = 1.5707963267948966 * (rest / (double)n), c = cos(angle), s = sin(angle);
    out[0] = (quarter & 1) != 0 ? -s : c;
    out[1] = (quarter & 1) != 0 ? -c : -s;
    if ((quarter & 2) != 0) {
        out[0] = -out[0];
        out[1] = -out[1];
    }
}

typedef struct fft_roots {
    const double *low, *high; /* pairs: of 0 .. 2^shift - 1, of multiples of 2^shift */
    uint32_t shift;
} fft_roots;

static inline fft_roots fft_roots_at(const void *memory, uint64_t n)
{
    const uint32_t shift = mica__cpu_fft_shift(n);
    const double *low = memory;
    return (fft_roots){low, low + ((uint64_t)2 << shift), shift};
}

static inline void fft_roots_make(void *memory, uint64_t n)
{
    const uint32_t shift = mica__cpu_fft_shift(n);
    double *out = memory;
    for (uint64_t a = 0; a < (uint64_t)1 << shift; a++, out += 2)
        root_of_unity(a, n, out);
    for (uint64_t a = 0; a <= n >> shift; a++, out += 2)
        root_of_unity(a << shift, n, out);
}

/* Root a of them, a below n. */
static inline void fft_root(const fft_roots *roots, uint64_t a, double *out)
{
    const double *l = roots->low + 2 * (a & (((uint64_t)1 << roots->shift) - 1));
    const double *h = roots->high + 2 * (a >> roots->shift);
    out[0] = l[0] * h[0] - l[1] * h[1];
    out[1] = l[0] * h[1] + l[1] * h[0];
}

/* A root as number `at` of complex ones of `size` bytes a part, `apart` numbers between the parts. */
static inline void fft_put_root(unsigned char *to, uint64_t size, uint64_t at, uint64_t apart,
                                const double *root)
{
    for (uint64_t part = 0; part < 2; part++) {
        const float narrow = (float)root[part];
        memcpy(to + (at + part * apart) * size, size == 4 ? (const void *)&narrow : (const void *)&root[part],
               size);
    }
}

/* All n of the n-th roots, in the type. */
static inline void fft_column_roots(uint64_t n, uint64_t size, unsigned char *to)
{
    for (uint64_t a = 0; a < n; a++) {
        double root[2];
        root_of_unity(a, n, root);
        fft_put_root(to, size, 2 * a, 1, root);
    }
}

/* What the columns of a row that is folded are multiplied by: the root of each lane, times that of the first of some columns. */
static inline void fft_twiddles(const mica__cpu_fft *fft, const mica__cpu_fft_places *p,
                                unsigned char *memory)
{
    const fft_roots across = fft_roots_at(memory + p->across, fft->of.length);
    const uint64_t lanes = MICA__CPU_FFT_TABLE_LANES(fft->size),
                   columns = MICA__CPU_FFT_BASE_COLUMNS(fft->size);
    double root[2];
    fft_roots_make(memory + p->across, fft->of.length);
    for (uint64_t k = 0; k < fft->first; k++)
        for (uint64_t lane = 0; lane < lanes; lane++) {
            fft_root(&across, k * lane % fft->of.length, root);
            fft_put_root(memory + p->twiddles, fft->size, k * 2 * lanes + lane, lanes, root);
        }
    if (fft->of.length > MICA__CPU_FFT_MEDIUM)
        return;
    for (uint64_t block = 0; block < mica__cpu_fft_blocks(fft); block++)
        for (uint64_t k = 0; k < fft->first; k++) {
            fft_root(&across, k * block * columns, root);
            fft_put_root(memory + p->bases, fft->size, (block * fft->first + k) * 2, 1, root);
        }
}

/* The tables that a step has, at `memory`. */
static inline void fft_tables_make(const mica__cpu_fft *fft, unsigned char *memory)
{
    const mica__cpu_fft_places p = mica__cpu_fft_places_of(fft);
    if (fft->of.pairs != 0 || fft->of.chirp != 0)
        fft_roots_make(memory + p.roots, fft->order);
    if (fft->part >= MICA__CPU_FFT_SECOND)
        fft_column_roots(fft->second, fft->size, memory + p.second_roots);
    if (fft->part < MICA__CPU_FFT_ALL)
        return;
    fft_column_roots(fft->first, fft->size, memory + p.first_roots);
    if (fft->second > 1)
        fft_twiddles(fft, &p, memory);
}

static inline mica__cpu_fft_radices fft_radices_of(uint64_t n)
{
    static const uint8_t odd[] = {13, 11, 7, 5, 3};
    mica__cpu_fft_radices r = {.points = n};
    uint32_t twos = 0;
    for (uint32_t i = 0; i < sizeof odd; i++)
        for (; n % odd[i] == 0; n /= odd[i])
            r.radix[r.count++] = odd[i];
    for (; n > 1; n /= 2)
        twos++;
    while (twos > 0) {
        const uint32_t bits = twos == 3 || twos >= 5 ? 3 : twos >= 2 ? 2 : 1;
        r.radix[r.count++] = (uint8_t)(1u << bits);
        twos -= bits;
    }
    return r;
}

#endif
