/*
 * gradient.h - what gradients of recurrences share: numbers of any real type as f64, and which tokens a sequence has.
 */
#ifndef MICA_CPU_GRADIENT_H
#define MICA_CPU_GRADIENT_H

#include <math.h>
#include <stdbool.h>

#include "backend/cpu/cpu_recurrent_backward.h"
#include "backend/cpu/kernels/index.h"
#include "backend/cpu/kernels/rows.h"

static inline double real_at(const mica__cpu_view *view, const unsigned char *at)
{
    double value;
    if (view->dtype != MICA_DTYPE_F64)
        return (double)row_element(at, view->dtype);
    memcpy(&value, at, sizeof value);
    return value;
}

/* Of absent views: `absent`. */
static inline double real1(const mica__cpu_view *view, uint64_t i, double absent)
{
    return view->data != NULL ? real_at(view, view->data + i * view->stride[0]) : absent;
}

static inline double real2(const mica__cpu_view *view, uint64_t i, uint64_t j, double absent)
{
    return view->data != NULL ? real_at(view, view->data + i * view->stride[0] + j * view->stride[1])
                              : absent;
}

static inline double real3(const mica__cpu_view *view, uint64_t i, uint64_t j, uint64_t k)
{
    return real_at(view, view->data + i * view->stride[0] + j * view->stride[1] + k * view->stride[2]);
}

/* Nothing where the view is absent. */
static inline void put_real(const mica__cpu_view *view, uint64_t offset, double value)
{
    const float narrow = (float)value;
    if (view->data == NULL)
        return;
    if (view->dtype == MICA_DTYPE_F64)
        memcpy(view->data + offset, &value, sizeof value);
    else
        row_store(view->data + offset, view->dtype, &narrow, 1);
}

static inline void put1(const mica__cpu_view *view, uint64_t i, double value)
{
    put_real(view, i * view->stride[0], value);
}

static inline void put2(const mica__cpu_view *view, uint64_t i, uint64_t j, double value)
{
    put_real(view, i * view->stride[0] + j * view->stride[1], value);
}

static inline void put3(const mica__cpu_view *view, uint64_t i, uint64_t j, uint64_t k, double value)
{
    put_real(view, i * view->stride[0] + j * view->stride[1] + k * view->stride[2], value);
}

/* The tokens of a sequence and its slot of state (NULL: zeros); not fine: there is nothing to do. */
typedef struct stretch {
    bool fine;
    uint64_t first, count;
    const unsigned char *from;
} stretch;

static inline stretch stretch_of(const mica__cpu_args *args, const mica__cpu_split *split, uint64_t n)
{
    const mica__cpu_view *starts = &args->view[split->starts], *slots = &args->view[split->read_slots],
                         *state = &args->view[split->state];
    stretch s = {.fine = true, .count = split->tokens / split->count};
    s.first = n * s.count;
    if (starts->data != NULL) {
        const int64_t first = index_at(starts, n * starts->stride[0]),
                      end = index_at(starts, (n + 1) * starts->stride[0]);
        s.fine = first >= 0 && end >= first && (uint64_t)end <= split->tokens;
        s.first = (uint64_t)first;
        s.count = (uint64_t)(end - first);
    }
    if (state->data != NULL) {
        const int64_t slot = slots->data != NULL ? index_at(slots, n * slots->stride[0]) : (int64_t)n;
        s.fine = s.fine && slot >= 0 && (uint64_t)slot < state->shape[0];
        s.from = s.fine ? state->data + (uint64_t)slot * state->stride[0] : NULL;
    }
    if (s.fine)
        return s;
    mica__cpu_fault(args);
    return (stretch){.fine = false};
}

/* Zeros for tokens [first, end) of a view [tokens, ..]. */
static inline void clear_tokens(const mica__cpu_view *view, uint64_t first, uint64_t end)
{
    const uint64_t rows = view->ndim > 1 ? view->shape[1] : 1, n = view->ndim > 2 ? view->shape[2] : 1;
    for (uint64_t t = first; view->data != NULL && t < end; t++)
        for (uint64_t r = 0; r < rows; r++)
            for (uint64_t i = 0; i < n; i++)
                put_real(view,
                         t * view->stride[0] + (view->ndim > 1 ? r * view->stride[1] : 0) +
                             (view->ndim > 2 ? i * view->stride[2] : 0),
                         0.0);
}

/* Finds the next tokens from *at on that no sequence from *n on has; false: there are none. */
static inline bool next_gap(const mica__cpu_args *args, const mica__cpu_split *split, uint64_t *n,
                            uint64_t *at, uint64_t *out_first, uint64_t *out_end)
{
    while (*n < split->count) {
        const stretch s = stretch_of(args, split, (*n)++);
        if (!s.fine || s.count == 0)
            continue;
        *out_first = *at;
        *out_end = s.first;
        if (s.first + s.count > *at)
            *at = s.first + s.count;
        if (*out_first < *out_end)
            return true;
    }
    *out_first = *at;
    *out_end = split->tokens;
    *at = split->tokens;
    return *out_first < *out_end;
}

/* Zeros in outputs [first, last] of the tokens that no sequence has. */
static inline void clear_gaps(const mica__cpu_args *args, const mica__cpu_split *split, uint32_t first,
                              uint32_t last)
{
    uint64_t n = 0, at = 0, begin, end;
    while (next_gap(args, split, &n, &at, &begin, &end))
        for (uint32_t slot = first; slot <= last; slot++)
            clear_tokens(&args->view[slot], begin, end);
}

static inline double sigmoid(double x)
{
    const double e = exp(-fabs(x));
    return (x < 0 ? e : 1.0) / (1.0 + e);
}

#endif
