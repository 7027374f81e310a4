/* oracle_fourier.h - the discrete Fourier transform from its sum. Includes nothing of src. */
#ifndef ORACLE_FOURIER_H
#define ORACLE_FOURIER_H

#include <stdbool.h>
#include <stddef.h>

/* y_k = the sum over j of x_j e^(-+2 pi i j k / n), of n complex numbers, pairs of doubles; nothing is multiplied by a norm. */
void oracle_dft(size_t n, bool inverse, const double *x, double *y);
/* By how many roundings of f32 the parts of each number of y, the transform of n such numbers, may be off, the norm left out. */
void oracle_dft_error(size_t n, const double *x, const double *y, double *error);

#endif
