//use params/dims
#define MK_SPATIAL 3

/* Operands [.., spatial..] as frames: dimensions in front, which all have, and grids of three dimensions. Strides in bytes. */
typedef struct mk_frames {
    mk_u64 stride[3][MK_DIMS], step[3][MK_SPATIAL];
    mk_u32 shape[MK_DIMS], grid[3][MK_SPATIAL];
    mk_u32 ndim, count;
} mk_frames;
