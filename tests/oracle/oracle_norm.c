/* oracle_norm.c - norms, softmax and what they give back to training, row by row in long double. */
#include "oracle/oracle_norm.h"

#include <math.h>

#include "oracle/oracle_number.h"

/* What a row is normalised by, and how far that may be off. */
typedef struct measures {
    long double mean, var, scale;
    double mean_error, var_error;
    double scale_error; /* relative */
} measures;

/* The mean is off by the absolute sum's error. Distances to it are off by a rounding of x each, as a random walk, and by the mean's error, whose first
 * power falls out of the sum of squares. */
static measures measure(const oracle_norm *norm, const double *x)
{
    const double n = (double)norm->n, roundings = 1 + 0.25 * sqrt(n);
    long double size = 0, rough = 0;
    measures m = {0};

    for (size_t i = 0; i < norm->n && norm->kind == ORACLE_NORM_LAYER; i++) {
        m.mean += (long double)x[i] / (long double)n;
        size += fabsl((long double)x[i]) / (long double)n;
    }
    for (size_t i = 0; i < norm->n; i++) {
        const long double d = (long double)x[i] - m.mean;

        m.var += d * d;
        rough += norm->kind == ORACLE_NORM_LAYER ? fabsl(d) * fabsl((long double)x[i]) : 0;
    }
    if (norm->kind != ORACLE_NORM_L2) {
        m.var /= (long double)n;
        rough /= (long double)n;
    }
    m.mean_error = (double)size * roundings;
    const double off = m.mean_error * ORACLE_F32_EPS;
    m.var_error = (double)m.var * (1 + roundings) + 2 * (double)rough / sqrt(n) + off * off / ORACLE_F32_EPS;
    m.scale = 1 / sqrtl(m.var + (long double)norm->eps);
    m.scale_error = 2 + m.var_error / (double)(m.var + (long double)norm->eps);
    return m;
}

/* The normalised x[i]. */
static long double hat_of(const measures *m, double x, double *error)
{
    const long double hat = ((long double)x - m->mean) * m->scale;

    *error = (double)m->scale * (m->mean_error > 0 ? fabs(x) + m->mean_error : 0) +
             fabs((double)hat) * m->scale_error;
    return hat;
}

void oracle_normalize(const oracle_norm *norm, oracle_numbers y, oracle_numbers mean, oracle_numbers var)
{
    for (size_t r = 0; r < norm->rows; r++) {
        const measures m = measure(norm, norm->x + r * norm->n);

        if (mean.value != NULL) {
            mean.value[r] = (double)m.mean;
            mean.error[r] = m.mean_error;
        }
        if (var.value != NULL) {
            var.value[r] = (double)m.var;
            var.error[r] = m.var_error;
        }
        for (size_t i = r * norm->n; i < (r + 1) * norm->n && y.value != NULL; i++) {
            double off;
            const long double hat = hat_of(&m, norm->x[i], &off);
            const long double weight =
                norm->weight ? (long double)norm->weight[i] + (long double)norm->offset : 1;
            const long double value = hat * weight + (norm->bias ? (long double)norm->bias[i] : 0);

            y.value[i] = (double)value;
            y.error[i] = (double)(fabsl(weight) * (long double)off + 2 * fabsl(hat * weight) + fabsl(value));
        }
    }
}

/* The gradient of one row, g being dy times the weights. Each of the three terms brings its own roundings, the sums those of their terms. */
static void backward_row(const oracle_norm *norm, size_t at, const double *dy, oracle_numbers dx,
                         oracle_numbers products)
{
    const measures m = measure(norm, norm->x + at);
    const double n = (double)norm->n, roundings = 2 + 0.25 * sqrt(n);
    const long double over = norm->kind == ORACLE_NORM_L2 ? 1 : (long double)n;
    long double shift = 0, share = 0;
    double shift_error = 0, share_error = 0;

    for (size_t i = at; i < at + norm->n; i++) {
        double off;
        const long double hat = hat_of(&m, norm->x[i], &off);
        const long double weight =
            norm->weight ? (long double)norm->weight[i] + (long double)norm->offset : 1;
        const long double g = (long double)dy[i] * weight;

        products.value[i] = (double)((long double)dy[i] * hat);
        products.error[i] = fabs(dy[i]) * off + fabs(products.value[i]);
        shift += norm->kind == ORACLE_NORM_LAYER ? g / over : 0;
        share += g * hat / over;
        shift_error += norm->kind == ORACLE_NORM_LAYER ? fabs((double)(g / over)) * roundings : 0;
        share_error += fabs((double)(g / over)) * off + fabs((double)(g * hat / over)) * roundings;
    }
    for (size_t i = at; i < at + norm->n; i++) {
        double off;
        const long double hat = hat_of(&m, norm->x[i], &off);
        const long double weight =
            norm->weight ? (long double)norm->weight[i] + (long double)norm->offset : 1;
        const long double g = (long double)dy[i] * weight, value = m.scale * (g - shift - hat * share);

        dx.value[i] = (double)value;
        dx.error[i] = (double)m.scale * (3 * fabs((double)g) + shift_error + 2 * fabs((double)shift) +
                                         off * fabs((double)share) + fabs((double)hat) * share_error +
                                         2 * fabs((double)(hat * share))) +
                      fabs((double)value) * (1 + m.scale_error);
    }
}

void oracle_normalize_backward(const oracle_norm *norm, const double *dy, oracle_numbers dx,
                               oracle_numbers products)
{
    for (size_t r = 0; r < norm->rows; r++)
        backward_row(norm, r * norm->n, dy, dx, products);
}

/* An argument of size a carries a * eps into the exponent, and the difference to the greatest one more; the sum adds the root of its length. */
static void log_softmax_row(size_t dim, const double *x, double scale, double *y, double *error)
{
    double largest = -INFINITY, widest = 0;
    long double sum = 0;
    bool nan = false;

    for (size_t i = 0; i < dim; i++) {
        const double v = x[i] * scale;

        nan = nan || isnan(v);
        largest = fmax(largest, v);
        if (isfinite(v))
            widest = fmax(widest, fabs(v));
    }
    for (size_t i = 0; i < dim; i++)
        sum += largest == -INFINITY ? 0 : expl((long double)x[i] * (long double)scale - (long double)largest);
    for (size_t i = 0; i < dim; i++) {
        const long double z = (long double)x[i] * (long double)scale;

        if (nan)
            y[i] = (double)NAN;
        else
            y[i] = largest == -INFINITY ? -(double)INFINITY : (double)(z - (long double)largest - logl(sum));
        error[i] = 3 + 2 * widest + fabs(y[i]) + 0.25 * sqrt((double)dim);
    }
}

void oracle_log_softmax(size_t rows, size_t dim, const double *x, double scale, double *y, double *error)
{
    for (size_t r = 0; r < rows; r++)
        log_softmax_row(dim, x + r * dim, scale, y + r * dim, error + r * dim);
}

void oracle_softmax_backward(size_t rows, size_t dim, const double *y, const double *dy, double scale,
                             bool log, double *dx, double *error)
{
    const double roundings = 2 + 0.25 * sqrt((double)dim);

    for (size_t r = 0; r < rows; r++) {
        long double sum = 0;
        double size = 0;

        for (size_t i = r * dim; i < (r + 1) * dim; i++) {
            const long double term = log ? (long double)dy[i] : (long double)y[i] * (long double)dy[i];

            sum += term;
            size += fabs((double)term);
        }
        for (size_t i = r * dim; i < (r + 1) * dim; i++) {
            const long double p = log ? expl((long double)y[i]) : (long double)y[i], g = (long double)dy[i];
            const long double value = (long double)scale * (log ? g - p * sum : p * (g - sum));

            dx[i] = (double)value;
            if (log)
                error[i] =
                    fabs(scale) * (fabs(dy[i]) + (double)p * (size * roundings + 4 * fabs((double)sum))) +
                    2 * fabs(dx[i]);
            else
                error[i] =
                    fabs(scale) * (double)fabsl(p) * (size * roundings + fabs(dy[i])) + 3 * fabs(dx[i]);
        }
    }
}
