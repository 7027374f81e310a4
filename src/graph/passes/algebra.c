/*
 * algebra.c - nodes that say less than they seem to: each rule keeps every bit of every result, of zeros of both signs, infinities and NaN too. So x + 0 stays (of -0
 * it makes 0) where x + -0 goes, x * 0 stays, and a sum over what repeats stays unless it wraps.
 *
 * Rules look at the new graph, where what goes in has been simplified already. A rule gives the tensor that stands for the node, 0 where it does not apply;
 * types and sizes are compared by the walk.
 */
#include <math.h>
#include <string.h>

#include "graph/passes/passes.h"
#include "mica/ops.h"

typedef mica_tensor rule(mica__walk *walk, const mica__node *node, const mica_tensor *in);

/* The node of the new graph that gives a tensor, where it is of a kind and, if it computes, of the place of the one that is visited; else NULL. */
static const mica__node *given_by(const mica__walk *walk, mica_tensor tensor, mica_node_kind kind)
{
    const mica__node *node = tensor == 0 ? NULL : mica__node_of(walk->rewrite.to, tensor);
    const bool computes = kind == MICA_NODE_SCALAR || kind == MICA_NODE_OP || kind == MICA_NODE_CAST;
    return node != NULL && node->kind == kind && (!computes || node->place == walk->rewrite.to->place) ? node
                                                                                                       : NULL;
}
static const mica__node *given_by_scalar(const mica__walk *walk, mica_tensor tensor, mica_scalar scalar)
{
    const mica__node *node = given_by(walk, tensor, MICA_NODE_SCALAR);
    return node != NULL && node->code == (uint32_t)scalar ? node : NULL;
}
static mica_tensor input_of(const mica__walk *walk, const mica__node *node, uint32_t i)
{
    return mica__node_inputs(walk->rewrite.to, node)[i];
}

/* What the node gave. */
static const mica__type *result_of(const mica__walk *walk, const mica__node *node)
{
    return mica__type_of(walk->rewrite.from, *mica__node_outputs(walk->rewrite.from, node));
}

/* Whether every size is a number or a symbol. */
static bool is_certain(const mica__type *type)
{
    bool certain = true;
    for (uint32_t d = 0; d < type->ndim && certain; d++)
        certain = type->shape[d] != MICA_SIZE_UNKNOWN;
    return certain;
}

/* x in the type and shape that the node has. */
static mica_tensor as_result(mica__walk *walk, const mica__node *node, mica_tensor x)
{
    mica_graph *to = walk->rewrite.to;
    const mica__type *was = result_of(walk, node);
    if (mica__type_of(to, x)->dtype != was->dtype)
        x = mica_graph_cast(to, x, was->dtype);
    if (x == 0 || mica__types_equal(mica__type_of(to, x), was))
        return x;
    return is_certain(was) ? mica_graph_expand(to, x, was->ndim, was->shape) : 0;
}

/* ---- scalars ---- */

/* Whether `tensor` is this number throughout, and of zeros this one: -0 of floats, where `negative`. */
static bool is_number(const mica__walk *walk, mica_tensor tensor, double number, bool negative)
{
    double is = 0;
    if (!mica__graph_number(walk->rewrite.to, tensor, &is) || is != number)
        return false;
    const bool floats = mica_register_of(mica__type_of(walk->rewrite.to, tensor)->dtype) <= MICA_REGISTER_F64;
    return number != 0 || !floats || (signbit(is) != 0) == negative;
}

static mica_tensor simplify_add(mica__walk *walk, const mica__node *node, const mica_tensor *in)
{
    for (uint32_t i = 0; i < 2; i++)
        if (is_number(walk, in[i], 0, true))
            return as_result(walk, node, in[1 - i]);
    return 0;
}
static mica_tensor simplify_sub(mica__walk *walk, const mica__node *node, const mica_tensor *in)
{
    return is_number(walk, in[1], 0, false) ? as_result(walk, node, in[0]) : 0;
}
static mica_tensor simplify_mul(mica__walk *walk, const mica__node *node, const mica_tensor *in)
{
    for (uint32_t i = 0; i < 2; i++)
        if (is_number(walk, in[i], 1, false))
            return as_result(walk, node, in[1 - i]);
    return 0;
}
static mica_tensor simplify_div(mica__walk *walk, const mica__node *node, const mica_tensor *in)
{
    return is_number(walk, in[1], 1, false) ? as_result(walk, node, in[0]) : 0;
}

/* A square is rounded once, so at least as exact as pow. x^0.5 is no square root: of -0 and -inf it is another number. */
static mica_tensor simplify_pow(mica__walk *walk, const mica__node *node, const mica_tensor *in)
{
    double power = 0;
    mica_graph *to = walk->rewrite.to;
    if (!mica__graph_number(to, in[1], &power))
        return 0;
    if (power == 1)
        return as_result(walk, node, in[0]);
    const mica_scalar by = power == 2    ? MICA_SCALAR_SQUARE
                           : power == -1 ? MICA_SCALAR_RECIPROCAL
                                         : MICA_SCALAR_NONE;
    if (by == MICA_SCALAR_NONE || mica__type_of(to, in[0])->dtype != result_of(walk, node)->dtype)
        return 0;
    return as_result(walk, node, mica_graph_scalar(to, by, in[0], 0, 0));
}

/* Twice is not at all: neg (not of e8m0, which has no signs), bit_not (not of bool, of which a byte that is neither 0 nor 1 becomes one of them). */
static mica_tensor simplify_twice(mica__walk *walk, const mica__node *node, const mica_tensor *in)
{
    const mica__node *inner = given_by_scalar(walk, in[0], (mica_scalar)node->code);
    const mica_dtype dtype = mica__type_of(walk->rewrite.to, in[0])->dtype;
    const bool other = dtype == MICA_DTYPE_BOOL || dtype == MICA_DTYPE_E8M0;
    return inner == NULL || other ? 0 : as_result(walk, node, input_of(walk, inner, 0));
}
/* Twice is once. */
static mica_tensor simplify_again(mica__walk *walk, const mica__node *node, const mica_tensor *in)
{
    return given_by_scalar(walk, in[0], (mica_scalar)node->code) == NULL ? 0 : in[0];
}
static mica_tensor simplify_abs(mica__walk *walk, const mica__node *node, const mica_tensor *in)
{
    const mica__node *neg = given_by_scalar(walk, in[0], MICA_SCALAR_NEG);
    if (neg != NULL)
        return mica_graph_scalar(walk->rewrite.to, MICA_SCALAR_ABS, input_of(walk, neg, 0), 0, 0);
    return simplify_again(walk, node, in);
}
/* max(x, x), min(x, x) */
static mica_tensor simplify_same(mica__walk *walk, const mica__node *node, const mica_tensor *in)
{
    return in[0] == in[1] ? as_result(walk, node, in[0]) : 0;
}
static mica_tensor simplify_select(mica__walk *walk, const mica__node *node, const mica_tensor *in)
{
    double which = 0;
    if (in[1] == in[2])
        return as_result(walk, node, in[1]);
    if (!mica__graph_number(walk->rewrite.to, in[0], &which))
        return 0;
    return as_result(walk, node, which != 0 ? in[1] : in[2]);
}

/* Operands that were repeated by hand: the node repeats them itself, or what it gives is repeated. */
static mica_tensor drop_expands(mica__walk *walk, const mica__node *node, const mica_tensor *in)
{
    mica_tensor bare[3] = {0};
    bool any = false;
    if (!is_certain(result_of(walk, node)))
        return 0;
    for (uint32_t i = 0; i < node->input_count; i++) {
        const mica__node *expand = given_by(walk, in[i], MICA_NODE_EXPAND);
        bare[i] = expand == NULL ? in[i] : input_of(walk, expand, 0);
        any |= expand != NULL;
    }
    if (!any)
        return 0;
    const mica_tensor y =
        mica_graph_scalar(walk->rewrite.to, (mica_scalar)node->code, bare[0], bare[1], bare[2]);
    return y == 0 || !is_certain(mica__type_of(walk->rewrite.to, y)) ? 0 : as_result(walk, node, y);
}

static rule *const scalars[MICA_SCALAR_COUNT] = {
    [MICA_SCALAR_ADD] = simplify_add,       [MICA_SCALAR_SUB] = simplify_sub,
    [MICA_SCALAR_MUL] = simplify_mul,       [MICA_SCALAR_DIV] = simplify_div,
    [MICA_SCALAR_POW] = simplify_pow,       [MICA_SCALAR_NEG] = simplify_twice,
    [MICA_SCALAR_BIT_NOT] = simplify_twice, [MICA_SCALAR_ABS] = simplify_abs,
    [MICA_SCALAR_RELU] = simplify_again,    [MICA_SCALAR_FLOOR] = simplify_again,
    [MICA_SCALAR_CEIL] = simplify_again,    [MICA_SCALAR_ROUND] = simplify_again,
    [MICA_SCALAR_TRUNC] = simplify_again,   [MICA_SCALAR_MAX] = simplify_same,
    [MICA_SCALAR_MIN] = simplify_same,      [MICA_SCALAR_SELECT] = simplify_select,
};

static mica_tensor simplify_scalar(mica__walk *walk, const mica__node *node, const mica_tensor *in)
{
    rule *const by = scalars[node->code];
    const mica_tensor y = by == NULL ? 0 : by(walk, node, in);
    return y != 0 ? y : drop_expands(walk, node, in);
}

/* ---- casts ---- */

typedef struct range { /* of a type's numbers: exponent and digits of floats; bits and sign of integers */
    uint8_t floats, digits, exponent, sign;
} range;

/* Whether every number of `from` is one of `to`. */
static bool holds(mica_dtype to, mica_dtype from)
{
    static const range ranges[MICA_DTYPE_COUNT] = {
        [MICA_DTYPE_F16] = {1, 11, 5, 1},    [MICA_DTYPE_BF16] = {1, 8, 8, 1},
        [MICA_DTYPE_F32] = {1, 24, 8, 1},    [MICA_DTYPE_F64] = {1, 53, 11, 1},
        [MICA_DTYPE_I8] = {0, 7, 0, 1},      [MICA_DTYPE_I16] = {0, 15, 0, 1},
        [MICA_DTYPE_I32] = {0, 31, 0, 1},    [MICA_DTYPE_I64] = {0, 63, 0, 1},
        [MICA_DTYPE_U8] = {0, 8, 0, 0},      [MICA_DTYPE_U16] = {0, 16, 0, 0},
        [MICA_DTYPE_U32] = {0, 32, 0, 0},    [MICA_DTYPE_U64] = {0, 64, 0, 0},
        [MICA_DTYPE_F8_E4M3] = {1, 4, 4, 1}, [MICA_DTYPE_F8_E5M2] = {1, 3, 5, 1},
    };
    const range *x = &ranges[from], *y = &ranges[to];
    if (x->digits == 0 || y->digits == 0 || (x->floats && !y->floats))
        return false;
    if (x->floats)
        return y->digits >= x->digits && y->exponent >= x->exponent && to != MICA_DTYPE_F8_E5M2;
    return y->digits >= x->digits && y->sign >= x->sign && (!y->floats || y->digits >= 24);
}

static mica_tensor simplify_cast(mica__walk *walk, const mica__node *node, const mica_tensor *in)
{
    const mica__type *was = result_of(walk, node);
    const mica__type *middle = mica__type_of(walk->rewrite.to, in[0]);
    if (middle->dtype == was->dtype)
        return in[0];
    const mica__node *inner = given_by(walk, in[0], MICA_NODE_CAST);
    if (inner == NULL)
        return 0;
    const mica_tensor x = input_of(walk, inner, 0);
    const mica_dtype first = mica__type_of(walk->rewrite.to, x)->dtype;
    const bool whole = mica_register_of(first) > MICA_REGISTER_F64 &&
                       mica_register_of(was->dtype) > MICA_REGISTER_F64 && was->dtype != MICA_DTYPE_BOOL;
    const bool floats = mica_register_of(middle->dtype) <= MICA_REGISTER_F64;
    /* Integers wrap, but from a float they end at the nearest one. */
    if (!holds(middle->dtype, first) || (whole && floats && !holds(was->dtype, first)))
        return 0;
    return mica_graph_cast(walk->rewrite.to, x, was->dtype);
}

static mica_tensor simplify_bits(mica__walk *walk, const mica__node *node, const mica_tensor *in)
{
    const mica_dtype dtype = result_of(walk, node)->dtype;
    const mica__node *inner = given_by(walk, in[0], MICA_NODE_BITS);
    const mica_tensor x = inner == NULL ? in[0] : input_of(walk, inner, 0);
    if (mica__type_of(walk->rewrite.to, x)->dtype == dtype)
        return x;
    return inner == NULL ? 0 : mica_graph_bits(walk->rewrite.to, x, dtype);
}

static mica_tensor drop_stop(mica__walk *walk, const mica__node *node, const mica_tensor *in)
{
    (void)walk;
    (void)node;
    return in[0]; /* derivatives are taken before */
}

/* ---- views ---- */

/* Which dimensions of `whole` each of `few` is made of: dimension d of those from begin[d] on; false where they do not part like that. */
static bool find_groups(const mica__type *whole, const mica__type *few, uint32_t begin[MICA_MAX_DIMS + 1])
{
    uint32_t at = 0;
    for (uint32_t d = 0; d < few->ndim; d++) {
        uint64_t size = 1;
        begin[d] = at;
        if (!mica__size_known(few->shape[d]) || few->shape[d] == 0)
            return false;
        while (at < whole->ndim && (size < few->shape[d] || whole->shape[at] == 1)) {
            if (!mica__size_known(whole->shape[at]) || few->shape[d] % whole->shape[at] != 0)
                return false;
            size *= whole->shape[at++];
        }
        if (size != few->shape[d])
            return false;
    }
    begin[few->ndim] = at;
    return at == whole->ndim;
}

/* Dimensions that were put together, permuted, and taken apart again are permuted. */
static mica_tensor permute_apart(mica__walk *walk, const mica__node *node, mica_tensor in)
{
    const mica__node *permute = given_by(walk, in, MICA_NODE_PERMUTE);
    const mica_tensor few = permute == NULL ? 0 : input_of(walk, permute, 0);
    const mica__node *inner = given_by(walk, few, MICA_NODE_RESHAPE);
    const mica_tensor x = inner == NULL ? 0 : input_of(walk, inner, 0);
    uint32_t begin[MICA_MAX_DIMS + 1], order[MICA_MAX_DIMS], count = 0;
    if (x == 0)
        return 0;
    const mica__type *whole = mica__type_of(walk->rewrite.to, x), *was = result_of(walk, node);
    if (was->ndim != whole->ndim || !find_groups(whole, mica__type_of(walk->rewrite.to, few), begin))
        return 0;
    const uint32_t *by = ((const mica__permute_data *)permute->data)->order;
    for (uint32_t d = 0; d < mica__type_of(walk->rewrite.to, few)->ndim; d++)
        for (uint32_t i = begin[by[d]]; i < begin[by[d] + 1]; i++) {
            if (whole->shape[i] != was->shape[count])
                return 0;
            order[count++] = i;
        }
    return mica_graph_permute(walk->rewrite.to, x, order);
}

static mica_tensor simplify_reshape(mica__walk *walk, const mica__node *node, const mica_tensor *in)
{
    const mica__shape_data *data = node->data;
    const mica_tensor apart = permute_apart(walk, node, in[0]);
    if (apart != 0)
        return apart;
    const mica__node *inner = given_by(walk, in[0], MICA_NODE_RESHAPE);
    const mica_tensor x = inner == NULL ? in[0] : input_of(walk, inner, 0);
    if (mica__types_equal(mica__type_of(walk->rewrite.to, x), result_of(walk, node)))
        return x;
    return inner == NULL ? 0 : mica_graph_reshape(walk->rewrite.to, x, data->ndim, data->shape);
}

static mica_tensor simplify_permute(mica__walk *walk, const mica__node *node, const mica_tensor *in)
{
    const uint32_t *order = ((const mica__permute_data *)node->data)->order;
    const uint32_t ndim = mica__type_of(walk->rewrite.to, in[0])->ndim;
    const mica__node *inner = given_by(walk, in[0], MICA_NODE_PERMUTE);
    const mica_tensor x = inner == NULL ? in[0] : input_of(walk, inner, 0);
    uint32_t both[MICA_MAX_DIMS] = {0};
    bool same = true;
    for (uint32_t d = 0; d < ndim; d++) {
        both[d] = inner == NULL ? order[d] : ((const mica__permute_data *)inner->data)->order[order[d]];
        same = same && both[d] == d;
    }
    if (same)
        return x;
    return inner == NULL ? 0 : mica_graph_permute(walk->rewrite.to, x, both);
}

/* A slice that lies in one of the parts of a concatenation. */
static mica_tensor slice_part(mica__walk *walk, const mica__slice_data *slice, mica_tensor x)
{
    const mica_graph *to = walk->rewrite.to;
    const mica__node *concat = given_by(walk, x, MICA_NODE_CONCAT);
    if (concat == NULL || ((const mica__concat_data *)concat->data)->axis != slice->axis || slice->count == 0)
        return 0;
    const uint64_t last = slice->start + (slice->count - 1) * (uint64_t)slice->step;
    uint64_t begin = 0;
    for (uint32_t i = 0; i < concat->input_count; i++) {
        const mica_tensor part = input_of(walk, concat, i);
        const uint64_t size = mica__type_of(to, part)->shape[slice->axis];
        if (!mica__size_known(size) || begin > slice->start)
            return 0;
        if (slice->start < begin + size)
            return last >= begin + size ? 0
                                        : mica_graph_slice(walk->rewrite.to, part, slice->axis,
                                                           slice->start - begin, slice->count, slice->step);
        begin += size;
    }
    return 0;
}

static mica_tensor simplify_slice(mica__walk *walk, const mica__node *node, const mica_tensor *in)
{
    const mica__slice_data *data = node->data;
    const mica__type *type = mica__type_of(walk->rewrite.to, in[0]);
    if (data->step < 1 || data->count == 0)
        return 0;
    if (data->start == 0 && data->step == 1 && data->count == type->shape[data->axis])
        return in[0];
    const mica__node *inner = given_by(walk, in[0], MICA_NODE_SLICE);
    if (inner == NULL)
        return slice_part(walk, data, in[0]);
    const mica__slice_data *first = inner->data;
    if (first->axis != data->axis || first->step < 1 || data->step > (1ll << 31) || first->step > (1ll << 31))
        return 0;
    return mica_graph_slice(walk->rewrite.to, input_of(walk, inner, 0), data->axis,
                            first->start + data->start * (uint64_t)first->step, data->count,
                            data->count > 1 ? data->step * first->step : 1);
}

static mica_tensor simplify_expand(mica__walk *walk, const mica__node *node, const mica_tensor *in)
{
    const mica__shape_data *data = node->data;
    const mica__node *inner = given_by(walk, in[0], MICA_NODE_EXPAND);
    const mica_tensor x = inner == NULL ? in[0] : input_of(walk, inner, 0);
    if (mica__types_equal(mica__type_of(walk->rewrite.to, x), result_of(walk, node)))
        return x;
    return inner == NULL ? 0 : mica_graph_expand(walk->rewrite.to, x, data->ndim, data->shape);
}

/* ---- reductions of what repeats ---- */

/* MAX, MIN, ANY and ALL over dimensions that repeat are what repeats. A sum is not: it would round n - 1 times. */
static mica_tensor simplify_reduce(mica__walk *walk, const mica__node *node, const mica_tensor *in)
{
    const mica_reduce_params *params = mica__op_params(node);
    const mica__node *expand = given_by(walk, in[0], MICA_NODE_EXPAND);
    if (params == NULL || expand == NULL ||
        (params->kind != MICA_REDUCE_MAX && params->kind != MICA_REDUCE_MIN &&
         params->kind != MICA_REDUCE_ANY && params->kind != MICA_REDUCE_ALL))
        return 0;
    const mica_tensor x = input_of(walk, expand, 0);
    const mica__type *small = mica__type_of(walk->rewrite.to, x),
                     *large = mica__type_of(walk->rewrite.to, in[0]);
    const mica__type *was = result_of(walk, node);
    const uint32_t all = large->ndim == 0 ? 0 : (1u << large->ndim) - 1;
    const uint32_t axes = params->axes == 0 ? all : params->axes;
    for (uint32_t a = 0; a < large->ndim; a++) { /* from the last */
        const uint64_t size = a < small->ndim ? small->shape[small->ndim - 1 - a] : 1;
        const uint64_t to = large->shape[large->ndim - 1 - a];
        const bool repeats = size == 1 && mica__size_known(to) && to != 0;
        if ((axes >> a & 1) != 0 ? !repeats : size != to)
            return 0;
    }
    if (small->dtype == MICA_DTYPE_BOOL || small->dtype != was->dtype ||
        mica__type_elements(was) == MICA_SIZE_UNKNOWN)
        return 0;
    if (mica__types_equal(small, was))
        return x;
    return mica_graph_reshape(walk->rewrite.to, x, was->ndim, was->shape);
}

static mica_tensor simplify_op(mica__walk *walk, const mica__node *node, const mica_tensor *in)
{
    return node->code == MICA_OP_REDUCE ? simplify_reduce(walk, node, in) : 0;
}

/* ---- the walk ---- */

static rule *const kinds[MICA_NODE_COUNT] = {
    [MICA_NODE_SCALAR] = simplify_scalar,   [MICA_NODE_OP] = simplify_op,
    [MICA_NODE_CAST] = simplify_cast,       [MICA_NODE_BITS] = simplify_bits,
    [MICA_NODE_RESHAPE] = simplify_reshape, [MICA_NODE_PERMUTE] = simplify_permute,
    [MICA_NODE_SLICE] = simplify_slice,     [MICA_NODE_EXPAND] = simplify_expand,
    [MICA_NODE_STOP_GRADIENT] = drop_stop,
};

static mica__visit simplify(mica__walk *walk, uint32_t at)
{
    enum { MOST = 8 };
    const mica__node *node = mica__walk_node(walk, at);
    mica_tensor in[MOST] = {0};
    if (kinds[node->kind] == NULL || node->input_count > MOST || node->output_count != 1)
        return MICA__VISIT_LEFT;
    for (uint32_t i = 0; i < node->input_count; i++)
        in[i] = mica__walk_input(walk, node, i);
    return mica__walk_gives(walk, node, kinds[node->kind](walk, node, in));
}

const mica__graph_pass mica__graph_pass_algebra = {
    "algebra", "nodes that say less than they seem to become what they say", NULL, simplify, NULL, NULL};
