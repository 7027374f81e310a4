/*
 * cpu_recurrent_backward.h - parameter blocks of the gradients of what carries a state from token to token. They compute in f64 whatever the types.
 */
#ifndef MICA_CPU_RECURRENT_BACKWARD_H
#define MICA_CPU_RECURRENT_BACKWARD_H

#include "backend/cpu/cpu_recurrent.h"

/* Sequences as mica__cpu_sequences has them, without places for last states. */
typedef struct mica__cpu_split {
    uint64_t tokens, longest; /* longest: tokens of a sequence, at most */
    uint32_t count;
    uint32_t state, starts, read_slots;
} mica__cpu_split;

/* ssm_conv_backward: row r of the range is block r of `channels` channels, the row behind them the zeros of tokens that nobody has. */
#define MICA__CPU_CONV_BACKWARD_MOST 64u /* channels of a block, whole vectors of every instruction set */
#define MICA__CPU_CONV_BACKWARD_LEAST 16u
#define MICA__CPU_CONV_BACKWARD_TAPS 4u /* that stay in registers */

typedef struct mica__cpu_conv_backward {
    mica__cpu_row_range range;
    mica__cpu_split split;
    uint64_t channels;
    uint32_t activation, reserved;
} mica__cpu_conv_backward;

/* Numbers of a block's work memory: of bias, weight and their gradients, of inputs and what reaches sums, and a row. */
static inline uint64_t mica__cpu_conv_backward_room(uint64_t channels, uint64_t width)
{
    return channels * (3 + 2 * width + 2 * (width + MICA__CPU_CONV_TOKENS - 1));
}

/* delta_net_backward: row r of the range is key head r % groups of sequence r / groups; behind them a row for each value head, of dskip, and one of the
 * zeros. States are kept every `stride` tokens and computed again between. */
typedef struct mica__cpu_delta_backward {
    mica__cpu_row_range range;
    mica__cpu_split split;
    mica_delta_params delta;
    uint32_t reserved;
    uint64_t stride;
} mica__cpu_delta_backward;

/* selective_scan_backward: row r of the range is block r % blocks of the channels of group r / blocks, over all sequences, then one of the zeros. What db and
 * dc get from a block goes to the scratch, f64 [blocks, tokens, groups, 2, places], whose blocks selective_scan_sums adds up, a row a token. */
#define MICA__CPU_SELECTIVE_TOKENS 64u /* whose states are all kept at a time */
#define MICA__CPU_F64_LANES 8u         /* of a vector, at most */

typedef struct mica__cpu_selective_backward {
    mica__cpu_row_range range;
    mica__cpu_split split;
    uint64_t groups, channels, blocks; /* channels: of a group */
    uint32_t softplus, reserved;
} mica__cpu_selective_backward;

/* Numbers of a block's work memory: rows of channels, states of channels and their gradients, b and c of some tokens, of a vector of channels what is kept of
 * these, and the states that every so many tokens begin with. */
static inline uint64_t mica__cpu_selective_backward_room(uint64_t places, uint64_t longest)
{
    const uint64_t tokens = MICA__CPU_SELECTIVE_TOKENS, channels = MICA__CPU_SELECTIVE_CHANNELS;
    return channels * (4 + 4 * places) + tokens * 2 * places +
           MICA__CPU_F64_LANES * ((4 * tokens + 1) * places + 4 * tokens) +
           (longest + tokens - 1) / tokens * channels * places;
}

/* rnn_backward: row r of the range is part r % parts of block r / parts, whose units are in panels, then one of the zeros. rnn_backward_begin fills in what does
 * not change with the tokens: a unit for each gate's panel of the weight turned, each panel of the weight, the bias, each block. rnn_weight_backward then adds up
 * what all tokens give to some rows of the weight. */
#define MICA__CPU_RNN_PANEL 64u /* units, whole vectors of every instruction set */
#define MICA__CPU_RNN_ROWS 32u  /* of the weight, of one gate */

/* Where in the scratch what is, in bytes; rows of f64 but for the weight, which is f32 unless it comes in f64. */
typedef struct mica__cpu_rnn_room {
    uint64_t ahead;               /* [gates, panels, hidden, PANEL]: the weight, turned */
    uint64_t back;                /* [panels, gates, hidden, PANEL] */
    uint64_t bias;                /* [gates, padded] */
    uint64_t before, cell, extra; /* [tokens, padded]: h and c before a token; tanh(c) behind it, or p_n */
    uint64_t gates;               /* [tokens, gates, padded]; what reaches the sums takes their place */
    uint64_t reach;               /* [sequences, 2, padded]: what reaches h and c */
    uint64_t blocks, block_bytes; /* a block: what its parts go by, who its sequences are */
    uint64_t bytes;
} mica__cpu_rnn_room;

typedef struct mica__cpu_rnn_backward {
    mica__cpu_row_range range;
    mica__cpu_split split;
    mica_rnn_params rnn;
    mica__cpu_rnn_cut cut;
    uint64_t padded; /* hidden units, in whole panels */
    mica__cpu_rnn_room room;
} mica__cpu_rnn_backward;

static inline uint64_t mica__cpu_rnn_padded(uint64_t hidden)
{
    return (hidden + MICA__CPU_RNN_PANEL - 1) / MICA__CPU_RNN_PANEL * MICA__CPU_RNN_PANEL;
}

#endif
