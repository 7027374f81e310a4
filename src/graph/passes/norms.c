/*
 * norms.c - softmax, norms and activations that are written out in small ops become the ops and scalars of the tables: one pass over memory, rounded once, and without the
 * overflow that e^x has where it is not needed. In one thing a softmax is another: of a row of nothing but -inf it gives zeros, where the small ops give NaN.
 */
#include <math.h>

#include "graph/passes/match.h"
#include "mica/ops.h"

typedef mica_tensor recognise(mica__walk *walk, const mica__node *node);

static mica_tensor new_of(const mica__walk *walk, mica_tensor tensor)
{
    return walk->rewrite.map[tensor];
}

/* ---- softmax ---- */

/* x of e^x or e^(x - max x); 0. `uses` of the exponential. */
static mica_tensor match_exponential(const mica__walk *walk, mica_tensor e, uint32_t uses)
{
    const mica__node *exp = mica__match_scalar(walk, e, MICA_SCALAR_EXP, uses);
    if (exp == NULL)
        return 0;
    const mica_tensor x = mica__match_input(walk, exp, 0);
    const mica__node *sub = mica__match_scalar(walk, x, MICA_SCALAR_SUB, 1);
    if (sub == NULL)
        return x;
    const mica_tensor inner = mica__match_input(walk, sub, 0);
    return mica__match_reduced(walk, mica__match_input(walk, sub, 1), MICA_REDUCE_MAX, inner, 1) ? inner : x;
}

static mica_tensor add_softmax(mica__walk *walk, const mica__node *node, mica_tensor x, uint32_t log)
{
    const mica_softmax_params params = {.scale = 1, .log = log};
    const mica_operand_desc asked = mica__match_asked(walk, node);
    const mica_dtype dtype = mica__type_of(walk->rewrite.from, x)->dtype;
    if (!mica__is_small_float(dtype) && (dtype != MICA_DTYPE_F64 || asked.dtype != dtype))
        return 0;
    const mica_tensor inputs[] = {mica__match_bare(walk, new_of(walk, x)), 0};
    return mica_graph_op(walk->rewrite.to, MICA_OP_SOFTMAX, &params, inputs, 2, 1, &asked, NULL, 1);
}

/* e / sum(e) */
static mica_tensor softmax(mica__walk *walk, const mica__node *node)
{
    const mica_tensor e = mica__match_input(walk, node, 0);
    const mica_tensor x = match_exponential(walk, e, 2);
    if (x == 0 || !mica__match_reduced(walk, mica__match_input(walk, node, 1), MICA_REDUCE_SUM, e, 1))
        return 0;
    return add_softmax(walk, node, x, 0);
}

/* d - log(sum(e^d)), d = x - max x */
static mica_tensor log_softmax(mica__walk *walk, const mica__node *node)
{
    const mica_tensor d = mica__match_input(walk, node, 0);
    const mica__node *log = mica__match_scalar(walk, mica__match_input(walk, node, 1), MICA_SCALAR_LOG, 1);
    const mica__node *sub = mica__match_scalar(walk, d, MICA_SCALAR_SUB, 2);
    if (log == NULL || sub == NULL)
        return 0;
    const mica_tensor x = mica__match_input(walk, sub, 0), sum = mica__match_input(walk, log, 0);
    const mica__node *reduce = mica__match_op(walk, sum, MICA_OP_REDUCE, 1);
    if (reduce == NULL || !mica__match_reduced(walk, mica__match_input(walk, sub, 1), MICA_REDUCE_MAX, x, 1))
        return 0;
    const mica_tensor e = mica__match_input(walk, reduce, 0);
    const mica__node *exp = mica__match_scalar(walk, e, MICA_SCALAR_EXP, 1);
    if (exp == NULL || mica__match_input(walk, exp, 0) != d ||
        !mica__match_reduced(walk, sum, MICA_REDUCE_SUM, e, 1))
        return 0;
    return add_softmax(walk, node, x, 1);
}

/* ---- norms ---- */

/* 1 / sqrt(v + eps) as a factor, or sqrt(v + eps) as a divisor: v; 0. */
static mica_tensor match_deviation(const mica__walk *walk, mica_tensor tensor, bool divides, float *eps)
{
    double number = 0;
    const mica__node *root =
        mica__match_scalar(walk, tensor, divides ? MICA_SCALAR_SQRT : MICA_SCALAR_RSQRT, 1);
    if (root == NULL && !divides) { /* 1 / sqrt */
        const mica__node *over = mica__match_scalar(walk, tensor, MICA_SCALAR_RECIPROCAL, 1);
        if (over == NULL) {
            const mica__node *div = mica__match_scalar(walk, tensor, MICA_SCALAR_DIV, 1);
            const bool one =
                div != NULL &&
                mica__graph_number(walk->rewrite.from, mica__match_input(walk, div, 0), &number) &&
                number == 1;
            root =
                one ? mica__match_scalar(walk, mica__match_input(walk, div, 1), MICA_SCALAR_SQRT, 1) : NULL;
        } else {
            root = mica__match_scalar(walk, mica__match_input(walk, over, 0), MICA_SCALAR_SQRT, 1);
        }
    }
    const mica__node *add =
        root == NULL ? NULL : mica__match_scalar(walk, mica__match_input(walk, root, 0), MICA_SCALAR_ADD, 1);
    const mica_tensor v = add == NULL ? 0 : mica__match_number(walk, add, false, &number);
    return v != 0 && number >= 0 && mica__as_f32(number, eps) ? v : 0;
}

static mica_tensor add_norm(mica__walk *walk, const mica__node *node, mica_op op, mica_tensor x, float eps)
{
    const mica_norm_params params = {.eps = eps};
    const mica_operand_desc asked = mica__match_asked(walk, node);
    if (!mica__is_small_float(mica__type_of(walk->rewrite.from, x)->dtype) ||
        !mica__is_small_float(asked.dtype))
        return 0;
    const mica_tensor inputs[] = {mica__match_bare(walk, new_of(walk, x)), 0, 0};
    return mica_graph_op(walk->rewrite.to, op, &params, inputs, op == MICA_OP_RMS_NORM ? 2 : 3, 1, &asked,
                         NULL, 1);
}

/* What v of x is: the mean of x^2 of an rms norm (x used twice more than elsewhere, which is the caller's), or of what is around the mean of a layer norm. */
static mica_tensor norm_of(mica__walk *walk, const mica__node *node, mica_tensor x, mica_tensor v, float eps)
{
    const mica__node *reduce = mica__match_node(walk, v);
    if (reduce->kind == MICA_NODE_RESHAPE)
        reduce = mica__match_node(walk, mica__match_input(walk, reduce, 0));
    if (reduce->kind != MICA_NODE_OP || reduce->code != MICA_OP_REDUCE)
        return 0;
    const mica_tensor of = mica__match_input(walk, reduce, 0);
    const mica__node *sub = mica__match_node(walk, x);
    const bool centred =
        sub->kind == MICA_NODE_SCALAR && sub->code == MICA_SCALAR_SUB && mica__match_here(walk, sub);
    const mica_tensor whole = centred ? mica__match_input(walk, sub, 0) : 0;
    const mica_tensor mean = centred ? mica__match_input(walk, sub, 1) : 0;
    if (centred && of == whole && mica__match_reduced(walk, v, MICA_REDUCE_VAR, whole, 1) &&
        mica__match_reduced(walk, mean, MICA_REDUCE_MEAN, whole, 1) && walk->uses[x] == 1)
        return add_norm(walk, node, MICA_OP_LAYER_NORM, whole, eps);
    const mica_tensor squared = mica__match_square(walk, of, 1);
    if (squared != x || !mica__match_reduced(walk, v, MICA_REDUCE_MEAN, of, 1))
        return 0;
    const uint32_t within = mica__match_node(walk, of)->code == MICA_SCALAR_MUL ? 3 : 2;
    if (centred && walk->uses[x] == within && mica__match_reduced(walk, mean, MICA_REDUCE_MEAN, whole, 1))
        return add_norm(walk, node, MICA_OP_LAYER_NORM, whole, eps);
    return add_norm(walk, node, MICA_OP_RMS_NORM, x, eps);
}

static mica_tensor norm(mica__walk *walk, const mica__node *node)
{
    const bool divides = node->code == MICA_SCALAR_DIV;
    for (uint32_t i = divides ? 1 : 0; i < 2; i++) {
        float eps = 0;
        const mica_tensor v = match_deviation(walk, mica__match_input(walk, node, i), divides, &eps);
        const mica_tensor y = v == 0 ? 0 : norm_of(walk, node, mica__match_input(walk, node, 1 - i), v, eps);
        if (y != 0)
            return y;
    }
    return 0;
}

/* A weight or bias [dim] behind a norm that has none yet, and that nobody else needs. */
static mica_tensor norm_operand(mica__walk *walk, const mica__node *node)
{
    const mica_graph *to = walk->rewrite.to;
    const bool bias = node->code == MICA_SCALAR_ADD;
    for (uint32_t i = 0; i < 2; i++) {
        const mica_tensor from = mica__match_input(walk, node, i);
        const mica_tensor normed = new_of(walk, from),
                          other = new_of(walk, mica__match_input(walk, node, 1 - i));
        const mica__node *norm = mica__node_of(to, normed);
        const bool layer = norm->kind == MICA_NODE_OP && norm->code == MICA_OP_LAYER_NORM;
        const bool rms = norm->kind == MICA_NODE_OP && norm->code == MICA_OP_RMS_NORM && !bias;
        const mica__type *type = mica__type_of(to, normed), *more = mica__type_of(to, other);
        if (walk->uses[from] != 1 || !(layer || rms) || !mica__match_here(walk, norm) || more->ndim != 1 ||
            type->ndim == 0 || more->shape[0] != type->shape[type->ndim - 1] ||
            !mica__is_small_float(more->dtype) || !mica__size_known(more->shape[0]))
            continue;
        mica_tensor inputs[] = {mica__node_inputs(to, norm)[0], mica__node_inputs(to, norm)[1],
                                layer ? mica__node_inputs(to, norm)[2] : 0};
        if (inputs[1 + bias] != 0 || (!bias && inputs[2] != 0))
            continue;
        inputs[1 + bias] = other;
        const mica_norm_params params = *(const mica_norm_params *)mica__op_params(norm);
        const mica_operand_desc asked = mica__match_asked(walk, node);
        if (!mica__is_small_float(asked.dtype))
            continue;
        return mica_graph_op(walk->rewrite.to, layer ? MICA_OP_LAYER_NORM : MICA_OP_RMS_NORM, &params, inputs,
                             layer ? 3 : 2, 1, &asked, NULL, 1);
    }
    return 0;
}

/* ---- activations ---- */

static mica_tensor add_scalar(mica__walk *walk, const mica__node *node, mica_scalar scalar, mica_tensor x)
{
    const mica_graph *from = walk->rewrite.from;
    if (mica__type_of(from, x)->dtype != mica__type_of(from, *mica__node_outputs(from, node))->dtype)
        return 0;
    return mica_graph_scalar(walk->rewrite.to, scalar, new_of(walk, x), 0, 0);
}

/* x of 1 + e^-x; 0. */
static mica_tensor match_logistic(const mica__walk *walk, mica_tensor tensor)
{
    const mica__node *add = mica__match_scalar(walk, tensor, MICA_SCALAR_ADD, 1);
    const mica__node *exp =
        add == NULL ? NULL : mica__match_scalar(walk, mica__match_with(walk, add, 1), MICA_SCALAR_EXP, 1);
    const mica__node *neg =
        exp == NULL ? NULL : mica__match_scalar(walk, mica__match_input(walk, exp, 0), MICA_SCALAR_NEG, 1);
    return neg == NULL ? 0 : mica__match_input(walk, neg, 0);
}

/* 1 / (1 + e^-x), x / (1 + e^-x) */
static mica_tensor sigmoid(mica__walk *walk, const mica__node *node)
{
    double one = 0;
    const bool over = node->code == MICA_SCALAR_RECIPROCAL;
    const mica_tensor first = mica__match_input(walk, node, 0);
    const mica_tensor x = match_logistic(walk, over ? first : mica__match_input(walk, node, 1));
    if (x == 0)
        return 0;
    if (!over && first == x)
        return add_scalar(walk, node, MICA_SCALAR_SILU, x);
    if (!over && (!mica__graph_number(walk->rewrite.from, first, &one) || one != 1))
        return 0;
    return add_scalar(walk, node, MICA_SCALAR_SIGMOID, x);
}

/* x sigmoid(x), x sigmoid(1.702 x), of sigmoids that are written out as well */
static mica_tensor silu(mica__walk *walk, const mica__node *node)
{
    const mica_graph *to = walk->rewrite.to;
    for (uint32_t i = 0; i < 2; i++) {
        const mica_tensor from = mica__match_input(walk, node, i), x = mica__match_input(walk, node, 1 - i);
        const mica__node *gate = mica__node_of(to, new_of(walk, from));
        if (walk->uses[from] != 1 || gate->kind != MICA_NODE_SCALAR || gate->code != MICA_SCALAR_SIGMOID ||
            !mica__match_here(walk, gate))
            continue;
        const mica_tensor of = mica__node_inputs(to, gate)[0];
        if (of == new_of(walk, x))
            return add_scalar(walk, node, MICA_SCALAR_SILU, x);
        const mica__node *mul = mica__node_of(to, of);
        double factor = 0;
        if (mul->kind != MICA_NODE_SCALAR || mul->code != MICA_SCALAR_MUL)
            continue;
        for (uint32_t k = 0; k < 2; k++)
            if (mica__node_inputs(to, mul)[k] == new_of(walk, x) &&
                mica__graph_number(to, mica__node_inputs(to, mul)[1 - k], &factor) &&
                fabs(factor - 1.702) < 1e-6)
                return add_scalar(walk, node, MICA_SCALAR_QUICK_GELU, x);
    }
    return 0;
}

/* The factors of a product written with mul, numbers apart; false where there are too many. */
typedef struct factors {
    mica_tensor factor[4];
    uint32_t count;
    double number;
} factors;

static bool find_factors(const mica__walk *walk, const mica__node *mul, factors *out, uint32_t depth)
{
    for (uint32_t i = 0; i < 2; i++) {
        const mica_tensor tensor = mica__match_input(walk, mul, i);
        const mica__node *inner = mica__match_scalar(walk, tensor, MICA_SCALAR_MUL, 1);
        double number = 0;
        if (mica__graph_number(walk->rewrite.from, tensor, &number))
            out->number *= number;
        else if (inner != NULL && depth < 3) {
            if (!find_factors(walk, inner, out, depth + 1))
                return false;
        } else if (out->count == 4)
            return false;
        else
            out->factor[out->count++] = tensor;
    }
    return true;
}

/* Whether `tensor` is x times (or over) a number near this one. */
static bool is_scaled(const mica__walk *walk, mica_tensor tensor, mica_tensor x, double by)
{
    double number = 0;
    const mica__node *node = mica__match_scalar(walk, tensor, MICA_SCALAR_MUL, 1);
    if (node != NULL)
        return mica__match_number(walk, node, false, &number) == x && fabs(number - by) < 1e-6 * by;
    node = mica__match_scalar(walk, tensor, MICA_SCALAR_DIV, 1);
    return node != NULL && mica__match_number(walk, node, true, &number) == x &&
           fabs(1 / number - by) < 1e-6 * by;
}

/* x^3 */
static bool is_cube(const mica__walk *walk, mica_tensor tensor, mica_tensor x)
{
    double power = 0;
    const mica__node *pow = mica__match_scalar(walk, tensor, MICA_SCALAR_POW, 1);
    if (pow != NULL)
        return mica__match_number(walk, pow, true, &power) == x && power == 3;
    const mica__node *mul = mica__match_scalar(walk, tensor, MICA_SCALAR_MUL, 1);
    const mica_tensor square = mul == NULL ? 0 : mica__match_other(walk, mul, x);
    return square != 0 && mica__match_square(walk, square, 1) == x;
}

/* 0.7978845608 (x + 0.044715 x^3) */
static bool is_tanh_argument(const mica__walk *walk, mica_tensor tensor, mica_tensor x)
{
    double scale = 0, part = 0;
    const mica__node *mul = mica__match_scalar(walk, tensor, MICA_SCALAR_MUL, 1);
    const mica_tensor sum = mul == NULL ? 0 : mica__match_number(walk, mul, false, &scale);
    const mica__node *add = mica__match_scalar(walk, sum, MICA_SCALAR_ADD, 1);
    const mica_tensor cubic = add == NULL ? 0 : mica__match_other(walk, add, x);
    const mica__node *by = mica__match_scalar(walk, cubic, MICA_SCALAR_MUL, 1);
    const mica_tensor cube = by == NULL ? 0 : mica__match_number(walk, by, false, &part);
    return cube != 0 && is_cube(walk, cube, x) && fabs(scale - 0.7978845608028654) < 1e-6 &&
           fabs(part - 0.044715) < 1e-7;
}

/* 0.5 x (1 + erf(x / sqrt 2)), 0.5 x (1 + tanh(..)) */
static mica_tensor gelu(mica__walk *walk, const mica__node *node)
{
    factors all = {.number = 1};
    if (!find_factors(walk, node, &all, 0) || all.count != 2 || all.number != 0.5)
        return 0;
    for (uint32_t i = 0; i < 2; i++) {
        const mica_tensor x = all.factor[1 - i];
        const mica__node *add = mica__match_scalar(walk, all.factor[i], MICA_SCALAR_ADD, 1);
        const mica_tensor curve = add == NULL ? 0 : mica__match_with(walk, add, 1);
        const mica__node *erf = mica__match_scalar(walk, curve, MICA_SCALAR_ERF, 1);
        if (erf != NULL && is_scaled(walk, mica__match_input(walk, erf, 0), x, 0.7071067811865476))
            return add_scalar(walk, node, MICA_SCALAR_GELU_ERF, x);
        const mica__node *tanh = mica__match_scalar(walk, curve, MICA_SCALAR_TANH, 1);
        if (tanh != NULL && is_tanh_argument(walk, mica__match_input(walk, tanh, 0), x))
            return add_scalar(walk, node, MICA_SCALAR_GELU, x);
    }
    return 0;
}

/* ---- the walk ---- */

static recognise *const by_scalar[MICA_SCALAR_COUNT][4] = {
    [MICA_SCALAR_DIV] = {softmax, norm, sigmoid},
    [MICA_SCALAR_SUB] = {log_softmax},
    [MICA_SCALAR_MUL] = {gelu, norm, norm_operand, silu},
    [MICA_SCALAR_ADD] = {norm_operand},
    [MICA_SCALAR_RECIPROCAL] = {sigmoid},
};

static mica__visit visit(mica__walk *walk, uint32_t at)
{
    const mica__node *node = mica__walk_node(walk, at);
    if (node->kind != MICA_NODE_SCALAR)
        return MICA__VISIT_LEFT;
    for (uint32_t i = 0; i < 4 && by_scalar[node->code][i] != NULL; i++) {
        const mica_tensor y = by_scalar[node->code][i](walk, node);
        if (y != 0)
            return mica__walk_gives(walk, node, y);
    }
    return MICA__VISIT_LEFT;
}

static bool concerns(const mica__node *node, const mica__pass_options *options)
{
    (void)options;
    return node->kind == MICA_NODE_SCALAR;
}

const mica__graph_pass mica__graph_pass_norms = {
    "norms", "softmax, norms and activations written out in small ops become ops", concerns, visit, NULL,
    NULL};
