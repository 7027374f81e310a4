//use params/steps
//use params/weight
/* native/direct: weights of one type, a batch of rows of x in windows of 128 columns. */
typedef struct mk_direct_params {
    mk_steps row;
    mk_u64 field_at[4]; /* planes: dequantize.cu */
    mk_weight weight;   /* dequantize_any.cu */
    mk_u64 y_stride[4], residual_stride;
    mk_u32 rows, k, windows;
    mk_u32 weights, outputs[4], first_tile[4];
    mk_u32 residual, residual_type, y_type[4];
    mk_f32 softcap;
} mk_direct_params;
