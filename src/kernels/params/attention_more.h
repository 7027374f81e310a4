//use params/attention
/* attention with what only some callers have: see MORE in attention.kc. */
#define MK_HAS_SINKS 1u
#define MK_HAS_SLOPES 2u
#define MK_HAS_KEYS 4u
#define MK_HAS_LSE 8u
#define MK_MASK_BOOL 3u /* a type of masks beside the floats: bytes, 0 hides */
typedef struct mk_attention_more_params {
    mk_attention_params a;
    mk_u64 sinks, slopes, keys_token, keys_key, lse_token, lse_head; /* byte strides */
    mk_u32 more;                                                     /* MK_HAS_SINKS .. */
    mk_u32 keys;                                                     /* of a token's list */
    mk_u32 sinks_type, slopes_type;
} mk_attention_more_params;
