/* simd_parts.h - the first n lanes of 16-bit values, where no instruction leaves the others out. For simd_avx2.h and simd_portable.h. */
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

#endif
