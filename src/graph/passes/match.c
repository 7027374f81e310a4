/*
 * match.c - questions of passes that recognise (match.h).
 */
#include "graph/passes/match.h"

#include <math.h>

#include "mica/ops.h"

mica_tensor mica__match_other(const mica__walk *walk, const mica__node *node, mica_tensor tensor)
{
    const mica_tensor a = mica__match_input(walk, node, 0), b = mica__match_input(walk, node, 1);
    return a == tensor ? b : b == tensor ? a : 0;
}

static bool near_number(double is, double wanted)
{
    return fabs(is - wanted) <= 1e-6 * fabs(wanted);
}

mica_tensor mica__match_number(const mica__walk *walk, const mica__node *node, bool ordered, double *out)
{
    const mica_tensor a = mica__match_input(walk, node, 0), b = mica__match_input(walk, node, 1);
    if (mica__graph_number(walk->rewrite.from, b, out))
        return a;
    return !ordered && mica__graph_number(walk->rewrite.from, a, out) ? b : 0;
}

mica_tensor mica__match_with(const mica__walk *walk, const mica__node *node, double number)
{
    double is = 0;
    const mica_tensor other = mica__match_number(walk, node, false, &is);
    return other != 0 && near_number(is, number) ? other : 0;
}

bool mica__match_reduced(const mica__walk *walk, mica_tensor tensor, uint32_t kind, mica_tensor x,
                         uint32_t uses)
{
    const mica_graph *from = walk->rewrite.from;
    const mica__type *type = mica__type_of(from, tensor), *whole = mica__type_of(from, x);
    if (tensor == 0 || walk->uses[tensor] != uses || type->ndim != whole->ndim || type->ndim == 0 ||
        type->shape[type->ndim - 1] != 1)
        return false;
    for (uint32_t d = 0; d + 1 < type->ndim; d++)
        if (type->shape[d] != whole->shape[d] || type->shape[d] == MICA_SIZE_UNKNOWN)
            return false;
    const mica__node *node = mica__match_node(walk, tensor);
    if (node->kind == MICA_NODE_RESHAPE) { /* the dimension that went comes back */
        tensor = mica__match_input(walk, node, 0);
        uses = 1;
    }
    node = mica__match_op(walk, tensor, MICA_OP_REDUCE, uses);
    const mica_reduce_params *params = node == NULL ? NULL : mica__op_params(node);
    return params != NULL && params->kind == kind && mica__match_input(walk, node, 0) == x &&
           params->correction == 0 && (params->axes == 1 || (params->axes == 0 && whole->ndim == 1));
}

mica_tensor mica__match_square(const mica__walk *walk, mica_tensor tensor, uint32_t uses)
{
    double power = 0;
    const mica__node *node = mica__match_scalar(walk, tensor, MICA_SCALAR_SQUARE, uses);
    if (node != NULL)
        return mica__match_input(walk, node, 0);
    node = mica__match_scalar(walk, tensor, MICA_SCALAR_MUL, uses);
    if (node != NULL)
        return mica__match_input(walk, node, 0) == mica__match_input(walk, node, 1)
                   ? mica__match_input(walk, node, 0)
                   : 0;
    node = mica__match_scalar(walk, tensor, MICA_SCALAR_POW, uses);
    if (node == NULL)
        return 0;
    const mica_tensor x = mica__match_number(walk, node, true, &power);
    return power == 2 ? x : 0;
}

bool mica__is_small_float(mica_dtype dtype)
{
    return dtype == MICA_DTYPE_F32 || dtype == MICA_DTYPE_F16 || dtype == MICA_DTYPE_BF16;
}

bool mica__as_f32(double number, float *out)
{
    *out = (float)number;
    return (double)*out == number && isfinite(*out);
}

mica_operand_desc mica__match_asked(const mica__walk *walk, const mica__node *node)
{
    const mica_graph *from = walk->rewrite.from;
    return (mica_operand_desc){.dtype = mica__type_of(from, *mica__node_outputs(from, node))->dtype,
                               .ndim = MICA_RANK_UNKNOWN};
}

mica_tensor mica__match_bare(const mica__walk *walk, mica_tensor x)
{
    const mica_graph *to = walk->rewrite.to;
    const mica__node *node = mica__node_of(to, x);
    if (node->kind != MICA_NODE_CAST || mica__type_of(to, x)->dtype != MICA_DTYPE_F32)
        return x;
    const mica_tensor inner = *mica__node_inputs(to, node);
    const mica_dtype dtype = mica__type_of(to, inner)->dtype;
    return dtype == MICA_DTYPE_F16 || dtype == MICA_DTYPE_BF16 ? inner : x;
}
