//use params/row_dims
//use params/weight
/* matmul: a group takes MK_TILE (tile.h) rows of x and as many rows of the weight, or with a gate half as many of two
 * weights. */
typedef struct mk_matmul_params {
    mk_u64 weight_stride[2], scale_stride[2], bias_stride[2];
    mk_u64 weight_batch, scale_batch, bias_batch;
    mk_u64 y_stride[MK_ROW_DIMS], residual_stride[MK_ROW_DIMS];
    mk_u64 x_stride;
    mk_weight weight;
    mk_u32 shape[MK_ROW_DIMS];
    mk_u32 ndim;
    mk_u32 n;
    mk_u32 rows; /* of x for each weight of a batch */
    mk_u32 gate, has_residual, residual_type, y_type;
    mk_u32 experts; /* 0: none; else tiles and rows come from the map */
    mk_u32 tiles;
    mk_u32 x_slots;
    mk_f32 softcap;
} mk_matmul_params;
