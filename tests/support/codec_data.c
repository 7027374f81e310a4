/* codec_data.c - whole numbers scaled by powers of two: no rounding anywhere. */
#include "support/codec_data.h"

#include <math.h>

#include "support/random.h"

void codec_data_fill(uint64_t seed, float *values, size_t n)
{
    test_random random = test_random_from(seed);
    for (size_t i = 0; i < n; i++) {
        const int exponent = -22 - (int)(i / 64 * 7 % 5);
        int32_t sum = 0;
        for (int k = 0; k < 4; k++)
            sum += (int32_t)(test_random_next(&random) >> 44) - (1 << 19);
        values[i] = ldexpf((float)sum, exponent);
        if (i / 256 % 16 == 5)
            values[i] = 0;
        else if (i / 256 % 16 == 9)
            values[i] = i / 256 % 32 == 9 ? 0.75f : -0.3125f;
    }
}

void codec_data_importance(uint64_t seed, float *weights, size_t n)
{
    test_random random = test_random_from(seed);
    for (size_t i = 0; i < n; i++) {
        const uint64_t bits = test_random_next(&random) >> 32;
        weights[i] = bits % 16 == 0 ? 0 : ldexpf(1.0f, (int)(bits >> 8) % 9 - 4);
    }
}

uint64_t codec_data_hash(const void *bytes, size_t size)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3u;
    return hash;
}
