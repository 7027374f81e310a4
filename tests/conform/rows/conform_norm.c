/*
 * conform_norm.c - cases of norms over any dimensions, of their gradients, of the logarithm and the gradient of softmax, and of norms of f64.
 */
#include "conform/conform_op.h"
#include "conform/conform_rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "oracle/oracle_norm.h"
#include "oracle/oracle_ops.h"

enum { X, WEIGHT, BIAS, Y, MEAN, VAR };
enum { BACK_X, BACK_DY, BACK_WEIGHT, BACK_DX, BACK_DWEIGHT, BACK_DBIAS };

#define WIDE_EPS 0x1p-29 /* a rounding of f64 to one of f32 */

/* One case in four is f64, where the device serves it. */
static bool draw_wide(const conform_case *c, test_random *random)
{
    const bool wide = test_random_one_in(random, 4);

    return wide && !c->typical && !conform_kernels;
}

static mica_dtype draw_type(const conform_case *c, test_random *random, bool wide)
{
    const mica_dtype narrow = conform_float(random);

    return wide ? MICA_DTYPE_F64 : c->typical ? MICA_DTYPE_F32 : narrow;
}

/* Roundings of f64, where the output is. */
static void narrow_errors(const conform_case *c, const double *expected, double *error, uint64_t count)
{
    for (uint64_t i = 0; i < count && c->operand[0].tensor.dtype == MICA_DTYPE_F64; i++)
        error[i] = expected[i] == expected[i] ? error[i] * WIDE_EPS : error[i];
}

static uint32_t draw_shape(const conform_case *c, test_random *random, uint64_t *shape)
{
    static const uint64_t usual[] = {8, 32, 4, 1024};
    const uint32_t ndim = c->typical ? 4 : 1 + (uint32_t)test_random_below(random, 5);

    if (c->typical)
        memcpy(shape, usual, sizeof usual);
    else
        conform_shape(random, ndim, 6000, shape);
    return ndim;
}

static void draw_params(conform_case *c, test_random *random, uint32_t ndim)
{
    static const float eps[] = {1e-5f, 1e-6f, 1e-12f, 0.5f};

    c->params.normalize = (mica_normalize_params){
        .kind = c->typical ? MICA_NORMALIZE_LAYER : (uint32_t)test_random_below(random, 3),
        .dims = c->typical ? 2 : (uint32_t)test_random_below(random, ndim + 1),
        .eps = eps[test_random_below(random, 4)],
        .offset = test_random_one_in(random, 3) ? 1 : 0,
    };
}

static uint32_t dims_of(const conform_case *c)
{
    return c->params.normalize.dims != 0 ? c->params.normalize.dims : 1;
}

/* A shape that repeats to x's: its last dimensions, some of size 1. */
static uint32_t draw_repeating(const conform_case *c, test_random *random, uint32_t ndim,
                               const uint64_t *shape, uint64_t *out)
{
    const uint32_t count = c->typical ? 2 : 1 + (uint32_t)test_random_below(random, ndim);

    for (uint32_t d = 0; d < count; d++)
        out[d] = !c->typical && test_random_one_in(random, 3) ? 1 : shape[ndim - count + d];
    return count;
}

static void add_repeating(conform_case *c, test_random *random, const char *name, bool wide, uint32_t ndim,
                          const uint64_t *shape)
{
    uint64_t own[MICA_MAX_DIMS];

    if (!c->typical && test_random_one_in(random, 3)) {
        conform_add_absent(c);
        return;
    }
    const uint32_t count = draw_repeating(c, random, ndim, shape, own);
    conform_add(c, random, name, draw_type(c, random, wide), count, own, TEST_REPEAT);
    test_tensor_normal(conform_tensor(c, c->operand_count - 1), random, 1);
}

/* One case in four has a mean a thousand times its spread, which the variance must not feel; some have a NaN or an infinity. */
static void fill_x(conform_case *c, test_random *random)
{
    static const double odd[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
    test_tensor *x = conform_tensor(c, 0);
    const double shift = test_random_one_in(random, 4) && x->dtype == MICA_DTYPE_F32 ? 1000 : 0;

    test_tensor_normal(x, random, test_random_uniform(random, 0.1, 10));
    for (uint64_t i = 0; shift != 0 && i < x->count; i++)
        test_tensor_set(x, i, test_tensor_get(x, i) + shift);
    if (!c->typical && c->row->op == MICA_OP_NORMALIZE && test_random_one_in(random, 8))
        test_tensor_set(x, test_random_below(random, x->count), odd[test_random_below(random, 3)]);
}

/* ---- normalize ---- */

static void add_statistic(conform_case *c, test_random *random, const char *name, bool wanted, bool wide,
                          uint32_t ndim, const uint64_t *shape)
{
    if (wanted)
        conform_add_output(c, random, name, draw_type(c, random, wide), ndim, shape, TEST_ANY, false, 0);
    else
        conform_add_absent(c);
}

void conform_make_normalize(conform_case *c, test_random *random)
{
    uint64_t shape[MICA_MAX_DIMS];
    const uint32_t ndim = draw_shape(c, random, shape);
    const bool wide = draw_wide(c, random), in_place = !c->typical && test_random_one_in(random, 3);
    const bool statistics = !c->typical && !in_place && test_random_one_in(random, 2);

    draw_params(c, random, ndim);
    conform_add(c, random, "x", draw_type(c, random, wide), ndim, shape, in_place ? TEST_ANY : TEST_REPEAT);
    fill_x(c, random);
    add_repeating(c, random, "weight", wide, ndim, shape);
    add_repeating(c, random, "bias", wide, ndim, shape);
    conform_add_output(c, random, "y", draw_type(c, random, wide), ndim, shape, TEST_ANY, in_place, X);
    const uint32_t outer = ndim - dims_of(c);
    add_statistic(c, random, "mean", statistics && c->params.normalize.kind == MICA_NORMALIZE_LAYER, wide,
                  outer, shape);
    add_statistic(c, random, "var", statistics, wide, outer, shape);
    c->output = Y;
    c->flops = (double)conform_tensor(c, X)->count * 7;
    c->bytes = conform_bytes(c, X) + conform_bytes(c, Y);
}

mica_status conform_encode_normalize(const conform_case *c, mica_encoder *encoder)
{
    return mica_normalize(encoder, conform_buffer(c, X), conform_buffer(c, WEIGHT), conform_buffer(c, BIAS),
                          &c->params.normalize, conform_buffer(c, Y), conform_buffer(c, MEAN),
                          conform_buffer(c, VAR));
}

/* The operand repeated to x's shape; NULL where it is absent. */
static double *repeated(conform_case *c, uint32_t slot)
{
    const test_tensor *x = conform_tensor(c, 0);
    double *own = conform_values(c, slot), *all;

    if (own == NULL)
        return NULL;
    all = test_alloc(x->count, sizeof *all);
    for (uint64_t i = 0; i < x->count; i++)
        all[i] = own[conform_broadcast_place(conform_tensor(c, slot), x, i)];
    free(own);
    return all;
}

static oracle_norm norm_of(conform_case *c, const double *x, const double *weight, const double *bias)
{
    static const oracle_norm_kind kinds[] = {ORACLE_NORM_LAYER, ORACLE_NORM_RMS, ORACLE_NORM_L2};
    const test_tensor *tensor = conform_tensor(c, 0);
    const mica_normalize_params *params = &c->params.normalize;
    oracle_norm norm = {kinds[params->kind],   1, 1, x, weight, bias, (double)params->eps,
                        (double)params->offset};

    for (uint32_t d = 0; d < tensor->ndim; d++)
        *(d + dims_of(c) < tensor->ndim ? &norm.rows : &norm.n) *= tensor->shape[d];
    return norm;
}

void conform_oracle_normalize(conform_case *c)
{
    double *x = conform_values(c, X), *weight = repeated(c, WEIGHT), *bias = repeated(c, BIAS);
    const oracle_norm norm = norm_of(c, x, weight, bias);
    oracle_numbers y = {c->expected, c->error}, mean = {0}, var = {0};

    if (c->operand[MEAN].present)
        conform_expect_also(c, MEAN, &mean.value, &mean.error);
    if (c->operand[VAR].present)
        conform_expect_also(c, VAR, &var.value, &var.error);
    oracle_normalize(&norm, y, mean, var);
    narrow_errors(c, y.value, y.error, norm.rows * norm.n);
    if (mean.value != NULL)
        narrow_errors(c, mean.value, mean.error, norm.rows);
    if (var.value != NULL)
        narrow_errors(c, var.value, var.error, norm.rows);
    free(x);
    free(weight);
    free(bias);
}

/* ---- its gradient ---- */

void conform_make_normalize_backward(conform_case *c, test_random *random)
{
    uint64_t shape[MICA_MAX_DIMS], own[MICA_MAX_DIMS];
    const uint32_t ndim = draw_shape(c, random, shape);
    const bool wide = draw_wide(c, random);

    draw_params(c, random, ndim);
    conform_add(c, random, "x", draw_type(c, random, wide), ndim, shape, TEST_REPEAT);
    fill_x(c, random);
    conform_add(c, random, "dy", draw_type(c, random, wide), ndim, shape, TEST_REPEAT);
    test_tensor_normal(conform_tensor(c, BACK_DY), random, 1);
    add_repeating(c, random, "weight", wide, ndim, shape);
    const bool weighted = c->operand[BACK_WEIGHT].present;
    const test_tensor *weight = conform_tensor(c, BACK_WEIGHT);
    const uint32_t count = weighted ? weight->ndim : dims_of(c);
    for (uint32_t d = 0; d < count; d++)
        own[d] = weighted ? weight->shape[d] : shape[ndim - count + d];
    conform_add_output(c, random, "dx", draw_type(c, random, wide), ndim, shape, TEST_ANY, false, 0);
    add_statistic(c, random, "dweight", c->typical || !test_random_one_in(random, 4), wide, count, own);
    add_statistic(c, random, "dbias", c->typical || !test_random_one_in(random, 4), wide, count, own);
    c->output = BACK_DX;
    c->flops = (double)conform_tensor(c, X)->count * 12;
    c->bytes = 2 * conform_bytes(c, BACK_X) + conform_bytes(c, BACK_DY) + conform_bytes(c, BACK_DX);
}

mica_status conform_encode_normalize_backward(const conform_case *c, mica_encoder *encoder)
{
    return mica_normalize_backward(encoder, conform_buffer(c, BACK_X), conform_buffer(c, BACK_DY),
                                   conform_buffer(c, BACK_WEIGHT), &c->params.normalize,
                                   conform_buffer(c, BACK_DX), conform_buffer(c, BACK_DWEIGHT),
                                   conform_buffer(c, BACK_DBIAS));
}

/* Sums the terms of each element of the output: sqrt(k)/4 + 1 roundings of the absolute sum, and those of the terms. */
static void expect_sums(conform_case *c, uint32_t slot, const double *terms, const double *errors)
{
    const test_tensor *x = conform_tensor(c, 0), *output = conform_tensor(c, slot);
    double *expected, *error;

    if (!c->operand[slot].present)
        return;
    conform_expect_also(c, slot, &expected, &error);
    const double roundings = 1 + 0.25 * sqrt((double)x->count / (double)output->count);
    for (uint64_t i = 0; i < x->count; i++) {
        const uint64_t at = conform_broadcast_place(output, x, i);

        expected[at] += terms[i];
        error[at] += fabs(terms[i]) * roundings + (errors != NULL ? errors[i] : 0);
    }
    narrow_errors(c, expected, error, output->count);
}

void conform_oracle_normalize_backward(conform_case *c)
{
    double *x = conform_values(c, BACK_X), *dy = conform_values(c, BACK_DY),
           *weight = repeated(c, BACK_WEIGHT);
    const oracle_norm norm = norm_of(c, x, weight, NULL);
    const uint64_t count = norm.rows * norm.n;
    oracle_numbers dx = {c->expected, c->error},
                   products = {test_alloc(count, sizeof(double)), test_alloc(count, sizeof(double))};

    oracle_normalize_backward(&norm, dy, dx, products);
    narrow_errors(c, dx.value, dx.error, count);
    expect_sums(c, BACK_DWEIGHT, products.value, products.error);
    expect_sums(c, BACK_DBIAS, dy, NULL);
    free(products.value);
    free(products.error);
    free(x);
    free(dy);
    free(weight);
}

/* ---- softmax ---- */

void conform_make_softmax_backward(conform_case *c, test_random *random)
{
    const bool log = test_random_one_in(random, 2);

    c->params.softmax = (mica_softmax_params){(float)test_random_uniform(random, 0.05, 2), log};
    conform_make_op(c, random);
    test_tensor_uniform(conform_tensor(c, 0), random, log ? -9 : 0, log ? 0 : 1);
}

static uint64_t last(conform_case *c)
{
    const test_tensor *x = conform_tensor(c, 0);

    return x->shape[x->ndim - 1];
}

void conform_oracle_softmax_backward(conform_case *c)
{
    double *y = conform_values(c, 0), *dy = conform_values(c, 1);
    const uint64_t count = conform_tensor(c, 0)->count;

    oracle_softmax_backward(count / last(c), last(c), y, dy, (double)c->params.softmax.scale,
                            c->params.softmax.log != 0, c->expected, c->error);
    narrow_errors(c, c->expected, c->error, count);
    free(y);
    free(dy);
}

/* f64, or the logarithm of f32, f16 and bf16, or both; rows of -inf alone, rows with some, rows with a NaN. */
void conform_make_log_softmax(conform_case *c, test_random *random)
{
    c->params.softmax = (mica_softmax_params){c->typical ? 1 : (float)test_random_uniform(random, 0.05, 2),
                                              !test_random_one_in(random, 4)};
    conform_make_op_as(c, random, &(conform_draw){.most = 6000, .absent = 1u << MICA__SOFTMAX_MASK});
    test_tensor *x = conform_tensor(c, 0);
    test_tensor_normal(x, random, test_random_one_in(random, 4) ? 40 : 3);
    const uint64_t n = last(c), masked = c->typical ? 7 : test_random_below(random, 12);
    for (uint64_t i = 0; i < x->count && masked < 4; i++) {
        const uint64_t kind = (i / n + masked) % 4;

        if (kind == 1 || (kind == 2 && test_random_one_in(random, 3)))
            test_tensor_set(x, i, -(double)INFINITY);
        if (kind == 3 && i % n == n / 2)
            test_tensor_set(x, i, (double)NAN);
    }
}

void conform_oracle_log_softmax(conform_case *c)
{
    double *x = conform_values(c, 0);
    const uint64_t count = conform_tensor(c, 0)->count;

    (c->params.softmax.log != 0 ? oracle_log_softmax : oracle_softmax)(
        count / last(c), last(c), x, (double)c->params.softmax.scale, c->expected, c->error);
    narrow_errors(c, c->expected, c->error, count);
    free(x);
}

/* ---- softmax under a mask ---- */

enum { MASKED_X, MASKED_MASK, MASKED_Y };

/* Whole rows are off in one case of three. */
static void fill_mask(test_tensor *mask, test_random *random)
{
    const uint64_t width = mask->ndim > 0 ? mask->shape[mask->ndim - 1] : 1,
                   kind = test_random_below(random, 3);

    test_tensor_normal(mask, random, 3);
    for (uint64_t i = 0; i < mask->count; i++) {
        const bool off = kind == 0 ? i / width % 2 == 0 : kind == 1 && test_random_one_in(random, 3);

        if (mask->dtype == MICA_DTYPE_BOOL)
            test_tensor_set(mask, i, off ? 0 : 1);
        else if (off)
            test_tensor_set(mask, i, -(double)INFINITY);
    }
}

void conform_make_masked_softmax(conform_case *c, test_random *random)
{
    c->params.softmax = (mica_softmax_params){c->typical ? 1 : (float)test_random_uniform(random, 0.05, 2),
                                              !c->typical && test_random_one_in(random, 3)};
    conform_make_op_as(c, random, &(conform_draw){.most = 6000, .needed = 1u << MICA__SOFTMAX_MASK});
    test_tensor *x = conform_tensor(c, MASKED_X);
    test_tensor_normal(x, random, 3);
    for (uint64_t i = 0; i < x->count && !c->typical && test_random_one_in(random, 2); i += 97)
        test_tensor_set(x, i, i % 2 == 0 ? (double)NAN : -(double)INFINITY);
    fill_mask(conform_tensor(c, MASKED_MASK), random);
}

mica_status conform_encode_masked_softmax(const conform_case *c, mica_encoder *encoder)
{
    const mica_softmax_params *p = &c->params.softmax;
    mica_buffer *const operands[] = {conform_buffer(c, MASKED_X), conform_buffer(c, MASKED_MASK),
                                     conform_buffer(c, MASKED_Y)};

    if (p->log != 0)
        return mica_op_apply(encoder, MICA_OP_SOFTMAX, p, operands, 3);
    return mica_masked_softmax(encoder, operands[0], operands[1], p->scale, operands[2]);
}

/* The element of the mask that stands for element i of x. */
static uint64_t mask_place(const test_tensor *x, const test_tensor *mask, uint64_t i)
{
    uint64_t place = 0, below = 1;

    for (uint32_t d = x->ndim, own = mask->ndim; d-- > 0; i /= x->shape[d]) {
        if (own == 0)
            break;
        own--;
        place += mask->shape[own] == 1 ? 0 : i % x->shape[d] * below;
        below *= mask->shape[own];
    }
    return place;
}

void conform_oracle_masked_softmax(conform_case *c)
{
    const test_tensor *x_tensor = conform_tensor(c, MASKED_X), *mask_tensor = conform_tensor(c, MASKED_MASK);
    double *x = conform_values(c, MASKED_X), *mask = conform_values(c, MASKED_MASK);
    const uint64_t count = x_tensor->count, n = last(c);
    double *widest = test_alloc(count / n + 1, sizeof(double));

    for (uint64_t i = 0; i < count; i++) {
        const double by = mask[mask_place(x_tensor, mask_tensor, i)],
                     v = x[i] * (double)c->params.softmax.scale;

        if (mask_tensor->dtype == MICA_DTYPE_BOOL)
            x[i] = by != 0 ? v : -(double)INFINITY;
        else
            x[i] = v + by;
        if (isfinite(x[i]))
            widest[i / n] = fmax(widest[i / n], fabs(v));
    }
    (c->params.softmax.log != 0 ? oracle_log_softmax : oracle_softmax)(count / n, n, x, 1, c->expected,
                                                                       c->error);
    for (uint64_t i = 0; i < count; i++)
        c->error[i] += widest[i / n] * (c->params.softmax.log != 0 ? 2 : fabs(c->expected[i]));
    narrow_errors(c, c->expected, c->error, count);
    free(x);
    free(mask);
    free(widest);
}
