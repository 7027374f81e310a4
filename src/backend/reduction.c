/* reduction.c - dimensions of a reduction: dropped where they are 1, ordered, merged. */
#include "backend/reduction.h"

#include <string.h>

/* Dimension `count` of a list behind those that have greater strides; `second` may be NULL. */
static void insert(uint64_t *shape, uint64_t *stride, uint64_t *second, uint32_t count, uint64_t size,
                   uint64_t first_step, uint64_t second_step)
{
    uint32_t at = count;
    for (; at > 0 && stride[at - 1] < first_step; at--) {
        shape[at] = shape[at - 1];
        stride[at] = stride[at - 1];
        if (second != NULL)
            second[at] = second[at - 1];
    }
    shape[at] = size;
    stride[at] = first_step;
    if (second != NULL)
        second[at] = second_step;
}

/* Neighbours that are one dimension become it; how many remain. */
static uint32_t merge(uint64_t *shape, uint64_t *stride, uint64_t *second, uint32_t count)
{
    uint32_t last = 0;
    for (uint32_t d = 1; d < count; d++) {
        const bool one =
            stride[last] == stride[d] * shape[d] && (second == NULL || second[last] == second[d] * shape[d]);
        if (one)
            shape[last] *= shape[d];
        else
            shape[++last] = shape[d];
        stride[last] = stride[d];
        if (second != NULL)
            second[last] = second[d];
    }
    for (uint32_t d = last + 1; d < count; d++) {
        shape[d] = stride[d] = 0;
        if (second != NULL)
            second[d] = 0;
    }
    return last + 1;
}

void mica__reduction_of(const mica__operand *x, const mica__operand *y, uint32_t axes, bool keep_dims,
                        mica__reduction *out)
{
    memset(out, 0, sizeof *out);
    out->outputs = out->terms = 1;
    for (uint32_t d = 0, at = 0; d < x->ndim; d++) {
        const bool reduced = (axes >> (x->ndim - 1 - d) & 1) != 0;
        const uint64_t size = x->shape[d];
        if (reduced)
            out->terms *= size;
        else
            out->outputs *= size;
        if (reduced && size != 1)
            insert(out->reduced_shape, out->reduced_stride, NULL, out->reduced++, size, x->stride[d], 0);
        else if (!reduced && size != 1)
            insert(out->shape, out->x_stride, out->y_stride, out->kept++, size, x->stride[d], y->stride[at]);
        at += !reduced || keep_dims;
    }
    if (out->reduced == 0)
        out->reduced_shape[out->reduced++] = 1;
    if (out->kept == 0)
        out->shape[out->kept++] = 1;
    out->reduced = merge(out->reduced_shape, out->reduced_stride, NULL, out->reduced);
    out->kept = merge(out->shape, out->x_stride, out->y_stride, out->kept);
}
