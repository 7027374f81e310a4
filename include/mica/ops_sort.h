/*
 * ops_sort.h - running sums and their like, order: where the greatest stands, sorting, the best of each row.
 * What ops.h says of all ops holds.
 *
 * All work along the last dimension, x of any rank from 1 on and any strides: a permuted view (mica_buffer_permute)
 * gives any other dimension. f64 and i64 are the cpu's alone where a function says so; elsewhere UNSUPPORTED.
 */
#ifndef MICA_OPS_SORT_H
#define MICA_OPS_SORT_H

#include "mica/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mica_scan_kind {
    MICA_SCAN_SUM = 0,
    MICA_SCAN_PROD = 1,
    MICA_SCAN_MAX = 2, /* NaN from the first NaN on; 0 is above -0 */
    MICA_SCAN_MIN = 3
} mica_scan_kind;

typedef struct mica_scan_params {
    uint32_t kind;      /* mica_scan_kind */
    uint32_t exclusive; /* 1: an element's own value is not in its result */
    uint32_t reverse;   /* 1: from the end */
} mica_scan_params;

/* y [.., i] = x [.., 0] (+ * max min) .. x [.., i] (`reverse`: from the last back to i; `exclusive`: without i) along
 * the last dimension. f32, f16 and bf16, of which y may be another than x; i32, u32 and i64, which wrap, and f64
 * (cpu), y of the type of x. The result over nothing is that of mica_reduce. Floats are added up in f32 or finer, in
 * an order that depends on shapes, strides and types alone; products do not overflow or vanish on the way while they
 * are within 2^1000 of 1. `params` may be NULL: inclusive sums. In place. */
MICA_API mica_status mica_scan(mica_encoder *encoder, mica_buffer *x, const mica_scan_params *params,
                               mica_buffer *y);
/* Running sums: mica_scan, whose `kind` is not looked at here and in the three that follow. */
MICA_API mica_status mica_cumsum(mica_encoder *encoder, mica_buffer *x, const mica_scan_params *params,
                                 mica_buffer *y);
/* Running products. */
MICA_API mica_status mica_cumprod(mica_encoder *encoder, mica_buffer *x, const mica_scan_params *params,
                                  mica_buffer *y);
/* Running greatest elements. */
MICA_API mica_status mica_cummax(mica_encoder *encoder, mica_buffer *x, const mica_scan_params *params,
                                 mica_buffer *y);
/* Running least elements. */
MICA_API mica_status mica_cummin(mica_encoder *encoder, mica_buffer *x, const mica_scan_params *params,
                                 mica_buffer *y);

typedef struct mica_argmax_params {
    uint32_t least; /* 1: of the least element */
} mica_argmax_params;

/* ids [..] (u32 or i32): index of the greatest element of each row of x [.., n]; the lowest index among equals, and
 * -0 equals 0; NaN never wins; a row with nothing but NaN gives 0. f32, f16, bf16, i32, u32; f64 and i64 (cpu). */
MICA_API mica_status mica_argmax(mica_encoder *encoder, mica_buffer *x, mica_buffer *ids);
/* The same of the least. */
MICA_API mica_status mica_argmin(mica_encoder *encoder, mica_buffer *x, mica_buffer *ids);

typedef struct mica_sort_params {
    uint32_t descending; /* 1: the greatest first */
} mica_sort_params;

/* y = x with the elements of each row in order, bit for bit: equal ones stay as they stood (-0 equals 0),
 * NaN comes last in either order. f32, f16, bf16, i32, u32; f64 and i64 (cpu). Rows of at most 2^32 - 1.
 * `params` may be NULL: ascending. */
MICA_API mica_status mica_sort(mica_encoder *encoder, mica_buffer *x, const mica_sort_params *params,
                               mica_buffer *y);
/* ids [.., n] (u32 or i32): where the elements of the sorted row stood in x [.., n]. */
MICA_API mica_status mica_argsort(mica_encoder *encoder, mica_buffer *x, const mica_sort_params *params,
                                  mica_buffer *ids);
/* The k greatest of each row of x [.., n], k <= n: values [.., k] of x's type and ids [.., k] (u32 or i32), either of
 * which may be NULL. Greatest first, the lower index among equals, NaN last. */
MICA_API mica_status mica_top_k(mica_encoder *encoder, mica_buffer *x, mica_buffer *values, mica_buffer *ids);

#ifdef __cplusplus
}
#endif
#endif
