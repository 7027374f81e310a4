/*
 * unrolled.c - backward ops of recurrences in nodes that have derivatives: the recurrence is written out as a scan over its tokens, with all sequences side by side, and that is
 * differentiated. What the op itself does in one pass costs a state for each token here, so this is for derivatives of derivatives alone.
 *
 * Sequences of lengths that only the run knows (`starts`) are one scan over all tokens, whose state is set anew where a sequence begins.
 */
#include <math.h>
#include <string.h>

#include "graph/gradient/ragged.h"

enum { MOST_OPERANDS = 8, MOST_INPUTS = 10 };
/* Inputs of a backward op behind the operands. */
enum { STATE, STARTS, READ_SLOTS, DY, DNEXT };

typedef struct unrolled {
    mica_graph *graph;
    const void *params;
    uint64_t count;             /* N */
    uint64_t sequences, tokens; /* that lie side by side, and of each: N and T / N, with starts 1 and T */
    const mica_tensor *in;      /* the operands, of f32 or f64; 0: absent */
    mica_tensor state;          /* [N, ..]; 0: zeros */
    mica_tensor y, next;        /* written: [T, ..] and [N, ..] */
    bool has_starts;
    mica__ragged ragged; /* where it has */
} unrolled;

typedef void unroll(unrolled *u);

/* ---- words ---- */

/* [T, ..] as [N, T / N, ..]. */
static mica_tensor apart(const unrolled *u, mica_tensor x)
{
    mica__type type = mica__type_copy(u->graph, x);
    memmove(type.shape + 2, type.shape + 1, (type.ndim - 1) * sizeof type.shape[0]);
    type.shape[0] = u->sequences;
    type.shape[1] = u->tokens;
    type.ndim++;
    return mica__reshape_to(u->graph, x, &type);
}

/* [N, T / N, ..] as [T / N, N, ..], or back. */
static mica_tensor by_time(const unrolled *u, mica_tensor x)
{
    uint32_t order[MICA_MAX_DIMS] = {1, 0, 2, 3, 4, 5, 6, 7};
    return mica_graph_permute(u->graph, x, order);
}

/* [N, T / N, ..] as the tokens [T, ..] of the shape of `like`. */
static mica_tensor together(const unrolled *u, mica_tensor x, const uint64_t *rest, uint32_t rest_count)
{
    uint64_t shape[MICA_MAX_DIMS] = {MICA_SIZE_REST};
    memcpy(shape + 1, rest, rest_count * sizeof *shape);
    return mica_graph_reshape(u->graph, x, rest_count + 1, shape);
}

/* The heads [.., G, D] of dimension `at` as [.., H, D]: each stands for its neighbours too. */
static mica_tensor heads(const unrolled *u, mica_tensor x, uint32_t at, uint64_t count)
{
    mica__type type = mica__type_copy(u->graph, x);
    const uint64_t groups = type.shape[at];
    if (groups == count || groups == 0)
        return x;
    const mica_tensor wide = mica__widened(u->graph, x, at + 1);
    mica__type repeated = mica__type_copy(u->graph, wide);
    repeated.shape[at + 1] = count / groups;
    const mica_tensor all = mica_graph_expand(u->graph, wide, repeated.ndim, repeated.shape);
    type.shape[at] = count;
    return mica__reshape_to(u->graph, all, &type);
}

static mica_tensor summed(mica_graph *graph, mica_tensor x, int32_t axis, uint32_t keep)
{
    return mica_graph_reduce(graph, MICA_REDUCE_SUM, x, &axis, 1, keep);
}

static mica_tensor silu(mica_graph *graph, mica_tensor x)
{
    return mica_graph_mul(graph, x, mica_graph_sigmoid(graph, x));
}

/* The state that the scan begins with, [sequences, ..] of this shape. */
static mica_tensor beginning(const unrolled *u, mica_tensor like, uint32_t ndim, const uint64_t *shape)
{
    return u->state != 0 && !u->has_starts
               ? u->state
               : mica_graph_fill(u->graph, mica__type_of(u->graph, like)->dtype, ndim, shape, 0);
}

/* A scan over the tokens: what goes in, and the body. */
typedef struct token_scan {
    mica_tensor input[MOST_INPUTS]; /* the state, slices, others */
    uint32_t scanned, others, reverse;
    mica_graph *body;
} token_scan;

/* What the state becomes where a sequence begins, for each token, and where that is. */
static void add_beginnings(const unrolled *u, token_scan *t)
{
    mica_graph *graph = u->graph;
    t->input[1 + t->scanned++] = mica__ragged_first(graph, &u->ragged, t->reverse != 0);
    if (u->state != 0)
        t->input[1 + t->scanned++] = mica__widened(graph, mica__take(graph, u->state, u->ragged.of, 0), 1);
}

/* A body whose inputs in[] are the carried state and a slice of each of `scanned`, then `others`; false: there is none. */
static bool begin_body(const unrolled *u, const mica_tensor *inputs, uint32_t scanned, uint32_t others,
                       uint32_t reverse, mica_tensor *in, token_scan *t)
{
    mica_tensor inner[MOST_INPUTS] = {0};
    *t = (token_scan){.scanned = scanned, .others = others, .reverse = reverse};
    memcpy(t->input, inputs, (1 + scanned) * sizeof *inputs);
    if (u->has_starts)
        add_beginnings(u, t);
    memcpy(t->input + 1 + t->scanned, inputs + 1 + scanned, others * sizeof *inputs);
    const mica_status status = mica_graph_create(&t->body);
    if (status != MICA_OK)
        return mica__graph_fail(u->graph, status, "gradient", "no memory for a sub-graph") != 0;
    for (uint32_t i = 0; i < 1 + t->scanned + others && u->graph->status == MICA_OK; i++) {
        const mica__type type = mica__type_copy(u->graph, t->input[i]);
        const uint32_t lead = i >= 1 && i < 1 + t->scanned;
        const char name[] = {(char)('a' + i), 0};
        inner[i] = mica_graph_input(t->body, name, type.dtype, type.ndim - lead, type.shape + lead);
    }
    if (u->graph->status != MICA_OK) {
        mica_graph_release(t->body);
        return false;
    }
    memcpy(in, inner, (1 + scanned) * sizeof *in);
    memcpy(in + 1 + scanned, inner + 1 + t->scanned, others * sizeof *in);
    if (u->has_starts) {
        const mica_tensor fresh = u->state != 0 ? inner[2 + scanned] : mica__number(t->body, inner[0], 0);
        in[0] = mica_graph_select(t->body, inner[1 + scanned], fresh, inner[0]);
    }
    return true;
}

/* Ends the body with the next state and what a token gives, and goes through the tokens: what all of them give, [tokens, ..]; u->next is written. */
static mica_tensor end_body(unrolled *u, token_scan *t, mica_tensor state, mica_tensor slice)
{
    const mica_scan_desc desc = {
        .carried = 1, .scanned = t->scanned, .others = t->others, .reverse = t->reverse, .length = u->tokens};
    mica_tensor out[3] = {0, 0, 0};
    mica_graph_output(t->body, "state", state);
    mica_graph_output(t->body, "slice", slice);
    if (u->has_starts)
        mica_graph_output(t->body, "each", state);
    (void)mica_graph_scan(u->graph, t->body, &desc, t->input, out, u->has_starts ? 3 : 2);
    mica_graph_release(t->body);
    u->next = out[0];
    if (u->has_starts && u->graph->status == MICA_OK) {
        mica__type each = mica__type_copy(u->graph, out[2]); /* [T, 1, ..] */
        memmove(each.shape + 1, each.shape + 2, (--each.ndim - 1) * sizeof each.shape[0]);
        u->next = mica__ragged_last(u->graph, &u->ragged, t->reverse != 0,
                                    mica__reshape_to(u->graph, out[2], &each), u->state);
    }
    return out[1];
}

/* ---- the recurrences, as ops_recurrent.h says them ---- */

/* What stood `back` tokens before each, [1, T, C], of rows [1, T, C]; before a sequence its state's, of which `before` rows [N before, C] are `old`, or 0: zeros. */
static mica_tensor earlier(const unrolled *u, mica_tensor rows, mica_tensor old, uint64_t before,
                           uint64_t back)
{
    mica_graph *graph = u->graph;
    const mica__ragged *r = &u->ragged;
    mica_pad_params pad = {.mode = MICA_PAD_CONSTANT};
    pad.low[1] = (int64_t)back;
    pad.high[1] = -(int64_t)back;
    const mica_tensor index = mica_graph_index(graph, MICA_DTYPE_I32, 1, &r->tokens, 0);
    const mica_tensor behind = mica_graph_sub(graph, index, mica__take(graph, r->begin, r->of, 0));
    const mica_tensor limit = mica_graph_number(graph, MICA_DTYPE_I32, (double)back);
    mica_tensor held = 0;
    if (old != 0) { /* row `before - back + behind` of the state */
        const mica_tensor last = mica_graph_number(graph, MICA_DTYPE_I32, (double)before - 1);
        const mica_tensor first = mica_graph_number(graph, MICA_DTYPE_I32, 0);
        mica_tensor at = mica_graph_add(graph, behind, mica_graph_sub(graph, last, limit));
        at = mica_graph_add(graph, at, mica_graph_number(graph, MICA_DTYPE_I32, 1));
        at = mica_graph_min(graph, mica_graph_max(graph, at, first), last);
        const mica_tensor of =
            mica_graph_mul(graph, r->of, mica_graph_number(graph, MICA_DTYPE_I32, (double)before));
        held = mica__widened(graph, mica__take(graph, old, mica_graph_add(graph, of, at), 0), 0);
    }
    mica_tensor inside = mica_graph_greater_equal(graph, behind, limit);
    inside = mica__widened(graph, mica__widened(graph, inside, 0), 2);
    const mica_tensor moved = back == 0 ? rows : mica__op1(graph, MICA_OP_PAD, &pad, &rows, 1);
    return mica_graph_select(graph, inside, moved, held != 0 ? held : mica__number(graph, moved, 0));
}

/* The last `before` inputs of each sequence, [N, C, before], of rows [1, T, C]. */
static mica_tensor last_inputs(const unrolled *u, mica_tensor rows, mica_tensor old, uint64_t before)
{
    mica_graph *graph = u->graph;
    const mica__ragged *r = &u->ragged;
    const uint64_t shape[] = {r->count, before}, flat = r->count * before,
                   channels = mica__type_of(graph, rows)->shape[2];
    const mica_tensor begin = mica__widened(graph, r->begin, 1), end = mica__widened(graph, r->end, 1),
                      zero = mica_graph_number(graph, MICA_DTYPE_I32, 0),
                      width = mica_graph_number(graph, MICA_DTYPE_I32, (double)before);
    const mica_tensor i = mica_graph_index(graph, MICA_DTYPE_I32, 2, shape, 1);
    const mica_tensor at = mica_graph_add(graph, mica_graph_sub(graph, end, width), i);
    const mica_tensor most = mica_graph_number(graph, MICA_DTYPE_I32, (double)r->tokens - 1);
    const mica_tensor there = mica_graph_min(graph, mica_graph_max(graph, at, zero), most);
    const mica_tensor of_rows = mica_graph_reshape(graph, rows, 2, (const uint64_t[]){r->tokens, channels});
    const mica_tensor taken = mica__take(graph, of_rows, mica_graph_reshape(graph, there, 1, &flat), 0);
    mica_tensor held = 0;
    if (old != 0) {
        const mica_tensor n = mica_graph_index(graph, MICA_DTYPE_I32, 2, shape, 0);
        mica_tensor row = mica_graph_add(graph, mica_graph_sub(graph, at, begin), width);
        row = mica_graph_min(graph, mica_graph_max(graph, row, zero),
                             mica_graph_number(graph, MICA_DTYPE_I32, (double)before - 1));
        row = mica_graph_add(graph, mica_graph_mul(graph, n, width), row);
        held = mica__take(graph, old, mica_graph_reshape(graph, row, 1, &flat), 0);
    }
    const mica_tensor own = mica_graph_greater_equal(graph, at, begin);
    const mica_tensor all = mica__ragged_choose(graph, mica_graph_reshape(graph, own, 1, &flat), taken, held);
    return mica__transposed(
        graph, mica_graph_reshape(graph, all, 3, (const uint64_t[]){r->count, before, channels}));
}

static void unroll_ssm_conv(unrolled *u)
{
    mica_graph *graph = u->graph;
    const mica_ssm_conv_params *params = u->params;
    const mica__type weight = mica__type_copy(graph, u->in[1]);
    const uint64_t channels = weight.shape[0], before = weight.shape[1] - 1;
    mica_tensor rows = apart(u, u->in[0]), old = 0, y = 0;
    if (before != 0 && u->has_starts && u->state != 0)
        old = mica_graph_reshape(graph, mica__transposed(graph, u->state), 2,
                                 (const uint64_t[]){u->count * before, channels});
    if (before != 0 && !u->has_starts) {
        const mica_tensor state = beginning(u, rows, 3, (const uint64_t[]){u->sequences, channels, before});
        const mica_tensor both[] = {mica__transposed(graph, state), rows};
        rows = mica_graph_concat(graph, both, 2, 1);
    }
    for (uint64_t k = 0; k <= before; k++) {
        const mica_tensor tap = mica_graph_slice(graph, u->in[1], 1, k, 1, 1);
        const mica_tensor by = mica_graph_reshape(graph, tap, 1, &channels);
        const mica_tensor seen = u->has_starts ? earlier(u, rows, old, before, before - k)
                                               : mica_graph_slice(graph, rows, 1, k, u->tokens, 1);
        const mica_tensor part = mica_graph_mul(graph, seen, by);
        y = y == 0 ? part : mica_graph_add(graph, y, part);
    }
    if (u->in[2] != 0)
        y = mica_graph_add(graph, y, u->in[2]);
    if (params != NULL && params->activation == MICA_SSM_SILU)
        y = silu(graph, y);
    u->y = together(u, y, &channels, 1);
    if (before != 0 && u->has_starts)
        u->next = last_inputs(u, rows, old, before);
    else if (before != 0)
        u->next = mica__transposed(graph, mica_graph_slice(graph, rows, 1, u->tokens, before, 1));
}

/* in: x, dt, a, b, c, skip, dt_bias, z. */
static void unroll_selective(unrolled *u)
{
    enum { X, DT, A, B, C, SKIP, DT_BIAS, Z };
    mica_graph *graph = u->graph;
    const mica_selective_params *params = u->params;
    const mica__type a = mica__type_copy(graph, u->in[A]);
    const mica_tensor x = apart(u, u->in[X]);
    mica_tensor dt = apart(u, u->in[DT]), in[3];
    token_scan t;
    if (u->in[DT_BIAS] != 0)
        dt = mica_graph_add(graph, dt, u->in[DT_BIAS]);
    if (params != NULL && params->softplus != 0)
        dt = mica_graph_softplus(graph, dt);
    const mica_tensor b = heads(u, apart(u, u->in[B]), 2, a.shape[0]);
    const mica_tensor c = heads(u, apart(u, u->in[C]), 2, a.shape[0]);
    const mica_tensor decay =
        mica_graph_exp(graph, mica_graph_mul(graph, mica__widened(graph, dt, 3), u->in[A]));
    const mica_tensor taken = mica_graph_mul(graph, mica__widened(graph, mica_graph_mul(graph, dt, x), 3), b);
    const mica_tensor inputs[] = {
        beginning(u, x, 3, (const uint64_t[]){u->sequences, a.shape[0], a.shape[1]}), by_time(u, decay),
        by_time(u, taken)};
    if (!begin_body(u, inputs, 2, 0, 0, in, &t))
        return;
    const mica_tensor state = mica_graph_add(t.body, mica_graph_mul(t.body, in[1], in[0]), in[2]);
    const mica_tensor states = end_body(u, &t, state, state);
    mica_tensor y = summed(graph, mica_graph_mul(graph, c, by_time(u, states)), -1, 0);
    if (u->in[SKIP] != 0)
        y = mica_graph_add(graph, y, mica_graph_mul(graph, x, u->in[SKIP]));
    if (u->in[Z] != 0)
        y = mica_graph_mul(graph, y, silu(graph, apart(u, u->in[Z])));
    u->y = together(u, y, a.shape, 1);
}

/* x divided by the root of the sum of its squares. */
static mica_tensor of_length_one(mica_graph *graph, mica_tensor x, double eps)
{
    const int32_t last = -1;
    const mica_tensor squares = mica_graph_reduce(graph, MICA_REDUCE_SUM_SQUARES, x, &last, 1, 1);
    return mica_graph_mul(graph, x, mica_graph_rsqrt(graph, mica__plus(graph, squares, eps)));
}

/* in: q, k, v, g, beta, skip. States [N, H, D, V]. */
static void unroll_delta(unrolled *u)
{
    enum { Q, K, V, G, BETA, SKIP };
    static const mica_delta_params none;
    mica_graph *graph = u->graph;
    const mica_delta_params *params = u->params == NULL ? &none : u->params;
    const mica__type value = mica__type_copy(graph, u->in[V]);
    const uint64_t count = value.shape[1], width = value.shape[2],
                   dim = mica__type_of(graph, u->in[K])->shape[2];
    mica_tensor q = apart(u, u->in[Q]), k = apart(u, u->in[K]), in[6];
    token_scan t;
    const mica_tensor v = apart(u, u->in[V]);
    if (params->normalise != 0) {
        q = of_length_one(graph, q, (double)params->eps);
        k = of_length_one(graph, k, (double)params->eps);
    }
    const double scale = params->scale != 0.0f ? (double)params->scale : 1 / sqrt((double)dim);
    q = heads(u, mica__times(graph, q, scale), 2, count);
    k = heads(u, k, 2, count);
    mica_tensor decay = mica__plus(graph, mica__times(graph, summed(graph, v, -1, 0), 0), 1), beta = decay;
    if (u->in[G] != 0)
        decay = mica_graph_exp(graph, apart(u, u->in[G]));
    if (u->in[BETA] != 0)
        beta = apart(u, u->in[BETA]);
    if (mica__type_of(graph, decay)->ndim == 3)
        decay = mica__widened(graph, decay, 3);
    const mica_tensor inputs[] = {beginning(u, v, 4, (const uint64_t[]){u->sequences, count, dim, width}),
                                  by_time(u, mica__widened(graph, q, 4)),
                                  by_time(u, mica__widened(graph, k, 4)),
                                  by_time(u, mica__widened(graph, v, 3)),
                                  by_time(u, mica__widened(graph, decay, 4)),
                                  by_time(u, mica__widened(graph, mica__widened(graph, beta, 3), 4))};
    if (!begin_body(u, inputs, 5, 0, 0, in, &t))
        return;
    mica_graph *body = t.body;
    const mica_tensor kept = mica_graph_mul(body, in[4], in[0]);
    mica_tensor learned = in[3];
    if (params->rule == MICA_DELTA_CORRECT)
        learned = mica_graph_sub(body, in[3], summed(body, mica_graph_mul(body, in[2], kept), 2, 1));
    learned = mica_graph_mul(body, in[5], learned);
    const mica_tensor state = mica_graph_add(body, kept, mica_graph_mul(body, in[2], learned));
    const mica_tensor read = summed(body, mica_graph_mul(body, in[1], state), 2, 0);
    mica_tensor y = by_time(u, end_body(u, &t, state, read));
    if (u->in[SKIP] != 0)
        y = mica_graph_add(graph, y, mica_graph_mul(graph, v, mica__widened(graph, u->in[SKIP], 1)));
    u->y = together(u, y, value.shape + 1, 2);
}

/* The new h, and of LSTM the new c, of p = weight h + bias and the token's x; gates are [N, H] each. */
static mica_tensor cell(mica_graph *body, uint32_t kind, mica_tensor x, mica_tensor p, mica_tensor h,
                        mica_tensor c, uint64_t width, mica_tensor *out_c)
{
    mica_tensor xs[4] = {0}, ps[4] = {0}, sum[4] = {0};
    const uint64_t gates = kind == MICA_RNN_LSTM ? 4 : kind == MICA_RNN_GRU ? 3 : 1;
    for (uint64_t i = 0; i < gates; i++) {
        xs[i] = mica_graph_slice(body, x, 1, i * width, width, 1);
        ps[i] = mica_graph_slice(body, p, 1, i * width, width, 1);
        sum[i] = mica_graph_add(body, xs[i], ps[i]);
    }
    if (kind == MICA_RNN_TANH)
        return mica_graph_tanh(body, sum[0]);
    if (kind == MICA_RNN_RELU)
        return mica_graph_relu(body, sum[0]);
    const mica_tensor first = mica_graph_sigmoid(body, sum[0]), second = mica_graph_sigmoid(body, sum[1]);
    if (kind == MICA_RNN_GRU) {
        const mica_tensor n =
            mica_graph_tanh(body, mica_graph_add(body, xs[2], mica_graph_mul(body, first, ps[2])));
        return mica_graph_add(body, n, mica_graph_mul(body, second, mica_graph_sub(body, h, n)));
    }
    *out_c = mica_graph_add(body, mica_graph_mul(body, second, c),
                            mica_graph_mul(body, first, mica_graph_tanh(body, sum[2])));
    return mica_graph_mul(body, mica_graph_sigmoid(body, sum[3]), mica_graph_tanh(body, *out_c));
}

/* in: x [T, F], weight [F, H], bias. States [N, 1 or 2, H]. */
static void unroll_rnn(unrolled *u)
{
    static const mica_rnn_params none;
    mica_graph *graph = u->graph;
    const mica_rnn_params *params = u->params == NULL ? &none : u->params;
    const uint64_t width = mica__type_of(graph, u->in[1])->shape[1];
    const uint64_t parts = params->kind == MICA_RNN_LSTM ? 2 : 1, shape[] = {u->sequences, parts, width};
    mica_tensor in[4] = {0}, next_c = 0;
    token_scan t;
    const mica_tensor inputs[] = {beginning(u, u->in[0], 3, shape), by_time(u, apart(u, u->in[0])), u->in[1],
                                  u->in[2]};
    const uint32_t others = u->in[2] != 0 ? 2 : 1;
    if (!begin_body(u, inputs, 1, others, params->reverse, in, &t))
        return;
    mica_graph *body = t.body;
    const uint64_t flat[] = {u->sequences, width}, one[] = {u->sequences, 1, width};
    const mica_tensor h = mica_graph_reshape(body, mica_graph_slice(body, in[0], 1, 0, 1, 1), 2, flat);
    const mica_tensor c =
        parts == 2 ? mica_graph_reshape(body, mica_graph_slice(body, in[0], 1, 1, 1, 1), 2, flat) : 0;
    mica_tensor p = mica_graph_matmul(body, h, mica__transposed(body, in[2]));
    if (others == 2)
        p = mica_graph_add(body, p, in[3]);
    const mica_tensor next = cell(body, params->kind, in[1], p, h, c, width, &next_c);
    mica_tensor state = mica_graph_reshape(body, next, 3, one);
    if (parts == 2)
        state = mica_graph_concat(
            body, (const mica_tensor[]){state, mica_graph_reshape(body, next_c, 3, one)}, 2, 1);
    u->y = together(u, by_time(u, end_body(u, &t, state, next)), &width, 1);
}

/* ---- their derivatives ---- */

/* N and the tokens of each; false: the node is refused. */
static bool count_sequences(mica__back *b, const mica_tensor *more, unrolled *u)
{
    const mica_graph *graph = b->graph;
    const mica_tensor says = more[READ_SLOTS] != 0 ? more[READ_SLOTS]
                             : more[STATE] != 0    ? more[STATE]
                                                   : more[DNEXT];
    const uint64_t tokens = mica__type_of(graph, b->in[0])->shape[0];
    const uint64_t starts = more[STARTS] == 0 ? 2 : mica__type_of(graph, more[STARTS])->shape[0];
    u->has_starts = more[STARTS] != 0;
    u->count = u->has_starts ? starts - 1 : says == 0 ? 1 : mica__type_of(graph, says)->shape[0];
    u->sequences = u->has_starts ? 1 : u->count;
    if (!mica__size_known(tokens) || !mica__size_known(starts) || !mica__size_known(u->count) ||
        u->count == 0 || tokens < u->sequences || tokens % u->sequences != 0)
        mica__back_refuses(b, "has a second derivative where tokens and sequences are known numbers alone");
    else
        u->tokens = tokens / u->sequences;
    return graph->status == MICA_OK;
}

static mica_tensor state_of(mica__back *b, const mica_tensor *more, const unrolled *u)
{
    if (more[STATE] == 0 || more[READ_SLOTS] != 0)
        return more[STATE] == 0 ? 0 : mica__take(b->graph, more[STATE], more[READ_SLOTS], 0);
    return mica_graph_slice(b->graph, more[STATE], 0, 0, u->count, 1);
}

static void expand(mica__back *b, mica_tensor *out, uint32_t operands, unroll *write_out)
{
    mica_graph *graph = b->graph;
    const mica_tensor *more = b->in + operands;
    mica_tensor wide[MOST_OPERANDS] = {0}, of[MOST_OPERANDS + 1], got[MOST_OPERANDS + 1] = {0};
    uint32_t place[MOST_OPERANDS + 1], count = 0;
    unrolled u = {.graph = graph, .params = mica__op_params(&b->node), .in = wide};
    if (!count_sequences(b, more, &u))
        return;
    for (uint32_t i = 0; i < operands; i++)
        if (b->in[i] != 0) {
            place[count] = i;
            of[count] = mica__another(graph, b->in[i]);
            wide[i] = mica__wide(graph, of[count++]);
        }
    const mica_tensor state = state_of(b, more, &u);
    if (state != 0) {
        place[count] = operands;
        of[count] = mica__another(graph, state);
        u.state = mica__wide(graph, of[count++]);
    }
    if (u.has_starts)
        mica__ragged_make(graph, more[STARTS], u.tokens, &u.ragged);
    write_out(&u);
    if (graph->status != MICA_OK)
        return;
    if (u.has_starts) /* tokens that no sequence has give zeros */
        u.y = mica__ragged_choose(graph, u.ragged.has, u.y, 0);
    const bool both = more[DNEXT] != 0 && u.next != 0;
    const mica_tensor values[] = {u.y, u.next};
    const mica_tensor seeds[] = {
        mica_graph_cast(graph, more[DY], mica__type_of(graph, u.y)->dtype),
        both ? mica_graph_cast(graph, more[DNEXT], mica__type_of(graph, u.next)->dtype) : 0};
    if (!mica__gradients(graph, values, seeds, both ? 2 : 1, of, count, got))
        return;
    for (uint32_t i = 0; i < count; i++)
        out[place[i]] = b->out[place[i]] == 0 ? 0 : got[i];
    if (state == 0 && b->out[operands] != 0)
        out[operands] =
            mica__zeros_like(graph, b->out[operands], mica__type_of(graph, b->out[operands])->dtype);
}

void mica__expand_ssm_conv_backward(mica__back *b, mica_tensor *out)
{
    expand(b, out, 3, unroll_ssm_conv);
}

void mica__expand_delta_net_backward(mica__back *b, mica_tensor *out)
{
    expand(b, out, 6, unroll_delta);
}

void mica__expand_selective_scan_backward(mica__back *b, mica_tensor *out)
{
    expand(b, out, 8, unroll_selective);
}

void mica__expand_rnn_backward(mica__back *b, mica_tensor *out)
{
    expand(b, out, 3, unroll_rnn);
}
