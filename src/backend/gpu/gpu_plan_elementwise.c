/* gpu_plan_elementwise.c - one element after the other, in the order of y: element i of each operand by its strides. */
#include <string.h>

#include "backend/gpu/gpu_plan.h"
#include "base/status.h"

/* Which function of elementwise.kc an op is: MK_OP_*. */
static uint32_t function_of(uint16_t op)
{
    return op == MICA_OP_ADD ? 0u : 1u;
}

/* Fills shape, strides and types from `count` operands, the last of them y. */
static mica_status describe(const mica__record *record, const uint32_t *slot, uint32_t count,
                            mk_elementwise_params *params)
{
    mica__gpu_view view[MK_ELEMENTWISE_OPERANDS];
    memset(params, 0, sizeof *params);
    for (uint32_t o = count; o-- > 0;) {
        view[o] = mica__gpu_view_of(&record->operand[slot[o]]);
        mica__gpu_view_expand(&view[o], &view[count - 1]);
        params->type[o] = mica__gpu_type(record->operand[slot[o]].dtype);
    }
    mica__gpu_view_collapse(view, count, 0);
    params->ndim = view[0].ndim;
    params->elements = 1;
    for (uint32_t d = 0; d < params->ndim; d++) {
        if (view[0].shape[d] > UINT32_MAX)
            return mica__fail(MICA_ERR_UNSUPPORTED, "%s: a dimension of %llu elements, 2^32 - 1 are served",
                              mica_op_name((mica_op)record->op), (unsigned long long)view[0].shape[d]);
        params->shape[d] = (uint32_t)view[0].shape[d];
        params->elements *= view[0].shape[d];
        for (uint32_t o = 0; o < count; o++)
            params->stride[o][d] = view[o].stride[d];
    }
    return MICA_OK;
}

mica_status mica__gpu_plan_binary(const mica__record *record, const mica__device_info *info, mica__plan *plan)
{
    static const uint32_t slot[] = {MICA__BINARY_A, MICA__BINARY_B, MICA__BINARY_Y};
    mk_elementwise_params params;
    (void)info;
    mica_status status = mica__gpu_check_floats(record, 7);
    if (status == MICA_OK)
        status = describe(record, slot, 3, &params);
    if (status == MICA_OK)
        status = mica__gpu_plan_next(plan, "elementwise/binary",
                                     (params.elements + MICA__MK_WG - 1) / MICA__MK_WG);
    if (status != MICA_OK)
        return status;
    params.op = function_of(record->op);
    for (uint32_t i = 0; i < 3; i++)
        mica__gpu_plan_operand(plan, record, slot[i], 0);
    mica__gpu_plan_params(plan, &params, sizeof params);
    return MICA_OK;
}
