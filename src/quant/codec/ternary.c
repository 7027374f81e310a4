/* ternary.c - blocks of 256 values of -1, 0 or 1 times a scale: tq1_0 tq2_0. */
#include "quant/codec/levels.h"

/* The nearest of -1, 0, 1 as 0, 1, 2; halves go outwards, NaN to the middle. */
static inline int digit(float x)
{
    return 1 + (x >= 0.5f) - (x <= -0.5f);
}

/* Byte m of `bytes` holds the `digits` digits of x[m], x[m + bytes] .. as a fraction of 256, so that multiplying by
 * three moves one after another above the byte. Rounded up, or the last digit would be lost. */
static inline void pack_digits(const float *x, float inverse, int bytes, int digits, uint8_t *out)
{
    for (int m = 0; m < bytes; m++) {
        int number = 0;
        for (int n = 0; n < 5; n++)
            number = 3 * number + (n < digits ? digit(x[m + n * bytes] * inverse) : 0);
        out[m] = (uint8_t)((number * 256 + 242) / 243);
    }
}

static inline void unpack_digits(const uint8_t *in, float d, int bytes, int digits, float *dst)
{
    static const uint8_t power[5] = {1, 3, 9, 27, 81};
    for (int n = 0; n < digits; n++)
        for (int m = 0; m < bytes; m++) {
            const uint8_t rest = (uint8_t)(in[m] * power[n]);
            dst[n * bytes + m] = (float)((rest * 3 >> 8) - 1) * d;
        }
}

void MICA__CODEC(decode_tq1_0)(const void *src, float *dst, uint64_t blocks)
{
    const unsigned char *from = src;
    for (uint64_t b = 0; b < blocks; b++, from += sizeof(mica__block_tq1_0), dst += 256) {
        mica__block_tq1_0 block;
        memcpy(&block, from, sizeof block);
        const float d = mica__f16_to_f32(block.d);
        unpack_digits(block.qs, d, 32, 5, dst);
        unpack_digits(block.qs + 32, d, 16, 5, dst + 160);
        unpack_digits(block.qh, d, 4, 4, dst + 240);
    }
}

void MICA__CODEC(encode_tq1_0)(const float *src, const float *importance, void *dst, uint64_t blocks)
{
    (void)importance;
    unsigned char *to = dst;
    for (uint64_t b = 0; b < blocks; b++, src += 256, to += sizeof(mica__block_tq1_0)) {
        mica__block_tq1_0 block;
        const float d = mica__levels_peak(src, 256), inverse = d != 0 ? 1.0f / d : 0.0f;
        block.d = mica__f32_to_f16(d);
        pack_digits(src, inverse, 32, 5, block.qs);
        pack_digits(src + 160, inverse, 16, 5, block.qs + 32);
        pack_digits(src + 240, inverse, 4, 4, block.qh);
        memcpy(to, &block, sizeof block);
    }
}

void MICA__CODEC(decode_tq2_0)(const void *src, float *dst, uint64_t blocks)
{
    const unsigned char *from = src;
    for (uint64_t b = 0; b < blocks; b++, from += sizeof(mica__block_tq2_0)) {
        mica__block_tq2_0 block;
        memcpy(&block, from, sizeof block);
        const float d = mica__f16_to_f32(block.d);
        for (int half = 0; half < 2; half++)
            for (int t = 0; t < 4; t++, dst += 32)
                for (int l = 0; l < 32; l++)
                    dst[l] = (float)((block.qs[32 * half + l] >> 2 * t & 3) - 1) * d;
    }
}

void MICA__CODEC(encode_tq2_0)(const float *src, const float *importance, void *dst, uint64_t blocks)
{
    (void)importance;
    unsigned char *to = dst;
    for (uint64_t b = 0; b < blocks; b++, src += 256, to += sizeof(mica__block_tq2_0)) {
        mica__block_tq2_0 block;
        const float d = mica__levels_peak(src, 256), inverse = d != 0 ? 1.0f / d : 0.0f;
        block.d = mica__f32_to_f16(d);
        for (int i = 0; i < 64; i++) {
            const float *x = src + i / 32 * 128 + i % 32;
            block.qs[i] = (uint8_t)(digit(x[0] * inverse) | digit(x[32] * inverse) << 2 |
                                    digit(x[64] * inverse) << 4 | digit(x[96] * inverse) << 6);
        }
        memcpy(to, &block, sizeof block);
    }
}
