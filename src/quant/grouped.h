/*
 * grouped.h - rows whose scales lie in tables of their own (quant.h says what they are), for one instruction set.
 * affine.c chooses; codec/grouped.c is compiled once per instruction set, as codec.h describes.
 */
#ifndef MICA_QUANT_GROUPED_H
#define MICA_QUANT_GROUPED_H

#include <stdint.h>

typedef struct mica__grouped_form {
    uint16_t dtype, scale_dtype; /* a pair that mica__affine_serves knows */
    uint32_t group_size;         /* values that share a scale, at least 1 */
} mica__grouped_form;

/* biases is NULL unless dtype is affine. */
typedef void (*mica__grouped_decode)(const mica__grouped_form *form, const void *q, const void *scales,
                                     const void *biases, float *dst, uint64_t n);
typedef void (*mica__grouped_encode)(const mica__grouped_form *form, const float *src, uint64_t n, void *q,
                                     void *scales, void *biases);

typedef struct mica__grouped_codec {
    mica__grouped_decode decode;
    mica__grouped_encode encode;
} mica__grouped_codec;

/* Bits of a stored number; 0 for a type that has no groups. */
unsigned mica__grouped_bits(uint16_t dtype);
/* Stores element i of a table of f32, f16 or bf16. */
void mica__scale_store(uint16_t dtype, void *table, uint64_t i, float value);

#endif
