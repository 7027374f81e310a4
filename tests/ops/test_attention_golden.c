/*
 * test_attention_golden.c - attention and its gradient against PyTorch and transformers: tests/golden/attention.txt, made by scripts/golden_attention.py, which
 * says how it is written. In f64 on the cpu, and in f32 on every device as far as that reaches.
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
#include "support/devices.h"
#include "support/status.h"

#define FILE_NAME "tests/golden/attention.txt"
#define MOST 512 /* numbers of an array */
/* Theirs are float64 and written to 13 digits; Gemma's and DeepSeek's weights go through one float32: 2^-24 of each, through sums of 9 terms. */
#define NEAR_F64 1e-11
#define NEAR_GEMMA 2e-6
/* Sums of up to 9 keys of heads of 6, then of up to 10 queries, of numbers below 8: some 40 roundings of 2^-24 of that. */
#define NEAR_F32 2e-5

enum {
    Q,
    K,
    V,
    DY,
    ANSWER_Y,
    ANSWER_DQ,
    ANSWER_DK,
    ANSWER_DV,
    SINKS,
    ANSWER_DSINKS,
    MASK,
    HIDES,
    SLOPES,
    STARTS,
    UP,
    ARRAYS
};
static const char *const names[ARRAYS] = {"q",     "k",      "v",    "dy",    "y",      "dq",     "dk", "dv",
                                          "sinks", "dsinks", "mask", "hides", "slopes", "starts", "up"};

typedef struct golden_case {
    char name[64];
    uint64_t tokens, heads, kv_heads, keys, dim, v_dim;
    mica_attention_params params;
    uint64_t count[ARRAYS];
    double value[ARRAYS][MOST];
} golden_case;

static mica_device *device;

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
    uint32_t value[32];
    mica_buffer *buffer = made(MICA_DTYPE_U32, 1, &count);

    for (uint64_t i = 0; i < count; i++)
        value[i] = (uint32_t)(first + i);
    must(mica_buffer_write(buffer, 0, value, count * sizeof *value));
    return buffer;
}

static void compare(const golden_case *c, uint32_t array, mica_dtype dtype, mica_buffer *got)
{
    const double near = dtype == MICA_DTYPE_F32                                                ? NEAR_F32
                        : strncmp(c->name, "gemma", 5) == 0 || strncmp(c->name, "mla", 3) == 0 ? NEAR_GEMMA
                                                                                               : NEAR_F64;
    double wide[MOST];
    float single[MOST];
    const uint64_t count = got != NULL ? c->count[array] : 0;

    if (count == 0)
        return;
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

static void release(mica_buffer *const *all, size_t count)
{
    for (size_t i = 0; i < count; i++)
        mica_buffer_release(all[i]);
}

static mica_attention_operands operands_of(const golden_case *c, mica_dtype dtype)
{
    const uint64_t q[3] = {c->tokens, c->heads, c->dim}, k[3] = {c->keys, c->kv_heads, c->dim},
                   v[3] = {c->keys, c->kv_heads, c->v_dim}, mask[3] = {c->heads, c->tokens, c->keys};
    mica_buffer *hides = given(c, HIDES, MICA_DTYPE_BOOL, 3, mask), *added = given(c, MASK, dtype, 3, mask);

    return (mica_attention_operands){.q = given(c, Q, dtype, 3, q),
                                     .k = given(c, K, dtype, 3, k),
                                     .v = given(c, V, dtype, 3, v),
                                     .positions = indices(c->keys - c->tokens, c->tokens),
                                     .lengths = indices(c->keys, 1),
                                     .mask = hides != NULL ? hides : added,
                                     .sinks = given(c, SINKS, dtype, 1, &c->heads),
                                     .slopes = given(c, SLOPES, dtype, 1, &c->heads),
                                     .lse = made(dtype, 2, (uint64_t[]){c->tokens, c->heads})};
}

/* Both ops, one behind the other. */
static void run(const golden_case *c, mica_dtype dtype)
{
    const uint64_t q[3] = {c->tokens, c->heads, c->dim}, k[3] = {c->keys, c->kv_heads, c->dim},
                   v[3] = {c->keys, c->kv_heads, c->v_dim}, y[3] = {c->tokens, c->heads, c->v_dim};
    const mica_attention_operands forward = operands_of(c, dtype);
    mica_buffer *out = made(dtype, 3, y);
    const mica_attention_backward_operands backward = {
        .q = forward.q,
        .k = forward.k,
        .v = forward.v,
        .positions = forward.positions,
        .lengths = forward.lengths,
        .mask = forward.mask,
        .sinks = forward.sinks,
        .slopes = forward.slopes,
        .y = out,
        .lse = forward.lse,
        .dy = given(c, DY, dtype, 3, y),
        .dq = made(dtype, 3, q),
        .dk = made(dtype, 3, k),
        .dv = made(dtype, 3, v),
        .dsinks = forward.sinks != NULL ? made(dtype, 1, &c->heads) : NULL};
    mica_encoder *encoder = NULL;

    must(mica_encoder_begin(device, NULL, &encoder));
    must(mica_attention(encoder, &forward, &c->params, out));
    if (backward.dy != NULL)
        must(mica_attention_backward(encoder, &backward, &c->params));
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    compare(c, ANSWER_Y, dtype, out);
    compare(c, ANSWER_DQ, dtype, backward.dq);
    compare(c, ANSWER_DK, dtype, backward.dk);
    compare(c, ANSWER_DV, dtype, backward.dv);
    if (backward.dsinks != NULL)
        compare(c, ANSWER_DSINKS, dtype, backward.dsinks);
    mica_buffer *const all[] = {forward.q,         forward.k,       forward.v,
                                forward.positions, forward.lengths, forward.mask,
                                forward.sinks,     forward.slopes,  out,
                                forward.lse,       backward.dy,     backward.dq,
                                backward.dk,       backward.dv,     backward.dsinks};
    release(all, sizeof all / sizeof *all);
}

/* Sequences one behind another are pages of one slot (docs/attention.md). */
static void run_packed(const golden_case *c, mica_dtype dtype)
{
    enum { SEQUENCES = 4, LONGEST = 8, TOKENS = 32 };
    const uint64_t k[4] = {c->keys, 1, c->kv_heads, c->dim}, v[4] = {c->keys, 1, c->kv_heads, c->v_dim},
                   y[3] = {c->tokens, c->heads, c->v_dim}, table[2] = {SEQUENCES, LONGEST};
    uint32_t pages[SEQUENCES * LONGEST] = {0}, lengths[SEQUENCES], sequences[TOKENS], positions[TOKENS];
    mica_attention_operands forward = operands_of(c, dtype);
    mica_buffer *flat[2] = {forward.k, forward.v}, *out = made(dtype, 3, y);
    mica_encoder *encoder = NULL;

    assert_int_equal(c->count[STARTS], SEQUENCES + 1);
    for (uint32_t s = 0; s < SEQUENCES; s++) {
        const uint32_t start = (uint32_t)c->value[STARTS][s];

        lengths[s] = (uint32_t)c->value[STARTS][s + 1] - start;
        for (uint32_t j = 0; j < lengths[s]; j++) {
            pages[s * LONGEST + j] = start + j;
            sequences[start + j] = s;
            positions[start + j] = j;
        }
    }
    must(mica_buffer_reshape(flat[0], 4, k, &forward.k));
    must(mica_buffer_reshape(flat[1], 4, v, &forward.v));
    mica_buffer_release(forward.lengths);
    forward.lengths = made(MICA_DTYPE_U32, 1, table);
    forward.sequences = made(MICA_DTYPE_U32, 1, &c->tokens);
    forward.pages = made(MICA_DTYPE_U32, 2, table);
    must(mica_buffer_write(forward.positions, 0, positions, c->tokens * 4));
    must(mica_buffer_write(forward.lengths, 0, lengths, sizeof lengths));
    must(mica_buffer_write(forward.sequences, 0, sequences, c->tokens * 4));
    must(mica_buffer_write(forward.pages, 0, pages, sizeof pages));
    must(mica_encoder_begin(device, NULL, &encoder));
    must(mica_attention(encoder, &forward, &c->params, out));
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    compare(c, ANSWER_Y, dtype, out);
    mica_buffer *const all[] = {forward.q,
                                forward.k,
                                forward.v,
                                forward.positions,
                                forward.lengths,
                                forward.sequences,
                                forward.pages,
                                forward.lse,
                                flat[0],
                                flat[1],
                                out};
    release(all, sizeof all / sizeof *all);
}

/* Values are the first part of the latents, where they lie; what comes out goes through each head's projection. */
static void run_absorbed(const golden_case *c, mica_dtype dtype)
{
    static const uint32_t heads_first[3] = {1, 0, 2}, turned[3] = {0, 2, 1};
    const uint64_t size = c->count[ANSWER_Y] / c->tokens / c->heads, y[3] = {c->tokens, c->heads, c->v_dim},
                   up[3] = {c->heads, size, c->v_dim}, answer[3] = {c->tokens, c->heads, size};
    mica_attention_operands forward = operands_of(c, dtype);
    mica_buffer *copy = forward.v, *of = given(c, UP, dtype, 3, up), *latents = made(dtype, 3, y),
                *out = made(dtype, 3, answer), *view[3];
    mica_encoder *encoder = NULL;

    must(mica_buffer_slice(forward.k, 2, 0, c->v_dim, &forward.v));
    must(mica_buffer_permute(latents, heads_first, &view[0]));
    must(mica_buffer_permute(of, turned, &view[1]));
    must(mica_buffer_permute(out, heads_first, &view[2]));
    must(mica_encoder_begin(device, NULL, &encoder));
    must(mica_attention(encoder, &forward, &c->params, latents));
    must(mica_product(encoder, view[0], view[1], NULL, view[2]));
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    compare(c, ANSWER_Y, dtype, out);
    mica_buffer *const all[] = {forward.q,   forward.k, forward.v, forward.positions, forward.lengths,
                                forward.lse, copy,      of,        latents,           out,
                                view[0],     view[1],   view[2]};
    release(all, sizeof all / sizeof *all);
}

static void run_any(const golden_case *c, mica_dtype dtype)
{
    (c->count[STARTS] > 0 ? run_packed : c->count[UP] > 0 ? run_absorbed : run)(c, dtype);
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
        device = devices[0];
        run_any(c, MICA_DTYPE_F64);
        for (int d = 0; d < DEVICES; d++) {
            device = devices[d];
            if (device != NULL)
                run_any(c, MICA_DTYPE_F32);
        }
    }
    assert_int_equal(cases, 14);
    free(c);
    fclose(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden)};
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
