/*
 * ops_norm.h - norms over any dimensions, what they give back to training, and what is made of them.
 *
 * As ops.h says of all ops. Here operands have any strides and are f32, f16 or bf16, each its own, with arithmetic in
 * f32; or all of them are f64, on devices that serve it (the cpu): elsewhere that is UNSUPPORTED. Sums have an order
 * that depends on shapes, strides and types alone, those of gradients too.
 */
#ifndef MICA_OPS_NORM_H
#define MICA_OPS_NORM_H

#include "mica/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mica_normalize_kind {
    MICA_NORMALIZE_LAYER = 0, /* n = (x - mean) / sqrt(var + eps); var is the mean of (x - mean)^2 */
    MICA_NORMALIZE_RMS = 1,   /* n = x / sqrt(var + eps); var is the mean of x^2 */
    MICA_NORMALIZE_L2 = 2     /* n = x / sqrt(var + eps); var is the sum of x^2: eps is added to the sum */
} mica_normalize_kind;

typedef struct mica_normalize_params {
    uint32_t kind; /* mica_normalize_kind */
    uint32_t dims; /* how many of the last dimensions are normalised together; 0 = 1 */
    float eps;     /* >= 0 */
    float offset;  /* is added to weight: 1 where a model stores weight - 1, or a scale around 1 */
} mica_normalize_params;

/* y = n * (offset + weight) + bias, n by params.kind over the last params.dims dimensions of x. weight and bias have
 * any shape that repeats to x's (as in mica_add), or are NULL: 1 and 0. mean and var [the other dimensions of x], as
 * the kind has them, go to where they are asked for; mean is of LAYER alone. y, mean and var may be NULL, not all of
 * them. y may be x. So a layer norm with weight [dim], a group norm with the view [groups, channels / groups, 1] of
 * its weight, and the modulated norm of a diffusion transformer, norm(x) (1 + scale) + shift with scale and shift
 * [batch, 1, dim] and offset 1, are one op. */
MICA_API mica_status mica_normalize(mica_encoder *encoder, mica_buffer *x, mica_buffer *weight,
                                    mica_buffer *bias, const mica_normalize_params *params, mica_buffer *y,
                                    mica_buffer *mean, mica_buffer *var);
/* Of y = mica_normalize(x, weight, bias): dx [x], dweight and dbias from dy [x], each where it is asked for, not
 * all NULL. dweight and dbias have the shape of weight, and sum over whatever repeats; without weight they have
 * the last params.dims dimensions. x is what went in: statistics are computed again. With g = dy (offset +
 * weight) and r = 1 / sqrt(var + eps):
 *   LAYER  dx = r (g - mean(g) - n mean(g n))     RMS  dx = r (g - n mean(g n))     L2  dx = r (g - n sum(g n))
 *   dweight = sum(dy n), dbias = sum(dy). */
MICA_API mica_status mica_normalize_backward(mica_encoder *encoder, mica_buffer *x, mica_buffer *dy,
                                             mica_buffer *weight, const mica_normalize_params *params,
                                             mica_buffer *dx, mica_buffer *dweight, mica_buffer *dbias);

/* y = x / sqrt(sum(x^2) + eps) over the last dimension: eps is added to the sum. In place. */
MICA_API mica_status mica_l2_norm(mica_encoder *encoder, mica_buffer *x, float eps, mica_buffer *y);
/* x [n, channels, ..], at most 7 dimensions: a layer norm over each n and group of channels / groups neighbouring
 * channels, all that is behind them included. weight and bias [channels] or NULL. groups divides channels. In
 * place. */
MICA_API mica_status mica_group_norm(mica_encoder *encoder, mica_buffer *x, uint32_t groups,
                                     mica_buffer *weight, mica_buffer *bias, float eps, mica_buffer *y);
/* The same with a group for each channel. */
MICA_API mica_status mica_instance_norm(mica_encoder *encoder, mica_buffer *x, mica_buffer *weight,
                                        mica_buffer *bias, float eps, mica_buffer *y);

/* x [n, channels, ..]: y = (x - mean) / sqrt(var + eps) * weight + bias with statistics [channels] that are given.
 * weight and bias [channels] or NULL. An elementwise record, which fusion joins with its neighbours. In place. */
MICA_API mica_status mica_batch_norm(mica_encoder *encoder, mica_buffer *x, mica_buffer *mean,
                                     mica_buffer *var, mica_buffer *weight, mica_buffer *bias, float eps,
                                     mica_buffer *y);

typedef struct mica_batch_norm_params {
    float eps;      /* >= 0 */
    float momentum; /* 0 to 1: the share of the new statistics in those that run */
} mica_batch_norm_params;

typedef struct mica_batch_norm_operands {
    mica_buffer *x;                          /* [n, channels, ..] */
    mica_buffer *weight, *bias;              /* [channels] or NULL */
    mica_buffer *running_mean, *running_var; /* [channels] or NULL, both */
    mica_buffer *y;                          /* [n, channels, ..]; may be x */
    /* [channels], of this batch; var is over all elements of a channel, without correction */
    mica_buffer *mean, *var;
    /* [channels], with running_mean and running_var: (1 - momentum) running + momentum statistic, that
     * of var being a sample's, var n / (n - 1) of n elements (n, where there is one). May be
     * running_mean and running_var themselves. */
    mica_buffer *new_running_mean, *new_running_var;
} mica_batch_norm_operands;

/* The norm of training: statistics of the batch. Two records, with running statistics. */
MICA_API mica_status mica_batch_norm_train(mica_encoder *encoder, const mica_batch_norm_operands *operands,
                                           const mica_batch_norm_params *params);

/* The gradient of mica_rms_norm, as mica_normalize_backward has it. Here and below dx, dweight
 * and dbias may be NULL, not all. */
MICA_API mica_status mica_rms_norm_backward(mica_encoder *encoder, mica_buffer *x, mica_buffer *dy,
                                            mica_buffer *weight, float eps, mica_buffer *dx,
                                            mica_buffer *dweight);
/* Of mica_layer_norm. */
MICA_API mica_status mica_layer_norm_backward(mica_encoder *encoder, mica_buffer *x, mica_buffer *dy,
                                              mica_buffer *weight, float eps, mica_buffer *dx,
                                              mica_buffer *dweight, mica_buffer *dbias);
/* Of mica_l2_norm. */
MICA_API mica_status mica_l2_norm_backward(mica_encoder *encoder, mica_buffer *x, mica_buffer *dy, float eps,
                                           mica_buffer *dx);
/* Of mica_group_norm. */
MICA_API mica_status mica_group_norm_backward(mica_encoder *encoder, mica_buffer *x, mica_buffer *dy,
                                              uint32_t groups, mica_buffer *weight, float eps,
                                              mica_buffer *dx, mica_buffer *dweight, mica_buffer *dbias);
/* Through the statistics of the batch, as mica_batch_norm_train computes them. */
MICA_API mica_status mica_batch_norm_backward(mica_encoder *encoder, mica_buffer *x, mica_buffer *dy,
                                              mica_buffer *weight, float eps, mica_buffer *dx,
                                              mica_buffer *dweight, mica_buffer *dbias);

/* y = log(softmax(x * scale)) over the last dimension: x scale - log(sum(e^(x scale))). A row of only -inf gives
 * -inf, a row with NaN gives NaN. Any strides. In place. */
MICA_API mica_status mica_log_softmax(mica_encoder *encoder, mica_buffer *x, float scale, mica_buffer *y);
/* Of y = mica_softmax(x, scale): dx = scale y (dy - sum(y dy)). dx may be y or dy. */
MICA_API mica_status mica_softmax_backward(mica_encoder *encoder, mica_buffer *y, mica_buffer *dy,
                                           float scale, mica_buffer *dx);
/* Of y = mica_log_softmax(x, scale): dx = scale (dy - e^y sum(dy)). dx may be y or dy. */
MICA_API mica_status mica_log_softmax_backward(mica_encoder *encoder, mica_buffer *y, mica_buffer *dy,
                                               float scale, mica_buffer *dx);

/* y = x + gate * branch: a residual whose branch is gated. gate repeats to y's shape ([batch, 1, dim]). An
 * elementwise record. In place of x or branch. */
MICA_API mica_status mica_gated_residual(mica_encoder *encoder, mica_buffer *x, mica_buffer *gate,
                                         mica_buffer *branch, mica_buffer *y);

#ifdef __cplusplus
}
#endif
#endif
