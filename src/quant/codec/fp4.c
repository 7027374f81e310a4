/* fp4.c - blocks of 4-bit floats e2m1 (0 0.5 1 1.5 2 3 4 6 and their negatives) with a small scale: mxfp4 nvfp4. */
#include "quant/codec/levels.h"

#include <math.h>

static const int8_t twice[16] = {MICA__FP4_LEVELS};

/* 2 n values: value j becomes the low and value n + j the high nibble of byte j. */
static inline void pack(const float *x, float half, int n, uint8_t *qs)
{
    int32_t code[32];
    for (int j = 0; j < 2 * n; j++)
        code[j] = mica__levels_fp4(x[j], half);
    for (int j = 0; j < n; j++)
        qs[j] = (uint8_t)(code[j] | code[n + j] << 4);
}

/* Largest e2m1 is 1.5 * 2^2, so the scale is the peak's power of two less 2. The format's reference takes that power
 * from a rounded logarithm: a peak a few units below a power of two counts as that power. */
static uint8_t mx_exponent(float most)
{
    if (!(most > 0))
        return 0;
    const float e = floorf(log2f(most)) + 125.0f;
    return e < 0 ? 0 : e > 254 ? 254 : (uint8_t)e;
}

void MICA__CODEC(decode_mxfp4)(const void *src, float *dst, uint64_t blocks)
{
    const unsigned char *from = src;
    for (uint64_t b = 0; b < blocks; b++, from += sizeof(mica__block_mxfp4), dst += 32) {
        mica__block_mxfp4 block;
        memcpy(&block, from, sizeof block);
        int8_t q[32];
        mica__levels_of(twice, block.qs, q);
        const float half = mica__mxfp4_half(block.e);
        for (int j = 0; j < 32; j++)
            dst[j] = (float)q[j] * half;
    }
}

void MICA__CODEC(encode_mxfp4)(const float *src, const float *importance, void *dst, uint64_t blocks)
{
    (void)importance;
    unsigned char *to = dst;
    for (uint64_t b = 0; b < blocks; b++, src += 32, to += sizeof(mica__block_mxfp4)) {
        mica__block_mxfp4 block;
        block.e = mx_exponent(mica__levels_peak(src, 32));
        pack(src, mica__mxfp4_half(block.e), 16, block.qs);
        memcpy(to, &block, sizeof block);
    }
}

/* The scale byte by the format's own rounding: halves go up, everything from 256 on becomes 448 (0x7e), and what
 * rounds up out of the subnormals stays at the largest of them. */
static uint8_t nv_scale(float x)
{
    if (!(x > 0))
        return 0;
    if (x >= 256)
        return 0x7e;
    if (x < 0.015625f) { /* 2^-6: units of 2^-9 */
        const int units = (int)(x * 512.0f + 0.5f);
        return (uint8_t)(units > 7 ? 7 : units);
    }
    const uint32_t code = ((mica__f32_bits(x) >> 19) - (120u << 4) + 1) >> 1;
    return (uint8_t)(code >= 15 << 3 ? 0x7e : code);
}

void MICA__CODEC(decode_nvfp4)(const void *src, float *dst, uint64_t blocks)
{
    const unsigned char *from = src;
    for (uint64_t b = 0; b < blocks; b++, from += sizeof(mica__block_nvfp4)) {
        mica__block_nvfp4 block;
        memcpy(&block, from, sizeof block);
        for (int pair = 0; pair < 2;
             pair++) { /* 16 bytes: two sub-blocks' low nibbles, then their high ones */
            int8_t q[32];
            mica__levels_of(twice, block.qs + 16 * pair, q);
            for (int s = 0; s < 2; s++, dst += 16) {
                const float half = mica__nvfp4_half(block.d[2 * pair + s]);
                for (int j = 0; j < 8; j++)
                    dst[j] = (float)q[8 * s + j] * half;
                for (int j = 0; j < 8; j++)
                    dst[8 + j] = (float)q[16 + 8 * s + j] * half;
            }
        }
    }
}

void MICA__CODEC(encode_nvfp4)(const float *src, const float *importance, void *dst, uint64_t blocks)
{
    (void)importance;
    unsigned char *to = dst;
    for (uint64_t b = 0; b < blocks; b++, to += sizeof(mica__block_nvfp4)) {
        mica__block_nvfp4 block;
        for (int s = 0; s < 4; s++, src += 16) {
            block.d[s] = nv_scale(mica__levels_peak(src, 16) / 6.0f);
            const float half = mica__nvfp4_half(block.d[s]);
            pack(src, half != 0 ? half : INFINITY, 8, block.qs + 8 * s); /* no scale: all zeros */
        }
        memcpy(to, &block, sizeof block);
    }
}
