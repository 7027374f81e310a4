/*
 * test_gradient.c - derivatives of scalars, of gated products and of whole regions: in double on the cpu against differences of the forward, in f32 on every
 * device against double. A region is what both are made of, so that every row of the table with a derivative is gone through by its number.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "mica/mica.h"
#include "support/devices.h"
#include "support/random.h"
#include "support/status.h"

enum { COUNT = 61, VALUES = 4 };
typedef double points[COUNT];

/* ---- buffers of COUNT points ---- */

static mica_buffer *upload(mica_device *device, mica_dtype dtype, const double *x)
{
    const uint64_t shape[1] = {COUNT};
    mica_buffer *buffer;

    must(mica_buffer_alloc(device, dtype, 1, shape, &buffer));
    for (uint64_t i = 0; x != NULL && i < COUNT; i++) {
        const float narrow = (float)x[i];
        const uint8_t truth = x[i] != 0;

        if (dtype == MICA_DTYPE_F64)
            must(mica_buffer_write(buffer, i * 8, &x[i], 8));
        else if (dtype == MICA_DTYPE_BOOL)
            must(mica_buffer_write(buffer, i, &truth, 1));
        else
            must(mica_buffer_write(buffer, i * 4, &narrow, 4));
    }
    return buffer;
}

static void download(mica_buffer *buffer, mica_dtype dtype, double *x)
{
    for (uint64_t i = 0; i < COUNT; i++) {
        float narrow;

        if (dtype == MICA_DTYPE_F64) {
            must(mica_buffer_read(buffer, i * 8, &x[i], 8));
            continue;
        }
        must(mica_buffer_read(buffer, i * 4, &narrow, 4));
        x[i] = (double)narrow;
    }
}

/* A function of up to four lists of points, as calls of mica or as a region. */
typedef struct function {
    uint32_t inputs, outputs;
    const mica_region *region; /* NULL: `call` */
    mica_status (*call)(mica_encoder *encoder, mica_buffer *const *inputs, mica_buffer *const *outputs);
    uint32_t truths; /* inputs that are bool */
} function;

static void run(const function *f, mica_device *device, mica_dtype dtype, points *in, points *out)
{
    mica_buffer *from[2 * VALUES] = {NULL}, *to[2 * VALUES] = {NULL};
    mica_encoder *encoder;

    for (uint32_t i = 0; i < f->inputs; i++)
        from[i] = upload(device, (f->truths >> i & 1) != 0 ? MICA_DTYPE_BOOL : dtype, in[i]);
    for (uint32_t o = 0; o < f->outputs; o++)
        to[o] = upload(device, dtype, NULL);
    must(mica_encoder_begin(device, NULL, &encoder));
    if (f->region != NULL)
        must(mica_region_apply(encoder, f->region, from, to));
    else
        must(f->call(encoder, from, to));
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    for (uint32_t o = 0; o < f->outputs; o++)
        download(to[o], dtype, out[o]);
    for (uint32_t i = 0; i < 2 * VALUES; i++) {
        mica_buffer_release(from[i]);
        mica_buffer_release(to[i]);
    }
}

/* ---- differences ---- */

#define STEP 1e-3

/* d f[o] / d input i at all points, by differences over two steps, whose first error cancels: what is left is of the fourth power of the step. */
static void slope(const function *f, points *in, uint32_t i, uint32_t o, double *out)
{
    points moved[VALUES], y[VALUES], wide = {0}, narrow = {0};

    for (int part = 0; part < 4; part++) {
        const double step = (part < 2 ? 1 : 0.5) * (part % 2 == 0 ? STEP : -STEP);

        memcpy(moved, in, sizeof moved);
        for (int k = 0; k < COUNT; k++)
            moved[i][k] += step;
        run(f, devices[0], MICA_DTYPE_F64, moved, y);
        for (int k = 0; k < COUNT; k++)
            (part < 2 ? wide : narrow)[k] += y[o][k] / (2 * step);
    }
    for (int k = 0; k < COUNT; k++)
        out[k] = (4 * narrow[k] - wide[k]) / 3;
}

/* The backward takes the inputs, then what reaches each output, and gives what reaches each input of `wanted`. */
static void check(const char *name, const function *forward, const function *backward, uint32_t wanted,
                  points *in, test_random *random)
{
    points y[VALUES], all[2 * VALUES], got[VALUES], each;
    uint32_t place = 0;

    memcpy(all, in, VALUES * sizeof *all);
    for (uint32_t o = 0; o < forward->outputs; o++)
        for (int k = 0; k < COUNT; k++)
            all[forward->inputs + o][k] = test_random_uniform(random, -2, 2);
    run(forward, devices[0], MICA_DTYPE_F64, in, y);
    run(backward, devices[0], MICA_DTYPE_F64, all, got);
    for (uint32_t i = 0; i < forward->inputs; i++) {
        points expected = {0}, size = {0};

        if ((wanted >> i & 1) == 0)
            continue;
        for (uint32_t o = 0; o < forward->outputs; o++) {
            slope(forward, in, i, o, each);
            for (int k = 0; k < COUNT; k++) {
                expected[k] += each[k] * all[forward->inputs + o][k];
                /* roundings of the differences, and the fourth power of the step times a derivative of some size */
                size[k] += fabs(y[o][k]) + fabs(each[k]) + 1;
            }
        }
        for (int k = 0; k < COUNT; k++)
            if (!(fabs(got[place][k] - expected[k]) <= 2e-9 * size[k]))
                fail_msg("%s by value %u at (%.17g, %.17g): %.17g, by differences %.17g", name, i, in[0][k],
                         in[1][k], got[place][k], expected[k]);
        place++;
    }
    for (int d = 0; d < DEVICES; d++) {
        points narrow[VALUES];

        if (devices[d] == NULL)
            continue;
        run(backward, devices[d], MICA_DTYPE_F32, all, narrow);
        for (uint32_t o = 0; o < place; o++)
            for (int k = 0; k < COUNT;
                 k++) /* two dozen steps of f32, each within two roundings of about its size */
                if (!(fabs(narrow[o][k] - got[o][k]) <= 48 * 0x1p-24 * (fabs(got[o][k]) + 2)))
                    fail_msg("%s on %s, output %u at (%g, %g): %.9g, in double %.17g", name, device_names[d],
                             o, in[0][k], in[1][k], narrow[o][k], got[o][k]);
    }
}

/* ---- every scalar ---- */

typedef struct domain {
    const char *name;
    double low[3], high[3];
} domain;

static const domain domains[] = {
    {"div", {-3, 0.4, 0}, {3, 3, 0}},       {"pow", {0.3, -2, 0}, {3, 2, 0}},
    {"sqrt", {0.2, 0, 0}, {4, 0, 0}},       {"rsqrt", {0.3, 0, 0}, {4, 0, 0}},
    {"log", {0.3, 0, 0}, {5, 0, 0}},        {"log2", {0.3, 0, 0}, {5, 0, 0}},
    {"log10", {0.3, 0, 0}, {5, 0, 0}},      {"log1p", {-0.6, 0, 0}, {4, 0, 0}},
    {"reciprocal", {0.3, 0, 0}, {4, 0, 0}}, {"tan", {-1, 0, 0}, {1, 0, 0}},
    {"asin", {-0.8, 0, 0}, {0.8, 0, 0}},    {"acos", {-0.8, 0, 0}, {0.8, 0, 0}},
    {"acosh", {1.3, 0, 0}, {5, 0, 0}},      {"atanh", {-0.8, 0, 0}, {0.8, 0, 0}},
    {"atan2", {0.4, 0.4, 0}, {3, 3, 0}},    {"rem", {-3, 0.7, 0}, {3, 2, 0}},
    {"mod", {-3, 0.7, 0}, {3, 2, 0}},       {"leaky_relu", {-3, 0.1, 0}, {3, 0.5, 0}},
    {"elu", {-3, 0.5, 0}, {3, 1.5, 0}},     {"softcap", {-3, 0.5, 0}, {3, 4, 0}},
    {"select", {0, -3, -3}, {2, 3, 3}},
};

/* Nowhere near what functions of this table bend at. */
static bool bends(const char *name, const points *in, int k)
{
    static const double at[] = {-3, -1, 0, 1, 3};
    const double a = in[0][k], b = in[1][k];
    const bool parts = strcmp(name, "rem") == 0 || strcmp(name, "mod") == 0;
    const bool whole = strcmp(name, "round") == 0 || strcmp(name, "floor") == 0 ||
                       strcmp(name, "ceil") == 0 || strcmp(name, "trunc") == 0;
    bool near = fabs(a - b) < 0.01;

    for (int i = 0; i < 5; i++)
        near = near || fabs(a - at[i]) < 0.01;
    if (whole)
        near = near || fabs(2 * a - nearbyint(2 * a)) < 0.02;
    return near || (parts && fabs(a / b - nearbyint(a / b)) < 0.02);
}

static void draw(const char *name, uint32_t values, points *in, test_random *random)
{
    domain d = {name, {-3, -3, -3}, {3, 3, 3}};

    for (size_t i = 0; i < sizeof domains / sizeof *domains; i++)
        if (strcmp(domains[i].name, name) == 0)
            d = domains[i];
    for (int k = 0; k < COUNT; k++)
        do
            for (uint32_t j = 0; j < VALUES; j++) /* numbers that f32 has */
                in[j][k] = j < values ? (double)(float)test_random_uniform(random, d.low[j], d.high[j]) : 100;
        while (bends(name, (const points *)in, k));
    for (int k = 0; strcmp(name, "select") == 0 && k < COUNT; k++)
        in[0][k] = k % 3 == 0;
}

/* By its function, so that the table's rows and what callers have are both gone through. */
static mica_scalar scalar_now;

static mica_status call_backward(mica_encoder *encoder, mica_buffer *const *in, mica_buffer *const *out)
{
    mica_scalar_info info;
    mica_buffer *dx[3] = {NULL};
    const uint32_t first = scalar_now == MICA_SCALAR_SELECT ? 1 : 0;

    must(mica_scalar_get_info(scalar_now, &info));
    for (uint32_t j = first; j < info.values; j++)
        dx[j] = out[j - first];
    return mica_scalar_backward(encoder, scalar_now, in, in[info.values], dx);
}

static mica_region *region_of_one(mica_scalar scalar, uint32_t values, mica_register type)
{
    mica_region_step step = {.scalar = (uint8_t)scalar, .type = (uint8_t)type};
    mica_region_desc desc = {.input_count = values, .output_count = 1, .step_count = 1, .step = &step};
    mica_region *region;

    for (uint32_t j = 0; j < 3; j++)
        step.value[j] = (uint8_t)(j < values ? j : MICA_REGION_NONE);
    for (uint32_t j = 0; j < values; j++)
        desc.input[j] = (uint8_t)(scalar == MICA_SCALAR_SELECT && j == 0 ? MICA_REGISTER_BOOL : type);
    desc.output[0] = (uint8_t)values;
    desc.output_imag[0] = MICA_REGION_NONE;
    must(mica_region_create(&desc, &region));
    return region;
}

static void test_scalars(void **state)
{
    uint32_t seen = 0;

    (void)state;
    test_random random = test_random_from(1);
    for (uint32_t s = 1; s < MICA_SCALAR_COUNT; s++) {
        mica_scalar_info info;
        points in[VALUES];

        must(mica_scalar_get_info(s, &info));
        if (info.derivative == 0)
            continue;
        seen++;
        scalar_now = (mica_scalar)s;
        const bool select = s == MICA_SCALAR_SELECT;
        mica_region *region = region_of_one(scalar_now, info.values, MICA_REGISTER_F64);
        const function forward = {info.values, 1, region, NULL, select ? 1 : 0};
        const function backward = {info.values + 1, info.values - select, NULL, call_backward,
                                   select ? 1 : 0};
        draw(mica_scalar_name(s), info.values, in, &random);
        check(mica_scalar_name(s), &forward, &backward, ((1u << info.values) - 1) & ~(uint32_t)select, in,
              &random);
        mica_region_release(region);
    }
    assert_true(seen >= 60);
}

/* Floats of the table that have none are those without a slope of any meaning. */
static void test_which_have_none(void **state)
{
    (void)state;
    for (uint32_t s = 1; s < MICA_SCALAR_COUNT; s++) {
        mica_scalar_info info;

        must(mica_scalar_get_info(s, &info));
        const bool real = (info.in >> MICA_REGISTER_F64 & 1) != 0 && info.out == 0 && info.is_op != 0;
        if (real != (info.derivative != 0) && info.is_op != 0)
            fail_msg("%s %s a derivative", mica_scalar_name(s), info.derivative != 0 ? "has" : "has no");
    }
}

/* ---- gated products ---- */

static mica_scalar act_now;

static mica_status gate_backward(mica_encoder *encoder, mica_buffer *const *in, mica_buffer *const *out)
{
    return mica_gate_backward(encoder, act_now, in[0], in[1], in[2], out[0], out[1]);
}

static mica_region *gate_region(mica_scalar act)
{
    const mica_region_step step[] = {
        {.scalar = (uint8_t)act, .type = MICA_REGISTER_F64, .value = {0, MICA_REGION_NONE, MICA_REGION_NONE}},
        {.scalar = MICA_SCALAR_MUL, .type = MICA_REGISTER_F64, .value = {2, 1, MICA_REGION_NONE}}};
    mica_region_desc desc = {.input_count = 2, .output_count = 1, .step_count = 2, .step = step};
    mica_region *region;

    desc.input[0] = desc.input[1] = MICA_REGISTER_F64;
    desc.output[0] = 3;
    desc.output_imag[0] = MICA_REGION_NONE;
    must(mica_region_create(&desc, &region));
    return region;
}

static void test_gates(void **state)
{
    static const mica_scalar acts[] = {MICA_SCALAR_SILU, MICA_SCALAR_GELU, MICA_SCALAR_SIGMOID,
                                       MICA_SCALAR_QUICK_GELU, MICA_SCALAR_RELU_SQUARED};

    (void)state;
    test_random random = test_random_from(2);
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++) {
        points in[VALUES];
        mica_region *region = gate_region(acts[i]);
        const function forward = {2, 1, region, NULL, 0}, backward = {3, 2, NULL, gate_backward, 0};

        act_now = acts[i];
        draw("gate", 2, in, &random);
        check(mica_scalar_name(acts[i]), &forward, &backward, 3, in, &random);
        mica_region_release(region);
    }
}

static const double alpha = 1.702, limit = 2;

/* (clamp(u) + 1) g sigmoid(alpha g), g = min(gate, limit), in plain C. */
static double clipped(double gate, double up)
{
    const double g = fmin(gate, limit), u = fmin(fmax(up, -limit), limit);

    return (u + 1) * g / (1 + exp(-(double)(float)alpha * g));
}

static void test_clipped_swiglu(void **state)
{
    points in[VALUES], dy, dgate, dup;

    (void)state;
    test_random random = test_random_from(3);
    draw("gate", 2, in, &random);
    for (int k = 0; k < COUNT; k++) {
        in[0][k] = fabs(in[0][k] - limit) < 0.01 ? 1 : in[0][k];
        in[1][k] = fabs(fabs(in[1][k]) - limit) < 0.01 ? 1 : in[1][k];
        dy[k] = k % 5 - 2;
    }
    mica_buffer *gate = upload(devices[0], MICA_DTYPE_F64, in[0]),
                *up = upload(devices[0], MICA_DTYPE_F64, in[1]),
                *reaches = upload(devices[0], MICA_DTYPE_F64, dy);
    mica_encoder *encoder;
    must(mica_encoder_begin(devices[0], NULL, &encoder));
    /* in place: dgate over gate, dup over up */
    must(mica_clipped_swiglu_backward(encoder, gate, up, (float)alpha, (float)limit, reaches, gate, up));
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    download(gate, MICA_DTYPE_F64, dgate);
    download(up, MICA_DTYPE_F64, dup);
    for (int k = 0; k < COUNT; k++) {
        const double a = in[0][k], b = in[1][k], h = 1e-5;
        const double by_gate = (clipped(a + h, b) - clipped(a - h, b)) / (2 * h),
                     by_up = (clipped(a, b + h) - clipped(a, b - h)) / (2 * h);
        /* h^2 times a third derivative of a few units */
        if (fabs(dgate[k] - dy[k] * by_gate) > 1e-8 || fabs(dup[k] - dy[k] * by_up) > 1e-8)
            fail_msg("at (%g, %g): %.12g and %.12g, by differences %.12g and %.12g", a, b, dgate[k], dup[k],
                     dy[k] * by_gate, dy[k] * by_up);
    }
    mica_buffer_release(gate);
    mica_buffer_release(up);
    mica_buffer_release(reaches);
}

/* ---- sums of experts ---- */

static mica_buffer *shaped(mica_device *device, uint32_t ndim, const uint64_t *shape, const double *x)
{
    mica_buffer *buffer;
    uint64_t count = 1;

    for (uint32_t d = 0; d < ndim; d++)
        count *= shape[d];
    must(mica_buffer_alloc(device, MICA_DTYPE_F32, ndim, shape, &buffer));
    for (uint64_t i = 0; x != NULL && i < count; i++) {
        const float narrow = (float)x[i];

        must(mica_buffer_write(buffer, i * 4, &narrow, 4));
    }
    return buffer;
}

/* y [T, N] = sum over s of w [T, S] x [T, S, N]: dx is w dy, repeated; dw the sum of x dy. The gated product of experts before it is
 * gate_backward of the same shape. Whole numbers: to the bit. */
static void test_expert_sum(void **state)
{
    enum { T = 3, S = 2, N = 5 };
    const uint64_t tsn[3] = {T, S, N}, ts1[3] = {T, S, 1}, t1n[3] = {T, 1, N};
    const mica_reduce_params last = {.kind = MICA_REDUCE_SUM, .axes = 1, .keep_dims = 1};
    double x[T * S * N], w[T * S], dy[T * N];

    (void)state;
    for (int i = 0; i < T * S * N; i++)
        x[i] = i % 7 - 3;
    for (int i = 0; i < T * S; i++)
        w[i] = i % 4 - 1;
    for (int i = 0; i < T * N; i++)
        dy[i] = i % 5 - 2;
    for (int d = 0; d < DEVICES; d++) {
        mica_encoder *encoder;
        float dx[T * S * N], dw[T * S];

        if (devices[d] == NULL)
            continue;
        mica_buffer *b[] = {shaped(devices[d], 3, tsn, x), shaped(devices[d], 3, ts1, w),
                            shaped(devices[d], 3, t1n, dy), shaped(devices[d], 3, tsn, NULL),
                            shaped(devices[d], 3, ts1, NULL)};
        must(mica_encoder_begin(devices[d], NULL, &encoder));
        must(mica_mul(encoder, b[1], b[2], b[3]));
        must(mica_mul(encoder, b[0], b[2], b[0]));
        must(mica_reduce(encoder, b[0], &last, b[4]));
        must(mica_encoder_commit_and_wait(encoder));
        mica_encoder_release(encoder);
        must(mica_buffer_read(b[3], 0, dx, sizeof dx));
        must(mica_buffer_read(b[4], 0, dw, sizeof dw));
        for (int t = 0; t < T; t++)
            for (int s = 0; s < S; s++) {
                double sum = 0;

                for (int n = 0; n < N; n++) {
                    sum += x[(t * S + s) * N + n] * dy[t * N + n];
                    assert_true((double)dx[(t * S + s) * N + n] == w[t * S + s] * dy[t * N + n]);
                }
                assert_true((double)dw[t * S + s] == sum);
            }
        for (int i = 0; i < 5; i++)
            mica_buffer_release(b[i]);
    }
}

/* ---- regions ---- */

#define ST(name, a, b)                                                                               \
    {                                                                                                \
        .scalar = MICA_SCALAR_##name, .type = MICA_REGISTER_F64, .value = { a, b, MICA_REGION_NONE } \
    }
#define NO MICA_REGION_NONE

/* y0 = sin(a b) + a c, y1 = (a b) e^(sin(a b)), y2 = c: values that several steps and two outputs read. */
static void test_region(void **state)
{
    const mica_region_step step[] = {ST(MUL, 0, 1), ST(SIN, 3, NO), ST(MUL, 0, 2),
                                     ST(ADD, 4, 5), ST(EXP, 4, NO), ST(MUL, 3, 7)};
    points in[VALUES];

    (void)state;
    test_random random = test_random_from(4);
    draw("region", 3, in, &random);
    for (uint32_t wanted = 1; wanted < 8; wanted++) {
        mica_region *region, *of_slopes;
        mica_region_desc desc = {.input_count = 3, .output_count = 3, .step_count = 6, .step = step};
        function forward = {3, 3, NULL, NULL, 0}, backward = {6, 0, NULL, NULL, 0};

        memset(desc.input, MICA_REGISTER_F64, 3);
        memcpy(desc.output, (uint8_t[]){6, 8, 2}, 3);
        memset(desc.output_imag, NO, 3);
        must(mica_region_create(&desc, &region));
        must(mica_region_backward(region, wanted, &of_slopes));
        forward.region = region;
        backward.region = of_slopes;
        for (uint32_t i = 0; i < 3; i++)
            backward.outputs += wanted >> i & 1;
        points all[2 * VALUES], got[VALUES], each;
        memcpy(all, in, 3 * sizeof *all);
        for (int o = 0; o < 3; o++)
            for (int k = 0; k < COUNT; k++)
                all[3 + o][k] = test_random_uniform(&random, -1, 1);
        run(&backward, devices[0], MICA_DTYPE_F64, all, got);
        for (uint32_t i = 0, place = 0; i < 3; i++) {
            points expected = {0};

            if ((wanted >> i & 1) == 0)
                continue;
            for (uint32_t o = 0; o < 3; o++) {
                slope(&forward, in, i, o, each);
                for (int k = 0; k < COUNT; k++)
                    expected[k] += each[k] * all[3 + o][k];
            }
            for (int k = 0; k < COUNT; k++) /* the fifth derivative of sin(9 x) and the like is some 1e5 */
                if (!(fabs(got[place][k] - expected[k]) <= 1e-7 * (1 + fabs(expected[k]))))
                    fail_msg("wanted %u, input %u: %.12g, by differences %.12g", wanted, i, got[place][k],
                             expected[k]);
            place++;
        }
        mica_region_release(region);
        mica_region_release(of_slopes);
    }
}

/* What rounds or casts between floats hands on what reaches it; an integer does not. */
static void test_casts(void **state)
{
    const mica_region_step step[] = {
        {.scalar = MICA_SCALAR_ROUND_F16, .type = MICA_REGISTER_F32, .value = {0, NO, NO}},
        {.scalar = MICA_SCALAR_CAST, .type = MICA_REGISTER_I32, .value = {0, NO, NO}},
        {.scalar = MICA_SCALAR_CAST, .type = MICA_REGISTER_F32, .value = {2, NO, NO}},
        {.scalar = MICA_SCALAR_MUL, .type = MICA_REGISTER_F32, .value = {1, 3, NO}}};
    mica_region_desc desc = {.input_count = 1, .output_count = 1, .step_count = 4, .step = step};
    points in[VALUES] = {{0}}, all[2 * VALUES] = {{0}}, got[VALUES];
    mica_region *region, *backward;

    (void)state;
    desc.input[0] = MICA_REGISTER_F32;
    desc.output[0] = 4;
    desc.output_imag[0] = NO;
    must(mica_region_create(&desc, &region));
    must(mica_region_backward(region, 1, &backward));
    for (int k = 0; k < COUNT; k++) {
        all[0][k] = in[0][k] = k * 0.75;
        all[1][k] = 2;
    }
    const function f = {2, 1, backward, NULL, 0};
    for (int d = 0; d < DEVICES; d++) {
        if (devices[d] == NULL)
            continue;
        run(&f, devices[d], MICA_DTYPE_F32, all, got);
        for (int k = 0; k < COUNT; k++)
            assert_true(got[0][k] == 2 * floor(k * 0.75));
    }
    mica_region_release(region);
    mica_region_release(backward);
}

static void test_refused(void **state)
{
    const mica_region_step whole = {
        .scalar = MICA_SCALAR_ADD, .type = MICA_REGISTER_I32, .value = {0, 1, NO}};
    mica_region_desc desc = {.input_count = 2, .output_count = 1, .step_count = 1, .step = &whole};
    mica_region *region, *out;
    mica_encoder *encoder;

    (void)state;
    desc.input[0] = desc.input[1] = MICA_REGISTER_I32;
    desc.output[0] = 2;
    desc.output_imag[0] = NO;
    must(mica_region_create(&desc, &region));
    refused(mica_region_backward(region, 1, &out), MICA_ERR_INVALID_ARGUMENT,
            "wanted has input 0, which is i32");
    assert_null(out);
    mica_region_release(region);
    refused(mica_region_backward(NULL, 1, &out), MICA_ERR_INVALID_ARGUMENT, "region is NULL");
    refused(mica_region_backward(NULL, 1, NULL), MICA_ERR_INVALID_ARGUMENT, "out_backward is NULL");
    region = region_of_one(MICA_SCALAR_MUL, 2, MICA_REGISTER_F32);
    refused(mica_region_backward(region, 0, &out), MICA_ERR_INVALID_ARGUMENT, "wanted is 0x0");
    refused(mica_region_backward(region, 4, &out), MICA_ERR_INVALID_ARGUMENT, "input 2, which is not there");
    mica_region_release(region);

    mica_buffer *x = upload(devices[0], MICA_DTYPE_F32, NULL), *y = upload(devices[0], MICA_DTYPE_F64, NULL);
    must(mica_encoder_begin(devices[0], NULL, &encoder));
    mica_buffer *none[3] = {NULL}, *all[3] = {x, x, x};
    refused(mica_scalar_backward(encoder, MICA_SCALAR_LESS, all, x, all), MICA_ERR_INVALID_ARGUMENT,
            "less), which has no derivative");
    refused(mica_scalar_backward(encoder, (mica_scalar)9999, all, x, all), MICA_ERR_INVALID_ARGUMENT,
            "no derivative");
    refused(mica_scalar_backward(encoder, MICA_SCALAR_MUL, all, x, none), MICA_ERR_INVALID_ARGUMENT,
            "no derivative is asked for");
    refused(mica_scalar_backward(encoder, MICA_SCALAR_MUL, none, x, all), MICA_ERR_INVALID_ARGUMENT,
            "inputs[0] is NULL");
    refused(mica_scalar_backward(encoder, MICA_SCALAR_MUL, all, y, all), MICA_ERR_INVALID_ARGUMENT,
            "register f64");
    refused(mica_gate_backward(encoder, MICA_SCALAR_ADD, x, x, x, x, NULL), MICA_ERR_INVALID_ARGUMENT,
            "act is");
    refused(mica_gate_backward(encoder, MICA_SCALAR_SILU, x, NULL, x, x, NULL), MICA_ERR_INVALID_ARGUMENT,
            "up is NULL");
    refused(mica_clipped_swiglu_backward(encoder, x, x, 1, 0, x, x, NULL), MICA_ERR_INVALID_ARGUMENT,
            "limit");
    mica_encoder_release(encoder);
    mica_buffer_release(x);
    mica_buffer_release(y);
}

/* Operands that no derivative reads need not be there: both of a sum, the value of a negation. */
static void test_absent_inputs(void **state)
{
    points dy, got;
    mica_encoder *encoder;
    mica_buffer *none[3] = {NULL};

    (void)state;
    for (int k = 0; k < COUNT; k++)
        dy[k] = k;
    for (int d = 0; d < DEVICES; d++) {
        if (devices[d] == NULL)
            continue;
        mica_buffer *x = upload(devices[d], MICA_DTYPE_F32, dy),
                    *a = upload(devices[d], MICA_DTYPE_F32, NULL);
        must(mica_encoder_begin(devices[d], NULL, &encoder));
        must(mica_scalar_backward(encoder, MICA_SCALAR_SUB, none, x, (mica_buffer *const[]){NULL, a}));
        must(mica_encoder_commit_and_wait(encoder));
        mica_encoder_release(encoder);
        download(a, MICA_DTYPE_F32, got);
        for (int k = 0; k < COUNT; k++)
            assert_true(got[k] == -k);
        mica_buffer_release(x);
        mica_buffer_release(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scalars),    cmocka_unit_test(test_which_have_none),
        cmocka_unit_test(test_gates),      cmocka_unit_test(test_clipped_swiglu),
        cmocka_unit_test(test_expert_sum), cmocka_unit_test(test_region),
        cmocka_unit_test(test_casts),      cmocka_unit_test(test_absent_inputs),
        cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
