/*
 * conform_copy.c - cases of copy.
 */
#include "conform/conform_rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "oracle/oracle_number.h"
#include "oracle/oracle_ops.h"

#define MOST 6000u

enum { X, Y };

static uint32_t draw_shape(const conform_case *c, test_random *random, uint64_t *shape)
{
    uint32_t ndim = c->typical ? 2 : (uint32_t)test_random_below(random, MICA_MAX_DIMS + 1);

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
    uint32_t skip = (uint32_t)test_random_below(random, ndim + 1);

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
    c->bytes = conform_bytes(c, X) + conform_bytes(c, Y);
}

mica_status conform_encode_copy(const conform_case *c, mica_encoder *encoder)
{
    return mica_copy(encoder, conform_buffer(c, X), conform_buffer(c, Y));
}

void conform_oracle_copy(conform_case *c)
{
    double *x = broadcast_values(c, X);

    for (uint64_t i = 0; i < conform_tensor(c, Y)->count; i++) {
        c->expected[i] = x[i];
        c->error[i] = ORACLE_EXACT;
    }
    free(x);
}
