/*
 * oracle_rows.c - norms, softmax, rope: ops that look at one row.
 */
#include "oracle/oracle_ops.h"

#include <math.h>

#include "oracle/oracle_number.h"

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

/* The mean is off by the absolute sum's error, and x - mean by that and one rounding of x; the squares add the root
 * of their number, and the square of the mean's own error. */
static void layer_norm_row(size_t dim, const double *x, const double *weight, const double *bias, double eps,
                           double *y, double *error)
{
    double mean = 0, size = 0, var = 0, roundings = 1 + 0.25 * sqrt((double)dim);

    for (size_t i = 0; i < dim; i++) {
        mean += x[i] / (double)dim;
        size += fabs(x[i]) / (double)dim;
    }
    for (size_t i = 0; i < dim; i++)
        var += (x[i] - mean) * (x[i] - mean) / (double)dim;
    for (size_t i = 0; i < dim; i++) {
        double scale = (weight ? weight[i] : 1) / sqrt(var + eps), part = (x[i] - mean) * scale;
        double off = size * roundings * ORACLE_F32_EPS;

        y[i] = part + (bias ? bias[i] : 0);
        error[i] = fabs(scale) * (fabs(x[i]) + size * roundings) +
                   fabs(part) * (roundings + off * off / (var + eps) / ORACLE_F32_EPS) + fabs(y[i]);
    }
}

void oracle_layer_norm(size_t rows, size_t dim, const double *x, const double *weight, const double *bias,
                       double eps, double *y, double *error)
{
    for (size_t r = 0; r < rows; r++)
        layer_norm_row(dim, x + r * dim, weight, bias, eps, y + r * dim, error + r * dim);
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

/* Whose position the pair has, and the exponent that it counts for: from the definition, axis by axis. */
static size_t rope_axis(const oracle_rope *rope, size_t pair, size_t *exponent)
{
    const size_t *s = rope->sections, total = s[0] + s[1] + s[2] + s[3];
    size_t begin[5] = {0}, axis = 0;

    *exponent = pair;
    if (rope->sharing == ORACLE_AXES_ONE)
        return 0;
    const size_t at = pair % total;
    if (rope->sharing == ORACLE_AXES_INTERLEAVED) {
        for (axis = 0; axis < 3; axis++)
            for (size_t k = 0; k < s[axis]; k++)
                if (3 * k + axis == at)
                    return axis;
        return rope->axes == 4 ? 3 : 0;
    }
    for (size_t a = 0; a < 4; a++) {
        begin[a + 1] = begin[a] + s[a];
        if (at >= begin[a] && at < begin[a + 1])
            axis = a;
    }
    if (rope->sharing == ORACLE_AXES_SEPARATE)
        *exponent = at - begin[axis];
    return axis;
}

/* The angle itself is rounded in f32, so an angle of size a moves the result by a * eps. */
static void rope_pair(const oracle_rope *rope, size_t token, size_t pair, const double *x, double *y,
                      double *error)
{
    size_t first = rope->neox ? pair : 2 * pair;
    size_t second = rope->neox ? pair + rope->rotary_dims / 2 : 2 * pair + 1;
    size_t exponent, axis = rope_axis(rope, pair, &exponent);
    double position = rope->positions[axis * rope->tokens + token];
    double frequency = pow(rope->theta, -2.0 * (double)exponent / (double)rope->frequency_dims);
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
            rope_pair(rope, row / rope->heads, pair, x, y + row * rope->dim, error + row * rope->dim);
        for (size_t i = rope->rotary_dims; i < rope->dim; i++) {
            y[row * rope->dim + i] = x[i];
            error[row * rope->dim + i] = ORACLE_EXACT;
        }
    }
}
