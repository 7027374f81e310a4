/*
 * attention.c - softmax(q k^T scale + mask) v, written as products around a softmax, becomes attention: scores are never written to memory.
 *
 * q [batch, heads, tokens, dim], k and v [batch, heads or fewer, keys, dim], or all of them without a batch. A batch is a sequence for each of its parts: keys
 * lie in a page each. Masks are added ones and ones of bool, of any shape that repeats to the scores; softcaps are taken too. Numbers that q and k are multiplied by go to
 * the scale. A guard that makes zeros of rows that see nothing goes: attention gives zeros for them; a row with NaN in it stays NaN, as it was before it was exported.
 */
#include <math.h>

#include "graph/passes/match.h"
#include "mica/ops.h"

typedef struct scores {
    mica_tensor q, k, v, mask; /* of the old graph; k as [.., dim, keys] */
    double scale;
    float softcap;
    bool refuses; /* mask of bool: true are the keys that are not seen */
} scores;

/* The operands of a plain product. */
static const mica__node *match_product(const mica__walk *walk, mica_tensor tensor)
{
    const mica__node *node = mica__match_op(walk, tensor, MICA_OP_PRODUCT, 1);
    return node == NULL || mica__match_input(walk, node, 2) != 0 || mica__match_input(walk, node, 3) != 0 ||
                   mica__match_input(walk, node, 4) != 0
               ? NULL
               : node;
}

static bool same_shape(const mica__walk *walk, mica_tensor a, mica_tensor b)
{
    const mica__type *x = mica__type_of(walk->rewrite.from, a), *y = mica__type_of(walk->rewrite.from, b);
    bool same = x->ndim == y->ndim;
    for (uint32_t d = 0; d < x->ndim && same; d++)
        same = x->shape[d] == y->shape[d] && x->shape[d] != MICA_SIZE_UNKNOWN;
    return same;
}

static bool is_masked_out(const mica__walk *walk, mica_tensor tensor)
{
    double number = 0;
    return mica__graph_number(walk->rewrite.from, tensor, &number) && isinf(number) && number < 0;
}

/* Takes a mask off the scores: what is added, or what is -inf where a condition says so. */
static mica_tensor take_mask(const mica__walk *walk, mica_tensor s, scores *out)
{
    const mica__node *add = mica__match_scalar(walk, s, MICA_SCALAR_ADD, 1);
    const mica__node *select = mica__match_scalar(walk, s, MICA_SCALAR_SELECT, 1);
    mica_tensor inner = 0;
    for (uint32_t i = 0; add != NULL && i < 2 && inner == 0; i++) {
        const mica_tensor x = mica__match_input(walk, add, i), other = mica__match_input(walk, add, 1 - i);
        const mica_dtype dtype = mica__type_of(walk->rewrite.from, other)->dtype;
        const mica__node *from = mica__match_node(walk, x);
        const bool computed =
            from->kind == MICA_NODE_SCALAR || from->kind == MICA_NODE_OP; /* not the mask itself */
        if (computed && walk->uses[x] == 1 && same_shape(walk, x, s) && mica__is_small_float(dtype)) {
            out->mask = other;
            inner = x;
        }
    }
    if (select != NULL) {
        const mica_tensor yes = mica__match_input(walk, select, 1), no = mica__match_input(walk, select, 2);
        out->refuses = is_masked_out(walk, yes);
        inner = out->refuses ? no : is_masked_out(walk, no) ? yes : 0;
        out->mask = inner != 0 && same_shape(walk, inner, s) ? mica__match_input(walk, select, 0) : 0;
        inner = out->mask == 0 ? 0 : inner;
    }
    return inner;
}

/* Scale and softcap, from the outside in. */
static mica_tensor take_scale(const mica__walk *walk, mica_tensor s, scores *out)
{
    double number = 0, cap = 0;
    const mica__node *mul = mica__match_scalar(walk, s, MICA_SCALAR_MUL, 1);
    const mica_tensor curve = mul == NULL ? 0 : mica__match_number(walk, mul, false, &cap);
    const mica__node *tanh = mica__match_scalar(walk, curve, MICA_SCALAR_TANH, 1);
    const mica__node *div =
        tanh == NULL ? NULL : mica__match_scalar(walk, mica__match_input(walk, tanh, 0), MICA_SCALAR_DIV, 1);
    const mica_tensor capped = div == NULL ? 0 : mica__match_number(walk, div, true, &number);
    if (capped != 0 && number == cap && cap > 0 && mica__as_f32(cap, &out->softcap))
        s = capped;
    mul = mica__match_scalar(walk, s, MICA_SCALAR_MUL, 1);
    mica_tensor inner = mul == NULL ? 0 : mica__match_number(walk, mul, false, &number);
    if (inner == 0) {
        div = mica__match_scalar(walk, s, MICA_SCALAR_DIV, 1);
        inner = div == NULL ? 0 : mica__match_number(walk, div, true, &number);
        number = inner == 0 || number == 0 ? 1 : 1 / number;
    }
    out->scale *= inner == 0 ? 1 : number;
    return inner == 0 ? s : inner;
}

/* The softmax p, also behind a guard that exporters write for rows that see nothing: where(isnan(s), 0, s). Such rows are zeros without it. */
static const mica__node *match_softmax(const mica__walk *walk, mica_tensor p)
{
    double number = 1;
    const mica__node *guard = mica__match_scalar(walk, p, MICA_SCALAR_SELECT, 1);
    if (guard == NULL)
        return mica__match_op(walk, p, MICA_OP_SOFTMAX, 1);
    const mica_tensor s = mica__match_input(walk, guard, 2);
    const mica__node *isnan =
        mica__match_scalar(walk, mica__match_input(walk, guard, 0), MICA_SCALAR_ISNAN, 1);
    const bool zero =
        mica__graph_number(walk->rewrite.from, mica__match_input(walk, guard, 1), &number) && number == 0;
    return zero && isnan != NULL && mica__match_input(walk, isnan, 0) == s
               ? mica__match_op(walk, s, MICA_OP_SOFTMAX, 2)
               : NULL;
}

/* An operand of the scores before it was multiplied by a number, which goes to the scale. */
static mica_tensor take_factor(const mica__walk *walk, mica_tensor tensor, scores *out)
{
    double number = 0;
    const mica__node *mul = mica__match_scalar(walk, tensor, MICA_SCALAR_MUL, 1);
    const mica_tensor inner = mul == NULL ? 0 : mica__match_number(walk, mul, false, &number);
    if (inner == 0 || out->softcap != 0 || !same_shape(walk, inner, tensor) ||
        mica__type_of(walk->rewrite.from, inner)->dtype != mica__type_of(walk->rewrite.from, tensor)->dtype)
        return tensor;
    out->scale *= number;
    return inner;
}

static bool match_scores(const mica__walk *walk, const mica__node *node, scores *out)
{
    const mica__node *softmax = match_softmax(walk, mica__match_input(walk, node, 0));
    const mica_softmax_params *params = softmax == NULL ? NULL : mica__op_params(softmax);
    if (params == NULL || params->log != 0 || mica__match_input(walk, node, 2) != 0 ||
        mica__match_input(walk, node, 3) != 0 || mica__match_input(walk, node, 4) != 0)
        return false;
    *out = (scores){.v = mica__match_input(walk, node, 1), .scale = 1};
    mica_tensor s = mica__match_input(walk, softmax, 0);
    const mica_tensor given = mica__match_input(walk, softmax, 1);
    out->mask = given;
    if (params->scale != 1 &&
        (given != 0 || walk->uses[s] != 1)) /* the scale is on what is without the mask */
        return false;
    const mica_tensor bare = given != 0 || params->scale != 1 ? 0 : take_mask(walk, s, out);
    s = take_scale(walk, bare != 0 ? bare : s, out);
    out->scale *= (double)params->scale;
    const mica__node *product = match_product(walk, s);
    if (product == NULL || (out->softcap != 0 && params->scale != 1))
        return false;
    out->q = take_factor(walk, mica__match_input(walk, product, 0), out);
    out->k = take_factor(walk, mica__match_input(walk, product, 1), out);
    return out->scale > 0 && isfinite((float)out->scale);
}

/* Keys or values before they were repeated for each head of a group: [batch, groups, 1, ..] -> [batch, groups, n, ..] -> [batch, heads, ..]; itself where they were not. */
static mica_tensor ungrouped(const mica__walk *walk, mica_tensor tensor, uint32_t axis)
{
    const mica_graph *to = walk->rewrite.to;
    const mica__node *reshape = mica__node_of(to, tensor);
    const mica__type *whole = mica__type_of(to, tensor);
    if (reshape->kind != MICA_NODE_RESHAPE)
        return tensor;
    const mica_tensor repeated = *mica__node_inputs(to, reshape);
    const mica__node *expand = mica__node_of(to, repeated);
    const mica__type *more = mica__type_of(to, repeated);
    if (expand->kind != MICA_NODE_EXPAND || more->ndim != whole->ndim + 1)
        return tensor;
    const mica_tensor inner = *mica__node_inputs(to, expand);
    const mica__type *few = mica__type_of(to, inner);
    bool fits = few->ndim == more->ndim && few->shape[axis + 1] == 1 && mica__size_known(more->shape[axis]) &&
                mica__size_known(more->shape[axis + 1]);
    for (uint32_t d = 0; d < more->ndim && fits; d++) {
        fits = d == axis + 1 || (few->shape[d] == more->shape[d] && few->shape[d] != MICA_SIZE_UNKNOWN);
        if (d > axis + 1)
            fits = fits && more->shape[d] == whole->shape[d - 1];
    }
    if (!fits)
        return tensor;
    uint64_t shape[MICA_MAX_DIMS];
    for (uint32_t d = 0; d < whole->ndim; d++)
        shape[d] = d <= axis ? few->shape[d] : few->shape[d + 1];
    return mica_graph_reshape(walk->rewrite.to, inner, whole->ndim, shape);
}

/* What an attention is made of, in the new graph. */
typedef struct making {
    mica_graph *to;
    uint64_t batch, heads, tokens, keys; /* batch 0: none */
} making;

/* [batch, heads, n, dim] as [batch, n, heads, dim]. */
static mica_tensor transposed(const making *m, mica_tensor x)
{
    static const uint32_t with[] = {0, 2, 1, 3}, without[] = {1, 0, 2};
    return mica_graph_permute(m->to, x, m->batch != 0 ? with : without);
}

/* A number for each token, of u32. */
static mica_tensor for_tokens(const making *m, mica_tensor x)
{
    const uint64_t shape[] = {m->batch != 0 ? m->batch : 1, m->tokens}, rest = MICA_SIZE_REST;
    return mica_graph_reshape(m->to, mica_graph_expand(m->to, x, 2, shape), 1, &rest);
}

/* How many keys there are, for each sequence. */
static mica_tensor key_count(const making *m)
{
    const uint64_t sequences = m->batch != 0 ? m->batch : 1;
    if (mica__size_known(m->keys))
        return mica_graph_expand(m->to, mica_graph_number(m->to, MICA_DTYPE_U32, (double)m->keys), 1,
                                 &sequences);
    const mica_reduce_params params = {.kind = MICA_REDUCE_MAX, .keep_dims = 1};
    const mica_tensor last = mica_graph_index(m->to, MICA_DTYPE_U32, 1, &m->keys, 0);
    const mica_tensor most = mica_graph_op(m->to, MICA_OP_REDUCE, &params, &last, 1, 1, NULL, NULL, 0);
    const mica_tensor count = mica_graph_add(m->to, most, mica_graph_number(m->to, MICA_DTYPE_U32, 1));
    return mica_graph_expand(m->to, count, 1, &sequences);
}

/* A mask that repeats to [batch, heads, tokens, keys] as [tokens, keys] or [heads, tokens, keys], tokens of all sequences. */
static mica_tensor mask_of(const making *m, mica_tensor mask, bool refuses)
{
    static const uint32_t heads_first[] = {1, 0, 2, 3};
    const mica__type *type = mica__type_of(m->to, mask);
    const uint64_t batch = m->batch != 0 ? m->batch : 1;
    const bool all = type->ndim >= 3 && type->shape[type->ndim - 3] != 1;
    const uint64_t shape[] = {batch, all ? m->heads : 1, m->tokens, m->keys};
    const uint64_t rows[] = {m->heads, MICA_SIZE_REST, m->keys};
    if (refuses)
        mask = mica_graph_bit_not(m->to, mask);
    mica_tensor whole = mica_graph_expand(m->to, mask, 4, shape);
    if (all)
        whole = mica_graph_permute(m->to, whole, heads_first);
    return mica_graph_reshape(m->to, whole, all ? 3 : 2, rows + !all);
}

static mica_tensor add_attention(const making *m, const scores *s, mica_tensor q, mica_tensor k,
                                 mica_tensor v, mica_tensor mask, const mica__type *was)
{
    const bool paged = m->batch != 0 && m->batch != 1;
    const mica_attention_params params = {
        .scale = (float)s->scale, .softcap = s->softcap, .bidirectional = 1};
    const mica__type keys = *mica__type_of(m->to, k), values = *mica__type_of(m->to, v);
    const uint32_t n = keys.ndim;
    const uint64_t dim = keys.shape[n - 1], wide = values.shape[n - 1];
    const uint64_t rows[] = {MICA_SIZE_REST, m->heads, dim}, column[] = {m->batch, 1};
    const uint64_t one_k[] = {m->keys, keys.shape[n - 3], dim},
                   one_v[] = {m->keys, values.shape[n - 3], wide};
    mica_tensor kt = transposed(m, k), vt = transposed(m, v), sequences = 0, pages = 0;
    if (!paged && m->batch != 0) {
        kt = mica_graph_reshape(m->to, kt, 3, one_k);
        vt = mica_graph_reshape(m->to, vt, 3, one_v);
    }
    if (paged) {
        const uint64_t all[] = {m->batch, m->tokens}, rest = MICA_SIZE_REST;
        sequences = mica_graph_reshape(m->to, mica_graph_index(m->to, MICA_DTYPE_U32, 2, all, 0), 1, &rest);
        pages = mica_graph_index(m->to, MICA_DTYPE_U32, 2, column, 0);
    }
    const mica_tensor inputs[] = {mica_graph_reshape(m->to, transposed(m, q), 3, rows),
                                  kt,
                                  vt,
                                  for_tokens(m, mica_graph_number(m->to, MICA_DTYPE_U32, 0)),
                                  key_count(m),
                                  sequences,
                                  pages,
                                  mask == 0 ? 0 : mask_of(m, mask, s->refuses),
                                  0,
                                  0,
                                  0};
    const mica_operand_desc asked[] = {{.dtype = was->dtype, .ndim = MICA_RANK_UNKNOWN}, {.ndim = 0}};
    const mica_tensor y = mica_graph_op(m->to, MICA_OP_ATTENTION, &params, inputs, 11, 1, asked, NULL, 2);
    const uint64_t back[] = {m->batch, m->tokens, m->heads, wide};
    const uint32_t first = m->batch != 0 ? 0 : 1;
    return transposed(m, mica_graph_reshape(m->to, y, 4 - first, back + first));
}

/* Types and shapes that the op has. */
static bool fits(const mica__walk *walk, const scores *s, const mica__type *was)
{
    const mica__type *q = mica__type_of(walk->rewrite.from, s->q),
                     *k = mica__type_of(walk->rewrite.from, s->k);
    const mica__type *v = mica__type_of(walk->rewrite.from, s->v);
    bool good = mica__is_small_float(q->dtype) && mica__is_small_float(k->dtype) &&
                mica__is_small_float(v->dtype) && mica__is_small_float(was->dtype) &&
                (q->ndim == 3 || q->ndim == 4) && k->ndim == q->ndim && v->ndim == q->ndim &&
                was->ndim == q->ndim;
    for (uint32_t d = 0; d < was->ndim && good; d++) {
        good = was->shape[d] != MICA_SIZE_UNKNOWN && q->shape[d] != MICA_SIZE_UNKNOWN;
        if (d + 2 < was->ndim)
            good = good && was->shape[d] == q->shape[d] && k->shape[d] == q->shape[d] &&
                   v->shape[d] == q->shape[d];
    }
    if (!good)
        return false;
    const uint32_t n = q->ndim;
    good = mica__size_known(q->shape[n - 3]) && mica__size_known(q->shape[n - 1]) && q->shape[n - 1] != 0 &&
           mica__size_known(v->shape[n - 1]) && v->shape[n - 2] == k->shape[n - 1] &&
           v->shape[n - 2] != MICA_SIZE_UNKNOWN && v->shape[n - 2] != 0 &&
           was->shape[n - 2] == q->shape[n - 2];
    if (s->mask == 0 || !good)
        return good;
    const mica__type *mask = mica__type_of(walk->rewrite.from, s->mask);
    const uint64_t wanted[] = {n == 4 ? q->shape[0] : 1, q->shape[n - 3], q->shape[n - 2], k->shape[n - 1]};
    good = mask->ndim <= 4 && (mask->dtype == MICA_DTYPE_BOOL || mica__is_small_float(mask->dtype));
    for (uint32_t d = 0; d < mask->ndim && good; d++) {
        const uint64_t size = mask->shape[mask->ndim - 1 - d];
        good = size == 1 || size == wanted[3 - d];
    }
    return good;
}

static mica__visit visit(mica__walk *walk, uint32_t at)
{
    const mica__node *node = mica__walk_node(walk, at);
    scores s;
    if (node->kind != MICA_NODE_OP || node->code != MICA_OP_PRODUCT || !match_scores(walk, node, &s))
        return MICA__VISIT_LEFT;
    const mica__type *was = mica__type_of(walk->rewrite.from, *mica__node_outputs(walk->rewrite.from, node));
    if (!fits(walk, &s, was))
        return MICA__VISIT_LEFT;
    static const uint32_t swap4[] = {0, 1, 3, 2}, swap3[] = {0, 2, 1};
    const mica_tensor *map = walk->rewrite.map;
    const uint32_t n = was->ndim, axis = n - 3;
    const making m = {.to = walk->rewrite.to,
                      .batch = n == 4 ? was->shape[0] : 0,
                      .heads = was->shape[n - 3],
                      .tokens = was->shape[n - 2],
                      .keys = mica__type_of(walk->rewrite.from, s.v)->shape[n - 2]};
    const mica__node *permute = mica__node_of(m.to, map[s.k]);
    mica_tensor k = 0;
    const uint32_t *swap = n == 4 ? swap4 : swap3;
    if (permute->kind == MICA_NODE_PERMUTE) { /* as keys lie: transposed back, in one view */
        const uint32_t *order = ((const mica__permute_data *)permute->data)->order;
        uint32_t both[MICA_MAX_DIMS];
        bool same = true;
        for (uint32_t d = 0; d < n; d++) {
            both[d] = order[swap[d]];
            same = same && both[d] == d;
        }
        const mica_tensor x = *mica__node_inputs(m.to, permute);
        k = same ? x : mica_graph_permute(m.to, x, both);
    } else {
        k = mica_graph_permute(m.to, map[s.k], swap);
    }
    mica_tensor v = map[s.v];
    const mica_tensor few_k = ungrouped(walk, k, axis), few_v = ungrouped(walk, v, axis);
    const mica__type *kt = mica__type_of(m.to, few_k), *vt = mica__type_of(m.to, few_v);
    if (kt->shape[axis] == vt->shape[axis] && mica__size_known(kt->shape[axis]) && kt->shape[axis] != 0 &&
        m.heads % kt->shape[axis] == 0) {
        k = few_k;
        v = few_v;
    }
    return mica__walk_gives(walk, node, add_attention(&m, &s, map[s.q], k, v, map[s.mask], was));
}

static bool concerns(const mica__node *node, const mica__pass_options *options)
{
    (void)options;
    return node->kind == MICA_NODE_OP && node->code == MICA_OP_SOFTMAX;
}

const mica__graph_pass mica__graph_pass_attention = {
    "attention", "products around a softmax become attention", concerns, visit, NULL, NULL};
