/*
 * attention_backward_seen.h - the operands of attention's gradient: the keys that a token sees, and where rows lie. Nothing here trusts an index.
 */
#ifndef MICA_CPU_ATTENTION_BACKWARD_SEEN_H
#define MICA_CPU_ATTENTION_BACKWARD_SEEN_H

#include "backend/cpu/kernels/attention/attention_backward.h"
#include "backend/cpu/kernels/index.h"
#include "backend/cpu/kernels/rows.h"

#define SLOT(name) MICA__ATTENTION_BACKWARD_##name

static inline const mica__cpu_view *view_of(const mica__cpu_args *args, uint32_t slot)
{
    return &args->view[slot];
}

/* Where the row of a token (or key) and head begins. */
static inline unsigned char *row_at(const mica__cpu_view *view, uint64_t token, uint64_t head)
{
    return view->data + token * view->stride[0] + head * view->stride[1];
}

static inline double any_element(const unsigned char *at, uint16_t dtype)
{
    double value;
    if (dtype != MICA_DTYPE_F64)
        return (double)row_element(at, dtype);
    memcpy(&value, at, sizeof value);
    return value;
}

static inline double of_head(const mica__cpu_view *view, uint64_t head)
{
    return any_element(view->data + head * view->stride[0], view->dtype);
}

/* Where the mask of a token and head begins. */
static inline const unsigned char *mask_of(const mica__cpu_view *mask, uint64_t token, uint64_t head)
{
    return mask->data + (mask->ndim > 2 && mask->shape[0] > 1 ? head * mask->stride[0] : 0) +
           token * mask->stride[mask->ndim - 2];
}

/* The keys [first, last) that a token sees. */
typedef struct backward_sight {
    int64_t position;
    uint64_t first, last;
} backward_sight;

/* The keys that anyone may see; 0 where the length lies outside. */
static inline uint64_t keys_there(const mica__cpu_args *args)
{
    const mica__cpu_view *mask = view_of(args, SLOT(MASK));
    const int64_t length = index_at(view_of(args, SLOT(LENGTHS)), 0);
    if (length < 0 || (uint64_t)length > view_of(args, SLOT(K))->shape[0])
        return 0;
    if (mask->data != NULL && mask->shape[mask->ndim - 1] < (uint64_t)length)
        return mask->shape[mask->ndim - 1];
    return (uint64_t)length;
}

/* False: an index lies outside, and nothing is seen. */
static inline bool look(const mica__cpu_args *args, uint64_t token, backward_sight *out)
{
    const mica_attention_params *a = &((const mica__attention_backward_plan *)args->params)->attention;
    const mica__cpu_view *positions = view_of(args, SLOT(POSITIONS));
    const int64_t position = index_at(positions, token * positions->stride[0]);
    const int64_t length = index_at(view_of(args, SLOT(LENGTHS)), 0);
    *out = (backward_sight){position, 0, 0};
    if (position < 0 || length < 0 || (uint64_t)length > view_of(args, SLOT(K))->shape[0])
        return false;
    const uint64_t next = (uint64_t)position + 1;
    out->last = keys_there(args);
    if (!a->bidirectional && next < out->last)
        out->last = next;
    out->first = a->window != 0 && next > a->window ? next - a->window : 0;
    out->first = out->first < out->last ? out->first : out->last;
    return true;
}

#endif
