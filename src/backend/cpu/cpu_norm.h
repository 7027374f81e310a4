/* cpu_norm.h - parameter blocks that the plans of norms hand to their kernels. */
#ifndef MICA_CPU_NORM_H
#define MICA_CPU_NORM_H

#include "backend/cpu/cpu_params.h"

/* normalize, normalize_backward: a row of the range is a place of the first `outer` dimensions; the others are `lines` of `line` elements, the
 * last dimension of the views, normalised together. All views have the shape of x. normalize_backward leaves in its scratch mean and scale of each
 * row; or, where `together` is not 0, the sums over each block of so many rows of what becomes dweight and dbias, one behind the other. */
typedef struct mica__cpu_normalize {
    mica__cpu_row_range range;
    uint64_t lines, line;
    uint32_t outer, kind;
    float eps, offset;
    uint32_t together, reserved;
} mica__cpu_normalize;

/* A row's work: two rows and four lines, of `bytes` an element; of a gradient: n, g, weights, and the sums of a block. */
static inline uint64_t mica__cpu_normalize_bytes(const mica__cpu_normalize *params, uint64_t bytes)
{
    return (2 * params->lines * params->line + 4 * params->line) * bytes;
}

static inline uint64_t mica__cpu_normalize_backward_bytes(const mica__cpu_normalize *params, uint64_t bytes)
{
    return 5 * params->lines * params->line * bytes;
}

/* normalize_totals: dweight and dbias of n elements each, which are the sums of those of blocks, in their order. A unit is MICA__CPU_NORM_LINE
 * outputs of either. */
typedef struct mica__cpu_normalize_totals {
    uint64_t n, blocks, stride[2];
    uint32_t wide, reserved; /* 1: f64 */
} mica__cpu_normalize_totals;

/* normalize_sums: outputs [kept dimensions], each the sum over the reduced ones, which stand behind them. A row of the range is a tile of outputs along
 * the last kept dimension; a line of `x` is taken along that, or with `along` 1 along the last reduced one and tiles are single outputs. */
#define MICA__CPU_NORM_LINE 256u /* elements of a line, at most */

typedef struct mica__cpu_normalize_sums {
    mica__cpu_row_range range;
    uint64_t shape[MICA_MAX_DIMS + 2];
    uint64_t x_stride[MICA_MAX_DIMS + 2], dy_stride[MICA_MAX_DIMS + 2];
    uint64_t dweight_stride[MICA_MAX_DIMS + 2], dbias_stride[MICA_MAX_DIMS + 2];
    uint64_t row_step[MICA_MAX_DIMS + 2]; /* rows of statistics */
    uint64_t tiles;                       /* along the last kept dimension */
    uint32_t kept, ndim, along, tile;
} mica__cpu_normalize_sums;

/* softmax_backward, and softmax of f64 or its logarithm. */
typedef struct mica__cpu_softmax {
    mica__cpu_row_range range;
    mica_softmax_params softmax;
} mica__cpu_softmax;

#endif
