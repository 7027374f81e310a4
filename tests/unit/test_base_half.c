/* test_base_half.c: the small float formats against a double-precision reading of their definitions:
 * widening for every code, narrowing at every exponent with mantissas around every rounding boundary. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/half.h"

/* A format as its definition gives it. Codes are magnitudes; the sign is the top bit of the whole. */
typedef struct format {
    const char *name;
    int exponent_bits, mantissa_bits, bias;
    uint32_t overflow_code; /* what a magnitude too large becomes */
    uint32_t nan_from;      /* codes of this and up are NaN */
    uint32_t infinity;      /* 0 = none */
    double values[0x8000];  /* [code] by the formula, filled before the tests run */
} format;

static format f16 = {"f16", 5, 10, 15, 0x7c00, 0x7c01, 0x7c00, {0}};
static format bf16 = {"bf16", 8, 7, 127, 0x7f80, 0x7f81, 0x7f80, {0}};
static format e4m3 = {"e4m3", 4, 3, 7, 0x7f, 0x7f, 0, {0}};
static format e5m2 = {"e5m2", 5, 2, 15, 0x7c, 0x7d, 0x7c, {0}};

/* Value of a code by the formula, as if there were no infinity and no NaN. */
static double value_of(const format *f, uint32_t code)
{
    const uint32_t exponent = code >> f->mantissa_bits;
    const double fraction = ldexp((double)(code & ((1u << f->mantissa_bits) - 1)), -f->mantissa_bits);
    return exponent == 0 ? ldexp(fraction, 1 - f->bias) : ldexp(1.0 + fraction, (int)exponent - f->bias);
}

static int fill_values(void **state)
{
    format *const formats[] = {&f16, &bf16, &e4m3, &e5m2};
    (void)state;
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        for (uint32_t code = 0; code < 1u << (formats[i]->exponent_bits + formats[i]->mantissa_bits); code++)
            formats[i]->values[code] = value_of(formats[i], code);
    return 0;
}

/* Nearest code of a magnitude, ties to the even one, found by bisection over the codes, which are in
 * order. */
static uint32_t nearest(const format *f, double magnitude)
{
    uint32_t low = 0, high = f->overflow_code;
    if (magnitude >= f->values[high])
        return f->overflow_code;
    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        if (f->values[middle] <= magnitude)
            low = middle;
        else
            high = middle;
    }
    const double below = magnitude - f->values[low], above = f->values[high] - magnitude;
    return below < above || (below == above && low % 2 == 0) ? low : high;
}

static uint32_t sign_bit(const format *f)
{
    return 1u << (f->exponent_bits + f->mantissa_bits);
}

static void check_narrow(const format *f, float value, uint32_t got)
{
    const uint32_t bits = mica__f32_bits(value), sign = bits >> 31 ? sign_bit(f) : 0;
    if (isnan(value)) {
        const uint32_t magnitude = got & (sign_bit(f) - 1);
        /* A NaN, quiet where the format has the bit, sign kept. */
        if ((got & sign_bit(f)) != sign || magnitude < f->nan_from)
            fail_msg("%s: NaN %08x became %x", f->name, (unsigned)bits, (unsigned)got);
        if (f->infinity != 0 && !(magnitude & 1u << (f->mantissa_bits - 1)))
            fail_msg("%s: NaN %08x became the signalling %x", f->name, (unsigned)bits, (unsigned)got);
        return;
    }
    const uint32_t want = sign | nearest(f, fabs((double)value));
    if (got != want)
        fail_msg("%s: %.9g (%08x) became %x, expected %x", f->name, (double)value, (unsigned)bits,
                 (unsigned)got, (unsigned)want);
}

static void check_widen(const format *f, uint32_t code, float got)
{
    const uint32_t magnitude = code & (sign_bit(f) - 1);
    assert_int_equal(mica__f32_bits(got) >> 31, (code & sign_bit(f)) != 0);
    if (magnitude >= f->nan_from)
        assert_true(isnan(got));
    else if (f->infinity != 0 && magnitude == f->infinity)
        assert_true(isinf(got));
    else
        assert_true(fabs((double)got) == value_of(f, magnitude));
}

static void check_all_formats(uint32_t bits)
{
    const float value = mica__f32_from_bits(bits);
    check_narrow(&f16, value, mica__f32_to_f16_soft(value));
    check_narrow(&bf16, value, mica__f32_to_bf16(value));
    check_narrow(&e4m3, value, mica__f32_to_f8_e4m3(value));
    check_narrow(&e5m2, value, mica__f32_to_f8_e5m2(value));
    assert_int_equal(mica__f32_to_f16(value), mica__f32_to_f16_soft(value));
}

static void narrowing_at_every_boundary(void **state)
{
    static const uint32_t tails[] = {0, 1, 0xfff, 0x1000, 0x1001, 0x1fff};
    (void)state;
    for (uint32_t sign = 0; sign < 2; sign++)
        for (uint32_t exponent = 0; exponent < 256; exponent++)
            for (uint32_t head = 0; head < 1024; head++)
                for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++)
                    check_all_formats(sign << 31 | exponent << 23 | head << 13 | tails[i]);
}

static void narrowing_of_random_bits(void **state)
{
    uint32_t bits = 12345;
    (void)state;
    for (int i = 0; i < 500000; i++) {
        bits = bits * 1664525u + 1013904223u;
        check_all_formats(bits ^ bits >> 15);
    }
}

static void widening_of_every_code(void **state)
{
    (void)state;
    for (uint32_t code = 0; code < 65536; code++) {
        check_widen(&f16, code, mica__f16_to_f32_soft((uint16_t)code));
        check_widen(&bf16, code, mica__bf16_to_f32((uint16_t)code));
        assert_int_equal(mica__f32_bits(mica__f16_to_f32((uint16_t)code)),
                         mica__f32_bits(mica__f16_to_f32_soft((uint16_t)code)));
    }
    for (uint32_t code = 0; code < 256; code++) {
        check_widen(&e4m3, code, mica__f8_e4m3_to_f32((uint8_t)code));
        check_widen(&e5m2, code, mica__f8_e5m2_to_f32((uint8_t)code));
    }
}

static void codes_survive_the_way_out_and_back(void **state)
{
    (void)state;
    for (uint32_t code = 0; code < 65536; code++) {
        /* A signalling NaN comes back quiet, with the rest of its payload. */
        const uint32_t quiet16 = (code & 0x7fff) > 0x7c00 ? 0x200 : 0,
                       quiet_b = (code & 0x7fff) > 0x7f80 ? 0x40 : 0;
        assert_int_equal(mica__f32_to_f16_soft(mica__f16_to_f32_soft((uint16_t)code)), code | quiet16);
        assert_int_equal(mica__f32_to_bf16(mica__bf16_to_f32((uint16_t)code)), code | quiet_b);
    }
    for (uint32_t code = 0; code < 256; code++) {
        const uint32_t quiet = (code & 0x7f) > 0x7c ? 2 : 0;
        assert_int_equal(mica__f32_to_f8_e4m3(mica__f8_e4m3_to_f32((uint8_t)code)), code);
        assert_int_equal(mica__f32_to_f8_e5m2(mica__f8_e5m2_to_f32((uint8_t)code)), code | quiet);
        assert_int_equal(mica__f32_to_e8m0(mica__e8m0_to_f32((uint8_t)code)), code);
    }
}

static void overflow_edges(void **state)
{
    (void)state;
    assert_int_equal(mica__f32_to_f16_soft(65519.996f), 0x7bff);
    assert_int_equal(mica__f32_to_f16_soft(65520.0f), 0x7c00);
    assert_int_equal(mica__f32_to_f8_e4m3(448.0f), 0x7e);
    assert_int_equal(mica__f32_to_f8_e4m3(464.0f), 0x7e);
    assert_int_equal(mica__f32_to_f8_e4m3(465.0f), 0x7f);
    assert_int_equal(mica__f32_to_f8_e4m3(-INFINITY), 0xff);
    assert_int_equal(mica__f32_to_f8_e5m2(57344.0f), 0x7b);
    assert_int_equal(mica__f32_to_f8_e5m2(61440.0f), 0x7c);
    assert_int_equal(mica__f32_to_f8_e5m2(-INFINITY), 0xfc);
}

static void e8m0_is_the_nearest_power(void **state)
{
    (void)state;
    for (int code = 0; code < 255; code++) {
        const double power = ldexp(1.0, code - 127);
        assert_true((double)mica__e8m0_to_f32((uint8_t)code) == power);
        assert_int_equal(mica__f32_to_e8m0((float)(power * 1.4999)), code);
        assert_int_equal(mica__f32_to_e8m0((float)(power * 1.5)), code + 1);
    }
    assert_true(isnan(mica__e8m0_to_f32(0xff)));
    assert_int_equal(mica__f32_to_e8m0(0.0f), 0);
    assert_int_equal(mica__f32_to_e8m0(-0.0f), 0);
    assert_int_equal(mica__f32_to_e8m0(-1.0f), 0xff);
    assert_int_equal(mica__f32_to_e8m0(-1e-45f), 0xff);
    assert_int_equal(mica__f32_to_e8m0(INFINITY), 0xff);
    assert_int_equal(mica__f32_to_e8m0(mica__f32_from_bits(0x7fc00000)), 0xff);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(widening_of_every_code),   cmocka_unit_test(narrowing_at_every_boundary),
        cmocka_unit_test(narrowing_of_random_bits), cmocka_unit_test(codes_survive_the_way_out_and_back),
        cmocka_unit_test(overflow_edges),           cmocka_unit_test(e8m0_is_the_nearest_power),
    };
    return cmocka_run_group_tests(tests, fill_values, NULL);
}
