/*
 * oracle_rows.c - rms_norm, softmax, argmax, rope: ops that look at one row.
 */
#include "oracle/oracle_ops.h"

#include <math.h>

/* The sum of squares has no cancellation: its relative error grows with the root of the length. */
void oracle_rms_norm(size_t rows, size_t dim, const double *x, const double *weight, double eps, double *y,
                     double *error)
{
    for (size_t r = 0; r < rows; r++) {
        const double *row = x + r * dim;
        double sum = 0;

        for (size_t i = 0; i < dim; i++)
            sum += row[i] * row[i];
        for (size_t i = 0; i < dim; i++) {
            y[r * dim + i] = row[i] / sqrt(sum / (double)dim + eps) * (weight ? weight[i] : 1);
            error[r * dim + i] = fabs(y[r * dim + i]) * (1 + 0.25 * sqrt((double)dim));
        }
    }
}

/* An argument of size a carries a * eps into the exponent; the sum adds the root of its length. */
void oracle_softmax(size_t rows, size_t dim, const double *x, double scale, double *y, double *error)
{
    for (size_t r = 0; r < rows; r++) {
        const double *row = x + r * dim;
        double largest = -INFINITY, widest = 0, sum = 0;
        bool nan = false;

        for (size_t i = 0; i < dim; i++) {
            double v = row[i] * scale;

            nan = nan || isnan(v);
            largest = fmax(largest, v);
            if (isfinite(v))
                widest = fmax(widest, fabs(v));
        }
        for (size_t i = 0; i < dim; i++)
            sum += largest == -INFINITY ? 0 : exp(row[i] * scale - largest);
        for (size_t i = 0; i < dim; i++) {
            double *out = y + r * dim + i;

            if (nan)
                *out = (double)NAN;
            else
                *out = largest == -INFINITY ? 0 : exp(row[i] * scale - largest) / sum;
            error[r * dim + i] = fabs(*out) * (2 + widest + 0.25 * sqrt((double)dim));
        }
    }
}

void oracle_argmax(size_t rows, size_t dim, const double *x, double *ids)
{
    for (size_t r = 0; r < rows; r++) {
        const double *row = x + r * dim;
        size_t best = 0;
        bool found = false;

        for (size_t i = 0; i < dim; i++) {
            if (isnan(row[i]) || (found && row[i] <= row[best]))
                continue;
            best = i;
            found = true;
        }
        ids[r] = (double)best;
    }
}

/* The angle itself is rounded in f32, so an angle of size a moves the result by a * eps. */
static void rope_pair(const oracle_rope *rope, double position, size_t pair, const double *x, double *y,
                      double *error)
{
    size_t first = rope->neox ? pair : 2 * pair;
    size_t second = rope->neox ? pair + rope->rotary_dims / 2 : 2 * pair + 1;
    double frequency = pow(rope->theta, -2.0 * (double)pair / (double)rope->frequency_dims);
    double angle = position * rope->position_scale * frequency / (rope->factors ? rope->factors[pair] : 1);
    double c = cos(angle) * rope->attention_scale, s = sin(angle) * rope->attention_scale;
    double size = (fabs(x[first]) + fabs(x[second])) * fabs(rope->attention_scale);

    y[first] = x[first] * c - x[second] * s;
    y[second] = x[first] * s + x[second] * c;
    error[first] = error[second] = size * (1 + fabs(angle));
}

void oracle_rope_run(const oracle_rope *rope, double *y, double *error)
{
    for (size_t row = 0; row < rope->tokens * rope->heads; row++) {
        const double *x = rope->x + row * rope->dim;

        for (size_t pair = 0; pair < rope->rotary_dims / 2; pair++)
            rope_pair(rope, rope->positions[row / rope->heads], pair, x, y + row * rope->dim,
                      error + row * rope->dim);
        for (size_t i = rope->rotary_dims; i < rope->dim; i++) {
            y[row * rope->dim + i] = x[i];
            error[row * rope->dim + i] = ORACLE_EXACT;
        }
    }
}
