/*
 * test_norm.c - what is made of the norms: groups, instances, batches, modulated norms, norms with several outputs, each from its formula;
 * gradients against central differences of f64; wrong parameters, by name. On the cpu.
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
#include "oracle/oracle_norm.h"
#include "support/random.h"
#include "support/status.h"
#include "support/tensor.h"

#define MOST 512 /* elements of a buffer */
#define EPS 1e-3f
#define SHAPE(...) ((const uint64_t[]){__VA_ARGS__})

static mica_device *device;
static test_random source;

static int open_device(void **state)
{
    (void)state;
    source = test_random_from(5);
    return mica_device_open("cpu", NULL, &device) == MICA_OK ? 0 : -1;
}

static int close_device(void **state)
{
    (void)state;
    mica_device_release(device);
    return mica_host_bytes() == 0 ? 0 : -1;
}

static uint64_t count_of(mica_buffer *buffer)
{
    mica_buffer_info info;

    must(mica_buffer_get_info(buffer, &info));
    return info.element_count;
}

static mica_buffer *empty(mica_dtype dtype, uint32_t ndim, const uint64_t *shape)
{
    mica_buffer *buffer = NULL;

    must(mica_buffer_alloc(device, dtype, ndim, shape, &buffer));
    return buffer;
}

static void put(mica_buffer *buffer, mica_dtype dtype, const double *values)
{
    const uint64_t count = count_of(buffer);
    float narrow[MOST];

    assert_true(count <= MOST);
    for (uint64_t i = 0; i < count; i++)
        narrow[i] = (float)values[i];
    must(dtype == MICA_DTYPE_F64 ? mica_buffer_write(buffer, 0, values, count * sizeof *values)
                                 : mica_buffer_write(buffer, 0, narrow, count * sizeof *narrow));
}

static void get(mica_buffer *buffer, mica_dtype dtype, double *values)
{
    const uint64_t count = count_of(buffer);
    float narrow[MOST];

    assert_true(count <= MOST);
    must(dtype == MICA_DTYPE_F64 ? mica_buffer_read(buffer, 0, values, count * sizeof *values)
                                 : mica_buffer_read(buffer, 0, narrow, count * sizeof *narrow));
    for (uint64_t i = 0; i < count && dtype != MICA_DTYPE_F64; i++)
        values[i] = (double)narrow[i];
}

/* A buffer of normal numbers, which f32 has. */
static mica_buffer *drawn(mica_dtype dtype, uint32_t ndim, const uint64_t *shape, double *values)
{
    mica_buffer *buffer = empty(dtype, ndim, shape);

    for (uint64_t i = 0; i < count_of(buffer); i++)
        values[i] = (double)(float)test_random_normal(&source);
    put(buffer, dtype, values);
    return buffer;
}

static mica_encoder *begin(void)
{
    mica_encoder *encoder = NULL;

    must(mica_encoder_begin(device, NULL, &encoder));
    return encoder;
}

static void run(mica_encoder *encoder)
{
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
}

static void release(mica_buffer *const *buffers, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        mica_buffer_release(buffers[i]);
}

#define RELEASE(...)                             \
    release((mica_buffer *const[]){__VA_ARGS__}, \
            sizeof((mica_buffer *[]){__VA_ARGS__}) / sizeof(mica_buffer *))

/* f32 results of a few dozen terms of about 1: a handful of roundings. */
static void is_near(const double *got, const double *want, uint64_t count, double room)
{
    for (uint64_t i = 0; i < count; i++)
        if (!(fabs(got[i] - want[i]) <= room * (1 + fabs(want[i]))))
            fail_msg("element %llu is %.9g, wanted %.9g", (unsigned long long)i, got[i], want[i]);
}

#define F32_ROOM 2e-6

/* ---- groups, instances ---- */

enum { N = 2, C = 6, H = 3, W = 5, S = H * W, ALL = N * C * S };

/* [n, channels, ..] by its formula, one statistic to each n and group. */
static void want_groups(const double *x, const double *weight, const double *bias, size_t groups, double *y)
{
    double error[ALL], weights[ALL], biases[ALL];
    const oracle_norm norm = {ORACLE_NORM_LAYER, N * groups, C / groups * S, x,
                              weights,           biases,     (double)EPS,    0};

    for (size_t i = 0; i < ALL; i++) {
        weights[i] = weight[i / S % C];
        biases[i] = bias[i / S % C];
    }
    oracle_normalize(&norm, (oracle_numbers){y, error}, (oracle_numbers){0}, (oracle_numbers){0});
}

static void test_groups(void **state)
{
    static const uint32_t groups[] = {1, 2, 3, C};
    double x[ALL], weight[C], bias[C], want[ALL], got[ALL];

    (void)state;
    for (size_t g = 0; g < 5; g++) {
        mica_buffer *bx = drawn(MICA_DTYPE_F32, 4, SHAPE(N, C, H, W), x),
                    *bw = drawn(MICA_DTYPE_F32, 1, SHAPE(C), weight),
                    *bb = drawn(MICA_DTYPE_F32, 1, SHAPE(C), bias),
                    *y = empty(MICA_DTYPE_F32, 4, SHAPE(N, C, H, W));
        mica_encoder *e = begin();

        if (g < 4)
            must(mica_group_norm(e, bx, groups[g], bw, bb, EPS, y));
        else
            must(mica_instance_norm(e, bx, bw, bb, EPS, y));
        run(e);
        get(y, MICA_DTYPE_F32, got);
        want_groups(x, weight, bias, g < 4 ? groups[g] : C, want);
        is_near(got, want, ALL, F32_ROOM);
        RELEASE(bx, bw, bb, y);
    }
}

/* ---- batches ---- */

/* Mean and variance of channel c. */
static void channel_statistics(const double *x, size_t c, double *mean, double *var)
{
    *mean = *var = 0;
    for (size_t n = 0; n < N; n++)
        for (size_t s = 0; s < S; s++)
            *mean += x[(n * C + c) * S + s] / (N * S);
    for (size_t n = 0; n < N; n++)
        for (size_t s = 0; s < S; s++)
            *var += pow(x[(n * C + c) * S + s] - *mean, 2) / (N * S);
}

static void test_batches(void **state)
{
    static const mica_dtype types[] = {MICA_DTYPE_F32, MICA_DTYPE_F64};

    (void)state;
    for (size_t t = 0; t < 2; t++) {
        const mica_dtype f = types[t];
        double x[ALL], weight[C], bias[C], old_mean[C], old_var[C], got[ALL], again[ALL], mean[C], var[C],
            moved[2 * C];
        double want[ALL], want_mean[C], want_var[C];
        const mica_batch_norm_operands o = {.x = drawn(f, 4, SHAPE(N, C, H, W), x),
                                            .weight = drawn(f, 1, SHAPE(C), weight),
                                            .bias = drawn(f, 1, SHAPE(C), bias),
                                            .running_mean = drawn(f, 1, SHAPE(C), old_mean),
                                            .running_var = drawn(f, 1, SHAPE(C), old_var),
                                            .y = empty(f, 4, SHAPE(N, C, H, W)),
                                            .mean = empty(f, 1, SHAPE(C)),
                                            .var = empty(f, 1, SHAPE(C)),
                                            .new_running_mean = empty(f, 1, SHAPE(C)),
                                            .new_running_var = empty(f, 1, SHAPE(C))};
        mica_buffer *inferred = empty(f, 4, SHAPE(N, C, H, W));
        mica_encoder *e = begin();

        must(mica_batch_norm_train(e, &o, &(mica_batch_norm_params){EPS, 0.25f}));
        must(mica_batch_norm(e, o.x, o.mean, o.var, o.weight, o.bias, EPS, inferred));
        run(e);
        get(o.y, f, got);
        get(inferred, f, again);
        get(o.mean, f, mean);
        get(o.var, f, var);
        get(o.new_running_mean, f, moved);
        get(o.new_running_var, f, moved + C);
        for (size_t c = 0; c < C; c++)
            channel_statistics(x, c, &want_mean[c], &want_var[c]);
        for (size_t i = 0; i < ALL; i++) {
            const size_t c = i / S % C;

            want[i] = (x[i] - want_mean[c]) / sqrt(want_var[c] + (double)EPS) * weight[c] + bias[c];
        }
        is_near(got, want, ALL, F32_ROOM);
        is_near(again, want, ALL, F32_ROOM);
        is_near(mean, want_mean, C, F32_ROOM);
        is_near(var, want_var, C, F32_ROOM);
        for (size_t c = 0; c < C; c++) {
            want_mean[c] = 0.75 * old_mean[c] + 0.25 * want_mean[c];
            want_var[c] = 0.75 * old_var[c] + 0.25 * want_var[c] * (N * S) / (N * S - 1.0);
        }
        is_near(moved, want_mean, C, F32_ROOM);
        is_near(moved + C, want_var, C, F32_ROOM);
        RELEASE(o.x, o.weight, o.bias, o.running_mean, o.running_var, o.y, o.mean, o.var, o.new_running_mean,
                o.new_running_var, inferred);
    }
}

/* ---- f64 ---- */

static void test_doubles(void **state)
{
    enum { ROWS = 3, DIM = 37 };
    double x[ROWS * DIM], weight[DIM], bias[DIM], want[ROWS * DIM], got[ROWS * DIM], error[ROWS * DIM],
        weights[ROWS * DIM], biases[ROWS * DIM];
    const mica_dtype f = MICA_DTYPE_F64;
    mica_buffer *bx = drawn(f, 2, SHAPE(ROWS, DIM), x), *bw = drawn(f, 1, SHAPE(DIM), weight),
                *bb = drawn(f, 1, SHAPE(DIM), bias), *y = empty(f, 2, SHAPE(ROWS, DIM));

    (void)state;
    for (size_t i = 0; i < ROWS * DIM; i++) {
        weights[i] = weight[i % DIM];
        biases[i] = bias[i % DIM];
    }
    for (int rms = 0; rms < 2; rms++) {
        const oracle_norm norm = {rms ? ORACLE_NORM_RMS : ORACLE_NORM_LAYER,
                                  ROWS,
                                  DIM,
                                  x,
                                  weights,
                                  rms ? NULL : biases,
                                  (double)EPS,
                                  0};
        mica_encoder *e = begin();

        must(rms ? mica_rms_norm(e, bx, bw, EPS, y) : mica_layer_norm(e, bx, bw, bb, EPS, y));
        run(e);
        get(y, f, got);
        oracle_normalize(&norm, (oracle_numbers){want, error}, (oracle_numbers){0}, (oracle_numbers){0});
        is_near(got, want, ROWS * DIM, 1e-14);
    }
    RELEASE(bx, bw, bb, y);
}

/* ---- gradients ---- */

typedef enum gradient_of {
    OF_RMS,
    OF_LAYER,
    OF_L2,
    OF_GROUP,
    OF_BATCH,
    OF_SOFTMAX,
    OF_LOG_SOFTMAX,
    OF_COUNT
} gradient_of;

#define CHANNELS 4
#define SCALE 0.75f
enum { GRADIENT_ALL = 3 * CHANNELS * 5 };

typedef struct gradient {
    gradient_of of;
    uint64_t parameters; /* of weight and of bias */
    mica_buffer *x, *weight, *bias, *y, *dy, *dx, *dweight, *dbias, *mean, *var;
    double dy_values[GRADIENT_ALL];
} gradient;

static void forward(gradient *g, mica_encoder *e)
{
    const mica_batch_norm_operands batch = {
        .x = g->x, .weight = g->weight, .bias = g->bias, .y = g->y, .mean = g->mean, .var = g->var};

    switch (g->of) {
    case OF_RMS: must(mica_rms_norm(e, g->x, g->weight, EPS, g->y)); break;
    case OF_LAYER: must(mica_layer_norm(e, g->x, g->weight, g->bias, EPS, g->y)); break;
    case OF_L2: must(mica_l2_norm(e, g->x, EPS, g->y)); break;
    case OF_GROUP: must(mica_group_norm(e, g->x, 2, g->weight, g->bias, EPS, g->y)); break;
    case OF_BATCH: must(mica_batch_norm_train(e, &batch, &(mica_batch_norm_params){EPS, 0})); break;
    case OF_SOFTMAX: must(mica_softmax(e, g->x, SCALE, g->y)); break;
    default: must(mica_log_softmax(e, g->x, SCALE, g->y)); break;
    }
}

static void backward(gradient *g, mica_encoder *e)
{
    switch (g->of) {
    case OF_RMS: must(mica_rms_norm_backward(e, g->x, g->dy, g->weight, EPS, g->dx, g->dweight)); break;
    case OF_LAYER:
        must(mica_layer_norm_backward(e, g->x, g->dy, g->weight, EPS, g->dx, g->dweight, g->dbias));
        break;
    case OF_L2: must(mica_l2_norm_backward(e, g->x, g->dy, EPS, g->dx)); break;
    case OF_GROUP:
        must(mica_group_norm_backward(e, g->x, g->dy, 2, g->weight, EPS, g->dx, g->dweight, g->dbias));
        break;
    case OF_BATCH:
        must(mica_batch_norm_backward(e, g->x, g->dy, g->weight, EPS, g->dx, g->dweight, g->dbias));
        break;
    case OF_SOFTMAX: must(mica_softmax_backward(e, g->y, g->dy, SCALE, g->dx)); break;
    default: must(mica_log_softmax_backward(e, g->y, g->dy, SCALE, g->dx)); break;
    }
}

/* sum(dy y) */
static double loss(gradient *g)
{
    double y[GRADIENT_ALL], sum = 0;
    mica_encoder *e = begin();

    forward(g, e);
    run(e);
    get(g->y, MICA_DTYPE_F64, y);
    for (size_t i = 0; i < GRADIENT_ALL; i++)
        sum += g->dy_values[i] * y[i];
    return sum;
}

/* Central differences of h = 1e-5 are off by h^2 times a third derivative of some tens, and by 1e-16 / h. */
static void differ(gradient *g, mica_buffer *of, mica_buffer *computed, const char *what)
{
    const double h = 1e-5;
    double values[GRADIENT_ALL], got[GRADIENT_ALL];

    get(of, MICA_DTYPE_F64, values);
    get(computed, MICA_DTYPE_F64, got);
    for (uint64_t i = 0; i < count_of(of); i++) {
        const double value = values[i];

        values[i] = value + h;
        put(of, MICA_DTYPE_F64, values);
        const double above = loss(g);
        values[i] = value - h;
        put(of, MICA_DTYPE_F64, values);
        const double difference = (above - loss(g)) / (2 * h);
        values[i] = value;
        if (!(fabs(got[i] - difference) <= 1e-7 * (1 + fabs(difference))))
            fail_msg("op %d, d%s[%llu] is %.9g, differences give %.9g", (int)g->of, what,
                     (unsigned long long)i, got[i], difference);
    }
    put(of, MICA_DTYPE_F64, values);
}

static void test_gradients(void **state)
{
    const mica_dtype f = MICA_DTYPE_F64;
    double x[GRADIENT_ALL], row[8];

    (void)state;
    for (uint32_t of = 0; of < OF_COUNT; of++) {
        gradient g = {.of = (gradient_of)of, .parameters = of == OF_GROUP || of == OF_BATCH ? CHANNELS : 5};
        const bool weighted = of != OF_L2 && of < OF_SOFTMAX, shifted = weighted && of != OF_RMS;

        g.x = drawn(f, 3, SHAPE(3, CHANNELS, 5), x);
        g.weight = drawn(f, 1, &g.parameters, row);
        g.bias = drawn(f, 1, &g.parameters, row);
        g.dy = drawn(f, 3, SHAPE(3, CHANNELS, 5), g.dy_values);
        g.y = empty(f, 3, SHAPE(3, CHANNELS, 5));
        g.dx = empty(f, 3, SHAPE(3, CHANNELS, 5));
        g.dweight = empty(f, 1, &g.parameters);
        g.dbias = empty(f, 1, &g.parameters);
        g.mean = empty(f, 1, &g.parameters);
        g.var = empty(f, 1, &g.parameters);
        mica_encoder *e = begin();
        forward(&g, e);
        backward(&g, e);
        run(e);
        differ(&g, g.x, g.dx, "x");
        if (weighted)
            differ(&g, g.weight, g.dweight, "weight");
        if (shifted)
            differ(&g, g.bias, g.dbias, "bias");
        RELEASE(g.x, g.weight, g.bias, g.dy, g.y, g.dx, g.dweight, g.dbias, g.mean, g.var);
    }
}

/* ---- modulated norms, gated residuals ---- */

static void test_modulated(void **state)
{
    enum { B = 2, T = 3, D = 16, COUNT = B * T * D };
    double x[COUNT], scale[B * D], shift[B * D], gate[B * D], want[COUNT], got[COUNT], error[COUNT],
        none[COUNT];
    const mica_dtype f = MICA_DTYPE_F32;
    const mica_normalize_params params = {.kind = MICA_NORMALIZE_LAYER, .eps = EPS, .offset = 1};
    mica_buffer *bx = drawn(f, 3, SHAPE(B, T, D), x), *bs = drawn(f, 3, SHAPE(B, 1, D), scale),
                *bt = drawn(f, 3, SHAPE(B, 1, D), shift), *bg = drawn(f, 3, SHAPE(B, 1, D), gate),
                *normed = empty(f, 3, SHAPE(B, T, D)), *y = empty(f, 3, SHAPE(B, T, D));
    const oracle_norm norm = {ORACLE_NORM_LAYER, B * T, D, x, NULL, NULL, (double)EPS, 0};
    mica_encoder *e = begin();

    (void)state;
    must(mica_normalize(e, bx, bs, bt, &params, normed, NULL, NULL));
    must(mica_gated_residual(e, bx, bg, normed, y));
    run(e);
    oracle_normalize(&norm, (oracle_numbers){none, error}, (oracle_numbers){0}, (oracle_numbers){0});
    for (size_t i = 0; i < COUNT; i++)
        want[i] = none[i] * (1 + scale[i / (T * D) * D + i % D]) + shift[i / (T * D) * D + i % D];
    get(normed, f, got);
    is_near(got, want, COUNT, F32_ROOM);
    for (size_t i = 0; i < COUNT; i++)
        want[i] = x[i] + gate[i / (T * D) * D + i % D] * want[i];
    get(y, f, got);
    is_near(got, want, COUNT, F32_ROOM);
    RELEASE(bx, bs, bt, bg, normed, y);
}

/* ---- norms with several outputs, and sums around them ---- */

enum { TOKENS = 3, HEADS = 2, DIM = 16, ROWS_ALL = TOKENS * HEADS * DIM, SLOTS = 2 };

/* N(x) * weight over rows of DIM. */
static void want_rms(const double *x, const double *weight, double *y)
{
    double error[ROWS_ALL], weights[ROWS_ALL];
    const oracle_norm norm = {ORACLE_NORM_RMS,         TOKENS * HEADS, DIM,         x,
                              weight ? weights : NULL, NULL,           (double)EPS, 0};

    for (size_t i = 0; i < ROWS_ALL && weight != NULL; i++)
        weights[i] = weight[i % DIM];
    oracle_normalize(&norm, (oracle_numbers){y, error}, (oracle_numbers){0}, (oracle_numbers){0});
}

/* One x, an output in its own layout and a bf16 one with the heads first: a norm each, of which the second has a permuted view. */
static void test_dual_outputs(void **state)
{
    double x[ROWS_ALL], want[ROWS_ALL], got[ROWS_ALL], copy[ROWS_ALL];
    const mica_dtype f = MICA_DTYPE_F32;
    mica_buffer *bx = drawn(f, 3, SHAPE(TOKENS, HEADS, DIM), x), *y = empty(f, 3, SHAPE(TOKENS, HEADS, DIM)),
                *heads = empty(MICA_DTYPE_BF16, 3, SHAPE(HEADS, TOKENS, DIM)),
                *wide = empty(f, 3, SHAPE(HEADS, TOKENS, DIM)), *view = NULL;
    mica_encoder *e = begin();

    (void)state;
    must(mica_buffer_permute(heads, (const uint32_t[]){1, 0, 2}, &view));
    must(mica_rms_norm(e, bx, NULL, EPS, y));
    must(mica_rms_norm(e, bx, NULL, EPS, view));
    must(mica_copy(e, heads, wide));
    run(e);
    want_rms(x, NULL, want);
    get(y, f, got);
    is_near(got, want, ROWS_ALL, F32_ROOM);
    get(wide, f, copy);
    for (size_t t = 0; t < TOKENS; t++)
        for (size_t h = 0; h < HEADS; h++)
            is_near(copy + (h * TOKENS + t) * DIM, want + (t * HEADS + h) * DIM, DIM, 0x1p-8);
    RELEASE(bx, y, heads, wide, view);
}

/* a' = N(attention) w0; sum = hidden + a'; three norms of the sum. */
static void test_triple_norms(void **state)
{
    double a[ROWS_ALL], hidden[ROWS_ALL], w[4][DIM], normed[ROWS_ALL], sum[ROWS_ALL], want[ROWS_ALL],
        got[ROWS_ALL];
    const mica_dtype f = MICA_DTYPE_F32;
    mica_buffer *ba = drawn(f, 3, SHAPE(TOKENS, HEADS, DIM), a),
                *bh = drawn(f, 3, SHAPE(TOKENS, HEADS, DIM), hidden),
                *bs = empty(f, 3, SHAPE(TOKENS, HEADS, DIM)), *bw[4], *y[3];
    mica_encoder *e = begin();

    (void)state;
    for (size_t i = 0; i < 4; i++)
        bw[i] = drawn(f, 1, SHAPE(DIM), w[i]);
    must(mica_rms_norm(e, ba, bw[0], EPS, bs));
    must(mica_add(e, bs, bh, bs));
    for (size_t i = 0; i < 3; i++) {
        y[i] = empty(f, 3, SHAPE(TOKENS, HEADS, DIM));
        must(mica_rms_norm(e, bs, bw[1 + i], EPS, y[i]));
    }
    run(e);
    want_rms(a, w[0], normed);
    for (size_t i = 0; i < ROWS_ALL; i++)
        sum[i] = hidden[i] + normed[i];
    get(bs, f, got);
    is_near(got, sum, ROWS_ALL, F32_ROOM);
    for (size_t i = 0; i < 3; i++) {
        want_rms(sum, w[1 + i], want);
        get(y[i], f, got);
        is_near(got, want, ROWS_ALL, 2 * F32_ROOM);
    }
    release(bw, 4);
    release(y, 3);
    RELEASE(ba, bh, bs);
}

/* N(x) w silu(z); N(residual + x) w s; (residual + N(x) w) s with a scalar and with a row. */
static void test_gate_and_scalar(void **state)
{
    double x[ROWS_ALL], z[ROWS_ALL], w[DIM], s[DIM], sum[ROWS_ALL], normed[ROWS_ALL], want[ROWS_ALL],
        got[ROWS_ALL];
    const mica_dtype f = MICA_DTYPE_F32;
    mica_buffer *bx = drawn(f, 3, SHAPE(TOKENS, HEADS, DIM), x),
                *bz = drawn(f, 3, SHAPE(TOKENS, HEADS, DIM), z), *bw = drawn(f, 1, SHAPE(DIM), w),
                *bs = drawn(f, 1, SHAPE(DIM), s), *one = NULL,
                *gated = empty(f, 3, SHAPE(TOKENS, HEADS, DIM)),
                *scaled = empty(f, 3, SHAPE(TOKENS, HEADS, DIM)),
                *added = empty(f, 3, SHAPE(TOKENS, HEADS, DIM));
    mica_encoder *e = begin();

    (void)state;
    must(mica_buffer_slice(bs, 0, 0, 1, &one));
    must(mica_rms_norm(e, bx, bw, EPS, gated));
    must(mica_silu_mul(e, bz, gated, gated));
    must(mica_add(e, bz, bx, scaled));
    must(mica_rms_norm(e, scaled, bw, EPS, scaled));
    must(mica_mul(e, scaled, one, scaled));
    must(mica_rms_norm(e, bx, bw, EPS, added));
    must(mica_add(e, added, bz, added));
    must(mica_mul(e, added, bs, added));
    run(e);
    want_rms(x, w, normed);
    for (size_t i = 0; i < ROWS_ALL; i++)
        want[i] = normed[i] * (z[i] / (1 + exp(-z[i])));
    get(gated, f, got);
    is_near(got, want, ROWS_ALL, F32_ROOM);
    for (size_t i = 0; i < ROWS_ALL; i++)
        want[i] = (z[i] + normed[i]) * s[i % DIM];
    get(added, f, got);
    is_near(got, want, ROWS_ALL, F32_ROOM);
    for (size_t i = 0; i < ROWS_ALL; i++)
        sum[i] = z[i] + x[i];
    want_rms(sum, w, want);
    for (size_t i = 0; i < ROWS_ALL; i++)
        want[i] *= s[0];
    get(scaled, f, got);
    is_near(got, want, ROWS_ALL, F32_ROOM);
    RELEASE(bx, bz, bw, bs, one, gated, scaled, added);
}

/* v = the weighted sum of experts: residual + N(v) w, and N(residual) w + N(v) w. */
static void test_expert_norms(void **state)
{
    enum { ROWS = TOKENS * HEADS };
    double x[ROWS_ALL * SLOTS], share[ROWS * SLOTS], residual[ROWS_ALL], w[DIM], v[ROWS_ALL], of_v[ROWS_ALL],
        of_residual[ROWS_ALL], want[ROWS_ALL], got[ROWS_ALL];
    const mica_dtype f = MICA_DTYPE_F32;
    mica_buffer *bx = drawn(f, 3, SHAPE(ROWS, SLOTS, DIM), x), *bs = drawn(f, 2, SHAPE(ROWS, SLOTS), share),
                *br = drawn(f, 2, SHAPE(ROWS, DIM), residual), *bw = drawn(f, 1, SHAPE(DIM), w),
                *y = empty(f, 2, SHAPE(ROWS, DIM)), *both = empty(f, 2, SHAPE(ROWS, DIM)),
                *sum = empty(f, 2, SHAPE(ROWS, DIM));
    mica_encoder *e = begin();

    (void)state;
    must(mica_expert_sum(e, bx, bs, NULL, NULL, NULL, sum));
    must(mica_rms_norm(e, sum, bw, EPS, sum));
    must(mica_add(e, sum, br, y));
    must(mica_rms_norm(e, br, bw, EPS, both));
    must(mica_add(e, both, sum, both));
    run(e);
    for (size_t i = 0; i < ROWS_ALL; i++) {
        v[i] = 0;
        for (size_t k = 0; k < SLOTS; k++)
            v[i] += x[(i / DIM * SLOTS + k) * DIM + i % DIM] * share[i / DIM * SLOTS + k];
    }
    want_rms(v, w, of_v);
    want_rms(residual, w, of_residual);
    for (size_t i = 0; i < ROWS_ALL; i++)
        want[i] = residual[i] + of_v[i];
    get(y, f, got);
    is_near(got, want, ROWS_ALL, 2 * F32_ROOM);
    for (size_t i = 0; i < ROWS_ALL; i++)
        want[i] = of_residual[i] + of_v[i];
    get(both, f, got);
    is_near(got, want, ROWS_ALL, 2 * F32_ROOM);
    RELEASE(bx, bs, br, bw, y, both, sum);
}

/* 1 / sqrt(mean(x^2) + eps) of each row alone. */
static void test_statistics_alone(void **state)
{
    double x[ROWS_ALL], want[TOKENS * HEADS], got[TOKENS * HEADS];
    const mica_dtype f = MICA_DTYPE_F32;
    const mica_normalize_params params = {.kind = MICA_NORMALIZE_RMS};
    mica_buffer *bx = drawn(f, 2, SHAPE(TOKENS * HEADS, DIM), x), *var = empty(f, 1, SHAPE(TOKENS * HEADS)),
                *eps = empty(f, 0, NULL);
    mica_encoder *e = begin();

    (void)state;
    must(mica_normalize(e, bx, NULL, NULL, &params, NULL, NULL, var));
    must(mica_fill(e, (double)EPS, eps));
    must(mica_add(e, var, eps, var));
    must(mica_rsqrt(e, var, var));
    run(e);
    for (size_t r = 0; r < TOKENS * HEADS; r++) {
        double sum = 0;

        for (size_t i = 0; i < DIM; i++)
            sum += x[r * DIM + i] * x[r * DIM + i];
        want[r] = 1 / sqrt(sum / DIM + (double)EPS);
    }
    get(var, f, got);
    is_near(got, want, TOKENS * HEADS, F32_ROOM);
    RELEASE(bx, var, eps);
}

/* ---- what is refused ---- */

static void test_refused(void **state)
{
    const mica_dtype f = MICA_DTYPE_F32;
    mica_buffer *x = empty(f, 3, SHAPE(2, 6, 4)), *y = empty(f, 3, SHAPE(2, 6, 4)),
                *row = empty(f, 1, SHAPE(6)), *other = empty(f, 1, SHAPE(5)),
                *wide = empty(MICA_DTYPE_F64, 3, SHAPE(2, 6, 4)), *mean = empty(f, 2, SHAPE(2, 6));
    mica_encoder *e = begin();
    const mica_status bad = MICA_ERR_INVALID_ARGUMENT;
    mica_batch_norm_operands batch = {.x = x, .y = y, .mean = row, .var = row, .running_mean = row};

    (void)state;
    refused(mica_normalize(e, x, NULL, NULL, &(mica_normalize_params){.kind = 3}, y, NULL, NULL), bad,
            "params.kind");
    refused(mica_normalize(e, x, NULL, NULL, &(mica_normalize_params){.dims = 4}, y, NULL, NULL), bad,
            "params.dims");
    refused(mica_normalize(e, x, NULL, NULL, &(mica_normalize_params){.eps = -1}, y, NULL, NULL), bad, "eps");
    refused(mica_normalize(e, x, NULL, NULL, &(mica_normalize_params){.offset = 1.0f / 0.0f}, y, NULL, NULL),
            bad, "params.offset");
    refused(mica_normalize(e, x, NULL, NULL, &(mica_normalize_params){.kind = 1}, y, mean, NULL), bad,
            "mean");
    refused(mica_normalize(e, x, NULL, NULL, NULL, NULL, NULL, NULL), bad, "y, mean and var");
    refused(mica_normalize(e, wide, NULL, NULL, NULL, y, NULL, NULL), bad, "y is f32, but x is f64");
    refused(mica_normalize_backward(e, x, y, NULL, NULL, NULL, NULL, NULL), bad, "dx, dweight and dbias");
    refused(mica_group_norm(e, x, 4, NULL, NULL, EPS, y), bad, "groups is 4");
    refused(mica_group_norm(e, x, 0, NULL, NULL, EPS, y), bad, "groups is 0");
    refused(mica_group_norm(e, x, 2, other, NULL, EPS, y), bad, "weight");
    refused(mica_group_norm(e, row, 2, NULL, NULL, EPS, y), bad, "x has 1");
    refused(mica_instance_norm(e, x, NULL, other, EPS, y), bad, "bias");
    refused(mica_group_norm_backward(e, x, y, 2, NULL, EPS, NULL, row, NULL), bad, "weight is NULL");
    refused(mica_batch_norm(e, x, other, row, NULL, NULL, EPS, y), bad, "mean");
    refused(mica_batch_norm(e, x, row, row, NULL, NULL, -1, y), bad, "eps");
    refused(mica_batch_norm_train(e, &batch, &(mica_batch_norm_params){EPS, 0}), bad, "running_mean");
    batch.running_mean = NULL;
    refused(mica_batch_norm_train(e, &batch, &(mica_batch_norm_params){EPS, 2}), bad, "params.momentum");
    refused(mica_l2_norm(e, x, EPS, NULL), bad, "y is NULL");
    refused(mica_rms_norm(e, wide, row, EPS, wide), bad, "weight");
    refused(mica_log_softmax(e, x, 1.0f / 0.0f, y), bad, "scale");
    refused(mica_softmax_backward(e, x, wide, 1, y), bad, "dy is f64");
    mica_encoder_release(e);
    RELEASE(x, y, row, other, wide, mean);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups),       cmocka_unit_test(test_batches),
        cmocka_unit_test(test_doubles),      cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_modulated),    cmocka_unit_test(test_dual_outputs),
        cmocka_unit_test(test_triple_norms), cmocka_unit_test(test_gate_and_scalar),
        cmocka_unit_test(test_expert_norms), cmocka_unit_test(test_statistics_alone),
        cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests_name("norm", tests, open_device, close_device);
}
