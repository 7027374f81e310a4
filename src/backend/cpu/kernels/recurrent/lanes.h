/*
 * lanes.h - numbers of any real type beside each other in a vector of f64, as gradients of recurrences compute.
 */
#ifndef MICA_CPU_LANES_H
#define MICA_CPU_LANES_H

#include "backend/cpu/kernels/recurrent/gradient.h"
#include "backend/cpu/kernels/simd/doubles.h"

typedef float lanes_f32 __attribute__((vector_size(sizeof(vd) / 2)));

static __attribute__((noinline, unused)) vd
lanes_gather(const mica__cpu_view *view, const unsigned char *from, uint64_t stride, uint64_t n)
{
    double row[VD] = {0};
    for (uint64_t i = 0; i < n; i++)
        row[i] = real_at(view, from + i * stride);
    return vd_load(row);
}

/* n numbers, VD at most, `stride` bytes apart; the other lanes are 0. */
VD_INLINE vd lanes_at(const mica__cpu_view *view, const unsigned char *from, uint64_t stride, uint64_t n)
{
    lanes_f32 narrow;
    if (view->dtype != MICA_DTYPE_F32 || stride != sizeof(float) || n != VD)
        return lanes_gather(view, from, stride, n);
    memcpy(&narrow, from, sizeof narrow);
    return __builtin_convertvector(narrow, vd);
}

static __attribute__((noinline, unused)) void lanes_scatter(const mica__cpu_view *view, uint64_t offset,
                                                            uint64_t stride, uint64_t n, vd v)
{
    double row[VD];
    vd_store(row, v);
    for (uint64_t i = 0; i < n; i++)
        put_real(view, offset + i * stride, row[i]);
}

/* Nothing where the view is absent. */
VD_INLINE void lanes_put(const mica__cpu_view *view, uint64_t offset, uint64_t stride, uint64_t n, vd v)
{
    if (view->data == NULL)
        return;
    if (view->dtype != MICA_DTYPE_F32 || stride != sizeof(float) || n != VD) {
        lanes_scatter(view, offset, stride, n, v);
        return;
    }
    const lanes_f32 narrow = __builtin_convertvector(v, lanes_f32);
    memcpy(view->data + offset, &narrow, sizeof narrow);
}

static __attribute__((noinline, unused)) vd lanes_each(double (*of)(double), vd v)
{
    double row[VD];
    vd_store(row, v);
    for (uint64_t i = 0; i < VD; i++)
        row[i] = of(row[i]);
    return vd_load(row);
}

/* e^x and log(1 + x) of x in [0, 1]. What is f64 is to be had to its last bits, which sums that cancel bring to light; of f32 three units of f64 are more
 * than enough. */
VD_INLINE vd lanes_exp(vd x, bool f64)
{
    return f64 ? lanes_each(exp, x) : vd_exp(vd_min(vd_set1(750), x));
}

VD_INLINE vd lanes_log1p_unit(vd x, bool f64)
{
    return f64 ? lanes_each(log1p, x) : vd_log1p_unit(x);
}

VD_INLINE vd lanes_sigmoid(vd x, bool f64)
{
    const vd e = lanes_exp(-vd_abs(x), f64);
    return vd_select(vd_lt(x, vd_set1(0)), e, vd_set1(1)) / (1 + e);
}

/* Near 0, where 1 - e^-2|x| would lose what it is made of, its series: 2^-42 of it. */
VD_INLINE vd lanes_tanh(vd x, bool f64)
{
    static const double series[] = {-443861162.0 / 1856156927625.0,
                                    6404582.0 / 10854718875.0,
                                    -929569.0 / 638512875.0,
                                    21844.0 / 6081075.0,
                                    -1382.0 / 155925.0,
                                    62.0 / 2835.0,
                                    -17.0 / 315.0,
                                    2.0 / 15.0,
                                    -1.0 / 3.0,
                                    1.0};
    if (f64)
        return lanes_each(tanh, x);
    const vd a = vd_abs(x), e = vd_exp(-2 * a), y = vd_copysign((1 - e) / (1 + e), x);
    return vd_select(vd_lt(a, vd_set1(0.25)), x * vd_poly(x * x, series, 10), y);
}

#endif
