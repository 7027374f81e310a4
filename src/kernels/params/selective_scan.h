//use params/sequences
/* selective_scan: strides are bytes; those of x, dt, z and y lead to the next token, of a to [channel, place], of b and c to [token, group, place], of
 * states to [channel, place]. `present` has bits of what is there. */
#define MK_SELECTIVE_SKIP 1u
#define MK_SELECTIVE_DT_BIAS 2u
#define MK_SELECTIVE_Z 4u
typedef struct mk_selective_params {
    mk_sequences of;
    mk_u64 x_stride, dt_stride, z_stride, y_stride, skip_stride, bias_stride;
    mk_u64 a_stride[2], b_stride[3], c_stride[3], state_stride[2], next_stride[2];
    mk_u32 channels, places, blocks;
    mk_u32 share;    /* channels of a group of b and c */
    mk_u32 softplus; /* 1: of dt */
    mk_u32 present;
    mk_u32 x_type, dt_type, a_type, b_type, c_type, skip_type, bias_type, z_type, y_type, reserved;
} mk_selective_params;
