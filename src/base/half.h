/* half.h: the small float formats, the only copy in the house: f16, bf16, f8 e4m3, f8 e5m2, e8m0 to and
 * from f32.
 *
 * Widening is exact. Narrowing rounds to nearest, ties to even, subnormals included, whatever the
 * machine's flush-to-zero state. A NaN stays a NaN with its sign and the upper bits of its payload, made
 * quiet. Overflow gives infinity where the format has one and NaN in e4m3 (the variant without
 * infinities). The _soft functions use integers; the plain names use the machine's instructions where the
 * compiler may, with the same bits. */
#ifndef MICA_BASE_HALF_H
#define MICA_BASE_HALF_H

#include <stdint.h>
#include <string.h>

#if defined(__F16C__)
#include <immintrin.h>
#endif

static inline uint32_t mica__f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float mica__f32_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Rounds a finite f32 without its sign (as bits) to a format with an exponent bias and mantissa bits of
 * its own. The code returned has no upper bound: the caller looks whether it reached infinity or NaN. */
static inline uint32_t mica__small_from_magnitude(uint32_t bits, uint32_t mantissa, uint32_t bias)
{
    const uint32_t drop = 23 - mantissa;
    const uint32_t exponent = bits >> 23;
    if (exponent >= 128 - bias) { /* normal there: 2^(1 - bias) and up */
        bits -= (127 - bias) << 23;
        return (bits + (1u << (drop - 1)) - 1 + ((bits >> drop) & 1)) >> drop;
    }
    const uint32_t shift = drop + 128 - bias - exponent;
    if (shift > 24) /* below half of the smallest subnormal */
        return 0;
    const uint32_t significand = (bits & 0x7fffff) | 0x800000;
    const uint32_t code = significand >> shift;
    const uint32_t rest = significand & ((1u << shift) - 1), half = 1u << (shift - 1);
    return code + (rest > half || (rest == half && (code & 1)));
}

/* The f32 of a finite code without its sign. */
static inline float mica__small_to_magnitude(uint32_t code, uint32_t mantissa, uint32_t bias)
{
    if (code >> mantissa != 0)
        return mica__f32_from_bits((code << (23 - mantissa)) + ((127 - bias) << 23));
    /* A subnormal: code units of 2^(1 - bias - mantissa), a normal number in f32 for all formats here. */
    return (float)code * mica__f32_from_bits((128 - bias - mantissa) << 23);
}

static inline float mica__f16_to_f32_soft(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16, code = half & 0x7fff;
    if (code >= 0x7c00) /* infinity, or NaN made quiet */
        return mica__f32_from_bits(sign | 0x7f800000 | (code & 0x3ff) << 13 | (code > 0x7c00 ? 0x400000 : 0));
    return mica__f32_from_bits(sign | mica__f32_bits(mica__small_to_magnitude(code, 10, 15)));
}

static inline uint16_t mica__f32_to_f16_soft(float value)
{
    const uint32_t bits = mica__f32_bits(value), magnitude = bits & 0x7fffffff, sign = bits >> 16 & 0x8000;
    if (magnitude > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    const uint32_t code = mica__small_from_magnitude(magnitude, 10, 15);
    return (uint16_t)(sign | (code > 0x7c00 ? 0x7c00 : code));
}

static inline float mica__f16_to_f32(uint16_t half)
{
#if defined(__F16C__)
    return _cvtsh_ss(half);
#elif defined(__aarch64__) && defined(__ARM_FP16_FORMAT_IEEE)
    __fp16 value;
    memcpy(&value, &half, sizeof value);
    return (float)value;
#else
    return mica__f16_to_f32_soft(half);
#endif
}

static inline uint16_t mica__f32_to_f16(float value)
{
#if defined(__F16C__)
    return _cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT);
#elif defined(__aarch64__) && defined(__ARM_FP16_FORMAT_IEEE)
    const __fp16 half = (__fp16)value;
    uint16_t bits;
    memcpy(&bits, &half, sizeof bits);
    return bits;
#else
    return mica__f32_to_f16_soft(value);
#endif
}

/* bf16 is the upper half of f32, so widening is a shift and keeps every bit of a NaN. */
static inline float mica__bf16_to_f32(uint16_t half)
{
    return mica__f32_from_bits((uint32_t)half << 16);
}

static inline uint16_t mica__f32_to_bf16(float value)
{
    const uint32_t bits = mica__f32_bits(value);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* e4m3: 4 exponent bits, 3 mantissa bits, largest 448, no infinity, NaN is 0x7f and 0xff. */
static inline float mica__f8_e4m3_to_f32(uint8_t byte)
{
    const uint32_t sign = (uint32_t)(byte & 0x80) << 24, code = byte & 0x7f;
    if (code == 0x7f)
        return mica__f32_from_bits(sign | 0x7fc00000);
    return mica__f32_from_bits(sign | mica__f32_bits(mica__small_to_magnitude(code, 3, 7)));
}

static inline uint8_t mica__f32_to_f8_e4m3(float value)
{
    const uint32_t bits = mica__f32_bits(value), magnitude = bits & 0x7fffffff, sign = bits >> 24 & 0x80;
    if (magnitude >= 0x7f800000)
        return (uint8_t)(sign | 0x7f);
    const uint32_t code = mica__small_from_magnitude(magnitude, 3, 7);
    return (uint8_t)(sign | (code > 0x7f ? 0x7f : code));
}

/* e5m2: 5 exponent bits, 2 mantissa bits, with infinity (0x7c) and NaN as IEEE formats have them. */
static inline float mica__f8_e5m2_to_f32(uint8_t byte)
{
    return mica__f16_to_f32_soft((uint16_t)(byte << 8));
}

static inline uint8_t mica__f32_to_f8_e5m2(float value)
{
    const uint32_t bits = mica__f32_bits(value), magnitude = bits & 0x7fffffff, sign = bits >> 24 & 0x80;
    if (magnitude > 0x7f800000)
        return (uint8_t)(sign | 0x7e | (magnitude >> 21 & 3));
    const uint32_t code = mica__small_from_magnitude(magnitude, 2, 15);
    return (uint8_t)(sign | (code > 0x7c ? 0x7c : code));
}

/* e8m0: a bare exponent, 2^(byte - 127); 0xff is NaN. */
static inline float mica__e8m0_to_f32(uint8_t byte)
{
    if (byte == 0xff)
        return mica__f32_from_bits(0x7fc00000);
    return mica__f32_from_bits(byte == 0 ? 0x400000 : (uint32_t)byte << 23);
}

/* The nearest power of two, a tie going to the larger (its significand is the even one). Zero and what lies
 * below 2^-127 give 2^-127; negative numbers, NaN and what rounds past 2^127 give NaN. */
static inline uint8_t mica__f32_to_e8m0(float value)
{
    const uint32_t bits = mica__f32_bits(value);
    if (bits == 0x80000000) /* minus zero */
        return 0;
    if (bits >= 0x7f000000 + 0x400000) /* 1.5 * 2^127 and up, infinity, NaN, negative */
        return 0xff;
    if (bits < 0x800000) /* f32 subnormal: 2^-127 or 2^-126, tie at 1.5 * 2^-127 */
        return bits >= 0x600000 ? 1 : 0;
    return (uint8_t)((bits + 0x400000) >> 23);
}

#endif
