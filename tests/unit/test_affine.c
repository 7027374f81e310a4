/* test_affine.c: rows with tables of scales. Golden figures come from MLX on the CPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/half.h"
#include "oracle/oracle_number.h"
#include "unit/codec_rig.h"

#define LENGTH(array) (sizeof(array) / sizeof *(array))

/* A row, and the tables beside it, with room for sentinels. */
enum { N = 8192 };
typedef struct grouped {
    mica_dtype dtype, scale_dtype;
    uint32_t size;
    uint8_t q[N + 8], scales[4 * N + 8], biases[4 * N + 8];
} grouped;

static unsigned bits_of(mica_dtype dtype)
{
    return 8 * mica_dtype_block_bytes(dtype) / mica_dtype_block_elements(dtype);
}

static bool is_affine(mica_dtype dtype)
{
    return dtype != MICA_DTYPE_FP4 && dtype != MICA_DTYPE_F8_E4M3;
}

static unsigned code_at(const uint8_t *q, unsigned bits, size_t i)
{
    unsigned code = 0;
    for (unsigned b = 0; b < bits; b++)
        code |= (unsigned)(q[(i * bits + b) / 8] >> (i * bits + b) % 8 & 1) << b;
    return code;
}

static double e4m3_value(unsigned code)
{
    const int exponent = code >> 3 & 15, fraction = code & 7;
    const double magnitude = exponent == 0 ? ldexp(fraction, -9) : ldexp(8 + fraction, exponent - 10);
    return code & 0x80 ? -magnitude : magnitude;
}

static double table_value(mica_dtype dtype, const uint8_t *table, size_t i)
{
    if (dtype == MICA_DTYPE_E8M0)
        return ldexp(1, table[i] - 127);
    if (dtype == MICA_DTYPE_F8_E4M3)
        return e4m3_value(table[i]);
    return oracle_get(dtype, table + i * (dtype == MICA_DTYPE_F32 ? 4 : 2));
}

static double value_of(const grouped *g, size_t i)
{
    static const double e2m1[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    const unsigned code = code_at(g->q, bits_of(g->dtype), i);
    const double scale = table_value(g->scale_dtype, g->scales, i / g->size);
    if (g->dtype == MICA_DTYPE_FP4)
        return (code & 8 ? -1 : 1) * e2m1[code & 7] * scale;
    if (g->dtype == MICA_DTYPE_F8_E4M3)
        return e4m3_value(code) * scale;
    return (double)(float)(code * scale) + table_value(g->scale_dtype, g->biases, i / g->size);
}

/* Random numbers, and scales that are no NaN and far from the ends. */
static void fill(test_random *random, grouped *g, size_t n)
{
    const size_t groups = (n + g->size - 1) / g->size;
    for (size_t i = 0; i < n; i++)
        g->q[i] = (uint8_t)test_random_next(random);
    for (size_t i = 0; i < n && g->dtype == MICA_DTYPE_F8_E4M3; i++)
        g->q[i] = (g->q[i] & 0x7f) == 0x7f ? 0x7e : g->q[i]; /* no NaN */
    for (size_t i = 0; i < groups; i++) {
        const size_t element = g->scale_dtype == MICA_DTYPE_F32 ? 4 : 2;
        if (!is_affine(g->dtype)) {
            g->scales[i] = (uint8_t)(100 + test_random_below(random, 26));
            continue;
        }
        oracle_put(g->scale_dtype, test_random_uniform(random, -0.1, 0.1), g->scales + i * element);
        oracle_put(g->scale_dtype, test_random_uniform(random, -1, 1), g->biases + i * element);
    }
}

static const struct {
    mica_dtype dtype, scale_dtype;
} pairs[] = {
    {MICA_DTYPE_AFFINE2, MICA_DTYPE_F32},  {MICA_DTYPE_AFFINE3, MICA_DTYPE_BF16},
    {MICA_DTYPE_AFFINE4, MICA_DTYPE_F16},  {MICA_DTYPE_AFFINE5, MICA_DTYPE_F32},
    {MICA_DTYPE_AFFINE6, MICA_DTYPE_F16},  {MICA_DTYPE_AFFINE8, MICA_DTYPE_BF16},
    {MICA_DTYPE_FP4, MICA_DTYPE_E8M0},     {MICA_DTYPE_FP4, MICA_DTYPE_F8_E4M3},
    {MICA_DTYPE_F8_E4M3, MICA_DTYPE_E8M0},
};

static void test_decode_by_formula(void **state)
{
    (void)state;
    static grouped g;
    static float values[N + 1];
    test_random random = test_random_from(1);
    for (int round = 0; round < 400; round++) {
        const size_t p = (size_t)round % LENGTH(pairs);
        g.dtype = pairs[p].dtype;
        g.scale_dtype = pairs[p].scale_dtype;
        g.size = (uint32_t)test_random_size(&random, 300);
        const size_t block = mica_dtype_block_elements(g.dtype);
        const size_t n = block * test_random_size(&random, 1200 / block);
        fill(&random, &g, n);
        for (int isa = 0; isa < MICA__ISA_COUNT; isa++) {
            if (!mica__isa_runs((mica__isa)isa))
                continue;
            memset(values, 0xee, sizeof values);
            mica__affine_decode_row_isa((mica__isa)isa, (uint16_t)g.dtype, g.q, g.scales,
                                        is_affine(g.dtype) ? g.biases : NULL, (uint16_t)g.scale_dtype, g.size,
                                        values, n);
            for (size_t i = 0; i < n; i++)
                if (values[i] != (float)value_of(&g, i))
                    fail_msg("%s, groups of %u, value %zu is %.9g, expected %.9g", mica_dtype_name(g.dtype),
                             g.size, i, (double)values[i], value_of(&g, i));
            assert_int_equal(((uint8_t *)&values[n])[0], 0xee);
        }
    }
}

static void test_codes(void **state)
{
    (void)state;
    static grouped g;
    uint8_t codes[512];
    test_random random = test_random_from(2);
    g.size = 64;
    g.scale_dtype = MICA_DTYPE_F32;
    for (size_t p = 0; p < LENGTH(pairs); p++) {
        g.dtype = pairs[p].dtype;
        fill(&random, &g, 1024);
        const size_t block = mica_dtype_block_elements(g.dtype);
        const size_t first = block * test_random_below(&random, 8), count = 256 + block;
        mica__affine_codes((uint16_t)g.dtype, g.q, first, (uint32_t)count, codes);
        for (size_t i = 0; i < count; i++)
            assert_int_equal(codes[i], code_at(g.q, bits_of(g.dtype), first + i));
    }
}

/* Hashes of what MLX makes of 8192 seeded values, rounded first to the type that the scales will have. */
enum { VALUE_SEED = 43 };
static const struct {
    mica_dtype dtype, scale_dtype;
    uint32_t size;
    uint64_t q, scales, biases;
} mlx[] = {
    {MICA_DTYPE_AFFINE2, MICA_DTYPE_F32, 64, 0xe4e1b85cb29179d6, 0xde4838aaa3d2f3d1, 0x75118837fe51b39d},
    {MICA_DTYPE_AFFINE3, MICA_DTYPE_F16, 32, 0xb7d750dc221f37d9, 0x0c823ae3a682ccfa, 0xea8bff377b213f71},
    {MICA_DTYPE_AFFINE4, MICA_DTYPE_BF16, 64, 0x8d827c999ce5ae12, 0x1e254c614ebf8c3c, 0xc742f6d6fb90cf74},
    {MICA_DTYPE_AFFINE5, MICA_DTYPE_F32, 128, 0x60832115074abbce, 0xfbd5bc463864e716, 0xa6cb7a0ede9e2c84},
    {MICA_DTYPE_AFFINE6, MICA_DTYPE_F16, 64, 0x8a584b4e965c38d0, 0x0e6c5d59aae5ea1c, 0xe549a4d5dd388428},
    {MICA_DTYPE_AFFINE8, MICA_DTYPE_BF16, 32, 0x908dae3c7bbc0d85, 0xbbd70141ca7d141f, 0x71d86c3d798d2043},
    {MICA_DTYPE_FP4, MICA_DTYPE_E8M0, 32, 0x3513b94af3d86469, 0x443c0c6d0911183f, 0},
    {MICA_DTYPE_F8_E4M3, MICA_DTYPE_E8M0, 32, 0x843b8d1471d7dbe5, 0x4e67f149d09cd76b, 0},
    {MICA_DTYPE_FP4, MICA_DTYPE_F8_E4M3, 16, 0xd19d926d24578fd1, 0xc0046b9f52bad735, 0},
};

static void test_encode_has_the_bits_of_mlx(void **state)
{
    (void)state;
    static grouped g;
    static float x[N];
    for (size_t t = 0; t < LENGTH(mlx); t++) {
        test_random random = test_random_from(VALUE_SEED);
        rig_values(&random, x, N);
        for (size_t i = 0; i < N && is_affine(mlx[t].dtype); i++)
            x[i] = (float)oracle_round(mlx[t].scale_dtype, x[i]);
        const size_t table = N / mlx[t].size * mica_dtype_block_bytes(mlx[t].scale_dtype);
        for (int isa = 0; isa < MICA__ISA_COUNT; isa++) {
            if (!mica__isa_runs((mica__isa)isa))
                continue;
            memset(&g, 0xee, sizeof g);
            mica__affine_encode_row_isa((mica__isa)isa, (uint16_t)mlx[t].dtype, (uint16_t)mlx[t].scale_dtype,
                                        mlx[t].size, x, N, g.q, g.scales,
                                        is_affine(mlx[t].dtype) ? g.biases : NULL);
            assert_true(rig_hash(g.q, N * bits_of(mlx[t].dtype) / 8) == mlx[t].q);
            assert_true(rig_hash(g.scales, table) == mlx[t].scales);
            assert_int_equal(g.q[N * bits_of(mlx[t].dtype) / 8], 0xee);
            assert_int_equal(g.scales[table], 0xee);
            if (is_affine(mlx[t].dtype))
                assert_true(rig_hash(g.biases, table) == mlx[t].biases);
        }
    }
}

/* Any group size, with a short group at the end: what comes back is within half a step of its group. */
static void test_round_trip(void **state)
{
    (void)state;
    static grouped g;
    static float x[N], back[N];
    test_random random = test_random_from(3);
    for (int round = 0; round < 200; round++) {
        const size_t p = (size_t)round % LENGTH(pairs);
        const uint16_t dtype = (uint16_t)pairs[p].dtype, scales = (uint16_t)pairs[p].scale_dtype;
        const size_t block = mica_dtype_block_elements(pairs[p].dtype);
        const size_t n = block * test_random_size(&random, 2000 / block);
        g.size = (uint32_t)test_random_size(&random, 700);
        rig_values(&random, x, n);
        mica__affine_encode_row(dtype, scales, g.size, x, n, g.q, g.scales, g.biases);
        mica__affine_decode_row(dtype, g.q, g.scales, g.biases, scales, g.size, back, n);
        for (size_t first = 0; first < n; first += g.size) {
            const size_t end = first + g.size < n ? first + g.size : n;
            float peak = 1e-6f;
            for (size_t i = first; i < end; i++)
                peak = fmaxf(peak, fabsf(x[i]));
            /* Codes span twice the peak at most and one step is lost to the bent scale; the tables' own rounding
             * is that of bf16. e2m1 steps are a third of its largest, an e8m0 scale up to twice too wide; e4m3 scales go in steps
             * of 2^-9 at the least, times 6. */
            const double codes = ldexp(1, (int)bits_of(pairs[p].dtype)) - 1;
            const double step = is_affine(pairs[p].dtype) ? 2 / (codes - 1) + 0.02 : 0.5;
            const double least = scales == MICA_DTYPE_F8_E4M3 ? 6 * ldexp(1, -9) : 0;
            for (size_t i = first; i < end; i++)
                assert_true(fabs((double)back[i] - x[i]) <= step * peak + least);
        }
    }
}

static void test_hard_rows(void **state)
{
    (void)state;
    static grouped g, other;
    float x[512], back[512];
    test_random random = test_random_from(4);
    for (size_t p = 0; p < LENGTH(pairs); p++)
        for (int kind = 0; kind < RIG_HARD_KINDS; kind++) {
            const uint16_t dtype = (uint16_t)pairs[p].dtype, scales = (uint16_t)pairs[p].scale_dtype;
            rig_hard(&random, kind, x, 512);
            mica__affine_encode_row_isa(MICA__ISA_PORTABLE, dtype, scales, 32, x, 512, g.q, g.scales,
                                        g.biases);
            mica__affine_encode_row(dtype, scales, 32, x, 512, other.q, other.scales, other.biases);
            assert_memory_equal(g.q, other.q, 512 * bits_of(pairs[p].dtype) / 8);
            mica__affine_decode_row(dtype, g.q, g.scales, g.biases, scales, 32, back, 512);
            for (size_t i = 0; i < 512 && (kind == 0 || kind == 7); i++)
                assert_true(back[i] == 0);
        }
}

static void test_what_is_served(void **state)
{
    (void)state;
    for (uint16_t dtype = 0; dtype < MICA_DTYPE_COUNT + 2; dtype++) {
        const bool affine = dtype >= MICA_DTYPE_AFFINE2 && dtype <= MICA_DTYPE_AFFINE8;
        assert_int_equal(mica__dtype_is_affine(dtype), affine);
        assert_int_equal(mica__affine_serves(dtype, MICA_DTYPE_F16), affine);
        assert_int_equal(mica__affine_serves(dtype, MICA_DTYPE_E8M0),
                         dtype == MICA_DTYPE_FP4 || dtype == MICA_DTYPE_F8_E4M3);
        assert_int_equal(mica__affine_serves(dtype, MICA_DTYPE_F8_E4M3), dtype == MICA_DTYPE_FP4);
        assert_false(mica__affine_serves(dtype, MICA_DTYPE_I32));
    }
    float values[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    uint8_t byte = 0x5a;
    mica__affine_decode_row(MICA_DTYPE_AFFINE4, &byte, &byte, &byte, MICA_DTYPE_E8M0, 32, values, 8);
    for (int i = 0; i < 8; i++)
        assert_true(values[i] == 0);
    mica__affine_encode_row(MICA_DTYPE_Q4_0, MICA_DTYPE_F16, 32, values, 8, &byte, &byte, &byte);
    assert_int_equal(byte, 0x5a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decode_by_formula),
        cmocka_unit_test(test_codes),
        cmocka_unit_test(test_encode_has_the_bits_of_mlx),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_hard_rows),
        cmocka_unit_test(test_what_is_served),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
