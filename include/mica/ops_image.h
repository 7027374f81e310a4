/*
 * ops_image.h - convolution, pooling, windows as columns, resizing and sampling of images of one to three dimensions.
 *
 * Layout: [batch, channels, spatial..], one to three spatial dimensions, the slowest first. Operands may have any
 * strides, so that images with channels last are permuted views. Parameters of spatial dimensions are arrays in the
 * order of the dimensions; entries behind the last one are not looked at.
 * Types: f32, f16 and bf16, each operand its own, arithmetic in f32 (sums of products in a fixed order), rounded once
 * on store; or f64, all operands alike, on the cpu alone: elsewhere UNSUPPORTED. Results do not depend on threads or
 * on the other images of a batch. No op here works in place.
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
    /* zeros before and behind; of a transposed one what is cut off y there */
    uint32_t low[MICA_SPATIAL_DIMS], high[MICA_SPATIAL_DIMS];
    /* of a transposed one: places more at the end of y; below stride or dilation */
    uint32_t output_padding[MICA_SPATIAL_DIMS];
    uint32_t kernel[MICA_SPATIAL_DIMS]; /* its sizes; 0: as the weight has it */
    uint32_t groups;     /* channels in so many groups, each with its own weights; 0 stands for 1 */
    uint32_t transposed; /* 1: the gradient of a convolution with respect to its input */
} mica_conv_params;

/* Convolution (without turning the kernel, as all frameworks have it), per group of C channels and O outputs:
 *   y [n, o, p] = bias [o] + sum over c, k of weight [o, c, k] x [n, c, p stride - low + k dilation], 0 outside of x
 * weight [O groups, C, kernel..]; y has (in + low + high - dilation (kernel - 1) - 1) / stride + 1 places, rounded
 * down; INVALID_ARGUMENT where the kernel does not fit. Depthwise: groups = channels.
 * Transposed:
 *   y [n, o, q stride - low + k dilation] = bias [o] + sum of weight [c, o, k] x [n, c, q] over c and all q, k that
 *   lead there;
 * weight [C groups, O, kernel..]; y has (in - 1) stride - low - high + dilation (kernel - 1) + 1 + output_padding
 * places, at least 1. With the weight and parameters of a convolution it is that one's gradient with respect to x,
 * where output_padding is the remainder of its division. bias [O groups] or NULL. `params` NULL: all zero. Padding is
 * multiplied too: a weight that is not finite makes NaN of it. */
MICA_API mica_status mica_conv(mica_encoder *encoder, mica_buffer *x, mica_buffer *weight, mica_buffer *bias,
                               const mica_conv_params *params, mica_buffer *y);
/* The gradient of a convolution with respect to its weight [O groups, C, kernel..], whose
 * sizes params.kernel or dweight says:
 *   dweight [o, c, k] = sum over n, p of dy [n, o, p] x [n, c, p stride - low + k dilation]
 * params as the convolution had them, transposed 0 (of a transposed one: x and dy exchanged). The gradients of the
 * others are mica_conv and mica_reduce. */
MICA_API mica_status mica_conv_weight_backward(mica_encoder *encoder, mica_buffer *x, mica_buffer *dy,
                                               const mica_conv_params *params, mica_buffer *dweight);

typedef enum mica_pool_kind {
    MICA_POOL_MAX = 0,
    MICA_POOL_MIN,
    MICA_POOL_MEAN,
    MICA_POOL_SUM,
    MICA_POOL_PROD
} mica_pool_kind;

typedef struct mica_pool_windows_params {
    uint32_t kind;                        /* mica_pool_kind */
    uint32_t dims;                        /* spatial ones, the last of x: 1 to 3; 0 stands for 2 */
    uint32_t kernel[MICA_SPATIAL_DIMS];   /* >= 1 */
    uint32_t stride[MICA_SPATIAL_DIMS];   /* 0: as the kernel */
    uint32_t dilation[MICA_SPATIAL_DIMS]; /* 0 stands for 1 */
    uint32_t low[MICA_SPATIAL_DIMS], high[MICA_SPATIAL_DIMS]; /* padding */
    uint32_t ceil_mode; /* 1: also the windows at the end that begin in x or before it, but do not fit */
    /* 1: a mean is over places of padding as well, but not over what lies beyond it */
    uint32_t count_padding;
} mica_pool_windows_params;

/* y [.., p] = max, min, mean, sum or product of x [.., p stride - low + k dilation] over the k that lead into x. x
 * [.., spatial..] with any dimensions in front, y as many windows as mica_conv says, with ceil_mode rounded up. MAX
 * and MIN are NaN if an element is. Of windows over nothing: -inf, inf, NaN (0 with count_padding), 0, 1. indices
 * (u32 or i32) of y's shape, or NULL, of MAX and MIN: the place of the element that was taken, counted over the
 * spatial dimensions of x: of equal ones the first, of NaNs too; over nothing 2^32 - 1. */
MICA_API mica_status mica_pool_windows(mica_encoder *encoder, mica_buffer *x,
                                       const mica_pool_windows_params *params, mica_buffer *y,
                                       mica_buffer *indices);
/* dx: the gradient of mica_pool_windows with respect to x for dy, the gradient of y, in the order of the windows: dy
 * to the element that MAX or MIN took, to each element of a SUM, over their number to those of a MEAN, times the
 * product of the others to those of a PROD. */
MICA_API mica_status mica_pool_windows_backward(mica_encoder *encoder, mica_buffer *x, mica_buffer *dy,
                                                const mica_pool_windows_params *params, mica_buffer *dx);

typedef struct mica_im2col_params {
    uint32_t dims;                        /* spatial ones of an image: 1 to 3; 0 stands for 2 */
    uint32_t kernel[MICA_SPATIAL_DIMS];   /* >= 1 */
    uint32_t stride[MICA_SPATIAL_DIMS];   /* 0 stands for 1 */
    uint32_t dilation[MICA_SPATIAL_DIMS]; /* 0 stands for 1 */
    uint32_t low[MICA_SPATIAL_DIMS], high[MICA_SPATIAL_DIMS];
    uint32_t size[MICA_SPATIAL_DIMS]; /* of the image; 0: as the image has it */
} mica_im2col_params;

/* y [n, c K + k, p] = x [n, c, p stride - low + k dilation], 0 outside: the K places of the kernel, and windows p,
 * counted over the spatial dimensions. x [n, c, spatial..], y [n, c K, windows]; patches as rows are a permuted view
 * of y. Any plain type, bit for bit. */
MICA_API mica_status mica_im2col(mica_encoder *encoder, mica_buffer *x, const mica_im2col_params *params,
                                 mica_buffer *y);
/* y [n, c, q] = sum of x [n, c K + k, p] over all k and p with p stride - low + k dilation = q, in the order of k:
 * the gradient of mica_im2col. x [n, c K, windows], y [n, c, spatial..], whose sizes params.size or y says. */
MICA_API mica_status mica_col2im(mica_encoder *encoder, mica_buffer *x, const mica_im2col_params *params,
                                 mica_buffer *y);

typedef enum mica_resize_mode {
    MICA_RESIZE_NEAREST = 0,
    MICA_RESIZE_LINEAR, /* bilinear of two dimensions, trilinear of three */
    MICA_RESIZE_CUBIC   /* Keys' kernel with a = -0.75; with antialias -0.5 */
} mica_resize_mode;

/* Where place i of y lies in x, n places of which become m. */
typedef enum mica_resize_corners {
    MICA_RESIZE_HALF_PIXEL = 0, /* (i + 1/2) n / m - 1/2 */
    MICA_RESIZE_ALIGN_CORNERS,  /* i (n - 1) / (m - 1); 0 where m is 1 */
    MICA_RESIZE_ASYMMETRIC      /* i n / m */
} mica_resize_corners;

typedef struct mica_resize_params {
    uint32_t mode;    /* mica_resize_mode */
    uint32_t corners; /* mica_resize_corners */
    /* 1: where x is larger the kernel is stretched by n / m, weights add up to 1; LINEAR or CUBIC with HALF_PIXEL */
    uint32_t antialias;
    uint32_t dims;                    /* spatial ones, the last of x: 1 to 3; 0 stands for 2 */
    uint32_t size[MICA_SPATIAL_DIMS]; /* of y; 0: as y has it */
} mica_resize_params;

/* y [.., spatial..] = x [.., spatial..] sampled at other places, dimension by dimension; places outside are the one
 * at the edge, with the sum of their weights. Positions are exact (rational numbers), weights rounded to f32. NEAREST
 * takes the nearest place, of two the upper one, with ASYMMETRIC the one below (PyTorch's nearest; with HALF_PIXEL
 * nearest-exact). Elements of weight 0 do not count, NaN or not. Sizes up to 2^24. */
MICA_API mica_status mica_resize(mica_encoder *encoder, mica_buffer *x, const mica_resize_params *params,
                                 mica_buffer *y);
/* dx: the gradient of mica_resize with respect to x for dy, the gradient of y. params.size are sizes of dx. */
MICA_API mica_status mica_resize_backward(mica_encoder *encoder, mica_buffer *dy,
                                          const mica_resize_params *params, mica_buffer *dx);

typedef enum mica_grid_padding {
    MICA_GRID_ZEROS = 0,
    MICA_GRID_BORDER, /* the place at the edge */
    /* turned back at the edge: at the centres of the outermost places with align_corners, else at their ends */
    MICA_GRID_REFLECTION
} mica_grid_padding;

typedef struct mica_grid_params {
    uint32_t mode;          /* mica_resize_mode: NEAREST (of two places the even one), LINEAR or CUBIC */
    uint32_t padding;       /* mica_grid_padding */
    uint32_t align_corners; /* 1: -1 and 1 are the centres of the outermost places, else their ends */
} mica_grid_params;

/* y [n, c, i, j] = x [n, c] sampled at grid [n, i, j] = (column, row), both from -1 to 1 over x; x [n, c, h, w], grid
 * [n, i, j, 2]. CUBIC with a = -0.75, its 16 places padded one by one. A coordinate that is NaN is outside; where
 * there is no outside, at the first place. */
MICA_API mica_status mica_grid_sample(mica_encoder *encoder, mica_buffer *x, mica_buffer *grid,
                                      const mica_grid_params *params, mica_buffer *y);
/* The gradient of mica_grid_sample for dy, the gradient of y: dx [n, c, h, w] and dgrid [n, i, j, 2], either of
 * which may be NULL. At a kink (between two pieces, where a coordinate is held at a border or turned back) the
 * derivative is that of one side; of NEAREST dgrid is 0, and where a coordinate is NaN. dx is added up in the
 * order of the places of the grid. */
MICA_API mica_status mica_grid_sample_backward(mica_encoder *encoder, mica_buffer *x, mica_buffer *grid,
                                               mica_buffer *dy, const mica_grid_params *params,
                                               mica_buffer *dx, mica_buffer *dgrid);

#ifdef __cplusplus
}
#endif

#endif
