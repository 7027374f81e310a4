/*
 * cache.h - rows of a KV cache: f32, f16, bf16, or q8_0 blocks of 32 values.
 *
 * A q8_0 value is its code times its scale, which is exact in f32: what is read inside a kernel and what was decoded
 * before have the same bits.
 */
#ifndef MICA_CPU_CACHE_H
#define MICA_CPU_CACHE_H

#include <stddef.h>

#include "backend/cpu/kernels/rows.h"
#include "quant/quant.h"

#define CACHE_BLOCK 32 /* values of a q8_0 block */

static inline uint64_t cache_row_bytes(uint16_t dtype, uint64_t n)
{
    if (dtype == MICA_DTYPE_Q8_0)
        return n / CACHE_BLOCK * sizeof(mica__block_q8_0);
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
    if (dtype == MICA_DTYPE_Q8_0)
        mica__quant_encode_row(dtype, src, NULL, dst, n);
    else
        row_store(dst, dtype, src, n);
}

#endif
