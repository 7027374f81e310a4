/* affine.c - MLX affine rows to f32. */
#include "quant/quant.h"

#include <string.h>

#include "base/half.h"

bool mica__affine_known(uint16_t dtype)
{
    return dtype == MICA_DTYPE_AFFINE4 || dtype == MICA_DTYPE_AFFINE6 || dtype == MICA_DTYPE_AFFINE8;
}

void mica__affine_codes(uint16_t dtype, const void *q, uint64_t first, uint32_t count, uint8_t *codes)
{
    if (dtype == MICA_DTYPE_AFFINE8) {
        memcpy(codes, (const unsigned char *)q + first, count);
    } else if (dtype == MICA_DTYPE_AFFINE4) {
        const unsigned char *bytes = (const unsigned char *)q + first / 2;
        for (uint32_t b = 0; b < count / 2; b++) {
            codes[2 * b] = bytes[b] & 15;
            codes[2 * b + 1] = bytes[b] >> 4;
        }
    } else {
        const unsigned char *bytes = (const unsigned char *)q + first / 4 * 3;
        for (uint32_t t = 0; t < count / 4; t++) {
            const uint32_t word =
                bytes[3 * t] | (uint32_t)bytes[3 * t + 1] << 8 | (uint32_t)bytes[3 * t + 2] << 16;
            const uint32_t four =
                (word & 0x3f) | (word & 0xfc0) << 2 | (word & 0x3f000) << 4 | (word & 0xfc0000) << 6;
            memcpy(codes + 4 * t, &four, sizeof four);
        }
    }
}

float mica__scale_value(uint16_t dtype, const void *table, uint64_t i)
{
    const unsigned char *bytes = table;
    if (dtype == MICA_DTYPE_F32) {
        float value;
        memcpy(&value, bytes + 4 * i, sizeof value);
        return value;
    }
    uint16_t half;
    memcpy(&half, bytes + 2 * i, sizeof half);
    return dtype == MICA_DTYPE_F16 ? mica__f16_to_f32(half) : mica__bf16_to_f32(half);
}

void mica__affine_decode_row(uint16_t dtype, const void *q, const void *scales, const void *biases,
                             uint16_t scale_dtype, uint32_t group_size, float *dst, uint64_t n)
{
    if (!mica__affine_known(dtype)) {
        memset(dst, 0, n * sizeof *dst);
        return;
    }
    uint8_t codes[64] = {0}; /* a run, which any number of groups may divide */
    for (uint64_t first = 0; first < n; first += sizeof codes) {
        const uint64_t run = n - first < sizeof codes ? n - first : sizeof codes;
        mica__affine_codes(dtype, q, first, (uint32_t)run, codes);
        for (uint64_t i = 0; i < run;) {
            const uint64_t group = (first + i) / group_size, left = (group + 1) * group_size - (first + i);
            const uint64_t end = left < run - i ? i + left : run;
            const float scale = mica__scale_value(scale_dtype, scales, group);
            const float bias = mica__scale_value(scale_dtype, biases, group);
            for (; i < end; i++)
                dst[first + i] = (float)codes[i] * scale + bias;
        }
    }
}
