/* test_codec_fp4.c: 4-bit floats and ternary digits. Golden figures come from the formats' reference implementation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "oracle/oracle_number.h"
#include "unit/codec_rig.h"

#define LENGTH(array) (sizeof(array) / sizeof *(array))

static const double e2m1[16] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6};

static double mxfp4_value(const uint8_t *block, size_t i)
{
    return ldexp(e2m1[block[1 + i % 16] >> (i < 16 ? 0 : 4) & 15], block[0] - 127);
}

static double nvfp4_value(const uint8_t *block, size_t i)
{
    const size_t s = i / 16, j = i % 16;
    const int scale = block[s], exponent = scale >> 3 & 15, fraction = scale & 7;
    const double unit = scale == 0x7f   ? 0
                        : exponent == 0 ? ldexp(fraction, -9)
                                        : ldexp(8 + fraction, exponent - 10);
    return unit * e2m1[block[4 + 8 * s + j % 8] >> (j < 8 ? 0 : 4) & 15];
}

static double half_at(const uint8_t *p)
{
    return oracle_from_f16((uint16_t)(p[0] | p[1] << 8));
}

/* Digit n of a byte that is a fraction of 256 in base three. */
static int ternary_digit(int byte, size_t n)
{
    for (size_t i = 0; i < n; i++)
        byte = byte * 3 & 255;
    return byte * 3 >> 8;
}

static double tq1_0_value(const uint8_t *block, size_t i)
{
    int digit;
    if (i < 160)
        digit = ternary_digit(block[i % 32], i / 32);
    else if (i < 240)
        digit = ternary_digit(block[32 + (i - 160) % 16], (i - 160) / 16);
    else
        digit = ternary_digit(block[48 + (i - 240) % 4], (i - 240) / 4);
    return (digit - 1) * half_at(block + 52);
}

static double tq2_0_value(const uint8_t *block, size_t i)
{
    return ((block[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3) - 1) * half_at(block + 64);
}

/* Hashes by the reference: of the f32 of 1024 seeded blocks, of the blocks of 16384 seeded values. */
enum { BLOCKS = 1024, BLOCK_SEED = 40, VALUES = 16384, VALUE_SEED = 41 };
static const struct {
    mica_dtype dtype;
    int high; /* the upper byte of an f16 scale */
    double (*value)(const uint8_t *block, size_t i);
    uint64_t decoded, encoded;
} types[] = {
    {MICA_DTYPE_MXFP4, -1, mxfp4_value, 0x2fb771017cd6f827, 0x13c1dd451af14f61},
    {MICA_DTYPE_NVFP4, -1, nvfp4_value, 0x7a28b0b081149991, 0x687abeeed747cec7},
    {MICA_DTYPE_TQ1_0, 53, tq1_0_value, 0xce982da577584f58, 0xf902e498c6d104ea},
    {MICA_DTYPE_TQ2_0, 65, tq2_0_value, 0x16f0b25b76913d6b, 0x661c5d55176c0ef9},
};

static void test_decode(void **state)
{
    (void)state;
    for (size_t t = 0; t < LENGTH(types); t++) {
        const size_t bytes = mica_dtype_block_bytes(types[t].dtype);
        const size_t per = mica_dtype_block_elements(types[t].dtype), n = BLOCKS * per;
        uint8_t *row = malloc(BLOCKS * bytes);
        float *values = malloc(n * sizeof *values);
        test_random random = test_random_from(BLOCK_SEED);
        rig_blocks(&random, row, BLOCKS, bytes, types[t].high);
        assert_true(rig_decode(types[t].dtype, row, values, n));
        assert_true(rig_hash(values, n * sizeof *values) == types[t].decoded);
        for (size_t i = 0; i < n; i++)
            assert_true(values[i] == (float)types[t].value(row + i / per * bytes, i % per));
        rig_blocks(&random, row, BLOCKS, bytes, -1);
        assert_true(rig_decode(types[t].dtype, row, values, n));
        free(values);
        free(row);
    }
}

static void test_encode(void **state)
{
    (void)state;
    float *x = malloc(VALUES * sizeof *x), *importance = malloc(VALUES * sizeof *x);
    uint8_t *row = malloc(VALUES);
    for (size_t t = 0; t < LENGTH(types); t++) {
        const size_t bytes =
            VALUES / mica_dtype_block_elements(types[t].dtype) * mica_dtype_block_bytes(types[t].dtype);
        test_random random = test_random_from(VALUE_SEED);
        rig_values(&random, x, VALUES);
        for (size_t i = 0; i < VALUES; i++)
            importance[i] = (float)(i % 5);
        assert_true(mica__quant_can_encode((uint16_t)types[t].dtype));
        assert_true(rig_encode(types[t].dtype, x, NULL, row, VALUES));
        assert_true(rig_hash(row, bytes) == types[t].encoded);
        assert_true(rig_encode(types[t].dtype, x, importance, row, VALUES)); /* which these types ignore */
        assert_true(rig_hash(row, bytes) == types[t].encoded);
    }
    free(row);
    free(importance);
    free(x);
}

/* What the types can hold comes back as it was, from the smallest scale of f32 to the largest. */
static void test_round_trip(void **state)
{
    (void)state;
    test_random random = test_random_from(4);
    for (int exponent = -126; exponent <= 124; exponent += 10) {
        float x[256], back[256];
        uint8_t row[256];
        for (size_t i = 0; i < 256; i++)
            x[i] = (float)ldexp(i % 32 == 7 ? 6 : e2m1[test_random_below(&random, 16)], exponent);
        mica__quant_encode_row(MICA_DTYPE_MXFP4, x, NULL, row, 256);
        mica__quant_decode_row(MICA_DTYPE_MXFP4, row, back, 256);
        for (size_t i = 0; i < 256; i++)
            assert_true(back[i] == x[i]);
        if (exponent < -6 || exponent > 8)
            continue;
        for (size_t i = 7; i < 256; i += 16)
            x[i] = (float)ldexp(-6, exponent);
        mica__quant_encode_row(MICA_DTYPE_NVFP4, x, NULL, row, 256);
        mica__quant_decode_row(MICA_DTYPE_NVFP4, row, back, 256);
        for (size_t i = 0; i < 256; i++)
            assert_true(back[i] == x[i] || exponent == 8);
    }
    for (int t = 2; t < 4; t++) {
        float x[512], back[512];
        uint8_t row[256];
        for (size_t i = 0; i < 512; i++)
            x[i] = 0.375f * (float)((int)test_random_below(&random, 3) - 1);
        mica__quant_encode_row((uint16_t)types[t].dtype, x, NULL, row, 512);
        mica__quant_decode_row((uint16_t)types[t].dtype, row, back, 512);
        for (size_t i = 0; i < 512; i++)
            assert_true(back[i] == x[i]);
    }
}

static void test_hard_rows(void **state)
{
    (void)state;
    test_random random = test_random_from(5);
    for (size_t t = 0; t < LENGTH(types); t++)
        for (int kind = 0; kind < RIG_HARD_KINDS; kind++) {
            float x[512], back[512];
            uint8_t row[512];
            rig_hard(&random, kind, x, 512);
            assert_true(rig_encode(types[t].dtype, x, NULL, row, 512));
            assert_true(rig_decode(types[t].dtype, row, back, 512));
            for (size_t i = 0; i < 512 && (kind == 0 || kind == 7); i++)
                assert_true(back[i] == 0);
            for (size_t i = 0; i < 512 && kind == 1; i++)
                assert_true(fabsf(back[i] - x[i]) <= 0.01f);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decode),
        cmocka_unit_test(test_encode),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_hard_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
