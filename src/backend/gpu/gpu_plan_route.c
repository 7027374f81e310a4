/* gpu_plan_route.c - plans of route and expert_sum: which of many. */
#include <string.h>

#include "backend/gpu/gpu_plan.h"
#include "base/status.h"

#define SUB 32u /* MK_SUB: work-items to a token */

static mica_status check_index(const mica__record *record, uint32_t slot)
{
    const uint16_t dtype = record->operand[slot].dtype;
    if (dtype == MICA_DTYPE_I32 || dtype == MICA_DTYPE_U32)
        return MICA_OK;
    return mica__fail(MICA_ERR_UNSUPPORTED, "%s: operand %u is %s; u32 and i32 are served",
                      mica_op_name((mica_op)record->op), slot, mica_dtype_name((mica_dtype)dtype));
}

static mica_status check_counts(const mica__record *record, uint64_t rows, uint64_t n)
{
    if (rows <= UINT32_MAX && n <= INT32_MAX)
        return MICA_OK;
    return mica__fail(MICA_ERR_UNSUPPORTED, "%s: %llu rows of %llu elements; 2^32 - 1 of 2^31 - 1 are served",
                      mica_op_name((mica_op)record->op), (unsigned long long)rows, (unsigned long long)n);
}

static mk_route_params route_params(const mica__record *record)
{
    const mica__operand *logits = &record->operand[MICA__ROUTE_LOGITS],
                        *ids = &record->operand[MICA__ROUTE_IDS],
                        *weights = &record->operand[MICA__ROUTE_WEIGHTS],
                        *bias = &record->operand[MICA__ROUTE_BIAS],
                        *scale = &record->operand[MICA__ROUTE_SCALE];
    const mica_route_params *route = record->params;
    const bool biased = mica__operand_present(bias), two = route->group_best == 2;
    return (mk_route_params){
        .logits_token = logits->stride[0],
        .ids_token = ids->stride[0],
        .weights_token = weights->stride[0],
        .tokens = (uint32_t)logits->shape[0],
        .experts = (uint32_t)logits->shape[1],
        .slots = (uint32_t)ids->shape[1],
        .logits_type = mica__gpu_type(logits->dtype),
        .weights_type = mica__gpu_type(weights->dtype),
        .softmax_first = route->softmax_first,
        .normalise = route->normalise,
        .scale = route->scale,
        .sigmoid = route->scoring == MICA_ROUTE_SIGMOID,
        .by_score = route->scoring == MICA_ROUTE_SIGMOID || (route->softmax_first != 0 && (biased || two)),
        .groups = route->groups,
        .top_groups = route->top_groups,
        .best_two = two,
        .has_bias = biased,
        .has_scale = mica__operand_present(scale),
        .bias_type = mica__gpu_type(bias->dtype),
        .scale_type = mica__gpu_type(scale->dtype),
    };
}

/* Softmax of logits, without biases, groups and scales, has a kernel that looks at less. */
mica_status mica__gpu_plan_route(const mica__record *record, const mica__device_info *info, mica__plan *plan)
{
    const mica__operand *logits = &record->operand[MICA__ROUTE_LOGITS];
    const uint32_t tokens = MICA__MK_WG / SUB; /* of a group */
    (void)info;
    mica_status status = mica__gpu_check_floats(record, ~(1u << MICA__ROUTE_IDS));
    if (status == MICA_OK)
        status = check_index(record, MICA__ROUTE_IDS);
    if (status == MICA_OK)
        status = check_counts(record, logits->shape[0], logits->shape[1]);
    if (status != MICA_OK)
        return status;
    const mk_route_params params = route_params(record);
    const bool scored =
        params.sigmoid != 0 || params.groups > 1 || params.has_bias != 0 || params.has_scale != 0;
    status = mica__gpu_plan_next(plan, scored ? "route/route_scored" : "route/route",
                                 (logits->shape[0] + tokens - 1) / tokens);
    if (status != MICA_OK)
        return status;
    for (uint32_t o = 0; o < MICA__ROUTE_SLOTS; o++)
        if (scored || (o != MICA__ROUTE_BIAS && o != MICA__ROUTE_SCALE))
            mica__gpu_plan_operand(plan, record, o, 0);
    mica__gpu_plan_params(plan, &params, sizeof params);
    return MICA_OK;
}

/* Whether rows of n elements, `stride` bytes apart, can be read by four. */
static bool takes_four(const mica__operand *operand, uint64_t n, uint64_t stride)
{
    return n % 4 == 0 && stride % (4 * mica_dtype_block_bytes((mica_dtype)operand->dtype)) == 0;
}

static mk_expert_sum_params expert_sum_params(const mica__record *record, uint32_t groups, bool four)
{
    const mica__operand *x = &record->operand[MICA__EXPERT_SUM_X], *y = &record->operand[MICA__EXPERT_SUM_Y],
                        *weights = &record->operand[MICA__EXPERT_SUM_WEIGHTS],
                        *shared = &record->operand[MICA__EXPERT_SUM_SHARED],
                        *gate = &record->operand[MICA__EXPERT_SUM_GATE],
                        *residual = &record->operand[MICA__EXPERT_SUM_RESIDUAL];
    mk_expert_sum_params params = {
        .x_token = x->stride[0],
        .x_slot = x->stride[1],
        .weights_token = weights->stride[0],
        .weights_slot = weights->stride[1],
        .y_token = y->stride[0],
        .slots = (uint32_t)x->shape[1],
        .n = (uint32_t)x->shape[2],
        .groups = groups,
        .four = four,
        .x_type = mica__gpu_type(x->dtype),
        .weights_type = mica__gpu_type(weights->dtype),
        .y_type = mica__gpu_type(y->dtype),
        .has_shared = mica__operand_present(shared),
        .has_gate = mica__operand_present(gate),
        .has_residual = mica__operand_present(residual),
        .shared_type = mica__gpu_type(shared->dtype),
        .gate_type = mica__gpu_type(gate->dtype),
        .residual_type = mica__gpu_type(residual->dtype),
    };
    if (params.has_shared != 0)
        params.shared_token = shared->stride[0];
    if (params.has_gate != 0)
        params.gate_token = gate->stride[0];
    if (params.has_residual != 0)
        params.residual_token = residual->stride[0];
    return params;
}

mica_status mica__gpu_plan_expert_sum(const mica__record *record, const mica__device_info *info,
                                      mica__plan *plan)
{
    const mica__operand *x = &record->operand[MICA__EXPERT_SUM_X], *y = &record->operand[MICA__EXPERT_SUM_Y];
    const uint64_t n = x->shape[2];
    const bool four =
        takes_four(x, n, x->stride[0]) && takes_four(x, n, x->stride[1]) && takes_four(y, n, y->stride[0]);
    const uint64_t items = four ? n / 4 : n, groups = (items + MICA__MK_WG - 1) / MICA__MK_WG;
    (void)info;
    mica_status status = mica__gpu_check_floats(record, UINT32_MAX);
    if (status == MICA_OK)
        status = check_counts(record, x->shape[0] * groups, n);
    if (status == MICA_OK)
        status = check_counts(record, x->shape[1], n);
    if (status == MICA_OK)
        status = mica__gpu_plan_next(plan, "route/expert_sum", x->shape[0] * groups);
    if (status != MICA_OK)
        return status;
    const mk_expert_sum_params params = expert_sum_params(record, (uint32_t)groups, four);
    for (uint32_t o = 0; o < MICA__EXPERT_SUM_SLOTS; o++)
        mica__gpu_plan_operand(plan, record, o, 0);
    mica__gpu_plan_params(plan, &params, sizeof params);
    return MICA_OK;
}
