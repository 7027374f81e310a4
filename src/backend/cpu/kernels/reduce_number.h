/*
 * reduce_number.h - single numbers of reductions and scans: the greatest and the least, integers of all types as i64, which wrap.
 */
#ifndef MICA_CPU_REDUCE_NUMBER_H
#define MICA_CPU_REDUCE_NUMBER_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "mica/ops.h"

static inline double real_greatest(double a, double b)
{
    if (a != a || b != b)
        return a + b;
    return a > b || (a == b && !signbit(a)) ? a : b;
}

static inline double real_least(double a, double b)
{
    return -real_greatest(-a, -b);
}

/* The result over nothing. */
static inline int64_t whole_nothing(uint32_t kind, uint16_t dtype)
{
    const int64_t least = dtype == MICA_DTYPE_I64 ? INT64_MIN : dtype == MICA_DTYPE_I32 ? INT32_MIN : 0;
    const int64_t most = dtype == MICA_DTYPE_I64   ? INT64_MAX
                         : dtype == MICA_DTYPE_I32 ? INT32_MAX
                         : dtype == MICA_DTYPE_U32 ? (int64_t)UINT32_MAX
                                                   : 1;
    return kind == MICA_REDUCE_MAX    ? least
           : kind == MICA_REDUCE_MIN  ? most
           : kind == MICA_REDUCE_PROD ? 1
                                      : 0;
}

static inline int64_t whole_of(uint32_t kind, int64_t a, int64_t b)
{
    switch (kind) {
    case MICA_REDUCE_SUM: return (int64_t)((uint64_t)a + (uint64_t)b);
    case MICA_REDUCE_PROD: return (int64_t)((uint64_t)a * (uint64_t)b);
    case MICA_REDUCE_MAX: return a > b ? a : b;
    default: return a < b ? a : b;
    }
}

/* ---- memory ---- */

static inline int64_t whole_load(const unsigned char *src, uint16_t dtype)
{
    int64_t wide;
    int32_t number;
    if (dtype == MICA_DTYPE_BOOL)
        return *src != 0;
    if (dtype == MICA_DTYPE_I64) {
        memcpy(&wide, src, sizeof wide);
        return wide;
    }
    memcpy(&number, src, sizeof number);
    return dtype == MICA_DTYPE_I32 ? (int64_t)number : (int64_t)(uint32_t)number;
}

static inline void whole_store(unsigned char *dst, uint16_t dtype, int64_t value)
{
    const uint32_t number = (uint32_t)(uint64_t)value;
    if (dtype == MICA_DTYPE_BOOL)
        *dst = value != 0;
    else if (dtype == MICA_DTYPE_I64)
        memcpy(dst, &value, sizeof value);
    else
        memcpy(dst, &number, sizeof number);
}

#endif
