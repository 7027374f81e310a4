/*
 * conform_conv.c - cases of convolution: one to three dimensions, strides, paddings of both ends, dilations, groups, depthwise, transposed with output
 * padding, any layout; and of the gradient with respect to the weight.
 */
#include "conform/conform_rows.h"

#include <math.h>
#include <stdlib.h>

#include "oracle/oracle_image.h"

enum { X, WEIGHT, BIAS, Y };
enum { WEIGHT_X, DY, DWEIGHT };

/* Sizes of a case, without those of the batch. */
typedef struct geometry {
    uint32_t dims;
    uint64_t in[3], out[3], kernel[3]; /* in: places, out: windows */
} geometry;

/* One type for all, f64 or floats of each operand's own; GPUs have no f64 here. */
static mica_dtype draw_type(const conform_case *c, test_random *random, bool wide)
{
    return c->typical ? MICA_DTYPE_F32 : wide ? MICA_DTYPE_F64 : conform_float(random);
}

/* Windows that fit: along each dimension `in` places, of which a transposed one makes more. */
static void draw_geometry(mica_conv_params *p, test_random *random, geometry *g)
{
    static const uint64_t most[] = {200, 24, 8};

    g->dims = 1 + (uint32_t)test_random_below(random, 3);
    for (uint32_t d = 0; d < g->dims; d++) {
        g->kernel[d] = 1 + test_random_below(random, 4);
        p->stride[d] = (uint32_t)test_random_below(random, 4);
        p->dilation[d] = (uint32_t)test_random_below(random, 3);
        p->low[d] = (uint32_t)test_random_below(random, 4);
        p->high[d] = (uint32_t)test_random_below(random, 4);
        const uint64_t stride = p->stride[d] + (p->stride[d] == 0),
                       reach = p->dilation[d] + (p->dilation[d] == 0);
        const uint64_t covered = reach * (g->kernel[d] - 1) + 1, padding = p->low[d] + p->high[d];
        if (p->transposed == 0) {
            const uint64_t least = covered > padding ? covered - padding : 1;
            g->in[d] = least + test_random_below(random, most[g->dims - 1]);
            g->out[d] = (g->in[d] + padding - covered) / stride + 1;
            continue;
        }
        const uint64_t larger = stride > reach ? stride : reach;
        p->output_padding[d] = (uint32_t)test_random_below(random, larger);
        g->out[d] = 1 + test_random_below(random, most[g->dims - 1] / stride + 1);
        const uint64_t whole = (g->out[d] - 1) * stride + covered + p->output_padding[d];
        if (whole <= padding) /* something must be left of y */
            p->low[d] = p->high[d] = 0;
        g->in[d] = whole - p->low[d] - p->high[d];
    }
}

/* The benchmark's: 3 x 3, 64 to 64 channels, 56 x 56. */
static void set_typical(mica_conv_params *p, geometry *g)
{
    g->dims = 2;
    for (uint32_t d = 0; d < 2; d++) {
        g->in[d] = g->out[d] = 56;
        g->kernel[d] = 3;
        p->low[d] = p->high[d] = 1;
    }
}

typedef struct widths {
    uint64_t batch, groups, channels, outputs;
} widths;

static widths draw_widths(const conform_case *c, test_random *random)
{
    static const uint64_t outputs[] = {1, 2, 3, 5, 9, 17, 40, 70, 130};
    widths w = {1, 1, 64, 64};

    if (c->typical)
        return w;
    w.batch = 1 + test_random_below(random, 3);
    w.groups = 1 + (test_random_one_in(random, 2) ? test_random_below(random, 4) : 0);
    if (test_random_one_in(random, 8)) /* several of them in one tile, and one that is not full */
        w.batch = 11;
    w.outputs = outputs[test_random_below(random, 9)];
    w.channels = 1 + test_random_below(random, 7);
    if (test_random_one_in(random, 4)) /* depthwise */
        w.channels = w.outputs = 1;
    if (test_random_one_in(random, 5))
        w.channels = 30 + test_random_below(random, 40);
    return w;
}

static void add(conform_case *c, test_random *random, const char *name, mica_dtype dtype, const geometry *g,
                uint64_t first, uint64_t second, const uint64_t *spatial)
{
    uint64_t shape[5] = {first, second};

    for (uint32_t d = 0; d < g->dims; d++)
        shape[2 + d] = spatial[d];
    /* The roundings of equal products are equal too, and add up: x may repeat, its factors do not. */
    conform_add(c, random, name, dtype, 2 + g->dims, shape,
                c->typical              ? TEST_CONTIGUOUS
                : c->operand_count == X ? TEST_REPEAT
                                        : TEST_ANY);
    test_tensor_normal(conform_tensor(c, c->operand_count - 1), random, 1);
}

static void add_output(conform_case *c, test_random *random, const char *name, mica_dtype dtype,
                       const geometry *g, uint64_t first, uint64_t second, const uint64_t *spatial)
{
    uint64_t shape[5] = {first, second};

    for (uint32_t d = 0; d < g->dims; d++)
        shape[2 + d] = spatial[d];
    conform_add_output(c, random, name, dtype, 2 + g->dims, shape, c->typical ? TEST_CONTIGUOUS : TEST_ANY,
                       false, 0);
}

/* A few places of x that are not numbers: every window that covers one is NaN, or infinite. */
static void add_odd(conform_case *c, test_random *random)
{
    test_tensor *x = conform_tensor(c, X);

    for (uint64_t i = 0; i < 1 + x->count / 500; i++)
        test_tensor_set(x, test_random_below(random, x->count),
                        test_random_one_in(random, 2) ? (double)NAN : (double)INFINITY);
}

void conform_make_conv(conform_case *c, test_random *random)
{
    mica_conv_params *p = &c->params.conv;
    geometry g = {.dims = 0};
    const bool wide = !conform_kernels && test_random_one_in(random, 6);

    *p = (mica_conv_params){.transposed = c->typical ? 0 : (uint32_t)test_random_below(random, 2)};
    if (c->typical)
        set_typical(p, &g);
    else
        draw_geometry(p, random, &g);
    const widths w = draw_widths(c, random);
    const uint64_t channels = w.groups * w.channels, outputs = w.groups * w.outputs;
    p->groups = w.groups > 1 ? (uint32_t)w.groups : (uint32_t)test_random_below(random, 2);
    const bool turned = p->transposed != 0;

    add(c, random, "x", draw_type(c, random, wide), &g, w.batch, channels, turned ? g.out : g.in);
    add(c, random, "weight", draw_type(c, random, wide), &g, turned ? channels : outputs,
        turned ? w.outputs : w.channels, g.kernel);
    if (c->typical || test_random_one_in(random, 2)) {
        conform_add_absent(c);
    } else {
        conform_add(c, random, "bias", draw_type(c, random, wide), 1, &outputs, TEST_REPEAT);
        test_tensor_normal(conform_tensor(c, BIAS), random, 1);
    }
    if (!c->typical && test_random_one_in(random, 6))
        add_odd(c, random);
    add_output(c, random, "y", draw_type(c, random, wide), &g, w.batch, outputs, turned ? g.in : g.out);
    const test_tensor *x = conform_tensor(c, X), *y = conform_tensor(c, Y);
    const double places = (double)(turned ? x->count / channels : y->count / outputs);
    c->flops = 2 * places * (double)conform_tensor(c, WEIGHT)->count;
    c->bytes = conform_bytes(c, X) + conform_bytes(c, WEIGHT) + conform_bytes(c, Y);
}

mica_status conform_encode_conv(const conform_case *c, mica_encoder *encoder)
{
    return mica_conv(encoder, conform_buffer(c, X), conform_buffer(c, WEIGHT), conform_buffer(c, BIAS),
                     &c->params.conv, conform_buffer(c, Y));
}

static size_t size_of(const test_tensor *t, uint32_t d)
{
    const uint32_t missing = 5 - t->ndim;

    return d < missing ? 1 : (size_t)t->shape[2 + d - missing];
}

static void describe(const mica_conv_params *p, const test_tensor *in, const test_tensor *weight,
                     const test_tensor *out, oracle_windows *w)
{
    const uint32_t missing = 5 - in->ndim;

    for (uint32_t d = 0; d < 3; d++) {
        w->in[d] = size_of(in, d);
        w->out[d] = size_of(out, d);
        w->kernel[d] = size_of(weight, d);
        w->stride[d] = d < missing || p->stride[d - missing] == 0 ? 1 : p->stride[d - missing];
        w->dilation[d] = d < missing || p->dilation[d - missing] == 0 ? 1 : p->dilation[d - missing];
        w->low[d] = d < missing ? 0 : p->low[d - missing];
    }
}

/* Roundings of f64 where operands are. */
static void scale_errors(conform_case *c, mica_dtype dtype, uint64_t count)
{
    for (uint64_t i = 0; dtype == MICA_DTYPE_F64 && i < count; i++)
        c->error[i] *= 0x1p-29;
}

void conform_oracle_conv(conform_case *c)
{
    const mica_conv_params *p = &c->params.conv;
    const test_tensor *x = conform_tensor(c, X), *w = conform_tensor(c, WEIGHT), *y = conform_tensor(c, Y);
    double *xs = conform_values(c, X), *ws = conform_values(c, WEIGHT), *bias = conform_values(c, BIAS);
    const bool turned = p->transposed != 0;
    oracle_conv conv = {
        .x = xs, .weight = ws, .bias = bias, .transposed = turned, .groups = p->groups + (p->groups == 0)};

    conv.batch = (size_t)x->shape[0];
    conv.channels = (size_t)x->shape[1] / conv.groups;
    conv.outputs = (size_t)y->shape[1] / conv.groups;
    describe(p, turned ? y : x, w, turned ? x : y, &conv.windows);
    oracle_conv_run(&conv, c->expected, c->error);
    scale_errors(c, x->dtype, y->count);
    free(xs);
    free(ws);
    free(bias);
}

void conform_make_conv_weight_backward(conform_case *c, test_random *random)
{
    mica_conv_params *p = &c->params.conv;
    geometry g = {.dims = 0};
    const bool wide = !conform_kernels && test_random_one_in(random, 6);

    *p = (mica_conv_params){.transposed = 0};
    if (c->typical)
        set_typical(p, &g);
    else
        draw_geometry(p, random, &g);
    const widths w = draw_widths(c, random);
    p->groups = w.groups > 1 ? (uint32_t)w.groups : (uint32_t)test_random_below(random, 2);
    add(c, random, "x", draw_type(c, random, wide), &g, w.batch, w.groups * w.channels, g.in);
    add(c, random, "dy", draw_type(c, random, wide), &g, w.batch, w.groups * w.outputs, g.out);
    for (uint32_t d = 0; d < g.dims; d++)
        p->kernel[d] = (uint32_t)g.kernel[d];
    add_output(c, random, "dweight", draw_type(c, random, wide), &g, w.groups * w.outputs, w.channels,
               g.kernel);
    const test_tensor *dy = conform_tensor(c, DY), *weight = conform_tensor(c, DWEIGHT);
    c->flops = 2 * (double)dy->count * (double)weight->count / (double)weight->shape[0];
    c->bytes = conform_bytes(c, WEIGHT_X) + conform_bytes(c, DY) + conform_bytes(c, DWEIGHT);
}

mica_status conform_encode_conv_weight_backward(const conform_case *c, mica_encoder *encoder)
{
    return mica_conv_weight_backward(encoder, conform_buffer(c, WEIGHT_X), conform_buffer(c, DY),
                                     &c->params.conv, conform_buffer(c, DWEIGHT));
}

void conform_oracle_conv_weight_backward(conform_case *c)
{
    const mica_conv_params *p = &c->params.conv;
    const test_tensor *x = conform_tensor(c, WEIGHT_X), *dy = conform_tensor(c, DY),
                      *w = conform_tensor(c, DWEIGHT);
    double *xs = conform_values(c, WEIGHT_X), *dys = conform_values(c, DY);
    oracle_conv conv = {.x = xs, .groups = p->groups + (p->groups == 0)};

    conv.batch = (size_t)x->shape[0];
    conv.channels = (size_t)x->shape[1] / conv.groups;
    conv.outputs = (size_t)dy->shape[1] / conv.groups;
    describe(p, x, w, dy, &conv.windows);
    oracle_conv_weight(&conv, dys, c->expected, c->error);
    scale_errors(c, x->dtype, w->count);
    free(xs);
    free(dys);
}
