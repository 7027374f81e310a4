/* levels.h - what formats with a few fixed levels share: sixteen small numbers looked up by nibble, a row's peak. */
#ifndef MICA_QUANT_CODEC_LEVELS_H
#define MICA_QUANT_CODEC_LEVELS_H

#include <math.h>

#include "quant/codec.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

/* table[low nibble] of 16 bytes, then table[high nibble] of them. */
static inline void mica__levels_of(const int8_t table[16], const uint8_t bytes[16], int8_t out[32])
{
#if defined(__AVX2__)
    const __m128i levels = _mm_loadu_si128((const void *)table), in = _mm_loadu_si128((const void *)bytes);
    const __m128i nibble = _mm_set1_epi8(15);
    _mm_storeu_si128((void *)out, _mm_shuffle_epi8(levels, _mm_and_si128(in, nibble)));
    _mm_storeu_si128((void *)(out + 16),
                     _mm_shuffle_epi8(levels, _mm_and_si128(_mm_srli_epi16(in, 4), nibble)));
#else
    for (int j = 0; j < 16; j++) {
        out[j] = table[bytes[j] & 15];
        out[j + 16] = table[bytes[j] >> 4];
    }
#endif
}

/* The largest magnitude of n values, NaN left out. In whole numbers, whose order is the same: a compiler may not
 * vectorise the largest of floats. */
static inline float mica__levels_peak(const float *x, int n)
{
    int32_t most = 0;
    for (int i = 0; i < n; i++) {
        int32_t bits = (int32_t)(mica__f32_bits(x[i]) & 0x7fffffff);
        bits = bits <= 0x7f800000 ? bits : 0;
        most = bits > most ? bits : most;
    }
    return mica__f32_from_bits((uint32_t)most);
}

/* The e2m1 code (0 0.5 1 1.5 2 3 4 6, and 8 more for the negatives) nearest to x / (2 half); the smaller of two as
 * near. Anything that rounds to zero, and NaN, is code 0. The limits are exact where half has few bits. */
static inline int mica__levels_fp4(float x, float half)
{
    const float m = fabsf(x);
    const int code = (m > 0.5f * half) + (m > 1.5f * half) + (m > 2.5f * half) + (m > 3.5f * half) +
                     (m > 5 * half) + (m > 7 * half) + (m > 10 * half);
    return code | ((code != 0) & (x < 0)) << 3;
}

#endif
