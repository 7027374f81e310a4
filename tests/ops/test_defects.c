/*
 * test_defects.c - mistakes that other implementations made and that no drawn case asks for by itself: each has its test here, or a family of cases
 * in rows/shapes_defects.c, or stands with another test in docs/defects.md. On every device that there is.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "mica/mica.h"
#include "support/each_device.h"
#include "support/random.h"
#include "support/status.h"

static mica_buffer *made(mica_device *device, mica_dtype dtype, uint32_t ndim, const uint64_t *shape,
                         const void *values)
{
    mica_buffer *buffer;
    mica_buffer_info info;

    must(mica_buffer_alloc(device, dtype, ndim, shape, &buffer));
    must(mica_buffer_get_info(buffer, &info));
    if (values != NULL)
        must(mica_buffer_write(buffer, 0, values, info.byte_length));
    return buffer;
}

/* The eight exponents' bias is 7, and the highest exponent has numbers up to 448: of it only the last fraction is NaN. */
static double e4m3(unsigned code)
{
    const unsigned exponent = code >> 3 & 15, fraction = code & 7;
    const double size = exponent == 0 ? ldexp(fraction, -9) : ldexp(8 + fraction, (int)exponent - 10);

    return (code & 0x7f) == 0x7f ? NAN : (code & 0x80) != 0 ? -size : size;
}

static void every_code_of_e4m3(void **state)
{
    uint8_t codes[256], back[256];
    float got[256];

    (void)state;
    for (unsigned i = 0; i < 256; i++)
        codes[i] = (uint8_t)i;
    ON_EACH(device)
    {
        mica_buffer *x = made(device, MICA_DTYPE_F8_E4M3, 1, SHAPE(256), codes),
                    *y = made(device, MICA_DTYPE_F32, 1, SHAPE(256), NULL),
                    *again = made(device, MICA_DTYPE_F8_E4M3, 1, SHAPE(256), NULL);

        must(mica_cast(encoder, x, y));
        must(mica_cast(encoder, y, again));
        end();
        must(mica_buffer_read(y, 0, got, sizeof got));
        must(mica_buffer_read(again, 0, back, sizeof back));
        for (unsigned i = 0; i < 256; i++) {
            const double wanted = e4m3(i);

            if (!((double)got[i] == wanted || (isnan(got[i]) && isnan(wanted))))
                fail_msg("code %02x is %g, not %g", i, (double)got[i], wanted);
            if (!isnan(wanted))
                assert_int_equal(back[i], i);
        }
        assert_true((double)got[0x7e] == 448 && (double)got[0x78] == 256);
        mica_buffer_release(x);
        mica_buffer_release(y);
        mica_buffer_release(again);
    }
}

/* A permuted view gives another dimension, whose elements do not stand one behind another. */
static void softmax_along_another_axis(void **state)
{
    static const uint32_t order[] = {1, 0};
    float x[15], y[15];

    (void)state;
    for (unsigned i = 0; i < 15; i++)
        x[i] = (float)((i * 7) % 15) / 4;
    ON_EACH(device)
    {
        mica_buffer *in = made(device, MICA_DTYPE_F32, 2, SHAPE(3, 5), x), *columns,
                    *out = made(device, MICA_DTYPE_F32, 2, SHAPE(5, 3), NULL);

        must(mica_buffer_permute(in, order, &columns));
        must(mica_softmax(encoder, columns, 1, out));
        end();
        must(mica_buffer_read(out, 0, y, sizeof y));
        for (unsigned c = 0; c < 5; c++) {
            double sum = 0;

            for (unsigned r = 0; r < 3; r++)
                sum += exp((double)x[5 * r + c]);
            for (unsigned r = 0; r < 3; r++)
                assert_true(fabs((double)y[3 * c + r] - exp((double)x[5 * r + c]) / sum) < 1e-6);
        }
        mica_buffer_release(in);
        mica_buffer_release(columns);
        mica_buffer_release(out);
    }
}

/* The first operand goes through the function, the second does not. */
static void gates_come_first(void **state)
{
    typedef mica_status (*gated)(mica_encoder *, mica_buffer *, mica_buffer *, mica_buffer *);
    static const gated calls[] = {mica_silu_mul, mica_gelu_mul, mica_sigmoid_mul, mica_quick_gelu_mul,
                                  mica_relu_squared_mul};
    const double gate = -0.5, up = 3, s = 1 / (1 + exp(0.5));
    const double wanted[] = {
        gate * s * up, 0.5 * gate * (1 + tanh(0.7978845608 * (gate + 0.044715 * gate * gate * gate))) * up,
        s * up, gate / (1 + exp(1.702 * 0.5)) * up, 0};
    const float a = (float)gate, b = (float)up;

    (void)state;
    ON_EACH(device)
    {
        mica_buffer *x = made(device, MICA_DTYPE_F32, 1, SHAPE(1), &a),
                    *y = made(device, MICA_DTYPE_F32, 1, SHAPE(1), &b),
                    *out = made(device, MICA_DTYPE_F32, 1, SHAPE(5), NULL);
        float got[5];

        for (uint64_t i = 0; i < 5; i++) {
            mica_buffer *one;

            must(mica_buffer_slice(out, 0, i, 1, &one));
            must(calls[i](encoder, x, y, one));
            mica_buffer_release(one);
        }
        end();
        must(mica_buffer_read(out, 0, got, sizeof got));
        for (int i = 0; i < 5; i++)
            assert_true(fabs((double)got[i] - wanted[i]) < 1e-6);
        mica_buffer_release(x);
        mica_buffer_release(y);
        mica_buffer_release(out);
    }
}

/* The two forms of gelu differ by up to 5e-4: neither stands for the other. */
static void two_forms_of_gelu(void **state)
{
    float x[64], got[2][64];
    double apart = 0;

    (void)state;
    for (int i = 0; i < 64; i++)
        x[i] = (float)(i - 32) / 8;
    ON_EACH(device)
    {
        mica_buffer *in = made(device, MICA_DTYPE_F32, 1, SHAPE(64), x),
                    *y = made(device, MICA_DTYPE_F32, 1, SHAPE(64), NULL),
                    *z = made(device, MICA_DTYPE_F32, 1, SHAPE(64), NULL);

        must(mica_gelu(encoder, in, y));
        must(mica_gelu_erf(encoder, in, z));
        end();
        must(mica_buffer_read(y, 0, got[0], sizeof got[0]));
        must(mica_buffer_read(z, 0, got[1], sizeof got[1]));
        for (int i = 0; i < 64; i++) {
            const double v = (double)x[i],
                         form = 0.5 * v * (1 + tanh(0.7978845608 * (v + 0.044715 * v * v * v))),
                         exact = 0.5 * v * (1 + erf(v / sqrt(2)));

            assert_true(fabs((double)got[0][i] - form) < 2e-6 && fabs((double)got[1][i] - exact) < 2e-6);
            apart = fmax(apart, fabs(form - exact));
        }
        assert_true(apart > 3e-4);
        mica_buffer_release(in);
        mica_buffer_release(y);
        mica_buffer_release(z);
    }
}

/* Halves go to the even number, not away from 0. */
static void halves_are_rounded_to_even(void **state)
{
    static const float x[8] = {-2.5f, -1.5f, -0.5f, 0.5f, 1.5f, 2.5f, 3.5f, 8388609},
                       wanted[8] = {-2, -2, 0, 0, 2, 2, 4, 8388609};
    float got[8];

    (void)state;
    ON_EACH(device)
    {
        mica_buffer *in = made(device, MICA_DTYPE_F32, 1, SHAPE(8), x),
                    *y = made(device, MICA_DTYPE_F32, 1, SHAPE(8), NULL);

        must(mica_round(encoder, in, y));
        end();
        must(mica_buffer_read(y, 0, got, sizeof got));
        for (int i = 0; i < 8; i++)
            assert_true(got[i] == wanted[i]);
        mica_buffer_release(in);
        mica_buffer_release(y);
    }
}

/* What stands on the diagonal may be 0 where a matrix has an inverse: rows are exchanged. Of the cpu alone. */
static void rows_are_exchanged(void **state)
{
    static const double a[] = {0, 2, 0, 0, 0, 3, 4, 0, 0}, b[] = {1, 1, 1};
    double x[3], y[1];

    (void)state;
    mica_buffer *matrix = made(devices[0], MICA_DTYPE_F64, 2, SHAPE(3, 3), a),
                *right = made(devices[0], MICA_DTYPE_F64, 2, SHAPE(3, 1), b),
                *out = made(devices[0], MICA_DTYPE_F64, 2, SHAPE(3, 1), NULL),
                *volume = made(devices[0], MICA_DTYPE_F64, 0, NULL, NULL);
    (void)begin(devices[0]);
    must(mica_solve(encoder, matrix, right, out));
    must(mica_determinant(encoder, matrix, NULL, volume));
    end();
    must(mica_buffer_read(out, 0, x, sizeof x));
    must(mica_buffer_read(volume, 0, y, sizeof y));
    assert_true(fabs(x[0] - 0.25) < 1e-15 && fabs(x[1] - 0.5) < 1e-15 && fabs(x[2] - 1.0 / 3) < 1e-15);
    assert_true(fabs(y[0] - 24) < 1e-13);
    mica_buffer_release(matrix);
    mica_buffer_release(right);
    mica_buffer_release(out);
    mica_buffer_release(volume);
}

/* Groups of channels of each image of a batch: the same as of that image alone. */
static void images_do_not_mix(void **state)
{
    enum { N = 3, C = 6, HW = 35, ALL = N * C * HW };
    float x[ALL], whole[ALL], one[C * HW], weight[C], bias[C];
    test_random random = test_random_from(3);

    (void)state;
    for (int i = 0; i < ALL; i++)
        x[i] = (float)test_random_normal(&random) * (float)(1 + i / (C * HW));
    for (int i = 0; i < C; i++) {
        weight[i] = (float)(i + 1);
        bias[i] = (float)(i - 2);
    }
    ON_EACH(device)
    {
        mica_buffer *in = made(device, MICA_DTYPE_F32, 4, SHAPE(N, C, 7, 5), x),
                    *w = made(device, MICA_DTYPE_F32, 1, SHAPE(C), weight),
                    *b = made(device, MICA_DTYPE_F32, 1, SHAPE(C), bias),
                    *y = made(device, MICA_DTYPE_F32, 4, SHAPE(N, C, 7, 5), NULL),
                    *last = made(device, MICA_DTYPE_F32, 4, SHAPE(1, C, 7, 5), x + (N - 1) * C * HW),
                    *alone = made(device, MICA_DTYPE_F32, 4, SHAPE(1, C, 7, 5), NULL);

        must(mica_group_norm(encoder, in, 3, w, b, 1e-5f, y));
        must(mica_group_norm(encoder, last, 3, w, b, 1e-5f, alone));
        end();
        must(mica_buffer_read(y, 0, whole, sizeof whole));
        must(mica_buffer_read(alone, 0, one, sizeof one));
        for (int i = 0; i < C * HW; i++)
            assert_true(fabs((double)one[i] - (double)whole[(N - 1) * C * HW + i]) < 1e-5);
        mica_buffer_release(in);
        mica_buffer_release(w);
        mica_buffer_release(b);
        mica_buffer_release(y);
        mica_buffer_release(last);
        mica_buffer_release(alone);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_of_e4m3),         cmocka_unit_test(softmax_along_another_axis),
        cmocka_unit_test(gates_come_first),           cmocka_unit_test(two_forms_of_gelu),
        cmocka_unit_test(halves_are_rounded_to_even), cmocka_unit_test(rows_are_exchanged),
        cmocka_unit_test(images_do_not_mix),
    };

    return cmocka_run_group_tests_name("defects", tests, open_devices, close_devices);
}
