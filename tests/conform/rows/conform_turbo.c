/*
 * conform_turbo.c - cases of rotations: rows of every power of two, any strides, in place, with and without signs, with NaN and
 * infinities.
 */
#include "conform/conform_op.h"
#include "conform/conform_rows.h"

#include <math.h>
#include <stdlib.h>

#include "oracle/oracle_ops.h"

enum { X, SIGNS, Y };

static void add_signs(conform_case *c, test_random *random, uint64_t dim)
{
    test_tensor *signs;

    if (!c->typical && test_random_one_in(random, 3)) {
        conform_add_absent(c);
        return;
    }
    conform_add(c, random, "signs", conform_float(random), 1, &dim, TEST_ANY);
    signs = conform_tensor(c, SIGNS);
    for (uint64_t i = 0; i < dim; i++)
        test_tensor_set(signs, i, test_random_one_in(random, 2) ? 1 : -1);
    if (test_random_one_in(random, 4))
        test_tensor_normal(signs, random, 1);
}

static void make(conform_case *c, test_random *random, uint32_t ndim, uint64_t *shape)
{
    static const float scales[] = {0, 0, 1, -0.25f};
    const bool in_place = !c->typical && test_random_one_in(random, 3);
    const mica_dtype dtype = c->typical ? MICA_DTYPE_F32 : conform_float(random);
    test_tensor *x;

    c->params.hadamard = (mica_hadamard_params){scales[c->typical ? 0 : test_random_below(random, 4)],
                                                (uint32_t)test_random_below(random, 2)};
    conform_add(c, random, "x", dtype, ndim, shape, in_place ? TEST_ANY : TEST_REPEAT);
    x = conform_tensor(c, X);
    test_tensor_normal(x, random, test_random_one_in(random, 4) ? 1000 : 1);
    if (!c->typical && test_random_one_in(random, 5))
        test_tensor_set(x, test_random_below(random, x->count),
                        test_random_one_in(random, 2) ? (double)NAN : (double)INFINITY);
    add_signs(c, random, shape[ndim - 1]);
    conform_add_output(c, random, "y", c->typical ? MICA_DTYPE_F32 : conform_float(random), ndim, shape,
                       TEST_ANY, in_place, X);
    c->flops = (double)x->count * log2((double)shape[ndim - 1]);
    c->bytes = conform_bytes(c, X) + conform_bytes(c, Y);
}

void conform_make_hadamard(conform_case *c, test_random *random)
{
    uint64_t shape[MICA_MAX_DIMS] = {4096, 128};
    uint32_t ndim = 2;

    if (!c->typical) {
        ndim = 1 + (uint32_t)test_random_below(random, 4);
        conform_shape(random, ndim, 400, shape);
        shape[ndim - 1] = 1ull << test_random_below(random, 10);
    }
    make(c, random, ndim, shape);
}

void conform_make_hadamard_long(conform_case *c, test_random *random)
{
    uint64_t shape[2] = {1 + test_random_below(random, 3), 2048ull << test_random_below(random, 3)};

    if (c->typical)
        conform_make_hadamard(c, random);
    else
        make(c, random, 2, shape);
}

mica_status conform_encode_hadamard(const conform_case *c, mica_encoder *encoder)
{
    return mica_hadamard(encoder, conform_buffer(c, X), conform_buffer(c, SIGNS), &c->params.hadamard,
                         conform_buffer(c, Y));
}

void conform_oracle_hadamard(conform_case *c)
{
    const test_tensor *x = conform_tensor(c, X);
    const uint64_t dim = x->shape[x->ndim - 1];
    const double asked = (double)c->params.hadamard.scale, scale = asked != 0 ? asked : 1 / sqrt((double)dim);
    double *values = conform_values(c, X), *signs = conform_values(c, SIGNS);

    oracle_hadamard(x->count / dim, dim, values, signs, scale, c->params.hadamard.undo != 0, c->expected,
                    c->error);
    free(values);
    free(signs);
}
