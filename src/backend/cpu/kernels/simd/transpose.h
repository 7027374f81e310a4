/*
 * transpose.h - VW vectors as a square of lanes, exchanged.
 *
 * Each round zips vector i with vector i + VW/2: in the numbers of the lanes, written as bits (vector, lane), every bit moves up by one place. After
 * log2 VW rounds the two have changed places.
 */
#ifndef MICA_CPU_SIMD_TRANSPOSE_H
#define MICA_CPU_SIMD_TRANSPOSE_H

#include "backend/cpu/kernels/simd/simd.h"

static inline __attribute__((always_inline)) void vf_zip_all(const vf *from, vf *to)
{
    _Pragma("GCC unroll 16") for (int i = 0; i < VW / 2; i++)
    {
        to[2 * i] = vf_zip_low(from[i], from[i + VW / 2]);
        to[2 * i + 1] = vf_zip_high(from[i], from[i + VW / 2]);
    }
}

/* Lane j of v[i] and lane i of v[j] change places. */
static inline __attribute__((always_inline)) void vf_transpose(vf *v)
{
    vf other[VW];
    vf_zip_all(v, other);
    vf_zip_all(other, v);
    vf_zip_all(v, other);
#if VW == 16
    vf_zip_all(other, v);
#else
    _Pragma("GCC unroll 16") for (int i = 0; i < VW; i++) v[i] = other[i];
#endif
}

_Static_assert(VW == 8 || VW == 16, "three rounds, or four");

#endif
