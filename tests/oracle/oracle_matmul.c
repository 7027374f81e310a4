/*
 * oracle_matmul.c - dot products with dense rows, blocks and rows with tables of scales, and rows of a table.
 */
#include "oracle/oracle_ops.h"

#include <math.h>
#include <stdlib.h>

static void decode(const oracle_weight *weight, size_t row, double *value, double *magnitude)
{
    size_t per_row = weight->group_size ? (weight->columns + weight->group_size - 1) / weight->group_size : 0;
    oracle_groups groups = {0};

    if (per_row) {
        groups.scales = weight->scales + row * per_row;
        groups.biases = weight->biases ? weight->biases + row * per_row : NULL;
        groups.size = weight->group_size;
    }
    oracle_decode_row(weight->dtype, weight->data + row * oracle_row_bytes(weight->dtype, weight->columns),
                      weight->columns, &groups, value, magnitude);
}

/* A sum of n rounded terms strays by about the root of n roundings of its absolute sum. */
void oracle_matmul_row(const oracle_weight *weight, size_t first, size_t rows, const double *x,
                       bool quantised, double *y, double *error)
{
    size_t k = weight->columns;
    double *value = malloc(3 * k * sizeof *value);

    if (!value)
        abort();
    if (quantised) {
        oracle_quantise_q8(x, k, value + 2 * k);
        x = value + 2 * k;
    }
    for (size_t n = 0; n < rows; n++) {
        double sum = 0, size = 0;

        decode(weight, first + n, value, value + k);
        for (size_t i = 0; i < k; i++) {
            sum += x[i] * value[i];
            size += fabs(x[i]) * value[k + i];
        }
        y[n] = sum;
        error[n] = size * (1 + 0.25 * sqrt((double)k));
    }
    free(value);
}

/* In rising n: every sum rounds what there is so far, every product and every decoded value, three times, its term. These roundings know nothing of each
 * other, so the root of all squares is what they come to. */
void oracle_matmul_transposed_row(const oracle_weight *weight, size_t first, size_t rows, const double *x,
                                  double *y, double *error)
{
    size_t k = weight->columns;
    double *value = malloc(2 * k * sizeof *value);

    if (!value)
        abort();
    for (size_t i = 0; i < k; i++)
        y[i] = error[i] = 0;
    for (size_t n = 0; n < rows; n++) {
        decode(weight, first + n, value, value + k);
        for (size_t i = 0; i < k; i++) {
            const double term = 3 * x[n] * value[k + i];

            y[i] += x[n] * value[i];
            error[i] += y[i] * y[i] + term * term;
        }
    }
    for (size_t i = 0; i < k; i++)
        error[i] = sqrt(error[i]);
    free(value);
}

void oracle_embedding_row(const oracle_weight *table, size_t row, double *y, double *error)
{
    bool dense = !oracle_is_block(table->dtype) && !table->group_size;

    decode(table, row, y, error);
    for (size_t i = 0; dense && i < table->columns; i++)
        error[i] = ORACLE_EXACT;
}
