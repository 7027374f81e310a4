/*
 * oracle_blocks.c - q4_0 q8_0 q4_k q6_k and MLX affine 4, 6, 8 bit, one value at a time from the layout.
 */
#include "oracle/oracle_blocks.h"

#include <math.h>

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

/* f16 d; 32 signed bytes. */
static void q8_0_value(const uint8_t *block, size_t i, double *value, double *magnitude)
{
    *value = half_at(block) * (int8_t)block[2 + i];
    *magnitude = fabs(*value);
}

/* f16 d, f16 dmin, 12 bytes of 6-bit scales and mins, 128 bytes of nibbles; 8 sub-blocks of 32. */
static void q4_k_value(const uint8_t *block, size_t i, double *value, double *magnitude)
{
    const uint8_t *s = block + 4;
    size_t j = i / 32;
    int scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
    int min = j < 4 ? s[j + 4] & 63 : (s[j + 4] >> 4) | (s[j] >> 6) << 4;
    int byte = block[16 + 32 * (j / 2) + i % 32];
    int code = j % 2 ? byte >> 4 : byte & 15;
    double up = half_at(block) * scale * code, down = half_at(block + 2) * min;

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

static int affine_code(mica_dtype dtype, const uint8_t *row, size_t i)
{
    const uint8_t *group = row + i / 4 * 3;

    if (dtype == MICA_DTYPE_AFFINE4)
        return row[i / 2] >> (i % 2 * 4) & 15;
    if (dtype == MICA_DTYPE_AFFINE8)
        return row[i];
    return (group[0] | group[1] << 8 | group[2] << 16) >> (6 * (i % 4)) & 63;
}

bool oracle_is_affine(mica_dtype dtype)
{
    return dtype == MICA_DTYPE_AFFINE4 || dtype == MICA_DTYPE_AFFINE6 || dtype == MICA_DTYPE_AFFINE8;
}

bool oracle_is_block(mica_dtype dtype)
{
    return oracle_block_values(dtype) > 1;
}

size_t oracle_row_bytes(mica_dtype dtype, size_t count)
{
    return count / oracle_block_values(dtype) * oracle_block_bytes(dtype);
}

void oracle_decode_row(mica_dtype dtype, const uint8_t *row, size_t count, const oracle_groups *groups,
                       double *value, double *magnitude)
{
    for (size_t i = 0; i < count; i++) {
        size_t per = oracle_block_values(dtype);
        const uint8_t *block = row + i / per * oracle_block_bytes(dtype);

        if (oracle_is_affine(dtype)) {
            double scaled = affine_code(dtype, row, i) * groups->scales[i / groups->size];
            double bias = groups->biases[i / groups->size];

            value[i] = scaled + bias;
            magnitude[i] = fabs(scaled) + fabs(bias);
            continue;
        }
        switch (dtype) {
        case MICA_DTYPE_Q4_0: q4_0_value(block, i % per, &value[i], &magnitude[i]); break;
        case MICA_DTYPE_Q8_0: q8_0_value(block, i % per, &value[i], &magnitude[i]); break;
        case MICA_DTYPE_Q4_K: q4_k_value(block, i % per, &value[i], &magnitude[i]); break;
        case MICA_DTYPE_Q6_K: q6_k_value(block, i % per, &value[i], &magnitude[i]); break;
        default:
            value[i] = oracle_get(dtype, block);
            magnitude[i] = fabs(value[i]);
            break;
        }
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
