/*
 * cpu_linear.h - what plans of linear algebra hand to their kernel. A unit is a matrix; the views are bent to the dimensions that count them.
 */
#ifndef MICA_CPU_LINEAR_H
#define MICA_CPU_LINEAR_H

#include "backend/cpu/cpu_params.h"

#define MICA__CPU_LINEAR_PARTS 4u
#define MICA__CPU_LINEAR_BLOCK 64u /* columns that are dealt with before the rest of the matrix is */

/* From one row of work memory to the next: whole vectors of any instruction set and one more, so that columns do not share the lines of a cache. */
static inline uint64_t mica__cpu_linear_step(uint64_t n)
{
    return (n + 7) / 8 * 8 + 8;
}

/* Numbers of work memory for matrices of at most so many rows and columns: two blocks, and some rows. */
static inline uint64_t mica__cpu_linear_work(uint64_t most)
{
    return (2 * MICA__CPU_LINEAR_BLOCK + 4) * mica__cpu_linear_step(most);
}

/* The matrix that an operand has for a unit; a vector is a column, a number a matrix of one. Steps in bytes. */
typedef struct mica__cpu_linear_part {
    uint64_t rows, columns, row_step, column_step;
} mica__cpu_linear_part;

typedef struct mica__cpu_linear {
    mica__cpu_row_range range;
    mica__cpu_linear_part part[MICA__CPU_LINEAR_PARTS];
    uint32_t op;                       /* mica_op */
    mica_triangular_params triangular; /* of its op; cholesky's upper, and determinant's log in `unit` */
} mica__cpu_linear;

#endif
