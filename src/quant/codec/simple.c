/*
 * simple.c - blocks of 32 values with one scale, or a scale and a minimum: q4_0 q4_1 q5_0 q5_1 q8_0 q8_1.
 *
 * Without importance the encoders follow the format's reference quantiser to the bit: the largest magnitude, or the
 * range, decides the scale, and codes are of the scale before it was rounded to f16. With importance the four- and
 * five-bit types get the scale of least weighted error.
 */
#include "quant/codec.h"

#include <float.h>
#include <math.h>
#include <stddef.h>

#include "quant/codec/fit.h"
#include "quant/codec/lanes.h"

#define BLOCK 32
/* Bodies that a type's own constants make short. */
#define INLINE static inline __attribute__((always_inline))

/* NaN is passed over; of values that are all NaN nothing is learnt. */
static void range_of(const float *x, float *min, float *max)
{
    lane_f least = lane_set(FLT_MAX), most = lane_set(-FLT_MAX);
    for (int i = 0; i < BLOCK; i += LANES) {
        least = lane_min(lane_load(x + i), least);
        most = lane_max(lane_load(x + i), most);
    }
    *min = lane_lowest(least);
    *max = lane_highest(most);
}

/* The first value with that magnitude, which both signs may have; 0 if there is none. */
static float first_with(const float *x, float magnitude)
{
    for (int i = 0; i < BLOCK; i++)
        if (fabsf(x[i]) == magnitude)
            return x[i];
    return 0;
}

/* The greatest magnitude. */
static float peak(const float *x)
{
    float min, max;
    range_of(x, &min, &max);
    return max > -min ? max : fabsf(min); /* zero without a sign */
}

/* The first of the values with the greatest magnitude, with its sign. */
static float signed_peak(const float *x)
{
    float min, max;
    range_of(x, &min, &max);
    if (max == -min)
        return max != 0 ? first_with(x, max) : 0;
    return (const float[2]){min, max}[max > -min]; /* a coin toss, not to be predicted */
}

static float inverse(float x)
{
    return x != 0 ? 1.0f / x : 0.0f;
}

/* (x - from) * id + shift, cut to a whole number 0..most. */
static void cut_codes(const float *x, float from, float id, float shift, float most, uint8_t *codes)
{
    for (int i = 0; i < BLOCK; i += LANES)
        lane_to_bytes(codes + i,
                      lane_clamp((lane_load(x + i) - from) * id + shift, (lane_f){0}, lane_set(most)));
}

/* Half away from zero, -127..127. The constant is the number below 0.5: 0.5 itself would round 0.49999997 up. */
static void round_codes(const float *x, float id, void *codes)
{
    const lane_i sign = (lane_i)lane_set(-0.0f), half = (lane_i)lane_set(0.49999997f);
    for (int i = 0; i < BLOCK; i += LANES) {
        const lane_f v = lane_clamp(lane_load(x + i) * id, lane_set(-127), lane_set(127));
        lane_to_bytes((unsigned char *)codes + i, v + (lane_f)(((lane_i)v & sign) | half));
    }
}

/* Eight codes are eight bytes of a number. */
static uint64_t load8(const uint8_t *bytes)
{
    uint64_t eight;
    memcpy(&eight, bytes, sizeof eight);
    return eight;
}

static void store8(uint8_t *bytes, uint64_t eight)
{
    memcpy(bytes, &eight, sizeof eight);
}

static float half_at(const unsigned char *from)
{
    uint16_t half;
    memcpy(&half, from, sizeof half);
    return mica__f16_to_f32(half);
}

static void put_half(unsigned char *to, uint16_t half)
{
    memcpy(to, &half, sizeof half);
}

#define NIBBLES 0x0f0f0f0f0f0f0f0fu
#define ONES 0x0101010101010101u

static void put_nibbles(const uint8_t *codes, uint8_t *qs)
{
    for (int j = 0; j < 16; j += 8)
        store8(qs + j, (load8(codes + j) & NIBBLES) | (load8(codes + j + 16) & NIBBLES) << 4);
}

static void get_nibbles(const uint8_t *qs, uint8_t *codes)
{
    for (int j = 0; j < 16; j += 8) {
        store8(codes + j, load8(qs + j) & NIBBLES);
        store8(codes + j + 16, load8(qs + j) >> 4 & NIBBLES);
    }
}

/* The product moves bit 0 of byte k to bit 56 + k, and no two bits meet. */
static void put_fifth(const uint8_t *codes, uint8_t *qh)
{
    for (int j = 0; j < BLOCK; j += 8)
        qh[j / 8] = (uint8_t)((load8(codes + j) >> 4 & ONES) * 0x0102040810204080u >> 56);
}

/* The byte in all eight, bit k kept in byte k and moved to bit 4: 0x80 - 1 carries into bit 7 unless it is zero. */
static void add_fifth(const uint8_t *qh, uint8_t *codes)
{
    for (int j = 0; j < BLOCK; j += 8) {
        const uint64_t kept = qh[j / 8] * ONES & 0x8040201008040201u;
        const uint64_t set = (((kept & ~(ONES << 7)) + 0x7f * ONES) | kept) >> 7 & ONES;
        store8(codes + j, load8(codes + j) | set << 4);
    }
}

/* What a fit writes for each block: its scale and minimum as f16, its codes from 0 up. */
typedef void (*put_block)(unsigned char *to, uint16_t d, uint16_t m, const uint8_t *codes);

static void put_q4_0(unsigned char *to, uint16_t d, uint16_t m, const uint8_t *codes)
{
    (void)m;
    put_half(to + offsetof(mica__block_q4_0, d), d);
    put_nibbles(codes, to + offsetof(mica__block_q4_0, qs));
}

static void put_q4_1(unsigned char *to, uint16_t d, uint16_t m, const uint8_t *codes)
{
    put_half(to + offsetof(mica__block_q4_1, d), d);
    put_half(to + offsetof(mica__block_q4_1, m), m);
    put_nibbles(codes, to + offsetof(mica__block_q4_1, qs));
}

static void put_q5_0(unsigned char *to, uint16_t d, uint16_t m, const uint8_t *codes)
{
    (void)m;
    put_half(to + offsetof(mica__block_q5_0, d), d);
    put_fifth(codes, to + offsetof(mica__block_q5_0, qh));
    put_nibbles(codes, to + offsetof(mica__block_q5_0, qs));
}

static void put_q5_1(unsigned char *to, uint16_t d, uint16_t m, const uint8_t *codes)
{
    put_half(to + offsetof(mica__block_q5_1, d), d);
    put_half(to + offsetof(mica__block_q5_1, m), m);
    put_fifth(codes, to + offsetof(mica__block_q5_1, qh));
    put_nibbles(codes, to + offsetof(mica__block_q5_1, qs));
}

/* Signed codes run from -most to most - 1 and are stored with most added; offset codes from 0 to most. */
typedef struct fitted {
    put_block put;
    size_t bytes;
    float most;
    bool is_signed;
} fitted;

static void encode_fitted(const fitted *type, const float *src, const float *importance, unsigned char *to,
                          uint64_t blocks)
{
    const float low = type->is_signed ? -type->most : 0, high = type->is_signed ? type->most - 1 : type->most;
    mica__fit fit;
    for (uint64_t b = 0; b < blocks; b += FIT_RUNS) {
        uint16_t d[FIT_RUNS], m[FIT_RUNS];
        const uint64_t runs = blocks - b < FIT_RUNS ? blocks - b : FIT_RUNS;
        MICA__CODEC(fit_load)(&fit, src + b * BLOCK, importance + b * BLOCK, BLOCK, runs);
        if (type->is_signed)
            MICA__CODEC(fit_signed)(&fit, type->most);
        else
            MICA__CODEC(fit_offset)(&fit, type->most);
        for (int r = 0; r < FIT_RUNS; r++) {
            d[r] = mica__f32_to_f16(fit.scale[r]);
            m[r] = mica__f32_to_f16(-fit.min[r]);
            fit.scale[r] = mica__f16_to_f32(d[r]);
            fit.min[r] = -mica__f16_to_f32(m[r]);
        }
        MICA__CODEC(fit_quantise)(&fit, low, high);
        for (uint64_t r = 0; r < runs; r++, to += type->bytes) {
            uint8_t codes[BLOCK];
            for (int i = 0; i < BLOCK; i++)
                codes[i] = (uint8_t)(int)(fit.q[i][r] - low);
            type->put(to, d[r], m[r], codes);
        }
    }
}

/* The peak becomes the most negative code, the end of the range that has one value more. */
INLINE void encode_signed(const fitted *type, const float *src, unsigned char *to, uint64_t blocks)
{
    for (uint64_t b = 0; b < blocks; b++, src += BLOCK, to += type->bytes) {
        uint8_t codes[BLOCK];
        const float d = signed_peak(src) / -type->most;
        cut_codes(src, 0, inverse(d), type->most + 0.5f, 2 * type->most - 1, codes);
        type->put(to, mica__f32_to_f16(d), 0, codes);
    }
}

INLINE void encode_range(const fitted *type, const float *src, unsigned char *to, uint64_t blocks)
{
    for (uint64_t b = 0; b < blocks; b++, src += BLOCK, to += type->bytes) {
        uint8_t codes[BLOCK];
        float min, max;
        range_of(src, &min, &max);
        min = min == 0 ? first_with(src, 0) : min; /* zero has a sign */
        const float d = (max - min) / type->most;
        cut_codes(src, min, inverse(d), 0.5f, type->most, codes);
        type->put(to, mica__f32_to_f16(d), mica__f32_to_f16(min), codes);
    }
}

INLINE void encode(const fitted *type, const float *src, const float *importance, void *dst, uint64_t blocks)
{
    if (importance != NULL)
        encode_fitted(type, src, importance, dst, blocks);
    else if (type->is_signed)
        encode_signed(type, src, dst, blocks);
    else
        encode_range(type, src, dst, blocks);
}

void MICA__CODEC(encode_q4_0)(const float *src, const float *importance, void *dst, uint64_t blocks)
{
    encode(&(fitted){put_q4_0, sizeof(mica__block_q4_0), 8, true}, src, importance, dst, blocks);
}

void MICA__CODEC(encode_q4_1)(const float *src, const float *importance, void *dst, uint64_t blocks)
{
    encode(&(fitted){put_q4_1, sizeof(mica__block_q4_1), 15, false}, src, importance, dst, blocks);
}

void MICA__CODEC(encode_q5_0)(const float *src, const float *importance, void *dst, uint64_t blocks)
{
    encode(&(fitted){put_q5_0, sizeof(mica__block_q5_0), 16, true}, src, importance, dst, blocks);
}

void MICA__CODEC(encode_q5_1)(const float *src, const float *importance, void *dst, uint64_t blocks)
{
    encode(&(fitted){put_q5_1, sizeof(mica__block_q5_1), 31, false}, src, importance, dst, blocks);
}

void MICA__CODEC(encode_q8_0)(const float *src, const float *importance, void *dst, uint64_t blocks)
{
    (void)importance;
    unsigned char *to = dst;
    for (uint64_t b = 0; b < blocks; b++, src += BLOCK, to += sizeof(mica__block_q8_0)) {
        const float d = peak(src) / 127.0f;
        put_half(to + offsetof(mica__block_q8_0, d), mica__f32_to_f16(d));
        round_codes(src, inverse(d), to + offsetof(mica__block_q8_0, qs));
    }
}

void MICA__CODEC(encode_q8_1)(const float *src, const float *importance, void *dst, uint64_t blocks)
{
    (void)importance;
    unsigned char *to = dst;
    for (uint64_t b = 0; b < blocks; b++, src += BLOCK, to += sizeof(mica__block_q8_1)) {
        const float d = peak(src) / 127.0f;
        int8_t codes[BLOCK];
        int sum = 0;
        round_codes(src, inverse(d), codes);
        for (int i = 0; i < BLOCK; i++)
            sum += codes[i];
        put_half(to + offsetof(mica__block_q8_1, d), mica__f32_to_f16(d));
        put_half(to + offsetof(mica__block_q8_1, s), mica__f32_to_f16((float)sum * d));
        memcpy(to + offsetof(mica__block_q8_1, qs), codes, sizeof codes);
    }
}

INLINE void decode_codes(const uint8_t *codes, float zero, float d, float *dst)
{
    for (int j = 0; j < BLOCK; j += LANES)
        lane_store(dst + j, (lane_from_u8(codes + j) - zero) * d);
}

INLINE void decode_offset(const uint8_t *codes, float d, float m, float *dst)
{
    for (int j = 0; j < BLOCK; j += LANES)
        lane_store(dst + j, lane_from_u8(codes + j) * d + m);
}

INLINE void decode_bytes(const unsigned char *codes, float d, float *dst)
{
    for (int j = 0; j < BLOCK; j += LANES)
        lane_store(dst + j, lane_from_i8(codes + j) * d);
}

void MICA__CODEC(decode_q4_0)(const void *src, float *dst, uint64_t blocks)
{
    const unsigned char *from = src;
    for (uint64_t b = 0; b < blocks; b++, from += sizeof(mica__block_q4_0), dst += BLOCK) {
        uint8_t codes[BLOCK];
        get_nibbles(from + offsetof(mica__block_q4_0, qs), codes);
        decode_codes(codes, 8, half_at(from + offsetof(mica__block_q4_0, d)), dst);
    }
}

void MICA__CODEC(decode_q4_1)(const void *src, float *dst, uint64_t blocks)
{
    const unsigned char *from = src;
    for (uint64_t b = 0; b < blocks; b++, from += sizeof(mica__block_q4_1), dst += BLOCK) {
        uint8_t codes[BLOCK];
        get_nibbles(from + offsetof(mica__block_q4_1, qs), codes);
        decode_offset(codes, half_at(from + offsetof(mica__block_q4_1, d)),
                      half_at(from + offsetof(mica__block_q4_1, m)), dst);
    }
}

void MICA__CODEC(decode_q5_0)(const void *src, float *dst, uint64_t blocks)
{
    const unsigned char *from = src;
    for (uint64_t b = 0; b < blocks; b++, from += sizeof(mica__block_q5_0), dst += BLOCK) {
        uint8_t codes[BLOCK];
        get_nibbles(from + offsetof(mica__block_q5_0, qs), codes);
        add_fifth(from + offsetof(mica__block_q5_0, qh), codes);
        decode_codes(codes, 16, half_at(from + offsetof(mica__block_q5_0, d)), dst);
    }
}

void MICA__CODEC(decode_q5_1)(const void *src, float *dst, uint64_t blocks)
{
    const unsigned char *from = src;
    for (uint64_t b = 0; b < blocks; b++, from += sizeof(mica__block_q5_1), dst += BLOCK) {
        uint8_t codes[BLOCK];
        get_nibbles(from + offsetof(mica__block_q5_1, qs), codes);
        add_fifth(from + offsetof(mica__block_q5_1, qh), codes);
        decode_offset(codes, half_at(from + offsetof(mica__block_q5_1, d)),
                      half_at(from + offsetof(mica__block_q5_1, m)), dst);
    }
}

void MICA__CODEC(decode_q8_0)(const void *src, float *dst, uint64_t blocks)
{
    const unsigned char *from = src;
    for (uint64_t b = 0; b < blocks; b++, from += sizeof(mica__block_q8_0), dst += BLOCK)
        decode_bytes(from + offsetof(mica__block_q8_0, qs), half_at(from + offsetof(mica__block_q8_0, d)),
                     dst);
}

void MICA__CODEC(decode_q8_1)(const void *src, float *dst, uint64_t blocks)
{
    const unsigned char *from = src;
    for (uint64_t b = 0; b < blocks; b++, from += sizeof(mica__block_q8_1), dst += BLOCK)
        decode_bytes(from + offsetof(mica__block_q8_1, qs), half_at(from + offsetof(mica__block_q8_1, d)),
                     dst);
}
