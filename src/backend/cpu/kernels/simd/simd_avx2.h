/*
 * simd_avx2.h - eight lanes on AVX2 with FMA and F16C.
 *
 * Included by simd.h alone, which says what each function means.
 */
#ifndef MICA_CPU_SIMD_AVX2_H
#define MICA_CPU_SIMD_AVX2_H

#include <immintrin.h>

#define VW 8

typedef __m256 vf;
typedef __m256i vi;
typedef __m256 vm; /* all ones or all zeros per lane */

static inline __m256i mica__lanes_below(uint64_t n)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane);
}

static inline vf vf_load(const void *src)
{
    return _mm256_loadu_ps((const float *)src);
}

static inline void vf_store(void *dst, vf v)
{
    _mm256_storeu_ps((float *)dst, v);
}

static inline vf vf_load_n(const void *src, uint64_t n)
{
    return _mm256_maskload_ps((const float *)src, mica__lanes_below(n));
}

/* A masked store is slow on some processors, so a whole vector goes the plain way. */
static inline void vf_store_n(void *dst, vf v, uint64_t n)
{
    if (n == VW)
        vf_store(dst, v);
    else
        _mm256_maskstore_ps((float *)dst, mica__lanes_below(n), v);
}

static inline vf vf_set1(float x)
{
    return _mm256_set1_ps(x);
}

static inline vf vf_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}

static inline vf vf_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}

static inline vf vf_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}

static inline vf vf_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}

static inline vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}

static inline vf vf_fnma(vf a, vf b, vf c)
{
    return _mm256_fnmadd_ps(a, b, c);
}

static inline vf vf_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}

static inline vf vf_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}

static inline vf vf_sqrt(vf a)
{
    return _mm256_sqrt_ps(a);
}

static inline vi vf_bits(vf a)
{
    return _mm256_castps_si256(a);
}

static inline vf vi_value(vi a)
{
    return _mm256_cvtepi32_ps(a);
}

static inline vf vi_float(vi a)
{
    return _mm256_castsi256_ps(a);
}

static inline vi vi_set1(int32_t x)
{
    return _mm256_set1_epi32(x);
}

static inline vi vi_add(vi a, vi b)
{
    return _mm256_add_epi32(a, b);
}

static inline vi vi_sub(vi a, vi b)
{
    return _mm256_sub_epi32(a, b);
}

static inline vi vi_and(vi a, vi b)
{
    return _mm256_and_si256(a, b);
}

static inline vi vi_or(vi a, vi b)
{
    return _mm256_or_si256(a, b);
}

static inline vi vi_shl(vi a, int k)
{
    return _mm256_slli_epi32(a, k);
}

static inline vm vf_lt(vf a, vf b)
{
    return _mm256_cmp_ps(a, b, _CMP_LT_OQ);
}

static inline vm vf_eq(vf a, vf b)
{
    return _mm256_cmp_ps(a, b, _CMP_EQ_OQ);
}

static inline vf vf_select(vm m, vf a, vf b)
{
    return _mm256_blendv_ps(b, a, m);
}

static inline vf vf_merge_n(vf a, vf b, uint64_t n)
{
    return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(mica__lanes_below(n)));
}

static inline vf vf_swap_pairs(vf a)
{
    return _mm256_permute_ps(a, 0xb1);
}

static inline vf vf_swap_twos(vf a)
{
    return _mm256_permute_ps(a, 0x4e);
}

static inline vf vf_swap_fours(vf a)
{
    return _mm256_permute2f128_ps(a, a, 0x01);
}

static inline vf vf_zip_low(vf a, vf b)
{
    return _mm256_permute2f128_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b), 0x20);
}

static inline vf vf_zip_high(vf a, vf b)
{
    return _mm256_permute2f128_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b), 0x31);
}

static inline vf vf_unzip_even(vf a, vf b)
{
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(_mm256_shuffle_ps(a, b, 0x88)), 0xd8));
}

static inline vf vf_unzip_odd(vf a, vf b)
{
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(_mm256_shuffle_ps(a, b, 0xdd)), 0xd8));
}

static inline vf vf_pick(const float *from, vi at)
{
    const vf low = _mm256_permutevar8x32_ps(vf_load(from), at),
             high = _mm256_permutevar8x32_ps(vf_load(from + VW), at);
    return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(at, 28)));
}

static inline uint32_t vm_bits(vm m)
{
    return (uint32_t)_mm256_movemask_ps(m);
}

static inline float vf_sum(vf a)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

static inline float vf_hmax(vf a)
{
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

/* v * 2^(n/2) * 2^(n - n/2), so that each factor is a normal number. */
static inline vf vf_scale2(vf v, vi n)
{
    const vi half = _mm256_srai_epi32(n, 1), bias = _mm256_set1_epi32(127);
    const vi first = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
    const vi second = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(n, half), bias), 23);
    return _mm256_mul_ps(_mm256_mul_ps(v, vi_float(first)), vi_float(second));
}

static inline vf vf_load_f16(const void *src)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)src));
}

static inline void vf_store_f16(void *dst, vf v)
{
    _mm_storeu_si128((__m128i *)dst, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

static inline vf vf_load_i8(const void *src)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)src)));
}

typedef int8_t vf_level;

static inline vf vf_load_level(const vf_level level[16], const void *src, int upper)
{
    const __m128i bytes = _mm_loadl_epi64((const __m128i *)src);
    const __m128i at = _mm_and_si128(upper ? _mm_srli_epi16(bytes, 4) : bytes, _mm_set1_epi8(15));
    const __m128i of = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)level), at);
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(of));
}

static inline vf vf_set1_f16(const void *src)
{
    int16_t half;
    memcpy(&half, src, sizeof half);
    return _mm256_cvtph_ps(_mm_set1_epi16(half));
}

static inline vf vf_load_bf16(const void *src)
{
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)src));
    return vi_float(_mm256_slli_epi32(wide, 16));
}

/* The upper 16 bits of each lane, rounded to nearest even; a NaN is made quiet instead. */
static inline void vf_store_bf16(void *dst, vf v)
{
    const __m256i bits = vf_bits(v), one = _mm256_set1_epi32(1);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), one);
    const __m256i near = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256 nan = _mm256_cmp_ps(v, v, _CMP_UNORD_Q);
    const __m256 pick = _mm256_blendv_ps(vi_float(near), vi_float(quiet), nan);
    const __m256i wide = _mm256_srli_epi32(vf_bits(pick), 16);
    const __m128i half = _mm_packus_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
    _mm_storeu_si128((__m128i *)dst, half);
}

/* ---- lanes that move ---- */

#define vf_shift_up(v, fill, k)                                                                         \
    _mm256_blend_ps(_mm256_permutevar8x32_ps(                                                           \
                        v, _mm256_and_si256(_mm256_sub_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), \
                                                             _mm256_set1_epi32(k)),                     \
                                            _mm256_set1_epi32(7))),                                     \
                    fill, (1 << (k)) - 1)

static inline vf vf_last(vf a)
{
    return _mm256_permutevar8x32_ps(a, _mm256_set1_epi32(VW - 1));
}

/* ---- lanes of f64 ---- */

#define VD_PARTS 2 /* of a vf */
typedef double vd __attribute__((vector_size(32)));
typedef int64_t vl __attribute__((vector_size(32)));
typedef uint64_t vu __attribute__((vector_size(32)));

static inline void vf_widen(vf a, vd *out)
{
    out[0] = (vd)_mm256_cvtps_pd(_mm256_castps256_ps128(a));
    out[1] = (vd)_mm256_cvtps_pd(_mm256_extractf128_ps(a, 1));
}

static inline vf vf_narrow(const vd *a)
{
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm256_cvtpd_ps((__m256d)a[0])),
                                _mm256_cvtpd_ps((__m256d)a[1]), 1);
}

static inline vd vd_fma(vd a, vd b, vd c)
{
    return (vd)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
}

#include "backend/cpu/kernels/simd/simd_parts.h"

#endif
