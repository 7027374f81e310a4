//use params/sequences
/* delta_net, delta_chunk: strides are bytes of [token, head], of states of [head, row]. `present` has bits of what is there. */
#define MK_DELTA_G 1u
#define MK_DELTA_BETA 2u
#define MK_DELTA_SKIP 4u
typedef struct mk_delta_params {
    mk_sequences of;
    mk_u64 q_stride[2], k_stride[2], v_stride[2], g_stride[2], beta_stride[2], y_stride[2];
    mk_u64 state_stride[2], next_stride[2], skip_stride, g_row;
    mk_u64 carried;      /* delta_chunk: where states lie in the scratch, behind the rooms of chunks */
    mk_u32 heads, share; /* share: value heads of a key head */
    mk_u32 dim, columns, blocks;
    mk_u32 correct;   /* 1: the delta rule, 0: sums alone */
    mk_u32 normalise; /* 1: q and k over their lengths */
    mk_u32 present;
    mk_u32 q_type, k_type, v_type, g_type, beta_type, skip_type, y_type;
    mk_f32 eps, scale;
    mk_u32 by_row; /* 1: g has a decay for each row of the state */
} mk_delta_params;
