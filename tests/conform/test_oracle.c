/*
 * test_oracle.c - the oracles against values worked out by hand: who judges must be judged first.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "oracle/oracle_blocks.h"
#include "oracle/oracle_codes.h"
#include "oracle/oracle_number.h"
#include "oracle/oracle_ops.h"
#include "oracle/oracle_scalar.h"

static void test_f16(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 65536; bits++) {
        double value = oracle_from_f16((uint16_t)bits);

        if (isnan(value))
            assert_true((bits & 0x7c00) == 0x7c00 && (bits & 0x3ff) &&
                        isnan(oracle_from_f16(oracle_to_f16(value))));
        else
            assert_int_equal(bits, oracle_to_f16(value));
    }
    assert_true(oracle_from_f16(0x3c00) == 1 && oracle_from_f16(0xc000) == -2 &&
                oracle_from_f16(0x7bff) == 65504);
    assert_true(oracle_from_f16(0x0001) == ldexp(1, -24) && oracle_from_f16(0x0400) == ldexp(1, -14));
    assert_int_equal(0x3c00, oracle_to_f16(1 + ldexp(1, -11)));     /* a tie goes to the even one below */
    assert_int_equal(0x3c02, oracle_to_f16(1 + 3 * ldexp(1, -11))); /* and to the even one above */
    assert_int_equal(0x3c01, oracle_to_f16(1 + 1.001 * ldexp(1, -11)));
    assert_int_equal(0x7bff, oracle_to_f16(65519.999));
    assert_int_equal(0x7c00, oracle_to_f16(65520));
    assert_int_equal(0x0000, oracle_to_f16(ldexp(1, -25))); /* half the smallest step: to even */
    assert_int_equal(0x0001, oracle_to_f16(ldexp(1.001, -25)));
    assert_int_equal(0x0400, oracle_to_f16(ldexp(1, -14) - ldexp(1, -26)));
    assert_int_equal(0x8000, oracle_to_f16(-0.0));
}

static void test_bf16(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 65536; bits++) {
        uint32_t wide = bits << 16;
        float value;

        memcpy(&value, &wide, sizeof value); /* bf16 is the upper half of f32 */
        if (isnan(value))
            assert_true(isnan(oracle_from_bf16((uint16_t)bits)));
        else
            assert_true(oracle_from_bf16((uint16_t)bits) == value && oracle_to_bf16(value) == bits);
    }
    assert_int_equal(0x3f80, oracle_to_bf16(1 + ldexp(1, -8)));
    assert_int_equal(0x3f82, oracle_to_bf16(1 + 3 * ldexp(1, -8)));
    assert_int_equal(0x7f80, oracle_to_bf16(3.4e38));
}

static void decode(mica_dtype dtype, const uint8_t *row, size_t count, double *value)
{
    double magnitude[256];

    oracle_decode_row(dtype, row, count, NULL, value, magnitude);
    for (size_t i = 0; i < count; i++)
        assert_true(magnitude[i] >= fabs(value[i]));
}

static void test_small_blocks(void **state)
{
    uint8_t q4[18] = {0x00, 0x38}, q8[34] = {0x00, 0xc0}; /* scales 0.5 and -2 */
    double value[32];

    (void)state;
    q4[2] = 0x0f;      /* value 0 is 15, value 16 is 0 */
    q4[2 + 15] = 0xa8; /* value 15 is 8, value 31 is 10 */
    decode(MICA_DTYPE_Q4_0, q4, 32, value);
    assert_true(value[0] == 3.5 && value[16] == -4 && value[15] == 0 && value[31] == 1 && value[1] == -4);
    q8[2] = 0x80;
    q8[33] = 0x7f;
    decode(MICA_DTYPE_Q8_0, q8, 32, value);
    assert_true(value[0] == 256 && value[31] == -254 && value[1] == 0);
}

static void test_k_blocks(void **state)
{
    uint8_t q4[144] = {0x00, 0x3c, 0x00, 0x38}, q6[210] = {0}; /* d = 1, dmin = 0.5 */
    double value[256];

    (void)state;
    q4[4 + 1] = 0x80 | 5;     /* scale of sub-block 1 is 5; upper bits of the scale of sub-block 5: 2 */
    q4[4 + 4 + 1] = 0x40 | 6; /* min of sub-block 1 is 6; upper bits of the min of sub-block 5: 1 */
    q4[4 + 8 + 1] = 0x73;     /* sub-block 5: low bits of the scale 3, of the min 7 */
    q4[16 + 4] = 0xb2;        /* sub-block 1, value 4: 11; sub-block 0, value 4: 2 */
    q4[16 + 64 + 31] = 0x90;  /* sub-block 5, value 31: 9 */
    decode(MICA_DTYPE_Q4_K, q4, 256, value);
    assert_true(value[4] == 0 && value[32 + 4] == 5 * 11 - 3);
    assert_true(value[32 * 5 + 31] == (3 | 2 << 4) * 9 - 0.5 * (7 | 1 << 4));
    q6[209] = 0x3c;           /* d = 1 */
    q6[192 + 8 + 7] = 0xfe;   /* scale -2 of the last 16 values */
    q6[192 + 1] = 3;          /* of values 16 to 31 */
    q6[64 + 32 + 31] = 0x70;  /* upper half, last quarter, value 31: low bits 7 */
    q6[128 + 32 + 31] = 0x80; /* its high bits: 2 */
    q6[20] = 0x09;            /* value 20: low bits 9 */
    q6[128 + 20] = 0x01;      /* its high bits: 1 */
    decode(MICA_DTYPE_Q6_K, q6, 256, value);
    assert_true(value[255] == -2 * ((7 | 2 << 4) - 32) && value[20] == 3 * ((9 | 1 << 4) - 32));
}

static void test_affine(void **state)
{
    static const uint8_t four[4] = {0x21, 0x43, 0x65, 0x87}, six[3] = {0x41, 0x20, 0x10},
                         eight[4] = {0, 1, 2, 255};
    static const double scales[] = {2, 3}, biases[] = {-1, 10};
    oracle_groups groups = {scales, biases, 4};
    double value[8], magnitude[8];

    (void)state;
    oracle_decode_row(MICA_DTYPE_AFFINE4, four, 8, &groups, value, magnitude);
    for (int i = 0; i < 8; i++)
        assert_true(value[i] == (i < 4 ? 2 * (i + 1) - 1 : 3 * (i + 1) + 10));
    oracle_decode_row(MICA_DTYPE_AFFINE6, six, 4, &groups, value, magnitude); /* 1, 1, 2, 4 */
    assert_true(value[0] == 1 && value[1] == 1 && value[2] == 3 && value[3] == 7);
    oracle_decode_row(MICA_DTYPE_AFFINE8, eight, 4, &groups, value, magnitude);
    assert_true(value[0] == -1 && value[3] == 509 && magnitude[3] == 511);
}

static void test_odd_affine(void **state)
{
    static const uint8_t two[4] = {0xe4}, three[3] = {0x88, 0xc6, 0xfa},
                         five[5] = {0x20, 0x88, 0x41, 0x8a, 0x39};
    static const double scales[] = {1}, biases[] = {0};
    oracle_groups groups = {scales, biases, 16};
    double value[16], magnitude[16];

    (void)state;
    oracle_decode_row(MICA_DTYPE_AFFINE2, two, 16, &groups, value, magnitude);
    assert_true(value[0] == 0 && value[1] == 1 && value[2] == 2 && value[3] == 3 && value[4] == 0);
    oracle_decode_row(MICA_DTYPE_AFFINE3, three, 8, &groups, value, magnitude);
    for (int i = 0; i < 8; i++)
        assert_true(value[i] == i);
    oracle_decode_row(MICA_DTYPE_AFFINE5, five, 8, &groups, value, magnitude);
    for (int i = 0; i < 7; i++)
        assert_true(value[i] == i);
}

static void test_floats(void **state)
{
    static const uint8_t four[2] = {0xf1, 0x8a}, eight[4] = {0x38, 0x81, 0x7e, 0x08};
    static const double scales[] = {2, 4};
    oracle_groups groups = {scales, NULL, 2};
    double value[4], magnitude[4];

    (void)state;
    oracle_decode_row(MICA_DTYPE_FP4, four, 4, &groups, value, magnitude); /* 0.5, -6; -1, -0 */
    assert_true(value[0] == 1 && value[1] == -12 && value[2] == -4 && value[3] == 0 && magnitude[1] == 12);
    oracle_decode_row(MICA_DTYPE_F8_E4M3, eight, 4, &groups, value, magnitude); /* 1, -2^-9; 448, 2^-6 */
    assert_true(value[0] == 2 && value[1] == -2.0 / 512 && value[2] == 4 * 448 && value[3] == 4.0 / 64);
    assert_true(isnan(oracle_e4m3(0x7f)) && isnan(oracle_e4m3(0xff)) && isnan(oracle_e8m0(255)));
    assert_true(oracle_e8m0(127) == 1 && oracle_e8m0(0) == ldexp(1, -127) && oracle_e8m0(130) == 8);
}

/* Formats whose codes stand for fixed levels; d = 1 is 0x3c00. */
static void test_levels(void **state)
{
    uint8_t nl[18] = {0x00, 0x3c, 0xf0}, xs[136] = {0x00, 0x3c}, mx[17] = {128, 0xe7}, nv[36] = {0};
    uint8_t t1[54] = {0}, t2[66] = {0};
    double value[256];

    (void)state;
    decode(MICA_DTYPE_IQ4_NL, nl, 32, value);
    assert_true(value[0] == -127 && value[16] == 113 && value[1] == -127);
    xs[3] = 0x80;               /* run 7: upper bits of the scale 2 */
    xs[7] = 0x30;               /* its lower bits 3: scale 35 - 32 */
    xs[8 + 16 * 7 + 15] = 0x8f; /* its values 15 and 31 */
    decode(MICA_DTYPE_IQ4_XS, xs, 256, value);
    assert_true(value[7 * 32 + 15] == 3 * 113 && value[7 * 32 + 31] == 3 && value[0] == -32 * -127);
    decode(MICA_DTYPE_MXFP4, mx, 32, value);
    assert_true(value[0] == 12 && value[16] == -8 && value[1] == 0);
    nv[1] = 7 << 3 | 4; /* 1.5 */
    nv[3] = 3;          /* 3 / 512 */
    nv[4 + 8] = 0xa1;   /* run 1: values 0 and 8 */
    nv[4 + 24 + 7] = 0x20;
    decode(MICA_DTYPE_NVFP4, nv, 64, value);
    assert_true(value[16] == 0.75 && value[24] == -1.5 && value[63] == 3.0 / 512 && value[55] == 0);
    t1[53] = t2[65] = 0x3c;
    t1[0] = 255;  /* all digits 2 */
    t1[32] = 86;  /* just above a third: digit 1, then zeros */
    t1[51] = 171; /* just above two thirds */
    decode(MICA_DTYPE_TQ1_0, t1, 256, value);
    assert_true(value[0] == 1 && value[32] == 1 && value[128] == 1 && value[1] == -1);
    assert_true(value[160] == 0 && value[176] == -1 && value[243] == 1 && value[247] == -1);
    t2[33] = 0x90; /* upper half, byte 1: digits 0, 0, 1, 2 */
    decode(MICA_DTYPE_TQ2_0, t2, 256, value);
    assert_true(value[128 + 1] == -1 && value[128 + 65] == 0 && value[128 + 97] == 1);
}

static void test_q8_activations(void **state)
{
    double x[40] = {0}, got[40];

    (void)state;
    x[0] = -127;
    x[1] = 0.5; /* a tie: to even, 0 */
    x[2] = 1.5; /* a tie: 2 */
    x[3] = 63.4;
    x[39] = 1e-3; /* the last block is short and has a scale of its own */
    oracle_quantise_q8(x, 40, got);
    assert_true(got[0] == -127 && got[1] == 0 && got[2] == 2 && got[3] == 63 && got[4] == 0);
    assert_true(fabs(got[39] - 1e-3) < 1e-9 && got[35] == 0);
}

/* Two keys of which a query at position 0 sees one, a query at position 1 both with weights 1 : e. */
static void test_attention(void **state)
{
    static const double q[] = {1, 1}, k[] = {0, 1}, v[] = {10, 20}, positions[] = {0, 1}, lengths[] = {2};
    oracle_attention a = {.tokens = 2, .heads = 1, .dim = 1, .v_dim = 1, .q = q, .k = k, .v = v, .scale = 1};
    double y[2], error[2], e = exp(1);

    (void)state;
    a.positions = positions;
    a.lengths = lengths;
    a.cache = (oracle_cache){.pages = 1, .page_slots = 2, .heads = 1, .sequences = 1, .max_pages = 1};
    assert_true(oracle_attention_run(&a, y, error));
    assert_true(y[0] == 10 && fabs(y[1] - (10 + 20 * e) / (1 + e)) < 1e-12);
    a.window = 1;
    assert_true(oracle_attention_run(&a, y, error));
    assert_true(y[0] == 10 && y[1] == 20);
    a.window = 0;
    a.bidirectional = true;
    assert_true(oracle_attention_run(&a, y, error));
    assert_true(y[0] == y[1]);
}

static void test_rows(void **state)
{
    static const double x[] = {3, -4, 0, 0}, position[] = {1}, tie[] = {1, 5, 5};
    oracle_rope rope = {.tokens = 1, .heads = 1, .dim = 4, .x = x, .positions = position, .rotary_dims = 4};
    double y[4], error[4], id;

    (void)state;
    oracle_rms_norm(1, 4, x, NULL, 0, y, error);
    assert_true(y[0] == 1.2 && y[1] == -1.6);
    oracle_softmax(1, 4, (const double[]){0, 0, -INFINITY, 0}, 1, y, error);
    assert_true(fabs(y[0] - 1.0 / 3) < 1e-15 && y[2] == 0);
    oracle_argmax(1, 3, tie, false, &id);
    assert_true(id == 1);
    rope.frequency_dims = 4;
    rope.theta = 100;
    rope.position_scale = rope.attention_scale = 1;
    oracle_rope_run(&rope, y, error);
    assert_true(fabs(y[0] - (3 * cos(1) + 4 * sin(1))) < 1e-12 &&
                fabs(y[1] - (3 * sin(1) - 4 * cos(1))) < 1e-12);
    rope.neox = true; /* pairs (0, 2) and (1, 3) with frequencies 1 and 0.1 */
    oracle_rope_run(&rope, y, error);
    assert_true(fabs(y[2] - 3 * sin(1)) < 1e-12 && fabs(y[1] + 4 * cos(0.1)) < 1e-12);
}

static oracle_value about(double x, double error)
{
    return (oracle_value){.type = MICA_REGISTER_F32, .x = x, .error = error};
}

/* What values that were rounded on their way may give: the bound has all of it, and is no verdict where anything may come out. */
static void test_carried_errors(void **state)
{
    const oracle_value vanished[3] = {about(-5e-55, 1e-38), about(-5e-55, 1e-38)}; /* 0 on a device */
    const oracle_value around_zero[3] = {about(0, 1), about(0, 2)};
    const oracle_value around_the_dip[3] = {about(-50, 49.5)};
    oracle_value y;

    (void)state;
    assert_true(oracle_scalar_run("div", MICA_REGISTER_F32, vanished).open); /* 0 / 0 */
    assert_true(oracle_scalar_run("sqrt", MICA_REGISTER_F32, around_zero).open);
    y = oracle_scalar_run("mul", MICA_REGISTER_F32, around_zero);
    assert_true(!y.open && y.error >= 2 && y.error < 2.001L);
    y = oracle_scalar_run("silu", MICA_REGISTER_F32, around_the_dip);
    assert_true(!y.open && y.error >= 0.278L && y.error < 0.279L);
    y = oracle_scalar_run("round_f16", MICA_REGISTER_F32, vanished);
    for (int sign = 0; sign < 2; sign++) {
        const uint16_t zero = (uint16_t)(sign << 15);
        assert_true(oracle_region_near(MICA_DTYPE_F16, &y, NULL, &zero));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f16),          cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_small_blocks), cmocka_unit_test(test_k_blocks),
        cmocka_unit_test(test_affine),       cmocka_unit_test(test_q8_activations),
        cmocka_unit_test(test_odd_affine),   cmocka_unit_test(test_levels),
        cmocka_unit_test(test_floats),       cmocka_unit_test(test_attention),
        cmocka_unit_test(test_rows),         cmocka_unit_test(test_carried_errors),
    };

    return cmocka_run_group_tests_name("oracle", tests, NULL, NULL);
}
