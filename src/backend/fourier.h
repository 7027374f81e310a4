/*
 * fourier.h - what backends share of a Fourier transform: its rows, and the length of the complex transform that it runs as.
 *
 * `inner` complex points are the caller's: n, or n / 2 where real numbers of an even length are taken in pairs. Where `inner` has a prime
 * factor above MICA__FOURIER_RADIX the transform is a convolution (Bluestein's), of a good length from 2 inner - 1 on.
 */
#ifndef MICA_BACKEND_FOURIER_H
#define MICA_BACKEND_FOURIER_H

#include "backend/record.h"

#define MICA__FOURIER_RADIX 13u /* the greatest prime that kernels take as a radix */

typedef struct mica__fourier {
    uint64_t n, inner, length;
    uint64_t rows; /* the product of `shape` */
    /* of the rows, in bytes */
    uint64_t shape[MICA_MAX_DIMS], x_stride[MICA_MAX_DIMS], y_stride[MICA_MAX_DIMS];
    uint64_t x_step, y_step; /* bytes from one point to the next along the axis */
    uint64_t x_half, y_half; /* from the real part of a complex number to the imaginary one */
    double scale;
    uint32_t ndim; /* of the rows; at least 1 */
    uint32_t kind, inverse;
    uint32_t pairs; /* 1: real numbers in pairs */
    uint32_t chirp; /* 1: a convolution */
} mica__fourier;

/* Of a record of fft. */
void mica__fourier_of(const mica__record *record, mica__fourier *out);

#endif
