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

/* n elements that have an id each. */
static void gather_each(const mica__cpu_args *args, const unsigned char *from, const unsigned char *ids,
                        unsigned char *to, uint64_t n)
{
    const mica__cpu_gather *params = args->params;
    const mica__cpu_view *view = args->view;
    const uint32_t last = view->ndim - 1u, bytes = params->element_bytes;
    const int64_t x_stride = (int64_t)view[X].stride[last], y_stride = (int64_t)view[Y].stride[last];
    for (uint64_t k = 0; k < n; k++) {
        const uint32_t id = id_at(ids + k * view[IDS].stride[last]);
        if (id < params->count) {
            move_places(to + (int64_t)k * y_stride, y_stride,
                        from + (int64_t)k * x_stride + id * params->x_step, x_stride, bytes, 1);
        } else {
            fill_places(to + (int64_t)k * y_stride, y_stride, 0, bytes, 1);
            if (params->quiet == 0)
                mica__cpu_fault(args);
        }
    }
}

static void gather_run(const mica__cpu_args *args, const unsigned char *from, const unsigned char *ids,
                       unsigned char *to, uint64_t n)
{
    const mica__cpu_gather *params = args->params;
    const mica__cpu_view *view = args->view;
    const uint32_t last = view->ndim - 1u, id = id_at(ids);
    const int64_t x_stride = (int64_t)view[X].stride[last], y_stride = (int64_t)view[Y].stride[last];
    if (id < params->count) {
        move_places(to, y_stride, from + id * params->x_step, x_stride, params->element_bytes, n);
    } else {
        fill_places(to, y_stride, 0, params->element_bytes, n);
        if (params->quiet == 0)
            mica__cpu_fault(args);
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
    uint64_t column = i % row;
    walk w;
    walk_begin(&w, view, 3, inner, i / row);
    while (i < end) {
        const uint64_t n = row - column < end - i ? row - column : end - i;
        const unsigned char *from = walk_at(&w, X) + column * view[X].stride[inner];
        const unsigned char *ids = walk_at(&w, IDS) + column * view[IDS].stride[inner];
        unsigned char *to = walk_at(&w, Y) + column * view[Y].stride[inner];
        if (view[IDS].stride[inner] == 0)
            gather_run(args, from, ids, to, n);
        else
            gather_each(args, from, ids, to, n);
        walk_next(&w);
        column = 0;
        i += n;
    }
}
