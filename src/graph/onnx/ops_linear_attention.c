/*
 * ops_linear_attention.c - LinearAttention: a state for each head that every token changes, as a scan over the tokens. Computes in f32 (f64 of f64).
 */
#include <math.h>
#include <string.h>

#include "graph/onnx/body.h"
#include "graph/onnx/operators.h"

enum { LINEAR, GATED, DELTA, GATED_DELTA };

typedef struct linear {
    uint32_t rule;
    uint64_t batch, tokens, q_heads, heads, keys, values;
    mica_dtype inside;
    double scale;
} linear;

static mica_tensor binary(const mica__ox_op *o, mica_scalar scalar, mica_tensor a, mica_tensor b)
{
    return b == 0 ? 0 : mica__ox_scalar(o, scalar, a, b);
}

/* [batch, tokens, heads width] as [tokens, batch, heads, width] */
static mica_tensor by_token(mica__ox_op *o, const linear *l, uint32_t input, uint64_t heads, uint64_t width)
{
    const mica_tensor x = mica__ox_cast(o, mica__ox_in(o, input), l->inside);
    return mica__ox_swap(o, mica__ox_reshape(o, x, 4, (const uint64_t[]){l->batch, l->tokens, heads, width}),
                         0, 1);
}

/* One token: part[0] the state [batch, heads, keys, values], then q, k, v, decay and beta [batch, heads, width] as far as they are there. */
static mica_tensor step(const mica__ox_op *o, const linear *l, const mica_tensor part[6], mica_tensor *state)
{
    const mica_tensor key = mica__ox_unsqueeze(o, part[2], 3), row = mica__ox_unsqueeze(o, part[2], 2);
    mica_tensor value = mica__ox_unsqueeze(o, part[3], 2), s = part[0];
    if (l->rule == GATED || l->rule == GATED_DELTA)
        s = binary(o, MICA_SCALAR_MUL, s,
                   mica__ox_unsqueeze(o, mica__ox_scalar(o, MICA_SCALAR_EXP, part[4], 0), 3));
    if (l->rule == DELTA || l->rule == GATED_DELTA) {
        value = binary(o, MICA_SCALAR_SUB, value, mica_graph_matmul(o->graph, row, s));
        value = binary(o, MICA_SCALAR_MUL, value, mica__ox_unsqueeze(o, part[5], 3));
    }
    s = binary(o, MICA_SCALAR_ADD, s, binary(o, MICA_SCALAR_MUL, key, value));
    *state = s;
    /* the queries of a group share the state of their head */
    const uint64_t group = l->q_heads / l->heads;
    const mica_tensor q =
        mica__ox_reshape(o, part[1], 4, (const uint64_t[]){l->batch, l->heads, group, l->keys});
    const mica_tensor y = q == 0 || s == 0 ? 0 : mica_graph_matmul(o->graph, q, s);
    const mica_tensor scaled = binary(o, MICA_SCALAR_MUL, y, mica__ox_number(o, y, l->scale));
    return mica__ox_reshape(o, scaled, 3, (const uint64_t[]){l->batch, l->q_heads, l->values});
}

static mica_status read_linear(mica__ox_op *o, linear *l)
{
    static const char *const rules[] = {"linear", "gated", "delta", "gated_delta", NULL};
    const mica__type q = mica__ox_in_type(o, 0), k = mica__ox_in_type(o, 1), v = mica__ox_in_type(o, 2);
    l->rule = mica__ox_word(o, "update_rule", GATED_DELTA, rules);
    l->q_heads = (uint64_t)mica__ox_int(o, "q_num_heads", 0);
    l->heads = (uint64_t)mica__ox_int(o, "kv_num_heads", 0);
    (void)mica__ox_int(o, "chunk_size", 64); /* how, not what */
    l->scale = (double)mica__ox_float(o, "scale", 0);
    for (uint32_t i = 0; i < 3; i++)
        MICA__TRY(mica__ox_need_shape(o, mica__ox_in(o, i), "an input"));
    if (l->rule == UINT32_MAX || q.ndim != 3 || k.ndim != 3 || v.ndim != 3 || l->heads == 0 ||
        l->q_heads == 0 || l->q_heads % l->heads != 0 || q.shape[2] % l->q_heads != 0 ||
        k.shape[2] % l->heads != 0 || v.shape[2] % l->heads != 0)
        return mica__ox_fail(o, "of such shapes, heads or rule");
    l->batch = q.shape[0];
    l->tokens = q.shape[1];
    l->keys = k.shape[2] / l->heads;
    l->values = v.shape[2] / l->heads;
    l->inside = q.dtype == MICA_DTYPE_F64 ? MICA_DTYPE_F64 : MICA_DTYPE_F32;
    l->scale = l->scale == 0 ? 1 / sqrt((double)q.shape[2] / (double)l->q_heads) : l->scale;
    const bool gated = l->rule == GATED || l->rule == GATED_DELTA, delta = l->rule >= DELTA;
    return (!gated || mica__ox_has(o, 4)) && (!delta || mica__ox_has(o, 5))
               ? MICA_OK
               : mica__ox_fail(o, "without its decay or beta");
}

/* What is scanned: q, k, v, and decay [.., keys or 1] and beta [.., 1] where the rule has them. */
static mica_status scanned_inputs(mica__ox_op *o, const linear *l, mica_tensor out[6])
{
    out[1] = by_token(o, l, 0, l->q_heads, l->keys);
    out[2] = by_token(o, l, 1, l->heads, l->keys);
    out[3] = by_token(o, l, 2, l->heads, l->values);
    if (l->rule == GATED || l->rule == GATED_DELTA) {
        const uint64_t width = mica__ox_in_type(o, 4).shape[2];
        if (width != l->heads && width != l->heads * l->keys)
            return mica__ox_fail(o, "a decay of another width");
        out[4] = by_token(o, l, 4, l->heads, width / l->heads);
    }
    if (l->rule >= DELTA) {
        const uint64_t width = mica__ox_in_type(o, 5).shape[2];
        if (width != l->heads && width != 1)
            return mica__ox_fail(o, "a beta of another width");
        out[5] = by_token(o, l, 5, width, 1);
    }
    return mica_graph_status(o->graph);
}

mica_status mica__ox_linear_attention(mica__ox_op *o)
{
    linear l = {.rule = 0};
    mica_tensor outer[6] = {0}, inner[6] = {0}, wired[6], outputs[2] = {0}, state = 0;
    mica__ox_body_graph body;
    uint32_t count = 0;
    MICA__TRY(read_linear(o, &l));
    const mica_dtype dtype = mica__ox_in_type(o, 0).dtype;
    outer[0] = mica__ox_has(o, 3) ? mica__ox_cast(o, mica__ox_in(o, 3), l.inside)
                                  : mica_graph_expand(o->graph, mica_graph_number(o->graph, l.inside, 0), 4,
                                                      (const uint64_t[]){l.batch, l.heads, l.keys, l.values});
    MICA__TRY(scanned_inputs(o, &l, outer));
    mica_status status = mica__ox_body_begin(o, &body);
    mica__ox_op in = *o;
    in.graph = body.graph;
    for (uint32_t i = 0; i < 6 && status == MICA_OK; i++) {
        const mica__type type = mica__ox_type(o, outer[i]);
        if (outer[i] == 0)
            continue;
        wired[count++] = outer[i];
        inner[i] = mica__ox_body_input(&body, &type, i != 0);
    }
    if (status == MICA_OK) {
        const mica_tensor y = step(&in, &l, inner, &state);
        mica__ox_body_output(&body, state);
        mica__ox_body_output(&body, y);
        status = mica_graph_status(body.graph);
    }
    const mica_scan_desc desc = {.carried = 1, .scanned = count - 1};
    if (status == MICA_OK)
        (void)mica_graph_scan(o->graph, body.graph, &desc, wired, outputs, 2);
    mica__ox_body_end(&body);
    const mica_tensor y = mica__ox_reshape(o, mica__ox_swap(o, outputs[1], 0, 1), 3,
                                           (const uint64_t[]){l.batch, l.tokens, l.q_heads * l.values});
    mica__ox_out(o, 0, mica__ox_cast(o, y, dtype));
    mica__ox_out(o, 1,
                 mica__ox_cast(o, outputs[0], mica__ox_has(o, 3) ? mica__ox_in_type(o, 3).dtype : dtype));
    return status;
}
