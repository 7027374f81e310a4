/*
 * ops_attention.c - attention: ONNX's own and com.microsoft's three, as products, masks and a softmax. Scores are f32 (f64 of f64); a query that sees no key gives zeros.
 */
#include <math.h>
#include <string.h>

#include "graph/onnx/body.h"
#include "graph/onnx/operators.h"
#include "graph/onnx/rotary.h"

static mica_tensor binary(const mica__ox_op *o, mica_scalar scalar, mica_tensor a, mica_tensor b)
{
    return b == 0 ? 0 : mica__ox_scalar(o, scalar, a, b);
}

/* One attention: q [batch, heads, queries, d], k and v [batch, kv heads, keys, d]. */
typedef struct attention {
    mica_tensor q, k, v;
    mica_tensor bias;    /* is added to the scores; 0: none */
    mica_tensor allowed; /* bool; 0: everything is seen */
    double scale, softcap;
    uint32_t mode;      /* what `scores` becomes: scaled products, capped, with bias, probabilities */
    mica_tensor scores; /* [batch, heads, queries, keys] */
    mica_tensor y;
} attention;

/* a [batch, heads, n, ..] as [batch, kv heads, group, n, ..], so that a group shares its key head. */
static mica_tensor grouped(const mica__ox_op *o, mica_tensor x, uint64_t heads)
{
    const mica__type t = mica__ox_type(o, x);
    return mica__ox_reshape(
        o, x, 5, (const uint64_t[]){t.shape[0], heads, t.shape[1] / heads, t.shape[2], t.shape[3]});
}

static mica_tensor product(const mica__ox_op *o, mica_tensor a, mica_tensor b, mica_dtype dtype)
{
    const mica_operand_desc asked = {.dtype = dtype, .ndim = MICA_RANK_UNKNOWN};
    const mica_tensor inputs[] = {a, b, 0, 0, 0};
    return a == 0 || b == 0 ? 0
                            : mica_graph_op(o->graph, MICA_OP_PRODUCT, NULL, inputs, 5, 1, &asked, NULL, 0);
}

/* a [batch, heads, m, k] times b [batch, kv heads, k, n] */
static mica_tensor grouped_product(const mica__ox_op *o, mica_tensor a, mica_tensor b, mica_dtype dtype)
{
    const mica__type at = mica__ox_type(o, a), bt = mica__ox_type(o, b);
    if (a == 0 || b == 0 || at.shape[1] == bt.shape[1])
        return product(o, a, b, dtype);
    const mica_tensor left = grouped(o, a, bt.shape[1]), right = mica__ox_unsqueeze(o, b, 2);
    return mica__ox_reshape(o, product(o, left, right, dtype), 4,
                            (const uint64_t[]){at.shape[0], at.shape[1], at.shape[2], bt.shape[3]});
}

static mica_status attend(mica__ox_op *o, attention *a)
{
    const mica__type q = mica__ox_type(o, a->q), k = mica__ox_type(o, a->k), v = mica__ox_type(o, a->v);
    if (q.ndim != 4 || k.ndim != 4 || v.ndim != 4 || !mica__size_known(q.shape[1]) ||
        !mica__size_known(k.shape[1]) || k.shape[1] == 0 || q.shape[1] % k.shape[1] != 0 ||
        v.shape[1] != k.shape[1] || !mica__size_known(q.shape[3]))
        return mica__ox_fail(o, "of such shapes");
    const mica_dtype inside = q.dtype == MICA_DTYPE_F64 ? MICA_DTYPE_F64 : MICA_DTYPE_F32;
    const mica_softmax_params params = {.scale = 1};
    const double scale = a->scale == 0 ? 1 / sqrt((double)q.shape[3]) : a->scale;
    mica_tensor s = grouped_product(o, a->q, mica__ox_swap(o, a->k, 2, 3), inside);
    s = binary(o, MICA_SCALAR_MUL, s, mica__ox_number(o, s, scale));
    a->scores = s;
    if (a->softcap != 0) {
        s = binary(o, MICA_SCALAR_DIV, s, mica__ox_number(o, s, a->softcap));
        s = binary(o, MICA_SCALAR_MUL, mica__ox_scalar(o, MICA_SCALAR_TANH, s, 0),
                   mica__ox_number(o, s, a->softcap));
    }
    a->scores = a->mode == 1 ? s : a->scores;
    if (a->bias != 0)
        s = binary(o, MICA_SCALAR_ADD, s, mica__ox_cast(o, a->bias, inside));
    if (a->mode == 2)
        a->scores =
            a->allowed == 0 ? s : mica__ox_select(o, a->allowed, s, mica__ox_number(o, s, -(double)INFINITY));
    const mica_tensor p = mica__ox_op1(o, MICA_OP_SOFTMAX, &params, (const mica_tensor[]){s, a->allowed}, 2);
    a->scores = mica__ox_cast(o, a->mode == 3 ? p : a->scores, q.dtype);
    mica_tensor values = a->v;
    a->y = grouped_product(o, mica__ox_cast(o, p, q.dtype), values, q.dtype);
    return mica_graph_status(o->graph);
}

/* ---- shapes --------------------------------------------------------------------------------------------- */

/* [batch, n, heads d] as [batch, heads, n, d] */
static mica_tensor split_heads(const mica__ox_op *o, mica_tensor x, uint64_t heads)
{
    const mica__type t = mica__ox_type(o, x);
    if (x == 0 || t.ndim != 3 || heads == 0 || !mica__size_known(t.shape[2]) || t.shape[2] % heads != 0)
        return x;
    x = mica__ox_reshape(o, x, 4, (const uint64_t[]){t.shape[0], t.shape[1], heads, t.shape[2] / heads});
    return mica__ox_swap(o, x, 1, 2);
}

/* and back */
static mica_tensor join_heads(const mica__ox_op *o, mica_tensor x)
{
    const mica__type t = mica__ox_type(o, x);
    if (x == 0)
        return 0;
    return mica__ox_reshape(o, mica__ox_swap(o, x, 1, 2), 3,
                            (const uint64_t[]){t.shape[0], t.shape[2], t.shape[1] * t.shape[3]});
}

static mica_tensor behind(const mica__ox_op *o, mica_tensor past, mica_tensor x)
{
    return past == 0 || x == 0 ? x : mica_graph_concat(o->graph, (const mica_tensor[]){past, x}, 2, 2);
}

static mica_tensor both(const mica__ox_op *o, mica_tensor a, mica_tensor b)
{
    return a == 0 ? b : b == 0 ? a : binary(o, MICA_SCALAR_BIT_AND, a, b);
}

/* Which keys a query sees by where both stand. */
typedef struct places {
    uint64_t queries, keys;
    int64_t past;        /* keys before the first query, where `lengths` is 0 */
    mica_tensor lengths; /* [batch] i64: valid keys, the last of them the last query's; 0: all */
    bool causal;
    int64_t left, right; /* of a window; -1: not bounded */
} places;

static mica_tensor seen(const mica__ox_op *o, const places *p)
{
    const uint64_t shape[2] = {p->queries, p->keys};
    const bool placed = p->causal || p->left >= 0 || p->right >= 0;
    mica_tensor allowed = 0, lengths = 0;
    if (!placed && p->lengths == 0)
        return 0;
    const mica_tensor key = mica__ox_iota(o, 2, shape, 1, MICA_DTYPE_I64);
    mica_tensor at = mica__ox_iota(o, 2, shape, 0, MICA_DTYPE_I64);
    if (p->lengths != 0) {
        lengths = mica__ox_along(o, mica__ox_cast(o, p->lengths, MICA_DTYPE_I64), 4, 0);
        at = binary(o, MICA_SCALAR_ADD, at,
                    binary(o, MICA_SCALAR_SUB, lengths, mica__ox_number(o, lengths, (double)p->queries)));
        allowed = binary(o, MICA_SCALAR_LESS, key, lengths);
    } else if (p->past != 0) {
        at = binary(o, MICA_SCALAR_ADD, at, mica__ox_number(o, at, (double)p->past));
    }
    if (p->causal)
        allowed = both(o, allowed, binary(o, MICA_SCALAR_LESS_EQUAL, key, at));
    if (p->right >= 0)
        allowed = both(o, allowed,
                       binary(o, MICA_SCALAR_LESS_EQUAL, key,
                              binary(o, MICA_SCALAR_ADD, at, mica__ox_number(o, at, (double)p->right))));
    if (p->left >= 0)
        allowed = both(o, allowed,
                       binary(o, MICA_SCALAR_GREATER_EQUAL, key,
                              binary(o, MICA_SCALAR_SUB, at, mica__ox_number(o, at, (double)p->left))));
    return allowed;
}

/* A mask that is narrower than the keys: those behind it are not seen. */
static mica_tensor whole_mask(const mica__ox_op *o, mica_tensor mask, uint64_t keys)
{
    const mica__type t = mica__ox_type(o, mask);
    mica_pad_params params = {.mode = MICA_PAD_CONSTANT,
                              .value = t.dtype == MICA_DTYPE_BOOL ? 0 : -(double)INFINITY};
    if (mask == 0 || t.ndim == 0 || t.shape[t.ndim - 1] == 1 || t.shape[t.ndim - 1] >= keys)
        return mask;
    params.high[t.ndim - 1] = (int64_t)(keys - t.shape[t.ndim - 1]);
    return mica__ox_op1(o, MICA_OP_PAD, &params, &mask, 1);
}

static void use_mask(const mica__ox_op *o, mica_tensor mask, uint64_t keys, attention *a)
{
    mask = whole_mask(o, mask, keys);
    if (mica__ox_type(o, mask).dtype == MICA_DTYPE_BOOL)
        a->allowed = both(o, a->allowed, mask);
    else
        a->bias = mask;
}

/* ---- ONNX's ---------------------------------------------------------------------------------------------- */

mica_status mica__ox_attention(mica__ox_op *o)
{
    const bool flat = mica__ox_in_type(o, 0).ndim == 3;
    const int64_t q_heads = mica__ox_int(o, "q_num_heads", 0), kv_heads = mica__ox_int(o, "kv_num_heads", 0);
    places p = {.causal = mica__ox_int(o, "is_causal", 0) != 0,
                .left = mica__ox_int(o, "left_window_size", -1),
                .right = mica__ox_int(o, "right_window_size", -1)};
    attention a = {.scale = (double)mica__ox_float(o, "scale", 0),
                   .softcap = (double)mica__ox_float(o, "softcap", 0),
                   .mode = (uint32_t)mica__ox_int(o, "qk_matmul_output_mode", 0)};
    if (mica__ox_dtype(o, mica__ox_int(o, "softmax_precision", MICA__ONNX_FLOAT)) == MICA_DTYPE_NONE)
        return MICA_ERR_UNSUPPORTED; /* others are as f32 has it, or finer */
    if (a.mode > 3 || (flat && (q_heads < 1 || kv_heads < 1)))
        return mica__ox_fail(o, "such a mode, or without numbers of heads");
    a.q = flat ? split_heads(o, mica__ox_in(o, 0), (uint64_t)q_heads) : mica__ox_in(o, 0);
    a.k = flat ? split_heads(o, mica__ox_in(o, 1), (uint64_t)kv_heads) : mica__ox_in(o, 1);
    a.v = flat ? split_heads(o, mica__ox_in(o, 2), (uint64_t)kv_heads) : mica__ox_in(o, 2);
    MICA__TRY(mica__ox_need_shape(o, a.q, "Q"));
    MICA__TRY(mica__ox_need_shape(o, a.k, "K"));
    const mica_tensor past = mica__ox_in(o, 4);
    if (past != 0) {
        MICA__TRY(mica__ox_need_shape(o, past, "past_key"));
        p.past = (int64_t)mica__ox_type(o, past).shape[2];
    }
    a.k = behind(o, past, a.k);
    a.v = behind(o, mica__ox_in(o, 5), a.v);
    p.lengths = mica__ox_in(o, 6);
    p.queries = mica__ox_type(o, a.q).shape[2];
    p.keys = mica__ox_type(o, a.k).shape[2];
    a.allowed = seen(o, &p);
    if (mica__ox_has(o, 3))
        use_mask(o, mica__ox_in(o, 3), p.keys, &a);
    MICA__TRY(mica_graph_status(o->graph));
    MICA__TRY(attend(o, &a));
    mica__ox_out(o, 0, flat ? join_heads(o, a.y) : a.y);
    mica__ox_out(o, 1, a.k);
    mica__ox_out(o, 2, a.v);
    mica__ox_out(o, 3, a.scores);
    return MICA_OK;
}

/* What a sub-graph of one tensor makes of x, as nodes of the graph around; x where there is none. */
static mica_status modified(mica__ox_op *o, const char *name, mica_tensor x, mica_tensor *out)
{
    const mica__onnx_graph *body = mica__ox_body_attribute(o, name);
    const mica__type type = mica__ox_type(o, x);
    mica__ox_value value = {.tensor = x};
    mica__ox_scope scope;
    *out = x;
    if (body == NULL)
        return mica_graph_status(o->graph);
    if (body->input_count != 1 || body->output_count != 1)
        return mica__ox_fail(o, "%s of %u inputs and %u outputs", name, body->input_count,
                             body->output_count);
    MICA__TRY(mica_graph_status(o->graph));
    MICA__TRY(mica__ox_scope_open(o->im, &scope, o->scope, o->graph));
    mica_status status = mica__ox_define(o->im, &scope, body->input[0].name, value);
    if (status == MICA_OK)
        status = mica__ox_body(o->im, &scope, body);
    if (status == MICA_OK)
        status = mica__ox_body_result(o, &scope, body->output[0].name, &value);
    mica__ox_scope_close(&scope);
    MICA__TRY(status);
    *out = mica__ox_materialise(o->graph, &value);
    const mica__type made = mica__ox_type(o, *out);
    return made.dtype == type.dtype && made.ndim == type.ndim &&
                   memcmp(made.shape, type.shape, type.ndim * sizeof type.shape[0]) == 0
               ? mica_graph_status(o->graph)
               : mica__ox_fail(o, "%s gives another type or shape than it takes", name);
}

/* Q, K, V [batch, heads, n, d]; scores and probabilities each go through a sub-graph. */
mica_status mica__ox_flex_attention(mica__ox_op *o)
{
    const mica_tensor q = mica__ox_in(o, 0), k = mica__ox_in(o, 1), v = mica__ox_in(o, 2);
    const mica__type qt = mica__ox_type(o, q), kt = mica__ox_type(o, k), vt = mica__ox_type(o, v);
    const mica__onnx_attribute *precision = mica__ox_attribute(o, "softmax_precision", MICA__ONNX_KIND_INT);
    const mica_dtype wide = qt.dtype == MICA_DTYPE_F64 ? MICA_DTYPE_F64 : MICA_DTYPE_F32;
    const mica_dtype inside = precision == NULL ? wide : mica__ox_dtype(o, precision->i);
    const mica_softmax_params params = {.scale = 1};
    if (inside == MICA_DTYPE_NONE)
        return MICA_ERR_UNSUPPORTED;
    if (qt.ndim != 4 || kt.ndim != 4 || vt.ndim != 4)
        return mica__ox_fail(o, "of other than 4 dimensions");
    MICA__TRY(mica__ox_need_shape(o, q, "Q"));
    MICA__TRY(mica__ox_need_shape(o, k, "K"));
    MICA__TRY(mica__ox_need_shape(o, v, "V"));
    if (kt.shape[1] == 0 || qt.shape[1] % kt.shape[1] != 0 || vt.shape[1] != kt.shape[1] || qt.shape[3] == 0)
        return mica__ox_fail(o, "of such shapes");
    const double scale = (double)mica__ox_float(o, "scale", (float)(1 / sqrt((double)qt.shape[3])));
    mica_tensor s = grouped_product(o, q, mica__ox_swap(o, k, 2, 3), wide);
    s = mica__ox_cast(o, binary(o, MICA_SCALAR_MUL, s, mica__ox_number(o, s, scale)), inside);
    MICA__TRY(modified(o, "score_mod", s, &s));
    mica_tensor p = mica__ox_op1(o, MICA_OP_SOFTMAX, &params, (const mica_tensor[]){s, 0}, 2);
    MICA__TRY(modified(o, "prob_mod", p, &p));
    const mica_tensor values = mica__ox_cast(o, v, inside);
    mica__ox_out(o, 0, mica__ox_cast(o, grouped_product(o, p, values, inside), vt.dtype));
    return MICA_OK;
}

/* ---- com.microsoft's -------------------------------------------------------------------------------------- */

/* A third of a bias [3 hidden] (or of its own sizes) added to x. */
static mica_tensor add_bias(const mica__ox_op *o, mica_tensor x, mica_tensor bias, uint64_t *start)
{
    const mica__type t = mica__ox_type(o, x);
    if (x == 0 || bias == 0 || t.ndim != 3)
        return x;
    const mica_tensor part = mica__ox_slice(o, bias, 0, *start, t.shape[2]);
    *start += t.shape[2];
    return binary(o, MICA_SCALAR_ADD, x, part);
}

/* key_padding_mask or mask_index: [batch] lengths, or [batch, keys] with 1 for what is seen. */
static mica_status padding_mask(const mica__ox_op *o, mica_tensor mask, uint64_t keys, attention *a)
{
    const mica__type t = mica__ox_type(o, mask);
    if (mask == 0)
        return MICA_OK;
    if (t.ndim == 2 && t.shape[1] == keys) {
        const mica_tensor one = binary(o, MICA_SCALAR_NOT_EQUAL, mask, mica__ox_number(o, mask, 0));
        a->allowed =
            both(o, a->allowed, mica__ox_reshape(o, one, 4, (const uint64_t[]){t.shape[0], 1, 1, keys}));
        return MICA_OK;
    }
    if (t.ndim != 1 || t.shape[0] != mica__ox_type(o, a->q).shape[0])
        return mica__ox_fail(o, "such a mask");
    const mica_tensor lengths = mica__ox_along(o, mica__ox_cast(o, mask, MICA_DTYPE_I64), 4, 0);
    const mica_tensor key = mica__ox_iota(o, 1, &keys, 0, MICA_DTYPE_I64);
    a->allowed = both(o, a->allowed, binary(o, MICA_SCALAR_LESS, key, lengths));
    return MICA_OK;
}

static mica_status finish(mica__ox_op *o, attention *a, int64_t past, bool causal)
{
    MICA__TRY(mica_graph_status(o->graph));
    MICA__TRY(mica__ox_need_shape(o, a->q, "the query"));
    MICA__TRY(mica__ox_need_shape(o, a->k, "the key"));
    const places p = {.queries = mica__ox_type(o, a->q).shape[2],
                      .keys = mica__ox_type(o, a->k).shape[2],
                      .past = past,
                      .causal = causal,
                      .left = -1,
                      .right = -1};
    a->allowed = both(o, a->allowed, seen(o, &p));
    MICA__TRY(attend(o, a));
    mica__ox_out(o, 0, join_heads(o, a->y));
    return MICA_OK;
}

/* query, key, value, bias, key_padding_mask, attention_bias, past_key, past_value */
mica_status mica__ox_multi_head(mica__ox_op *o)
{
    const uint64_t heads = (uint64_t)mica__ox_int(o, "num_heads", 0);
    const bool causal = mica__ox_int(o, "unidirectional", 0) != 0;
    attention a = {.scale = (double)mica__ox_float(o, "scale", 0)};
    uint64_t start = 0;
    (void)mica__ox_float(o, "mask_filter_value", -10000);
    if (heads == 0 || !mica__ox_has(o, 1) || !mica__ox_has(o, 2) || mica__ox_in_type(o, 0).ndim != 3)
        return mica__ox_fail(o, "packed queries, keys and values");
    const mica_tensor bias = mica__ox_in(o, 3);
    a.q = split_heads(o, add_bias(o, mica__ox_in(o, 0), bias, &start), heads);
    a.k = split_heads(o, add_bias(o, mica__ox_in(o, 1), bias, &start), heads);
    a.v = split_heads(o, add_bias(o, mica__ox_in(o, 2), bias, &start), heads);
    const mica_tensor past = mica__ox_in(o, 6);
    a.k = behind(o, past, a.k);
    a.v = behind(o, mica__ox_in(o, 7), a.v);
    a.bias = mica__ox_in(o, 5);
    MICA__TRY(padding_mask(o, mica__ox_in(o, 4), mica__ox_type(o, a.k).shape[2], &a));
    MICA__TRY(finish(o, &a, past == 0 ? 0 : (int64_t)mica__ox_type(o, past).shape[2], causal));
    mica__ox_out(o, 1, a.k);
    mica__ox_out(o, 2, a.v);
    return MICA_OK;
}

/* input, weights [in, 3 hidden], bias, mask_index, past, attention_bias */
mica_status mica__ox_ms_attention(mica__ox_op *o)
{
    const uint64_t heads = (uint64_t)mica__ox_int(o, "num_heads", 0);
    const bool causal = mica__ox_int(o, "unidirectional", 0) != 0;
    attention a = {.scale = (double)mica__ox_float(o, "scale", 0)};
    uint32_t count = 0;
    const int64_t *sizes = mica__ox_ints(o, "qkv_hidden_sizes", &count);
    (void)mica__ox_float(o, "mask_filter_value", -10000);
    const mica__type weight = mica__ox_in_type(o, 1);
    if (heads == 0 || weight.ndim != 2 || mica__ox_has(o, 4) || mica__ox_int(o, "do_rotary", 0) != 0 ||
        (sizes != NULL && count != 3))
        return mica__ox_fail(o, "with a past, rotary or such shapes");
    mica_tensor x = mica_graph_matmul(o->graph, mica__ox_in(o, 0), mica__ox_in(o, 1)), part[3] = {0};
    if (mica__ox_has(o, 2))
        x = binary(o, MICA_SCALAR_ADD, x, mica__ox_in(o, 2));
    uint64_t start = 0;
    for (uint32_t i = 0; i < 3; i++) {
        const uint64_t size = sizes != NULL ? (uint64_t)sizes[i] : weight.shape[1] / 3;
        part[i] = split_heads(o, mica__ox_slice(o, x, 2, start, size), heads);
        start += size;
    }
    a.q = part[0];
    a.k = part[1];
    a.v = part[2];
    a.bias = mica__ox_in(o, 5);
    MICA__TRY(padding_mask(o, mica__ox_in(o, 3), mica__ox_type(o, a.k).shape[2], &a));
    return finish(o, &a, 0, causal);
}

/* What GroupQueryAttention says of itself. */
typedef struct group_query {
    uint64_t heads, kv_heads, queries, batch;
    uint64_t before, total; /* keys of the past, and with the new ones */
    int64_t window;
    bool rotary, interleaved;
    mica_tensor past;
} group_query;

static mica_status read_group_query(mica__ox_op *o, group_query *g)
{
    const mica__type type = mica__ox_in_type(o, 0);
    int64_t total = 0;
    g->heads = (uint64_t)mica__ox_int(o, "num_heads", 0);
    g->kv_heads = (uint64_t)mica__ox_int(o, "kv_num_heads", 0);
    g->rotary = mica__ox_int(o, "do_rotary", 0) != 0;
    g->interleaved = mica__ox_int(o, "rotary_interleaved", 0) != 0;
    g->window = mica__ox_int(o, "local_window_size", -1);
    if (mica__ox_int(o, "smooth_softmax", 0) > 0 || mica__ox_has(o, 11))
        return mica__ox_fail(o, "smooth_softmax or head_sink");
    if (g->heads == 0 || g->kv_heads == 0 || !mica__ox_has(o, 5) || type.ndim != 3)
        return mica__ox_fail(o, "without heads or lengths");
    MICA__TRY(mica__ox_need_shape(o, mica__ox_in(o, 0), "the query"));
    MICA__TRY(mica__ox_need_int(o, 6, &total));
    g->batch = type.shape[0];
    g->queries = type.shape[1];
    g->total = (uint64_t)total;
    g->past = mica__ox_in(o, 3);
    g->before = g->past == 0 ? 0 : mica__ox_type(o, g->past).shape[2];
    return mica__size_known(g->before) && g->before + g->queries == g->total
               ? MICA_OK
               : mica__ox_fail(o, "a past that is not as long as total_sequence_length less the query");
}

/* Queries, keys and values by heads; packed ones stand one behind another. */
static void split_group_query(mica__ox_op *o, const group_query *g, attention *a)
{
    mica_tensor q = mica__ox_in(o, 0), k = mica__ox_in(o, 1), v = mica__ox_in(o, 2);
    if (k == 0) {
        const uint64_t d = mica__ox_type(o, q).shape[2] / (g->heads + 2 * g->kv_heads);
        k = mica__ox_slice(o, q, 2, g->heads * d, g->kv_heads * d);
        v = mica__ox_slice(o, q, 2, (g->heads + g->kv_heads) * d, g->kv_heads * d);
        q = mica__ox_slice(o, q, 2, 0, g->heads * d);
    }
    a->q = split_heads(o, q, g->heads);
    a->k = split_heads(o, k, g->kv_heads);
    a->v = split_heads(o, v, g->kv_heads);
}

/* Without position_ids the new tokens stand behind the past. */
static mica_status turn_group_query(mica__ox_op *o, const group_query *g, attention *a)
{
    const uint64_t shape[2] = {g->batch, g->queries};
    mica_tensor at = mica__ox_in(o, 9);
    if (at == 0) {
        at = mica__ox_iota(o, 2, shape, 1, MICA_DTYPE_I64);
        at = binary(o, MICA_SCALAR_ADD, at, mica__ox_number(o, at, (double)g->before));
    }
    const mica__ox_rotary rotary = {
        .cos = mica__ox_in(o, 7), .sin = mica__ox_in(o, 8), .at = at, .interleaved = g->interleaved};
    MICA__TRY(mica__ox_rotate(o, &rotary, &a->q));
    return mica__ox_rotate(o, &rotary, &a->k);
}

/* query, key, value, past_key, past_value, seqlens_k, total_sequence_length, cos_cache, sin_cache, position_ids, attention_bias,
 * head_sink */
mica_status mica__ox_group_query(mica__ox_op *o)
{
    attention a = {.scale = (double)mica__ox_float(o, "scale", 0),
                   .softcap = (double)mica__ox_float(o, "softcap", 0)};
    group_query g = {.heads = 0};
    MICA__TRY(read_group_query(o, &g));
    split_group_query(o, &g, &a);
    if (g.rotary)
        MICA__TRY(turn_group_query(o, &g, &a));
    a.k = behind(o, g.past, a.k);
    a.v = behind(o, mica__ox_in(o, 4), a.v);
    /* lengths less one are given; keys from there on are padding */
    mica_tensor lengths = mica__ox_cast(o, mica__ox_in(o, 5), MICA_DTYPE_I64);
    lengths = mica__ox_reshape(o, binary(o, MICA_SCALAR_ADD, lengths, mica__ox_number(o, lengths, 1)), 1,
                               (const uint64_t[]){g.batch});
    const places p = {.queries = g.queries,
                      .keys = g.total,
                      .past = (int64_t)g.before,
                      .causal = true,
                      .left = g.window > 0 ? g.window - 1 : -1,
                      .right = -1};
    const places valid = {.queries = g.queries, .keys = g.total, .lengths = lengths, .left = -1, .right = -1};
    a.allowed = both(o, seen(o, &p), seen(o, &valid));
    a.bias = mica__ox_in(o, 10);
    MICA__TRY(mica_graph_status(o->graph));
    MICA__TRY(attend(o, &a));
    mica__ox_out(o, 0, join_heads(o, a.y));
    mica__ox_out(o, 1, a.k);
    mica__ox_out(o, 2, a.v);
    return MICA_OK;
}
