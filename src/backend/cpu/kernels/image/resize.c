/*
 * resize.c - resizing and its gradient: each thread makes a table of places and weights for each dimension, of a gradient the transposed one.
 * Sums go over planes, rows, then columns, each in rising place.
 */
#include "backend/cpu/kernels/image/image.h"
#include "backend/cpu/kernels/image/real.h"
#include "backend/cpu/kernels/image/resize_taps.h"
#include "backend/cpu/kernels/kernels.h"

/* Place i is made of entries [begin[i], begin[i + 1]). */
typedef struct table {
    uint64_t *begin;
    mica__resize_entry *entry;
} table;

/* Where the tables lie in the thread's memory; what is behind them. */
static unsigned char *tables_of(const mica__cpu_args *args, table *t)
{
    const mica__cpu_resize *p = args->params;
    unsigned char *at = args->local;
    for (uint32_t d = 0; d < MICA_SPATIAL_DIMS; d++) {
        t[d].begin = (uint64_t *)(void *)at;
        t[d].entry = (mica__resize_entry *)(void *)(t[d].begin + p->frames.grid[1][d] + 1);
        at += mica__resize_table_bytes(p, d);
    }
    return at;
}

#define REAL float
#define FN(name) name##_float
#include "backend/cpu/kernels/image/resize_body.h"
#undef REAL
#undef FN
#define REAL double
#define FN(name) name##_double
#include "backend/cpu/kernels/image/resize_body.h"

/* The next place that i is made of, from tap *j on, and its weight: taps outside are at the edge, those of one place are one. False: no more. */
static bool next_part(const resize_axis *r, int64_t i, int64_t end, double sum, int64_t *j,
                      mica__resize_entry *part)
{
    while (*j < end) {
        const int64_t place = resize_clamp(*j, r->n);
        double weight = 0;
        for (; *j < end && resize_clamp(*j, r->n) == place; ++*j)
            weight += resize_weight(r, i, *j) / sum;
        *part = (mica__resize_entry){weight, (uint64_t)place};
        if (weight != 0)
            return true;
    }
    return false;
}

static void fill_forward(const resize_axis *r, table *t)
{
    uint64_t count = 0;
    for (int64_t i = 0; i < r->m; i++) {
        mica__resize_entry part;
        int64_t j, taps;
        resize_range(r, i, &j, &taps);
        const int64_t end = j + taps;
        const double sum = resize_sum(r, i, j, taps);
        t->begin[i] = count;
        while (next_part(r, i, end, sum, &j, &part))
            t->entry[count++] = part;
    }
    t->begin[r->m] = count;
}

/* The same entries by the place of x that they are of: counted, then put in the order of i. */
static void fill_backward(const resize_axis *r, table *t)
{
    for (int64_t j = 0; j <= r->n; j++)
        t->begin[j] = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < r->m; i++) {
            mica__resize_entry part;
            int64_t j, taps;
            resize_range(r, i, &j, &taps);
            const int64_t end = j + taps;
            const double sum = resize_sum(r, i, j, taps);
            while (next_part(r, i, end, sum, &j, &part)) {
                if (pass == 1)
                    t->entry[t->begin[part.place]] = (mica__resize_entry){part.weight, (uint64_t)i};
                t->begin[part.place + (pass == 0)]++;
            }
        }
        for (int64_t j = 1; pass == 0 && j <= r->n; j++) /* from how many to where they begin */
            t->begin[j] += t->begin[j - 1];
    }
    for (int64_t j = r->n; j > 0; j--) /* the second pass moved each to its end */
        t->begin[j] = t->begin[j - 1];
    t->begin[0] = 0;
}

void MICA__ISA(resize_prepare)(const mica__cpu_args *args)
{
    const mica__cpu_resize *p = args->params;
    table t[MICA_SPATIAL_DIMS];
    (void)tables_of(args, t);
    for (uint32_t d = 0; d < MICA_SPATIAL_DIMS; d++) {
        const int64_t read = (int64_t)p->frames.grid[0][d], written = (int64_t)p->frames.grid[1][d];
        const resize_axis r = {.n = p->backward != 0 ? written : read,
                               .m = p->backward != 0 ? read : written,
                               .mode = p->mode,
                               .corners = p->corners,
                               .antialias = p->antialias};
        (p->backward != 0 ? fill_backward : fill_forward)(&r, &t[d]);
    }
}

void MICA__ISA(resize)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const bool wide = args->view[0].dtype == MICA_DTYPE_F64;
    for (uint64_t unit = first; unit < last; unit++)
        (wide ? resize_unit_double : resize_unit_float)(args, unit);
}
