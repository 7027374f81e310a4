/* sort_rows.h - rows of a sort and their elements, of both widths (sort_elements.h). */
#ifndef MICA_CPU_SORT_ROWS_H
#define MICA_CPU_SORT_ROWS_H

#include "backend/cpu/kernels/sort/sort_keys.h"
#include "backend/cpu/kernels/walk.h"

/* A row of x and of the results; values or ids NULL: not asked for. Steps in bytes. */
typedef struct sort_row {
    const unsigned char *x;
    unsigned char *values, *ids;
    uint64_t x_step, values_step, ids_step, bytes;
    uint16_t dtype;
    bool descending;
} sort_row;

static inline sort_row sort_row_of(const mica__cpu_args *args, uint64_t number)
{
    const mica__cpu_sort *p = args->params;
    const mica__cpu_view *view = args->view;
    const uint32_t inner = view->ndim - 1u;
    walk w;
    walk_begin(&w, view, MICA__SORT_SLOTS, inner, number);
    return (sort_row){.x = walk_at(&w, MICA__SORT_X),
                      .values = walk_at(&w, MICA__SORT_VALUES),
                      .ids = walk_at(&w, MICA__SORT_IDS),
                      .x_step = view[MICA__SORT_X].stride[inner],
                      .values_step = view[MICA__SORT_VALUES].stride[inner],
                      .ids_step = view[MICA__SORT_IDS].stride[inner],
                      .bytes = value_bytes(view->dtype),
                      .dtype = view->dtype,
                      .descending = p->descending != 0};
}

static inline bool sort_is_wide(const sort_row *r)
{
    return r->bytes == 8;
}

#endif
