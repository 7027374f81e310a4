/*
 * sequences.h - which tokens and states a sequence has, as ops_recurrent.h says: read while the work runs, trusted in nothing.
 */
#ifndef MICA_CPU_SEQUENCES_H
#define MICA_CPU_SEQUENCES_H

#include <stdbool.h>

#include "backend/cpu/cpu_recurrent.h"
#include "backend/cpu/kernels/index.h"

typedef struct sequence {
    bool fine; /* else there is nothing to do: no tokens, no states */
    uint64_t first, count;
    const unsigned char *from; /* its slot of state, NULL: zeros */
    unsigned char *to;         /* its slot of next_state, NULL: not wanted */
} sequence;

/* The byte offset of the slot of sequence n; false where it lies outside. */
static inline bool sequence_slot(const mica__cpu_view *state, const mica__cpu_view *slots, uint64_t n,
                                 uint64_t *out_offset)
{
    *out_offset = 0;
    if (state->data == NULL)
        return true;
    const int64_t slot = slots->data != NULL ? index_at(slots, n * slots->stride[0]) : (int64_t)n;
    if (slot < 0 || (uint64_t)slot >= state->shape[0])
        return false;
    *out_offset = (uint64_t)slot * state->stride[0];
    return true;
}

static inline sequence sequence_of(const mica__cpu_args *args, const mica__cpu_sequences *of, uint64_t n)
{
    const mica__cpu_view *view = args->view, *starts = &view[of->starts], *state = &view[of->state],
                         *next = &view[of->next_state];
    sequence found = {.fine = true, .count = of->tokens / of->count};
    uint64_t read = 0, write = 0;
    found.first = n * found.count;
    if (starts->data != NULL) {
        const int64_t first = index_at(starts, n * starts->stride[0]),
                      end = index_at(starts, (n + 1) * starts->stride[0]);
        found.fine = first >= 0 && end >= first && (uint64_t)end <= of->tokens;
        found.first = (uint64_t)first;
        found.count = (uint64_t)(end - first);
    }
    found.fine = found.fine && sequence_slot(state, &view[of->read_slots], n, &read) &&
                 sequence_slot(next, &view[of->write_slots], n, &write);
    if (!found.fine) {
        mica__cpu_fault(args);
        return (sequence){.fine = false};
    }
    found.from = state->data != NULL ? state->data + read : NULL;
    found.to = next->data != NULL ? next->data + write : NULL;
    return found;
}

/* Zeros for tokens [first, end) of y, whose rows are contiguous. */
static inline void sequence_clear(const mica__cpu_view *y, uint64_t first, uint64_t end)
{
    const uint64_t rows = y->ndim > 2 ? y->shape[1] : 1, unit = y->dtype == MICA_DTYPE_F64   ? 8
                                                                : y->dtype == MICA_DTYPE_F32 ? 4
                                                                                             : 2;
    for (uint64_t t = first; t < end; t++)
        for (uint64_t r = 0; r < rows; r++)
            memset(y->data + t * y->stride[0] + (y->ndim > 2 ? r * y->stride[1] : 0), 0,
                   y->shape[y->ndim - 1] * unit);
}

/* The unit behind those of the sequences: zeros for the tokens that no sequence has. */
static inline void sequence_gaps(const mica__cpu_args *args, const mica__cpu_sequences *of)
{
    uint64_t end = 0;
    for (uint64_t n = 0; n < of->count; n++) {
        const sequence found = sequence_of(args, of, n);
        if (!found.fine || found.count == 0)
            continue;
        sequence_clear(&args->view[of->y], end, found.first);
        if (found.first + found.count > end)
            end = found.first + found.count;
    }
    sequence_clear(&args->view[of->y], end, of->tokens);
}

#endif
