//use params/frames
/* resize: a work-item an element of operand 1, which is made of those of operand 0. */
typedef struct mk_resize_params {
    mk_frames f;
    mk_u32 mode, corners, antialias, backward;
    mk_u32 type[2];
} mk_resize_params;

/* grid_sample: a work-item a place of the grid of an image, for all channels. Of the gradient x is dx where that is written, y is dy, `to` is dgrid. */
typedef struct mk_grid_params {
    mk_u64 x_stride[4], grid_stride[4], y_stride[4], to_stride[4];
    mk_u32 batch, channels, height, width, rows, columns;
    mk_u32 mode, padding, align_corners;
    mk_u32 x_type, grid_type, y_type, to_type, reserved;
} mk_grid_params;
