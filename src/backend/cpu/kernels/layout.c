/*
 * layout.c - pads, and gathering by ids: elements of 1, 2, 4 or 8 bytes go from place to place in the longest runs that there are.
 *
 * The plan has merged dimensions that are one; a row is the last one.
 */
#include "backend/cpu/cpu_params.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/places.h"
#include "backend/cpu/kernels/walk.h"

/* ---- pad ---- */

/* Places of x that follow one another: from `at` on, `step` on each time; at -1: there are none, the constant is. */
typedef struct run {
    int64_t at, step;
    uint64_t length;
} run;

static int64_t modulo(int64_t a, int64_t n)
{
    const int64_t r = a % n;
    return r < 0 ? r + n : r;
}

/* Place p of a dimension of x of size n, where p may lie outside, and how long it goes on like that. */
static run run_at(uint32_t mode, int64_t p, int64_t n)
{
    const int64_t forever = INT64_MAX;
    if (p >= 0 && p < n)
        return (run){p, 1, (uint64_t)(n - p)};
    switch (mode) {
    case MICA_PAD_EDGE: return p < 0 ? (run){0, 0, (uint64_t)-p} : (run){n - 1, 0, (uint64_t)forever};
    case MICA_PAD_WRAP: {
        const int64_t q = modulo(p, n);
        return (run){q, 1, (uint64_t)(n - q)};
    }
    case MICA_PAD_SYMMETRIC: {
        const int64_t q = modulo(p, 2 * n);
        return q < n ? (run){q, 1, (uint64_t)(n - q)} : (run){2 * n - 1 - q, -1, (uint64_t)(2 * n - q)};
    }
    case MICA_PAD_REFLECT: {
        if (n == 1)
            return (run){0, 0, (uint64_t)forever};
        const int64_t q = modulo(p, 2 * (n - 1));
        return q < n - 1 ? (run){q, 1, (uint64_t)(n - 1 - q)}
                         : (run){2 * (n - 1) - q, -1, (uint64_t)(2 * (n - 1) - q)};
    }
    default: return (run){-1, 0, (uint64_t)(p < 0 ? -p : forever)};
    }
}

/* Columns [column, column + n) of a row of y, whose row of x begins at `from`; NULL: it has none. */
static void pad_row(const mica__cpu_pad *p, const mica__cpu_view *x, const unsigned char *from,
                    const mica__cpu_view *y, unsigned char *to, uint64_t column, uint64_t n)
{
    const uint32_t last = y->ndim - 1u;
    const int64_t x_stride = (int64_t)x->stride[last], y_stride = (int64_t)y->stride[last];
    while (n > 0) {
        run r = {-1, 0, n};
        if (from != NULL)
            r = run_at(p->mode, (int64_t)column - p->low[last], (int64_t)x->shape[last]);
        const uint64_t length = r.length < n ? r.length : n;
        if (r.at < 0)
            fill_places(to + (int64_t)column * y_stride, y_stride, p->bits, p->element_bytes, length);
        else
            move_places(to + (int64_t)column * y_stride, y_stride, from + r.at * x_stride, r.step * x_stride,
                        p->element_bytes, length);
        column += length;
        n -= length;
    }
}

/* The row of x that row `index` of y is of. */
static const unsigned char *row_of(const mica__cpu_pad *p, const mica__cpu_view *x, const uint64_t *index)
{
    uint64_t offset = 0;
    for (uint32_t d = 0; d + 1u < x->ndim; d++) {
        const run r = run_at(p->mode, (int64_t)index[d] - p->low[d], (int64_t)x->shape[d]);
        if (r.at < 0)
            return NULL;
        offset += (uint64_t)r.at * x->stride[d];
    }
    return x->data + offset;
}

void MICA__ISA(pad)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_pad *params = args->params;
    const mica__cpu_view *x = args->view, *y = x + 1;
    const uint64_t row = y->shape[y->ndim - 1];
    uint64_t i = (uint64_t)first * MICA__CPU_UNIT_ELEMENTS, end = (uint64_t)last * MICA__CPU_UNIT_ELEMENTS;
    end = end < params->elements ? end : params->elements;
    uint64_t column = i % row;
    walk w;
    walk_begin(&w, y, 1, y->ndim - 1u, i / row);
    while (i < end) {
        const uint64_t n = row - column < end - i ? row - column : end - i;
        pad_row(params, x, row_of(params, x, w.index), y, walk_at(&w, 0), column, n);
        walk_next(&w);
        column = 0;
        i += n;
    }
}

/* ---- gather ---- */

void MICA__ISA(fold_ids)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_fold *params = args->params;
    const mica__cpu_view *ids = args->view;
    const uint32_t inner = ids->ndim - 1u;
    uint64_t i = (uint64_t)first * MICA__CPU_UNIT_ELEMENTS, end = (uint64_t)last * MICA__CPU_UNIT_ELEMENTS;
    uint32_t *to = (uint32_t *)(void *)args->view[1].data;
    walk w;
    end = end < params->elements ? end : params->elements;
    walk_begin(&w, ids, 1, inner, i);
    for (; i < end; i++, walk_next(&w)) {
        const unsigned char *from = walk_at(&w, 0);
        uint32_t place = 0;
        for (uint32_t k = 0; k < params->components && place != MICA__FOLD_NOWHERE; k++) {
            const uint32_t id = id_at(from + k * ids->stride[inner]);
            place = id < params->size[k] ? place + id * params->step[k] : MICA__FOLD_NOWHERE;
        }
        if (place == MICA__FOLD_NOWHERE)
            mica__cpu_fault(args);
        to[i] = place;
    }
}

enum { X, IDS, Y };

/* n elements that have an id each; their size is a constant in each call of this. */
static inline void gather_each(const mica__cpu_args *args, const unsigned char *from,
                               const unsigned char *ids, unsigned char *to, size_t bytes, uint64_t n)
{
    const mica__cpu_gather *params = args->params;
    const mica__cpu_view *view = args->view;
    const uint32_t last = view->ndim - 1u;
    const int64_t x_stride = (int64_t)view[X].stride[last], y_stride = (int64_t)view[Y].stride[last],
                  ids_stride = (int64_t)view[IDS].stride[last];
    bool outside = false;
    for (int64_t k = 0; k < (int64_t)n; k++) {
        const uint32_t id = id_at(ids + k * ids_stride);
        if (id < params->count) {
            memcpy(to + k * y_stride, from + k * x_stride + id * params->x_step, bytes);
        } else {
            memset(to + k * y_stride, 0, bytes);
            outside = true;
        }
    }
    if (outside && params->quiet == 0)
        mica__cpu_fault(args);
}

static void gather_elements(const mica__cpu_args *args, const unsigned char *from, const unsigned char *ids,
                            unsigned char *to, uint64_t n)
{
    switch (((const mica__cpu_gather *)args->params)->element_bytes) {
    case 1: gather_each(args, from, ids, to, 1, n); break;
    case 2: gather_each(args, from, ids, to, 2, n); break;
    case 4: gather_each(args, from, ids, to, 4, n); break;
    default: gather_each(args, from, ids, to, 8, n);
    }
}

/* n elements that have one id; what lies at `next` comes meanwhile. */
static void gather_run(const mica__cpu_args *args, const unsigned char *from, uint32_t id, unsigned char *to,
                       uint64_t n, const unsigned char *next)
{
    const mica__cpu_gather *params = args->params;
    const mica__cpu_view *view = args->view;
    const uint32_t last = view->ndim - 1u, bytes = params->element_bytes;
    const int64_t x_stride = (int64_t)view[X].stride[last], y_stride = (int64_t)view[Y].stride[last];
    if (id >= params->count) {
        fill_places(to, y_stride, 0, bytes, n);
        if (params->quiet == 0)
            mica__cpu_fault(args);
    } else if (x_stride == (int64_t)bytes && y_stride == (int64_t)bytes) {
        move_ahead(to, from + id * params->x_step, n * bytes, next);
    } else {
        move_places(to, y_stride, from + id * params->x_step, x_stride, bytes, n);
    }
}

/* Rows that have an id each lie anywhere: what is asked for in time is the row `ahead` rows on, as many bytes as memory needs to answer. */
#define AHEAD 1024u
#define MOST_AHEAD 32u

/* A plane of rows: where those of x lie by themselves, by the place that an id adds. */
typedef struct plane {
    const unsigned char *from, *ids;
    unsigned char *to;
    uint64_t from_step, ids_step, to_step, x_step, count, lines, bytes; /* bytes: of a row */
} plane;

static const unsigned char *row_at(const plane *p, uint64_t line)
{
    const uint32_t id = id_at(p->ids + line * p->ids_step);
    return p->from + line * p->from_step + (id < p->count ? id : 0) * p->x_step;
}

/* Whole rows [line, end), side by side in both; ends before the first whose id leads outside. */
static uint64_t gather_lines(plane p, uint64_t line, uint64_t end)
{
    const uint64_t ahead = p.bytes >= AHEAD                ? 1
                           : p.bytes * MOST_AHEAD <= AHEAD ? MOST_AHEAD
                                                           : AHEAD / p.bytes;
    for (; line < end; line++) {
        const uint64_t next = line + ahead < p.lines ? line + ahead : line;
        const uint32_t id = id_at(p.ids + line * p.ids_step);
        if (id >= p.count)
            break;
        move_ahead(p.to + line * p.to_step, p.from + line * p.from_step + id * p.x_step, p.bytes,
                   row_at(&p, next));
    }
    return line;
}

/* Units cut rows where they end. */
static void gather_rows(const mica__cpu_args *args, uint64_t i, uint64_t end)
{
    const mica__cpu_gather *params = args->params;
    const mica__cpu_view *view = args->view;
    const uint32_t inner = view->ndim - 1u, outer = inner - 1u, bytes = params->element_bytes;
    const uint64_t row = view->shape[inner], lines = view->shape[outer];
    const bool together = view[X].stride[inner] == bytes && view[Y].stride[inner] == bytes;
    uint64_t column = i % row, line = i / row % lines;
    plane p = {.from_step = view[X].stride[outer],
               .ids_step = view[IDS].stride[outer],
               .to_step = view[Y].stride[outer],
               .x_step = params->x_step,
               .count = params->count,
               .lines = lines,
               .bytes = row * bytes};
    walk w;
    walk_begin(&w, view, 3, outer, i / row / lines);
    for (; i < end; walk_next(&w), line = 0) {
        p.from = walk_at(&w, X);
        p.ids = walk_at(&w, IDS);
        p.to = walk_at(&w, Y);
        while (line < lines && i < end) {
            const uint64_t whole = (end - i) / row < lines - line ? (end - i) / row : lines - line;
            const uint64_t done = together && column == 0 ? gather_lines(p, line, line + whole) : line;
            i += (done - line) * row;
            line = done;
            if (line == lines || i >= end)
                break;
            const uint64_t n = row - column < end - i ? row - column : end - i;
            const unsigned char *next = column + n < row   ? row_at(&p, line) + (column + n) * bytes
                                        : line + 1 < lines ? row_at(&p, line + 1)
                                                           : p.ids;
            gather_run(args, p.from + line * p.from_step + column * view[X].stride[inner],
                       id_at(p.ids + line * p.ids_step),
                       p.to + line * p.to_step + column * view[Y].stride[inner], n, next);
            i += n;
            line++;
            column = 0;
        }
    }
}

void MICA__ISA(gather)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_gather *params = args->params;
    const mica__cpu_view *view = args->view;
    const uint32_t inner = view->ndim - 1u;
    const uint64_t row = view->shape[inner];
    uint64_t i = (uint64_t)first * MICA__CPU_UNIT_ELEMENTS, end = (uint64_t)last * MICA__CPU_UNIT_ELEMENTS;
    end = end < params->elements ? end : params->elements;
    if (view[IDS].stride[inner] == 0 && inner > 0) {
        gather_rows(args, i, end);
        return;
    }
    uint64_t column = i % row;
    walk w;
    walk_begin(&w, view, 3, inner, i / row);
    while (i < end) {
        const uint64_t n = row - column < end - i ? row - column : end - i;
        const unsigned char *from = walk_at(&w, X) + column * view[X].stride[inner];
        const unsigned char *ids = walk_at(&w, IDS) + column * view[IDS].stride[inner];
        unsigned char *to = walk_at(&w, Y) + column * view[Y].stride[inner];
        if (view[IDS].stride[inner] == 0)
            gather_run(args, from, id_at(ids), to, n, from);
        else
            gather_elements(args, from, ids, to, n);
        walk_next(&w);
        column = 0;
        i += n;
    }
}
