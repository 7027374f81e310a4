/* fill.c - numbers as elements. */
#include "backend/fill.h"

#include <math.h>

#include "base/half.h"
#include "mica/types.h"

/* The f32 that rounds on to a smaller type as `value` itself would: a value between two f32 takes the one whose
 * last bit is 1. */
static float round_to_odd(double value)
{
    float near = (float)value;
    if (isnan(value) || isinf(value) || (double)near == value)
        return near;
    if (isinf(near) || fabs((double)near) > fabs(value))
        near = nextafterf(near, 0.0f);
    return mica__f32_from_bits(mica__f32_bits(near) | 1);
}

/* `value` within [least, greatest], its fraction dropped; NaN is 0. */
static int64_t to_integer(double value, int64_t least, int64_t greatest)
{
    if (isnan(value))
        return 0;
    if (value <= (double)least)
        return least;
    return value >= (double)greatest ? greatest : (int64_t)value;
}

uint32_t mica__fill_bits(double value, uint16_t dtype)
{
    switch (dtype) {
    case MICA_DTYPE_F32: return mica__f32_bits((float)value);
    case MICA_DTYPE_F16: return mica__f32_to_f16(round_to_odd(value));
    case MICA_DTYPE_BF16: return mica__f32_to_bf16(round_to_odd(value));
    case MICA_DTYPE_I32: return (uint32_t)to_integer(value, INT32_MIN, INT32_MAX);
    default: return (uint32_t)to_integer(value, 0, UINT32_MAX);
    }
}
