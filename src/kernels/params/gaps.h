//use params/sequences
/* gaps: zeros for the tokens of y [tokens, rows, n] that no sequence has; a group each. */
typedef struct mk_gaps_params {
    mk_sequences of;
    mk_u64 token_stride, row_stride, stride; /* bytes */
    mk_u32 rows, n, type, reserved;
} mk_gaps_params;
