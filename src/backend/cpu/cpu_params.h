/*
 * cpu_params.h - parameter blocks that elementwise and row plans hand to their kernels.
 */
#ifndef MICA_CPU_PARAMS_H
#define MICA_CPU_PARAMS_H

#include <stdint.h>

#include "backend/record.h"

/* Elementwise kernels: unit u is elements [u, u + 1) * MICA__CPU_UNIT_ELEMENTS in the order of the collapsed views. */
#define MICA__CPU_UNIT_ELEMENTS 1024

typedef struct mica__cpu_elementwise {
    uint64_t elements;
    uint32_t bits; /* fill: the element; advance: what is added */
    float value;   /* softcap: the cap */
} mica__cpu_elementwise;

/* The views of a chain are x, the others that are there in the order of their steps, and y. */
typedef struct mica__cpu_chain {
    uint64_t elements;
    mica__chain_record chain;
} mica__cpu_chain;

/* copy: as above, or, if `tiled`, unit u is tile u of MICA__CPU_TILE by MICA__CPU_TILE elements of the last two
 * dimensions, of which x is contiguous in the first and y in the second. */
#define MICA__CPU_TILE 32

typedef struct mica__cpu_copy {
    uint64_t elements;
    uint32_t element_bytes, tiled;
} mica__cpu_copy;

/* Row kernels: unit u is rows [u, u + 1) * rows_per_unit, of `rows`. */
typedef struct mica__cpu_row_range {
    uint64_t rows, rows_per_unit;
} mica__cpu_row_range;

typedef struct mica__cpu_row_params {
    mica__cpu_row_range range;
    float value; /* norms: eps; softmax: scale */
} mica__cpu_row_params;

typedef struct mica__cpu_rope {
    mica__cpu_row_range range;
    mica__rope_record record;
} mica__cpu_rope;

typedef struct mica__cpu_kv_write {
    mica__cpu_row_range range;
    mica_kv_params kv;
} mica__cpu_kv_write;

typedef struct mica__cpu_route {
    mica__cpu_row_range range;
    mica_route_params route;
} mica__cpu_route;

/* expert_sum: a row is a tile of this many elements of a token. */
#define MICA__CPU_SUM_TILE 512

/* sample: the memory a row is worked on in. The best of up to TOP tokens are found by a heap. */
#define MICA__CPU_SAMPLE_TOP 1024u
#define MICA__CPU_SAMPLE_BINS 2048u
#define MICA__CPU_SAMPLE_BIN_BYTES 16u
#define MICA__CPU_SAMPLE_PAD 64u /* floats behind a row: a vector, at most */

static inline uint64_t mica__cpu_sample_bytes(uint64_t vocabulary)
{
    return MICA__CPU_SAMPLE_TOP * sizeof(uint64_t) + MICA__CPU_SAMPLE_BINS * MICA__CPU_SAMPLE_BIN_BYTES +
           5 * (vocabulary + MICA__CPU_SAMPLE_PAD) * sizeof(float);
}

/* The rows of units [first, last). */
static inline uint64_t mica__cpu_rows_begin(const mica__cpu_row_range *range, uint32_t first)
{
    return first * range->rows_per_unit;
}

static inline uint64_t mica__cpu_rows_end(const mica__cpu_row_range *range, uint32_t last)
{
    const uint64_t end = last * range->rows_per_unit;
    return end < range->rows ? end : range->rows;
}

#endif
