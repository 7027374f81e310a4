/* route_backward: byte strides. */
typedef struct mk_route_backward_params {
    mk_u64 logits_token, logits_expert, ids_token, ids_slot, dweights_token, dweights_slot, dlogits_token,
        dlogits_expert, scale_expert;
    mk_u32 tokens, experts, slots;
    mk_u32 logits_type, dweights_type, dlogits_type, scale_type;
    mk_u32 softmax_first, sigmoid, normalise, has_scale;
    mk_u32 fault_code;
    mk_f32 scale;
} mk_route_backward_params;

/* expert_places: the same. */
typedef struct mk_expert_places_params {
    mk_u64 ids_token, ids_slot, places_token, places_slot, counts_expert;
    mk_u32 tokens, slots, experts;
    mk_u32 capacity, by_choice;
    mk_u32 fault_code;
} mk_expert_places_params;
