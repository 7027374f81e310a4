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

#endif
