/*
 * lanes.h - a vector of floats as wide as the instruction set has, for work that is the same in every lane.
 *
 * Only operations whose result in a lane depends on that lane alone: so the bits are those of one value at a time,
 * whatever the width.
 */
#ifndef MICA_QUANT_LANES_H
#define MICA_QUANT_LANES_H

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define LANE_BYTES 64
#elif defined(__AVX2__)
#define LANE_BYTES 32
#else
#define LANE_BYTES 16
#endif
#define LANES (LANE_BYTES / 4)

typedef float lane_f __attribute__((vector_size(LANE_BYTES)));
typedef int32_t lane_i __attribute__((vector_size(LANE_BYTES)));

static inline lane_f lane_load(const float *p)
{
    lane_f v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void lane_store(float *p, lane_f v)
{
    memcpy(p, &v, sizeof v);
}

static inline lane_f lane_set(float value)
{
    return value - (lane_f){0};
}

/* a where the mask (of a comparison) is set, else b. */
static inline lane_f lane_select(lane_i mask, lane_f a, lane_f b)
{
    return (lane_f)((mask & (lane_i)a) | (~mask & (lane_i)b));
}

/* b where either is NaN. */
static inline lane_f lane_min(lane_f a, lane_f b)
{
#if defined(__AVX512F__)
    return (lane_f)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (lane_f)_mm256_min_ps((__m256)a, (__m256)b);
#elif defined(__x86_64__)
    return (lane_f)_mm_min_ps((__m128)a, (__m128)b);
#else
    return lane_select(a < b, a, b);
#endif
}

static inline lane_f lane_max(lane_f a, lane_f b)
{
#if defined(__AVX512F__)
    return (lane_f)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (lane_f)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(__x86_64__)
    return (lane_f)_mm_max_ps((__m128)a, (__m128)b);
#else
    return lane_select(a > b, a, b);
#endif
}

/* Between low and high; low for NaN. */
static inline lane_f lane_clamp(lane_f v, lane_f low, lane_f high)
{
    return lane_min(lane_max(v, low), high);
}

/* To the nearest whole number, ties to even, for magnitudes below 2^22: adding 1.5 * 2^23 leaves no bit for the rest. */
static inline lane_f lane_round(lane_f v)
{
    const lane_f shift = lane_set(12582912.0f);
    return (v + shift) - shift;
}

/* 1 / v, and 0 for 0. */
static inline lane_f lane_inverse(lane_f v)
{
    const lane_f zero = {0};
    return lane_select(v != zero, 1.0f / v, zero);
}

/* LANES bytes as floats. The compiler's own conversion goes one value at a time, hence the instructions. */
static inline lane_f lane_from_u8(const uint8_t *p)
{
#if defined(__AVX512F__)
    return (lane_f)_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)p)));
#elif defined(__AVX2__)
    return (lane_f)_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)p)));
#else
    return (lane_f){(float)p[0], (float)p[1], (float)p[2], (float)p[3]};
#endif
}

static inline lane_f lane_from_i8(const unsigned char *p)
{
#if defined(__AVX512F__)
    return (lane_f)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)p)));
#elif defined(__AVX2__)
    return (lane_f)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)p)));
#else
    return (lane_f){(float)(int8_t)p[0], (float)(int8_t)p[1], (float)(int8_t)p[2], (float)(int8_t)p[3]};
#endif
}

/* Floats cut towards zero to LANES bytes; the result fits a byte, signed or not. */
static inline void lane_to_bytes(void *p, lane_f v)
{
#if defined(__AVX512F__)
    _mm_storeu_si128(p, _mm512_cvtepi32_epi8(_mm512_cvttps_epi32((__m512)v)));
#elif defined(__AVX2__)
    const __m256i low = _mm256_set1_epi32(0x0c080400); /* the low byte of each of four */
    const __m256i four = _mm256_shuffle_epi8(_mm256_cvttps_epi32((__m256)v), low);
    const __m256i eight = _mm256_permutevar8x32_epi32(four, _mm256_setr_epi32(0, 4, 0, 0, 0, 0, 0, 0));
    _mm_storel_epi64(p, _mm256_castsi256_si128(eight));
#else
    for (int i = 0; i < LANES; i++)
        ((uint8_t *)p)[i] = (uint8_t)(int)v[i];
#endif
}

/* The largest of all lanes, none of them NaN. */
static inline float lane_highest(lane_f v)
{
#if defined(__x86_64__)
#if defined(__AVX512F__)
    const __m256 eight =
        _mm256_max_ps(_mm512_castps512_ps256((__m512)v), _mm512_extractf32x8_ps((__m512)v, 1));
#elif defined(__AVX2__)
    const __m256 eight = (__m256)v;
#endif
#if defined(__AVX2__)
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
#else
    __m128 four = (__m128)v;
#endif
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(four, _mm_shuffle_ps(four, four, 1)));
#else
    float most = v[0];
    for (int i = 1; i < LANES; i++)
        most = v[i] > most ? v[i] : most;
    return most;
#endif
}

static inline float lane_lowest(lane_f v)
{
    return -lane_highest(-v);
}

#endif
