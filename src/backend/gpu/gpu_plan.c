/* gpu_plan.c - what all plans of portable kernels are built with. */
#include "backend/gpu/gpu_plan.h"

#include <stdio.h>
#include <string.h>

#include "backend/planning.h"
#include "base/status.h"

_Static_assert(MK_DIMS >= MICA_MAX_DIMS, "kernels that go by elements take every operand");

mica_status mica__gpu_plan_next(mica__plan *plan, const char *kernel, uint64_t groups_x)
{
    if (groups_x > MICA__GPU_MOST_GROUPS_X)
        return mica__fail(MICA_ERR_UNSUPPORTED, "%s: %llu groups, at most %u are served", kernel,
                          (unsigned long long)groups_x, MICA__GPU_MOST_GROUPS_X);
    mica__plan_dispatch *dispatch = mica__planning_dispatch(plan, kernel);
    dispatch->groups[0] = (uint32_t)groups_x;
    dispatch->local[0] = MICA__MK_WG;
    return MICA_OK;
}

mica_status mica__gpu_plan_groups(mica__plan *plan, uint64_t y, uint64_t z)
{
    mica__plan_dispatch *dispatch = mica__planning_last(plan);
    if (y > MICA__GPU_MOST_GROUPS_YZ || z > MICA__GPU_MOST_GROUPS_YZ)
        return mica__fail(MICA_ERR_UNSUPPORTED, "%s: %llu by %llu groups in y and z, at most %u are served",
                          dispatch->kernel, (unsigned long long)y, (unsigned long long)z,
                          MICA__GPU_MOST_GROUPS_YZ);
    dispatch->groups[1] = (uint32_t)y;
    dispatch->groups[2] = (uint32_t)z;
    return MICA_OK;
}

mica_status mica__gpu_plan_places(mica__plan *plan, uint64_t count)
{
    return mica__gpu_plan_groups(plan, count < MICA__GPU_MOST_GROUPS_YZ ? count : MICA__GPU_MOST_GROUPS_YZ,
                                 (count + MICA__GPU_MOST_GROUPS_YZ - 1) / MICA__GPU_MOST_GROUPS_YZ);
}

void mica__gpu_plan_constant(mica__plan *plan, const char *name, uint32_t value)
{
    char text[80];
    snprintf(text, sizeof text, "%.64s=%u", name, value);
    mica__planning_constant(plan, text);
    if (strcmp(name, "MK_WG") == 0)
        mica__planning_last(plan)->local[0] = value;
}

void mica__gpu_plan_operand(mica__plan *plan, const mica__record *record, uint32_t slot, uint32_t access)
{
    const uint32_t marked = access != 0 ? access : record->operand[slot].access;
    *mica__planning_bindings(plan, 1) = (mica__plan_binding){(uint16_t)slot, (uint16_t)marked, 0, 0};
}

void mica__gpu_plan_scratch(mica__plan *plan, uint64_t offset, uint64_t bytes, uint32_t access)
{
    *mica__planning_bindings(plan, 1) = (mica__plan_binding){MICA__SCRATCH, (uint16_t)access, offset, bytes};
    if (offset + bytes > plan->scratch_bytes)
        plan->scratch_bytes = offset + bytes;
}

void mica__gpu_plan_fault(mica__plan *plan)
{
    *mica__planning_bindings(plan, 1) =
        (mica__plan_binding){MICA__FAULT, MICA__BIND_FAULT, 0, sizeof(uint32_t)};
}

void mica__gpu_plan_params(mica__plan *plan, const void *params, uint32_t size)
{
    unsigned char *to = mica__planning_params(plan, size);
    if (to != NULL)
        memcpy(to, params, size);
}

void mica__gpu_plan_block(mica__plan *plan, const mica__device_info *info, const void *params, uint32_t size)
{
    const uint32_t arguments = MICA__GPU_BINDING_BYTES * mica__planning_last(plan)->binding_count;
    if (size > info->params_bytes || arguments > info->params_bytes - size) {
        mica__gpu_plan_constant(plan, "MK_FAR", 1);
        *mica__planning_bindings(plan, 1) = (mica__plan_binding){MICA__PARAMS, MICA__BIND_PARAMS, 0, size};
    }
    mica__gpu_plan_params(plan, params, size);
}

uint32_t mica__gpu_fault_code(const mica__record *record)
{
    return 1u + record->op;
}

bool mica__gpu_is_float(uint16_t dtype)
{
    return dtype == MICA_DTYPE_F32 || dtype == MICA_DTYPE_F16 || dtype == MICA_DTYPE_BF16;
}

uint32_t mica__gpu_type(uint16_t dtype)
{
    return dtype == MICA_DTYPE_F16 ? MICA__MK_F16 : dtype == MICA_DTYPE_BF16 ? MICA__MK_BF16 : MICA__MK_F32;
}

uint32_t mica__gpu_cache_type(uint16_t dtype)
{
    switch (dtype) {
    case MICA_DTYPE_Q8_0: return MK_Q8_0;
    case MICA_DTYPE_Q4_0: return MK_Q4_0;
    case MICA_DTYPE_Q4_1: return MK_Q4_1;
    case MICA_DTYPE_Q5_0: return MK_Q5_0;
    case MICA_DTYPE_Q5_1: return MK_Q5_1;
    case MICA_DTYPE_IQ4_NL: return MK_IQ4_NL;
    case MICA_DTYPE_TURBO2: return MK_TURBO2;
    case MICA_DTYPE_TURBO2_5: return MK_TURBO2_5;
    case MICA_DTYPE_TURBO3: return MK_TURBO3;
    case MICA_DTYPE_TURBO4: return MK_TURBO4;
    case MICA_DTYPE_TURBO5: return MK_TURBO5;
    case MICA_DTYPE_TURBO6: return MK_TURBO6;
    case MICA_DTYPE_TURBO8: return MK_TURBO8;
    default: return mica__gpu_type(dtype);
    }
}

mica_status mica__gpu_check_floats(const mica__record *record, uint32_t slots)
{
    for (uint32_t slot = 0; slot < record->operand_count && slot < 32; slot++) {
        const mica__operand *operand = &record->operand[slot];
        if ((slots >> slot & 1) != 0 && mica__operand_present(operand) && !mica__gpu_is_float(operand->dtype))
            return mica__fail(MICA_ERR_UNSUPPORTED, "%s: operand %u is %s; f32, f16 and bf16 are served",
                              mica_op_name((mica_op)record->op), slot,
                              mica_dtype_name((mica_dtype)operand->dtype));
    }
    return MICA_OK;
}

mica__gpu_view mica__gpu_view_of(const mica__operand *operand)
{
    mica__gpu_view view;
    memset(&view, 0, sizeof view);
    view.ndim = operand->ndim;
    memcpy(view.shape, operand->shape, operand->ndim * sizeof view.shape[0]);
    memcpy(view.stride, operand->stride, operand->ndim * sizeof view.stride[0]);
    if (operand->ndim == 0) {
        view.ndim = 1;
        view.shape[0] = 1;
        view.stride[0] = operand->length;
    }
    return view;
}

void mica__gpu_view_expand(mica__gpu_view *view, const mica__gpu_view *y)
{
    const uint32_t missing = y->ndim - view->ndim;
    for (uint32_t d = y->ndim; d-- > 0;) {
        const bool varies = d >= missing && view->shape[d - missing] != 1;
        view->stride[d] = varies ? view->stride[d - missing] : 0;
    }
    view->ndim = y->ndim;
    memcpy(view->shape, y->shape, sizeof view->shape);
}

/* Whether dimension d continues d - 1 in the view. */
static bool continues(const mica__gpu_view *view, uint32_t d)
{
    return view->stride[d - 1] == view->stride[d] * view->shape[d];
}

void mica__gpu_view_collapse(mica__gpu_view *view, uint32_t count, uint32_t kept)
{
    for (uint32_t d = view[0].ndim; d-- > 1;) {
        bool merge = d + kept < view[0].ndim; /* d and d - 1 are both free */
        for (uint32_t v = 0; v < count && merge; v++)
            merge = view[v].shape[d] == 1 || view[v].shape[d - 1] == 1 || continues(&view[v], d);
        if (!merge)
            continue;
        for (uint32_t v = 0; v < count; v++) {
            mica__gpu_view *w = &view[v];
            if (w->shape[d] == 1) /* the outer one remains */
                w->stride[d] = w->stride[d - 1];
            w->shape[d] *= w->shape[d - 1];
            memmove(&w->shape[d - 1], &w->shape[d], (w->ndim - d) * sizeof w->shape[0]);
            memmove(&w->stride[d - 1], &w->stride[d], (w->ndim - d) * sizeof w->stride[0]);
            w->ndim--;
        }
    }
}

bool mica__gpu_has_own_texts(const mica__device_info *info)
{
    return (info->features & MICA__FEATURE_SLOW_BARRIER) == 0;
}
