/*
 * test_attention_golden.c - attention and its gradient against PyTorch and transformers: tests/golden/attention.txt, made by scripts/golden_attention.py, which
 * says how it is written. In f64, and in f32 as far as that reaches.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "mica/mica.h"
#include "support/status.h"

#define FILE_NAME "tests/golden/attention.txt"
#define MOST 512 /* numbers of an array */
/* Theirs are float64 and written to 13 digits; Gemma's weights go through one float32: 2^-24 of each, through sums of 9 terms. */
#define NEAR_F64 1e-11
#define NEAR_GEMMA 2e-6
/* Sums of up to 9 keys of heads of 6, then of up to 10 queries, of numbers below 8: some 40 roundings of 2^-24 of that. */
#define NEAR_F32 2e-5

enum { Q, K, V, DY, ANSWER_Y, ANSWER_DQ, ANSWER_DK, ANSWER_DV, SINKS, ANSWER_DSINKS, MASK, HIDES, ARRAYS };
static const char *const names[ARRAYS] = {"q",  "k",  "v",     "dy",     "y",    "dq",
                                          "dk", "dv", "sinks", "dsinks", "mask", "hides"};

typedef struct golden_case {
    char name[64];
    uint64_t tokens, heads, kv_heads, keys, dim, v_dim;
    mica_attention_params params;
    uint64_t count[ARRAYS];
    double value[ARRAYS][MOST];
} golden_case;

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

/* The arrays of a case up to its "end". */
static void read_arrays(FILE *file, golden_case *c)
{
    char word[64];
    unsigned long long count;

    while (fscanf(file, "%63s", word) == 1 && strcmp(word, "end") != 0) {
        uint32_t at = 0;

        while (at < ARRAYS && strcmp(word, names[at]) != 0)
            at++;
        assert_true(at < ARRAYS && fscanf(file, "%llu", &count) == 1 && count <= MOST);
        c->count[at] = count;
        for (uint64_t i = 0; i < count; i++)
            assert_int_equal(fscanf(file, "%lf", &c->value[at][i]), 1);
    }
}

static bool read_case(FILE *file, golden_case *c)
{
    unsigned long long n[6];

    memset(c, 0, sizeof *c);
    if (fscanf(file, " case %63s %llu %llu %llu %llu %llu %llu %u %u %f %f", c->name, &n[0], &n[1], &n[2],
               &n[3], &n[4], &n[5], &c->params.bidirectional, &c->params.window, &c->params.softcap,
               &c->params.scale) != 11)
        return false;
    c->tokens = n[0], c->heads = n[1], c->kv_heads = n[2], c->keys = n[3], c->dim = n[4], c->v_dim = n[5];
    read_arrays(file, c);
    return true;
}

static mica_buffer *made(mica_dtype dtype, uint32_t ndim, const uint64_t *shape)
{
    mica_buffer *buffer = NULL;

    must(mica_buffer_alloc(device, dtype, ndim, shape, &buffer));
    return buffer;
}

/* An array as a buffer; NULL where the case has none. */
static mica_buffer *given(const golden_case *c, uint32_t array, mica_dtype dtype, uint32_t ndim,
                          const uint64_t *shape)
{
    const uint64_t count = c->count[array];
    float single[MOST];
    uint8_t truth[MOST];

    if (count == 0)
        return NULL;
    mica_buffer *buffer = made(dtype, ndim, shape);
    for (uint64_t i = 0; i < count; i++) {
        single[i] = (float)c->value[array][i];
        truth[i] = c->value[array][i] != 0;
    }
    const void *source = dtype == MICA_DTYPE_F64   ? (const void *)c->value[array]
                         : dtype == MICA_DTYPE_F32 ? (const void *)single
                                                   : (const void *)truth;
    must(mica_buffer_write(buffer, 0, source,
                           count * (dtype == MICA_DTYPE_F64   ? sizeof(double)
                                    : dtype == MICA_DTYPE_F32 ? sizeof(float)
                                                              : 1)));
    return buffer;
}

static mica_buffer *indices(uint64_t first, uint64_t count)
{
    uint32_t value[16];
    mica_buffer *buffer = made(MICA_DTYPE_U32, 1, &count);

    for (uint64_t i = 0; i < count; i++)
        value[i] = (uint32_t)(first + i);
    must(mica_buffer_write(buffer, 0, value, count * sizeof *value));
    return buffer;
}

static void compare(const golden_case *c, uint32_t array, mica_dtype dtype, mica_buffer *got)
{
    const double near = dtype == MICA_DTYPE_F32             ? NEAR_F32
                        : strncmp(c->name, "gemma", 5) == 0 ? NEAR_GEMMA
                                                            : NEAR_F64;
    double wide[MOST];
    float single[MOST];
    const uint64_t count = c->count[array];

    if (dtype == MICA_DTYPE_F64)
        must(mica_buffer_read(got, 0, wide, count * sizeof *wide));
    else
        must(mica_buffer_read(got, 0, single, count * sizeof *single));
    for (uint64_t i = 0; i < count; i++) {
        const double value = dtype == MICA_DTYPE_F64 ? wide[i] : (double)single[i];

        if (!(fabs(value - c->value[array][i]) <= near))
            fail_msg("%s, %s: %s[%llu] is %.13g, theirs %.13g", c->name, mica_dtype_name(dtype), names[array],
                     (unsigned long long)i, value, c->value[array][i]);
    }
}

/* Both ops, one behind the other. */
static void run(const golden_case *c, mica_dtype dtype)
{
    const uint64_t q[3] = {c->tokens, c->heads, c->dim}, k[3] = {c->keys, c->kv_heads, c->dim},
                   v[3] = {c->keys, c->kv_heads, c->v_dim}, y[3] = {c->tokens, c->heads, c->v_dim},
                   mask[3] = {c->heads, c->tokens, c->keys};
    mica_buffer *hides = given(c, HIDES, MICA_DTYPE_BOOL, 3, mask), *added = given(c, MASK, dtype, 3, mask);
    mica_buffer *out = made(dtype, 3, y), *lse = made(dtype, 2, y);
    const mica_attention_operands forward = {.q = given(c, Q, dtype, 3, q),
                                             .k = given(c, K, dtype, 3, k),
                                             .v = given(c, V, dtype, 3, v),
                                             .positions = indices(c->keys - c->tokens, c->tokens),
                                             .lengths = indices(c->keys, 1),
                                             .mask = hides != NULL ? hides : added,
                                             .sinks = given(c, SINKS, dtype, 1, &c->heads),
                                             .lse = lse};
    const mica_attention_backward_operands backward = {
        .q = forward.q,
        .k = forward.k,
        .v = forward.v,
        .positions = forward.positions,
        .lengths = forward.lengths,
        .mask = forward.mask,
        .sinks = forward.sinks,
        .y = out,
        .lse = lse,
        .dy = given(c, DY, dtype, 3, y),
        .dq = made(dtype, 3, q),
        .dk = made(dtype, 3, k),
        .dv = made(dtype, 3, v),
        .dsinks = forward.sinks != NULL ? made(dtype, 1, &c->heads) : NULL};
    mica_encoder *encoder = NULL;

    must(mica_encoder_begin(device, NULL, &encoder));
    must(mica_attention(encoder, &forward, &c->params, out));
    must(mica_attention_backward(encoder, &backward, &c->params));
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    compare(c, ANSWER_Y, dtype, out);
    compare(c, ANSWER_DQ, dtype, backward.dq);
    compare(c, ANSWER_DK, dtype, backward.dk);
    compare(c, ANSWER_DV, dtype, backward.dv);
    if (backward.dsinks != NULL)
        compare(c, ANSWER_DSINKS, dtype, backward.dsinks);
    mica_buffer *const all[] = {
        forward.q, forward.k, forward.v,   forward.positions, forward.lengths, forward.mask, forward.sinks,
        out,       lse,       backward.dy, backward.dq,       backward.dk,     backward.dv,  backward.dsinks};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mica_buffer_release(all[i]);
}

static void test_golden(void **state)
{
    FILE *file = fopen(FILE_NAME, "r");
    golden_case *c = malloc(sizeof *c);
    uint32_t cases = 0;

    (void)state;
    if (file == NULL)
        fail_msg("%s is not there", FILE_NAME);
    assert_non_null(c);
    for (; read_case(file, c); cases++) {
        run(c, MICA_DTYPE_F64);
        run(c, MICA_DTYPE_F32);
    }
    assert_int_equal(cases, 9);
    free(c);
    fclose(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden)};
    return cmocka_run_group_tests(tests, open_device, close_device);
}
