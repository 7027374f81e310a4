/*
 * scan.c - running sums, products, greatest and least along the last dimension.
 *
 * f32, f16 and bf16 go block by block: sums and extremes of a block in vectors, a tree in each and a carry from one to the next; blocks
 * are joined in f64. Products are made one after the other in f64, which holds what f32 would lose on the way. What a row gives does not
 * depend on how it is cut into parts.
 */
#include "backend/cpu/cpu_params_sort.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/reduce_number.h"
#include "backend/cpu/kernels/rows.h"
#include "backend/cpu/kernels/walk.h"

enum { X = MICA__SCAN_X, Y = MICA__SCAN_Y, TOTALS = MICA__SCAN_SLOTS };

#define BLOCK MICA__CPU_SCAN_BLOCK
#define PART MICA__CPU_SCAN_PART
#define TILE MICA__CPU_SCAN_TILE

static double nothing_of(uint32_t kind)
{
    return kind == MICA_SCAN_MAX    ? -(double)INFINITY
           : kind == MICA_SCAN_MIN  ? (double)INFINITY
           : kind == MICA_SCAN_PROD ? 1
                                    : 0;
}

static double joined(uint32_t kind, double a, double b)
{
    switch (kind) {
    case MICA_SCAN_MAX: return real_greatest(a, b);
    case MICA_SCAN_MIN: return real_least(a, b);
    case MICA_SCAN_PROD: return a * b;
    default: return a + b;
    }
}

/* ---- a block of f32: y[i] joins `before` and x[0] .. x[i]; gives the join of the block. y may be x ---- */

static inline vf sums_of(vf v)
{
    v = vf_add(v, vf_shift_up(v, vf_zero(), 1));
    v = vf_add(v, vf_shift_up(v, vf_zero(), 2));
    v = vf_add(v, vf_shift_up(v, vf_zero(), 4));
#if VW == 16
    v = vf_add(v, vf_shift_up(v, vf_zero(), 8));
#endif
    return v;
}

static double block_sums(const float *x, uint64_t n, double before, float *y)
{
    const vf base = vf_set1((float)before);
    vf carry = vf_zero();
    uint64_t i = 0;
    for (; i + VW <= n; i += VW) {
        const vf v = sums_of(vf_load(x + i));
        vf_store(y + i, vf_add(vf_add(v, carry), base));
        carry = vf_add(carry, vf_last(v));
    }
    if (i < n) {
        const vf v = sums_of(vf_load_n(x + i, n - i));
        vf_store_n(y + i, vf_add(vf_add(v, carry), base), n - i);
        carry = vf_add(carry, vf_last(v));
    }
    float total[VW];
    vf_store(total, carry);
    return (double)total[0];
}

static inline vf extremes_of(vf v, vf none, bool greatest)
{
#define EXTREME(a, b) (greatest ? vf_greatest(a, b) : vf_least(a, b))
    v = EXTREME(v, vf_shift_up(v, none, 1));
    v = EXTREME(v, vf_shift_up(v, none, 2));
    v = EXTREME(v, vf_shift_up(v, none, 4));
#if VW == 16
    v = EXTREME(v, vf_shift_up(v, none, 8));
#endif
    return v;
}

static inline double block_extremes(const float *x, uint64_t n, double before, float *y, bool greatest)
{
    const vf none = vf_set1(greatest ? -INFINITY : INFINITY);
    vf carry = vf_set1((float)before);
    for (uint64_t i = 0; i < n; i += VW) {
        const uint64_t left = n - i < VW ? n - i : VW;
        const vf v = left == VW ? vf_load(x + i) : vf_merge_n(vf_load_n(x + i, left), none, left);
        const vf all = extremes_of(v, none, greatest);
        vf_store_n(y + i, EXTREME(all, carry), left);
        carry = EXTREME(carry, vf_last(all));
    }
    float total[VW];
    vf_store(total, carry);
    return (double)total[0];
#undef EXTREME
}

/* Gives what joins `before` too: alone a block might be too great for f64. */
static double block_products(const float *x, uint64_t n, double before, float *y)
{
    for (uint64_t i = 0; i < n; i++) {
        before *= (double)row_element((const unsigned char *)(x + i), MICA_DTYPE_F32);
        const float rounded = (float)before;
        memcpy(y + i, &rounded, sizeof rounded);
    }
    return before;
}

static double block_of(uint32_t kind, const float *x, uint64_t n, double before, float *y)
{
    switch (kind) {
    case MICA_SCAN_MAX: return block_extremes(x, n, before, y, true);
    case MICA_SCAN_MIN: return block_extremes(x, n, before, y, false);
    case MICA_SCAN_PROD: return block_products(x, n, before, y);
    default: return block_sums(x, n, before, y);
    }
}

/* ---- rows of f32, f16, bf16 ---- */

static void reverse(const float *x, uint64_t n, float *y)
{
    for (uint64_t i = 0; i < n; i++)
        y[n - 1 - i] = row_element((const unsigned char *)(x + i), MICA_DTYPE_F32);
}

/* A row: n elements, `before` and `known` join what stands before the part and before the block in it. The thread's memory has two blocks, the second
 * with one more in front. */
typedef struct float_row {
    const mica_scan_params *scan;
    const mica__cpu_view *x, *y;
    const unsigned char *from;
    unsigned char *to; /* NULL: totals alone are wanted */
    uint64_t n;
    float *room;
} float_row;

/* Elements [k, k + n) counted from where the scan begins. */
static double scan_block(const float_row *r, uint64_t k, uint64_t n, double before)
{
    const uint64_t at = r->scan->reverse != 0 ? r->n - k - n : k;
    const uint64_t x_step = r->x->stride[r->x->ndim - 1], y_step = r->y->stride[r->y->ndim - 1];
    float *values = r->room, *results = r->room + BLOCK + 1;
    const float *x = row_f32_strided(r->from + at * x_step, r->x->dtype, x_step, n, values);
    if (r->to != NULL && r->y->dtype == MICA_DTYPE_F32 && y_step == sizeof(float) &&
        r->scan->exclusive == 0 && r->scan->reverse == 0)
        return block_of(r->scan->kind, x, n, before, (float *)(void *)(r->to + at * y_step));
    if (r->scan->reverse != 0) {
        reverse(x, n, results);
        memcpy(values, results, n * sizeof *values);
        x = values;
    }
    const double total = block_of(r->scan->kind, x, n, before, results);
    if (r->to == NULL)
        return total;
    results[-1] = (float)before;
    const float *y = r->scan->exclusive != 0 ? results - 1 : results;
    if (r->scan->reverse != 0) {
        reverse(y, n, values);
        y = values;
    }
    row_store_strided(r->to + at * y_step, r->y->dtype, y_step, y, n);
    return total;
}

/* Elements [begin, end) of a part. Gives their join; that of products with `before`. */
static double scan_part(const float_row *r, uint64_t begin, uint64_t end, double before)
{
    const uint32_t kind = r->scan->kind;
    double known = nothing_of(kind);
    for (uint64_t k = begin; k < end; k += BLOCK) {
        const uint64_t n = end - k < BLOCK ? end - k : BLOCK;
        if (kind == MICA_SCAN_PROD)
            known = before = scan_block(r, k, n, before);
        else
            known = joined(kind, known, scan_block(r, k, n, joined(kind, before, known)));
    }
    return known;
}

/* ---- f64 and integers, one after the other ---- */

static void scan_doubles(const float_row *r)
{
    const uint64_t x_step = r->x->stride[r->x->ndim - 1], y_step = r->y->stride[r->y->ndim - 1];
    double all = nothing_of(r->scan->kind);
    for (uint64_t k = 0; k < r->n; k++) {
        const uint64_t i = r->scan->reverse != 0 ? r->n - 1 - k : k;
        const double before = all;
        double value;
        memcpy(&value, r->from + i * x_step, sizeof value);
        all = joined(r->scan->kind, all, value);
        memcpy(r->to + i * y_step, r->scan->exclusive != 0 ? &before : &all, sizeof value);
    }
}

static uint32_t reduction_of(uint32_t kind)
{
    static const uint32_t kinds[] = {MICA_REDUCE_SUM, MICA_REDUCE_PROD, MICA_REDUCE_MAX, MICA_REDUCE_MIN};
    return kinds[kind];
}

static void scan_wholes(const float_row *r)
{
    const uint64_t x_step = r->x->stride[r->x->ndim - 1], y_step = r->y->stride[r->y->ndim - 1];
    const uint32_t kind = reduction_of(r->scan->kind);
    int64_t all = whole_nothing(kind, r->x->dtype);
    for (uint64_t k = 0; k < r->n; k++) {
        const uint64_t i = r->scan->reverse != 0 ? r->n - 1 - k : k;
        const int64_t before = all;
        all = whole_of(kind, all, whole_load(r->from + i * x_step, r->x->dtype));
        whole_store(r->to + i * y_step, r->y->dtype, r->scan->exclusive != 0 ? before : all);
    }
}

/* ---- kernels ---- */

static bool is_float(uint16_t dtype)
{
    return dtype == MICA_DTYPE_F32 || dtype == MICA_DTYPE_F16 || dtype == MICA_DTYPE_BF16;
}

static double total_at(const mica__cpu_args *args, uint64_t task)
{
    double total;
    memcpy(&total, args->view[TOTALS].data + task * sizeof total, sizeof total);
    return total;
}

/* A part of a row in parts, or all parts of a whole one. */
static void scan_floats(const mica__cpu_args *args, const float_row *r, uint64_t task)
{
    const mica__cpu_scan *p = args->params;
    const uint64_t part = task % p->parts, end = p->parts > 1 ? (part + 1) * PART : r->n;
    double before = nothing_of(p->scan.kind);
    for (uint64_t q = task - part; q < task; q++)
        before = joined(p->scan.kind, before, total_at(args, q));
    for (uint64_t k = part * PART; k < end && k < r->n; k += PART) {
        const double known = scan_part(r, k, r->n - k < PART ? r->n : k + PART, before);
        before = p->scan.kind == MICA_SCAN_PROD ? known : joined(p->scan.kind, before, known);
    }
}

static float_row row_of(const mica__cpu_args *args, uint64_t number)
{
    const mica__cpu_scan *p = args->params;
    const mica__cpu_view *x = &args->view[X], *y = &args->view[Y];
    const uint32_t inner = x->ndim - 1u;
    walk w;
    walk_begin(&w, args->view, MICA__SCAN_SLOTS, inner, number);
    return (float_row){&p->scan, x, y, walk_at(&w, X), walk_at(&w, Y), x->shape[inner], args->local};
}

void MICA__ISA(scan)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_scan *p = args->params;
    const uint64_t end = mica__cpu_rows_end(&p->range, last);
    const uint16_t dtype = args->view[X].dtype;
    for (uint64_t task = mica__cpu_rows_begin(&p->range, first); task < end; task++) {
        const float_row r = row_of(args, task / p->parts);
        if (is_float(dtype))
            scan_floats(args, &r, task);
        else if (dtype == MICA_DTYPE_F64)
            scan_doubles(&r);
        else
            scan_wholes(&r);
    }
}

void MICA__ISA(scan_totals)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_scan *p = args->params;
    const uint64_t end = mica__cpu_rows_end(&p->range, last);
    for (uint64_t task = mica__cpu_rows_begin(&p->range, first); task < end; task++) {
        float_row r = row_of(args, task / p->parts);
        const uint64_t k = task % p->parts * PART;
        r.to = NULL;
        const double total = scan_part(&r, k, r.n - k < PART ? r.n : k + PART, nothing_of(p->scan.kind));
        memcpy(args->view[TOTALS].data + task * sizeof total, &total, sizeof total);
    }
}

/* ---- rows side by side ---- */

static void next_of_columns(const mica_scan_params *scan, const float *x, uint64_t n, double *all, float *y)
{
#define COLUMNS(value)                                          \
    for (uint64_t c = 0; c < n; c++) {                          \
        const double before = all[c], v = (double)x[c];         \
        all[c] = value;                                         \
        y[c] = (float)(scan->exclusive != 0 ? before : all[c]); \
    }
    switch (scan->kind) {
    case MICA_SCAN_MAX: COLUMNS(real_greatest(before, v)) break;
    case MICA_SCAN_MIN: COLUMNS(real_least(before, v)) break;
    case MICA_SCAN_PROD: COLUMNS(before * v) break;
    default: COLUMNS(before + v)
    }
#undef COLUMNS
}

void MICA__ISA(scan_columns)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_scan *p = args->params;
    const mica__cpu_view *x = &args->view[X], *y = &args->view[Y];
    const uint32_t inner = x->ndim - 1u, across = inner - 1u;
    const uint64_t rows = x->shape[inner], end = mica__cpu_rows_end(&p->range, last);
    double *all = args->local;
    float *values = (float *)(void *)(all + TILE), *results = values + TILE;
    for (uint64_t task = mica__cpu_rows_begin(&p->range, first); task < end; task++) {
        const uint64_t column = task % p->tiles * TILE, left = x->shape[across] - column;
        const uint64_t n = left < TILE ? left : TILE;
        walk w;
        walk_begin(&w, args->view, MICA__SCAN_SLOTS, across, task / p->tiles);
        for (uint64_t c = 0; c < n; c++)
            all[c] = nothing_of(p->scan.kind);
        for (uint64_t k = 0; k < rows; k++) {
            const uint64_t i = p->scan.reverse != 0 ? rows - 1 - k : k;
            const unsigned char *from = walk_at(&w, X) + i * x->stride[inner] + column * x->stride[across];
            const float *row = row_f32(from, x->dtype, n, values);
            if (row != values)
                memcpy(values, row, n * sizeof *values); /* which may lie at any address */
            next_of_columns(&p->scan, values, n, all, results);
            row_store(walk_at(&w, Y) + i * y->stride[inner] + column * y->stride[across], y->dtype, results,
                      n);
        }
    }
}
