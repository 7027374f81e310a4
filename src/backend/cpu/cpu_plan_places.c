/* cpu_plan_places.c - plans of pads, gather and scatter: which dimensions are one, what stands still along the axis. */
#include "backend/cpu/cpu_plan.h"

#include "base/status.h"
#include "backend/cpu/cpu_params.h"

#define MOST_PLACES ((uint64_t)1 << 26) /* along the axis of a scatter: 2 GB of a thread's memory */

static uint64_t elements_of(const mica__cpu_view *view)
{
    uint64_t elements = 1;
    for (uint32_t d = 0; d < view->ndim; d++)
        elements *= view->shape[d];
    return elements;
}

static void set_units(mica__plan *plan, uint64_t elements, double element_ns)
{
    mica__plan_dispatch *dispatch = &plan->dispatch[plan->dispatch_count - 1];
    dispatch->groups[0] = (uint32_t)((elements + MICA__CPU_UNIT_ELEMENTS - 1) / MICA__CPU_UNIT_ELEMENTS);
    mica__cpu_plan_grain(dispatch, element_ns * MICA__CPU_UNIT_ELEMENTS);
}

/* ---- pad ---- */

/* Whether dimension d of both views goes on in d + 1 without a gap, and d + 1 is not padded: then they are one dimension, padded by as much more
 * where places beyond the end begin anew or there are none. */
static bool is_one(const mica__cpu_view *x, const mica__cpu_view *y, const mica__cpu_pad *p, uint32_t d)
{
    const uint64_t n = x->shape[d + 1];
    if (n != y->shape[d + 1] || p->low[d + 1] != 0 || x->stride[d] != n * x->stride[d + 1] ||
        y->stride[d] != n * y->stride[d + 1])
        return false;
    return (x->shape[d] == y->shape[d] && p->low[d] == 0) || p->mode == MICA_PAD_CONSTANT ||
           p->mode == MICA_PAD_WRAP;
}

static void join(mica__cpu_view *view, uint32_t d)
{
    view->shape[d] *= view->shape[d + 1];
    view->stride[d] = view->stride[d + 1];
    for (uint32_t k = d + 1; k + 1u < view->ndim; k++) {
        view->shape[k] = view->shape[k + 1];
        view->stride[k] = view->stride[k + 1];
    }
    view->ndim--;
}

static void merge(mica__cpu_view *x, mica__cpu_view *y, mica__cpu_pad *p)
{
    for (uint32_t d = y->ndim; d-- > 0;) {
        if (d + 1u >= y->ndim || !is_one(x, y, p, d))
            continue;
        p->low[d] *= (int64_t)x->shape[d + 1];
        for (uint32_t k = d + 1; k + 1u < y->ndim; k++)
            p->low[k] = p->low[k + 1];
        join(x, d);
        join(y, d);
    }
}

mica_status mica__cpu_plan_pad(const mica__record *record, const mica__device_info *info, mica__plan *plan)
{
    const mica__pad_record *pad = record->params;
    mica__cpu_pad params = {.bits = pad->bits, .mode = pad->pad.mode};
    (void)info;
    if (record->operand[MICA__PAD_Y].length == 0)
        return MICA_OK;
    mica__cpu_plan_next(plan, "pad", 0);
    mica__cpu_plan_operand(plan, record, MICA__PAD_X, 0);
    mica__cpu_plan_operand(plan, record, MICA__PAD_Y, 0);
    mica__cpu_view *view = mica__cpu_plan_views(plan);
    for (uint32_t d = 0; d < MICA_MAX_DIMS; d++)
        params.low[d] = pad->pad.low[d];
    params.element_bytes = mica_dtype_block_bytes((mica_dtype)view->dtype);
    merge(&view[0], &view[1], &params);
    params.elements = elements_of(&view[1]);
    mica__cpu_plan_params(plan, &params, sizeof params);
    set_units(plan, params.elements, 0.1 * params.element_bytes);
    return MICA_OK;
}

/* ---- gather ---- */

/* Gives the view the sizes of `other`, and no step along the axis; returns the step that it had. */
static uint64_t hold(mica__cpu_view *view, uint32_t axis, const mica__cpu_view *other)
{
    const uint64_t step = view->stride[axis];
    view->stride[axis] = 0;
    view->shape[axis] = other->shape[axis];
    return step;
}

mica_status mica__cpu_plan_gather(const mica__record *record, const mica__device_info *info, mica__plan *plan)
{
    const mica_gather_params *gather = record->params;
    (void)info;
    mica__cpu_plan_next(plan, "gather", 0);
    mica__cpu_plan_operands(plan, record, MICA__GATHER_SLOTS);
    mica__cpu_view *view = mica__cpu_plan_views(plan);
    mica__cpu_gather params = {.count = view[MICA__GATHER_X].shape[gather->axis],
                               .element_bytes = mica_dtype_block_bytes((mica_dtype)view->dtype)};
    params.x_step = hold(&view[MICA__GATHER_X], gather->axis, &view[MICA__GATHER_Y]);
    mica__cpu_view_collapse(view, MICA__GATHER_SLOTS, 0);
    params.elements = elements_of(view);
    const bool runs = view[MICA__GATHER_IDS].stride[view->ndim - 1] == 0;
    mica__cpu_plan_params(plan, &params, sizeof params);
    set_units(plan, params.elements, runs ? 0.1 * params.element_bytes : 2);
    return MICA_OK;
}

/* ---- scatter ---- */

/* The links of a line of ids, which has a place for each of its own dimensions and for the axis; where ids repeats so do they. */
static uint64_t lay_links(const mica__operand *ids, uint32_t axis, uint64_t *stride)
{
    uint64_t bytes = sizeof(uint32_t) * ids->shape[axis];
    for (uint32_t d = ids->ndim; d-- > 0;) {
        stride[d] = d == axis ? sizeof(uint32_t) : 0;
        if (d == axis || ids->stride[d] == 0 || ids->shape[d] == 1)
            continue;
        stride[d] = bytes;
        bytes *= ids->shape[d];
    }
    return bytes;
}

static void set_view(mica__cpu_view *view, const mica__operand *ids, const uint64_t *stride)
{
    view->ndim = ids->ndim;
    for (uint32_t d = 0; d < ids->ndim; d++) {
        view->shape[d] = ids->shape[d];
        view->stride[d] = stride[d];
    }
}

/* Lines are the dimensions that ids has for itself; the axis becomes the last one. */
static void plan_links(const mica__record *record, uint32_t axis, const uint64_t *stride, uint64_t bytes,
                       mica__plan *plan)
{
    const mica__operand *ids = &record->operand[MICA__SCATTER_IDS];
    mica__cpu_scatter_link params = {
        .count = record->operand[MICA__SCATTER_Y].shape[axis], .slots = 2, .shift = 31};
    mica__cpu_plan_next(plan, "scatter_link", bytes / sizeof(uint32_t) / ids->shape[axis]);
    mica__cpu_plan_operand(plan, record, MICA__SCATTER_IDS, 0);
    mica__cpu_plan_scratch(plan, 0, bytes, MICA_ACCESS_WRITE);
    mica__cpu_view *view = mica__cpu_plan_views(plan);
    set_view(&view[1], ids, stride);
    for (uint32_t d = 0; d < ids->ndim; d++)
        if (d != axis && stride[d] == 0)
            view[0].shape[d] = view[1].shape[d] = 1;
    for (uint32_t d = axis; d + 1u < ids->ndim; d++)
        mica__cpu_view_swap(view, 2, d, d + 1);
    while (params.slots < 2 * ids->shape[axis]) {
        params.slots *= 2;
        params.shift--;
    }
    mica__cpu_plan_params(plan, &params, sizeof params);
    mica__plan_dispatch *dispatch = &plan->dispatch[plan->dispatch_count - 1];
    dispatch->local_bytes = params.slots * 8;
    mica__cpu_plan_grain(dispatch, 6.0 * (double)ids->shape[axis]);
}

mica_status mica__cpu_plan_scatter(const mica__record *record, const mica__device_info *info,
                                   mica__plan *plan)
{
    const mica_scatter_params *scatter = record->params;
    const mica__operand *ids = &record->operand[MICA__SCATTER_IDS];
    uint64_t stride[MICA_MAX_DIMS] = {0};
    (void)info;
    if (record->operand[MICA__SCATTER_UPDATES].length == 0)
        return MICA_OK;
    if (ids->shape[scatter->axis] > MOST_PLACES)
        return mica__fail(MICA_ERR_UNSUPPORTED, "scatter: %llu places along the axis, 2^26 are served",
                          (unsigned long long)ids->shape[scatter->axis]);
    const uint64_t bytes = lay_links(ids, scatter->axis, stride);
    plan_links(record, scatter->axis, stride, bytes, plan);
    mica__cpu_plan_next(plan, "scatter", 0);
    mica__cpu_plan_operand(plan, record, MICA__SCATTER_IDS, 0);
    mica__cpu_plan_scratch(plan, 0, bytes, MICA_ACCESS_READ);
    mica__cpu_plan_operand(plan, record, MICA__SCATTER_Y, 0);
    mica__cpu_plan_operand(plan, record, MICA__SCATTER_UPDATES, 0);
    mica__cpu_view *view = mica__cpu_plan_views(plan);
    set_view(&view[1], ids, stride);
    mica__cpu_scatter params = {.link_step = sizeof(uint32_t),
                                .updates_step = view[3].stride[scatter->axis],
                                .element_bytes = mica_dtype_block_bytes((mica_dtype)view[3].dtype),
                                .mode = scatter->mode};
    params.y_step = hold(&view[2], scatter->axis, &view[3]);
    mica__cpu_view_collapse(view, 4, 0);
    params.elements = elements_of(view);
    mica__cpu_plan_params(plan, &params, sizeof params);
    set_units(plan, params.elements, 0.2 * params.element_bytes);
    return MICA_OK;
}
