/*
 * cache.h - rows of a KV cache: f32, f16, bf16, or blocks.
 *
 * Blocks of q8_0 are read where they lie; those of the coded types are decoded to f32 rows first.
 * A q8_0 value is its code times its scale, which is exact in f32: what is read inside a kernel and what was decoded
 * before have the same bits.
 */
#ifndef MICA_CPU_CACHE_H
#define MICA_CPU_CACHE_H

#include <stddef.h>

#include "backend/cpu/kernels/rows.h"
#include "quant/quant.h"

#define CACHE_BLOCK 32 /* values of a q8_0 block */

static inline bool cache_is_coded(uint16_t dtype)
{
    return dtype == MICA_DTYPE_Q4_0 || dtype == MICA_DTYPE_Q4_1 || dtype == MICA_DTYPE_Q5_0 ||
           dtype == MICA_DTYPE_Q5_1 || dtype == MICA_DTYPE_IQ4_NL || mica__dtype_is_turbo(dtype);
}

static inline uint64_t cache_row_bytes(uint16_t dtype, uint64_t n)
{
    if (dtype == MICA_DTYPE_Q8_0 || cache_is_coded(dtype))
        return n / mica__dtype_elements(dtype) * mica__dtype_bytes(dtype);
    return n * row_element_bytes(dtype);
}

/* The scale of value `at` of a q8_0 row, in all lanes, and with it the vector of values [at, at + VW). */
static inline vf cache_scale_q8_0(const unsigned char *row, uint64_t at)
{
    return vf_set1_f16(row + at / CACHE_BLOCK * sizeof(mica__block_q8_0) + offsetof(mica__block_q8_0, d));
}

static inline vf cache_load_q8_0(const unsigned char *row, uint64_t at, vf scale)
{
    const unsigned char *block = row + at / CACHE_BLOCK * sizeof(mica__block_q8_0);
    return vf_mul(vf_load_i8(block + offsetof(mica__block_q8_0, qs) + at % CACHE_BLOCK), scale);
}

/* Rounds a row of n values to the cache's type. */
static inline void cache_store(void *dst, uint16_t dtype, const float *src, uint64_t n)
{
    if (dtype == MICA_DTYPE_Q8_0 || cache_is_coded(dtype))
        mica__quant_encode_row(dtype, src, NULL, dst, n);
    else
        row_store(dst, dtype, src, n);
}

#endif
