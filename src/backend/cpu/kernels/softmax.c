/*
 * softmax.c - softmax over the last dimension of x * scale.
 */
#include "backend/cpu/cpu_params.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/rows.h"
#include "backend/cpu/kernels/walk.h"

/* Scales the row into z, fills its last vector up with -inf and gives the greatest element (NaN is passed over). */
static float scale_row(const float *x, float scale, uint64_t n, float *z)
{
    const vf factor = vf_set1(scale), lowest = vf_set1(-INFINITY);
    vf greatest = lowest;
    for (uint64_t i = 0; i < n; i += VW) {
        vf v = n - i < VW ? vf_load_n(x + i, n - i) : vf_load(x + i);
        v = vf_mul(v, factor);
        v = n - i < VW ? vf_merge_n(v, lowest, n - i) : v;
        greatest = vf_max(v, greatest);
        vf_store(z + i, v);
    }
    return vf_hmax(greatest);
}

/* z = exp(z - greatest); gives the sum. */
static float exp_row(float *z, float greatest, uint64_t n)
{
    const vf top = vf_set1(greatest);
    vf sum = vf_zero();
    for (uint64_t i = 0; i < n; i += VW) {
        const vf e = vf_exp(vf_sub(vf_load(z + i), top));
        vf_store(z + i, e);
        sum = vf_add(sum, e);
    }
    return vf_sum(sum);
}

/* The greatest was -inf: all zeros, unless a NaN hides among the rest. */
static float blank_row(const float *z, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (z[i] != z[i])
            return z[i];
    return 0.0f;
}

static void softmax_row(const float *x, float scale, uint64_t n, float *z)
{
    const float greatest = scale_row(x, scale, n, z);
    if (greatest == -INFINITY) {
        const float value = blank_row(z, n);
        for (uint64_t i = 0; i < n; i++)
            z[i] = value;
        return;
    }
    const vf factor = vf_set1(1.0f / exp_row(z, greatest, n));
    for (uint64_t i = 0; i < n; i += VW)
        vf_store(z + i, vf_mul(vf_load(z + i), factor));
}

void MICA__ISA(softmax)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_row_params *params = args->params;
    const mica__cpu_view *x = &args->view[MICA__UNARY_X], *y = &args->view[MICA__UNARY_Y];
    const uint64_t n = x->shape[x->ndim - 1], end = mica__cpu_rows_end(&params->range, last);
    uint64_t row = mica__cpu_rows_begin(&params->range, first);
    float *z = args->local, *tmp = z + (n + VW - 1) / VW * VW;
    walk w;
    walk_begin(&w, args->view, MICA__UNARY_SLOTS, x->ndim - 1u, row);
    for (; row < end; row++, walk_next(&w)) {
        softmax_row(row_f32(walk_at(&w, MICA__UNARY_X), x->dtype, n, tmp), params->value, n, z);
        row_store(walk_at(&w, MICA__UNARY_Y), y->dtype, z, n);
    }
}
