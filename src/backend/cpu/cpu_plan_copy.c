/*
 * cpu_plan_copy.c - plans of copies.
 *
 * Views are brought to y's shape and collapsed here, once, so that a kernel mostly sees one long row.
 */
#include "backend/cpu/cpu_plan.h"

#include "base/status.h"
#include "backend/cpu/cpu_params.h"

static uint64_t elements_of(const mica__cpu_view *view)
{
    uint64_t elements = 1;
    for (uint32_t d = 0; d < view->ndim; d++)
        elements *= view->shape[d];
    return elements;
}

/* Brings the `count` views of the dispatch, of which y is the last, to one shape and collapses them. Gives the
 * number of elements. */
static uint64_t flatten(mica__plan *plan, uint32_t count)
{
    mica__cpu_view *view = mica__cpu_plan_views(plan);
    for (uint32_t v = 0; v + 1 < count; v++)
        mica__cpu_view_expand(&view[v], &view[count - 1]);
    mica__cpu_view_collapse(view, count, 0);
    return elements_of(&view[count - 1]);
}

static void set_units(mica__plan *plan, uint64_t units, double unit_ns)
{
    mica__plan_dispatch *dispatch = &plan->dispatch[plan->dispatch_count - 1];
    dispatch->groups[0] = (uint32_t)units;
    mica__cpu_plan_grain(dispatch, unit_ns);
}

static uint64_t units_of(uint64_t elements)
{
    return (elements + MICA__CPU_UNIT_ELEMENTS - 1) / MICA__CPU_UNIT_ELEMENTS;
}

/* Types packed in blocks, and packed layouts, are copied as the bytes they are. */
static void as_bytes(mica__cpu_view *view)
{
    view->dtype = MICA_DTYPE_U8;
    view->ndim = 1;
    view->shape[0] = view->length;
    view->stride[0] = 1;
}

/* Whether x runs along another dimension than y, the last one; moves that dimension beside it. */
static bool transposed(mica__cpu_view *view, uint64_t x_bytes, uint64_t y_bytes)
{
    const uint32_t last = view->ndim - 1u;
    if (view[0].stride[last] == x_bytes || view[1].stride[last] != y_bytes || view->shape[last] < 4)
        return false;
    for (uint32_t d = 0; d < last; d++)
        if (view[0].stride[d] == x_bytes && view->shape[d] >= 4) {
            mica__cpu_view_swap(view, 2, d, last - 1);
            return true;
        }
    return false;
}

static uint64_t tiles_of(const mica__cpu_view *view)
{
    const uint64_t high = view->shape[view->ndim - 2], wide = view->shape[view->ndim - 1];
    const uint64_t tiles =
        ((high + MICA__CPU_TILE - 1) / MICA__CPU_TILE) * ((wide + MICA__CPU_TILE - 1) / MICA__CPU_TILE);
    return elements_of(view) / (high * wide) * tiles;
}

mica_status mica__cpu_plan_copy(const mica__record *record, const mica__device_info *info, mica__plan *plan)
{
    const mica__operand *x = &record->operand[MICA__COPY_X], *y = &record->operand[MICA__COPY_Y];
    if (y->length == 0)
        return MICA_OK;
    if (x->layout != y->layout)
        return mica__cpu_plan_pack(record, info, plan);
    if (x->dtype != y->dtype && !(mica__cpu_is_float(x->dtype) && mica__cpu_is_float(y->dtype)))
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "copy on the cpu: x is %s and y is %s; f32, f16 and bf16 convert",
                          mica_dtype_name((mica_dtype)x->dtype), mica_dtype_name((mica_dtype)y->dtype));
    mica__cpu_plan_next(plan, "copy", 0);
    mica__cpu_plan_operand(plan, record, MICA__COPY_X, 0);
    mica__cpu_plan_operand(plan, record, MICA__COPY_Y, 0);
    mica__cpu_view *view = mica__cpu_plan_views(plan);
    mica__cpu_copy params = {0};
    params.element_bytes = mica_dtype_block_bytes((mica_dtype)x->dtype);
    if (y->layout != MICA_LAYOUT_CANONICAL || mica_dtype_block_elements((mica_dtype)y->dtype) != 1) {
        as_bytes(&view[0]);
        as_bytes(&view[1]);
        params.element_bytes = 1;
    }
    params.elements = flatten(plan, 2);
    params.tiled = transposed(view, params.element_bytes, mica_dtype_block_bytes((mica_dtype)y->dtype));
    mica__cpu_plan_params(plan, &params, sizeof params);
    if (params.tiled)
        set_units(plan, tiles_of(view), 1.0 * MICA__CPU_TILE * MICA__CPU_TILE);
    else
        set_units(plan, units_of(params.elements), 0.1 * params.element_bytes * MICA__CPU_UNIT_ELEMENTS);
    return MICA_OK;
}
