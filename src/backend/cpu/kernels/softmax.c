/*
 * softmax.c - softmax over the last dimension of x * scale + mask.
 */
#include "backend/cpu/cpu_params.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/rows.h"
#include "backend/cpu/kernels/walk.h"

/* z = x * scale, where the mask has a part: + mask, -inf where it is false. */
static void mask_row(const float *x, float scale, const mica__cpu_view *view, const unsigned char *mask,
                     uint64_t n, float *z)
{
    const uint64_t step = view->stride[view->ndim - 1u];
    if (view->dtype == MICA_DTYPE_BOOL) {
        for (uint64_t i = 0; i < n; i++)
            z[i] = mask[i * step] != 0 ? x[i] * scale : -INFINITY;
        return;
    }
    const float *add = row_f32_strided(mask, view->dtype, step, n, z);
    for (uint64_t i = 0; i < n; i++)
        z[i] = x[i] * scale + add[i];
}

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
        const float *row_x =
            row_f32_strided(walk_at(&w, MICA__SOFTMAX_X), x->dtype, x->stride[x->ndim - 1u], n, tmp);
        const unsigned char *mask = walk_at(&w, MICA__SOFTMAX_MASK);
        if (mask != NULL)
            mask_row(row_x, params->value, &args->view[MICA__SOFTMAX_MASK], mask, n, z);
        row_softmax(mask != NULL ? z : row_x, mask != NULL ? 1.0f : params->value, n, z);
        row_store_strided(walk_at(&w, MICA__SOFTMAX_Y), y->dtype, y->stride[y->ndim - 1u], z, n);
    }
}
