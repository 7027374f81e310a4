/* blocks.c - GGML block formats to and from f32. One pair of functions per type, one table row per pair. */
#include "quant/quant.h"

#include <math.h>
#include <string.h>

#include "base/half.h"

void mica__q4_k_scales(const uint8_t packed[12], uint8_t scale[8], uint8_t min[8])
{
    for (int j = 0; j < 4; j++) {
        scale[j] = packed[j] & 63;
        min[j] = packed[j + 4] & 63;
        scale[j + 4] = (uint8_t)((packed[j + 8] & 15) | (packed[j] >> 6) << 4);
        min[j + 4] = (uint8_t)((packed[j + 8] >> 4) | (packed[j + 4] >> 6) << 4);
    }
}

static void q4_k_pack_scales(const uint8_t scale[8], const uint8_t min[8], uint8_t packed[12])
{
    for (int j = 0; j < 4; j++) {
        packed[j] = (uint8_t)(scale[j] | (scale[j + 4] >> 4) << 6);
        packed[j + 4] = (uint8_t)(min[j] | (min[j + 4] >> 4) << 6);
        packed[j + 8] = (uint8_t)((scale[j + 4] & 15) | (min[j + 4] & 15) << 4);
    }
}

static void decode_q4_0(const void *src, float *dst)
{
    mica__block_q4_0 block;
    memcpy(&block, src, sizeof block);
    const float d = mica__f16_to_f32(block.d);
    for (int j = 0; j < 16; j++) {
        dst[j] = (float)((block.qs[j] & 15) - 8) * d;
        dst[j + 16] = (float)((block.qs[j] >> 4) - 8) * d;
    }
}

static void decode_q8_0(const void *src, float *dst)
{
    mica__block_q8_0 block;
    memcpy(&block, src, sizeof block);
    const float d = mica__f16_to_f32(block.d);
    for (int j = 0; j < 32; j++)
        dst[j] = (float)block.qs[j] * d;
}

static void decode_q4_k(const void *src, float *dst)
{
    mica__block_q4_k block;
    memcpy(&block, src, sizeof block);
    const float d = mica__f16_to_f32(block.d), dmin = mica__f16_to_f32(block.dmin);
    uint8_t scale[8], min[8];
    mica__q4_k_scales(block.scales, scale, min);
    for (int s = 0; s < 8; s++) {
        const float step = d * (float)scale[s], low = dmin * (float)min[s];
        for (int l = 0; l < 32; l++) {
            const uint8_t byte = block.qs[s / 2 * 32 + l];
            dst[s * 32 + l] = step * (float)(s % 2 != 0 ? byte >> 4 : byte & 15) - low;
        }
    }
}

static void decode_q6_k(const void *src, float *dst)
{
    mica__block_q6_k block;
    memcpy(&block, src, sizeof block);
    const float d = mica__f16_to_f32(block.d);
    for (int i = 0; i < 256; i++) {
        const int half = i / 128, t = i % 128 / 32, l = i % 32;
        const int low = block.ql[64 * half + 32 * (t % 2) + l] >> (t / 2 * 4) & 15;
        const int high = block.qh[32 * half + l] >> (2 * t) & 3;
        const int8_t scale = block.scales[i / 16];
        dst[i] = d * (float)scale * (float)((low | high << 4) - 32);
    }
}

static int clamp_int(float value, int low, int high)
{
    const float rounded = nearbyintf(value);
    return rounded < (float)low ? low : rounded > (float)high ? high : (int)rounded;
}

/* The value with the greatest magnitude, with its sign. */
static float signed_peak(const float *x, int n)
{
    float peak = 0;
    for (int i = 0; i < n; i++)
        if (fabsf(x[i]) > fabsf(peak))
            peak = x[i];
    return peak;
}

static float inverse(float x)
{
    return x != 0 ? 1.0f / x : 0.0f;
}

/* The peak becomes -8, the end of the range that has one value more. */
static void encode_q4_0(const float *src, void *dst)
{
    mica__block_q4_0 block;
    block.d = mica__f32_to_f16(signed_peak(src, 32) / -8.0f);
    const float id = inverse(mica__f16_to_f32(block.d));
    for (int j = 0; j < 16; j++)
        block.qs[j] =
            (uint8_t)(clamp_int(src[j] * id + 8.0f, 0, 15) | clamp_int(src[j + 16] * id + 8.0f, 0, 15) << 4);
    memcpy(dst, &block, sizeof block);
}

static void encode_q8_0(const float *src, void *dst)
{
    mica__block_q8_0 block;
    block.d = mica__f32_to_f16(fabsf(signed_peak(src, 32)) / 127.0f);
    const float id = inverse(mica__f16_to_f32(block.d));
    for (int j = 0; j < 32; j++)
        block.qs[j] = (int8_t)clamp_int(src[j] * id, -127, 127);
    memcpy(dst, &block, sizeof block);
}

static void encode_q4_k(const float *src, void *dst)
{
    mica__block_q4_k block = {0};
    float step[8], low[8], most_step = 0, most_low = 0;
    for (int s = 0; s < 8; s++) {
        float min = 0, max = 0; /* the format's minimum is never above zero */
        for (int l = 0; l < 32; l++) {
            min = fminf(min, src[s * 32 + l]);
            max = fmaxf(max, src[s * 32 + l]);
        }
        step[s] = (max - min) / 15.0f;
        low[s] = -min;
        most_step = fmaxf(most_step, step[s]);
        most_low = fmaxf(most_low, low[s]);
    }
    block.d = mica__f32_to_f16(most_step / 63.0f);
    block.dmin = mica__f32_to_f16(most_low / 63.0f);
    const float d = mica__f16_to_f32(block.d), dmin = mica__f16_to_f32(block.dmin);
    uint8_t scale[8], min[8];
    for (int s = 0; s < 8; s++) {
        scale[s] = (uint8_t)clamp_int(step[s] * inverse(d), 0, 63);
        min[s] = (uint8_t)clamp_int(low[s] * inverse(dmin), 0, 63);
        const float id = inverse(d * (float)scale[s]), offset = dmin * (float)min[s];
        for (int l = 0; l < 32; l++)
            block.qs[s / 2 * 32 + l] |=
                (uint8_t)(clamp_int((src[s * 32 + l] + offset) * id, 0, 15) << s % 2 * 4);
    }
    q4_k_pack_scales(scale, min, block.scales);
    memcpy(dst, &block, sizeof block);
}

static void encode_q6_k(const float *src, void *dst)
{
    mica__block_q6_k block = {0};
    float step[16];
    for (int g = 0; g < 16; g++)
        step[g] = signed_peak(src + 16 * g, 16) / -32.0f;
    block.d = mica__f32_to_f16(signed_peak(step, 16) / -128.0f);
    const float d = mica__f16_to_f32(block.d);
    for (int i = 0; i < 256; i++) {
        const int half = i / 128, t = i % 128 / 32, l = i % 32;
        const int8_t scale = (int8_t)clamp_int(step[i / 16] * inverse(d), -128, 127);
        const int q = clamp_int(src[i] * inverse(d * (float)scale), -32, 31) + 32;
        block.scales[i / 16] = scale;
        block.ql[64 * half + 32 * (t % 2) + l] |= (uint8_t)((q & 15) << t / 2 * 4);
        block.qh[32 * half + l] |= (uint8_t)(q >> 4 << 2 * t);
    }
    memcpy(dst, &block, sizeof block);
}

typedef struct block_codec {
    void (*decode)(const void *src, float *dst);
    void (*encode)(const float *src, void *dst);
} block_codec;

static const block_codec codecs[MICA_DTYPE_COUNT] = {
    [MICA_DTYPE_Q4_0] = {decode_q4_0, encode_q4_0},
    [MICA_DTYPE_Q8_0] = {decode_q8_0, encode_q8_0},
    [MICA_DTYPE_Q4_K] = {decode_q4_k, encode_q4_k},
    [MICA_DTYPE_Q6_K] = {decode_q6_k, encode_q6_k},
};

bool mica__quant_known(uint16_t dtype)
{
    return dtype < MICA_DTYPE_COUNT && codecs[dtype].decode != NULL;
}

void mica__quant_decode_row(uint16_t dtype, const void *src, float *dst, uint64_t n)
{
    if (!mica__quant_known(dtype)) {
        memset(dst, 0, n * sizeof *dst);
        return;
    }
    const uint32_t elements = mica_dtype_block_elements((mica_dtype)dtype);
    const uint32_t bytes = mica_dtype_block_bytes((mica_dtype)dtype);
    const unsigned char *block = src;
    for (uint64_t i = 0; i + elements <= n; i += elements, block += bytes)
        codecs[dtype].decode(block, dst + i);
}

void mica__quant_encode_row(uint16_t dtype, const float *src, void *dst, uint64_t n)
{
    if (!mica__quant_known(dtype))
        return;
    const uint32_t elements = mica_dtype_block_elements((mica_dtype)dtype);
    const uint32_t bytes = mica_dtype_block_bytes((mica_dtype)dtype);
    unsigned char *block = dst;
    for (uint64_t i = 0; i + elements <= n; i += elements, block += bytes)
        codecs[dtype].encode(src + i, block);
}
