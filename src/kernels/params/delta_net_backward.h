//use params/sequences
/* delta_net_backward: strides are bytes, of [token, head, element], [token, head], [sequence or slot, head, row, column]. In the scratch, f32, lie states
 * [.., rows, columns] of each value head: of `kept` tokens, of the `stretch` behind one of them of each sequence, with one more, and what reaches a state; then
 * of each head of a sequence q, k and decays of a token, what changes its state and what reaches that; then what each value head gives to q and k, [token,
 * head, 2, dim]. */
#define MK_DELTA_BACKWARD_G 1u
#define MK_DELTA_BACKWARD_BETA 2u
#define MK_DELTA_BACKWARD_SKIP 4u
#define MK_DELTA_BACKWARD_DNEXT 8u
#define MK_DELTA_BACKWARD_DG 16u
#define MK_DELTA_BACKWARD_DBETA 32u
#define MK_DELTA_BACKWARD_DSTATE 64u
typedef struct mk_delta_backward_params {
    mk_sequences of;
    mk_u64 q_stride[3], k_stride[3], v_stride[3], g_stride[3], beta_stride[2], skip_stride, state_stride[3],
        dy_stride[3];
    mk_u64 dnext_stride[4], dv_stride[3], dg_stride[3], dbeta_stride[2], dstate_stride[4];
    mk_u64 stretch_at, reach_at, vectors_at,
        parts_at;        /* bytes, in the scratch; kept states are at its start */
    mk_u32 heads, share; /* share: value heads of a key head */
    mk_u32 dim, columns, stretch;
    mk_u32 correct;   /* 1: the delta rule, 0: sums alone */
    mk_u32 normalise; /* 1: q and k over their lengths */
    mk_u32 by_row;    /* 1: g has a decay for each row of the state */
    mk_u32 present;
    mk_u32 types; /* two bits each, from the lowest on: q, k, v, g, beta, skip, dy, dv, dg, dbeta */
    mk_f32 eps, scale;
} mk_delta_backward_params;
/* Of q, then of k: its gradient out of what the value heads gave. */
typedef struct mk_delta_vectors_params {
    mk_sequences of;
    mk_u64 x_stride[3], dx_stride[3], parts_at;
    mk_u32 heads, share, dim;
    mk_u32 which; /* 0: q, 1: k */
    mk_u32 normalise;
    mk_u32 x_type, dx_type;
    mk_f32 eps, scale;
    mk_u32 reserved;
} mk_delta_vectors_params;
/* dskip. */
typedef struct mk_delta_skip_params {
    mk_sequences of;
    mk_u64 v_stride[3], dy_stride[3], dskip_stride;
    mk_u32 columns, v_type, dy_type, dskip_type;
} mk_delta_skip_params;
