/* test_codec_float.c: the plain float types as codecs, on every instruction set that runs here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "oracle/oracle_number.h"
#include "quant/quant.h"
#include "support/random.h"

/* Any bits: numbers of every size, NaN, infinities. */
static void random_bits(test_random *random, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = (uint32_t)(test_random_next(random) >> 32);
        memcpy(&x[i], &bits, sizeof bits);
        if (i % 3 == 0) /* where half precision has numbers */
            x[i] = (float)(test_random_normal(random) * ldexp(1, (int)test_random_below(random, 48) - 30));
    }
}

/* The value of a byte with that many exponent and mantissa bits, from the format's definition. */
static double f8_value(unsigned byte, int exponent_bits, int mantissa_bits)
{
    const int bias = (1 << (exponent_bits - 1)) - 1, code = (byte & 0x7f) >> mantissa_bits;
    const int fraction = byte & ((1 << mantissa_bits) - 1), top = (1 << exponent_bits) - 1;
    const double sign = byte & 0x80 ? -1 : 1;
    if (exponent_bits == 5 && code == top)
        return fraction ? NAN : sign * INFINITY;
    if (exponent_bits == 4 && (byte & 0x7f) == 0x7f)
        return NAN;
    return sign * (code ? ldexp((1 << mantissa_bits) + fraction, code - bias - mantissa_bits)
                        : ldexp(fraction, 1 - bias - mantissa_bits));
}

static int same(double a, double b)
{
    return isnan(a) ? isnan(b) : a == b && !signbit(a) == !signbit(b);
}

static void check_wide(mica__isa isa, mica_dtype dtype, const float *x, size_t n)
{
    const size_t size = mica_dtype_block_bytes(dtype);
    uint8_t bytes[8 * 512 + 2];
    float back[512];
    memset(bytes, 0xa7, sizeof bytes);
    mica__quant_encode_row_isa(isa, (uint16_t)dtype, x, NULL, bytes + 1, n);
    assert_true(bytes[0] == 0xa7 && bytes[1 + n * size] == 0xa7);
    mica__quant_decode_row_isa(isa, (uint16_t)dtype, bytes + 1, back, n);
    for (size_t i = 0; i < n; i++) {
        const double want = oracle_round(dtype, x[i]);
        if (!same(want, back[i]))
            fail_msg("%s on %s: %.9g came back as %.9g, expected %.9g", mica_dtype_name(dtype),
                     mica__isa_name(isa), (double)x[i], (double)back[i], want);
    }
}

static void test_wide(void **state)
{
    (void)state;
    const mica_dtype types[] = {MICA_DTYPE_F32, MICA_DTYPE_F16, MICA_DTYPE_BF16, MICA_DTYPE_F64};
    test_random random = test_random_from(21);
    float x[512];
    for (int round = 0; round < 200; round++) {
        const size_t n = (size_t)test_random_size(&random, 512);
        random_bits(&random, x, n);
        for (int isa = 0; isa < MICA__ISA_COUNT; isa++)
            if (mica__isa_runs((mica__isa)isa))
                check_wide((mica__isa)isa, types[round % 4], x, n);
    }
}

/* The nearest of the neighbours in value, the even one of two; beyond the last what the format says. */
static void check_f8(mica__isa isa, mica_dtype dtype, int exponent_bits, const float *x, size_t n)
{
    const int mantissa_bits = 7 - exponent_bits;
    const unsigned last = exponent_bits == 4 ? 0x7e : 0x7b;
    const double step =
        f8_value(last, exponent_bits, mantissa_bits) - f8_value(last - 1, exponent_bits, mantissa_bits);
    const double end = f8_value(last, exponent_bits, mantissa_bits) + step / 2;
    uint8_t bytes[512];
    mica__quant_encode_row_isa(isa, (uint16_t)dtype, x, NULL, bytes, n);
    for (size_t i = 0; i < n; i++) {
        const double magnitude = fabs((double)x[i]), got = f8_value(bytes[i], exponent_bits, mantissa_bits);
        assert_true(isnan(x[i]) || !signbit(got) == !signbit(x[i]) || isnan(got));
        if (isnan(x[i]) || magnitude >= end) {
            assert_true(exponent_bits == 4 || isnan(x[i]) ? isnan(got) || magnitude == end
                                                          : isinf(got) || magnitude == end);
            continue;
        }
        const unsigned code = bytes[i] & 0x7f;
        const double here = f8_value(code, exponent_bits, mantissa_bits);
        const double error = fabs(here - magnitude);
        for (int other = (int)code - 1; other <= (int)code + 1; other += 2) {
            if (other < 0 || other > (int)last)
                continue;
            const double theirs = fabs(f8_value((unsigned)other, exponent_bits, mantissa_bits) - magnitude);
            assert_true(error < theirs || (error == theirs && code % 2 == 0));
        }
    }
}

static void test_f8(void **state)
{
    (void)state;
    test_random random = test_random_from(22);
    uint8_t all[256];
    float x[512], values[256];
    for (int i = 0; i < 256; i++)
        all[i] = (uint8_t)i;
    for (int isa = 0; isa < MICA__ISA_COUNT; isa++) {
        if (!mica__isa_runs((mica__isa)isa))
            continue;
        for (int e = 4; e <= 5; e++) {
            const mica_dtype dtype = e == 4 ? MICA_DTYPE_F8_E4M3 : MICA_DTYPE_F8_E5M2;
            mica__quant_decode_row_isa((mica__isa)isa, (uint16_t)dtype, all, values, 256);
            for (unsigned i = 0; i < 256; i++)
                assert_true(same(f8_value(i, e, 7 - e), values[i]));
            for (int round = 0; round < 40; round++) {
                random_bits(&random, x, 512);
                check_f8((mica__isa)isa, dtype, e, x, 512);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_wide), cmocka_unit_test(test_f8)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
