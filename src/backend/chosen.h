/*
 * chosen.h - what plans of all backends say alike of elements that are chosen because they are not 0. Knows records, no kernel.
 */
#ifndef MICA_BACKEND_CHOSEN_H
#define MICA_BACKEND_CHOSEN_H

#include "backend/record.h"
#include "base/status.h"

static inline uint64_t mica__chosen_elements(const mica__operand *x)
{
    uint64_t elements = 1;
    for (uint32_t d = 0; d < x->ndim; d++)
        elements *= x->shape[d];
    return elements;
}

/* The bits of an element that are all 0 in a 0: all but the signs of floats. */
static inline uint64_t mica__chosen_mask(mica_dtype dtype)
{
    switch (dtype) {
    case MICA_DTYPE_F64: return 0x7fffffffffffffffu;
    case MICA_DTYPE_C64: return 0x7fffffff7fffffffu;
    case MICA_DTYPE_F32: return 0x7fffffffu;
    case MICA_DTYPE_F16:
    case MICA_DTYPE_BF16: return 0x7fffu;
    case MICA_DTYPE_F8_E4M3:
    case MICA_DTYPE_F8_E5M2: return 0x7fu;
    default: return UINT64_MAX;
    }
}

/* Of a flat x: a place in each dimension, counted in elements of memory. UNSUPPORTED where they do not fit 32 bits. */
static inline mica_status mica__chosen_flat(const mica__record *record, const mica__operand *x,
                                            uint64_t *shape, uint32_t *step, uint32_t *ndim)
{
    const uint64_t bytes = mica_dtype_block_bytes((mica_dtype)x->dtype);
    uint64_t reach = 0;
    for (uint32_t d = 0; d < x->ndim; d++) {
        const uint64_t size = x->shape[d] > 0 ? x->shape[d] : 1, each = x->stride[d] / bytes;
        shape[d] = size;
        step[d] = (uint32_t)each;
        reach += each < UINT32_MAX ? (size - 1) * each : size > 1 ? UINT32_MAX : 0;
    }
    *ndim = x->ndim > 0 ? x->ndim : 1;
    if (reach < UINT32_MAX)
        return MICA_OK;
    return mica__fail(MICA_ERR_UNSUPPORTED, "%s: x reaches over 2^32 elements",
                      mica_op_name((mica_op)record->op));
}

#endif
