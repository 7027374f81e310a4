/* float.c - the plain float types: f32 f16 bf16 f64 f8_e4m3 f8_e5m2. A block is one value. */
#include "quant/codec.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif

static uint16_t load16(const unsigned char *from)
{
    uint16_t half;
    memcpy(&half, from, sizeof half);
    return half;
}

static void store16(unsigned char *to, uint16_t half)
{
    memcpy(to, &half, sizeof half);
}

void MICA__CODEC(decode_f32)(const void *src, float *dst, uint64_t blocks)
{
    memcpy(dst, src, blocks * sizeof *dst);
}

void MICA__CODEC(encode_f32)(const float *src, const float *importance, void *dst, uint64_t blocks)
{
    (void)importance;
    memcpy(dst, src, blocks * sizeof *src);
}

void MICA__CODEC(decode_f16)(const void *src, float *dst, uint64_t blocks)
{
    const unsigned char *from = src;
    uint64_t i = 0;
#if defined(__AVX512F__)
    for (; i + 16 <= blocks; i += 16)
        _mm512_storeu_ps(dst + i, _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(from + 2 * i))));
#elif defined(__F16C__)
    for (; i + 8 <= blocks; i += 8)
        _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(from + 2 * i))));
#endif
    for (; i < blocks; i++)
        dst[i] = mica__f16_to_f32(load16(from + 2 * i));
}

void MICA__CODEC(encode_f16)(const float *src, const float *importance, void *dst, uint64_t blocks)
{
    (void)importance;
    unsigned char *to = dst;
    uint64_t i = 0;
#if defined(__AVX512F__)
    for (; i + 16 <= blocks; i += 16)
        _mm256_storeu_si256((void *)(to + 2 * i),
                            _mm512_cvtps_ph(_mm512_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT));
#elif defined(__F16C__)
    for (; i + 8 <= blocks; i += 8)
        _mm_storeu_si128((void *)(to + 2 * i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT));
#endif
    for (; i < blocks; i++)
        store16(to + 2 * i, mica__f32_to_f16(src[i]));
}

void MICA__CODEC(decode_bf16)(const void *src, float *dst, uint64_t blocks)
{
    const unsigned char *from = src;
    for (uint64_t i = 0; i < blocks; i++)
        dst[i] = mica__bf16_to_f32(load16(from + 2 * i));
}

void MICA__CODEC(encode_bf16)(const float *src, const float *importance, void *dst, uint64_t blocks)
{
    (void)importance;
    unsigned char *to = dst;
    for (uint64_t i = 0; i < blocks; i++)
        store16(to + 2 * i, mica__f32_to_bf16(src[i]));
}

void MICA__CODEC(decode_f64)(const void *src, float *dst, uint64_t blocks)
{
    const unsigned char *from = src;
    for (uint64_t i = 0; i < blocks; i++) {
        double value;
        memcpy(&value, from + 8 * i, sizeof value);
        dst[i] = (float)value;
    }
}

void MICA__CODEC(encode_f64)(const float *src, const float *importance, void *dst, uint64_t blocks)
{
    (void)importance;
    unsigned char *to = dst;
    for (uint64_t i = 0; i < blocks; i++) {
        const double value = src[i];
        memcpy(to + 8 * i, &value, sizeof value);
    }
}

void MICA__CODEC(decode_f8_e4m3)(const void *src, float *dst, uint64_t blocks)
{
    const unsigned char *from = src;
    for (uint64_t i = 0; i < blocks; i++)
        dst[i] = mica__f8_e4m3_to_f32(from[i]);
}

void MICA__CODEC(encode_f8_e4m3)(const float *src, const float *importance, void *dst, uint64_t blocks)
{
    (void)importance;
    unsigned char *to = dst;
    for (uint64_t i = 0; i < blocks; i++)
        to[i] = mica__f32_to_f8_e4m3(src[i]);
}

void MICA__CODEC(decode_f8_e5m2)(const void *src, float *dst, uint64_t blocks)
{
    const unsigned char *from = src;
    for (uint64_t i = 0; i < blocks; i++)
        dst[i] = mica__f8_e5m2_to_f32(from[i]);
}

void MICA__CODEC(encode_f8_e5m2)(const float *src, const float *importance, void *dst, uint64_t blocks)
{
    (void)importance;
    unsigned char *to = dst;
    for (uint64_t i = 0; i < blocks; i++)
        to[i] = mica__f32_to_f8_e5m2(src[i]);
}
