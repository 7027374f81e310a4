/* butterflies.h - the unscaled Walsh-Hadamard transform of a row of f32, in place. */
#ifndef MICA_CPU_BUTTERFLIES_H
#define MICA_CPU_BUTTERFLIES_H

#include <stdbool.h>

#include "backend/cpu/kernels/simd/simd.h"

/* -1 in lanes with the bit `h` of their number set. */
static inline vf butterfly_sign(uint32_t h)
{
    float lane[VW];
    for (uint32_t i = 0; i < VW; i++)
        lane[i] = (i & h) != 0 ? -1.0f : 1.0f;
    return vf_load(lane);
}

/* The signs of the steps within a vector: -1 where a lane gets the difference. */
typedef struct butterfly_signs {
    vf ones, twos, fours, eights;
} butterfly_signs;

static inline butterfly_signs butterfly_signs_make(void)
{
    return (butterfly_signs){butterfly_sign(1), butterfly_sign(2), butterfly_sign(4), butterfly_sign(8)};
}

/* The steps within a vector: lane i gets the sum, its partner the difference a - b, which is the exchanged vector plus one whose upper
 * lanes are negated, so that a fused product is as exact as another. */
static inline vf butterfly_lanes(vf v, const butterfly_signs *sign)
{
    v = vf_fma(v, sign->ones, vf_swap_pairs(v));
    v = vf_fma(v, sign->twos, vf_swap_twos(v));
    v = vf_fma(v, sign->fours, vf_swap_fours(v));
#if VW == 16
    v = vf_fma(v, sign->eights, vf_swap_eights(v));
#endif
    return v;
}

/* Two steps between four vectors, in place. */
static inline void butterfly_four(vf v[4])
{
    const vf ab = vf_add(v[0], v[1]), cd = vf_add(v[2], v[3]), a_b = vf_sub(v[0], v[1]),
             c_d = vf_sub(v[2], v[3]);
    v[0] = vf_add(ab, cd);
    v[1] = vf_add(a_b, c_d);
    v[2] = vf_sub(ab, cd);
    v[3] = vf_sub(a_b, c_d);
}

/* Four vectors of the row, h elements apart. */
static inline void butterfly_take(const float *row, uint64_t h, vf v[4])
{
    for (uint32_t k = 0; k < 4; k++)
        v[k] = vf_load(row + k * h);
    butterfly_four(v);
}

/* The steps between vectors from h on, all but the last two; gives the h that is left: a quarter of n, or n where there were no steps.
 * The lines of `bytes` bytes at `next` are on their way meanwhile: while a row is in the cache memory has nothing else to do. */
static inline uint64_t butterflies_across(float *row, uint64_t n, uint64_t h, const unsigned char *next,
                                          uint64_t bytes)
{
    bool odd = false;
    for (uint64_t rest = n / h; rest > 1; rest /= 2)
        odd = !odd;
    for (uint64_t i = 0; odd && i < n; i += 2 * h)
        for (uint64_t j = i; j < i + h; j += VW) {
            const vf a = vf_load(row + j), b = vf_load(row + j + h);
            vf_store(row + j, vf_add(a, b));
            vf_store(row + j + h, vf_sub(a, b));
        }
    h = odd ? 2 * h : h;
    for (; 4 * h < n; h *= 4)
        for (uint64_t i = 0; i < n; i += 4 * h)
            for (uint64_t j = i; j < i + h; j += VW) {
                vf v[4];
                for (uint32_t k = 0; k < 4 && bytes > 0; k++, next += 64, bytes -= bytes < 64 ? bytes : 64)
                    __builtin_prefetch(next);
                butterfly_take(row + j, h, v);
                for (uint32_t k = 0; k < 4; k++)
                    vf_store(row + j + k * h, v[k]);
            }
    return h;
}

/* Rows shorter than a vector. */
static inline void butterflies_few(float *row, uint64_t n)
{
    for (uint64_t h = 1; h < n; h *= 2)
        for (uint64_t i = 0; i < n; i++)
            if ((i & h) == 0) {
                const float a = row[i], b = row[i + h];
                row[i] = a + b;
                row[i + h] = a - b;
            }
}

#endif
