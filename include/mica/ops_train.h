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

/* The region of derivatives of another. Its inputs are those of `region`, then for each of its outputs what reaches
 * it, of the output's register type; its outputs what reaches each input whose bit is set in `wanted`, in their
 * order. Steps hand on what their row of scalars.def says; casts between floats and roundings of stores hand it on as
 * it is; integers, bools and comparisons none, so that what depends on them alone is 0. At a kink the derivative is
 * that of one of the sides, 0 where that is one: relu, abs, clamp by min and max, of which equal values send it to
 * the first. UNSUPPORTED: a step without a derivative on the way, c64, more inputs, outputs or steps than regions
 * have. INVALID_ARGUMENT: `wanted` names no float input. Owned by the caller. Any thread. */
MICA_API mica_status mica_region_backward(const mica_region *region, uint32_t wanted,
                                          mica_region **out_backward);
/* dx[j] = what reaches value j of a scalar where dy reaches its result: dy times the derivative. `inputs` and `dx`
 * have as many as the scalar takes; dx[j] NULL: not asked for; an input that no derivative reads may be NULL (both of
 * mica_add; the exponent's of none). Floats of one register type. Inputs broadcast to dy's shape, which each dx has:
 * where an input repeats, mica_reduce adds dx up. In place on inputs and dy. Scalars with a number (leaky_relu) take
 * it as an input of one element. INVALID_ARGUMENT: a scalar without a derivative. */
MICA_API mica_status mica_scalar_backward(mica_encoder *encoder, mica_scalar scalar,
                                          mica_buffer *const *inputs, mica_buffer *dy,
                                          mica_buffer *const *dx);
/* Of y = act(gate) up, the gated products of ops.h (silu_mul: act MICA_SCALAR_SILU ..) and any other scalar of
 * one value with a derivative: dgate = dy up act'(gate), dup = dy act(gate). Either may be NULL. f32
 * registers, or all f64. In place. */
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

/* For each row of logits [.., classes]: lse = log(sum of e^logits) and loss = sum over classes of weight t (lse -
 * logits), where t = (1 - smoothing) l + smoothing / classes. l is 1 for the class that `labels` (u32 or i32 [..])
 * names, 0 for others; or it is `targets` (floats [.., classes]), the part of each class: one of the two is NULL.
 * `weight` [classes] is the classes' own, NULL: 1. loss [..] and lse [..], which may be NULL. f32, f16 and bf16, or
 * on the cpu all floats f64. Logits of -inf have no part in lse, and no class of weight t = 0 in the loss; a row of
 * nothing but -inf, or with NaN, gives NaN. A label outside of the classes that is not ignored: loss 0, FAULT.
 * `params` may be NULL: all zero; `ignore` is of labels. Sum and mean over rows are mica_reduce's. */
MICA_API mica_status mica_cross_entropy(mica_encoder *encoder, mica_buffer *logits, mica_buffer *labels,
                                        mica_buffer *targets, mica_buffer *weight,
                                        const mica_cross_entropy_params *params, mica_buffer *loss,
                                        mica_buffer *lse);
/* dlogits [.., classes] = dloss (e^(logits - lse) times the sum over classes of weight t, less weight t), 0 in rows
 * that are ignored and in those whose label lies outside: FAULT. lse [..] is the forward's; dloss [..] what reaches
 * the loss of each row, which repeats from one element as well. In place on logits. */
MICA_API mica_status mica_cross_entropy_backward(mica_encoder *encoder, mica_buffer *logits,
                                                 mica_buffer *labels, mica_buffer *targets,
                                                 mica_buffer *weight, mica_buffer *lse, mica_buffer *dloss,
                                                 const mica_cross_entropy_params *params,
                                                 mica_buffer *dlogits);

/* ---- optimisers ---- */

/*
 * One step of an optimiser, in place on parameters and moments: one region for each tensor. What changes from step to
 * step is a buffer of one element, so that a recording of a step can be replayed: `learning_rate`; `step`, u32 or
 * i32, the number of this step from 1 on (mica_advance by 1 moves it); `gradient_scale`, by which gradients are
 * multiplied first (that of mica_gradient_clip, of a loss that was scaled up), NULL: 1. Tensors have one shape, any
 * strides; f32, f16 or bf16, each its own, arithmetic in f32; or all f64, with the buffers of one float too.
 */
typedef struct mica_sgd_operands {
    mica_buffer *parameters; /* written */
    mica_buffer *gradients;
    /* written; NULL without momentum. Its content before step 1 is not looked at where `step` is there, else it is
     * zeros */
    mica_buffer *momentum;
    mica_buffer *learning_rate, *gradient_scale, *step; /* step NULL: as after the first */
} mica_sgd_operands;

typedef struct mica_sgd_params {
    double momentum, dampening, weight_decay; /* finite, 0 or above */
    uint32_t nesterov;                        /* 1: needs momentum above 0 and dampening 0 */
    uint32_t maximize;                        /* 1: gradients are turned round */
} mica_sgd_params;

/* g = gradients + weight_decay parameters; b = step 1: g, else momentum b + (1 - dampening) g; g =
 * nesterov: g + momentum b, else b (without momentum g); parameters -= learning_rate g. As torch.optim.SGD.
 * `params` may be NULL: all zero. */
MICA_API mica_status mica_sgd_update(mica_encoder *encoder, const mica_sgd_operands *operands,
                                     const mica_sgd_params *params);

typedef struct mica_adam_operands {
    mica_buffer *parameters; /* written */
    mica_buffer *gradients;
    mica_buffer *m, *v;      /* written: the moments, zeros before step 1 */
    mica_buffer *greatest_v; /* written: AMSGrad's, zeros before step 1; NULL: plain */
    mica_buffer *learning_rate, *gradient_scale, *step;
} mica_adam_operands;

typedef struct mica_adam_params {
    double beta1, beta2; /* from 0 to below 1 */
    double eps;          /* 0 or above */
    double weight_decay; /* 0 or above */
    /* 1: AdamW, parameters are decayed; 0: Adam, the gradient has weight_decay times them */
    uint32_t decoupled;
    uint32_t maximize; /* 1: gradients are turned round */
} mica_adam_params;

/* m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2; parameters -= learning_rate / (1 -
 * beta1^step) m / (sqrt(v / (1 - beta2^step)) + eps), with the greatest v so far in its place where
 * greatest_v is there. As torch.optim.Adam and AdamW. */
MICA_API mica_status mica_adam_update(mica_encoder *encoder, const mica_adam_operands *operands,
                                      const mica_adam_params *params);

/* norm (one element) = sqrt(sum of all squares of all `count` gradients), on the device. sums [count] is its memory.
 * f32, f16 or bf16 gradients with sums and norm f32, or all f64. */
MICA_API mica_status mica_gradient_norm(mica_encoder *encoder, mica_buffer *const *gradients, uint32_t count,
                                        mica_buffer *sums, mica_buffer *norm);
/* scale (one element) = min(1, max_norm / (norm + 1e-6)), and each of `count` gradients is multiplied by it in
 * place; with count 0 scale alone is written, for the optimiser's `gradient_scale`. As
 * torch.nn.utils.clip_grad_norm_. max_norm above 0 and finite. */
MICA_API mica_status mica_gradient_clip(mica_encoder *encoder, mica_buffer *norm, double max_norm,
                                        mica_buffer *const *gradients, uint32_t count, mica_buffer *scale);

#ifdef __cplusplus
}
#endif
#endif
