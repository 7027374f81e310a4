/*
 * test_norm_golden.c - norms, softmax and their gradients against PyTorch, rotary embeddings by several axes against transformers: tests/golden/norm.txt,
 * which scripts/golden_norm.py makes. Norms in f64 on the cpu, in f32 on every device.
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
#include "support/devices.h"
#include "support/status.h"

enum { N = 3, C = 4, H = 5, W = 2, ALL = N * C * H * W, MOST = 512, TOKENS = 5, HEADS = 2, DIM = 16 };
#define EPS 0x1p-10f
#define SCALE 0.75f
/* f64 of some dozens of terms, the file has 15 digits; f32 of some dozens of terms of up to 2, over roots of 2^-10 and more: 32 times 2 times some
 * ten roundings. */
#define NEAR_F64 1e-13
#define NEAR_F32 4e-5

static mica_device *device;

static mica_dtype type; /* of the norms */

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
    mica_buffer *buffer = empty(type, ndim, shape);
    double values[MOST];
    float narrow[MOST];
    uint64_t count = 1;

    for (uint32_t d = 0; d < ndim; d++)
        count *= shape[d];
    for (uint64_t i = 0; i < count; i++) {
        values[i] = value_of(slot, i);
        narrow[i] = (float)values[i];
    }
    if (type == MICA_DTYPE_F64)
        must(mica_buffer_write(buffer, 0, values, count * sizeof *values));
    else
        must(mica_buffer_write(buffer, 0, narrow, count * sizeof *narrow));
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

static void compare_buffer(results *r, mica_buffer *buffer, uint64_t count)
{
    double got[MOST];
    float narrow[MOST];

    if (type == MICA_DTYPE_F64)
        must(mica_buffer_read(buffer, 0, got, count * sizeof *got));
    else
        must(mica_buffer_read(buffer, 0, narrow, count * sizeof *narrow));
    for (uint64_t i = 0; i < count && type != MICA_DTYPE_F64; i++)
        got[i] = (double)narrow[i];
    compare(r, got, count, type == MICA_DTYPE_F64 ? NEAR_F64 : NEAR_F32);
}

static void end(results *r)
{
    assert_int_equal(r->left, 0);
    fclose(r->file);
}

/* A mask of bool: what is above -1/2, and the first of each row. */
static mica_buffer *hiding(void)
{
    mica_buffer *mask = empty(MICA_DTYPE_BOOL, 2, SHAPE(H, W));
    uint8_t truth[H * W];

    for (uint64_t i = 0; i < sizeof truth; i++)
        truth[i] = i % W == 0 || value_of(7, i) > -0.5;
    must(mica_buffer_write(mask, 0, truth, sizeof truth));
    return mask;
}

static const char *const kinds[] = {"layer_norm",    "rms_norm",      "group_norm", "instance_norm",
                                    "batch_norm",    "l2_norm",       "softmax",    "log_softmax",
                                    "softmax_added", "softmax_hidden"};
enum { LAYER, RMS, GROUP, INSTANCE, BATCH, L2, SOFTMAX, LOG_SOFTMAX, ADDED, HIDDEN, KINDS };
enum { X, DY, WEIGHT, BIAS, Y, DX, DWEIGHT, DBIAS, RUNNING_MEAN, RUNNING_VAR, MEAN, VAR, MASK, BUFFERS };

static void make_buffers(int kind, uint64_t parameters, mica_buffer **b)
{
    const uint64_t *all = SHAPE(N, C, H, W), channels = C;

    b[X] = given(0, 4, all);
    b[DY] = given(3, 4, all);
    b[WEIGHT] = given(1, 1, &parameters);
    b[BIAS] = given(2, 1, &parameters);
    b[Y] = empty(type, 4, all);
    b[DX] = empty(type, 4, all);
    b[DWEIGHT] = empty(type, 1, &parameters);
    b[DBIAS] = empty(type, 1, &parameters);
    b[RUNNING_MEAN] = given(4, 1, &channels);
    b[RUNNING_VAR] = given(5, 1, &channels);
    b[MEAN] = empty(type, 1, &channels);
    b[VAR] = empty(type, 1, &channels);
    b[MASK] = kind == HIDDEN ? hiding() : given(7, 2, SHAPE(H, W));
}

static void encode_norm(int kind, mica_encoder *e, mica_buffer *const *b)
{
    const mica_batch_norm_operands batch = {b[X], b[WEIGHT], b[BIAS], b[RUNNING_MEAN], b[RUNNING_VAR],
                                            b[Y], b[MEAN],   b[VAR],  b[RUNNING_MEAN], b[RUNNING_VAR]};
    const mica_normalize_params l2 = {.kind = MICA_NORMALIZE_L2, .eps = EPS};

    switch (kind) {
    case LAYER:
        must(mica_layer_norm(e, b[X], b[WEIGHT], b[BIAS], EPS, b[Y]));
        must(mica_layer_norm_backward(e, b[X], b[DY], b[WEIGHT], EPS, b[DX], b[DWEIGHT], b[DBIAS]));
        break;
    case RMS:
        must(mica_rms_norm(e, b[X], b[WEIGHT], EPS, b[Y]));
        must(mica_rms_norm_backward(e, b[X], b[DY], b[WEIGHT], EPS, b[DX], b[DWEIGHT]));
        break;
    case GROUP:
        must(mica_group_norm(e, b[X], 2, b[WEIGHT], b[BIAS], EPS, b[Y]));
        must(mica_group_norm_backward(e, b[X], b[DY], 2, b[WEIGHT], EPS, b[DX], b[DWEIGHT], b[DBIAS]));
        break;
    case INSTANCE:
        must(mica_instance_norm(e, b[X], b[WEIGHT], b[BIAS], EPS, b[Y]));
        must(mica_group_norm_backward(e, b[X], b[DY], C, b[WEIGHT], EPS, b[DX], b[DWEIGHT], b[DBIAS]));
        break;
    case BATCH:
        must(mica_batch_norm_train(e, &batch, &(mica_batch_norm_params){EPS, 0.25f}));
        must(mica_batch_norm_backward(e, b[X], b[DY], b[WEIGHT], EPS, b[DX], b[DWEIGHT], b[DBIAS]));
        break;
    default:
        must(mica_l2_norm(e, b[X], EPS, b[Y]));
        must(mica_normalize_backward(e, b[X], b[DY], NULL, &l2, b[DX], NULL, NULL));
        break;
    }
}

static void encode_softmax(int kind, mica_encoder *e, mica_buffer *const *b)
{
    if (kind == LOG_SOFTMAX) {
        must(mica_log_softmax(e, b[X], SCALE, b[Y]));
        must(mica_log_softmax_backward(e, b[Y], b[DY], SCALE, b[DX]));
        return;
    }
    if (kind == SOFTMAX)
        must(mica_softmax(e, b[X], SCALE, b[Y]));
    else
        must(mica_masked_softmax(e, b[X], b[MASK], SCALE, b[Y]));
    must(mica_softmax_backward(e, b[Y], b[DY], SCALE, b[DX]));
}

static void check_norm(int kind)
{
    const uint64_t parameters = kind == LAYER || kind == RMS ? W : C;
    mica_buffer *b[BUFFERS];
    mica_encoder *e = NULL;
    results r = find(kinds[kind]);

    make_buffers(kind, parameters, b);
    must(mica_encoder_begin(device, NULL, &e));
    (kind < SOFTMAX ? encode_norm : encode_softmax)(kind, e, b);
    must(mica_encoder_commit_and_wait(e));
    mica_encoder_release(e);
    compare_buffer(&r, b[Y], ALL);
    compare_buffer(&r, b[DX], ALL);
    if (kind < L2)
        compare_buffer(&r, b[DWEIGHT], parameters);
    if (kind < L2 && kind != RMS)
        compare_buffer(&r, b[DBIAS], parameters);
    if (kind == BATCH) {
        compare_buffer(&r, b[RUNNING_MEAN], C);
        compare_buffer(&r, b[RUNNING_VAR], C);
    }
    end(&r);
    for (size_t i = 0; i < BUFFERS; i++)
        mica_buffer_release(b[i]);
}

static void test_norms(void **state)
{
    (void)state;
    for (int d = 0; d < DEVICES; d++)
        for (int wide = 0; wide < (d == 0 ? 2 : 1); wide++) {
            device = devices[d];
            type = wide != 0 ? MICA_DTYPE_F64 : MICA_DTYPE_F32;
            for (int kind = 0; kind < KINDS && device != NULL; kind++)
                check_norm(kind);
        }
}

static void check_ropes(void)
{
    static const mica_rope_params params[] = {
        {.mode = MICA_ROPE_NEOX, .theta = 100, .axes = MICA_ROPE_AXES_SECTIONS, .sections = {2, 3, 3}},
        {.mode = MICA_ROPE_NEOX, .theta = 100, .axes = MICA_ROPE_AXES_INTERLEAVED, .sections = {3, 3, 2}},
        {.mode = MICA_ROPE_NEOX, .theta = 100, .axes = MICA_ROPE_AXES_SEPARATE, .sections = {4, 4}},
        {.mode = MICA_ROPE_NEOX, .theta = 100}};
    static const char *const names[] = {"rope_sections", "rope_interleaved", "rope_vision", "rope_2d"};

    for (size_t k = 0; k < 4; k++) {
        const uint32_t axes = k < 2 ? 3 : 2;
        float x[TOKENS * HEADS * DIM];
        double got[TOKENS * HEADS * DIM];
        uint32_t at[3 * TOKENS];
        mica_buffer *bx = empty(MICA_DTYPE_F32, 3, SHAPE(TOKENS, HEADS, DIM)),
                    *positions = empty(MICA_DTYPE_U32, 2, SHAPE(axes, TOKENS));
        mica_encoder *e = NULL;
        results r = find(names[k]);

        for (uint64_t i = 0; i < TOKENS * HEADS * DIM; i++)
            x[i] = (float)value_of(6, i);
        for (uint32_t i = 0; i < 3 * TOKENS; i++)
            at[i] = k < 2             ? (i % TOKENS * (i / TOKENS + 1) * 7 + i / TOKENS) % 23
                    : i / TOKENS == 0 ? i % TOKENS * 3 % 7
                                      : i % TOKENS * 5 % 11;
        must(mica_buffer_write(bx, 0, x, sizeof x));
        must(mica_buffer_write(positions, 0, at, axes * TOKENS * sizeof *at));
        must(mica_encoder_begin(device, NULL, &e));
        if (k == 3)
            must(mica_rope_2d(e, bx, positions, &params[k], bx));
        else
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

static void test_ropes(void **state)
{
    (void)state;
    for (int d = 0; d < DEVICES; d++) {
        device = devices[d];
        if (device != NULL)
            check_ropes();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_norms), cmocka_unit_test(test_ropes)};

    return cmocka_run_group_tests_name("norm_golden", tests, open_devices, close_devices);
}
