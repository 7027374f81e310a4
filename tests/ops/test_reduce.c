/* test_reduce.c - reductions with wrong parameters and types, and numbers that everyone knows: by name, on the cpu. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "mica/mica.h"
#include "support/status.h"

static mica_device *device;

static int open_device(void **state)
{
    (void)state;
    return mica_device_open("cpu", NULL, &device) == MICA_OK ? 0 : -1;
}

static int close_device(void **state)
{
    (void)state;
    mica_device_release(device);
    return mica_host_bytes() == 0 ? 0 : -1;
}

static mica_buffer *made(mica_dtype dtype, uint32_t ndim, const uint64_t *shape)
{
    mica_buffer *buffer = NULL;

    must(mica_buffer_alloc(device, dtype, ndim, shape, &buffer));
    return buffer;
}

/* x of [2, 3] and y of [2], or of the rank and types that are given. */
static void refuse(mica_reduce_params params, mica_dtype x_type, mica_dtype y_type, uint32_t y_ndim,
                   const char *word)
{
    mica_buffer *x = made(x_type, 2, (uint64_t[]){2, 3}), *y = made(y_type, y_ndim, (uint64_t[]){2, 3});
    mica_encoder *encoder = NULL;

    must(mica_encoder_begin(device, NULL, &encoder));
    assert_int_equal(mica_reduce(encoder, x, &params, y), MICA_ERR_INVALID_ARGUMENT);
    if (strstr(mica_status_message(), word) == NULL)
        fail_msg("'%s' is not in: %s", word, mica_status_message());
    mica_encoder_release(encoder);
    mica_buffer_release(x);
    mica_buffer_release(y);
}

static void test_refused(void **state)
{
    const mica_dtype f32 = MICA_DTYPE_F32, i32 = MICA_DTYPE_I32, truth = MICA_DTYPE_BOOL;

    (void)state;
    refuse((mica_reduce_params){.kind = MICA_REDUCE_MAX_ABS + 1, .axes = 1}, f32, f32, 1, "params.kind");
    refuse((mica_reduce_params){.axes = 4}, f32, f32, 1, "params.axes");
    refuse((mica_reduce_params){.axes = 1, .keep_dims = 2}, f32, f32, 1, "params.keep_dims");
    refuse((mica_reduce_params){.kind = MICA_REDUCE_VAR, .axes = 1, .correction = 2}, f32, f32, 1,
           "params.correction");
    refuse((mica_reduce_params){.axes = 1}, f32, f32, 2, "y has 2 dimensions, not the 1");
    refuse((mica_reduce_params){.axes = 2}, f32, f32, 1, "y: shape[0] is 2, but the op gives 3");
    refuse((mica_reduce_params){.axes = 1}, f32, MICA_DTYPE_F64, 1, "y is f64, but x is f32");
    refuse((mica_reduce_params){.axes = 1}, i32, MICA_DTYPE_I64, 1, "y is i64, but x is i32");
    refuse((mica_reduce_params){.axes = 1}, truth, truth, 1, "x is bool, not a number");
    refuse((mica_reduce_params){.kind = MICA_REDUCE_MEAN, .axes = 1}, i32, i32, 1, "x is i32, not a float");
    refuse((mica_reduce_params){.kind = MICA_REDUCE_SUM_SQUARES, .axes = 1}, i32, i32, 1,
           "x is i32, not a float");
    refuse((mica_reduce_params){.kind = MICA_REDUCE_ANY, .axes = 1}, f32, f32, 1, "x is f32, not bool");
}

/* A sum of 10^7 times 0.1f, where one after the other gives 1087937. Sums of 64 equal terms in f32 stray by 32 equal roundings at worst. */
static void test_long_sum(void **state)
{
    const uint64_t n = 10000000;
    mica_buffer *x = made(MICA_DTYPE_F32, 1, &n), *y = made(MICA_DTYPE_F32, 0, NULL);
    mica_encoder *encoder = NULL;
    float sum = 0;

    (void)state;
    must(mica_encoder_begin(device, NULL, &encoder));
    must(mica_fill(encoder, (double)0.1f, x));
    must(mica_reduce(encoder, x, NULL, y));
    must(mica_encoder_commit_and_wait(encoder));
    must(mica_buffer_read(y, 0, &sum, sizeof sum));
    assert_true(fabs((double)sum - 1e7 * (double)0.1f) < 32 * 0x1p-24 * 1e6);
    mica_encoder_release(encoder);
    mica_buffer_release(x);
    mica_buffer_release(y);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_long_sum),
    };

    return cmocka_run_group_tests_name("reduce", tests, open_device, close_device);
}
