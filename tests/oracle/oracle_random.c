/* oracle_random.c - see oracle_random.h. */
#include "oracle/oracle_random.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "oracle/oracle_scalar.h"

void oracle_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c[4], k[2] = {key[0], key[1]};

    memcpy(c, counter, sizeof c);
    for (int round = 0; round < 10; round++) {
        const uint64_t p = UINT64_C(0xD2511F53) * c[0], q = UINT64_C(0xCD9E8D57) * c[2];
        const uint32_t next[4] = {(uint32_t)(q >> 32) ^ c[1] ^ k[0], (uint32_t)q,
                                  (uint32_t)(p >> 32) ^ c[3] ^ k[1], (uint32_t)p};

        memcpy(c, next, sizeof c);
        k[0] += 0x9E3779B9;
        k[1] += 0xBB67AE85;
    }
    memcpy(out, c, sizeof c);
}

uint64_t oracle_random(uint64_t seed, uint64_t counter)
{
    const uint32_t c[4] = {(uint32_t)counter, (uint32_t)(counter >> 32), 0, 0},
                   k[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t out[4];

    oracle_philox(c, k, out);
    return out[0] | (uint64_t)out[1] << 32;
}

double oracle_random_u24(uint64_t bits)
{
    return ldexp((double)(bits >> 40), -24);
}

/* A step's result in the type that the arithmetic has. */
static double step(mica_dtype dtype, double value)
{
    return dtype == MICA_DTYPE_F64 ? value : (double)(float)value;
}

double oracle_random_uniform(mica_dtype dtype, uint64_t bits, double low, double high)
{
    const int digits = dtype == MICA_DTYPE_F64   ? 53
                       : dtype == MICA_DTYPE_F32 ? 24
                       : dtype == MICA_DTYPE_F16 ? 11
                                                 : 8;
    const double part = ldexp((double)(bits >> (64 - digits)), -digits);
    const double value = step(dtype, step(dtype, part * step(dtype, high - low)) + step(dtype, low));
    double y = (double)oracle_float_round(dtype, (long double)value);

    if (y >= low && y < high)
        return y;
    /* Outside by rounding: the nearest number of the type that is inside. */
    const bool down = y >= high;
    if (dtype == MICA_DTYPE_F64)
        return down ? nextafter(high, -(double)INFINITY) : low;
    if (dtype == MICA_DTYPE_F32) {
        const float near = (float)(down ? high : low);
        if (down)
            return (double)near < high ? (double)near : (double)nextafterf(near, -INFINITY);
        return (double)near >= low ? (double)near : (double)nextafterf(near, INFINITY);
    }
    y = down ? -(double)INFINITY : (double)INFINITY;
    for (uint64_t code = 0; code < 1u << 16; code++) {
        const double each = (double)oracle_float_of(dtype, code);
        if (each >= low && each < high && (down ? each > y : each < y))
            y = each;
    }
    return y;
}

static double upper_half(mica_dtype dtype, uint64_t bits)
{
    return step(dtype, step(dtype, (double)(uint32_t)(bits >> 32)) * 0x1p-32 + 0x1p-33);
}

double oracle_random_normal(mica_dtype dtype, uint64_t bits, double mean, double deviation, double *out_error)
{
    const double turn = step(dtype, 6.283185307179586 * 0x1p-32), u = upper_half(dtype, bits);
    const double angle = step(dtype, step(dtype, (double)(int32_t)(uint32_t)bits) * turn);
    const double z = sqrt(-2 * log(u)) * cos(angle), unit = dtype == MICA_DTYPE_F64 ? 0x1p-52 : 0x1p-24;
    const double y = step(dtype, deviation) * z + step(dtype, mean);

    /* 4 of log, halved by the root, 3 of the root, 5 of cos, 2 products; and the sum. */
    *out_error = unit * (12 * fabs(deviation * z) + fabs(y));
    return y;
}

double oracle_random_gumbel(mica_dtype dtype, uint64_t bits, double *out_error)
{
    const double u = fmin(upper_half(dtype, bits), 1 - 0x1p-24), g = -log(-log1p(-u));
    const double unit = dtype == MICA_DTYPE_F64 ? 0x1p-52 : 0x1p-24;

    *out_error =
        unit * (4 + 4 * fabs(g)); /* log1p moves the second log by as much as it is off, relatively */
    return g;
}
