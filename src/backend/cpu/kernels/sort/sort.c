/*
 * sort.c - sorting along the last dimension by the digits of keys: whole rows, or the first of each part of a row and of them all; and in parts,
 * for rows so long that all threads are to have some of one.
 */
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/sort/sort_rows.h"

enum { SCRATCH = MICA__SORT_SLOTS, COUNTS };

#define PART MICA__CPU_SORT_PART
#define BINS MICA__CPU_SORT_BINS

#define ELEMENT uint64_t
#define NAME(x) narrow_##x
#define KEY(e) (e)
#define ID(e) ((e)&UINT32_MAX)
#define ELEMENT_OF(key, id) ((key) << 32 | (id))
#define FIRST_BIT 32u
#include "backend/cpu/kernels/sort/sort_elements.h"

#define ELEMENT wide_element
#define NAME(x) wide_##x
#define KEY(e) ((e).key)
#define ID(e) ((e).id)
#define ELEMENT_OF(key, id) ((wide_element){key, id})
#define FIRST_BIT 0u
#include "backend/cpu/kernels/sort/sort_elements.h"

/* ---- whole rows ---- */

void MICA__ISA(sort)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_sort *p = args->params;
    const uint64_t end = mica__cpu_rows_end(&p->range, last);
    for (uint64_t row = mica__cpu_rows_begin(&p->range, first); row < end; row++) {
        const sort_row r = sort_row_of(args, row);
        const uint32_t bits = mica__cpu_sort_key_bits(r.dtype);
        if (sort_is_wide(&r)) {
            wide_element *e = args->local;
            wide_make(&r, 0, p->n, e);
            wide_put(&r, 0, p->k, wide_sorted(e, e + p->n, p->n, p->k, bits));
        } else {
            uint64_t *e = args->local;
            narrow_make(&r, 0, p->n, e);
            narrow_put(&r, 0, p->k, narrow_sorted(e, e + p->n, p->n, p->k, bits));
        }
    }
}

/* ---- the first k of each part, then of them all ---- */

/* Elements of the part. */
static uint64_t part_length(const mica__cpu_sort *p, uint64_t part)
{
    const uint64_t left = p->n - part * PART;
    return left < PART ? left : PART;
}

static uint64_t best_of_part(const mica__cpu_sort *p, uint64_t part)
{
    const uint64_t length = part_length(p, part);
    return length < p->k ? length : p->k;
}

void MICA__ISA(sort_best)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_sort *p = args->params;
    const uint64_t end = mica__cpu_rows_end(&p->range, last);
    for (uint64_t task = mica__cpu_rows_begin(&p->range, first); task < end; task++) {
        const sort_row r = sort_row_of(args, task / p->parts);
        const uint64_t part = task % p->parts, n = part_length(p, part), k = best_of_part(p, part);
        const uint32_t bits = mica__cpu_sort_key_bits(r.dtype);
        unsigned char *to = args->view[SCRATCH].data + task * p->k * mica__cpu_sort_element_bytes(r.dtype);
        if (sort_is_wide(&r)) {
            wide_make(&r, part * PART, n, args->local);
            wide_first_of(args->local, n, k, bits, (wide_element *)(void *)to);
        } else {
            narrow_make(&r, part * PART, n, args->local);
            narrow_first_of(args->local, n, k, bits, (uint64_t *)(void *)to);
        }
    }
}

/* Within a part and from part to part equal keys stand in the order of their ids: sorting keeps that. */
void MICA__ISA(sort_join)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_sort *p = args->params;
    const uint64_t end = mica__cpu_rows_end(&p->range, last);
    for (uint64_t row = mica__cpu_rows_begin(&p->range, first); row < end; row++) {
        const sort_row r = sort_row_of(args, row);
        const uint64_t bytes = mica__cpu_sort_element_bytes(r.dtype);
        const uint64_t n = (p->parts - 1) * p->k + best_of_part(p, p->parts - 1);
        const uint32_t bits = mica__cpu_sort_key_bits(r.dtype);
        memcpy(args->local, args->view[SCRATCH].data + row * p->parts * p->k * bytes, n * bytes);
        if (sort_is_wide(&r)) {
            wide_element *e = args->local;
            wide_put(&r, 0, p->k, wide_sorted(e, e + n, n, p->k, bits));
        } else {
            uint64_t *e = args->local;
            narrow_put(&r, 0, p->k, narrow_sorted(e, e + n, n, p->k, bits));
        }
    }
}

/* ---- a row in parts: scratch has the elements of all rows ---- */

/* The elements of a part, in the scratch of slot `slot`. */
static unsigned char *elements_of(const mica__cpu_args *args, uint32_t slot, uint64_t task, uint64_t bytes)
{
    const mica__cpu_sort *p = args->params;
    return args->view[slot].data + (task / p->parts * p->n + task % p->parts * PART) * bytes;
}

void MICA__ISA(sort_keys)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_sort *p = args->params;
    const uint64_t end = mica__cpu_rows_end(&p->range, last);
    for (uint64_t task = mica__cpu_rows_begin(&p->range, first); task < end; task++) {
        const sort_row r = sort_row_of(args, task / p->parts);
        const uint64_t part = task % p->parts, n = part_length(p, part);
        unsigned char *to = elements_of(args, SCRATCH, task, mica__cpu_sort_element_bytes(r.dtype));
        if (sort_is_wide(&r))
            wide_make(&r, part * PART, n, (wide_element *)(void *)to);
        else
            narrow_make(&r, part * PART, n, (uint64_t *)(void *)to);
    }
}

void MICA__ISA(sort_put)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_sort *p = args->params;
    const uint64_t end = mica__cpu_rows_end(&p->range, last);
    for (uint64_t task = mica__cpu_rows_begin(&p->range, first); task < end; task++) {
        const sort_row r = sort_row_of(args, task / p->parts);
        const uint64_t begin = task % p->parts * PART, left = p->k > begin ? p->k - begin : 0;
        const uint64_t n = left < PART ? left : PART;
        const unsigned char *from = elements_of(args, SCRATCH, task, mica__cpu_sort_element_bytes(r.dtype));
        if (sort_is_wide(&r))
            wide_put(&r, begin, n, (const wide_element *)(const void *)from);
        else
            narrow_put(&r, begin, n, (const uint64_t *)(const void *)from);
    }
}
