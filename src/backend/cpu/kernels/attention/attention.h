/*
 * attention.h - what the plan of attention and its kernel agree on.
 *
 * Keys are taken in chunks at fixed logical positions. For each query row (token, head) a chunk gives a
 * partial result of its own: greatest score, sum of weights, weighted sum of values. Partial results are
 * then combined in chunk order. So the bits of a row depend on nothing but the row: not on other rows,
 * pages, rings, threads, or on whether one unit or several walk its keys. Where the caller chose the keys, those that the query sees
 * are the logical positions, in the order of the list.
 */
#ifndef MICA_CPU_ATTENTION_H
#define MICA_CPU_ATTENTION_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/record.h"

#define MICA__ATTENTION_CHUNK 128     /* keys; a multiple of the widest vector */
#define MICA__ATTENTION_LANES 16      /* of the widest vector */
#define MICA__ATTENTION_SCORES 144    /* floats: a chunk, and what its last panel of keys may pass it by */
#define MICA__ATTENTION_MAX_TOKENS 64 /* in a tile */

typedef enum mica__attention_mode {
    MICA__ATTENTION_WHOLE,  /* a unit walks all keys of its rows and writes y */
    MICA__ATTENTION_SPLIT,  /* a unit walks every splits-th chunk and leaves partial results in scratch, */
    MICA__ATTENTION_COMBINE /* then a unit is a row of y */
} mica__attention_mode;

/* The views are the record's operands in slot order, then scratch (SPLIT, COMBINE). A unit of WHOLE and
 * SPLIT is (token tile, some kv heads, part of their query heads, split), the last fastest. */
typedef struct mica__attention_plan {
    mica_attention_params attention; /* scale filled in */
    uint32_t mode;
    uint32_t tile_tokens;
    uint32_t kv_parts, part_kv_heads; /* kv heads in parts of at most part_kv_heads */
    uint32_t head_parts, part_heads;  /* query heads of a kv head in parts of at most part_heads */
    uint32_t splits;
    uint64_t chunks; /* that the cache can hold; partial results of a row in scratch */
} mica__attention_plan;

static inline uint64_t mica__attention_row_floats(uint64_t dim)
{
    return (dim + MICA__ATTENTION_LANES - 1) / MICA__ATTENTION_LANES * MICA__ATTENTION_LANES;
}

/* A partial result: the values, then greatest score and sum of weights. */
static inline uint64_t mica__attention_partial_floats(uint64_t v_dim)
{
    return mica__attention_row_floats(v_dim) + MICA__ATTENTION_LANES;
}

/* Blocks that are read where they lie; the other types of blocks are decoded a chunk at a time. */
static inline bool mica__attention_reads(uint16_t dtype)
{
    return dtype == MICA_DTYPE_Q8_0 || dtype == MICA_DTYPE_Q4_0 || dtype == MICA_DTYPE_IQ4_NL;
}

/* Per-thread memory: rows of q, scores, partial and combined results; a chunk of keys packed and of values
 * widened; one row on its way; positions of chosen keys. */
static inline uint64_t mica__attention_local_floats(uint64_t rows, uint64_t dim, uint64_t v_dim,
                                                    uint64_t chosen)
{
    const uint64_t q = mica__attention_row_floats(dim), v = mica__attention_row_floats(v_dim);
    return rows * (q + MICA__ATTENTION_SCORES + 2 * mica__attention_partial_floats(v_dim)) +
           MICA__ATTENTION_SCORES * (q + v) + q + chosen;
}

#endif
