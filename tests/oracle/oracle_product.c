/*
 * oracle_product.c - one element of a product: a sum of products, and what roundings may make of it.
 */
#include "oracle/oracle_ops.h"

#include <math.h>

double oracle_dot(size_t k, const double *a, size_t a_step, const double *b, size_t b_step, double *error)
{
    double sum = 0, size = 0;

    for (size_t i = 0; i < k; i++) {
        const double term = a[i * a_step] * b[i * b_step];

        sum += term;
        size += fabs(term);
    }
    *error = size * (1 + 0.25 * sqrt((double)k));
    return sum;
}
