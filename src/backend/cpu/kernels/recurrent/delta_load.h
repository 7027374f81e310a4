/*
 * delta_load.h - what both forms of the delta rule read of a token.
 */
#ifndef MICA_CPU_DELTA_LOAD_H
#define MICA_CPU_DELTA_LOAD_H

#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/rows.h"

static inline float sum_of_squares(const float *x, uint64_t n)
{
    vf sum = vf_zero();
    uint64_t i = 0;
    for (; i + VW <= n; i += VW)
        sum = vf_fma(vf_load(x + i), vf_load(x + i), sum);
    if (i < n) {
        const vf rest = vf_load_n(x + i, n - i);
        sum = vf_fma(rest, rest, sum);
    }
    return vf_sum(sum);
}

/* x times scale, over its length where that is asked for, as floats in `to`. */
static inline void delta_vector(const unsigned char *x, uint16_t dtype, uint64_t n,
                                const mica_delta_params *delta, float scale, float *to)
{
    const float *row = row_f32(x, dtype, n, to);
    const float length = delta->normalise != 0 ? sqrtf(sum_of_squares(row, n) + delta->eps) : 1.0f;
    const vf factor = vf_set1(scale), over = vf_set1(length);
    uint64_t i = 0;
    for (; i + VW <= n; i += VW)
        vf_store(to + i, vf_mul(factor, vf_div(vf_load(row + i), over)));
    if (i < n)
        vf_store_n(to + i, vf_mul(factor, vf_div(vf_load_n(row + i, n - i), over)), n - i);
}

static inline float delta_element(const mica__cpu_view *view, uint64_t token, uint64_t head, float absent)
{
    return view->data != NULL
               ? row_element(view->data + token * view->stride[0] + head * view->stride[1], view->dtype)
               : absent;
}

#endif
