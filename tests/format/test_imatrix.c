/* test_imatrix.c - importance matrices: what they change, one per expert, and which are refused. */
#define _DEFAULT_SOURCE
#include "rewrite_rig.h"

#include <math.h>

#define COLUMNS 256u
#define EXPERTS 3u
#define ROWS 8u

static const rewrite_tensor model[] = {
    {"blk.0.attn_q.weight", MICA_DTYPE_F32, 2, {ROWS, COLUMNS}},
    {"blk.0.ffn_up_exps.weight", MICA_DTYPE_F32, 3, {EXPERTS, ROWS, COLUMNS}},
    {"blk.0.ffn_gate.weight", MICA_DTYPE_F32, 2, {ROWS, COLUMNS}},
    {"output.weight", MICA_DTYPE_F32, 2, {2, COLUMNS}},
};

static void make_model(void)
{
    test_gguf gguf = {0};
    test_gguf_string(&gguf, "general.architecture", "llama");
    rewrite_gguf(&gguf, rewrite_path("in.gguf"), model, sizeof model / sizeof model[0], 1);
}

/* Of expert e the columns with number mod 3 = e weigh a thousand times more. */
static float weight_of(uint64_t expert, uint64_t column)
{
    return column % 3 == expert ? 1000.0f : 1.0f;
}

/* Weights for attn_q and the experts; `count` tokens each. */
static void make_matrix(uint64_t matrices, uint64_t columns, float count, float first)
{
    const uint64_t one[] = {1, COLUMNS}, sums[] = {matrices, columns}, counts[] = {matrices, 1},
                   single[] = {1, 1};
    float values[4 * 2 * COLUMNS], numbers[4];
    test_gguf gguf = {0};
    const char *path = rewrite_path("im.gguf");
    test_gguf_string(&gguf, "general.type", "imatrix");
    test_gguf_u32(&gguf, "imatrix.chunk_count", 9);
    test_gguf_tensor(&gguf, "blk.0.attn_q.weight.in_sum2", MICA_DTYPE_F32, 2, one);
    test_gguf_tensor(&gguf, "blk.0.attn_q.weight.counts", MICA_DTYPE_F32, 2, single);
    test_gguf_tensor(&gguf, "blk.0.ffn_up_exps.weight.in_sum2", MICA_DTYPE_F32, 2, sums);
    test_gguf_tensor(&gguf, "blk.0.ffn_up_exps.weight.counts", MICA_DTYPE_F32, 2, counts);
    test_gguf_write(&gguf, path);
    for (uint64_t m = 0; m < matrices; m++) {
        numbers[m] = count;
        for (uint64_t i = 0; i < columns; i++)
            values[m * columns + i] = weight_of(m, i) * (count == 0 ? 1 : count);
    }
    values[0] = first;
    test_gguf_put(&gguf, path, 0, values, COLUMNS * sizeof(float));
    test_gguf_put(&gguf, path, 1, numbers, sizeof(float));
    test_gguf_put(&gguf, path, 2, values, (size_t)(matrices * columns) * sizeof(float));
    test_gguf_put(&gguf, path, 3, numbers, (size_t)matrices * sizeof(float));
    test_gguf_free(&gguf);
}

static mica_status quantize(const char *type, const char *matrix, const char *out)
{
    const mica_quantize_options options = {.type = type,
                                           .threads = 2,
                                           .overwrite = 1,
                                           .pure = 1,
                                           .imatrix = matrix == NULL ? NULL : rewrite_path(matrix)};
    return mica_quantize(rewrite_path("in.gguf"), rewrite_path(out), &options, NULL);
}

/* The squared error of a tensor's matrix in the columns that weigh most. */
static double heavy_error(const char *file, const char *name, uint64_t matrix)
{
    uint64_t count;
    mica__archive *in = rewrite_open(rewrite_path("in.gguf")), *out = rewrite_open(rewrite_path(file));
    double *was = rewrite_decode(in, name, &count), *is = rewrite_decode(out, name, &count), error = 0;
    for (uint64_t i = matrix * ROWS * COLUMNS; i < (matrix + 1) * ROWS * COLUMNS; i++)
        if (weight_of(matrix, i % COLUMNS) > 1)
            error += (was[i] - is[i]) * (was[i] - is[i]);
    free(was);
    free(is);
    mica__archive_close(in);
    mica__archive_close(out);
    return error;
}

static void test_heavy_columns_get_better(void **state)
{
    static const char *const types[] = {"q4_k", "q3_k", "q2_k", "q6_k"};
    (void)state;
    make_model();
    make_matrix(EXPERTS, COLUMNS, 5, 5000);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        assert_int_equal(quantize(types[i], NULL, "plain.gguf"), MICA_OK);
        assert_int_equal(quantize(types[i], "im.gguf", "weighted.gguf"), MICA_OK);
        assert_true(heavy_error("weighted.gguf", "blk.0.attn_q.weight", 0) <
                    heavy_error("plain.gguf", "blk.0.attn_q.weight", 0));
        for (uint64_t e = 0; e < EXPERTS; e++)
            assert_true(heavy_error("weighted.gguf", "blk.0.ffn_up_exps.weight", e) <
                        heavy_error("plain.gguf", "blk.0.ffn_up_exps.weight", e));
    }
    mica__archive *out = rewrite_open(rewrite_path("weighted.gguf"));
    assert_string_equal(mica__archive_meta(out, "quantize.imatrix.file")->as.string.data, "im.gguf");
    assert_int_equal(mica__archive_meta(out, "quantize.imatrix.entries_count")->as.u, 2);
    assert_int_equal(mica__archive_meta(out, "quantize.imatrix.chunks_count")->as.u, 9);
    mica__archive_close(out);
}

/* A weight that the file does not know is quantised as without it. */
static void test_unknown_weights_go_without(void **state)
{
    (void)state;
    make_model();
    make_matrix(EXPERTS, COLUMNS, 5, 5000);
    assert_int_equal(quantize("q4_k", NULL, "plain.gguf"), MICA_OK);
    assert_int_equal(quantize("q4_k", "im.gguf", "weighted.gguf"), MICA_OK);
    uint64_t count;
    mica__archive *a = rewrite_open(rewrite_path("plain.gguf")),
                  *b = rewrite_open(rewrite_path("weighted.gguf"));
    double *x = rewrite_decode(a, "blk.0.ffn_gate.weight", &count),
           *y = rewrite_decode(b, "blk.0.ffn_gate.weight", &count);
    assert_memory_equal(x, y, count * sizeof *x);
    free(x);
    free(y);
    mica__archive_close(a);
    mica__archive_close(b);
}

/* Only the mean counts, not over how many tokens it was taken. */
static void test_counts_divide(void **state)
{
    (void)state;
    make_model();
    make_matrix(EXPERTS, COLUMNS, 4, 4000);
    assert_int_equal(quantize("q4_k", "im.gguf", "a.gguf"), MICA_OK);
    make_matrix(EXPERTS, COLUMNS, 8, 8000);
    assert_int_equal(quantize("q4_k", "im.gguf", "b.gguf"), MICA_OK);
    assert_true(rewrite_same_bytes(rewrite_path("a.gguf"), rewrite_path("b.gguf")));
    make_matrix(EXPERTS, COLUMNS, 0, 1000);
    assert_int_equal(quantize("q4_k", "im.gguf", "b.gguf"), MICA_OK); /* nothing was met: all columns alike */
    assert_false(rewrite_same_bytes(rewrite_path("a.gguf"), rewrite_path("b.gguf")));
}

static void test_refusals(void **state)
{
    (void)state;
    make_model();
    make_matrix(1, COLUMNS, 5, 1);
    rewrite_refused(quantize("q4_k", "im.gguf", "no.gguf"), MICA_ERR_QUANT_CONFIG,
                    "blk.0.ffn_up_exps.weight.in_sum2");
    make_matrix(EXPERTS, 2 * COLUMNS, 5, 1);
    rewrite_refused(quantize("q4_k", "im.gguf", "no.gguf"), MICA_ERR_QUANT_CONFIG, "another model");
    make_matrix(EXPERTS, COLUMNS, 5, NAN);
    rewrite_refused(quantize("q4_k", "im.gguf", "no.gguf"), MICA_ERR_MALFORMED_FILE,
                    "blk.0.attn_q.weight.in_sum2");
    make_matrix(EXPERTS, COLUMNS, 5, -1);
    rewrite_refused(quantize("q4_k", "im.gguf", "no.gguf"), MICA_ERR_MALFORMED_FILE, "not below 0");
    make_matrix(EXPERTS, COLUMNS, 1e-30f, 1e30f);
    rewrite_refused(quantize("q4_k", "im.gguf", "no.gguf"), MICA_ERR_MALFORMED_FILE, "too large");
    rewrite_refused(quantize("q4_k", "in.gguf", "no.gguf"), MICA_ERR_UNSUPPORTED, "no importance matrix");
    rewrite_refused(quantize("q4_k", "none.gguf", "no.gguf"), MICA_ERR_IO, "none.gguf");
    assert_int_equal(access(rewrite_path("no.gguf"), F_OK), -1);
}

static mica_status play(void *context)
{
    (void)context;
    return quantize("q4_k", "im.gguf", "out.gguf");
}

static void test_allocation_failures(void **state)
{
    (void)state;
    make_model();
    make_matrix(EXPERTS, COLUMNS, 5, 5000);
    rig_fail_allocations(play, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heavy_columns_get_better),
        cmocka_unit_test(test_unknown_weights_go_without),
        cmocka_unit_test(test_counts_divide),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, rewrite_setup, rewrite_teardown);
}
