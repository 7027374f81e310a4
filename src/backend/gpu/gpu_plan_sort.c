/* gpu_plan_sort.c - plans of argmax, scans and sorting: rows of the last dimension, long ones in parts. */
#include <string.h>

#include "backend/gpu/gpu_plan.h"
#include "base/status.h"

#define MOST_ROWS UINT32_MAX
#define MOST_LENGTH 0x7fffffffu /* of a row: parts and tiles of it are counted in 32 bits */
#define ENOUGH_GROUPS 1024u     /* from which on rows are not cut */

/* The numbers that argmax.kc and sort.kc have for types beside MK_F32, MK_F16 and MK_BF16. */
enum { TYPE_I32 = 3, TYPE_U32 = 4 };

static mica_status check(const mica__record *record, uint64_t rows, uint64_t n, bool wide)
{
    const uint16_t dtype = record->operand[0].dtype;
    if (dtype == MICA_DTYPE_I64 && !wide)
        return mica__fail(MICA_ERR_UNSUPPORTED, "%s: x is %s, which the cpu alone serves",
                          mica_op_name((mica_op)record->op), mica_dtype_name((mica_dtype)dtype));
    if (rows <= MOST_ROWS && n <= MOST_LENGTH)
        return MICA_OK;
    return mica__fail(MICA_ERR_UNSUPPORTED, "%s: %llu rows of %llu elements; 2^32 - 1 of 2^31 - 1 are served",
                      mica_op_name((mica_op)record->op), (unsigned long long)rows, (unsigned long long)n);
}

static uint32_t type_of(uint16_t dtype)
{
    return dtype == MICA_DTYPE_I32 ? TYPE_I32 : dtype == MICA_DTYPE_U32 ? TYPE_U32 : mica__gpu_type(dtype);
}

static uint64_t rows_of(const mica__operand *x)
{
    uint64_t rows = 1;
    for (uint32_t d = 0; d + 1 < x->ndim; d++)
        rows *= x->shape[d];
    return rows;
}

static uint64_t ceil_of(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}

/* The dimensions above the last of equally shaped views. */
static uint32_t set_shape(const mica__gpu_view *view, uint32_t *shape)
{
    for (uint32_t d = 0; d + 1 < view->ndim; d++)
        shape[d] = (uint32_t)view->shape[d];
    return view->ndim - 1;
}

static void set_strides(const mica__gpu_view *view, uint64_t *stride)
{
    memcpy(stride, view->stride, (view->ndim - 1) * sizeof *stride);
}

/* ---- argmax ---- */

#define PART 4096u        /* elements of a row that a group takes */
#define WHOLE (2u * PART) /* a row up to this length is not cut */

static mica_status plan_argmax(const mica__record *record, const mk_argmax_params *params, uint64_t rows,
                               mica__plan *plan)
{
    const uint64_t keys = rows * params->parts * sizeof(uint64_t);
    MICA__TRY(mica__gpu_plan_next(plan, "argmax/argmax", rows * params->parts));
    mica__gpu_plan_operand(plan, record, MICA__ARGMAX_X, 0);
    mica__gpu_plan_operand(plan, record, MICA__ARGMAX_IDS, 0);
    if (params->parts == 1)
        mica__gpu_plan_operand(plan, record, MICA__ARGMAX_IDS, 0);
    else
        mica__gpu_plan_scratch(plan, 0, keys, MICA_ACCESS_WRITE);
    mica__gpu_plan_params(plan, params, sizeof *params);
    if (params->parts == 1)
        return MICA_OK;
    MICA__TRY(mica__gpu_plan_next(plan, "argmax/join", rows));
    mica__gpu_plan_scratch(plan, 0, keys, MICA_ACCESS_READ);
    mica__gpu_plan_operand(plan, record, MICA__ARGMAX_IDS, 0);
    mica__gpu_plan_params(plan, params, sizeof *params);
    return MICA_OK;
}

static bool takes_four(const mk_argmax_params *params, const mica__operand *x)
{
    const uint64_t bytes = mica_dtype_block_bytes((mica_dtype)x->dtype);
    bool fine = mica__gpu_is_float(x->dtype) && params->n % 4 == 0 && params->x_step == bytes;
    for (uint32_t d = 0; d < params->outer; d++)
        fine = fine && params->x_stride[d] % (4 * bytes) == 0;
    return fine;
}

mica_status mica__gpu_plan_argmax(const mica__record *record, const mica__device_info *info, mica__plan *plan)
{
    const mica__operand *x = &record->operand[MICA__ARGMAX_X], *ids = &record->operand[MICA__ARGMAX_IDS];
    const mica_argmax_params *argmax = record->params;
    const uint64_t n = x->shape[x->ndim - 1], rows = rows_of(x);
    mica__gpu_view view[2] = {mica__gpu_view_of(x), mica__gpu_view_of(ids)};
    mk_argmax_params params;
    (void)info;
    MICA__TRY(check(record, rows, n, false));
    memset(&params, 0, sizeof params);
    view[1].ndim = view[0].ndim; /* along the row ids stands still */
    view[1].shape[view[0].ndim - 1] = n;
    view[1].stride[view[0].ndim - 1] = 0;
    mica__gpu_view_collapse(view, 2, 1);
    params.outer = set_shape(&view[0], params.shape);
    set_strides(&view[0], params.x_stride);
    set_strides(&view[1], params.ids_stride);
    params.x_step = view[0].stride[params.outer];
    params.n = (uint32_t)n;
    params.parts = n <= WHOLE ? 1 : (uint32_t)ceil_of(n, PART);
    params.part = n <= WHOLE ? WHOLE : PART;
    params.x_type = type_of(x->dtype);
    params.least = argmax->least;
    params.four = takes_four(&params, x);
    return plan_argmax(record, &params, rows, plan);
}

/* ---- scan ---- */

#define LEAST_LANES 8u
#define SCAN_PART_TILES 4u /* that a group takes of a row in parts, at the least */

/* As reduce.kc has it. */
static uint32_t scan_type(uint16_t dtype)
{
    return dtype == MICA_DTYPE_I64   ? 8
           : dtype == MICA_DTYPE_I32 ? 4
           : dtype == MICA_DTYPE_U32 ? 5
                                     : mica__gpu_type(dtype);
}

/* The result over nothing, as a register. */
static uint64_t scan_first(uint32_t kind, uint16_t dtype)
{
    const bool real = mica__gpu_is_float(dtype);
    switch (kind) {
    case MICA_SCAN_PROD: return real ? 0x3f800000u : 1;
    case MICA_SCAN_MAX:
        return real                      ? 0xff800000u
               : dtype == MICA_DTYPE_I64 ? (uint64_t)INT64_MIN
               : dtype == MICA_DTYPE_I32 ? (uint64_t)(int64_t)INT32_MIN
                                         : 0;
    case MICA_SCAN_MIN:
        return real                      ? 0x7f800000u
               : dtype == MICA_DTYPE_I64 ? (uint64_t)INT64_MAX
               : dtype == MICA_DTYPE_I32 ? (uint64_t)INT32_MAX
                                         : UINT32_MAX;
    default: return 0;
    }
}

/* How many work-items a row gets, and parts where there are few rows. */
static void cut_scan(const mica__gpu_view *x, mk_scan_params *p)
{
    p->across = p->outer > 0 && x->stride[p->outer - 1] < x->stride[p->outer];
    p->lanes = LEAST_LANES;
    while (p->lanes < MICA__MK_WG && p->lanes * MK_SCAN_ITEMS < p->n && (!p->across || p->rows < 4096))
        p->lanes *= 2;
    p->parts = 1;
    p->part = p->n;
    const uint32_t tile = MICA__MK_WG * MK_SCAN_ITEMS;
    const uint64_t tiles = ceil_of(p->n, tile);
    if (p->lanes < MICA__MK_WG || p->rows >= ENOUGH_GROUPS || tiles < 2 * SCAN_PART_TILES)
        return;
    uint64_t parts = ceil_of(ENOUGH_GROUPS, p->rows), most = tiles / SCAN_PART_TILES;
    parts = parts < most ? parts : most;
    p->part = (uint32_t)ceil_of(tiles, parts) * tile;
    p->parts = (uint32_t)ceil_of(p->n, p->part);
    p->across = 0;
}

static void add_scan(const mica__record *record, const mk_scan_params *p, mica__plan *plan)
{
    const mica_scan_params *scan = record->params;
    mica__gpu_plan_constant(plan, "KIND", scan->kind);
    mica__gpu_plan_constant(plan, "R", mica__gpu_is_float(record->operand[MICA__SCAN_X].dtype) ? 1 : 3);
    mica__gpu_plan_params(plan, p, sizeof *p);
}

static mica_status plan_scan(const mica__record *record, const mk_scan_params *p, mica__plan *plan)
{
    const uint64_t totals = (uint64_t)p->rows * p->parts * sizeof(uint64_t);
    if (p->parts > 1) {
        MICA__TRY(mica__gpu_plan_next(plan, "scan/totals", (uint64_t)p->rows * p->parts));
        mica__gpu_plan_operand(plan, record, MICA__SCAN_X, 0);
        mica__gpu_plan_scratch(plan, 0, totals, MICA_ACCESS_WRITE);
        add_scan(record, p, plan);
    }
    const uint64_t rows = MICA__MK_WG / p->lanes;
    MICA__TRY(mica__gpu_plan_next(plan, "scan/scan", ceil_of(p->rows, rows) * p->parts));
    mica__gpu_plan_operand(plan, record, MICA__SCAN_X, 0);
    mica__gpu_plan_operand(plan, record, MICA__SCAN_Y, 0);
    if (p->parts > 1)
        mica__gpu_plan_scratch(plan, 0, totals, MICA_ACCESS_READ);
    else
        mica__gpu_plan_operand(plan, record, MICA__SCAN_X, 0);
    add_scan(record, p, plan);
    return MICA_OK;
}

mica_status mica__gpu_plan_scan(const mica__record *record, const mica__device_info *info, mica__plan *plan)
{
    const mica__operand *x = &record->operand[MICA__SCAN_X], *y = &record->operand[MICA__SCAN_Y];
    const mica_scan_params *scan = record->params;
    mica__gpu_view view[2] = {mica__gpu_view_of(x), mica__gpu_view_of(y)};
    mk_scan_params p;
    (void)info;
    MICA__TRY(check(record, rows_of(x), x->shape[x->ndim - 1], true));
    memset(&p, 0, sizeof p);
    mica__gpu_view_collapse(view, 2, 1);
    p.outer = set_shape(&view[0], p.shape);
    set_strides(&view[0], p.x_stride);
    set_strides(&view[1], p.y_stride);
    p.x_step = view[0].stride[p.outer];
    p.y_step = view[1].stride[p.outer];
    p.first = scan_first(scan->kind, x->dtype);
    p.rows = (uint32_t)rows_of(x);
    p.n = (uint32_t)x->shape[x->ndim - 1];
    p.exclusive = scan->exclusive;
    p.reverse = scan->reverse;
    p.x_type = scan_type(x->dtype);
    p.y_type = scan_type(y->dtype);
    cut_scan(&view[0], &p);
    return plan_scan(record, &p, plan);
}

/* ---- sort ---- */

/* The runs that a pass over `runs` of `run` elements makes. */
static void next_runs(mk_sort_params *p)
{
    const uint64_t both = 2ull * p->run, last = p->runs % 2 != 0 ? p->last : (uint64_t)p->run + p->last;
    p->next = (uint32_t)(both < p->k ? both : p->k);
    p->next_last = (uint32_t)(last < p->k ? last : p->k);
    p->tiles = (uint32_t)ceil_of(p->runs > 2 ? p->next : p->next_last, MK_SORT_TILE);
}

static void take_runs(mk_sort_params *p)
{
    p->run = p->next;
    p->last = p->next_last;
    p->runs = (p->runs + 1) / 2;
}

/* Keys of both halves of the scratch: passes go to and fro. */
static mica_status plan_sort(const mica__record *record, mk_sort_params *p, mica__plan *plan)
{
    const uint64_t keys = p->rows * p->row_keys * sizeof(uint64_t), half = ceil_of(keys, 64) * 64;
    uint64_t from = 0;
    MICA__TRY(mica__gpu_plan_next(plan, "sort/tiles", ceil_of(p->rows, MK_SORT_TILE / p->slots) * p->runs));
    mica__gpu_plan_operand(plan, record, MICA__SORT_X, 0);
    mica__gpu_plan_scratch(plan, from, keys, MICA_ACCESS_WRITE);
    mica__gpu_plan_params(plan, p, sizeof *p);
    p->run = p->next;
    p->last = p->next_last;
    while (p->runs > 1) {
        next_runs(p);
        MICA__TRY(
            mica__gpu_plan_next(plan, "sort/merge", (uint64_t)p->rows * ((p->runs + 1) / 2) * p->tiles));
        mica__gpu_plan_scratch(plan, from, keys, MICA_ACCESS_READ);
        mica__gpu_plan_scratch(plan, half - from, keys, MICA_ACCESS_WRITE);
        mica__gpu_plan_params(plan, p, sizeof *p);
        take_runs(p);
        from = half - from;
    }
    p->tiles = (uint32_t)ceil_of(p->k, MICA__MK_WG);
    MICA__TRY(mica__gpu_plan_next(plan, "sort/put", (uint64_t)p->rows * p->tiles));
    mica__gpu_plan_operand(plan, record, MICA__SORT_X, 0);
    mica__gpu_plan_scratch(plan, from, keys, MICA_ACCESS_READ);
    mica__gpu_plan_operand(plan, record, MICA__SORT_VALUES, 0);
    mica__gpu_plan_operand(plan, record, MICA__SORT_IDS, 0);
    mica__gpu_plan_params(plan, p, sizeof *p);
    return MICA_OK;
}

static void set_views(const mica__record *record, mk_sort_params *p)
{
    const mica__operand *x = &record->operand[MICA__SORT_X];
    const mica__gpu_view view = mica__gpu_view_of(x);
    p->outer = set_shape(&view, p->shape);
    set_strides(&view, p->x_stride);
    p->x_step = view.stride[p->outer];
    if (mica__operand_present(&record->operand[MICA__SORT_VALUES])) {
        const mica__gpu_view values = mica__gpu_view_of(&record->operand[MICA__SORT_VALUES]);
        set_strides(&values, p->values_stride);
        p->values_step = values.stride[p->outer];
        p->has_values = 1;
        p->k = (uint32_t)values.shape[p->outer];
    }
    if (mica__operand_present(&record->operand[MICA__SORT_IDS])) {
        const mica__gpu_view ids = mica__gpu_view_of(&record->operand[MICA__SORT_IDS]);
        set_strides(&ids, p->ids_stride);
        p->ids_step = ids.stride[p->outer];
        p->has_ids = 1;
        p->k = (uint32_t)ids.shape[p->outer];
    }
}

mica_status mica__gpu_plan_sort(const mica__record *record, const mica__device_info *info, mica__plan *plan)
{
    const mica__operand *x = &record->operand[MICA__SORT_X];
    const mica_sort_params *sort = record->params;
    const uint64_t n = x->shape[x->ndim - 1], rows = rows_of(x);
    mk_sort_params p;
    (void)info;
    MICA__TRY(check(record, rows, n, false));
    memset(&p, 0, sizeof p);
    set_views(record, &p);
    p.rows = (uint32_t)rows;
    p.n = (uint32_t)n;
    p.type = type_of(x->dtype);
    p.descending = sort->descending;
    p.runs = (uint32_t)ceil_of(n, MK_SORT_TILE);
    p.slots = 2;
    while (p.slots < n && p.slots < MK_SORT_TILE)
        p.slots *= 2;
    const uint64_t rest = n - (uint64_t)(p.runs - 1) * MK_SORT_TILE;
    p.next = p.k < MK_SORT_TILE ? p.k : MK_SORT_TILE;
    p.next_last = rest < p.next ? (uint32_t)rest : p.next;
    p.row_keys = (uint64_t)(p.runs - 1) * p.next + p.next_last;
    return plan_sort(record, &p, plan);
}
