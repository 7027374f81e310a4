/*
 * routing.c - the choice of experts, written as a softmax or a sigmoid and the greatest few of it, or as the greatest few and a softmax, becomes one op; the weights of a token divided by
 * their sum as well. Where that sum is 0 the weights stay 0, where the small ops give NaN.
 */
#include "graph/passes/match.h"
#include "mica/ops.h"

enum { MOST_EXPERTS = 1024, MOST_CHOSEN = 64 }; /* more are no experts */

/* The greatest few of [tokens, experts], greatest first. */
static bool is_choice(const mica__walk *walk, const mica__node *node)
{
    const mica_graph *from = walk->rewrite.from;
    if (node == NULL || node->kind != MICA_NODE_OP || node->code != MICA_OP_SORT)
        return false;
    const mica_sort_params *params = mica__op_params(node);
    const mica_tensor *outputs = mica__node_outputs(from, node);
    const mica__type *x = mica__type_of(from, mica__match_input(walk, node, 0));
    if (params == NULL || params->descending != 1 || outputs[0] == 0 || outputs[1] == 0 || x->ndim != 2)
        return false;
    const uint64_t chosen = mica__type_of(from, outputs[0])->shape[1];
    return (mica__is_small_float(x->dtype) || x->dtype == MICA_DTYPE_F64) && mica__size_known(x->shape[1]) &&
           x->shape[1] <= MOST_EXPERTS && mica__size_known(chosen) && chosen <= MOST_CHOSEN;
}

/* A route of `logits`, with the types and the shape of the choice; its ids stand for those of the choice from here on. Gives the weights. */
static mica_tensor add_route(mica__walk *walk, const mica__node *choice, mica_tensor logits,
                             const mica_route_params *params, mica_dtype weights)
{
    const mica_graph *from = walk->rewrite.from;
    const mica_tensor *outputs = mica__node_outputs(from, choice);
    const mica__type *ids = mica__type_of(from, outputs[1]), *type = mica__type_of(walk->rewrite.to, logits);
    mica_operand_desc asked[] = {{.dtype = ids->dtype, .ndim = 2}, {.dtype = weights, .ndim = 2}};
    mica_tensor made[2];
    for (uint32_t d = 0; d < 2; d++)
        asked[0].shape[d] = asked[1].shape[d] = ids->shape[d];
    if (type->ndim != 2 || ids->shape[0] == MICA_SIZE_UNKNOWN ||
        (type->dtype == MICA_DTYPE_F64) != (weights == MICA_DTYPE_F64))
        return 0;
    if (mica_graph_op(walk->rewrite.to, MICA_OP_ROUTE, params, (const mica_tensor[]){logits, 0, 0}, 3, 3,
                      asked, made, 2) == 0)
        return 0;
    walk->rewrite.map[outputs[1]] = made[0];
    return made[1];
}

/* The greatest of a softmax or sigmoid that nobody else needs. */
static mica__visit scored(mica__walk *walk, const mica__node *node)
{
    const mica_tensor x = mica__match_input(walk, node, 0);
    const mica__node *softmax = mica__match_op(walk, x, MICA_OP_SOFTMAX, 1);
    const mica__node *sigmoid = mica__match_scalar(walk, x, MICA_SCALAR_SIGMOID, 1);
    const mica_softmax_params *how = softmax == NULL ? NULL : mica__op_params(softmax);
    mica_route_params params = {.softmax_first = 1};
    if (sigmoid != NULL)
        params = (mica_route_params){.scoring = MICA_ROUTE_SIGMOID};
    else if (how == NULL || how->scale != 1 || how->log != 0 || mica__match_input(walk, softmax, 1) != 0)
        return MICA__VISIT_LEFT;
    const mica_tensor logits =
        walk->rewrite.map[mica__match_input(walk, sigmoid != NULL ? sigmoid : softmax, 0)];
    return mica__walk_gives(
        walk, node, add_route(walk, node, logits, &params, mica__type_of(walk->rewrite.from, x)->dtype));
}

/* A softmax over the greatest logits. */
static mica__visit softmax_behind(mica__walk *walk, const mica__node *node)
{
    static const mica_route_params params = {.softmax_first = 0};
    const mica_softmax_params *how = mica__op_params(node);
    const mica_tensor values = mica__match_input(walk, node, 0);
    const mica__node *choice = mica__match_op(walk, values, MICA_OP_SORT, 1);
    if (!is_choice(walk, choice) || *mica__node_outputs(walk->rewrite.from, choice) != values ||
        how == NULL || how->scale != 1 || how->log != 0 || mica__match_input(walk, node, 1) != 0)
        return MICA__VISIT_LEFT;
    const mica_tensor logits = walk->rewrite.map[mica__match_input(walk, choice, 0)];
    const mica_dtype dtype =
        mica__type_of(walk->rewrite.from, *mica__node_outputs(walk->rewrite.from, node))->dtype;
    return mica__walk_gives(walk, node, add_route(walk, choice, logits, &params, dtype));
}

/* Weights over their sum, of a choice that has become a route. */
static mica__visit normalised(mica__walk *walk, const mica__node *node)
{
    const mica_graph *to = walk->rewrite.to;
    const mica_tensor values = mica__match_input(walk, node, 0);
    const mica__node *choice = mica__match_op(walk, values, MICA_OP_SORT, 2);
    if (!is_choice(walk, choice) || *mica__node_outputs(walk->rewrite.from, choice) != values ||
        !mica__match_reduced(walk, mica__match_input(walk, node, 1), MICA_REDUCE_SUM, values, 1))
        return MICA__VISIT_LEFT;
    const mica__node *route = mica__node_of(to, walk->rewrite.map[values]);
    if (route->kind != MICA_NODE_OP || route->code != MICA_OP_ROUTE || !mica__match_here(walk, route))
        return MICA__VISIT_LEFT;
    mica_route_params params = *(const mica_route_params *)mica__op_params(route);
    params.normalise = 1;
    const mica_tensor logits = mica__node_inputs(to, route)[0];
    return mica__walk_gives(
        walk, node,
        add_route(walk, choice, logits, &params, mica__type_of(to, walk->rewrite.map[values])->dtype));
}

static mica__visit visit(mica__walk *walk, uint32_t at)
{
    const mica__node *node = mica__walk_node(walk, at);
    if (node->kind == MICA_NODE_OP && node->code == MICA_OP_SORT)
        return is_choice(walk, node) ? scored(walk, node) : MICA__VISIT_LEFT;
    if (node->kind == MICA_NODE_OP && node->code == MICA_OP_SOFTMAX)
        return softmax_behind(walk, node);
    return node->kind == MICA_NODE_SCALAR && node->code == MICA_SCALAR_DIV ? normalised(walk, node)
                                                                           : MICA__VISIT_LEFT;
}

static bool concerns(const mica__node *node, const mica__pass_options *options)
{
    (void)options;
    return node->kind == MICA_NODE_OP && node->code == MICA_OP_SORT;
}

const mica__graph_pass mica__graph_pass_routing = {
    "routing", "the choice of experts written out in small ops becomes route", concerns, visit, NULL, NULL};
