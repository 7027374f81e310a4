/* gpu_plan_routing.c - plans of what training adds to routing: the gradient of a router, and places of slots by expert. */
#include "backend/gpu/gpu_plan.h"
#include "base/status.h"

#define SUB 32u /* MK_SUB: work-items to a token */

mica_status mica__gpu_plan_route_backward(const mica__record *record, const mica__device_info *info,
                                          mica__plan *plan)
{
    const mica__operand *logits = &record->operand[MICA__ROUTE_BACKWARD_LOGITS],
                        *scale = &record->operand[MICA__ROUTE_BACKWARD_SCALE],
                        *ids = &record->operand[MICA__ROUTE_BACKWARD_IDS],
                        *dweights = &record->operand[MICA__ROUTE_BACKWARD_DWEIGHTS],
                        *dlogits = &record->operand[MICA__ROUTE_BACKWARD_DLOGITS];
    const mica_route_params *route = record->params;
    (void)info;
    mica_status status = mica__gpu_check_floats(record, ~(1u << MICA__ROUTE_BACKWARD_IDS));
    if (status == MICA_OK &&
        (logits->shape[0] > INT32_MAX || logits->shape[1] > INT32_MAX || ids->shape[1] > INT32_MAX))
        status = mica__fail(MICA_ERR_UNSUPPORTED, "route_backward: a size is over 2^31 - 1");
    if (status == MICA_OK)
        status = mica__gpu_plan_next(plan, "routing/route_backward",
                                     (logits->shape[0] + MICA__MK_WG / SUB - 1) / (MICA__MK_WG / SUB));
    if (status != MICA_OK)
        return status;
    const mk_route_backward_params params = {
        .logits_token = logits->stride[0],
        .logits_expert = logits->stride[1],
        .ids_token = ids->stride[0],
        .ids_slot = ids->stride[1],
        .dweights_token = dweights->stride[0],
        .dweights_slot = dweights->stride[1],
        .dlogits_token = dlogits->stride[0],
        .dlogits_expert = dlogits->stride[1],
        .scale_expert = mica__operand_present(scale) ? scale->stride[0] : 0,
        .tokens = (uint32_t)logits->shape[0],
        .experts = (uint32_t)logits->shape[1],
        .slots = (uint32_t)ids->shape[1],
        .logits_type = mica__gpu_type(logits->dtype),
        .dweights_type = mica__gpu_type(dweights->dtype),
        .dlogits_type = mica__gpu_type(dlogits->dtype),
        .scale_type = mica__gpu_type(scale->dtype),
        .softmax_first = route->softmax_first,
        .sigmoid = route->scoring == MICA_ROUTE_SIGMOID,
        .normalise = route->normalise,
        .has_scale = mica__operand_present(scale),
        .fault_code = mica__gpu_fault_code(record),
        .scale = route->scale,
    };
    for (uint32_t o = 0; o < MICA__ROUTE_BACKWARD_SLOTS; o++)
        mica__gpu_plan_operand(plan, record, o, 0);
    mica__gpu_plan_fault(plan);
    mica__gpu_plan_params(plan, &params, sizeof params);
    return MICA_OK;
}

mica_status mica__gpu_plan_expert_places(const mica__record *record, const mica__device_info *info,
                                         mica__plan *plan)
{
    const mica__operand *ids = &record->operand[MICA__EXPERT_PLACES_IDS],
                        *places = &record->operand[MICA__EXPERT_PLACES_PLACES],
                        *counts = &record->operand[MICA__EXPERT_PLACES_COUNTS];
    const mica_expert_places_params *own = record->params;
    (void)info;
    if (ids->shape[0] * ids->shape[1] > INT32_MAX)
        return mica__fail(MICA_ERR_UNSUPPORTED, "expert_places: more than 2^31 - 1 slots");
    const mica_status status = mica__gpu_plan_next(plan, "routing/expert_places",
                                                   (counts->shape[0] + 1 + MICA__MK_WG - 1) / MICA__MK_WG);
    if (status != MICA_OK)
        return status;
    const mk_expert_places_params params = {
        .ids_token = ids->stride[0],
        .ids_slot = ids->stride[1],
        .places_token = places->stride[0],
        .places_slot = places->stride[1],
        .counts_expert = counts->stride[0],
        .tokens = (uint32_t)ids->shape[0],
        .slots = (uint32_t)ids->shape[1],
        .experts = (uint32_t)counts->shape[0],
        .capacity = own->capacity,
        .by_choice = own->by_choice,
        .fault_code = mica__gpu_fault_code(record),
    };
    for (uint32_t o = 0; o < MICA__EXPERT_PLACES_SLOTS; o++)
        mica__gpu_plan_operand(plan, record, o, 0);
    mica__gpu_plan_fault(plan);
    mica__gpu_plan_params(plan, &params, sizeof params);
    return MICA_OK;
}
