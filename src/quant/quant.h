/*
 * quant.h - the block formats: what their bytes mean, to and from f32, one row at a time.
 *
 * Knows bytes and numbers alone: no device, no file, no kernel. Values are bit-exact with the format's
 * definition evaluated in f32. All numbers in a block are little endian, as is every machine mica runs on.
 *
 * To add a type: its struct and size here, a decode and an encode function and one table row in blocks.c, and,
 * if it is to be fast in matmul, its packed form in packed.h.
 */
#ifndef MICA_QUANT_QUANT_H
#define MICA_QUANT_QUANT_H

#include <stdbool.h>
#include <stdint.h>

#include "mica/types.h"

/* h means the bits of an f16. */

typedef struct mica__block_q4_0 { /* 32 values: w = (q - 8) * d */
    uint16_t d;                   /* h */
    uint8_t qs[16];               /* value j low nibble, value j + 16 high nibble of qs[j] */
} mica__block_q4_0;

typedef struct mica__block_q8_0 { /* 32 values: w = q * d */
    uint16_t d;                   /* h */
    int8_t qs[32];
} mica__block_q8_0;

typedef struct mica__block_q4_k { /* 256 values, sub-blocks s of 32: w = (d * scale[s]) * q - dmin * min[s] */
    uint16_t d, dmin;             /* h */
    uint8_t scales[12];           /* 6-bit scales and mins: mica__q4_k_scales */
    uint8_t qs[128];              /* sub-blocks 2p and 2p + 1 are the low and high nibbles of qs[32 p ..] */
} mica__block_q4_k;

typedef struct mica__block_q6_k { /* 256 values: w = (d * scales[i / 16]) * (q - 32) */
    uint8_t ql[128];              /* low four bits, halves of 128 values: value 32 t + l in nibble t / 2 of
                                   * ql[64 half + 32 (t % 2) + l] */
    uint8_t qh[64];               /* upper two bits: bits 2 t of qh[32 half + l] */
    int8_t scales[16];
    uint16_t d; /* h */
} mica__block_q6_k;

_Static_assert(sizeof(mica__block_q4_0) == 18, "q4_0 block");
_Static_assert(sizeof(mica__block_q8_0) == 34, "q8_0 block");
_Static_assert(sizeof(mica__block_q4_k) == 144, "q4_k block");
_Static_assert(sizeof(mica__block_q6_k) == 210, "q6_k block");

/* The eight scales and eight mins of a q4_k block. */
void mica__q4_k_scales(const uint8_t packed[12], uint8_t scale[8], uint8_t min[8]);

/* Whether the two functions below serve the type. */
bool mica__quant_known(uint16_t dtype);
/* n values, a multiple of the block, of a canonical row at any address. An unknown type gives zeros. */
void mica__quant_decode_row(uint16_t dtype, const void *src, float *dst, uint64_t n);
/* The nearest block for each run of values by a plain rule (largest magnitude or range decides the scale). Values
 * must be finite. An unknown type writes nothing. */
void mica__quant_encode_row(uint16_t dtype, const float *src, void *dst, uint64_t n);

/*
 * MLX affine rows: w = q * scale + bias (the product rounded to f32 first), one scale and bias per `group_size`
 * values (the last group may be short). 4-bit: value i at bits 4i of a u32 of eight; 6-bit: value i at bits 6i of
 * three bytes of four; 8-bit: bytes. scale_dtype: f32, f16 or bf16, of both tables. n is a multiple of the dtype's
 * block. An unknown type gives zeros.
 */
bool mica__affine_known(uint16_t dtype);
void mica__affine_decode_row(uint16_t dtype, const void *q, const void *scales, const void *biases,
                             uint16_t scale_dtype, uint32_t group_size, float *dst, uint64_t n);
/* The stored numbers of values [first, first + count) of a row, both multiples of the dtype's block. */
void mica__affine_codes(uint16_t dtype, const void *q, uint64_t first, uint32_t count, uint8_t *codes);
/* Element i of a table of f32, f16 or bf16. */
float mica__scale_value(uint16_t dtype, const void *table, uint64_t i);

/*
 * Activations of a quantised matmul (MICA_PRECISION_Q8): runs of 32 values, the last one of a row filled with zeros.
 * m = max|x|; q = round to nearest even of x * id with id = 127 / m, d = m / 127, all in f32. A run whose id would be
 * infinite (m below 3.8e-37, or zero) is all zeros with d = 0; a run with an infinity or a NaN has d = NaN.
 * The sums are what kernels need beside the values: of all 32, and of each half, with the factors they need.
 */
typedef struct mica__q8_block {
    int8_t q[32];
    float d, s;        /* s = d * sum */
    int32_t sum8;      /* -8 sum */
    int32_t sum128;    /* -128 sum */
    int32_t half32[2]; /* -32 times the sum of q[0..15], of q[16..31] */
    int16_t half[2];   /* the sums of the halves */
    int32_t reserved;
} mica__q8_block;

_Static_assert(sizeof(mica__q8_block) == 64, "one cache line");

#endif
