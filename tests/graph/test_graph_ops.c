/*
 * test_graph_ops.c - what builders of nodes compute, on every device and in every mode: against numpy and PyTorch in double (graph_ops_golden.h), draws against the calls
 * of ops_random.h.
 */
#include "graph/builder_cases.h"

typedef struct golden {
    const char *name;
    const double *number;
    uint64_t count;
    uint32_t ndim;
    uint64_t shape[MICA_MAX_DIMS];
} golden;
#include "graph/graph_ops_golden.h"

/* What a case gives, as it lies in memory. */
typedef struct answer {
    mica_array array;
    _Alignas(8) unsigned char bytes[CASE_BYTES];
} answer;

/* Runs the graph of a case with b = CASE_BATCH; UNSUPPORTED where the device does not serve it. */
static mica_status run_case(const builder_case *row, mica_device *device, mica_graph_mode mode, answer *out)
{
    static _Alignas(8) unsigned char bytes[CASE_INPUTS][CASE_BYTES];
    mica_array in[CASE_INPUTS];
    uint32_t count = 0, used = 0;
    mica_tensor y;
    case_input input;
    mica_executable *run = NULL;
    mica_graph *graph = case_graph(row, &y);
    mica_graph_output(graph, "y", y);
    must(mica_graph_status(graph));
    const mica_compile_options options = {.mode = mode};
    mica_status status = mica_graph_compile(graph, device, &options, &run);
    for (const char *at = row->inputs; status == MICA_OK && case_next(&at, &input); count++) {
        static char names[CASE_INPUTS][8];
        snprintf(names[count], sizeof names[count], "x%u", count);
        const uint64_t numbers = case_fill(&input, count, CASE_BATCH, bytes[count]);
        const uint64_t elements = input.dtype == MICA_DTYPE_C64 ? numbers / 2 : numbers;
        in[used] = (mica_array){.name = names[count],
                                .dtype = input.dtype,
                                .ndim = input.ndim,
                                .data = bytes[count],
                                .bytes = elements * mica_dtype_block_bytes(input.dtype)};
        for (uint32_t d = 0; d < input.ndim; d++)
            in[used].shape[d] = input.shape[d] == UINT64_MAX ? CASE_BATCH : input.shape[d];
        used++;
    }
    out->array = (mica_array){.name = "y", .data = out->bytes, .bytes = sizeof out->bytes};
    if (status == MICA_OK)
        status = mica_executable_run(run, in, used, &out->array, 1);
    mica_executable_release(run);
    mica_graph_release(graph);
    return status;
}

static double number_of(const answer *a, uint64_t i)
{
    switch (a->array.dtype) {
    case MICA_DTYPE_F32:
    case MICA_DTYPE_C64: return (double)((const float *)(const void *)a->bytes)[i];
    case MICA_DTYPE_I32: return (double)((const int32_t *)(const void *)a->bytes)[i];
    case MICA_DTYPE_I8: return (double)((const int8_t *)a->bytes)[i];
    default: return (double)a->bytes[i];
    }
}

/* How many numbers are wrong; the first is told. */
static int compare(const char *where, const answer *a, const golden *right)
{
    uint64_t count = a->array.dtype == MICA_DTYPE_C64 ? 2 : 1;
    bool shape = a->array.ndim == right->ndim;
    for (uint32_t d = 0; d < a->array.ndim; d++) {
        count *= a->array.shape[d];
        shape = shape && a->array.shape[d] == right->shape[d];
    }
    if (!shape || count != right->count) {
        print_error("%s: %s has another shape: %llu numbers, not %llu\n", where, right->name,
                    (unsigned long long)count, (unsigned long long)right->count);
        return 1;
    }
    for (uint64_t i = 0; i < count; i++)
        if (!(fabs(number_of(a, i) - right->number[i]) <= 2e-5 * (1 + fabs(right->number[i])))) {
            print_error("%s: %s: number %llu is %.9g, not %.9g\n", where, right->name, (unsigned long long)i,
                        number_of(a, i), right->number[i]);
            return 1;
        }
    return 0;
}

static const builder_case *case_named(const char *name)
{
    for (uint32_t i = 0; i < BUILDER_CASES; i++)
        if (strcmp(builder_cases[i].name, name) == 0)
            return &builder_cases[i];
    print_error("%s is no row of builder_rows.def\n", name);
    fail();
    return NULL;
}

static void test_golden(void **state)
{
    (void)state;
    static answer a;
    int wrong = 0;
    EACH_DEVICE(device)
    {
        mica_device_properties properties;
        uint32_t refused = 0;
        must(mica_device_get_properties(device, &properties));
        for (uint32_t i = 0; i < sizeof golden_rows / sizeof golden_rows[0]; i++)
            EACH_MODE(mode)
            {
                const mica_status status = run_case(case_named(golden_rows[i].name), device, mode, &a);
                if (status == MICA_ERR_UNSUPPORTED && device != devices[0]) {
                    refused++; /* by name: linear algebra, say, is the cpu's */
                    continue;
                }
                if (status != MICA_OK)
                    print_error("%s: %s\n", golden_rows[i].name, mica_status_message());
                wrong += status != MICA_OK || compare(properties.name, &a, &golden_rows[i]) != 0;
            }
        assert_true(refused < 3 * 30);
    }
    assert_int_equal(wrong, 0);
}

/* ---- draws: the same bits as the calls of ops_random.h ---- */

typedef mica_status draw_call(mica_encoder *encoder, const mica_random *random, mica_buffer *x,
                              mica_buffer *y);

static mica_status call_uniform(mica_encoder *e, const mica_random *r, mica_buffer *x, mica_buffer *y)
{
    (void)x;
    return mica_random_uniform(e, -2, 3, r, y);
}
static mica_status call_normal(mica_encoder *e, const mica_random *r, mica_buffer *x, mica_buffer *y)
{
    (void)x;
    return mica_random_normal(e, 0.5, 2, r, y);
}
static mica_status call_integers(mica_encoder *e, const mica_random *r, mica_buffer *x, mica_buffer *y)
{
    (void)x;
    return mica_random_integers(e, -5, 90, r, y);
}
static mica_status call_dropout(mica_encoder *e, const mica_random *r, mica_buffer *x, mica_buffer *y)
{
    return mica_dropout(e, x, 0.4, r, y);
}

/* x, if the row has numbers, and the words behind it as seed and offset. */
static void check_draw(mica_device *device, const char *name, mica_dtype dtype, draw_call *call)
{
    static answer a;
    _Alignas(8) unsigned char bytes[CASE_BYTES], right[CASE_BYTES];
    const builder_case *row = case_named(name);
    mica_random random = {0};
    mica_buffer *x = NULL, *y = NULL;
    mica_encoder *encoder = NULL;
    mica_fence *fence = NULL;
    uint32_t count = 0, words = 0;
    case_input in;
    for (const char *at = row->inputs; case_next(&at, &in); count++) {
        (void)case_fill(&in, count, CASE_BATCH, bytes);
        if (in.dtype == MICA_DTYPE_U64 && words++ == 0)
            memcpy(&random.seed, bytes, 8);
        else if (in.dtype == MICA_DTYPE_U64)
            memcpy(&random.offset, bytes, 8);
        else {
            must(mica_buffer_alloc(device, in.dtype, 2, SHAPE(CASE_BATCH, in.shape[1]), &x));
            must(mica_buffer_write(x, 0, bytes, CASE_BATCH * in.shape[1] * 4));
        }
    }
    EACH_MODE(mode)
    {
        must(run_case(row, device, mode, &a));
        must(mica_buffer_alloc(device, dtype, a.array.ndim, a.array.shape, &y));
        must(mica_encoder_begin(device, NULL, &encoder));
        must(call(encoder, &random, x, y));
        must(mica_encoder_commit(encoder, &fence));
        must(mica_fence_wait(fence, UINT64_MAX));
        uint64_t size = mica_dtype_block_bytes(dtype);
        for (uint32_t d = 0; d < a.array.ndim; d++)
            size *= a.array.shape[d];
        must(mica_buffer_read(y, 0, right, size));
        assert_memory_equal(a.bytes, right, size);
        mica_fence_release(fence);
        mica_encoder_release(encoder);
        mica_buffer_release(y);
    }
    mica_buffer_release(x);
}

static void test_draws(void **state)
{
    (void)state;
    EACH_DEVICE(device)
    {
        check_draw(device, "uniform", MICA_DTYPE_F32, call_uniform);
        check_draw(device, "normal", MICA_DTYPE_F32, call_normal);
        check_draw(device, "random_integers", MICA_DTYPE_I32, call_integers);
        check_draw(device, "dropout", MICA_DTYPE_F32, call_dropout);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden), cmocka_unit_test(test_draws)};
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
