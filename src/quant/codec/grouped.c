/* grouped.c - rows with tables of scales: MLX's affine modes, mxfp4, mxfp8 and nvfp4. */
#include "quant/grouped.h"

#include <math.h>

#include "mica/types.h"
#include "quant/bits.h"
#include "quant/codec/levels.h"
#include "quant/quant.h"

#define PIECE 256u /* stored numbers unpacked at a time, a multiple of every type's block */

extern const mica__grouped_codec MICA__CODEC(grouped);

/* ---- stored numbers, one a byte ---- */

static void unpack(unsigned bits, const uint8_t *q, uint64_t n, uint8_t *codes)
{
    switch (bits) { /* constants, so that the shifts are known */
    case 2: mica__bits_unpack(q, 2, n, codes); break;
    case 3: mica__bits_unpack(q, 3, n, codes); break;
    case 4: mica__bits_unpack(q, 4, n, codes); break;
    case 5: mica__bits_unpack(q, 5, n, codes); break;
    case 6: mica__bits_unpack(q, 6, n, codes); break;
    default: memcpy(codes, q, n); break;
    }
}

static void pack(unsigned bits, const uint8_t *codes, uint64_t n, uint8_t *q)
{
    switch (bits) {
    case 2: mica__bits_pack(codes, 2, n, q); break;
    case 3: mica__bits_pack(codes, 3, n, q); break;
    case 4: mica__bits_pack(codes, 4, n, q); break;
    case 5: mica__bits_pack(codes, 5, n, q); break;
    case 6: mica__bits_pack(codes, 6, n, q); break;
    default: memcpy(q, codes, n); break;
    }
}

/* ---- numbers of one group to f32 ---- */

static void affine_values(const uint8_t *codes, uint64_t n, float scale, float bias, float *restrict dst)
{
    for (uint64_t i = 0; i < n; i++)
        dst[i] = (float)codes[i] * scale + bias;
}

static inline float with_sign(float magnitude, uint32_t sign)
{
    return mica__f32_from_bits(mica__f32_bits(magnitude) ^ sign);
}

/* e2m1: twice the magnitude is 0 1 2 3 4 6 8 12. Minus zero keeps its sign. */
static void fp4_values(const uint8_t *codes, uint64_t n, float scale, float *restrict dst)
{
    const float half = 0.5f * scale;
    for (uint64_t i = 0; i < n; i++) {
        const int m = codes[i] & 7, twice = m + (m > 4) + (m > 5) + 3 * (m > 6);
        dst[i] = with_sign((float)twice * half, (uint32_t)(codes[i] & 8) << 28);
    }
}

/* As mica__f8_e4m3_to_f32, with masks for branches. A subnormal is made as 2^-6 too much. */
static void fp8_values(const uint8_t *codes, uint64_t n, float scale, float *restrict dst)
{
    for (uint64_t i = 0; i < n; i++) {
        const uint32_t m = codes[i] & 0x7f, small = 0u - (m < 8), nan = 0u - (m == 0x7f);
        const uint32_t bits = (m << 20) + (120u << 23) + (small & 1u << 23);
        const float value =
            mica__f32_from_bits((bits & ~nan) | (nan & 0x7fc00000)) - mica__f32_from_bits(small & 0x3c800000);
        dst[i] = with_sign(value * scale, (uint32_t)(codes[i] & 0x80) << 24);
    }
}

static void decode_grouped(const mica__grouped_form *form, const void *q, const void *scales,
                           const void *biases, float *dst, uint64_t n)
{
    const unsigned bits = mica__grouped_bits(form->dtype);
    uint8_t codes[PIECE];
    uint64_t group = 0, left = form->group_size;
    for (uint64_t first = 0; first < n; first += PIECE) {
        const uint64_t piece = n - first < PIECE ? n - first : PIECE;
        unpack(bits, (const uint8_t *)q + first / 8 * bits, piece, codes);
        for (uint64_t i = 0, run; i < piece; i += run, left -= run) {
            if (left == 0) {
                left = form->group_size;
                group++;
            }
            run = left < piece - i ? left : piece - i;
            const float scale = mica__scale_value(form->scale_dtype, scales, group);
            if (form->dtype == MICA_DTYPE_FP4)
                fp4_values(codes + i, run, scale, dst + first + i);
            else if (form->dtype == MICA_DTYPE_F8_E4M3)
                fp8_values(codes + i, run, scale, dst + first + i);
            else
                affine_values(codes + i, run, scale, mica__scale_value(form->scale_dtype, biases, group),
                              dst + first + i);
        }
    }
}

/* ---- a group to its scale ---- */

/* The scale and bias of a group; what its values are measured in. */
typedef struct group_scale {
    float scale, bias;
} group_scale;

/* Smallest and largest in whole numbers of the same order, which a compiler may vectorise; NaN left out. */
static void range_of(const float *x, uint64_t n, float *low, float *high)
{
    int32_t least = INT32_MAX, most = INT32_MIN;
    for (uint64_t i = 0; i < n; i++) {
        const uint32_t bits = mica__f32_bits(x[i]);
        const int32_t magnitude = (int32_t)(bits & 0x7fffffff);
        const int32_t order = (bits >> 31) != 0 ? -magnitude : magnitude;
        const int32_t down = magnitude <= 0x7f800000 ? order : INT32_MAX;
        const int32_t up = magnitude <= 0x7f800000 ? order : INT32_MIN;
        least = down < least ? down : least;
        most = up > most ? up : most;
    }
    if (least > most) /* nothing but NaN */
        least = most = 0;
    *low = least < 0 ? -mica__f32_from_bits((uint32_t)-least) : mica__f32_from_bits((uint32_t)least);
    *high = most < 0 ? -mica__f32_from_bits((uint32_t)-most) : mica__f32_from_bits((uint32_t)most);
}

/* MLX's rule: the end of the range with the larger magnitude is kept exactly as the bias, and the step is bent so that
 * zero is on the grid. The largest code lies at the other end, so a range that leans upwards has a negative step. */
static group_scale affine_scale(const float *x, uint64_t n, float codes)
{
    float low, high;
    range_of(x, n, &low, &high);
    const bool downwards = fabsf(low) > fabsf(high);
    float scale = (high - low) / codes;
    scale = scale < 1e-7f ? 1e-7f : scale;
    scale = downwards ? scale : -scale;
    const float edge = downwards ? low : high, at_zero = nearbyintf(edge / scale);
    if (at_zero == 0)
        return (group_scale){scale, 0};
    return (group_scale){edge / at_zero, edge};
}

/* The least power of two that is not below x, so that nothing is cut off, as e8m0; 1 for zero. */
static uint8_t e8m0_scale(float x)
{
    const uint32_t bits = mica__f32_bits(x);
    if (bits == 0)
        return 127;
    const uint32_t code = (bits >> 23) + ((bits & 0x7fffff) != 0);
    return (uint8_t)(code > 254 ? 254 : code);
}

/* e4m3, ties to even, saturating at 448; NaN kept. */
static inline uint32_t e4m3_code(float x)
{
    const uint32_t bits = mica__f32_bits(x), sign = bits >> 24 & 0x80;
    const int32_t magnitude = (int32_t)(bits & 0x7fffffff);
    const int32_t held = magnitude < 0x43e00000 ? magnitude : 0x43e00000; /* 448 */
    const uint32_t normal = ((uint32_t)held - (120u << 23) + 0x7ffff + ((uint32_t)held >> 20 & 1)) >> 20;
    /* Next to 2^14 a unit in the last place is 2^-9, the subnormal step. */
    const uint32_t tiny = mica__f32_bits(mica__f32_from_bits((uint32_t)held) + 16384.0f) - 0x46800000;
    const uint32_t code = held < 121 << 23 ? tiny : normal;
    return sign | (magnitude > 0x7f800000 ? 0x7f : code);
}

static float fp_scale(const mica__grouped_form *form, const float *x, uint64_t n, uint8_t *out)
{
    float peak = 0;
    for (uint64_t i = 0; i < n; i += PIECE) {
        const float piece = mica__levels_peak(x + i, (int)(n - i < PIECE ? n - i : PIECE));
        peak = piece > peak ? piece : peak;
    }
    if (form->scale_dtype == MICA_DTYPE_E8M0) {
        *out = e8m0_scale(peak / (form->dtype == MICA_DTYPE_FP4 ? 6.0f : 448.0f));
        return mica__e8m0_to_f32(*out);
    }
    *out = (uint8_t)e4m3_code(peak / 6.0f);
    return mica__f8_e4m3_to_f32(*out);
}

/* ---- values of one group to numbers ---- */

/* The nearest whole number from 0 to `most`; NaN gives 0. Next to 1.5 * 2^23 a unit in the last place is one, so the sum
 * rounds ties to even. */
static void affine_codes(const float *x, uint64_t n, group_scale group, float most, uint8_t *restrict codes)
{
    for (uint64_t i = 0; i < n; i++) {
        float step = (x[i] - group.bias) / group.scale;
        step = step > 0 ? step : 0;
        step = step < most ? step : most;
        codes[i] = (uint8_t)mica__f32_bits(step + 12582912.0f);
    }
}

static void fp4_codes(const float *x, uint64_t n, float scale, uint8_t *restrict codes)
{
    const float divisor = scale != 0 ? scale : INFINITY;
    for (uint64_t i = 0; i < n; i++)
        codes[i] = (uint8_t)mica__levels_fp4(x[i] / divisor, 0.5f);
}

static void fp8_codes(const float *x, uint64_t n, float scale, uint8_t *restrict codes)
{
    for (uint64_t i = 0; i < n; i++)
        codes[i] = (uint8_t)e4m3_code(x[i] / scale);
}

/* The scale of the group that starts at x, stored as entry `group` of the tables. */
static group_scale scale_group(const mica__grouped_form *form, const float *x, uint64_t n, uint64_t group,
                               void *scales, void *biases)
{
    if (form->dtype == MICA_DTYPE_FP4 || form->dtype == MICA_DTYPE_F8_E4M3)
        return (group_scale){fp_scale(form, x, n, (uint8_t *)scales + group), 0};
    const group_scale found = affine_scale(x, n, (float)((1u << mica__grouped_bits(form->dtype)) - 1));
    mica__scale_store(form->scale_dtype, scales, group, found.scale);
    mica__scale_store(form->scale_dtype, biases, group, found.bias);
    return found;
}

static void encode_grouped(const mica__grouped_form *form, const float *src, uint64_t n, void *q,
                           void *scales, void *biases)
{
    const unsigned bits = mica__grouped_bits(form->dtype);
    const float most = (float)((1u << bits) - 1);
    group_scale current = {0, 0};
    uint8_t codes[PIECE];
    uint64_t group = 0, left = 0;
    for (uint64_t first = 0; first < n; first += PIECE) {
        const uint64_t piece = n - first < PIECE ? n - first : PIECE;
        for (uint64_t i = 0, run; i < piece; i += run, left -= run) {
            const float *x = src + first + i;
            if (left == 0) {
                const uint64_t rest = n - first - i;
                left = form->group_size < rest ? form->group_size : rest;
                current = scale_group(form, x, left, group++, scales, biases);
            }
            run = left < piece - i ? left : piece - i;
            if (form->dtype == MICA_DTYPE_FP4)
                fp4_codes(x, run, current.scale, codes + i);
            else if (form->dtype == MICA_DTYPE_F8_E4M3)
                fp8_codes(x, run, current.scale, codes + i);
            else
                affine_codes(x, run, current, most, codes + i);
        }
        pack(bits, codes, piece, (uint8_t *)q + first / 8 * bits);
    }
}

const mica__grouped_codec MICA__CODEC(grouped) = {decode_grouped, encode_grouped};
