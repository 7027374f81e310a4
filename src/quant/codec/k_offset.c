/*
 * k_offset.c - blocks of 256 values with scales and minima of their own blocks inside: q2_k q4_k q5_k.
 *
 * Encoding: the best line for each inner block, then the two f16 steps and the codes of scales and minima that keep
 * the most of it, then the values once more on the lines that the codes can say.
 */
#include "quant/codec.h"

#include "quant/codec/fit.h"

#define BLOCK 256
#define GROUP (2 * BLOCK) /* values in a fit of 16 runs of 32 */

/* ---- fits to codes ---- */

/* Runs of one block in a fit and what the format has for them. */
typedef struct block_codes {
    uint16_t d, dmin;
    uint8_t scale[FIT_RUNS], min[FIT_RUNS];
} block_codes;

/* Chooses the steps and the codes for runs [first, first + runs) and makes scale and min what they say. */
static void choose_codes(mica__fit *fit, int first, int runs, float most, block_codes *out)
{
    float target[FIT_RUNS], weight[FIT_RUNS], code[FIT_RUNS];
    for (int i = 0; i < runs; i++) {
        const int r = first + i;
        /* How the error grows with the scale while the min follows; where there is no min, it stays. */
        const float slack = fit->min[r] > 0 ? fit->sq[r] * fit->sq[r] / fit->sw[r] : 0;
        target[i] = fit->scale[r] > 0 ? fit->scale[r] : 0;
        weight[i] = fit->sqq[r] - slack;
    }
    const float d = MICA__CODEC(fit_codes)(target, weight, runs, 0, most, code, &out->d);
    for (int i = 0; i < runs; i++) {
        const int r = first + i;
        out->scale[i] = (uint8_t)(int)code[i];
        fit->scale[r] = d * code[i];
        const float min = (fit->scale[r] * fit->sq[r] - fit->sx[r]) / fit->sw[r];
        target[i] = min > 0 ? min : 0;
        weight[i] = fit->sw[r];
    }
    const float dmin = MICA__CODEC(fit_codes)(target, weight, runs, 0, most, code, &out->dmin);
    for (int i = 0; i < runs; i++) {
        out->min[i] = (uint8_t)(int)code[i];
        fit->min[first + i] = dmin * code[i];
    }
}

/* Fits 16 runs of n values, of which `runs` are there, `per_block` of them in a block. codes: [16][n]. */
static void encode_group(const float *src, const float *importance, int n, uint64_t runs, int per_block,
                         float most, float most_code, block_codes *blocks, uint8_t *codes)
{
    mica__fit fit;
    MICA__CODEC(fit_load)(&fit, src, importance, n, runs);
    MICA__CODEC(fit_offset)(&fit, most);
    for (int round = 0; round < FIT_ROUNDS; round++) {
        if (round > 0)
            MICA__CODEC(fit_solve)(&fit);
        for (int b = 0; b < FIT_RUNS / per_block; b++)
            choose_codes(&fit, b * per_block, per_block, most_code, &blocks[b]);
        MICA__CODEC(fit_quantise)(&fit, 0, most);
    }
    for (int r = 0; r < FIT_RUNS; r++)
        for (int i = 0; i < n; i++)
            codes[r * n + i] = (uint8_t)(int)fit.q[i][r];
}

/* ---- bytes ---- */

static void put_pairs(const uint8_t *codes, uint8_t *qs)
{
    for (int half = 0; half < 2; half++, codes += 128, qs += 32)
        for (int l = 0; l < 32; l++)
            qs[l] = (uint8_t)(codes[l] | codes[32 + l] << 2 | codes[64 + l] << 4 | codes[96 + l] << 6);
}

static void put_nibbles(const uint8_t *codes, uint8_t *qs)
{
    for (int p = 0; p < 4; p++)
        for (int l = 0; l < 32; l++)
            qs[32 * p + l] = (uint8_t)((codes[64 * p + l] & 15) | (codes[64 * p + 32 + l] & 15) << 4);
}

static void put_scales(const block_codes *from, uint8_t packed[12])
{
    for (int j = 0; j < 4; j++) {
        packed[j] = (uint8_t)(from->scale[j] | (from->scale[j + 4] >> 4) << 6);
        packed[j + 4] = (uint8_t)(from->min[j] | (from->min[j + 4] >> 4) << 6);
        packed[j + 8] = (uint8_t)((from->scale[j + 4] & 15) | (from->min[j + 4] & 15) << 4);
    }
}

static void put_q4_k(const block_codes *from, const uint8_t *codes, unsigned char *to)
{
    mica__block_q4_k block = {.d = from->d, .dmin = from->dmin};
    put_scales(from, block.scales);
    put_nibbles(codes, block.qs);
    memcpy(to, &block, sizeof block);
}

static void put_q5_k(const block_codes *from, const uint8_t *codes, unsigned char *to)
{
    mica__block_q5_k block = {.d = from->d, .dmin = from->dmin};
    put_scales(from, block.scales);
    put_nibbles(codes, block.qs);
    for (int s = 0; s < 8; s++)
        for (int l = 0; l < 32; l++)
            block.qh[l] |= (uint8_t)(codes[32 * s + l] >> 4 << s);
    memcpy(to, &block, sizeof block);
}

/* ---- codecs ---- */

void MICA__CODEC(encode_q2_k)(const float *src, const float *importance, void *dst, uint64_t blocks)
{
    unsigned char *to = dst;
    for (uint64_t b = 0; b < blocks; b++, to += sizeof(mica__block_q2_k)) {
        block_codes from;
        uint8_t codes[BLOCK];
        encode_group(src + b * BLOCK, importance != NULL ? importance + b * BLOCK : NULL, 16, 16, 16, 3, 15,
                     &from, codes);
        mica__block_q2_k block = {.d = from.d, .dmin = from.dmin};
        for (int s = 0; s < 16; s++)
            block.scales[s] = (uint8_t)(from.scale[s] | from.min[s] << 4);
        put_pairs(codes, block.qs);
        memcpy(to, &block, sizeof block);
    }
}

/* Two blocks at a time fill the lanes. */
static void encode_wide(const float *src, const float *importance, unsigned char *to, uint64_t blocks,
                        float most, size_t bytes,
                        void (*put)(const block_codes *from, const uint8_t *codes, unsigned char *to))
{
    for (uint64_t b = 0; b < blocks; b += 2) {
        block_codes from[2];
        uint8_t codes[GROUP];
        const int present = blocks - b < 2 ? 1 : 2;
        encode_group(src + b * BLOCK, importance != NULL ? importance + b * BLOCK : NULL, 32,
                     8 * (uint64_t)present, 8, most, 63, from, codes);
        for (int i = 0; i < present; i++, to += bytes)
            put(&from[i], codes + i * BLOCK, to);
    }
}

void MICA__CODEC(encode_q4_k)(const float *src, const float *importance, void *dst, uint64_t blocks)
{
    encode_wide(src, importance, dst, blocks, 15, sizeof(mica__block_q4_k), put_q4_k);
}

void MICA__CODEC(encode_q5_k)(const float *src, const float *importance, void *dst, uint64_t blocks)
{
    encode_wide(src, importance, dst, blocks, 31, sizeof(mica__block_q5_k), put_q5_k);
}

void MICA__CODEC(decode_q2_k)(const void *src, float *dst, uint64_t blocks)
{
    const unsigned char *from = src;
    for (uint64_t b = 0; b < blocks; b++, from += sizeof(mica__block_q2_k), dst += BLOCK) {
        mica__block_q2_k block;
        memcpy(&block, from, sizeof block);
        const float d = mica__f16_to_f32(block.d), dmin = mica__f16_to_f32(block.dmin);
        for (int s = 0; s < 16;
             s++) { /* of 16 values: half s / 8, pair of bits s / 2 % 4, bytes 16 (s % 2).. */
            const float step = d * (float)(block.scales[s] & 15), low = dmin * (float)(block.scales[s] >> 4);
            const uint8_t *qs = block.qs + 32 * (s / 8) + 16 * (s % 2);
            const int shift = s / 2 % 4 * 2;
            for (int l = 0; l < 16; l++)
                dst[16 * s + l] = step * (float)(qs[l] >> shift & 3) - low;
        }
    }
}

/* Sub-blocks of 32 values. `fifth` holds the fifth bits, bit s of byte l; NULL: there are none. */
static inline void decode_wide(uint16_t h_d, uint16_t h_dmin, const uint8_t *scales, const uint8_t *nibbles,
                               const uint8_t *fifth, float *dst)
{
    static const uint8_t none[32] = {0};
    const float d = mica__f16_to_f32(h_d), dmin = mica__f16_to_f32(h_dmin);
    const uint8_t *high = fifth != NULL ? fifth : none;
    uint8_t scale[8], min[8];
    mica__q4_k_scales(scales, scale, min);
    for (int s = 0; s < 8; s++) {
        const float step = d * (float)scale[s], low = dmin * (float)min[s];
        const uint8_t *qs = nibbles + s / 2 * 32;
        const int shift = s % 2 * 4;
        for (int l = 0; l < 32; l++)
            dst[32 * s + l] = step * (float)((qs[l] >> shift & 15) | (high[l] >> s & 1) << 4) - low;
    }
}

void MICA__CODEC(decode_q4_k)(const void *src, float *dst, uint64_t blocks)
{
    const unsigned char *from = src;
    for (uint64_t b = 0; b < blocks; b++, from += sizeof(mica__block_q4_k), dst += BLOCK) {
        mica__block_q4_k block;
        memcpy(&block, from, sizeof block);
        decode_wide(block.d, block.dmin, block.scales, block.qs, NULL, dst);
    }
}

void MICA__CODEC(decode_q5_k)(const void *src, float *dst, uint64_t blocks)
{
    const unsigned char *from = src;
    for (uint64_t b = 0; b < blocks; b++, from += sizeof(mica__block_q5_k), dst += BLOCK) {
        mica__block_q5_k block;
        memcpy(&block, from, sizeof block);
        decode_wide(block.d, block.dmin, block.scales, block.qs, block.qh, dst);
    }
}
