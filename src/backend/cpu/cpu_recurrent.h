/*
 * cpu_recurrent.h - parameter blocks of the kernels that carry a state from token to token.
 */
#ifndef MICA_CPU_RECURRENT_H
#define MICA_CPU_RECURRENT_H

#include "backend/cpu/cpu_params.h"
#include "backend/cpu/cpu_rounds.h"

/* Where the views of sequences stand among those of the dispatch. */
typedef struct mica__cpu_sequences {
    uint64_t tokens;
    uint32_t count;
    uint32_t state, starts, read_slots, write_slots, next_state;
    uint32_t y;      /* [tokens, ..], up to three dimensions */
    uint32_t packed; /* 1: some tokens may be nobody's; a unit behind the others writes their zeros */
} mica__cpu_sequences;

/* ssm_conv: row r of the range is sequence r % count and block r / count of `channels` channels. */
#define MICA__CPU_CONV_MOST 512u /* channels of a block, whole vectors of every instruction set */
#define MICA__CPU_CONV_LEAST 128u
#define MICA__CPU_CONV_TOKENS 16u /* that are worked on together */

typedef struct mica__cpu_ssm_conv {
    mica__cpu_row_range range;
    mica__cpu_sequences sequences;
    uint64_t channels;
    uint32_t activation, reserved;
} mica__cpu_ssm_conv;

/* Bytes of a block's work memory: weight, bias, a row of sums, inputs and where they stand. */
static inline uint64_t mica__cpu_conv_bytes(uint64_t channels, uint64_t width)
{
    const uint64_t inputs = width - 1 + MICA__CPU_CONV_TOKENS;
    return (width + 2 + inputs) * channels * sizeof(float) + inputs * sizeof(float *);
}

/* delta_net: a row of the range is `together` blocks of columns of a sequence, of which each head has `blocks`. It leaves sequences of `chunk_from` tokens and
 * more to delta_chunk, whose row r is head r % heads of sequence r / heads, and which leaves out the others. */
#define MICA__CPU_DELTA_COLUMNS 64u
#define MICA__CPU_DELTA_LOADED 8u /* tokens that are read together */
#define MICA__CPU_DELTA_TOGETHER \
    8u /* blocks of columns of a unit, at most: what lies on a page, and their states in the second-level cache */
#define MICA__CPU_DELTA_CHUNK 64u /* tokens */

typedef struct mica__cpu_delta {
    mica__cpu_row_range range;
    mica__cpu_sequences sequences;
    mica_delta_params delta;
    uint32_t reserved;
    uint64_t blocks, together;
    uint64_t chunk_from;
} mica__cpu_delta;

/* Elements of a row of delta_chunk's matrices: whole vectors of every instruction set. */
static inline uint64_t mica__cpu_delta_padded(uint64_t n)
{
    return (n + 15) / 16 * 16;
}

/* Elements of the work memory of delta_chunk. */
static inline uint64_t mica__cpu_delta_chunk_room(uint64_t dim, uint64_t columns)
{
    const uint64_t deep = mica__cpu_delta_padded(dim), wide = mica__cpu_delta_padded(columns);
    return MICA__CPU_DELTA_CHUNK * (3 * deep + 3 * wide + 2 * MICA__CPU_DELTA_CHUNK + 4) + dim * wide;
}

/* selective_scan: row r of the range is sequence r % count and block r / count of channels, which never has channels of two groups of b and c. */
#define MICA__CPU_SELECTIVE_CHANNELS 64u

typedef struct mica__cpu_selective {
    mica__cpu_row_range range;
    mica__cpu_sequences sequences;
    uint64_t groups, channels; /* channels: of a group */
    uint32_t softplus, reserved;
} mica__cpu_selective;

/* Cells, and their gradients: sequences in blocks of `together`, whose tokens go in step, so that the weight is read once for all of them; `parts` threads share
 * the hidden units of a block, in pieces of so many. */
#define MICA__CPU_RNN_SEQUENCES 64u /* of a block, at most */
#define MICA__CPU_SEQUENCE_BYTES 48u

typedef struct mica__cpu_rnn_cut {
    uint32_t parts, together;
    uint64_t blocks;
} mica__cpu_rnn_cut;

/* Of a block: sequences, and tokens of one at most. */
typedef struct mica__cpu_rnn_head {
    uint64_t count, longest;
} mica__cpu_rnn_head;

/* rnn: row r of the range is part r % parts of block r / parts. What a block keeps from token to token lies in local memory where parts is 1, else in the
 * scratch, `block_bytes` a block, where rnn_begin, a unit of which is a block, puts the first of it. */
#define MICA__CPU_RNN_UNITS \
    16u /* parts begin at multiples of so many units: whole vectors of every instruction set */

typedef struct mica__cpu_rnn {
    mica__cpu_row_range range;
    mica__cpu_sequences sequences;
    mica_rnn_params rnn;
    mica__cpu_rnn_cut cut;
    uint64_t block_bytes;
} mica__cpu_rnn;

/* Bytes of a block: what its parts go by, who its sequences are, the bias, h twice and c. */
static inline uint64_t mica__cpu_rnn_block_bytes(uint64_t hidden, uint64_t gates,
                                                 const mica__cpu_rnn_cut *cut)
{
    const uint64_t padded = mica__cpu_delta_padded(hidden);
    const uint64_t head = MICA__CPU_ROUNDS_LINE + mica__cpu_rounds_bytes(cut->parts) +
                          cut->together * MICA__CPU_SEQUENCE_BYTES +
                          (gates + 3u * cut->together) * padded * sizeof(float);
    return (head + MICA__CPU_ROUNDS_LINE - 1) / MICA__CPU_ROUNDS_LINE * MICA__CPU_ROUNDS_LINE;
}

/* Units of the largest part. */
static inline uint64_t mica__cpu_rnn_width(uint64_t hidden, uint32_t parts)
{
    const uint64_t pieces = (hidden + MICA__CPU_RNN_UNITS - 1) / MICA__CPU_RNN_UNITS;
    return (pieces + parts - 1) / parts * MICA__CPU_RNN_UNITS;
}

#endif
