/*
 * conform_matmul.c - cases of matmul, matmul_experts, matmul_transposed and embedding over every weight type, both layouts.
 */
#include "conform/conform_op.h"
#include "conform/conform_rows.h"

#include <stdlib.h>

#include "oracle/oracle_codes.h"
#include "oracle/oracle_number.h"
#include "oracle/oracle_ops.h"
#include "support/sanitizer.h"

enum { X, WEIGHT, SCALES, BIASES, Y };
enum { EX_X, EX_WEIGHT, EX_SCALES, EX_BIASES, EX_IDS, EX_Y };
enum { TABLE, TABLE_SCALES, TABLE_BIASES, IDS, ROWS_Y };

/* One f16 rounding of an activation, in f32 roundings. */
#define F16_ROUNDINGS 8192.0
#define BF16_ROUNDINGS 65536.0

static mica_dtype draw_type(const conform_case *c, test_random *random)
{
    return conform_is_wide(c) ? MICA_DTYPE_F64 : c->typical ? MICA_DTYPE_F32 : conform_float(random);
}

/* An inner size that the weight type can have. */
static uint64_t draw_columns(const conform_case *c, test_random *random)
{
    uint64_t block = oracle_block_values(c->row->weight);
    uint64_t most = block >= 256 ? 3 : 400 / block;

    if (block == 1)
        return test_random_one_in(random, 4) ? 1 + test_random_below(random, 700)
                                             : test_random_size(random, 260);
    return block * (1 + test_random_below(random, most));
}

/* Rows of activations, output columns and inner size. One case in eight is large enough for every blocking edge. */
static void draw_sizes(const conform_case *c, test_random *random, uint64_t *m, uint64_t *n, uint64_t *k)
{
    bool large = test_random_one_in(random, 8);

    *m = test_random_one_in(random, 2) ? 1 + test_random_below(random, 9) : test_random_size(random, 130);
    *n = test_random_size(random, large ? 300 : 70);
    *k = draw_columns(c, random);
    if (*m * *n * *k > (large ? 8000000u : 400000u))
        *m = 1 + test_random_below(random, 7);
    if (c->typical) {
        *m = 1;
        *n = *k = 4096;
    }
}

static void draw_precision(conform_case *c, test_random *random)
{
    c->params.matmul.precision =
        c->typical ? MICA_PRECISION_DEFAULT : (mica_precision)test_random_below(random, 4);
}

void conform_make_matmul(conform_case *c, test_random *random)
{
    uint64_t m, n, k, batch = 1, weights = 1;
    uint32_t ndim = 2, weight_ndim = 2;

    draw_sizes(c, random, &m, &n, &k);
    draw_precision(c, random);
    if (!c->typical && test_random_one_in(random, 3)) {
        ndim = 3;
        batch = 1 + test_random_below(random, 3);
        m = 1 + m % 9;
        if (test_random_one_in(random, 2)) {
            weight_ndim = 3;
            weights = batch;
            batch *= 1 + test_random_below(random, 2);
        }
    }
    conform_add(c, random, "x", draw_type(c, random), ndim,
                ndim == 3 ? (uint64_t[]){batch, m, k} : (uint64_t[]){m, k, 0}, TEST_ROWS_REPEAT);
    test_tensor_normal(conform_tensor(c, X), random, 1);
    conform_add_weight(c, random, "weight", weight_ndim,
                       weight_ndim == 3 ? (uint64_t[]){weights, n, k} : (uint64_t[]){n, k, 0});
    conform_add_output(c, random, "y", draw_type(c, random), ndim,
                       ndim == 3 ? (uint64_t[]){batch, m, n} : (uint64_t[]){m, n, 0}, TEST_ROWS, false, 0);
    c->flops = 2.0 * (double)(batch * m * n * k);
    c->bytes = conform_bytes(c, WEIGHT) + conform_bytes(c, SCALES) + conform_bytes(c, BIASES);
}

/* y [m, n] = x [m, k], both of `type`, with a plain weight in the device's own order. */
static void add_product(conform_case *c, test_random *random, mica_dtype type, uint64_t m, uint64_t n,
                        uint64_t k)
{
    if (c->typical) {
        m = 128;
        n = k = 2048;
    }
    conform_add(c, random, "x", type, 2, (uint64_t[]){m, k}, TEST_ROWS);
    test_tensor_normal(conform_tensor(c, X), random, 1);
    conform_add_weight(c, random, "weight", 2, (uint64_t[]){n, k});
    c->packed = true;
    conform_add_output(c, random, "y", type, 2, (uint64_t[]){m, n}, TEST_ROWS, false, 0);
    c->flops = 2.0 * (double)(m * n * k);
    c->bytes = conform_bytes(c, WEIGHT);
}

/* Some more than `count` tiles of a side, the last not full. */
static uint64_t draw_side(test_random *random, uint64_t count, uint64_t tile)
{
    return tile * (count + test_random_below(random, 8)) + 1 + test_random_below(random, tile);
}

/*
 * For matrix units: products in tiles of 128 rows by 256 columns of y, which a GPU with few tiles cuts in halves. Two of sixteen
 * cases in a row have 67 to 74 tiles, all in one row or all in one column, which 132 multiprocessors take whole; the others
 * have up to four. The inner size is small, since the sums are the same in every tile; three cases have one that several groups
 * share. Sanitizers and few processors see nothing new in the large ones.
 */
void conform_make_matmul_tiles(conform_case *c, test_random *random)
{
    const uint64_t kind = TEST_ANY_SANITIZER ? 0 : c->number % 16;
    const bool few = conform_few_processors;
    const uint64_t block = oracle_is_affine(c->row->weight) ? 128 : oracle_block_values(c->row->weight);
    const bool four = test_random_one_in(random, 3);
    uint64_t m = 9 + test_random_below(random, four ? 150 : 20);
    uint64_t n = 1 + test_random_below(random, four ? 300 : 40),
             k = block * (1 + test_random_below(random, 3));

    if (kind == 8 && !few) {
        m = 9 + test_random_below(random, 2);
        n = draw_side(random, 66, 256);
        k = block;
    } else if (kind >= 10 && kind < 13) {
        m = 9 + test_random_below(random, few ? 20 : 120);
        k = 256 * (1 + test_random_below(random, few ? 4 : 12));
        c->aligned = true;
    } else if (kind == 9 && !few) {
        m = draw_side(random, 66, 128);
        n = 1 + test_random_below(random, 12);
    }
    c->whole = true;
    add_product(c, random, draw_type(c, random), m, n, k);
}

/*
 * For kernels that stream weights past a few rows of x: whole groups, everything at multiples of 16 bytes. Of sixteen cases in a row
 * one has rows so long that a lane takes more of them than usual, and of two types one has so many rows that each of 132
 * multiprocessors goes through more than the eight slots that it can hold at once. Sanitizers and few processors see nothing new in
 * those.
 */
void conform_make_matmul_stream(conform_case *c, test_random *random)
{
    const uint64_t kind = TEST_ANY_SANITIZER || conform_few_processors ? 0 : c->number % 16;
    const mica_dtype type = c->row->weight;
    const uint64_t block = oracle_has_scales(type) || oracle_is_affine(type) ? 1024 : 256;
    uint64_t m = test_random_one_in(random, 2) ? 1 : 2 + test_random_below(random, 7);
    uint64_t n = 1 + test_random_below(random, 40), k = block * (1 + test_random_below(random, 4));

    if (kind == 8 && (type == MICA_DTYPE_Q5_K || type == MICA_DTYPE_AFFINE4)) {
        m = 1;
        n = 34000 + test_random_below(random, 300);
        k = block;
    } else if (kind == 9) {
        m = 1 + test_random_below(random, 2);
        n = 1 + test_random_below(random, 6);
        k = 32768 + block;
    }
    c->aligned = c->whole = true;
    c->params.matmul.precision = test_random_one_in(random, 2) ? MICA_PRECISION_DEFAULT : MICA_PRECISION_Q8;
    add_product(c, random, draw_type(c, random), m, n, k);
}

/* For libraries of dense products: all of one type, from multiples of 16 bytes on, none of the sides small. */
void conform_make_matmul_library(conform_case *c, test_random *random)
{
    const uint64_t m = 64 + test_random_below(random, 10);
    const uint64_t n = 128 + 8 * test_random_below(random, 4), k = 128 + 8 * test_random_below(random, 4);

    c->aligned = true;
    draw_precision(c, random);
    add_product(c, random, c->row->weight, m, n, k);
}

/* Several weights of one x, each with its y. */
void conform_make_matmul_several(conform_case *c, test_random *random)
{
    conform_draw as = {.most = 2000};

    as.size[CONFORM_SIZE('K')] = draw_columns(c, random);
    as.size[CONFORM_SIZE('M')] = 1 + test_random_below(random, 12);
    as.size[CONFORM_SIZE('A')] = as.size[CONFORM_SIZE('E')] = CONFORM_MISSING;
    as.size[CONFORM_SIZE('B')] =
        test_random_one_in(random, 3) ? 1 + test_random_below(random, 3) : CONFORM_MISSING;
    c->params.matmul.precision = conform_half_activations || test_random_one_in(random, 2)
                                     ? MICA_PRECISION_F32
                                     : MICA_PRECISION_DEFAULT;
    conform_make_op_as(c, random, &as);
}

mica_status conform_encode_matmul(const conform_case *c, mica_encoder *encoder)
{
    const mica_matmul_params *params = c->params.matmul.precision ? &c->params.matmul : NULL;

    return mica_matmul(encoder, conform_buffer(c, X), conform_buffer(c, WEIGHT), params,
                       conform_buffer(c, Y));
}

/* Scales as numbers. */
static double *view_scales(conform_case *c, uint32_t slot)
{
    const test_tensor *scales = conform_tensor(c, slot);
    double *values = conform_values(c, slot);

    for (uint64_t i = 0; values != NULL && i < scales->count; i++) {
        if (scales->dtype == MICA_DTYPE_E8M0)
            values[i] = oracle_e8m0((int)values[i]);
        else if (scales->dtype == MICA_DTYPE_F8_E4M3)
            values[i] = oracle_e4m3((int)values[i]);
    }
    return values;
}

/* The weight of a case as an oracle sees it. `parts` are the decoded scales and biases; the caller frees them. */
static oracle_weight view_weight(conform_case *c, uint32_t slot, double **parts)
{
    const test_tensor *tensor = conform_tensor(c, slot);
    oracle_weight weight = {.dtype = tensor->dtype, .data = tensor->image + tensor->offset};

    parts[0] = view_scales(c, slot + 1);
    parts[1] = conform_values(c, slot + 2);
    weight.columns = tensor->shape[tensor->ndim - 1];
    weight.rows = tensor->count / weight.columns;
    weight.scales = parts[0];
    weight.biases = parts[1];
    weight.group_size = c->group_size;
    return weight;
}

/* Whether activations are 8-bit blocks: asked for or left open, and the weight is of a kind with such a kernel, as ops.h
 * says. Then oracle B alone is right, else oracle A. */
static bool has_q8_activations(conform_case *c)
{
    static const mica_dtype types[] = {
        MICA_DTYPE_Q4_0,    MICA_DTYPE_Q4_1,    MICA_DTYPE_Q5_0,    MICA_DTYPE_Q5_1,    MICA_DTYPE_Q8_0,
        MICA_DTYPE_Q2_K,    MICA_DTYPE_Q3_K,    MICA_DTYPE_Q4_K,    MICA_DTYPE_Q5_K,    MICA_DTYPE_Q6_K,
        MICA_DTYPE_IQ4_NL,  MICA_DTYPE_IQ4_XS,  MICA_DTYPE_MXFP4,   MICA_DTYPE_NVFP4,   MICA_DTYPE_FP4,
        MICA_DTYPE_AFFINE2, MICA_DTYPE_AFFINE3, MICA_DTYPE_AFFINE4, MICA_DTYPE_AFFINE5, MICA_DTYPE_AFFINE6,
        MICA_DTYPE_AFFINE8};
    const mica_dtype scales = conform_tensor(c, c->weight_slot + 1)->dtype;
    bool known = false;

    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        known = known || types[i] == c->row->weight;
    if (oracle_is_affine(c->row->weight))
        known = known && c->group_size % 32 == 0 && scales != MICA_DTYPE_F32;
    if (c->row->weight == MICA_DTYPE_FP4)
        known = scales == MICA_DTYPE_E8M0 ? c->group_size == 32 : c->group_size == 16;
    return known && c->params.matmul.precision != MICA_PRECISION_F32 &&
           c->params.matmul.precision != MICA_PRECISION_F16;
}

bool conform_half_activations;
bool conform_few_processors;

/* Whether activations may be of 16 bits though that was not asked for: instead of 8-bit blocks, with block types and with weights
 * of 16 bits, as ops.h says. */
static bool may_have_half_activations(conform_case *c)
{
    const mica_precision precision = c->params.matmul.precision;

    if (!conform_half_activations || precision == MICA_PRECISION_F32)
        return false;
    return c->row->weight == MICA_DTYPE_F16 || oracle_is_block(c->row->weight) || has_q8_activations(c) ||
           (c->row->weight == MICA_DTYPE_BF16 && precision != MICA_PRECISION_F16);
}

/* The same row with such activations, as the other right answer. */
static void judge_half(conform_case *c, const oracle_weight *weight, uint64_t first, uint64_t n,
                       const double *x, uint64_t row)
{
    uint64_t count = conform_tensor(c, c->output)->count;

    if (c->other == NULL) {
        c->other = test_alloc(count, sizeof(double));
        c->other_error = test_alloc(count, sizeof(double));
    }
    oracle_matmul_row(weight, first, n, x, false, c->other + row * n, c->other_error + row * n);
    for (uint64_t i = 0; i < n; i++)
        c->other_error[row * n + i] *= c->row->weight == MICA_DTYPE_BF16 ? BF16_ROUNDINGS : F16_ROUNDINGS;
}

/* Output row `row` = x row times weight rows [first, first + n). */
static void judge_row(conform_case *c, const oracle_weight *weight, uint64_t first, uint64_t n,
                      const double *x, uint64_t row)
{
    double *error = c->error + row * n;

    oracle_matmul_row(weight, first, n, x, has_q8_activations(c), c->expected + row * n, error);
    for (uint64_t i = 0; c->params.matmul.precision == MICA_PRECISION_F16 && i < n; i++)
        error[i] *= oracle_is_block(c->row->weight) || c->group_size ? F16_ROUNDINGS : 1;
    if (may_have_half_activations(c))
        judge_half(c, weight, first, n, x, row);
}

void conform_oracle_matmul(conform_case *c)
{
    const test_tensor *x = conform_tensor(c, X), *w = conform_tensor(c, WEIGHT), *y = conform_tensor(c, Y);
    uint64_t n = y->shape[y->ndim - 1], m = y->shape[y->ndim - 2], k = x->shape[x->ndim - 1];
    uint64_t batches = y->count / (m * n), weights = w->ndim == 3 ? w->shape[0] : 1;
    double *values = conform_values(c, X), *parts[2];
    oracle_weight weight = view_weight(c, WEIGHT, parts);

    for (uint64_t row = 0; row < batches * m; row++)
        judge_row(c, &weight, row / m / (batches / weights) * n, n, values + row * k, row);
    free(values);
    free(parts[0]);
    free(parts[1]);
}

void conform_oracle_matmul_several(conform_case *c)
{
    uint32_t slots[CONFORM_OPERANDS];
    const uint32_t count = conform_operands(c, slots);
    const test_tensor *x = conform_tensor(c, X);
    const uint64_t k = x->shape[x->ndim - 1], rows = x->count / k;
    double *values = conform_values(c, X);

    for (uint32_t i = 1; i < count; i += 2) {
        const test_tensor *tensor = conform_tensor(c, slots[i]);
        const oracle_weight weight = {.dtype = tensor->dtype,
                                      .data = tensor->image + tensor->offset,
                                      .rows = tensor->shape[0],
                                      .columns = k};
        double *y = c->expected, *error = c->error;

        if (slots[i + 1] != c->output)
            conform_expect_also(c, slots[i + 1], &y, &error);
        for (uint64_t row = 0; row < rows; row++)
            oracle_matmul_row(&weight, 0, weight.rows, values + row * k, has_q8_activations(c),
                              y + row * weight.rows, error + row * weight.rows);
    }
    free(values);
}

/* x [m, k] or [m, slots, k], weight [experts, n, k], y [m, slots, n]. */
typedef struct routed {
    uint64_t m, n, k, experts, slots;
    bool shared; /* the slots of a token see the same row of x */
    test_layout x, y;
} routed;

static void add_routed(conform_case *c, test_random *random, const routed *r)
{
    conform_add(c, random, "x", draw_type(c, random), r->shared ? 2 : 3,
                r->shared ? (uint64_t[]){r->m, r->k, 0} : (uint64_t[]){r->m, r->slots, r->k}, r->x);
    test_tensor_normal(conform_tensor(c, EX_X), random, 1);
    conform_add_weight(c, random, "weight", 3, (uint64_t[]){r->experts, r->n, r->k});
    conform_add(c, random, "ids", conform_index(random), 2, (uint64_t[]){r->m, r->slots}, TEST_CONTIGUOUS);
    test_tensor_indices(conform_tensor(c, EX_IDS), random, r->experts);
    if (!c->typical && test_random_one_in(random, 5)) {
        test_tensor_set(conform_tensor(c, EX_IDS), test_random_below(random, r->m * r->slots),
                        (double)r->experts);
        c->wanted = MICA_ERR_FAULT;
    }
    conform_add_output(c, random, "y", draw_type(c, random), 3, (uint64_t[]){r->m, r->slots, r->n}, r->y,
                       false, 0);
    c->flops = 2.0 * (double)(r->m * r->slots * r->n * r->k);
    c->bytes = conform_bytes(c, EX_WEIGHT) / (double)r->experts * (double)r->slots;
}

void conform_make_matmul_experts(conform_case *c, test_random *random)
{
    routed r = {.experts = 1 + test_random_below(random, 6), .slots = 1 + test_random_below(random, 4)};
    r.shared = c->typical || test_random_one_in(random, 2);
    r.x = TEST_ROWS_REPEAT;
    r.y = TEST_ROWS;
    draw_sizes(c, random, &r.m, &r.n, &r.k);
    draw_precision(c, random);
    if (c->typical) {
        r.n = 768;
        r.k = 2048;
        r.experts = 32;
        r.slots = 8;
    }
    add_routed(c, random, &r);
}

/* For matrix units: at least two slots for each expert, more than a tile of them for some, whole groups, rows one stride apart. */
void conform_make_experts_tiles(conform_case *c, test_random *random)
{
    const mica_dtype type = c->row->weight;
    const uint64_t block = oracle_is_affine(type) ? 128 : oracle_block_values(type);
    routed r = {.experts = 1 + test_random_below(random, 5), .slots = 1 + test_random_below(random, 4)};
    r.m = 2 * r.experts + test_random_below(random, TEST_ANY_SANITIZER ? 8 : 200);
    r.n = 1 + test_random_below(random, TEST_ANY_SANITIZER ? 20 : 200);
    r.k = block * (1 + test_random_below(random, 3));
    r.shared = c->typical || test_random_one_in(random, 2);
    r.x = r.shared ? TEST_ROWS : TEST_CONTIGUOUS;
    r.y = TEST_CONTIGUOUS;
    c->whole = true;
    add_routed(c, random, &r);
    c->packed = true;
}

mica_status conform_encode_matmul_experts(const conform_case *c, mica_encoder *encoder)
{
    return mica_matmul_experts(encoder, conform_buffer(c, EX_X), conform_buffer(c, EX_WEIGHT),
                               conform_buffer(c, EX_IDS), &c->params.matmul, conform_buffer(c, EX_Y));
}

void conform_oracle_matmul_experts(conform_case *c)
{
    const test_tensor *x = conform_tensor(c, EX_X), *w = conform_tensor(c, EX_WEIGHT);
    uint64_t n = w->shape[1], k = w->shape[2], slots = conform_tensor(c, EX_IDS)->shape[1];
    double *values = conform_values(c, EX_X), *ids = conform_values(c, EX_IDS), *parts[2];
    oracle_weight weight = view_weight(c, EX_WEIGHT, parts);

    for (uint64_t row = 0; row < conform_tensor(c, EX_IDS)->count; row++) {
        const double *from = values + (x->ndim == 2 ? row / slots : row) * k;

        if (ids[row] < (double)w->shape[0]) {
            judge_row(c, &weight, (uint64_t)ids[row] * n, n, from, row);
            continue;
        }
        for (uint64_t i = 0; i < n; i++)
            c->error[row * n + i] = ORACLE_EXACT;
    }
    conform_narrow(c);
    free(values);
    free(ids);
    free(parts[0]);
    free(parts[1]);
}

/* x [m, n], [batch, m, n] or two dimensions before them; a weight for all, one for each or for some batches, or by ids. */
void conform_make_matmul_transposed(conform_case *c, test_random *random)
{
    const uint64_t kind = c->typical ? 0 : test_random_below(random, 5);
    const bool batched = kind == 2, by_ids = kind >= 3;
    uint64_t m, n, k, weights = 1 + test_random_below(random, 3), leading[2] = {1, 1};
    uint32_t ndim = kind == 0 ? 2 : 3;

    draw_sizes(c, random, &m, &n, &k);
    if (kind == 1 && test_random_one_in(random, 2)) {
        ndim = 4;
        leading[0] = 1 + test_random_below(random, 3);
    }
    if (kind != 0)
        leading[1] =
            batched ? weights * (1 + test_random_below(random, 2)) : 1 + test_random_below(random, 3);
    if (by_ids) { /* slots of tokens */
        leading[1] = m;
        m = 1 + test_random_below(random, 4);
        weights += test_random_below(random, 4);
    } else if (kind != 0) {
        m = 1 + m % 9;
    }
    const uint64_t x[4] = {leading[0], leading[1], m, n}, y[4] = {leading[0], leading[1], m, k};
    conform_add(c, random, "x", draw_type(c, random), ndim, x + 4 - ndim, TEST_ROWS_REPEAT);
    test_tensor_normal(conform_tensor(c, EX_X), random, 1);
    conform_add_weight(c, random, "weight", batched || by_ids ? 3 : 2,
                       batched || by_ids ? (uint64_t[]){weights, n, k} : (uint64_t[]){n, k, 0});
    if (by_ids) {
        conform_add(c, random, "ids", conform_index(random), 2, (uint64_t[]){leading[1], m}, TEST_ANY);
        test_tensor_indices(conform_tensor(c, EX_IDS), random, weights);
        if (test_random_one_in(random, 5)) {
            test_tensor_set(conform_tensor(c, EX_IDS), test_random_below(random, leading[1] * m),
                            conform_tensor(c, EX_IDS)->dtype == MICA_DTYPE_I32 ? -1 : (double)weights);
            c->wanted = MICA_ERR_FAULT;
        }
    } else {
        conform_add_absent(c);
    }
    conform_add_output(c, random, "y", draw_type(c, random), ndim, y + 4 - ndim, TEST_ROWS, false, 0);
    c->flops = 2.0 * (double)(leading[0] * leading[1] * m * n * k);
    c->bytes = conform_bytes(c, EX_WEIGHT) + conform_bytes(c, EX_SCALES) + conform_bytes(c, EX_BIASES);
}

mica_status conform_encode_matmul_transposed(const conform_case *c, mica_encoder *encoder)
{
    return mica_matmul_transposed(encoder, conform_buffer(c, EX_X), conform_buffer(c, EX_WEIGHT),
                                  conform_buffer(c, EX_IDS), conform_buffer(c, EX_Y));
}

void conform_oracle_matmul_transposed(conform_case *c)
{
    const test_tensor *x = conform_tensor(c, EX_X), *w = conform_tensor(c, EX_WEIGHT);
    const uint64_t n = w->shape[w->ndim - 2], k = w->shape[w->ndim - 1], rows = x->count / n,
                   weights = w->ndim == 3 ? w->shape[0] : 1;
    double *values = conform_values(c, EX_X), *ids = conform_values(c, EX_IDS), *parts[2];
    oracle_weight weight = view_weight(c, EX_WEIGHT, parts);

    for (uint64_t row = 0; row < rows; row++) {
        const double id = ids != NULL ? ids[row] : (double)(row / (rows / weights));

        if (id >= 0 && id < (double)weights) {
            oracle_matmul_transposed_row(&weight, (uint64_t)id * n, n, values + row * n,
                                         c->expected + row * k, c->error + row * k);
            continue;
        }
        for (uint64_t i = 0; i < k; i++)
            c->error[row * k + i] = ORACLE_EXACT;
    }
    free(values);
    free(ids);
    free(parts[0]);
    free(parts[1]);
}

void conform_make_embedding(conform_case *c, test_random *random)
{
    uint64_t rows = 1 + test_random_below(random, 70), tokens = test_random_size(random, 33);
    uint64_t dim = draw_columns(c, random);

    if (c->typical) {
        rows = 4000;
        tokens = 64;
        dim = 2048;
    }
    conform_add_weight(c, random, "table", 2, (uint64_t[]){rows, dim});
    c->packed = c->packed && !conform_is_turbo(c->row->weight); /* caches have no packed layout */
    conform_add(c, random, "ids", conform_index(random), 1, &tokens, TEST_CONTIGUOUS);
    test_tensor_indices(conform_tensor(c, IDS), random, rows);
    if (!c->typical && test_random_one_in(random, 5)) {
        bool is_signed = conform_tensor(c, IDS)->dtype == MICA_DTYPE_I32;

        test_tensor_set(conform_tensor(c, IDS), test_random_below(random, tokens),
                        is_signed ? -1 : (double)rows);
        c->wanted = MICA_ERR_FAULT;
    }
    conform_add_output(c, random, "y", draw_type(c, random), 2, (uint64_t[]){tokens, dim}, TEST_ROWS, false,
                       0);
    c->bytes = conform_bytes(c, TABLE) / (double)rows * (double)tokens + conform_bytes(c, ROWS_Y);
}

mica_status conform_encode_embedding(const conform_case *c, mica_encoder *encoder)
{
    return mica_embedding(encoder, conform_buffer(c, TABLE), conform_buffer(c, IDS),
                          conform_buffer(c, ROWS_Y));
}

void conform_oracle_embedding(conform_case *c)
{
    double *ids = conform_values(c, IDS), *parts[2];
    oracle_weight table = view_weight(c, TABLE, parts);

    for (uint64_t t = 0; t < conform_tensor(c, IDS)->count; t++) {
        double *y = c->expected + t * table.columns, *error = c->error + t * table.columns;

        if (ids[t] >= 0 && ids[t] < (double)table.rows) {
            oracle_embedding_row(&table, (size_t)ids[t], y, error);
            continue;
        }
        for (uint64_t i = 0; i < table.columns; i++)
            error[i] = ORACLE_EXACT;
    }
    free(ids);
    free(parts[0]);
    free(parts[1]);
}
