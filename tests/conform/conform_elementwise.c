/*
 * conform_elementwise.c - cases of copy, fill, advance, add, mul, silu_mul, gelu in its forms, softcap.
 */
#include "conform/conform_rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "oracle/oracle_number.h"
#include "oracle/oracle_ops.h"

#define MOST 6000u

enum { A, B, BINARY_Y };
enum { X, UNARY_Y };

static uint32_t draw_shape(const conform_case *c, test_random *random, uint64_t *shape)
{
    uint32_t ndim = c->typical ? 2 : 1 + (uint32_t)test_random_below(random, MICA_MAX_DIMS);

    if (c->typical) {
        shape[0] = 64;
        shape[1] = 4096;
        return ndim;
    }
    conform_shape(random, ndim, test_random_one_in(random, 8) ? 6 * MOST : MOST, shape);
    return ndim;
}

static mica_dtype draw_type(const conform_case *c, test_random *random)
{
    return c->typical ? MICA_DTYPE_F32 : conform_float(random);
}

/* A shape that broadcasts to `shape`: leading dimensions may be missing, sizes may be 1. */
static uint32_t draw_broadcast(test_random *random, uint32_t ndim, const uint64_t *shape, uint64_t *own)
{
    uint32_t skip = (uint32_t)test_random_below(random, ndim);

    for (uint32_t i = 0; i < ndim - skip; i++)
        own[i] = test_random_one_in(random, 4) ? 1 : shape[skip + i];
    return ndim - skip;
}

/* Operand values spread over the output's shape. */
static double *broadcast_values(conform_case *c, uint32_t slot)
{
    const test_tensor *from = conform_tensor(c, slot), *to = conform_tensor(c, c->output);
    double *own = conform_values(c, slot), *wide = test_alloc(to->count, sizeof *wide);

    for (uint64_t i = 0; i < to->count; i++)
        wide[i] = own[conform_broadcast_place(from, to, i)];
    free(own);
    return wide;
}

/* Values that conversions trip over: too large for f16, subnormal, ties, infinite, NaN. */
static void add_specials(test_tensor *tensor, test_random *random)
{
    static const double specials[] = {70000,   -65520, 65519,         6.1e-5, 5.9e-8,
                                      2.98e-8, 1e-40,  1.00048828125, 3.4e38};

    for (uint64_t i = 0; i < tensor->count; i++) {
        if (!test_random_one_in(random, 8))
            continue;
        if (test_random_one_in(random, 8))
            test_tensor_set(tensor, i, test_random_one_in(random, 2) ? (double)NAN : -(double)INFINITY);
        else
            test_tensor_set(tensor, i,
                            specials[test_random_below(random, sizeof specials / sizeof *specials)]);
    }
}

/* copy: between floats, between equal plain types of any kind, between equal block types. */
static void make_block_copy(conform_case *c, test_random *random)
{
    static const mica_dtype types[] = {MICA_DTYPE_Q4_0, MICA_DTYPE_Q8_0, MICA_DTYPE_Q4_K, MICA_DTYPE_Q6_K};
    mica_dtype dtype = types[test_random_below(random, 4)];
    uint64_t shape[2] = {test_random_size(random, 33), 256 * (1 + test_random_below(random, 3))};

    test_tensor_blocks(&conform_add(c, random, "x", dtype, 2, shape, TEST_CONTIGUOUS)->tensor, random);
    conform_add_output(c, random, "y", dtype, 2, shape, TEST_CONTIGUOUS, false, 0);
    c->bits_of = X;
}

void conform_make_copy(conform_case *c, test_random *random)
{
    static const mica_dtype plain[] = {MICA_DTYPE_F64,  MICA_DTYPE_C64,    MICA_DTYPE_I8,  MICA_DTYPE_I16,
                                       MICA_DTYPE_I32,  MICA_DTYPE_I64,    MICA_DTYPE_U8,  MICA_DTYPE_U16,
                                       MICA_DTYPE_U32,  MICA_DTYPE_U64,    MICA_DTYPE_F32, MICA_DTYPE_F16,
                                       MICA_DTYPE_BF16, MICA_DTYPE_F8_E4M3};
    mica_dtype from = draw_type(c, random), to = c->typical ? MICA_DTYPE_F16 : conform_float(random);
    uint64_t shape[MICA_MAX_DIMS] = {0}, own[MICA_MAX_DIMS];
    uint32_t ndim = draw_shape(c, random, shape), own_ndim = ndim;
    bool bits = !c->typical && test_random_one_in(random, 3);

    if (bits && test_random_one_in(random, 4)) {
        make_block_copy(c, random);
        return;
    }
    if (bits)
        from = to = plain[test_random_below(random, sizeof plain / sizeof *plain)];
    memcpy(own, shape, sizeof own);
    if (!c->typical && test_random_one_in(random, 3))
        own_ndim = draw_broadcast(random, ndim, shape, own);
    conform_add(c, random, "x", from, own_ndim, own, TEST_REPEAT);
    if (bits) {
        test_tensor_bytes(conform_tensor(c, X), random);
        c->bits_of = X;
    } else {
        test_tensor_normal(conform_tensor(c, X), random, 4);
        add_specials(conform_tensor(c, X), random);
    }
    conform_add_output(c, random, "y", to, ndim, shape, TEST_ANY, false, 0);
    c->bytes = conform_bytes(c, X) + conform_bytes(c, UNARY_Y);
}

mica_status conform_encode_copy(const conform_case *c, mica_encoder *encoder)
{
    return mica_copy(encoder, conform_buffer(c, X), conform_buffer(c, UNARY_Y));
}

void conform_oracle_copy(conform_case *c)
{
    double *x = broadcast_values(c, X);

    for (uint64_t i = 0; i < conform_tensor(c, UNARY_Y)->count; i++) {
        c->expected[i] = x[i];
        c->error[i] = ORACLE_EXACT;
    }
    free(x);
}

void conform_make_fill(conform_case *c, test_random *random)
{
    static const mica_dtype types[] = {MICA_DTYPE_F32, MICA_DTYPE_F16, MICA_DTYPE_BF16, MICA_DTYPE_I32,
                                       MICA_DTYPE_U32};
    mica_dtype dtype = c->typical ? MICA_DTYPE_F32 : types[test_random_below(random, 5)];
    uint64_t shape[MICA_MAX_DIMS];
    uint32_t ndim = draw_shape(c, random, shape);

    c->params.number = (float)(100 * test_random_normal(random));
    if (dtype == MICA_DTYPE_I32)
        c->params.number = floor(1e7 * test_random_normal(random));
    if (dtype == MICA_DTYPE_U32)
        c->params.number = floor(test_random_uniform(random, 0, 4294967295.0));
    conform_add_output(c, random, "y", dtype, ndim, shape, TEST_ANY, false, 0);
    c->bytes = conform_bytes(c, 0);
}

mica_status conform_encode_fill(const conform_case *c, mica_encoder *encoder)
{
    return mica_fill(encoder, c->params.number, conform_buffer(c, 0));
}

void conform_oracle_fill(conform_case *c)
{
    for (uint64_t i = 0; i < conform_tensor(c, 0)->count; i++) {
        c->expected[i] = c->params.number;
        c->error[i] = ORACLE_EXACT;
    }
}

void conform_make_advance(conform_case *c, test_random *random)
{
    mica_dtype dtype = conform_index(random);
    uint64_t shape[MICA_MAX_DIMS];
    uint32_t ndim = c->typical ? 1 : draw_shape(c, random, shape);

    if (c->typical)
        shape[0] = 1;
    c->params.delta = (int32_t)test_random_below(random, 2001) - 1000;
    conform_add_output(c, random, "counters", dtype, ndim, shape, TEST_ANY, false, 0);
    for (uint64_t i = 0; i < conform_tensor(c, 0)->count; i++)
        test_tensor_set(conform_tensor(c, 0), i, (double)(1000 + test_random_below(random, 1000000)));
    c->bytes = 2 * conform_bytes(c, 0);
}

mica_status conform_encode_advance(const conform_case *c, mica_encoder *encoder)
{
    return mica_advance(encoder, c->params.delta, conform_buffer(c, 0));
}

void conform_oracle_advance(conform_case *c)
{
    double *counters = conform_values(c, 0);

    for (uint64_t i = 0; i < conform_tensor(c, 0)->count; i++) {
        c->expected[i] = counters[i] + c->params.delta;
        c->error[i] = ORACLE_EXACT;
    }
    free(counters);
}

/* One term. In place it has the output's own shape and may not repeat. */
static void add_term(conform_case *c, test_random *random, const char *name, uint32_t ndim,
                     const uint64_t *shape, bool broadcast, bool in_place)
{
    uint64_t own[MICA_MAX_DIMS];

    memcpy(own, shape, ndim * sizeof *shape);
    if (broadcast && !in_place && !c->typical)
        ndim = draw_broadcast(random, ndim, shape, own);
    conform_add(c, random, name, draw_type(c, random), ndim, own, in_place ? TEST_ANY : TEST_REPEAT);
    test_tensor_normal(conform_tensor(c, c->operand_count - 1), random, 3);
}

static void make_binary(conform_case *c, test_random *random, const char *a, const char *b, bool broadcast)
{
    uint64_t shape[MICA_MAX_DIMS];
    uint32_t ndim = draw_shape(c, random, shape);
    bool in_place = !c->typical && test_random_one_in(random, 3);
    uint32_t on = (uint32_t)test_random_below(random, 2);

    add_term(c, random, a, ndim, shape, broadcast, in_place && on == A);
    add_term(c, random, b, ndim, shape, broadcast, in_place && on == B);
    conform_add_output(c, random, "y", draw_type(c, random), ndim, shape, TEST_ANY, in_place, on);
    c->flops = (double)conform_tensor(c, BINARY_Y)->count * (broadcast ? 1 : 5);
    c->bytes = conform_bytes(c, A) + conform_bytes(c, B) + conform_bytes(c, BINARY_Y);
}

static void judge_binary(conform_case *c,
                         void (*oracle)(size_t, const double *, const double *, double *, double *))
{
    double *a = broadcast_values(c, A), *b = broadcast_values(c, B);

    oracle(conform_tensor(c, c->output)->count, a, b, c->expected, c->error);
    free(a);
    free(b);
}

void conform_make_add(conform_case *c, test_random *random)
{
    make_binary(c, random, "a", "b", true);
}

mica_status conform_encode_add(const conform_case *c, mica_encoder *encoder)
{
    return mica_add(encoder, conform_buffer(c, A), conform_buffer(c, B), conform_buffer(c, BINARY_Y));
}

void conform_oracle_add(conform_case *c)
{
    judge_binary(c, oracle_add);
}

void conform_make_mul(conform_case *c, test_random *random)
{
    make_binary(c, random, "a", "b", true);
}

mica_status conform_encode_mul(const conform_case *c, mica_encoder *encoder)
{
    return mica_mul(encoder, conform_buffer(c, A), conform_buffer(c, B), conform_buffer(c, BINARY_Y));
}

void conform_oracle_mul(conform_case *c)
{
    judge_binary(c, oracle_mul);
}

void conform_make_silu_mul(conform_case *c, test_random *random)
{
    make_binary(c, random, "gate", "up", false);
    if (!c->typical && test_random_one_in(random, 4))
        test_tensor_uniform(conform_tensor(c, A), random, -120, 120);
}

mica_status conform_encode_silu_mul(const conform_case *c, mica_encoder *encoder)
{
    return mica_silu_mul(encoder, conform_buffer(c, A), conform_buffer(c, B), conform_buffer(c, BINARY_Y));
}

void conform_oracle_silu_mul(conform_case *c)
{
    judge_binary(c, oracle_silu_mul);
}

void conform_make_gelu_mul(conform_case *c, test_random *random)
{
    conform_make_silu_mul(c, random);
}

mica_status conform_encode_gelu_mul(const conform_case *c, mica_encoder *encoder)
{
    return mica_gelu_mul(encoder, conform_buffer(c, A), conform_buffer(c, B), conform_buffer(c, BINARY_Y));
}

void conform_oracle_gelu_mul(conform_case *c)
{
    judge_binary(c, oracle_gelu_mul);
}

static void make_unary(conform_case *c, test_random *random)
{
    uint64_t shape[MICA_MAX_DIMS];
    uint32_t ndim = draw_shape(c, random, shape);
    bool in_place = !c->typical && test_random_one_in(random, 3);

    conform_add(c, random, "x", draw_type(c, random), ndim, shape, in_place ? TEST_ANY : TEST_REPEAT);
    test_tensor_normal(conform_tensor(c, X), random, test_random_one_in(random, 4) ? 30 : 2);
    conform_add_output(c, random, "y", draw_type(c, random), ndim, shape, TEST_ANY, in_place, X);
    c->flops = (double)conform_tensor(c, X)->count * 8;
    c->bytes = conform_bytes(c, X) + conform_bytes(c, UNARY_Y);
}

void conform_make_gelu(conform_case *c, test_random *random)
{
    make_unary(c, random);
}

mica_status conform_encode_gelu(const conform_case *c, mica_encoder *encoder)
{
    return mica_gelu(encoder, conform_buffer(c, X), conform_buffer(c, UNARY_Y));
}

void conform_oracle_gelu(conform_case *c)
{
    double *x = conform_values(c, X);

    oracle_gelu(conform_tensor(c, X)->count, x, c->expected, c->error);
    free(x);
}

void conform_make_gelu_erf(conform_case *c, test_random *random)
{
    make_unary(c, random);
}

mica_status conform_encode_gelu_erf(const conform_case *c, mica_encoder *encoder)
{
    return mica_gelu_erf(encoder, conform_buffer(c, X), conform_buffer(c, UNARY_Y));
}

void conform_oracle_gelu_erf(conform_case *c)
{
    double *x = conform_values(c, X);

    oracle_gelu_erf(conform_tensor(c, X)->count, x, c->expected, c->error);
    free(x);
}

void conform_make_softcap(conform_case *c, test_random *random)
{
    make_unary(c, random);
    c->params.real = (float)test_random_uniform(random, 0.5, 50);
}

mica_status conform_encode_softcap(const conform_case *c, mica_encoder *encoder)
{
    return mica_softcap(encoder, conform_buffer(c, X), c->params.real, conform_buffer(c, UNARY_Y));
}

void conform_oracle_softcap(conform_case *c)
{
    double *x = conform_values(c, X);

    oracle_softcap(conform_tensor(c, X)->count, x, c->params.real, c->expected, c->error);
    free(x);
}
