/*
 * ops_matrix.h - products of two dense matrices. mica_matmul (ops.h) is the product with weights, of any type. What
 * ops.h says of all ops holds here; ops.h includes this.
 */
#ifndef MICA_OPS_MATRIX_H
#define MICA_OPS_MATRIX_H

#include "mica/device.h"
#include "mica/ops_quantize.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y [.., M, N] = a [.., M, K] . b [.., K, N] + add (or NULL: none). Any strides, so that a transposed operand is a
 * permuted view; the leading dimensions of a and b broadcast to those of y, add to all of y: a row is a bias, y
 * itself is a sum that goes on. y may be the view of add. K 0: y is add, or zeros. Types: f32, f16 and bf16, each
 * operand its own, added up in f32 in rising k; f64, all operands, on the cpu; i8 and u8, each its own, with y and
 * add i32; i32, all operands; integers wrap. */
MICA_API mica_status mica_product(mica_encoder *encoder, mica_buffer *a, mica_buffer *b, mica_buffer *add,
                                  mica_buffer *y);

/* The same for integers with zero points: y = (a - a_zero) . (b - b_zero) + add, which wraps. a and b i8 or u8, each
 * its own, or both i32; y and add i32. a_zero is of the tensor or of rows ([M, 1]), b_zero of the tensor or of
 * columns ([N] or [1, N]); both broadcast to y and are i8, u8 or i32; NULL: 0. mica_requantize makes codes of y. */
MICA_API mica_status mica_product_codes(mica_encoder *encoder, mica_buffer *a, mica_buffer *a_zero,
                                        mica_buffer *b, mica_buffer *b_zero, mica_buffer *add,
                                        mica_buffer *y);

/* y [.., K] = x [.., N] . weight [N, K]: the gradient of mica_matmul with respect to its input, for x the gradient of
 * its output, with the weight where it lies. x and y have 2 to 4 dimensions. A batched weight [B, N, K] meets x [B',
 * M, N], B' a multiple of B, as there. With ids [T, S] (or NULL) weight is [E, N, K], x [T, S, N], y [T, S, K], and
 * slot (t, s) meets expert ids[t, s]: the gradient of mica_matmul_experts, to be added up over the slots where they
 * shared a row. An id outside: that row of y is zero, FAULT. All weights that mica_matmul takes, any layout; x and y
 * f32, f16 or bf16; weights are decoded to f32 and sums are f32, in rising n. */
MICA_API mica_status mica_matmul_transposed(mica_encoder *encoder, mica_buffer *x, mica_buffer *weight,
                                            mica_buffer *ids, mica_buffer *y);

/* y [.., N] = x [.., K] . weight [N, K]^T + scale (x . a [R, K]^T) . b [N, R]^T: a weight of any type that
 * mica_matmul takes, and an adapter of low rank beside it. low [.., R] (f32, f16 or bf16) is written: what lies
 * between a and b, times scale. y is rounded to its type before the adapter is added and after, so that f32 rounds
 * least. It must overlap nothing else. */
MICA_API mica_status mica_matmul_lora(mica_encoder *encoder, mica_buffer *x, mica_buffer *weight,
                                      mica_buffer *a, mica_buffer *b, float scale, mica_buffer *low,
                                      mica_buffer *y);

/* A matrix of codes with scales, and room for what they stand for. */
typedef struct mica_scaled {
    mica_buffer *codes; /* as mica_dequantize_codes takes them: f8_e4m3, f8_e5m2, packed FP4, integers */
    /* scales of the tensor, of rows, of blocks along K; NVFP4 has `global` besides */
    const mica_quantizer *by;
    mica_buffer *values; /* written: f32, f16 or bf16, of the shape of the numbers */
} mica_scaled;

/* y [.., M, N] = a [.., M, K] . b [.., N, K]^T + add (or NULL), both of codes with scales, K last: MXFP8 has scales
 * of e8m0 for 32 along K, MXFP4 the same with packed FP4, NVFP4 scales of f8_e4m3 for 16. Numbers are decoded and
 * rounded to the type of `values`, in which f32 loses nothing; then it is mica_product. Activations of 8 bits with
 * weights that stay codes are mica_matmul's MICA_PRECISION_Q8. */
MICA_API mica_status mica_product_scaled(mica_encoder *encoder, const mica_scaled *a, const mica_scaled *b,
                                         mica_buffer *add, mica_buffer *y);

#ifdef __cplusplus
}
#endif
#endif
