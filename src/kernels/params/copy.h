//use params/dims
/* copy: `each` elements to a work-item: 1, or as many as are 16 bytes (bits) or 4 (floats). */
typedef struct mk_copy_params {
    mk_u64 x_stride[MK_DIMS], y_stride[MK_DIMS];
    mk_u64 elements;
    mk_u32 shape[MK_DIMS];
    mk_u32 ndim;
    mk_u32 bytes; /* of an element that is copied bit for bit; 0: floats are converted */
    mk_u32 x_type, y_type;
    mk_u32 each;
    mk_u32 reserved;
} mk_copy_params;
