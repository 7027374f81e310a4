/* test_codec_iq.c: the codebook formats. Golden figures come from the formats' reference implementation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "oracle/oracle_number.h"
#include "unit/codec_rig.h"

#define LENGTH(array) (sizeof(array) / sizeof *(array))

/* 1024 seeded blocks, enough to draw every entry of every grid, decoded by the reference: the hash of the f32. */
enum { BLOCKS = 1024, BLOCK_SEED = 40 };
static const struct {
    mica_dtype dtype;
    int high; /* the upper byte of the scale */
    uint64_t hash;
} decoded[] = {
    {MICA_DTYPE_IQ1_S, 1, 0xdf75c74f50bc108c},   {MICA_DTYPE_IQ1_M, 55, 0x6d5fe31a03921e71},
    {MICA_DTYPE_IQ2_XXS, 1, 0x45c4d87036762e50}, {MICA_DTYPE_IQ2_XS, 1, 0x02bac25d630f15c8},
    {MICA_DTYPE_IQ2_S, 1, 0xc695fe128707e138},   {MICA_DTYPE_IQ3_XXS, 1, 0xa41fd3e05e4eaf9f},
    {MICA_DTYPE_IQ3_S, 1, 0x7da9ae0c75ec3360},   {MICA_DTYPE_IQ4_NL, 1, 0xb295bc57183ec0ee},
    {MICA_DTYPE_IQ4_XS, 1, 0x5dc590bb7c0a2a39},
};

static void test_decode_has_the_reference_bits(void **state)
{
    (void)state;
    for (size_t t = 0; t < LENGTH(decoded); t++) {
        const mica_dtype dtype = decoded[t].dtype;
        const size_t bytes = mica_dtype_block_bytes(dtype), n = BLOCKS * mica_dtype_block_elements(dtype);
        uint8_t *row = malloc(BLOCKS * bytes);
        float *values = malloc(n * sizeof *values);
        test_random random = test_random_from(BLOCK_SEED);
        rig_blocks(&random, row, BLOCKS, bytes, decoded[t].high);
        assert_true(mica__quant_known((uint16_t)dtype));
        assert_true(rig_decode(dtype, row, values, n));
        if (rig_hash(values, n * sizeof *values) != decoded[t].hash)
            fail_msg("%s decodes to other values", mica_dtype_name(dtype));
        free(values);
        free(row);
    }
}

/* Scales of all bytes, infinities and NaN among them: defined, and the same everywhere. */
static void test_decode_of_any_bytes(void **state)
{
    (void)state;
    test_random random = test_random_from(1);
    for (size_t t = 0; t < LENGTH(decoded); t++) {
        uint8_t row[64 * 136];
        float values[64 * 256];
        rig_blocks(&random, row, 64, mica_dtype_block_bytes(decoded[t].dtype), -1);
        assert_true(
            rig_decode(decoded[t].dtype, row, values, 64 * mica_dtype_block_elements(decoded[t].dtype)));
    }
}

static void test_only_read(void **state)
{
    (void)state;
    uint8_t row[110];
    const float x[256] = {1};
    for (size_t t = 0; t < LENGTH(decoded); t++) {
        const uint16_t dtype = (uint16_t)decoded[t].dtype;
        const bool written = dtype == MICA_DTYPE_IQ4_NL || dtype == MICA_DTYPE_IQ4_XS;
        assert_int_equal(mica__quant_can_encode(dtype), written);
        if (written)
            continue;
        memset(row, 0x5a, sizeof row);
        mica__quant_encode_row(dtype, x, NULL, row, 256);
        for (size_t i = 0; i < sizeof row; i++)
            assert_int_equal(row[i], 0x5a);
    }
}

static const int levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

static double half_at(const uint8_t *p)
{
    return oracle_from_f16((uint16_t)(p[0] | p[1] << 8));
}

static double iq4_nl_value(const uint8_t *block, size_t i)
{
    return half_at(block) * levels[i < 16 ? block[2 + i] & 15 : block[2 + i - 16] >> 4];
}

static double iq4_xs_value(const uint8_t *block, size_t i)
{
    const size_t s = i / 32, j = i % 32;
    const int high = (block[2] | block[3] << 8) >> (2 * s) & 3, low = block[4 + s / 2] >> (4 * (s % 2)) & 15;
    const int byte = block[8 + 16 * s + j % 16];
    return half_at(block) * ((high << 4 | low) - 32) * levels[j < 16 ? byte & 15 : byte >> 4];
}

static void test_iq4_decode_by_formula(void **state)
{
    (void)state;
    test_random random = test_random_from(2);
    uint8_t row[16 * 136];
    float values[16 * 256];
    rig_blocks(&random, row, 16, 18, 1);
    mica__quant_decode_row(MICA_DTYPE_IQ4_NL, row, values, 16 * 32);
    for (size_t i = 0; i < 16 * 32; i++)
        assert_true(values[i] == (float)iq4_nl_value(row + i / 32 * 18, i % 32));
    rig_blocks(&random, row, 16, 136, 1);
    mica__quant_decode_row(MICA_DTYPE_IQ4_XS, row, values, 16 * 256);
    for (size_t i = 0; i < 16 * 256; i++)
        assert_true(values[i] == (float)iq4_xs_value(row + i / 256 * 136, i % 256));
}

/* Root mean square errors of the reference quantiser on the same 65536 values, without and with importance. */
enum { VALUES = 65536, VALUE_SEED = 42 };
static const struct {
    mica_dtype dtype;
    double plain, weighted;
} reference[] = {
    {MICA_DTYPE_IQ4_NL, 0.0100724728, 0.00948661522},
    {MICA_DTYPE_IQ4_XS, 0.0101829540, 0.00970092808},
};

static void test_iq4_encode_is_as_good_as_the_reference(void **state)
{
    (void)state;
    float *x = malloc(VALUES * sizeof *x), *importance = malloc(VALUES * sizeof *x);
    float *back = malloc(VALUES * sizeof *x);
    uint8_t *row = malloc(VALUES);
    test_random random = test_random_from(VALUE_SEED);
    rig_values(&random, x, VALUES);
    for (size_t i = 0; i < VALUES; i++)
        importance[i] = (float)exp(test_random_normal(&random));
    for (size_t t = 0; t < LENGTH(reference); t++) {
        assert_true(rig_encode(reference[t].dtype, x, NULL, row, VALUES));
        mica__quant_decode_row((uint16_t)reference[t].dtype, row, back, VALUES);
        assert_true(rig_rms(x, back, NULL, VALUES) <= reference[t].plain);
        const double careless = rig_rms(x, back, importance, VALUES);
        assert_true(rig_encode(reference[t].dtype, x, importance, row, VALUES));
        mica__quant_decode_row((uint16_t)reference[t].dtype, row, back, VALUES);
        assert_true(rig_rms(x, back, importance, VALUES) <= reference[t].weighted);
        assert_true(rig_rms(x, back, importance, VALUES) < careless);
    }
    free(row);
    free(back);
    free(importance);
    free(x);
}

static void test_iq4_encode_of_hard_rows(void **state)
{
    (void)state;
    test_random random = test_random_from(3);
    for (size_t t = 0; t < LENGTH(reference); t++)
        for (int kind = 0; kind < RIG_HARD_KINDS; kind++) {
            float x[512], importance[512] = {0}, back[512];
            uint8_t row[512];
            rig_hard(&random, kind, x, 512);
            assert_true(rig_encode(reference[t].dtype, x, importance, row, 512)); /* nothing matters */
            assert_true(rig_encode(reference[t].dtype, x, NULL, row, 512));
            mica__quant_decode_row((uint16_t)reference[t].dtype, row, back, 512);
            for (size_t i = 0; i < 512; i++) {
                if (kind == 1) /* a constant up to its sign loses little */
                    assert_true(fabsf(back[i] - x[i]) <= 0.1f);
                else if (kind == 0 || kind == 2 || kind == 6 || kind == 7) /* below the smallest scale */
                    assert_true(fabsf(back[i]) <= 1e-6f);
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decode_has_the_reference_bits),
        cmocka_unit_test(test_decode_of_any_bytes),
        cmocka_unit_test(test_only_read),
        cmocka_unit_test(test_iq4_decode_by_formula),
        cmocka_unit_test(test_iq4_encode_is_as_good_as_the_reference),
        cmocka_unit_test(test_iq4_encode_of_hard_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
