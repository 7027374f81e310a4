//use params/sequences
/* ssm_conv: strides are bytes; those of x and y lead to the next token, whose channels are contiguous. */
typedef struct mk_ssm_conv_params {
    mk_sequences of;
    mk_u64 x_stride, y_stride;
    mk_u64 weight_stride[2], bias_stride;   /* channel, tap */
    mk_u64 state_stride[2], next_stride[2]; /* channel, place */
    mk_u32 channels, width;
    mk_u32 silu;     /* 1: that activation */
    mk_u32 has_bias; /* 1: it is there */
    mk_u32 x_type, weight_type, bias_type, state_type, y_type, next_type;
} mk_ssm_conv_params;
