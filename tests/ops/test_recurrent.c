/*
 * test_recurrent.c - what the rows of the conformance table do not draw of ops that carry a state: parameters and splits out of their domain,
 * states in place, the same tokens in one pass and in several, gates. On every device that there is.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "mica/mica.h"
#include "support/devices.h"
#include "support/random.h"
#include "support/status.h"
#include "support/tensor.h"

static mica_buffer *made(mica_device *device, mica_dtype dtype, uint32_t ndim, const uint64_t *shape)
{
    mica_buffer *buffer = NULL;

    must(mica_buffer_alloc(device, dtype, ndim, shape, &buffer));
    return buffer;
}

static uint64_t count_of(mica_buffer *buffer)
{
    mica_buffer_info info;

    must(mica_buffer_get_info(buffer, &info));
    return info.element_count;
}

/* An f32 buffer of numbers around 0. */
static mica_buffer *drawn(mica_device *device, test_random *random, uint32_t ndim, const uint64_t *shape)
{
    mica_buffer *buffer = made(device, MICA_DTYPE_F32, ndim, shape);
    const uint64_t count = count_of(buffer);
    float *values = test_alloc(count, sizeof *values);

    for (uint64_t i = 0; i < count; i++)
        values[i] = (float)test_random_normal(random);
    must(mica_buffer_write(buffer, 0, values, count * sizeof *values));
    free(values);
    return buffer;
}

static float *numbers(mica_buffer *buffer)
{
    const uint64_t count = count_of(buffer);
    float *values = test_alloc(count, sizeof *values);

    must(mica_buffer_read(buffer, 0, values, count * sizeof *values));
    return values;
}

static mica_encoder *begin(mica_device *device)
{
    mica_encoder *encoder;

    must(mica_encoder_begin(device, NULL, &encoder));
    return encoder;
}

static void end(mica_encoder *encoder)
{
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
}

/* ---- refusals ---- */

static void test_conv_refused(void **state)
{
    mica_device *device = devices[0];
    mica_encoder *encoder = begin(device);
    mica_buffer *x = made(device, MICA_DTYPE_F32, 2, SHAPE(6, 4)),
                *y = made(device, MICA_DTYPE_F32, 2, SHAPE(6, 4)),
                *weight = made(device, MICA_DTYPE_F32, 2, SHAPE(4, 3)),
                *four = made(device, MICA_DTYPE_F32, 3, SHAPE(4, 4, 2)),
                *deep = made(device, MICA_DTYPE_F32, 3, SHAPE(2, 4, 3)),
                *wide = made(device, MICA_DTYPE_F64, 3, SHAPE(2, 4, 2)),
                *starts = made(device, MICA_DTYPE_U32, 1, SHAPE(6)),
                *slots = made(device, MICA_DTYPE_I32, 1, SHAPE(2));
    const mica_ssm_conv_params odd = {.activation = 2};

    (void)state;
    refused(mica_ssm_conv(encoder, x, weight, NULL, NULL, &odd, y), MICA_ERR_INVALID_ARGUMENT,
            "params.activation is 2");
    refused(mica_ssm_conv(encoder, x, weight, NULL, &(mica_sequences){.state = four}, NULL, y),
            MICA_ERR_INVALID_ARGUMENT, "x: shape[0] is 6, no multiple of 4 sequences");
    refused(mica_ssm_conv(encoder, x, weight, NULL, &(mica_sequences){.state = deep}, NULL, y),
            MICA_ERR_INVALID_ARGUMENT, "state: shape[2] is 3, not one less than shape[1] of weight, 3");
    refused(mica_ssm_conv(encoder, x, weight, NULL, &(mica_sequences){.state = wide}, NULL, y),
            MICA_ERR_INVALID_ARGUMENT, "state is f64, but x is f32");
    refused(
        mica_ssm_conv(encoder, x, weight, NULL, &(mica_sequences){.state = four, .starts = starts}, NULL, y),
        MICA_ERR_INVALID_ARGUMENT, "state: shape[0] is 4, but there are 5 sequences");
    refused(mica_ssm_conv(encoder, x, weight, NULL,
                          &(mica_sequences){.state = four, .starts = starts, .read_slots = slots}, NULL, y),
            MICA_ERR_INVALID_ARGUMENT, "read_slots: shape[0] is 2, but starts is of 5 sequences");
    mica_encoder_release(encoder);
    mica_buffer *const all[] = {x, y, weight, four, deep, wide, starts, slots};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mica_buffer_release(all[i]);
}

static void test_delta_refused(void **state)
{
    mica_device *device = devices[0];
    mica_encoder *encoder = begin(device);
    mica_buffer *q = made(device, MICA_DTYPE_F32, 3, SHAPE(2, 2, 8)),
                *v = made(device, MICA_DTYPE_F32, 3, SHAPE(2, 3, 8)),
                *y = made(device, MICA_DTYPE_F32, 3, SHAPE(2, 3, 8)),
                *w = made(device, MICA_DTYPE_F64, 3, SHAPE(2, 2, 8));
    const mica_delta_operands fine = {.q = q, .k = q, .v = q}, heads = {.q = q, .k = q, .v = v},
                              mixed = {.q = q, .k = q, .v = w};

    (void)state;
    refused(mica_delta_net(encoder, NULL, NULL, NULL, y), MICA_ERR_INVALID_ARGUMENT, "operands");
    refused(mica_delta_net(encoder, &heads, NULL, NULL, y), MICA_ERR_INVALID_ARGUMENT,
            "v: shape[1] is 3, no multiple of the 2 heads of k");
    mica_buffer *out = made(device, MICA_DTYPE_F32, 3, SHAPE(2, 2, 8));
    refused(mica_delta_net(encoder, &mixed, NULL, NULL, out), MICA_ERR_INVALID_ARGUMENT,
            "v is f64, but q is f32");
    refused(mica_delta_net(encoder, &fine, NULL, &(mica_delta_params){.rule = 2}, out),
            MICA_ERR_INVALID_ARGUMENT, "params.rule is 2");
    refused(mica_delta_net(encoder, &fine, NULL, &(mica_delta_params){.form = 3}, out),
            MICA_ERR_INVALID_ARGUMENT, "params.form is 3");
    refused(mica_delta_net(encoder, &fine, NULL, &(mica_delta_params){.normalise = 2}, out),
            MICA_ERR_INVALID_ARGUMENT, "params.normalise is 2");
    refused(mica_delta_net(encoder, &fine, NULL, &(mica_delta_params){.eps = -1}, out),
            MICA_ERR_INVALID_ARGUMENT, "params.eps is -1");
    refused(mica_delta_net(encoder, &fine, NULL, &(mica_delta_params){.scale = INFINITY}, out),
            MICA_ERR_INVALID_ARGUMENT, "params.scale");
    mica_encoder_release(encoder);
    mica_buffer *const all[] = {q, v, y, w, out};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mica_buffer_release(all[i]);
}

static void test_selective_refused(void **state)
{
    mica_device *device = devices[0];
    mica_encoder *encoder = begin(device);
    mica_buffer *x = made(device, MICA_DTYPE_F32, 2, SHAPE(6, 4)),
                *y = made(device, MICA_DTYPE_F32, 2, SHAPE(6, 4)),
                *a = made(device, MICA_DTYPE_F32, 2, SHAPE(4, 5)),
                *b = made(device, MICA_DTYPE_F32, 3, SHAPE(6, 2, 5)),
                *three = made(device, MICA_DTYPE_F32, 3, SHAPE(6, 3, 5)),
                *wide = made(device, MICA_DTYPE_F64, 2, SHAPE(6, 4));
    const mica_selective_operands fine = {.x = x, .dt = x, .a = a, .b = b, .c = b},
                                  odd = {.x = x, .dt = x, .a = a, .b = three, .c = three},
                                  mixed = {.x = x, .dt = x, .a = a, .b = b, .c = b, .z = wide};

    (void)state;
    refused(mica_selective_scan(encoder, NULL, NULL, NULL, y), MICA_ERR_INVALID_ARGUMENT, "operands");
    refused(mica_selective_scan(encoder, &odd, NULL, NULL, y), MICA_ERR_INVALID_ARGUMENT,
            "x: shape[1] is 4, no multiple of the 3 groups of b");
    refused(mica_selective_scan(encoder, &mixed, NULL, NULL, y), MICA_ERR_INVALID_ARGUMENT,
            "z is f64, but x is f32");
    refused(mica_selective_scan(encoder, &fine, NULL, &(mica_selective_params){.softplus = 2}, y),
            MICA_ERR_INVALID_ARGUMENT, "params.softplus is 2");
    mica_encoder_release(encoder);
    mica_buffer *const all[] = {x, y, a, b, three, wide};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mica_buffer_release(all[i]);
}

static void test_rnn_refused(void **state)
{
    mica_device *device = devices[0];
    mica_encoder *encoder = begin(device);
    mica_buffer *x = made(device, MICA_DTYPE_F32, 2, SHAPE(6, 12)),
                *y = made(device, MICA_DTYPE_F32, 2, SHAPE(6, 4)),
                *weight = made(device, MICA_DTYPE_F32, 2, SHAPE(12, 4)),
                *kept = made(device, MICA_DTYPE_F32, 3, SHAPE(2, 2, 4)),
                *wide = made(device, MICA_DTYPE_F64, 2, SHAPE(12, 4));
    const mica_rnn_params gru = {.kind = MICA_RNN_GRU}, lstm = {.kind = MICA_RNN_LSTM}, odd = {.kind = 4},
                          twice = {.kind = MICA_RNN_GRU, .reverse = 2};

    (void)state;
    refused(mica_rnn(encoder, x, weight, NULL, NULL, &lstm, y), MICA_ERR_INVALID_ARGUMENT,
            "weight: shape[0] is 12, not 4 times shape[1], 4");
    refused(mica_rnn(encoder, x, weight, NULL, NULL, NULL, y), MICA_ERR_INVALID_ARGUMENT,
            "weight: shape[0] is 12, not 1 times shape[1], 4");
    refused(mica_rnn(encoder, x, weight, NULL, &(mica_sequences){.state = kept}, &gru, y),
            MICA_ERR_INVALID_ARGUMENT, "state: shape[1] is 2, not 1");
    refused(mica_rnn(encoder, x, wide, NULL, NULL, &gru, y), MICA_ERR_INVALID_ARGUMENT,
            "weight is f64, but x is f32");
    refused(mica_rnn(encoder, x, weight, NULL, NULL, &odd, y), MICA_ERR_INVALID_ARGUMENT, "params.kind is 4");
    refused(mica_rnn(encoder, x, weight, NULL, NULL, &twice, y), MICA_ERR_INVALID_ARGUMENT,
            "params.reverse is 2");
    mica_encoder_release(encoder);
    mica_buffer *const all[] = {x, y, weight, kept, wide};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mica_buffer_release(all[i]);
}

/* GPUs have no f64 here and say so. */
static void test_wide_refused(void **state)
{
    (void)state;
    for (int d = 1; d < DEVICES; d++) {
        if (devices[d] == NULL)
            continue;
        mica_encoder *encoder = begin(devices[d]);
        mica_buffer *x = made(devices[d], MICA_DTYPE_F64, 2, SHAPE(6, 4)),
                    *weight = made(devices[d], MICA_DTYPE_F64, 2, SHAPE(4, 3)),
                    *y = made(devices[d], MICA_DTYPE_F64, 2, SHAPE(6, 4));

        refused(mica_ssm_conv(encoder, x, weight, NULL, NULL, NULL, y), MICA_ERR_UNSUPPORTED, "f64");
        mica_encoder_release(encoder);
        mica_buffer_release(x);
        mica_buffer_release(weight);
        mica_buffer_release(y);
    }
}

/* ---- states ---- */

enum { TOKENS = 11, CUT = 4, CHANNELS = 37, WIDTH = 4 };

static mica_buffer *slice(mica_buffer *x, uint64_t first, uint64_t count)
{
    mica_buffer *view = NULL;

    must(mica_buffer_slice(x, 0, first, count, &view));
    return view;
}

/* Two passes with the state in place give the bits of one pass with two buffers. */
static void conv_in_passes(mica_device *device)
{
    test_random random = test_random_from(5);
    mica_buffer *x = drawn(device, &random, 2, SHAPE(TOKENS, CHANNELS)),
                *weight = drawn(device, &random, 2, SHAPE(CHANNELS, WIDTH)),
                *kept = drawn(device, &random, 3, SHAPE(1, CHANNELS, WIDTH - 1)),
                *next = made(device, MICA_DTYPE_F32, 3, SHAPE(1, CHANNELS, WIDTH - 1)),
                *whole = made(device, MICA_DTYPE_F32, 2, SHAPE(TOKENS, CHANNELS)),
                *parts = made(device, MICA_DTYPE_F32, 2, SHAPE(TOKENS, CHANNELS));
    const mica_ssm_conv_params silu = {.activation = MICA_SSM_SILU};
    mica_buffer *x0 = slice(x, 0, CUT), *x1 = slice(x, CUT, TOKENS - CUT), *y0 = slice(parts, 0, CUT),
                *y1 = slice(parts, CUT, TOKENS - CUT);
    mica_encoder *encoder = begin(device);

    must(mica_ssm_conv(encoder, x, weight, NULL, &(mica_sequences){.state = kept, .next_state = next}, &silu,
                       whole));
    must(mica_ssm_conv(encoder, x0, weight, NULL, &(mica_sequences){.state = kept, .next_state = kept}, &silu,
                       y0));
    must(mica_ssm_conv(encoder, x1, weight, NULL, &(mica_sequences){.state = kept, .next_state = kept}, &silu,
                       y1));
    end(encoder);
    float *a = numbers(whole), *b = numbers(parts), *c = numbers(next), *d = numbers(kept);
    assert_memory_equal(a, b, TOKENS * CHANNELS * sizeof *a);
    assert_memory_equal(c, d, CHANNELS * (WIDTH - 1) * sizeof *c);
    free(a);
    free(b);
    free(c);
    free(d);
    mica_buffer *const all[] = {x, weight, kept, next, whole, parts, x0, x1, y0, y1};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mica_buffer_release(all[i]);
}

static void test_conv_passes(void **state)
{
    (void)state;
    for (int d = 0; d < DEVICES; d++)
        if (devices[d] != NULL)
            conv_in_passes(devices[d]);
}

enum { HEADS = 2, DIM = 24, COLUMNS = 70 };

static void delta_in_passes(mica_device *device)
{
    test_random random = test_random_from(7);
    mica_buffer *q = drawn(device, &random, 3, SHAPE(TOKENS, 1, DIM)),
                *k = drawn(device, &random, 3, SHAPE(TOKENS, 1, DIM)),
                *v = drawn(device, &random, 3, SHAPE(TOKENS, HEADS, COLUMNS)),
                *kept = drawn(device, &random, 4, SHAPE(1, HEADS, DIM, COLUMNS)),
                *next = made(device, MICA_DTYPE_F32, 4, SHAPE(1, HEADS, DIM, COLUMNS)),
                *whole = made(device, MICA_DTYPE_F32, 3, SHAPE(TOKENS, HEADS, COLUMNS)),
                *parts = made(device, MICA_DTYPE_F32, 3, SHAPE(TOKENS, HEADS, COLUMNS));
    const mica_delta_params params = {.normalise = 1, .eps = 1e-6f, .form = MICA_DELTA_SEQUENTIAL};
    mica_encoder *encoder = begin(device);

    must(mica_delta_net(encoder, &(mica_delta_operands){.q = q, .k = k, .v = v},
                        &(mica_sequences){.state = kept, .next_state = next}, &params, whole));
    for (uint64_t t = 0; t < TOKENS; t++) {
        mica_buffer *part[] = {slice(q, t, 1), slice(k, t, 1), slice(v, t, 1), slice(parts, t, 1)};

        must(mica_delta_net(encoder, &(mica_delta_operands){.q = part[0], .k = part[1], .v = part[2]},
                            &(mica_sequences){.state = kept, .next_state = kept}, &params, part[3]));
        for (int i = 0; i < 4; i++)
            mica_buffer_release(part[i]);
    }
    end(encoder);
    float *a = numbers(whole), *b = numbers(parts), *c = numbers(next), *d = numbers(kept);
    assert_memory_equal(a, b, TOKENS * HEADS * COLUMNS * sizeof *a);
    assert_memory_equal(c, d, HEADS * DIM * COLUMNS * sizeof *c);
    free(a);
    free(b);
    free(c);
    free(d);
    mica_buffer *const all[] = {q, k, v, kept, next, whole, parts};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mica_buffer_release(all[i]);
}

static void test_delta_passes(void **state)
{
    (void)state;
    for (int d = 0; d < DEVICES; d++)
        if (devices[d] != NULL)
            delta_in_passes(devices[d]);
}

/* ---- gates ---- */

static void test_gates(void **state)
{
    enum { ROWS = 3, COUNT = ROWS * HEADS };
    (void)state;
    for (int i = 0; i < DEVICES; i++) {
        mica_device *device = devices[i];
        test_random random = test_random_from(9);

        if (device == NULL)
            continue;
        mica_buffer *a = drawn(device, &random, 2, SHAPE(ROWS, HEADS)),
                    *b = drawn(device, &random, 2, SHAPE(ROWS, HEADS)),
                    *log = drawn(device, &random, 1, SHAPE(HEADS)),
                    *bias = drawn(device, &random, 1, SHAPE(HEADS)),
                    *g = made(device, MICA_DTYPE_F32, 2, SHAPE(ROWS, HEADS)),
                    *beta = made(device, MICA_DTYPE_F32, 2, SHAPE(ROWS, HEADS)),
                    *h = made(device, MICA_DTYPE_F32, 2, SHAPE(ROWS, HEADS)),
                    *dt = made(device, MICA_DTYPE_F32, 2, SHAPE(ROWS, HEADS));
        mica_encoder *encoder = begin(device);
        must(mica_delta_gates(encoder, a, b, log, bias, g, beta));
        must(mica_ssm_gates(encoder, a, log, bias, h, dt));
        end(encoder);
        float *va = numbers(a), *vb = numbers(b), *vl = numbers(log), *vs = numbers(bias), *vg = numbers(g),
              *ve = numbers(beta), *vh = numbers(h), *vd = numbers(dt);
        for (int e = 0; e < COUNT; e++) {
            const double step = log1p(exp((double)va[e] + (double)vs[e % HEADS]));
            const double decay = -exp((double)vl[e % HEADS]) * step;

            assert_true(fabs(decay - (double)vg[e]) <= 1e-6 * fabs(decay));
            assert_true(fabs(decay - (double)vh[e]) <= 1e-6 * fabs(decay));
            assert_true(fabs(step - (double)vd[e]) <= 1e-6 * step);
            assert_true(fabs(1 / (1 + exp(-(double)vb[e])) - (double)ve[e]) <= 1e-6);
        }
        float *const values[] = {va, vb, vl, vs, vg, ve, vh, vd};
        mica_buffer *const all[] = {a, b, log, bias, g, beta, h, dt};
        for (size_t n = 0; n < sizeof all / sizeof *all; n++) {
            free(values[n]);
            mica_buffer_release(all[n]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conv_refused),      cmocka_unit_test(test_delta_refused),
        cmocka_unit_test(test_selective_refused), cmocka_unit_test(test_rnn_refused),
        cmocka_unit_test(test_wide_refused),      cmocka_unit_test(test_conv_passes),
        cmocka_unit_test(test_delta_passes),      cmocka_unit_test(test_gates),
    };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
