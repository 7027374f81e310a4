/* gpu_plan_layout.c - weights into the layout that the GPU's matmuls read fastest, and back. */
#include <string.h>

#include "backend/gpu/gpu_plan_weight.h"
#include "base/status.h"
#include "quant/planes.h"

mica_layout mica__gpu_weight_layout(const mica__operand *weight, const mica__device_info *info)
{
    (void)info;
    return weight->ndim >= 2 && mica__planes_of(weight->dtype).count > 0 ? MICA_LAYOUT_PLANES
                                                                         : MICA_LAYOUT_CANONICAL;
}

mica_status mica__gpu_plan_pack(const mica__record *record, mica__plan *plan)
{
    const mica__operand *x = &record->operand[MICA__COPY_X], *y = &record->operand[MICA__COPY_Y];
    const mica__planes planes = mica__planes_of(x->dtype);
    mica__gpu_rows rows = {.count = 0};
    mk_pack_params p;
    if (x->dtype != y->dtype || planes.count == 0 || x->layout == MICA_LAYOUT_ROWS8 ||
        y->layout == MICA_LAYOUT_ROWS8)
        return mica__fail(MICA_ERR_UNSUPPORTED, "copy: %s in layout %u cannot become %s in layout %u",
                          mica_dtype_name((mica_dtype)x->dtype), x->layout,
                          mica_dtype_name((mica_dtype)y->dtype), y->layout);
    memset(&p, 0, sizeof p);
    mica__gpu_rows_add(&rows, x);
    mica__gpu_rows_add(&rows, y);
    mica_status status = mica__gpu_rows_merge(&rows, record);
    if (status != MICA_OK)
        return status;
    mica__gpu_rows_shape(&rows, p.shape, &p.ndim);
    mica__gpu_rows_strides(&rows, 0, p.from_stride);
    mica__gpu_rows_strides(&rows, 1, p.to_stride);
    p.block_bytes = mica_dtype_block_bytes((mica_dtype)x->dtype);
    p.blocks = (uint32_t)(x->shape[x->ndim - 1] / mica_dtype_block_elements((mica_dtype)x->dtype));
    p.row_bytes = p.blocks * p.block_bytes;
    p.bytes = rows.rows * p.row_bytes;
    p.fields = planes.count;
    for (uint32_t f = 0; f < planes.count; f++) {
        p.offset[f] = planes.field[f].offset;
        p.size[f] = planes.field[f].bytes;
    }
    p.unpack = x->layout == MICA_LAYOUT_PLANES;
    status = mica__gpu_plan_next(plan, "pack/move", (p.bytes + MICA__MK_WG - 1) / MICA__MK_WG);
    if (status != MICA_OK)
        return status;
    mica__gpu_plan_operand(plan, record, MICA__COPY_X, 0);
    mica__gpu_plan_operand(plan, record, MICA__COPY_Y, 0);
    mica__gpu_plan_params(plan, &p, sizeof p);
    return MICA_OK;
}
