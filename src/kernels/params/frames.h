//use params/dims
#define MK_SPATIAL 3

/* Operands [.., spatial..] as frames: dimensions in front, which all have, and grids of three dimensions. Strides in bytes. */
typedef struct mk_frames {
    mk_u64 stride[3][MK_DIMS], step[3][MK_SPATIAL];
    mk_u32 shape[MK_DIMS], grid[3][MK_SPATIAL];
    mk_u32 ndim, count;
} mk_frames;

/* Windows over a grid: window p covers places p stride - low + k dilation of `in`, k below taps. */
typedef struct mk_windows {
    mk_u32 in[MK_SPATIAL], out[MK_SPATIAL], taps[MK_SPATIAL], stride[MK_SPATIAL], dilation[MK_SPATIAL],
        low[MK_SPATIAL], high[MK_SPATIAL];
} mk_windows;

/* pool: a work-item a window; operands x, y, indices. pool_backward: a place of x; operands x, dy, dx. */
typedef struct mk_pool_params {
    mk_frames f;
    mk_windows w;
    mk_u32 kind, count_padding, has_indices;
    mk_u32 type[3];
} mk_pool_params;

/* im2col: a work-item an element of the columns; col2im: of the image. */
typedef struct mk_im2col_params {
    mk_u64 image[5], columns[3]; /* strides: batch, channel, grid; batch, channel and tap, window */
    mk_u64 elements;
    mk_windows w;
    mk_u32 channels, bytes, x_type, y_type;
} mk_im2col_params;

/* resize: a work-item an element of operand 1, which is made of those of operand 0. */
typedef struct mk_resize_params {
    mk_frames f;
    mk_u32 mode, corners, antialias, backward;
    mk_u32 type[2];
} mk_resize_params;

/* grid_sample: a work-item a place of the grid of an image, for all channels. */
typedef struct mk_grid_params {
    mk_u64 x_stride[4], grid_stride[4], y_stride[4];
    mk_u32 batch, channels, height, width, rows, columns;
    mk_u32 mode, padding, align_corners;
    mk_u32 x_type, grid_type, y_type;
} mk_grid_params;
