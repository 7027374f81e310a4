/* gpu_plan_places.c - plans of pads, gather and scatter. */
#include <string.h>

#include "backend/gpu/gpu_plan.h"
#include "base/status.h"

_Static_assert(MK_PAD_CONSTANT == MICA_PAD_CONSTANT && MK_PAD_EDGE == MICA_PAD_EDGE &&
                   MK_PAD_REFLECT == MICA_PAD_REFLECT && MK_PAD_SYMMETRIC == MICA_PAD_SYMMETRIC,
               "the kernel's modes are those of the op");

static uint64_t groups_for(uint64_t items)
{
    return (items + MICA__MK_WG - 1) / MICA__MK_WG;
}

/* Sizes as kernels take them, and how many elements they make. */
static mica_status set_shape(const mica__record *record, const mica__gpu_view *view, uint32_t *shape,
                             uint64_t *elements)
{
    *elements = 1;
    for (uint32_t d = 0; d < view->ndim; d++) {
        if (view->shape[d] > UINT32_MAX)
            return mica__fail(MICA_ERR_UNSUPPORTED, "%s: a dimension of %llu elements, 2^32 - 1 are served",
                              mica_op_name((mica_op)record->op), (unsigned long long)view->shape[d]);
        shape[d] = (uint32_t)view->shape[d];
        *elements *= view->shape[d];
    }
    return MICA_OK;
}

static void set_strides(const mica__gpu_view *view, uint64_t *stride)
{
    memcpy(stride, view->stride, view->ndim * sizeof view->stride[0]);
}

static uint32_t bytes_of(const mica__operand *operand)
{
    return mica_dtype_block_bytes((mica_dtype)operand->dtype);
}

mica_status mica__gpu_plan_pad(const mica__record *record, const mica__device_info *info, mica__plan *plan)
{
    const mica__pad_record *pad = record->params;
    const mica__gpu_view x = mica__gpu_view_of(&record->operand[MICA__PAD_X]),
                         y = mica__gpu_view_of(&record->operand[MICA__PAD_Y]);
    mk_pad_params p;
    uint64_t elements = 0;
    (void)info;
    if (record->operand[MICA__PAD_Y].length == 0)
        return MICA_OK;
    memset(&p, 0, sizeof p);
    mica_status status = set_shape(record, &x, p.x_shape, &elements);
    if (status == MICA_OK)
        status = set_shape(record, &y, p.y_shape, &p.elements);
    if (status == MICA_OK)
        status = mica__gpu_plan_next(plan, "places/pad", groups_for(p.elements));
    if (status != MICA_OK)
        return status;
    set_strides(&x, p.x_stride);
    set_strides(&y, p.y_stride);
    for (uint32_t d = 0; d < MICA_MAX_DIMS; d++)
        p.low[d] = (uint64_t)pad->pad.low[d];
    p.bits = pad->bits;
    p.ndim = y.ndim;
    p.bytes = bytes_of(&record->operand[MICA__PAD_Y]);
    p.mode = pad->pad.mode;
    mica__gpu_plan_operand(plan, record, MICA__PAD_X, 0);
    mica__gpu_plan_operand(plan, record, MICA__PAD_Y, 0);
    mica__gpu_plan_params(plan, &p, sizeof p);
    return MICA_OK;
}

/* Gives the view the sizes of `other`, and no step along the axis; returns the step that it had. */
static uint64_t hold(mica__gpu_view *view, uint32_t axis, const mica__gpu_view *other)
{
    const uint64_t step = view->stride[axis];
    view->stride[axis] = 0;
    view->shape[axis] = other->shape[axis];
    return step;
}

mica_status mica__gpu_plan_gather(const mica__record *record, const mica__device_info *info, mica__plan *plan)
{
    const mica_gather_params *gather = record->params;
    const mica__operand *x = &record->operand[MICA__GATHER_X];
    mica__gpu_view view[MICA__GATHER_SLOTS];
    mk_gather_params p;
    (void)info;
    memset(&p, 0, sizeof p);
    for (uint32_t s = 0; s < MICA__GATHER_SLOTS; s++)
        view[s] = mica__gpu_view_of(&record->operand[s]);
    p.x_step = hold(&view[MICA__GATHER_X], gather->axis, &view[MICA__GATHER_Y]);
    mica__gpu_view_collapse(view, MICA__GATHER_SLOTS, 0);
    mica_status status = set_shape(record, &view[MICA__GATHER_Y], p.shape, &p.elements);
    if (status == MICA_OK)
        status = mica__gpu_plan_next(plan, "places/gather", groups_for(p.elements));
    if (status != MICA_OK)
        return status;
    set_strides(&view[MICA__GATHER_X], p.x_stride);
    set_strides(&view[MICA__GATHER_IDS], p.ids_stride);
    set_strides(&view[MICA__GATHER_Y], p.y_stride);
    p.ndim = view[MICA__GATHER_Y].ndim;
    p.bytes = bytes_of(x);
    p.count = (uint32_t)x->shape[gather->axis];
    p.fault_code = mica__gpu_fault_code(record);
    for (uint32_t s = 0; s < MICA__GATHER_SLOTS; s++)
        mica__gpu_plan_operand(plan, record, s, 0);
    mica__gpu_plan_fault(plan);
    mica__gpu_plan_params(plan, &p, sizeof p);
    return MICA_OK;
}

/* ---- scatter ---- */

/* The links of a line of ids, which has a place for each of its own dimensions and for the axis; where ids repeats so do they. Gives the number of
 * entries; `own` becomes ids with these dimensions alone, the axis last, in which order the entries lie. */
static uint64_t lay_links(const mica__operand *ids, uint32_t axis, mica__gpu_view *own, uint64_t *stride)
{
    uint64_t entries = ids->shape[axis];
    own->ndim = 0;
    for (uint32_t d = ids->ndim; d-- > 0;) {
        stride[d] = d == axis ? sizeof(uint32_t) : 0;
        if (d == axis || ids->stride[d] == 0 || ids->shape[d] == 1)
            continue;
        stride[d] = entries * sizeof(uint32_t);
        entries *= ids->shape[d];
    }
    for (uint32_t d = 0; d < ids->ndim; d++)
        if (d != axis && stride[d] != 0) {
            own->shape[own->ndim] = ids->shape[d];
            own->stride[own->ndim++] = ids->stride[d];
        }
    own->shape[own->ndim] = ids->shape[axis];
    own->stride[own->ndim++] = ids->stride[axis];
    return entries;
}

static mica_status plan_links(const mica__record *record, uint32_t count, const mica__gpu_view *own,
                              uint64_t entries, mica__plan *plan)
{
    mk_link_params p;
    memset(&p, 0, sizeof p);
    mica_status status = set_shape(record, own, p.shape, &p.entries);
    if (status == MICA_OK)
        status = mica__gpu_plan_next(plan, "places/link", groups_for(entries));
    if (status != MICA_OK)
        return status;
    set_strides(own, p.ids_stride);
    p.ndim = own->ndim;
    p.count = count;
    p.fault_code = mica__gpu_fault_code(record);
    mica__gpu_plan_operand(plan, record, MICA__SCATTER_IDS, 0);
    mica__gpu_plan_scratch(plan, 0, entries * sizeof(uint32_t), MICA_ACCESS_WRITE);
    mica__gpu_plan_fault(plan);
    mica__gpu_plan_params(plan, &p, sizeof p);
    return MICA_OK;
}

static mica_status scatter_type(const mica__record *record, uint16_t dtype, uint32_t mode, uint32_t *out)
{
    switch (dtype) {
    case MICA_DTYPE_I32: *out = MK_SCATTER_I32; return MICA_OK;
    case MICA_DTYPE_U32: *out = MK_SCATTER_U32; return MICA_OK;
    case MICA_DTYPE_I64: *out = MK_SCATTER_I64; return MICA_OK;
    case MICA_DTYPE_U64: *out = MK_SCATTER_U64; return MICA_OK;
    default: break;
    }
    if (mica__gpu_is_float(dtype))
        *out = mica__gpu_type(dtype);
    else if (mode != MICA_SCATTER_SET)
        return mica__fail(MICA_ERR_UNSUPPORTED, "%s: y is %s, which is set alone on GPUs",
                          mica_op_name((mica_op)record->op), mica_dtype_name((mica_dtype)dtype));
    return MICA_OK;
}

enum { IDS, LINK, Y, UPDATES, VIEWS };

mica_status mica__gpu_plan_scatter(const mica__record *record, const mica__device_info *info,
                                   mica__plan *plan)
{
    const mica_scatter_params *scatter = record->params;
    const mica__operand *ids = &record->operand[MICA__SCATTER_IDS], *y = &record->operand[MICA__SCATTER_Y];
    mica__gpu_view view[VIEWS], own;
    mk_scatter_params p;
    (void)info;
    if (record->operand[MICA__SCATTER_UPDATES].length == 0)
        return MICA_OK;
    memset(&p, 0, sizeof p);
    memset(&own, 0, sizeof own);
    view[IDS] = view[LINK] = mica__gpu_view_of(ids);
    view[Y] = mica__gpu_view_of(y);
    view[UPDATES] = mica__gpu_view_of(&record->operand[MICA__SCATTER_UPDATES]);
    const uint64_t entries = lay_links(ids, scatter->axis, &own, view[LINK].stride);
    p.updates_step = view[UPDATES].stride[scatter->axis];
    p.y_step = hold(&view[Y], scatter->axis, &view[UPDATES]);
    mica_status status = scatter_type(record, y->dtype, scatter->mode, &p.type);
    if (status == MICA_OK)
        status = plan_links(record, (uint32_t)y->shape[scatter->axis], &own, entries, plan);
    mica__gpu_view_collapse(view, VIEWS, 0);
    if (status == MICA_OK)
        status = set_shape(record, &view[UPDATES], p.shape, &p.elements);
    if (status == MICA_OK)
        status = mica__gpu_plan_next(plan, "places/scatter", groups_for(p.elements));
    if (status != MICA_OK)
        return status;
    set_strides(&view[IDS], p.ids_stride);
    set_strides(&view[LINK], p.link_stride);
    set_strides(&view[Y], p.y_stride);
    set_strides(&view[UPDATES], p.updates_stride);
    p.ndim = view[UPDATES].ndim;
    p.bytes = bytes_of(y);
    p.mode = scatter->mode;
    mica__gpu_plan_operand(plan, record, MICA__SCATTER_IDS, 0);
    mica__gpu_plan_scratch(plan, 0, entries * sizeof(uint32_t), MICA_ACCESS_READ);
    mica__gpu_plan_operand(plan, record, MICA__SCATTER_Y, 0);
    mica__gpu_plan_operand(plan, record, MICA__SCATTER_UPDATES, 0);
    mica__gpu_plan_params(plan, &p, sizeof p);
    return MICA_OK;
}

/* ---- coordinates of several dimensions ---- */

static uint64_t entries_of(const mica__operand *ids)
{
    uint64_t entries = 1;
    for (uint32_t d = 0; d + 1u < ids->ndim; d++)
        entries *= ids->shape[d];
    return entries;
}

/* Places of several dimensions become one number each in the scratch, counted in elements of `of`, whose dimensions from `batch` on they name; then they
 * are ids along one axis, an element wide. */
static mica_status plan_fold(const mica__record *record, uint32_t slot, const mica__operand *of,
                             uint32_t batch, uint64_t bytes, mica__plan *plan)
{
    const mica__operand *ids = &record->operand[slot];
    mica__gpu_view lines = mica__gpu_view_of(ids);
    mk_fold_params p;
    uint64_t reach = 0;
    memset(&p, 0, sizeof p);
    p.components = (uint32_t)ids->shape[ids->ndim - 1u];
    p.ids_step = ids->stride[ids->ndim - 1u];
    for (uint32_t k = 0; k < p.components; k++) {
        const uint64_t step = of->stride[batch + k] / bytes_of(of), size = of->shape[batch + k];
        p.size[k] = (uint32_t)size;
        p.step[k] = (uint32_t)step;
        reach += size > 0 && step < UINT32_MAX ? (size - 1) * step : size > 1 ? UINT32_MAX : 0;
    }
    if (reach >= UINT32_MAX)
        return mica__fail(MICA_ERR_UNSUPPORTED, "%s: its coordinates reach over 2^32 elements",
                          mica_op_name((mica_op)record->op));
    if (--lines.ndim == 0) {
        lines.ndim = 1;
        lines.shape[0] = 1;
    }
    MICA__TRY(set_shape(record, &lines, p.shape, &p.elements));
    MICA__TRY(mica__gpu_plan_next(plan, "places/fold", groups_for(p.elements)));
    set_strides(&lines, p.ids_stride);
    p.ndim = lines.ndim;
    p.fault_code = mica__gpu_fault_code(record);
    mica__gpu_plan_operand(plan, record, slot, 0);
    mica__gpu_plan_scratch(plan, 0, bytes, MICA_ACCESS_WRITE);
    mica__gpu_plan_fault(plan);
    mica__gpu_plan_params(plan, &p, sizeof p);
    return MICA_OK;
}

/* As many dimensions as `like` has, the first `lines` of them one behind another, `bytes` each; the others stand still. */
static mica__gpu_view lines_of(const mica__gpu_view *like, uint32_t lines, uint64_t bytes)
{
    mica__gpu_view view = *like;
    for (uint32_t d = like->ndim; d-- > 0;) {
        view.stride[d] = d < lines ? bytes : 0;
        bytes *= d < lines ? like->shape[d] : 1;
    }
    return view;
}

/* `operand` has `taken` dimensions where `like`, of `ndim` dimensions, has those from `from` up to `to`, along which it stands still. */
static mica__gpu_view still_view(const mica__operand *operand, uint32_t from, uint32_t to, uint32_t taken,
                                 const mica__gpu_view *like, uint32_t ndim)
{
    mica__gpu_view view = *like;
    for (uint32_t d = 0; d < like->ndim; d++)
        view.stride[d] = d >= ndim || (d >= from && d < to) ? 0
                         : d < from                         ? operand->stride[d]
                                                            : operand->stride[from + taken + (d - to)];
    return view;
}

mica_status mica__gpu_plan_gather_nd(const mica__record *record, const mica__device_info *info,
                                     mica__plan *plan)
{
    const uint32_t batch = ((const mica_gather_nd_params *)record->params)->batch_dims;
    const mica__operand *x = &record->operand[MICA__GATHER_ND_X],
                        *ids = &record->operand[MICA__GATHER_ND_IDS],
                        *y = &record->operand[MICA__GATHER_ND_Y];
    const uint64_t bytes = entries_of(ids) * sizeof(uint32_t);
    mica__gpu_view view[MICA__GATHER_ND_SLOTS];
    mk_gather_params p;
    (void)info;
    if (y->length == 0)
        return MICA_OK;
    memset(&p, 0, sizeof p);
    MICA__TRY(plan_fold(record, MICA__GATHER_ND_IDS, x, batch, bytes, plan));
    view[2] = mica__gpu_view_of(y);
    view[1] = lines_of(&view[2], ids->ndim - 1u, sizeof(uint32_t));
    view[0] = still_view(x, batch, ids->ndim - 1u, (uint32_t)ids->shape[ids->ndim - 1u], &view[2], y->ndim);
    mica__gpu_view_collapse(view, MICA__GATHER_ND_SLOTS, 0);
    MICA__TRY(set_shape(record, &view[2], p.shape, &p.elements));
    MICA__TRY(mica__gpu_plan_next(plan, "places/gather", groups_for(p.elements)));
    set_strides(&view[0], p.x_stride);
    set_strides(&view[1], p.ids_stride);
    set_strides(&view[2], p.y_stride);
    p.ndim = view[2].ndim;
    p.x_step = p.bytes = bytes_of(x);
    p.count = MK_FOLD_NOWHERE;
    p.fault_code = mica__gpu_fault_code(record);
    mica__gpu_plan_operand(plan, record, MICA__GATHER_ND_X, 0);
    mica__gpu_plan_scratch(plan, 0, bytes, MICA_ACCESS_READ);
    mica__gpu_plan_operand(plan, record, MICA__GATHER_ND_Y, 0);
    mica__gpu_plan_fault(plan);
    mica__gpu_plan_params(plan, &p, sizeof p);
    return MICA_OK;
}

/* Whether the first `lines` dimensions are one, and its step. */
static bool is_line(const mica__gpu_view *view, uint32_t lines, uint64_t *step)
{
    bool first = true;
    uint64_t next = 0;
    *step = 0;
    for (uint32_t d = lines; d-- > 0;) {
        if (view->shape[d] == 1)
            continue;
        if (!first && view->stride[d] != next)
            return false;
        if (first)
            *step = view->stride[d];
        first = false;
        next = view->stride[d] * view->shape[d];
    }
    return true;
}

/* Updates whose lines are not one go into the scratch first, one behind another: `updates` becomes what lies there. */
static mica_status plan_together(const mica__record *record, uint64_t offset, mica__gpu_view *updates,
                                 uint64_t *out_bytes, mica__plan *plan)
{
    mk_pad_params p;
    memset(&p, 0, sizeof p);
    p.bytes = bytes_of(&record->operand[MICA__SCATTER_ND_Y]);
    p.ndim = updates->ndim;
    MICA__TRY(set_shape(record, updates, p.x_shape, &p.elements));
    MICA__TRY(set_shape(record, updates, p.y_shape, &p.elements));
    MICA__TRY(mica__gpu_plan_next(plan, "places/pad", groups_for(p.elements)));
    set_strides(updates, p.x_stride);
    *updates = lines_of(updates, updates->ndim, p.bytes);
    set_strides(updates, p.y_stride);
    *out_bytes = p.elements * p.bytes;
    mica__gpu_plan_operand(plan, record, MICA__SCATTER_ND_UPDATES, 0);
    mica__gpu_plan_scratch(plan, offset, *out_bytes, MICA_ACCESS_WRITE);
    mica__gpu_plan_params(plan, &p, sizeof p);
    return MICA_OK;
}

/* One line of all folded ids. */
static mica_status plan_folded_links(const mica__record *record, uint64_t entries, uint64_t link,
                                     mica__plan *plan)
{
    const uint64_t bytes = entries * sizeof(uint32_t);
    mk_link_params p;
    if (entries > INT32_MAX)
        return mica__fail(MICA_ERR_UNSUPPORTED, "scatter_nd: %llu places, 2^31 - 1 are served",
                          (unsigned long long)entries);
    memset(&p, 0, sizeof p);
    p.entries = entries;
    p.shape[0] = (uint32_t)entries;
    p.ids_stride[0] = sizeof(uint32_t);
    p.ndim = 1;
    p.count = MK_FOLD_NOWHERE;
    p.fault_code = mica__gpu_fault_code(record);
    MICA__TRY(mica__gpu_plan_next(plan, "places/link", groups_for(entries)));
    mica__gpu_plan_scratch(plan, 0, bytes, MICA_ACCESS_READ);
    mica__gpu_plan_scratch(plan, link, bytes, MICA_ACCESS_WRITE);
    mica__gpu_plan_fault(plan);
    mica__gpu_plan_params(plan, &p, sizeof p);
    return MICA_OK;
}

/* The updates themselves, out of the scratch behind ids and links where they have been put there: `copied` bytes. */
static mica_status plan_updates(const mica__record *record, uint64_t link, uint64_t copied,
                                mica__gpu_view *view, mk_scatter_params *p, mica__plan *plan)
{
    const mica__operand *ids = &record->operand[MICA__SCATTER_ND_IDS];
    const uint64_t bytes = entries_of(ids) * sizeof(uint32_t);
    mica__gpu_view_collapse(view, VIEWS, 0);
    MICA__TRY(set_shape(record, &view[UPDATES], p->shape, &p->elements));
    MICA__TRY(mica__gpu_plan_next(plan, "places/scatter", groups_for(p->elements)));
    set_strides(&view[IDS], p->ids_stride);
    set_strides(&view[LINK], p->link_stride);
    set_strides(&view[Y], p->y_stride);
    set_strides(&view[UPDATES], p->updates_stride);
    p->ndim = view[UPDATES].ndim;
    mica__gpu_plan_scratch(plan, 0, bytes, MICA_ACCESS_READ);
    mica__gpu_plan_scratch(plan, link, bytes, MICA_ACCESS_READ);
    mica__gpu_plan_operand(plan, record, MICA__SCATTER_ND_Y, 0);
    if (copied == 0)
        mica__gpu_plan_operand(plan, record, MICA__SCATTER_ND_UPDATES, 0);
    else
        mica__gpu_plan_scratch(plan, 2 * link, copied, MICA_ACCESS_READ);
    mica__gpu_plan_params(plan, p, sizeof *p);
    return MICA_OK;
}

mica_status mica__gpu_plan_scatter_nd(const mica__record *record, const mica__device_info *info,
                                      mica__plan *plan)
{
    const mica__operand *updates = &record->operand[MICA__SCATTER_ND_UPDATES],
                        *ids = &record->operand[MICA__SCATTER_ND_IDS],
                        *y = &record->operand[MICA__SCATTER_ND_Y];
    const uint32_t lines = ids->ndim - 1u, components = (uint32_t)ids->shape[lines];
    const uint64_t entries = entries_of(ids), bytes = entries * sizeof(uint32_t);
    const uint64_t link = (bytes + 63) / 64 * 64;
    mica__gpu_view view[VIEWS];
    mk_scatter_params p;
    uint64_t copied = 0;
    (void)info;
    if (updates->length == 0)
        return MICA_OK;
    memset(&p, 0, sizeof p);
    p.mode = ((const mica_scatter_nd_params *)record->params)->mode;
    p.y_step = p.bytes = bytes_of(y);
    MICA__TRY(scatter_type(record, y->dtype, p.mode, &p.type));
    MICA__TRY(plan_fold(record, MICA__SCATTER_ND_IDS, y, 0, bytes, plan));
    MICA__TRY(plan_folded_links(record, entries, link, plan));
    view[UPDATES] = mica__gpu_view_of(updates);
    if (!is_line(&view[UPDATES], lines, &p.updates_step)) {
        MICA__TRY(plan_together(record, 2 * link, &view[UPDATES], &copied, plan));
        p.updates_step = copied / entries;
    }
    view[IDS] = view[LINK] = lines_of(&view[UPDATES], lines, sizeof(uint32_t));
    view[Y] = still_view(y, 0, lines, components, &view[UPDATES], updates->ndim);
    return plan_updates(record, link, copied, view, &p, plan);
}
