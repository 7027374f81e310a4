/*
 * cpu_linear.h - what plans of linear algebra hand to their kernel. A unit is a matrix; the views are bent to the dimensions that count them.
 */
#ifndef MICA_CPU_LINEAR_H
#define MICA_CPU_LINEAR_H

#include "backend/cpu/cpu_params.h"

#define MICA__CPU_LINEAR_PARTS 4u

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
