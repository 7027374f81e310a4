/*
 * test_codec_blocks.c: the 32-value and K block formats, on every instruction set that runs here: decoded bits against
 * the oracle, encoded bits and errors against figures of the format's reference quantiser.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "oracle/oracle_blocks.h"
#include "quant/quant.h"
#include "support/codec_data.h"
#include "support/random.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define COLUMNS 1024
#define ROWS 64
#define VALUES (ROWS * COLUMNS)
#define GUARD 0xa7

static const mica_dtype types[] = {MICA_DTYPE_Q4_0, MICA_DTYPE_Q4_1, MICA_DTYPE_Q5_0, MICA_DTYPE_Q5_1,
                                   MICA_DTYPE_Q8_0, MICA_DTYPE_Q8_1, MICA_DTYPE_Q2_K, MICA_DTYPE_Q3_K,
                                   MICA_DTYPE_Q4_K, MICA_DTYPE_Q5_K, MICA_DTYPE_Q6_K, MICA_DTYPE_Q8_K};

static size_t row_bytes(mica_dtype dtype, size_t n)
{
    return n / mica_dtype_block_elements(dtype) * mica_dtype_block_bytes(dtype);
}

/* Any bytes decode to what the layout says; scales that are no number give values that are none. */
static void test_decode_bits(void **state)
{
    (void)state;
    enum { N = 1280 };
    test_random random = test_random_from(11);
    uint8_t bytes[2 * N];
    float got[N + 1];
    double want[N], magnitude[N];
    for (size_t t = 0; t < COUNT(types) * 24; t++) {
        const mica_dtype dtype = types[t % COUNT(types)];
        uint8_t *row = bytes + test_random_below(&random, 7);
        for (size_t i = 0; i < row_bytes(dtype, N); i++)
            row[i] = (uint8_t)test_random_next(&random);
        oracle_decode_row(dtype, row, N, NULL, want, magnitude);
        for (int isa = 0; isa < MICA__ISA_COUNT; isa++) {
            if (!mica__isa_runs((mica__isa)isa))
                continue;
            got[N] = 12345.0f;
            mica__quant_decode_row_isa((mica__isa)isa, (uint16_t)dtype, row, got, N);
            assert_true(got[N] == 12345.0f);
            for (size_t i = 0; i < N; i++)
                if (isnan(want[i]) ? !isnan(got[i]) : got[i] != (float)want[i])
                    fail_msg("%s on %s: value %zu is %.9g, expected %.9g", mica_dtype_name(dtype),
                             mica__isa_name((mica__isa)isa), i, (double)got[i], want[i]);
        }
    }
}

/* Hashes of the blocks that the reference quantiser makes of codec_data_fill(7). */
static const struct {
    mica_dtype dtype;
    uint64_t hash;
} golden[] = {
    {MICA_DTYPE_Q4_0, 0x11b329cff55ad0acu}, {MICA_DTYPE_Q4_1, 0x4b5ebf55482051dau},
    {MICA_DTYPE_Q5_0, 0x2878736662810b2du}, {MICA_DTYPE_Q5_1, 0xacd46bfd652c6459u},
    {MICA_DTYPE_Q8_0, 0x57cec658766fae12u}, {MICA_DTYPE_Q8_1, 0x270a667a88208158u},
    {MICA_DTYPE_Q8_K, 0x7fd5108f41c94d85u},
};

static void test_encode_golden(void **state)
{
    (void)state;
    float *x = malloc(VALUES * sizeof *x);
    uint8_t *bytes = malloc(2 * VALUES);
    codec_data_fill(7, x, VALUES);
    for (size_t t = 0; t < COUNT(golden); t++)
        for (int isa = 0; isa < MICA__ISA_COUNT; isa++) {
            if (!mica__isa_runs((mica__isa)isa))
                continue;
            mica__quant_encode_row_isa((mica__isa)isa, (uint16_t)golden[t].dtype, x, NULL, bytes, VALUES);
            if (codec_data_hash(bytes, row_bytes(golden[t].dtype, VALUES)) != golden[t].hash)
                fail_msg("%s on %s: other bits than the reference quantiser's",
                         mica_dtype_name(golden[t].dtype), mica__isa_name((mica__isa)isa));
        }
    free(x);
    free(bytes);
}

/* Root mean square errors of the reference quantiser on codec_data_fill(7): plain, and weighted with
 * codec_data_importance(8). */
static const struct {
    mica_dtype dtype;
    double plain, weighted;
} errors[] = {
    {MICA_DTYPE_Q4_0, 5.6871e-3, 4.829119e-3},   {MICA_DTYPE_Q4_1, 5.2888e-3, 3.949219e-3},
    {MICA_DTYPE_Q5_0, 2.8346e-3, 2.409432e-3},   {MICA_DTYPE_Q5_1, 2.5623e-3, 1.900270e-3},
    {MICA_DTYPE_Q2_K, 2.037252e-2, 1.485500e-2}, {MICA_DTYPE_Q3_K, 1.025303e-2, 8.538547e-3},
    {MICA_DTYPE_Q4_K, 4.842895e-3, 4.082226e-3}, {MICA_DTYPE_Q5_K, 2.440944e-3, 2.075607e-3},
    {MICA_DTYPE_Q6_K, 1.193512e-3, 1.006190e-3},
};

static double encode_error(mica_dtype dtype, const float *x, const float *importance)
{
    uint8_t bytes[2 * COLUMNS];
    float back[COLUMNS];
    double sum = 0, weights = 0;
    for (size_t row = 0; row < ROWS; row++) {
        mica__quant_encode_row((uint16_t)dtype, x + row * COLUMNS, importance, bytes, COLUMNS);
        mica__quant_decode_row((uint16_t)dtype, bytes, back, COLUMNS);
        for (size_t i = 0; i < COLUMNS; i++) {
            const double error = (double)x[row * COLUMNS + i] - back[i], w = importance ? importance[i] : 1;
            sum += w * error * error;
            weights += w;
        }
    }
    return sqrt(sum / weights);
}

static void test_encode_error(void **state)
{
    (void)state;
    float *x = malloc(VALUES * sizeof *x), importance[COLUMNS];
    codec_data_fill(7, x, VALUES);
    codec_data_importance(8, importance, COLUMNS);
    for (size_t t = 0; t < COUNT(errors); t++) {
        const double plain = encode_error(errors[t].dtype, x, NULL);
        const double weighted = encode_error(errors[t].dtype, x, importance);
        if (plain > errors[t].plain || weighted > errors[t].weighted)
            fail_msg("%s: errors %.6e and weighted %.6e, the reference has %.6e and %.6e",
                     mica_dtype_name(errors[t].dtype), plain, weighted, errors[t].plain, errors[t].weighted);
    }
    free(x);
}

/* A row with something that breaks arithmetic: kind 0 is tame. */
static void fill_kind(test_random *random, int kind, float *x, size_t n)
{
    const float odd[] = {NAN, INFINITY, -INFINITY, FLT_MAX, -FLT_MAX, FLT_MIN, 1e-42f, -0.0f};
    for (size_t i = 0; i < n; i++) {
        x[i] = (float)test_random_normal(random);
        if (kind == 1 || (kind == 2 && test_random_one_in(random, 40)))
            x[i] = odd[test_random_below(random, COUNT(odd))];
        else if (kind >= 3 && kind < 3 + (int)COUNT(odd))
            x[i] = odd[kind - 3];
        else if (kind == 11)
            x[i] *= 1e-38f;
        else if (kind == 12)
            x[i] *= 1e30f;
        else if (kind == 13)
            x[i] = i % 256 == 77 ? 3.0f : 0;
        else if (kind == 14)
            x[i] = i % 2 ? 1.0f : -1.0f;
    }
}
#define KINDS 15

/* Whatever the values and the weights: the same bytes on every instruction set, and not one more. */
static void test_encode_any_values(void **state)
{
    (void)state;
    enum { N = 3 * 256 };
    test_random random = test_random_from(12);
    float x[N], weights[N], back[N];
    uint8_t first[2 * N], bytes[2 * N];
    for (size_t t = 0; t < COUNT(types) * KINDS * 4; t++) {
        const mica_dtype dtype = types[t % COUNT(types)];
        const int kind = (int)(t / COUNT(types) % KINDS), weighted = (int)(t / COUNT(types) / KINDS);
        const size_t elements = mica_dtype_block_elements(dtype);
        const size_t n = elements * (1 + test_random_below(&random, N / elements));
        fill_kind(&random, kind, x, n);
        codec_data_importance(t, weights, n);
        if (weighted == 2)
            memset(weights, 0, sizeof weights);
        for (int isa = 0; isa < MICA__ISA_COUNT; isa++) {
            if (!mica__isa_runs((mica__isa)isa))
                continue;
            uint8_t *to = isa == 0 ? first : bytes;
            memset(to, GUARD, sizeof bytes);
            mica__quant_encode_row_isa((mica__isa)isa, (uint16_t)dtype, x, weighted ? weights : NULL, to + 1,
                                       n);
            assert_int_equal(to[0], GUARD);
            assert_int_equal(to[1 + row_bytes(dtype, n)], GUARD);
            if (memcmp(first, to, sizeof bytes) != 0)
                fail_msg("%s on %s, values of kind %d, weights %d: other bits", mica_dtype_name(dtype),
                         mica__isa_name((mica__isa)isa), kind, weighted);
            mica__quant_decode_row_isa((mica__isa)isa, (uint16_t)dtype, to + 1, back, n);
        }
    }
}

/* Rows of one value come back near to it, of zero as zero, with and without weights. */
static void test_encode_constant(void **state)
{
    (void)state;
    float x[256], weights[256], back[256];
    uint8_t bytes[512];
    codec_data_importance(3, weights, 256);
    const float values[] = {0, 1, -1, 0.3f, -1000};
    for (size_t t = 0; t < COUNT(types) * COUNT(values) * 2; t++) {
        const mica_dtype dtype = types[t % COUNT(types)];
        const float value = values[t / COUNT(types) % COUNT(values)];
        for (int i = 0; i < 256; i++)
            x[i] = value;
        mica__quant_encode_row((uint16_t)dtype, x, t % 2 ? weights : NULL, bytes, 256);
        mica__quant_decode_row((uint16_t)dtype, bytes, back, 256);
        for (int i = 0; i < 256; i++) /* f16 steps of 6e-8 under scales of 3e-5 */
            if (fabsf(back[i] - value) > fabsf(value) * 4e-3f)
                fail_msg("%s: %g came back as %g", mica_dtype_name(dtype), (double)value, (double)back[i]);
    }
}

static void test_known(void **state)
{
    (void)state;
    for (size_t t = 0; t < COUNT(types); t++)
        assert_true(mica__quant_known((uint16_t)types[t]) && mica__quant_can_decode((uint16_t)types[t]) &&
                    mica__quant_can_encode((uint16_t)types[t]));
    assert_true(mica__quant_can_encode(MICA_DTYPE_BF16) && !mica__quant_known(MICA_DTYPE_BF16));
    const uint16_t none[] = {MICA_DTYPE_NONE, MICA_DTYPE_I32, MICA_DTYPE_AFFINE4, MICA_DTYPE_COUNT, 65535};
    for (size_t i = 0; i < COUNT(none); i++) {
        float values[4] = {1, 2, 3, 4}, kept[4] = {1, 2, 3, 4};
        assert_false(mica__quant_known(none[i]) || mica__quant_can_decode(none[i]) ||
                     mica__quant_can_encode(none[i]));
        mica__quant_encode_row(none[i], values, NULL, kept, 4);
        assert_true(kept[0] == 1 && kept[3] == 4);
        mica__quant_decode_row(none[i], values, kept, 4);
        assert_true(kept[0] == 0 && kept[3] == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decode_bits),     cmocka_unit_test(test_encode_golden),
        cmocka_unit_test(test_encode_error),    cmocka_unit_test(test_encode_any_values),
        cmocka_unit_test(test_encode_constant), cmocka_unit_test(test_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
