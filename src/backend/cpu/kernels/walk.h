/*
 * walk.h - goes through the rows of several views of one shape together.
 *
 * The plan has given all views the same number of dimensions and the shape of the first; a view that does not
 * vary along a dimension has stride 0 there.
 */
#ifndef MICA_CPU_WALK_H
#define MICA_CPU_WALK_H

#include "backend/cpu/cpu_kernel.h"

#define WALK_VIEWS 24

typedef struct walk {
    const mica__cpu_view *view;
    uint32_t count, ndim;
    uint64_t index[MICA_MAX_DIMS], offset[WALK_VIEWS];
} walk;

/* Stands at row `row` of the first `ndim` dimensions. */
static inline void walk_begin(walk *w, const mica__cpu_view *view, uint32_t count, uint32_t ndim,
                              uint64_t row)
{
    w->view = view;
    w->count = count;
    w->ndim = ndim;
    for (uint32_t d = ndim; d-- > 0;) {
        w->index[d] = row % view->shape[d];
        row /= view->shape[d];
    }
    for (uint32_t v = 0; v < count; v++) {
        uint64_t offset = 0;
        for (uint32_t d = 0; d < ndim; d++)
            offset += w->index[d] * view[v].stride[d];
        w->offset[v] = offset;
    }
}

static inline void walk_next(walk *w)
{
    for (uint32_t d = w->ndim; d-- > 0;) {
        for (uint32_t v = 0; v < w->count; v++)
            w->offset[v] += w->view[v].stride[d];
        if (++w->index[d] < w->view->shape[d])
            return;
        w->index[d] = 0;
        for (uint32_t v = 0; v < w->count; v++)
            w->offset[v] -= w->view->shape[d] * w->view[v].stride[d];
    }
}

/* First byte of the row of view v, NULL if the view is absent. */
static inline unsigned char *walk_at(const walk *w, uint32_t v)
{
    return w->view[v].data != NULL ? w->view[v].data + w->offset[v] : NULL;
}

#endif
