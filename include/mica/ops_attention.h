/*
 * ops_attention.h - attention beyond inference: its gradient, and the scores by which keys are chosen.
 *
 * As ops.h, which includes this.
 */
#ifndef MICA_OPS_ATTENTION_H
#define MICA_OPS_ATTENTION_H

#include "mica/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The operands of mica_attention_backward: those of a mica_attention over one sequence without pages, ring or keys,
 * what came out of it, and the gradient of that. */
typedef struct mica_attention_backward_operands {
    mica_buffer *q; /* [tokens, heads, dim] f32 f16 bf16 f64, as all that follow; f64 only with all of them */
    mica_buffer *k, *v;     /* [keys, kv heads, dim] and [keys, kv heads, v dim] */
    mica_buffer *positions; /* [tokens] */
    mica_buffer *lengths;   /* [1] */
    mica_buffer *mask;      /* as mica_attention's, or NULL */
    mica_buffer *sinks;     /* [heads] or NULL */
    mica_buffer *slopes;    /* [heads] or NULL */
    mica_buffer *y;         /* [tokens, heads, v dim], what mica_attention gave */
    mica_buffer *lse;       /* [tokens, heads], likewise; f32, or f64 with f64 */
    mica_buffer *dy;        /* [tokens, heads, v dim] */
    /* Written: of the shapes of q, k, v and sinks. dsinks may be NULL. Keys that nobody sees get zeros. */
    mica_buffer *dq, *dk, *dv, *dsinks;
} mica_attention_backward_operands;

/* The gradient of mica_attention with the same params. With s the score of a key, p = e^(s - lse), and c = 1 - (s' /
 * softcap)^2 of the capped score s' (1 without a cap):
 *   ds = p (dy.v - dy.y), dq = scale sum over keys of ds c k, dk = scale sum over queries and heads of ds c q,
 *   dv = sum over queries and heads of p dy, dsinks = - sum over queries of e^(sink - lse) dy.y.
 * Sums are f32, f64 with f64, in an order that depends on shapes alone. A position outside or a length that k cannot
 * hold: that query gives nothing, FAULT. params.ring is 0. The cpu has all types, GPUs have no f64. */
MICA_API mica_status mica_attention_backward(mica_encoder *encoder,
                                             const mica_attention_backward_operands *operands,
                                             const mica_attention_params *params);

#ifdef __cplusplus
}
#endif
#endif
