/* null_kernel_rows.c - one plan for every op: a single dispatch that binds all operands with their marks. */
#include <string.h>

#include "backend/null/null_device.h"
#include "backend/planning.h"

static mica_status plan_any(const mica__record *record, const mica__device_info *info, mica__plan *plan)
{
    (void)info;
    mica__planning_dispatch(plan, mica_op_name((mica_op)record->op));
    for (uint32_t slot = 0; slot < record->operand_count; slot++)
        if (mica__operand_present(&record->operand[slot]))
            *mica__planning_bindings(plan, 1) =
                (mica__plan_binding){(uint16_t)slot, record->operand[slot].access, 0, 0};
    if (record->params_size != 0)
        memcpy(mica__planning_params(plan, record->params_size), record->params, record->params_size);
    return MICA_OK;
}

static const mica__kernel_row rows[] = {
#define OP(op, name, ...) {MICA_OP_##op, #name, NULL, plan_any},
#include "backend/ops.def"
};

const mica__kernel_row *mica__null_kernel_rows(uint32_t *out_count)
{
    *out_count = (uint32_t)(sizeof rows / sizeof rows[0]);
    return rows;
}

mica_layout mica__null_weight_layout(const mica__operand *weight, const mica__device_info *info)
{
    (void)weight;
    (void)info;
    return MICA_LAYOUT_CANONICAL;
}
