/*
 * cpu_params.h - parameter blocks that elementwise and row plans hand to their kernels.
 */
#ifndef MICA_CPU_PARAMS_H
#define MICA_CPU_PARAMS_H

#include <stdint.h>

#include "backend/record.h"
#include "backend/reduction.h"
#include "backend/region.h"

/* copy and region: unit u is elements [u, u + 1) * MICA__CPU_UNIT_ELEMENTS in the order of the collapsed views. */
#define MICA__CPU_UNIT_ELEMENTS 1024

/* region: a program over tiles. A value stands in a place: a slot, which is a tile of the thread's memory, or an operand's
 * own memory where a tile of it lies there as registers do. Places of the views come first, then the slots. */
typedef struct mica__cpu_region_entry {
    uint16_t function; /* of those that the kernel has for entries of this kind */
    uint8_t to, from[3];
    uint8_t view;   /* loads and stores: of which operand; index: of which dimension */
    uint8_t offset; /* loads and stores: bytes into an element (the second half of a c64) */
    uint64_t bits;  /* fills: the element */
} mica__cpu_region_entry;

/* What happens once a call, once a row (elements that repeat along it), and once a tile, in this order; and the whole
 * program once more in blocks, where it can be had so: from[0] is the place in memory. */
enum {
    MICA__CPU_REGION_FILL,      /* a constant */
    MICA__CPU_REGION_ROW_INDEX, /* the row's index */
    MICA__CPU_REGION_ROW_LOAD,  /* an element that the row repeats */
    MICA__CPU_REGION_INDEX,     /* the index along the row */
    MICA__CPU_REGION_LOAD,      /* elements widened */
    MICA__CPU_REGION_STEP,      /* a scalar function */
    MICA__CPU_REGION_STORE,     /* elements rounded, wrapped or only strided */
    MICA__CPU_REGION_BLOCK,     /* a function of region_blocks.h */
    MICA__CPU_REGION_KINDS
};

#define MICA__CPU_REGION_VALUES (MICA_REGION_INPUTS + MICA_REGION_STEPS)
#define MICA__CPU_REGION_VIEWS (MICA_REGION_INPUTS + MICA_REGION_OUTPUTS)
#define MICA__CPU_REGION_SLOTS 128u /* a program in blocks that wanted more would run over tiles */
#define MICA__CPU_REGION_PLACES (MICA__CPU_REGION_VIEWS + MICA__CPU_REGION_SLOTS)
#define MICA__CPU_REGION_BLOCKS 144u /* the same */
#define MICA__CPU_REGION_ENTRIES (MICA__CPU_REGION_VALUES + 2 * MICA_REGION_OUTPUTS + MICA__CPU_REGION_BLOCKS)

_Static_assert(MICA__CPU_REGION_ENTRIES <= UINT8_MAX, "entries are counted in bytes");

typedef struct mica__cpu_region {
    uint64_t elements;
    uint32_t tile;       /* elements */
    uint32_t slot_bytes; /* a multiple of 64; far: whether stores pass the caches */
    uint8_t slots, far, end[MICA__CPU_REGION_KINDS];        /* entries of kind k are those before end[k] */
    mica__cpu_region_entry entry[MICA__CPU_REGION_ENTRIES]; /* as many as there are */
} mica__cpu_region;

/* The functions of steps: [scalar][register that it computes in], then casts as [from][to] behind them. */
#define MICA__CPU_REGION_STEP_OF(scalar, type) ((scalar)*MICA_REGISTER_COUNT + (type))
#define MICA__CPU_REGION_CAST_OF(from, to) MICA__CPU_REGION_STEP_OF(MICA_SCALAR_COUNT + (from), to)

/* A scalar of one f32, times another value: behind it stands no register type. */
#define MICA__CPU_REGION_PRODUCT_OF(scalar) MICA__CPU_REGION_STEP_OF(scalar, MICA_REGISTER_NONE)

/* The functions of blocks: of each scalar with each type of memory, `swapped` where memory is the first value; loads and stores by
 * type, f16, bf16, f32 met for the first time, or 0: f32 that the block has met; stores past the caches. */
#define MICA__CPU_BLOCK_OF(scalar, type, swapped) (2u * (4u * (scalar) + (type)) + (swapped))
#define MICA__CPU_BLOCK_LOAD MICA__CPU_BLOCK_OF(MICA_SCALAR_COUNT, 0u, 0u)
#define MICA__CPU_BLOCK_STORE (MICA__CPU_BLOCK_LOAD + 4u)
#define MICA__CPU_BLOCK_END (MICA__CPU_BLOCK_STORE + 8u) /* 4u on: far */
#define MICA__CPU_BLOCK_COUNT (MICA__CPU_BLOCK_END + 1u)
_Static_assert(MICA_DTYPE_F32 < 4u && MICA_DTYPE_F16 < 4u && MICA_DTYPE_BF16 < 4u,
               "blocks are loaded and stored by the number of their type");
#define MICA__CPU_BLOCK_MOST 128u /* elements of a block on any instruction set */

/* copy: as above, or, if `tiled`, unit u is tile u of MICA__CPU_TILE by MICA__CPU_TILE elements of the last two
 * dimensions, of which x is contiguous in the first and y in the second. */
#define MICA__CPU_TILE 32

typedef struct mica__cpu_copy {
    uint64_t elements;
    uint32_t element_bytes, tiled;
} mica__cpu_copy;

/* pad: units as copy's, over y; x and y have the same number of dimensions. */
typedef struct mica__cpu_pad {
    uint64_t elements, bits; /* bits: of the constant */
    int64_t low[MICA_MAX_DIMS];
    uint32_t element_bytes, mode;
} mica__cpu_pad;

/* gather: units as copy's; x, ids and y have the shape of y, x stands still along the axis. */
typedef struct mica__cpu_gather {
    uint64_t elements, count; /* count: of places along the axis */
    uint64_t x_step;          /* bytes from one to the next */
    uint32_t element_bytes;
    uint32_t quiet; /* 1: an id outside is none, not a fault */
} mica__cpu_gather;

/* chosen_count, chosen_sums: which of `elements` are not 0, in runs of MICA__CPU_CHOSEN_RUN. A unit of the first counts a run into a u32; the
 * second, one unit, makes of the counts what is before each run, and writes the sum behind them and into count.
 * chosen_list, chosen_places: a unit is a run of elements and of the list; entry j is where the j-th lies, in steps of its place in `shape`, or its
 * coordinates; NOWHERE behind the last one. */
#define MICA__CPU_CHOSEN_RUN 4096u

typedef struct mica__cpu_chosen {
    uint64_t elements, listed; /* listed: entries of the list */
    uint64_t mask;             /* bits of an element that are not all 0 in what is not 0 */
    uint64_t shape[MICA_MAX_DIMS];
    uint32_t step[MICA_MAX_DIMS];
    uint32_t ndim, element_bytes;
} mica__cpu_chosen;

/* fold_ids: units as copy's, over the lines of ids [.., components]; where the place that a line names lies among elements goes to the second view, a u32
 * each; where a coordinate is outside NOWHERE, and the fence faults. */
#define MICA__FOLD_NOWHERE 0xffffffffu

typedef struct mica__cpu_fold {
    uint64_t elements;            /* lines */
    uint64_t size[MICA_MAX_DIMS]; /* of the dimensions that coordinates are of */
    uint32_t step[MICA_MAX_DIMS]; /* elements from one place along each to the next */
    uint32_t components, reserved;
} mica__cpu_fold;

/* scatter_link: unit u is line u of ids and link [.., n]: which of its ids are equal. An entry of link is how many places further the next one with the
 * same id is, 0 where there is none; with LATER where there is one before it; NOWHERE for an id outside. */
#define MICA__LINK_LATER 0x80000000u
#define MICA__LINK_NOWHERE 0xffffffffu

typedef struct mica__cpu_scatter_link {
    uint64_t count; /* of places along the axis */
    uint32_t slots; /* of the thread's table of ids: a power of two, at least twice n */
    uint32_t shift; /* 32 less its logarithm */
} mica__cpu_scatter_link;

/* scatter: units as copy's; ids, link, y and updates have the shape of updates, y stands still along the axis. */
typedef struct mica__cpu_scatter {
    uint64_t elements;
    uint64_t y_step, updates_step, link_step; /* bytes from one place along the axis to the next */
    uint32_t element_bytes, mode;
} mica__cpu_scatter;

/* Row kernels: unit u is rows [u, u + 1) * rows_per_unit, of `rows`. */
typedef struct mica__cpu_row_range {
    uint64_t rows, rows_per_unit;
} mica__cpu_row_range;

typedef struct mica__cpu_row_params {
    mica__cpu_row_range range;
    float value; /* norms: eps; softmax: scale */
} mica__cpu_row_params;

typedef struct mica__cpu_cross_entropy {
    mica__cpu_row_range range;
    uint64_t weight_stride; /* bytes from class to class */
    mica_cross_entropy_params params;
} mica__cpu_cross_entropy;

typedef struct mica__cpu_hadamard {
    mica__cpu_row_range range;
    double scale;
    uint32_t undo;
} mica__cpu_hadamard;

/* matmul_transposed: blocks of y: rows of one weight, or of a tile of the experts' map, by columns. `step`: a row is decoded from multiples of
 * it on, which takes twice as many floats besides. */
#define MICA__CPU_TRANSPOSED_ROWS 256
#define MICA__CPU_TRANSPOSED_COLUMNS 256
#define MICA__CPU_TRANSPOSED_N 128
typedef struct mica__cpu_transposed {
    uint64_t rows;      /* of each weight; routed: unused */
    uint64_t row_units; /* of each weight; routed: of all */
    uint64_t column_units, step;
    uint64_t block_rows, block_columns; /* at most, the columns whole tiles of every instruction set */
    uint32_t routed;
} mica__cpu_transposed;

/* product: blocks of y, row by row, of matrix after matrix; the floats of both packed operands and of a block's sums. */
#define MICA__CPU_PRODUCT_ROWS 96
#define MICA__CPU_PRODUCT_COLUMNS 240
#define MICA__CPU_PRODUCT_K 256
#define MICA__CPU_PRODUCT_FLOATS                                                  \
    ((MICA__CPU_PRODUCT_ROWS + MICA__CPU_PRODUCT_COLUMNS) * MICA__CPU_PRODUCT_K + \
     MICA__CPU_PRODUCT_ROWS * MICA__CPU_PRODUCT_COLUMNS)
/* Of codes of 8 bits: at most, and at least where threads want more blocks; columns are whole panels of every instruction set. */
#define MICA__CPU_CODES_ROWS 192
#define MICA__CPU_CODES_COLUMNS 512
#define MICA__CPU_CODES_LEAST 64
#define MICA__CPU_CODES_K 512
typedef struct mica__cpu_product {
    mica__cpu_row_range range;
    uint64_t row_blocks, column_blocks;
    uint64_t block_rows, block_columns;
} mica__cpu_product;

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

/* reduce: a tile is one output, or with `columns` up to that many along the last kept dimension; a row of the range is one part of the terms
 * of a tile. Of several parts each leaves two lists of 8 bytes in the scratch, `tile` long, that reduce_join puts together. */
#define MICA__CPU_REDUCE_TILE 1024u  /* columns, at most */
#define MICA__CPU_REDUCE_ROWS 16u    /* terms of each column that are worked on together */
#define MICA__CPU_REDUCE_BLOCK 2048u /* terms of one output that are */

typedef struct mica__cpu_reduce {
    mica__cpu_row_range range;
    mica__reduction shape;
    mica_reduce_params reduce;
    uint32_t columns; /* 0: a tile is one output */
    uint32_t tile;    /* outputs */
    uint64_t tiles;   /* along the last kept dimension */
    uint64_t parts, part;
} mica__cpu_reduce;

/* Of a thread: terms, what is known of the outputs so far, the same of a block. */
static inline uint64_t mica__cpu_reduce_bytes(const mica__cpu_reduce *params)
{
    const uint64_t rows = params->columns != 0 ? MICA__CPU_REDUCE_ROWS * (uint64_t)params->tile : 0;
    return rows * sizeof(float) + (MICA__CPU_REDUCE_BLOCK + 4 * (uint64_t)params->tile) * sizeof(double);
}

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
