/* iq.c - the codebook formats that are only read: iq1_s iq1_m iq2_xxs iq2_xs iq2_s iq3_xxs iq3_s. */
#include "quant/codec.h"

#include "quant/bits.h"
#include "quant/iq_grid.h"

#define EACH_BYTE 0x0101010101010101u

/* A block taken apart: eight signed numbers a word, the first one lowest, and the scale of each run of 16. Written as
 * a whole before it is read: small stores that a wide load spans would stall. */
typedef struct parts {
    uint64_t q[32];
    float scale[16];
} parts;

static void put_parts(const parts *block, float *restrict dst)
{
    const int8_t *q = (const int8_t *)block->q;
    for (int run = 0; run < 16; run++, q += 16, dst += 16)
        for (int i = 0; i < 16; i++)
            dst[i] = block->scale[run] * (float)q[i];
}

/* Level numbers of the iq2 grids to 8, 25, 43: eight and seventeen for each, and one more for the last. */
static uint64_t iq2_eight(uint16_t entry)
{
    const uint64_t number = mica__bits_spread(entry, 2);
    return 8 * EACH_BYTE + (number << 4) + number + (number >> 1 & EACH_BYTE);
}

/* The values of two entries of four, as level numbers. */
static uint64_t iq3_eight(uint16_t first, uint16_t second)
{
    return mica__bits_spread((uint32_t)first | (uint32_t)second << 12, 3);
}

/* 4, 12, 20, 28, 36, 44, 52, 62: the last one is two above its place. */
static uint64_t iq3_xxs_eight(uint16_t first, uint16_t second)
{
    const uint64_t number = iq3_eight(first, second);
    return 4 * EACH_BYTE + 8 * number + ((number & number >> 1 & number >> 2 & EACH_BYTE) << 1);
}

/* Byte i is negated where bit i of signs is set. The bytes are 1 to 127, so no carry leaves one. */
static uint64_t negate(uint64_t bytes, uint32_t signs)
{
    const uint64_t ones = mica__bits_spread(signs, 1);
    return (bytes ^ ((ones << 8) - ones)) + ones;
}

/* Seven stored signs and the eighth, which makes the number of negative values even. */
static uint32_t even_signs(uint32_t seven)
{
    uint32_t odd = seven ^ seven >> 4;
    odd ^= odd >> 2;
    odd ^= odd >> 1;
    return seven | (odd & 1) << 7;
}

/* Eight values of the iq1 grid moved off their level by an eighth, counted in eighths: -9 to 9. The top bit keeps the
 * bytes apart while they are subtracted. */
static uint64_t iq1_eight(int index, bool down)
{
    const uint64_t eighths = 8 * mica__bits_spread(mica__iq1_grid[index], 2) + (down ? 0 : 2 * EACH_BYTE);
    return (eighths + (0x80 - 9) * EACH_BYTE) ^ 0x80 * EACH_BYTE;
}

void MICA__CODEC(decode_iq1_s)(const void *src, float *dst, uint64_t blocks)
{
    const unsigned char *from = src;
    for (uint64_t b = 0; b < blocks; b++, from += sizeof(mica__block_iq1_s), dst += 256) {
        mica__block_iq1_s block;
        parts p;
        memcpy(&block, from, sizeof block);
        const float d = mica__f16_to_f32(block.d);
        for (int s = 0; s < 8; s++) {
            const int qh = block.qh[s];
            for (int l = 0; l < 4; l++)
                p.q[4 * s + l] = iq1_eight(block.qs[4 * s + l] | (qh >> 3 * l & 7) << 8, (qh & 0x8000) != 0);
            p.scale[2 * s] = p.scale[2 * s + 1] = d * (float)(1 + 2 * (qh >> 12 & 7)) * 0.125f;
        }
        put_parts(&p, dst);
    }
}

void MICA__CODEC(decode_iq1_m)(const void *src, float *dst, uint64_t blocks)
{
    const unsigned char *from = src;
    for (uint64_t b = 0; b < blocks; b++, from += sizeof(mica__block_iq1_m), dst += 256) {
        mica__block_iq1_m block;
        parts p;
        memcpy(&block, from, sizeof block);
        const uint16_t *scales = block.scales;
        const float d = mica__f16_to_f32((uint16_t)(scales[0] >> 12 | scales[1] >> 12 << 4 |
                                                    scales[2] >> 12 << 8 | scales[3] >> 12 << 12));
        for (int e = 0; e < 32; e++) {
            const int qh = block.qh[e / 2] >> e % 2 * 4 & 15;
            p.q[e] = iq1_eight(block.qs[e] | (qh & 7) << 8, (qh & 8) != 0);
        }
        for (int run = 0; run < 16; run++)
            p.scale[run] = d * (float)(1 + 2 * (scales[run / 4] >> 3 * (run % 4) & 7)) * 0.125f;
        put_parts(&p, dst);
    }
}

void MICA__CODEC(decode_iq2_xxs)(const void *src, float *dst, uint64_t blocks)
{
    const unsigned char *from = src;
    for (uint64_t b = 0; b < blocks; b++, from += sizeof(mica__block_iq2_xxs), dst += 256) {
        mica__block_iq2_xxs block;
        parts p;
        memcpy(&block, from, sizeof block);
        const float d = mica__f16_to_f32(block.d);
        for (int s = 0; s < 8; s++) {
            uint32_t word;
            memcpy(&word, block.qs + 8 * s + 4, sizeof word);
            for (int l = 0; l < 4; l++)
                p.q[4 * s + l] = negate(iq2_eight(mica__iq2_xxs_grid[block.qs[8 * s + l]]),
                                        even_signs(word >> 7 * l & 127));
            p.scale[2 * s] = p.scale[2 * s + 1] = d * (0.5f + (float)(word >> 28)) * 0.25f;
        }
        put_parts(&p, dst);
    }
}

/* A nibble a run of 16, as iq2_xs and iq2_s have them. */
static void iq2_scales(float d, const uint8_t nibbles[8], float scale[16])
{
    for (int run = 0; run < 16; run++)
        scale[run] = d * (0.5f + (float)(nibbles[run / 2] >> run % 2 * 4 & 15)) * 0.25f;
}

void MICA__CODEC(decode_iq2_xs)(const void *src, float *dst, uint64_t blocks)
{
    const unsigned char *from = src;
    for (uint64_t b = 0; b < blocks; b++, from += sizeof(mica__block_iq2_xs), dst += 256) {
        mica__block_iq2_xs block;
        parts p;
        memcpy(&block, from, sizeof block);
        for (int e = 0; e < 32; e++)
            p.q[e] = negate(iq2_eight(mica__iq2_xs_grid[block.qs[e] & 511]), even_signs(block.qs[e] >> 9));
        iq2_scales(mica__f16_to_f32(block.d), block.scales, p.scale);
        put_parts(&p, dst);
    }
}

void MICA__CODEC(decode_iq2_s)(const void *src, float *dst, uint64_t blocks)
{
    const unsigned char *from = src;
    for (uint64_t b = 0; b < blocks; b++, from += sizeof(mica__block_iq2_s), dst += 256) {
        mica__block_iq2_s block;
        parts p;
        memcpy(&block, from, sizeof block);
        for (int e = 0; e < 32; e++) {
            const int index = block.qs[e] | (block.qh[e / 4] >> 2 * (e % 4) & 3) << 8;
            p.q[e] = negate(iq2_eight(mica__iq2_s_grid[index]), block.signs[e]);
        }
        iq2_scales(mica__f16_to_f32(block.d), block.scales, p.scale);
        put_parts(&p, dst);
    }
}

void MICA__CODEC(decode_iq3_xxs)(const void *src, float *dst, uint64_t blocks)
{
    const unsigned char *from = src;
    for (uint64_t b = 0; b < blocks; b++, from += sizeof(mica__block_iq3_xxs), dst += 256) {
        mica__block_iq3_xxs block;
        parts p;
        memcpy(&block, from, sizeof block);
        const float d = mica__f16_to_f32(block.d);
        for (int s = 0; s < 8; s++) {
            const uint8_t *qs = block.qs + 8 * s;
            uint32_t word;
            memcpy(&word, block.words + 4 * s, sizeof word);
            for (int l = 0; l < 4; l++)
                p.q[4 * s + l] =
                    negate(iq3_xxs_eight(mica__iq3_xxs_grid[qs[2 * l]], mica__iq3_xxs_grid[qs[2 * l + 1]]),
                           even_signs(word >> 7 * l & 127));
            p.scale[2 * s] = p.scale[2 * s + 1] = d * (0.5f + (float)(word >> 28)) * 0.5f;
        }
        put_parts(&p, dst);
    }
}

void MICA__CODEC(decode_iq3_s)(const void *src, float *dst, uint64_t blocks)
{
    const unsigned char *from = src;
    for (uint64_t b = 0; b < blocks; b++, from += sizeof(mica__block_iq3_s), dst += 256) {
        mica__block_iq3_s block;
        parts p;
        memcpy(&block, from, sizeof block);
        const float d = mica__f16_to_f32(block.d);
        for (int e = 0; e < 32; e++) {
            const int qh = block.qh[e / 4] >> 2 * (e % 4);
            const uint16_t first = mica__iq3_s_grid[block.qs[2 * e] | (qh & 1) << 8];
            const uint16_t second = mica__iq3_s_grid[block.qs[2 * e + 1] | (qh & 2) << 7];
            p.q[e] = negate(EACH_BYTE + 2 * iq3_eight(first, second), block.signs[e]);
        }
        for (int run = 0; run < 16; run++)
            p.scale[run] = d * (float)(1 + 2 * (block.scales[run / 4] >> run / 2 % 2 * 4 & 15));
        put_parts(&p, dst);
    }
}
