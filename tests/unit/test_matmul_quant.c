/* test_matmul_quant.c: quantised matmul and its expert-routed form on every instruction set: values against a
 * double-precision oracle, and bits that depend on nothing but the instruction set. */
#include "unit/kernel_rig.h"

#include <math.h>
#include <stdio.h>

#include "backend/region.h"
#include "base/half.h"
#include "oracle/oracle_blocks.h"
#include "oracle/oracle_codes.h"
#include "quant/packed.h"
#include "quant/quant.h"
#include "support/random.h"
#include "support/tensor.h"
#include "support/sanitizer.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const mica_dtype types[] = {
    MICA_DTYPE_Q4_0,    MICA_DTYPE_Q4_1,    MICA_DTYPE_Q5_0,    MICA_DTYPE_Q5_1,    MICA_DTYPE_Q8_0,
    MICA_DTYPE_Q2_K,    MICA_DTYPE_Q3_K,    MICA_DTYPE_Q4_K,    MICA_DTYPE_Q5_K,    MICA_DTYPE_Q6_K,
    MICA_DTYPE_IQ4_NL,  MICA_DTYPE_IQ4_XS,  MICA_DTYPE_MXFP4,   MICA_DTYPE_NVFP4,   MICA_DTYPE_FP4,
    MICA_DTYPE_AFFINE2, MICA_DTYPE_AFFINE3, MICA_DTYPE_AFFINE4, MICA_DTYPE_AFFINE5, MICA_DTYPE_AFFINE6,
    MICA_DTYPE_AFFINE8};

/* A weight [batches, n, k] in both layouts with its exact values. */
typedef struct weight {
    mica_dtype dtype, scale_dtype;
    uint64_t batches, n, k;
    uint32_t group_size;
    uint64_t groups; /* a row */
    unsigned char *data, *scales, *biases, *packed;
    double *value, *magnitude; /* [batches * n][k] */
} weight;

/* Random codes with tame scales. */
static void fill_row(test_random *random, mica_dtype dtype, unsigned char *row, uint64_t k)
{
    const uint64_t bytes = oracle_row_bytes(dtype, k);
    if (!oracle_has_scales(dtype)) {
        const double spread = test_random_one_in(random, 2) ? 0.1 : -0.1;
        test_blocks_fill(dtype, row, k / mica_dtype_block_elements(dtype), random, spread);
        return;
    }
    for (uint64_t i = 0; i < bytes; i++) {
        row[i] = (unsigned char)test_random_next(random);
        row[i] ^= dtype == MICA_DTYPE_F8_E4M3 && (row[i] & 127) == 127; /* no NaN */
    }
}

/* fp4, f8_e4m3: codes of small floats, of both signs where there is one. */
static void fill_codes(test_random *random, weight *w, double *scale, uint64_t row)
{
    for (uint64_t g = 0; g < w->groups; g++) {
        const bool e8m0 = w->scale_dtype == MICA_DTYPE_E8M0;
        const int code = e8m0 ? 118 + (int)test_random_below(random, 8)
                              : (int)(test_random_below(random, 0x30) | test_random_below(random, 2) << 7);
        w->scales[row * w->groups + g] = (unsigned char)code;
        scale[g] = e8m0 ? oracle_e8m0(code) : oracle_e4m3(code);
    }
}

static void fill_scales(test_random *random, weight *w, double *scale, double *bias, uint64_t row)
{
    if (!oracle_is_affine(w->dtype)) {
        fill_codes(random, w, scale, row);
        return;
    }
    for (uint64_t g = 0; g < w->groups; g++) {
        const bool f16 = w->scale_dtype == MICA_DTYPE_F16, f32 = w->scale_dtype == MICA_DTYPE_F32;
        for (int part = 0; part < 2; part++) {
            const float value = (float)test_random_uniform(random, -0.1, 0.1);
            const uint16_t half = f16 ? mica__f32_to_f16(value) : mica__f32_to_bf16(value);
            unsigned char *table = part == 0 ? w->scales : w->biases;
            const uint64_t at = row * w->groups + g;
            memcpy(table + at * (f32 ? 4 : 2), f32 ? (const void *)&value : (const void *)&half, f32 ? 4 : 2);
            (part == 0 ? scale : bias)[g] = f32   ? value
                                            : f16 ? mica__f16_to_f32(half)
                                                  : mica__bf16_to_f32(half);
        }
    }
}

static void pack_weight(weight *w)
{
    const uint64_t group_bytes = mica__packed_group_bytes((uint16_t)w->dtype, w->k, w->group_size);
    const uint64_t shape[3] = {w->batches, w->n, w->k};
    if (group_bytes == 0 || w->scale_dtype == MICA_DTYPE_F32)
        return;
    w->packed = malloc(w->batches * ((w->n + 7) / 8) * group_bytes);
    mica__operand operand[MICA__COPY_SLOTS] = {0};
    operand[MICA__COPY_X] = rig_operand(w->data, w->dtype, 3, shape, MICA_ACCESS_READ);
    if (w->group_size != 0) {
        const uint64_t table[3] = {w->batches, w->n, w->groups};
        operand[MICA__COPY_SCALES] = rig_operand(w->scales, w->scale_dtype, 3, table, MICA_ACCESS_READ);
        if (oracle_is_affine(w->dtype))
            operand[MICA__COPY_BIASES] = rig_operand(w->biases, w->scale_dtype, 3, table, MICA_ACCESS_READ);
    }
    operand[MICA__COPY_Y] = rig_operand(w->packed, w->dtype, 3, shape, MICA_ACCESS_WRITE);
    operand[MICA__COPY_Y].layout = MICA_LAYOUT_ROWS8;
    operand[MICA__COPY_Y].stride[1] = group_bytes / 8;
    operand[MICA__COPY_Y].stride[0] = (w->n + 7) / 8 * group_bytes;
    operand[MICA__COPY_X].group_size = operand[MICA__COPY_Y].group_size = w->group_size;
    const mica__record record = {.op = MICA_OP_COPY, .operand_count = MICA__COPY_SLOTS, .operand = operand};
    assert_int_equal(rig_run(rig_table("portable"), mica__cpu_plan_pack, &record, 2, 3), 0);
}

/* scale_dtype and group_size: of affine types. fp4 has groups of 32 for multiples of 64, else of 16;
 * f8_e4m3 scales of e8m0. */
static weight weight_make(test_random *random, mica_dtype dtype, mica_dtype scale_dtype, uint32_t group_size,
                          uint64_t batches, uint64_t n, uint64_t k)
{
    const bool grouped = oracle_has_scales(dtype);
    weight w = {.dtype = dtype, .scale_dtype = scale_dtype, .batches = batches, .n = n, .k = k};
    const uint64_t rows = batches * n, row_bytes = oracle_row_bytes(dtype, k);
    if (dtype == MICA_DTYPE_FP4) {
        group_size = group_size % 64 != 0 ? 16 : 32;
        w.scale_dtype = group_size == 16 ? MICA_DTYPE_F8_E4M3 : MICA_DTYPE_E8M0;
    }
    if (dtype == MICA_DTYPE_F8_E4M3)
        w.scale_dtype = MICA_DTYPE_E8M0;
    w.group_size = grouped ? group_size : 0;
    w.groups = grouped ? (k + group_size - 1) / group_size : 1;
    w.data = malloc(rows * row_bytes);
    w.scales = malloc(rows * w.groups * 4);
    w.biases = malloc(rows * w.groups * 4);
    w.value = malloc(rows * k * sizeof(double));
    w.magnitude = malloc(rows * k * sizeof(double));
    double *scale = malloc(w.groups * sizeof *scale), *bias = malloc(w.groups * sizeof *bias);
    const oracle_groups groups = {scale, bias, group_size};
    for (uint64_t r = 0; r < rows; r++) {
        fill_row(random, dtype, w.data + r * row_bytes, k);
        if (grouped)
            fill_scales(random, &w, scale, bias, r);
        oracle_decode_row(dtype, w.data + r * row_bytes, k, &groups, w.value + r * k, w.magnitude + r * k);
    }
    free(scale);
    free(bias);
    pack_weight(&w);
    return w;
}

static void weight_free(weight *w)
{
    free(w->data);
    free(w->scales);
    free(w->biases);
    free(w->packed);
    free(w->value);
    free(w->magnitude);
}

/* Weight, scales and biases into three operands; 2-d where there is one batch and `flat`. */
static void weight_operands(const weight *w, bool packed, bool flat, mica__operand *out)
{
    const uint64_t shape[3] = {w->batches, w->n, w->k}, table[3] = {w->batches, w->n, w->groups};
    const uint32_t skip = flat ? 1 : 0, ndim = 3 - skip;
    out[0] = rig_operand(packed ? w->packed : w->data, w->dtype, ndim, shape + skip, MICA_ACCESS_READ);
    out[0].group_size = w->group_size;
    if (packed) {
        const uint64_t group_bytes = mica__packed_group_bytes((uint16_t)w->dtype, w->k, w->group_size);
        out[0].layout = MICA_LAYOUT_ROWS8;
        out[0].stride[ndim - 2] = group_bytes / 8;
        if (!flat)
            out[0].stride[0] = (w->n + 7) / 8 * group_bytes;
    } else if (w->group_size != 0) {
        out[1] = rig_operand(w->scales, w->scale_dtype, ndim, table + skip, MICA_ACCESS_READ);
        if (oracle_is_affine(w->dtype))
            out[2] = rig_operand(w->biases, w->scale_dtype, ndim, table + skip, MICA_ACCESS_READ);
    }
}

/* Activations [rows, k]: f32, f16 or bf16 at any address, with their values. */
typedef struct rows {
    mica_dtype dtype;
    uint64_t count, k;
    unsigned char *data; /* one byte into its block */
    float *value;        /* what the elements hold */
} rows;

static rows rows_make(test_random *random, mica_dtype dtype, uint64_t count, uint64_t k)
{
    rows x = {dtype, count, k, malloc(count * k * 4 + 1), malloc(count * k * sizeof(float))};
    for (uint64_t i = 0; i < count * k; i++) {
        float v = (float)test_random_normal(random);
        const uint16_t half = dtype == MICA_DTYPE_F16 ? mica__f32_to_f16(v) : mica__f32_to_bf16(v);
        if (dtype != MICA_DTYPE_F32)
            v = dtype == MICA_DTYPE_F16 ? mica__f16_to_f32(half) : mica__bf16_to_f32(half);
        x.value[i] = v;
        if (dtype == MICA_DTYPE_F32)
            memcpy(x.data + 1 + 4 * i, &v, 4);
        else
            memcpy(x.data + 1 + 2 * i, &half, 2);
    }
    return x;
}

static void rows_free(rows *x)
{
    free(x->data);
    free(x->value);
}

static mica__operand rows_operand(const rows *x, uint64_t first, uint64_t count)
{
    const uint64_t shape[2] = {count, x->k}, size = x->dtype == MICA_DTYPE_F32 ? 4 : 2;
    return rig_operand(x->data + 1 + first * x->k * size, x->dtype, 2, shape, MICA_ACCESS_READ);
}

/* y [count, n] f32 = rows [first, first + count) . w^T. */
static void multiply(const mica__cpu_kernel *table, const weight *w, bool packed, const rows *x,
                     uint64_t first, uint64_t count, mica_precision precision, uint32_t piece, float *y)
{
    mica__operand operand[MICA__MATMUL_OPERANDS(1)] = {0};
    const uint64_t shape[2] = {count, w->n};
    const mica__matmul_record params = {.precision = precision, .weight_count = 1};
    operand[MICA__MATMUL_X] = rows_operand(x, first, count);
    weight_operands(w, packed, true, &operand[MICA__MATMUL_SLOT(0, 0)]);
    operand[MICA__MATMUL_SLOT(0, MICA__WEIGHT_Y)] =
        rig_operand(y, MICA_DTYPE_F32, 2, shape, MICA_ACCESS_WRITE);
    const mica__record record = {.op = MICA_OP_MATMUL,
                                 .operand_count = MICA__MATMUL_OPERANDS(1),
                                 .operand = operand,
                                 .params_size = sizeof params,
                                 .params = (void *)(uintptr_t)&params};
    assert_int_equal(rig_run(table, mica__cpu_plan_matmul, &record, 2, piece), 0);
}

/* Each of at most k additions to an accumulator rounds by half a unit of the sum of magnitudes so far, and the scale
 * products by a few more. */
static void assert_near_oracle(const weight *w, const rows *x, bool q8, const float *y, const char *what)
{
    double *seen = malloc(w->k * sizeof *seen), *exact = malloc(w->k * sizeof *exact);
    for (uint64_t m = 0; m < x->count; m++) {
        for (uint64_t i = 0; i < w->k; i++)
            exact[i] = x->value[m * w->k + i];
        if (q8)
            oracle_quantise_q8(exact, w->k, seen);
        else
            memcpy(seen, exact, w->k * sizeof *seen);
        for (uint64_t n = 0; n < w->n; n++) {
            double want = 0, magnitude = 0;
            for (uint64_t i = 0; i < w->k; i++) {
                want += seen[i] * w->value[n * w->k + i];
                magnitude += fabs(seen[i]) * w->magnitude[n * w->k + i];
            }
            const double bound = ((double)(w->k / 32) + 8) * 6e-8 * magnitude + 1e-30;
            if (!(fabs(y[m * w->n + n] - want) <= bound))
                fail_msg("%s row %llu column %llu: %.9g, expected %.9g within %.3g", what,
                         (unsigned long long)m, (unsigned long long)n, (double)y[m * w->n + n], want, bound);
        }
    }
    free(seen);
    free(exact);
}

static uint64_t random_k(test_random *random, mica_dtype dtype)
{
    const uint64_t block = mica_dtype_block_elements(dtype);
    return block * (1 + test_random_below(random, block == 256 ? 9 : 2200 / block));
}

static void check_matmul(const mica__cpu_kernel *table, const char *isa, test_random *random,
                         mica_dtype dtype)
{
    static const mica_dtype float_types[] = {MICA_DTYPE_F32, MICA_DTYPE_F16, MICA_DTYPE_BF16};
    static const uint32_t group_sizes[] = {32, 64, 128, 256, 2048, 20, 1};
    const mica_dtype scale_dtype =
        test_random_one_in(random, 8) ? MICA_DTYPE_F32 : float_types[1 + test_random_below(random, 2)];
    const uint32_t group_size = group_sizes[test_random_below(random, COUNT(group_sizes))];
    const uint64_t n = test_random_size(random, 70), m = test_random_size(random, 40);
    weight w = weight_make(random, dtype, scale_dtype, group_size, 1, n, random_k(random, dtype));
    rows x = rows_make(random, float_types[test_random_below(random, 3)], m, w.k);
    float *y = malloc(m * n * sizeof *y), *again = malloc(m * n * sizeof *again);
    char what[80];
    const bool q8 = oracle_is_affine(dtype) ? group_size % 32 == 0 && scale_dtype != MICA_DTYPE_F32
                                            : dtype != MICA_DTYPE_F8_E4M3;
    snprintf(what, sizeof what, "%s %s", isa, mica_dtype_name(dtype));
    multiply(table, &w, false, &x, 0, m, MICA_PRECISION_DEFAULT, 0, y);
    assert_near_oracle(&w, &x, q8, y, what);
    multiply(table, &w, w.packed != NULL, &x, 0, m, MICA_PRECISION_Q8,
             1 + (uint32_t)test_random_below(random, 5), again);
    assert_memory_equal(y, again, m * n * sizeof *y);
    for (uint64_t row = 0; row < m;) { /* any rows together */
        const uint64_t count = 1 + test_random_below(random, m - row);
        multiply(table, &w, test_random_one_in(random, 2) && w.packed != NULL, &x, row, count,
                 MICA_PRECISION_Q8, 2, again);
        assert_memory_equal(y + row * n, again, count * n * sizeof *y);
        row += count;
    }
    multiply(table, &w, false, &x, 0, m, MICA_PRECISION_F32, 3, y);
    assert_near_oracle(&w, &x, false, y, what);
    multiply(table, &w, w.packed != NULL, &x, 0, 1, MICA_PRECISION_F16, 1, again);
    assert_memory_equal(y, again, n * sizeof *y);
    free(y);
    free(again);
    rows_free(&x);
    weight_free(&w);
}

static void test_matmul(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < RIG_ISAS; i++) {
        const mica__cpu_kernel *table = rig_table(rig_isa_name[i]);
        test_random random = test_random_from(10);
        for (uint32_t round = 0; table != NULL && round < (TEST_ANY_SANITIZER ? 2 : 6) * COUNT(types);
             round++)
            check_matmul(table, rig_isa_name[i], &random, types[round % COUNT(types)]);
        for (uint32_t round = 0; table != NULL && round < 12; round++)
            check_matmul(table, rig_isa_name[i], &random, MICA_DTYPE_F8_E4M3);
    }
}

/* Bytes of a block that are neither d nor what lies beside it. */
static void code_bytes(mica_dtype dtype, uint64_t *first, uint64_t *end)
{
    const bool d_last = dtype == MICA_DTYPE_Q3_K || dtype == MICA_DTYPE_Q6_K;
    const bool two = dtype == MICA_DTYPE_Q4_1 || dtype == MICA_DTYPE_Q5_1 || dtype == MICA_DTYPE_Q2_K ||
                     dtype == MICA_DTYPE_Q4_K || dtype == MICA_DTYPE_Q5_K;
    uint64_t scales = two || dtype == MICA_DTYPE_NVFP4 ? 4 : dtype == MICA_DTYPE_MXFP4 ? 1 : 2;
    scales = oracle_has_scales(dtype) ? 0 : scales;
    *first = d_last || dtype == MICA_DTYPE_Q2_K ? 0 : scales;
    *end = mica_dtype_block_bytes(dtype) - (*first == 0 ? scales : 0);
}

/* The extremes of every integer bound: all codes and all activations at the ends of their range. */
static void test_extremes(void **state)
{
    (void)state;
    test_random random = test_random_from(11);
    for (uint32_t i = 0; i < RIG_ISAS * COUNT(types); i++) {
        const mica__cpu_kernel *table = rig_table(rig_isa_name[i % RIG_ISAS]);
        weight w = weight_make(&random, types[i / RIG_ISAS], MICA_DTYPE_BF16, i % 2 ? 32 : 64, 1, 16, 512);
        rows x = rows_make(&random, MICA_DTYPE_F32, 2, w.k);
        const uint64_t row_bytes = oracle_row_bytes(w.dtype, w.k), block = mica_dtype_block_bytes(w.dtype);
        for (uint64_t r = 0; r < w.n; r++) { /* codes only: scales at either end of a block stay */
            unsigned char *row = w.data + r * row_bytes;
            uint64_t first, end;
            code_bytes(w.dtype, &first, &end);
            for (uint64_t b = 0; b < row_bytes; b++)
                if (b % block >= first && b % block < end)
                    row[b] = r % 4 == 0 ? 0xff : r % 4 == 1 ? 0x00 : r % 4 == 2 ? 0x80 : 0x7f;
            double scale[32], bias[32];
            const oracle_groups groups = {scale, bias, w.group_size};
            if (w.group_size != 0)
                fill_scales(&random, &w, scale, bias, r);
            oracle_decode_row(w.dtype, row, w.k, &groups, w.value + r * w.k, w.magnitude + r * w.k);
        }
        for (uint64_t k = 0; k < 2 * w.k; k++) {
            x.value[k] = k < w.k ? 1.0f : -1.0f;
            memcpy(x.data + 1 + 4 * k, &x.value[k], 4);
        }
        float y[2 * 16];
        if (table != NULL) {
            multiply(table, &w, false, &x, 0, 2, MICA_PRECISION_DEFAULT, 0, y);
            assert_near_oracle(&w, &x, true, y, rig_isa_name[i % RIG_ISAS]);
        }
        rows_free(&x);
        weight_free(&w);
    }
}

/* A row with a NaN or an infinity is NaN; its neighbours, zero rows and rows too small to scale are what they were. */
static void test_special_values(void **state)
{
    (void)state;
    test_random random = test_random_from(12);
    weight w = weight_make(&random, MICA_DTYPE_Q4_0, MICA_DTYPE_NONE, 0, 1, 9, 96);
    rows x = rows_make(&random, MICA_DTYPE_F32, 6, w.k);
    const float nan = NAN, infinity = -INFINITY, small = 1e-38f;
    memcpy(x.data + 1 + 4 * (1 * w.k + 40), &nan, 4);
    memcpy(x.data + 1 + 4 * (2 * w.k + 95), &infinity, 4);
    memset(x.data + 1 + 4 * 3 * w.k, 0, 4 * w.k);
    for (uint64_t k = 0; k < w.k; k++)
        memcpy(x.data + 1 + 4 * (4 * w.k + k), &small, 4);
    for (uint32_t i = 0; i < RIG_ISAS; i++) {
        const mica__cpu_kernel *table = rig_table(rig_isa_name[i]);
        float y[6 * 9];
        if (table == NULL)
            continue;
        multiply(table, &w, true, &x, 0, 6, MICA_PRECISION_DEFAULT, 0, y);
        for (uint64_t n = 0; n < w.n; n++) {
            assert_true(isnan(y[1 * w.n + n]) && isnan(y[2 * w.n + n]));
            assert_true(y[3 * w.n + n] == 0.0f && y[4 * w.n + n] == 0.0f);
            assert_true(isfinite(y[n]) && isfinite(y[5 * w.n + n]));
        }
    }
    rows_free(&x);
    weight_free(&w);
}

/* ---- what fusion hangs on ---- */

typedef struct fused_case {
    weight w[3];
    rows x, norm_weight, residual;
    uint64_t m;
} fused_case;

static void run_record(const mica__cpu_kernel *table, rig_plan plan, uint16_t op, mica__operand *operand,
                       uint32_t count, void *params, uint32_t size, uint32_t piece)
{
    const mica__record record = {.op = op,
                                 .operand_count = (uint16_t)count,
                                 .operand = operand,
                                 .params_size = (uint16_t)size,
                                 .params = params};
    assert_int_equal(rig_run(table, plan, &record, 2, piece), 0);
}

static mica__operand floats(float *data, uint64_t m, uint64_t n, uint32_t access)
{
    return rig_operand(data, MICA_DTYPE_F32, 2, (uint64_t[]){m, n}, access);
}

static void run_norm(const mica__cpu_kernel *table, const fused_case *c, float *y)
{
    mica__operand operand[MICA__NORM_SLOTS] = {0};
    mica_norm_params params = {1e-5f};
    operand[MICA__NORM_X] = rows_operand(&c->x, 0, c->m);
    operand[MICA__NORM_WEIGHT] = rows_operand(&c->norm_weight, 0, 1);
    operand[MICA__NORM_WEIGHT].ndim = 1;
    operand[MICA__NORM_WEIGHT].shape[0] = c->x.k;
    operand[MICA__NORM_WEIGHT].stride[0] = operand[MICA__NORM_WEIGHT].stride[1];
    operand[MICA__NORM_Y] = floats(y, c->m, c->x.k, MICA_ACCESS_WRITE);
    run_record(table, mica__cpu_plan_rms_norm, MICA_OP_RMS_NORM, operand, MICA__NORM_SLOTS, &params,
               sizeof params, 2);
}

/* Norm, then three weights of different types; y_0 with softcap and residual, or gated by y_1. */
static void run_fused(const mica__cpu_kernel *table, const fused_case *c, mica__matmul_record params,
                      float *y[3])
{
    mica__operand operand[MICA__MATMUL_OPERANDS(3)] = {0};
    operand[MICA__MATMUL_X] = rows_operand(&c->x, 0, c->m);
    operand[MICA__MATMUL_NORM_WEIGHT] = rows_operand(&c->norm_weight, 0, 1);
    if (params.gate == MICA__GATE_NONE)
        operand[MICA__MATMUL_RESIDUAL] = rows_operand(&c->residual, 0, c->m);
    for (uint32_t i = 0; i < params.weight_count; i++) {
        weight_operands(&c->w[i], i != 1, true, &operand[MICA__MATMUL_SLOT(i, 0)]);
        if (y[i] != NULL)
            operand[MICA__MATMUL_SLOT(i, MICA__WEIGHT_Y)] = floats(y[i], c->m, c->w[i].n, MICA_ACCESS_WRITE);
    }
    run_record(table, mica__cpu_plan_matmul, MICA_OP_MATMUL, operand,
               MICA__MATMUL_OPERANDS(params.weight_count), &params, sizeof params, 3);
}

/* y = the scalar of y alone, of y and an operand, or of y and a constant: in place. */
static void run_scalar(const mica__cpu_kernel *table, mica_scalar scalar, float *y,
                       const mica__operand *other, float constant, uint64_t m, uint64_t n)
{
    const uint32_t arity = mica__scalar_of(scalar)->arity, inputs = other != NULL ? 2 : 1;
    const uint8_t none = MICA_REGION_NONE;
    mica__operand operand[3] = {floats(y, m, n, MICA_ACCESS_READ)};
    mica__region_small small;
    mica__region_program *program = &small.program;
    mica__region_begin(program, inputs, 1);
    memset(program->input, MICA_REGISTER_F32, inputs);
    if (other != NULL)
        operand[1] = *other;
    else if (arity == 2)
        program->step[program->step_count++] = (mica_region_step){
            MICA_SCALAR_CONSTANT, MICA_REGISTER_F32, {none, none, none}, 0, {0}, {.f32 = constant}};
    program->step[program->step_count++] =
        (mica_region_step){(uint8_t)scalar, MICA_REGISTER_F32, {0, arity == 2 ? 1 : none, none}, 0, {0}, {0}};
    program->output[0] = (uint8_t)(inputs + program->step_count - 1);
    operand[inputs] = floats(y, m, n, MICA_ACCESS_WRITE);
    run_record(table, mica__cpu_plan_region, MICA_OP_REGION, operand, inputs + 1, program,
               mica__region_bytes(program->step_count), 1);
}

static fused_case fused_make(test_random *random, uint64_t m)
{
    const uint64_t k = 768, n = 37;
    fused_case c = {.m = m};
    c.w[0] = weight_make(random, MICA_DTYPE_Q4_K, MICA_DTYPE_NONE, 0, 1, n, k);
    c.w[1] = weight_make(random, MICA_DTYPE_AFFINE6, MICA_DTYPE_BF16, 48, 1, n, k); /* reads f32 beside q8 */
    c.w[2] = weight_make(random, MICA_DTYPE_Q6_K, MICA_DTYPE_NONE, 0, 1, 100, k);
    c.w[1].packed = c.w[1].data;
    c.x = rows_make(random, MICA_DTYPE_BF16, m, k);
    c.norm_weight = rows_make(random, MICA_DTYPE_F16, 1, k);
    c.residual = rows_make(random, MICA_DTYPE_F32, m, n);
    return c;
}

static void fused_free(fused_case *c)
{
    c->w[1].packed = NULL;
    for (int i = 0; i < 3; i++)
        weight_free(&c->w[i]);
    rows_free(&c->x);
    rows_free(&c->norm_weight);
    rows_free(&c->residual);
}

static void check_fused(const mica__cpu_kernel *table, const fused_case *c)
{
    const uint64_t m = c->m, n = c->w[0].n, k = c->x.k;
    float *normed = malloc(m * k * sizeof(float)), *want[3], *got[3];
    run_norm(table, c, normed);
    rows plain = {MICA_DTYPE_F32, m, k, malloc(m * k * 4 + 1), NULL};
    memcpy(plain.data + 1, normed, m * k * 4);
    for (int i = 0; i < 3; i++) {
        want[i] = malloc(m * c->w[i].n * sizeof(float));
        got[i] = malloc(m * c->w[i].n * sizeof(float));
        multiply(table, &c->w[i], false, &plain, 0, m, MICA_PRECISION_DEFAULT, 0, want[i]);
    }
    mica__matmul_record params = {.weight_count = 2, .norm = 1, .eps = 1e-5f};
    for (uint32_t gate = MICA__GATE_SILU; gate <= MICA__GATE_GELU; gate++) {
        float *expected = malloc(m * n * sizeof(float));
        memcpy(expected, want[0], m * n * sizeof(float));
        const mica__operand up = floats(want[1], m, n, MICA_ACCESS_READ);
        run_scalar(table, gate == MICA__GATE_SILU ? MICA_SCALAR_SILU : MICA_SCALAR_GELU, expected, NULL, 0, m,
                   n);
        run_scalar(table, MICA_SCALAR_MUL, expected, &up, 0, m, n);
        params.gate = gate;
        run_fused(table, c, params, (float *[]){got[0], NULL, NULL});
        assert_memory_equal(got[0], expected, m * n * sizeof(float));
        free(expected);
    }
    const mica__operand residual = rows_operand(&c->residual, 0, m);
    run_scalar(table, MICA_SCALAR_SOFTCAP, want[0], NULL, 3.0f, m, n);
    run_scalar(table, MICA_SCALAR_ADD, want[0], &residual, 0, m, n);
    params = (mica__matmul_record){.weight_count = 3, .norm = 1, .eps = 1e-5f, .softcap = 3.0f};
    run_fused(table, c, params, got);
    for (int i = 0; i < 3; i++) {
        assert_memory_equal(got[i], want[i], m * c->w[i].n * sizeof(float));
        free(got[i]);
        free(want[i]);
    }
    free(plain.data);
    free(normed);
}

/* Fused records have the bits of their parts, with few rows (prepared by each thread) and with many. */
static void test_fused(void **state)
{
    (void)state;
    const uint64_t rows_of[] = {1, 3, 21};
    test_random random = test_random_from(13);
    for (uint32_t r = 0; r < COUNT(rows_of); r++) {
        fused_case c = fused_make(&random, rows_of[r]);
        for (uint32_t i = 0; i < RIG_ISAS; i++)
            if (rig_table(rig_isa_name[i]) != NULL)
                check_fused(rig_table(rig_isa_name[i]), &c);
        fused_free(&c);
    }
}

/* ---- batches and experts ---- */

/* One matrix of a batched weight. */
static weight matrix_of(const weight *w, uint64_t index)
{
    const uint64_t size = !oracle_is_affine(w->dtype) ? 1 : w->scale_dtype == MICA_DTYPE_F32 ? 4 : 2;
    weight one = *w;
    one.batches = 1;
    one.data += index * w->n * oracle_row_bytes(w->dtype, w->k);
    one.scales += index * w->n * w->groups * size;
    one.biases += index * w->n * w->groups * size;
    return one;
}

/* x [B', M, K] against [B, N, K], rows of x and y apart from each other. */
static void test_batched(void **state)
{
    (void)state;
    test_random random = test_random_from(14);
    for (uint32_t round = 0; round < RIG_ISAS * COUNT(types); round++) {
        const mica__cpu_kernel *table = rig_table(rig_isa_name[round % RIG_ISAS]);
        const uint64_t b = 3, each = 2, m = 1 + round % 3 * 3, n = 19, pad = 5;
        weight w = weight_make(&random, types[round / RIG_ISAS], MICA_DTYPE_F16, 32, b, n, 512);
        rows x = rows_make(&random, MICA_DTYPE_F16, b * each * m, w.k);
        float *y = calloc(b * each * m * (n + pad), sizeof *y), want[19];
        mica__operand operand[MICA__MATMUL_OPERANDS(1)] = {0};
        mica__matmul_record params = {.weight_count = 1};
        operand[MICA__MATMUL_X] =
            rig_operand(x.data + 1, x.dtype, 3, (uint64_t[]){b * each, m, w.k}, MICA_ACCESS_READ);
        weight_operands(&w, round % 2 == 0, false, &operand[MICA__MATMUL_SLOT(0, 0)]);
        mica__operand *out = &operand[MICA__MATMUL_SLOT(0, MICA__WEIGHT_Y)];
        *out = rig_operand(y, MICA_DTYPE_F32, 3, (uint64_t[]){b * each, m, n}, MICA_ACCESS_WRITE);
        out->stride[1] = (n + pad) * sizeof *y;
        out->stride[0] = m * out->stride[1];
        if (table != NULL)
            run_record(table, mica__cpu_plan_matmul, MICA_OP_MATMUL, operand, MICA__MATMUL_OPERANDS(1),
                       &params, sizeof params, 2);
        for (uint64_t r = 0; table != NULL && r < b * each * m; r++) {
            const weight one = matrix_of(&w, r / (each * m));
            multiply(table, &one, false, &x, r, 1, MICA_PRECISION_DEFAULT, 0, want);
            assert_memory_equal(y + r * (n + pad), want, sizeof want);
            for (uint64_t i = 0; i < pad; i++)
                assert_true(y[r * (n + pad) + n + i] == 0.0f);
        }
        free(y);
        rows_free(&x);
        weight_free(&w);
    }
}

typedef struct experts_case {
    weight w;
    rows x;
    uint64_t tokens, slots; /* slots per token */
    bool per_slot;
    uint32_t *ids;
} experts_case;

static uint32_t run_experts(const mica__cpu_kernel *table, const experts_case *c, bool packed, uint32_t piece,
                            float *y)
{
    mica__operand operand[MICA__EXPERTS_SLOTS] = {0};
    mica__matmul_record params = {.weight_count = 1};
    const uint64_t per_slot[3] = {c->tokens, c->slots, c->w.k}, per_token[2] = {c->tokens, c->w.k};
    operand[MICA__EXPERTS_X] = rig_operand(c->x.data + 1, c->x.dtype, c->per_slot ? 3 : 2,
                                           c->per_slot ? per_slot : per_token, MICA_ACCESS_READ);
    operand[MICA__EXPERTS_IDS] =
        rig_operand(c->ids, MICA_DTYPE_U32, 2, (uint64_t[]){c->tokens, c->slots}, MICA_ACCESS_READ);
    weight_operands(&c->w, packed, false, &operand[MICA__EXPERTS_WEIGHT]);
    operand[MICA__EXPERTS_Y] =
        rig_operand(y, MICA_DTYPE_F32, 3, (uint64_t[]){c->tokens, c->slots, c->w.n}, MICA_ACCESS_WRITE);
    const mica__record record = {.op = MICA_OP_MATMUL_EXPERTS,
                                 .operand_count = MICA__EXPERTS_SLOTS,
                                 .operand = operand,
                                 .params_size = sizeof params,
                                 .params = &params};
    return rig_run(table, mica__cpu_plan_matmul_experts, &record, 2, piece);
}

static void check_experts(const mica__cpu_kernel *table, test_random *random, mica_dtype dtype, bool bad)
{
    const uint64_t experts = 1 + test_random_below(random, 9);
    experts_case c = {.tokens = test_random_size(random, 40), .slots = 1 + test_random_below(random, 4)};
    const uint64_t count = c.tokens * c.slots;
    c.per_slot = test_random_one_in(random, 2);
    c.w = weight_make(random, dtype, MICA_DTYPE_BF16, test_random_one_in(random, 3) ? 40 : 64, experts, 21,
                      mica_dtype_block_elements(dtype) * (256 / mica_dtype_block_elements(dtype) + 3));
    c.x = rows_make(random, MICA_DTYPE_F32, c.per_slot ? count : c.tokens, c.w.k);
    c.ids = malloc(count * sizeof *c.ids);
    uint32_t wrong = 0;
    for (uint64_t s = 0; s < count; s++) {
        c.ids[s] = (uint32_t)test_random_below(random, experts);
        if (bad && test_random_one_in(random, 4))
            c.ids[s] = test_random_one_in(random, 2) ? (uint32_t)experts : UINT32_MAX;
        wrong += c.ids[s] >= experts;
    }
    float *y = malloc(count * c.w.n * sizeof *y), want[21];
    memset(y, 0xcb, count * c.w.n * sizeof *y);
    const uint32_t fault = run_experts(table, &c, c.w.packed != NULL && test_random_one_in(random, 2),
                                       1 + (uint32_t)test_random_below(random, 4), y);
    assert_int_equal(fault, wrong != 0 ? 7 : 0);
    for (uint64_t s = 0; s < count; s++) {
        memset(want, 0, sizeof want);
        if (c.ids[s] < experts) {
            const weight one = matrix_of(&c.w, c.ids[s]);
            multiply(table, &one, false, &c.x, c.per_slot ? s : s / c.slots, 1, MICA_PRECISION_DEFAULT, 0,
                     want);
        }
        assert_memory_equal(y + s * c.w.n, want, sizeof want);
    }
    free(y);
    free(c.ids);
    rows_free(&c.x);
    weight_free(&c.w);
}

/* A row has the bits of matmul with its expert's matrix; a bad id gives zeros and the fault. */
static void test_experts(void **state)
{
    (void)state;
    test_random random = test_random_from(15);
    for (uint32_t round = 0; round < (TEST_ANY_SANITIZER ? 1 : 3) * RIG_ISAS * COUNT(types); round++) {
        const mica__cpu_kernel *table = rig_table(rig_isa_name[round % RIG_ISAS]);
        if (table != NULL)
            check_experts(table, &random, types[round / RIG_ISAS % COUNT(types)], round % 2 == 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matmul), cmocka_unit_test(test_extremes), cmocka_unit_test(test_special_values),
        cmocka_unit_test(test_fused),  cmocka_unit_test(test_batched),  cmocka_unit_test(test_experts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
