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

/* y = z * factor. What follows x in memory is asked for meanwhile: as many bytes as y has values, times `size`. */
static inline __attribute__((always_inline)) void give_type(const float *z, vf factor, uint64_t n,
                                                            uint16_t dtype, unsigned char *y,
                                                            const unsigned char *next, uint64_t size)
{
    const uint64_t bytes = dtype == MICA_DTYPE_F32 ? 4 : 2;
    for (uint64_t i = 0; i < n; i += VW) {
        __builtin_prefetch(next + i * size);
        row_store_upto(y + i * bytes, dtype, vf_mul(vf_load(z + i), factor), n - i);
    }
}

static void give_row(const float *z, float factor, uint64_t n, uint16_t dtype, unsigned char *y,
                     const unsigned char *next, uint64_t size)
{
    const vf by = vf_set1(factor);
    if (dtype == MICA_DTYPE_F32)
        give_type(z, by, n, MICA_DTYPE_F32, y, next, size);
    else if (dtype == MICA_DTYPE_F16)
        give_type(z, by, n, MICA_DTYPE_F16, y, next, size);
    else
        give_type(z, by, n, MICA_DTYPE_BF16, y, next, size);
}

void MICA__ISA(softmax)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_row_params *params = args->params;
    const mica__cpu_view *x = &args->view[MICA__SOFTMAX_X], *y = &args->view[MICA__SOFTMAX_Y];
    const uint64_t n = x->shape[x->ndim - 1], end = mica__cpu_rows_end(&params->range, last);
    const uint64_t size = row_element_bytes(x->dtype);
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
        const float factor =
            row_softmax_weights(mask != NULL ? z : row_x, mask != NULL ? 1.0f : params->value, n, z);
        const uint64_t stride = y->stride[y->ndim - 1u];
        unsigned char *to = walk_at(&w, MICA__SOFTMAX_Y);
        if (stride == row_element_bytes(y->dtype)) {
            give_row(z, factor, n, y->dtype, to, walk_at(&w, MICA__SOFTMAX_X) + n * size, size);
            continue;
        }
        for (uint64_t i = 0; i < n; i += VW)
            vf_store(z + i, vf_mul(vf_load(z + i), vf_set1(factor)));
        row_store_strided(to, y->dtype, stride, z, n);
    }
}
