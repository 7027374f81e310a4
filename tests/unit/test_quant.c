/* test_quant.c: block formats and the packed layout, against decoders that share nothing with them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "oracle/oracle_blocks.h"
#include "quant/packed.h"
#include "quant/quant.h"
#include "support/random.h"
#include "support/tensor.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const mica_dtype block_types[] = {
    MICA_DTYPE_Q4_0,   MICA_DTYPE_Q4_1,   MICA_DTYPE_Q5_0,  MICA_DTYPE_Q5_1, MICA_DTYPE_Q8_0,
    MICA_DTYPE_Q2_K,   MICA_DTYPE_Q3_K,   MICA_DTYPE_Q4_K,  MICA_DTYPE_Q5_K, MICA_DTYPE_Q6_K,
    MICA_DTYPE_IQ4_NL, MICA_DTYPE_IQ4_XS, MICA_DTYPE_MXFP4, MICA_DTYPE_NVFP4};
static const mica_dtype affine_types[] = {MICA_DTYPE_AFFINE2, MICA_DTYPE_AFFINE3, MICA_DTYPE_AFFINE4,
                                          MICA_DTYPE_AFFINE5, MICA_DTYPE_AFFINE6, MICA_DTYPE_AFFINE8};

static void random_bytes(test_random *random, void *dst, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        ((uint8_t *)dst)[i] = (uint8_t)test_random_next(random);
}

/* Random codes; scales are tame so that every value is finite. */
static void random_row(test_random *random, mica_dtype dtype, uint8_t *row, size_t k)
{
    test_blocks_fill(dtype, row, k / mica_dtype_block_elements(dtype), random,
                     test_random_one_in(random, 2) ? 1 : -1);
}

/* Every value of these types fits f32 but for one rounding at the end, so the double says the bits. */
static void assert_row_is(const float *got, const double *want, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (got[i] != (float)want[i])
            fail_msg("value %zu is %.9g, expected %.9g", i, (double)got[i], want[i]);
}

static void test_dtype_facts(void **state)
{
    (void)state;
    for (int i = 1; i < MICA_DTYPE_COUNT; i++) {
        const char *name = mica_dtype_name((mica_dtype)i);
        assert_string_not_equal(name, "none");
        assert_int_equal(mica_dtype_from_name(name), i);
        assert_true(mica_dtype_block_elements((mica_dtype)i) > 0 &&
                    mica_dtype_block_bytes((mica_dtype)i) > 0);
    }
    const int unknown[] = {0, -1, MICA_DTYPE_COUNT, 1 << 20};
    for (size_t i = 0; i < COUNT(unknown); i++) {
        assert_string_equal(mica_dtype_name((mica_dtype)unknown[i]), "none");
        assert_int_equal(mica_dtype_block_elements((mica_dtype)unknown[i]), 0);
        assert_int_equal(mica_dtype_block_bytes((mica_dtype)unknown[i]), 0);
    }
    assert_int_equal(mica_dtype_from_name("none"), MICA_DTYPE_NONE);
    assert_int_equal(mica_dtype_from_name("q4_9"), MICA_DTYPE_NONE);
    assert_int_equal(mica_dtype_from_name(NULL), MICA_DTYPE_NONE);
    assert_int_equal(mica_dtype_block_bytes(MICA_DTYPE_Q6_K), 210);
}

static void test_decode_blocks(void **state)
{
    (void)state;
    test_random random = test_random_from(1);
    for (size_t t = 0; t < COUNT(block_types); t++) {
        enum { K = 1024 };
        uint8_t row[K * 2 + 1];
        double want[K], magnitude[K];
        float got[K];
        for (int round = 0; round < 20; round++) {
            uint8_t *at = row + round % 2; /* any address */
            random_row(&random, block_types[t], at, K);
            oracle_decode_row(block_types[t], at, K, NULL, want, magnitude);
            mica__quant_decode_row((uint16_t)block_types[t], at, got, K);
            assert_row_is(got, want, K);
        }
    }
}

typedef struct affine_case {
    mica_dtype dtype, scale_dtype;
    uint32_t group_size;
    size_t k, rows, groups;
    uint8_t *q, *scales, *biases;
    double *scale_value, *bias_value; /* [rows][groups] */
} affine_case;

static void put_scale(mica_dtype dtype, uint8_t *table, size_t i, float value, double *out)
{
    if (dtype == MICA_DTYPE_F32) {
        memcpy(table + 4 * i, &value, 4);
        *out = value;
        return;
    }
    const uint16_t half = dtype == MICA_DTYPE_F16 ? mica__f32_to_f16(value) : mica__f32_to_bf16(value);
    memcpy(table + 2 * i, &half, 2);
    *out = dtype == MICA_DTYPE_F16 ? mica__f16_to_f32(half) : mica__bf16_to_f32(half);
}

static affine_case affine_make(test_random *random, mica_dtype dtype, mica_dtype scale_dtype,
                               uint32_t group_size, size_t rows, size_t k)
{
    affine_case c = {dtype, scale_dtype, group_size, k,    rows, (k + group_size - 1) / group_size,
                     NULL,  NULL,        NULL,       NULL, NULL};
    c.q = malloc(rows * oracle_row_bytes(dtype, k));
    c.scales = malloc(rows * c.groups * 4);
    c.biases = malloc(rows * c.groups * 4);
    c.scale_value = malloc(rows * c.groups * sizeof(double));
    c.bias_value = malloc(rows * c.groups * sizeof(double));
    random_bytes(random, c.q, rows * oracle_row_bytes(dtype, k));
    for (size_t i = 0; i < rows * c.groups; i++) {
        put_scale(scale_dtype, c.scales, i, (float)test_random_uniform(random, -0.1, 0.1), &c.scale_value[i]);
        put_scale(scale_dtype, c.biases, i, (float)test_random_uniform(random, -1, 1), &c.bias_value[i]);
    }
    return c;
}

static void affine_free(affine_case *c)
{
    free(c->q);
    free(c->scales);
    free(c->biases);
    free(c->scale_value);
    free(c->bias_value);
}

static void affine_oracle(const affine_case *c, size_t row, double *want)
{
    double *magnitude = malloc(c->k * sizeof(double));
    const oracle_groups groups = {c->scale_value + row * c->groups, c->bias_value + row * c->groups,
                                  c->group_size};
    oracle_decode_row(c->dtype, c->q + row * oracle_row_bytes(c->dtype, c->k), c->k, &groups, want,
                      magnitude);
    free(magnitude);
}

static size_t scale_bytes(mica_dtype dtype)
{
    return dtype == MICA_DTYPE_F32 ? 4 : 2;
}

static void test_decode_affine(void **state)
{
    (void)state;
    const mica_dtype scale_types[] = {MICA_DTYPE_BF16, MICA_DTYPE_F16, MICA_DTYPE_F32};
    const uint32_t sizes[] = {1, 5, 32, 64, 100, 1000};
    test_random random = test_random_from(3);
    for (size_t t = 0; t < COUNT(affine_types) * COUNT(scale_types) * COUNT(sizes); t++) {
        const mica_dtype scale_dtype = scale_types[t / COUNT(affine_types) % COUNT(scale_types)];
        const size_t k = 16 * (1 + test_random_below(&random, 20));
        affine_case c = affine_make(&random, affine_types[t % COUNT(affine_types)], scale_dtype,
                                    sizes[t / COUNT(affine_types) / COUNT(scale_types)], 1, k);
        float *got = malloc(k * sizeof *got);
        double *want = malloc(k * sizeof *want);
        affine_oracle(&c, 0, want);
        mica__affine_decode_row((uint16_t)c.dtype, c.q, c.scales, c.biases, (uint16_t)scale_dtype,
                                c.group_size, got, k);
        for (size_t i = 0; i < k; i++) /* an f32 scale rounds its product too */
            assert_true(scale_dtype == MICA_DTYPE_F32 ? fabs(got[i] - want[i]) < 3e-6
                                                      : got[i] == (float)want[i]);
        free(got);
        free(want);
        affine_free(&c);
    }
}

static void check_packed(const mica__packed_source *source, size_t rows,
                         void (*canonical)(const mica__packed_source *, size_t row, float *dst))
{
    mica__packed_form form;
    assert_true(mica__packed_form_of(source->dtype, source->group_size, &form));
    const uint64_t bytes = mica__packed_group_bytes(source->dtype, source->k, source->group_size);
    assert_true(bytes % 64 == 0 && bytes > 0);
    unsigned char *group = malloc(bytes + 1);
    float *want = malloc(source->k * sizeof *want), *got = malloc((source->k + 1) * sizeof *got);
    for (size_t first = 0; first < rows; first += 8) {
        const uint32_t present = rows - first < 8 ? (uint32_t)(rows - first) : 8;
        memset(group, 0xcb, bytes + 1);
        mica__packed_write_group(source, &form, first, present, group);
        assert_int_equal(group[bytes], 0xcb);
        for (uint32_t r = 0; r < 8; r++) {
            got[source->k] = 12345.0f;
            mica__packed_decode_row(source->dtype, group, r, source->k, source->group_size, got);
            assert_true(got[source->k] == 12345.0f);
            if (r < present)
                canonical(source, first + r, want);
            for (size_t i = 0; i < source->k; i++)
                assert_true(r < present ? memcmp(&got[i], &want[i], 4) == 0 : got[i] == 0.0f);
        }
    }
    free(group);
    free(want);
    free(got);
}

static void block_row(const mica__packed_source *s, size_t row, float *dst)
{
    mica__quant_decode_row(s->dtype, s->data + row * s->row_stride, dst, s->k);
}

static void affine_row(const mica__packed_source *s, size_t row, float *dst)
{
    mica__affine_decode_row(s->dtype, s->data + row * s->row_stride, s->scales + row * s->scale_stride,
                            s->biases + row * s->bias_stride, s->scale_dtype, s->group_size, dst, s->k);
}

/* Packing loses nothing: a packed row decodes to the bits of the canonical one, rows past the end to zero. */
static void test_packed_rows(void **state)
{
    (void)state;
    test_random random = test_random_from(4);
    for (size_t t = 0; t < COUNT(block_types); t++) {
        const size_t k = 768, rows = 13, stride = oracle_row_bytes(block_types[t], k) + 3;
        uint8_t *data = malloc(rows * stride);
        for (size_t r = 0; r < rows; r++)
            random_row(&random, block_types[t], data + r * stride, k);
        const mica__packed_source source = {
            .data = data, .row_stride = stride, .k = k, .dtype = (uint16_t)block_types[t]};
        check_packed(&source, rows, block_row);
        free(data);
    }
    const uint32_t sizes[] = {32, 64, 96, 128, 512};
    for (size_t t = 0; t < COUNT(affine_types) * COUNT(sizes); t++) {
        const mica_dtype scale_dtype = t % 2 ? MICA_DTYPE_BF16 : MICA_DTYPE_F16;
        affine_case c = affine_make(&random, affine_types[t % COUNT(affine_types)], scale_dtype,
                                    sizes[t % COUNT(sizes)], 11, 16 * (1 + test_random_below(&random, 30)));
        const mica__packed_source source = {c.q,
                                            c.scales,
                                            c.biases,
                                            oracle_row_bytes(c.dtype, c.k),
                                            c.groups * scale_bytes(scale_dtype),
                                            c.groups * scale_bytes(scale_dtype),
                                            c.k,
                                            c.group_size,
                                            (uint16_t)c.dtype,
                                            (uint16_t)scale_dtype};
        check_packed(&source, c.rows, affine_row);
        affine_free(&c);
    }
}

static void fp4_row(const mica__packed_source *s, size_t row, float *dst)
{
    mica__affine_decode_row(s->dtype, s->data + row * s->row_stride, s->scales + row * s->scale_stride, NULL,
                            s->scale_dtype, s->group_size, dst, s->k);
}

/* Every code and every scale, NaN and minus zero too; rows that end within a part. */
static void test_packed_fp4(void **state)
{
    (void)state;
    test_random random = test_random_from(5);
    for (int t = 0; t < 40; t++) {
        const uint32_t group_size = t % 2 ? 16 : 32;
        const size_t k = 2 * (1 + test_random_below(&random, 600)), rows = 1 + test_random_below(&random, 20);
        const size_t groups = (k + group_size - 1) / group_size;
        uint8_t *codes = malloc(rows * k / 2), *scales = malloc(rows * groups);
        random_bytes(&random, codes, rows * k / 2);
        random_bytes(&random, scales, rows * groups);
        const mica__packed_source source = {.data = codes,
                                            .scales = scales,
                                            .row_stride = k / 2,
                                            .scale_stride = groups,
                                            .k = k,
                                            .group_size = group_size,
                                            .dtype = MICA_DTYPE_FP4,
                                            .scale_dtype = t % 2 ? MICA_DTYPE_F8_E4M3 : MICA_DTYPE_E8M0};
        assert_true(mica__packed_scales(MICA_DTYPE_FP4, group_size, source.scale_dtype));
        check_packed(&source, rows, fp4_row);
        free(codes);
        free(scales);
    }
}

static void test_packed_sizes(void **state)
{
    (void)state;
    for (size_t t = 0; t < COUNT(block_types); t++) { /* nothing is added where rows fill cache lines */
        uint64_t more = 0;
        if (block_types[t] == MICA_DTYPE_MXFP4 || block_types[t] == MICA_DTYPE_NVFP4)
            more =
                4096 / (block_types[t] == MICA_DTYPE_MXFP4 ? 32 : 16); /* a scale of two bytes, not of one */
        assert_int_equal(mica__packed_group_bytes((uint16_t)block_types[t], 4096, 0),
                         8 * (oracle_row_bytes(block_types[t], 4096) + more));
    }
    assert_int_equal(mica__packed_group_bytes(MICA_DTYPE_AFFINE4, 4096, 64), 64 + 64 * (32 + 2 * 128));
    assert_int_equal(mica__packed_group_bytes(MICA_DTYPE_F32, 4096, 0), 0);
    assert_int_equal(mica__packed_group_bytes(MICA_DTYPE_AFFINE4, 4096, 0), 0);
    assert_int_equal(mica__packed_group_bytes(MICA_DTYPE_AFFINE4, 4096, 48), 0);
    assert_int_equal(mica__packed_group_bytes(MICA_DTYPE_AFFINE4, 65536, 16384), 0);
    assert_int_equal(mica__packed_group_bytes(MICA_DTYPE_FP4, 4096, 64), 0);
    assert_int_equal(mica__packed_group_bytes(MICA_DTYPE_F8_E4M3, 4096, 32), 0);
    assert_true(mica__packed_scales(MICA_DTYPE_AFFINE4, 64, MICA_DTYPE_BF16) &&
                !mica__packed_scales(MICA_DTYPE_AFFINE4, 64, MICA_DTYPE_F32));
    assert_true(!mica__packed_scales(MICA_DTYPE_FP4, 32, MICA_DTYPE_F8_E4M3) &&
                !mica__packed_scales(MICA_DTYPE_FP4, 16, MICA_DTYPE_E8M0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dtype_facts),   cmocka_unit_test(test_decode_blocks),
        cmocka_unit_test(test_decode_affine), cmocka_unit_test(test_packed_rows),
        cmocka_unit_test(test_packed_fp4),    cmocka_unit_test(test_packed_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
