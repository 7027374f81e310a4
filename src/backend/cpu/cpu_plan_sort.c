/*
 * cpu_plan_sort.c - plans of scans and of what asks for an order. A unit is a row; few long rows are cut into parts, by shapes and strides alone,
 * so that every thread has some.
 */
#include "backend/cpu/cpu_plan.h"

#include "backend/cpu/cpu_params_sort.h"
#include "base/status.h"

#define FEW_ROWS 16u /* that may leave threads without work */

static uint64_t ceil_of(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}

/* Units are 32 bits wide; more rows than that share them. */
static mica__cpu_row_range range_of(uint64_t rows)
{
    return (mica__cpu_row_range){rows, 1 + rows / UINT32_MAX};
}

static uint64_t units_of(mica__cpu_row_range range)
{
    return ceil_of(range.rows, range.rows_per_unit);
}

static uint64_t rows_of(const mica__operand *x)
{
    uint64_t rows = 1;
    for (uint32_t d = 0; d + 1 < x->ndim; d++)
        rows *= x->shape[d];
    return rows;
}

static mica_status end(mica__plan *plan, const void *params, uint32_t size, uint64_t local, double unit_ns)
{
    mica__plan_dispatch *dispatch = &plan->dispatch[plan->dispatch_count - 1];
    if (local > UINT32_MAX)
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "%s on the cpu: a row needs %llu bytes of work memory; 4 GiB are served",
                          dispatch->kernel, (unsigned long long)local);
    mica__cpu_plan_params(plan, params, size);
    dispatch->local_bytes = (uint32_t)local;
    mica__cpu_plan_grain(dispatch, unit_ns);
    return MICA_OK;
}

/* ---- scan ---- */

#define SCAN_ROOM (2 * (MICA__CPU_SCAN_BLOCK + 1) * sizeof(float))
#define COLUMNS_ROOM (MICA__CPU_SCAN_TILE * (sizeof(double) + 2 * sizeof(float)))

static double scan_ns(const mica__operand *x, uint32_t kind)
{
    return mica__cpu_is_float(x->dtype) && kind != MICA_SCAN_PROD ? 0.3 : 1.5;
}

/* Shape and strides alone. */
static mica__cpu_view view_of(const mica__operand *operand)
{
    mica__cpu_view view = {.dtype = operand->dtype, .ndim = operand->ndim};
    for (uint32_t d = 0; d < operand->ndim; d++) {
        view.shape[d] = operand->shape[d];
        view.stride[d] = operand->stride[d];
    }
    return view;
}

/* Whether rows lie side by side: the dimension above the last is the contiguous one. */
static bool has_columns(const mica__cpu_view *view)
{
    const mica__cpu_view *x = &view[MICA__SCAN_X], *y = &view[MICA__SCAN_Y];
    if (!mica__cpu_is_float(x->dtype) || x->ndim < 2)
        return false;
    const uint32_t inner = x->ndim - 1u, across = inner - 1u;
    const uint64_t x_bytes = x->dtype == MICA_DTYPE_F32 ? 4 : 2, y_bytes = y->dtype == MICA_DTYPE_F32 ? 4 : 2;
    return x->stride[across] == x_bytes && y->stride[across] == y_bytes && x->stride[inner] > x_bytes &&
           y->stride[inner] > y_bytes;
}

static void begin_scan(const mica__record *record, const char *kernel, mica__cpu_row_range range,
                       mica__plan *plan)
{
    mica__cpu_plan_next(plan, kernel, units_of(range));
    mica__cpu_plan_operands(plan, record, MICA__SCAN_SLOTS);
    mica__cpu_view_collapse(mica__cpu_plan_views(plan), MICA__SCAN_SLOTS, 1);
}

/* Two dispatches: what each part gives by itself, then the parts with what stands before them. */
static mica_status plan_parts(const mica__record *record, mica__cpu_scan params, mica__plan *plan)
{
    const mica__operand *x = &record->operand[MICA__SCAN_X];
    const double ns = 20 + scan_ns(x, params.scan.kind) * MICA__CPU_SCAN_PART;
    const uint64_t bytes = params.range.rows * sizeof(double);
    begin_scan(record, "scan_totals", params.range, plan);
    mica__cpu_plan_scratch(plan, 0, bytes, MICA_ACCESS_WRITE);
    MICA__TRY(end(plan, &params, sizeof params, SCAN_ROOM, ns));
    begin_scan(record, "scan", params.range, plan);
    mica__cpu_plan_scratch(plan, 0, bytes, MICA_ACCESS_READ);
    return end(plan, &params, sizeof params, SCAN_ROOM, ns);
}

mica_status mica__cpu_plan_scan(const mica__record *record, const mica__device_info *info, mica__plan *plan)
{
    const mica__operand *x = &record->operand[MICA__SCAN_X];
    const uint64_t n = x->shape[x->ndim - 1], rows = rows_of(x);
    mica__cpu_scan params = {range_of(rows), 1, 1, *(const mica_scan_params *)record->params};
    (void)info;
    mica__cpu_view view[MICA__SCAN_SLOTS] = {view_of(x), view_of(&record->operand[MICA__SCAN_Y])};
    mica__cpu_view_collapse(view, MICA__SCAN_SLOTS, 1);
    if (has_columns(view)) {
        const uint64_t columns = view->shape[view->ndim - 2];
        params.tiles = ceil_of(columns, MICA__CPU_SCAN_TILE);
        params.range = range_of(rows / columns * params.tiles);
        begin_scan(record, "scan_columns", params.range, plan);
        return end(plan, &params, sizeof params, COLUMNS_ROOM,
                   20 + 0.4 * (double)(n * (columns < MICA__CPU_SCAN_TILE ? columns : MICA__CPU_SCAN_TILE)));
    }
    if (mica__cpu_is_float(x->dtype) && params.scan.kind != MICA_SCAN_PROD && rows < FEW_ROWS &&
        n >= 2 * MICA__CPU_SCAN_PART) {
        params.parts = ceil_of(n, MICA__CPU_SCAN_PART);
        params.range = range_of(rows * params.parts);
        return plan_parts(record, params, plan);
    }
    begin_scan(record, "scan", params.range, plan);
    return end(plan, &params, sizeof params, SCAN_ROOM, 20 + scan_ns(x, params.scan.kind) * (double)n);
}

/* ---- argmax ---- */

mica_status mica__cpu_plan_argmax(const mica__record *record, const mica__device_info *info, mica__plan *plan)
{
    const mica__operand *x = &record->operand[MICA__ARGMAX_X];
    const mica_argmax_params *argmax = record->params;
    mica__cpu_argmax params = {range_of(rows_of(x)), *argmax};
    const uint64_t n = x->shape[x->ndim - 1];
    (void)info;
    mica__cpu_plan_next(plan, "argmax", units_of(params.range));
    mica__cpu_plan_operands(plan, record, MICA__ARGMAX_SLOTS);
    mica__cpu_view *view = mica__cpu_plan_views(plan), *ids = &view[MICA__ARGMAX_IDS];
    if (x->ndim == 1) /* ids is a scalar, which stands still */
        ids->ndim = 0;
    ids->shape[ids->ndim] = n;
    ids->stride[ids->ndim] = 0;
    ids->ndim++;
    mica__cpu_view_collapse(view, MICA__ARGMAX_SLOTS, 1);
    return end(plan, &params, sizeof params, 0, 20 + 0.1 * (double)n);
}

/* ---- sort ---- */

#define WHOLE_ROW (2u * MICA__CPU_SORT_PART) /* elements of a row that is not cut */
#define MOST_BEST 4096u /* results of a row whose parts are looked through for them alone */

/* Views of the record: x, values and ids with the rows of x. */
static void add_views(const mica__record *record, const char *kernel, mica__cpu_row_range range,
                      mica__plan *plan)
{
    mica__cpu_plan_next(plan, kernel, units_of(range));
    mica__cpu_plan_operands(plan, record, MICA__SORT_SLOTS);
    mica__cpu_view *view = mica__cpu_plan_views(plan);
    for (uint32_t v = 1; v < MICA__SORT_SLOTS; v++)
        if (!mica__operand_present(&record->operand[v])) {
            view[v].ndim = view->ndim;
            for (uint32_t d = 0; d < view->ndim; d++) {
                view[v].shape[d] = view->shape[d];
                view[v].stride[d] = 0;
            }
        }
}

static mica_status plan_best(const mica__record *record, mica__cpu_sort params, uint64_t rows,
                             mica__plan *plan)
{
    const uint64_t bytes = rows * params.parts * params.k * params.element_bytes;
    params.range = range_of(rows * params.parts);
    add_views(record, "sort_best", params.range, plan);
    mica__cpu_plan_scratch(plan, 0, bytes, MICA_ACCESS_WRITE);
    MICA__TRY(end(plan, &params, sizeof params, MICA__CPU_SORT_PART * params.element_bytes,
                  4.0 * MICA__CPU_SORT_PART));
    params.range = range_of(rows);
    add_views(record, "sort_join", params.range, plan);
    mica__cpu_plan_scratch(plan, 0, bytes, MICA_ACCESS_READ);
    return end(plan, &params, sizeof params, 2 * params.parts * params.k * params.element_bytes,
               8.0 * (double)(params.parts * params.k));
}

/* One digit: elements go from `from` to `to`, offsets in the scratch, where the counts lie too. */
static mica_status plan_pass(mica__cpu_sort params, uint64_t rows, uint64_t from, uint64_t to, uint64_t bytes,
                             uint64_t counts, mica__plan *plan)
{
    const uint64_t count_bytes = rows * params.parts * MICA__CPU_SORT_BINS * sizeof(uint32_t);
    params.range = range_of(rows * params.parts);
    mica__cpu_plan_next(plan, "sort_count", units_of(params.range));
    mica__cpu_plan_scratch(plan, from, bytes, MICA_ACCESS_READ);
    mica__cpu_plan_scratch(plan, counts, count_bytes, MICA_ACCESS_WRITE);
    MICA__TRY(end(plan, &params, sizeof params, 0, 0.7 * MICA__CPU_SORT_PART));
    params.range = range_of(rows);
    mica__cpu_plan_next(plan, "sort_places", units_of(params.range));
    mica__cpu_plan_scratch(plan, from, bytes, MICA_ACCESS_READ);
    mica__cpu_plan_scratch(plan, counts, count_bytes, MICA_ACCESS_READ | MICA_ACCESS_WRITE);
    MICA__TRY(end(plan, &params, sizeof params, 0, (double)(params.parts * MICA__CPU_SORT_BINS)));
    params.range = range_of(rows * params.parts);
    mica__cpu_plan_next(plan, "sort_move", units_of(params.range));
    mica__cpu_plan_scratch(plan, from, bytes, MICA_ACCESS_READ);
    mica__cpu_plan_scratch(plan, counts, count_bytes, MICA_ACCESS_READ);
    mica__cpu_plan_scratch(plan, to, bytes, MICA_ACCESS_WRITE);
    return end(plan, &params, sizeof params, 0, 2.0 * MICA__CPU_SORT_PART);
}

static uint64_t rounded(uint64_t bytes)
{
    return ceil_of(bytes, 64) * 64;
}

static mica_status plan_passes(const mica__record *record, mica__cpu_sort params, uint64_t rows,
                               mica__plan *plan)
{
    const uint32_t bits = mica__cpu_sort_key_bits(record->operand[MICA__SORT_X].dtype);
    const uint64_t bytes = rows * params.n * params.element_bytes, counts = 2 * rounded(bytes);
    uint64_t from = 0, to = rounded(bytes);
    params.range = range_of(rows * params.parts);
    add_views(record, "sort_keys", params.range, plan);
    mica__cpu_plan_scratch(plan, from, bytes, MICA_ACCESS_WRITE);
    MICA__TRY(end(plan, &params, sizeof params, 0, 1.0 * MICA__CPU_SORT_PART));
    for (params.shift = 0; params.shift < bits; params.shift += MICA__CPU_SORT_DIGIT) {
        MICA__TRY(plan_pass(params, rows, from, to, bytes, counts, plan));
        const uint64_t swapped = from;
        from = to;
        to = swapped;
    }
    add_views(record, "sort_put", params.range, plan);
    mica__cpu_plan_scratch(plan, from, bytes, MICA_ACCESS_READ);
    return end(plan, &params, sizeof params, 0, 2.0 * MICA__CPU_SORT_PART);
}

mica_status mica__cpu_plan_sort(const mica__record *record, const mica__device_info *info, mica__plan *plan)
{
    const mica__operand *x = &record->operand[MICA__SORT_X], *values = &record->operand[MICA__SORT_VALUES];
    const mica__operand *y = mica__operand_present(values) ? values : &record->operand[MICA__SORT_IDS];
    const mica_sort_params *sort = record->params;
    const uint64_t rows = rows_of(x), n = x->shape[x->ndim - 1];
    mica__cpu_sort params = {.range = range_of(rows),
                             .n = n,
                             .k = y->shape[y->ndim - 1],
                             .parts = ceil_of(n, MICA__CPU_SORT_PART),
                             .element_bytes = mica__cpu_sort_element_bytes(x->dtype),
                             .descending = sort->descending};
    (void)info;
    if (n > WHOLE_ROW && rows < FEW_ROWS)
        return params.k <= MOST_BEST ? plan_best(record, params, rows, plan)
                                     : plan_passes(record, params, rows, plan);
    add_views(record, "sort", params.range, plan);
    return end(plan, &params, sizeof params, 2 * n * params.element_bytes, 50 + 10.0 * (double)n);
}
