/* test_cuda_choice.c - which kernels matmuls and the delta rule get on a Hopper: those of 8B models, and what the conformance table draws for a
 * GPU, whose rows must reach the kernels that they are there for. The stand-in says that it is one and computes nothing; what
 * kernels compute is for test_conform_cuda on a real one. */
#include "cuda_rig.h"

#include "conform/conform_suite.h"
#include "mica/mica.h"
#include "support/sanitizer.h"

#define MOST_ENTRIES 8

static const conform_row *row_named(const char *name)
{
    for (uint32_t i = 0; i < conform_table_count; i++)
        if (strcmp(conform_table[i].name, name) == 0)
            return &conform_table[i];
    fail_msg("the table has no row \"%s\"", name);
    return NULL;
}

static mica_encoder *begin_profile(mica_device *device)
{
    mica_encoder *encoder = NULL;
    must(mica_profile_begin(device));
    must(mica_encoder_begin(device, NULL, &encoder));
    return encoder;
}

/* Runs what was encoded; gives its last dispatch. */
static mica_profile_entry end_profile(mica_device *device, mica_encoder *encoder)
{
    mica_profile_entry entries[MOST_ENTRIES];
    uint64_t count = 0;
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    must(mica_profile_end(device));
    must(mica_profile_entries(device, entries, MOST_ENTRIES, &count));
    assert_in_range(count, 1, MOST_ENTRIES);
    return entries[count - 1];
}

static int open_device(void **state)
{
    mica_device *device = NULL;
    fake_reset();
    must(mica_device_open("cuda:0", NULL, &device));
    *state = device;
    return 0;
}

static int close_device(void **state)
{
    mica_device_release(*state);
    rig_check_clean();
    return 0;
}

/* ---- 8B models ---- */

static mica_buffer *matrix(mica_device *device, mica_dtype dtype, uint64_t rows, uint64_t columns)
{
    mica_buffer *buffer = NULL;
    must(mica_buffer_alloc(device, dtype, 2, (uint64_t[]){rows, columns}, &buffer));
    return buffer;
}

/* y [rows, n] = x [rows, k] of f32 with a weight [n, k], which it releases. */
static mica_profile_entry multiply_by(mica_device *device, mica_buffer *weight, uint64_t rows, uint64_t n,
                                      uint64_t k)
{
    mica_buffer *x = matrix(device, MICA_DTYPE_F32, rows, k), *y = matrix(device, MICA_DTYPE_F32, rows, n);
    mica_encoder *encoder = begin_profile(device);
    must(mica_matmul(encoder, x, weight, NULL, y));
    const mica_profile_entry last = end_profile(device, encoder);
    mica_buffer_release(weight);
    mica_buffer_release(x);
    mica_buffer_release(y);
    return last;
}

/* The same with a packed weight of that type. */
static mica_profile_entry multiply(mica_device *device, mica_dtype type, uint64_t rows, uint64_t n,
                                   uint64_t k)
{
    mica_buffer *plain = matrix(device, type, n, k), *weight = NULL;
    must(mica_buffer_pack(plain, &weight));
    mica_buffer_release(plain);
    return multiply_by(device, weight, rows, n, k);
}

static void test_models(void **state)
{
    static const mica_dtype types[] = {MICA_DTYPE_Q4_0, MICA_DTYPE_Q4_K, MICA_DTYPE_Q8_0, MICA_DTYPE_F16};
    static const uint64_t sizes[][2] = {{4096, 4096}, {4096, 14336}, {14336, 4096}};
    mica_device *device = *state;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            const uint64_t n = sizes[s][0], k = sizes[s][1];
            assert_string_equal(multiply(device, types[t], 1, n, k).kernel, "stream/matvec");
            assert_string_equal(multiply(device, types[t], 9, n, k).kernel, "direct");
            assert_string_equal(multiply(device, types[t], 128, n, k).kernel, "direct");
            assert_string_equal(multiply(device, types[t], 129, n, k).kernel, "gemm");
        }
    assert_string_equal(multiply(device, MICA_DTYPE_Q4_0, 32, 256, 4096 + 32).kernel, "gemm");
    assert_string_equal(multiply(device, MICA_DTYPE_F32, 512, 4096, 4096).kernel, "cublaslt");
}

/* ---- other weights ---- */

#define GROUP 32u

/* Rows of x by [512, k] of affine4 with scales and biases of that type. */
static mica_profile_entry multiply_affine(mica_device *device, mica_dtype scale_type, uint64_t rows,
                                          uint64_t k)
{
    mica_buffer *data = matrix(device, MICA_DTYPE_AFFINE4, 512, k), *weight = NULL;
    mica_buffer *scales = matrix(device, scale_type, 512, k / GROUP);
    mica_buffer *biases = matrix(device, scale_type, 512, k / GROUP);
    must(mica_buffer_affine(data, scales, biases, GROUP, &weight));
    mica_buffer_release(data);
    mica_buffer_release(scales);
    mica_buffer_release(biases);
    return multiply_by(device, weight, rows, 512, k);
}

/* 256 tokens, each through two of four experts [256, 256]. */
static mica_profile_entry multiply_routed(mica_device *device, mica_dtype type)
{
    mica_buffer *weight = NULL, *y = NULL, *x = matrix(device, MICA_DTYPE_F32, 256, 256);
    mica_buffer *ids = matrix(device, MICA_DTYPE_U32, 256, 2);
    must(mica_buffer_alloc(device, type, 3, (uint64_t[]){4, 256, 256}, &weight));
    if (type == MICA_DTYPE_AFFINE4) {
        mica_buffer *data = weight, *scales = NULL;
        must(mica_buffer_alloc(device, MICA_DTYPE_BF16, 3, (uint64_t[]){4, 256, 256 / GROUP}, &scales));
        must(mica_buffer_affine(data, scales, scales, GROUP, &weight));
        mica_buffer_release(data);
        mica_buffer_release(scales);
    }
    must(mica_buffer_alloc(device, MICA_DTYPE_F32, 3, (uint64_t[]){256, 2, 256}, &y));
    mica_encoder *encoder = begin_profile(device);
    must(mica_matmul_experts(encoder, x, weight, ids, NULL, y));
    const mica_profile_entry last = end_profile(device, encoder);
    mica_buffer_release(weight);
    mica_buffer_release(x);
    mica_buffer_release(ids);
    mica_buffer_release(y);
    return last;
}

/* Every block type has the matrix units; of those with tables of scales the ones that would meet 8-bit activations. */
static void test_other_weights(void **state)
{
    static const mica_dtype types[] = {MICA_DTYPE_Q4_1,   MICA_DTYPE_Q5_0,  MICA_DTYPE_Q2_K,
                                       MICA_DTYPE_Q3_K,   MICA_DTYPE_Q5_K,  MICA_DTYPE_IQ1_S,
                                       MICA_DTYPE_IQ2_XS, MICA_DTYPE_IQ3_S, MICA_DTYPE_IQ4_XS,
                                       MICA_DTYPE_TQ2_0,  MICA_DTYPE_MXFP4};
    mica_device *device = *state;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        assert_string_equal(multiply(device, types[t], 512, 512, 512).kernel, "gemm");
        assert_string_equal(multiply(device, types[t], 128, 512, 512).kernel, "direct_any/direct");
        assert_string_equal(multiply_routed(device, types[t]).kernel, "routed_any/routed");
    }
    assert_string_equal(multiply_routed(device, MICA_DTYPE_AFFINE4).kernel, "routed_any/routed");
    assert_string_equal(multiply_affine(device, MICA_DTYPE_BF16, 512, 512).kernel, "gemm");
    assert_string_equal(multiply_affine(device, MICA_DTYPE_BF16, 128, 512).kernel, "direct_any/direct");
    assert_string_equal(multiply_affine(device, MICA_DTYPE_F32, 512, 512).kernel, "matmul/tile");
}

/* Every type that meets 8-bit activations streams, for up to eight rows of x; no other does. Rows of scales are copied as a whole:
 * where they are no multiples of 16 bytes, the portable kernel reads them. */
static void test_streams(void **state)
{
    static const mica_dtype streamed[] = {
        MICA_DTYPE_Q4_1, MICA_DTYPE_Q5_0,   MICA_DTYPE_Q5_1,   MICA_DTYPE_Q2_K,  MICA_DTYPE_Q3_K,
        MICA_DTYPE_Q5_K, MICA_DTYPE_IQ4_NL, MICA_DTYPE_IQ4_XS, MICA_DTYPE_MXFP4, MICA_DTYPE_NVFP4};
    static const mica_dtype others[] = {MICA_DTYPE_IQ2_XS, MICA_DTYPE_TQ2_0, MICA_DTYPE_Q8_K};
    mica_device *device = *state;
    for (size_t t = 0; t < sizeof streamed / sizeof *streamed; t++) {
        assert_string_equal(multiply(device, streamed[t], 1, 4096, 14336).kernel, "stream_any/matvec");
        assert_string_equal(multiply(device, streamed[t], 8, 512, 512).kernel, "stream_any/matvec");
        assert_string_not_equal(multiply(device, streamed[t], 9, 512, 512).kernel, "stream_any/matvec");
    }
    for (size_t t = 0; t < sizeof others / sizeof *others; t++)
        assert_string_equal(multiply(device, others[t], 1, 512, 512).kernel, "matvec/one");
    assert_string_equal(multiply_affine(device, MICA_DTYPE_BF16, 1, 512).kernel, "stream_any/matvec");
    assert_string_equal(multiply_affine(device, MICA_DTYPE_F16, 8, 512).kernel, "stream_any/matvec");
    assert_string_equal(multiply_affine(device, MICA_DTYPE_F32, 1, 512).kernel, "matvec/one");
    assert_string_equal(multiply_affine(device, MICA_DTYPE_BF16, 1, 512 + GROUP).kernel, "matvec/one");
}

/* ---- the conformance table ---- */

/* Runs the case; gives its last dispatch, and [m, n] of its output in `shape`. */
static mica_profile_entry run_case(mica_device *device, const conform_row *row, uint64_t seed,
                                   uint64_t shape[2])
{
    conform_case c;
    conform_case_make(&c, row, seed, false);
    must(conform_case_upload(&c, device));
    mica_encoder *encoder = begin_profile(device);
    must(row->encode(&c, encoder));
    const mica_profile_entry last = end_profile(device, encoder);
    memcpy(shape, conform_tensor(&c, c.output)->shape, 2 * sizeof *shape);
    conform_case_free(&c);
    return last;
}

/* As many tiles as cuda_plan_gemm.c leaves whole on 132 multiprocessors, in a column and in a row, and fewer, which it halves; and
 * batches of rows by weights that need no tiles. */
static void test_tiles(void **state)
{
    const conform_row *row = row_named("matmul tiles q4_0");
    uint32_t halves = 0, whole_rows = 0, whole_columns = 0, batches = 0;
    mica_device *device = *state;
    for (uint64_t i = 0; i < CONFORM_GPU_CASES; i++) {
        uint64_t shape[2];
        const mica_profile_entry last = run_case(device, row, CONFORM_SEED + i, shape);
        const uint64_t rows = (shape[0] + 127) / 128, columns = (shape[1] + 255) / 256;
        if (strcmp(last.kernel, "direct") == 0) {
            batches++;
            continue;
        }
        assert_string_equal(last.kernel, "gemm");
        halves += rows * columns <= 66;
        whole_rows += rows > 66 && rows * columns <= 132;
        whole_columns += columns > 66 && rows * columns <= 132;
    }
    assert_true(halves > 0);
    if (!TEST_ANY_SANITIZER)
        assert_true(whole_rows > 0 && whole_columns > 0 && batches > 0);
}

/* The rows that are there for slots of experts in tiles. */
static void test_experts_rows(void **state)
{
    mica_device *device = *state;
    uint32_t rows = 0;
    for (uint32_t r = 0; r < conform_table_count; r++) {
        const conform_row *row = &conform_table[r];
        const bool known = row->weight == MICA_DTYPE_Q4_K || row->weight == MICA_DTYPE_F16;
        if (strncmp(row->name, "experts tiles ", 14) != 0)
            continue;
        for (uint64_t i = 0; i < CONFORM_GPU_CASES; i++) {
            uint64_t shape[2];
            assert_string_equal(run_case(device, row, CONFORM_SEED + i, shape).kernel,
                                known ? "routed" : "routed_any/routed");
        }
        rows++;
    }
    assert_int_equal(rows, 4);
}

/* The rows that are there for streamed weights. */
static void test_stream_rows(void **state)
{
    mica_device *device = *state;
    uint32_t rows = 0;
    for (uint32_t r = 0; r < conform_table_count; r++) {
        const conform_row *row = &conform_table[r];
        const bool lanes = row->weight == MICA_DTYPE_Q4_0;
        if (strncmp(row->name, "matmul stream ", 14) != 0)
            continue;
        for (uint64_t i = 0; i < CONFORM_GPU_CASES; i++) {
            uint64_t shape[2];
            assert_string_equal(run_case(device, row, CONFORM_SEED + i, shape).kernel,
                                lanes ? "stream/matvec" : "stream_any/matvec");
        }
        rows++;
    }
    assert_true(rows > 1);
}

static void test_library(void **state)
{
    const conform_row *row = row_named("matmul library f32");
    mica_device *device = *state;
    for (uint64_t i = 0; i < CONFORM_GPU_CASES; i++) {
        uint64_t shape[2];
        assert_string_equal(run_case(device, row, CONFORM_SEED + i, shape).kernel, "cublaslt");
    }
}

/* ---- what is joined ---- */

/* Records that are left of two matmuls of the same rows and their gated product. */
static uint32_t records_of_gate(mica_device *device, mica_dtype gate, mica_dtype up, uint64_t rows)
{
    const mica_dtype type[2] = {gate, up};
    mica_buffer *x = matrix(device, MICA_DTYPE_F32, rows, 512),
                *y = matrix(device, MICA_DTYPE_F32, rows, 512);
    mica_buffer *side[2] = {NULL, NULL};
    mica_session *session = NULL;
    mica_recording *recording = NULL;
    must(mica_session_begin(device, NULL, MICA_SESSION_RECORD, &session));
    mica_encoder *encoder = mica_session_encoder(session);
    for (uint32_t i = 0; i < 2; i++) {
        mica_buffer *plain = matrix(device, type[i], 512, 512), *weight = NULL;
        must(mica_buffer_pack(plain, &weight));
        must(mica_session_temp(session, MICA_DTYPE_F32, 2, (uint64_t[]){rows, 512}, &side[i]));
        must(mica_matmul(encoder, x, weight, NULL, side[i]));
        mica_buffer_release(plain);
        mica_buffer_release(weight);
    }
    must(mica_silu_mul(encoder, side[0], side[1], y));
    must(mica_session_record(session, MICA_FINISH_ALL, NULL, &recording));
    const uint32_t count = mica_recording_count(recording);
    mica_recording_release(recording);
    mica_session_release(session);
    mica_buffer_release(side[0]);
    mica_buffer_release(side[1]);
    mica_buffer_release(x);
    mica_buffer_release(y);
    return count;
}

/* Only what has the same kernels joined as apart: those for few rows and for batches take a gate of one type. A group, of
 * which each type has a launch of its own, and the product are left then. */
static void test_gates(void **state)
{
    mica_device *device = *state;
    for (uint64_t rows = 1; rows <= 256; rows *= 16)
        assert_int_equal(records_of_gate(device, MICA_DTYPE_Q4_K, MICA_DTYPE_Q4_K, rows), 1);
    assert_int_equal(records_of_gate(device, MICA_DTYPE_Q4_K, MICA_DTYPE_Q6_K, 1), 2);
    assert_int_equal(records_of_gate(device, MICA_DTYPE_Q4_K, MICA_DTYPE_Q6_K, 16), 2);
    assert_int_equal(records_of_gate(device, MICA_DTYPE_Q4_K, MICA_DTYPE_Q6_K, 256), 1);
}

/* ---- the delta rule ---- */

/* Of a model with linear attention but for what a test changes. */
typedef struct delta_case {
    uint64_t tokens, sequences, dim, columns;
    mica_dtype type;
    mica_delta_form form;
    bool by_row;
    uint64_t offset; /* of k, bytes */
    const char *kernel;
} delta_case;

static const delta_case delta_cases[] = {
    {4096, 1, 128, 128, MICA_DTYPE_BF16, MICA_DELTA_AUTO, false, 0, "delta_forward"},
    {4096, 1, 128, 128, MICA_DTYPE_F32, MICA_DELTA_AUTO, false, 0, "delta_forward"},
    {4096, 1, 128, 128, MICA_DTYPE_F16, MICA_DELTA_CHUNKED, false, 0, "delta_forward"},
    {256, 4, 64, 64, MICA_DTYPE_BF16, MICA_DELTA_AUTO, false, 0, "delta_forward"},
    {100, 1, 40, 16, MICA_DTYPE_F16, MICA_DELTA_AUTO, false, 16, "delta_forward"},
    {2, 2, 128, 128, MICA_DTYPE_BF16, MICA_DELTA_CHUNKED, false, 0, "delta_forward"},
    /* short ones, token by token */
    {4, 4, 128, 128, MICA_DTYPE_BF16, MICA_DELTA_AUTO, false, 0, "delta_net/forward"},
    {252, 4, 128, 128, MICA_DTYPE_BF16, MICA_DELTA_AUTO, false, 0, "delta_net/forward"},
    {4096, 1, 128, 128, MICA_DTYPE_BF16, MICA_DELTA_SEQUENTIAL, false, 0, "delta_net/forward"},
    {4096, 1, 128, 128, MICA_DTYPE_BF16, MICA_DELTA_AUTO, true, 0, "delta_net/forward"},
    /* rows that do not begin where 16 bytes are copied, keys that registers do not hold */
    {4096, 1, 128, 128, MICA_DTYPE_BF16, MICA_DELTA_AUTO, false, 8, "delta_net/forward"},
    {4096, 1, 128, 128, MICA_DTYPE_BF16, MICA_DELTA_CHUNKED, false, 2, "delta_chunk/forward"},
    {4096, 1, 60, 128, MICA_DTYPE_BF16, MICA_DELTA_AUTO, false, 0, "delta_net/forward"},
    {4096, 1, 128, 36, MICA_DTYPE_BF16, MICA_DELTA_CHUNKED, false, 0, "delta_chunk/forward"},
    {4096, 1, 136, 128, MICA_DTYPE_BF16, MICA_DELTA_AUTO, false, 0, "delta_net/forward"},
};

static mica_buffer *buffer_of(mica_device *device, mica_dtype dtype, uint32_t ndim, const uint64_t *shape)
{
    mica_buffer *buffer = NULL;
    must(mica_buffer_alloc(device, dtype, ndim, shape, &buffer));
    return buffer;
}

static void check_delta(mica_device *device, const delta_case *c)
{
    const uint64_t key[] = {c->tokens, 2, c->dim}, value[] = {c->tokens, 4, c->columns},
                   rates[] = {c->tokens, 4, c->dim}, states[] = {c->sequences, 4, c->dim, c->columns},
                   bytes = c->tokens * 2 * c->dim * 4 + c->offset;
    mica_buffer *memory = buffer_of(device, MICA_DTYPE_U8, 1, &bytes), *k = NULL,
                *q = buffer_of(device, c->type, 3, key);
    mica_buffer *v = buffer_of(device, c->type, 3, value), *y = buffer_of(device, c->type, 3, value);
    mica_buffer *g = buffer_of(device, MICA_DTYPE_F32, c->by_row ? 3 : 2, rates),
                *state = buffer_of(device, MICA_DTYPE_F32, 4, states);
    must(mica_buffer_view(memory, c->type, 3, key, NULL, c->offset, &k));
    mica_encoder *encoder = begin_profile(device);
    must(mica_delta_net(encoder, &(mica_delta_operands){q, k, v, g, NULL, NULL},
                        &(mica_sequences){.state = state},
                        &(mica_delta_params){.normalise = 1, .form = c->form}, y));
    const mica_profile_entry last = end_profile(device, encoder);
    if (strcmp(last.kernel, c->kernel) != 0)
        fail_msg("case %u: %s", (unsigned)(c - delta_cases), last.kernel);
    mica_buffer *all[] = {memory, k, q, v, y, g, state};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mica_buffer_release(all[i]);
}

static void test_delta(void **state)
{
    for (size_t i = 0; i < sizeof delta_cases / sizeof *delta_cases; i++)
        check_delta(*state, &delta_cases[i]);
}

/* The row that is there for it: all of its cases but those without tokens for each sequence. */
static void test_delta_row(void **state)
{
    const conform_row *row = row_named("delta_net tiles");
    uint32_t reached = 0;
    for (uint64_t i = 0; i < CONFORM_GPU_CASES; i++) {
        uint64_t shape[2];
        reached += strcmp(run_case(*state, row, CONFORM_SEED + i, shape).kernel, "delta_forward") == 0;
    }
    assert_true(2 * reached > CONFORM_GPU_CASES);
}

int main(void)
{
#define WITH_DEVICE(test) cmocka_unit_test_setup_teardown(test, open_device, close_device)
    const struct CMUnitTest tests[] = {WITH_DEVICE(test_models),  WITH_DEVICE(test_other_weights),
                                       WITH_DEVICE(test_streams), WITH_DEVICE(test_stream_rows),
                                       WITH_DEVICE(test_tiles),   WITH_DEVICE(test_library),
                                       WITH_DEVICE(test_gates),   WITH_DEVICE(test_experts_rows),
                                       WITH_DEVICE(test_delta),   WITH_DEVICE(test_delta_row)};
    return cmocka_run_group_tests_name("which kernels CUDA runs", tests, NULL, NULL);
}
