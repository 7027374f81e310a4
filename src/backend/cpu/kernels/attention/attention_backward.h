/*
 * attention_backward.h - what the plan of attention's gradient and its kernel agree on.
 *
 * Three dispatches, none of which needs what another writes: dq by tiles of tokens, dk and dv by tiles of keys, dsinks by heads. The first two
 * both compute the weights again out of lse. Every sum runs in the order of keys, or of tokens and then heads.
 */
#ifndef MICA_CPU_ATTENTION_BACKWARD_H
#define MICA_CPU_ATTENTION_BACKWARD_H

#include <stdint.h>

#include "mica/ops.h"

#define MICA__ATTENTION_BACKWARD_ROWS 16 /* rows of a tile of queries; keys of a tile of them */

typedef enum mica__attention_backward_mode {
    MICA__ATTENTION_BACKWARD_QUERIES, /* a unit is (tile of tokens, kv head), the last fastest */
    MICA__ATTENTION_BACKWARD_KEYS,    /* (tile of keys, kv head) */
    MICA__ATTENTION_BACKWARD_OF_SINKS /* a head */
} mica__attention_backward_mode;

/* The views are the record's operands in slot order. */
typedef struct mica__attention_backward_plan {
    mica_attention_params attention; /* scale filled in */
    uint32_t mode;
    uint32_t tile; /* tokens or keys */
} mica__attention_backward_plan;

/* Numbers of per-thread memory. Tiles of queries: q, dy and dq of each row; of keys: k, v, dk and dv of each. Then a row of each of the
 * others, and y. */
static inline uint64_t mica__attention_backward_numbers(uint64_t rows, uint64_t dim, uint64_t v_dim)
{
    return (rows + 1) * (2 * dim + 2 * v_dim) + v_dim + rows * 2;
}

#endif
