//use params/weight
/* embedding: one group a token. */
typedef struct mk_embedding_params {
    mk_u64 weight_stride, scale_stride, bias_stride, ids_stride, y_stride;
    mk_weight weight;
    mk_u32 rows, y_type, fault_code;
} mk_embedding_params;
