/* butterflies.h - the unscaled Walsh-Hadamard transform of a row of f32, in place. */
#ifndef MICA_CPU_BUTTERFLIES_H
#define MICA_CPU_BUTTERFLIES_H

#include "backend/cpu/kernels/simd/simd.h"

/* A step within a vector: lane i gets the sum, its partner the difference a - b, which is the exchanged vector plus one whose upper
 * lanes are negated: `sign` is -1 there and 1 elsewhere, so that a fused product is as exact as another. */
static inline vf butterfly_lanes(vf v, vf exchanged, vf sign)
{
    return vf_fma(v, sign, exchanged);
}

/* -1 in lanes with the bit `h` of their number set. */
static inline vf butterfly_sign(uint32_t h)
{
    float lane[VW];
    for (uint32_t i = 0; i < VW; i++)
        lane[i] = (i & h) != 0 ? -1.0f : 1.0f;
    return vf_load(lane);
}

/* n is a power of two, any. */
static inline void butterflies(float *row, uint64_t n)
{
    if (n < VW) {
        for (uint64_t h = 1; h < n; h *= 2)
            for (uint64_t i = 0; i < n; i++)
                if ((i & h) == 0) {
                    const float a = row[i], b = row[i + h];
                    row[i] = a + b;
                    row[i + h] = a - b;
                }
        return;
    }
    const vf ones = butterfly_sign(1), twos = butterfly_sign(2), fours = butterfly_sign(4);
#if VW == 16
    const vf eights = butterfly_sign(8);
#endif
    for (uint64_t i = 0; i < n; i += VW) {
        vf v = vf_load(row + i);
        v = butterfly_lanes(v, vf_swap_pairs(v), ones);
        v = butterfly_lanes(v, vf_swap_twos(v), twos);
        v = butterfly_lanes(v, vf_swap_fours(v), fours);
#if VW == 16
        v = butterfly_lanes(v, vf_swap_eights(v), eights);
#endif
        vf_store(row + i, v);
    }
    for (uint64_t h = VW; h < n; h *= 2)
        for (uint64_t i = 0; i < n; i += 2 * h)
            for (uint64_t j = i; j < i + h; j += VW) {
                const vf a = vf_load(row + j), b = vf_load(row + j + h);
                vf_store(row + j, vf_add(a, b));
                vf_store(row + j + h, vf_sub(a, b));
            }
}

#endif
