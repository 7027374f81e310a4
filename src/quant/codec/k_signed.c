/*
 * k_signed.c - blocks of 256 values with signed codes: q3_k and q6_k with scales for each 16, q8_k with one scale.
 */
#include "quant/codec.h"

#include <math.h>

#include "quant/codec/fit.h"
#include "quant/codec/lanes.h"

#define BLOCK 256

/* Fits the 16 runs of a block. Scale codes run low..high, codes[16 r + i] from 0 to 2 most - 1. */
static void encode_block(const float *src, const float *importance, float most, float low, float high,
                         uint16_t *d, float scale_code[FIT_RUNS], uint8_t codes[BLOCK])
{
    mica__fit fit;
    MICA__CODEC(fit_load)(&fit, src, importance, 16, FIT_RUNS);
    MICA__CODEC(fit_signed)(&fit, most);
    for (int round = 0; round < FIT_ROUNDS; round++) {
        for (int r = 0; round > 0 && r < FIT_RUNS; r++)
            fit.scale[r] = fit.sqq[r] > 0 ? fit.sxq[r] / fit.sqq[r] : 0;
        const float step = MICA__CODEC(fit_codes)(fit.scale, fit.sqq, FIT_RUNS, low, high, scale_code, d);
        for (int r = 0; r < FIT_RUNS; r++)
            fit.scale[r] = step * scale_code[r];
        MICA__CODEC(fit_quantise)(&fit, -most, most - 1);
    }
    for (int r = 0; r < FIT_RUNS; r++)
        for (int i = 0; i < 16; i++)
            codes[16 * r + i] = (uint8_t)(int)(fit.q[i][r] + most);
}

static void put_q3_scales(const float code[FIT_RUNS], uint8_t packed[12])
{
    memset(packed, 0, 12);
    for (int j = 0; j < 16; j++) {
        const int scale = (int)code[j] + 32;
        packed[j % 8] |= (uint8_t)((scale & 15) << j / 8 * 4);
        packed[8 + j % 4] |= (uint8_t)(scale >> 4 << j / 4 * 2);
    }
}

void MICA__CODEC(encode_q3_k)(const float *src, const float *importance, void *dst, uint64_t blocks)
{
    unsigned char *to = dst;
    for (uint64_t b = 0; b < blocks; b++, to += sizeof(mica__block_q3_k)) {
        mica__block_q3_k block = {0};
        float scale[FIT_RUNS];
        uint8_t codes[BLOCK];
        encode_block(src + b * BLOCK, importance != NULL ? importance + b * BLOCK : NULL, 4, -32, 31,
                     &block.d, scale, codes);
        put_q3_scales(scale, block.scales);
        for (int t = 0; t < 8; t++) /* 32 values each */
            for (int l = 0; l < 32; l++) {
                block.hmask[l] |= (uint8_t)(codes[32 * t + l] >> 2 << t);
                block.qs[32 * (t / 4) + l] |= (uint8_t)((codes[32 * t + l] & 3) << t % 4 * 2);
            }
        memcpy(to, &block, sizeof block);
    }
}

void MICA__CODEC(encode_q6_k)(const float *src, const float *importance, void *dst, uint64_t blocks)
{
    unsigned char *to = dst;
    for (uint64_t b = 0; b < blocks; b++, to += sizeof(mica__block_q6_k)) {
        mica__block_q6_k block = {0};
        float scale[FIT_RUNS];
        uint8_t codes[BLOCK];
        encode_block(src + b * BLOCK, importance != NULL ? importance + b * BLOCK : NULL, 32, -128, 127,
                     &block.d, scale, codes);
        for (int s = 0; s < 16; s++)
            block.scales[s] = (int8_t)(int)scale[s];
        for (int t = 0; t < 8; t++) /* 32 values each */
            for (int l = 0; l < 32; l++) {
                block.ql[64 * (t / 4) + 32 * (t % 2) + l] |=
                    (uint8_t)((codes[32 * t + l] & 15) << t % 4 / 2 * 4);
                block.qh[32 * (t / 4) + l] |= (uint8_t)(codes[32 * t + l] >> 4 << t % 4 * 2);
            }
        memcpy(to, &block, sizeof block);
    }
}

void MICA__CODEC(decode_q3_k)(const void *src, float *dst, uint64_t blocks)
{
    const unsigned char *from = src;
    for (uint64_t b = 0; b < blocks; b++, from += sizeof(mica__block_q3_k), dst += BLOCK) {
        mica__block_q3_k block;
        uint8_t scale[16];
        memcpy(&block, from, sizeof block);
        const float d = mica__f16_to_f32(block.d);
        mica__q3_k_scales(block.scales, scale);
        for (int s = 0; s < 16; s++) { /* of 16 values, bytes 16 (s % 2).. */
            const float step = d * (float)(scale[s] - 32);
            const uint8_t *qs = block.qs + 32 * (s / 8) + 16 * (s % 2), *high = block.hmask + 16 * (s % 2);
            const int shift = s / 2 % 4 * 2, bit = s / 2;
            for (int l = 0; l < 16; l++)
                dst[16 * s + l] = step * (float)(((qs[l] >> shift & 3) | (high[l] >> bit & 1) << 2) - 4);
        }
    }
}

void MICA__CODEC(decode_q6_k)(const void *src, float *dst, uint64_t blocks)
{
    const unsigned char *from = src;
    for (uint64_t b = 0; b < blocks; b++, from += sizeof(mica__block_q6_k), dst += BLOCK) {
        mica__block_q6_k block;
        memcpy(&block, from, sizeof block);
        const float d = mica__f16_to_f32(block.d);
        for (int s = 0; s < 16; s++) { /* of 16 values in the 32 of t */
            const int half = s / 8, t = s / 2 % 4, at = 16 * (s % 2);
            const uint8_t *low = block.ql + 64 * half + 32 * (t % 2) + at, *high = block.qh + 32 * half + at;
            const float step = d * (float)block.scales[s];
            const int low_shift = t / 2 * 4, high_shift = 2 * t;
            for (int l = 0; l < 16; l++)
                dst[16 * s + l] =
                    step * (float)(((low[l] >> low_shift & 15) | (high[l] >> high_shift & 3) << 4) - 32);
        }
    }
}

/* The first value with the greatest magnitude, with its sign. */
static float signed_peak(const float *x)
{
    lane_f least = {0}, most = {0};
    for (int i = 0; i < BLOCK; i += LANES) {
        least = lane_min(lane_load(x + i), least);
        most = lane_max(lane_load(x + i), most);
    }
    const float min = lane_lowest(least), max = lane_highest(most);
    if (max == -min)
        for (int i = 0; i < BLOCK; i++)
            if (fabsf(x[i]) == max)
                return x[i];
    return max > -min ? max : min;
}

/* The peak becomes -127. */
static void encode_q8_k(const float *src, mica__block_q8_k *block)
{
    const float peak = signed_peak(src), scale = peak != 0 ? -127.0f / peak : 0.0f;
    block->d = peak != 0 ? 1.0f / scale : 0.0f;
    for (int i = 0; i < BLOCK; i += LANES)
        lane_to_bytes(block->qs + i,
                      lane_round(lane_clamp(lane_load(src + i) * scale, lane_set(-127), lane_set(127))));
    for (int s = 0; s < 16; s++) {
        int sum = 0;
        for (int i = 0; i < 16; i++)
            sum += block->qs[16 * s + i];
        block->bsums[s] = (int16_t)sum;
    }
}

void MICA__CODEC(encode_q8_k)(const float *src, const float *importance, void *dst, uint64_t blocks)
{
    (void)importance;
    unsigned char *to = dst;
    for (uint64_t b = 0; b < blocks; b++, to += sizeof(mica__block_q8_k)) {
        mica__block_q8_k block;
        encode_q8_k(src + b * BLOCK, &block);
        memcpy(to, &block, sizeof block);
    }
}

void MICA__CODEC(decode_q8_k)(const void *src, float *dst, uint64_t blocks)
{
    const unsigned char *from = src;
    for (uint64_t b = 0; b < blocks; b++, from += sizeof(mica__block_q8_k), dst += BLOCK) {
        mica__block_q8_k block;
        memcpy(&block, from, sizeof block);
        for (int i = 0; i < BLOCK; i++)
            dst[i] = block.d * (float)block.qs[i];
    }
}
