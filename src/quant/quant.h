/*
 * quant.h - the element formats to and from f32, one row at a time.
 *
 * Knows bytes and numbers alone: no device, no file, no kernel. Values are bit-exact with the format's
 * definition evaluated in f32, and the same on every instruction set.
 *
 * To add a type: codec.h says how; if it is to be fast in matmul, its packed form goes to packed.h.
 */
#ifndef MICA_QUANT_QUANT_H
#define MICA_QUANT_QUANT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/isa.h"
#include "mica/types.h"
#include "quant/dtype.h"
#include "quant/block.h"

/* Whether rows of the type become f32 (mica__quant_decode_row), and f32 rows of the type. Plain float types too. */
bool mica__quant_can_decode(uint16_t dtype);
bool mica__quant_can_encode(uint16_t dtype);
/* Whether it is a block format that can be decoded: not a plain float type, not a type with scales of its own. */
bool mica__quant_known(uint16_t dtype);

/* n values, a multiple of the block, of a canonical row at any address. An unknown type gives zeros. Any thread. */
void mica__quant_decode_row(uint16_t dtype, const void *src, float *dst, uint64_t n);
/* The nearest block that the type's rule finds for each run of values. importance: NULL, or n weights, finite and not
 * negative, that say how much an error in each column costs; types with nothing to choose ignore it. Values that are
 * not finite give some block. A type that cannot be encoded writes nothing. Any thread. */
void mica__quant_encode_row(uint16_t dtype, const float *src, const float *importance, void *dst, uint64_t n);

/* The same on one instruction set, which must run here: the bits are those of the others. For tests and benchmarks. */
void mica__quant_decode_row_isa(mica__isa isa, uint16_t dtype, const void *src, float *dst, uint64_t n);
void mica__quant_encode_row_isa(mica__isa isa, uint16_t dtype, const float *src, const float *importance,
                                void *dst, uint64_t n);

/*
 * Rows with tables of scales, as MLX keeps them: one scale, and for affine types a bias, per `group_size` values (the last
 * group may be short). Value i of b bits is at bits b i of the row.
 *   affine2 .. affine8  w = q * scale + bias (the product rounded to f32 first); f32, f16 or bf16, both tables alike
 *   fp4                 w = e2m1 * scale; scales e8m0 (mxfp4, groups of 32) or f8_e4m3 (nvfp4, groups of 16)
 *   f8_e4m3             w = e4m3 * scale; scales e8m0 (mxfp8, groups of 32)
 * n is a multiple of the dtype's block.
 */
/* Whether the functions below serve data of the one type with scales of the other. */
bool mica__affine_serves(uint16_t dtype, uint16_t scale_dtype);
/* biases: NULL unless the type is affine. What is not served gives zeros. Any thread. */
void mica__affine_decode_row(uint16_t dtype, const void *q, const void *scales, const void *biases,
                             uint16_t scale_dtype, uint32_t group_size, float *dst, uint64_t n);
/* The bits that mlx.core.quantize writes for f32 weights, on the CPU; scales are rounded to their type after the
 * numbers were found. Values that are not finite give some group. What is not served writes nothing. Any thread. */
void mica__affine_encode_row(uint16_t dtype, uint16_t scale_dtype, uint32_t group_size, const float *src,
                             uint64_t n, void *q, void *scales, void *biases);
/* The same on one instruction set, which must run here. For tests and benchmarks. */
void mica__affine_decode_row_isa(mica__isa isa, uint16_t dtype, const void *q, const void *scales,
                                 const void *biases, uint16_t scale_dtype, uint32_t group_size, float *dst,
                                 uint64_t n);
void mica__affine_encode_row_isa(mica__isa isa, uint16_t dtype, uint16_t scale_dtype, uint32_t group_size,
                                 const float *src, uint64_t n, void *q, void *scales, void *biases);
/* The stored numbers of values [first, first + count) of a row, both multiples of the dtype's block. */
void mica__affine_codes(uint16_t dtype, const void *q, uint64_t first, uint32_t count, uint8_t *codes);
/* Element i of a table of f32, f16, bf16, e8m0 or f8_e4m3. */
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
    int32_t sum16;     /* -16 sum */
    int32_t sum128;    /* -128 sum */
    int32_t half32[2]; /* -32 times the sum of q[0..15], of q[16..31] */
    int16_t half[2];   /* the sums of the halves */
} mica__q8_block;

_Static_assert(sizeof(mica__q8_block) == 64, "one cache line");

#endif
