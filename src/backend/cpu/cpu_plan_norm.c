/*
 * cpu_plan_norm.c - plans of norms over any dimensions and of gradients: a unit is what is normalised together; sums over rows are cut by
 * their outputs.
 */
#include <string.h>

#include "backend/cpu/cpu_norm.h"
#include "backend/cpu/cpu_plan.h"
#include "base/status.h"

#define FEW_COLUMNS 8u /* outputs side by side that are better summed one by one */
#define TILE 64u       /* of them that are not */
#define TOGETHER 32u   /* rows whose gradients are added before those of others come in */
#define MANY_ROWS 128u /* from which on there are enough of such blocks for threads */

static uint64_t ceil_of(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}

static mica__cpu_row_range range_of(uint64_t rows)
{
    const mica__cpu_row_range range = {rows, 1 + rows / UINT32_MAX};
    return range;
}

static mica_status finish(mica__plan *plan, const void *params, uint32_t size, uint64_t local, double unit_ns)
{
    mica__plan_dispatch *dispatch = &plan->dispatch[plan->dispatch_count - 1];
    if (local > UINT32_MAX)
        return mica__fail(
            MICA_ERR_UNSUPPORTED,
            "%s on the cpu: what is normalised together needs %llu bytes of work memory; 4 GiB are served",
            dispatch->kernel, (unsigned long long)local);
    mica__cpu_plan_params(plan, params, size);
    dispatch->local_bytes = (uint32_t)local;
    mica__cpu_plan_grain(dispatch, unit_ns);
    return MICA_OK;
}

/* ---- rows ---- */

/* Statistics beside x: strides of their own along the first `outer` dimensions, none along the others. */
static void lift(mica__cpu_view *view, const mica__cpu_view *x, uint32_t outer)
{
    for (uint32_t d = 0; d < x->ndim; d++) {
        view->shape[d] = x->shape[d];
        view->stride[d] = view->dtype != MICA_DTYPE_NONE && d < outer ? view->stride[d] : 0;
    }
    view->ndim = x->ndim;
}

/* Whether dimensions d and d + 1 are one to all views. */
static bool are_one(const mica__cpu_view *view, uint32_t count, uint32_t d)
{
    bool one = true;
    for (uint32_t v = 0; v < count && view->shape[d] != 1 && view->shape[d + 1] != 1; v++)
        one = one && view[v].stride[d] == view[v].stride[d + 1] * view[v].shape[d + 1];
    return one;
}

static void join(mica__cpu_view *view, uint32_t count, uint32_t d)
{
    for (uint32_t v = 0; v < count; v++) {
        mica__cpu_view *at = &view[v];
        at->stride[d] = at->shape[d + 1] != 1 ? at->stride[d + 1] : at->stride[d];
        at->shape[d] *= at->shape[d + 1];
        for (uint32_t k = d + 1; k + 1 < at->ndim; k++) {
            at->shape[k] = at->shape[k + 1];
            at->stride[k] = at->stride[k + 1];
        }
        at->ndim--;
    }
}

/* Merges neighbours on either side of `outer`, of equally shaped views; gives what is left of it. */
static uint32_t merge(mica__cpu_view *view, uint32_t count, uint32_t outer)
{
    for (uint32_t d = 0; d + 1 < view->ndim;) {
        if (d + 1 == outer || !are_one(view, count, d)) {
            d++;
            continue;
        }
        join(view, count, d);
        outer -= d < outer;
    }
    return outer;
}

/* The rows of the dispatch being built, whose first `count` views have the shape of the first. */
static mica__cpu_normalize rows_of(mica__plan *plan, const mica_normalize_params *normalize, uint32_t count)
{
    mica__cpu_view *view = mica__cpu_plan_views(plan);
    mica__cpu_normalize params = {
        .lines = 1, .kind = normalize->kind, .eps = normalize->eps, .offset = normalize->offset};
    uint64_t rows = 1;
    params.outer = merge(view, count, view->ndim - normalize->dims);
    for (uint32_t d = 0; d < params.outer; d++)
        rows *= view->shape[d];
    for (uint32_t d = params.outer; d + 1u < view->ndim; d++)
        params.lines *= view->shape[d];
    params.line = view->shape[view->ndim - 1u];
    params.range = range_of(rows);
    return params;
}

static uint64_t row_count(const mica__operand *x, uint32_t dims)
{
    uint64_t rows = 1;
    for (uint32_t d = 0; d + dims < x->ndim; d++)
        rows *= x->shape[d];
    return rows;
}

static uint64_t bytes_of(const mica__operand *x)
{
    return x->dtype == MICA_DTYPE_F64 ? sizeof(double) : sizeof(float);
}

mica_status mica__cpu_plan_normalize(const mica__record *record, const mica__device_info *info,
                                     mica__plan *plan)
{
    const mica_normalize_params *normalize = record->params;
    const mica__operand *x = &record->operand[MICA__NORMALIZE_X];
    const uint32_t outer = x->ndim - normalize->dims;
    const mica__cpu_row_range range = range_of(row_count(x, normalize->dims));
    (void)info;
    mica__cpu_plan_next(plan, "normalize", ceil_of(range.rows, range.rows_per_unit));
    mica__cpu_plan_operands(plan, record, MICA__NORMALIZE_SLOTS);
    mica__cpu_view *view = mica__cpu_plan_views(plan);
    for (uint32_t v = 1; v < MICA__NORMALIZE_SLOTS; v++)
        if (v == MICA__NORMALIZE_MEAN || v == MICA__NORMALIZE_VAR)
            lift(&view[v], view, outer);
        else
            mica__cpu_view_expand(&view[v], view);
    const mica__cpu_normalize params = rows_of(plan, normalize, MICA__NORMALIZE_SLOTS);
    return finish(plan, &params, sizeof params, mica__cpu_normalize_bytes(&params, bytes_of(x)),
                  20 + 0.6 * (double)(params.lines * params.line));
}

/* ---- gradients ---- */

/* One dimension more of the sums. */
static void add_dim(mica__cpu_normalize_sums *p, const mica__cpu_view *view, uint32_t d, uint64_t row_step)
{
    const uint32_t at = p->ndim++;
    p->shape[at] = view[0].shape[d];
    p->x_stride[at] = view[0].stride[d];
    p->dy_stride[at] = view[1].stride[d];
    p->dweight_stride[at] = view[2].stride[d];
    p->dbias_stride[at] = view[3].stride[d];
    p->row_step[at] = row_step;
}

/* Kept are the dimensions that an output has; `view` are x, dy, dweight and dbias, the latter two expanded. */
static void sums_of(const mica__cpu_view *view, uint32_t outer, const mica__operand *output,
                    mica__cpu_normalize_sums *p)
{
    const uint32_t missing = view->ndim - output->ndim;
    uint64_t row_step[MICA_MAX_DIMS] = {0}, rows = 1;
    memset(p, 0, sizeof *p);
    for (uint32_t d = outer; d-- > 0; rows *= view->shape[d])
        row_step[d] = rows;
    for (uint32_t reduced = 0; reduced < 2; reduced++) {
        const uint32_t before = p->ndim;
        for (uint32_t d = 0; d < view->ndim; d++)
            if ((d < missing || output->shape[d - missing] == 1) == (reduced != 0))
                add_dim(p, view, d, row_step[d]);
        if (p->ndim == before) /* a dimension of one element */
            p->shape[p->ndim++] = 1;
        p->kept = reduced == 0 ? p->ndim : p->kept;
    }
    const uint64_t columns = p->shape[p->kept - 1];
    p->along = columns < FEW_COLUMNS || p->x_stride[p->ndim - 1] < p->x_stride[p->kept - 1];
    p->tile = p->along != 0 ? 1 : columns < TILE ? (uint32_t)columns : TILE;
    p->tiles = ceil_of(columns, p->tile);
    uint64_t tiles = p->tiles;
    for (uint32_t d = 0; d + 1 < p->kept; d++)
        tiles *= p->shape[d];
    p->range = range_of(tiles);
}

static mica_status plan_sums(const mica__record *record, uint64_t rows, mica__plan *plan)
{
    const mica_normalize_params *normalize = record->params;
    const mica__operand *x = &record->operand[MICA__NORMALIZE_BACKWARD_X],
                        *dweight = &record->operand[MICA__NORMALIZE_BACKWARD_DWEIGHT],
                        *dbias = &record->operand[MICA__NORMALIZE_BACKWARD_DBIAS];
    static const uint32_t slots[] = {MICA__NORMALIZE_BACKWARD_X, MICA__NORMALIZE_BACKWARD_DY,
                                     MICA__NORMALIZE_BACKWARD_DWEIGHT, MICA__NORMALIZE_BACKWARD_DBIAS};
    mica__cpu_normalize_sums params;
    mica__plan_dispatch *dispatch = mica__cpu_plan_next(plan, "normalize_sums", 1);
    for (uint32_t i = 0; i < 4; i++)
        mica__cpu_plan_operand(plan, record, slots[i], 0);
    mica__cpu_plan_scratch(plan, 0, rows * 2 * sizeof(double), MICA_ACCESS_READ);
    mica__cpu_view *view = mica__cpu_plan_views(plan);
    for (uint32_t v = 1; v < 4; v++)
        mica__cpu_view_expand(&view[v], view);
    sums_of(view, x->ndim - normalize->dims, mica__operand_present(dweight) ? dweight : dbias, &params);
    dispatch->groups[0] = (uint32_t)ceil_of(params.range.rows, params.range.rows_per_unit);
    double elements = 1;
    for (uint32_t d = 0; d < params.ndim; d++)
        elements *= (double)params.shape[d];
    return finish(plan, &params, sizeof params, MICA__CPU_NORM_LINE * 2 * (bytes_of(x) + sizeof(double)),
                  50 + elements / (double)params.range.rows);
}

/* Whether the output, if it is there, has one element for each that is normalised together, equally far apart, so that it is a sum over rows. */
static bool sums_rows(const mica__operand *x, const mica__operand *output, uint32_t outer)
{
    if (!mica__operand_present(output))
        return true;
    const uint32_t missing = x->ndim - output->ndim;
    uint64_t step = output->ndim > 0 ? output->stride[output->ndim - 1] : 0;
    for (uint32_t d = x->ndim; d-- > 0;) {
        const uint64_t size = d < missing ? 1 : output->shape[d - missing];
        if (size != (d < outer ? 1 : x->shape[d]))
            return false;
        if (size != 1 && output->stride[d - missing] != step)
            return false;
        step *= size;
    }
    return true;
}

/* How many rows are summed together on their way, 0: none, as their sums are others or they are few. */
static uint32_t rows_together(const mica__record *record, uint32_t outer, uint64_t rows)
{
    const mica__operand *x = &record->operand[MICA__NORMALIZE_BACKWARD_X],
                        *dweight = &record->operand[MICA__NORMALIZE_BACKWARD_DWEIGHT],
                        *dbias = &record->operand[MICA__NORMALIZE_BACKWARD_DBIAS];
    const bool wanted = mica__operand_present(dweight) || mica__operand_present(dbias);
    return wanted && rows >= MANY_ROWS && rows / TOGETHER < UINT32_MAX && sums_rows(x, dweight, outer) &&
                   sums_rows(x, dbias, outer)
               ? TOGETHER
               : 0;
}

static mica_status plan_totals(const mica__record *record, uint64_t blocks, uint64_t n, uint64_t bytes,
                               mica__plan *plan)
{
    static const uint32_t slots[] = {MICA__NORMALIZE_BACKWARD_DWEIGHT, MICA__NORMALIZE_BACKWARD_DBIAS};
    const uint64_t each = bytes_of(&record->operand[MICA__NORMALIZE_BACKWARD_X]);
    mica__cpu_normalize_totals params = {.n = n, .blocks = blocks, .wide = each == sizeof(double)};
    mica__cpu_plan_next(plan, "normalize_totals", ceil_of(n, MICA__CPU_NORM_LINE));
    for (uint32_t i = 0; i < 2; i++) {
        const mica__operand *output = &record->operand[slots[i]];
        mica__cpu_plan_operand(plan, record, slots[i], 0);
        for (uint32_t d = 0; mica__operand_present(output) && d < output->ndim; d++)
            if (output->shape[d] != 1) /* the last of them that varies */
                params.stride[i] = output->stride[d];
    }
    mica__cpu_plan_scratch(plan, 0, bytes, MICA_ACCESS_READ);
    return finish(plan, &params, sizeof params, MICA__CPU_NORM_LINE * (each + sizeof(double)),
                  50 + 0.5 * (double)(blocks * MICA__CPU_NORM_LINE));
}

mica_status mica__cpu_plan_normalize_backward(const mica__record *record, const mica__device_info *info,
                                              mica__plan *plan)
{
    const mica_normalize_params *normalize = record->params;
    const mica__operand *x = &record->operand[MICA__NORMALIZE_BACKWARD_X];
    const uint32_t count = MICA__NORMALIZE_BACKWARD_DX + 1, outer = x->ndim - normalize->dims;
    const uint64_t rows = row_count(x, normalize->dims), each = bytes_of(x);
    const uint32_t together = rows_together(record, outer, rows);
    uint64_t n = 1;
    (void)info;
    for (uint32_t d = outer; d < x->ndim; d++)
        n *= x->shape[d];
    mica__cpu_row_range range = range_of(rows);
    if (together != 0)
        range.rows_per_unit = together;
    const uint64_t units = ceil_of(range.rows, range.rows_per_unit),
                   bytes = together != 0 ? units * 2 * n * each : rows * 2 * sizeof(double);
    mica__cpu_plan_next(plan, "normalize_backward", units);
    mica__cpu_plan_operands(plan, record, count);
    mica__cpu_plan_scratch(plan, 0, bytes, MICA_ACCESS_WRITE);
    mica__cpu_view *view = mica__cpu_plan_views(plan);
    for (uint32_t v = 1; v < count; v++)
        mica__cpu_view_expand(&view[v], view);
    mica__cpu_normalize params = rows_of(plan, normalize, count);
    params.together = together;
    params.range = range;
    MICA__TRY(finish(plan, &params, sizeof params, mica__cpu_normalize_backward_bytes(&params, each),
                     (20 + 1.2 * (double)n) * (double)range.rows_per_unit));
    if (together != 0)
        return plan_totals(record, units, n, bytes, plan);
    if (!mica__operand_present(&record->operand[MICA__NORMALIZE_BACKWARD_DWEIGHT]) &&
        !mica__operand_present(&record->operand[MICA__NORMALIZE_BACKWARD_DBIAS]))
        return MICA_OK;
    return plan_sums(record, rows, plan);
}

mica_status mica__cpu_plan_softmax_backward(const mica__record *record, const mica__device_info *info,
                                            mica__plan *plan)
{
    const mica__operand *y = &record->operand[MICA__SOFTMAX_BACKWARD_Y];
    mica__cpu_softmax params = {range_of(row_count(y, 1)), *(const mica_softmax_params *)record->params};
    const uint64_t n = y->shape[y->ndim - 1];
    (void)info;
    mica__cpu_plan_next(plan, "softmax_backward", ceil_of(params.range.rows, params.range.rows_per_unit));
    mica__cpu_plan_operands(plan, record, MICA__SOFTMAX_BACKWARD_SLOTS);
    mica__cpu_view_collapse(mica__cpu_plan_views(plan), MICA__SOFTMAX_BACKWARD_SLOTS, 1);
    return finish(plan, &params, sizeof params, 2 * n * bytes_of(y), 20 + 0.6 * (double)n);
}

mica_status mica__cpu_plan_softmax_any(const mica__record *record, mica__plan *plan)
{
    const mica__operand *y = &record->operand[MICA__SOFTMAX_Y];
    mica__cpu_softmax params = {range_of(row_count(y, 1)), *(const mica_softmax_params *)record->params};
    const uint64_t n = y->shape[y->ndim - 1];
    mica__cpu_plan_next(plan, "softmax_any", ceil_of(params.range.rows, params.range.rows_per_unit));
    mica__cpu_plan_operands(plan, record, MICA__SOFTMAX_SLOTS);
    mica__cpu_view *view = mica__cpu_plan_views(plan);
    mica__cpu_view_expand(&view[MICA__SOFTMAX_MASK], &view[MICA__SOFTMAX_Y]);
    mica__cpu_view_collapse(view, MICA__SOFTMAX_SLOTS, 1);
    return finish(plan, &params, sizeof params, 2 * n * bytes_of(y), 20 + 5 * (double)n);
}
