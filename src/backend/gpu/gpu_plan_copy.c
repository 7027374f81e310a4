/* gpu_plan_copy.c - plans of copy. */
#include <string.h>

#include "backend/gpu/gpu_plan.h"
#include "base/status.h"

#define TILE 32u
#define LEAST_TILED 8u /* a shorter side is not worth a tile */

/* Types packed in blocks, and packed layouts, are copied as the bytes they are. */
static mica__gpu_view bytes_of(const mica__operand *operand)
{
    mica__gpu_view view;
    memset(&view, 0, sizeof view);
    view.ndim = 1;
    view.shape[0] = operand->length;
    view.stride[0] = 1;
    return view;
}

/* Shape and strides of x and y, which have been brought to one shape. */
static mica_status describe(const mica__record *record, const mica__gpu_view *x, const mica__gpu_view *y,
                            mk_copy_params *params)
{
    params->ndim = y->ndim;
    params->elements = 1;
    for (uint32_t d = 0; d < y->ndim; d++) {
        if (y->shape[d] > UINT32_MAX)
            return mica__fail(MICA_ERR_UNSUPPORTED, "%s: a dimension of %llu elements, 2^32 - 1 are served",
                              mica_op_name((mica_op)record->op), (unsigned long long)y->shape[d]);
        params->shape[d] = (uint32_t)y->shape[d];
        params->elements *= y->shape[d];
        params->x_stride[d] = x->stride[d];
        params->y_stride[d] = y->stride[d];
    }
    return MICA_OK;
}

static uint64_t groups_for(uint64_t items)
{
    return (items + MICA__MK_WG - 1) / MICA__MK_WG;
}

/* Whether `each` neighbours of both can go at once: they begin at a multiple of 16 bytes (or of what four floats are) in
 * every row. */
static bool takes_each(const mk_copy_params *params, uint64_t x_bytes, uint64_t y_bytes, uint32_t each)
{
    const uint32_t last = params->ndim - 1;
    if (params->x_stride[last] != x_bytes || params->y_stride[last] != y_bytes)
        return false;
    if (params->ndim > 1 && params->shape[last] % each != 0)
        return false;
    for (uint32_t d = 0; d < last; d++)
        if (params->x_stride[d] % (each * x_bytes) != 0 || params->y_stride[d] % (each * y_bytes) != 0)
            return false;
    return true;
}

static void swap_dims(mk_copy_params *params, uint32_t a, uint32_t b)
{
    const mk_copy_params old = *params;
    params->shape[a] = old.shape[b];
    params->shape[b] = old.shape[a];
    params->x_stride[a] = old.x_stride[b];
    params->x_stride[b] = old.x_stride[a];
    params->y_stride[a] = old.y_stride[b];
    params->y_stride[b] = old.y_stride[a];
}

/* Whether x runs along another dimension than y, the last one; moves that dimension beside it. */
static bool transposed(mk_copy_params *params, uint64_t x_bytes, uint64_t y_bytes)
{
    const uint32_t last = params->ndim - 1;
    if (x_bytes > 4 || params->x_stride[last] == x_bytes || params->y_stride[last] != y_bytes ||
        params->shape[last] < LEAST_TILED)
        return false;
    for (uint32_t d = 0; d < last; d++)
        if (params->x_stride[d] == x_bytes && params->shape[d] >= LEAST_TILED) {
            swap_dims(params, d, last - 1);
            return true;
        }
    return false;
}

static uint64_t tiles_of(const mk_copy_params *params)
{
    const uint64_t high = params->shape[params->ndim - 2], wide = params->shape[params->ndim - 1];
    return params->elements / (high * wide) * ((high + TILE - 1) / TILE) * ((wide + TILE - 1) / TILE);
}

static mica_status check_types(const mica__operand *x, const mica__operand *y)
{
    if (x->layout == y->layout &&
        (x->dtype == y->dtype || (mica__gpu_is_float(x->dtype) && mica__gpu_is_float(y->dtype))))
        return MICA_OK;
    return mica__fail(MICA_ERR_UNSUPPORTED,
                      "copy: x is %s in layout %u and y is %s in layout %u; f32, f16 and bf16 convert",
                      mica_dtype_name((mica_dtype)x->dtype), x->layout, mica_dtype_name((mica_dtype)y->dtype),
                      y->layout);
}

mica_status mica__gpu_plan_copy(const mica__record *record, const mica__device_info *info, mica__plan *plan)
{
    const mica__operand *x = &record->operand[MICA__COPY_X], *y = &record->operand[MICA__COPY_Y];
    uint64_t x_bytes = mica_dtype_block_bytes((mica_dtype)x->dtype),
             y_bytes = mica_dtype_block_bytes((mica_dtype)y->dtype);
    mica__gpu_view view[2] = {mica__gpu_view_of(x), mica__gpu_view_of(y)};
    mk_copy_params params;
    (void)info;
    memset(&params, 0, sizeof params);
    if (y->length == 0)
        return MICA_OK;
    if (x->layout != y->layout)
        return mica__gpu_plan_pack(record, plan);
    mica_status status = check_types(x, y);
    if (status != MICA_OK)
        return status;
    if (y->layout != MICA_LAYOUT_CANONICAL || mica_dtype_block_elements((mica_dtype)y->dtype) != 1) {
        view[0] = bytes_of(x);
        view[1] = bytes_of(y);
        x_bytes = y_bytes = 1;
    }
    mica__gpu_view_expand(&view[0], &view[1]);
    mica__gpu_view_collapse(view, 2, 0);
    status = describe(record, &view[0], &view[1], &params);
    if (status != MICA_OK)
        return status;
    params.bytes = x->dtype == y->dtype ? (uint32_t)x_bytes : 0;
    params.x_type = mica__gpu_type(x->dtype);
    params.y_type = mica__gpu_type(y->dtype);
    const bool tiled = transposed(&params, x_bytes, y_bytes);
    const uint32_t each = params.bytes != 0 ? 16u / params.bytes : 4u;
    params.each = !tiled && takes_each(&params, x_bytes, y_bytes, each) ? each : 1;
    if (tiled)
        status = mica__gpu_plan_next(plan, "copy/transpose", tiles_of(&params));
    else
        status = mica__gpu_plan_next(plan, "copy/copy",
                                     groups_for((params.elements + params.each - 1) / params.each));
    if (status != MICA_OK)
        return status;
    mica__gpu_plan_operand(plan, record, MICA__COPY_X, 0);
    mica__gpu_plan_operand(plan, record, MICA__COPY_Y, 0);
    mica__gpu_plan_params(plan, &params, sizeof params);
    return MICA_OK;
}
