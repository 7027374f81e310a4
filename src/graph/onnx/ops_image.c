/*
 * ops_image.c - convolutions, pools, windows as columns.
 */
#include <string.h>

#include "graph/onnx/importer.h"
#include "graph/onnx/operators.h"
#include "graph/onnx/windows.h"

enum { NOTSET, SAME_UPPER, SAME_LOWER, VALID };
#define MOST_SIZE (1 << 28)

/* An attribute of one number for each spatial dimension. */
static mica_status read_sizes(mica__ox_op *o, const char *name, uint32_t dims, uint32_t low, uint32_t *out,
                              bool *out_given)
{
    uint32_t count = 0;
    const int64_t *sizes = mica__ox_ints(o, name, &count);
    if (sizes != NULL && count != dims)
        return mica__ox_fail(o, "attribute \"%s\" has %u numbers for %u dimensions", name, count, dims);
    for (uint32_t d = 0; d < count; d++) {
        if (sizes[d] < (int64_t)low || sizes[d] > MOST_SIZE)
            return mica__ox_fail(o, "attribute \"%s\" has %lld", name, (long long)sizes[d]);
        out[d] = (uint32_t)sizes[d];
    }
    *out_given = sizes != NULL;
    return MICA_OK;
}

static mica_status read_pads(mica__ox_op *o, mica__ox_windows *w)
{
    static const char *const words[] = {"NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID", NULL};
    uint32_t count = 0;
    const int64_t *pads = mica__ox_ints(o, "pads", &count);
    w->automatic = mica__ox_word(o, "auto_pad", NOTSET, words);
    if (w->automatic == UINT32_MAX)
        return mica__ox_fail(o, "attribute \"auto_pad\" is not known");
    if (pads != NULL && count != 2 * w->dims)
        return mica__ox_fail(o, "attribute \"pads\" has %u numbers", count);
    for (uint32_t d = 0; d < w->dims && pads != NULL && w->automatic == NOTSET; d++) {
        if (pads[d] < 0 || pads[d + w->dims] < 0 || pads[d] > MOST_SIZE || pads[d + w->dims] > MOST_SIZE)
            return mica__ox_fail(o, "pads below 0");
        w->low[d] = (uint32_t)pads[d];
        w->high[d] = (uint32_t)pads[d + w->dims];
    }
    return MICA_OK;
}

/* Pads that make ceil(in / stride) windows. */
static mica_status same_pads(const mica__ox_op *o, mica__ox_windows *w)
{
    for (uint32_t d = 0; d < w->dims && (w->automatic == SAME_UPPER || w->automatic == SAME_LOWER); d++) {
        if (!mica__size_known(w->in[d]))
            return mica__ox_fail(o, "auto_pad of a size that is not known while importing");
        const uint64_t places = (w->in[d] + w->stride[d] - 1) / w->stride[d];
        const uint64_t reach =
            (places - 1) * w->stride[d] + (uint64_t)(w->kernel[d] - 1) * w->dilation[d] + 1;
        const uint64_t more = reach > w->in[d] ? reach - w->in[d] : 0;
        w->low[d] = (uint32_t)(w->automatic == SAME_UPPER ? more / 2 : more - more / 2);
        w->high[d] = (uint32_t)(more - w->low[d]);
    }
    return MICA_OK;
}

mica_status mica__ox_read_windows(mica__ox_op *o, const mica__type *x, const uint64_t *kernel,
                                  mica__ox_windows *out)
{
    bool given = false, unused = false;
    *out = (mica__ox_windows){.dims = x->ndim - 2};
    if (x->ndim < 3 || x->ndim > 2 + MICA_SPATIAL_DIMS)
        return mica__ox_fail(o, "of %u dimensions", x->ndim);
    for (uint32_t d = 0; d < out->dims; d++) {
        out->in[d] = x->shape[2 + d];
        out->stride[d] = out->dilation[d] = 1;
    }
    MICA__TRY(read_sizes(o, "kernel_shape", out->dims, 1, out->kernel, &given));
    MICA__TRY(read_sizes(o, "strides", out->dims, 1, out->stride, &unused));
    MICA__TRY(read_sizes(o, "dilations", out->dims, 1, out->dilation, &unused));
    for (uint32_t d = 0; d < out->dims && kernel != NULL; d++) {
        if (!mica__size_known(kernel[d]) || kernel[d] > MOST_SIZE || (given && kernel[d] != out->kernel[d]))
            return mica__ox_fail(o, "kernel_shape is not that of the weight");
        out->kernel[d] = (uint32_t)kernel[d];
    }
    if (kernel == NULL && !given)
        return mica__ox_fail(o, "has no kernel_shape");
    MICA__TRY(read_pads(o, out));
    return same_pads(o, out);
}

/* ---- convolutions --------------------------------------------------------------------------------------- */

static mica_conv_params conv_params(const mica__ox_windows *w, int64_t groups)
{
    mica_conv_params params = {.groups = (uint32_t)groups};
    memcpy(params.stride, w->stride, sizeof params.stride);
    memcpy(params.dilation, w->dilation, sizeof params.dilation);
    memcpy(params.low, w->low, sizeof params.low);
    memcpy(params.high, w->high, sizeof params.high);
    return params;
}

mica_status mica__ox_conv(mica__ox_op *o)
{
    const mica__type x = mica__ox_in_type(o, 0), weight = mica__ox_in_type(o, 1);
    const int64_t groups = mica__ox_int(o, "group", 1);
    mica__ox_windows w;
    if (weight.ndim != x.ndim || groups < 1 || groups > MOST_SIZE)
        return mica__ox_fail(o, "of such shapes or groups");
    MICA__TRY(mica__ox_read_windows(o, &x, weight.shape + 2, &w));
    const mica_conv_params params = conv_params(&w, groups);
    mica__ox_out(o, 0,
                 mica__ox_op1(o, MICA_OP_CONV, &params,
                              (const mica_tensor[]){mica__ox_in(o, 0), mica__ox_in(o, 1), mica__ox_in(o, 2)},
                              3));
    return MICA_OK;
}

/* What is cut off, or is more at the end, so that the output has the wanted size. */
static mica_status fit_transposed(const mica__ox_op *o, const mica__ox_windows *w, const int64_t *wanted,
                                  mica_conv_params *params)
{
    for (uint32_t d = 0; d < w->dims; d++) {
        const bool same = w->automatic == SAME_UPPER || w->automatic == SAME_LOWER;
        if (!same && wanted == NULL)
            continue;
        if (!mica__size_known(w->in[d]))
            return mica__ox_fail(o, "of a size that is not known while importing");
        const int64_t full = ((int64_t)w->in[d] - 1) * w->stride[d] + params->output_padding[d] +
                             (int64_t)(w->kernel[d] - 1) * w->dilation[d] + 1;
        const int64_t cut = full - (wanted != NULL ? wanted[d] : (int64_t)w->in[d] * w->stride[d]);
        const int64_t low = cut <= 0 ? 0 : w->automatic == SAME_UPPER ? cut / 2 : cut - cut / 2;
        params->low[d] = (uint32_t)low;
        params->high[d] = (uint32_t)(cut <= 0 ? 0 : cut - low);
        params->output_padding[d] += cut < 0 ? (uint32_t)-cut : 0;
    }
    return MICA_OK;
}

mica_status mica__ox_conv_transpose(mica__ox_op *o)
{
    const mica__type x = mica__ox_in_type(o, 0), weight = mica__ox_in_type(o, 1);
    const int64_t groups = mica__ox_int(o, "group", 1);
    uint32_t count = 0;
    const int64_t *wanted = mica__ox_ints(o, "output_shape", &count);
    bool unused = false;
    mica__ox_windows w;
    if (weight.ndim != x.ndim || groups < 1 || groups > MOST_SIZE)
        return mica__ox_fail(o, "of such shapes or groups");
    MICA__TRY(mica__ox_read_windows(o, &x, weight.shape + 2, &w));
    if (w.automatic == SAME_UPPER || w.automatic == SAME_LOWER)
        memset(w.low, 0, sizeof w.low);
    mica_conv_params params = conv_params(&w, groups);
    params.transposed = 1;
    MICA__TRY(read_sizes(o, "output_padding", w.dims, 0, params.output_padding, &unused));
    if (wanted != NULL && count != w.dims && count != x.ndim)
        return mica__ox_fail(o, "output_shape has %u numbers", count);
    MICA__TRY(fit_transposed(o, &w, wanted == NULL ? NULL : wanted + (count - w.dims), &params));
    mica__ox_out(o, 0,
                 mica__ox_op1(o, MICA_OP_CONV, &params,
                              (const mica_tensor[]){mica__ox_in(o, 0), mica__ox_in(o, 1), mica__ox_in(o, 2)},
                              3));
    return MICA_OK;
}

/* Codes less their zero point, as i32. */
static mica_tensor centred(mica__ox_op *o, uint32_t i, uint32_t zero, uint32_t axis)
{
    const mica_tensor x = mica__ox_cast(o, mica__ox_in(o, i), MICA_DTYPE_I32);
    mica_tensor z = mica__ox_cast(o, mica__ox_in(o, zero), MICA_DTYPE_I32);
    if (z == 0)
        return x;
    const mica__type type = mica__ox_type(o, z);
    if (type.ndim == 1 && type.shape[0] != 1)
        z = mica__ox_along(o, z, mica__ox_type(o, x).ndim, axis);
    return mica__ox_scalar(o, MICA_SCALAR_SUB, x, z);
}

/* A convolution of i32: windows as columns, and a product for each group. It is exact, which one in f32 is not. */
static mica_status whole_conv(mica__ox_op *o, mica_tensor x, mica_tensor weight, mica_tensor *out)
{
    const mica__type xt = mica__ox_type(o, x), wt = mica__ox_type(o, weight);
    const uint64_t groups = (uint64_t)mica__ox_int(o, "group", 1);
    mica__ox_windows w;
    mica_im2col_params params = {.dims = xt.ndim - 2};
    uint64_t kernel = 1, shape[MICA_MAX_DIMS], places = 1;
    MICA__TRY(mica__ox_need_shape(o, x, "input 0"));
    if (wt.ndim != xt.ndim || groups == 0 || groups > xt.shape[1] || wt.shape[0] % groups != 0)
        return mica__ox_fail(o, "of such shapes or groups");
    MICA__TRY(mica__ox_read_windows(o, &xt, wt.shape + 2, &w));
    memcpy(params.kernel, w.kernel, sizeof params.kernel);
    memcpy(params.stride, w.stride, sizeof params.stride);
    memcpy(params.dilation, w.dilation, sizeof params.dilation);
    memcpy(params.low, w.low, sizeof params.low);
    memcpy(params.high, w.high, sizeof params.high);
    shape[0] = xt.shape[0];
    shape[1] = wt.shape[0];
    for (uint32_t d = 0; d < w.dims; d++) {
        const uint64_t reach = (uint64_t)w.dilation[d] * (w.kernel[d] - 1) + 1,
                       size = w.in[d] + w.low[d] + w.high[d];
        if (size < reach)
            return mica__ox_fail(o, "the kernel does not fit");
        shape[2 + d] = (size - reach) / w.stride[d] + 1;
        places *= shape[2 + d];
        kernel *= w.kernel[d];
    }
    const uint64_t inner = wt.shape[1] * kernel, outer = wt.shape[0] / groups;
    mica_tensor columns = mica__ox_op1(o, MICA_OP_IM2COL, &params, &x, 1);
    columns = mica__ox_reshape(o, columns, 4, (const uint64_t[]){shape[0], groups, inner, places});
    const mica_tensor matrix = mica__ox_reshape(o, weight, 4, (const uint64_t[]){1, groups, outer, inner});
    *out = columns == 0 || matrix == 0
               ? 0
               : mica__ox_reshape(o, mica_graph_matmul(o->graph, matrix, columns), xt.ndim, shape);
    return MICA_OK;
}

mica_status mica__ox_conv_integer(mica__ox_op *o)
{
    mica_tensor y = 0;
    MICA__TRY(whole_conv(o, centred(o, 0, 2, 0), centred(o, 1, 3, 0), &y));
    mica__ox_out(o, 0, y);
    return MICA_OK;
}

/* x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias */
mica_status mica__ox_qlinear_conv(mica__ox_op *o)
{
    mica_tensor y = 0, scale = mica__ox_scalar(o, MICA_SCALAR_MUL, mica__ox_in(o, 1), mica__ox_in(o, 4));
    MICA__TRY(whole_conv(o, centred(o, 0, 2, 0), centred(o, 3, 5, 0), &y));
    const uint32_t ndim = mica__ox_type(o, y).ndim;
    if (mica__ox_has(o, 8))
        y = mica__ox_scalar(o, MICA_SCALAR_ADD, y, mica__ox_along(o, mica__ox_in(o, 8), ndim, 1));
    scale = mica__ox_scalar(o, MICA_SCALAR_DIV, scale, mica__ox_in(o, 6));
    const mica__type type = mica__ox_type(o, scale);
    if (type.ndim == 1 && type.shape[0] != 1)
        scale = mica__ox_along(o, scale, ndim, 1);
    mica__ox_out(o, 0, mica__ox_requantised(o, y, scale, mica__ox_in(o, 7)));
    return MICA_OK;
}

/* ---- pools ---------------------------------------------------------------------------------------------- */

static mica_pool_windows_params pool_params(const mica__ox_windows *w, uint32_t kind)
{
    mica_pool_windows_params params = {.kind = kind, .dims = w->dims};
    memcpy(params.kernel, w->kernel, sizeof params.kernel);
    memcpy(params.stride, w->stride, sizeof params.stride);
    memcpy(params.dilation, w->dilation, sizeof params.dilation);
    memcpy(params.low, w->low, sizeof params.low);
    memcpy(params.high, w->high, sizeof params.high);
    return params;
}

/* Places in an image as places in the whole tensor; with `by_columns` an image is counted column by column. */
static mica_status whole_places(const mica__ox_op *o, mica_tensor ids, const mica__type *x, bool by_columns,
                                mica_tensor *out)
{
    uint64_t image = 1;
    const uint32_t ndim = x->ndim;
    const mica__type type = mica__ox_type(o, ids);
    ids = mica__ox_cast(o, ids, MICA_DTYPE_I64);
    for (uint32_t d = 2; d < ndim; d++) {
        if (!mica__size_known(x->shape[d]))
            return mica__ox_fail(o, "indices of sizes that are not known while importing");
        image *= x->shape[d];
    }
    if (by_columns && ndim != 4)
        return mica__ox_fail(o, "storage_order of %u dimensions", ndim);
    if (by_columns) {
        const mica_tensor width = mica__ox_number(o, ids, (double)x->shape[3]);
        const mica_tensor row = mica__ox_scalar(o, MICA_SCALAR_DIV, ids, width);
        mica_tensor column = mica__ox_scalar(o, MICA_SCALAR_REM, ids, width);
        column = mica__ox_scalar(o, MICA_SCALAR_MUL, column, mica__ox_number(o, ids, (double)x->shape[2]));
        ids = mica__ox_scalar(o, MICA_SCALAR_ADD, column, row);
    }
    mica_tensor at = mica__ox_iota(o, ndim, type.shape, 0, MICA_DTYPE_I64);
    at = mica__ox_scalar(o, MICA_SCALAR_MUL, at, mica__ox_number(o, at, (double)x->shape[1]));
    at = mica__ox_scalar(o, MICA_SCALAR_ADD, at, mica__ox_iota(o, ndim, type.shape, 1, MICA_DTYPE_I64));
    at = mica__ox_scalar(o, MICA_SCALAR_MUL, at, mica__ox_number(o, at, (double)image));
    *out = mica__ox_scalar(o, MICA_SCALAR_ADD, ids, at);
    return MICA_OK;
}

mica_status mica__ox_max_pool(mica__ox_op *o)
{
    mica_tensor x = mica__ox_in(o, 0), y[2] = {0};
    const mica__type type = mica__ox_type(o, x);
    const bool whole = mica_register_of(type.dtype) != MICA_REGISTER_F32 && type.dtype != MICA_DTYPE_F64;
    mica__ox_windows w;
    MICA__TRY(mica__ox_read_windows(o, &type, NULL, &w));
    mica_pool_windows_params params = pool_params(&w, MICA_POOL_MAX);
    params.ceil_mode = mica__ox_int(o, "ceil_mode", 0) != 0;
    const bool by_columns = mica__ox_int(o, "storage_order", 0) != 0;
    if (whole) /* of 8 bits: exact in f32 */
        x = mica__ox_cast(o, x, MICA_DTYPE_F32);
    (void)mica_graph_op(o->graph, MICA_OP_POOL_WINDOWS, &params, &x, 1, mica__ox_wants(o, 1) ? 3 : 1, NULL, y,
                        2);
    MICA__TRY(mica_graph_status(o->graph));
    mica__ox_out(o, 0, mica__ox_cast(o, y[0], type.dtype));
    if (mica__ox_wants(o, 1)) {
        mica_tensor ids = 0;
        MICA__TRY(whole_places(o, y[1], &type, by_columns, &ids));
        mica__ox_out(o, 1, ids);
    }
    return MICA_OK;
}

mica_status mica__ox_average_pool(mica__ox_op *o)
{
    const mica_tensor x = mica__ox_in(o, 0);
    const mica__type type = mica__ox_type(o, x);
    mica__ox_windows w;
    MICA__TRY(mica__ox_read_windows(o, &type, NULL, &w));
    mica_pool_windows_params params = pool_params(&w, MICA_POOL_MEAN);
    params.ceil_mode = mica__ox_int(o, "ceil_mode", 0) != 0;
    params.count_padding = mica__ox_int(o, "count_include_pad", 0) != 0;
    mica__ox_out(o, 0, mica__ox_op1(o, MICA_OP_POOL_WINDOWS, &params, &x, 1));
    return MICA_OK;
}

/* |x|^p, and its root. */
static mica_tensor powered(const mica__ox_op *o, mica_tensor x, double p)
{
    return p == 1.0 ? x : mica__ox_scalar(o, MICA_SCALAR_POW, x, mica__ox_number(o, x, p));
}

mica_status mica__ox_lp_pool(mica__ox_op *o)
{
    const mica__type type = mica__ox_in_type(o, 0);
    const int64_t p = mica__ox_int(o, "p", 2);
    mica__ox_windows w;
    MICA__TRY(mica__ox_read_windows(o, &type, NULL, &w));
    mica_pool_windows_params params = pool_params(&w, MICA_POOL_SUM);
    params.ceil_mode = mica__ox_int(o, "ceil_mode", 0) != 0;
    if (p < 1 || p > 1000)
        return mica__ox_fail(o, "p is %lld", (long long)p);
    const mica_tensor x = powered(o, mica__ox_scalar(o, MICA_SCALAR_ABS, mica__ox_in(o, 0), 0), (double)p);
    mica__ox_out(o, 0, powered(o, mica__ox_op1(o, MICA_OP_POOL_WINDOWS, &params, &x, 1), 1 / (double)p));
    return MICA_OK;
}

/* GlobalAveragePool, GlobalMaxPool. */
mica_status mica__ox_global_pool(mica__ox_op *o)
{
    const mica_tensor x = mica__ox_in(o, 0);
    const uint32_t ndim = mica__ox_type(o, x).ndim;
    if (ndim < 3)
        return mica__ox_fail(o, "of %u dimensions", ndim);
    mica__ox_out(o, 0,
                 mica__ox_reduce(o, (mica_reduce_kind)o->row->argument, x, ((1u << ndim) - 1) & ~3u, true));
    return MICA_OK;
}

mica_status mica__ox_global_lp_pool(mica__ox_op *o)
{
    const double p = (double)mica__ox_int(o, "p", 2);
    const mica_tensor x = powered(o, mica__ox_scalar(o, MICA_SCALAR_ABS, mica__ox_in(o, 0), 0), p);
    const uint32_t ndim = mica__ox_type(o, x).ndim;
    mica__ox_out(o, 0,
                 powered(o, mica__ox_reduce(o, MICA_REDUCE_SUM, x, ((1u << ndim) - 1) & ~3u, true), 1 / p));
    return MICA_OK;
}

/* Elements go where a pool found them, in a tensor of the size that the windows say; then there may be more at its ends. */
mica_status mica__ox_max_unpool(mica__ox_op *o)
{
    const mica_tensor x = mica__ox_in(o, 0);
    const mica__type type = mica__ox_type(o, x);
    const mica_scatter_params scatter = {.axis = 0, .mode = MICA_SCATTER_SET};
    mica_pad_params more = {.mode = MICA_PAD_CONSTANT};
    uint64_t shape[MICA_MAX_DIMS], count = 1;
    const uint64_t flat[] = {MICA_SIZE_REST};
    int64_t *wanted = NULL;
    uint32_t wanted_count = 0;
    mica__ox_windows w;
    MICA__TRY(mica__ox_need_shape(o, x, "input 0"));
    MICA__TRY(mica__ox_read_windows(o, &type, NULL, &w));
    if (mica__ox_has(o, 2))
        MICA__TRY(mica__ox_need_ints(o, 2, &wanted, &wanted_count));
    if (wanted != NULL && wanted_count != type.ndim)
        return mica__ox_fail(o, "output_shape has %u sizes", wanted_count);
    memcpy(shape, type.shape, sizeof shape);
    for (uint32_t d = 0; d < w.dims; d++)
        shape[2 + d] = (type.shape[2 + d] - 1) * w.stride[d] + w.kernel[d] - w.low[d] - w.high[d];
    for (uint32_t d = 0; d < type.ndim; d++) {
        count *= shape[d];
        more.high[d] = wanted == NULL ? 0 : wanted[d] - (int64_t)shape[d];
    }
    if (count > INT32_MAX)
        return mica__ox_fail(o, "of more than 2^31 elements");
    const mica_tensor zero = mica_graph_expand(o->graph, mica__ox_number(o, x, 0), 1, &count);
    const mica_tensor ids = mica__ox_reshape(o, mica__ox_cast(o, mica__ox_in(o, 1), MICA_DTYPE_I32), 1, flat);
    const mica_tensor inputs[] = {mica__ox_reshape(o, x, 1, flat), ids, zero};
    mica_tensor y =
        mica__ox_reshape(o, mica__ox_op1(o, MICA_OP_SCATTER, &scatter, inputs, 3), type.ndim, shape);
    if (wanted != NULL)
        y = mica__ox_op1(o, MICA_OP_PAD, &more, &y, 1);
    mica__ox_out(o, 0, y);
    return MICA_OK;
}

mica_status mica__ox_col2im(mica__ox_op *o)
{
    const mica_tensor x = mica__ox_in(o, 0);
    const mica__type type = mica__ox_type(o, x);
    int64_t *image = NULL, *block = NULL;
    uint32_t dims = 0, block_count = 0, pads_count = 0;
    const int64_t *pads = mica__ox_ints(o, "pads", &pads_count);
    mica_im2col_params params = {.dims = 0};
    bool unused = false;
    MICA__TRY(mica__ox_need_ints(o, 1, &image, &dims));
    MICA__TRY(mica__ox_need_ints(o, 2, &block, &block_count));
    if (dims == 0 || dims > MICA_SPATIAL_DIMS || block_count != dims || type.ndim != 3 ||
        (pads != NULL && pads_count != 2 * dims))
        return mica__ox_fail(o, "of such shapes");
    params.dims = dims;
    MICA__TRY(read_sizes(o, "strides", dims, 1, params.stride, &unused));
    MICA__TRY(read_sizes(o, "dilations", dims, 1, params.dilation, &unused));
    for (uint32_t d = 0; d < dims; d++) {
        if (image[d] < 1 || block[d] < 1 || image[d] > MOST_SIZE || block[d] > MOST_SIZE ||
            (pads != NULL && (pads[d] < 0 || pads[d + dims] < 0)))
            return mica__ox_fail(o, "of such shapes");
        params.size[d] = (uint32_t)image[d];
        params.kernel[d] = (uint32_t)block[d];
        params.low[d] = pads == NULL ? 0 : (uint32_t)pads[d];
        params.high[d] = pads == NULL ? 0 : (uint32_t)pads[d + dims];
    }
    mica__ox_out(o, 0, mica__ox_op1(o, MICA_OP_COL2IM, &params, &x, 1));
    return MICA_OK;
}
