/* cpu_plan_routing.c - plans of what training adds to routing: the gradient of a router, and places of slots by expert. */
#include "backend/cpu/cpu_plan.h"

#include "backend/cpu/cpu_params.h"
#include "base/status.h"

mica_status mica__cpu_plan_route_backward(const mica__record *record, const mica__device_info *info,
                                          mica__plan *plan)
{
    const mica__operand *logits = &record->operand[MICA__ROUTE_BACKWARD_LOGITS];
    const uint64_t tokens = logits->shape[0], n = logits->shape[1],
                   slots = record->operand[MICA__ROUTE_BACKWARD_IDS].shape[1],
                   local = (n + 4 * slots) * sizeof(double);
    const mica_route_params *route = record->params;
    mica__cpu_route params = {{.rows = tokens, .rows_per_unit = 1 + tokens / UINT32_MAX}, *route};
    (void)info;
    if (local > UINT32_MAX)
        return mica__fail(MICA_ERR_UNSUPPORTED, "route_backward on the cpu: %llu experts are too many",
                          (unsigned long long)n);
    mica__plan_dispatch *dispatch = mica__cpu_plan_next(
        plan, "route_backward", (tokens + params.range.rows_per_unit - 1) / params.range.rows_per_unit);
    mica__cpu_plan_operands(plan, record, record->operand_count);
    mica__cpu_plan_params(plan, &params, sizeof params);
    dispatch->local_bytes = (uint32_t)local;
    mica__cpu_plan_grain(dispatch, 50 + 10 * (double)n);
    return MICA_OK;
}

mica_status mica__cpu_plan_expert_places(const mica__record *record, const mica__device_info *info,
                                         mica__plan *plan)
{
    (void)info;
    mica__cpu_plan_whole(plan, record, "expert_places", 1);
    return MICA_OK;
}
