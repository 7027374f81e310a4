/* experts.c - around the expert-routed matmul: which experts a token goes to, and the sum of what they say. */
#include <math.h>

#include "base/status.h"
#include "ops/check.h"

mica_status mica_route(mica_encoder *encoder, mica_buffer *logits, const mica_route_params *params,
                       mica_buffer *ids, mica_buffer *weights)
{
    mica__op_builder op;
    mica_route_params record = {0};
    if (params != NULL)
        record = (mica_route_params){params->softmax_first != 0, params->normalise != 0, params->scale};
    if (record.scale == 0.0f)
        record.scale = 1.0f;
    mica__op_begin(&op, encoder, MICA_OP_ROUTE, MICA__ROUTE_SLOTS, &record, sizeof record);
    mica__op_read(&op, MICA__ROUTE_LOGITS, "logits", logits, MICA__KIND_ACTIVATION, 2, 2);
    mica__op_write(&op, MICA__ROUTE_IDS, "ids", ids, MICA__KIND_INDEX, 2, 2);
    mica__op_write(&op, MICA__ROUTE_WEIGHTS, "weights", weights, MICA__KIND_ACTIVATION, 2, 2);
    const uint64_t tokens = mica__op_size(&op, MICA__ROUTE_LOGITS, 0),
                   experts = mica__op_size(&op, MICA__ROUTE_LOGITS, 1),
                   slots = mica__op_size(&op, MICA__ROUTE_IDS, 1);
    mica__op_require(&op, isfinite(record.scale), "params.scale is not finite");
    mica__op_require(&op, experts <= UINT32_MAX, "logits: shape[1] is over 2^32");
    mica__op_dim(&op, MICA__ROUTE_IDS, 0, tokens, "the number of tokens of logits");
    mica__op_dim(&op, MICA__ROUTE_WEIGHTS, 0, tokens, "the number of tokens of logits");
    mica__op_dim(&op, MICA__ROUTE_WEIGHTS, 1, slots, "the number of slots of ids");
    mica__op_require(&op, slots <= experts, "ids: shape[1] is %llu, more than the %llu experts of logits",
                     (unsigned long long)slots, (unsigned long long)experts);
    mica__op_rows(&op, MICA__ROUTE_LOGITS);
    mica__op_rows(&op, MICA__ROUTE_IDS);
    mica__op_rows(&op, MICA__ROUTE_WEIGHTS);
    return mica__op_add(&op);
}

mica_status mica_expert_sum(mica_encoder *encoder, mica_buffer *x, mica_buffer *weights, mica_buffer *y)
{
    mica__op_builder op;
    mica__op_begin(&op, encoder, MICA_OP_EXPERT_SUM, MICA__EXPERT_SUM_SLOTS, op.operand, 0);
    mica__op_read(&op, MICA__EXPERT_SUM_X, "x", x, MICA__KIND_ACTIVATION, 3, 3);
    mica__op_read(&op, MICA__EXPERT_SUM_WEIGHTS, "weights", weights, MICA__KIND_ACTIVATION, 2, 2);
    mica__op_write(&op, MICA__EXPERT_SUM_Y, "y", y, MICA__KIND_ACTIVATION, 2, 2);
    const uint64_t tokens = mica__op_size(&op, MICA__EXPERT_SUM_X, 0);
    mica__op_dim(&op, MICA__EXPERT_SUM_WEIGHTS, 0, tokens, "the number of tokens of x");
    mica__op_dim(&op, MICA__EXPERT_SUM_WEIGHTS, 1, mica__op_size(&op, MICA__EXPERT_SUM_X, 1),
                 "the number of slots of x");
    mica__op_dim(&op, MICA__EXPERT_SUM_Y, 0, tokens, "the number of tokens of x");
    mica__op_dim(&op, MICA__EXPERT_SUM_Y, 1, mica__op_size(&op, MICA__EXPERT_SUM_X, 2),
                 "the last dimension of x");
    for (uint32_t slot = 0; slot < MICA__EXPERT_SUM_SLOTS; slot++)
        mica__op_rows(&op, slot);
    return mica__op_add(&op);
}
