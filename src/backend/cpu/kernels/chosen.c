/*
 * chosen.c - which elements are not 0: counted in runs, summed up, listed; and the coordinates of those that are listed.
 */
#include "backend/cpu/cpu_params.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/places.h"
#include "backend/cpu/kernels/walk.h"

#define NOWHERE MICA__FOLD_NOWHERE

static inline bool is_chosen(const unsigned char *at, uint32_t bytes, uint64_t mask)
{
    uint64_t bits = 0;
    memcpy(&bits, at, bytes);
    return (bits & mask) != 0;
}

/* The size is a constant in each call of this. */
static inline uint32_t mark_each(const unsigned char *from, uint64_t stride, uint32_t bytes, uint64_t mask,
                                 uint64_t n, unsigned char *to)
{
    uint32_t count = 0;
    for (uint64_t i = 0; i < n; i++) {
        const bool chosen = is_chosen(from + i * stride, bytes, mask);
        to[i] = chosen;
        count += chosen;
    }
    return count;
}

static uint32_t mark(const unsigned char *from, uint64_t stride, uint32_t bytes, uint64_t mask, uint64_t n,
                     unsigned char *to)
{
    switch (bytes) {
    case 1: return mark_each(from, stride, 1, mask, n, to);
    case 2: return mark_each(from, stride, 2, mask, n, to);
    case 4: return mark_each(from, stride, 4, mask, n, to);
    default: return mark_each(from, stride, 8, mask, n, to);
    }
}

/* Which elements of a run are chosen: a byte each in `to`. */
static uint32_t mark_run(const mica__cpu_args *args, uint64_t begin, uint64_t end, unsigned char *to)
{
    const mica__cpu_chosen *p = args->params;
    const mica__cpu_view *x = args->view;
    const uint32_t inner = x->ndim - 1u;
    const uint64_t row = x->shape[inner];
    uint64_t column = begin % row;
    uint32_t count = 0;
    walk w;
    walk_begin(&w, x, 1, inner, begin / row);
    for (uint64_t i = begin; i < end; walk_next(&w)) {
        const uint64_t n = row - column < end - i ? row - column : end - i;
        count += mark(walk_at(&w, 0) + column * x->stride[inner], x->stride[inner], p->element_bytes, p->mask,
                      n, to + (i - begin));
        column = 0;
        i += n;
    }
    return count;
}

static uint64_t run_end(const mica__cpu_chosen *p, uint64_t run)
{
    const uint64_t end = (run + 1) * MICA__CPU_CHOSEN_RUN;
    return end < p->elements ? end : p->elements;
}

void MICA__ISA(chosen_count)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    uint32_t *counts = (uint32_t *)(void *)args->view[1].data;
    unsigned char marks[MICA__CPU_CHOSEN_RUN];
    for (uint64_t run = first; run < last; run++)
        counts[run] = mark_run(args, run * MICA__CPU_CHOSEN_RUN, run_end(args->params, run), marks);
}

void MICA__ISA(chosen_sums)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_chosen *p = args->params;
    const uint64_t runs = (p->elements + MICA__CPU_CHOSEN_RUN - 1) / MICA__CPU_CHOSEN_RUN;
    uint32_t *counts = (uint32_t *)(void *)args->view[0].data, sum = 0;
    for (uint64_t run = 0; first < last && run < runs; run++) {
        const uint32_t count = counts[run];
        counts[run] = sum;
        sum += count;
    }
    counts[runs] = sum;
    memcpy(args->view[1].data, &sum, sizeof sum);
}

/* In steps of its place. */
static uint32_t entry_of(const mica__cpu_chosen *p, uint64_t i)
{
    uint64_t entry = 0;
    for (uint32_t d = p->ndim; d-- > 1;) {
        entry += i % p->shape[d] * p->step[d];
        i /= p->shape[d];
    }
    return (uint32_t)(entry + i * p->step[0]);
}

void MICA__ISA(chosen_list)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_chosen *p = args->params;
    const uint64_t runs = (p->elements + MICA__CPU_CHOSEN_RUN - 1) / MICA__CPU_CHOSEN_RUN;
    const uint32_t *counts = (const uint32_t *)(const void *)args->view[1].data;
    uint32_t *list = (uint32_t *)(void *)args->view[2].data;
    unsigned char marks[MICA__CPU_CHOSEN_RUN];
    for (uint64_t run = first; run < last; run++) {
        const uint64_t begin = run * MICA__CPU_CHOSEN_RUN, end = begin + MICA__CPU_CHOSEN_RUN;
        const uint64_t stop = run < runs ? run_end(p, run) : begin;
        uint64_t at = run < runs ? counts[run] : 0;
        if (stop > begin && at < p->listed)
            (void)mark_run(args, begin, stop, marks);
        for (uint64_t i = begin; i < stop && at < p->listed; i++)
            if (marks[i - begin] != 0)
                list[at++] = entry_of(p, i);
        for (uint64_t j = begin > counts[runs] ? begin : counts[runs]; j < end && j < p->listed; j++)
            list[j] = NOWHERE;
    }
}

void MICA__ISA(chosen_places)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_chosen *p = args->params;
    const uint32_t *list = (const uint32_t *)(const void *)args->view[0].data;
    const mica__cpu_view *to = &args->view[1];
    uint64_t end = (uint64_t)last * MICA__CPU_CHOSEN_RUN;
    end = end < p->listed ? end : p->listed;
    for (uint64_t j = (uint64_t)first * MICA__CPU_CHOSEN_RUN; j < end; j++) {
        uint32_t rest = list[j];
        for (uint32_t d = p->ndim; d-- > 0;) {
            const uint32_t place = list[j] == NOWHERE ? NOWHERE : (uint32_t)(rest % p->shape[d]);
            memcpy(to->data + j * to->stride[0] + d * to->stride[1], &place, sizeof place);
            rest /= (uint32_t)p->shape[d];
        }
    }
}
