/* null_rows.c - one plan for every op: a single dispatch that binds all operands with their marks. */
#include <string.h>

#include "backend/null/null_device.h"

static mica_status plan_any(const mica__record *record, const mica__device_info *info, mica__plan *plan)
{
    mica__plan_dispatch *dispatch = &plan->dispatch[0];
    (void)info;
    if (record->params_size > sizeof plan->params)
        return mica__fail(MICA_ERR_INTERNAL, "params: %u bytes, expected at most %zu", record->params_size,
                          sizeof plan->params);
    memset(dispatch, 0, sizeof *dispatch);
    dispatch->kernel = mica_op_name((mica_op)record->op);
    for (uint32_t i = 0; i < 3; i++)
        dispatch->groups[i] = dispatch->local[i] = 1;
    dispatch->grain = 1;
    for (uint32_t slot = 0; slot < record->operand_count; slot++) {
        if (record->operand[slot].memory == NULL)
            continue;
        mica__plan_binding *binding = &dispatch->binding[dispatch->binding_count++];
        binding->source = (uint16_t)slot;
        binding->access = record->operand[slot].access;
    }
    if (record->params_size != 0)
        memcpy(plan->params, record->params, record->params_size);
    dispatch->params_size = plan->params_used = record->params_size;
    plan->dispatch_count = 1;
    plan->scratch_bytes = 0;
    return MICA_OK;
}

static const mica__kernel_row rows[] = {
#define ROW(name, text) {MICA_OP_##name, text, NULL, plan_any},
    MICA_OP_LIST(ROW)
#undef ROW
};

/* The list begins with CUSTOM, whose dispatches are the caller's own. */
_Static_assert(MICA_OP_CUSTOM == 1, "rows are served from the second op on");

const mica__kernel_row *mica__null_rows(uint32_t *out_count)
{
    *out_count = (uint32_t)(sizeof rows / sizeof rows[0]) - 1;
    return rows + 1;
}

mica_layout mica__null_weight_layout(const mica__operand *weight, const mica__device_info *info)
{
    (void)weight;
    (void)info;
    return MICA_LAYOUT_CANONICAL;
}
