/*
 * test_golden_train.c - losses, optimisers and clipping against what PyTorch gave (tests/golden/train.txt): in double on the cpu, in f32 on every device. A step of an
 * optimiser is one recording that is replayed; the step's number, the learning rate and the gradients are in buffers.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "ops/golden_lines.h"
#include "mica/mica.h"
#include "support/devices.h"
#include "support/status.h"

enum { COUNT = 9, STEPS = 6 };
static golden_line line;
/* What is run now. */
static mica_device *device;
static mica_dtype real;
static mica_encoder *encoder;

/* ---- buffers ---- */

static mica_buffer *fresh(mica_dtype dtype, uint32_t ndim, const uint64_t *shape)
{
    mica_buffer *buffer;

    must(mica_buffer_alloc(device, dtype, ndim, shape, &buffer));
    return buffer;
}
#define FRESH(dtype, ...) \
    fresh(dtype, sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t), (uint64_t[]){__VA_ARGS__})

static void put(mica_buffer *buffer, uint64_t i, double value)
{
    const float narrow = (float)value;

    if (real == MICA_DTYPE_F64)
        must(mica_buffer_write(buffer, i * 8, &value, 8));
    else
        must(mica_buffer_write(buffer, i * 4, &narrow, 4));
}

static double get(mica_buffer *buffer, uint64_t i)
{
    double value;
    float narrow;

    if (real == MICA_DTYPE_F64) {
        must(mica_buffer_read(buffer, i * 8, &value, 8));
        return value;
    }
    must(mica_buffer_read(buffer, i * 4, &narrow, 4));
    return (double)narrow;
}

static void put_values(mica_buffer *buffer, uint32_t slot, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        put(buffer, i, golden_value(slot, i));
}

/* Results from `first` on; roundings of about `size` in the type, `how_many` of them. */
static void same(mica_buffer *buffer, uint64_t count, int first, double size, double how_many)
{
    const double rounding = real == MICA_DTYPE_F64 ? 0x1p-53 : 0x1p-24;

    for (uint64_t i = 0; i < count; i++) {
        const double wanted = line.result[first + (int)i], got = get(buffer, i);

        if (!(fabs(got - wanted) <= how_many * rounding * (fabs(wanted) + size)))
            fail_msg("%s %s (%g, %g, %g ..) result %llu: %.17g, PyTorch has %.17g", line.name,
                     mica_dtype_name(real), line.number[0], line.number[1], line.number[2],
                     (unsigned long long)i + (unsigned long long)first, got, wanted);
    }
}

static void finish(void)
{
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
}

/* ---- cases ---- */

static void run_cross_entropy(void)
{
    const uint64_t rows = (uint64_t)line.number[0], classes = (uint64_t)line.number[1];
    const mica_cross_entropy_params params = {(float)line.number[2], line.number[3] != 0, -100};
    mica_buffer *x = FRESH(real, rows, classes), *labels = FRESH(MICA_DTYPE_I32, rows),
                *loss = FRESH(real, rows), *lse = FRESH(real, rows), *reaches = FRESH(real, rows);

    for (uint64_t r = 0; r < rows; r++) {
        const int32_t label = params.ignore != 0 && r % 3 == 2 ? -100 : (int32_t)(7 * r % classes);

        must(mica_buffer_write(labels, r * 4, &label, 4));
    }
    put_values(x, 1, rows * classes);
    put_values(reaches, 2, rows);
    must(mica_encoder_begin(device, NULL, &encoder));
    must(mica_cross_entropy(encoder, x, labels, NULL, NULL, &params, loss, lse));
    must(mica_cross_entropy_backward(encoder, x, labels, NULL, NULL, lse, reaches, &params, x));
    finish();
    /* smoothing is an f32 everywhere: 2^29 roundings of f64 */
    const double unit = real == MICA_DTYPE_F64 && params.smoothing != 0 ? 0x1p29 : 1;
    same(loss, rows, 0, 4, 16 * unit);
    same(x, rows * classes, (int)rows, 4, 16 * unit);
    mica_buffer_release(x);
    mica_buffer_release(labels);
    mica_buffer_release(loss);
    mica_buffer_release(lse);
    mica_buffer_release(reaches);
}

/* Losses are sums of up to 11 parts of up to 2.5 times up to 4 + log 11. */
static void run_cross_entropy_of(void)
{
    const uint64_t rows = (uint64_t)line.number[0], classes = (uint64_t)line.number[1];
    const mica_cross_entropy_params params = {(float)line.number[2], 0, 0};
    const bool weighted = line.number[3] != 0, soft = line.number[4] != 0;
    mica_buffer *x = FRESH(real, rows, classes), *labels = FRESH(MICA_DTYPE_I32, rows),
                *targets = FRESH(real, rows, classes), *weight = FRESH(real, classes),
                *loss = FRESH(real, rows), *lse = FRESH(real, rows), *reaches = FRESH(real, rows);
    mica_buffer *of = soft ? NULL : labels, *to = soft ? targets : NULL, *by = weighted ? weight : NULL;

    for (uint64_t r = 0; r < rows; r++) {
        const int32_t label = (int32_t)(7 * r % classes);

        must(mica_buffer_write(labels, r * 4, &label, 4));
    }
    for (uint64_t i = 0; i < rows * classes; i++)
        put(targets, i, fabs(golden_value(5, i)));
    for (uint64_t c = 0; c < classes; c++)
        put(weight, c, fabs(golden_value(4, c)) + 0.5);
    put_values(x, 1, rows * classes);
    put_values(reaches, 2, rows);
    must(mica_encoder_begin(device, NULL, &encoder));
    must(mica_cross_entropy(encoder, x, of, to, by, &params, loss, lse));
    must(mica_cross_entropy_backward(encoder, x, of, to, by, lse, reaches, &params, x));
    finish();
    const double unit = real == MICA_DTYPE_F64 && params.smoothing != 0 ? 0x1p29 : 1;
    same(loss, rows, 0, 100, 4 * unit);
    same(x, rows * classes, (int)rows, 100, 4 * unit);
    mica_buffer *const all[] = {x, labels, targets, weight, loss, lse, reaches};
    for (uint32_t i = 0; i < sizeof all / sizeof *all; i++)
        mica_buffer_release(all[i]);
}

typedef struct state {
    mica_buffer *parameters, *gradients, *first, *second, *third, *rate, *step;
} state;

static void encode_sgd(mica_encoder *to, const state *s)
{
    const mica_sgd_params params = {line.number[0], line.number[1], line.number[2], line.number[3] != 0,
                                    line.number[4] != 0};
    const mica_sgd_operands operands = {.parameters = s->parameters,
                                        .gradients = s->gradients,
                                        .momentum = params.momentum != 0 ? s->first : NULL,
                                        .learning_rate = s->rate,
                                        .step = s->step};

    must(mica_sgd_update(to, &operands, &params));
}

static void encode_adam(mica_encoder *to, const state *s)
{
    const mica_adam_params params = {line.number[0], line.number[1],      line.number[2],
                                     line.number[3], line.number[4] != 0, line.number[6] != 0};
    const mica_adam_operands operands = {.parameters = s->parameters,
                                         .gradients = s->gradients,
                                         .m = s->first,
                                         .v = s->second,
                                         .greatest_v = line.number[5] != 0 ? s->third : NULL,
                                         .learning_rate = s->rate,
                                         .step = s->step};

    must(mica_adam_update(to, &operands, &params));
}

/* Moments begin as zeros, as fresh memory does; but sgd's, which step 1 writes. */
static void run_optimiser(void (*encode)(mica_encoder *, const state *))
{
    state s = {FRESH(real, COUNT), FRESH(real, COUNT), FRESH(real, COUNT),      FRESH(real, COUNT),
               FRESH(real, COUNT), FRESH(real, 1),     FRESH(MICA_DTYPE_U32, 1)};
    mica_session *session;
    mica_recording *recording;

    put_values(s.parameters, 3, COUNT);
    if (encode == encode_sgd)
        put_values(s.first, 4, COUNT);
    must(mica_session_begin(device, NULL, MICA_SESSION_RECORD, &session));
    must(mica_advance(mica_session_encoder(session), 1, s.step));
    encode(mica_session_encoder(session), &s);
    must(mica_session_record(session, 0, NULL, &recording));
    mica_session_release(session);
    for (int i = 0; i < STEPS; i++) {
        put_values(s.gradients, 10 + (uint32_t)i, COUNT);
        put(s.rate, 0, 0.1 / (1 + i));
        must(mica_recording_replay_and_wait(recording));
        /* a dozen roundings a step, of numbers of about 2 */
        same(s.parameters, COUNT, i * COUNT, 2, 16 * (i + 1));
    }
    mica_recording_release(recording);
    mica_buffer_release(s.parameters);
    mica_buffer_release(s.gradients);
    mica_buffer_release(s.first);
    mica_buffer_release(s.second);
    mica_buffer_release(s.third);
    mica_buffer_release(s.rate);
    mica_buffer_release(s.step);
}

static void run_clip(void)
{
    const uint64_t counts[3] = {15, 7, 12};
    mica_buffer *g[3] = {FRESH(real, 3, 5), FRESH(real, 7), FRESH(real, 2, 2, 3)}, *sums = FRESH(real, 3),
                *norm = FRESH(real, 1), *scale = FRESH(real, 1);
    int place = 1;

    for (uint32_t i = 0; i < 3; i++)
        put_values(g[i], 20 + i, counts[i]);
    must(mica_encoder_begin(device, NULL, &encoder));
    must(mica_gradient_norm(encoder, g, 3, sums, norm));
    must(mica_gradient_clip(encoder, norm, line.number[0], g, 3, scale));
    finish();
    same(norm, 1, 0, 0, 8);
    for (int i = 0; i < 3; place += (int)counts[i++]) {
        same(g[i], counts[i], place, 0, 12);
        mica_buffer_release(g[i]);
    }
    mica_buffer_release(sums);
    mica_buffer_release(norm);
    mica_buffer_release(scale);
}

static bool run_line(void)
{
    if (strcmp(line.name, "cross_entropy") == 0)
        run_cross_entropy();
    else if (strcmp(line.name, "cross_entropy_of") == 0)
        run_cross_entropy_of();
    else if (strcmp(line.name, "sgd") == 0)
        run_optimiser(encode_sgd);
    else if (strcmp(line.name, "adam") == 0)
        run_optimiser(encode_adam);
    else if (strcmp(line.name, "clip") == 0)
        run_clip();
    else
        return false;
    return true;
}

static void test_golden(void **state_)
{
    FILE *file = fopen("tests/golden/train.txt", "r");
    int seen = 0, more;

    (void)state_;
    assert_non_null(file);
    while ((more = golden_next(file, &line)) == 1) {
        bool known = false;

        real = MICA_DTYPE_F64;
        device = devices[0];
        known = run_line();
        real = MICA_DTYPE_F32;
        for (int d = 0; d < DEVICES && known; d++)
            if ((device = devices[d]) != NULL)
                run_line();
        seen += known;
    }
    fclose(file);
    assert_int_equal(more, 0);
    assert_int_equal(seen, 6 + 6 + 5 + 8 + 2);
}

/* ---- what is refused ---- */

static void test_refused(void **state_)
{
    const mica_status bad = MICA_ERR_INVALID_ARGUMENT;

    (void)state_;
    device = devices[0];
    mica_buffer *p = FRESH(MICA_DTYPE_F32, 5), *one = FRESH(MICA_DTYPE_F32, 1), *n = FRESH(MICA_DTYPE_U32, 1),
                *other = FRESH(MICA_DTYPE_F32, 4), *wide = FRESH(MICA_DTYPE_F64, 5),
                *m = FRESH(MICA_DTYPE_F32, 5), *v = FRESH(MICA_DTYPE_F32, 5), *g = FRESH(MICA_DTYPE_F32, 5);
    mica_adam_operands a = {p, g, m, v, NULL, one, NULL, n};
    mica_sgd_operands s = {p, g, NULL, one, NULL, NULL};
    const mica_adam_params fine = {0.9, 0.999, 1e-8, 0, 0, 0};
    mica_adam_params params = fine;
    must(mica_encoder_begin(device, NULL, &encoder));
    params.beta1 = 1;
    refused(mica_adam_update(encoder, &a, &params), bad, "params.beta1 is 1");
    params = fine;
    params.beta2 = NAN;
    refused(mica_adam_update(encoder, &a, &params), bad, "beta2 nan");
    params = fine;
    params.eps = -1;
    refused(mica_adam_update(encoder, &a, &params), bad, "params.eps is -1");
    params = fine;
    params.decoupled = 2;
    refused(mica_adam_update(encoder, &a, &params), bad, "params.decoupled");
    refused(mica_adam_update(encoder, &a, NULL), bad, "params is NULL");
    refused(mica_adam_update(encoder, NULL, &fine), bad, "operands is NULL");
    a.v = NULL;
    refused(mica_adam_update(encoder, &a, &fine), bad, "v is NULL");
    a.v = other;
    refused(mica_adam_update(encoder, &a, &fine), bad, "v has not the shape of parameters");
    a.v = m;
    refused(mica_adam_update(encoder, &a, &fine), bad, "overlap");
    a.v = wide;
    refused(mica_adam_update(encoder, &a, &fine), bad, "v is f64");
    a.v = v;
    a.learning_rate = p;
    refused(mica_adam_update(encoder, &a, &fine), bad, "learning_rate has 5 elements");
    a.learning_rate = one;
    a.step = one;
    refused(mica_adam_update(encoder, &a, &fine), bad, "step is f32");
    refused(mica_sgd_update(encoder, &s, &(mica_sgd_params){.momentum = 0.9}), bad, "momentum is NULL");
    refused(mica_sgd_update(encoder, &s, &(mica_sgd_params){.nesterov = 1}), bad, "params.nesterov");
    refused(mica_sgd_update(encoder, &s, &(mica_sgd_params){.weight_decay = INFINITY}), bad,
            "weight_decay inf");
    s.gradients = NULL;
    refused(mica_sgd_update(encoder, &s, NULL), bad, "gradients is NULL");
    refused(mica_gradient_norm(encoder, &p, 1, p, one), bad, "sums has 5 elements");
    refused(mica_gradient_norm(encoder, &p, 1, n, one), bad, "sums is u32");
    refused(mica_gradient_clip(encoder, one, 0, &p, 1, one), bad, "max_norm is 0");
    refused(mica_gradient_clip(encoder, p, 1, &p, 1, one), bad, "norm has 5 elements");
    mica_encoder_release(encoder);
    mica_buffer *all[] = {p, one, n, other, wide, m, v, g};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mica_buffer_release(all[i]);
}

/* f16 parameters and bf16 gradients with f32 moments; the scale of gradients is theirs times it. */
static void test_mixed(void **state_)
{
    (void)state_;
    for (int d = 0; d < DEVICES; d++) {
        if ((device = devices[d]) == NULL)
            continue;
        mica_buffer *p = FRESH(MICA_DTYPE_F16, COUNT), *g = FRESH(MICA_DTYPE_BF16, COUNT),
                    *b = FRESH(MICA_DTYPE_F32, COUNT), *rate = FRESH(MICA_DTYPE_F32, 1),
                    *scale = FRESH(MICA_DTYPE_F32, 1), *wide = FRESH(MICA_DTYPE_F32, COUNT);
        const mica_sgd_operands s = {p, g, b, rate, scale, NULL};

        real = MICA_DTYPE_F32;
        must(mica_encoder_begin(device, NULL, &encoder));
        must(mica_fill(encoder, 1, p));
        must(mica_fill(encoder, 4, g));
        must(mica_fill(encoder, 0.25, rate));
        must(mica_fill(encoder, 0.5, scale));
        must(mica_sgd_update(encoder, &s, &(mica_sgd_params){.momentum = 0.5}));
        must(mica_sgd_update(encoder, &s, &(mica_sgd_params){.momentum = 0.5}));
        must(mica_copy(encoder, p, wide));
        finish();
        for (uint64_t i = 0; i < COUNT; i++) { /* b: 2, then 3; p: 1 - 0.5 - 0.75 */
            assert_true(get(b, i) == 3);
            assert_true(get(wide, i) == -0.25);
        }
        mica_buffer *all[] = {p, g, b, rate, scale, wide};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            mica_buffer_release(all[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_mixed),
        cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
