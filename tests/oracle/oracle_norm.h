/*
 * oracle_norm.h - norms over rows that are normalised together, and their gradients, as oracle_ops.h has it: results and error measures in
 * units of one f32 rounding. Weights and biases are given for every element.
 */
#ifndef ORACLE_NORM_H
#define ORACLE_NORM_H

#include <stdbool.h>
#include <stddef.h>

typedef enum oracle_norm_kind { ORACLE_NORM_LAYER, ORACLE_NORM_RMS, ORACLE_NORM_L2 } oracle_norm_kind;

typedef struct oracle_norm {
    oracle_norm_kind kind;
    size_t rows, n;
    const double *x;
    const double *weight, *bias; /* [rows, n] or NULL */
    double eps, offset;
} oracle_norm;

/* A number for each element, or for each row, with what roundings may do to it. */
typedef struct oracle_numbers {
    double *value, *error;
} oracle_numbers;

/* y [rows, n], mean and var [rows]; those whose value is NULL are not asked for. */
void oracle_normalize(const oracle_norm *norm, oracle_numbers y, oracle_numbers mean, oracle_numbers var);
/* dx [rows, n], and dy times the normalised x for each element, which sum up to dweight. */
void oracle_normalize_backward(const oracle_norm *norm, const double *dy, oracle_numbers dx,
                               oracle_numbers products);

void oracle_log_softmax(size_t rows, size_t dim, const double *x, double scale, double *y, double *error);
/* dx from y, what softmax gave or, with `log`, its logarithm. */
void oracle_softmax_backward(size_t rows, size_t dim, const double *y, const double *dy, double scale,
                             bool log, double *dx, double *error);

#endif
