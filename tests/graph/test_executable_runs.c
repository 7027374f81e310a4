/*
 * test_executable_runs.c - what runs take and leave alone: types as they are, memory where it lies, as many runs as were asked for, and nobody else's time.
 */
#include <time.h>

#include "graph/graph_rig.h"

/* ---- types ---- */

/* Every type goes in and comes out as it is, and takes the room that it has. */
static void test_types(void **state)
{
    (void)state;
    enum { N = 192 };
    static const mica_dtype types[] = {MICA_DTYPE_F16, MICA_DTYPE_BF16, MICA_DTYPE_F32, MICA_DTYPE_F64,
                                       MICA_DTYPE_I8,  MICA_DTYPE_U8,   MICA_DTYPE_I16, MICA_DTYPE_I32,
                                       MICA_DTYPE_I64, MICA_DTYPE_U64,  MICA_DTYPE_BOOL};
    test_random random = test_random_from(2);
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        static unsigned char x[N * 8], w[N * 8], y[2 * N * 8];
        const uint64_t bytes = (uint64_t)N * mica_dtype_block_bytes(types[t]);
        for (uint64_t i = 0; i < bytes; i++) {
            x[i] =
                (unsigned char)(types[t] == MICA_DTYPE_BOOL ? i % 3 == 0 : test_random_below(&random, 256));
            w[i] = (unsigned char)(types[t] == MICA_DTYPE_BOOL ? i % 2 : test_random_below(&random, 256));
        }
        mica_graph *graph = NULL;
        must(mica_graph_create(&graph));
        const mica_tensor parts[] = {mica_graph_input(graph, "x", types[t], 1, SHAPE(N)),
                                     mica_graph_parameter(graph, "w", types[t], 1, SHAPE(N)),
                                     mica_graph_constant(graph, types[t], 1, SHAPE(N), x, bytes)};
        mica_graph_output(graph, "y", mica_graph_concat(graph, parts, 2, 0));
        mica_graph_output(graph, "c", parts[2]);
        must(mica_graph_status(graph));
        EACH_DEVICE(device) EACH_MODE(mode)
        {
            mica_executable *run = rig_compile(graph, device, mode);
            must(rig_set(run, rig_array("w", types[t], w, bytes, 1, SHAPE(N))));
            mica_array in = rig_array("x", types[t], x, bytes, 1, SHAPE(N));
            static unsigned char c[N * 8];
            mica_array out[] = {{.name = "y", .data = y, .bytes = 2 * bytes},
                                {.name = "c", .data = c, .bytes = bytes}};
            must(mica_executable_run(run, &in, 1, out, 2));
            assert_int_equal(out[0].dtype, types[t]);
            assert_memory_equal(y, x, bytes);
            assert_memory_equal(y + bytes, w, bytes);
            assert_memory_equal(c, x, bytes);
            mica_executable_stats stats;
            must(mica_executable_get_stats(run, &stats));
            assert_int_equal(stats.io_bytes, 4 * bytes);
            mica_executable_release(run);
        }
        mica_graph_release(graph);
    }
}

/* ---- memory where it lies ---- */

/* Host memory that the device can use goes in without a copy, as input and as parameter. */
static void test_in_place(void **state)
{
    (void)state;
    enum { N = 4096 };
    static _Alignas(64) float x[N], w[N];
    static float y[N];
    mica_graph *graph = NULL;
    must(mica_graph_create(&graph));
    const mica_tensor in = mica_graph_input(graph, "x", MICA_DTYPE_F32, 1, SHAPE(N));
    mica_graph_output(
        graph, "y", mica_graph_add(graph, in, mica_graph_parameter(graph, "w", MICA_DTYPE_F32, 1, SHAPE(N))));
    must(mica_graph_status(graph));
    EACH_MODE(mode)
    {
        mica_device *device = devices[0];
        const mica_buffer_desc desc = {
            .dtype = MICA_DTYPE_F32, .ndim = 1, .shape = {N}, .flags = MICA_BUFFER_READ_ONLY};
        mica_array fed = {.name = "x"}, held = {.name = "w"}, got = {.name = "y"};
        must(mica_buffer_import(device, x, sizeof x, &desc, NULL, NULL, &fed.buffer));
        must(mica_buffer_import(device, w, sizeof w, &desc, NULL, NULL, &held.buffer));
        must(mica_buffer_alloc(device, MICA_DTYPE_F32, 1, SHAPE(N), &got.buffer));
        mica_executable *run = rig_compile(graph, device, mode);
        must(mica_executable_set(run, &held));
        must(mica_executable_run(run, &fed, 1, &got, 1));
        mica_counters before, after;
        must(mica_counters_get(device, &before));
        for (int i = 0; i < N; i++) { /* what is there when it runs is what it sees */
            x[i] = (float)i;
            w[i] = (float)mode;
        }
        must(mica_executable_run(run, &fed, 1, &got, 1));
        must(mica_counters_get(device, &after));
        assert_int_equal(after.bytes_uploaded, before.bytes_uploaded);
        assert_int_equal(after.bytes_downloaded, before.bytes_downloaded);
        must(mica_buffer_read(got.buffer, 0, y, sizeof y));
        for (int i = 0; i < N; i++)
            assert_true(y[i] == (float)i + (float)mode);
        mica_executable_release(run);
        mica_buffer_release(fed.buffer);
        mica_buffer_release(held.buffer);
        mica_buffer_release(got.buffer);
    }
    mica_graph_release(graph);
}

/* ---- how many ---- */

/* Memory grows with the runs that may be in flight, not with those that are asked for. */
static void test_bounded(void **state)
{
    (void)state;
    enum { N = 50000, RUNS = 9, ALLOWED = 2 };
    static float x[N], y[RUNS][N];
    mica_graph *graph = NULL;
    must(mica_graph_create(&graph));
    const mica_tensor in = mica_graph_input(graph, "x", MICA_DTYPE_F32, 1, SHAPE(N));
    mica_graph_output(graph, "y",
                      mica_graph_tanh(graph, mica_graph_cumsum(graph, mica_graph_exp(graph, in), 0)));
    must(mica_graph_status(graph));
    EACH_DEVICE(device)
    {
        mica_executable *run = NULL;
        mica_run *runs[RUNS];
        mica_array got[RUNS];
        mica_device_memory some, all;
        must(mica_graph_compile(graph, device, &(mica_compile_options){.in_flight = ALLOWED}, &run));
        for (int r = 0; r < RUNS; r++) {
            x[0] = (float)r;
            mica_array fed = F32_ARRAY("x", x, N);
            got[r] = OUT_ARRAY("y", y[r]);
            must(mica_executable_commit(run, &fed, 1, &got[r], 1, &runs[r]));
            if (r == ALLOWED - 1)
                must(mica_device_get_memory(device, &some));
        }
        must(mica_device_get_memory(device, &all));
        assert_int_equal(all.owned_bytes, some.owned_bytes);
        assert_true(some.owned_bytes >= (uint64_t)ALLOWED * 2 * sizeof x);
        for (int r = 0; r < RUNS; r++) {
            must(mica_run_wait(runs[r]));
            assert_true(fabsf(y[r][0] - tanhf(expf((float)r))) < 1e-5f);
        }
        mica_executable_release(run);
    }
    mica_graph_release(graph);
}

/* ---- nobody else's time ---- */

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Where a device has several queues, a short run that comes behind a long one of another executable overtakes it. */
static void test_overtaking(void **state)
{
    (void)state;
    mica_device *device = NULL;
    mica_graph *graph = NULL;
    mica_executable *slow = NULL, *quick = NULL;
    mica_run *run = NULL;
    float x[4] = {1, 2, 3, 4}, y[4];
    must(mica_device_open("null", NULL, &device));
    must(mica_graph_create(&graph));
    mica_graph_output(graph, "y",
                      mica_graph_tanh(graph, mica_graph_input(graph, "x", MICA_DTYPE_F32, 1, SHAPE(4))));
    slow = rig_compile(graph, device, MICA_MODE_COMPILED);
    quick = rig_compile(graph, device, MICA_MODE_COMPILED);
    mica_array in = F32_ARRAY("x", x, 4), out = OUT_ARRAY("y", y);
    must(mica_executable_run(slow, &in, 1, NULL, 0));
    must(mica_executable_run(quick, &in, 1, NULL, 0));
    bool overtook = false;
    for (int attempt = 0; attempt < 4 && !overtook; attempt++) { /* the machine may stand still for once */
        const double begin = seconds();
        must(mica_null_inject(device, &(mica_null_faults){.slow_ns = 400000000}));
        must(mica_executable_commit(slow, &in, 1, NULL, 0, &run));
        must(mica_null_inject(device, &(mica_null_faults){.slow_ns = 0}));
        must(mica_executable_run(quick, &in, 1, &out, 1));
        overtook = seconds() - begin < 0.4;
        must(mica_run_wait(run));
        assert_true(seconds() - begin >= 0.4);
    }
    assert_true(overtook);
    mica_executable_release(slow);
    mica_executable_release(quick);
    mica_graph_release(graph);
    mica_device_release(device);
}

/* ---- what a device does not serve ---- */

/* Compiling names each node that its device has no kernel for, in sub-graphs too, before anything runs. */
static void test_not_served(void **state)
{
    (void)state;
    mica_graph *graph = NULL, *inner = NULL;
    mica_executable *run = NULL;
    if (devices[1] == NULL)
        skip();
    must(mica_graph_create(&inner));
    const mica_tensor slice = mica_graph_input(inner, "x", MICA_DTYPE_F64, 2, SHAPE(8, 8));
    mica_graph_output(inner, "y", mica_graph_matmul(inner, slice, slice)); /* of f64: the cpu's alone */
    must(mica_graph_create(&graph));
    const mica_tensor x = mica_graph_input(graph, "x", MICA_DTYPE_F64, 2, SHAPE(8, 8));
    must(mica_graph_label(graph, "layer 7"));
    const mica_tensor y = mica_graph_matmul(graph, x, x);
    const mica_tensor small = mica_graph_less(graph, mica_graph_reduce(graph, MICA_REDUCE_SUM, y, NULL, 0, 0),
                                              mica_graph_number(graph, MICA_DTYPE_F64, 1));
    mica_graph_output(graph, "y", mica_graph_if(graph, small, inner, inner, &y, 1, NULL, 0));
    must(mica_graph_status(graph));
    refused(mica_graph_compile(graph, devices[1], NULL, &run), MICA_ERR_UNSUPPORTED, "product (layer 7); ");
    refused(mica_graph_compile(graph, devices[1], NULL, &run), MICA_ERR_UNSUPPORTED, "node 1, product");
    must(mica_graph_compile(graph, devices[0], NULL, &run));
    mica_executable_release(run);
    mica_graph_release(graph);
    mica_graph_release(inner);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_types), cmocka_unit_test(test_in_place),
                                       cmocka_unit_test(test_bounded), cmocka_unit_test(test_overtaking),
                                       cmocka_unit_test(test_not_served)};
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
