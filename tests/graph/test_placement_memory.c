/* A graph over two devices with every allocation of the host failed in turn: a status, and no leak. */
#include "graph/graph_rig.h"
#include "support/meter.h"

enum { ROWS = 3, COLUMNS = 8 };

/* A layer on each device, and a parameter that both read; a state of the second that the first makes. */
static mica_status build(mica_graph **out)
{
    mica_graph *g = NULL;
    const mica_status status = mica_graph_create(&g);
    *out = g;
    if (status != MICA_OK)
        return status;
    const mica_tensor x = mica_graph_input(g, "x", MICA_DTYPE_F32, 2, SHAPE(ROWS, COLUMNS));
    const mica_tensor w = mica_graph_parameter(g, "w", MICA_DTYPE_F32, 2, SHAPE(COLUMNS, COLUMNS));
    const mica_tensor y = mica_graph_tanh(g, mica_graph_matmul(g, x, w));
    (void)mica_graph_place(g, 1);
    const mica_tensor s = mica_graph_input(g, "s", MICA_DTYPE_F32, 2, SHAPE(ROWS, COLUMNS));
    mica_graph_output(g, "y", mica_graph_softmax(g, mica_graph_add(g, mica_graph_matmul(g, y, w), s), 1, -1));
    (void)mica_graph_place(g, 0);
    mica_graph_output(g, "next", mica_graph_mul(g, y, y));
    return mica_graph_status(g);
}

static mica_status run_all(void)
{
    static float x[ROWS * COLUMNS], w[COLUMNS * COLUMNS], y[ROWS * COLUMNS];
    const mica_device_options one = {.threads = 1};
    mica_device *list[2] = {NULL, NULL};
    mica_graph *g = NULL;
    mica_executable *run = NULL;
    mica_array in = F32_ARRAY("x", x, ROWS, COLUMNS), out = OUT_ARRAY("y", y);
    mica_status status = mica_device_open("cpu", &one, &list[0]);
    if (status == MICA_OK)
        status = mica_device_open("cpu", &one, &list[1]);
    if (status == MICA_OK)
        status = build(&g);
    const mica_compile_options options = {.mode = MICA_MODE_COMPILED, .devices = list, .device_count = 2};
    if (status == MICA_OK)
        status = mica_graph_compile(g, NULL, &options, &run);
    if (status == MICA_OK)
        status = mica_executable_link(run, "next", "s");
    if (status == MICA_OK)
        status = rig_set(run, F32_ARRAY("w", w, COLUMNS, COLUMNS));
    for (int i = 0; i < 2 && status == MICA_OK; i++)
        status = mica_executable_run(run, &in, 1, &out, 1);
    mica_executable_release(run);
    mica_graph_release(g);
    mica_device_release(list[0]);
    mica_device_release(list[1]);
    return status;
}

static void test_memory(void **state)
{
    (void)state;
    uint64_t failed = 0;
    bool reached = true;
    must(run_all()); /* what is kept for ever is there now */
    for (uint64_t at = 1; reached; at += 1 + at / 128) {
        test_meter meter = {.fail_at = at};
        must(test_meter_set(&meter));
        const mica_status status = run_all();
        reached = atomic_load(&meter.calls) >= at;
        if (atomic_load(&meter.live) != 0)
            print_error("allocation %llu: %s\n", (unsigned long long)at, mica_status_message());
        assert_int_equal(atomic_load(&meter.live), 0);
        must(mica_set_allocator(NULL));
        assert_true(status == MICA_OK || status == MICA_ERR_OUT_OF_MEMORY);
        failed += status != MICA_OK;
    }
    assert_true(failed > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
