/*
 * doubles.h - vectors of f64 for kernels that compute in f64: VD lanes of simd.h's vd, which C's operators work on.
 *
 *   vd_load vd_store vd_load_n vd_store_n   any address; the _n forms touch lanes below n alone (n may be more than there are), others read as 0
 *   vd_fnma(a, b, c)      c - a * b, as vd_fma
 *   vd_max_abs(a, most)   the greater of |a| and most, lane by lane
 *   vd_copysign(a, b)     the magnitude of a with the sign of b
 *   vd_sum                halves are added to halves
 */
#ifndef MICA_CPU_SIMD_DOUBLES_H
#define MICA_CPU_SIMD_DOUBLES_H

#include "backend/cpu/kernels/simd/functions.h"

#if MICA__ISA_LEVEL == 3
#define VD 8
#elif MICA__ISA_LEVEL == 2
#define VD 4
#else
#define VD 2
#endif
_Static_assert(sizeof(vd) == VD * sizeof(double), "lanes of simd.h");

#define VD_INLINE static inline __attribute__((always_inline))
#define VD_UNROLL _Pragma("GCC unroll 32")

VD_INLINE vd vd_load(const double *from)
{
    vd v;
    memcpy(&v, from, sizeof v);
    return v;
}

VD_INLINE void vd_store(double *to, vd v)
{
    memcpy(to, &v, sizeof v);
}

VD_INLINE vd vd_copysign(vd a, vd b)
{
    return (vd)(((vl)a & INT64_MAX) | ((vl)b & INT64_MIN));
}

#if MICA__ISA_LEVEL == 3
VD_INLINE __mmask8 vd_below(uint64_t n)
{
    return n >= VD ? (__mmask8)255 : (__mmask8)((1u << n) - 1);
}

VD_INLINE vd vd_load_n(const double *from, uint64_t n)
{
    return (vd)_mm512_maskz_loadu_pd(vd_below(n), from);
}

VD_INLINE void vd_store_n(double *to, vd v, uint64_t n)
{
    _mm512_mask_storeu_pd(to, vd_below(n), (__m512d)v);
}
#else
VD_INLINE vd vd_load_n(const double *from, uint64_t n)
{
    double lane[VD] = {0};
    if (n >= VD)
        return vd_load(from);
    memcpy(lane, from, n * sizeof *from);
    return vd_load(lane);
}

VD_INLINE void vd_store_n(double *to, vd v, uint64_t n)
{
    double lane[VD];
    if (n >= VD) {
        vd_store(to, v);
        return;
    }
    vd_store(lane, v);
    memcpy(to, lane, n * sizeof *to);
}
#endif

VD_INLINE vd vd_fnma(vd a, vd b, vd c)
{
#if MICA__ISA_LEVEL == 3
    return (vd)_mm512_fnmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#elif MICA__ISA_LEVEL == 2
    return (vd)_mm256_fnmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#else
    return c - a * b;
#endif
}

VD_INLINE vd vd_max_abs(vd a, vd most)
{
    return vd_max(vd_abs(a), most);
}

static inline double vd_sum(vd v)
{
    double lane[VD];
    vd_store(lane, v);
    for (int half = VD / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return lane[0];
}

#endif
