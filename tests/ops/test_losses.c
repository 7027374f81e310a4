/*
 * test_losses.c - the derivative of cross-entropy, of labels and of parts of classes, with and without weights, against differences of its forward in double; in f32, f16 and bf16 on every device; what is
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

/* What rows are compared with: labels, or parts of each class; weights of classes, or none. */
typedef struct aim {
    bool soft, weighted;
    double target[ALL], weight[CLASSES];
} aim;

static const aim plain;

static mica_buffer *upload_aim(mica_device *device, mica_dtype dtype, const aim *a)
{
    return a->soft ? upload(device, dtype, 2, a->target) : upload_labels(device, labels);
}

static mica_buffer *upload_weight(mica_device *device, mica_dtype dtype, const aim *a)
{
    const uint64_t shape[1] = {CLASSES}, bytes = oracle_block_bytes(dtype);
    mica_buffer *buffer = NULL;
    uint8_t element[8];

    if (!a->weighted)
        return NULL;
    must(mica_buffer_alloc(device, dtype, 1, shape, &buffer));
    for (uint64_t c = 0; c < CLASSES; c++) {
        oracle_put(dtype, a->weight[c], element);
        must(mica_buffer_write(buffer, c * bytes, element, bytes));
    }
    return buffer;
}

/* Sum over rows of dloss times loss, in double. */
static double forward(const double *x, const double *dloss, const mica_cross_entropy_params *params,
                      const aim *a)
{
    mica_buffer *logits = upload(devices[0], MICA_DTYPE_F64, 2, x),
                *of = upload_aim(devices[0], MICA_DTYPE_F64, a),
                *weight = upload_weight(devices[0], MICA_DTYPE_F64, a),
                *loss = upload(devices[0], MICA_DTYPE_F64, 1, NULL);
    mica_encoder *encoder;
    double got[ROWS], sum = 0;

    must(mica_encoder_begin(devices[0], NULL, &encoder));
    must(mica_cross_entropy(encoder, logits, a->soft ? NULL : of, a->soft ? of : NULL, weight, params, loss,
                            NULL));
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    mica_buffer_release(weight);
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
                     const mica_cross_entropy_params *params, const aim *a, double *out)
{
    const mica_dtype one_row = dtype == MICA_DTYPE_F64 ? dtype : MICA_DTYPE_F32;
    const uint64_t single[1] = {1};
    mica_buffer *logits = upload(device, dtype, 2, x), *of = upload_aim(device, dtype, a),
                *weight = upload_weight(device, dtype, a), *loss = upload(device, one_row, 1, NULL),
                *lse = upload(device, one_row, 1, NULL), *reaches;
    mica_encoder *encoder;

    must(mica_encoder_begin(device, NULL, &encoder));
    if (dloss == NULL) {
        must(mica_buffer_alloc(device, one_row, 1, single, &reaches));
        must(mica_fill(encoder, 1, reaches));
    } else {
        reaches = upload(device, one_row, 1, dloss);
    }
    must(mica_cross_entropy(encoder, logits, a->soft ? NULL : of, a->soft ? of : NULL, weight, params, loss,
                            lse));
    must(mica_cross_entropy_backward(encoder, logits, a->soft ? NULL : of, a->soft ? of : NULL, weight, lse,
                                     reaches, params, logits));
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    mica_buffer_release(weight);
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

/* Numbers that bf16 has. */
static void draw_aim(bool soft, bool weighted, aim *a)
{
    test_random random = test_random_from(8);

    *a = (aim){.soft = soft, .weighted = weighted};
    for (int i = 0; i < ALL; i++)
        a->target[i] = (double)test_random_below(&random, 17) / 64;
    for (int c = 0; c < CLASSES; c++)
        a->weight[c] = (double)test_random_below(&random, 33) / 16;
}

static void check_differences(double *x, const double *dloss, const mica_cross_entropy_params *params,
                              const aim *a, const double *got)
{
    for (int i = 0; i < ALL; i++) {
        const double step = 1e-4, own = x[i];

        x[i] = own + step;
        const double above = forward(x, dloss, params, a);
        x[i] = own - step;
        const double below = forward(x, dloss, params, a);
        x[i] = own;
        /* step^2 times a third derivative of at most the sum of parts, 13 / 2 with weights, times dloss / 6; roundings of a sum of some 100 over the step */
        if (!(fabs(got[i] - (above - below) / (2 * step)) <= 4e-8))
            fail_msg("smoothing %g, soft %d, weights %d, element %d: %.12g, by differences %.12g",
                     (double)params->smoothing, a->soft, a->weighted, i, got[i],
                     (above - below) / (2 * step));
    }
}

static void check_narrow(const double *x, const double *dloss, const mica_cross_entropy_params *params,
                         const aim *a, const double *got)
{
    static const mica_dtype types[] = {MICA_DTYPE_F32, MICA_DTYPE_F16, MICA_DTYPE_BF16};
    static const double rounding[] = {0x1p-24, 0x1p-11, 0x1p-8};
    const double whole = a->soft || a->weighted ? 7 : 1; /* at most: 13 parts of 1/4 times 2 */
    double narrow[ALL];

    for (int d = 0; d < DEVICES; d++)
        for (int t = 0; t < 3 && devices[d] != NULL; t++) {
            backward(devices[d], types[t], x, dloss, params, a, narrow);
            for (int i = 0; i < ALL; i++) /* x - lse of some 20 is rounded, then products; then the store */
                if (!(fabs(narrow[i] - got[i]) <=
                      whole * 2 * 24 * 0x1p-24 + rounding[t] * fabs(got[i]) + 0x1p-25))
                    fail_msg("%s %s, smoothing %g, soft %d, element %d: %.9g, in double %.12g",
                             device_names[d], mica_dtype_name(types[t]), (double)params->smoothing, a->soft,
                             i, narrow[i], got[i]);
        }
}

static void test_cross_entropy_backward(void **state)
{
    static const float smoothings[] = {0, 0.1f, 1};
    double x[ALL], dloss[ROWS], got[ALL];
    aim a;

    (void)state;
    draw(x, dloss);
    for (int s = 0; s < 3; s++)
        for (int kind = 0; kind < 4; kind++) {
            const mica_cross_entropy_params params = {smoothings[s], 1, -100};

            draw_aim(kind / 2 != 0, kind % 2 != 0, &a);
            backward(devices[0], MICA_DTYPE_F64, x, dloss, &params, &a, got);
            check_differences(x, dloss, &params, &a, got);
            check_narrow(x, dloss, &params, &a, got);
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
        backward(devices[d], MICA_DTYPE_F32, x, NULL, &params, &plain, got);
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

/* A label outside: both fault, loss and derivative of its row are 0. */
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
        must(mica_cross_entropy(encoder, logits, of, NULL, NULL, NULL, loss, lse));
        assert_int_equal(mica_encoder_commit_and_wait(encoder), MICA_ERR_FAULT);
        mica_encoder_release(encoder);
        must(mica_encoder_begin(devices[d], NULL, &encoder));
        must(mica_cross_entropy_backward(encoder, logits, of, NULL, NULL, lse, lse, NULL, logits));
        assert_int_equal(mica_encoder_commit_and_wait(encoder), MICA_ERR_FAULT);
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
    refused(mica_cross_entropy(e, x, of, NULL, NULL, &smooth, row, NULL), bad, "params.smoothing");
    refused(mica_cross_entropy(e, x, of, NULL, NULL, &nan, row, NULL), bad, "params.smoothing");
    refused(mica_cross_entropy(e, x, of, NULL, NULL, &flag, row, NULL), bad, "params.ignore");
    refused(mica_cross_entropy(e, x, of, NULL, NULL, NULL, wide, NULL), bad,
            "loss is f64, but logits is f32");
    refused(mica_cross_entropy(e, x, of, NULL, NULL, NULL, row, wide), bad, "lse is f64");
    refused(mica_cross_entropy_backward(e, x, of, NULL, NULL, row, row, &smooth, x), bad, "params.smoothing");
    refused(mica_cross_entropy_backward(e, x, row, NULL, NULL, row, row, NULL, x), bad, "labels is f32");
    refused(mica_cross_entropy(e, x, NULL, NULL, NULL, NULL, row, NULL), bad, "labels and targets are NULL");
    refused(mica_cross_entropy(e, x, of, NULL, row, NULL, row, NULL), bad, "weight");
    refused(mica_cross_entropy(e, x, of, NULL, wide, NULL, row, NULL), bad, "weight");
    refused(mica_cross_entropy_backward(e, x, of, NULL, NULL, NULL, row, NULL, x), bad, "lse is NULL");
    refused(mica_cross_entropy_backward(e, x, of, NULL, NULL, x, row, NULL, x), bad, "lse has 2 dimensions");
    refused(mica_cross_entropy_backward(e, x, of, NULL, NULL, wide, row, NULL, x), bad, "lse is f64");
    refused(mica_cross_entropy_backward(e, x, of, NULL, NULL, row, row, NULL, row), bad, "logits");
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
