//use params/cache
/*
 * attention: a group takes a tile of tokens by `part_heads` query heads of one kv head, and one of `splits` parts of the
 * keys. Group x = (tile * kv_heads + kv_head) * head_parts + head_part, y = split.
 */
typedef struct mk_attention_params {
    mk_u64 q_token, q_head, y_token, y_head; /* byte strides */
    mk_u64 k_page, k_slot, k_head, v_page, v_slot, v_head;
    mk_u64 mask_head, mask_token, mask_key;
    mk_u64 positions, lengths, sequences, pages_sequence, pages_entry;
    mk_u64 capacity; /* keys that a sequence can hold */
    mk_u32 tokens, heads, kv_heads, dim, v_dim;
    /* slots of a page, or of all; pages of the cache */
    mk_u32 slots, pages, max_pages, sequence_count, table_count;
    mk_u32 mask_keys, window, flags;
    mk_u32 tile_tokens, part_heads, head_parts, splits;
    mk_u32 v_lanes; /* v_dim rounded up to a power of two, at most MK_WG */
    mk_u32 q_type, k_type, v_type, mask_type, y_type;
    mk_u32 fault_code;
    mk_f32 scale, softcap;
} mk_attention_params;
