/* experts.c - around the expert-routed matmul: which experts a token goes to, and the sum of what they say. */
#include <math.h>

#include "ops/check.h"

void mica__rule_route(mica__op_builder *op)
{
    mica_route_params *params = op->record.params;
    const uint64_t experts = mica__op_size(op, 'E'), slots = mica__op_size(op, 'S');
    params->softmax_first = params->softmax_first != 0;
    params->normalise = params->normalise != 0;
    if (params->scale == 0.0f)
        params->scale = 1.0f;
    mica__op_require(op, isfinite(params->scale), "params.scale is not finite");
    mica__op_require(op, experts <= UINT32_MAX || !mica__size_known(experts),
                     "logits: shape[1] is over 2^32");
    mica__op_require(op, slots <= experts || !mica__size_known(slots),
                     "ids: shape[1] is %llu, more than the %llu experts of logits", (unsigned long long)slots,
                     (unsigned long long)experts);
}

mica_status mica_route(mica_encoder *encoder, mica_buffer *logits, const mica_route_params *params,
                       mica_buffer *ids, mica_buffer *weights)
{
    mica_route_params record = {0};
    if (params != NULL)
        record = *params;
    return mica__op_call(encoder, MICA_OP_ROUTE, &record, (mica_buffer *const[]){logits, ids, weights});
}

mica_status mica_expert_sum(mica_encoder *encoder, mica_buffer *x, mica_buffer *weights, mica_buffer *y)
{
    return mica__op_call(encoder, MICA_OP_EXPERT_SUM, NULL, (mica_buffer *const[]){x, weights, y});
}
