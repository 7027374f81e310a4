/*
 * oracle_number.c - f16 and bf16 from their definition: sign, exponent, fraction; ties to even.
 */
#include "oracle/oracle_number.h"

#include <math.h>
#include <string.h>

/* 2 to that power, for powers of normal doubles: ldexp takes a fifth of a run of conformance. */
static double power_of_two(int power)
{
    const uint64_t bits = (uint64_t)(power + 1023) << 52;
    double result;

    memcpy(&result, &bits, sizeof result);
    return result;
}

static double from_small_float(uint16_t bits, int exponent_bits, int fraction_bits)
{
    int exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1);
    int fraction = bits & ((1 << fraction_bits) - 1);
    int bias = (1 << (exponent_bits - 1)) - 1;
    double magnitude;

    if (exponent == (1 << exponent_bits) - 1)
        magnitude = fraction ? (double)NAN : (double)INFINITY;
    else if (exponent == 0)
        magnitude = fraction * power_of_two(1 - bias - fraction_bits);
    else
        magnitude = (fraction + (1 << fraction_bits)) * power_of_two(exponent - bias - fraction_bits);
    return bits & 0x8000 ? -magnitude : magnitude;
}

static uint16_t to_small_float(double value, int exponent_bits, int fraction_bits)
{
    int bias = (1 << (exponent_bits - 1)) - 1;
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    uint16_t infinity = (uint16_t)(((1 << exponent_bits) - 1) << fraction_bits);
    double magnitude = fabs(value), steps;
    int exponent;

    if (isnan(value))
        return (uint16_t)(sign | infinity | (1 << (fraction_bits - 1)));
    if (isinf(value))
        return (uint16_t)(sign | infinity);
    if (magnitude == 0)
        return sign;
    exponent = ilogb(magnitude);
    if (exponent < 1 - bias)
        exponent = 1 - bias;
    /* In units of the last place; nearbyint rounds ties to even. A carry runs into the exponent by itself. */
    steps = nearbyint(magnitude * power_of_two(fraction_bits - exponent));
    magnitude = steps * power_of_two(exponent - fraction_bits);
    if (magnitude >= power_of_two(bias + 1))
        return (uint16_t)(sign | infinity);
    if (steps < (1 << fraction_bits))
        return (uint16_t)(sign | (uint16_t)steps);
    if (steps >= (2 << fraction_bits)) {
        exponent++;
        steps = 1 << fraction_bits;
    }
    return (uint16_t)(sign | ((exponent + bias) << fraction_bits) |
                      ((int)steps & ((1 << fraction_bits) - 1)));
}

double oracle_from_f16(uint16_t bits)
{
    return from_small_float(bits, 5, 10);
}

double oracle_from_bf16(uint16_t bits)
{
    return from_small_float(bits, 8, 7);
}

uint16_t oracle_to_f16(double value)
{
    return to_small_float(value, 5, 10);
}

uint16_t oracle_to_bf16(double value)
{
    return to_small_float(value, 8, 7);
}

/* Of every value that is read or written: looked up, not searched for. */
static const struct {
    uint16_t values, bytes;
} sizes[] = {
    [MICA_DTYPE_F32] = {1, 4},       [MICA_DTYPE_F16] = {1, 2},      [MICA_DTYPE_BF16] = {1, 2},
    [MICA_DTYPE_F64] = {1, 8},       [MICA_DTYPE_C64] = {1, 8},      [MICA_DTYPE_I8] = {1, 1},
    [MICA_DTYPE_I16] = {1, 2},       [MICA_DTYPE_I32] = {1, 4},      [MICA_DTYPE_I64] = {1, 8},
    [MICA_DTYPE_U8] = {1, 1},        [MICA_DTYPE_U16] = {1, 2},      [MICA_DTYPE_U32] = {1, 4},
    [MICA_DTYPE_U64] = {1, 8},       [MICA_DTYPE_BOOL] = {1, 1},     [MICA_DTYPE_F8_E4M3] = {1, 1},
    [MICA_DTYPE_F8_E5M2] = {1, 1},   [MICA_DTYPE_Q4_0] = {32, 18},   [MICA_DTYPE_Q4_1] = {32, 20},
    [MICA_DTYPE_Q5_0] = {32, 22},    [MICA_DTYPE_Q5_1] = {32, 24},   [MICA_DTYPE_Q8_1] = {32, 36},
    [MICA_DTYPE_Q2_K] = {256, 84},   [MICA_DTYPE_Q3_K] = {256, 110}, [MICA_DTYPE_Q5_K] = {256, 176},
    [MICA_DTYPE_Q8_K] = {256, 292},  [MICA_DTYPE_Q8_0] = {32, 34},   [MICA_DTYPE_Q4_K] = {256, 144},
    [MICA_DTYPE_Q6_K] = {256, 210},  [MICA_DTYPE_AFFINE4] = {8, 4},  [MICA_DTYPE_AFFINE6] = {4, 3},
    [MICA_DTYPE_AFFINE8] = {4, 4},   [MICA_DTYPE_AFFINE2] = {16, 4}, [MICA_DTYPE_AFFINE3] = {8, 3},
    [MICA_DTYPE_AFFINE5] = {8, 5},   [MICA_DTYPE_IQ4_NL] = {32, 18}, [MICA_DTYPE_IQ4_XS] = {256, 136},
    [MICA_DTYPE_MXFP4] = {32, 17},   [MICA_DTYPE_NVFP4] = {64, 36},  [MICA_DTYPE_TQ1_0] = {256, 54},
    [MICA_DTYPE_TQ2_0] = {256, 66},  [MICA_DTYPE_FP4] = {2, 1},      [MICA_DTYPE_E8M0] = {1, 1},
    [MICA_DTYPE_IQ1_S] = {256, 50},  [MICA_DTYPE_IQ1_M] = {256, 56}, [MICA_DTYPE_IQ2_XXS] = {256, 66},
    [MICA_DTYPE_IQ2_XS] = {256, 74}, [MICA_DTYPE_IQ2_S] = {256, 82}, [MICA_DTYPE_IQ3_XXS] = {256, 98},
    [MICA_DTYPE_IQ3_S] = {256, 110}, [MICA_DTYPE_TURBO2] = {64, 18}, [MICA_DTYPE_TURBO2_5] = {64, 22},
    [MICA_DTYPE_TURBO3] = {64, 26},  [MICA_DTYPE_TURBO4] = {64, 34}, [MICA_DTYPE_TURBO5] = {64, 42},
    [MICA_DTYPE_TURBO6] = {64, 50},  [MICA_DTYPE_TURBO8] = {64, 66},
};

size_t oracle_block_values(mica_dtype dtype)
{
    return (size_t)dtype < sizeof sizes / sizeof *sizes ? sizes[dtype].values : 0;
}

size_t oracle_block_bytes(mica_dtype dtype)
{
    return (size_t)dtype < sizeof sizes / sizeof *sizes ? sizes[dtype].bytes : 0;
}

static size_t low_bytes(mica_dtype dtype)
{
    return oracle_block_bytes(dtype) < 4 ? oracle_block_bytes(dtype) : 4;
}

double oracle_get(mica_dtype dtype, const void *element)
{
    float f32;
    double f64;
    uint16_t u16;
    uint32_t u32;
    int32_t i32;
    int64_t i64;
    int8_t i8;

    switch (dtype) {
    case MICA_DTYPE_F32: memcpy(&f32, element, sizeof f32); return f32;
    case MICA_DTYPE_F64: memcpy(&f64, element, sizeof f64); return f64;
    case MICA_DTYPE_F16: memcpy(&u16, element, sizeof u16); return oracle_from_f16(u16);
    case MICA_DTYPE_BF16: memcpy(&u16, element, sizeof u16); return oracle_from_bf16(u16);
    case MICA_DTYPE_I32: memcpy(&i32, element, sizeof i32); return i32;
    case MICA_DTYPE_I64: memcpy(&i64, element, sizeof i64); return (double)i64;
    case MICA_DTYPE_I8: memcpy(&i8, element, sizeof i8); return i8;
    default: break;
    }
    u32 = 0;
    memcpy(&u32, element, low_bytes(dtype));
    return u32;
}

void oracle_put(mica_dtype dtype, double value, void *element)
{
    float f32 = (float)value;
    uint16_t u16;
    uint32_t u32;
    int32_t i32;
    int64_t i64;

    switch (dtype) {
    case MICA_DTYPE_F32: memcpy(element, &f32, sizeof f32); return;
    case MICA_DTYPE_F64: memcpy(element, &value, sizeof value); return;
    case MICA_DTYPE_F16:
        u16 = oracle_to_f16(value);
        memcpy(element, &u16, sizeof u16);
        return;
    case MICA_DTYPE_BF16:
        u16 = oracle_to_bf16(value);
        memcpy(element, &u16, sizeof u16);
        return;
    case MICA_DTYPE_I32:
        i32 = (int32_t)value;
        memcpy(element, &i32, sizeof i32);
        return;
    case MICA_DTYPE_I64: /* 2^63 stands for the greatest, which a double has not */
        i64 = value >= 0x1p63 ? INT64_MAX : (int64_t)value;
        memcpy(element, &i64, sizeof i64);
        return;
    default: break;
    }
    u32 = (uint32_t)(int64_t)value;
    memset(element, 0, oracle_block_bytes(dtype));
    memcpy(element, &u32, low_bytes(dtype));
}

double oracle_round(mica_dtype dtype, double value)
{
    unsigned char element[8];

    if (oracle_block_values(dtype) > 1) /* a block rounds its values together */
        return value;
    oracle_put(dtype, value, element);
    return oracle_get(dtype, element);
}

double oracle_store_eps(mica_dtype dtype)
{
    switch (dtype) {
    case MICA_DTYPE_F32: return power_of_two(-24);
    case MICA_DTYPE_F16: return power_of_two(-11);
    case MICA_DTYPE_BF16: return power_of_two(-8);
    default: return 0;
    }
}

double oracle_store_tiny(mica_dtype dtype)
{
    switch (dtype) {
    case MICA_DTYPE_F32: return power_of_two(-149);
    case MICA_DTYPE_F16: return power_of_two(-24);
    case MICA_DTYPE_BF16: return power_of_two(-133);
    default: return 0;
    }
}
