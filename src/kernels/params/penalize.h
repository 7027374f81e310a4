//use params/settings
#define MK_PENALIZE_TILE 1024u
typedef struct mk_penalize_params {
    mk_u64 logits_row, settings_row, bias_ids_row, bias_row, mask_row, history_row, y_row; /* byte strides */
    mk_u32 n, tiles;
    mk_u32 bias_slots, width;
    mk_u32 logits_type, bias_type, y_type;
    mk_u32 flags, fault_code;
} mk_penalize_params;
