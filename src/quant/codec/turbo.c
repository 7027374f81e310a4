/*
 * turbo.c - TurboQuant blocks: 64 values are rotated by signs and a Walsh-Hadamard transform, which makes them about normal whatever they
 * were, and each takes the nearest level of Lloyd and Max (turbo_levels.h) times a scale that all share.
 *
 * The scale is the best of nine around the root mean square: 64 values are few, and what fits these is better than what fits all normal
 * numbers (4 bits: a relative error of 0.0072, where the root mean square itself leaves 0.0092).
 */
#include "quant/codec.h"

#include <math.h>

#include "quant/turbo_levels.h"

#define VALUES 64u
#define TRIALS 9u

/* Unscaled, in place. */
static void transform(float y[VALUES])
{
    for (uint32_t h = 1; h < VALUES; h *= 2)
        for (uint32_t i = 0; i < VALUES; i += 2 * h)
            for (uint32_t j = i; j < i + h; j++) {
                const float a = y[j], b = y[j + h];
                y[j] = a + b;
                y[j + h] = a - b;
            }
}

static inline float sign_of(uint32_t i)
{
    return (MICA__TURBO_SIGNS >> i & 1) != 0 ? -1.0f : 1.0f;
}

/* Of value i: 2.5 bits are three for the first half and two for the second. */
static inline uint32_t bits_of(uint32_t halfbits, uint32_t half)
{
    return halfbits % 2 == 0 ? halfbits / 2 : 3 - half;
}

static inline uint32_t nearest_code(float v, uint32_t bits, const float *level)
{
    uint32_t code = 0;
    for (uint32_t step = 1u << (bits - 1); step > 0; step /= 2)
        code += v > 0.5f * (level[code + step - 1] + level[code + step]) ? step : 0;
    return code;
}

static inline float half_of(const unsigned char *at)
{
    uint16_t bits;
    memcpy(&bits, at, sizeof bits);
    return mica__f16_to_f32(bits);
}

/* Plane k of the codes: bit i is bit k of the code of value i. */
static inline void decode_rotated(const unsigned char *block, uint32_t halfbits, float y[VALUES])
{
    const float scale = half_of(block);
    for (uint32_t half = 0; half < 2; half++) {
        const uint32_t bits = bits_of(halfbits, half);
        const float *level = mica__turbo_levels + mica__turbo_first(bits);
        uint32_t word[8] = {0};
        for (uint32_t k = 0; k < bits; k++)
            memcpy(&word[k], block + 2 + 8 * k + 4 * half, sizeof word[k]);
        for (uint32_t i = 0; i < 32; i++) {
            uint32_t code = 0;
            for (uint32_t k = 0; k < bits; k++)
                code |= (word[k] >> i & 1) << k;
            y[32 * half + i] = scale * level[code];
        }
    }
}

static inline void decode_blocks(const unsigned char *src, uint32_t halfbits, uint64_t bytes, float *dst,
                                 uint64_t blocks)
{
    for (uint64_t b = 0; b < blocks; b++, src += bytes, dst += VALUES) {
        float y[VALUES];
        decode_rotated(src, halfbits, y);
        transform(y);
        for (uint32_t i = 0; i < VALUES; i++)
            dst[i] = y[i] * (0.125f * sign_of(i));
    }
}

/* Sixteen lanes, then a tree: the same on every instruction set. */
static float sum_of(const float terms[VALUES])
{
    float lane[16];
    for (uint32_t i = 0; i < 16; i++)
        lane[i] = (terms[i] + terms[i + 16]) + (terms[i + 32] + terms[i + 48]);
    for (uint32_t n = 8; n > 0; n /= 2)
        for (uint32_t i = 0; i < n; i++)
            lane[i] += lane[i + n];
    return lane[0];
}

static inline float inverse_of(float scale)
{
    return scale > 0 ? 1.0f / scale : 0.0f;
}

static inline float error_of(const float y[VALUES], uint32_t halfbits, float scale)
{
    const float inverse = inverse_of(scale);
    float square[VALUES];
    for (uint32_t i = 0; i < VALUES; i++) {
        const uint32_t bits = bits_of(halfbits, i / 32);
        const float *level = mica__turbo_levels + mica__turbo_first(bits);
        const float e = y[i] - scale * level[nearest_code(y[i] * inverse, bits, level)];
        square[i] = e * e;
    }
    return sum_of(square);
}

/* As f16 has it; NaN where a value is not finite. */
static inline float best_scale(const float y[VALUES], uint32_t halfbits)
{
    const uint32_t base = halfbits > 8 ? 10 : 12;
    float square[VALUES], best = 0, least = INFINITY;
    for (uint32_t i = 0; i < VALUES; i++)
        square[i] = y[i] * y[i];
    const float rms = sqrtf(sum_of(square) / (float)VALUES);
    if (!isfinite(rms))
        return NAN;
    for (uint32_t t = 0; t < TRIALS; t++) {
        const float wanted = rms * ((float)(base + t) * 0.0625f);
        const float scale = mica__f16_to_f32(mica__f32_to_f16(wanted > 65504.0f ? 65504.0f : wanted));
        const float error = error_of(y, halfbits, scale);
        if (error < least) {
            least = error;
            best = scale;
        }
    }
    return best;
}

static inline void encode_blocks(const float *src, uint32_t halfbits, uint64_t bytes, unsigned char *dst,
                                 uint64_t blocks)
{
    for (uint64_t b = 0; b < blocks; b++, src += VALUES, dst += bytes) {
        float y[VALUES];
        uint32_t word[2][8] = {{0}};
        for (uint32_t i = 0; i < VALUES; i++)
            y[i] = src[i] * sign_of(i);
        transform(y);
        for (uint32_t i = 0; i < VALUES; i++)
            y[i] *= 0.125f;
        const float scale = best_scale(y, halfbits), inverse = inverse_of(scale);
        const uint16_t stored = mica__f32_to_f16(scale);
        for (uint32_t i = 0; i < VALUES; i++) {
            const uint32_t bits = bits_of(halfbits, i / 32);
            const uint32_t code =
                nearest_code(y[i] * inverse, bits, mica__turbo_levels + mica__turbo_first(bits));
            for (uint32_t k = 0; k < bits; k++)
                word[i / 32][k] |= (code >> k & 1) << i % 32;
        }
        memcpy(dst, &stored, sizeof stored);
        for (uint32_t half = 0; half < 2; half++)
            for (uint32_t k = 0; k < bits_of(halfbits, half); k++)
                memcpy(dst + 2 + 8 * k + 4 * half, &word[half][k], sizeof word[half][k]);
    }
}

#define TURBO(name, halfbits)                                                                              \
    void MICA__CODEC(decode_##name)(const void *src, float *dst, uint64_t blocks)                          \
    {                                                                                                      \
        decode_blocks(src, halfbits, 2 + 4 * (halfbits), dst, blocks);                                     \
    }                                                                                                      \
    void MICA__CODEC(encode_##name)(const float *src, const float *importance, void *dst, uint64_t blocks) \
    {                                                                                                      \
        (void)importance;                                                                                  \
        encode_blocks(src, halfbits, 2 + 4 * (halfbits), dst, blocks);                                     \
    }

TURBO(turbo2, 4)
TURBO(turbo2_5, 5)
TURBO(turbo3, 6)
TURBO(turbo4, 8)
TURBO(turbo5, 10)
TURBO(turbo6, 12)
TURBO(turbo8, 16)
