/*
 * matmul_quant.h - what the plans of the quantised matmuls and their kernels agree on.
 *
 * Included by both sides, so it knows no instruction set.
 */
#ifndef MICA_CPU_MATMUL_QUANT_H
#define MICA_CPU_MATMUL_QUANT_H

#include "backend/cpu/cpu_kernel.h"
#include "quant/packed.h"
#include "quant/quant.h"

#define MICA__QUANT_ROWS 16u /* rows of a weight in a unit: two panels of eight */
#define MICA__QUANT_FEW 4u   /* rows of x that every thread prepares for itself */

/* Units of a weight of n rows. Unit b is panel b and panel b + units of it, not two neighbours: units in order then read
 * two streams without a break, which processors follow ahead of the program by themselves. Two neighbours read side by
 * side end every few kilobytes and begin anew behind each other. */
static inline uint64_t mica__quant_units(uint64_t n)
{
    return (n + MICA__QUANT_ROWS - 1) / MICA__QUANT_ROWS;
}

/* Rows from a unit's first panel to its second. */
static inline uint64_t mica__quant_far(uint64_t n)
{
    return mica__quant_units(n) * MICA__PACKED_ROWS;
}

/* Of the eight rows from `row` on, those that a weight of n rows has. */
static inline uint64_t mica__quant_rows_left(uint64_t n, uint64_t row)
{
    const uint64_t left = n > row ? n - row : 0;
    return left < MICA__PACKED_ROWS ? left : MICA__PACKED_ROWS;
}

/* The forms in which a weight reads activations. */
#define MICA__QUANT_Q8 1u
#define MICA__QUANT_F32 2u

/* How a row of x becomes an activation row: ceil(k / 32) runs (Q8), then k floats (F32), each part if asked for. */
typedef struct mica__quant_activation {
    uint64_t k;
    uint32_t forms;
    uint32_t norm; /* rms norm first */
    float eps;
    uint32_t reserved;
} mica__quant_activation;

static inline uint64_t mica__quant_f32_offset(const mica__quant_activation *a)
{
    return a->forms & MICA__QUANT_Q8 ? (a->k + 31) / 32 * sizeof(mica__q8_block) : 0;
}

/* Bytes from one activation row to the next, a multiple of 64. */
static inline uint64_t mica__quant_activation_bytes(const mica__quant_activation *a)
{
    const uint64_t floats = a->forms & MICA__QUANT_F32 ? (a->k * sizeof(float) + 63) / 64 * 64 : 0;
    return mica__quant_f32_offset(a) + floats;
}

/* Kernel matmul_activation: mica__quant_activation is its parameter; unit r is row r of x. Views: x, the norm's weight
 * (may be absent), the activation rows. Per-thread memory: 2 k floats. */

/*
 * Kernel matmul_quant. Views: the record's operands in slot order, then the activation rows unless `prepared`. Rows of
 * x are numbered over all leading dimensions; group g of `rows` rows meets weight matrix g. A unit is one group, one
 * block of `columns` rows of x and one block of sixteen rows of a weight, the last counting fastest; blocks of the
 * weights follow each other (with a gate those of weight 0 stand for both).
 * Per-thread memory, in order: the activation rows if `prepared`, then pointers, results and work.
 */
typedef struct mica__matmul_quant_params {
    mica__matmul_record matmul;
    uint32_t prepared;
    uint32_t columns;                      /* rows of x of a unit, at most */
    uint32_t column_blocks;                /* of a group */
    uint32_t end_block[MICA__MAX_WEIGHTS]; /* number of sixteen-row blocks up to and with weight i */
    uint32_t form[MICA__MAX_WEIGHTS];      /* MICA__QUANT_Q8 or _F32 */
    uint64_t groups, rows;
    mica__quant_activation activation;
} mica__matmul_quant_params;

/* Offsets in per-thread memory of a unit: `columns` pointers, two results [columns][16] f32, then work. */
static inline uint64_t mica__quant_results_offset(uint64_t columns)
{
    return (columns * sizeof(void *) + 63) / 64 * 64;
}

static inline uint64_t mica__quant_work_offset(uint64_t columns)
{
    return mica__quant_results_offset(columns) + 2 * columns * MICA__QUANT_ROWS * sizeof(float);
}

/* Values along K that are unpacked and multiplied before the next ones: activations of a tile and the weights of
 * sixteen rows then stay in a first-level cache. */
#define MICA__QUANT_CHUNK 1024u

static inline uint64_t mica__quant_chunk(const mica__packed_form *form)
{
    return form->block_values >= MICA__QUANT_CHUNK
               ? form->block_values
               : MICA__QUANT_CHUNK / form->block_values * form->block_values;
}

/* Bytes of work for sixteen rows: a chunk of a canonical weight packed (Q8), a row decoded (F32). */
static inline uint64_t mica__quant_work_bytes(uint16_t dtype, uint32_t group_size, uint64_t k, uint32_t form)
{
    mica__packed_form packed;
    if (form == MICA__QUANT_F32 || !mica__packed_form_of(dtype, group_size, &packed))
        return k * sizeof(float);
    return 2 * mica__packed_block_bytes(&packed, mica__quant_chunk(&packed));
}

/*
 * Kernel experts_quant. Views: the record's operands in slot order, the activation rows, then the map of experts.h
 * unless `few`. A unit is one slot (few) or one tile of the map, by one block of sixteen rows, which counts fastest.
 */
typedef struct mica__experts_quant_params {
    uint32_t few;
    uint32_t tile;   /* slots of a unit, at most */
    uint32_t blocks; /* of sixteen rows */
    uint32_t form;
    mica__quant_activation activation;
} mica__experts_quant_params;

#endif
