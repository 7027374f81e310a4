/*
 * test_precision.c - how far 8-bit activations move a quantised matmul: the distance from oracle A, which dequantises the
 * weights, to oracle B, which also quantises the activations. Printed per type, for docs/measurements.md.
 *
 * A block of 32 normal values has its greatest near 2.1, so a code is off by about 2.1 / 127 / sqrt(12) = 0.5 % of a
 * value, and a sum of many such products by 0.5 % of its size, whatever the type of the weight.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "oracle/oracle_number.h"
#include "oracle/oracle_ops.h"
#include "quant/quant.h"
#include "support/random.h"
#include "support/tensor.h"

enum { K = 4096, ROWS = 256, GROUP = 64 };

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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_distance)};

    return cmocka_run_group_tests_name("precision", tests, NULL, NULL);
}
