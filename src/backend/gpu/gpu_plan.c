/* gpu_plan.c - what all plans of portable kernels are built with. */
#include "backend/gpu/gpu_plan.h"

#include <stdio.h>
#include <string.h>

#include "base/status.h"

static mica__plan_dispatch *current(mica__plan *plan)
{
    return &plan->dispatch[plan->dispatch_count - 1];
}

mica_status mica__gpu_plan_next(mica__plan *plan, const char *kernel, uint64_t groups_x)
{
    if (groups_x > MICA__GPU_MOST_GROUPS_X || plan->dispatch_count == MICA__PLAN_DISPATCHES)
        return mica__fail(MICA_ERR_UNSUPPORTED, "%s: %llu groups, at most %u are served", kernel,
                          (unsigned long long)groups_x, MICA__GPU_MOST_GROUPS_X);
    mica__plan_dispatch *dispatch = &plan->dispatch[plan->dispatch_count++];
    memset(dispatch, 0, sizeof *dispatch);
    dispatch->kernel = kernel;
    dispatch->groups[0] = (uint32_t)groups_x;
    dispatch->groups[1] = dispatch->groups[2] = dispatch->local[1] = dispatch->local[2] = 1;
    dispatch->local[0] = MICA__MK_WG;
    dispatch->grain = 1;
    return MICA_OK;
}

mica_status mica__gpu_plan_groups(mica__plan *plan, uint64_t y, uint64_t z)
{
    mica__plan_dispatch *dispatch = current(plan);
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

static void no_room(mica__plan *plan, const char *what)
{
    (void)what; /* messages alone have it */
    plan->status =
        mica__fail(MICA_ERR_UNSUPPORTED, "%s: its plan has no room for %s", current(plan)->kernel, what);
}

void mica__gpu_plan_constant(mica__plan *plan, const char *name, uint32_t value)
{
    mica__plan_dispatch *dispatch = current(plan);
    const size_t used = strlen(dispatch->constants), room = sizeof dispatch->constants - used;
    const int length =
        snprintf(dispatch->constants + used, room, "%s%s=%u", used > 0 ? "|" : "", name, value);
    if (length < 0 || (size_t)length >= room)
        no_room(plan, name);
    if (strcmp(name, "MK_WG") == 0)
        dispatch->local[0] = value;
}

static mica__plan_binding *next_binding(mica__plan *plan)
{
    mica__plan_dispatch *dispatch = current(plan);
    if (dispatch->binding_count == MICA__PLAN_BINDINGS) {
        no_room(plan, "another binding");
        dispatch->binding_count--;
    }
    return &dispatch->binding[dispatch->binding_count++];
}

void mica__gpu_plan_operand(mica__plan *plan, const mica__record *record, uint32_t slot, uint32_t access)
{
    const uint32_t marked = access != 0 ? access : record->operand[slot].access;
    *next_binding(plan) = (mica__plan_binding){(uint16_t)slot, (uint16_t)marked, 0, 0};
}

void mica__gpu_plan_scratch(mica__plan *plan, uint64_t offset, uint64_t bytes, uint32_t access)
{
    *next_binding(plan) = (mica__plan_binding){MICA__SCRATCH, (uint16_t)access, offset, bytes};
    if (offset + bytes > plan->scratch_bytes)
        plan->scratch_bytes = offset + bytes;
}

void mica__gpu_plan_fault(mica__plan *plan)
{
    *next_binding(plan) = (mica__plan_binding){MICA__FAULT, MICA__BIND_FAULT, 0, sizeof(uint32_t)};
}

void mica__gpu_plan_params(mica__plan *plan, const void *params, uint32_t size)
{
    mica__plan_dispatch *dispatch = current(plan);
    dispatch->params_offset = (plan->params_used + 15u) & ~15u;
    if (size > sizeof plan->params - dispatch->params_offset) {
        no_room(plan, "its parameters");
        return;
    }
    dispatch->params_size = size;
    memcpy(plan->params + dispatch->params_offset, params, size);
    plan->params_used = dispatch->params_offset + size;
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

mica_status mica__gpu_check_floats(const mica__record *record, uint32_t slots)
{
    for (uint32_t slot = 0; slot < record->operand_count && slot < 32; slot++) {
        const mica__operand *operand = &record->operand[slot];
        if ((slots >> slot & 1) != 0 && operand->memory != NULL && !mica__gpu_is_float(operand->dtype))
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
