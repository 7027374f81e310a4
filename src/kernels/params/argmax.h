//use params/dims
typedef struct mk_argmax_params {
    mk_u64 x_stride[MK_DIMS - 1], ids_stride[MK_DIMS - 1], x_step;
    mk_u32 shape[MK_DIMS - 1];
    mk_u32 outer;          /* dimensions above the last */
    mk_u32 n, parts, part; /* parts of a row, elements of a part: a multiple of 4 */
    mk_u32 four;           /* 1: four neighbours may be read at once where the binding is aligned */
    mk_u32 x_type;         /* MK_F32, MK_F16, MK_BF16, or as sort's */
    mk_u32 least;
} mk_argmax_params;
