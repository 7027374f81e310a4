/*
 * test_losses.c - the derivative of cross-entropy against differences of its forward in double; in f32, f16 and bf16 on every device; what is
 * ignored, what lies outside, and what is refused.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "mica/mica.h"
#include "oracle/oracle_number.h"
#include "support/devices.h"
#include "support/random.h"
#include "support/status.h"

enum { ROWS = 6, CLASSES = 13, ALL = ROWS * CLASSES };
static const int32_t labels[ROWS] = {0, 12, -100, 5, 5, 7};

static mica_buffer *upload(mica_device *device, mica_dtype dtype, uint32_t ndim, const double *x)
{
    const uint64_t shape[2] = {ROWS, CLASSES}, count = ndim == 2 ? ALL : ROWS,
                   bytes = oracle_block_bytes(dtype);
    mica_buffer *buffer;
    uint8_t element[8];

    must(mica_buffer_alloc(device, dtype, ndim, shape, &buffer));
    for (uint64_t i = 0; x != NULL && i < count; i++) {
        oracle_put(dtype, x[i], element);
        must(mica_buffer_write(buffer, i * bytes, element, bytes));
    }
    return buffer;
}

static void download(mica_buffer *buffer, mica_dtype dtype, uint64_t count, double *x)
{
    const uint64_t bytes = oracle_block_bytes(dtype);
    uint8_t element[8];

    for (uint64_t i = 0; i < count; i++) {
        must(mica_buffer_read(buffer, i * bytes, element, bytes));
        x[i] = oracle_get(dtype, element);
    }
}

static mica_buffer *upload_labels(mica_device *device, const int32_t *own)
{
    const uint64_t shape[1] = {ROWS};
    mica_buffer *buffer;

    must(mica_buffer_alloc(device, MICA_DTYPE_I32, 1, shape, &buffer));
    must(mica_buffer_write(buffer, 0, own, ROWS * sizeof *own));
    return buffer;
}

/* Sum over rows of dloss times loss, in double. */
static double forward(const double *x, const double *dloss, const mica_cross_entropy_params *params)
{
    mica_buffer *logits = upload(devices[0], MICA_DTYPE_F64, 2, x), *of = upload_labels(devices[0], labels),
                *loss = upload(devices[0], MICA_DTYPE_F64, 1, NULL);
    mica_encoder *encoder;
    double got[ROWS], sum = 0;

    must(mica_encoder_begin(devices[0], NULL, &encoder));
    must(mica_cross_entropy(encoder, logits, of, params, loss, NULL));
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    download(loss, MICA_DTYPE_F64, ROWS, got);
    for (int r = 0; r < ROWS; r++)
        sum += dloss[r] * got[r];
    mica_buffer_release(logits);
    mica_buffer_release(of);
    mica_buffer_release(loss);
    return sum;
}

/* In place on the logits. `dloss` NULL: one element of 1 that repeats. */
static void backward(mica_device *device, mica_dtype dtype, const double *x, const double *dloss,
                     const mica_cross_entropy_params *params, double *out)
{
    const mica_dtype one_row = dtype == MICA_DTYPE_F64 ? dtype : MICA_DTYPE_F32;
    const uint64_t single[1] = {1};
    mica_buffer *logits = upload(device, dtype, 2, x), *of = upload_labels(device, labels),
                *loss = upload(device, one_row, 1, NULL), *lse = upload(device, one_row, 1, NULL), *reaches;
    mica_encoder *encoder;

    must(mica_encoder_begin(device, NULL, &encoder));
    if (dloss == NULL) {
        must(mica_buffer_alloc(device, one_row, 1, single, &reaches));
        must(mica_fill(encoder, 1, reaches));
    } else {
        reaches = upload(device, one_row, 1, dloss);
    }
    must(mica_cross_entropy(encoder, logits, of, params, loss, lse));
    must(mica_cross_entropy_backward(encoder, logits, of, lse, reaches, params, logits));
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    download(logits, dtype, ALL, out);
    mica_buffer_release(logits);
    mica_buffer_release(of);
    mica_buffer_release(loss);
    mica_buffer_release(lse);
    mica_buffer_release(reaches);
}

static void draw(double *x, double *dloss)
{
    test_random random = test_random_from(7);

    for (int i = 0; i < ALL; i++) /* numbers that bf16 has */
        x[i] = oracle_from_bf16(oracle_to_bf16(3 * test_random_normal(&random)));
    for (int r = 0; r < ROWS; r++)
        dloss[r] = (double)(float)test_random_uniform(&random, -2, 2);
}

static void test_cross_entropy_backward(void **state)
{
    static const float smoothings[] = {0, 0.1f, 1};
    static const mica_dtype types[] = {MICA_DTYPE_F32, MICA_DTYPE_F16, MICA_DTYPE_BF16};
    static const double rounding[] = {0x1p-24, 0x1p-11, 0x1p-8};
    double x[ALL], dloss[ROWS], got[ALL], narrow[ALL];

    (void)state;
    draw(x, dloss);
    for (int s = 0; s < 3; s++) {
        const mica_cross_entropy_params params = {smoothings[s], 1, -100};

        backward(devices[0], MICA_DTYPE_F64, x, dloss, &params, got);
        for (int i = 0; i < ALL; i++) {
            const double step = 1e-4, own = x[i];

            x[i] = own + step;
            const double above = forward(x, dloss, &params);
            x[i] = own - step;
            const double below = forward(x, dloss, &params);
            x[i] = own;
            /* step^2 times a third derivative of at most dloss / 6, and roundings of a sum of some 30 over the step */
            if (fabs(got[i] - (above - below) / (2 * step)) > 1e-8)
                fail_msg("smoothing %g, element %d: %.12g, by differences %.12g", (double)smoothings[s], i,
                         got[i], (above - below) / (2 * step));
        }
        for (int d = 0; d < DEVICES; d++)
            for (int t = 0; t < 3 && devices[d] != NULL; t++) {
                backward(devices[d], types[t], x, dloss, &params, narrow);
                for (int i = 0; i < ALL;
                     i++) /* x - lse of some 20 is rounded, then a product; then the store */
                    if (fabs(narrow[i] - got[i]) > 2 * 24 * 0x1p-24 + rounding[t] * fabs(got[i]) + 0x1p-25)
                        fail_msg("%s %s, smoothing %g, element %d: %.9g, in double %.12g", device_names[d],
                                 mica_dtype_name(types[t]), (double)smoothings[s], i, narrow[i], got[i]);
            }
    }
}

/* A single dloss repeats; without smoothing the derivatives of a row add up to 0; what is ignored has none. */
static void test_one_dloss(void **state)
{
    double x[ALL], dloss[ROWS], got[ALL];
    const mica_cross_entropy_params params = {0, 1, -100};

    (void)state;
    draw(x, dloss);
    for (int d = 0; d < DEVICES; d++) {
        if (devices[d] == NULL)
            continue;
        backward(devices[d], MICA_DTYPE_F32, x, NULL, &params, got);
        for (int r = 0; r < ROWS; r++) {
            double sum = 0;

            for (int c = 0; c < CLASSES; c++) {
                sum += got[r * CLASSES + c];
                assert_true(labels[r] != -100 || got[r * CLASSES + c] == 0);
                assert_true(labels[r] == -100 || (got[r * CLASSES + c] < 0) == (c == labels[r]));
            }
            assert_true(fabs(sum) < 1e-5);
        }
    }
}

/* A label outside: the forward faults, the derivative of its row is 0. */
static void test_outside(void **state)
{
    static const int32_t bad[ROWS] = {0, CLASSES, 1, -1, 2, 3};
    double x[ALL], dloss[ROWS], got[ALL], losses[ROWS];

    (void)state;
    draw(x, dloss);
    for (int d = 0; d < DEVICES; d++) {
        if (devices[d] == NULL)
            continue;
        mica_buffer *logits = upload(devices[d], MICA_DTYPE_F32, 2, x), *of = upload_labels(devices[d], bad),
                    *loss = upload(devices[d], MICA_DTYPE_F32, 1, NULL),
                    *lse = upload(devices[d], MICA_DTYPE_F32, 1, NULL);
        mica_encoder *encoder;

        must(mica_encoder_begin(devices[d], NULL, &encoder));
        must(mica_cross_entropy(encoder, logits, of, NULL, loss, lse));
        assert_int_equal(mica_encoder_commit_and_wait(encoder), MICA_ERR_FAULT);
        mica_encoder_release(encoder);
        must(mica_encoder_begin(devices[d], NULL, &encoder));
        must(mica_cross_entropy_backward(encoder, logits, of, lse, lse, NULL, logits));
        must(mica_encoder_commit_and_wait(encoder));
        mica_encoder_release(encoder);
        download(logits, MICA_DTYPE_F32, ALL, got);
        download(loss, MICA_DTYPE_F32, ROWS, losses);
        for (int i = 0; i < ALL; i++)
            assert_true((got[i] == 0) == (i / CLASSES == 1 || i / CLASSES == 3));
        assert_true(losses[1] == 0 && losses[3] == 0 && losses[0] > 0);
        mica_buffer_release(logits);
        mica_buffer_release(of);
        mica_buffer_release(loss);
        mica_buffer_release(lse);
    }
}

static void test_refused(void **state)
{
    const mica_cross_entropy_params smooth = {1.5f, 0, 0}, flag = {0, 2, 0}, nan = {NAN, 0, 0};
    mica_buffer *x = upload(devices[0], MICA_DTYPE_F32, 2, NULL), *of = upload_labels(devices[0], labels),
                *row = upload(devices[0], MICA_DTYPE_F32, 1, NULL),
                *wide = upload(devices[0], MICA_DTYPE_F64, 1, NULL);
    mica_encoder *e;
    const mica_status bad = MICA_ERR_INVALID_ARGUMENT;

    (void)state;
    must(mica_encoder_begin(devices[0], NULL, &e));
    refused(mica_cross_entropy(e, x, of, &smooth, row, NULL), bad, "params.smoothing");
    refused(mica_cross_entropy(e, x, of, &nan, row, NULL), bad, "params.smoothing");
    refused(mica_cross_entropy(e, x, of, &flag, row, NULL), bad, "params.ignore");
    refused(mica_cross_entropy(e, x, of, NULL, wide, NULL), bad, "loss is f64, but logits is f32");
    refused(mica_cross_entropy(e, x, of, NULL, row, wide), bad, "lse is f64");
    refused(mica_cross_entropy_backward(e, x, of, row, row, &smooth, x), bad, "params.smoothing");
    refused(mica_cross_entropy_backward(e, x, row, row, row, NULL, x), bad, "labels is f32");
    refused(mica_cross_entropy_backward(e, x, of, NULL, row, NULL, x), bad, "lse is NULL");
    refused(mica_cross_entropy_backward(e, x, of, x, row, NULL, x), bad, "lse has 2 dimensions");
    refused(mica_cross_entropy_backward(e, x, of, wide, row, NULL, x), bad, "lse is f64");
    refused(mica_cross_entropy_backward(e, x, of, row, row, NULL, row), bad, "logits");
    mica_encoder_release(e);
    mica_buffer_release(x);
    mica_buffer_release(of);
    mica_buffer_release(row);
    mica_buffer_release(wide);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cross_entropy_backward),
        cmocka_unit_test(test_one_dloss),
        cmocka_unit_test(test_outside),
        cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
