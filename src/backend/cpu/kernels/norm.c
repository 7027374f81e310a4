/*
 * norm.c - rms_norm with what fusion may put around it: s = x + residual, n = s / rms(s) * weight * mul + add.
 *
 * Each step rounds to f32 as the separate ops would, so that a fused record has the bits of its parts where
 * they pass f32 on.
 */
#include "backend/cpu/cpu_params.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/rows.h"
#include "backend/cpu/kernels/walk.h"

/* Where a thread works: three rows of f32. */
typedef struct norm_rows {
    float *weight, *work, *other;
    uint64_t n;
} norm_rows;

/* The row of view v as f32, NULL if it is absent. */
static inline const float *row_of(const walk *w, uint32_t v, uint64_t n, float *tmp)
{
    const unsigned char *at = walk_at(w, v);
    const mica__cpu_view *view = &w->view[v];
    return at != NULL ? row_f32_strided(at, view->dtype, view->stride[view->ndim - 1], n, tmp) : NULL;
}

static void norm_row(const walk *w, const norm_rows *rows, const float *weight, float eps)
{
    const uint64_t n = rows->n;
    const mica__cpu_view *y = &w->view[MICA__NORM_Y], *sum = &w->view[MICA__NORM_SUM];
    const float *s = row_of(w, MICA__NORM_X, n, rows->work);
    const float *residual = row_of(w, MICA__NORM_RESIDUAL, n, rows->other);
    unsigned char *sum_to = walk_at(w, MICA__NORM_SUM);
    if (residual != NULL) {
        float *added = sum_to != NULL && sum->dtype == MICA_DTYPE_F32 ? (float *)(void *)sum_to : rows->work;
        row_add(s, residual, n, added);
        s = added;
    }
    if (sum_to != NULL)
        row_store(sum_to, sum->dtype, s, n);
    /* y itself may serve as the place of work only if no later read comes from it. */
    unsigned char *to = walk_at(w, MICA__NORM_Y);
    const bool plain = w->view[MICA__NORM_MUL].data == NULL && w->view[MICA__NORM_ADD].data == NULL;
    float *result = plain && y->dtype == MICA_DTYPE_F32 ? (float *)(void *)to : rows->work;
    row_rms_norm(s, weight, eps, n, result);
    const float *mul = row_of(w, MICA__NORM_MUL, n, rows->other);
    if (mul != NULL)
        row_mul(result, mul, n, result);
    const float *add = row_of(w, MICA__NORM_ADD, n, rows->other);
    if (add != NULL)
        row_add(result, add, n, result);
    row_store(to, y->dtype, result, n);
}

void MICA__ISA(rms_norm)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_row_params *params = args->params;
    const mica__cpu_view *x = &args->view[MICA__NORM_X], *weight = &args->view[MICA__NORM_WEIGHT];
    const uint64_t n = x->shape[x->ndim - 1], end = mica__cpu_rows_end(&params->range, last);
    float *local = args->local;
    const norm_rows rows = {local, local + n, local + 2 * n, n};
    uint64_t row = mica__cpu_rows_begin(&params->range, first);
    walk w;
    walk_begin(&w, args->view, MICA__NORM_SLOTS, x->ndim - 1u, row);
    const float *scales = NULL;
    if (weight->data != NULL)
        scales =
            row_f32_strided(weight->data, weight->dtype, weight->stride[weight->ndim - 1], n, rows.weight);
    for (; row < end; row++, walk_next(&w))
        norm_row(&w, &rows, scales, params->value);
}
