/*
 * test_norm_golden.c - norms, softmax and their gradients against PyTorch, rotary embeddings by several axes against transformers: tests/golden/norm.txt,
 * which scripts/golden_norm.py makes. Norms in f64, on the cpu.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "mica/mica.h"
#include "support/status.h"

enum { N = 3, C = 4, H = 5, W = 2, ALL = N * C * H * W, MOST = 512, TOKENS = 5, HEADS = 2, DIM = 16 };
#define EPS 0x1p-10f
#define SCALE 0.75f
#define SHAPE(...) ((const uint64_t[]){__VA_ARGS__})

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

/* As the script's values(). */
static double value_of(uint64_t slot, uint64_t i)
{
    const uint64_t mixed = ((i + 1) * 2654435761u + slot * 40503) % 4294967296u;

    return ((double)(mixed / 65536 % 65) - 32) / 16;
}

static mica_buffer *empty(mica_dtype dtype, uint32_t ndim, const uint64_t *shape)
{
    mica_buffer *buffer = NULL;

    must(mica_buffer_alloc(device, dtype, ndim, shape, &buffer));
    return buffer;
}

static mica_buffer *given(uint64_t slot, uint32_t ndim, const uint64_t *shape)
{
    mica_buffer *buffer = empty(MICA_DTYPE_F64, ndim, shape);
    double values[MOST];
    uint64_t count = 1;

    for (uint32_t d = 0; d < ndim; d++)
        count *= shape[d];
    for (uint64_t i = 0; i < count; i++)
        values[i] = value_of(slot, i);
    must(mica_buffer_write(buffer, 0, values, count * sizeof *values));
    return buffer;
}

/* Results of a case, as they stand in its line one after the other. */
typedef struct results {
    FILE *file;
    const char *name;
    uint64_t left;
} results;

static results find(const char *name)
{
    results r = {fopen("tests/golden/norm.txt", "rb"), name, 0};
    char word[64] = "";
    double number;

    if (r.file == NULL)
        fail_msg("tests/golden/norm.txt is not there");
    while (fscanf(r.file, "%63s %llu", word, (unsigned long long *)&r.left) == 2 && strcmp(word, name) != 0)
        for (; r.left > 0; r.left--)
            assert_int_equal(fscanf(r.file, "%lf", &number), 1);
    if (strcmp(word, name) != 0)
        fail_msg("%s is not in tests/golden/norm.txt", name);
    return r;
}

static void compare(results *r, const double *got, uint64_t count, double room)
{
    for (uint64_t i = 0; i < count; i++, r->left--) {
        double want = 0;

        assert_true(r->left > 0 && fscanf(r->file, "%lf", &want) == 1);
        if (!(fabs(got[i] - want) <= room * (1 + fabs(want))))
            fail_msg("%s: result %llu is %.12g, wanted %.12g", r->name, (unsigned long long)i, got[i], want);
    }
}

/* f64 of some dozens of terms; the file has 15 digits. */
static void compare_buffer(results *r, mica_buffer *buffer, uint64_t count)
{
    double got[MOST];

    must(mica_buffer_read(buffer, 0, got, count * sizeof *got));
    compare(r, got, count, 1e-13);
}

static void end(results *r)
{
    assert_int_equal(r->left, 0);
    fclose(r->file);
}

static void test_norms(void **state)
{
    static const char *const names[] = {"layer_norm", "rms_norm", "group_norm", "instance_norm",
                                        "batch_norm", "softmax",  "log_softmax"};
    enum { LAYER, RMS, GROUP, INSTANCE, BATCH, SOFTMAX, LOG_SOFTMAX, COUNT };

    (void)state;
    for (int k = 0; k < COUNT; k++) {
        const uint64_t parameters = k == LAYER || k == RMS ? W : C;
        mica_buffer *x = given(0, 4, SHAPE(N, C, H, W)), *dy = given(3, 4, SHAPE(N, C, H, W)),
                    *weight = given(1, 1, &parameters), *bias = given(2, 1, &parameters),
                    *y = empty(MICA_DTYPE_F64, 4, SHAPE(N, C, H, W)),
                    *dx = empty(MICA_DTYPE_F64, 4, SHAPE(N, C, H, W)),
                    *dweight = empty(MICA_DTYPE_F64, 1, &parameters),
                    *dbias = empty(MICA_DTYPE_F64, 1, &parameters), *running_mean = given(4, 1, SHAPE(C)),
                    *running_var = given(5, 1, SHAPE(C)), *mean = empty(MICA_DTYPE_F64, 1, SHAPE(C)),
                    *var = empty(MICA_DTYPE_F64, 1, SHAPE(C));
        const mica_batch_norm_operands batch = {x, weight, bias, running_mean, running_var,
                                                y, mean,   var,  running_mean, running_var};
        mica_encoder *e = NULL;
        results r = find(names[k]);

        must(mica_encoder_begin(device, NULL, &e));
        switch (k) {
        case LAYER:
            must(mica_layer_norm(e, x, weight, bias, EPS, y));
            must(mica_layer_norm_backward(e, x, dy, weight, EPS, dx, dweight, dbias));
            break;
        case RMS:
            must(mica_rms_norm(e, x, weight, EPS, y));
            must(mica_rms_norm_backward(e, x, dy, weight, EPS, dx, dweight));
            break;
        case GROUP:
            must(mica_group_norm(e, x, 2, weight, bias, EPS, y));
            must(mica_group_norm_backward(e, x, dy, 2, weight, EPS, dx, dweight, dbias));
            break;
        case INSTANCE:
            must(mica_instance_norm(e, x, weight, bias, EPS, y));
            must(mica_group_norm_backward(e, x, dy, C, weight, EPS, dx, dweight, dbias));
            break;
        case BATCH:
            must(mica_batch_norm_train(e, &batch, &(mica_batch_norm_params){EPS, 0.25f}));
            must(mica_batch_norm_backward(e, x, dy, weight, EPS, dx, dweight, dbias));
            break;
        case SOFTMAX:
            must(mica_softmax(e, x, SCALE, y));
            must(mica_softmax_backward(e, y, dy, SCALE, dx));
            break;
        default:
            must(mica_log_softmax(e, x, SCALE, y));
            must(mica_log_softmax_backward(e, y, dy, SCALE, dx));
            break;
        }
        must(mica_encoder_commit_and_wait(e));
        mica_encoder_release(e);
        compare_buffer(&r, y, ALL);
        compare_buffer(&r, dx, ALL);
        if (k < SOFTMAX)
            compare_buffer(&r, dweight, parameters);
        if (k < SOFTMAX && k != RMS)
            compare_buffer(&r, dbias, parameters);
        if (k == BATCH) {
            compare_buffer(&r, running_mean, C);
            compare_buffer(&r, running_var, C);
        }
        end(&r);
        mica_buffer *const all[] = {x,       dy,    weight,       bias,        y,    dx,
                                    dweight, dbias, running_mean, running_var, mean, var};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            mica_buffer_release(all[i]);
    }
}

static void test_ropes(void **state)
{
    static const mica_rope_params params[] = {
        {.mode = MICA_ROPE_NEOX, .theta = 100, .axes = MICA_ROPE_AXES_SECTIONS, .sections = {2, 3, 3}},
        {.mode = MICA_ROPE_NEOX, .theta = 100, .axes = MICA_ROPE_AXES_INTERLEAVED, .sections = {3, 3, 2}}};
    static const char *const names[] = {"rope_sections", "rope_interleaved"};

    (void)state;
    for (size_t k = 0; k < 2; k++) {
        float x[TOKENS * HEADS * DIM];
        double got[TOKENS * HEADS * DIM];
        uint32_t at[3 * TOKENS];
        mica_buffer *bx = empty(MICA_DTYPE_F32, 3, SHAPE(TOKENS, HEADS, DIM)),
                    *positions = empty(MICA_DTYPE_U32, 2, SHAPE(3, TOKENS));
        mica_encoder *e = NULL;
        results r = find(names[k]);

        for (uint64_t i = 0; i < TOKENS * HEADS * DIM; i++)
            x[i] = (float)value_of(6, i);
        for (uint32_t i = 0; i < 3 * TOKENS; i++)
            at[i] = (i % TOKENS * (i / TOKENS + 1) * 7 + i / TOKENS) % 23;
        must(mica_buffer_write(bx, 0, x, sizeof x));
        must(mica_buffer_write(positions, 0, at, sizeof at));
        must(mica_encoder_begin(device, NULL, &e));
        must(mica_rope(e, bx, positions, NULL, &params[k], bx));
        must(mica_encoder_commit_and_wait(e));
        mica_encoder_release(e);
        must(mica_buffer_read(bx, 0, x, sizeof x));
        for (size_t i = 0; i < TOKENS * HEADS * DIM; i++)
            got[i] = (double)x[i];
        compare(&r, got, TOKENS * HEADS * DIM,
                1e-6); /* f32 cosines and sines, two products and a sum of up to 2 each */
        end(&r);
        mica_buffer_release(bx);
        mica_buffer_release(positions);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_norms), cmocka_unit_test(test_ropes)};

    return cmocka_run_group_tests_name("norm_golden", tests, open_device, close_device);
}
