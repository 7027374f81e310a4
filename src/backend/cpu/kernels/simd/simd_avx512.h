/*
 * simd_avx512.h - sixteen lanes on AVX-512 (F, BW, DQ, VL).
 *
 * Included by simd.h alone, which says what each function means.
 */
#ifndef MICA_CPU_SIMD_AVX512_H
#define MICA_CPU_SIMD_AVX512_H

#include <immintrin.h>

#define VW 16

typedef __m512 vf;
typedef __m512i vi;
typedef __mmask16 vm;

static inline __mmask16 mica__lanes_below(uint64_t n)
{
    return (__mmask16)((1u << n) - 1);
}

static inline vf vf_load(const void *src)
{
    return _mm512_loadu_ps(src);
}

static inline void vf_store(void *dst, vf v)
{
    _mm512_storeu_ps(dst, v);
}

static inline vf vf_load_n(const void *src, uint64_t n)
{
    return _mm512_maskz_loadu_ps(mica__lanes_below(n), src);
}

static inline void vf_store_n(void *dst, vf v, uint64_t n)
{
    _mm512_mask_storeu_ps(dst, mica__lanes_below(n), v);
}

static inline vf vf_set1(float x)
{
    return _mm512_set1_ps(x);
}

static inline vf vf_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}

static inline vf vf_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}

static inline vf vf_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}

static inline vf vf_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}

static inline vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}

static inline vf vf_fnma(vf a, vf b, vf c)
{
    return _mm512_fnmadd_ps(a, b, c);
}

static inline vf vf_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}

static inline vf vf_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}

/* vrange takes the number of a number and a NaN, so that NaN is put in afterwards. */
static inline vf vf_greatest(vf a, vf b)
{
    const __mmask16 nan = _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q);
    return _mm512_mask_add_ps(_mm512_range_ps(a, b, 5), nan, a, b);
}

static inline vf vf_least(vf a, vf b)
{
    const __mmask16 nan = _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q);
    return _mm512_mask_add_ps(_mm512_range_ps(a, b, 4), nan, a, b);
}

static inline vf vf_sqrt(vf a)
{
    return _mm512_sqrt_ps(a);
}

static inline vi vf_bits(vf a)
{
    return _mm512_castps_si512(a);
}

static inline vf vi_value(vi a)
{
    return _mm512_cvtepi32_ps(a);
}

static inline vf vi_float(vi a)
{
    return _mm512_castsi512_ps(a);
}

static inline vi vi_set1(int32_t x)
{
    return _mm512_set1_epi32(x);
}

static inline vi vi_add(vi a, vi b)
{
    return _mm512_add_epi32(a, b);
}

static inline vi vi_sub(vi a, vi b)
{
    return _mm512_sub_epi32(a, b);
}

static inline vi vi_and(vi a, vi b)
{
    return _mm512_and_si512(a, b);
}

static inline vi vi_or(vi a, vi b)
{
    return _mm512_or_si512(a, b);
}

static inline vi vi_shl(vi a, int k)
{
    return _mm512_slli_epi32(a, (unsigned)k);
}

static inline vm vf_lt(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}

static inline vm vf_eq(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ);
}

static inline vf vf_select(vm m, vf a, vf b)
{
    return _mm512_mask_blend_ps(m, b, a);
}

static inline vf vf_merge_n(vf a, vf b, uint64_t n)
{
    return _mm512_mask_blend_ps(mica__lanes_below(n), b, a);
}

static inline vf vf_swap_pairs(vf a)
{
    return _mm512_permute_ps(a, 0xb1);
}

static inline vf vf_swap_twos(vf a)
{
    return _mm512_permute_ps(a, 0x4e);
}

static inline vf vf_swap_fours(vf a)
{
    return _mm512_shuffle_f32x4(a, a, 0xb1);
}

static inline vf vf_swap_eights(vf a)
{
    return _mm512_shuffle_f32x4(a, a, 0x4e);
}

static inline vf vf_zip_low(vf a, vf b)
{
    const __m512i at = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    return _mm512_permutex2var_ps(a, at, b);
}

static inline vf vf_zip_high(vf a, vf b)
{
    const __m512i at = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    return _mm512_permutex2var_ps(a, at, b);
}

static inline vf vf_unzip_even(vf a, vf b)
{
    const __m512i at = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    return _mm512_permutex2var_ps(a, at, b);
}

static inline vf vf_unzip_odd(vf a, vf b)
{
    const __m512i at = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    return _mm512_permutex2var_ps(a, at, b);
}

static inline vf vf_pick(const float *from, vi at)
{
    return _mm512_permutex2var_ps(vf_load(from), at, vf_load(from + VW));
}

static inline uint32_t vm_bits(vm m)
{
    return m;
}

static inline float vf_sum(vf a)
{
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

static inline float vf_hmax(vf a)
{
    const __m256 half = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

static inline vf vf_scale2(vf v, vi n)
{
    return _mm512_scalef_ps(v, _mm512_cvtepi32_ps(n));
}

static inline vf vf_load_f16(const void *src)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256(src));
}

static inline void vf_store_f16(void *dst, vf v)
{
    _mm256_storeu_si256(dst, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

static inline vf mica__bf16_widen(__m256i half)
{
    return vi_float(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

/* The upper 16 bits of each lane, rounded to nearest even; a NaN is made quiet instead. */
static inline __m256i mica__bf16_narrow(vf v)
{
    const __m512i bits = vf_bits(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i near = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    const __m512i pick = _mm512_mask_or_epi32(near, nan, bits, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(pick, 16));
}

static inline vf vf_load_i8(const void *src)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)src)));
}

typedef int8_t vf_level;

static inline vf vf_load_level(const vf_level level[16], const void *src, int upper)
{
    const __m128i bytes = _mm_loadu_si128((const __m128i *)src);
    const __m128i at = _mm_and_si128(upper ? _mm_srli_epi16(bytes, 4) : bytes, _mm_set1_epi8(15));
    const __m128i of = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)level), at);
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(of));
}

static inline vf vf_set1_f16(const void *src)
{
    int16_t half;
    memcpy(&half, src, sizeof half);
    return _mm512_cvtph_ps(_mm256_set1_epi16(half));
}

static inline vf vf_load_bf16(const void *src)
{
    return mica__bf16_widen(_mm256_loadu_si256(src));
}

static inline void vf_store_bf16(void *dst, vf v)
{
    _mm256_storeu_si256(dst, mica__bf16_narrow(v));
}

static inline vf vf_load_f16_n(const void *src, uint64_t n)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mica__lanes_below(n), src));
}

static inline void vf_store_f16_n(void *dst, vf v, uint64_t n)
{
    _mm256_mask_storeu_epi16(dst, mica__lanes_below(n), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

static inline vf vf_load_bf16_n(const void *src, uint64_t n)
{
    return mica__bf16_widen(_mm256_maskz_loadu_epi16(mica__lanes_below(n), src));
}

static inline void vf_store_bf16_n(void *dst, vf v, uint64_t n)
{
    _mm256_mask_storeu_epi16(dst, mica__lanes_below(n), mica__bf16_narrow(v));
}

/* ---- lanes that move ---- */

#define vf_shift_up(v, fill, k) \
    _mm512_castsi512_ps(_mm512_alignr_epi32(_mm512_castps_si512(v), _mm512_castps_si512(fill), 16 - (k)))

static inline vf vf_last(vf a)
{
    return _mm512_permutexvar_ps(_mm512_set1_epi32(VW - 1), a);
}

/* ---- lanes of f64 ---- */

#define VD_PARTS 2 /* of a vf */
typedef double vd __attribute__((vector_size(64)));
typedef int64_t vl __attribute__((vector_size(64)));
typedef uint64_t vu __attribute__((vector_size(64)));
typedef __mmask8 vk;

static inline void vf_widen(vf a, vd *out)
{
    out[0] = (vd)_mm512_cvtps_pd(_mm512_castps512_ps256(a));
    out[1] = (vd)_mm512_cvtps_pd(_mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a), 1)));
}

static inline vf vf_narrow(const vd *a)
{
    const __m256 low = _mm512_cvtpd_ps((__m512d)a[0]), high = _mm512_cvtpd_ps((__m512d)a[1]);
    return _mm512_castpd_ps(
        _mm512_insertf64x4(_mm512_castpd256_pd512(_mm256_castps_pd(low)), _mm256_castps_pd(high), 1));
}

static inline vd vd_fma(vd a, vd b, vd c)
{
    return (vd)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
}

static inline vd vd_min(vd a, vd b)
{
    return (vd)_mm512_min_pd((__m512d)a, (__m512d)b);
}

static inline vd vd_max(vd a, vd b)
{
    return (vd)_mm512_max_pd((__m512d)a, (__m512d)b);
}

static inline vk vd_lt(vd a, vd b)
{
    return _mm512_cmp_pd_mask((__m512d)a, (__m512d)b, _CMP_LT_OQ);
}

static inline vk vd_eq(vd a, vd b)
{
    return _mm512_cmp_pd_mask((__m512d)a, (__m512d)b, _CMP_EQ_OQ);
}

static inline vk vl_negative(vl a)
{
    return _mm512_movepi64_mask((__m512i)a);
}

static inline vd vd_select(vk m, vd a, vd b)
{
    return (vd)_mm512_mask_blend_pd(m, (__m512d)b, (__m512d)a);
}

/* The instructions give 14 bits, one step of third order three times as many: a tenth of what dividing takes. */
static inline vd vd_near_div(vd a, vd b)
{
    const vd r = (vd)_mm512_rcp14_pd((__m512d)b);
    const vd e = (vd)_mm512_fnmadd_pd((__m512d)b, (__m512d)r, _mm512_set1_pd(1));
    return a * vd_fma(r, vd_fma(e, e, e), r);
}

static inline vd vd_scale2(vd v, vd n)
{
    return (vd)_mm512_scalef_pd((__m512d)v, (__m512d)n);
}

#endif
