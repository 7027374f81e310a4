/*
 * conform_norms.c - cases of the norms, softmax, rope: ops over one row.
 */
#include "conform/conform_op.h"
#include "conform/conform_rows.h"

#include <math.h>
#include <stdlib.h>

#include "oracle/oracle_ops.h"

enum { NORM_X, NORM_WEIGHT, NORM_Y };
enum { LAYER_X, LAYER_WEIGHT, LAYER_BIAS, LAYER_Y };
enum { SOFTMAX_X, SOFTMAX_Y };
enum { ROPE_X, ROPE_POSITIONS, ROPE_FACTORS, ROPE_Y };

static mica_dtype draw_type(const conform_case *c, test_random *random)
{
    return c->typical ? MICA_DTYPE_F32 : conform_float(random);
}

static uint32_t draw_rows(const conform_case *c, test_random *random, uint64_t *shape)
{
    uint32_t ndim = c->typical ? 2 : 1 + (uint32_t)test_random_below(random, 4);

    if (c->typical) {
        shape[0] = 64;
        shape[1] = 4096;
        return ndim;
    }
    conform_shape(random, ndim, 6000, shape);
    return ndim;
}

static uint64_t last(conform_case *c, uint32_t slot)
{
    const test_tensor *tensor = conform_tensor(c, slot);

    return tensor->shape[tensor->ndim - 1];
}

void conform_make_rms_norm(conform_case *c, test_random *random)
{
    static const float eps[] = {1e-5f, 1e-6f, 0, 0.5f};
    uint64_t shape[MICA_MAX_DIMS];
    uint32_t ndim = draw_rows(c, random, shape);
    bool in_place = !c->typical && test_random_one_in(random, 3);

    c->params.real = eps[test_random_below(random, 4)];
    conform_add(c, random, "x", draw_type(c, random), ndim, shape, in_place ? TEST_ROWS : TEST_ROWS_REPEAT);
    test_tensor_normal(conform_tensor(c, NORM_X), random, test_random_uniform(random, 0.1, 10));
    if (c->typical || !test_random_one_in(random, 3)) {
        conform_add(c, random, "weight", draw_type(c, random), 1, &shape[ndim - 1], TEST_CONTIGUOUS);
        test_tensor_normal(conform_tensor(c, NORM_WEIGHT), random, 1);
    } else {
        conform_add_absent(c);
    }
    conform_add_output(c, random, "y", draw_type(c, random), ndim, shape, TEST_ROWS, in_place, NORM_X);
    c->flops = (double)conform_tensor(c, NORM_X)->count * 4;
    c->bytes = conform_bytes(c, NORM_X) + conform_bytes(c, NORM_WEIGHT) + conform_bytes(c, NORM_Y);
}

mica_status conform_encode_rms_norm(const conform_case *c, mica_encoder *encoder)
{
    return mica_rms_norm(encoder, conform_buffer(c, NORM_X), conform_buffer(c, NORM_WEIGHT), c->params.real,
                         conform_buffer(c, NORM_Y));
}

void conform_oracle_rms_norm(conform_case *c)
{
    double *x = conform_values(c, NORM_X), *weight = conform_values(c, NORM_WEIGHT);
    uint64_t dim = last(c, NORM_X);

    oracle_rms_norm(conform_tensor(c, NORM_X)->count / dim, dim, x, weight, c->params.real, c->expected,
                    c->error);
    free(x);
    free(weight);
}

static void add_row(conform_case *c, test_random *random, const char *name, uint64_t dim)
{
    if (!c->typical && test_random_one_in(random, 3)) {
        conform_add_absent(c);
        return;
    }
    conform_add(c, random, name, draw_type(c, random), 1, &dim, TEST_CONTIGUOUS);
    test_tensor_normal(conform_tensor(c, c->operand_count - 1), random, 1);
}

/* One case in four has a mean a thousand times its spread, which the variance must not feel. */
void conform_make_layer_norm(conform_case *c, test_random *random)
{
    static const float eps[] = {1e-5f, 1e-6f, 1e-12f, 0.5f};
    uint64_t shape[MICA_MAX_DIMS];
    uint32_t ndim = draw_rows(c, random, shape);
    bool in_place = !c->typical && test_random_one_in(random, 3);
    double shift = test_random_one_in(random, 4) ? 1000 : 0;
    test_tensor *x;

    c->params.real = eps[test_random_below(random, 4)];
    conform_add(c, random, "x", draw_type(c, random), ndim, shape, in_place ? TEST_ROWS : TEST_ROWS_REPEAT);
    x = conform_tensor(c, LAYER_X);
    test_tensor_normal(x, random, test_random_uniform(random, 0.1, 10));
    for (uint64_t i = 0; shift != 0 && x->dtype == MICA_DTYPE_F32 && i < x->shape[ndim - 1]; i++)
        test_tensor_set(x, i, test_tensor_get(x, i) + shift);
    add_row(c, random, "weight", shape[ndim - 1]);
    add_row(c, random, "bias", shape[ndim - 1]);
    conform_add_output(c, random, "y", draw_type(c, random), ndim, shape, TEST_ROWS, in_place, LAYER_X);
    c->flops = (double)x->count * 7;
    c->bytes = conform_bytes(c, LAYER_X) + conform_bytes(c, LAYER_WEIGHT) + conform_bytes(c, LAYER_BIAS) +
               conform_bytes(c, LAYER_Y);
}

mica_status conform_encode_layer_norm(const conform_case *c, mica_encoder *encoder)
{
    return mica_layer_norm(encoder, conform_buffer(c, LAYER_X), conform_buffer(c, LAYER_WEIGHT),
                           conform_buffer(c, LAYER_BIAS), c->params.real, conform_buffer(c, LAYER_Y));
}

void conform_oracle_layer_norm(conform_case *c)
{
    double *x = conform_values(c, LAYER_X), *weight = conform_values(c, LAYER_WEIGHT),
           *bias = conform_values(c, LAYER_BIAS);
    uint64_t dim = last(c, LAYER_X);

    oracle_layer_norm(conform_tensor(c, LAYER_X)->count / dim, dim, x, weight, bias, c->params.real,
                      c->expected, c->error);
    free(x);
    free(weight);
    free(bias);
}

/* Rows of -inf alone, rows with some -inf, rows with a NaN. */
static void add_masked_rows(test_tensor *x, test_random *random)
{
    uint64_t dim = x->shape[x->ndim - 1];

    for (uint64_t i = 0; i < x->count; i++) {
        uint64_t kind = i / dim % 7;

        if (kind == 2 || (kind == 4 && test_random_one_in(random, 3)))
            test_tensor_set(x, i, -(double)INFINITY);
        if (kind == 5 && i % dim == dim / 2)
            test_tensor_set(x, i, (double)NAN);
    }
}

void conform_make_softmax(conform_case *c, test_random *random)
{
    uint64_t shape[MICA_MAX_DIMS];
    uint32_t ndim = draw_rows(c, random, shape);
    bool in_place = !c->typical && test_random_one_in(random, 3);

    const bool any = !c->typical && test_random_one_in(random, 2);

    c->params.real = c->typical ? 1 : (float)test_random_uniform(random, 0.05, 2);
    conform_add(c, random, "x", draw_type(c, random), ndim, shape,
                in_place ? (any ? TEST_ANY : TEST_ROWS)
                : any    ? TEST_REPEAT
                         : TEST_ROWS_REPEAT);
    test_tensor_normal(conform_tensor(c, SOFTMAX_X), random, test_random_one_in(random, 4) ? 40 : 3);
    if (!c->typical && test_random_one_in(random, 3))
        add_masked_rows(conform_tensor(c, SOFTMAX_X), random);
    conform_add_output(c, random, "y", draw_type(c, random), ndim, shape,
                       any && test_random_one_in(random, 2) ? TEST_ANY : TEST_ROWS, in_place, SOFTMAX_X);
    c->flops = (double)conform_tensor(c, SOFTMAX_X)->count * 8;
    c->bytes = conform_bytes(c, SOFTMAX_X) + conform_bytes(c, SOFTMAX_Y);
}

mica_status conform_encode_softmax(const conform_case *c, mica_encoder *encoder)
{
    return mica_softmax(encoder, conform_buffer(c, SOFTMAX_X), c->params.real, conform_buffer(c, SOFTMAX_Y));
}

void conform_oracle_softmax(conform_case *c)
{
    double *x = conform_values(c, SOFTMAX_X);
    uint64_t dim = last(c, SOFTMAX_X);

    oracle_softmax(conform_tensor(c, SOFTMAX_X)->count / dim, dim, x, c->params.real, c->expected, c->error);
    free(x);
}

static mica_dtype draw_rope_type(const conform_case *c, test_random *random)
{
    return conform_is_wide(c) ? MICA_DTYPE_F64 : draw_type(c, random);
}

static void draw_rope(conform_case *c, test_random *random, uint64_t dim)
{
    mica_rope_params *rope = &c->params.rope;

    rope->mode = test_random_one_in(random, 2) ? MICA_ROPE_NEOX : MICA_ROPE_STANDARD;
    rope->theta = test_random_one_in(random, 2) ? 10000 : 500000;
    if (c->typical)
        return;
    rope->rotary_dims = (uint32_t)(2 * (1 + test_random_below(random, dim / 2)));
    if (dim % 2 == 0 && test_random_one_in(random, 2))
        rope->rotary_dims = 0;
    rope->frequency_dims = test_random_one_in(random, 3) ? (uint32_t)dim : 0;
    rope->position_scale = test_random_one_in(random, 3) ? 0.25f : 0;
    rope->attention_scale = test_random_one_in(random, 3) ? 1.125f : 0;
}

/* Several axes, for one case in three; gives how many positions each token has, 0 for one axis. */
static uint64_t draw_axes(conform_case *c, test_random *random, uint64_t dim)
{
    mica_rope_params *rope = &c->params.rope;
    const uint32_t pairs = (rope->rotary_dims != 0 ? rope->rotary_dims : (uint32_t)dim) / 2;
    uint32_t sum = 0;

    if (c->typical || !test_random_one_in(random, 3))
        return 0;
    rope->axes = 1 + (uint32_t)test_random_below(random, 3);
    const bool interleaved = rope->axes == MICA_ROPE_AXES_INTERLEAVED;
    const uint32_t axes = (interleaved ? 3 : 1) + (uint32_t)test_random_below(random, interleaved ? 2 : 4);
    for (uint32_t a = 0; a < axes; a++) {
        rope->sections[a] = (uint32_t)test_random_below(random, pairs / axes + 1);
        sum += rope->sections[a];
    }
    rope->sections[0] += sum == 0;
    return axes;
}

void conform_make_rope(conform_case *c, test_random *random)
{
    uint64_t shape[3] = {test_random_size(random, 33), test_random_size(random, 8),
                         2 + test_random_below(random, 140)};
    uint32_t ndim = test_random_one_in(random, 3) ? 2 : 3;
    bool in_place = !c->typical && test_random_one_in(random, 2);
    uint64_t dim, half;

    if (c->typical) {
        shape[0] = 64;
        shape[1] = 32;
        shape[2] = 128;
        ndim = 3;
    }
    if (ndim == 2)
        shape[1] = shape[2];
    dim = shape[ndim - 1];
    draw_rope(c, random, dim);
    conform_add(c, random, "x", draw_rope_type(c, random), ndim, shape,
                in_place ? TEST_ROWS : TEST_ROWS_REPEAT);
    test_tensor_normal(conform_tensor(c, ROPE_X), random, 2);
    const uint64_t axes = draw_axes(c, random, dim), places[2] = {axes, shape[0]};
    conform_add(c, random, "positions", conform_index(random), axes != 0 ? 2 : 1, axes != 0 ? places : shape,
                axes != 0 ? TEST_ANY : TEST_CONTIGUOUS);
    test_tensor_indices(conform_tensor(c, ROPE_POSITIONS), random, 5000);
    half = (c->params.rope.rotary_dims ? c->params.rope.rotary_dims : dim) / 2;
    if (!c->typical && test_random_one_in(random, 3)) {
        conform_add(c, random, "factors", MICA_DTYPE_F32, 1, &half, TEST_CONTIGUOUS);
        test_tensor_uniform(conform_tensor(c, ROPE_FACTORS), random, 1, 8);
    } else {
        conform_add_absent(c);
    }
    conform_add_output(c, random, "y", draw_rope_type(c, random), ndim, shape, TEST_ROWS, in_place, ROPE_X);
    c->flops = (double)conform_tensor(c, ROPE_X)->count * 3;
    c->bytes = conform_bytes(c, ROPE_X) + conform_bytes(c, ROPE_Y);
}

mica_status conform_encode_rope(const conform_case *c, mica_encoder *encoder)
{
    return mica_rope(encoder, conform_buffer(c, ROPE_X), conform_buffer(c, ROPE_POSITIONS),
                     conform_buffer(c, ROPE_FACTORS), &c->params.rope, conform_buffer(c, ROPE_Y));
}

void conform_oracle_rope(conform_case *c)
{
    const test_tensor *x = conform_tensor(c, ROPE_X);
    const mica_rope_params *params = &c->params.rope;
    double *values = conform_values(c, ROPE_X), *positions = conform_values(c, ROPE_POSITIONS);
    double *factors = conform_values(c, ROPE_FACTORS);
    oracle_rope rope = {
        .tokens = x->shape[0], .heads = x->ndim == 3 ? x->shape[1] : 1, .dim = last(c, ROPE_X)};

    rope.x = values;
    rope.positions = positions;
    rope.factors = factors;
    rope.neox = params->mode == MICA_ROPE_NEOX;
    rope.rotary_dims = params->rotary_dims ? params->rotary_dims : rope.dim;
    rope.frequency_dims = params->frequency_dims ? params->frequency_dims : rope.rotary_dims;
    rope.sharing = (oracle_rope_axes)params->axes;
    rope.axes = params->axes != 0 ? conform_tensor(c, ROPE_POSITIONS)->shape[0] : 1;
    for (uint32_t a = 0, greatest = 0; a < 4; a++) {
        rope.sections[a] = params->sections[a];
        greatest = params->sections[a] > greatest ? params->sections[a] : greatest;
        if (a == 3 && params->axes == MICA_ROPE_AXES_SEPARATE && params->frequency_dims == 0)
            rope.frequency_dims = 2 * (size_t)greatest;
    }
    rope.theta = params->theta;
    rope.position_scale = params->position_scale == 0 ? 1 : params->position_scale;
    rope.attention_scale = params->attention_scale == 0 ? 1 : params->attention_scale;
    oracle_rope_run(&rope, c->expected, c->error);
    conform_narrow(c);
    free(values);
    free(positions);
    free(factors);
}
