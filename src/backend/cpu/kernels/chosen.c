/*
 * chosen.c - which elements are not 0: counted in runs, summed up, and listed: where they lie, or their coordinates.
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

/* How many of n are chosen. Size and stride are constants in the calls that vectors can be made of. */
static inline uint32_t count_each(const unsigned char *from, uint64_t stride, uint32_t bytes, uint64_t mask,
                                  uint64_t n)
{
    uint32_t count = 0;
    for (uint64_t i = 0; i < n; i++)
        count += is_chosen(from + i * stride, bytes, mask);
    return count;
}

static uint32_t count_words(const unsigned char *from, uint32_t mask, uint64_t n)
{
    uint32_t count = 0;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, from + i * sizeof bits, sizeof bits);
        count += (bits & mask) != 0;
    }
    return count;
}

static uint32_t count_places(const unsigned char *from, uint64_t stride, uint32_t bytes, uint64_t mask,
                             uint64_t n)
{
    if (bytes == 4 && stride == 4)
        return count_words(from, (uint32_t)mask, n);
    switch (bytes) {
    case 1: return count_each(from, stride, 1, mask, n);
    case 2: return stride == 2 ? count_each(from, 2, 2, mask, n) : count_each(from, stride, 2, mask, n);
    case 4: return count_each(from, stride, 4, mask, n);
    default: return count_each(from, stride, 8, mask, n);
    }
}

/* Which of n they are, into `to`, which has room for n: each is written, and stays where it is chosen. */
static inline uint32_t pick_each(const unsigned char *from, uint64_t stride, uint32_t bytes, uint64_t mask,
                                 uint64_t n, uint32_t *to)
{
    uint32_t count = 0;
    for (uint64_t i = 0; i < n; i++) {
        to[count] = (uint32_t)i;
        count += is_chosen(from + i * stride, bytes, mask);
    }
    return count;
}

static uint32_t pick_places(const unsigned char *from, uint64_t stride, uint32_t bytes, uint64_t mask,
                            uint64_t n, uint32_t *to)
{
    switch (bytes) {
    case 1: return pick_each(from, stride, 1, mask, n, to);
    case 2: return pick_each(from, stride, 2, mask, n, to);
    case 4: return pick_each(from, stride, 4, mask, n, to);
    default: return pick_each(from, stride, 8, mask, n, to);
    }
}

/* The elements of a run, row by row: a piece is n of them, from `column` of the row on at which w stands. */
typedef struct piece {
    walk w;
    uint64_t column, n, row, left; /* row: elements of a whole one; left: behind the piece */
} piece;

static void piece_cut(piece *at)
{
    at->n = at->row - at->column < at->left ? at->row - at->column : at->left;
    at->left -= at->n;
}

static piece piece_first(const mica__cpu_view *x, uint64_t begin, uint64_t end)
{
    const uint32_t inner = x->ndim - 1u;
    piece at = {.row = x->shape[inner], .left = end - begin};
    at.column = begin % at.row;
    walk_begin(&at.w, x, 1, inner, begin / at.row);
    piece_cut(&at);
    return at;
}

static void piece_next(piece *at)
{
    walk_next(&at->w);
    at->column = 0;
    piece_cut(at);
}

static const unsigned char *piece_at(const piece *at)
{
    return walk_at(&at->w, 0) + at->column * at->w.view->stride[at->w.ndim];
}

static uint64_t run_end(const mica__cpu_chosen *p, uint64_t run)
{
    const uint64_t end = (run + 1) * MICA__CPU_CHOSEN_RUN;
    return end < p->elements ? end : p->elements;
}

static uint64_t runs_of(const mica__cpu_chosen *p)
{
    return (p->elements + MICA__CPU_CHOSEN_RUN - 1) / MICA__CPU_CHOSEN_RUN;
}

void MICA__ISA(chosen_count)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_chosen *p = args->params;
    const mica__cpu_view *x = args->view;
    uint32_t *counts = (uint32_t *)(void *)args->view[1].data;
    for (uint64_t run = first; run < last; run++) {
        uint32_t count = 0;
        for (piece at = piece_first(x, run * MICA__CPU_CHOSEN_RUN, run_end(p, run)); at.n > 0;
             piece_next(&at))
            count += count_places(piece_at(&at), x->stride[x->ndim - 1u], p->element_bytes, p->mask, at.n);
        counts[run] = count;
    }
}

void MICA__ISA(chosen_sums)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_chosen *p = args->params;
    const uint64_t runs = runs_of(p);
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

/* Takes n chosen elements of a piece, which begins with `element`, as entries from `at` on. */
typedef void (*take_piece)(const mica__cpu_args *args, const piece *from, uint64_t element,
                           const uint32_t *chosen, uint64_t n, uint64_t at);

static void take_run(const mica__cpu_args *args, uint64_t run, uint64_t at, take_piece take)
{
    const mica__cpu_chosen *p = args->params;
    const mica__cpu_view *x = args->view;
    uint32_t chosen[MICA__CPU_CHOSEN_RUN];
    uint64_t element = run * MICA__CPU_CHOSEN_RUN;
    for (piece from = piece_first(x, element, run_end(p, run)); from.n > 0 && at < p->listed;
         element += from.n, piece_next(&from)) {
        uint64_t n =
            pick_places(piece_at(&from), x->stride[x->ndim - 1u], p->element_bytes, p->mask, from.n, chosen);
        n = n < p->listed - at ? n : p->listed - at;
        take(args, &from, element, chosen, n, at);
        at += n;
    }
}

/* The entries [*behind, *end) of a run of the list that lie behind what there is. */
static void behind_of(const mica__cpu_chosen *p, const uint32_t *counts, uint64_t run, uint64_t *behind,
                      uint64_t *end)
{
    const uint64_t begin = run * MICA__CPU_CHOSEN_RUN, all = counts[runs_of(p)];
    *behind = begin > all ? begin : all;
    *end = begin + MICA__CPU_CHOSEN_RUN < p->listed ? begin + MICA__CPU_CHOSEN_RUN : p->listed;
}

static void take_entries(const mica__cpu_args *args, const piece *from, uint64_t element,
                         const uint32_t *chosen, uint64_t n, uint64_t at)
{
    const mica__cpu_chosen *p = args->params;
    uint32_t *list = (uint32_t *)(void *)args->view[2].data + at;
    (void)from;
    for (uint64_t j = 0; j < n && p->ndim == 1; j++)
        list[j] = ((uint32_t)element + chosen[j]) * p->step[0];
    for (uint64_t j = 0; j < n && p->ndim != 1; j++)
        list[j] = entry_of(p, element + chosen[j]);
}

void MICA__ISA(chosen_list)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_chosen *p = args->params;
    const uint32_t *counts = (const uint32_t *)(const void *)args->view[1].data;
    uint32_t *list = (uint32_t *)(void *)args->view[2].data;
    for (uint64_t run = first; run < last; run++) {
        uint64_t behind, end;
        if (run < runs_of(p))
            take_run(args, run, counts[run], take_entries);
        behind_of(p, counts, run, &behind, &end);
        for (; behind < end; behind++)
            list[behind] = NOWHERE;
    }
}

/* Coordinate d of n rows: that of all of them, or where `each` is not NULL one for each. */
static void put_places(const mica__cpu_view *to, uint64_t at, uint32_t d, uint32_t place,
                       const uint32_t *each, uint64_t n)
{
    unsigned char *from = to->data + at * to->stride[0] + d * to->stride[1];
    for (uint64_t j = 0; j < n; j++) {
        const uint32_t value = each != NULL ? place + each[j] : place;
        memcpy(from + j * to->stride[0], &value, sizeof value);
    }
}

static void take_places(const mica__cpu_args *args, const piece *from, uint64_t element,
                        const uint32_t *chosen, uint64_t n, uint64_t at)
{
    const mica__cpu_view *to = &args->view[2];
    const uint32_t inner = from->w.ndim, column = (uint32_t)from->column;
    (void)element;
    if (inner == 1 && to->stride[1] == sizeof(uint32_t) && to->stride[0] == 2 * sizeof(uint32_t)) {
        uint32_t *pair = (uint32_t *)(void *)(to->data + at * to->stride[0]);
        const uint32_t row = (uint32_t)from->w.index[0];
        for (uint64_t j = 0; j < n; j++) {
            pair[2 * j] = row;
            pair[2 * j + 1] = column + chosen[j];
        }
        return;
    }
    for (uint32_t d = 0; d < inner; d++)
        put_places(to, at, d, (uint32_t)from->w.index[d], NULL, n);
    put_places(to, at, inner, column, chosen, n);
}

void MICA__ISA(chosen_places)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_chosen *p = args->params;
    const mica__cpu_view *x = args->view, *to = &args->view[2];
    const uint32_t *counts = (const uint32_t *)(const void *)args->view[1].data;
    for (uint64_t run = first; run < last; run++) {
        uint64_t behind, end;
        if (run < runs_of(p))
            take_run(args, run, counts[run], take_places);
        behind_of(p, counts, run, &behind, &end);
        for (uint32_t d = 0; d < x->ndim && behind < end; d++)
            put_places(to, behind, d, NOWHERE, NULL, end - behind);
    }
}
