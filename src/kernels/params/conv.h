/* conv: y [batch, groups outputs, three spatial dimensions] of x and weight, which have five dimensions as well; strides in bytes. `in` are the places that
 * windows slide over, `out` the windows: of a transposed one y has the former. weight: o, c, then the taps of the kernel. */
typedef struct mk_conv_params {
    mk_u64 x_stride[5], y_stride[5], weight_stride[5];
    mk_u64 x_group, weight_group; /* bytes from the channels, the weights of a group to the next one's */
    mk_u64 bias_stride;
    mk_u32 in[3], out[3], taps[3], stride[3], dilation[3], low[3];
    mk_u32 places[3];                /* of y */
    mk_u32 batch, channels, outputs; /* the latter two of a group */
    mk_u32 transposed, has_bias;
    mk_u32 x_type, weight_type, bias_type, y_type;
} mk_conv_params;
