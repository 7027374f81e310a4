/*
 * conform_reduce.c - cases of reductions: every kind, type, rank and set of axes, x and y with any strides, x without elements; NaN, infinities and
 * means far above the spread.
 */
#include "conform/conform_op.h"
#include "conform/conform_rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "oracle/oracle_number.h"
#include "oracle/oracle_ops.h"

enum { X, Y };

static bool is_float(mica_dtype dtype)
{
    return dtype == MICA_DTYPE_F32 || dtype == MICA_DTYPE_F16 || dtype == MICA_DTYPE_BF16;
}

static mica_dtype draw_type(uint32_t kind, test_random *random)
{
    static const mica_dtype reals[] = {MICA_DTYPE_F32, MICA_DTYPE_F16, MICA_DTYPE_BF16, MICA_DTYPE_F64};
    static const mica_dtype whole[] = {MICA_DTYPE_I32, MICA_DTYPE_U32, MICA_DTYPE_I64};

    if (kind == MICA_REDUCE_ANY || kind == MICA_REDUCE_ALL)
        return MICA_DTYPE_BOOL;
    if (kind == MICA_REDUCE_MEAN || kind >= MICA_REDUCE_VAR || !test_random_one_in(random, 3))
        return reals[test_random_below(random, 4)];
    return whole[test_random_below(random, 3)];
}

static bool is_reduced(const conform_case *c, uint32_t ndim, uint32_t d)
{
    const uint32_t axes = c->params.reduce.axes;

    return axes == 0 || (axes >> (ndim - 1 - d) & 1) != 0;
}

static uint32_t shape_of_y(const conform_case *c, uint32_t ndim, const uint64_t *shape, uint64_t *out)
{
    uint32_t count = 0;

    for (uint32_t d = 0; d < ndim; d++) {
        if (!is_reduced(c, ndim, d))
            out[count++] = shape[d];
        else if (c->params.reduce.keep_dims != 0)
            out[count++] = 1;
    }
    return count;
}

/* Integers and bools; floats by kind: near 1 for products, which stay finite then, apart for exponents. */
static void fill(conform_case *c, test_random *random)
{
    test_tensor *x = conform_tensor(c, X);
    const uint32_t kind = c->params.reduce.kind;
    const double shift = kind == MICA_REDUCE_VAR && test_random_one_in(random, 3) ? 1000 : 0;

    test_tensor_normal(x, random, kind == MICA_REDUCE_LOGSUMEXP && test_random_one_in(random, 2) ? 40 : 2);
    for (uint64_t i = 0; i < x->count; i++) {
        const double value = test_tensor_get(x, i);

        if (x->dtype == MICA_DTYPE_BOOL)
            test_tensor_set(x, i, test_random_one_in(random, 9) == (kind == MICA_REDUCE_ANY));
        else if (!is_float(x->dtype) && x->dtype != MICA_DTYPE_F64)
            test_tensor_set(x, i,
                            (double)test_random_below(random, 5) -
                                (x->dtype == MICA_DTYPE_U32 || kind == MICA_REDUCE_PROD ? 0 : 2));
        else if (kind == MICA_REDUCE_PROD)
            test_tensor_set(x, i, (test_random_one_in(random, 2) ? -1 : 1) * exp2(value / 40));
        else if (shift != 0)
            test_tensor_set(x, i, value + shift);
    }
}

/* Some NaN, infinities and zeros of both signs. */
static void add_odd(conform_case *c, test_random *random)
{
    static const double odd[] = {(double)NAN, (double)INFINITY, -(double)INFINITY, 0.0, -0.0};
    test_tensor *x = conform_tensor(c, X);
    const uint64_t which = test_random_below(random, 5), rare = 1 + test_random_below(random, 300);

    for (uint64_t i = 0; i < x->count; i++)
        if (test_random_one_in(random, rare))
            test_tensor_set(x, i, odd[which < 3 ? which : 3 + test_random_below(random, 2)]);
}

static bool has_none(uint32_t ndim, const uint64_t *shape)
{
    bool none = false;

    for (uint32_t d = 0; d < ndim; d++)
        none = none || shape[d] == 0;
    return none;
}

static void add_operands(conform_case *c, test_random *random, uint32_t ndim, const uint64_t *shape)
{
    const mica_dtype dtype = c->typical ? MICA_DTYPE_F32 : draw_type(c->params.reduce.kind, random);
    uint64_t outer[MICA_MAX_DIMS] = {0};
    const uint32_t count = shape_of_y(c, ndim, shape, outer);

    /* The roundings of a product of equal factors are equal too, and add up. */
    conform_add(c, random, "x", dtype, ndim, shape,
                has_none(ndim, shape)                       ? TEST_CONTIGUOUS
                : c->params.reduce.kind == MICA_REDUCE_PROD ? TEST_ANY
                                                            : TEST_REPEAT);
    fill(c, random);
    if ((is_float(dtype) || dtype == MICA_DTYPE_F64) && !c->typical && test_random_one_in(random, 3))
        add_odd(c, random);
    conform_add_output(c, random, "y", is_float(dtype) && !c->typical ? conform_float(random) : dtype, count,
                       outer, TEST_ANY, false, 0);
    c->flops = (double)conform_tensor(c, X)->count;
    c->bytes = conform_bytes(c, X) + conform_bytes(c, Y);
}

void conform_make_reduce(conform_case *c, test_random *random)
{
    mica_reduce_params *reduce = &c->params.reduce;
    uint64_t shape[MICA_MAX_DIMS] = {4096, 4096};
    uint32_t ndim = c->typical ? 2 : (uint32_t)test_random_below(random, MICA_MAX_DIMS + 1);

    if (c->typical) {
        reduce->axes = 1;
    } else {
        reduce->kind = (uint32_t)test_random_below(random, MICA_REDUCE_MAX_ABS + 1);
        reduce->axes = (uint32_t)test_random_below(random, 1u << ndim);
        reduce->keep_dims = (uint32_t)test_random_below(random, 2);
        reduce->correction = (uint32_t)test_random_below(random, 2);
        conform_shape(random, ndim, 6000, shape);
        const uint32_t none = ndim > 0 ? (uint32_t)test_random_below(random, ndim) : 0;
        if (ndim > 0 && is_reduced(c, ndim, none) && test_random_one_in(random, 8))
            shape[none] = 0;
    }
    add_operands(c, random, ndim, shape);
}

/* Few outputs of many terms, side by side or one after the other. */
void conform_make_reduce_long(conform_case *c, test_random *random)
{
    static const uint64_t widths[] = {1, 2, 7, 40, 300};
    const uint64_t width = widths[test_random_below(random, 5)];
    const uint64_t length = 150000 / (width > 7 ? width / 4 : 1) + test_random_below(random, 3000);
    const bool rows = test_random_one_in(random, 2);
    const uint64_t shape[2] = {rows ? width : length, rows ? length : width};

    if (c->typical) {
        conform_make_reduce(c, random);
        return;
    }
    c->params.reduce.kind = (uint32_t)test_random_below(random, MICA_REDUCE_MAX_ABS + 1);
    c->params.reduce.axes = rows ? 1 : 2;
    c->aligned = test_random_one_in(random, 2);
    add_operands(c, random, 2, shape);
}

mica_status conform_encode_reduce(const conform_case *c, mica_encoder *encoder)
{
    return mica_reduce(encoder, conform_buffer(c, X), &c->params.reduce, conform_buffer(c, Y));
}

static oracle_reduce kind_of(uint32_t kind)
{
    static const oracle_reduce kinds[] = {ORACLE_REDUCE_SUM, ORACLE_REDUCE_MEAN, ORACLE_REDUCE_MAX,
                                          ORACLE_REDUCE_MIN, ORACLE_REDUCE_PROD, ORACLE_REDUCE_MAX,
                                          ORACLE_REDUCE_MIN, ORACLE_REDUCE_VAR,  ORACLE_REDUCE_LOGSUMEXP,
                                          ORACLE_REDUCE_SUM, ORACLE_REDUCE_MAX};

    return kinds[kind];
}

/* Greatest and least of nothing. */
static const double *ends_of(mica_dtype dtype)
{
    static const double real[] = {-(double)INFINITY, (double)INFINITY}, i32[] = {-2147483648.0, 2147483647.0},
                        u32[] = {0, 4294967295.0}, i64[] = {-0x1p63, 0x1p63}, truth[] = {0, 1};

    switch (dtype) {
    case MICA_DTYPE_I32: return i32;
    case MICA_DTYPE_U32: return u32;
    case MICA_DTYPE_I64: return i64;
    case MICA_DTYPE_BOOL: return truth;
    default: return real;
    }
}

/* The output that element `index` of x goes to. */
static uint64_t output_of(const conform_case *c, const test_tensor *x, uint64_t index)
{
    uint64_t output = 0, scale = 1;

    for (uint32_t d = x->ndim; d-- > 0; index /= x->shape[d]) {
        if (is_reduced(c, x->ndim, d))
            continue;
        output += index % x->shape[d] * scale;
        scale *= x->shape[d];
    }
    return output;
}

/* Integer sums and products wrap; those of 32 bits to the bit, those of 64 are kept small enough not to. */
static double wrapped(mica_dtype dtype, size_t n, const double *x, bool product)
{
    uint64_t value = product ? 1 : 0;

    for (size_t i = 0; i < n; i++) {
        const uint64_t term = (uint64_t)(int64_t)x[i];

        value = product ? value * term : value + term;
    }
    return dtype == MICA_DTYPE_U32   ? (double)(uint32_t)value
           : dtype == MICA_DTYPE_I32 ? (double)(int32_t)(uint32_t)value
                                     : (double)(int64_t)value;
}

void conform_oracle_reduce(conform_case *c)
{
    const test_tensor *x = conform_tensor(c, X), *y = conform_tensor(c, Y);
    const mica_reduce_params *reduce = &c->params.reduce;
    const bool real = is_float(x->dtype) || x->dtype == MICA_DTYPE_F64;
    const uint64_t n = y->count > 0 ? x->count / y->count : 0;
    double *values = conform_values(c, X), *terms = test_alloc(x->count + 1, sizeof *terms);
    uint64_t *filled = test_alloc(y->count + 1, sizeof *filled);

    for (uint64_t i = 0; i < x->count; i++) {
        const uint64_t output = output_of(c, x, i);

        terms[output * n + filled[output]++] = reduce->kind == MICA_REDUCE_SUM_SQUARES ? values[i] * values[i]
                                               : reduce->kind == MICA_REDUCE_MAX_ABS   ? fabs(values[i])
                                                                                       : values[i];
    }
    for (uint64_t i = 0; i < y->count; i++) {
        const double *own = terms + i * n;

        c->expected[i] = reduce->kind == MICA_REDUCE_MAX_ABS && n == 0
                             ? 0
                             : oracle_reduce_one(kind_of(reduce->kind), n, own, ends_of(x->dtype),
                                                 reduce->correction, &c->error[i]);
        if (!real && (reduce->kind == MICA_REDUCE_SUM || reduce->kind == MICA_REDUCE_PROD))
            c->expected[i] = wrapped(x->dtype, n, own, reduce->kind == MICA_REDUCE_PROD);
        if (!real)
            c->error[i] = ORACLE_EXACT;
        if (x->dtype == MICA_DTYPE_F64 && c->error[i] > 0) /* roundings of f64 */
            c->error[i] *= 0x1p-29;
    }
    free(values);
    free(terms);
    free(filled);
}
