/*
 * ops_image.h - convolution over one to three dimensions, and what slides windows over images.
 *
 * Layout: [batch, channels, spatial..], one to three spatial dimensions, the slowest first. Operands may have any strides, so that images
 * with channels last are permuted views. Parameters of spatial dimensions are arrays in the order of the dimensions; entries behind the last one
 * are not looked at.
 * Types: f32, f16 and bf16, each operand its own, arithmetic in f32 (sums of products in a fixed order), rounded once on store; or f64, all
 * operands alike, on the cpu alone: elsewhere UNSUPPORTED. Results do not depend on threads or on the other images of a batch. No op here works in place.
 */
#ifndef MICA_OPS_IMAGE_H
#define MICA_OPS_IMAGE_H

#include "mica/device.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MICA_SPATIAL_DIMS 3

typedef struct mica_conv_params {
    uint32_t stride[MICA_SPATIAL_DIMS];   /* 0 stands for 1 */
    uint32_t dilation[MICA_SPATIAL_DIMS]; /* 0 stands for 1 */
    uint32_t low[MICA_SPATIAL_DIMS],
        high[MICA_SPATIAL_DIMS]; /* zeros before and behind; of a transposed one what is cut off y there */
    uint32_t output_padding
        [MICA_SPATIAL_DIMS]; /* of a transposed one: places more at the end of y; below stride or dilation */
    uint32_t kernel[MICA_SPATIAL_DIMS]; /* its sizes; 0: as the weight has it */
    uint32_t groups;     /* channels in so many groups, each with its own weights; 0 stands for 1 */
    uint32_t transposed; /* 1: the gradient of a convolution with respect to its input */
} mica_conv_params;

/* Convolution (without turning the kernel, as all frameworks have it), per group of C channels and O outputs:
 *   y [n, o, p] = bias [o] + sum over c, k of weight [o, c, k] x [n, c, p stride - low + k dilation], 0 outside of x
 * weight [O groups, C, kernel..]; y has (in + low + high - dilation (kernel - 1) - 1) / stride + 1 places, rounded down; INVALID_ARGUMENT
 * where the kernel does not fit. Depthwise: groups = channels.
 * Transposed:
 *   y [n, o, q stride - low + k dilation] = bias [o] + sum over c and all q, k that lead there of weight [c, o, k] x [n, c, q]
 * weight [C groups, O, kernel..]; y has (in - 1) stride - low - high + dilation (kernel - 1) + 1 + output_padding places, at least 1. With the weight
 * and parameters of a convolution it is that one's gradient with respect to x, where output_padding is the remainder of its division.
 * bias [O groups] or NULL. `params` NULL: all zero. Padding is multiplied too: a weight that is not finite makes NaN of it. */
MICA_API mica_status mica_conv(mica_encoder *encoder, mica_buffer *x, mica_buffer *weight, mica_buffer *bias,
                               const mica_conv_params *params, mica_buffer *y);
/* The gradient of a convolution with respect to its weight [O groups, C, kernel..], whose sizes params.kernel or dweight says:
 *   dweight [o, c, k] = sum over n, p of dy [n, o, p] x [n, c, p stride - low + k dilation]
 * params as the convolution had them, transposed 0 (of a transposed one: x and dy exchanged). The gradients of the others are mica_conv and mica_reduce. */
MICA_API mica_status mica_conv_weight_backward(mica_encoder *encoder, mica_buffer *x, mica_buffer *dy,
                                               const mica_conv_params *params, mica_buffer *dweight);

#ifdef __cplusplus
}
#endif

#endif
