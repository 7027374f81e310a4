/*
 * ops_reduce.c - reductions as nodes: axes as callers count them become the op's, which count from the last.
 */
#include "graph/ir.h"
#include "mica/ops.h"

mica_tensor mica_graph_reduce(mica_graph *graph, mica_reduce_kind kind, mica_tensor x, const int32_t *axes,
                              uint32_t count, uint32_t keep)
{
    mica_reduce_params params = {.kind = (uint32_t)kind, .keep_dims = keep};
    if (!mica__graph_begins(graph, "reduce"))
        return 0;
    const mica__type *type = mica__graph_takes(graph, "reduce", "x", x);
    if (type == NULL)
        return 0;
    for (uint32_t i = 0; i < count; i++) {
        const int64_t n = type->ndim, axis = axes[i] < 0 ? axes[i] + n : axes[i];
        if (axis < 0 || axis >= n || (params.axes >> (n - 1 - axis) & 1) != 0)
            return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "reduce",
                                    "axes[%u] is %d, of %u dimensions", i, axes[i], type->ndim);
        params.axes |= 1u << (n - 1 - axis);
    }
    return mica_graph_op(graph, MICA_OP_REDUCE, &params, &x, 1, 1, NULL, NULL, 0);
}
