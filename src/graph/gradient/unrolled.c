/*
 * unrolled.c - backward ops of recurrences in nodes that have derivatives: the recurrence is written out as a scan over its tokens, with all sequences side by side, and that is
 * differentiated. What the op itself does in one pass costs a state for each token here, so this is for derivatives of derivatives alone.
 *
 * Sequences of lengths that only the run knows (`starts`) stay refused by name.
 */
#include <math.h>
#include <string.h>

#include "graph/gradient/rules.h"

enum { MOST_OPERANDS = 8, MOST_INPUTS = 8 };
/* Inputs of a backward op behind the operands. */
enum { STATE, STARTS, READ_SLOTS, DY, DNEXT };

typedef struct unrolled {
    mica_graph *graph;
    const void *params;
    uint64_t sequences, tokens; /* N, and of each */
    const mica_tensor *in;      /* the operands, of f32 or f64; 0: absent */
    mica_tensor state;          /* [N, ..]; 0: zeros */
    mica_tensor y, next;        /* written: [T, ..] and [N, ..] */
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

/* The state that sequences begin with, [N, ..] of this shape. */
static mica_tensor beginning(const unrolled *u, mica_tensor like, uint32_t ndim, const uint64_t *shape)
{
    return u->state != 0 ? u->state
                         : mica_graph_fill(u->graph, mica__type_of(u->graph, like)->dtype, ndim, shape, 0);
}

/* A body whose inputs are the carried state and a slice of each of `scanned`, then `others`. */
static mica_graph *begin_body(const unrolled *u, const mica_tensor *inputs, uint32_t scanned, uint32_t others,
                              mica_tensor *in)
{
    mica_graph *body = NULL;
    const mica_status status = mica_graph_create(&body);
    if (status != MICA_OK) {
        (void)mica__graph_fail(u->graph, status, "gradient", "no memory for a sub-graph");
        return NULL;
    }
    for (uint32_t i = 0; i < 1 + scanned + others && u->graph->status == MICA_OK; i++) {
        const mica__type type = mica__type_copy(u->graph, inputs[i]);
        const uint32_t lead = i >= 1 && i < 1 + scanned;
        const char name[] = {(char)('a' + i), 0};
        in[i] = mica_graph_input(body, name, type.dtype, type.ndim - lead, type.shape + lead);
    }
    return body;
}

/* Ends the body with the next state and what a token gives, and goes through the tokens. Both of the graph around it. */
static void end_body(const unrolled *u, mica_graph *body, mica_tensor state, mica_tensor slice,
                     const mica_tensor *inputs, uint32_t scanned, uint32_t others, uint32_t reverse,
                     mica_tensor *out)
{
    const mica_scan_desc desc = {
        .carried = 1, .scanned = scanned, .others = others, .reverse = reverse, .length = u->tokens};
    mica_graph_output(body, "state", state);
    mica_graph_output(body, "slice", slice);
    (void)mica_graph_scan(u->graph, body, &desc, inputs, out, 2);
    mica_graph_release(body);
}

/* ---- the recurrences, as ops_recurrent.h says them ---- */

static void unroll_ssm_conv(unrolled *u)
{
    mica_graph *graph = u->graph;
    const mica_ssm_conv_params *params = u->params;
    const mica__type weight = mica__type_copy(graph, u->in[1]);
    const uint64_t channels = weight.shape[0], before = weight.shape[1] - 1;
    mica_tensor rows = apart(u, u->in[0]), y = 0;
    if (before != 0) {
        const mica_tensor state = beginning(u, rows, 3, (const uint64_t[]){u->sequences, channels, before});
        const mica_tensor both[] = {mica__transposed(graph, state), rows};
        rows = mica_graph_concat(graph, both, 2, 1);
    }
    for (uint64_t k = 0; k <= before; k++) {
        const mica_tensor tap = mica_graph_slice(graph, u->in[1], 1, k, 1, 1);
        const mica_tensor by = mica_graph_reshape(graph, tap, 1, &channels);
        const mica_tensor part = mica_graph_mul(graph, mica_graph_slice(graph, rows, 1, k, u->tokens, 1), by);
        y = y == 0 ? part : mica_graph_add(graph, y, part);
    }
    if (u->in[2] != 0)
        y = mica_graph_add(graph, y, u->in[2]);
    if (params != NULL && params->activation == MICA_SSM_SILU)
        y = silu(graph, y);
    u->y = together(u, y, &channels, 1);
    if (before != 0)
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
    mica_tensor dt = apart(u, u->in[DT]), in[3], out[2] = {0, 0};
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
    mica_graph *body = begin_body(u, inputs, 2, 0, in);
    if (body == NULL)
        return;
    const mica_tensor state = mica_graph_add(body, mica_graph_mul(body, in[1], in[0]), in[2]);
    end_body(u, body, state, state, inputs, 2, 0, 0, out);
    u->next = out[0];
    mica_tensor y = summed(graph, mica_graph_mul(graph, c, by_time(u, out[1])), -1, 0);
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
    mica_tensor q = apart(u, u->in[Q]), k = apart(u, u->in[K]), in[6], out[2] = {0, 0};
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
    mica_graph *body = begin_body(u, inputs, 5, 0, in);
    if (body == NULL)
        return;
    const mica_tensor kept = mica_graph_mul(body, in[4], in[0]);
    mica_tensor learned = in[3];
    if (params->rule == MICA_DELTA_CORRECT)
        learned = mica_graph_sub(body, in[3], summed(body, mica_graph_mul(body, in[2], kept), 2, 1));
    learned = mica_graph_mul(body, in[5], learned);
    const mica_tensor state = mica_graph_add(body, kept, mica_graph_mul(body, in[2], learned));
    end_body(u, body, state, summed(body, mica_graph_mul(body, in[1], state), 2, 0), inputs, 5, 0, 0, out);
    u->next = out[0];
    mica_tensor y = by_time(u, out[1]);
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
    mica_tensor in[4] = {0}, out[2] = {0, 0}, next_c = 0;
    const mica_tensor inputs[] = {beginning(u, u->in[0], 3, shape), by_time(u, apart(u, u->in[0])), u->in[1],
                                  u->in[2]};
    const uint32_t others = u->in[2] != 0 ? 2 : 1;
    mica_graph *body = begin_body(u, inputs, 1, others, in);
    if (body == NULL)
        return;
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
    end_body(u, body, state, next, inputs, 1, others, params->reverse, out);
    u->next = out[0];
    u->y = together(u, by_time(u, out[1]), &width, 1);
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
    u->sequences = says == 0 ? 1 : mica__type_of(graph, says)->shape[0];
    if (more[STARTS] != 0)
        mica__back_refuses(b,
                           "has a second derivative for sequences of equal lengths alone, not with starts");
    else if (!mica__size_known(tokens) || !mica__size_known(u->sequences) || u->sequences == 0 ||
             tokens < u->sequences || tokens % u->sequences != 0)
        mica__back_refuses(b, "has a second derivative where tokens and sequences are known numbers alone");
    else
        u->tokens = tokens / u->sequences;
    return graph->status == MICA_OK;
}

/* Another name for a value: what reaches it goes no further. */
static mica_tensor another(mica_graph *graph, mica_tensor x)
{
    const mica__type type = mica__type_copy(graph, x);
    return mica__reshape_to(graph, x, &type);
}

static mica_tensor state_of(mica__back *b, const mica_tensor *more, const unrolled *u)
{
    if (more[STATE] == 0 || more[READ_SLOTS] != 0)
        return more[STATE] == 0 ? 0 : mica__take(b->graph, more[STATE], more[READ_SLOTS], 0);
    return mica_graph_slice(b->graph, more[STATE], 0, 0, u->sequences, 1);
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
            of[count] = another(graph, b->in[i]);
            wide[i] = mica__wide(graph, of[count++]);
        }
    const mica_tensor state = state_of(b, more, &u);
    if (state != 0) {
        place[count] = operands;
        of[count] = another(graph, state);
        u.state = mica__wide(graph, of[count++]);
    }
    write_out(&u);
    if (graph->status != MICA_OK)
        return;
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
