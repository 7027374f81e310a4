//use params/frames
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
