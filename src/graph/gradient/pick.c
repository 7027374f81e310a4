/*
 * pick.c - derivatives of what picks elements by their places and puts them there.
 */
#include <string.h>

#include "graph/gradient/rules.h"

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
    bool nd; /* ids are places in several dimensions */
} scattered;

static mica_tensor scatter_onto(const scattered *s, mica_scatter_mode mode, mica_tensor updates,
                                mica_tensor onto)
{
    const mica_scatter_params params = {.axis = s->axis, .mode = (uint32_t)mode};
    const mica_scatter_nd_params places = {.mode = (uint32_t)mode};
    const mica_tensor inputs[] = {updates, s->ids, onto};
    return s->nd ? mica__op1(s->graph, MICA_OP_SCATTER_ND, &places, inputs, 3)
                 : mica__op1(s->graph, MICA_OP_SCATTER, &params, inputs, 3);
}

/* What x has where the ids of the updates are. */
static mica_tensor take_there(const scattered *s, mica_tensor x)
{
    return s->nd ? mica__op1(s->graph, MICA_OP_GATHER_ND, NULL, (const mica_tensor[]){x, s->ids}, 2)
                 : mica__take(s->graph, x, s->ids, s->axis);
}

/* Places have numbers in their order; sizes are known. */
static mica_tensor numbered_places(const scattered *s)
{
    mica_graph *graph = s->graph;
    const mica__type ids = mica__type_copy(graph, s->ids);
    mica__type type = mica__type_copy(graph, s->updates);
    uint64_t places = 1;
    for (uint32_t d = 0; d + 1 < ids.ndim; d++) {
        if (!mica__size_known(ids.shape[d]))
            return mica__graph_fail(graph, MICA_ERR_UNSUPPORTED, "gradient",
                                    "scatter_nd of places whose number is not known yet");
        places *= ids.shape[d];
    }
    for (uint32_t d = ids.ndim - 1; d < type.ndim; d++)
        type.shape[d] = 1;
    return mica__reshape_to(graph, mica_graph_index(graph, MICA_DTYPE_I32, 1, &places, 0), &type);
}

/* As many as the updates have, each with its number along the axis. */
static mica_tensor numbered(const scattered *s)
{
    const uint32_t ndim = mica__type_of(s->graph, s->updates)->ndim;
    if (s->nd)
        return mica__repeat_to(s->graph, numbered_places(s), s->updates);
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
            mica__where(graph, mica_graph_equal(graph, take_there(s, last), number), take_there(s, s->dy));
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
        const mica_tensor there = take_there(s, zeros);
        const mica_tensor others = mica_graph_equal(graph, mica_graph_sub(graph, there, number), none);
        const mica_tensor reach = mica_graph_mul(graph, mica_graph_mul(graph, s->dy, s->before), product);
        const mica_tensor du = mica_graph_div(graph, take_there(s, reach), rest);
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
    const mica_tensor kept = take_there(s, s->after);
    const mica_tensor new_ones =
        mica_graph_cast(graph, mica_graph_equal(graph, s->updates, kept), MICA_DTYPE_F32);
    const mica_tensor old_ones =
        mica_graph_cast(graph, mica_graph_equal(graph, s->before, s->after), MICA_DTYPE_F32);
    mica_tensor share = scatter_onto(s, MICA_SCATTER_ADD, new_ones, old_ones);
    const mica_dtype dtype = mica__type_of(graph, s->dy)->dtype;
    share = mica_graph_div(graph, s->dy, mica_graph_cast(graph, share, dtype));
    if (b->wanted[0])
        b->dx[0] = mica_graph_mul(graph, take_there(s, share), mica_graph_cast(graph, new_ones, dtype));
    if (b->wanted[2])
        b->dx[2] = mica_graph_mul(graph, share, mica_graph_cast(graph, old_ones, dtype));
}

static void derive_by_mode(const scattered *s, uint32_t mode, mica__back *b)
{
    if (mode == MICA_SCATTER_ADD) {
        b->dx[0] = b->wanted[0] ? take_there(s, s->dy) : 0;
        b->dx[2] = s->dy;
    } else if (mode == MICA_SCATTER_SET) {
        derive_set(s, b);
    } else if (mode == MICA_SCATTER_MUL) {
        derive_mul(s, b);
    } else {
        derive_extreme(s, b);
    }
}

mica__derived mica__derive_scatter(mica__back *b)
{
    const mica_scatter_params *given = mica__op_params(&b->node);
    const mica_scatter_params params = given != NULL ? *given : (mica_scatter_params){.axis = 0};
    const scattered s = {b->graph, b->in[0], b->in[1], b->in[2], b->out[0], b->dy[0], params.axis, false};
    derive_by_mode(&s, params.mode, b);
    return MICA__DERIVED;
}

mica__derived mica__derive_scatter_nd(mica__back *b)
{
    const mica_scatter_nd_params *given = mica__op_params(&b->node);
    const scattered s = {b->graph, b->in[0], b->in[1], b->in[2], b->out[0], b->dy[0], 0, true};
    derive_by_mode(&s, given != NULL ? given->mode : MICA_SCATTER_SET, b);
    return MICA__DERIVED;
}

/* ---- places in several dimensions ---- */

/* ids [b.., m.., K] with the coordinates of the batch put in front. */
static mica_tensor whole_places(mica_graph *graph, mica_tensor ids, uint32_t batch)
{
    mica_tensor parts[MICA_MAX_DIMS + 1];
    mica__type type = mica__type_copy(graph, ids);
    type.shape[type.ndim - 1] = 1;
    for (uint32_t d = 0; d < batch; d++)
        parts[d] = mica_graph_index(graph, type.dtype, type.ndim, type.shape, d);
    parts[batch] = ids;
    return mica_graph_concat(graph, parts, batch + 1, type.ndim - 1);
}

mica__derived mica__derive_gather_nd(mica__back *b)
{
    mica_graph *graph = b->graph;
    const mica_gather_nd_params *params = mica__op_params(&b->node);
    const mica_scatter_nd_params add = {.mode = MICA_SCATTER_ADD};
    const mica_tensor ids = whole_places(graph, b->in[1], params != NULL ? params->batch_dims : 0);
    const mica_tensor zeros = mica__zeros_like(graph, b->in[0], mica__type_of(graph, b->dy[0])->dtype);
    b->dx[0] = mica__op1(graph, MICA_OP_SCATTER_ND, &add, (const mica_tensor[]){b->dy[0], ids, zeros}, 3);
    return MICA__DERIVED;
}

/* Inputs: x, condition; outputs: y, count. What went to place j comes from there, if there was room. */
mica__derived mica__derive_compress(mica__back *b)
{
    mica_graph *graph = b->graph;
    const mica_compress_params *given = mica__op_params(&b->node);
    const mica_compress_params params = given != NULL ? *given : (mica_compress_params){.axis = 0};
    const mica__type x = mica__type_copy(graph, b->in[0]), c = mica__type_copy(graph, b->in[1]),
                     y = mica__type_copy(graph, b->out[0]);
    const uint32_t axis = params.flat != 0 ? 0 : params.axis;
    const uint64_t n = params.flat != 0 ? mica__type_elements(&x) : x.shape[axis], m = y.shape[axis];
    if (!mica__size_known(n) || !mica__size_known(m) || !mica__size_known(c.shape[0])) {
        mica__back_refuses(b, "is along a size that is not known yet");
        return MICA__DERIVED;
    }
    mica_pad_params pad = {.mode = MICA_PAD_CONSTANT};
    pad.high[0] = (int64_t)n - (int64_t)c.shape[0];
    mica_tensor kept = mica_graph_cast(graph, b->in[1], MICA_DTYPE_BOOL);
    kept = mica__op1(graph, MICA_OP_PAD, &pad, &kept, 1);
    const mica_scan_params before = {.kind = MICA_SCAN_SUM, .exclusive = 1};
    const mica_tensor ones = mica_graph_cast(graph, kept, MICA_DTYPE_I32);
    const mica_tensor place = mica__op1(graph, MICA_OP_SCAN, &before, &ones, 1);
    kept = mica_graph_bit_and(
        graph, kept, mica_graph_less(graph, place, mica_graph_number(graph, MICA_DTYPE_I32, (double)m)));
    const mica_tensor from = mica__take(graph, b->dy[0], mica__where(graph, kept, place), axis);
    for (uint32_t d = axis + 1; params.flat == 0 && d < x.ndim; d++)
        kept = mica__widened(graph, kept, 1);
    b->dx[0] = mica__reshape_to(graph, mica__where(graph, kept, from), &x);
    return MICA__DERIVED;
}
