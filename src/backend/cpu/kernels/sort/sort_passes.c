/*
 * sort_passes.c - one pass over a row in parts: how often each digit stands in each part, where that digit of that part begins, moving. Parts
 * keep their order, so that a pass is stable with any number of threads. Views: elements, counts, where elements go.
 */
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/sort/sort_keys.h"

enum { FROM, COUNTS, TO };

#define PART MICA__CPU_SORT_PART
#define BINS MICA__CPU_SORT_BINS

static uint64_t length_of(const mica__cpu_sort *p, uint64_t part)
{
    const uint64_t left = p->n - part * PART;
    return left < PART ? left : PART;
}

/* Elements of one word have their key above the id: digits begin at bit 32. */
static const unsigned char *elements_of(const mica__cpu_args *args, uint64_t task, uint64_t bytes)
{
    const mica__cpu_sort *p = args->params;
    return args->view[FROM].data + (task / p->parts * p->n + task % p->parts * PART) * bytes;
}

static uint32_t *counts_of(const mica__cpu_args *args, uint64_t task)
{
    return (uint32_t *)(void *)args->view[COUNTS].data + task * BINS;
}

void MICA__ISA(sort_count)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_sort *p = args->params;
    const uint64_t end = mica__cpu_rows_end(&p->range, last);
    for (uint64_t task = mica__cpu_rows_begin(&p->range, first); task < end; task++) {
        const uint64_t n = length_of(p, task % p->parts);
        const unsigned char *from = elements_of(args, task, p->element_bytes);
        uint32_t *count = counts_of(args, task);
        memset(count, 0, BINS * sizeof *count);
        if (p->element_bytes == sizeof(uint64_t)) {
            const uint64_t *e = (const uint64_t *)(const void *)from;
            for (uint64_t i = 0; i < n; i++)
                count[e[i] >> (32 + p->shift) & (BINS - 1)]++;
        } else {
            const wide_element *e = (const wide_element *)(const void *)from;
            for (uint64_t i = 0; i < n; i++)
                count[e[i].key >> p->shift & (BINS - 1)]++;
        }
    }
}

/* Places in a row fit into 32 bits, as its ids do. */
void MICA__ISA(sort_places)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_sort *p = args->params;
    const uint64_t end = mica__cpu_rows_end(&p->range, last);
    for (uint64_t row = mica__cpu_rows_begin(&p->range, first); row < end; row++) {
        uint32_t begin = 0, *count = counts_of(args, row * p->parts);
        for (uint32_t bin = 0; bin < BINS; bin++)
            for (uint64_t part = 0; part < p->parts; part++) {
                const uint32_t own = count[part * BINS + bin];
                count[part * BINS + bin] = begin;
                begin += own;
            }
    }
}

void MICA__ISA(sort_move)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_sort *p = args->params;
    const uint64_t end = mica__cpu_rows_end(&p->range, last);
    for (uint64_t task = mica__cpu_rows_begin(&p->range, first); task < end; task++) {
        const uint64_t n = length_of(p, task % p->parts), row = task / p->parts * p->n;
        const unsigned char *from = elements_of(args, task, p->element_bytes);
        uint32_t place[BINS];
        memcpy(place, counts_of(args, task), sizeof place);
        if (p->element_bytes == sizeof(uint64_t)) {
            const uint64_t *e = (const uint64_t *)(const void *)from;
            uint64_t *to = (uint64_t *)(void *)args->view[TO].data + row;
            for (uint64_t i = 0; i < n; i++)
                to[place[e[i] >> (32 + p->shift) & (BINS - 1)]++] = e[i];
        } else {
            const wide_element *e = (const wide_element *)(const void *)from;
            wide_element *to = (wide_element *)(void *)args->view[TO].data + row;
            for (uint64_t i = 0; i < n; i++)
                to[place[e[i].key >> p->shift & (BINS - 1)]++] = e[i];
        }
    }
}
