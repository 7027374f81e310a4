/*
 * ops_shape.c - where elements lie: dimensions more and fewer, parts, repetition, pads.
 */
#include <stdio.h>

#include "base/alloc.h"
#include "graph/ops_build.h"

#define ULL(x) ((unsigned long long)(x))

/* ---- dimensions ---- */

mica_tensor mica_graph_unsqueeze(mica_graph *graph, mica_tensor x, int32_t axis)
{
    mica__type type;
    uint32_t at;
    if (!mica__graph_begins(graph, "unsqueeze") ||
        !mica__build_takes_rank(graph, "unsqueeze", "x", x, 0, MICA_MAX_DIMS - 1, &type) ||
        !mica__build_axis(graph, "unsqueeze", axis, type.ndim + 1, &at))
        return 0;
    return mica__build_end(graph, "unsqueeze", mica__build_insert(graph, x, at));
}

mica_tensor mica_graph_squeeze(mica_graph *graph, mica_tensor x, const int32_t *axes, uint32_t count)
{
    mica__type type, out;
    uint32_t drop = 0, at;
    if (!mica__graph_begins(graph, "squeeze") || !mica__build_takes(graph, "squeeze", "x", x, &type))
        return 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!mica__build_axis(graph, "squeeze", axes[i], type.ndim, &at))
            return 0;
        if (type.shape[at] != 1)
            return mica__build_refuse(graph, "squeeze", "x", &type, "has another size than 1 in dimension %u",
                                      at);
        drop |= 1u << at;
    }
    for (uint32_t d = 0; d < type.ndim && count == 0; d++)
        drop |= (uint32_t)(type.shape[d] == 1) << d;
    out = type;
    out.ndim = 0;
    for (uint32_t d = 0; d < type.ndim; d++)
        if ((drop >> d & 1) == 0)
            out.shape[out.ndim++] = type.shape[d];
    return drop == 0 ? x : mica__build_end(graph, "squeeze", mica__build_as(graph, x, &out));
}

mica_tensor mica_graph_flatten(mica_graph *graph, mica_tensor x, int32_t first, int32_t last)
{
    mica__type type;
    uint32_t begin, end;
    if (!mica__graph_begins(graph, "flatten") || !mica__build_takes(graph, "flatten", "x", x, &type))
        return 0;
    if (type.ndim == 0)
        return mica_graph_reshape(graph, x, 1, (const uint64_t[]){1});
    if (!mica__build_axis(graph, "flatten", first, type.ndim, &begin) ||
        !mica__build_axis(graph, "flatten", last, type.ndim, &end))
        return 0;
    if (begin > end)
        return mica__build_refuse(graph, "flatten", "x", &type, "has no dimensions %u to %u in this order",
                                  begin, end);
    return mica__build_end(graph, "flatten", mica__build_merge(graph, x, begin, end + 1));
}

mica_tensor mica_graph_swap_axes(mica_graph *graph, mica_tensor x, int32_t a, int32_t b)
{
    mica__type type;
    uint32_t one, other;
    if (!mica__graph_begins(graph, "swap_axes") || !mica__build_takes(graph, "swap_axes", "x", x, &type) ||
        !mica__build_axis(graph, "swap_axes", a, type.ndim, &one) ||
        !mica__build_axis(graph, "swap_axes", b, type.ndim, &other))
        return 0;
    return mica__build_swap(graph, x, one, other);
}

/* ---- parts ---- */

mica_tensor mica_graph_stack(mica_graph *graph, const mica_tensor *tensors, uint32_t count, int32_t axis)
{
    mica_tensor few[16], *slices = few;
    uint32_t at = 0;
    mica__type type;
    if (!mica__graph_begins(graph, "stack"))
        return 0;
    if (tensors == NULL || count == 0)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "stack", "there are no tensors");
    if (!mica__build_takes_rank(graph, "stack", "tensor 0", tensors[0], 0, MICA_MAX_DIMS - 1, &type) ||
        !mica__build_axis(graph, "stack", axis, type.ndim + 1, &at))
        return 0;
    if (count > 16 && (slices = mica__alloc(count * sizeof *slices)) == NULL)
        return mica__graph_fail(graph, MICA_ERR_OUT_OF_MEMORY, "stack", "no memory for %u tensors", count);
    for (uint32_t i = 0; i < count && graph->status == MICA_OK; i++) {
        char name[32];
        snprintf(name, sizeof name, "tensor %u", i);
        slices[i] = mica__build_takes_rank(graph, "stack", name, tensors[i], type.ndim, type.ndim,
                                           &(mica__type){.ndim = 0})
                        ? mica__build_insert(graph, tensors[i], at)
                        : 0;
    }
    const mica_tensor y = graph->status != MICA_OK ? 0 : mica_graph_concat(graph, slices, count, at);
    if (slices != few)
        mica__free(slices);
    return mica__build_end(graph, "stack", y);
}

mica_tensor mica_graph_split(mica_graph *graph, mica_tensor x, int32_t axis, const uint64_t *sizes,
                             uint32_t count, mica_tensor *outputs)
{
    mica__type type;
    uint32_t at;
    uint64_t begin = 0;
    for (uint32_t i = 0; outputs != NULL && i < count; i++)
        outputs[i] = 0;
    if (!mica__graph_begins(graph, "split") || !mica__build_takes(graph, "split", "x", x, &type) ||
        !mica__build_axis(graph, "split", axis, type.ndim, &at))
        return 0;
    const uint64_t n = type.shape[at];
    if (count == 0 || outputs == NULL || (sizes == NULL && (!mica__size_known(n) || n % count != 0)))
        return mica__build_refuse(graph, "split", "x", &type, "has no %u equal parts along axis %u", count,
                                  at);
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t size = sizes != NULL ? sizes[i] : n / count;
        outputs[i] = mica_graph_slice(graph, x, at, begin, size, 1);
        begin += size;
    }
    if (graph->status == MICA_OK && mica__size_known(n) && begin != n)
        (void)mica__build_refuse(graph, "split", "x", &type, "has other parts than %llu along axis %u",
                                 ULL(begin), at);
    for (uint32_t i = 0; i < count && graph->status != MICA_OK; i++)
        outputs[i] = 0;
    return mica__build_end(graph, "split", outputs[0]);
}

/* ---- pads ---- */

mica_tensor mica_graph_pad(mica_graph *graph, mica_tensor x, const mica_pad_params *params)
{
    return mica__build_op(graph, MICA_OP_PAD, params, &x, 1);
}

/* n - 1 - i along a size that is not known: how many come behind each. */
static mica_tensor flipped_by_ids(mica_graph *graph, mica_tensor x, uint32_t axis)
{
    const mica__type type = *mica__type_of(graph, x);
    const mica_tensor ones = mica_graph_fill(graph, MICA_DTYPE_I32, 1, &type.shape[axis], 1);
    const mica_tensor ids = mica_graph_cumulate(graph, MICA_SCAN_SUM, ones, 0, 1, 1);
    return ids == 0 ? 0 : mica_graph_gather(graph, x, ids, (int32_t)axis);
}

mica_tensor mica_graph_flip(mica_graph *graph, mica_tensor x, const int32_t *axes, uint32_t count)
{
    mica__type type;
    mica_pad_params params = {.mode = MICA_PAD_SYMMETRIC};
    uint32_t flipped = 0, at;
    if (!mica__graph_begins(graph, "flip") || !mica__build_takes(graph, "flip", "x", x, &type))
        return 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!mica__build_axis(graph, "flip", axes[i], type.ndim, &at))
            return 0;
        flipped |= 1u << at;
    }
    if (count == 0)
        flipped = (1u << type.ndim) - 1;
    mica_tensor y = x;
    bool known = false;
    for (uint32_t d = 0; d < type.ndim; d++) {
        if ((flipped >> d & 1) == 0)
            continue;
        if (mica__size_known(type.shape[d])) {
            known = true;
            params.low[d] = (int64_t)type.shape[d];
            params.high[d] = -params.low[d];
        } else if (y != 0) {
            y = flipped_by_ids(graph, y, d);
        }
    }
    return mica__build_end(graph, "flip", y == 0 || !known ? y : mica_graph_pad(graph, y, &params));
}

mica_tensor mica_graph_roll(mica_graph *graph, mica_tensor x, int64_t shift, int32_t axis)
{
    mica__type type;
    mica_pad_params params = {.mode = MICA_PAD_WRAP};
    uint32_t at;
    if (!mica__graph_begins(graph, "roll") || !mica__build_takes(graph, "roll", "x", x, &type) ||
        !mica__build_axis(graph, "roll", axis, type.ndim, &at))
        return 0;
    const uint64_t n = type.shape[at];
    if (n == 0 || (!mica__size_known(n) && (shift > (1 << 30) || shift < -(1 << 30))))
        return n == 0 ? x : mica__build_refuse(graph, "roll", "x", &type, "is rolled by over 2^30");
    params.low[at] = mica__size_known(n) ? shift % (int64_t)n : shift;
    params.high[at] = -params.low[at];
    mica_operand_desc asked = {.dtype = type.dtype, .ndim = type.ndim}; /* its own shape, symbols too */
    memcpy(asked.shape, type.shape, sizeof asked.shape);
    for (uint32_t d = 0; d < type.ndim; d++)
        if (type.shape[d] == MICA_SIZE_UNKNOWN)
            asked.ndim = MICA_RANK_UNKNOWN;
    return mica__build_end(graph, "roll",
                           mica_graph_op(graph, MICA_OP_PAD, &params, &x, 1, 1, &asked, NULL, 0));
}

/* ---- repetition ---- */

mica_tensor mica_graph_tile(mica_graph *graph, mica_tensor x, const uint64_t *times)
{
    mica__type type;
    if (!mica__graph_begins(graph, "tile") ||
        !mica__build_takes_rank(graph, "tile", "x", x, 0, MICA_MAX_DIMS - 1, &type))
        return 0;
    if (times == NULL && type.ndim != 0)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "tile", "times is NULL");
    mica_tensor y = x;
    for (uint32_t d = type.ndim;
         d-- > 0 && y != 0;) /* a symbol, often the first, is unknown once it was flipped */
        if (times[d] != 1)
            y = mica__build_merge(graph, mica__build_repeat(graph, y, d, times[d]), d, d + 2);
    return mica__build_end(graph, "tile", y);
}

mica_tensor mica_graph_repeat(mica_graph *graph, mica_tensor x, uint64_t times, int32_t axis)
{
    mica__type type;
    uint32_t at;
    if (!mica__graph_begins(graph, "repeat") ||
        !mica__build_takes_rank(graph, "repeat", "x", x, 1, MICA_MAX_DIMS - 1, &type) ||
        !mica__build_axis(graph, "repeat", axis, type.ndim, &at))
        return 0;
    const mica_tensor y = times == 1 ? x : mica__build_repeat(graph, x, at + 1, times);
    return mica__build_end(graph, "repeat", times == 1 ? y : mica__build_merge(graph, y, at, at + 2));
}
