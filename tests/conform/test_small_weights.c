/*
 * test_small_weights.c - matmuls with weights whose scales are too small for f16 to have all its digits for them, while the values are
 * not. Rows of x have a single one, so that y shows each weight as the device made it.
 *
 *   test_small_weights [DEVICE]     cpu unless one is named
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "mica/mica.h"
#include "oracle/oracle_blocks.h"
#include "oracle/oracle_number.h"
#include "support/need.h"
#include "support/random.h"
#include "support/status.h"
#include "support/tensor.h"

#define N 40u
#define K 256u
#define SPREAD (1.0 / 4096) /* of values: 0.0002 */
#define F16_QUANTUM (1.0 / (1 << 24))

static const char *device_id = "cpu";

/* As the oracle has the weights, row by row, and the sums of the absolute terms that they are made of. */
static mica_buffer *make_weight(mica_device *device, mica_dtype type, test_random *random, double *value,
                                double *magnitude)
{
    mica_buffer *plain = NULL, *packed = NULL;
    const uint64_t bytes = K / oracle_block_values(type) * oracle_block_bytes(type);
    uint8_t *blocks = test_alloc(N, bytes);
    test_blocks_fill(type, blocks, N * K / oracle_block_values(type), random, SPREAD);
    for (uint32_t n = 0; n < N; n++)
        oracle_decode_row(type, blocks + n * bytes, K, NULL, value + n * K, magnitude + n * K);
    must(mica_buffer_alloc(device, type, 2, (uint64_t[]){N, K}, &plain));
    must(mica_buffer_write(plain, 0, blocks, N * bytes));
    must(mica_buffer_pack(plain, &packed));
    mica_buffer_release(plain);
    free(blocks);
    return packed;
}

/* Each row with one number that is not zero: where it stands comes back. */
static mica_buffer *make_x(mica_device *device, uint32_t rows, test_random *random, uint32_t *column)
{
    mica_buffer *x = NULL;
    float *values = test_alloc((uint64_t)rows * K, sizeof *values);
    for (uint32_t r = 0; r < rows; r++) {
        column[r] = (uint32_t)test_random_below(random, K);
        values[r * K + column[r]] = 1;
    }
    must(mica_buffer_alloc(device, MICA_DTYPE_F32, 2, (uint64_t[]){rows, K}, &x));
    must(mica_buffer_write(x, 0, values, (uint64_t)rows * K * sizeof *values));
    free(values);
    return x;
}

static void multiply(mica_device *device, mica_dtype type, uint32_t rows, test_random *random)
{
    double *value = test_alloc(2 * N * K, sizeof *value), *magnitude = value + N * K;
    uint32_t *column = test_alloc(rows, sizeof *column);
    float *y = test_alloc((uint64_t)rows * N, sizeof *y);
    mica_buffer *weight = make_weight(device, type, random, value, magnitude), *result = NULL;
    mica_buffer *x = make_x(device, rows, random, column);
    mica_encoder *encoder = NULL;
    must(mica_buffer_alloc(device, MICA_DTYPE_F32, 2, (uint64_t[]){rows, N}, &result));
    must(mica_encoder_begin(device, NULL, &encoder));
    must(mica_matmul(encoder, x, weight, NULL, result));
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    must(mica_buffer_read(result, 0, y, (uint64_t)rows * N * sizeof *y));
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t n = 0; n < N; n++) {
            const uint32_t at = n * K + column[r];
            const double apart = fabs(y[r * N + n] - value[at]);
            if (!(apart <= magnitude[at] / 1024 + 2 * F16_QUANTUM))
                fail_msg("%s, %u rows: row %u of the weight, column %u is %.9g, not %.9g",
                         mica_dtype_name(type), rows, n, column[r], y[r * N + n], value[at]);
        }
    mica_buffer_release(result);
    mica_buffer_release(weight);
    mica_buffer_release(x);
    free(y);
    free(column);
    free(value);
}

static void small_scales_keep_their_digits(void **state)
{
    static const mica_dtype types[] = {MICA_DTYPE_Q4_0, MICA_DTYPE_Q8_0,   MICA_DTYPE_Q2_K,
                                       MICA_DTYPE_Q3_K, MICA_DTYPE_Q4_K,   MICA_DTYPE_Q5_K,
                                       MICA_DTYPE_Q6_K, MICA_DTYPE_IQ4_XS, MICA_DTYPE_IQ2_S};
    static const uint32_t rows[] = {1, 9, 65, 200};
    test_random random = test_random_from(21);
    mica_device *device = NULL;
    (void)state;
    must(mica_device_open(device_id, NULL, &device));
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
            multiply(device, types[t], rows[r], &random);
    mica_device_release(device);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(small_scales_keep_their_digits)};
    if (argc > 1)
        device_id = argv[1];
    const int missing = test_need(device_id);
    return missing != 0 ? missing : cmocka_run_group_tests_name("small weights", tests, NULL, NULL);
}
