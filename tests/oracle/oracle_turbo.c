/* oracle_turbo.c - the Walsh-Hadamard transform, each element from the signs of its own sum. */
#include <math.h>

#include "oracle/oracle_ops.h"

static bool is_odd(size_t bits)
{
    bool odd = false;

    for (; bits != 0; bits &= bits - 1)
        odd = !odd;
    return odd;
}

void oracle_hadamard(size_t rows, size_t dim, const double *x, const double *signs, double scale, bool undo,
                     double *y, double *error)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < dim; i++) {
            double sum = 0, size = 0;

            for (size_t j = 0; j < dim; j++) {
                const double term = x[r * dim + j] * (signs != NULL && !undo ? signs[j] : 1);

                sum += is_odd(i & j) ? -term : term;
                size += fabs(term);
            }
            if (signs != NULL && undo) {
                sum *= signs[i];
                size *= fabs(signs[i]);
            }
            y[r * dim + i] = scale * sum;
            error[r * dim + i] = fabs(scale) * size * (1 + 0.25 * sqrt((double)dim));
        }
}
