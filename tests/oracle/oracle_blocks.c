/*
 * oracle_blocks.c - the 32-value and K block formats and MLX affine words, one value at a time from the layout.
 */
#include "oracle/oracle_blocks.h"

#include <math.h>
#include <string.h>

#include "oracle/oracle_codes.h"
#include "oracle/oracle_number.h"

static double half_at(const uint8_t *p)
{
    return oracle_from_f16((uint16_t)(p[0] | p[1] << 8));
}

/* f16 d; 16 bytes: value j in the low nibble of byte j, value j + 16 in the high one. */
static void q4_0_value(const uint8_t *block, size_t i, double *value, double *magnitude)
{
    double d = half_at(block);
    int byte = block[2 + i % 16];
    int code = i < 16 ? byte & 15 : byte >> 4;

    *value = d * (code - 8);
    *magnitude = fabs(d) * (code + 8);
}

/* f16 d, f16 m; nibbles as q4_0. */
static void q4_1_value(const uint8_t *block, size_t i, double *value, double *magnitude)
{
    int byte = block[4 + i % 16];
    double scaled = half_at(block) * (i < 16 ? byte & 15 : byte >> 4), m = half_at(block + 2);

    *value = scaled + m;
    *magnitude = fabs(scaled) + fabs(m);
}

/* The nibbles at qs with the fifth bit of value i at bit i of the four bytes before them. */
static int five_bits(const uint8_t *qs, size_t i)
{
    int byte = qs[i % 16], fifth = qs[-4 + (int)(i / 8)] >> (i % 8) & 1;

    return (i < 16 ? byte & 15 : byte >> 4) + 16 * fifth;
}

/* f16 d; 4 bytes of fifth bits; nibbles. */
static void q5_0_value(const uint8_t *block, size_t i, double *value, double *magnitude)
{
    double d = half_at(block);

    *value = d * (five_bits(block + 6, i) - 16);
    *magnitude = fabs(d) * (five_bits(block + 6, i) + 16);
}

/* f16 d, f16 m; 4 bytes of fifth bits; nibbles. */
static void q5_1_value(const uint8_t *block, size_t i, double *value, double *magnitude)
{
    double scaled = half_at(block) * five_bits(block + 8, i), m = half_at(block + 2);

    *value = scaled + m;
    *magnitude = fabs(scaled) + fabs(m);
}

/* f16 d, f16 sum; 32 signed bytes. */
static void q8_1_value(const uint8_t *block, size_t i, double *value, double *magnitude)
{
    *value = half_at(block) * (int8_t)block[4 + i];
    *magnitude = fabs(*value);
}

/* f16 d; 32 signed bytes. */
static void q8_0_value(const uint8_t *block, size_t i, double *value, double *magnitude)
{
    *value = half_at(block) * (int8_t)block[2 + i];
    *magnitude = fabs(*value);
}

/* Two bits of value i: halves of 128 values share 32 bytes, quarters of 32 take two bits each. */
static int two_bits(const uint8_t *qs, size_t i)
{
    return qs[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
}

/* 16 bytes of scale (low nibble) and min (high); 64 of codes; f16 d, f16 dmin. 16 sub-blocks of 16. */
static void q2_k_value(const uint8_t *block, size_t i, double *value, double *magnitude)
{
    double up = half_at(block + 80) * (block[i / 16] & 15) * two_bits(block + 16, i);
    double down = half_at(block + 82) * (block[i / 16] >> 4);

    *value = up - down;
    *magnitude = fabs(up) + fabs(down);
}

/* 32 bytes of third bits (bit i / 32 of byte i % 32); 64 of two bits; 12 of 6-bit scales; f16 d. The scales: nibbles
 * of eight bytes, first all low ones; then four bytes whose pairs of bits go round. */
static void q3_k_value(const uint8_t *block, size_t i, double *value, double *magnitude)
{
    const uint8_t *s = block + 96;
    size_t j = i / 16;
    int low = j < 8 ? s[j] & 15 : s[j - 8] >> 4;
    int scale = (low | (s[8 + j % 4] >> (j / 4 * 2) & 3) << 4) - 32;
    int code = two_bits(block + 32, i) + (block[i % 32] >> (i / 32) & 1) * 4;
    double unit = half_at(block + 108) * scale;

    *value = unit * (code - 4);
    *magnitude = fabs(unit) * (code + 4);
}

/* The scale and min of sub-block j in 12 bytes of 6 bits each. */
static void six_bits(const uint8_t *s, size_t j, int *scale, int *min)
{
    *scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
    *min = j < 4 ? s[j + 4] & 63 : (s[j + 4] >> 4) | (s[j] >> 6) << 4;
}

/* As q4_k, with 32 bytes of fifth bits (bit j of byte l for value 32 j + l) before the nibbles. */
static void q5_k_value(const uint8_t *block, size_t i, double *value, double *magnitude)
{
    size_t j = i / 32;
    int scale, min, byte = block[48 + 32 * (j / 2) + i % 32];
    int code = (j % 2 ? byte >> 4 : byte & 15) + (block[16 + i % 32] >> j & 1) * 16;
    double up, down;

    six_bits(block + 4, j, &scale, &min);
    up = half_at(block) * scale * code;
    down = half_at(block + 2) * min;
    *value = up - down;
    *magnitude = fabs(up) + fabs(down);
}

/* f32 d; 256 signed bytes; 16 sums. */
static void q8_k_value(const uint8_t *block, size_t i, double *value, double *magnitude)
{
    float d;

    memcpy(&d, block, sizeof d);
    *value = (double)d * (int8_t)block[4 + i];
    *magnitude = fabs(*value);
}

/* f16 d, f16 dmin, 12 bytes of 6-bit scales and mins, 128 bytes of nibbles; 8 sub-blocks of 32. */
static void q4_k_value(const uint8_t *block, size_t i, double *value, double *magnitude)
{
    size_t j = i / 32;
    int scale, min, byte = block[16 + 32 * (j / 2) + i % 32];
    int code = j % 2 ? byte >> 4 : byte & 15;
    double up, down;

    six_bits(block + 4, j, &scale, &min);
    up = half_at(block) * scale * code;
    down = half_at(block + 2) * min;
    *value = up - down;
    *magnitude = fabs(up) + fabs(down);
}

/* 128 bytes of low nibbles, 64 of high bit pairs, 16 signed scales, f16 d. Halves of 128 values, quarters of 32. */
static void q6_k_value(const uint8_t *block, size_t i, double *value, double *magnitude)
{
    size_t half = i / 128, quarter = i % 128 / 32, l = i % 32;
    int low = block[64 * half + 32 * (quarter % 2) + l];
    int high = block[128 + 32 * half + l] >> (2 * quarter);
    int code = (quarter < 2 ? low & 15 : low >> 4) | (high & 3) << 4;
    double unit = half_at(block + 208) * (int8_t)block[192 + 8 * half + 2 * quarter + l / 16];

    *value = unit * (code - 32);
    *magnitude = fabs(unit) * (code + 32);
}

static const struct {
    mica_dtype dtype;
    unsigned bits;
} affine[] = {{MICA_DTYPE_AFFINE2, 2}, {MICA_DTYPE_AFFINE3, 3}, {MICA_DTYPE_AFFINE4, 4},
              {MICA_DTYPE_AFFINE5, 5}, {MICA_DTYPE_AFFINE6, 6}, {MICA_DTYPE_AFFINE8, 8}};

/* Bits of a code; 0: not affine. */
static unsigned affine_bits(mica_dtype dtype)
{
    for (size_t i = 0; i < sizeof affine / sizeof *affine; i++) {
        if (affine[i].dtype == dtype)
            return affine[i].bits;
    }
    return 0;
}

/* A row is one stream of bits, the lowest of a byte first. */
static unsigned affine_code(unsigned bits, const uint8_t *row, size_t i)
{
    unsigned code = 0;

    for (unsigned b = 0; b < bits; b++) {
        size_t at = i * bits + b;

        code |= (row[at / 8] >> at % 8 & 1u) << b;
    }
    return code;
}

bool oracle_is_affine(mica_dtype dtype)
{
    return affine_bits(dtype) != 0;
}

bool oracle_has_scales(mica_dtype dtype)
{
    return oracle_is_affine(dtype) || dtype == MICA_DTYPE_FP4 || dtype == MICA_DTYPE_F8_E4M3;
}

bool oracle_is_block(mica_dtype dtype)
{
    return oracle_block_values(dtype) > 1;
}

size_t oracle_row_bytes(mica_dtype dtype, size_t count)
{
    return count / oracle_block_values(dtype) * oracle_block_bytes(dtype);
}

/* How a value of each type is made: with the absolute terms that a kernel may add up, or as one product. */
static const struct {
    mica_dtype dtype;
    void (*terms)(const uint8_t *block, size_t i, double *value, double *magnitude);
    double (*product)(const uint8_t *block, size_t i);
} types[] = {
    {MICA_DTYPE_Q4_0, q4_0_value, NULL},
    {MICA_DTYPE_Q4_1, q4_1_value, NULL},
    {MICA_DTYPE_Q5_0, q5_0_value, NULL},
    {MICA_DTYPE_Q5_1, q5_1_value, NULL},
    {MICA_DTYPE_Q8_0, q8_0_value, NULL},
    {MICA_DTYPE_Q8_1, q8_1_value, NULL},
    {MICA_DTYPE_Q2_K, q2_k_value, NULL},
    {MICA_DTYPE_Q3_K, q3_k_value, NULL},
    {MICA_DTYPE_Q4_K, q4_k_value, NULL},
    {MICA_DTYPE_Q5_K, q5_k_value, NULL},
    {MICA_DTYPE_Q6_K, q6_k_value, NULL},
    {MICA_DTYPE_Q8_K, q8_k_value, NULL},
    {MICA_DTYPE_IQ1_S, oracle_iq1_s_value, NULL},
    {MICA_DTYPE_IQ1_M, oracle_iq1_m_value, NULL},
    {MICA_DTYPE_IQ2_XXS, NULL, oracle_iq2_xxs_value},
    {MICA_DTYPE_IQ2_XS, NULL, oracle_iq2_xs_value},
    {MICA_DTYPE_IQ2_S, NULL, oracle_iq2_s_value},
    {MICA_DTYPE_IQ3_XXS, NULL, oracle_iq3_xxs_value},
    {MICA_DTYPE_IQ3_S, NULL, oracle_iq3_s_value},
    {MICA_DTYPE_IQ4_NL, NULL, oracle_iq4_nl_value},
    {MICA_DTYPE_IQ4_XS, NULL, oracle_iq4_xs_value},
    {MICA_DTYPE_MXFP4, NULL, oracle_mxfp4_value},
    {MICA_DTYPE_NVFP4, NULL, oracle_nvfp4_value},
    {MICA_DTYPE_TQ1_0, NULL, oracle_tq1_0_value},
    {MICA_DTYPE_TQ2_0, NULL, oracle_tq2_0_value},
    {MICA_DTYPE_TURBO2, oracle_turbo2_value, NULL},
    {MICA_DTYPE_TURBO2_5, oracle_turbo2_5_value, NULL},
    {MICA_DTYPE_TURBO3, oracle_turbo3_value, NULL},
    {MICA_DTYPE_TURBO4, oracle_turbo4_value, NULL},
    {MICA_DTYPE_TURBO5, oracle_turbo5_value, NULL},
    {MICA_DTYPE_TURBO6, oracle_turbo6_value, NULL},
    {MICA_DTYPE_TURBO8, oracle_turbo8_value, NULL},
};

static void decode_affine(unsigned bits, const uint8_t *row, size_t count, const oracle_groups *groups,
                          double *value, double *magnitude)
{
    for (size_t i = 0; i < count; i++) {
        double scaled = affine_code(bits, row, i) * groups->scales[i / groups->size];
        double bias = groups->biases[i / groups->size];

        value[i] = scaled + bias;
        magnitude[i] = fabs(scaled) + fabs(bias);
    }
}

/* fp4: value i in the low nibble of byte i / 2 where i is even, else in the high one; f8_e4m3: a byte each. */
static void decode_floats(mica_dtype dtype, const uint8_t *row, size_t count, const oracle_groups *groups,
                          double *value, double *magnitude)
{
    for (size_t i = 0; i < count; i++) {
        double number =
            dtype == MICA_DTYPE_FP4 ? oracle_e2m1(row[i / 2] >> (i % 2 * 4) & 15) : oracle_e4m3(row[i]);

        value[i] = number * groups->scales[i / groups->size];
        magnitude[i] = fabs(value[i]);
    }
}

void oracle_decode_row(mica_dtype dtype, const uint8_t *row, size_t count, const oracle_groups *groups,
                       double *value, double *magnitude)
{
    size_t per = oracle_block_values(dtype), bytes = oracle_block_bytes(dtype), t = 0;

    if (oracle_is_affine(dtype)) {
        decode_affine(affine_bits(dtype), row, count, groups, value, magnitude);
        return;
    }
    if (oracle_has_scales(dtype) && groups != NULL && groups->size != 0) {
        decode_floats(dtype, row, count, groups, value, magnitude);
        return;
    }
    while (t < sizeof types / sizeof *types && types[t].dtype != dtype)
        t++;
    for (size_t i = 0; i < count; i++) {
        const uint8_t *block = row + i / per * bytes;

        if (t < sizeof types / sizeof *types && types[t].terms != NULL) {
            types[t].terms(block, i % per, &value[i], &magnitude[i]);
            continue;
        }
        value[i] =
            t == sizeof types / sizeof *types ? oracle_get(dtype, block) : types[t].product(block, i % per);
        magnitude[i] = fabs(value[i]);
    }
}

void oracle_quantise_q8(const double *x, size_t count, double *out)
{
    for (size_t begin = 0; begin < count; begin += 32) {
        size_t end = begin + 32 < count ? begin + 32 : count;
        float largest = 0, inverse;

        for (size_t i = begin; i < end; i++)
            largest = fmaxf(largest, fabsf((float)x[i]));
        inverse = largest > 0 ? 127.0f / largest : 0;
        for (size_t i = begin; i < end; i++)
            out[i] = nearbyintf((float)x[i] * inverse) * ((double)largest / 127);
    }
}

void oracle_round_q8_0(const double *x, size_t count, double *out)
{
    for (size_t first = 0; first < count; first += 32) {
        float most = 0, d, id;

        for (size_t i = first; i < first + 32; i++)
            most = fmaxf(most, fabsf((float)x[i]));
        d = most / 127;
        id = d == 0 ? 0 : 1 / d;
        for (size_t i = first; i < first + 32; i++)
            out[i] = (double)roundf((float)x[i] * id) * oracle_from_f16(oracle_to_f16(d));
    }
}
