/* experts.c - around the expert-routed matmul: which experts a token goes to, and the sum of what they say. */
#include <math.h>

#include "ops/check.h"
#include "ops/norm.h"

void mica__rule_route(mica__op_builder *op)
{
    mica_route_params *params = op->record.params;
    const uint64_t experts = mica__op_size(op, 'E'), slots = mica__op_size(op, 'S');
    mica__op_require(op, params->softmax_first <= 1, "params.softmax_first is %u, not 0 or 1",
                     params->softmax_first);
    mica__op_require(op, params->normalise <= 1, "params.normalise is %u, not 0 or 1", params->normalise);
    if (params->scale == 0.0f)
        params->scale = 1.0f;
    if (params->groups <= 1)
        params->groups = params->top_groups = 1;
    if (params->group_best == 0)
        params->group_best = 1;
    mica__op_all_double(op);
    mica__op_require(op, isfinite(params->scale), "params.scale is not finite");
    mica__op_require(op, params->scoring <= MICA_ROUTE_SIGMOID,
                     "params.scoring is %u, which is no mica_route_scoring", params->scoring);
    mica__op_require(op, params->group_best <= 2, "params.group_best is %u, not 1 or 2", params->group_best);
    mica__op_require(op, params->top_groups >= 1 && params->top_groups <= params->groups,
                     "params.top_groups is %u, not 1 to the %u of params.groups", params->top_groups,
                     params->groups);
    if (!mica__op_ok(op) || !mica__size_known(experts))
        return;
    mica__op_require(op, experts <= UINT32_MAX, "logits: shape[1] is over 2^32");
    mica__op_require(op, experts % params->groups == 0,
                     "params.groups is %u, which does not divide the %llu experts of logits", params->groups,
                     (unsigned long long)experts);
    mica__op_require(op, !mica__size_known(slots) || slots <= experts / params->groups * params->top_groups,
                     "ids: shape[1] is %llu, more than the %llu experts that are chosen among",
                     (unsigned long long)slots,
                     (unsigned long long)(experts / params->groups * params->top_groups));
}

mica_status mica_route(mica_encoder *encoder, mica_buffer *logits, mica_buffer *bias,
                       mica_buffer *expert_scale, const mica_route_params *params, mica_buffer *ids,
                       mica_buffer *weights)
{
    mica_route_params record = {0};
    if (params != NULL)
        record = *params;
    return mica__op_call(encoder, MICA_OP_ROUTE, &record,
                         (mica_buffer *const[]){logits, bias, expert_scale, ids, weights});
}

void mica__rule_expert_sum(mica__op_builder *op)
{
    mica__op_require(op,
                     mica__op_has(op, MICA__EXPERT_SUM_SHARED) || !mica__op_has(op, MICA__EXPERT_SUM_GATE),
                     "shared_gate is given, but shared is NULL");
    mica__op_all_double(op);
}

mica_status mica_expert_sum(mica_encoder *encoder, mica_buffer *x, mica_buffer *weights, mica_buffer *shared,
                            mica_buffer *shared_gate, mica_buffer *residual, mica_buffer *y)
{
    return mica__op_call(encoder, MICA_OP_EXPERT_SUM, NULL,
                         (mica_buffer *const[]){x, weights, shared, shared_gate, residual, y});
}

mica_status mica_route_backward(mica_encoder *encoder, mica_buffer *logits, mica_buffer *expert_scale,
                                mica_buffer *ids, mica_buffer *dweights, const mica_route_params *params,
                                mica_buffer *dlogits)
{
    mica_route_params record = {0};
    if (params != NULL)
        record = *params;
    return mica__op_call(encoder, MICA_OP_ROUTE_BACKWARD, &record,
                         (mica_buffer *const[]){logits, expert_scale, ids, dweights, dlogits});
}

void mica__rule_expert_places(mica__op_builder *op)
{
    const mica_expert_places_params *params = op->record.params;
    const uint64_t experts = mica__op_size(op, 'E');
    mica__op_require(op, params->by_choice <= 1, "params.by_choice is %u, not 0 or 1", params->by_choice);
    mica__op_require(op, params->capacity >= 1, "params.capacity is 0, not 1 or more");
    mica__op_require(op,
                     !mica__size_known(experts) || experts <= INT32_MAX / (uint64_t)(params->capacity + 1ull),
                     "params.capacity is %u, too many for the %llu experts of counts", params->capacity,
                     (unsigned long long)experts);
}

mica_status mica_expert_places(mica_encoder *encoder, mica_buffer *ids,
                               const mica_expert_places_params *params, mica_buffer *places,
                               mica_buffer *counts)
{
    mica_expert_places_params record = {0};
    if (params != NULL)
        record = *params;
    return mica__op_call(encoder, MICA_OP_EXPERT_PLACES, &record,
                         (mica_buffer *const[]){ids, places, counts});
}
