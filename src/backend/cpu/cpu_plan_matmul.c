/* cpu_plan_matmul.c - matmul by the kind of its weights, and weights into the layout matmul reads fastest. */
#include "backend/cpu/cpu_plan.h"

#include "base/status.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/cpu_plan_quant.h"
#include "quant/packed.h"

mica_status mica__cpu_plan_matmul(const mica__record *record, const mica__device_info *info, mica__plan *plan)
{
    const mica__operand *weight = &record->operand[MICA__MATMUL_SLOT(0, MICA__WEIGHT_DATA)];
    if (mica__quant_known(weight->dtype) || mica__dtype_is_grouped(weight->dtype))
        return mica__cpu_plan_matmul_quant(record, info, plan);
    return mica__cpu_plan_matmul_dense(record, info, plan);
}

mica_layout mica__cpu_weight_layout(const mica__operand *weight, const mica__device_info *info)
{
    mica__packed_form form;
    (void)info;
    return weight->ndim >= 2 && mica__packed_form_of(weight->dtype, weight->group_size, &form)
               ? MICA_LAYOUT_ROWS8
               : MICA_LAYOUT_CANONICAL;
}

mica_status mica__cpu_plan_pack(const mica__record *record, const mica__device_info *info, mica__plan *plan)
{
    const mica__operand *x = &record->operand[MICA__COPY_X], *scales = &record->operand[MICA__COPY_SCALES];
    const mica__operand *y = &record->operand[MICA__COPY_Y];
    mica__packed_form form;
    (void)info;
    if (x->layout != MICA_LAYOUT_CANONICAL || y->layout != MICA_LAYOUT_ROWS8)
        return mica__fail(MICA_ERR_UNSUPPORTED, "copy on the cpu: a packed weight cannot be unpacked");
    if (!mica__packed_form_of(x->dtype, x->group_size, &form) || x->ndim < 2)
        return mica__fail(MICA_ERR_UNSUPPORTED, "copy on the cpu: %s with groups of %u has no packed layout",
                          mica_dtype_name((mica_dtype)x->dtype), x->group_size);
    if (mica__dtype_is_grouped(x->dtype) &&
        (!mica__operand_present(scales) || !mica__packed_scales(x->dtype, x->group_size, scales->dtype)))
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "copy on the cpu: %s with scales of %s in groups of %u has no packed layout",
                          mica_dtype_name((mica_dtype)x->dtype), mica_dtype_name((mica_dtype)scales->dtype),
                          x->group_size);
    uint64_t units = (x->shape[x->ndim - 2] + MICA__PACKED_ROWS - 1) / MICA__PACKED_ROWS;
    for (uint32_t d = 0; d + 2 < x->ndim; d++)
        units *= x->shape[d];
    if (units > UINT32_MAX)
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "copy on the cpu: %llu groups of rows to pack; at most %u are served",
                          (unsigned long long)units, UINT32_MAX);
    mica__plan_dispatch *dispatch = mica__cpu_plan_next(plan, "pack", units);
    for (uint32_t slot = 0; slot < MICA__COPY_SLOTS; slot++)
        mica__cpu_plan_operand(plan, record, slot, 0);
    mica__cpu_plan_params(plan, NULL, 0);
    mica__cpu_plan_grain(dispatch, (double)x->shape[x->ndim - 1] * 4);
    return MICA_OK;
}
