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

/* ---- coordinates of several dimensions ---- */

/* Places of several dimensions become one number each in the scratch, counted in elements of `of`, whose dimensions from `batch` on they name; then they
 * are ids along one axis, an element wide. */
static mica_status plan_fold(const mica__record *record, uint32_t slot, const mica__operand *of,
                             uint32_t batch, uint64_t bytes, mica__plan *plan)
{
    const mica__operand *ids = &record->operand[slot];
    const uint32_t bytes_each = mica_dtype_block_bytes((mica_dtype)of->dtype);
    mica__cpu_fold params = {.elements = bytes / sizeof(uint32_t),
                             .components = (uint32_t)ids->shape[ids->ndim - 1u]};
    uint64_t reach = 0;
    for (uint32_t k = 0; k < params.components; k++) {
        const uint64_t step = of->stride[batch + k] / bytes_each, size = of->shape[batch + k];
        params.size[k] = size;
        params.step[k] = (uint32_t)step;
        reach += size > 0 && step < UINT32_MAX ? (size - 1) * step : size > 1 ? UINT32_MAX : 0;
    }
    if (reach >= UINT32_MAX)
        return mica__fail(MICA_ERR_UNSUPPORTED, "%s: its coordinates reach over 2^32 elements",
                          mica_op_name((mica_op)record->op));
    mica__cpu_plan_next(plan, "fold_ids", 0);
    mica__cpu_plan_operand(plan, record, slot, 0);
    mica__cpu_plan_scratch(plan, 0, bytes, MICA_ACCESS_WRITE);
    mica__cpu_plan_params(plan, &params, sizeof params);
    set_units(plan, params.elements, 2.0 * params.components);
    return MICA_OK;
}

/* As many dimensions as `like` has, the first `lines` of them one behind another, `bytes` each; the others stand still. */
static void set_lines(mica__cpu_view *view, const mica__cpu_view *like, uint32_t lines, uint64_t bytes)
{
    view->ndim = like->ndim;
    for (uint32_t d = like->ndim; d-- > 0;) {
        view->shape[d] = like->shape[d];
        view->stride[d] = d < lines ? bytes : 0;
        bytes *= d < lines ? like->shape[d] : 1;
    }
}

/* `view` has `taken` dimensions where `like` has those from `from` up to `to`, along which it stands still. */
static void stand_still(mica__cpu_view *view, uint32_t from, uint32_t to, uint32_t taken,
                        const mica__cpu_view *like, uint32_t ndim)
{
    uint64_t stride[MICA_MAX_DIMS] = {0};
    for (uint32_t d = 0; d < ndim; d++)
        stride[d] = d < from ? view->stride[d] : d < to ? 0 : view->stride[from + taken + (d - to)];
    view->ndim = like->ndim;
    for (uint32_t d = 0; d < like->ndim; d++) {
        view->shape[d] = like->shape[d];
        view->stride[d] = d < ndim ? stride[d] : 0;
    }
}

static uint64_t entries_of(const mica__operand *ids)
{
    uint64_t entries = 1;
    for (uint32_t d = 0; d + 1u < ids->ndim; d++)
        entries *= ids->shape[d];
    return entries;
}

mica_status mica__cpu_plan_gather_nd(const mica__record *record, const mica__device_info *info,
                                     mica__plan *plan)
{
    const uint32_t batch = ((const mica_gather_nd_params *)record->params)->batch_dims;
    const mica__operand *x = &record->operand[MICA__GATHER_ND_X],
                        *ids = &record->operand[MICA__GATHER_ND_IDS],
                        *y = &record->operand[MICA__GATHER_ND_Y];
    const uint64_t bytes = entries_of(ids) * sizeof(uint32_t);
    (void)info;
    if (y->length == 0)
        return MICA_OK;
    MICA__TRY(plan_fold(record, MICA__GATHER_ND_IDS, x, batch, bytes, plan));
    mica__cpu_plan_next(plan, "gather", 0);
    mica__cpu_plan_operand(plan, record, MICA__GATHER_ND_X, 0);
    mica__cpu_plan_scratch(plan, 0, bytes, MICA_ACCESS_READ);
    mica__cpu_plan_operand(plan, record, MICA__GATHER_ND_Y, 0);
    mica__cpu_view *view = mica__cpu_plan_views(plan);
    mica__cpu_gather params = {.count = MICA__FOLD_NOWHERE,
                               .element_bytes = mica_dtype_block_bytes((mica_dtype)x->dtype)};
    params.x_step = params.element_bytes;
    stand_still(&view[0], batch, ids->ndim - 1u, (uint32_t)ids->shape[ids->ndim - 1u], &view[2], y->ndim);
    set_lines(&view[1], &view[2], ids->ndim - 1u, sizeof(uint32_t));
    mica__cpu_view_collapse(view, 3, 0);
    params.elements = elements_of(view);
    const bool runs = view[1].stride[view->ndim - 1] == 0;
    mica__cpu_plan_params(plan, &params, sizeof params);
    set_units(plan, params.elements, runs ? 0.1 * params.element_bytes : 2);
    return MICA_OK;
}

/* Whether the first `lines` dimensions are one, and its step. */
static bool is_line(const mica__operand *operand, uint32_t lines, uint64_t *step)
{
    bool first = true;
    uint64_t next = 0;
    *step = 0;
    for (uint32_t d = lines; d-- > 0;) {
        if (operand->shape[d] == 1)
            continue;
        if (!first && operand->stride[d] != next)
            return false;
        if (first)
            *step = operand->stride[d];
        first = false;
        next = operand->stride[d] * operand->shape[d];
    }
    return true;
}

/* Updates whose lines are not one go into the scratch first, one behind another. */
static void plan_together(const mica__record *record, uint64_t offset, uint64_t bytes, mica__plan *plan)
{
    mica__cpu_pad params = {.mode = MICA_PAD_CONSTANT};
    mica__cpu_plan_next(plan, "pad", 0);
    mica__cpu_plan_operand(plan, record, MICA__SCATTER_ND_UPDATES, 0);
    mica__cpu_plan_scratch(plan, offset, bytes, MICA_ACCESS_WRITE);
    mica__cpu_view *view = mica__cpu_plan_views(plan);
    params.element_bytes = mica_dtype_block_bytes((mica_dtype)view[0].dtype);
    set_lines(&view[1], &view[0], view[0].ndim, params.element_bytes);
    params.elements = elements_of(view);
    mica__cpu_plan_params(plan, &params, sizeof params);
    set_units(plan, params.elements, 0.1 * params.element_bytes);
}

/* One line of all folded ids. */
static void plan_folded_links(uint64_t entries, uint64_t link, mica__plan *plan)
{
    mica__cpu_scatter_link params = {.count = MICA__FOLD_NOWHERE, .slots = 2, .shift = 31};
    mica__cpu_plan_next(plan, "scatter_link", 1);
    mica__cpu_plan_scratch(plan, 0, entries * sizeof(uint32_t), MICA_ACCESS_READ);
    mica__cpu_plan_scratch(plan, link, entries * sizeof(uint32_t), MICA_ACCESS_WRITE);
    mica__cpu_view *view = mica__cpu_plan_views(plan);
    for (uint32_t v = 0; v < 2; v++) {
        view[v].shape[0] = entries;
        view[v].stride[0] = sizeof(uint32_t);
    }
    while (params.slots < 2 * entries) {
        params.slots *= 2;
        params.shift--;
    }
    mica__cpu_plan_params(plan, &params, sizeof params);
    plan->dispatch[plan->dispatch_count - 1].local_bytes = params.slots * 8;
}

/* The updates themselves: from the scratch, `size` bytes behind ids and links, or from where they are (0). */
static void plan_updates(const mica__record *record, uint64_t link, uint64_t size, mica__cpu_scatter *params,
                         mica__plan *plan)
{
    const mica__operand *updates = &record->operand[MICA__SCATTER_ND_UPDATES],
                        *ids = &record->operand[MICA__SCATTER_ND_IDS];
    const uint32_t lines = ids->ndim - 1u;
    const uint64_t bytes = entries_of(ids) * sizeof(uint32_t);
    mica__cpu_plan_next(plan, "scatter", 0);
    mica__cpu_plan_scratch(plan, 0, bytes, MICA_ACCESS_READ);
    mica__cpu_plan_scratch(plan, link, bytes, MICA_ACCESS_READ);
    mica__cpu_plan_operand(plan, record, MICA__SCATTER_ND_Y, 0);
    if (size == 0)
        mica__cpu_plan_operand(plan, record, MICA__SCATTER_ND_UPDATES, 0);
    else
        mica__cpu_plan_scratch(plan, 2 * link, size, MICA_ACCESS_READ);
    mica__cpu_view *view = mica__cpu_plan_views(plan);
    if (size != 0) {
        mica__cpu_view like = {.ndim = updates->ndim};
        for (uint32_t d = 0; d < updates->ndim; d++)
            like.shape[d] = updates->shape[d];
        set_lines(&view[3], &like, updates->ndim, params->element_bytes);
        view[3].dtype = updates->dtype;
    }
    stand_still(&view[2], 0, lines, (uint32_t)ids->shape[lines], &view[3], updates->ndim);
    set_lines(&view[0], &view[3], lines, sizeof(uint32_t));
    set_lines(&view[1], &view[3], lines, sizeof(uint32_t));
    mica__cpu_view_collapse(view, 4, 0);
    params->elements = elements_of(view);
    mica__cpu_plan_params(plan, params, sizeof *params);
    set_units(plan, params->elements, 0.2 * params->element_bytes);
}

mica_status mica__cpu_plan_scatter_nd(const mica__record *record, const mica__device_info *info,
                                      mica__plan *plan)
{
    const mica__operand *updates = &record->operand[MICA__SCATTER_ND_UPDATES],
                        *ids = &record->operand[MICA__SCATTER_ND_IDS],
                        *y = &record->operand[MICA__SCATTER_ND_Y];
    const uint64_t entries = entries_of(ids), bytes = entries * sizeof(uint32_t);
    const uint64_t link = (bytes + 63) / 64 * 64;
    mica__cpu_scatter params = {.link_step = sizeof(uint32_t),
                                .element_bytes = mica_dtype_block_bytes((mica_dtype)y->dtype),
                                .mode = ((const mica_scatter_nd_params *)record->params)->mode};
    (void)info;
    if (updates->length == 0)
        return MICA_OK;
    if (entries > MOST_PLACES)
        return mica__fail(MICA_ERR_UNSUPPORTED, "scatter_nd: %llu places, 2^26 are served",
                          (unsigned long long)entries);
    MICA__TRY(plan_fold(record, MICA__SCATTER_ND_IDS, y, 0, bytes, plan));
    plan_folded_links(entries, link, plan);
    params.y_step = params.element_bytes;
    uint64_t size = 0;
    if (!is_line(updates, ids->ndim - 1u, &params.updates_step)) {
        size = params.element_bytes;
        for (uint32_t d = 0; d < updates->ndim; d++)
            size *= updates->shape[d];
        params.updates_step = size / entries;
        plan_together(record, 2 * link, size, plan);
    }
    plan_updates(record, link, size, &params, plan);
    return MICA_OK;
}
