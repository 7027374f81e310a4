/*
 * simd_parts.h - what simd_avx2.h and simd_portable.h have in common: the first n lanes of 16-bit values, where no instruction leaves
 * the others out, and masks of f64 that are vectors.
 */
#ifndef MICA_CPU_SIMD_PARTS_H
#define MICA_CPU_SIMD_PARTS_H

static inline vf vf_load_f16_n(const void *src, uint64_t n)
{
    uint16_t half[VW] = {0};
    memcpy(half, src, n * sizeof half[0]);
    return vf_load_f16(half);
}

static inline void vf_store_f16_n(void *dst, vf v, uint64_t n)
{
    uint16_t half[VW];
    vf_store_f16(half, v);
    memcpy(dst, half, n * sizeof half[0]);
}

static inline vf vf_load_bf16_n(const void *src, uint64_t n)
{
    uint16_t half[VW] = {0};
    memcpy(half, src, n * sizeof half[0]);
    return vf_load_bf16(half);
}

static inline void vf_store_bf16_n(void *dst, vf v, uint64_t n)
{
    uint16_t half[VW];
    vf_store_bf16(half, v);
    memcpy(dst, half, n * sizeof half[0]);
}

/* ---- lanes of f64 ---- */

typedef vl vk; /* all ones or all zeros per lane */

static inline vk vd_lt(vd a, vd b)
{
    return a < b;
}

static inline vk vd_eq(vd a, vd b)
{
    return a == b;
}

static inline vk vl_negative(vl a)
{
    return a < 0;
}

static inline vd vd_select(vk m, vd a, vd b)
{
    return (vd)(((vl)a & m) | ((vl)b & ~m));
}

static inline vd vd_min(vd a, vd b)
{
    return vd_select(a < b, a, b);
}

static inline vd vd_max(vd a, vd b)
{
    return vd_select(a > b, a, b);
}

static inline vd vd_near_div(vd a, vd b)
{
    return a / b;
}

#endif
