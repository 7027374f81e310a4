/*
 * ops_norm.c - norms, also those of com.microsoft that add a residual first.
 */
#include <math.h>
#include <string.h>

#include "base/work.h"
#include "graph/onnx/importer.h"
#include "graph/onnx/operators.h"

static mica_tensor binary(const mica__ox_op *o, mica_scalar scalar, mica_tensor a, mica_tensor b)
{
    return b == 0 ? 0 : mica__ox_scalar(o, scalar, a, b);
}

static bool is_half(mica_dtype dtype)
{
    return dtype == MICA_DTYPE_F16 || dtype == MICA_DTYPE_BF16;
}

/* mica_normalize with its statistics where they are wanted; y in the type of x. */
static void normalised(const mica__ox_op *o, mica_normalize_params params, mica_tensor x, mica_tensor weight,
                       mica_tensor bias, uint32_t wanted, mica_dtype statistics, mica_tensor out[3])
{
    const mica_operand_desc asked[3] = {{.dtype = mica__ox_type(o, x).dtype, .ndim = MICA_RANK_UNKNOWN},
                                        {.dtype = statistics, .ndim = MICA_RANK_UNKNOWN},
                                        {.dtype = statistics, .ndim = MICA_RANK_UNKNOWN}};
    const mica_tensor inputs[] = {x, weight, bias};
    out[0] = out[1] = out[2] = 0;
    if (x != 0)
        (void)mica_graph_op(o->graph, MICA_OP_NORMALIZE, &params, inputs, 3, wanted, asked, out, 3);
}

/* A statistic [other dims] as [other dims, 1, ..]. */
static mica_tensor with_ones(const mica__ox_op *o, mica_tensor x, uint32_t ndim)
{
    const mica__type type = mica__ox_type(o, x);
    uint64_t shape[MICA_MAX_DIMS];
    for (uint32_t d = 0; d < ndim; d++)
        shape[d] = d < type.ndim ? type.shape[d] : 1;
    return mica__ox_reshape(o, x, ndim, shape);
}

mica_status mica__ox_layer_norm(mica__ox_op *o) /* LayerNormalization, RMSNormalization */
{
    const bool rms = o->row->argument != 0;
    const mica_tensor x = mica__ox_in(o, 0), weight = mica__ox_in(o, 1), bias = rms ? 0 : mica__ox_in(o, 2);
    const mica__type type = mica__ox_type(o, x);
    uint32_t axis = 0;
    MICA__TRY(mica__ox_axis(o, mica__ox_int(o, "axis", -1), type.ndim, &axis));
    const mica_dtype stash = mica__ox_dtype(o, mica__ox_int(o, "stash_type", MICA__ONNX_FLOAT));
    if (stash == MICA_DTYPE_NONE)
        return MICA_ERR_UNSUPPORTED;
    const mica_normalize_params params = {.kind = rms ? MICA_NORMALIZE_RMS : MICA_NORMALIZE_LAYER,
                                          .dims = type.ndim - axis,
                                          .eps = mica__ox_float(o, "epsilon", 1e-5f)};
    const mica_dtype statistics = type.dtype == MICA_DTYPE_F64 ? MICA_DTYPE_F64 : MICA_DTYPE_F32;
    const bool mean = mica__ox_wants(o, 1), var = mica__ox_wants(o, 2);
    mica_tensor y[3];
    normalised(o, params, x, weight, bias, 1u | (uint32_t)mean << 1 | (uint32_t)var << 2, statistics, y);
    mica__ox_out(o, 0, y[0]);
    mica__ox_out(o, 1, mica__ox_cast(o, with_ones(o, y[1], type.ndim), stash));
    if (var) {
        mica_tensor inverse =
            mica__ox_scalar(o, MICA_SCALAR_ADD, y[2], mica__ox_number(o, y[2], (double)params.eps));
        inverse = mica__ox_scalar(o, MICA_SCALAR_RSQRT, inverse, 0);
        mica__ox_out(o, 2, mica__ox_cast(o, with_ones(o, inverse, type.ndim), stash));
    }
    return MICA_OK;
}

/* SkipLayerNormalization, SkipSimplifiedLayerNormalization: norm(x + skip + bias); output 3 is the sum. */
mica_status mica__ox_skip_norm(mica__ox_op *o)
{
    const bool rms = o->row->argument != 0;
    mica_tensor x = binary(o, MICA_SCALAR_ADD, mica__ox_in(o, 0), mica__ox_in(o, 1));
    const mica_tensor weight = mica__ox_in(o, 2), beta = rms ? 0 : mica__ox_in(o, 3);
    const uint32_t bias = rms ? 3 : 4;
    const mica_normalize_params params = {.kind = rms ? MICA_NORMALIZE_RMS : MICA_NORMALIZE_LAYER,
                                          .dims = 1,
                                          .eps = mica__ox_float(o, "epsilon", rms ? 1e-5f : 1e-12f)};
    mica_tensor y[3];
    if (mica__ox_has(o, bias))
        x = binary(o, MICA_SCALAR_ADD, x, mica__ox_in(o, bias));
    if (mica__ox_wants(o, 1) || mica__ox_wants(o, 2))
        return mica__ox_fail(o, "statistics of training are wanted");
    normalised(o, params, x, weight, beta, 1, MICA_DTYPE_NONE, y);
    mica__ox_out(o, 0, y[0]);
    mica__ox_out(o, 3, x);
    return MICA_OK;
}

/* x [n, channels, ..] with weight and bias [channels] */
static mica_tensor scale_channels(const mica__ox_op *o, mica_tensor y, mica_tensor weight, mica_tensor bias)
{
    const uint32_t ndim = mica__ox_type(o, y).ndim;
    if (weight != 0)
        y = binary(o, MICA_SCALAR_MUL, y, mica__ox_along(o, weight, ndim, 1));
    if (bias != 0)
        y = binary(o, MICA_SCALAR_ADD, y, mica__ox_along(o, bias, ndim, 1));
    return y;
}

mica_status mica__ox_instance_norm(mica__ox_op *o)
{
    const mica_tensor x = mica__ox_in(o, 0);
    const mica__type type = mica__ox_type(o, x);
    if (type.ndim < 3)
        return mica__ox_fail(o, "of %u dimensions", type.ndim);
    const mica_normalize_params params = {
        .kind = MICA_NORMALIZE_LAYER, .dims = type.ndim - 2, .eps = mica__ox_float(o, "epsilon", 1e-5f)};
    mica_tensor y[3];
    normalised(o, params, x, mica__ox_along(o, mica__ox_in(o, 1), type.ndim - 1, 0),
               mica__ox_along(o, mica__ox_in(o, 2), type.ndim - 1, 0), 1, MICA_DTYPE_NONE, y);
    mica__ox_out(o, 0, y[0]);
    return MICA_OK;
}

/* A factor of each group (before opset 21) as one of each channel. */
static mica_tensor of_channels(const mica__ox_op *o, mica_tensor x, uint64_t groups, uint64_t channels)
{
    const mica__type type = mica__ox_type(o, x);
    if (x == 0 || type.ndim != 1 || type.shape[0] != groups || groups == channels || o->version >= 21)
        return x;
    x = mica__ox_reshape(o, x, 2, (const uint64_t[]){groups, 1});
    x = x == 0 ? 0 : mica_graph_expand(o->graph, x, 2, (const uint64_t[]){groups, channels / groups});
    return mica__ox_reshape(o, x, 1, (const uint64_t[]){channels});
}

mica_status mica__ox_group_norm(mica__ox_op *o)
{
    mica_tensor x = mica__ox_in(o, 0);
    const mica__type type = mica__ox_type(o, x);
    const uint64_t groups = (uint64_t)mica__ox_int(o, "num_groups", 0);
    const mica_dtype stash = mica__ox_dtype(o, mica__ox_int(o, "stash_type", MICA__ONNX_FLOAT));
    mica_normalize_params params = {.kind = MICA_NORMALIZE_LAYER, .eps = mica__ox_float(o, "epsilon", 1e-5f)};
    uint64_t shape[MICA_MAX_DIMS + 1];
    mica_tensor y[3];
    MICA__TRY(mica__ox_need_shape(o, x, "input 0"));
    if (stash == MICA_DTYPE_NONE || type.ndim < 2 || type.ndim >= MICA_MAX_DIMS || groups == 0 ||
        type.shape[1] % groups != 0)
        return mica__ox_fail(o, "of such a shape, groups or stash_type");
    memcpy(shape + 1, type.shape, type.ndim * sizeof *shape);
    shape[0] = type.shape[0];
    shape[1] = groups;
    shape[2] = type.shape[1] / groups;
    params.dims = type.ndim - 1;
    const mica_tensor weight = of_channels(o, mica__ox_in(o, 1), groups, type.shape[1]);
    const mica_tensor bias = of_channels(o, mica__ox_in(o, 2), groups, type.shape[1]);
    if (is_half(type.dtype))
        x = mica__ox_cast(o, x, MICA_DTYPE_F32);
    normalised(o, params, mica__ox_reshape(o, x, type.ndim + 1, shape), 0, 0, 1, MICA_DTYPE_NONE, y);
    const mica_tensor z = scale_channels(o, mica__ox_reshape(o, y[0], type.ndim, type.shape), weight, bias);
    mica__ox_out(o, 0, mica__ox_cast(o, z, type.dtype));
    return MICA_OK;
}

/* running = running momentum + batch (1 - momentum) */
static mica_tensor follow(const mica__ox_op *o, mica_tensor running, mica_tensor batch, double momentum)
{
    const mica_tensor old = binary(o, MICA_SCALAR_MUL, running, mica__ox_number(o, running, momentum));
    const mica_tensor now = binary(o, MICA_SCALAR_MUL, batch, mica__ox_number(o, batch, 1 - momentum));
    return binary(o, MICA_SCALAR_ADD, old, now);
}

/* With parameters that are known a norm by given statistics is a product and a sum: weight / sqrt(var + eps), and bias less mean times that. */
static mica_status known_batch_norm(mica__ox_op *o, mica_tensor x, double eps, bool *out_done)
{
    const mica__ox_host *p[5];
    const uint64_t channels = mica__ox_type(o, x).shape[1];
    *out_done = false;
    for (uint32_t i = 1; i < 5; i++) {
        p[i] = mica__ox_known(o, i);
        if (p[i] == NULL || p[i]->ndim != 1 || p[i]->elements != channels ||
            mica_register_of(p[i]->dtype) != MICA_REGISTER_F32)
            return MICA_OK;
    }
    float *factor = mica__ox_memory(o->im, channels, sizeof *factor);
    float *shift = mica__ox_memory(o->im, channels, sizeof *shift);
    if (factor == NULL || shift == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    MICA__TRY(mica__spend(channels));
    for (uint64_t c = 0; c < channels; c++) {
        const double by = mica__ox_host_number(p[1], c) / sqrt(mica__ox_host_number(p[4], c) + eps);
        factor[c] = (float)by;
        shift[c] = (float)(mica__ox_host_number(p[2], c) - mica__ox_host_number(p[3], c) * by);
    }
    const mica_dtype dtype = mica__ox_in_type(o, 0).dtype;
    const mica_tensor y = scale_channels(o, x, mica__ox_constant(o, MICA_DTYPE_F32, 1, &channels, factor),
                                         mica__ox_constant(o, MICA_DTYPE_F32, 1, &channels, shift));
    mica__ox_out(o, 0, mica__ox_cast(o, y, dtype));
    *out_done = true;
    return MICA_OK;
}

mica_status mica__ox_batch_norm(mica__ox_op *o)
{
    mica_tensor x = mica__ox_in(o, 0), mean = mica__ox_in(o, 3), var = mica__ox_in(o, 4);
    const mica__type type = mica__ox_type(o, x);
    const double eps = (double)mica__ox_float(o, "epsilon", 1e-5f),
                 momentum = (double)mica__ox_float(o, "momentum", 0.9f);
    const bool training = mica__ox_int(o, "training_mode", 0) != 0;
    if (o->version < 14 && mica__ox_wants(o, 1))
        return mica__ox_fail(o, "of opset %llu with the outputs of training", (unsigned long long)o->version);
    if (type.ndim < 2)
        return mica__ox_fail(o, "of %u dimensions", type.ndim);
    if (is_half(type.dtype))
        x = mica__ox_cast(o, x, MICA_DTYPE_F32);
    if (!training && type.dtype != MICA_DTYPE_F64) {
        bool done = false;
        MICA__TRY(known_batch_norm(o, x, eps, &done));
        if (done)
            return MICA_OK;
    }
    if (training) {
        const uint32_t axes = ((1u << type.ndim) - 1) & ~2u;
        const mica_tensor batch_mean = mica__ox_reduce(o, MICA_REDUCE_MEAN, x, axes, false);
        const mica_tensor batch_var = mica__ox_reduce(o, MICA_REDUCE_VAR, x, axes, false);
        mica__ox_out(o, 1,
                     mica__ox_cast(o, follow(o, mean, batch_mean, momentum), mica__ox_type(o, mean).dtype));
        mica__ox_out(o, 2,
                     mica__ox_cast(o, follow(o, var, batch_var, momentum), mica__ox_type(o, var).dtype));
        mean = batch_mean;
        var = batch_var;
    }
    mica_tensor y = binary(o, MICA_SCALAR_SUB, x, mica__ox_along(o, mean, type.ndim, 1));
    mica_tensor factor = mica__ox_scalar(o, MICA_SCALAR_ADD, var, mica__ox_number(o, var, eps));
    factor = mica__ox_scalar(o, MICA_SCALAR_RSQRT, factor, 0);
    factor = binary(o, MICA_SCALAR_MUL, factor, mica__ox_in(o, 1));
    y = scale_channels(o, y, factor, mica__ox_in(o, 2));
    mica__ox_out(o, 0, mica__ox_cast(o, y, type.dtype));
    return MICA_OK;
}

/* x / (bias + alpha / size sum of squares of channels around)^beta: a mean over windows of channels. */
mica_status mica__ox_lrn(mica__ox_op *o)
{
    const mica_tensor x = mica__ox_in(o, 0);
    const mica__type type = mica__ox_type(o, x);
    const int64_t size = mica__ox_int(o, "size", 0);
    const double alpha = (double)mica__ox_float(o, "alpha", 1e-4f),
                 beta = (double)mica__ox_float(o, "beta", 0.75f);
    const double bias = (double)mica__ox_float(o, "bias", 1);
    if (type.ndim < 2 || size < 1 || size > 65535)
        return mica__ox_fail(o, "of %u dimensions, size %lld", type.ndim, (long long)size);
    mica_pool_windows_params params = {
        .kind = MICA_POOL_SUM, .dims = 1, .kernel = {(uint32_t)size}, .stride = {1}};
    params.low[0] = (uint32_t)(size - 1) / 2;
    params.high[0] = (uint32_t)size - 1 - params.low[0];
    const mica_tensor squares =
        mica__ox_move(o, mica__ox_scalar(o, MICA_SCALAR_SQUARE, x, 0), 1, type.ndim - 1);
    mica_tensor sum =
        mica__ox_move(o, mica__ox_op1(o, MICA_OP_POOL_WINDOWS, &params, &squares, 1), type.ndim - 1, 1);
    sum = binary(o, MICA_SCALAR_MUL, sum, mica__ox_number(o, sum, alpha / (double)size));
    sum = binary(o, MICA_SCALAR_ADD, sum, mica__ox_number(o, sum, bias));
    sum = binary(o, MICA_SCALAR_POW, sum, mica__ox_number(o, sum, beta));
    mica__ox_out(o, 0, binary(o, MICA_SCALAR_DIV, x, sum));
    return MICA_OK;
}

mica_status mica__ox_lp_norm(mica__ox_op *o)
{
    const mica_tensor x = mica__ox_in(o, 0);
    const int64_t p = mica__ox_int(o, "p", 2);
    uint32_t axis = 0;
    MICA__TRY(mica__ox_axis(o, mica__ox_int(o, "axis", -1), mica__ox_type(o, x).ndim, &axis));
    if (p != 1 && p != 2)
        return mica__ox_fail(o, "p is %lld", (long long)p);
    mica_tensor norm = mica__ox_scalar(o, p == 1 ? MICA_SCALAR_ABS : MICA_SCALAR_SQUARE, x, 0);
    norm = mica__ox_reduce(o, MICA_REDUCE_SUM, norm, 1u << axis, true);
    if (p == 2)
        norm = mica__ox_scalar(o, MICA_SCALAR_SQRT, norm, 0);
    const mica_tensor zero = mica__ox_scalar(o, MICA_SCALAR_EQUAL, norm, mica__ox_number(o, norm, 0));
    mica__ox_out(o, 0,
                 mica__ox_select(o, zero, mica__ox_number(o, x, 0), binary(o, MICA_SCALAR_DIV, x, norm)));
    return MICA_OK;
}

mica_status mica__ox_mean_variance(mica__ox_op *o)
{
    const mica_tensor x = mica__ox_in(o, 0);
    uint32_t count = 0, axes = 0, axis = 0;
    const int64_t *given = mica__ox_ints(o, "axes", &count);
    static const int64_t usual[] = {0, 2, 3};
    for (uint32_t i = 0; i < (given == NULL ? 3 : count); i++) {
        MICA__TRY(mica__ox_axis(o, given == NULL ? usual[i] : given[i], mica__ox_type(o, x).ndim, &axis));
        axes |= 1u << axis;
    }
    const mica_tensor mean = mica__ox_reduce(o, MICA_REDUCE_MEAN, x, axes, true);
    const mica_tensor centred = binary(o, MICA_SCALAR_SUB, x, mean);
    mica_tensor deviation =
        mica__ox_reduce(o, MICA_REDUCE_MEAN, mica__ox_scalar(o, MICA_SCALAR_SQUARE, centred, 0), axes, true);
    deviation = mica__ox_scalar(o, MICA_SCALAR_SQRT, deviation, 0);
    deviation = binary(o, MICA_SCALAR_ADD, deviation, mica__ox_number(o, deviation, 1e-9));
    mica__ox_out(o, 0, binary(o, MICA_SCALAR_DIV, centred, deviation));
    return MICA_OK;
}
