/* test_base_half_f16c.c: the f16 conversion instructions of x86 give the same bits as the software, which
 * test_base_half.c proves. The instructions are switched on for the conversion alone, so that the program
 * also starts on a machine without them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HAVE_F16C_TEST 1
#pragma GCC push_options
#pragma GCC target("avx,f16c")
#include "base/half.h"

static uint32_t widen(uint16_t half)
{
    return mica__f32_bits(mica__f16_to_f32(half));
}

static uint16_t narrow(uint32_t bits)
{
    return mica__f32_to_f16(mica__f32_from_bits(bits));
}

static uint32_t widen_soft(uint16_t half)
{
    return mica__f32_bits(mica__f16_to_f32_soft(half));
}

static uint16_t narrow_soft(uint32_t bits)
{
    return mica__f32_to_f16_soft(mica__f32_from_bits(bits));
}

#if !defined(__F16C__)
#error "the instructions are not switched on: this test would compare the software with itself"
#endif
#pragma GCC pop_options
#endif

#if defined(HAVE_F16C_TEST)

static void widening_equals_software(void **state)
{
    (void)state;
    if (!__builtin_cpu_supports("avx") || !__builtin_cpu_supports("f16c"))
        skip();
    for (uint32_t code = 0; code < 65536; code++)
        assert_int_equal(widen((uint16_t)code), widen_soft((uint16_t)code));
}

static void narrowing_equals_software(void **state)
{
    static const uint32_t tails[] = {0, 1, 0xfff, 0x1000, 0x1001, 0x1fff};
    (void)state;
    if (!__builtin_cpu_supports("avx") || !__builtin_cpu_supports("f16c"))
        skip();
    for (uint32_t head = 0; head < 1u << 19; head++) /* sign, exponent, upper mantissa */
        for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++)
            assert_int_equal(narrow(head << 13 | tails[i]), narrow_soft(head << 13 | tails[i]));
}

#else

static void widening_equals_software(void **state)
{
    (void)state;
    skip();
}

static void narrowing_equals_software(void **state)
{
    (void)state;
    skip();
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(widening_equals_software),
        cmocka_unit_test(narrowing_equals_software),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
