/*
 * ops_norm.c - softmax and norms as nodes: the dimensions that are normalised together are moved to the end, weights repeat.
 */
#include "graph/ops_build.h"

/* ---- softmax ---- */

static mica_tensor softmax(mica_graph *graph, const char *call, mica_tensor x, mica_tensor mask, float scale,
                           uint32_t log, int32_t axis)
{
    const mica_softmax_params params = {scale, log};
    mica__type type;
    uint32_t at;
    if (!mica__graph_begins(graph, call) || !mica__build_takes(graph, call, "x", x, &type) ||
        !mica__build_axis(graph, call, axis, type.ndim, &at))
        return 0;
    const uint32_t last = type.ndim - 1;
    mica_tensor with = mask;
    if (mask != 0) {
        mica__type shape;
        if (!mica__build_takes_rank(graph, call, "mask", mask, 0, type.ndim, &shape))
            return 0;
        while (at != last && with != 0 && shape.ndim < type.ndim) {
            with = mica__build_insert(graph, with, 0);
            shape.ndim++;
        }
        with = mica__build_swap(graph, with, at, last);
    }
    const mica_tensor rows = mica__build_swap(graph, x, at, last);
    const mica_tensor y =
        rows == 0 || (mask != 0 && with == 0)
            ? 0
            : mica__build_op(graph, MICA_OP_SOFTMAX, &params, (const mica_tensor[]){rows, with}, 2);
    return mica__build_end(graph, call, mica__build_swap(graph, y, at, last));
}

mica_tensor mica_graph_softmax(mica_graph *graph, mica_tensor x, float scale, int32_t axis)
{
    return softmax(graph, "softmax", x, 0, scale, 0, axis);
}

mica_tensor mica_graph_log_softmax(mica_graph *graph, mica_tensor x, float scale, int32_t axis)
{
    return softmax(graph, "log_softmax", x, 0, scale, 1, axis);
}

mica_tensor mica_graph_masked_softmax(mica_graph *graph, mica_tensor x, mica_tensor mask, float scale,
                                      int32_t axis)
{
    mica__type type;
    if (!mica__graph_begins(graph, "masked_softmax") ||
        !mica__build_takes(graph, "masked_softmax", "mask", mask, &type))
        return 0;
    return softmax(graph, "masked_softmax", x, mask, scale, 0, axis);
}

mica_tensor mica_graph_softmax_backward(mica_graph *graph, mica_tensor y, mica_tensor dy, float scale,
                                        uint32_t log)
{
    const mica_softmax_params params = {scale, log};
    return mica__build_op(graph, MICA_OP_SOFTMAX_BACKWARD, &params, (const mica_tensor[]){y, dy}, 2);
}

/* ---- over the last dimensions ---- */

static mica_tensor normalize(mica_graph *graph, const char *call, mica_tensor x, mica_tensor weight,
                             mica_tensor bias, const mica_normalize_params *params, uint32_t wanted,
                             mica_tensor *out)
{
    mica__type type;
    out[0] = out[1] = out[2] = 0;
    if (!mica__graph_begins(graph, call) || !mica__build_takes(graph, call, "x", x, &type))
        return 0;
    /* statistics are not rounded to 16 bits */
    const mica_operand_desc statistic = {
        .dtype = type.dtype == MICA_DTYPE_F64 ? MICA_DTYPE_F64 : MICA_DTYPE_F32, .ndim = MICA_RANK_UNKNOWN};
    const mica_operand_desc asked[3] = {{.ndim = MICA_RANK_UNKNOWN}, statistic, statistic};
    (void)mica_graph_op(graph, MICA_OP_NORMALIZE, params, (const mica_tensor[]){x, weight, bias}, 3, wanted,
                        asked, out, 3);
    return mica__build_end(graph, call, out[0]);
}

mica_tensor mica_graph_normalize(mica_graph *graph, mica_tensor x, mica_tensor weight, mica_tensor bias,
                                 const mica_normalize_params *params, mica_tensor *out_mean,
                                 mica_tensor *out_var)
{
    mica_tensor out[3];
    const uint32_t wanted = 1u | (out_mean != NULL ? 2u : 0u) | (out_var != NULL ? 4u : 0u);
    const mica_tensor y = normalize(graph, "normalize", x, weight, bias, params, wanted, out);
    if (out_mean != NULL)
        *out_mean = out[1];
    if (out_var != NULL)
        *out_var = out[2];
    return y;
}

mica_tensor mica_graph_normalize_backward(mica_graph *graph, mica_tensor x, mica_tensor dy,
                                          mica_tensor weight, const mica_normalize_params *params,
                                          mica_tensor *out_dweight, mica_tensor *out_dbias)
{
    mica_tensor out[3];
    const uint32_t wanted = 1u | (out_dweight != NULL ? 2u : 0u) | (out_dbias != NULL ? 4u : 0u);
    (void)mica_graph_op(graph, MICA_OP_NORMALIZE_BACKWARD, params, (const mica_tensor[]){x, dy, weight}, 3,
                        wanted, NULL, out, 3);
    if (out_dweight != NULL)
        *out_dweight = out[1];
    if (out_dbias != NULL)
        *out_dbias = out[2];
    return out[0];
}

/* mica_normalize over the last dimension. */
static mica_tensor over_last(mica_graph *graph, const char *call, mica_normalize_kind kind, mica_tensor x,
                             mica_tensor weight, mica_tensor bias, float eps, float offset)
{
    const mica_normalize_params params = {(uint32_t)kind, 1, eps, offset};
    mica_tensor out[3];
    return normalize(graph, call, x, weight, bias, &params, 1, out);
}

/* The ops of one dimension, which fusion knows, serve f32, f16 and bf16 alone. */
static mica_tensor row_norm(mica_graph *graph, const char *call, mica_op op, mica_tensor x,
                            mica_tensor weight, mica_tensor bias, float eps)
{
    const bool rms = op == MICA_OP_RMS_NORM;
    const mica_norm_params params = {eps};
    mica__type type;
    if (!mica__graph_begins(graph, call) ||
        !mica__build_takes_rank(graph, call, "x", x, 1, MICA_MAX_DIMS, &type))
        return 0;
    if (type.dtype == MICA_DTYPE_F64)
        return over_last(graph, call, rms ? MICA_NORMALIZE_RMS : MICA_NORMALIZE_LAYER, x, weight, bias, eps,
                         0);
    return mica__build_op(graph, op, &params, (const mica_tensor[]){x, weight, bias}, rms ? 2 : 3);
}

mica_tensor mica_graph_rms_norm(mica_graph *graph, mica_tensor x, mica_tensor weight, float eps)
{
    return row_norm(graph, "rms_norm", MICA_OP_RMS_NORM, x, weight, 0, eps);
}

mica_tensor mica_graph_layer_norm(mica_graph *graph, mica_tensor x, mica_tensor weight, mica_tensor bias,
                                  float eps)
{
    return row_norm(graph, "layer_norm", MICA_OP_LAYER_NORM, x, weight, bias, eps);
}

mica_tensor mica_graph_l2_norm(mica_graph *graph, mica_tensor x, float eps, int32_t axis)
{
    mica__type type;
    uint32_t at;
    if (!mica__graph_begins(graph, "l2_norm") || !mica__build_takes(graph, "l2_norm", "x", x, &type) ||
        !mica__build_axis(graph, "l2_norm", axis, type.ndim, &at))
        return 0;
    const mica_tensor rows = mica__build_swap(graph, x, at, type.ndim - 1);
    const mica_tensor y = over_last(graph, "l2_norm", MICA_NORMALIZE_L2, rows, 0, 0, eps, 0);
    return mica__build_swap(graph, y, at, type.ndim - 1);
}

mica_tensor mica_graph_ada_norm(mica_graph *graph, mica_normalize_kind kind, mica_tensor x, mica_tensor scale,
                                mica_tensor shift, float eps)
{
    if (!mica__graph_begins(graph, "ada_norm"))
        return 0;
    return over_last(graph, "ada_norm", kind, x, scale, shift, eps, 1);
}

mica_tensor mica_graph_residual_norm(mica_graph *graph, mica_normalize_kind kind, mica_tensor x,
                                     mica_tensor residual, mica_tensor add, mica_tensor weight,
                                     mica_tensor bias, float eps, mica_tensor *out_sum)
{
    if (out_sum != NULL)
        *out_sum = 0;
    if (!mica__graph_begins(graph, "residual_norm"))
        return 0;
    mica_tensor sum = mica_graph_add(graph, x, residual), y = 0;
    if (add != 0 && sum != 0)
        sum = mica_graph_add(graph, sum, add);
    if (sum != 0 && kind == MICA_NORMALIZE_RMS && bias == 0)
        y = mica_graph_rms_norm(graph, sum, weight, eps);
    else if (sum != 0 && kind == MICA_NORMALIZE_LAYER)
        y = mica_graph_layer_norm(graph, sum, weight, bias, eps);
    else if (sum != 0)
        y = over_last(graph, "residual_norm", kind, sum, weight, bias, eps, 0);
    if (out_sum != NULL && y != 0)
        *out_sum = sum;
    return mica__build_end(graph, "residual_norm", y);
}

/* ---- [n, channels, ..] ---- */

/* [channels] as [channels, 1..], of `ndim` dimensions; with `groups` over 1 as [groups, channels / groups, 1..]. 0 stays 0. */
static mica_tensor row(mica_graph *graph, const char *call, const char *name, mica_tensor weight,
                       uint64_t channels, uint64_t groups, uint32_t ndim)
{
    mica__type type;
    uint64_t shape[MICA_MAX_DIMS];
    if (weight == 0 || !mica__build_takes_rank(graph, call, name, weight, 1, 1, &type))
        return 0;
    if (!mica__sizes_agree(type.shape[0], channels))
        return mica__build_refuse(graph, call, name, &type, "is not of the %llu channels of x",
                                  (unsigned long long)channels);
    for (uint32_t d = 0; d < ndim; d++)
        shape[d] = 1;
    shape[0] = groups != 0 ? groups : type.shape[0];
    if (groups != 0)
        shape[1] = channels / groups;
    return ndim == 1 ? weight : mica_graph_reshape(graph, weight, ndim, shape);
}

static bool takes_channels(mica_graph *graph, const char *call, mica_tensor x, mica__type *out)
{
    if (!mica__graph_begins(graph, call) ||
        !mica__build_takes_rank(graph, call, "x", x, 2, MICA_MAX_DIMS - 1, out))
        return false;
    if (!mica__size_known(out->shape[1]))
        return mica__build_refuse(graph, call, "x", out, "has channels that are no number") != 0;
    return true;
}

static mica_tensor group_norm(mica_graph *graph, const char *call, mica_tensor x, const mica__type *type,
                              uint64_t groups, mica_tensor weight, mica_tensor bias, float eps)
{
    const mica_normalize_params params = {MICA_NORMALIZE_LAYER, type->ndim - 1, eps, 0};
    uint64_t shape[MICA_MAX_DIMS];
    mica_tensor out[3];
    if (groups == 0 || type->shape[1] % groups != 0)
        return mica__build_refuse(graph, call, "x", type, "has channels that are not %llu groups",
                                  (unsigned long long)groups);
    for (uint32_t d = 0; d <= type->ndim; d++)
        shape[d] = d == 0 ? type->shape[0] : d > 2 ? type->shape[d - 1] : groups;
    shape[2] = type->shape[1] / groups;
    const mica_tensor scale = row(graph, call, "weight", weight, type->shape[1], groups, type->ndim),
                      shift = row(graph, call, "bias", bias, type->shape[1], groups, type->ndim);
    const mica_tensor grouped = mica__build_reshape(graph, x, type->ndim + 1, shape);
    if (graph->status != MICA_OK)
        return mica__build_end(graph, call, 0);
    const mica_tensor y = normalize(graph, call, grouped, scale, shift, &params, 1, out);
    return mica__build_end(graph, call, mica__build_as(graph, y, type));
}

mica_tensor mica_graph_group_norm(mica_graph *graph, mica_tensor x, uint32_t groups, mica_tensor weight,
                                  mica_tensor bias, float eps)
{
    mica__type type;
    return takes_channels(graph, "group_norm", x, &type)
               ? group_norm(graph, "group_norm", x, &type, groups, weight, bias, eps)
               : 0;
}

mica_tensor mica_graph_instance_norm(mica_graph *graph, mica_tensor x, mica_tensor weight, mica_tensor bias,
                                     float eps)
{
    mica__type type;
    return takes_channels(graph, "instance_norm", x, &type)
               ? group_norm(graph, "instance_norm", x, &type, type.shape[1], weight, bias, eps)
               : 0;
}

mica_tensor mica_graph_channel_norm(mica_graph *graph, mica_tensor x, mica_tensor weight, mica_tensor bias,
                                    float eps)
{
    mica__type type;
    if (!takes_channels(graph, "channel_norm", x, &type))
        return 0;
    const mica_tensor y = mica_graph_layer_norm(graph, mica__build_last(graph, x, 1), weight, bias, eps);
    return mica__build_end(graph, "channel_norm", mica__build_unlast(graph, y, 1));
}

mica_tensor mica_graph_batch_norm(mica_graph *graph, mica_tensor x, mica_tensor mean, mica_tensor var,
                                  mica_tensor weight, mica_tensor bias, float eps)
{
    static const char call[] = "batch_norm";
    static const char *const words[] = {"x", "mean", "var", "weight", "bias"};
    const mica_tensor given[] = {x, mean, var, weight, bias};
    const char *names[5];
    mica_tensor inputs[5];
    uint32_t count = 0;
    mica__type type;
    mica__region_room room;
    if (!takes_channels(graph, call, x, &type))
        return 0;
    for (uint32_t i = 0; i < 5; i++) {
        if (i > 2 && given[i] == 0)
            continue;
        if (given[i] == 0)
            return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, call, "%s is no tensor", words[i]);
        names[count] = words[i];
        inputs[count] = i == 0 ? x : row(graph, call, words[i], given[i], type.shape[1], 0, type.ndim - 1);
        if (inputs[count++] == 0)
            return 0;
    }
    const mica_status status = mica__batch_norm_program(call, mica__build_real(type.dtype), eps, weight != 0,
                                                        bias != 0, &room.program);
    if (status != MICA_OK)
        return mica__build_failed(graph, call, status);
    return mica__build_region(graph, call, &room.program, names, inputs, &type.dtype, NULL);
}

/* What runs from here on. */
static bool move_running(mica_graph *graph, const char *call, const mica__type *x, const mica_tensor *inputs,
                         double momentum, mica_tensor *out)
{
    static const char *const names[] = {"running_mean", "running_var", "mean", "var"};
    mica__region_room room;
    double n = 1;
    for (uint32_t d = 0; d < x->ndim; d++) {
        if (d != 1 && !mica__size_known(x->shape[d]))
            return mica__build_refuse(graph, call, "x", x,
                                      "has a size that is no number, which running statistics need") != 0;
        n *= d == 1 ? 1 : (double)x->shape[d];
    }
    const mica_status status = mica__running_program(call, mica__build_real(x->dtype), momentum,
                                                     n > 1 ? n / (n - 1) : 1, &room.program);
    if (status != MICA_OK)
        return mica__build_failed(graph, call, status) != 0;
    const mica_dtype dtypes[] = {mica__type_of(graph, inputs[0])->dtype,
                                 mica__type_of(graph, inputs[1])->dtype};
    return mica__build_region(graph, call, &room.program, names, inputs, dtypes, out) != 0;
}

mica_tensor mica_graph_batch_norm_train(mica_graph *graph, mica_tensor x, mica_tensor weight,
                                        mica_tensor bias, mica_tensor running_mean, mica_tensor running_var,
                                        const mica_batch_norm_params *params,
                                        mica_graph_batch_norm_outputs *out)
{
    static const char call[] = "batch_norm_train";
    mica__type type, own;
    mica_graph_batch_norm_outputs unused = {0};
    mica_tensor made[3], moved[2] = {0, 0};
    out = out == NULL ? &unused : out;
    *out = (mica_graph_batch_norm_outputs){0};
    if (!takes_channels(graph, call, x, &type))
        return 0;
    if (params == NULL || (running_mean == 0) != (running_var == 0))
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, call, "%s",
                                params == NULL ? "params is NULL"
                                               : "one of running_mean and running_var is no tensor");
    if (running_mean != 0 && (!mica__build_takes(graph, call, "running_mean", running_mean, &own) ||
                              !mica__build_takes(graph, call, "running_var", running_var, &own)))
        return 0;
    const mica_normalize_params normal = {MICA_NORMALIZE_LAYER, type.ndim - 1, params->eps, 0};
    const mica_tensor scale = row(graph, call, "weight", weight, type.shape[1], 0, type.ndim),
                      shift = row(graph, call, "bias", bias, type.shape[1], 0, type.ndim);
    if (graph->status != MICA_OK)
        return 0;
    const mica_tensor y =
        normalize(graph, call, mica__build_swap(graph, x, 0, 1), scale, shift, &normal, 7, made);
    const mica_tensor statistics[] = {running_mean, running_var, y == 0 ? 0 : made[1], y == 0 ? 0 : made[2]};
    if (y == 0 ||
        (running_mean != 0 && !move_running(graph, call, &type, statistics, (double)params->momentum, moved)))
        return mica__build_end(graph, call, 0);
    *out = (mica_graph_batch_norm_outputs){mica__build_swap(graph, y, 0, 1), made[1], made[2], moved[0],
                                           moved[1]};
    return out->y;
}
