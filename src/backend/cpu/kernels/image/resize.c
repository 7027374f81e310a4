/*
 * resize.c - resizing and its gradient: each thread makes a table of places and weights for each dimension, of a gradient the transposed one.
 * Sums go over planes, rows, then columns, each in rising place.
 */
#include "backend/cpu/kernels/image/image.h"
#include "backend/cpu/kernels/image/real.h"
#include "backend/cpu/kernels/image/resize_lanes.h"
#include "backend/cpu/kernels/image/resize_taps.h"
#include "backend/cpu/kernels/kernels.h"

/* What lies in the thread's memory; what is behind it. */
typedef struct tables {
    table of[MICA_SPATIAL_DIMS];
    resize_lanes lanes;
    unsigned char *rest;
} tables;

static unsigned char *aligned(unsigned char *at)
{
    return (unsigned char *)(((uintptr_t)at + 63) / 64 * 64);
}

/* In front stands how many taps the table by lanes has. */
static tables tables_of(const mica__cpu_args *args)
{
    const mica__cpu_resize *p = args->params;
    unsigned char *at = args->local;
    tables t;
    memcpy(&t.lanes.taps, at, sizeof t.lanes.taps);
    at += sizeof t.lanes.taps;
    for (uint32_t d = 0; d < MICA_SPATIAL_DIMS; d++) {
        t.of[d].begin = (uint64_t *)(void *)at;
        t.of[d].entry = (mica__resize_entry *)(void *)(t.of[d].begin + p->frames.grid[1][d] + 1);
        at += mica__resize_table_bytes(p, d);
    }
    const uint64_t parts = (p->frames.grid[1][2] + VW - 1) / VW * t.lanes.taps;
    t.lanes.weight = (float *)(void *)aligned(at);
    t.lanes.place = (uint32_t *)(void *)(t.lanes.weight + parts * VW);
    t.lanes.first = t.lanes.place + parts * VW;
    t.lanes.how = t.lanes.first + parts;
    t.rest = aligned((unsigned char *)(t.lanes.how + parts));
    return t;
}

/* The most entries that a place has; 0 where the table by lanes has no room for as many. */
static uint64_t lane_taps(const mica__cpu_resize *p, const table *last)
{
    uint64_t taps = 0;
    for (uint64_t i = 0; i < p->frames.grid[1][2]; i++)
        taps = last->begin[i + 1] - last->begin[i] > taps ? last->begin[i + 1] - last->begin[i] : taps;
    return taps <= p->taps ? taps : 0;
}

/* ---- a row of the frame that is written: rows of what is read, by their weights, then entries of the last dimension ---- */

static void sum_rows(const mica__cpu_resize *p, const tables *t, const mica__cpu_view *view,
                     const unsigned char *read, uint64_t z, uint64_t y, float *sums, float *tmp)
{
    const uint64_t n = p->frames.grid[0][2], *step = p->frames.step[0];
    const float *row[MICA__CPU_RESIZE_ROWS];
    float weight[MICA__CPU_RESIZE_ROWS];
    uint32_t rows = 0;
    bool first = true;
    for (uint64_t a = t->of[0].begin[z]; a < t->of[0].begin[z + 1]; a++)
        for (uint64_t b = t->of[1].begin[y]; b < t->of[1].begin[y + 1]; b++) {
            const mica__resize_entry *ez = &t->of[0].entry[a], *ey = &t->of[1].entry[b];
            weight[rows] = (float)(ez->weight * ey->weight);
            row[rows] = row_f32_strided(read + ez->place * step[0] + ey->place * step[1], view->dtype,
                                        step[2], n, tmp + rows * n);
            if (++rows < MICA__CPU_RESIZE_ROWS)
                continue;
            resize_add_rows(row, weight, rows, first, n, sums);
            rows = 0;
            first = false;
        }
    if (rows > 0)
        resize_add_rows(row, weight, rows, first, n, sums);
    else if (first)
        memset(sums, 0, n * sizeof *sums);
}

static void put_entries(const table *last, const float *sums, uint64_t n, float *out)
{
    for (uint64_t x = 0; x < n; x++) {
        out[x] = 0;
        for (uint64_t e = last->begin[x]; e < last->begin[x + 1]; e++)
            out[x] += (float)last->entry[e].weight * sums[last->entry[e].place];
    }
}

static void put_places(const mica__cpu_resize *p, const tables *t, const mica__cpu_view *view,
                       const float *sums, unsigned char *to, float *out)
{
    const uint64_t n = p->frames.grid[1][2], step = p->frames.step[1][2];
    float *at = view->dtype == MICA_DTYPE_F32 && step == sizeof(float) ? (float *)(void *)to : out;
    if (t->lanes.taps > 0)
        resize_put_row(&t->lanes, sums, n, at);
    else
        put_entries(&t->of[2], sums, n, at);
    if (at == out)
        row_store_strided(to, view->dtype, step, out, n);
}

/* A row of the frame that is written. */
typedef struct unit {
    uint64_t frame, z, y;
} unit;

static void next_unit(const mica__cpu_resize *p, unit *u)
{
    const uint64_t *grid = p->frames.grid[1];
    if (++u->y < grid[1])
        return;
    u->y = 0;
    if (++u->z < grid[0])
        return;
    u->z = 0;
    u->frame++;
}

/* All sums first: what was just stored is not there yet for loads that begin elsewhere in it. */
static void resize_batch(const mica__cpu_args *args, const tables *t, uint64_t rows, unit *u)
{
    const mica__cpu_resize *p = args->params;
    const mica__frames *f = &p->frames;
    const mica__cpu_view *from = &args->view[0], *to = &args->view[1];
    const uint64_t n = f->grid[0][2], apart = n + MICA__CPU_RESIZE_SLACK;
    float *sums = (float *)(void *)t->rest, *tmp = sums + p->batch * apart,
          *out = tmp + MICA__CPU_RESIZE_ROWS * n;
    unsigned char *row[MICA__CPU_RESIZE_BATCH];
    for (uint64_t r = 0; r < rows; r++, next_unit(p, u)) {
        row[r] = to->data + mica__frame_at(f, 1, u->frame) + u->z * f->step[1][0] + u->y * f->step[1][1];
        sum_rows(p, t, from, from->data + mica__frame_at(f, 0, u->frame), u->z, u->y, sums + r * apart, tmp);
    }
    for (uint64_t r = 0; r < rows; r++)
        put_places(p, t, to, sums + r * apart, row[r], out);
}

static void resize_row_wide(const mica__cpu_args *args, const tables *t, const unit *u)
{
    const mica__cpu_resize *p = args->params;
    const mica__frames *f = &p->frames;
    const mica__cpu_view *from = &args->view[0], *to = &args->view[1];
    const uint64_t n = f->grid[0][2];
    const unsigned char *read = from->data + mica__frame_at(f, 0, u->frame);
    double *sums = (double *)(void *)t->rest;
    memset(sums, 0, n * sizeof *sums);
    for (uint64_t a = t->of[0].begin[u->z]; a < t->of[0].begin[u->z + 1]; a++)
        for (uint64_t b = t->of[1].begin[u->y]; b < t->of[1].begin[u->y + 1]; b++) {
            const mica__resize_entry *ez = &t->of[0].entry[a], *ey = &t->of[1].entry[b];
            const unsigned char *row = read + ez->place * f->step[0][0] + ey->place * f->step[0][1];
            for (uint64_t i = 0; i < n; i++)
                sums[i] += ez->weight * ey->weight * load_double(row + i * f->step[0][2], from->dtype);
        }
    unsigned char *at =
        to->data + mica__frame_at(f, 1, u->frame) + u->z * f->step[1][0] + u->y * f->step[1][1];
    for (uint64_t x = 0; x < f->grid[1][2]; x++) {
        double sum = 0;
        for (uint64_t e = t->of[2].begin[x]; e < t->of[2].begin[x + 1]; e++)
            sum += t->of[2].entry[e].weight * sums[t->of[2].entry[e].place];
        put_row_double(at + x * f->step[1][2], to->dtype, 0, &sum, 1);
    }
}

/* ---- tables ---- */

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
    uint64_t taps = 0;
    memcpy(args->local, &taps, sizeof taps);
    tables t = tables_of(args);
    for (uint32_t d = 0; d < MICA_SPATIAL_DIMS; d++) {
        const int64_t read = (int64_t)p->frames.grid[0][d], written = (int64_t)p->frames.grid[1][d];
        const resize_axis r = {.n = p->backward != 0 ? written : read,
                               .m = p->backward != 0 ? read : written,
                               .mode = p->mode,
                               .corners = p->corners,
                               .antialias = p->antialias};
        (p->backward != 0 ? fill_backward : fill_forward)(&r, &t.of[d]);
    }
    taps = lane_taps(p, &t.of[2]);
    memcpy(args->local, &taps, sizeof taps);
    t = tables_of(args);
    resize_lanes_fill(&t.of[2], p->frames.grid[1][2], &t.lanes);
}

void MICA__ISA(resize)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_resize *p = args->params;
    const uint64_t *grid = p->frames.grid[1];
    const tables t = tables_of(args);
    unit u = {.frame = first / grid[1] / grid[0], .z = first / grid[1] % grid[0], .y = first % grid[1]};
    if (args->view[0].dtype == MICA_DTYPE_F64)
        for (uint64_t at = first; at < last; at++, next_unit(p, &u))
            resize_row_wide(args, &t, &u);
    else
        for (uint64_t at = first; at < last; at += p->batch)
            resize_batch(args, &t, last - at < p->batch ? last - at : p->batch, &u);
}
