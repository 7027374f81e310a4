/*
 * ops_order.c - what asks for an order along an axis: running sums, sorting, the greatest. The ops work along the last dimension: the axis is moved there.
 */
#include "graph/ops_build.h"

/* x with `axis` as its last dimension, and where that was. */
static mica_tensor begin(mica_graph *graph, const char *call, mica_tensor x, int32_t axis, uint32_t *out_axis)
{
    mica__type type;
    if (!mica__graph_begins(graph, call) || !mica__build_takes(graph, call, "x", x, &type) ||
        !mica__build_axis(graph, call, axis, type.ndim, out_axis))
        return 0;
    return mica__build_last(graph, x, *out_axis);
}

mica_tensor mica_graph_cumulate(mica_graph *graph, mica_scan_kind kind, mica_tensor x, int32_t axis,
                                uint32_t exclusive, uint32_t reverse)
{
    const mica_scan_params params = {(uint32_t)kind, exclusive, reverse};
    uint32_t at = 0;
    const mica_tensor rows = begin(graph, "cumulate", x, axis, &at);
    const mica_tensor y = rows == 0 ? 0 : mica__build_op(graph, MICA_OP_SCAN, &params, &rows, 1);
    return rows == 0 ? 0 : mica__build_end(graph, "cumulate", mica__build_unlast(graph, y, at));
}

static mica_tensor extreme(mica_graph *graph, const char *call, uint32_t least, mica_tensor x, int32_t axis,
                           uint32_t keep)
{
    const mica_argmax_params params = {.least = least};
    uint32_t at = 0;
    const mica_tensor rows = begin(graph, call, x, axis, &at);
    if (rows == 0)
        return 0;
    const mica_tensor ids = mica__build_op(graph, MICA_OP_ARGMAX, &params, &rows, 1);
    return mica__build_end(graph, call, keep != 0 ? mica__build_insert(graph, ids, at) : ids);
}

mica_tensor mica_graph_argmax(mica_graph *graph, mica_tensor x, int32_t axis, uint32_t keep)
{
    return extreme(graph, "argmax", 0, x, axis, keep);
}

mica_tensor mica_graph_argmin(mica_graph *graph, mica_tensor x, int32_t axis, uint32_t keep)
{
    return extreme(graph, "argmin", 1, x, axis, keep);
}

/* The first `k` of each row in order (MICA_SIZE_UNKNOWN: all), and where they stood; what is asked for of both. */
static mica_tensor sorted(mica_graph *graph, const char *call, mica_tensor x, int32_t axis, uint64_t k,
                          uint32_t descending, uint32_t wanted, mica_tensor *out)
{
    const mica_sort_params params = {.descending = descending};
    uint32_t at = 0;
    out[0] = out[1] = 0;
    const mica_tensor rows = begin(graph, call, x, axis, &at);
    if (rows == 0)
        return 0;
    const mica__type type = *mica__type_of(graph, rows);
    const uint64_t n = type.shape[type.ndim - 1];
    if (k != MICA_SIZE_UNKNOWN && mica__size_known(n) && k > n)
        return mica__build_refuse(graph, call, "x", &type, "has fewer than k, %llu, elements along axis %u",
                                  (unsigned long long)k, at);
    mica_operand_desc asked[2] = {{.dtype = type.dtype, .ndim = type.ndim},
                                  {.dtype = MICA_DTYPE_I32, .ndim = type.ndim}};
    for (uint32_t i = 0; i < 2; i++) {
        memcpy(asked[i].shape, type.shape, sizeof type.shape);
        asked[i].shape[type.ndim - 1] = k;
        if (k == MICA_SIZE_UNKNOWN)
            asked[i] = (mica_operand_desc){.ndim = MICA_RANK_UNKNOWN};
    }
    (void)mica_graph_op(graph, MICA_OP_SORT, &params, &rows, 1, wanted, asked, out, 2);
    for (uint32_t i = 0; i < 2; i++)
        out[i] = mica__build_unlast(graph, out[i], at);
    return mica__build_end(graph, call, out[(wanted & 1) != 0 ? 0 : 1]);
}

mica_tensor mica_graph_sort(mica_graph *graph, mica_tensor x, int32_t axis, uint32_t descending)
{
    mica_tensor out[2];
    return sorted(graph, "sort", x, axis, MICA_SIZE_UNKNOWN, descending, 1, out);
}

mica_tensor mica_graph_argsort(mica_graph *graph, mica_tensor x, int32_t axis, uint32_t descending)
{
    mica_tensor out[2];
    return sorted(graph, "argsort", x, axis, MICA_SIZE_UNKNOWN, descending, 2, out);
}

mica_tensor mica_graph_top_k(mica_graph *graph, mica_tensor x, uint64_t k, int32_t axis, uint32_t least,
                             mica_tensor *out_ids)
{
    mica_tensor out[2];
    const mica_tensor y =
        sorted(graph, "top_k", x, axis, k, least != 0 ? 0 : 1, out_ids != NULL ? 3 : 1, out);
    if (out_ids != NULL)
        *out_ids = y == 0 ? 0 : out[1];
    return y;
}
