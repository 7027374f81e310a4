typedef struct mk_argmax_params {
    mk_u64 x_row, x_step, ids_row; /* byte strides */
    mk_u32 n, parts, part;         /* parts of a row, elements of a part: a multiple of 4 */
    mk_u32 four;
    mk_u32 x_type;
} mk_argmax_params;
