/*
 * sort_keys.h - keys that order as unsigned numbers the way the values do: NaN last in either order, -0 as 0. A value comes back out of its key but
 * for those that share one: zeros and NaN, which are read where they stood.
 */
#ifndef MICA_CPU_SORT_KEYS_H
#define MICA_CPU_SORT_KEYS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "mica/types.h"
#include "backend/cpu/cpu_params_sort.h"

typedef struct wide_element {
    uint64_t key, id;
} wide_element;

/* Of floats of `bits` bits, whose infinity is `inf`. */
static inline uint64_t float_key(uint64_t value, uint32_t bits, uint64_t inf, bool descending)
{
    const uint64_t sign = 1ull << (bits - 1), all = sign | (sign - 1), size = value & (sign - 1);
    if (size > inf)
        return all;
    if (size == 0)
        return descending ? all ^ sign : sign;
    const uint64_t key = (value & sign) != 0 ? ~value & all : value | sign;
    return descending ? ~key & all : key;
}

static inline uint64_t float_of_key(uint64_t key, uint32_t bits, bool descending)
{
    const uint64_t sign = 1ull << (bits - 1), all = sign | (sign - 1);
    key = descending ? ~key & all : key;
    return (key & sign) != 0 ? key ^ sign : ~key & all;
}

#define INF_F32 0x7f800000u
#define INF_F16 0x7c00u
#define INF_BF16 0x7f80u
#define INF_F64 0x7ff0000000000000ull

static inline uint64_t key_of(uint64_t value, uint16_t dtype, bool descending)
{
    switch (dtype) {
    case MICA_DTYPE_F32: return float_key(value, 32, INF_F32, descending);
    case MICA_DTYPE_F16: return float_key(value, 16, INF_F16, descending);
    case MICA_DTYPE_BF16: return float_key(value, 16, INF_BF16, descending);
    case MICA_DTYPE_F64: return float_key(value, 64, INF_F64, descending);
    case MICA_DTYPE_I32: value ^= 0x80000000u; return descending ? ~value & UINT32_MAX : value;
    case MICA_DTYPE_U32: return descending ? ~value & UINT32_MAX : value;
    default: value ^= 1ull << 63; return descending ? ~value : value;
    }
}

static inline uint64_t value_of_key(uint64_t key, uint16_t dtype, bool descending)
{
    switch (dtype) {
    case MICA_DTYPE_F32: return float_of_key(key, 32, descending);
    case MICA_DTYPE_F16:
    case MICA_DTYPE_BF16: return float_of_key(key, 16, descending);
    case MICA_DTYPE_F64: return float_of_key(key, 64, descending);
    case MICA_DTYPE_I32: return (descending ? ~key : key) ^ 0x80000000u;
    case MICA_DTYPE_U32: return descending ? ~key : key;
    default: return (descending ? ~key : key) ^ 1ull << 63;
    }
}

/* Whether several values have this key. */
static inline bool key_is_shared(uint64_t key, uint16_t dtype, bool descending)
{
    if (dtype == MICA_DTYPE_I32 || dtype == MICA_DTYPE_U32 || dtype == MICA_DTYPE_I64)
        return false;
    const uint64_t sign = 1ull << (mica__cpu_sort_key_bits(dtype) - 1), all = sign | (sign - 1);
    return key == all || key == (descending ? all ^ sign : sign);
}

/* ---- memory ---- */

static inline uint64_t value_bytes(uint16_t dtype)
{
    return mica__cpu_sort_key_bits(dtype) / 8;
}

static inline uint64_t value_load(const unsigned char *from, uint64_t bytes)
{
    uint64_t wide;
    uint32_t word;
    uint16_t half;
    if (bytes == 4) {
        memcpy(&word, from, sizeof word);
        return word;
    }
    if (bytes == 2) {
        memcpy(&half, from, sizeof half);
        return half;
    }
    memcpy(&wide, from, sizeof wide);
    return wide;
}

static inline void value_store(unsigned char *to, uint64_t bytes, uint64_t value)
{
    const uint32_t word = (uint32_t)value;
    const uint16_t half = (uint16_t)value;
    if (bytes == 4)
        memcpy(to, &word, sizeof word);
    else if (bytes == 2)
        memcpy(to, &half, sizeof half);
    else
        memcpy(to, &value, sizeof value);
}

#endif
