/*
 * cpu_fourier.h - what plans of Fourier transforms hand to their kernels.
 *
 * The length (fourier.h), the type and the instruction set alone decide what is computed, so that a row's bits do not depend on how many there are:
 *   lanes   short: as many rows as a vector has lanes side by side, each in a lane
 *   rows    longer ones: length = first * second, columns of `first` points side by side, then columns of `second`; a row a unit
 *   long    the same over all threads, a dispatch for each of the steps: where rows are long, or complex ones fewer than threads
 * Inverse transforms are forward ones with real and imaginary parts exchanged before and behind.
 */
#ifndef MICA_CPU_FOURIER_H
#define MICA_CPU_FOURIER_H

#include "backend/cpu/cpu_params.h"
#include "backend/fourier.h"

#define MICA__CPU_FFT_LANES 16u         /* of any instruction set and type, at most */
#define MICA__CPU_FFT_SHORT 512u        /* points that run in lanes, but for squares of the widest vectors */
#define MICA__CPU_FFT_SHARED (1u << 13) /* points of a row that threads share where there are few rows */
#define MICA__CPU_FFT_MEDIUM (1u << 15) /* points that one thread does alone */
#define MICA__CPU_FFT_PIECE 4096u       /* points of a unit of fill, multiply and drain */

/* The radices of a length, which has no prime factor above 13. */
typedef struct mica__cpu_fft_radices {
    uint64_t points; /* their product */
    uint32_t count;
    uint8_t radix[28];
} mica__cpu_fft_radices;

typedef struct mica__cpu_fft {
    mica__cpu_row_range range; /* of rows, blocks of lanes or pieces */
    mica__fourier of;
    uint64_t first, second;
    mica__cpu_fft_radices first_radices, second_radices;
    /* roots of unity of this order are at hand: n where real numbers are in pairs, else 2 n */
    uint64_t order;
    uint64_t size;   /* bytes of a real number */
    uint32_t direct; /* complex numbers side by side: the first step reads x, the second writes y */
    uint32_t own;    /* a row is done by one thread */
    uint32_t part;   /* mica__cpu_fft_part */
    uint32_t ready;  /* tables were made by the plan and follow this; else each thread makes them */
} mica__cpu_fft;

/* Columns that the tables part, whatever a vector has: twiddles of so many lanes, a base for each so many columns. */
#define MICA__CPU_FFT_TABLE_LANES(size) ((size) == 4 ? 16u : 2u)
#define MICA__CPU_FFT_BASE_COLUMNS(size) ((size) == 4 ? 8u : 2u)
#define MICA__CPU_FFT_READY (192u << 10) /* bytes of tables that a step of a plan holds */

/* Which tables a step has, each with those before it. */
typedef enum mica__cpu_fft_part {
    MICA__CPU_FFT_ROOTS,
    MICA__CPU_FFT_SECOND,
    MICA__CPU_FFT_ALL
} mica__cpu_fft_part;

/* Where things lie, in bytes: tables, which follow the parameters or lead a thread's memory, and the rest of that. Which of them a kernel has is its
 * own affair. */
typedef struct mica__cpu_fft_places {
    uint64_t roots;        /* double pairs: the roots of `order` */
    uint64_t second_roots; /* of a column, in the type */
    uint64_t first_roots;
    uint64_t across;    /* double pairs: the roots of `length` */
    uint64_t twiddles;  /* [first][2][table lanes]: roots by column and lane */
    uint64_t bases;     /* complex [second / base columns][first]: times these; not of long rows */
    uint64_t tables;    /* bytes of those that the step has */
    uint64_t own_bases; /* complex [first]: those of a few columns of long rows */
    uint64_t block[2];  /* [greater of first and second][2][lanes], and a square of lanes more */
    uint64_t spectrum;  /* complex [length]: of the chirp */
    uint64_t row,
        folded; /* complex [length] and what lies between the two steps; lanes: [lanes][length] in row */
    uint64_t bytes;
} mica__cpu_fft_places;

/* Roots of unity of order n are products of one of low and one of high. */
static inline uint32_t mica__cpu_fft_shift(uint64_t n)
{
    uint32_t shift = 0;
    while (((uint64_t)1 << 2 * shift) < n)
        shift++;
    return shift;
}
static inline uint64_t mica__cpu_fft_root_bytes(uint64_t n)
{
    const uint32_t shift = mica__cpu_fft_shift(n);
    return (((uint64_t)1 << shift) + (n >> shift) + 1) * 2 * sizeof(double);
}

/* Complex numbers between the two steps of a row: columns of whole lanes. */
static inline uint64_t mica__cpu_fft_folded(const mica__cpu_fft *fft)
{
    return (fft->first + MICA__CPU_FFT_LANES - 1) / MICA__CPU_FFT_LANES * MICA__CPU_FFT_LANES * fft->second;
}

/* Bases of a row's `second` columns. */
static inline uint64_t mica__cpu_fft_blocks(const mica__cpu_fft *fft)
{
    const uint64_t columns = MICA__CPU_FFT_BASE_COLUMNS(fft->size);
    return (fft->second + columns - 1) / columns;
}

static inline uint64_t mica__cpu_fft_take(mica__cpu_fft_places *places, uint64_t bytes)
{
    const uint64_t at = places->bytes;
    places->bytes += (bytes + 63) / 64 * 64;
    return at;
}

static inline mica__cpu_fft_places mica__cpu_fft_places_of(const mica__cpu_fft *fft)
{
    const uint64_t size = fft->size, length = fft->of.length;
    const uint64_t most = fft->first > fft->second ? fft->first : fft->second, lanes = MICA__CPU_FFT_LANES;
    const bool own_rows = fft->own != 0, alone = fft->second == 1;
    const bool bases = length <= MICA__CPU_FFT_MEDIUM && !alone;
    mica__cpu_fft_places p = {.bytes = 0};
    const bool folds = fft->of.pairs != 0 || fft->of.chirp != 0;
    p.roots = mica__cpu_fft_take(&p, folds ? mica__cpu_fft_root_bytes(fft->order) : 0);
    p.tables = p.bytes;
    p.second_roots = mica__cpu_fft_take(&p, fft->second * 2 * size);
    p.tables = fft->part >= MICA__CPU_FFT_SECOND ? p.bytes : p.tables;
    p.first_roots = mica__cpu_fft_take(&p, fft->first * 2 * size);
    p.across = mica__cpu_fft_take(&p, alone ? 0 : mica__cpu_fft_root_bytes(length));
    p.twiddles = mica__cpu_fft_take(&p, alone ? 0 : fft->first * 2 * MICA__CPU_FFT_TABLE_LANES(size) * size);
    p.bases = mica__cpu_fft_take(&p, bases ? mica__cpu_fft_blocks(fft) * fft->first * 2 * size : 0);
    p.tables = fft->part == MICA__CPU_FFT_ALL ? p.bytes : p.tables;
    p.bytes = fft->ready != 0 ? 0 : p.tables;
    p.own_bases = mica__cpu_fft_take(&p, bases || alone ? 0 : fft->first * 2 * size);
    p.block[0] = mica__cpu_fft_take(&p, (2 * most + lanes) * lanes * size);
    p.block[1] = mica__cpu_fft_take(&p, (2 * most + lanes) * lanes * size);
    p.spectrum = mica__cpu_fft_take(&p, own_rows && fft->of.chirp != 0 ? length * 2 * size : 0);
    p.row = mica__cpu_fft_take(&p, !own_rows ? 0 : (alone ? lanes * (length + lanes) : length) * 2 * size);
    p.folded = mica__cpu_fft_take(&p, own_rows && !alone ? mica__cpu_fft_folded(fft) * 2 * size : 0);
    return p;
}

#endif
