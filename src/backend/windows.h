/*
 * windows.h - windows that slide over one to three spatial dimensions: how many there are, and the same geometry with three dimensions
 * throughout, those that are missing in front with one place each.
 *
 * Knows operands and numbers, no kernel and no device.
 */
#ifndef MICA_BACKEND_WINDOWS_H
#define MICA_BACKEND_WINDOWS_H

#include "backend/record.h"

#define MICA__WINDOW_DIMS 5          /* of an operand: batch, channels, and three spatial ones */
#define MICA__WINDOW_MOST (1u << 24) /* stride, dilation, padding and kernel: so nothing overflows 64 bits */

/* Along each dimension. Window p covers places p stride - low + k dilation, k below kernel. */
typedef struct mica__windows {
    uint64_t in[MICA_SPATIAL_DIMS], out[MICA_SPATIAL_DIMS]; /* places; windows */
    uint32_t kernel[MICA_SPATIAL_DIMS], stride[MICA_SPATIAL_DIMS], dilation[MICA_SPATIAL_DIMS];
    uint32_t low[MICA_SPATIAL_DIMS], high[MICA_SPATIAL_DIMS];
} mica__windows;

/* Windows in a dimension of `in` places; 0 where none fits. */
uint64_t mica__windows_count(uint64_t in, uint32_t kernel, uint32_t stride, uint32_t dilation, uint32_t low,
                             uint32_t high);
/* `dims` sizes as three, ones in front. */
void mica__windows_align(uint32_t dims, const uint32_t *from, uint32_t missing, uint32_t *to);
/* Shape and strides of [batch, channels, spatial..] with three spatial dimensions, those that are missing of size 1 and stride 0. */
void mica__windows_operand(const mica__operand *operand, uint64_t *shape, uint64_t *stride);
/* The windows of a convolution with these parameters: from `in`, which has the places, to `out`, as operands [.., .., spatial..]; kernel sizes are
 * those of `weight`. Of a transposed one x is `out`. */
void mica__windows_of_conv(const mica_conv_params *params, const mica__operand *in,
                           const mica__operand *weight, const mica__operand *out, mica__windows *windows);

/* With `ceil_mode` also windows that begin in x or before it, but do not fit. */
uint64_t mica__windows_count_ceil(uint64_t in, uint32_t kernel, uint32_t stride, uint32_t dilation,
                                  uint32_t low, uint32_t high);

/* Operands [.., spatial..] as frames: grids of three spatial dimensions, over the same dimensions in front. */
#define MICA__FRAME_OPERANDS 3
typedef struct mica__frames {
    uint64_t count; /* of frames */
    uint64_t shape[MICA_MAX_DIMS],
        stride[MICA__FRAME_OPERANDS][MICA_MAX_DIMS]; /* of the dimensions in front, merged */
    uint64_t grid[MICA__FRAME_OPERANDS][MICA_SPATIAL_DIMS], step[MICA__FRAME_OPERANDS][MICA_SPATIAL_DIMS];
    uint32_t ndim, reserved; /* in front */
} mica__frames;

/* Absent operands have no strides. All zero first: equal operands give equal bytes. */
void mica__frames_of(const mica__operand *operand, uint32_t count, uint32_t dims, mica__frames *frames);

/* Bytes to the frame's first element in operand `which`. */
static inline uint64_t mica__frame_at(const mica__frames *frames, uint32_t which, uint64_t frame)
{
    uint64_t at = 0;
    for (uint32_t d = frames->ndim; d-- > 0; frame /= frames->shape[d])
        at += frame % frames->shape[d] * frames->stride[which][d];
    return at;
}

/* The windows of pools, and of im2col, over grids of `in` places. */
void mica__windows_of_pool(const mica_pool_windows_params *params, const uint64_t *in, const uint64_t *out,
                           mica__windows *windows);
void mica__windows_of_im2col(const mica_im2col_params *params, const uint64_t *in, mica__windows *windows);

#endif
