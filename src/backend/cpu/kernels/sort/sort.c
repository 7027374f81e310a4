/*
 * sort.c - sorting along the last dimension by the digits of keys: whole rows, or the first of each part of a row and of them all; and in parts,
 * for rows so long that all threads are to have some of one.
 */
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/rows.h"
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

/* ---- the greatest floats ---- */

#define TILE (64 * VW) /* elements that are looked at together */

/* Appends those of `count` elements from `id` on that are greater than `edge`; of all that are numbers where the edge is NaN. */
static uint64_t pass_edge(const sort_row *r, const float *x, uint64_t id, uint64_t count, float edge,
                          uint64_t *e, uint64_t taken)
{
    const vf limit = vf_set1(edge);
    const bool any = edge != edge;
    for (uint64_t i = 0; i < count; i += VW) {
        const uint64_t n = count - i < VW ? count - i : VW;
        const vf v = n < VW ? vf_merge_n(vf_load_n(x + i, n), vf_set1(NAN), n) : vf_load(x + i);
        uint32_t hits = vm_bits(any ? vf_eq(v, v) : vf_lt(limit, v));
        for (; hits != 0; hits &= hits - 1) {
            const uint64_t at = id + i + (uint64_t)__builtin_ctz(hits);
            const uint64_t value = value_load(r->x + at * r->x_step, r->bytes);
            e[taken++] = (uint64_t)key_of(value, r->dtype, true) << 32 | at;
        }
    }
    return taken;
}

/* The k greatest candidates stand first; gives the last of them as a number. */
static float find_edge(const sort_row *r, uint64_t *e, uint64_t n, uint64_t k, uint64_t *out)
{
    uint64_t last = 0;
    narrow_first_of(e, n, k, mica__cpu_sort_key_bits(r->dtype), out);
    memcpy(e, out, k * sizeof *e);
    for (uint64_t i = 0; i < k; i++)
        last = e[i] > last ? e[i] : last;
    return row_element(r->x + (last & UINT32_MAX) * r->x_step, r->dtype);
}

/* Puts the k greatest of elements [begin, begin + n), f32, f16 or bf16, into `out`, not sorted; e has room for n. Candidates are those that exceed
 * the k-th greatest so far, the edge: an equal one comes too late. When their room is full the edge moves up. */
static void greatest_floats(const sort_row *r, uint64_t begin, uint64_t n, uint64_t k, uint64_t *e,
                            uint64_t *out)
{
    const uint64_t room = 4 * k + 2 * TILE; /* so that finding an edge is rare */
    float tmp[TILE];
    uint64_t taken = n < room ? n : room, at = taken;
    narrow_make(r, begin, taken, e);
    while (at < n) {
        const float edge = find_edge(r, e, taken, k, out);
        for (taken = k; at < n && taken + TILE <= room;) {
            const uint64_t count = n - at < TILE ? n - at : TILE;
            const float *x =
                row_f32_strided(r->x + (begin + at) * r->x_step, r->dtype, r->x_step, count, tmp);
            taken = pass_edge(r, x, begin + at, count, edge, e, taken);
            at += count;
        }
    }
    narrow_first_of(e, taken, k, mica__cpu_sort_key_bits(r->dtype), out);
}

/* The k first of elements [begin, begin + n) into `out`, not sorted; e has room for n. */
static void narrow_best(const sort_row *r, uint64_t begin, uint64_t n, uint64_t k, uint64_t *e, uint64_t *out)
{
    const bool floats =
        r->dtype == MICA_DTYPE_F32 || r->dtype == MICA_DTYPE_F16 || r->dtype == MICA_DTYPE_BF16;
    if (floats && r->descending && k > 0) {
        greatest_floats(r, begin, n, k, e, out);
        return;
    }
    narrow_make(r, begin, n, e);
    narrow_first_of(e, n, k, mica__cpu_sort_key_bits(r->dtype), out);
}

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
            if (p->k < p->n)
                narrow_best(&r, 0, p->n, p->k, e, e + p->n);
            else
                narrow_make(&r, 0, p->n, e + p->n);
            narrow_put(&r, 0, p->k, narrow_radix(e + p->n, e, p->k, bits));
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
        unsigned char *to = args->view[SCRATCH].data + task * p->k * mica__cpu_sort_element_bytes(r.dtype);
        if (sort_is_wide(&r)) {
            wide_make(&r, part * PART, n, args->local);
            wide_first_of(args->local, n, k, mica__cpu_sort_key_bits(r.dtype), (wide_element *)(void *)to);
        } else {
            narrow_best(&r, part * PART, n, k, args->local, (uint64_t *)(void *)to);
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
