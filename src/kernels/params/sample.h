//use params/settings
typedef struct mk_sample_params {
    mk_u64 logits_row, raw_row, settings_row, history_row, ids_row, chances_row; /* byte strides */
    mk_u32 n, width;
    mk_u32 logits_type, raw_type, chances_type;
    mk_u32 flags;
} mk_sample_params;
