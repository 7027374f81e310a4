/*
 * conform_sort.c - cases of scans, argmax and sorting: every type, rank and kind, any strides, rows of one and long ones, ties, NaN,
 * infinities and zeros of both signs.
 */
#include "conform/conform_op.h"
#include "conform/conform_rows.h"

#include <math.h>
#include <stdlib.h>

#include "oracle/oracle_ops.h"

enum { X, Y };
enum { SORT_X, SORT_VALUES, SORT_IDS };

static bool is_float(mica_dtype dtype)
{
    return dtype == MICA_DTYPE_F32 || dtype == MICA_DTYPE_F16 || dtype == MICA_DTYPE_BF16;
}

static bool is_real(mica_dtype dtype)
{
    return is_float(dtype) || dtype == MICA_DTYPE_F64;
}

/* f64 is the cpu's alone, and i64 where an op says so. */
static mica_dtype draw_number(const conform_case *c, test_random *random, bool wide)
{
    static const mica_dtype whole[] = {MICA_DTYPE_I32, MICA_DTYPE_U32, MICA_DTYPE_I64};

    if (c->typical)
        return MICA_DTYPE_F32;
    if (test_random_one_in(random, 3))
        return whole[test_random_below(random, conform_kernels && !wide ? 2 : 3)];
    return !conform_kernels && test_random_one_in(random, 5) ? MICA_DTYPE_F64 : conform_float(random);
}

static uint32_t draw_shape(const conform_case *c, test_random *random, uint64_t most, uint64_t *shape)
{
    const uint32_t ndim = c->typical ? 2 : 1 + (uint32_t)test_random_below(random, 4);

    shape[0] = 256;
    shape[1] = 16384;
    if (!c->typical)
        conform_shape(random, ndim, most, shape);
    return ndim;
}

static uint64_t last(conform_case *c, uint32_t slot)
{
    const test_tensor *tensor = conform_tensor(c, slot);

    return tensor->shape[tensor->ndim - 1];
}

/* Some NaN, infinities, zeros of both signs. */
static void add_odd(test_tensor *x, test_random *random)
{
    static const double odd[] = {(double)NAN, (double)INFINITY, -(double)INFINITY, 0.0, -0.0};
    const uint64_t rare = 1 + test_random_below(random, 40);

    for (uint64_t i = 0; i < x->count; i++)
        if (test_random_one_in(random, rare))
            test_tensor_set(x, i, odd[test_random_below(random, 5)]);
}

/* ---- scans ---- */

/* Products stay near 1; whole numbers small, so that i64 is exact in a double. */
static void fill_scan(conform_case *c, test_random *random)
{
    test_tensor *x = conform_tensor(c, X);
    const bool product = c->params.scan.kind == MICA_SCAN_PROD;

    test_tensor_normal(x, random, 2);
    for (uint64_t i = 0; i < x->count; i++) {
        const double value = test_tensor_get(x, i);

        if (!is_real(x->dtype))
            test_tensor_set(x, i,
                            (double)test_random_below(random, 5) - (x->dtype == MICA_DTYPE_U32 ? 0 : 2));
        else if (product)
            test_tensor_set(x, i, (test_random_one_in(random, 2) ? -1 : 1) * exp2(value / 40));
    }
    if (is_real(x->dtype) && !c->typical && test_random_one_in(random, 3))
        add_odd(x, random);
}

static void add_scan(conform_case *c, test_random *random, uint32_t ndim, const uint64_t *shape)
{
    const mica_dtype dtype = draw_number(c, random, true);
    const mica_dtype out = is_float(dtype) && !c->typical ? conform_float(random) : dtype;
    const bool in_place = !c->typical && test_random_one_in(random, 3);
    /* The roundings of equal factors are equal too, and add up. */
    const bool repeats = !in_place && c->params.scan.kind != MICA_SCAN_PROD;

    conform_add(c, random, "x", dtype, ndim, shape, repeats ? TEST_REPEAT : TEST_ANY);
    fill_scan(c, random);
    conform_add_output(c, random, "y", in_place ? dtype : out, ndim, shape, TEST_ANY, in_place, X);
    c->flops = (double)conform_tensor(c, X)->count;
    c->bytes = conform_bytes(c, X) + conform_bytes(c, Y);
}

void conform_make_scan(conform_case *c, test_random *random)
{
    uint64_t shape[MICA_MAX_DIMS];
    const uint32_t ndim = draw_shape(c, random, 6000, shape);

    if (!c->typical)
        c->params.scan =
            (mica_scan_params){(uint32_t)test_random_below(random, 4), (uint32_t)test_random_below(random, 2),
                               (uint32_t)test_random_below(random, 2)};
    add_scan(c, random, ndim, shape);
}

/* Few rows that are cut into parts, or many side by side. */
void conform_make_scan_long(conform_case *c, test_random *random)
{
    const bool columns = test_random_one_in(random, 4);
    const uint64_t shape[2] = {columns ? 300 : 1 + test_random_below(random, 2),
                               columns ? 70 : 131072 + test_random_below(random, 70000)};

    if (c->typical) {
        conform_make_scan(c, random);
        return;
    }
    c->params.scan =
        (mica_scan_params){(uint32_t)test_random_below(random, 4), (uint32_t)test_random_below(random, 2),
                           (uint32_t)test_random_below(random, 2)};
    c->aligned = test_random_one_in(random, 2);
    add_scan(c, random, 2, shape);
}

mica_status conform_encode_scan(const conform_case *c, mica_encoder *encoder)
{
    const mica_scan_params *params = &c->params.scan;
    mica_buffer *x = conform_buffer(c, X), *y = conform_buffer(c, Y);

    if (c->number % 2 == 0)
        return mica_scan(encoder, x, params, y);
    switch (params->kind) {
    case MICA_SCAN_SUM: return mica_cumsum(encoder, x, params, y);
    case MICA_SCAN_PROD: return mica_cumprod(encoder, x, params, y);
    case MICA_SCAN_MAX: return mica_cummax(encoder, x, params, y);
    default: return mica_cummin(encoder, x, params, y);
    }
}

/* Greatest and least of nothing. */
static double nothing_of(uint32_t kind, mica_dtype dtype)
{
    const bool least = kind == MICA_SCAN_MAX;

    switch (dtype) {
    case MICA_DTYPE_I32: return least ? -2147483648.0 : 2147483647.0;
    case MICA_DTYPE_U32: return least ? 0 : 4294967295.0;
    case MICA_DTYPE_I64: return least ? -0x1p63 : 0x1p63;
    default: return least ? -(double)INFINITY : (double)INFINITY;
    }
}

/* Whole numbers of one row: sums and products wrap. */
static void wrap_row(const conform_case *c, mica_dtype dtype, uint64_t n, const double *x, double *y)
{
    const mica_scan_params *scan = &c->params.scan;
    const bool product = scan->kind == MICA_SCAN_PROD;
    uint64_t value = product ? 1 : 0;

    for (uint64_t k = 0; k < n; k++) {
        const uint64_t i = scan->reverse != 0 ? n - 1 - k : k, term = (uint64_t)(int64_t)x[i];
        const uint64_t after = product ? value * term : value + term,
                       result = scan->exclusive != 0 ? value : after;

        y[i] = dtype == MICA_DTYPE_U32   ? (double)(uint32_t)result
               : dtype == MICA_DTYPE_I32 ? (double)(int32_t)(uint32_t)result
                                         : (double)(int64_t)result;
        value = after;
    }
}

/* Of rows too long to take each result by itself: what is known of the ones before is carried on, in long double. */
static void carry_row(const conform_case *c, uint64_t n, const double *x, double nothing, double *y,
                      double *error)
{
    const mica_scan_params *scan = &c->params.scan;
    const bool product = scan->kind == MICA_SCAN_PROD, sum = scan->kind == MICA_SCAN_SUM;
    long double value = product ? 1 : 0, size = 0;
    double extreme = nothing;

    for (uint64_t k = 0; k < n; k++) {
        const uint64_t i = scan->reverse != 0 ? n - 1 - k : k, count = k + (scan->exclusive != 0 ? 0 : 1);
        const long double before = value, size_before = size;
        const double extreme_before = extreme;
        oracle_scan_case two = {scan->kind == MICA_SCAN_MAX ? ORACLE_SCAN_MAX : ORACLE_SCAN_MIN,
                                false,
                                false,
                                1,
                                2,
                                (const double[]){extreme, x[i]},
                                0};
        double both[2], none[2];

        value = product ? value * (long double)x[i] : value + (long double)x[i];
        size += fabsl((long double)x[i]);
        oracle_scan_rows(&two, both, none);
        extreme = both[1];
        const long double result = scan->exclusive != 0 ? before : value;
        y[i] = sum || product ? (double)result : scan->exclusive != 0 ? extreme_before : extreme;
        error[i] =
            sum       ? (double)(scan->exclusive != 0 ? size_before : size) * (1 + 0.25 * sqrt((double)count))
            : product ? fabs(y[i]) * (1 + sqrt((double)count))
                      : ORACLE_EXACT;
    }
}

void conform_oracle_scan(conform_case *c)
{
    static const oracle_scan kinds[] = {ORACLE_SCAN_SUM, ORACLE_SCAN_PROD, ORACLE_SCAN_MAX, ORACLE_SCAN_MIN};
    const mica_scan_params *params = &c->params.scan;
    const test_tensor *x = conform_tensor(c, X);
    const uint64_t dim = last(c, X);
    double *values = conform_values(c, X);
    const double nothing = nothing_of(params->kind, x->dtype);
    const oracle_scan_case scan = {kinds[params->kind],
                                   params->exclusive != 0,
                                   params->reverse != 0,
                                   x->count / dim,
                                   dim,
                                   values,
                                   nothing};

    if (dim <= 8000)
        oracle_scan_rows(&scan, c->expected, c->error);
    for (uint64_t r = 0; r < x->count / dim; r++) {
        if (dim > 8000)
            carry_row(c, dim, values + r * dim, nothing, c->expected + r * dim, c->error + r * dim);
        if (!is_real(x->dtype) && params->kind <= MICA_SCAN_PROD)
            wrap_row(c, x->dtype, dim, values + r * dim, c->expected + r * dim);
    }
    for (uint64_t i = 0; i < x->count; i++) {
        if (!is_real(x->dtype))
            c->error[i] = ORACLE_EXACT;
        if (x->dtype == MICA_DTYPE_F64 && c->error[i] > 0) /* roundings of f64, one after the other */
            c->error[i] *= 0x1p-29 * sqrt((double)dim);
    }
    free(values);
}

/* ---- argmax ---- */

/* Rows of many equals, of NaN in part and alone, of one infinity. */
static void fill_order(test_tensor *x, test_random *random)
{
    const uint64_t n = x->shape[x->ndim - 1];

    test_tensor_normal(x, random, 3);
    for (uint64_t i = 0; i < x->count; i++) {
        const uint64_t kind = i / n % 6;

        if (!is_real(x->dtype)) {
            test_tensor_set(x, i,
                            (double)test_random_below(random, kind == 1 ? 5 : 2000000000) -
                                (x->dtype == MICA_DTYPE_U32 ? 0 : 1000));
            continue;
        }
        if (kind == 1) /* zeros of both signs among them */
            test_tensor_set(x, i, test_random_one_in(random, 2) ? floor(test_tensor_get(x, i)) : -0.0);
        if (kind == 3 || (kind == 2 && test_random_one_in(random, 3)))
            test_tensor_set(x, i, (double)NAN);
        if (kind == 4)
            test_tensor_set(x, i, test_random_one_in(random, 2) ? -(double)INFINITY : (double)INFINITY);
    }
}

/* In one of four cases long rows, a few of them. */
void conform_make_argmax(conform_case *c, test_random *random)
{
    conform_draw as = {.most = 6000};

    if (test_random_one_in(random, 4)) {
        as.size[CONFORM_SIZE('N')] = 9000 + test_random_below(random, 6000);
        as.rest = 3;
    }
    c->params.argmax.least = (uint32_t)test_random_below(random, 2);
    conform_make_op_as(c, random, &as);
    fill_order(conform_tensor(c, X), random);
}

void conform_oracle_argmax(conform_case *c)
{
    const test_tensor *x = conform_tensor(c, X);
    const uint64_t n = last(c, X);
    double *values = conform_values(c, X);

    oracle_argmax(x->count / n, n, values, c->params.argmax.least != 0, c->expected);
    for (uint64_t i = 0; i < x->count / n; i++)
        c->error[i] = ORACLE_EXACT;
    free(values);
}

/* ---- sorting ---- */

static void add_sort(conform_case *c, test_random *random, uint32_t ndim, uint64_t *shape, uint64_t k)
{
    const uint64_t which = c->typical ? 0 : test_random_below(random, 3);

    conform_add(c, random, "x", draw_number(c, random, false), ndim, shape, TEST_REPEAT);
    if (c->typical)
        test_tensor_normal(conform_tensor(c, SORT_X), random, 3);
    else
        fill_order(conform_tensor(c, SORT_X), random);
    c->flops = (double)conform_tensor(c, SORT_X)->count;
    shape[ndim - 1] = k;
    if (which != 1)
        conform_add_output(c, random, "values", conform_tensor(c, SORT_X)->dtype, ndim, shape, TEST_ANY,
                           false, 0);
    else
        conform_add_absent(c);
    if (which != 2)
        conform_add_output(c, random, "ids", conform_index(random), ndim, shape, TEST_ANY, false, 0);
    else
        conform_add_absent(c);
    c->bytes = conform_bytes(c, SORT_X);
}

void conform_make_sort(conform_case *c, test_random *random)
{
    uint64_t shape[MICA_MAX_DIMS] = {64, 16384};
    const uint32_t ndim = c->typical ? 2 : 1 + (uint32_t)test_random_below(random, 4);

    if (!c->typical) {
        c->params.sort.descending = (uint32_t)test_random_below(random, 2);
        conform_shape(random, ndim, 5000, shape);
    }
    const uint64_t n = shape[ndim - 1];
    add_sort(c, random, ndim, shape,
             c->typical || test_random_one_in(random, 2) ? n : 1 + test_random_below(random, n));
}

/* Rows that are cut: into tiles of local memory, into parts of the cpu's threads. */
void conform_make_sort_long(conform_case *c, test_random *random)
{
    uint64_t shape[2] = {1 + test_random_below(random, 3), 6000 + test_random_below(random, 9000)};

    if (c->typical) {
        conform_make_sort(c, random);
        return;
    }
    if (test_random_one_in(random, 3)) {
        shape[0] = 1;
        shape[1] = 66000 + test_random_below(random, 40000);
    }
    c->params.sort.descending = (uint32_t)test_random_below(random, 2);
    const uint64_t n = shape[1], most = test_random_one_in(random, 2) ? 100 : n;
    add_sort(c, random, 2, shape, test_random_one_in(random, 2) ? n : 1 + test_random_below(random, most));
}

mica_status conform_encode_sort(const conform_case *c, mica_encoder *encoder)
{
    mica_buffer *x = conform_buffer(c, SORT_X), *values = conform_buffer(c, SORT_VALUES),
                *ids = conform_buffer(c, SORT_IDS);
    const test_tensor *from = &c->operand[SORT_X].tensor, *to = &c->operand[c->output].tensor;
    const bool whole = from->shape[from->ndim - 1] == to->shape[to->ndim - 1];

    if (whole && ids == NULL)
        return mica_sort(encoder, x, &c->params.sort, values);
    if (whole && values == NULL)
        return mica_argsort(encoder, x, &c->params.sort, ids);
    if (c->params.sort.descending != 0)
        return mica_top_k(encoder, x, values, ids);
    return mica_op_apply(encoder, MICA_OP_SORT, &c->params.sort, (mica_buffer *const[]){x, values, ids}, 3);
}

typedef struct ranked {
    double value, id;
} ranked;

static int in_order(const void *a, const void *b)
{
    const ranked *p = a, *q = b;

    if (isnan(p->value) || isnan(q->value) || p->value == q->value) {
        if (isnan(p->value) != isnan(q->value))
            return isnan(p->value) ? 1 : -1;
        return p->id < q->id ? -1 : 1;
    }
    return p->value < q->value ? -1 : 1;
}

/* As oracle_sort, for rows that it would take too long for: by the C library. */
static void sort_row(uint64_t n, uint64_t k, const double *x, bool descending, double *ids)
{
    ranked *row = test_alloc(n, sizeof *row);

    for (uint64_t i = 0; i < n; i++)
        row[i] = (ranked){descending ? -x[i] : x[i], (double)i};
    qsort(row, n, sizeof *row, in_order);
    for (uint64_t i = 0; i < k; i++)
        ids[i] = row[i].id;
    free(row);
}

void conform_oracle_sort(conform_case *c)
{
    const test_tensor *x = conform_tensor(c, SORT_X), *y = conform_tensor(c, c->output);
    const uint64_t n = last(c, SORT_X), k = y->shape[y->ndim - 1], rows = x->count / n;
    const bool descending = c->params.sort.descending != 0;
    double *values = conform_values(c, SORT_X), *ids = test_alloc(y->count, sizeof *ids);

    for (uint64_t r = 0; r < rows; r++) {
        if (n <= 1500)
            oracle_sort(1, n, k, values + r * n, descending, ids + r * k);
        else
            sort_row(n, k, values + r * n, descending, ids + r * k);
    }
    for (uint32_t slot = SORT_VALUES; slot <= SORT_IDS; slot++) {
        double *expected = c->expected, *error = c->error;

        if (!c->operand[slot].present)
            continue;
        if (slot != c->output)
            conform_expect_also(c, slot, &expected, &error);
        for (uint64_t i = 0; i < y->count; i++) {
            expected[i] = slot == SORT_IDS ? ids[i] : values[i / k * n + (uint64_t)ids[i]];
            error[i] = ORACLE_EXACT;
        }
    }
    free(values);
    free(ids);
}
