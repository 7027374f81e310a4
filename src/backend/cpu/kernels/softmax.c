/*
 * softmax.c - softmax over the last dimension of x * scale.
 */
#include "backend/cpu/cpu_params.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/rows.h"
#include "backend/cpu/kernels/walk.h"

void MICA__ISA(softmax)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_row_params *params = args->params;
    const mica__cpu_view *x = &args->view[MICA__SOFTMAX_X], *y = &args->view[MICA__SOFTMAX_Y];
    const uint64_t n = x->shape[x->ndim - 1], end = mica__cpu_rows_end(&params->range, last);
    uint64_t row = mica__cpu_rows_begin(&params->range, first);
    float *z = args->local, *tmp = z + (n + VW - 1) / VW * VW;
    walk w;
    walk_begin(&w, args->view, MICA__SOFTMAX_SLOTS, x->ndim - 1u, row);
    for (; row < end; row++, walk_next(&w)) {
        row_softmax(row_f32(walk_at(&w, MICA__SOFTMAX_X), x->dtype, n, tmp), params->value, n, z);
        row_store(walk_at(&w, MICA__SOFTMAX_Y), y->dtype, z, n);
    }
}
