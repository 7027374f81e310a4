//use params/row_dims
//use params/weight
/* matmul_transposed: a group takes 64 rows of x that meet one weight, and 128 columns of it. */
typedef struct mk_transposed_params {
    mk_u64 weight_batch, scale_batch, bias_batch, weight_stride, scale_stride, bias_stride;
    mk_u64 x_stride[MK_ROW_DIMS], y_stride[MK_ROW_DIMS];
    mk_weight weight;
    mk_u32 shape[MK_ROW_DIMS]; /* of rows of x and y */
    mk_u32 ndim;
    mk_u32 n;                        /* rows of the weight */
    mk_u32 batches, rows, row_tiles; /* weights; rows of x for each of them, and the tiles that these make */
    mk_u32 experts;                  /* 0: none; else tiles and rows come from the map */
    mk_u32 tiles;                    /* of the map */
    mk_u32 x_type, y_type;
} mk_transposed_params;
