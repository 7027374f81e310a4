/*
 * lanes.h - numbers of any real type beside each other in a vector of f64, as gradients of recurrences compute.
 */
#ifndef MICA_CPU_LANES_H
#define MICA_CPU_LANES_H

#include "backend/cpu/kernels/recurrent/gradient.h"
#include "backend/cpu/kernels/simd/functions.h"

#define LANES (sizeof(vd) / sizeof(double))
#define LANES_INLINE static inline __attribute__((always_inline))

typedef float lanes_f32 __attribute__((vector_size(sizeof(vd) / 2)));

LANES_INLINE vd lanes_load(const double *from)
{
    vd v;
    memcpy(&v, from, sizeof v);
    return v;
}

LANES_INLINE void lanes_store(double *to, vd v)
{
    memcpy(to, &v, sizeof v);
}

static __attribute__((noinline, unused)) vd
lanes_gather(const mica__cpu_view *view, const unsigned char *from, uint64_t stride, uint64_t n)
{
    double row[LANES] = {0};
    for (uint64_t i = 0; i < n; i++)
        row[i] = real_at(view, from + i * stride);
    return lanes_load(row);
}

/* n numbers, LANES at most, `stride` bytes apart; the other lanes are 0. */
LANES_INLINE vd lanes_at(const mica__cpu_view *view, const unsigned char *from, uint64_t stride, uint64_t n)
{
    lanes_f32 narrow;
    if (view->dtype != MICA_DTYPE_F32 || stride != sizeof(float) || n != LANES)
        return lanes_gather(view, from, stride, n);
    memcpy(&narrow, from, sizeof narrow);
    return __builtin_convertvector(narrow, vd);
}

static __attribute__((noinline, unused)) void lanes_scatter(const mica__cpu_view *view, uint64_t offset,
                                                            uint64_t stride, uint64_t n, vd v)
{
    double row[LANES];
    lanes_store(row, v);
    for (uint64_t i = 0; i < n; i++)
        put_real(view, offset + i * stride, row[i]);
}

/* Nothing where the view is absent. */
LANES_INLINE void lanes_put(const mica__cpu_view *view, uint64_t offset, uint64_t stride, uint64_t n, vd v)
{
    if (view->data == NULL)
        return;
    if (view->dtype != MICA_DTYPE_F32 || stride != sizeof(float) || n != LANES) {
        lanes_scatter(view, offset, stride, n, v);
        return;
    }
    const lanes_f32 narrow = __builtin_convertvector(v, lanes_f32);
    memcpy(view->data + offset, &narrow, sizeof narrow);
}

static __attribute__((noinline, unused)) vd lanes_each(double (*of)(double), vd v)
{
    double row[LANES];
    lanes_store(row, v);
    for (uint64_t i = 0; i < LANES; i++)
        row[i] = of(row[i]);
    return lanes_load(row);
}

/* e^x and log(1 + x) of x in [0, 1]. What is f64 is to be had to its last bits, which sums that cancel bring to light; of f32 three units of f64 are more
 * than enough. */
LANES_INLINE vd lanes_exp(vd x, bool f64)
{
    return f64 ? lanes_each(exp, x) : vd_exp(vd_min(vd_set1(750), x));
}

LANES_INLINE vd lanes_log1p_unit(vd x, bool f64)
{
    return f64 ? lanes_each(log1p, x) : vd_log1p_unit(x);
}

/* Halves are added to halves. */
LANES_INLINE double lanes_sum(vd v)
{
    double lane[LANES];
    lanes_store(lane, v);
    for (uint64_t half = LANES / 2; half > 0; half /= 2)
        for (uint64_t i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return lane[0];
}

#endif
