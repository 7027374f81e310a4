/*
 * ops_contract.c - sums of products over any axes: one batched product between two permutations.
 */
#include <stdio.h>

#include "graph/ops_contract.h"

/* [batch.., free, contract] or, with `transposed`, [batch.., contract, free], each of the last two one dimension. */
static mica_tensor as_side(mica_graph *graph, mica_tensor x, const mica__side *side, bool transposed)
{
    uint32_t order[MICA_MAX_DIMS] = {0}, ndim = 0;
    const uint32_t *first = transposed ? side->contract : side->free,
                   *second = transposed ? side->free : side->contract;
    const uint32_t ones = transposed ? side->contract_count : side->free_count,
                   others = transposed ? side->free_count : side->contract_count;
    for (uint32_t i = 0; i < side->batch_count; i++)
        order[ndim++] = side->batch[i];
    for (uint32_t i = 0; i < ones; i++)
        order[ndim++] = first[i];
    for (uint32_t i = 0; i < others; i++)
        order[ndim++] = second[i];
    bool moves = false;
    for (uint32_t d = 0; d < ndim; d++)
        moves |= order[d] != d;
    mica_tensor y = moves ? mica_graph_permute(graph, x, order) : x;
    y = mica__build_merge(graph, y, side->batch_count + ones, ndim);
    return mica__build_merge(graph, y, side->batch_count, side->batch_count + ones);
}

mica_tensor mica__build_contract(mica_graph *graph, mica_tensor a, const mica__side *left, mica_tensor b,
                                 const mica__side *right)
{
    const mica_tensor x = as_side(graph, a, left, false), y = as_side(graph, b, right, true);
    const mica_tensor product = x == 0 || y == 0 ? 0 : mica_graph_product(graph, x, y, 0);
    if (product == 0)
        return 0;
    mica__type type = *mica__type_of(graph, product);
    const mica__type one = *mica__type_of(graph, a), other = *mica__type_of(graph, b);
    type.ndim = left->batch_count;
    for (uint32_t i = 0; i < left->free_count; i++)
        type.shape[type.ndim++] = one.shape[left->free[i]];
    for (uint32_t i = 0; i < right->free_count; i++)
        type.shape[type.ndim++] = other.shape[right->free[i]];
    const bool plain = left->free_count == 1 && right->free_count == 1;
    return plain ? product : mica__build_as(graph, product, &type);
}

/* The axes of a list, each once. `seen` has those that are taken. */
static bool take_axes(mica_graph *graph, const char *name, const int32_t *axes, uint32_t count,
                      const mica__type *type, uint32_t *seen, uint32_t *out)
{
    for (uint32_t i = 0; i < count; i++) {
        const int64_t n = type->ndim, axis = axes[i] < 0 ? axes[i] + n : axes[i];
        if (axis < 0 || axis >= n || (*seen >> axis & 1) != 0)
            return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "dot_general",
                                    "axes.%s[%u] is %d, of %u dimensions%s", name, i, axes[i], type->ndim,
                                    axis >= 0 && axis < n ? ", and stands twice" : "") != 0;
        *seen |= 1u << axis;
        out[i] = (uint32_t)axis;
    }
    return true;
}

static bool take_side(mica_graph *graph, const mica_contraction *axes, bool right, const mica__type *type,
                      mica__side *side)
{
    uint32_t seen = 0;
    *side = (mica__side){.batch_count = axes->batch_count, .contract_count = axes->contract_count};
    if (!take_axes(graph, right ? "b_batch" : "a_batch", right ? axes->b_batch : axes->a_batch,
                   axes->batch_count, type, &seen, side->batch) ||
        !take_axes(graph, right ? "b_contract" : "a_contract", right ? axes->b_contract : axes->a_contract,
                   axes->contract_count, type, &seen, side->contract))
        return false;
    for (uint32_t d = 0; d < type->ndim; d++)
        if ((seen >> d & 1) == 0)
            side->free[side->free_count++] = d;
    return true;
}

static bool sizes_match(mica_graph *graph, const char *what, const mica__type *a, const uint32_t *left,
                        const mica__type *b, const uint32_t *right, uint32_t count)
{
    char one[160], other[160];
    for (uint32_t i = 0; i < count; i++)
        if (!mica__sizes_agree(a->shape[left[i]], b->shape[right[i]]))
            return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "dot_general",
                                    "a %s and b %s: axis %u of a and axis %u of b %s, but differ in size",
                                    mica__shape_words(graph, a->ndim, a->shape, one),
                                    mica__shape_words(graph, b->ndim, b->shape, other), left[i], right[i],
                                    what) != 0;
    return true;
}

mica_tensor mica_graph_dot_general(mica_graph *graph, mica_tensor a, mica_tensor b,
                                   const mica_contraction *axes)
{
    static const char call[] = "dot_general";
    mica__type x, y;
    mica__side left, right;
    if (!mica__graph_begins(graph, call) || !mica__build_takes(graph, call, "a", a, &x) ||
        !mica__build_takes(graph, call, "b", b, &y))
        return 0;
    if (axes == NULL || axes->batch_count > MICA_MAX_DIMS || axes->contract_count > MICA_MAX_DIMS)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, call, "axes %s",
                                axes == NULL ? "is NULL" : "has more axes than tensors have dimensions");
    if (!take_side(graph, axes, false, &x, &left) || !take_side(graph, axes, true, &y, &right) ||
        !sizes_match(graph, "count the batch", &x, left.batch, &y, right.batch, left.batch_count) ||
        !sizes_match(graph, "are summed over", &x, left.contract, &y, right.contract, left.contract_count))
        return 0;
    if (left.batch_count + left.free_count + right.free_count > MICA_MAX_DIMS)
        return mica__graph_fail(graph, MICA_ERR_UNSUPPORTED, call, "the result would have %u dimensions",
                                left.batch_count + left.free_count + right.free_count);
    return mica__build_end(graph, call, mica__build_contract(graph, a, &left, b, &right));
}
