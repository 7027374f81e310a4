/*
 * ops_train.h - training: derivatives of elementwise work, losses, optimisers. What ops.h says of all ops holds here.
 */
#ifndef MICA_OPS_TRAIN_H
#define MICA_OPS_TRAIN_H

#include "mica/device.h"
#include "mica/region.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- derivatives of elementwise work ---- */

/* The region of derivatives of another. Its inputs are those of `region`, then for each of its outputs what reaches it, of the output's
 * register type; its outputs what reaches each input whose bit is set in `wanted`, in their order. Steps hand on what their row of scalars.def
 * says; casts between floats and roundings of stores hand it on as it is; integers, bools and comparisons none, so that what
 * depends on them alone is 0. At a kink the derivative is that of one of the sides, 0 where that is one: relu, abs, clamp by min and max, of
 * which equal values send it to the first. UNSUPPORTED: a step without a derivative on the way, c64, more inputs, outputs or
 * steps than regions have. INVALID_ARGUMENT: `wanted` names no float input. Owned by the caller. Any thread. */
MICA_API mica_status mica_region_backward(const mica_region *region, uint32_t wanted,
                                          mica_region **out_backward);
/* dx[j] = what reaches value j of a scalar where dy reaches its result: dy times the derivative. `inputs` and `dx` have as many as the scalar takes;
 * dx[j] NULL: not asked for; an input that no derivative reads may be NULL (both of mica_add; the exponent's of none). Floats of one register
 * type. Inputs broadcast to dy's shape, which each dx has: where an input repeats, mica_reduce adds dx up. In place on inputs and
 * dy. Scalars with a number (leaky_relu) take it as an input of one element. INVALID_ARGUMENT: a scalar without a derivative. */
MICA_API mica_status mica_scalar_backward(mica_encoder *encoder, mica_scalar scalar,
                                          mica_buffer *const *inputs, mica_buffer *dy,
                                          mica_buffer *const *dx);
/* Of y = act(gate) up, the gated products of ops.h (silu_mul: act MICA_SCALAR_SILU ..) and any other scalar of one value with a derivative:
 * dgate = dy up act'(gate), dup = dy act(gate). Either may be NULL. f32 registers, or all f64. In place. */
MICA_API mica_status mica_gate_backward(mica_encoder *encoder, mica_scalar act, mica_buffer *gate,
                                        mica_buffer *up, mica_buffer *dy, mica_buffer *dgate,
                                        mica_buffer *dup);
/* Of mica_clipped_swiglu, likewise: what is clipped has no derivative. */
MICA_API mica_status mica_clipped_swiglu_backward(mica_encoder *encoder, mica_buffer *gate, mica_buffer *up,
                                                  float alpha, float limit, mica_buffer *dy,
                                                  mica_buffer *dgate, mica_buffer *dup);

/* ---- losses ---- */

typedef struct mica_cross_entropy_params {
    float smoothing;       /* 0 to 1: the part of a label that goes to all classes alike */
    uint32_t ignore;       /* 1: rows whose label is `ignored_label` have loss 0 and gradient 0 */
    int32_t ignored_label; /* of u32 labels the same bits; -100 with PyTorch */
} mica_cross_entropy_params;

/* For each row of logits [.., classes]: lse = log(sum of e^logits), and with the label l of labels [..] (u32 or i32)
 * loss = lse - (1 - smoothing) logits[l] - smoothing mean(logits). loss [..] and lse [..], which may be NULL. f32, f16 and bf16, or on the cpu all f64.
 * Logits of -inf have no part in lse; a row of nothing else, or with NaN, gives NaN. A label outside of the classes that is not ignored:
 * loss 0, FAULT. `params` may be NULL: all zero. Sum and mean over rows are mica_reduce's. */
MICA_API mica_status mica_cross_entropy(mica_encoder *encoder, mica_buffer *logits, mica_buffer *labels,
                                        const mica_cross_entropy_params *params, mica_buffer *loss,
                                        mica_buffer *lse);
/* dlogits [.., classes] = dloss (e^(logits - lse) - (1 - smoothing) [class is l] - smoothing / classes), 0 in rows that are ignored and in
 * those whose label lies outside (the forward has raised that fault). lse [..] is the forward's; dloss [..] what reaches the loss of each row, which
 * repeats from one element as well. A region: any strides, in place on logits. */
MICA_API mica_status mica_cross_entropy_backward(mica_encoder *encoder, mica_buffer *logits,
                                                 mica_buffer *labels, mica_buffer *lse, mica_buffer *dloss,
                                                 const mica_cross_entropy_params *params,
                                                 mica_buffer *dlogits);

#ifdef __cplusplus
}
#endif
#endif
