/*
 * words.c - what rules are written in: shapes that follow other tensors, whether their sizes are known or not, and the few formulas that many rules have.
 */
#include <string.h>

#include "graph/gradient/rules.h"

/* ---- numbers ---- */

mica_tensor mica__wide(mica_graph *graph, mica_tensor x)
{
    const mica_dtype dtype = mica__type_of(graph, x)->dtype;
    return dtype == MICA_DTYPE_F16 || dtype == MICA_DTYPE_BF16 ? mica_graph_cast(graph, x, MICA_DTYPE_F32)
                                                               : x;
}

mica_tensor mica__number(mica_graph *graph, mica_tensor like, double value)
{
    const mica_dtype dtype = mica__type_of(graph, like)->dtype;
    const bool small = dtype == MICA_DTYPE_F16 || dtype == MICA_DTYPE_BF16;
    return mica_graph_number(graph, small ? MICA_DTYPE_F32 : dtype, value);
}

mica_tensor mica__times(mica_graph *graph, mica_tensor x, double factor)
{
    return factor == 1 ? x : mica_graph_mul(graph, x, mica__number(graph, x, factor));
}

mica_tensor mica__plus(mica_graph *graph, mica_tensor x, double term)
{
    return term == 0 ? x : mica_graph_add(graph, x, mica__number(graph, x, term));
}

mica_tensor mica__where(mica_graph *graph, mica_tensor condition, mica_tensor x)
{
    return mica_graph_select(graph, condition, x,
                             mica_graph_number(graph, mica__type_of(graph, x)->dtype, 0));
}

mica_tensor mica__indicator(mica_graph *graph, mica_tensor condition, mica_tensor like)
{
    const mica_dtype dtype = mica__type_of(graph, like)->dtype;
    const bool small = dtype == MICA_DTYPE_F16 || dtype == MICA_DTYPE_BF16;
    return mica_graph_cast(graph, condition, small ? MICA_DTYPE_F32 : dtype);
}

/* ---- shapes that others have ---- */

static bool has_unknown(const mica__type *type)
{
    bool unknown = false;
    for (uint32_t d = 0; d < type->ndim; d++)
        unknown |= type->shape[d] == MICA_SIZE_UNKNOWN;
    return unknown;
}

static bool same_shape(const mica__type *a, const mica__type *b)
{
    return a->ndim == b->ndim && memcmp(a->shape, b->shape, a->ndim * sizeof a->shape[0]) == 0;
}

mica_tensor mica__repeat_to(mica_graph *graph, mica_tensor x, mica_tensor like)
{
    const mica__type type = mica__type_copy(graph, like), from = mica__type_copy(graph, x);
    if (!has_unknown(&type))
        return same_shape(&type, &from) ? x : mica_graph_expand(graph, x, type.ndim, type.shape);
    /* A size that is not known yet is that of `like` whatever it becomes: x beside a condition of its shape. */
    return mica_graph_select(graph, mica_graph_equal(graph, like, like), x, x);
}

mica_tensor mica__zeros_like(mica_graph *graph, mica_tensor like, mica_dtype dtype)
{
    const mica_tensor zero = mica_graph_number(graph, dtype, 0);
    return mica__repeat_to(graph, zero, like);
}

/* A reshape, also to the shape that x has. */
static mica_tensor reshaped(mica_graph *graph, mica_tensor x, const mica__type *type)
{
    uint64_t shape[MICA_MAX_DIMS] = {0};
    uint32_t open = 0;
    for (uint32_t d = 0; d < type->ndim; d++) {
        const bool unknown = type->shape[d] == MICA_SIZE_UNKNOWN;
        shape[d] = unknown ? MICA_SIZE_REST : type->shape[d];
        open += unknown;
    }
    if (open > 1)
        return mica__graph_fail(graph, MICA_ERR_UNSUPPORTED, "gradient",
                                "a reshape back to %u sizes that are not known yet", open);
    return mica_graph_reshape(graph, x, type->ndim, shape);
}

mica_tensor mica__reshape_to(mica_graph *graph, mica_tensor x, const mica__type *type)
{
    const mica__type from = mica__type_copy(graph, x);
    return same_shape(type, &from) ? x : reshaped(graph, x, type);
}

mica_tensor mica__another(mica_graph *graph, mica_tensor x)
{
    const mica__type type = mica__type_copy(graph, x);
    return reshaped(graph, x, &type); /* always a node: an operand may be made of another, or be it */
}

/* Sums the dimensions of x in the mask `axes` (bit d: dimension d). */
static mica_tensor sum_axes(mica_graph *graph, mica_tensor x, uint32_t axes, uint32_t keep)
{
    const uint32_t ndim = mica__type_of(graph, x)->ndim;
    int32_t list[MICA_MAX_DIMS];
    uint32_t count = 0;
    for (uint32_t d = 0; d < ndim; d++)
        if ((axes >> d & 1) != 0)
            list[count++] = (int32_t)d;
    return count == 0 ? x : mica_graph_reduce(graph, MICA_REDUCE_SUM, x, list, count, keep);
}

mica_tensor mica__sum_to(mica_graph *graph, mica_tensor x, const mica__type *type)
{
    const mica__type from = mica__type_copy(graph, x);
    uint32_t front = 0, ones = 0;
    char left[160], right[160];
    if (graph->status != MICA_OK || from.ndim < type->ndim)
        return x;
    const uint32_t more = from.ndim - type->ndim;
    for (uint32_t d = 0; d < from.ndim; d++) {
        const uint64_t size = d < more ? 1 : type->shape[d - more];
        if (d < more)
            front |= 1u << d;
        else if (size == 1 && from.shape[d] != 1)
            ones |= 1u << (d - more);
        else if (size != from.shape[d])
            return mica__graph_fail(graph, MICA_ERR_UNSUPPORTED, "gradient",
                                    "whether %s repeats to %s is not known yet",
                                    mica__shape_words(graph, type->ndim, type->shape, left),
                                    mica__shape_words(graph, from.ndim, from.shape, right));
    }
    return sum_axes(graph, sum_axes(graph, x, front, 0), ones, 1);
}

mica_tensor mica__transposed(mica_graph *graph, mica_tensor x)
{
    const uint32_t ndim = mica__type_of(graph, x)->ndim;
    uint32_t order[MICA_MAX_DIMS];
    for (uint32_t d = 0; d < ndim; d++)
        order[d] = d + 2 < ndim ? d : 2 * ndim - 3 - d;
    return mica_graph_permute(graph, x, order);
}

mica_tensor mica__widened(mica_graph *graph, mica_tensor x, uint32_t at)
{
    mica__type type = mica__type_copy(graph, x);
    if (type.ndim >= MICA_MAX_DIMS || at > type.ndim)
        return mica__graph_fail(graph, MICA_ERR_UNSUPPORTED, "gradient", "a tensor of %u dimensions",
                                type.ndim + 1);
    memmove(type.shape + at + 1, type.shape + at, (type.ndim - at) * sizeof type.shape[0]);
    type.shape[at] = 1;
    type.ndim++;
    return mica__reshape_to(graph, x, &type);
}

/* ---- ops ---- */

mica_tensor mica__op1(mica_graph *graph, mica_op op, const void *params, const mica_tensor *inputs,
                      uint32_t count)
{
    return mica_graph_op(graph, op, params, inputs, count, 1, NULL, NULL, 0);
}

mica_tensor mica__product(mica_graph *graph, mica_tensor a, mica_tensor b)
{
    return mica__op1(graph, MICA_OP_PRODUCT, NULL, (const mica_tensor[]){a, b, 0, 0, 0}, 5);
}

mica_tensor mica__reduce_last(mica_graph *graph, mica_reduce_kind kind, mica_tensor x, uint32_t dims)
{
    static const int32_t axes[MICA_MAX_DIMS] = {-1, -2, -3, -4, -5, -6, -7, -8};
    return mica_graph_reduce(graph, kind, x, axes, dims, 1);
}

mica_tensor mica__take(mica_graph *graph, mica_tensor x, mica_tensor ids, uint32_t axis)
{
    const mica_gather_params params = {.axis = axis};
    return mica__op1(graph, MICA_OP_GATHER, &params, (const mica_tensor[]){x, ids}, 2);
}

mica_tensor mica__put(mica_graph *graph, mica_scatter_mode mode, mica_tensor updates, mica_tensor ids,
                      uint32_t axis, mica_tensor like)
{
    const mica_scatter_params params = {.axis = axis, .mode = (uint32_t)mode};
    const mica_tensor zeros = mica__zeros_like(graph, like, mica__type_of(graph, updates)->dtype);
    return mica__op1(graph, MICA_OP_SCATTER, &params, (const mica_tensor[]){updates, ids, zeros}, 3);
}

mica_tensor mica__index_along(mica_graph *graph, mica_tensor like, uint32_t axis)
{
    const mica__type type = mica__type_copy(graph, like);
    if (type.shape[axis] != MICA_SIZE_UNKNOWN)
        return mica_graph_index(graph, MICA_DTYPE_I32, 1, &type.shape[axis], 0);
    /* Of a size that is not known yet: so many ones, counted up; they are a slice along the axis. */
    int32_t others[MICA_MAX_DIMS];
    uint32_t count = 0;
    for (uint32_t d = 0; d < type.ndim; d++)
        if (d != axis)
            others[count++] = (int32_t)d;
    const mica_scan_params params = {.kind = MICA_SCAN_SUM, .exclusive = 1};
    const mica_tensor one = mica_graph_number(graph, MICA_DTYPE_I32, 1);
    mica_tensor ones = mica_graph_select(graph, mica_graph_equal(graph, like, like), one, one);
    if (count != 0)
        ones = mica_graph_reduce(graph, MICA_REDUCE_MAX, ones, others, count, 0);
    return mica__op1(graph, MICA_OP_SCAN, &params, &ones, 1);
}
