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

static mica_status scatter_type(const mica__record *record, uint32_t mode, uint32_t *out)
{
    const uint16_t dtype = record->operand[MICA__SCATTER_Y].dtype;
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
        return mica__fail(MICA_ERR_UNSUPPORTED, "scatter: y is %s, which is set alone on GPUs",
                          mica_dtype_name((mica_dtype)dtype));
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
    mica_status status = scatter_type(record, scatter->mode, &p.type);
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
