/*
 * packed_blocks.c - canonical blocks into the packed layout, one row at a time. Both layouts are in block.h and
 * packed.h; this is where they meet.
 */
#include "quant/packed_blocks.h"

#include <stddef.h>

#include "mica/types.h"
#include "quant/block.h"
#include "quant/packed_words.h"

/* Bodies that a type's own constants make short. */
#define INLINE static inline __attribute__((always_inline))

/* Bit j of four bytes as byte j, 0 or 1. */
static inline mica__words spread_bits(const unsigned char *bits)
{
    mica__words w;
    for (int h = 0; h < 4; h++) {
        const uint64_t each = bits[h] * (uint64_t)0x0101010101010101 & 0x8040201008040201;
        w.word[h] = (each + 0x7f7f7f7f7f7f7f7f) >> 7;
    }
    return w;
}

/* 32 values: `scales` numbers of two bytes, the fifth bits if there are any, nibbles that lie as in the plane. */
INLINE void write_32(const unsigned char *src, uint32_t r, uint64_t blocks, unsigned char *dst,
                     const uint32_t scales, const uint32_t fifth)
{
    const uint32_t bits = 2 * scales, nibbles = bits + 4 * fifth;
    for (; blocks > 0; blocks--, src += nibbles + 16, dst += 16 * scales + 128 + 32 * fifth) {
        unsigned char *part = dst + 16 * scales + 4 * r;
        for (uint32_t s = 0; s < scales; s++)
            memcpy(dst + 16 * s + 2 * r, src + 2 * s, 2);
        for (int v = 0; v < 4; v++)
            memcpy(part + 32 * v, src + nibbles + 4 * v, 4);
        if (fifth) {
            const mica__words flags = spread_bits(src + bits);
            mica__put_bits(&flags, part + 128);
        }
    }
}

static void write_q4_0(const unsigned char *src, uint32_t r, uint64_t blocks, unsigned char *dst)
{
    write_32(src, r, blocks, dst, 1, 0);
}

static void write_q4_1(const unsigned char *src, uint32_t r, uint64_t blocks, unsigned char *dst)
{
    write_32(src, r, blocks, dst, 2, 0);
}

static void write_q5_0(const unsigned char *src, uint32_t r, uint64_t blocks, unsigned char *dst)
{
    write_32(src, r, blocks, dst, 1, 1);
}

static void write_q5_1(const unsigned char *src, uint32_t r, uint64_t blocks, unsigned char *dst)
{
    write_32(src, r, blocks, dst, 2, 1);
}

static void write_q8_0(const unsigned char *src, uint32_t r, uint64_t blocks, unsigned char *dst)
{
    for (; blocks > 0; blocks--, src += 34, dst += 272) {
        memcpy(dst + 2 * r, src, 2);
        for (int c = 0; c < 8; c++)
            mica__store32(dst + 16 + 32 * c + 4 * r, mica__load32(src + 2 + 4 * c) ^ 0x80808080);
    }
}

/* Byte j of `count` into table j of eight rows. */
static void put_bytes(const unsigned char *src, int count, uint32_t r, unsigned char *dst)
{
    for (int j = 0; j < count; j++)
        dst[8 * j + (int)r] = src[j];
}

/* q4_k, and q5_k with its fifth bits. */
INLINE void write_offset_k(const unsigned char *src, uint32_t r, uint64_t blocks, unsigned char *dst,
                           const uint32_t fifth)
{
    const uint32_t part_bytes = 128 + 32 * fifth, nibbles = 16 + 32 * fifth;
    for (; blocks > 0; blocks--, src += nibbles + 128, dst += 128 + 8 * part_bytes) {
        memcpy(dst + 2 * r, src, 2);
        memcpy(dst + 16 + 2 * r, src + 2, 2);
        put_bytes(src + 4, 12, r, dst + 32);
        mica__words high = mica__load_words(src + 16);
        for (uint32_t s = 0; s < 8; s++) {
            const unsigned char *qs = src + nibbles + s / 2 * 32;
            unsigned char *part = dst + 128 + part_bytes * s + 4 * r;
            mica__put_nibbles(qs, qs + 16, (int)(s % 2 * 4), part);
            if (!fifth)
                continue;
            mica__put_bits(&high, part + 128);
            mica__shift_words(&high, 1);
        }
    }
}

static void write_q4_k(const unsigned char *src, uint32_t r, uint64_t blocks, unsigned char *dst)
{
    write_offset_k(src, r, blocks, dst, 0);
}

static void write_q5_k(const unsigned char *src, uint32_t r, uint64_t blocks, unsigned char *dst)
{
    write_offset_k(src, r, blocks, dst, 1);
}

static void write_q2_k(const unsigned char *src, uint32_t r, uint64_t blocks, unsigned char *dst)
{
    for (; blocks > 0; blocks--, src += 84, dst += 672) {
        unsigned char *part = dst + 160 + 4 * r;
        memcpy(dst + 2 * r, src + 80, 2);
        memcpy(dst + 16 + 2 * r, src + 82, 2);
        put_bytes(src, 16, r, dst + 32);
        for (int half = 0; half < 2; half++) {
            mica__words pairs = mica__load_words(src + 16 + 32 * half);
            for (int t = 0; t < 4; t++, part += 64, mica__shift_words(&pairs, 2))
                mica__put_pairs(&pairs, part);
        }
    }
}

static void write_q3_k(const unsigned char *src, uint32_t r, uint64_t blocks, unsigned char *dst)
{
    for (; blocks > 0; blocks--, src += 110, dst += 880) {
        unsigned char *part = dst + 112 + 4 * r;
        memcpy(dst + 2 * r, src + 108, 2);
        put_bytes(src + 96, 12, r, dst + 16);
        mica__words high = mica__load_words(src);
        for (int half = 0; half < 2; half++) {
            mica__words pairs = mica__load_words(src + 32 + 32 * half);
            for (int t = 0; t < 4; t++, part += 96) {
                mica__put_pairs(&pairs, part);
                mica__put_bits(&high, part + 64);
                mica__shift_words(&pairs, 2);
                mica__shift_words(&high, 1);
            }
        }
    }
}

static void write_q6_k(const unsigned char *src, uint32_t r, uint64_t blocks, unsigned char *dst)
{
    for (; blocks > 0; blocks--, src += 210, dst += 1680) {
        unsigned char *part = dst + 144 + 4 * r;
        memcpy(dst + 2 * r, src + 208, 2);
        put_bytes(src + 192, 16, r, dst + 16);
        for (int half = 0; half < 2; half++) {
            mica__words pairs = mica__load_words(src + 128 + 32 * half);
            for (int t = 0; t < 4; t++, part += 192, mica__shift_words(&pairs, 2)) {
                const unsigned char *low = src + 64 * half + 32 * (t % 2);
                mica__put_nibbles(low, low + 16, t / 2 * 4, part);
                mica__put_pairs(&pairs, part + 128);
            }
        }
    }
}

static void write_iq4_xs(const unsigned char *src, uint32_t r, uint64_t blocks, unsigned char *dst)
{
    for (; blocks > 0; blocks--, src += 136, dst += 1088) {
        memcpy(dst + 2 * r, src, 2);
        put_bytes(src + 2, 6, r, dst + 16);
        for (int w = 0; w < 32; w++) /* the nibbles lie as in the parts */
            memcpy(dst + 64 + 32 * w + 4 * r, src + 8 + 4 * w, 4);
    }
}

static void put_f16(float value, uint32_t r, unsigned char *table)
{
    const uint16_t half = mica__f32_to_f16(value);
    memcpy(table + 2 * r, &half, sizeof half);
}

static void write_mxfp4(const unsigned char *src, uint32_t r, uint64_t blocks, unsigned char *dst)
{
    for (; blocks > 0; blocks--, src += 17, dst += 144) {
        const uint16_t half = mica__f32_to_bf16(mica__mxfp4_half(src[0])); /* exact */
        memcpy(dst + 2 * r, &half, sizeof half);
        for (int v = 0; v < 4; v++) /* the nibbles lie as in the part */
            memcpy(dst + 16 + 32 * v + 4 * r, src + 1 + 4 * v, 4);
    }
}

/* A byte holds values j and j + 8 of a run of 16; a part has one run in its low nibbles and the next in its high ones. */
static void write_nvfp4(const unsigned char *src, uint32_t r, uint64_t blocks, unsigned char *dst)
{
    const uint64_t nibbles = 0x0f0f0f0f0f0f0f0f;
    for (; blocks > 0; blocks--, src += 36, dst += 320) {
        for (int s = 0; s < 4; s++)
            put_f16(mica__nvfp4_half(src[s]), r, dst + 16 * s); /* exact */
        for (int p = 0; p < 2; p++) {
            const uint64_t first = mica__load64(src + 4 + 16 * p), second = mica__load64(src + 12 + 16 * p);
            unsigned char *part = dst + 64 + 128 * p + 4 * r;
            mica__store_words(part, (first & nibbles) | (second & nibbles) << 4);
            mica__store_words(part + 64, (first >> 4 & nibbles) | (second & ~nibbles));
        }
    }
}

mica__packed_row_writer mica__packed_writer_of(uint16_t dtype)
{
    static const mica__packed_row_writer writers[MICA_DTYPE_COUNT] = {
        [MICA_DTYPE_Q4_0] = write_q4_0,   [MICA_DTYPE_Q4_1] = write_q4_1,
        [MICA_DTYPE_Q5_0] = write_q5_0,   [MICA_DTYPE_Q5_1] = write_q5_1,
        [MICA_DTYPE_Q8_0] = write_q8_0,   [MICA_DTYPE_Q2_K] = write_q2_k,
        [MICA_DTYPE_Q3_K] = write_q3_k,   [MICA_DTYPE_Q4_K] = write_q4_k,
        [MICA_DTYPE_Q5_K] = write_q5_k,   [MICA_DTYPE_Q6_K] = write_q6_k,
        [MICA_DTYPE_IQ4_NL] = write_q4_0, [MICA_DTYPE_IQ4_XS] = write_iq4_xs,
        [MICA_DTYPE_MXFP4] = write_mxfp4, [MICA_DTYPE_NVFP4] = write_nvfp4,
    };
    return dtype < MICA_DTYPE_COUNT ? writers[dtype] : NULL;
}
