/*
 * ops_experts.c - mixtures of experts as nodes.
 */
#include "graph/ops_build.h"

mica_tensor mica_graph_route(mica_graph *graph, mica_tensor logits, mica_tensor bias,
                             mica_tensor expert_scale, uint64_t count, const mica_route_params *params,
                             mica_tensor *out_weights)
{
    mica__type type;
    mica_tensor out[2] = {0, 0};
    if (out_weights != NULL)
        *out_weights = 0;
    if (!mica__graph_begins(graph, "route") ||
        !mica__build_takes_rank(graph, "route", "logits", logits, 2, 2, &type))
        return 0;
    const mica_operand_desc asked[2] = {{.dtype = MICA_DTYPE_I32, .ndim = 2, .shape = {type.shape[0], count}},
                                        {.ndim = MICA_RANK_UNKNOWN}};
    (void)mica_graph_op(graph, MICA_OP_ROUTE, params, (const mica_tensor[]){logits, bias, expert_scale}, 3, 3,
                        asked, out, 2);
    if (out_weights != NULL)
        *out_weights = out[1];
    return out[0];
}

mica_tensor mica_graph_route_backward(mica_graph *graph, mica_tensor logits, mica_tensor expert_scale,
                                      mica_tensor ids, mica_tensor dweights, const mica_route_params *params)
{
    return mica__build_op(graph, MICA_OP_ROUTE_BACKWARD, params,
                          (const mica_tensor[]){logits, expert_scale, ids, dweights}, 4);
}

mica_tensor mica_graph_matmul_experts(mica_graph *graph, mica_tensor x, mica_tensor weight, mica_tensor ids,
                                      const mica_matmul_params *params)
{
    return mica__build_op(graph, MICA_OP_MATMUL_EXPERTS, params, (const mica_tensor[]){x, ids, weight}, 3);
}

mica_tensor mica_graph_expert_sum(mica_graph *graph, mica_tensor x, mica_tensor weights, mica_tensor shared,
                                  mica_tensor shared_gate, mica_tensor residual)
{
    return mica__build_op(graph, MICA_OP_EXPERT_SUM, NULL,
                          (const mica_tensor[]){x, weights, shared, shared_gate, residual}, 5);
}

mica_tensor mica_graph_expert_places(mica_graph *graph, mica_tensor ids, uint64_t experts,
                                     const mica_expert_places_params *params, mica_tensor *out_counts)
{
    mica_tensor out[2];
    const mica_operand_desc asked[2] = {{.ndim = MICA_RANK_UNKNOWN},
                                        {.dtype = MICA_DTYPE_I32, .ndim = 1, .shape = {experts}}};
    (void)mica_graph_op(graph, MICA_OP_EXPERT_PLACES, params, &ids, 1, 3, asked, out, 2);
    if (out_counts != NULL)
        *out_counts = out[1];
    return out[0];
}

mica_tensor mica_graph_grouped_matmul(mica_graph *graph, mica_tensor x, mica_tensor weight, mica_tensor ids)
{
    static const char call[] = "grouped_matmul";
    mica__type type, places;
    if (!mica__graph_begins(graph, call) || !mica__build_takes_rank(graph, call, "x", x, 2, 2, &type) ||
        !mica__build_takes_rank(graph, call, "ids", ids, 1, 1, &places))
        return 0;
    const mica_tensor id = mica__build_ids(graph, call, "ids", ids);
    const mica_tensor y = mica_graph_matmul_transposed(graph, mica__build_insert(graph, x, 1), weight,
                                                       mica__build_insert(graph, id, 1));
    return mica__build_end(graph, call, mica__build_merge(graph, y, 1, 3));
}

/* ---- a whole block ---- */

#define MOE "moe"

/* act(gate) up of an expert's two products; without a gate act(up). */
static mica_tensor gated(mica_graph *graph, mica_scalar act, mica_tensor gate, mica_tensor up)
{
    return gate != 0 ? mica_graph_gate(graph, act, gate, up) : mica_graph_scalar(graph, act, up, 0, 0);
}

/* What the chosen experts give, [T, S, K]. */
static mica_tensor experts(mica_graph *graph, const mica_moe_block *block, mica_tensor rows, mica_tensor ids)
{
    const mica_tensor gate =
        block->gate_weight != 0 ? mica_graph_matmul_experts(graph, rows, block->gate_weight, ids, NULL) : 0;
    const mica_tensor up = mica_graph_matmul_experts(graph, rows, block->up_weight, ids, NULL);
    if (up == 0 || (block->gate_weight != 0 && gate == 0))
        return 0;
    const mica_tensor inner = gated(graph, block->activation, gate, up);
    return inner == 0 ? 0 : mica_graph_matmul_experts(graph, inner, block->down_weight, ids, NULL);
}

/* The expert of all tokens, [T, K], and the logit of its gate, [T]; 0 where there is none. */
static mica_tensor shared_expert(mica_graph *graph, const mica_moe_block *block, mica_tensor rows,
                                 mica_tensor *out_gate)
{
    *out_gate = 0;
    if (block->shared_up == 0)
        return 0;
    const mica_tensor gate =
        block->shared_gate != 0 ? mica_graph_linear(graph, rows, block->shared_gate, 0) : 0;
    const mica_tensor up = mica_graph_linear(graph, rows, block->shared_up, 0);
    if (up == 0 || graph->status != MICA_OK)
        return 0;
    const mica_tensor inner = gated(graph, block->activation, gate, up);
    if (block->shared_scale != 0)
        *out_gate = mica__build_merge(graph, mica_graph_linear(graph, rows, block->shared_scale, 0), 0, 2);
    return inner == 0 ? 0 : mica_graph_linear(graph, inner, block->shared_down, 0);
}

mica_tensor mica_graph_moe(mica_graph *graph, mica_tensor x, const mica_moe_block *block)
{
    mica__type type;
    mica_tensor weights = 0, gate = 0;
    if (!mica__graph_begins(graph, MOE) ||
        !mica__build_takes_rank(graph, MOE, "x", x, 1, MICA_MAX_DIMS, &type))
        return 0;
    if (block == NULL || block->experts_used == 0)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, MOE, "block %s",
                                block == NULL ? "is NULL" : "has 0 experts_used");
    if ((uint32_t)block->activation >= MICA_SCALAR_COUNT)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, MOE, "block.activation is %d",
                                (int)block->activation);
    const mica_tensor rows =
        type.ndim == 1 ? mica__build_insert(graph, x, 0) : mica__build_merge(graph, x, 0, type.ndim - 1);
    const mica_tensor logits =
        rows == 0 ? 0 : mica_graph_linear(graph, rows, block->router_weight, block->router_bias);
    const mica_tensor ids = logits == 0
                                ? 0
                                : mica_graph_route(graph, logits, block->choice_bias, block->expert_scale,
                                                   block->experts_used, &block->route, &weights);
    const mica_tensor parts = ids == 0 ? 0 : experts(graph, block, rows, ids);
    const mica_tensor shared = parts == 0 ? 0 : shared_expert(graph, block, rows, &gate);
    if (graph->status != MICA_OK)
        return mica__build_end(graph, MOE, 0);
    const mica_tensor y = mica_graph_expert_sum(graph, parts, weights, shared, gate, 0);
    return mica__build_end(graph, MOE, type.ndim == 2 ? y : mica__build_as(graph, y, &type));
}
