typedef struct mk_gemm_params {
    mk_u64 y_stride[4], residual_stride;
    mk_u32 rows, k_tiles, row_tiles, column_tiles;
    mk_u32 weights, outputs[4], first_tile[4];
    mk_u32 residual_type, y_type[4];
    mk_f32 softcap;
} mk_gemm_params;
