/*
 * cpu_plan.c - how a plan's dispatches, views and parameter blocks are put together.
 *
 * Knows the plan structs and the cpu's views, no op.
 */
#include "backend/cpu/cpu_plan.h"

#include <string.h>

static mica__plan_dispatch *current(mica__plan *plan)
{
    return &plan->dispatch[plan->dispatch_count - 1];
}

mica__plan_dispatch *mica__cpu_plan_next(mica__plan *plan, const char *kernel, uint64_t units)
{
    plan->params_used = (plan->params_used + 15) & ~15u;
    mica__plan_dispatch *dispatch = &plan->dispatch[plan->dispatch_count++];
    /* Field by field: the array of bindings is most of the struct and is written as it is used. */
    dispatch->kernel = kernel;
    dispatch->constants[0] = '\0';
    dispatch->local_bytes = dispatch->binding_count = dispatch->params_size = 0;
    dispatch->groups[0] = (uint32_t)units;
    dispatch->groups[1] = dispatch->groups[2] = 1;
    dispatch->local[0] = dispatch->local[1] = dispatch->local[2] = 1;
    dispatch->grain = 1;
    dispatch->params_offset = plan->params_used;
    return dispatch;
}

mica__cpu_view *mica__cpu_plan_views(mica__plan *plan)
{
    return (mica__cpu_view *)(void *)(plan->params + current(plan)->params_offset);
}

/* Counts `count` more bindings with their views. */
static void add_views(mica__plan *plan, uint32_t count)
{
    const uint32_t bytes = count * (uint32_t)sizeof(mica__cpu_view);
    current(plan)->binding_count += count;
    current(plan)->params_size += bytes;
    plan->params_used += bytes;
}

/* Bindings and views are written field by field where they stay: built on the stack and copied, their small stores
 * would stall the wider loads of the copy, which was a tenth of encoding. The view's data is known when it is
 * encoded. */
static void set_binding(mica__plan_binding *binding, uint32_t source, uint32_t access, uint64_t offset,
                        uint64_t length)
{
    binding->source = (uint16_t)source;
    binding->access = (uint16_t)access;
    binding->offset = offset;
    binding->length = length;
}

static void set_operand(const mica__operand *operand, uint32_t slot, uint32_t access,
                        mica__plan_binding *binding, mica__cpu_view *view)
{
    view->data = NULL;
    if (operand->memory == NULL) { /* nobody reads the shape of what is not there */
        set_binding(binding, slot, 0, 0, 0);
        view->length = 0;
        view->dtype = MICA_DTYPE_NONE;
        view->ndim = view->layout = 0;
        view->group_size = 0;
        return;
    }
    set_binding(binding, slot, access != 0 ? access : operand->access, 0, operand->length);
    view->length = operand->length;
    memcpy(view->shape, operand->shape, sizeof view->shape);
    memcpy(view->stride, operand->stride, sizeof view->stride);
    view->dtype = operand->dtype;
    view->ndim = operand->ndim;
    view->layout = operand->layout;
    view->group_size = operand->group_size;
}

void mica__cpu_plan_operand(mica__plan *plan, const mica__record *record, uint32_t slot, uint32_t access)
{
    mica__plan_dispatch *dispatch = current(plan);
    const uint32_t at = dispatch->binding_count;
    set_operand(&record->operand[slot], slot, access, &dispatch->binding[at],
                mica__cpu_plan_views(plan) + at);
    add_views(plan, 1);
}

void mica__cpu_plan_operands(mica__plan *plan, const mica__record *record, uint32_t count)
{
    mica__plan_dispatch *dispatch = current(plan);
    mica__plan_binding *binding = &dispatch->binding[dispatch->binding_count];
    mica__cpu_view *view = mica__cpu_plan_views(plan) + dispatch->binding_count;
    for (uint32_t slot = 0; slot < count; slot++)
        set_operand(&record->operand[slot], slot, 0, binding + slot, view + slot);
    add_views(plan, count);
}

void mica__cpu_plan_scratch(mica__plan *plan, uint64_t offset, uint64_t bytes, uint32_t access)
{
    mica__plan_dispatch *dispatch = current(plan);
    mica__cpu_view *view = mica__cpu_plan_views(plan) + dispatch->binding_count;
    set_binding(&dispatch->binding[dispatch->binding_count], MICA__SCRATCH, access, offset, bytes);
    view->data = NULL;
    view->length = view->shape[0] = bytes;
    view->stride[0] = 1;
    view->dtype = MICA_DTYPE_U8;
    view->ndim = 1;
    view->layout = 0;
    view->group_size = 0;
    add_views(plan, 1);
    if (plan->scratch_bytes < offset + bytes)
        plan->scratch_bytes = offset + bytes;
}

void mica__cpu_plan_params(mica__plan *plan, const void *params, uint32_t size)
{
    mica__plan_dispatch *dispatch = current(plan);
    if (size != 0)
        memcpy(plan->params + dispatch->params_offset + dispatch->params_size, params, size);
    dispatch->params_size += size;
    plan->params_used += size;
}

mica__plan_dispatch *mica__cpu_plan_whole(mica__plan *plan, const mica__record *record, const char *kernel,
                                          uint64_t units)
{
    mica__plan_dispatch *dispatch = mica__cpu_plan_next(plan, kernel, units);
    mica__cpu_plan_operands(plan, record, record->operand_count);
    mica__cpu_plan_params(plan, record->params, record->params_size);
    return dispatch;
}

/* A claim costs some tens of nanoseconds and waking a second thread for less than a microsecond gains nothing. */
void mica__cpu_plan_grain(mica__plan_dispatch *dispatch, double unit_ns)
{
    const double claim_ns = 4000, alone_ns = 2000;
    const uint32_t units = dispatch->groups[0];
    const double claims = units * unit_ns / claim_ns;
    if (units * unit_ns < alone_ns)
        dispatch->grain = units;
    else if (claims < 2)
        dispatch->grain = (units + 1) / 2;
    else if (claims < units)
        dispatch->grain = (uint32_t)(units / claims);
    else
        dispatch->grain = 1;
}

void mica__cpu_view_expand(mica__cpu_view *view, const mica__cpu_view *y)
{
    const uint32_t missing = (uint32_t)(y->ndim - view->ndim);
    for (uint32_t d = y->ndim; d-- > 0;) {
        const bool varies = d >= missing && view->shape[d - missing] != 1;
        view->stride[d] = varies ? view->stride[d - missing] : 0;
        view->shape[d] = y->shape[d];
    }
    view->ndim = y->ndim;
}

void mica__cpu_view_swap(mica__cpu_view *view, uint32_t count, uint32_t a, uint32_t b)
{
    for (uint32_t v = 0; v < count; v++) {
        const uint64_t shape = view[v].shape[a], stride = view[v].stride[a];
        view[v].shape[a] = view[v].shape[b];
        view[v].stride[a] = view[v].stride[b];
        view[v].shape[b] = shape;
        view[v].stride[b] = stride;
    }
}

static bool are_one(const mica__cpu_view *view, uint32_t count, uint32_t outer, uint32_t inner)
{
    for (uint32_t v = 0; v < count; v++)
        if (view[v].stride[outer] != view[v].stride[inner] * view[v].shape[inner])
            return false;
    return true;
}

static void remove_dim(mica__cpu_view *view, uint32_t count, uint32_t dim)
{
    for (uint32_t v = 0; v < count; v++) {
        for (uint32_t d = dim; d + 1 < view[v].ndim; d++) {
            view[v].shape[d] = view[v].shape[d + 1];
            view[v].stride[d] = view[v].stride[d + 1];
        }
        view[v].ndim--;
    }
}

void mica__cpu_view_collapse(mica__cpu_view *view, uint32_t count, uint32_t kept)
{
    const mica__cpu_view *last = &view[count - 1];
    for (uint32_t d = last->ndim - kept; d-- > 0;)
        if (last->shape[d] == 1 && last->ndim > 1)
            remove_dim(view, count, d);
    const uint32_t free_dims = last->ndim - kept;
    for (uint32_t a = 0; a < free_dims; a++)
        for (uint32_t b = a; b > 0 && last->stride[b - 1] < last->stride[b]; b--)
            mica__cpu_view_swap(view, count, b - 1, b);
    for (uint32_t d = free_dims; d-- > 1;)
        if (are_one(view, count, d - 1, d)) {
            for (uint32_t v = 0; v < count; v++)
                view[v].shape[d] *= view[v].shape[d - 1];
            remove_dim(view, count, d - 1);
        }
}

bool mica__cpu_is_float(uint16_t dtype)
{
    return dtype == MICA_DTYPE_F32 || dtype == MICA_DTYPE_F16 || dtype == MICA_DTYPE_BF16;
}
