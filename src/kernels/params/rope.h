//use params/cache
/* rope, kv_write: rows of `dim` elements, one to a head of a token. The frequency of pair i is base * 2^exponent times the
 * powers of the bits of i, in circles, numbers of 64 bits behind the point. Flags are these and those of cache.h. */
#define MK_ROPE_POWERS 16
#define MK_HAS_Y 256u
#define MK_HAS_CACHE 512u
#define MK_HAS_FACTORS 1024u
#define MK_HAS_WEIGHT 2048u /* of the norm */
#define MK_NORM 4096u
#define MK_NEOX 8192u
#define MK_REVERSED 16384u /* powers count from the last pair */
#define MK_NEGATIVE 32768u /* angles */
#define MK_AXES_ONE 0u
#define MK_AXES_INTERLEAVED 2u
#define MK_AXES_SEPARATE 3u
typedef struct mk_rope_params {
    mk_u64 x_token, x_head, y_token, y_head; /* byte strides */
    mk_u64 cache_page, cache_slot, cache_head;
    mk_u64 positions, positions_axis, sequences, pages_sequence, pages_entry, factors;
    mk_u64 base, power[MK_ROPE_POWERS];
    mk_u32 rows, heads, dim, rotary;
    mk_u32 slots, pages, sequence_count, max_pages; /* slots of a page, or of all; pages of the cache */
    mk_u32 x_type, y_type, cache_type, weight_type;
    mk_u32 flags, fault_code;
    mk_u32 axes, axis_count, sections[4]; /* axes: MK_AXES_ONE .. */
    mk_i32 exponent;
    mk_f32 attention_scale, eps;
} mk_rope_params;
