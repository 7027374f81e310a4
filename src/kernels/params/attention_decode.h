//use params/attention
//use params/rope
/* native/attention_decode: attention, and with ROTATED what brings the new key and value of its one token into the caches: the
 * flags, frequencies and factors of `rope` are those of a rope over whole heads. */
typedef struct mk_attention_decode_params {
    mk_attention_params a;
    mk_rope_params rope;
    mk_u64 new_k_head, new_v_head; /* byte strides */
    mk_u32 slots_shift;            /* a.slots is 1 << that; 32: it is no power of two */
} mk_attention_decode_params;
