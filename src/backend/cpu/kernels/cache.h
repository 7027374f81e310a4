/*
 * cache.h - rows of a KV cache: f32, f16, bf16, or blocks.
 *
 * Blocks of q8_0, q4_0 and iq4_nl may be read where they lie; those of the other types are decoded to f32 rows first.
 * A value is its code or level, exact in f32, times its scale, rounded once: what is read inside a kernel and what was decoded
 * before have the same bits.
 */
#ifndef MICA_CPU_CACHE_H
#define MICA_CPU_CACHE_H

#include <stddef.h>

#include "backend/cpu/kernels/rows.h"
#include "quant/quant.h"

#define CACHE_BLOCK 32 /* values of a block that is read where it lies */

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

_Static_assert(sizeof(mica__block_q4_0) == sizeof(mica__block_iq4_nl) && offsetof(mica__block_q4_0, d) == 0 &&
                   offsetof(mica__block_iq4_nl, d) == 0 && offsetof(mica__block_q8_0, d) == 0 &&
                   offsetof(mica__block_q4_0, qs) == offsetof(mica__block_iq4_nl, qs),
               "blocks of the two types are found alike");

/* The block of value `at` of a row of q8_0, q4_0 or iq4_nl. */
static inline const unsigned char *cache_block(const unsigned char *row, uint16_t dtype, uint64_t at)
{
    return row + at / CACHE_BLOCK *
                     (dtype == MICA_DTYPE_Q8_0 ? sizeof(mica__block_q8_0) : sizeof(mica__block_q4_0));
}

/* The scale of value `at`, in all lanes, and with it the vector of values [at, at + VW). */
static inline vf cache_scale(const unsigned char *row, uint16_t dtype, uint64_t at)
{
    return vf_set1_f16(cache_block(row, dtype, at));
}

static inline vf cache_load(const unsigned char *row, uint16_t dtype, uint64_t at, vf scale)
{
    static const vf_level nearby[16] = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7},
                          spread[16] = {MICA__IQ4_LEVELS};
    const unsigned char *block = cache_block(row, dtype, at);
    const uint64_t place = at % CACHE_BLOCK;
    if (dtype == MICA_DTYPE_Q8_0)
        return vf_mul(vf_load_i8(block + offsetof(mica__block_q8_0, qs) + place), scale);
    return vf_mul(vf_load_level(dtype == MICA_DTYPE_Q4_0 ? nearby : spread,
                                block + offsetof(mica__block_q4_0, qs) + place % (CACHE_BLOCK / 2),
                                place >= CACHE_BLOCK / 2),
                  scale);
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
