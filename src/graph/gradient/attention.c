/*
 * attention.c - derivatives of attention and of rotary embeddings. Attention goes back through its backward op; where a mask or slopes have a gradient, something
 * reaches lse, or the backward op is differentiated itself, it is written out over all scores.
 */
#include <math.h>
#include <string.h>

#include "graph/gradient/rules.h"

mica__derived mica__derive_rope(mica__back *b)
{
    const mica_rope_params *params = mica__op_params(&b->node);
    mica_rope_params back = *params;
    back.position_scale = params->position_scale == 0.0f ? -1.0f : -params->position_scale;
    b->dx[0] =
        mica__op1(b->graph, MICA_OP_ROPE, &back, (const mica_tensor[]){b->dy[0], b->in[1], b->in[2]}, 3);
    return MICA__DERIVED;
}

/* Inputs of attention, in the table's order. */
enum { Q, K, V, POSITIONS, LENGTHS, SEQUENCES, PAGES, MASK, SINKS, SLOPES, KEYS, INPUTS };

mica__derived mica__derive_attention(mica__back *b)
{
    mica_graph *graph = b->graph;
    const void *params = mica__op_params(&b->node);
    const mica_tensor *in = b->in;
    mica_tensor lse = b->out[1], y = b->out[0], out[4];
    if (b->dy[0] == 0 || b->dy[1] != 0 || b->wanted[MASK] || b->wanted[SLOPES] || in[SEQUENCES] != 0 ||
        in[PAGES] != 0 || in[KEYS] != 0 || ((const mica_attention_params *)params)->ring != 0)
        return MICA__DERIVE_EXPANDS;
    if (lse == 0) { /* nobody asked for it so far: the same op, asked for both */
        mica_tensor both[2];
        (void)mica_graph_op(graph, MICA_OP_ATTENTION, params, in, INPUTS, 3, NULL, both, 2);
        y = both[0];
        lse = both[1];
    }
    (void)mica_graph_op(graph, MICA_OP_ATTENTION_BACKWARD, params,
                        (const mica_tensor[]){in[Q], in[K], in[V], in[POSITIONS], in[LENGTHS], in[MASK],
                                              in[SINKS], in[SLOPES], y, lse, b->dy[0]},
                        11, b->wanted[SINKS] ? 15 : 7, NULL, out, 4);
    b->dx[Q] = out[0];
    b->dx[K] = out[1];
    b->dx[V] = out[2];
    b->dx[SINKS] = b->wanted[SINKS] ? out[3] : 0;
    return MICA__DERIVED;
}

/* ---- all scores: query heads are [groups, heads of a group], so that keys repeat ---- */

typedef struct scores {
    mica_graph *graph;
    mica_attention_params params;
    double scale;
    uint64_t groups;
    mica_tensor q, k, v; /* [G, R, T, D], [G, 1, S, D], [G, 1, S, V] */
    mica_tensor bare;    /* [G, R, T, S]: before the softcap */
    mica_tensor score;   /* with mask and slopes */
    mica_tensor seen;    /* bool, [T, S] or with heads */
    mica_tensor sinks;   /* [G, R, 1, 1] or 0 */
} scores;

/* [T, H, D] as [G, H / G, T, D] */
static mica_tensor heads_first(const scores *s, mica_tensor x)
{
    const mica__type type = mica__type_copy(s->graph, x);
    const mica_tensor transposed =
        mica_graph_permute(s->graph, mica__wide(s->graph, x), (const uint32_t[]){1, 0, 2});
    return mica_graph_reshape(s->graph, transposed, 4,
                              (const uint64_t[]){s->groups, MICA_SIZE_REST, type.shape[0], type.shape[2]});
}

/* Back to [T, H, D]. */
static mica_tensor tokens_first(const scores *s, mica_tensor x, mica_tensor like)
{
    const mica__type type = mica__type_copy(s->graph, like);
    const mica_tensor flat =
        mica_graph_reshape(s->graph, x, 3, (const uint64_t[]){type.shape[1], type.shape[0], type.shape[2]});
    return mica_graph_permute(s->graph, flat, (const uint32_t[]){1, 0, 2});
}

/* Which keys a query sees; [T, S]. */
static mica_tensor sight(const scores *s, mica_tensor positions, mica_tensor lengths, mica_tensor k)
{
    mica_graph *graph = s->graph;
    const mica_tensor key = mica__index_along(graph, k, 0);
    const mica_tensor at = mica__widened(graph, mica_graph_cast(graph, positions, MICA_DTYPE_I32), 1);
    mica_tensor seen = mica_graph_less(graph, key, mica_graph_cast(graph, lengths, MICA_DTYPE_I32));
    seen = mica_graph_bit_and(
        graph, seen, mica_graph_greater_equal(graph, at, mica_graph_number(graph, MICA_DTYPE_I32, 0)));
    if (s->params.bidirectional == 0)
        seen = mica_graph_bit_and(graph, seen, mica_graph_less_equal(graph, key, at));
    if (s->params.window != 0)
        seen = mica_graph_bit_and(
            graph, seen, mica_graph_greater(graph, key, mica__plus(graph, at, -(double)s->params.window)));
    return seen;
}

/* A tensor of heads, [H, ..], as [G, R, ..]. */
static mica_tensor by_group(const scores *s, mica_tensor x)
{
    mica__type type = mica__type_copy(s->graph, x);
    memmove(type.shape + 2, type.shape + 1, (type.ndim - 1) * sizeof type.shape[0]);
    type.shape[0] = s->groups;
    type.shape[1] = MICA_SIZE_REST;
    return mica_graph_reshape(s->graph, x, type.ndim + 1, type.shape);
}

/* The mask is added, or takes keys away; keys beyond its width are not seen. */
static void put_mask(scores *s, mica_tensor mask, mica_tensor k, mica_tensor *seen)
{
    mica_graph *graph = s->graph;
    const mica__type type = mica__type_copy(graph, mask);
    const uint64_t width = type.shape[type.ndim - 1], keys = mica__type_of(graph, k)->shape[0];
    if (width != keys && mica__size_known(width) && mica__size_known(keys)) {
        mica_pad_params pad = {.mode = MICA_PAD_CONSTANT};
        pad.high[type.ndim - 1] = (int64_t)keys - (int64_t)width;
        mask = mica__op1(graph, MICA_OP_PAD, &pad, &mask, 1);
        *seen = mica_graph_bit_and(graph, *seen,
                                   mica_graph_less(graph, mica__index_along(graph, k, 0),
                                                   mica_graph_number(graph, MICA_DTYPE_I32, (double)width)));
    }
    if (type.ndim == 3)
        mask = by_group(s, mask);
    if (type.dtype == MICA_DTYPE_BOOL)
        *seen = mica_graph_bit_and(graph, *seen, mask);
    else
        s->score = mica_graph_add(graph, s->score,
                                  mica_graph_cast(graph, mask, mica__type_of(graph, s->score)->dtype));
}

static mica_tensor sinks_of(const scores *s, mica_tensor sinks)
{
    const mica_dtype dtype = mica__type_of(s->graph, s->score)->dtype;
    return mica__widened(s->graph,
                         mica__widened(s->graph, by_group(s, mica_graph_cast(s->graph, sinks, dtype)), 2), 3);
}

/* Of q, k, v, positions, lengths, mask, sinks, slopes. False: refused. */
static bool scores_of(mica__back *b, const mica_tensor *in, const mica_tensor *extra, scores *s)
{
    mica_graph *graph = b->graph;
    const mica__type q = mica__type_copy(graph, in[Q]), k = mica__type_copy(graph, in[K]);
    *s = (scores){.graph = graph, .params = *(const mica_attention_params *)mica__op_params(&b->node)};
    s->groups = k.shape[1];
    s->scale = s->params.scale != 0.0f ? (double)s->params.scale : 1 / sqrt((double)q.shape[2]);
    if (k.ndim != 3 || !mica__is_real(k.dtype) || !mica__size_known(k.shape[1]) ||
        !mica__size_known(q.shape[2]) || !mica__size_known(q.shape[1])) {
        mica__back_refuses(b, "has a cache of pages or blocks, or heads of a number that is not known yet");
        return false;
    }
    s->q = heads_first(s, in[Q]);
    s->k = heads_first(s, in[K]);
    s->v = heads_first(s, in[V]);
    s->bare = mica__times(graph, mica__product(graph, s->q, mica__transposed(graph, s->k)), s->scale);
    s->score = s->bare;
    if (s->params.softcap > 0.0f)
        s->score = mica_graph_softcap(graph, s->bare, s->params.softcap);
    s->seen = sight(s, in[POSITIONS], in[LENGTHS], in[K]);
    if (extra[0] != 0)
        put_mask(s, extra[0], in[K], &s->seen);
    if (extra[1] != 0)
        s->sinks = sinks_of(s, extra[1]);
    if (extra[2] != 0) {
        const mica_tensor at = mica__widened(graph, mica_graph_cast(graph, in[POSITIONS], MICA_DTYPE_I32), 1);
        const mica_tensor far = mica_graph_sub(graph, mica__index_along(graph, in[K], 0), at);
        const mica_dtype dtype = mica__type_of(graph, s->score)->dtype;
        s->score =
            mica_graph_add(graph, s->score,
                           mica_graph_mul(graph, sinks_of(s, extra[2]), mica_graph_cast(graph, far, dtype)));
    }
    return graph->status == MICA_OK;
}

void mica__expand_attention(mica__back *b, mica_tensor *out)
{
    mica_graph *graph = b->graph;
    const mica_tensor *in = b->in;
    scores s;
    if (in[SEQUENCES] != 0 || in[PAGES] != 0 || in[KEYS] != 0 ||
        ((const mica_attention_params *)mica__op_params(&b->node))->ring != 0) {
        mica__back_refuses(b, "has no derivative with pages, sequences, chosen keys or a ring");
        return;
    }
    if (!scores_of(b, in, (const mica_tensor[]){in[MASK], in[SINKS], in[SLOPES]}, &s))
        return;
    const mica_tensor low = mica__number(graph, s.score, -HUGE_VAL);
    const mica_tensor seen = mica_graph_select(graph, s.seen, s.score, low);
    mica_tensor lse = mica__reduce_last(graph, MICA_REDUCE_LOGSUMEXP, seen, 1);
    if (s.sinks != 0) { /* log(e^lse + e^sink), by the greater */
        const mica_tensor sinks = mica__repeat_to(graph, s.sinks, lse);
        lse = mica_graph_reduce(graph, MICA_REDUCE_LOGSUMEXP,
                                mica_graph_concat(graph, (const mica_tensor[]){lse, sinks}, 2, 3),
                                (const int32_t[]){3}, 1, 1);
    }
    const mica_tensor none = mica_graph_equal(graph, lse, low);
    const mica_tensor safe = mica_graph_select(graph, none, mica__number(graph, lse, 0), lse);
    const mica_tensor p = mica_graph_exp(graph, mica_graph_sub(graph, seen, safe));
    out[0] = tokens_first(&s, mica__product(graph, p, s.v), b->out[0]);
    if (b->dy[1] != 0) {
        const mica__type type = mica__type_copy(graph, b->out[1]);
        const uint64_t shape[] = {type.shape[1], type.shape[0]};
        out[1] = mica__transposed(graph, mica_graph_reshape(graph, lse, 2, shape));
    }
}

/* Inputs: q, k, v, positions, lengths, mask, sinks, slopes, y, lse, dy; outputs dq, dk, dv, dsinks. */
void mica__expand_attention_backward(mica__back *b, mica_tensor *out)
{
    enum { B_MASK = 5, B_SINKS, B_SLOPES, B_Y, B_LSE, B_DY };
    mica_graph *graph = b->graph;
    const mica_tensor *in = b->in;
    scores s;
    if (!scores_of(b, in, in + B_MASK, &s))
        return;
    const mica_tensor zero = mica__number(graph, s.score, 0), low = mica__number(graph, s.score, -HUGE_VAL);
    mica_tensor lse = mica__widened(graph, by_group(&s, mica__transposed(graph, in[B_LSE])), 3);
    lse = mica_graph_select(graph, mica_graph_equal(graph, lse, low), zero, lse);
    const mica_tensor p =
        mica_graph_exp(graph, mica_graph_sub(graph, mica_graph_select(graph, s.seen, s.score, low), lse));
    const mica_tensor dy = heads_first(&s, in[B_DY]), y = heads_first(&s, in[B_Y]);
    const mica_tensor delta = mica__reduce_last(graph, MICA_REDUCE_SUM, mica_graph_mul(graph, dy, y), 1);
    const mica_tensor dp = mica__product(graph, dy, mica__transposed(graph, s.v));
    mica_tensor ds = mica_graph_mul(graph, p, mica_graph_sub(graph, dp, delta));
    if (s.params.softcap > 0.0f) {
        const mica_tensor t =
            mica_graph_tanh(graph, mica__times(graph, s.bare, 1 / (double)s.params.softcap));
        ds = mica_graph_mul(graph, ds,
                            mica__plus(graph, mica_graph_neg(graph, mica_graph_square(graph, t)), 1));
    }
    ds = mica__times(graph, ds, s.scale);
    const int32_t heads = 1;
    const mica_tensor dk = mica_graph_reduce(
        graph, MICA_REDUCE_SUM, mica__product(graph, mica__transposed(graph, ds), s.q), &heads, 1, 1);
    const mica_tensor dv = mica_graph_reduce(
        graph, MICA_REDUCE_SUM, mica__product(graph, mica__transposed(graph, p), dy), &heads, 1, 1);
    out[0] = tokens_first(&s, mica__product(graph, ds, s.k), b->out[0]);
    out[1] = tokens_first(&s, dk, b->out[1]);
    out[2] = tokens_first(&s, dv, b->out[2]);
    if (b->dy[3] != 0) {
        const mica_tensor sink = mica_graph_exp(graph, mica_graph_sub(graph, s.sinks, lse));
        const mica_tensor each = mica_graph_neg(graph, mica_graph_mul(graph, sink, delta));
        const uint64_t all = MICA_SIZE_REST;
        out[3] = mica_graph_reshape(
            graph, mica_graph_reduce(graph, MICA_REDUCE_SUM, each, (const int32_t[]){2, 3}, 2, 0), 1, &all);
    }
}
