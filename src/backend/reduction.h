/*
 * reduction.h - the dimensions of a reduction as kernels walk them: those that outputs have, and those that are reduced away.
 *
 * Knows operands and the mask of axes, no kernel and no device.
 */
#ifndef MICA_BACKEND_REDUCTION_H
#define MICA_BACKEND_REDUCTION_H

#include "backend/record.h"

/* Slowest first by the strides of x, neighbours merged, at least one of each. Strides in bytes. The terms of an output are in the order of the
 * reduced dimensions. */
typedef struct mica__reduction {
    uint64_t shape[MICA_MAX_DIMS], x_stride[MICA_MAX_DIMS], y_stride[MICA_MAX_DIMS];
    uint64_t reduced_shape[MICA_MAX_DIMS], reduced_stride[MICA_MAX_DIMS];
    uint64_t outputs, terms; /* of y; of x to each of them, 0 where x has none */
    uint32_t kept, reduced;  /* dimensions */
} mica__reduction;

/* `axes`: bit a is dimension ndim - 1 - a of x; y has the others, with `keep_dims` all of them. Everything else is 0: equal operands give
 * equal bytes. */
void mica__reduction_of(const mica__operand *x, const mica__operand *y, uint32_t axes, bool keep_dims,
                        mica__reduction *out);

#endif
