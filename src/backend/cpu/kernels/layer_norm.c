/* layer_norm.c - (x - mean) / sqrt(var + eps) * weight + bias over the last dimension. */
#include "backend/cpu/cpu_params.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/rows.h"
#include "backend/cpu/kernels/walk.h"

static inline vf add_moment(vf sum, vf d, int power)
{
    return power == 2 ? vf_fma(d, d, sum) : vf_add(sum, d);
}

/* Sum of (x - from) to the power `power`, 1 or 2. Vector j of the row goes to sum j % 4, as in row_rms_scale. */
static inline float moment(const float *x, uint64_t n, float from, int power)
{
    const vf origin = vf_set1(from);
    vf sum[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
    uint64_t i = 0;
    for (; i + 4 * VW <= n; i += 4 * VW)
        for (uint32_t j = 0; j < 4; j++)
            sum[j] = add_moment(sum[j], vf_sub(vf_load(x + i + j * VW), origin), power);
    for (uint32_t j = 0; i < n; i += VW, j++) {
        const uint64_t left = n - i < VW ? n - i : VW;
        const vf d = vf_sub(vf_load_n(x + i, left), origin);
        sum[j] = add_moment(sum[j], vf_merge_n(d, vf_zero(), left), power);
    }
    return vf_sum(vf_add(vf_add(sum[0], sum[1]), vf_add(sum[2], sum[3])));
}

/* y may be x. weight and bias may be NULL. What follows in memory, from `next` on, elements of `size` bytes, is on its way meanwhile. */
static void norm_row(const float *x, const float *weight, const float *bias, float eps, uint64_t n, float *y,
                     const unsigned char *next, uint64_t size)
{
    const float mean = moment(x, n, 0.0f, 1) / (float)n;
    const float r = 1.0f / sqrtf(moment(x, n, mean, 2) / (float)n + eps);
    for (uint64_t i = 0; i < n; i += VW) {
        const uint64_t left = n - i < VW ? n - i : VW;
        __builtin_prefetch(next + i * size);
        vf v = vf_mul(vf_sub(vf_load_n(x + i, left), vf_set1(mean)), vf_set1(r));
        if (weight != NULL)
            v = vf_mul(v, vf_load_n(weight + i, left));
        if (bias != NULL)
            v = vf_add(v, vf_load_n(bias + i, left));
        vf_store_n(y + i, v, left);
    }
}

/* The row that weight or bias is to every row, NULL if it is absent. */
static const float *constant_row(const mica__cpu_view *view, uint64_t n, float *tmp)
{
    return view->data != NULL ? row_f32_strided(view->data, view->dtype, view->stride[view->ndim - 1], n, tmp)
                              : NULL;
}

void MICA__ISA(layer_norm)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_row_params *params = args->params;
    const mica__cpu_view *x = &args->view[MICA__LAYER_NORM_X], *y = &args->view[MICA__LAYER_NORM_Y];
    const uint64_t n = y->shape[y->ndim - 1], end = mica__cpu_rows_end(&params->range, last);
    const uint64_t size = row_element_bytes(x->dtype);
    float *work = args->local;
    const float *weight = constant_row(&args->view[MICA__LAYER_NORM_WEIGHT], n, work + n);
    const float *bias = constant_row(&args->view[MICA__LAYER_NORM_BIAS], n, work + 2 * n);
    uint64_t row = mica__cpu_rows_begin(&params->range, first);
    walk w;
    walk_begin(&w, args->view, MICA__LAYER_NORM_SLOTS, y->ndim - 1u, row);
    for (; row < end; row++, walk_next(&w)) {
        unsigned char *to = walk_at(&w, MICA__LAYER_NORM_Y);
        const unsigned char *at = walk_at(&w, MICA__LAYER_NORM_X);
        const float *from = row_f32_strided(at, x->dtype, x->stride[x->ndim - 1], n, work);
        float *result = y->dtype == MICA_DTYPE_F32 ? (float *)(void *)to : work;
        norm_row(from, weight, bias, params->value, n, result, at + n * size, size);
        row_store(to, y->dtype, result, n);
    }
}
