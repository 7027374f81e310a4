/*
 * cpu_plan.c - how a plan's dispatches, views and parameter blocks are put together.
 *
 * Knows the plan structs and the cpu's views, no op.
 */
#include "backend/cpu/cpu_plan.h"

#include <string.h>

#include "backend/planning.h"
#include "quant/dtype.h"

mica__plan_dispatch *mica__cpu_plan_next(mica__plan *plan, const char *kernel, uint64_t units)
{
    mica__plan_dispatch *dispatch = mica__planning_dispatch(plan, kernel);
    dispatch->groups[0] = (uint32_t)units;
    return dispatch;
}

mica__cpu_view *mica__cpu_plan_views(mica__plan *plan)
{
    return (mica__cpu_view *)(void *)(plan->params + mica__planning_last(plan)->params_offset);
}

/* `count` more views. */
static mica__cpu_view *add_views(mica__plan *plan, uint32_t count)
{
    return (mica__cpu_view *)(void *)mica__planning_params(plan, count * (uint32_t)sizeof(mica__cpu_view));
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
    if (!mica__operand_present(operand)) { /* nobody reads the shape of what is not there */
        set_binding(binding, slot, 0, 0, 0);
        view->length = 0;
        view->dtype = MICA_DTYPE_NONE;
        view->ndim = view->layout = 0;
        view->group_size = 0;
        return;
    }
    set_binding(binding, slot, access != 0 ? access : operand->access, 0, operand->length);
    view->length = operand->length;
    for (uint32_t d = 0; d < MICA_MAX_DIMS; d++) { /* equal records have equal plans, to the byte */
        view->shape[d] = d < operand->ndim ? operand->shape[d] : 0;
        view->stride[d] = d < operand->ndim ? operand->stride[d] : 0;
    }
    view->dtype = operand->dtype;
    view->ndim = operand->ndim;
    if (operand->ndim == 0) { /* to kernels a scalar is a row of one */
        view->ndim = 1;
        view->shape[0] = 1;
        view->stride[0] = operand->length;
    }
    view->layout = operand->layout;
    view->group_size = operand->group_size;
}

void mica__cpu_plan_operand(mica__plan *plan, const mica__record *record, uint32_t slot, uint32_t access)
{
    mica__plan_binding *binding = mica__planning_bindings(plan, 1);
    set_operand(&record->operand[slot], slot, access, binding, add_views(plan, 1));
}

void mica__cpu_plan_operands(mica__plan *plan, const mica__record *record, uint32_t count)
{
    mica__plan_binding *binding = mica__planning_bindings(plan, count);
    mica__cpu_view *view = add_views(plan, count);
    for (uint32_t slot = 0; slot < count; slot++)
        set_operand(&record->operand[slot], slot, 0, binding + slot, view + slot);
}

void mica__cpu_plan_scratch(mica__plan *plan, uint64_t offset, uint64_t bytes, uint32_t access)
{
    mica__cpu_view *view = add_views(plan, 1);
    set_binding(mica__planning_bindings(plan, 1), MICA__SCRATCH, access, offset, bytes);
    view->data = NULL;
    view->length = view->shape[0] = bytes;
    view->stride[0] = 1;
    view->dtype = MICA_DTYPE_U8;
    view->ndim = 1;
    view->layout = 0;
    view->group_size = 0;
    if (plan->scratch_bytes < offset + bytes)
        plan->scratch_bytes = offset + bytes;
}

void mica__cpu_plan_params(mica__plan *plan, const void *params, uint32_t size)
{
    unsigned char *to = size != 0 ? mica__planning_params(plan, size) : NULL;
    if (to != NULL)
        memcpy(to, params, size);
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

/* A dispatch of some microseconds has few claims, and one left over would make all threads but one wait for it. One of
 * hundreds has more than evening out needs, and where units are read from memory in order each claim breaks off what the
 * processor was reading ahead: a third of a microsecond. */
void mica__cpu_plan_shares(mica__plan_dispatch *dispatch, uint32_t threads, double unit_ns)
{
    const double long_claim_ns = 32000;
    const uint32_t units = dispatch->groups[0];
    const uint64_t enough = (uint64_t)threads * 8;
    mica__cpu_plan_grain(dispatch, unit_ns);
    uint64_t claims = (units + dispatch->grain - 1) / dispatch->grain;
    if (claims == 1 || claims < threads)
        return;
    if (claims > enough) {
        const double longer = units * unit_ns / long_claim_ns;
        const uint64_t fewer = longer > (double)enough ? (uint64_t)longer : enough;
        claims = fewer < claims ? fewer : claims;
    }
    const uint64_t even = (claims + threads / 2) / threads * threads;
    dispatch->grain = (uint32_t)(even < units ? (units + even - 1) / even : 1);
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

bool mica__cpu_is_cache_block(uint16_t dtype)
{
    return dtype == MICA_DTYPE_Q8_0 || dtype == MICA_DTYPE_Q4_0 || dtype == MICA_DTYPE_Q4_1 ||
           dtype == MICA_DTYPE_Q5_0 || dtype == MICA_DTYPE_Q5_1 || dtype == MICA_DTYPE_IQ4_NL ||
           mica__dtype_is_turbo(dtype);
}

bool mica__cpu_is_float(uint16_t dtype)
{
    return dtype == MICA_DTYPE_F32 || dtype == MICA_DTYPE_F16 || dtype == MICA_DTYPE_BF16;
}
