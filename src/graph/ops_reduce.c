/*
 * ops_reduce.c - reductions as nodes: axes as callers count them become the op's, which count from the last.
 */
#include <math.h>

#include "graph/ops_build.h"

static mica_tensor reduce(mica_graph *graph, const char *call, mica_reduce_params params, mica_tensor x,
                          const int32_t *axes, uint32_t count)
{
    if (!mica__graph_begins(graph, call))
        return 0;
    const mica__type *type = mica__graph_takes(graph, call, "x", x);
    if (type == NULL)
        return 0;
    for (uint32_t i = 0; i < count; i++) {
        const int64_t n = type->ndim, axis = axes[i] < 0 ? axes[i] + n : axes[i];
        if (axis < 0 || axis >= n || (params.axes >> (n - 1 - axis) & 1) != 0)
            return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, call,
                                    "axes[%u] is %d, of %u dimensions", i, axes[i], type->ndim);
        params.axes |= 1u << (n - 1 - axis);
    }
    if (type->ndim == 0) /* all of nothing is what `axes` 0 says */
        params.axes = 0;
    return mica__build_end(graph, call,
                           mica_graph_op(graph, MICA_OP_REDUCE, &params, &x, 1, 1, NULL, NULL, 0));
}

mica_tensor mica_graph_reduce(mica_graph *graph, mica_reduce_kind kind, mica_tensor x, const int32_t *axes,
                              uint32_t count, uint32_t keep)
{
    const mica_reduce_params params = {.kind = (uint32_t)kind, .keep_dims = keep};
    return reduce(graph, "reduce", params, x, axes, count);
}

mica_tensor mica_graph_variance(mica_graph *graph, mica_tensor x, const int32_t *axes, uint32_t count,
                                uint32_t correction, uint32_t keep)
{
    const mica_reduce_params params = {.kind = MICA_REDUCE_VAR, .keep_dims = keep, .correction = correction};
    return reduce(graph, "variance", params, x, axes, count);
}

mica_tensor mica_graph_deviation(mica_graph *graph, mica_tensor x, const int32_t *axes, uint32_t count,
                                 uint32_t correction, uint32_t keep)
{
    const mica_reduce_params params = {.kind = MICA_REDUCE_VAR, .keep_dims = keep, .correction = correction};
    const mica_tensor var = reduce(graph, "deviation", params, x, axes, count);
    return var == 0 ? 0 : mica_graph_sqrt(graph, var);
}

/* The p-th root of the sum of the p-th powers of what is not below 0. */
static mica_tensor power_norm(mica_graph *graph, mica_tensor size, double p, const int32_t *axes,
                              uint32_t count, uint32_t keep)
{
    const mica_tensor powers = mica_graph_pow(graph, size, mica__build_number(graph, size, p));
    const mica_tensor sum = mica_graph_reduce(graph, MICA_REDUCE_SUM, powers, axes, count, keep);
    return sum == 0 ? 0 : mica_graph_pow(graph, sum, mica__build_number(graph, sum, 1 / p));
}

mica_tensor mica_graph_vector_norm(mica_graph *graph, mica_tensor x, double p, const int32_t *axes,
                                   uint32_t count, uint32_t keep)
{
    mica__type type;
    mica_tensor y = 0;
    if (!mica__graph_begins(graph, "vector_norm") || !mica__build_takes(graph, "vector_norm", "x", x, &type))
        return 0;
    if (!mica__build_is_float(type.dtype))
        return mica__build_refuse(graph, "vector_norm", "x", &type, "is no float");
    if (isnan(p))
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "vector_norm", "p is NaN");
    if (p == 2) {
        y = mica_graph_reduce(graph, MICA_REDUCE_SUM_SQUARES, x, axes, count, keep);
        y = y == 0 ? 0 : mica_graph_sqrt(graph, y);
    } else if (p == 0) {
        const mica_tensor there = mica_graph_not_equal(graph, x, mica__build_number(graph, x, 0));
        y = mica_graph_reduce(graph, MICA_REDUCE_SUM, mica_graph_cast(graph, there, type.dtype), axes, count,
                              keep);
    } else if (isinf(p) && p > 0) {
        y = mica_graph_reduce(graph, MICA_REDUCE_MAX_ABS, x, axes, count, keep);
    } else {
        const mica_tensor size = mica_graph_abs(graph, x);
        if (isinf(p) || p == 1)
            y = mica_graph_reduce(graph, p == 1 ? MICA_REDUCE_SUM : MICA_REDUCE_MIN, size, axes, count, keep);
        else
            y = power_norm(graph, size, p, axes, count, keep);
    }
    return mica__build_end(graph, "vector_norm", y);
}
