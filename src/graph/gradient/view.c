/*
 * view.c - derivatives of what moves elements: views, joins, pads, picks, order. What moves there moves back, and adds up where it had been repeated.
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

mica__derived mica__derive_gather(mica__back *b)
{
    const mica_gather_params *params = mica__op_params(&b->node);
    b->dx[0] = mica__put(b->graph, MICA_SCATTER_ADD, b->dy[0], b->in[1], params != NULL ? params->axis : 0,
                         b->in[0]);
    return MICA__DERIVED;
}

mica__derived mica__derive_embedding(mica__back *b)
{
    b->dx[0] = mica__put(b->graph, MICA_SCATTER_ADD, b->dy[0], b->in[1], 0, b->in[0]);
    return MICA__DERIVED;
}

/* ---- scatter: inputs are updates, ids, and what y held before ---- */

typedef struct scattered {
    mica_graph *graph;
    mica_tensor updates, ids, before, after, dy;
    uint32_t axis;
} scattered;

static mica_tensor scatter_onto(const scattered *s, mica_scatter_mode mode, mica_tensor updates,
                                mica_tensor onto)
{
    const mica_scatter_params params = {.axis = s->axis, .mode = (uint32_t)mode};
    return mica__op1(s->graph, MICA_OP_SCATTER, &params, (const mica_tensor[]){updates, s->ids, onto}, 3);
}

/* As many as the updates have, each with its number along the axis. */
static mica_tensor numbered(const scattered *s)
{
    const uint32_t ndim = mica__type_of(s->graph, s->updates)->ndim;
    mica_tensor index = mica__index_along(s->graph, s->updates, s->axis);
    for (uint32_t d = s->axis + 1; d < ndim; d++)
        index = mica__widened(s->graph, index, 1);
    return mica__repeat_to(s->graph, index, s->updates);
}

/* The last update of a place stays: those that were written over reach nothing. */
static void derive_set(const scattered *s, mica__back *b)
{
    mica_graph *graph = s->graph;
    const mica_tensor number = numbered(s), none = mica_graph_number(graph, MICA_DTYPE_I32, -1);
    const mica_tensor last =
        scatter_onto(s, MICA_SCATTER_SET, number, mica__repeat_to(graph, none, s->before));
    if (b->wanted[0])
        b->dx[0] =
            mica__where(graph, mica_graph_equal(graph, mica__take(graph, last, s->ids, s->axis), number),
                        mica__take(graph, s->dy, s->ids, s->axis));
    if (b->wanted[2])
        b->dx[2] = mica__where(graph, mica_graph_equal(graph, last, none), s->dy);
}

/* What is multiplied into a place without its zeros, and how many zeros there were: so an update that is 0 still gets the product of the others. */
static void derive_mul(const scattered *s, mica__back *b)
{
    mica_graph *graph = s->graph;
    const mica_tensor u = s->updates, one = mica_graph_number(graph, mica__type_of(graph, u)->dtype, 1);
    const mica_tensor zero = mica_graph_number(graph, mica__type_of(graph, u)->dtype, 0);
    const mica_tensor is_zero = mica_graph_equal(graph, u, zero);
    const mica_tensor rest = mica_graph_select(graph, is_zero, one, u);
    const mica_tensor ones = mica__repeat_to(graph, one, s->before);
    const mica_tensor product = scatter_onto(s, MICA_SCATTER_MUL, rest, ones);
    const mica_tensor number = mica_graph_cast(graph, is_zero, MICA_DTYPE_I32);
    const mica_tensor zeros =
        scatter_onto(s, MICA_SCATTER_ADD, number, mica__zeros_like(graph, s->before, MICA_DTYPE_I32));
    const mica_tensor none = mica_graph_number(graph, MICA_DTYPE_I32, 0);
    if (b->wanted[0]) {
        const mica_tensor there = mica__take(graph, zeros, s->ids, s->axis);
        const mica_tensor others = mica_graph_equal(graph, mica_graph_sub(graph, there, number), none);
        const mica_tensor reach = mica_graph_mul(graph, mica_graph_mul(graph, s->dy, s->before), product);
        const mica_tensor du = mica_graph_div(graph, mica__take(graph, reach, s->ids, s->axis), rest);
        b->dx[0] = mica__where(graph, others, du);
    }
    if (b->wanted[2])
        b->dx[2] =
            mica__where(graph, mica_graph_equal(graph, zeros, none), mica_graph_mul(graph, s->dy, product));
}

/* What is as great (as small) as what stays shares what reaches it. */
static void derive_extreme(const scattered *s, mica__back *b)
{
    mica_graph *graph = s->graph;
    const mica_tensor kept = mica__take(graph, s->after, s->ids, s->axis);
    const mica_tensor new_ones =
        mica_graph_cast(graph, mica_graph_equal(graph, s->updates, kept), MICA_DTYPE_F32);
    const mica_tensor old_ones =
        mica_graph_cast(graph, mica_graph_equal(graph, s->before, s->after), MICA_DTYPE_F32);
    mica_tensor share = scatter_onto(s, MICA_SCATTER_ADD, new_ones, old_ones);
    const mica_dtype dtype = mica__type_of(graph, s->dy)->dtype;
    share = mica_graph_div(graph, s->dy, mica_graph_cast(graph, share, dtype));
    if (b->wanted[0])
        b->dx[0] = mica_graph_mul(graph, mica__take(graph, share, s->ids, s->axis),
                                  mica_graph_cast(graph, new_ones, dtype));
    if (b->wanted[2])
        b->dx[2] = mica_graph_mul(graph, share, mica_graph_cast(graph, old_ones, dtype));
}

mica__derived mica__derive_scatter(mica__back *b)
{
    const mica_scatter_params *given = mica__op_params(&b->node);
    const mica_scatter_params params = given != NULL ? *given : (mica_scatter_params){.axis = 0};
    const scattered s = {b->graph, b->in[0], b->in[1], b->in[2], b->out[0], b->dy[0], params.axis};
    if (params.mode == MICA_SCATTER_ADD) {
        b->dx[0] = b->wanted[0] ? mica__take(b->graph, s.dy, s.ids, s.axis) : 0;
        b->dx[2] = s.dy;
    } else if (params.mode == MICA_SCATTER_SET) {
        derive_set(&s, b);
    } else if (params.mode == MICA_SCATTER_MUL) {
        derive_mul(&s, b);
    } else {
        derive_extreme(&s, b);
    }
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
        asked[1].ndim = type.ndim;
        memcpy(asked[1].shape, type.shape, sizeof type.shape);
        (void)mica_graph_op(graph, MICA_OP_SORT, mica__op_params(&b->node), b->in, 1, 2, asked, outputs, 2);
        ids = outputs[1];
    }
    b->dx[0] = mica__put(graph, MICA_SCATTER_ADD, b->dy[0], ids, last, b->in[0]);
    return MICA__DERIVED;
}
