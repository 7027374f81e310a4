/*
 * attention_backward.h - what the plan of attention's gradient and its kernels agree on.
 *
 * The weights are computed again out of lse. f32: the keys are cut into chunks that stay in the second cache, and these into splits. A unit
 * is a split of the keys of one kv head: all queries go by each of its chunks, and every product of a query and a key is made once. dk and dv
 * are whole then; dq is the sum of what each split gave, in their order, made by a dispatch of its own. f64: dq by tiles of tokens, dk and dv by
 * tiles of keys, neither of which needs what the other writes. dsinks by heads.
 */
#ifndef MICA_CPU_ATTENTION_BACKWARD_H
#define MICA_CPU_ATTENTION_BACKWARD_H

#include <stdint.h>

#include "mica/ops.h"

#define MICA__ATTENTION_BACKWARD_ROWS 16  /* f64: rows of a tile of queries; keys of a tile of them */
#define MICA__ATTENTION_BACKWARD_TILE 48  /* f32: the same, whole tiles of every instruction set */
#define MICA__ATTENTION_BACKWARD_LANES 16 /* of the widest vector */

typedef enum mica__attention_backward_mode {
    MICA__ATTENTION_BACKWARD_SPLITS,  /* f32: a unit is (split, kv head), the last fastest */
    MICA__ATTENTION_BACKWARD_JOIN,    /* a row of dq */
    MICA__ATTENTION_BACKWARD_QUERIES, /* f64: (tile of tokens, kv head), the last fastest */
    MICA__ATTENTION_BACKWARD_KEYS,    /* (tile of keys, kv head) */
    MICA__ATTENTION_BACKWARD_OF_SINKS /* a head */
} mica__attention_backward_mode;

/* The views are the record's operands in slot order, then scratch (SPLITS, JOIN) where `kept`. */
typedef struct mica__attention_backward_plan {
    mica_attention_params attention; /* scale filled in */
    uint32_t mode;
    uint32_t tile;                       /* f64: tokens or keys */
    uint32_t chunk_keys, chunks, splits; /* f32 */
    uint32_t
        kept; /* sums of dq go through scratch: [splits, tokens, heads, dim] f32, rows in whole vectors */
} mica__attention_backward_plan;

static inline uint64_t mica__attention_backward_row(uint64_t dim)
{
    return (dim + MICA__ATTENTION_BACKWARD_LANES - 1) / MICA__ATTENTION_BACKWARD_LANES *
           MICA__ATTENTION_BACKWARD_LANES;
}

/* Numbers of per-thread memory for a key of a chunk: k and v as columns, k as a row, dk and dv. */
static inline uint64_t mica__attention_backward_key(uint64_t dim, uint64_t v_dim)
{
    return 3 * mica__attention_backward_row(dim) + 2 * mica__attention_backward_row(v_dim);
}

/* f32: of a chunk, and of a tile of queries: q, dq and dy of each, y of one, the weights and what reaches the scores. */
static inline uint64_t mica__attention_backward_floats(uint64_t keys, uint64_t dim, uint64_t v_dim)
{
    const uint64_t q = mica__attention_backward_row(dim), v = mica__attention_backward_row(v_dim);
    return keys * mica__attention_backward_key(dim, v_dim) + v +
           MICA__ATTENTION_BACKWARD_TILE * (2 * q + v + 2 * MICA__ATTENTION_BACKWARD_TILE);
}

/* f64: dq of a tile of queries; dk and dv of one of keys. */
static inline uint64_t mica__attention_backward_doubles(uint64_t dim, uint64_t v_dim)
{
    return MICA__ATTENTION_BACKWARD_ROWS * (dim + v_dim);
}

#endif
