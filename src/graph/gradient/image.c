/*
 * image.c - derivatives of convolution, pooling, windows as columns, resizing and sampling. The gradient of a convolution by its input is a transposed one of the
 * same weight, and the other way round.
 */
#include <string.h>

#include "graph/gradient/rules.h"
#include "graph/ops_sample.h"

/* ---- convolution ---- */

static uint32_t or_one(uint32_t x)
{
    return x == 0 ? 1 : x;
}

/*
 * x of y = conv(x, weight) where something reaches y: y's convolution of the other direction. What a division of the places of x left over is put back,
 * or cut off.
 */
static mica_tensor conv_input(mica__back *b, const mica_conv_params *params, mica_tensor dy,
                              mica_tensor weight, mica_tensor x)
{
    mica_graph *graph = b->graph;
    mica_conv_params back = *params;
    const mica__type in = mica__type_copy(graph, x), w = mica__type_copy(graph, weight);
    const uint32_t spatial = in.ndim - 2;
    back.transposed = params->transposed ^ 1u;
    for (uint32_t d = 0; d < spatial; d++) {
        const uint64_t kernel = w.shape[2 + d], size = in.shape[2 + d], stride = or_one(params->stride[d]);
        back.output_padding[d] = 0;
        back.kernel[d] = 0;
        if (params->transposed != 0 || stride == 1)
            continue;
        if (!mica__size_known(size) || !mica__size_known(kernel)) {
            mica__back_refuses(b, "has a stride along a size that is not known yet");
            return 0;
        }
        back.output_padding[d] = (uint32_t)((size + params->low[d] + params->high[d] -
                                             or_one(params->dilation[d]) * (kernel - 1) - 1) %
                                            stride);
    }
    mica_tensor dx = mica__op1(graph, MICA_OP_CONV, &back, (const mica_tensor[]){dy, weight, 0}, 3);
    for (uint32_t d = 0; d < spatial && graph->status == MICA_OK; d++) {
        const uint64_t got = mica__type_of(graph, dx)->shape[2 + d], size = in.shape[2 + d];
        if (mica__size_known(got) && mica__size_known(size) && got > size)
            dx = mica_graph_slice(graph, dx, 2 + d, 0, size, 1);
    }
    return dx;
}

/* Of a convolution of x that gave what dy is of; of a transposed one the two are exchanged. */
static mica_tensor conv_weight(mica__back *b, const mica_conv_params *params, mica_tensor x, mica_tensor dy,
                               mica_tensor weight)
{
    mica_conv_params back = *params;
    const mica__type w = mica__type_copy(b->graph, weight);
    back.transposed = 0;
    memset(back.output_padding, 0, sizeof back.output_padding);
    for (uint32_t d = 0; d + 2 < w.ndim; d++) {
        if (!mica__size_known(w.shape[2 + d])) {
            mica__back_refuses(b, "has a kernel of a size that is not known yet");
            return 0;
        }
        back.kernel[d] = (uint32_t)w.shape[2 + d];
    }
    const mica_tensor both[] = {params->transposed != 0 ? dy : x, params->transposed != 0 ? x : dy};
    return mica__op1(b->graph, MICA_OP_CONV_WEIGHT_BACKWARD, &back, both, 2);
}

static const mica_conv_params no_conv = {.transposed = 0};

/* Inputs: x, weight, bias. */
mica__derived mica__derive_conv(mica__back *b)
{
    const mica_conv_params *given = mica__op_params(&b->node), *params = given != NULL ? given : &no_conv;
    const mica_tensor dy = b->dy[0];
    if (b->wanted[0])
        b->dx[0] = conv_input(b, params, dy, b->in[1], b->in[0]);
    if (b->wanted[1])
        b->dx[1] = conv_weight(b, params, b->in[0], dy, b->in[1]);
    if (b->wanted[2]) {
        static const int32_t axes[] = {0, 2, 3, 4};
        const uint32_t ndim = mica__type_of(b->graph, dy)->ndim;
        b->dx[2] = mica_graph_reduce(b->graph, MICA_REDUCE_SUM, dy, axes, ndim - 1, 0);
    }
    return MICA__DERIVED;
}

/* dweight [..] of x and dy, which it is linear in: with g of its shape, x gets the gradient of a convolution with g, and dy that convolution. */
mica__derived mica__derive_conv_weight(mica__back *b)
{
    const mica_conv_params *given = mica__op_params(&b->node);
    mica_conv_params params = given != NULL ? *given : no_conv;
    const mica_tensor g = b->dy[0];
    memset(params.kernel, 0, sizeof params.kernel);
    if (b->wanted[0])
        b->dx[0] = conv_input(b, &params, b->in[1], g, b->in[0]);
    if (b->wanted[1]) {
        mica_tensor dx = mica__op1(b->graph, MICA_OP_CONV, &params, (const mica_tensor[]){b->in[0], g, 0}, 3);
        const mica__type type = mica__type_copy(b->graph, b->in[1]);
        for (uint32_t d = 2; d < type.ndim && b->graph->status == MICA_OK;
             d++) { /* of a transposed one it was less */
            const uint64_t got = mica__type_of(b->graph, dx)->shape[d];
            if (mica__size_known(got) && mica__size_known(type.shape[d]) && got > type.shape[d])
                dx = mica_graph_slice(b->graph, dx, d, 0, type.shape[d], 1);
        }
        b->dx[1] = dx;
    }
    return MICA__DERIVED;
}

/* ---- pooling ---- */

mica__derived mica__derive_pool(mica__back *b)
{
    b->dx[0] = mica__op1(b->graph, MICA_OP_POOL_WINDOWS_BACKWARD, mica__op_params(&b->node),
                         (const mica_tensor[]){b->in[0], b->dy[0]}, 2);
    return MICA__DERIVED;
}

/* [.., spatial..] as [.., places]; MICA_SIZE_UNKNOWN in the result's place: its size is not known. */
static mica_tensor places_of(mica_graph *graph, mica_tensor x, uint32_t dims)
{
    mica__type type = mica__type_copy(graph, x);
    uint64_t places = 1;
    for (uint32_t d = type.ndim - dims; d < type.ndim; d++)
        places = mica__size_known(places) && mica__size_known(type.shape[d]) ? places * type.shape[d]
                                                                             : MICA_SIZE_UNKNOWN;
    type.ndim = type.ndim - dims + 1;
    type.shape[type.ndim - 1] = places;
    return mica__reshape_to(graph, x, &type);
}

/* dx of x and dy: linear in dy, which gets the pool of what reaches dx: of the element that was taken, where one was; x gets nothing. */
mica__derived mica__derive_pool_backward(mica__back *b)
{
    mica_graph *graph = b->graph;
    const mica_pool_windows_params *params = mica__op_params(&b->node);
    const uint32_t dims = params->dims == 0 ? 2 : params->dims;
    if (params->kind == MICA_POOL_PROD)
        return MICA__DERIVE_EXPANDS;
    if (b->wanted[0])
        b->dx[0] = mica__zeros_like(graph, b->in[0], mica__type_of(graph, b->in[0])->dtype);
    if (!b->wanted[1])
        return MICA__DERIVED;
    if (params->kind == MICA_POOL_MEAN || params->kind == MICA_POOL_SUM) {
        b->dx[1] = mica_graph_op(graph, MICA_OP_POOL_WINDOWS, params, &b->dy[0], 1, 1, NULL, NULL, 0);
        return MICA__DERIVED;
    }
    mica_tensor outputs[2];
    (void)mica_graph_op(graph, MICA_OP_POOL_WINDOWS, params, &b->in[0], 1, 3, NULL, outputs, 2);
    const mica__type type = mica__type_copy(graph, b->in[1]);
    const mica_tensor taken = places_of(graph, b->dy[0], dims), ids = places_of(graph, outputs[1], dims);
    const mica_tensor picked = mica__take(graph, taken, ids, mica__type_of(graph, taken)->ndim - 1);
    b->dx[1] = mica__reshape_to(graph, picked, &type);
    return MICA__DERIVED;
}

/* x [.., spatial..] as columns [images, taps, windows], with ones where a window leads out of it. `y`: what the pool gives. */
static mica_tensor columns_of_ones(mica_graph *graph, const mica_pool_windows_params *params, mica_tensor x,
                                   const mica__type *y)
{
    mica_im2col_params windows = {.dims = params->dims == 0 ? 2 : params->dims};
    mica_pad_params pad = {.mode = MICA_PAD_CONSTANT, .value = 1};
    const uint32_t dims = windows.dims, lead = y->ndim - dims;
    mica__type image = mica__type_copy(graph, x);
    const mica__type type = image;
    image.ndim = 2 + dims;
    image.shape[0] = MICA_SIZE_REST;
    image.shape[1] = 1;
    for (uint32_t d = 0; d < dims; d++) {
        const uint64_t kernel = windows.kernel[d] = params->kernel[d], size = type.shape[lead + d];
        windows.stride[d] = params->stride[d] == 0 ? params->kernel[d] : params->stride[d];
        windows.dilation[d] = or_one(params->dilation[d]);
        const uint64_t reach =
            (y->shape[lead + d] - 1) * windows.stride[d] + (kernel - 1) * windows.dilation[d] + 1;
        image.shape[2 + d] = size;
        pad.low[2 + d] = params->low[d];
        pad.high[2 + d] = reach > size + params->low[d] ? (int64_t)(reach - size - params->low[d]) : 0;
    }
    x = mica_graph_reshape(graph, x, image.ndim, image.shape);
    x = mica__op1(graph, MICA_OP_PAD, &pad, &x, 1);
    return mica__op1(graph, MICA_OP_IM2COL, &windows, &x, 1);
}

/* The product along dimension 1 as one of halves, of halves of these: each factor has a derivative where others are 0. */
static mica_tensor product_of_taps(mica_graph *graph, mica_tensor x)
{
    for (uint64_t n = 0; graph->status == MICA_OK && (n = mica__type_of(graph, x)->shape[1]) > 1;) {
        const mica_tensor left = mica_graph_slice(graph, x, 1, 0, n / 2, 1),
                          right = mica_graph_slice(graph, x, 1, n / 2, n / 2, 1);
        const mica_tensor both[] = {mica_graph_mul(graph, left, right),
                                    n % 2 != 0 ? mica_graph_slice(graph, x, 1, n - 1, 1, 1) : 0};
        x = n % 2 != 0 ? mica_graph_concat(graph, both, 2, 1) : both[0];
    }
    return x;
}

/* dx of x and dy, of products: the pool in nodes, and their gradient. */
void mica__expand_pool_backward(mica__back *b, mica_tensor *out)
{
    mica_graph *graph = b->graph;
    const mica_pool_windows_params *params = mica__op_params(&b->node);
    const mica__type type = mica__type_copy(graph, b->in[0]), to = mica__type_copy(graph, b->in[1]);
    const uint32_t dims = params->dims == 0 ? 2 : params->dims;
    for (uint32_t d = type.ndim - dims; d < type.ndim; d++)
        if (!mica__size_known(type.shape[d]) || !mica__size_known(to.shape[d])) {
            mica__back_refuses(b, "has an image of a size that is not known yet");
            return;
        }
    const mica_tensor of = mica__another(graph, b->in[0]);
    mica_tensor y = columns_of_ones(graph, params, mica__wide(graph, of), &to);
    y = product_of_taps(graph, y);
    if (graph->status != MICA_OK)
        return;
    const mica_tensor seed =
        mica_graph_reshape(graph, mica_graph_cast(graph, b->in[1], mica__type_of(graph, y)->dtype), 3,
                           (const uint64_t[]){MICA_SIZE_REST, 1, mica__type_of(graph, y)->shape[2]});
    (void)mica__gradients(graph, &y, &seed, 1, &of, 1, out);
}

/* ---- windows as columns ---- */

mica__derived mica__derive_im2col(mica__back *b)
{
    mica_im2col_params params = *(const mica_im2col_params *)mica__op_params(&b->node);
    const mica__type type = mica__type_copy(b->graph, b->in[0]);
    for (uint32_t d = 0; d + 2 < type.ndim; d++) {
        if (!mica__size_known(type.shape[2 + d])) {
            mica__back_refuses(b, "has an image of a size that is not known yet");
            return MICA__DERIVED;
        }
        params.size[d] = (uint32_t)type.shape[2 + d];
    }
    b->dx[0] = mica__op1(b->graph, MICA_OP_COL2IM, &params, b->dy, 1);
    return MICA__DERIVED;
}

mica__derived mica__derive_col2im(mica__back *b)
{
    b->dx[0] = mica__op1(b->graph, MICA_OP_IM2COL, mica__op_params(&b->node), b->dy, 1);
    return MICA__DERIVED;
}

/* ---- resizing and sampling ---- */

/* By the other of the two ops, to the sizes that the input has. */
static mica__derived resized_back(mica__back *b, mica_op op)
{
    mica_resize_params params = *(const mica_resize_params *)mica__op_params(&b->node);
    const mica__type type = mica__type_copy(b->graph, b->in[0]);
    const uint32_t dims = params.dims == 0 ? 2 : params.dims;
    for (uint32_t d = 0; d < dims && d < type.ndim; d++) {
        const uint64_t size = type.shape[type.ndim - dims + d];
        if (!mica__size_known(size)) {
            mica__back_refuses(b, "has an image of a size that is not known yet");
            return MICA__DERIVED;
        }
        params.size[d] = (uint32_t)size;
    }
    b->dx[0] = mica__op1(b->graph, op, &params, b->dy, 1);
    return MICA__DERIVED;
}

mica__derived mica__derive_resize(mica__back *b)
{
    return resized_back(b, MICA_OP_RESIZE_BACKWARD);
}

mica__derived mica__derive_resize_backward(mica__back *b)
{
    return resized_back(b, MICA_OP_RESIZE);
}

mica__derived mica__derive_grid(mica__back *b)
{
    mica_tensor out[2];
    (void)mica_graph_op(b->graph, MICA_OP_GRID_SAMPLE_BACKWARD, mica__op_params(&b->node),
                        (const mica_tensor[]){b->in[0], b->in[1], b->dy[0]}, 3,
                        (uint32_t)b->wanted[0] | (b->wanted[1] ? 2u : 0u), NULL, out, 2);
    b->dx[0] = out[0];
    b->dx[1] = out[1];
    return MICA__DERIVED;
}

/* dx and dgrid of x, grid and dy: the sampling in nodes, and their gradients. */
void mica__expand_grid_sample_backward(mica__back *b, mica_tensor *out)
{
    static const mica_grid_params none;
    mica_graph *graph = b->graph;
    const mica_grid_params *params = mica__op_params(&b->node);
    const mica_tensor of[2] = {mica__another(graph, b->in[0]), mica__another(graph, b->in[1])};
    mica_tensor wide[2] = {mica__wide(graph, of[0]), mica__wide(graph, of[1])}, got[2] = {0, 0};
    for (uint32_t i = 0; i < 4; i++)
        if (!mica__size_known(mica__type_of(graph, b->in[0])->shape[i]) ||
            !mica__size_known(mica__type_of(graph, b->in[1])->shape[i])) {
            mica__back_refuses(b, "has an image or a grid of a size that is not known yet");
            return;
        }
    const mica_tensor y = mica__sample_grid(graph, wide[0], wide[1], params == NULL ? &none : params);
    if (y == 0)
        return;
    const mica_tensor seed = mica_graph_cast(graph, b->in[2], mica__type_of(graph, y)->dtype);
    if (!mica__gradients(graph, &y, &seed, 1, of, 2, got))
        return;
    for (uint32_t i = 0; i < 2; i++)
        out[i] = b->out[i] == 0 ? 0 : got[i];
}
