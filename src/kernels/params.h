/*
 * params.h - the parameter blocks of the portable kernels: one text for the plans, in C, and for the kernels.
 *
 * Only mk_u64, mk_u32, mk_i32, mk_f32 and arrays of them, widest first, so that every compiler lays them out alike; at
 * most 512 bytes (OpenCL promises 1,024 for all arguments together). Byte strides are mk_u64. `fault_code` goes to
 * mk_fault. Types of activations are MK_F32, MK_F16, MK_BF16.
 */
#define MK_DIMS 6

/* elementwise: operand o of element i lies at the sum of stride[o][d] * index_d(i); shape[0] is the slowest. Operands are
 * x, the other of each step, y; those that are not there have stride 0. */
#define MK_ELEMENTWISE_OPERANDS 6
#define MK_ELEMENTWISE_STEPS 4
#define MK_ADD 0u /* ops of two operands come first */
#define MK_MUL 1u
#define MK_SILU_MUL 2u
#define MK_GELU_MUL 3u
#define MK_GELU 4u
#define MK_GELU_ERF 5u
#define MK_SOFTCAP 6u
typedef struct mk_elementwise_params {
    mk_u64 stride[MK_ELEMENTWISE_OPERANDS][MK_DIMS];
    mk_u64 elements;
    mk_u32 shape[MK_DIMS];
    mk_u32 ndim;
    mk_u32 four; /* 1: four neighbours may be read at once where the binding is aligned */
    mk_u32 type[MK_ELEMENTWISE_OPERANDS];
    mk_u32 steps, step_op[MK_ELEMENTWISE_STEPS], step_swapped[MK_ELEMENTWISE_STEPS];
    mk_f32 step_value[MK_ELEMENTWISE_STEPS]; /* softcap: the cap */
} mk_elementwise_params;

/* copy, fill, advance. `each` elements to a work-item: 1, or as many as are 16 bytes (bits) or 4 (floats). */
typedef struct mk_copy_params {
    mk_u64 x_stride[MK_DIMS], y_stride[MK_DIMS];
    mk_u64 elements;
    mk_u32 shape[MK_DIMS];
    mk_u32 ndim;
    mk_u32 bytes; /* of an element that is copied bit for bit; 0: floats are converted */
    mk_u32 x_type, y_type;
    mk_u32 each;
    mk_u32 bits; /* fill: the element; advance: what is added */
} mk_copy_params;

/* rows: operands in the order of the entry's list; outer dimensions only in `stride` and `shape`, of which there are
 * ndim - 1; `step` leads to the next element of a row. */
#define MK_ROWS_OPERANDS 7
typedef struct mk_rows_params {
    mk_u64 stride[MK_ROWS_OPERANDS][MK_DIMS - 1];
    mk_u64 step[MK_ROWS_OPERANDS];
    mk_u32 shape[MK_DIMS - 1];
    mk_u32 ndim;
    mk_u32 rows, n;
    mk_u32 narrow;  /* 1: MK_SUB work-items to a row */
    mk_u32 four;    /* 1: four neighbours may be read at once where the binding is aligned */
    mk_u32 present; /* bits of the operands that are there */
    mk_u32 type[MK_ROWS_OPERANDS];
    mk_f32 value; /* eps, or softmax's scale */
} mk_rows_params;

/* rope, kv_write: rows of `dim` elements, one to a head of a token. The frequency of pair i is base * 2^exponent times the
 * powers of the bits of i, in turns, numbers of 64 bits behind the point. Flags are these and attention's. */
#define MK_ROPE_POWERS 16
#define MK_HAS_Y 256u
#define MK_HAS_CACHE 512u
#define MK_HAS_FACTORS 1024u
#define MK_HAS_WEIGHT 2048u /* of the norm */
#define MK_NORM 4096u
#define MK_NEOX 8192u
#define MK_REVERSED 16384u /* powers count from the last pair */
#define MK_NEGATIVE 32768u /* angles */
typedef struct mk_rope_params {
    mk_u64 x_token, x_head, y_token, y_head; /* byte strides */
    mk_u64 cache_page, cache_slot, cache_head;
    mk_u64 positions, sequences, pages_sequence, pages_entry, factors;
    mk_u64 base, power[MK_ROPE_POWERS];
    mk_u32 rows, heads, dim, rotary;
    mk_u32 slots, pages, sequence_count, max_pages; /* slots of a page, or of all; pages of the cache */
    mk_u32 x_type, y_type, cache_type, weight_type;
    mk_u32 flags, fault_code;
    mk_i32 exponent;
    mk_f32 attention_scale, eps;
} mk_rope_params;

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

typedef struct mk_argmax_params {
    mk_u64 x_row, x_step, ids_row; /* byte strides */
    mk_u32 n, parts, part;         /* parts of a row, elements of a part: a multiple of 4 */
    mk_u32 four;
    mk_u32 x_type;
} mk_argmax_params;

/* penalize, sample: places in a row of settings (mica_sample_settings). */
#define MK_SETTINGS_SEED 0u
#define MK_SETTINGS_PICK 8u
#define MK_SETTINGS_TEMPERATURE 16u
#define MK_SETTINGS_TOP_K 20u
#define MK_SETTINGS_TOP_P 24u
#define MK_SETTINGS_MIN_P 28u
#define MK_SETTINGS_TYPICAL_P 32u
#define MK_SETTINGS_KEEP 36u
#define MK_SETTINGS_REPEAT 40u
#define MK_SETTINGS_PRESENCE 44u
#define MK_SETTINGS_FREQUENCY 48u
#define MK_SETTINGS_LAST 52u
#define MK_SETTINGS_NEXT 56u
#define MK_SETTINGS_FLAGS 60u
#define MK_HAS_BIAS 65536u /* flags, beside MK_HAS_MASK */
#define MK_HAS_HISTORY 131072u
#define MK_HAS_RAW 262144u
#define MK_HAS_CHANCES 524288u
#define MK_PENALIZE_TILE 1024u
typedef struct mk_penalize_params {
    mk_u64 logits_row, settings_row, bias_ids_row, bias_row, mask_row, history_row, y_row; /* byte strides */
    mk_u32 n, tiles;
    mk_u32 bias_slots, width;
    mk_u32 logits_type, bias_type, y_type;
    mk_u32 flags, fault_code;
} mk_penalize_params;

typedef struct mk_sample_params {
    mk_u64 logits_row, raw_row, settings_row, history_row, ids_row, chances_row; /* byte strides */
    mk_u32 n, width;
    mk_u32 logits_type, raw_type, chances_type;
    mk_u32 flags;
} mk_sample_params;

/*
 * attention: a group takes a tile of tokens by `part_heads` query heads of one kv head, and one of `splits` parts of the
 * keys. Group x = (tile * kv_heads + kv_head) * head_parts + head_part, y = split.
 */
#define MK_Q8_0 3u          /* a type of caches: blocks of 32 */
#define MK_HAS_SEQUENCES 1u /* flags */
#define MK_HAS_PAGES 2u
#define MK_HAS_MASK 4u
#define MK_RING 8u
#define MK_BIDIRECTIONAL 16u
#define MK_SIGNED_POSITIONS 32u /* i32: a negative one is outside */
#define MK_SIGNED_LENGTHS 64u
typedef struct mk_attention_params {
    mk_u64 q_token, q_head, y_token, y_head; /* byte strides */
    mk_u64 k_page, k_slot, k_head, v_page, v_slot, v_head;
    mk_u64 mask_head, mask_token, mask_key;
    mk_u64 positions, lengths, sequences, pages_sequence, pages_entry;
    mk_u64 capacity; /* keys that a sequence can hold */
    mk_u32 tokens, heads, kv_heads, dim, v_dim;
    mk_u32 slots, pages, max_pages, sequence_count,
        table_count; /* slots of a page, or of all; pages of the cache */
    mk_u32 mask_keys, window, flags;
    mk_u32 tile_tokens, part_heads, head_parts, splits;
    mk_u32 v_lanes; /* v_dim rounded up to a power of two, at most MK_WG */
    mk_u32 q_type, k_type, v_type, mask_type, y_type;
    mk_u32 fault_code;
    mk_f32 scale, softcap;
} mk_attention_params;

/* native/attend: attention, and with TURNED what brings the new key and value of its one token into the caches: the flags,
 * frequencies and factors of `turn` are those of a rope over whole heads. */
typedef struct mk_attend_params {
    mk_attention_params a;
    mk_rope_params turn;
    mk_u64 new_k_head, new_v_head; /* byte strides */
    mk_u32 slots_shift;            /* a.slots is 1 << that; 32: it is no power of two */
} mk_attend_params;

/* Types of weights, the constant W of a program: mica_dtype's numbers (gpu_plan_weight.c holds them together). */
#define MK_W_F32 1
#define MK_W_F16 2
#define MK_W_BF16 3
#define MK_W_F8_E4M3 5
#define MK_W_Q4_0 18
#define MK_W_Q4_1 19
#define MK_W_Q5_0 20
#define MK_W_Q5_1 21
#define MK_W_Q8_0 22
#define MK_W_Q8_1 23
#define MK_W_Q2_K 24
#define MK_W_Q3_K 25
#define MK_W_Q4_K 26
#define MK_W_Q5_K 27
#define MK_W_Q6_K 28
#define MK_W_Q8_K 29
#define MK_W_IQ1_S 30
#define MK_W_IQ1_M 31
#define MK_W_IQ2_XXS 32
#define MK_W_IQ2_XS 33
#define MK_W_IQ2_S 34
#define MK_W_IQ3_XXS 35
#define MK_W_IQ3_S 36
#define MK_W_IQ4_NL 37
#define MK_W_IQ4_XS 38
#define MK_W_TQ1_0 39
#define MK_W_TQ2_0 40
#define MK_W_MXFP4 41
#define MK_W_NVFP4 42
#define MK_W_AFFINE2 43
#define MK_W_AFFINE3 44
#define MK_W_AFFINE4 45
#define MK_W_AFFINE5 46
#define MK_W_AFFINE6 47
#define MK_W_AFFINE8 48
#define MK_W_FP4 49

/* Types of scales beside the three floats. */
#define MK_E8M0 3u
#define MK_E4M3 4u

/* Field f of block b of a weight's row lies at base[f] + b * stride[f]: one after the other in a canonical row, each in its
 * plane in the layout of planes (quant/planes.h). */
#define MK_FIELDS 4
typedef struct mk_fields {
    mk_u32 base[MK_FIELDS], stride[MK_FIELDS];
} mk_fields;

/* What a kernel knows about the rows of a weight, all weights of a dispatch alike. */
typedef struct mk_weight {
    mk_fields fields;
    mk_u32 k;          /* values of a row */
    mk_u32 group_size; /* of types with tables of scales */
    mk_u32 groups;     /* of a row */
    mk_u32 scale_type; /* MK_F32 .. MK_E4M3 */
} mk_weight;

/* native/stream and stream_any: a few rows of x, up to four weights alike, whose rows follow each other. Places are bytes; see flow.cu. */
typedef struct mk_stream_params {
    mk_u64 x_stride, residual_stride, y_stride[4]; /* between rows of x */
    mk_weight weight;
    mk_u32 rows, k;
    mk_u32 row_bytes[3];           /* of codes, and of scales and biases where they have tables */
    mk_u32 part_at[3];             /* where each of these begins in a slot */
    mk_u32 row_end[4];             /* rows of this weight and those before it; with a gate of one */
    mk_u32 share, longer;          /* rows of a group; the first groups have one more */
    mk_u32 team_shift;             /* log2 of the warps to two rows */
    mk_u32 slot_shift, slot_bytes; /* log2 of the rows of a weight in a slot */
    mk_u32 stages;
    mk_u32 codes_bytes, info_bytes, info_at, ring_at; /* of a row of x; shared memory: codes, info, ring */
    mk_f32 eps, softcap;
} mk_stream_params;

/* Rows of up to MK_ROW_DIMS dimensions, the last of them at shape[MK_ROW_DIMS - 1]: row r of an operand lies at the sum of
 * stride[d] * index_d(r). */
#define MK_ROW_DIMS 3

/* activation: one group a row of x. What is made of it: forms. Rows of the results are `padded` values, with zeros. */
#define MK_FORM_CODES 1u /* 8-bit codes, and for each 32 of them scale and sums of both halves (f32, 2 i16) */
#define MK_FORM_PLAIN 2u /* f32 */
#define MK_FORM_ROUNDED 4u /* f32, what the codes stand for */
typedef struct mk_activation_params {
    mk_u64 stride[MK_ROW_DIMS];
    mk_u64 codes, meta, plain, rounded; /* places of the forms in `made` */
    mk_u32 shape[MK_ROW_DIMS], ndim;
    mk_u32 k, padded;
    mk_u32 type;
    mk_u32 norm, has_weight, norm_type;
    mk_u32 forms;
    mk_f32 eps;
} mk_activation_params;

/* What happens to a sum before it is stored. */
#define MK_GATE_SILU 1u
#define MK_GATE_GELU 2u

/* matvec: a run of MK_SUB work-items takes two rows of a weight, or with a gate one row of each of two weights. */
#define MK_MATVEC_WEIGHTS 4
#define MK_MATVEC_ROWS 8u
typedef struct mk_matvec_params {
    mk_u64 weight_stride[MK_MATVEC_WEIGHTS], scale_stride[MK_MATVEC_WEIGHTS], bias_stride[MK_MATVEC_WEIGHTS];
    mk_u64 weight_batch, scale_batch, bias_batch;
    mk_u64 y_stride[MK_MATVEC_WEIGHTS][MK_ROW_DIMS];
    mk_u64 residual_stride[MK_ROW_DIMS];
    mk_u64 x_stride;
    mk_u64 x_meta; /* where behind the codes of x their scales and sums are */
    mk_u64 ids_stride[2];
    mk_weight weight;
    mk_u32 shape[MK_ROW_DIMS];
    mk_u32 ndim;
    mk_u32 end_group[MK_MATVEC_WEIGHTS]; /* of the groups of a weight; from the last one on 2^32 - 1 */
    mk_u32 n[MK_MATVEC_WEIGHTS];
    mk_u32 slice_bits; /* log2 of the runs of work-items that share a unit */
    mk_u32 batches;    /* weights of a batch, or slots of ids, or rows of x */
    mk_u32 rows;       /* of x for each of them */
    mk_u32 share;      /* batches that have the same weight */
    mk_u32 x_k;        /* values of a row of x, with padding */
    mk_u32 x_type, y_type[MK_MATVEC_WEIGHTS];
    mk_u32 gate, has_residual, residual_type;
    mk_u32 experts; /* that ids choose from */
    mk_u32 slots;   /* of a token */
    mk_u32 x_slots; /* slots that share a row of x */
    mk_u32 fault_code;
    mk_f32 softcap;
} mk_matvec_params;

/* matmul: a group takes MK_TILE rows of x and as many rows of the weight, or with a gate half as many of two weights. */
#define MK_TILE 128u
typedef struct mk_matmul_params {
    mk_u64 weight_stride[2], scale_stride[2], bias_stride[2];
    mk_u64 weight_batch, scale_batch, bias_batch;
    mk_u64 y_stride[MK_ROW_DIMS], residual_stride[MK_ROW_DIMS];
    mk_u64 x_stride;
    mk_weight weight;
    mk_u32 shape[MK_ROW_DIMS];
    mk_u32 ndim;
    mk_u32 n;
    mk_u32 rows; /* of x for each weight of a batch */
    mk_u32 gate, has_residual, residual_type, y_type;
    mk_u32 experts; /* 0: none; else tiles and rows come from the map */
    mk_u32 tiles;
    mk_u32 x_slots;
    mk_f32 softcap;
} mk_matmul_params;

/* experts: the map of a routed matmul, u32: tiles [tiles][4] (expert, first, count, 0; in the first, tiles in use), then slots by
 * expert [slots], then counters [2 (experts + 1)]. An id outside belongs to expert number `experts`, whose rows become zero. */
typedef struct mk_experts_params {
    mk_u64 ids_stride[2];
    mk_u32 experts, tokens, slots;
    mk_u32 tiles; /* room for */
    mk_u32 fault_code;
} mk_experts_params;

/* embedding: one group a token. */
typedef struct mk_embedding_params {
    mk_u64 weight_stride, scale_stride, bias_stride, ids_stride, y_stride;
    mk_weight weight;
    mk_u32 rows, y_type, fault_code;
} mk_embedding_params;

/* pack: rows between the canonical layout and that of planes, one work-item a byte. */
typedef struct mk_pack_params {
    mk_u64 from_stride[MK_ROW_DIMS], to_stride[MK_ROW_DIMS];
    mk_u64 bytes; /* of all rows */
    mk_u32 shape[MK_ROW_DIMS];
    mk_u32 ndim;
    mk_u32 row_bytes, block_bytes, blocks, fields;
    mk_u32 offset[MK_FIELDS], size[MK_FIELDS];
    mk_u32 unpack;
} mk_pack_params;

/* Orders of x: tiles of 128 rows and 64 columns (pieces.cu); rows one after the other; tiles in which, of 128 columns, the k-th
 * sixteen has columns 4 k to 4 k + 3 of each 32 (batch.cu). */
#define MK_X_TILES 0u
#define MK_X_ROWS 1u
#define MK_X_WINDOWS 2u

/* native/tiles and native/gemm: operands in 16 bits as tiles of 64 columns; see tiles.cu. */
typedef struct mk_tiles_params {
    mk_u64 stride; /* of a row of x or of a weight */
    mk_u64 field_at[4];
    mk_u32 rows, k, k_tiles;
    mk_u32 outputs[4], first_tile[4]; /* weights */
    mk_u32 second;                    /* with a gate: 1 for the weight behind the first */
    mk_u32 order;                     /* of x: MK_X_… */
    mk_u32 gate, norm, x_type, norm_type;
    mk_f32 eps;
} mk_tiles_params;

/* Bytes from one row of a weight to the next, or from one matrix of it, of each of its tables; 0 for those that it has not. */
typedef struct mk_steps {
    mk_u64 data, scales, biases;
} mk_steps;

/* native/unpack: one weight; `side` 0, or with a gate 1 and 2. */
typedef struct mk_unpack_params {
    mk_steps row;
    mk_weight weight;
    mk_u32 outputs, k_tiles, side, first_tile;
} mk_unpack_params;

/* native/direct: weights of one type, a batch of rows of x in windows of 128 columns. */
typedef struct mk_direct_params {
    mk_steps row;
    mk_u64 field_at[4]; /* planes: decode.cu */
    mk_weight weight;   /* any.cu */
    mk_u64 y_stride[4], residual_stride;
    mk_u32 rows, k, windows;
    mk_u32 weights, outputs[4], first_tile[4];
    mk_u32 residual, residual_type, y_type[4];
    mk_f32 softcap;
} mk_direct_params;

typedef struct mk_gemm_params {
    mk_u64 y_stride[4], residual_stride;
    mk_u32 rows, k_tiles, row_tiles, column_tiles;
    mk_u32 weights, outputs[4], first_tile[4];
    mk_u32 residual, residual_type, y_type[4];
    mk_f32 softcap;
} mk_gemm_params;

/* native/routed: one weight [experts, outputs, k], or with a gate two alike. */
typedef struct mk_routed_params {
    mk_steps expert, row;
    mk_u64 field_at[4]; /* planes: decode.cu */
    mk_weight weight;   /* any.cu */
    mk_u64 y_stride;    /* of a slot */
    mk_u32 experts, outputs, k, k_tiles;
    mk_u32 tiles; /* of the map */
    mk_u32 column_tiles;
    mk_u32 x_slots; /* slots that share a row of x */
    mk_u32 y_type;
} mk_routed_params;
