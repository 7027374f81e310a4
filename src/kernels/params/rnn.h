//use params/sequences
/* rnn: strides are bytes; those of x and y lead to the next token, of weight and bias to the next row, of states from h to c. */
#define MK_RNN_TANH 0u
#define MK_RNN_RELU 1u
#define MK_RNN_GRU 2u
#define MK_RNN_LSTM 3u
typedef struct mk_rnn_params {
    mk_sequences of;
    mk_u64 x_stride, y_stride, weight_stride, bias_stride, state_stride, next_stride;
    mk_u32 hidden, gates;
    mk_u32 kept; /* rows of a state: 2 of LSTM */
    mk_u32 kind, reverse, has_bias;
    mk_u32 x_type, weight_type, bias_type, y_type;
} mk_rnn_params;
