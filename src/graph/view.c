/*
 * view.c - nodes that say where elements lie: reshapes, permutations, slices, repetition; and joining.
 */
#include <string.h>

#include "graph/ir.h"
#include "mica/ops.h"

#define ULL(x) ((unsigned long long)(x))

static bool is_blocks(const mica__type *type)
{
    return mica_dtype_block_elements(type->dtype) != 1 || type->group_size != 0;
}

/* Begins a call over x, whose elements stand alone. */
static const mica__type *begin(mica_graph *graph, const char *call, mica_tensor x)
{
    if (!mica__graph_begins(graph, call))
        return NULL;
    const mica__type *type = mica__graph_takes(graph, call, "x", x);
    if (type != NULL && is_blocks(type)) {
        (void)mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, call, "x is %s, whose values lie in blocks",
                               mica_dtype_name(type->dtype));
        return NULL;
    }
    return type;
}

/* ---- reshape ---- */

/* Takes the sizes that both shapes have away: what is left decides what a size that was left open is. */
typedef struct ratio {
    uint64_t number[2];
    uint64_t symbol[2][MICA_MAX_DIMS];
    uint32_t symbols[2];
    bool unknown;
} ratio;

static void count_size(ratio *all, uint32_t side, uint64_t size)
{
    if (mica__size_known(size)) {
        all->number[side] *= size;
        return;
    }
    all->unknown |= size == MICA_SIZE_UNKNOWN;
    const uint32_t other = 1 - side;
    for (uint32_t i = 0; i < all->symbols[other]; i++)
        if (all->symbol[other][i] == size && size != MICA_SIZE_UNKNOWN) {
            all->symbol[other][i] = all->symbol[other][--all->symbols[other]];
            return;
        }
    all->symbol[side][all->symbols[side]++] = size;
}

/* What a size that was left open becomes; false where the shapes cannot have equal elements. */
static bool solve(const ratio *all, bool open, uint64_t *out)
{
    const uint64_t x = all->number[0], y = all->number[1];
    *out = MICA_SIZE_UNKNOWN;
    if (all->unknown || all->symbols[1] != 0)
        return true;
    if (all->symbols[0] == 0) {
        *out = y == 0 ? 0 : x / y;
        return open ? (y != 0 ? x % y == 0 : x == 0) : x == y;
    }
    if (open && all->symbols[0] == 1 && x == y)
        *out = all->symbol[0][0];
    return true; /* a symbol may be any size */
}

mica_tensor mica_graph_reshape(mica_graph *graph, mica_tensor x, uint32_t ndim, const uint64_t *shape)
{
    const mica__type *type = begin(graph, "reshape", x);
    ratio all = {.number = {1, 1}};
    mica__shape_data data = {.ndim = ndim};
    uint32_t open = MICA_MAX_DIMS;
    char left[160], right[160];
    if (type == NULL)
        return 0;
    if (ndim > MICA_MAX_DIMS || (ndim != 0 && shape == NULL))
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "reshape", "ndim is %u", ndim);
    mica__type out = {.dtype = type->dtype, .ndim = ndim};
    for (uint32_t d = 0; d < type->ndim; d++)
        count_size(&all, 0, type->shape[d]);
    for (uint32_t d = 0; d < ndim; d++) {
        data.shape[d] = out.shape[d] = shape[d];
        if (shape[d] == MICA_SIZE_REST && open != MICA_MAX_DIMS)
            return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "reshape", "two sizes are left open");
        if (shape[d] == MICA_SIZE_REST)
            open = d;
        else if (mica__size_known(shape[d]) && shape[d] > (1ull << 48))
            return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "reshape", "shape[%u] is over 2^48", d);
        else
            count_size(&all, 1, shape[d]);
    }
    uint64_t rest = 0;
    if (!solve(&all, open != MICA_MAX_DIMS, &rest))
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "reshape",
                                "x %s has other elements than shape %s",
                                mica__shape_words(graph, type->ndim, type->shape, left),
                                mica__shape_words(graph, ndim, shape, right));
    if (open != MICA_MAX_DIMS)
        out.shape[open] = rest;
    return mica__graph_add_node(graph, MICA_NODE_RESHAPE, 0, &x, 1, &out, 1, &data, sizeof data);
}

/* ---- permute, slice, expand ---- */

mica_tensor mica_graph_permute(mica_graph *graph, mica_tensor x, const uint32_t *order)
{
    const mica__type *type = begin(graph, "permute", x);
    mica__permute_data data = {.order = {0}};
    uint32_t seen = 0;
    if (type == NULL)
        return 0;
    if (type->ndim == 0)
        return x;
    if (order == NULL)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "permute", "order is NULL");
    mica__type out = *type;
    for (uint32_t d = 0; d < type->ndim; d++) {
        if (order[d] >= type->ndim || (seen >> order[d] & 1) != 0)
            return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "permute",
                                    "order[%u] is %u, of %u dimensions", d, order[d], type->ndim);
        seen |= 1u << order[d];
        data.order[d] = order[d];
        out.shape[d] = type->shape[order[d]];
    }
    return mica__graph_add_node(graph, MICA_NODE_PERMUTE, 0, &x, 1, &out, 1, &data, sizeof data);
}

/* Backwards: what lies before x in its mirror, then every so manyth. */
static mica_tensor flipped(mica_graph *graph, mica_tensor x, const mica__type *type, uint32_t axis)
{
    mica_pad_params params = {.mode = MICA_PAD_SYMMETRIC};
    if (!mica__size_known(type->shape[axis]))
        return mica__graph_fail(graph, MICA_ERR_UNSUPPORTED, "slice",
                                "step is below 0 along a size that is not known");
    params.low[axis] = (int64_t)type->shape[axis];
    params.high[axis] = -params.low[axis];
    return mica_graph_op(graph, MICA_OP_PAD, &params, &x, 1, 1, NULL, NULL, 0);
}

mica_tensor mica_graph_slice(mica_graph *graph, mica_tensor x, uint32_t axis, uint64_t start, uint64_t count,
                             int64_t step)
{
    const mica__type *type = begin(graph, "slice", x);
    mica__slice_data data = {.axis = axis, .start = start, .count = count, .step = step};
    if (type == NULL)
        return 0;
    if (axis >= type->ndim || step == 0 || step == INT64_MIN || count > (1ull << 48) || start > (1ull << 48))
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "slice",
                                "axis %u of %u dimensions, from %llu %llu with step %lld", axis, type->ndim,
                                ULL(start), ULL(count), (long long)step);
    const uint64_t size = type->shape[axis], span = (uint64_t)(step < 0 ? -step : step);
    const uint64_t most = 1ull << 48;
    const bool far = count > 1 && span > most / (count - 1);
    const uint64_t last = far || count == 0 ? 0 : (count - 1) * span;
    const bool fits = !far && (count == 0 ? start <= size
                               : step > 0 ? start < size && last < size - start
                                          : start < size && last <= start);
    if (mica__size_known(size) && !fits)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "slice",
                                "from %llu %llu with step %lld leave the %llu of axis %u", ULL(start),
                                ULL(count), (long long)step, ULL(size), axis);
    if (step < 0 && count > 1) {
        const mica_tensor backwards = flipped(graph, x, type, axis);
        return backwards == 0
                   ? 0
                   : mica_graph_slice(graph, backwards, axis, size - 1 - start, count, (int64_t)span);
    }
    mica__type out = *type;
    out.shape[axis] = count;
    data.step = step < 0 ? 1 : step;
    return mica__graph_add_node(graph, MICA_NODE_SLICE, 0, &x, 1, &out, 1, &data, sizeof data);
}

mica_tensor mica_graph_expand(mica_graph *graph, mica_tensor x, uint32_t ndim, const uint64_t *shape)
{
    const mica__type *type = begin(graph, "expand", x);
    mica__shape_data data = {.ndim = ndim};
    char left[160], right[160];
    if (type == NULL)
        return 0;
    if (ndim > MICA_MAX_DIMS || ndim < type->ndim || (ndim != 0 && shape == NULL))
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "expand", "ndim is %u, of x %u", ndim,
                                type->ndim);
    mica__type out = {.dtype = type->dtype, .ndim = ndim};
    for (uint32_t d = 0; d < ndim; d++) {
        const uint32_t from = ndim - type->ndim;
        const uint64_t size = d < from ? 1 : type->shape[d - from];
        data.shape[d] = out.shape[d] = shape[d];
        if ((mica__size_known(shape[d]) && shape[d] > (1ull << 48)) ||
            (size != 1 && !mica__sizes_agree(size, shape[d])))
            return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "expand", "x %s does not repeat to %s",
                                    mica__shape_words(graph, type->ndim, type->shape, left),
                                    mica__shape_words(graph, ndim, shape, right));
    }
    return mica__graph_add_node(graph, MICA_NODE_EXPAND, 0, &x, 1, &out, 1, &data, sizeof data);
}

mica_tensor mica_graph_stop_gradient(mica_graph *graph, mica_tensor x)
{
    const mica__type *type = begin(graph, "stop_gradient", x);
    if (type == NULL)
        return 0;
    const mica__type out = *type;
    return mica__graph_add_node(graph, MICA_NODE_STOP_GRADIENT, 0, &x, 1, &out, 1, NULL, 0);
}

/* ---- concat ---- */

static bool joins(mica_graph *graph, mica__type *out, const mica__type *type, uint32_t i, uint32_t axis)
{
    char left[160], right[160];
    bool fits = type->ndim == out->ndim && type->dtype == out->dtype;
    for (uint32_t d = 0; d < out->ndim && fits; d++)
        if (d != axis) {
            fits = mica__sizes_agree(type->shape[d], out->shape[d]);
            if (!mica__size_known(out->shape[d]))
                out->shape[d] = type->shape[d];
        }
    if (!fits)
        return mica__graph_fail(
                   graph, MICA_ERR_INVALID_ARGUMENT, "concat",
                   "tensor %u is %s %s beside %s %s, along axis %u", i, mica_dtype_name(type->dtype),
                   mica__shape_words(graph, type->ndim, type->shape, left), mica_dtype_name(out->dtype),
                   mica__shape_words(graph, out->ndim, out->shape, right), axis) != 0;
    const uint64_t a = out->shape[axis], b = type->shape[axis];
    out->shape[axis] = mica__size_known(a) && mica__size_known(b) ? a + b : MICA_SIZE_UNKNOWN;
    return true;
}

mica_tensor mica_graph_concat(mica_graph *graph, const mica_tensor *tensors, uint32_t count, uint32_t axis)
{
    const mica__concat_data data = {.axis = axis};
    if (!mica__graph_begins(graph, "concat"))
        return 0;
    if (tensors == NULL || count == 0)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "concat", "there are no tensors");
    const mica__type *first = begin(graph, "concat", tensors[0]);
    if (first == NULL)
        return 0;
    if (axis >= first->ndim)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "concat", "axis is %u, of %u dimensions",
                                axis, first->ndim);
    mica__type out = *first;
    for (uint32_t i = 1; i < count; i++) {
        const mica__type *type = begin(graph, "concat", tensors[i]);
        if (type == NULL || !joins(graph, &out, type, i, axis))
            return 0;
    }
    if (count == 1)
        return tensors[0];
    return mica__graph_add_node(graph, MICA_NODE_CONCAT, 0, tensors, count, &out, 1, &data, sizeof data);
}
