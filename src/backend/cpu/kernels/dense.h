/*
 * dense.h - what the dense kernels and their plans agree on: parameters, sizes of per-thread memory.
 *
 * Included by both sides, so it knows no instruction set: sizes are upper bounds over all of them.
 */
#ifndef MICA_CPU_DENSE_H
#define MICA_CPU_DENSE_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/cpu/cpu_kernel.h"

#define MICA__DENSE_LANES 16     /* of the widest vector */
#define MICA__DENSE_PANEL 5      /* rows of the widest panel */
#define MICA__DENSE_DOTS 4       /* rows of x that a row of w meets in one go without packing */
#define MICA__DENSE_FEW 16       /* rows of x up to which packing x does not pay, where w is widened, */
#define MICA__DENSE_FEW_F32 8    /* and where it is read as it lies */
#define MICA__DENSE_K_PART 1024  /* most values of a row that a tile takes in one go: two panels fit L1 */
#define MICA__DENSE_NEAR 131072  /* most values of x that stay in the second cache while w passes */
#define MICA__DENSE_TILE_STEP 20 /* columns: blocks are whole panels of every instruction set */

typedef enum mica__dense_mode {
    MICA__DENSE_ROWS, /* few rows of x: each unit is some rows of w against all of them */
    MICA__DENSE_PACK, /* many: x is packed into scratch, */
    MICA__DENSE_TILES /* then each unit is a block of y */
} mica__dense_mode;

/* Parameters of matmul_dense. The views are the record's operands in slot order, then scratch (PACK,
 * TILES). Rows of x are numbered over all leading dimensions; group g of `rows` rows meets weight matrix g.
 * The rows of a group are cut into row blocks, the columns of a weight into column blocks, evenly; a unit
 * of ROWS and TILES is one of each (ROWS has one row block), a unit of PACK one of its `pieces`. */
typedef struct mica__dense_params {
    mica__matmul_record matmul;
    uint32_t mode;
    uint32_t row_blocks, pieces;
    uint32_t column_blocks[MICA__MAX_WEIGHTS]; /* with a gate the first counts for both */
    uint32_t block_rows, block_columns;        /* of the largest blocks */
    uint64_t groups, rows, k;
} mica__dense_params;

typedef enum mica__experts_mode {
    MICA__EXPERTS_FEW,
    MICA__EXPERTS_PACK,
    MICA__EXPERTS_TILES
} mica__experts_mode;

/* Parameters of experts_dense. The views are the record's operands in slot order, then the map of experts.h
 * and the packed rows (PACK, TILES). A unit of FEW is a slot by a column block, of PACK a tile of the map,
 * of TILES a tile by a column block. */
typedef struct mica__experts_dense_params {
    uint32_t mode;
    uint32_t column_blocks, block_columns, block_rows;
} mica__experts_dense_params;

static inline uint64_t mica__dense_round(uint64_t n, uint64_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

/* Where block `index` of `count` begins when n is cut evenly. */
static inline uint64_t mica__dense_cut(uint64_t n, uint64_t count, uint64_t index)
{
    return n / count * index + n % count * index / count;
}

/* The same where blocks begin at multiples of `step`; the last one ends at n. */
static inline uint64_t mica__dense_step_cut(uint64_t n, uint64_t step, uint64_t count, uint64_t index)
{
    const uint64_t at = mica__dense_cut((n + step - 1) / step, count, index) * step;
    return at < n ? at : n;
}

/* The same for few rows of x: whole tiles of every instruction set. */
static inline uint64_t mica__dense_few_step(uint64_t rows)
{
    return rows <= 2 ? 8 : 24;
}

/* Row `row` of a view, counted over all dimensions but the last. */
static inline unsigned char *mica__dense_row(const mica__cpu_view *view, uint64_t row)
{
    unsigned char *at = view->data;
    for (uint32_t d = view->ndim - 1u; d-- > 0;) {
        at += row % view->shape[d] * view->stride[d];
        row /= view->shape[d];
    }
    return at;
}

/* Floats of one row widened and filled up to whole vectors. */
static inline uint64_t mica__dense_row_floats(uint64_t k)
{
    return mica__dense_round(k, MICA__DENSE_LANES);
}

/* Floats of a block's results. */
static inline uint64_t mica__dense_out_floats(uint64_t rows, uint64_t columns)
{
    return mica__dense_round(rows * (columns + MICA__DENSE_PANEL), MICA__DENSE_LANES);
}

/* Floats of the rows of w of a tile and a part of K, widened. */
static inline uint64_t mica__dense_lines_floats(uint64_t k)
{
    const uint64_t row = mica__dense_row_floats(k);
    return MICA__DENSE_PANEL * (row < MICA__DENSE_K_PART ? row : MICA__DENSE_K_PART);
}

/* Floats of a block's sums that wait between two parts of K. */
static inline uint64_t mica__dense_partial_floats(uint64_t rows, uint64_t columns, uint64_t k)
{
    return k <= MICA__DENSE_K_PART ? 0 : rows * (columns + MICA__DENSE_PANEL) * MICA__DENSE_LANES;
}

#endif
