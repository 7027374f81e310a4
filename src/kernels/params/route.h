typedef struct mk_route_params {
    mk_u64 logits_token, ids_token, weights_token; /* byte strides */
    mk_u32 tokens, experts, slots;
    mk_u32 logits_type, weights_type;
    mk_u32 softmax_first, normalise;
    mk_f32 scale;
    /* route_scored alone reads these. */
    mk_u32 sigmoid, by_score; /* by_score: experts are chosen by their scores, not by logits */
    mk_u32 groups, top_groups, best_two;
    mk_u32 has_bias, has_scale, bias_type, scale_type;
} mk_route_params;

typedef struct mk_expert_sum_params {
    /* byte strides */
    mk_u64 x_token, x_slot, weights_token, weights_slot, y_token, shared_token, gate_token, residual_token;
    mk_u32 slots, n;
    mk_u32 groups; /* to a token */
    mk_u32 four;   /* 1: four elements to a work-item, read at once where the binding is aligned */
    mk_u32 x_type, weights_type, y_type;
    mk_u32 has_shared, has_gate, has_residual, shared_type, gate_type, residual_type;
} mk_expert_sum_params;
