/*
 * ops_matrix.h - products of two dense matrices. mica_matmul (ops.h) is the product with weights, of any type. What ops.h says of
 * all ops holds here; ops.h includes this.
 */
#ifndef MICA_OPS_MATRIX_H
#define MICA_OPS_MATRIX_H

#include "mica/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y [.., M, N] = a [.., M, K] . b [.., K, N] + add (or NULL: none). Any strides, so that a transposed operand is a permuted view; the
 * leading dimensions of a and b broadcast to those of y, add to all of y: a row is a bias, y itself is a sum that goes on. y may be
 * the view of add. K 0: y is add, or zeros. Types: f32, f16 and bf16, each operand its own, added up in f32 in rising k; f64, all
 * operands, on the cpu; i8 and u8, each its own, with y and add i32; i32, all operands; integers wrap. */
MICA_API mica_status mica_product(mica_encoder *encoder, mica_buffer *a, mica_buffer *b, mica_buffer *add,
                                  mica_buffer *y);

#ifdef __cplusplus
}
#endif
#endif
