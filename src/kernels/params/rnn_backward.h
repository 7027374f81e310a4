//use params/sequences
/* rnn_backward: strides are bytes, of [token, row], [row, unit], [sequence, h or c, unit]. In the scratch, f32, a token has MK_RNN_KEPT times `hidden` numbers:
 * what reaches the sums of the weight, h and c before, gates, the sum of the third of GRU; behind them, at `states_at`, a sequence has h, c, what reaches them,
 * and its sums. */
#define MK_RNN_KEPT 11u
#define MK_RNN_BEFORE 4u
#define MK_RNN_GATES 6u
#define MK_RNN_SUM 10u
typedef struct mk_rnn_backward_params {
    mk_sequences of;
    mk_u64 x_stride[2], dy_stride[2], dx_stride[2], weight_stride[2], dweight_stride[2], bias_stride,
        dbias_stride, state_stride[2];
    mk_u64 dnext_stride[3], dstate_stride[3], states_at;
    mk_u32 hidden, gates;
    mk_u32 kept;      /* rows of a state: 2 of LSTM */
    mk_u32 rectified; /* 1: RELU, 0: TANH, where there is one gate; three are GRU's, four LSTM's */
    mk_u32 reverse;
    mk_u32 has_bias, has_dnext, has_dweight, has_dbias, has_dstate;
    mk_u32 x_type, weight_type, bias_type, dy_type, dx_type, dweight_type, dbias_type, reserved;
} mk_rnn_backward_params;
