//use params/sequences
/* ssm_conv_backward: strides are bytes, of [token, channel], [channel, tap] and [sequence or slot, channel, place]; those of slots of the state are in
 * `of`. `present` has bits of what is there. */
#define MK_CONV_BACKWARD_BIAS 1u
#define MK_CONV_BACKWARD_DNEXT 2u
#define MK_CONV_BACKWARD_DWEIGHT 4u
#define MK_CONV_BACKWARD_DBIAS 8u
#define MK_CONV_BACKWARD_DSTATE 16u
typedef struct mk_conv_backward_params {
    mk_sequences of;
    mk_u64 x_stride[2], dy_stride[2], dx_stride[2], weight_stride[2], dweight_stride[2], state_stride[2];
    mk_u64 dnext_stride[3], dstate_stride[3], bias_stride, dbias_stride;
    mk_u32 channels, width;
    mk_u32 silu; /* 1: that activation */
    mk_u32 present;
    mk_u32 x_type, weight_type, bias_type, state_type, dy_type, dnext_type, dx_type, dweight_type, dbias_type,
        dstate_type;
} mk_conv_backward_params;
