//use params/sequences
/* selective_scan_backward: strides are bytes, of [token, channel], [channel, place], [token, group, place] and [sequence, channel, place]. In the
 * scratch, f32, lie: states of `kept` tokens and of the `stretch` behind one of them of each sequence, what reaches a state, [.., places, channels] each; what a
 * sequence gives to a, skip and dt_bias, [sequence, places + 2, channels]; what blocks of channels give to b and c, [token, group, block, 2, places]. */
#define MK_SCAN_BACKWARD_SKIP 1u
#define MK_SCAN_BACKWARD_DT_BIAS 2u
#define MK_SCAN_BACKWARD_Z 4u
#define MK_SCAN_BACKWARD_DNEXT 8u
#define MK_SCAN_BACKWARD_DSKIP 16u
#define MK_SCAN_BACKWARD_DDT_BIAS 32u
#define MK_SCAN_BACKWARD_DZ 64u
#define MK_SCAN_BACKWARD_DSTATE 128u
typedef struct mk_scan_backward_params {
    mk_sequences of;
    mk_u64 x_stride[2], dt_stride[2], z_stride[2], dy_stride[2], dx_stride[2], ddt_stride[2], dz_stride[2];
    mk_u64 a_stride[2], b_stride[3], c_stride[3], skip_stride, bias_stride, state_stride[2], dnext_stride[3],
        dstate_stride[3];
    mk_u64 kept_at, stretch_at, reach_at, parts_at, shared_at; /* bytes, in the scratch */
    mk_u32 channels, places, groups, stretch;
    mk_u32 share, blocks; /* channels of a group of b and c, and the blocks of them */
    mk_u32 softplus;      /* 1: of dt */
    mk_u32 present;
    mk_u32 x_type, dt_type, a_type, b_type, c_type, skip_type, bias_type, z_type, dy_type;
    mk_u32 dx_type, ddt_type, dz_type, reserved;
} mk_scan_backward_params;
/* Sums of what lies in the scratch: of `count` parts, `step` bytes apart. */
typedef struct mk_scan_sums_params {
    mk_sequences of;
    mk_u64 from, step; /* bytes */
    mk_u64 da_stride[2], dskip_stride, dbias_stride, db_stride[3], dc_stride[3];
    mk_u32 channels, places, groups, blocks;
    mk_u32 present;
    mk_u32 da_type, dskip_type, dbias_type, db_type, dc_type;
} mk_scan_sums_params;
