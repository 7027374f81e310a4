/*
 * norm.c - derivatives of norms, softmax and cross entropy: by their backward ops, which are written out where they are differentiated themselves.
 */
#include <string.h>

#include "graph/gradient/rules.h"

/* ---- norms ---- */

static bool same_shape(const mica_graph *graph, mica_tensor a, mica_tensor b)
{
    const mica__type *x = mica__type_of(graph, a), *y = mica__type_of(graph, b);
    return x->ndim == y->ndim && memcmp(x->shape, y->shape, x->ndim * sizeof x->shape[0]) == 0;
}

/* By normalize_backward: inputs of the node are x, weight, bias. */
static void through_norm(mica__back *b, const mica_normalize_params *params, mica_tensor bias)
{
    mica_graph *graph = b->graph;
    const mica_tensor x = b->in[0], weight = b->in[1], dy = b->dy[0];
    const bool with_bias = bias != 0 && weight != 0 && b->wanted[2] && same_shape(graph, weight, bias);
    const uint32_t wanted =
        (uint32_t)b->wanted[0] | (weight != 0 && b->wanted[1] ? 2u : 0u) | (with_bias ? 4u : 0u);
    mica_tensor outputs[3] = {0, 0, 0};
    if (wanted != 0)
        (void)mica_graph_op(graph, MICA_OP_NORMALIZE_BACKWARD, params, (const mica_tensor[]){x, dy, weight},
                            3, wanted, NULL, outputs, 3);
    b->dx[0] = outputs[0];
    if (weight != 0)
        b->dx[1] = outputs[1];
    if (bias != 0 && b->wanted[2]) {
        const mica__type type = mica__type_copy(graph, bias);
        b->dx[2] = with_bias ? outputs[2] : mica__sum_to(graph, mica__wide(graph, dy), &type);
    }
}

mica__derived mica__derive_rms_norm(mica__back *b)
{
    const mica_norm_params *given = mica__op_params(&b->node);
    const mica_normalize_params params = {
        .kind = MICA_NORMALIZE_RMS, .dims = 1, .eps = given != NULL ? given->eps : 0};
    through_norm(b, &params, 0);
    return MICA__DERIVED;
}

mica__derived mica__derive_layer_norm(mica__back *b)
{
    const mica_norm_params *given = mica__op_params(&b->node);
    const mica_normalize_params params = {
        .kind = MICA_NORMALIZE_LAYER, .dims = 1, .eps = given != NULL ? given->eps : 0};
    through_norm(b, &params, b->in[2]);
    return MICA__DERIVED;
}

mica__derived mica__derive_normalize(mica__back *b)
{
    if (b->dy[0] == 0 || b->dy[1] != 0 || b->dy[2] != 0)
        return MICA__DERIVE_EXPANDS; /* something reaches the statistics */
    through_norm(b, mica__op_params(&b->node), b->in[2]);
    return MICA__DERIVED;
}

/* A norm in small steps. */
typedef struct normed {
    mica_graph *graph;
    mica_normalize_params params;
    mica_tensor mean, var, scale,
        n; /* statistics keep their dimensions; scale is 1 / sqrt(var + eps), n what comes of x */
} normed;

static normed norm_of(mica_graph *graph, const mica_normalize_params *given, mica_tensor x)
{
    normed s = {.graph = graph};
    if (given != NULL)
        s.params = *given;
    if (s.params.dims == 0)
        s.params.dims = 1;
    const uint32_t dims = s.params.dims;
    s.n = mica__wide(graph, x);
    if (s.params.kind == MICA_NORMALIZE_LAYER) {
        s.mean = mica__reduce_last(graph, MICA_REDUCE_MEAN, s.n, dims);
        s.n = mica_graph_sub(graph, s.n, s.mean);
    }
    const mica_reduce_kind kind = s.params.kind == MICA_NORMALIZE_L2 ? MICA_REDUCE_SUM : MICA_REDUCE_MEAN;
    s.var = mica__reduce_last(graph, kind, mica_graph_square(graph, s.n), dims);
    s.scale = mica_graph_rsqrt(graph, mica__plus(graph, s.var, (double)s.params.eps));
    s.n = mica_graph_mul(graph, s.n, s.scale);
    return s;
}

static mica_tensor weight_of(const normed *s, mica_tensor weight)
{
    return mica__plus(s->graph, mica__wide(s->graph, weight), (double)s->params.offset);
}

void mica__expand_normalize(mica__back *b, mica_tensor *out)
{
    mica_graph *graph = b->graph;
    const normed s = norm_of(graph, mica__op_params(&b->node), b->in[0]);
    const mica_tensor statistic[] = {s.mean, s.var};
    mica_tensor y = s.n;
    if (b->in[1] != 0)
        y = mica_graph_mul(graph, y, weight_of(&s, b->in[1]));
    if (b->in[2] != 0)
        y = mica_graph_add(graph, y, mica__wide(graph, b->in[2]));
    out[0] = y;
    for (uint32_t i = 0; i < 2; i++)
        if (b->dy[i + 1] != 0) {
            const mica__type type = mica__type_copy(graph, b->out[i + 1]);
            out[i + 1] = mica__reshape_to(graph, statistic[i], &type);
        }
}

/* Inputs: x, dy, weight. */
void mica__expand_normalize_backward(mica__back *b, mica_tensor *out)
{
    mica_graph *graph = b->graph;
    const normed s = norm_of(graph, mica__op_params(&b->node), b->in[0]);
    const uint32_t dims = s.params.dims;
    const mica_reduce_kind kind = s.params.kind == MICA_NORMALIZE_L2 ? MICA_REDUCE_SUM : MICA_REDUCE_MEAN;
    const mica_tensor dy = mica__wide(graph, b->in[1]);
    const mica_tensor g = b->in[2] == 0 ? dy : mica_graph_mul(graph, dy, weight_of(&s, b->in[2]));
    if (b->dy[0] != 0) {
        mica_tensor inner = mica__reduce_last(graph, kind, mica_graph_mul(graph, g, s.n), dims);
        inner = mica_graph_sub(graph, g, mica_graph_mul(graph, s.n, inner));
        if (s.mean != 0)
            inner = mica_graph_sub(graph, inner, mica__reduce_last(graph, MICA_REDUCE_MEAN, g, dims));
        out[0] = mica_graph_mul(graph, inner, s.scale);
    }
    for (uint32_t i = 1; i < 3; i++)
        if (b->dy[i] != 0) {
            const mica__type type = mica__type_copy(graph, b->out[i]);
            out[i] = mica__sum_to(graph, i == 1 ? mica_graph_mul(graph, dy, s.n) : dy, &type);
        }
}

/* ---- softmax ---- */

/* Inputs: x, mask. */
mica__derived mica__derive_softmax(mica__back *b)
{
    mica_graph *graph = b->graph;
    const mica_softmax_params *params = mica__op_params(&b->node);
    const mica_tensor inputs[] = {b->out[0], b->dy[0]};
    if (b->wanted[0])
        b->dx[0] = mica__op1(graph, MICA_OP_SOFTMAX_BACKWARD, params, inputs, 2);
    if (b->wanted[1]) {
        mica_softmax_params unscaled = *params;
        unscaled.scale = 1;
        const mica__type type = mica__type_copy(graph, b->in[1]);
        b->dx[1] =
            mica__sum_to(graph, mica__op1(graph, MICA_OP_SOFTMAX_BACKWARD, &unscaled, inputs, 2), &type);
    }
    return MICA__DERIVED;
}

/* Inputs: y, dy. */
void mica__expand_softmax_backward(mica__back *b, mica_tensor *out)
{
    mica_graph *graph = b->graph;
    const mica_softmax_params *params = mica__op_params(&b->node);
    const mica_tensor y = mica__wide(graph, b->in[0]), dy = mica__wide(graph, b->in[1]);
    mica_tensor dx;
    if (params->log != 0) {
        const mica_tensor sum = mica__reduce_last(graph, MICA_REDUCE_SUM, dy, 1);
        dx = mica_graph_sub(graph, dy, mica_graph_mul(graph, mica_graph_exp(graph, y), sum));
    } else {
        const mica_tensor sum = mica__reduce_last(graph, MICA_REDUCE_SUM, mica_graph_mul(graph, y, dy), 1);
        dx = mica_graph_mul(graph, y, mica_graph_sub(graph, dy, sum));
    }
    out[0] = mica__times(graph, dx, (double)params->scale);
}

/* ---- cross entropy: inputs are logits, labels, targets, weight ---- */

/* Weight times the part of each class, zeros in rows that have no loss. */
static mica_tensor parts_of(mica__back *b, mica_tensor logits)
{
    static const mica_cross_entropy_params none = {.smoothing = 0};
    mica_graph *graph = b->graph;
    const mica_cross_entropy_params *given = mica__op_params(&b->node),
                                    *params = given != NULL ? given : &none;
    const mica__type type = mica__type_copy(graph, logits);
    const uint32_t last = type.ndim - 1;
    const double smoothing = (double)params->smoothing;
    mica_tensor parts, label = 0;
    if (b->in[1] != 0) {
        label = mica__widened(graph, mica_graph_cast(graph, b->in[1], MICA_DTYPE_I32), last);
        parts = mica__indicator(graph, mica_graph_equal(graph, mica__index_along(graph, logits, last), label),
                                logits);
    } else {
        parts = mica__wide(graph, b->in[2]);
    }
    const mica_tensor one_hot = parts;
    if (smoothing != 0) {
        const mica_tensor ones = mica__repeat_to(graph, mica__number(graph, logits, 1), logits);
        const mica_tensor classes = mica__reduce_last(graph, MICA_REDUCE_SUM, ones, 1);
        const mica_tensor even = mica_graph_div(graph, mica__number(graph, logits, smoothing), classes);
        parts = mica_graph_add(graph, mica__times(graph, parts, 1 - smoothing), even);
    }
    if (b->in[3] != 0)
        parts = mica_graph_mul(graph, parts, mica__wide(graph, b->in[3]));
    if (label == 0)
        return parts;
    mica_tensor counts =
        mica__reduce_last(graph, MICA_REDUCE_SUM, one_hot, 1); /* 1 where the label is a class */
    if (params->ignore != 0) {
        const mica_tensor ignored = mica_graph_number(graph, MICA_DTYPE_I32, (double)params->ignored_label);
        counts = mica_graph_mul(graph, counts,
                                mica__indicator(graph, mica_graph_not_equal(graph, label, ignored), logits));
    }
    return mica_graph_mul(graph, parts, counts);
}

mica__derived mica__derive_cross_entropy(mica__back *b)
{
    mica_graph *graph = b->graph;
    if (b->dy[0] == 0 || b->dy[1] != 0 || b->wanted[2] || b->wanted[3])
        return MICA__DERIVE_EXPANDS;
    const int32_t last = -1;
    const mica_tensor lse =
        b->out[1] != 0 ? b->out[1] : mica_graph_reduce(graph, MICA_REDUCE_LOGSUMEXP, b->in[0], &last, 1, 0);
    const mica_tensor inputs[] = {b->in[0], b->in[1], b->in[2], b->in[3], lse, b->dy[0]};
    b->dx[0] = mica__op1(graph, MICA_OP_CROSS_ENTROPY_BACKWARD, mica__op_params(&b->node), inputs, 6);
    return MICA__DERIVED;
}

void mica__expand_cross_entropy(mica__back *b, mica_tensor *out)
{
    mica_graph *graph = b->graph;
    const mica_tensor logits = mica__wide(graph, b->in[0]);
    const mica_tensor lse = mica__reduce_last(graph, MICA_REDUCE_LOGSUMEXP, logits, 1);
    const mica__type type = mica__type_copy(graph, b->out[0]);
    if (b->dy[0] != 0) {
        const mica_tensor parts = parts_of(b, logits);
        const mica_tensor each = mica_graph_mul(graph, parts, mica_graph_sub(graph, lse, logits));
        const mica_tensor counts = mica_graph_not_equal(graph, parts, mica__number(graph, parts, 0));
        const mica_tensor there = b->wanted[2] || b->wanted[3] ? each : mica__where(graph, counts, each);
        out[0] = mica__reshape_to(graph, mica__reduce_last(graph, MICA_REDUCE_SUM, there, 1), &type);
    }
    out[1] = mica__reshape_to(graph, lse, &type);
}

/* Inputs: those, then lse and dloss. */
void mica__expand_cross_entropy_backward(mica__back *b, mica_tensor *out)
{
    mica_graph *graph = b->graph;
    const mica_tensor logits = mica__wide(graph, b->in[0]), parts = parts_of(b, logits);
    const uint32_t last = mica__type_of(graph, logits)->ndim - 1;
    const mica_tensor lse = mica__widened(graph, mica__wide(graph, b->in[4]), last);
    mica_tensor dloss = mica__wide(graph, b->in[5]);
    if (mica__type_of(graph, dloss)->ndim == last)
        dloss = mica__widened(graph, dloss, last);
    const mica_tensor share = mica_graph_exp(graph, mica_graph_sub(graph, logits, lse));
    const mica_tensor all = mica__reduce_last(graph, MICA_REDUCE_SUM, parts, 1);
    const mica_tensor slope = mica_graph_sub(graph, mica_graph_mul(graph, share, all), parts);
    out[0] = mica_graph_mul(graph, dloss, slope);
}
