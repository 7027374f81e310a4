/*
 * view.c - derivatives of what moves elements: views, joins, pads, order. What moves there moves back, and adds up where it had been repeated.
 */
#include <string.h>

#include "graph/gradient/rules.h"

/* ---- nodes of views ---- */

mica__derived mica__derive_reshape(mica__back *b)
{
    const mica__type to = mica__type_copy(b->graph, b->in[0]);
    b->dx[0] = mica__reshape_to(b->graph, b->dy[0], &to);
    return MICA__DERIVED;
}

mica__derived mica__derive_permute(mica__back *b)
{
    const mica__permute_data *data = b->node.data;
    const uint32_t ndim = mica__type_of(b->graph, b->in[0])->ndim;
    uint32_t order[MICA_MAX_DIMS] = {0};
    for (uint32_t d = 0; d < ndim; d++)
        order[data->order[d]] = d;
    b->dx[0] = mica_graph_permute(b->graph, b->dy[0], order);
    return MICA__DERIVED;
}

mica__derived mica__derive_expand(mica__back *b)
{
    const mica__type to = mica__type_copy(b->graph, b->in[0]);
    b->dx[0] = mica__sum_to(b->graph, b->dy[0], &to);
    return MICA__DERIVED;
}

/* Back into zeros: a pad where the size is known and nothing is passed over, else by their places. */
mica__derived mica__derive_slice(mica__back *b)
{
    const mica__slice_data *data = b->node.data;
    mica_graph *graph = b->graph;
    const uint64_t size = mica__type_of(graph, b->in[0])->shape[data->axis];
    if (mica__size_known(size) && (data->step == 1 || data->count <= 1)) {
        mica_pad_params pad = {.mode = MICA_PAD_CONSTANT};
        pad.low[data->axis] = (int64_t)data->start;
        pad.high[data->axis] = (int64_t)(size - data->start - data->count);
        b->dx[0] = mica__op1(graph, MICA_OP_PAD, &pad, b->dy, 1);
        return MICA__DERIVED;
    }
    mica_tensor ids = mica_graph_index(graph, MICA_DTYPE_I32, 1, &data->count, 0);
    ids = mica__plus(graph, mica__times(graph, ids, (double)data->step), (double)data->start);
    b->dx[0] = mica__put(graph, MICA_SCATTER_SET, b->dy[0], ids, data->axis, b->in[0]);
    return MICA__DERIVED;
}

/* What lies at [start, start + its size) of dy along the axis, start being a tensor. */
static mica_tensor taken_at(mica_graph *graph, mica_tensor dy, mica_tensor x, mica_tensor start,
                            uint32_t axis)
{
    const mica_tensor ids = mica_graph_add(graph, mica__index_along(graph, x, axis), start);
    return mica__take(graph, dy, ids, axis);
}

/* The size of x along the axis, when it is known: an i32. */
static mica_tensor size_along(mica_graph *graph, mica_tensor x, uint32_t axis)
{
    const mica_tensor index = mica__index_along(graph, x, axis);
    return mica__plus(graph, mica_graph_reduce(graph, MICA_REDUCE_MAX, index, NULL, 0, 0), 1);
}

mica__derived mica__derive_concat(mica__back *b)
{
    const uint32_t axis = ((const mica__concat_data *)b->node.data)->axis;
    mica_graph *graph = b->graph;
    uint64_t start = 0;
    bool known = true;
    mica_tensor place = 0;
    for (uint32_t i = 0; i < b->node.input_count && graph->status == MICA_OK; i++) {
        const uint64_t size = mica__type_of(graph, b->in[i])->shape[axis];
        if (known && !mica__size_known(size)) { /* from here on places are computed */
            known = false;
            place = mica_graph_number(graph, MICA_DTYPE_I32, (double)start);
        }
        if (b->wanted[i])
            b->dx[i] = known ? mica_graph_slice(graph, b->dy[0], axis, start, size, 1)
                             : taken_at(graph, b->dy[0], b->in[i], place, axis);
        start += known ? size : 0;
        if (!known && i + 1 < b->node.input_count)
            place = mica_graph_add(graph, place, size_along(graph, b->in[i], axis));
    }
    return MICA__DERIVED;
}

/* ---- ops ---- */

mica__derived mica__derive_copy(mica__back *b)
{
    const mica__type to = mica__type_copy(b->graph, b->in[0]);
    b->dx[0] = mica__sum_to(b->graph, b->dy[0], &to);
    return MICA__DERIVED;
}

/* Along one dimension: each place of dy goes to the place that it was made of, which the same pad of places says. */
static mica_tensor unpad(mica__back *b, const mica_pad_params *params, mica_tensor dy, uint32_t d)
{
    mica_graph *graph = b->graph;
    mica_pad_params one = {.mode = params->mode};
    one.low[0] = params->low[d];
    one.high[0] = params->high[d];
    const mica_tensor places = mica__index_along(graph, b->in[0], d);
    const mica_tensor ids = mica__op1(graph, MICA_OP_PAD, &one, &places, 1);
    mica__type type = mica__type_copy(graph, dy);
    type.shape[d] = mica__type_of(graph, b->in[0])->shape[d];
    mica_tensor like = b->in[0];
    for (uint32_t e = 0; e < type.ndim; e++)
        if (type.shape[e] == MICA_SIZE_UNKNOWN)
            return mica__graph_fail(graph, MICA_ERR_UNSUPPORTED, "gradient",
                                    "a pad along a size that is not known yet");
    like = mica_graph_expand(graph, mica_graph_number(graph, type.dtype, 0), type.ndim, type.shape);
    return mica__put(graph, MICA_SCATTER_ADD, dy, ids, d, like);
}

mica__derived mica__derive_pad(mica__back *b)
{
    static const mica_pad_params none = {.mode = MICA_PAD_CONSTANT};
    const mica_pad_params *given = mica__op_params(&b->node);
    mica_pad_params params = given != NULL ? *given : none;
    const uint32_t ndim = mica__type_of(b->graph, b->in[0])->ndim;
    mica_tensor dx = b->dy[0];
    if (params.mode != MICA_PAD_CONSTANT) {
        for (uint32_t d = 0; d < ndim && b->graph->status == MICA_OK; d++)
            if (params.low[d] != 0 || params.high[d] != 0)
                dx = unpad(b, &params, dx, d);
        b->dx[0] = dx;
        return MICA__DERIVED;
    }
    params.value = 0;
    for (uint32_t d = 0; d < ndim; d++) {
        params.low[d] = -params.low[d];
        params.high[d] = -params.high[d];
    }
    b->dx[0] = mica__op1(b->graph, MICA_OP_PAD, &params, &dx, 1);
    return MICA__DERIVED;
}

/* ---- order ---- */

mica__derived mica__derive_sort(mica__back *b)
{
    mica_graph *graph = b->graph;
    const uint32_t last = mica__type_of(graph, b->in[0])->ndim - 1;
    mica_tensor ids = b->out[1];
    if (ids == 0) {
        mica_tensor outputs[2];
        mica_operand_desc asked[2] = {{.ndim = 0}, {.dtype = MICA_DTYPE_I32}};
        const mica__type type = mica__type_copy(graph, b->out[0]);
        asked[1].ndim =
            type.shape[last] == MICA_SIZE_UNKNOWN ? MICA_RANK_UNKNOWN : type.ndim; /* whole rows */
        memcpy(asked[1].shape, type.shape, sizeof type.shape);
        (void)mica_graph_op(graph, MICA_OP_SORT, mica__op_params(&b->node), b->in, 1, 2, asked, outputs, 2);
        ids = outputs[1];
    }
    b->dx[0] = mica__put(graph, MICA_SCATTER_ADD, b->dy[0], ids, last, b->in[0]);
    return MICA__DERIVED;
}
