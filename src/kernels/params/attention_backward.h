/* attention_backward: types of operands are MK_F32, MK_F16, MK_BF16, of the mask also MK_GRADIENT_BOOL. */
#define MK_GRADIENT_MASK 1u /* flags */
#define MK_GRADIENT_SLOPES 2u
#define MK_GRADIENT_BIDIRECTIONAL 4u
#define MK_GRADIENT_SIGNED_POSITIONS 8u
#define MK_GRADIENT_SIGNED_LENGTHS 16u
#define MK_GRADIENT_BOOL 3u
typedef struct mk_attention_backward_params {
    mk_u64 q_token, q_head, k_key, k_head, v_key, v_head; /* byte strides */
    mk_u64 y_token, y_head, dy_token, dy_head, lse_token, lse_head;
    mk_u64 dq_token, dq_head, dk_key, dk_head, dv_key, dv_head;
    mk_u64 mask_head, mask_token, mask_key, positions, sinks, slopes, dsinks;
    mk_u32 tokens, keys, heads, kv_heads, dim, v_dim;
    mk_u32 mask_keys, window, flags;
    mk_u32 q_type, k_type, v_type, y_type, dy_type, mask_type, sinks_type, slopes_type;
    mk_u32 dq_type, dk_type, dv_type, dsinks_type;
    mk_u32 fault_code;
    mk_f32 scale, softcap;
} mk_attention_backward_params;
