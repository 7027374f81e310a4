/*
 * ops_image.c - convolution, pooling, windows, resizing as nodes.
 */
#include "graph/ops_build.h"

/* ---- convolution ---- */

mica_tensor mica_graph_conv(mica_graph *graph, mica_tensor x, mica_tensor weight, mica_tensor bias,
                            const mica_conv_params *params)
{
    return mica__build_op(graph, MICA_OP_CONV, params, (const mica_tensor[]){x, weight, bias}, 3);
}

static uint64_t or_one(uint32_t number)
{
    return number == 0 ? 1 : number;
}

mica_tensor mica_graph_conv_input_backward(mica_graph *graph, mica_tensor dy, mica_tensor weight,
                                           const mica_conv_params *params, const uint64_t *sizes)
{
    static const char call[] = "conv_input_backward";
    mica_conv_params back = {.groups = 0};
    mica__type type, kernel;
    if (!mica__graph_begins(graph, call) || !mica__build_takes_rank(graph, call, "dy", dy, 3, 5, &type) ||
        !mica__build_takes_rank(graph, call, "weight", weight, type.ndim, type.ndim, &kernel))
        return 0;
    if (params != NULL)
        back = *params;
    if (sizes == NULL)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, call, "sizes is NULL");
    back.transposed = back.transposed == 0;
    for (uint32_t d = 0; d + 2 < type.ndim; d++) {
        const uint64_t out = type.shape[d + 2], k = kernel.shape[d + 2], stride = or_one(back.stride[d]);
        back.output_padding[d] = 0;
        if (back.transposed == 0)
            continue;
        if (!mica__size_known(out) || !mica__size_known(k) || out == 0 || k == 0)
            return mica__build_refuse(graph, call, "dy", &type,
                                      "has spatial sizes that are no numbers above 0");
        const int64_t least = (int64_t)((out - 1) * stride + or_one(back.dilation[d]) * (k - 1) + 1) -
                              (int64_t)back.low[d] - (int64_t)back.high[d];
        const int64_t more = (int64_t)sizes[d] - least;
        if (more < 0 || more >= (int64_t)stride)
            return mica__build_refuse(graph, call, "dy", &type,
                                      "is not of an input of size %llu in spatial dimension %u",
                                      (unsigned long long)sizes[d], d);
        back.output_padding[d] = (uint32_t)more;
    }
    return mica__build_end(graph, call, mica_graph_conv(graph, dy, weight, 0, &back));
}

mica_tensor mica_graph_conv_weight_backward(mica_graph *graph, mica_tensor x, mica_tensor dy,
                                            const mica_conv_params *params)
{
    return mica__build_op(graph, MICA_OP_CONV_WEIGHT_BACKWARD, params, (const mica_tensor[]){x, dy}, 2);
}

/* ---- of codes ---- */

#define CODES "conv_codes"

/* What the windows of x are, and where their results stand. */
typedef struct windows {
    mica_im2col_params params;
    uint64_t out[MICA_SPATIAL_DIMS];
    uint64_t groups, taps; /* of the kernel */
} windows;

static bool take_windows(mica_graph *graph, const mica__type *x, const mica__type *weight,
                         const mica_conv_params *params, windows *w)
{
    const uint32_t dims = x->ndim - 2;
    *w = (windows){.params = {.dims = dims}, .groups = or_one(params->groups), .taps = 1};
    if (params->transposed != 0)
        return mica__graph_fail(graph, MICA_ERR_UNSUPPORTED, CODES, "params.transposed is 1") != 0;
    if (x->dtype != MICA_DTYPE_I8 && x->dtype != MICA_DTYPE_U8)
        return mica__build_refuse(graph, CODES, "x", x, "is neither i8 nor u8") != 0;
    for (uint32_t d = 1; d < x->ndim; d++)
        if (!mica__size_known(x->shape[d]) || !mica__size_known(weight->shape[d]))
            return mica__build_refuse(graph, CODES, "x", x, "or weight has a size that is no number") != 0;
    if (!mica__size_known(weight->shape[0]) || weight->shape[0] % w->groups != 0 ||
        weight->shape[1] * w->groups != x->shape[1])
        return mica__build_refuse(graph, CODES, "weight", weight,
                                  "is not of the %llu channels of x in %llu groups",
                                  (unsigned long long)x->shape[1], (unsigned long long)w->groups) != 0;
    for (uint32_t d = 0; d < dims; d++) {
        const uint64_t stride = or_one(params->stride[d]), dilation = or_one(params->dilation[d]),
                       span = dilation * (weight->shape[d + 2] - 1) + 1,
                       padded = x->shape[d + 2] + params->low[d] + params->high[d];
        if (weight->shape[d + 2] == 0 || span > padded)
            return mica__build_refuse(graph, CODES, "weight", weight,
                                      "does not fit x in spatial dimension %u", d) != 0;
        w->params.kernel[d] = (uint32_t)weight->shape[d + 2];
        w->params.stride[d] = (uint32_t)stride;
        w->params.dilation[d] = (uint32_t)dilation;
        w->out[d] = (padded - span) / stride + 1;
        w->taps *= weight->shape[d + 2];
    }
    return true;
}

/* [n, groups, C / groups K, windows]: places outside of x are x_zero. */
static mica_tensor as_columns(mica_graph *graph, mica_tensor x, int32_t x_zero, const mica__type *type,
                              const windows *w, const mica_conv_params *params)
{
    mica_pad_params pad = {.mode = MICA_PAD_CONSTANT, .value = x_zero};
    uint64_t places = 1;
    bool pads = false;
    for (uint32_t d = 0; d + 2 < type->ndim; d++) {
        pad.low[d + 2] = params->low[d];
        pad.high[d + 2] = params->high[d];
        pads |= params->low[d] != 0 || params->high[d] != 0;
        places *= w->out[d];
    }
    const mica_tensor padded = pads ? mica_graph_pad(graph, x, &pad) : x;
    const mica_tensor columns = padded == 0 ? 0 : mica_graph_im2col(graph, padded, &w->params);
    return columns == 0
               ? 0
               : mica__build_reshape(graph, columns, 4,
                                     (const uint64_t[]){type->shape[0], w->groups,
                                                        type->shape[1] / w->groups * w->taps, places});
}

mica_tensor mica_graph_conv_codes(mica_graph *graph, mica_tensor x, int32_t x_zero, mica_tensor weight,
                                  int32_t weight_zero, mica_tensor bias, const mica_conv_params *params)
{
    const mica_conv_params none = {.groups = 0}, *p = params != NULL ? params : &none;
    mica__type type, kernel, out;
    windows w;
    if (!mica__graph_begins(graph, CODES) || !mica__build_takes_rank(graph, CODES, "x", x, 3, 5, &type) ||
        !mica__build_takes_rank(graph, CODES, "weight", weight, type.ndim, type.ndim, &kernel) ||
        !take_windows(graph, &type, &kernel, p, &w))
        return 0;
    const uint64_t each = kernel.shape[0] / w.groups, inner = kernel.shape[1] * w.taps;
    const mica_tensor rows = mica__build_reshape(graph, weight, 3, (const uint64_t[]){w.groups, each, inner});
    const mica_tensor columns = as_columns(graph, x, x_zero, &type, &w, p);
    const mica_tensor add =
        bias == 0 ? 0 : mica__build_reshape(graph, bias, 3, (const uint64_t[]){w.groups, each, 1});
    if (graph->status != MICA_OK)
        return mica__build_end(graph, CODES, 0);
    const mica_tensor y =
        mica_graph_product_codes(graph, rows, mica_graph_number(graph, MICA_DTYPE_I32, weight_zero), columns,
                                 mica_graph_number(graph, MICA_DTYPE_I32, x_zero), add);
    out = type;
    out.shape[1] = kernel.shape[0];
    memcpy(out.shape + 2, w.out, (type.ndim - 2) * sizeof w.out[0]);
    return mica__build_end(graph, CODES, mica__build_as(graph, y, &out));
}

/* ---- pooling, windows, resizing, grids ---- */

mica_tensor mica_graph_pool(mica_graph *graph, mica_tensor x, const mica_pool_windows_params *params,
                            mica_tensor *out_indices)
{
    mica_tensor out[2];
    (void)mica_graph_op(graph, MICA_OP_POOL_WINDOWS, params, &x, 1, out_indices != NULL ? 3 : 1, NULL, out,
                        2);
    if (out_indices != NULL)
        *out_indices = out[1];
    return out[0];
}

mica_tensor mica_graph_pool_backward(mica_graph *graph, mica_tensor x, mica_tensor dy,
                                     const mica_pool_windows_params *params)
{
    return mica__build_op(graph, MICA_OP_POOL_WINDOWS_BACKWARD, params, (const mica_tensor[]){x, dy}, 2);
}

mica_tensor mica_graph_global_pool(mica_graph *graph, mica_reduce_kind kind, mica_tensor x)
{
    static const int32_t axes[] = {2, 3, 4, 5, 6, 7};
    mica__type type;
    if (!mica__graph_begins(graph, "global_pool") ||
        !mica__build_takes_rank(graph, "global_pool", "x", x, 3, MICA_MAX_DIMS, &type))
        return 0;
    return mica__build_end(graph, "global_pool", mica_graph_reduce(graph, kind, x, axes, type.ndim - 2, 1));
}

mica_tensor mica_graph_im2col(mica_graph *graph, mica_tensor x, const mica_im2col_params *params)
{
    return mica__build_op(graph, MICA_OP_IM2COL, params, &x, 1);
}

mica_tensor mica_graph_col2im(mica_graph *graph, mica_tensor x, const mica_im2col_params *params)
{
    return mica__build_op(graph, MICA_OP_COL2IM, params, &x, 1);
}

mica_tensor mica_graph_resize(mica_graph *graph, mica_tensor x, const mica_resize_params *params)
{
    return mica__build_op(graph, MICA_OP_RESIZE, params, &x, 1);
}

mica_tensor mica_graph_resize_backward(mica_graph *graph, mica_tensor dy, const mica_resize_params *params)
{
    return mica__build_op(graph, MICA_OP_RESIZE_BACKWARD, params, &dy, 1);
}

mica_tensor mica_graph_grid_sample(mica_graph *graph, mica_tensor x, mica_tensor grid,
                                   const mica_grid_params *params)
{
    return mica__build_op(graph, MICA_OP_GRID_SAMPLE, params, (const mica_tensor[]){x, grid}, 2);
}

mica_tensor mica_graph_grid_sample_backward(mica_graph *graph, mica_tensor x, mica_tensor grid,
                                            mica_tensor dy, const mica_grid_params *params,
                                            mica_tensor *out_dgrid)
{
    mica_tensor out[2];
    (void)mica_graph_op(graph, MICA_OP_GRID_SAMPLE_BACKWARD, params, (const mica_tensor[]){x, grid, dy}, 3,
                        out_dgrid != NULL ? 3 : 1, NULL, out, 2);
    if (out_dgrid != NULL)
        *out_dgrid = out[1];
    return out[0];
}
