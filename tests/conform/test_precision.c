/*
 * test_precision.c - how far 8-bit activations move a quantised matmul: the distance from oracle A, which dequantises the
 * weights, to oracle B, which also quantises the activations. Printed per type, for docs/measurements.md. And that they are
 * rounded by one rule on every instruction set, to the bit.
 *
 * A block of 32 normal values has its greatest near 2.1, so a code is off by about 2.1 / 127 / sqrt(12) = 0.5 % of a
 * value, and a sum of many such products by 0.5 % of its size, whatever the type of the weight.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "conform/conform_suite.h"
#include "oracle/oracle_number.h"
#include "oracle/oracle_ops.h"
#include "quant/quant.h"
#include "support/random.h"
#include "support/status.h"
#include "support/tensor.h"

enum { K = 4096, ROWS = 256, GROUP = 64, SIDE = 128 };

typedef struct weights {
    float value[ROWS][K];
    uint8_t data[ROWS * K * 2]; /* at most 8.5 bits a value */
    float scales[ROWS][K / GROUP], biases[ROWS][K / GROUP];
    double scale_values[ROWS * K / GROUP], bias_values[ROWS * K / GROUP];
} weights;

static oracle_weight encode(weights *w, mica_dtype dtype)
{
    const bool affine = oracle_is_affine(dtype);

    for (size_t row = 0; row < ROWS; row++) {
        uint8_t *to = w->data + row * oracle_row_bytes(dtype, K);

        if (affine)
            mica__affine_encode_row((uint16_t)dtype, MICA_DTYPE_F32, GROUP, w->value[row], K, to,
                                    w->scales[row], w->biases[row]);
        else
            mica__quant_encode_row((uint16_t)dtype, w->value[row], NULL, to, K);
    }
    for (size_t i = 0; i < ROWS * K / GROUP; i++) {
        w->scale_values[i] = (double)w->scales[i / (K / GROUP)][i % (K / GROUP)];
        w->bias_values[i] = (double)w->biases[i / (K / GROUP)][i % (K / GROUP)];
    }
    return (oracle_weight){.dtype = dtype,
                           .data = w->data,
                           .rows = ROWS,
                           .columns = K,
                           .scales = w->scale_values,
                           .biases = w->bias_values,
                           .group_size = affine ? GROUP : 0};
}

static void test_distance(void **state)
{
    static const mica_dtype types[] = {
        MICA_DTYPE_Q4_0,    MICA_DTYPE_Q4_1,    MICA_DTYPE_Q5_0,    MICA_DTYPE_Q5_1,    MICA_DTYPE_Q8_0,
        MICA_DTYPE_Q2_K,    MICA_DTYPE_Q3_K,    MICA_DTYPE_Q4_K,    MICA_DTYPE_Q5_K,    MICA_DTYPE_Q6_K,
        MICA_DTYPE_IQ4_NL,  MICA_DTYPE_IQ4_XS,  MICA_DTYPE_MXFP4,   MICA_DTYPE_NVFP4,   MICA_DTYPE_AFFINE2,
        MICA_DTYPE_AFFINE3, MICA_DTYPE_AFFINE4, MICA_DTYPE_AFFINE5, MICA_DTYPE_AFFINE6, MICA_DTYPE_AFFINE8};
    test_random random = test_random_from(4096);
    weights *w = test_alloc(1, sizeof *w);
    double x[K], a[ROWS], b[ROWS], error[ROWS];

    (void)state;
    for (size_t i = 0; i < (size_t)ROWS * K; i++)
        w->value[i / K][i % K] = (float)test_random_normal(&random);
    for (size_t i = 0; i < K; i++)
        x[i] = (double)(float)test_random_normal(&random);
    print_message("from oracle A to oracle B, K = %d, %d rows, in parts of the RMS of y:\n", K, ROWS);
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        const oracle_weight weight = encode(w, types[t]);
        double square = 0, off = 0, most = 0;

        oracle_matmul_row(&weight, 0, ROWS, x, false, a, error);
        oracle_matmul_row(&weight, 0, ROWS, x, true, b, error);
        for (size_t i = 0; i < ROWS; i++) {
            square += a[i] * a[i];
            off += (b[i] - a[i]) * (b[i] - a[i]);
            most = fmax(most, fabs(b[i] - a[i]));
        }
        print_message("  %-8s RMS %.3f %%, max %.2f %%\n", mica_dtype_name(types[t]),
                      100 * sqrt(off / square), 100 * most / sqrt(square / ROWS));
        assert_true(square > 0.5 * ROWS * K); /* normal times normal: the weights are what was encoded */
        assert_true(sqrt(off / square) > 0.004 && sqrt(off / square) < 0.006);
    }
    free(w);
}

/* Runs of 32 whose first is the greatest and whose others lie in the middle of two codes, as near as f32 can: where that is 127,
 * right there, which is for the rule of ties; elsewhere the last bit of each factor decides. */
static void draw_runs(test_random *random, float *x, size_t count)
{
    double most = 127;

    for (size_t i = 0; i < count; i++) {
        const double code = (double)test_random_below(random, 253) - 126.5;

        if (i % 32 == 0)
            most = i % 64
                       ? ldexp(1 + test_random_uniform(random, 0, 1), (int)test_random_below(random, 40) - 20)
                       : 127;
        x[i] = i % 32 ? (float)(code * (double)(float)most / 127) : -(float)most;
    }
}

/* x through a weight of ones on the diagonal: what stays of each value, by the rule in quant/quant.h. */
static void check_runs(mica_device *device, const float *x, const void *ones)
{
    enum { RUNS = SIDE * SIDE / 32 };
    const uint64_t shape[2] = {SIDE, SIDE};
    const mica_matmul_params params = {.precision = MICA_PRECISION_Q8};
    mica_buffer *from = NULL, *weight = NULL, *to = NULL;
    mica_encoder *encoder = NULL;
    float y[SIDE * SIDE];

    must(mica_buffer_alloc(device, MICA_DTYPE_F32, 2, shape, &from));
    must(mica_buffer_alloc(device, MICA_DTYPE_Q8_0, 2, shape, &weight));
    must(mica_buffer_alloc(device, MICA_DTYPE_F32, 2, shape, &to));
    must(mica_buffer_write(from, 0, x, sizeof y));
    must(mica_buffer_write(weight, 0, ones, RUNS * 34));
    must(mica_encoder_begin(device, NULL, &encoder));
    must(mica_matmul(encoder, from, weight, &params, to));
    must(mica_encoder_commit_and_wait(encoder));
    must(mica_buffer_read(to, 0, y, sizeof y));
    for (size_t run = 0; run < RUNS; run++) {
        float most = 0;

        for (size_t i = 0; i < 32; i++)
            most = fmaxf(most, fabsf(x[32 * run + i]));
        for (size_t i = 32 * run; i < 32 * run + 32; i++)
            if (y[i] != nearbyintf(x[i] * (127.0f / most)) * (most / 127.0f))
                fail_msg("%.9g in a run of at most %.9g became %.9g", (double)x[i], (double)most,
                         (double)y[i]);
    }
    mica_encoder_release(encoder);
    mica_buffer_release(from);
    mica_buffer_release(weight);
    mica_buffer_release(to);
}

static void test_rounding(void **state)
{
    test_random random = test_random_from(8);
    uint8_t ones[SIDE * SIDE / 32][34] = {{0}};
    float x[SIDE * SIDE];

    (void)state;
    draw_runs(&random, x, SIDE * SIDE);
    for (size_t i = 0; i < SIDE * SIDE; i += 32)
        ones[i / 32][1] = 0x3c; /* a scale of one, as f16 */
    for (size_t i = 0; i < SIDE; i++)
        ones[(i * SIDE + i) / 32][2 + i % 32] = 1;
    for (uint32_t isa = 0; isa < CONFORM_ISAS; isa++) {
        mica_device_options options = {.threads = 1};
        mica_device *device = NULL;

        snprintf(options.isa, sizeof options.isa, "%s", conform_isa_names[isa]);
        if (mica_device_open("cpu", &options, &device) == MICA_OK)
            check_runs(device, x, ones);
        else
            assert_true(isa > 0); /* not this processor's */
        mica_device_release(device);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_distance), cmocka_unit_test(test_rounding)};

    return cmocka_run_group_tests_name("precision", tests, NULL, NULL);
}
