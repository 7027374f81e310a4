/* pack.c - a weight from the canonical layout into ROWS8. Unit: a group of eight rows, over all matrices. */
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/quant/quant_rows.h"

void MICA__ISA(pack)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_view *y = &args->view[MICA__COPY_Y];
    const uint32_t row_dim = y->ndim - 2u;
    const uint64_t groups = (y->shape[row_dim] + MICA__PACKED_ROWS - 1) / MICA__PACKED_ROWS;
    mica__packed_form form;
    if (!mica__packed_form_of(y->dtype, y->group_size, &form))
        return;
    for (uint64_t unit = first; unit < last; unit++) {
        const uint64_t matrix = unit / groups, row = unit % groups * MICA__PACKED_ROWS;
        const mica__quant_weight w =
            mica__quant_weight_of(&args->view[MICA__COPY_X], &args->view[MICA__COPY_SCALES],
                                  &args->view[MICA__COPY_BIASES], matrix);
        const uint64_t left = w.n - row;
        mica__packed_write_group(&w.source, &form, row,
                                 left < MICA__PACKED_ROWS ? (uint32_t)left : MICA__PACKED_ROWS,
                                 mica__quant_matrix_at(y, matrix) + row * y->stride[row_dim]);
    }
}
