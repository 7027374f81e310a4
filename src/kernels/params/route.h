typedef struct mk_route_params {
    mk_u64 logits_token, ids_token, weights_token; /* byte strides */
    mk_u32 tokens, experts, slots;
    mk_u32 logits_type, weights_type;
    mk_u32 softmax_first, normalise;
    mk_f32 scale;
} mk_route_params;

typedef struct mk_expert_sum_params {
    mk_u64 x_token, x_slot, weights_token, weights_slot, y_token; /* byte strides */
    mk_u32 slots, n;
    mk_u32 groups; /* to a token */
    mk_u32 four;   /* 1: four elements to a work-item, read at once where the binding is aligned */
    mk_u32 x_type, weights_type, y_type;
} mk_expert_sum_params;
