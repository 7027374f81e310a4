/*
 * dtype.h - the facts about element types without a call: for the encoder's inner loops, on types that were checked.
 */
#ifndef MICA_QUANT_DTYPE_H
#define MICA_QUANT_DTYPE_H

#include <stdbool.h>

#include "mica/types.h"

typedef struct mica__dtype_facts {
    const char *name;
    uint32_t block_elements, block_bytes;
} mica__dtype_facts;

extern const mica__dtype_facts mica__dtypes[MICA_DTYPE_COUNT];

/* Values and bytes of a block. `dtype` is below MICA_DTYPE_COUNT. */
static inline uint32_t mica__dtype_elements(uint32_t dtype)
{
    return mica__dtypes[dtype].block_elements;
}

static inline uint32_t mica__dtype_bytes(uint32_t dtype)
{
    return mica__dtypes[dtype].block_bytes;
}

/* What kernels ask of an address, and so of offsets and strides: a plain element's size, of a block as much as its size and words
 * of 4 bytes allow. */
static inline uint32_t mica__dtype_alignment(uint32_t dtype)
{
    const uint32_t bytes = mica__dtype_bytes(dtype), widest = bytes & (~bytes + 1);
    return mica__dtype_elements(dtype) == 1 || widest < 4 ? widest : 4;
}

/* MLX's affine words, which have scales and biases beside them. */
static inline bool mica__dtype_is_affine(uint32_t dtype)
{
    return dtype >= MICA_DTYPE_AFFINE2 && dtype <= MICA_DTYPE_AFFINE8;
}

/* TurboQuant blocks, of caches alone. */
static inline bool mica__dtype_is_turbo(uint32_t dtype)
{
    return dtype >= MICA_DTYPE_TURBO2 && dtype <= MICA_DTYPE_TURBO8;
}

/* Types with tables of scales beside them. */
static inline bool mica__dtype_is_grouped(uint32_t dtype)
{
    return mica__dtype_is_affine(dtype) || dtype == MICA_DTYPE_FP4 || dtype == MICA_DTYPE_F8_E4M3;
}

#endif
