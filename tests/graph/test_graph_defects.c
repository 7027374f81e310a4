/*
 * test_graph_defects.c - mistakes that another compiler of graphs made (docs/defects.md) and that nothing else here asks for: on every device, in every mode.
 */
#include "graph/graph_rig.h"

/* What the passes left of a graph, as text. */
static void text_of(const mica_executable *run, char *text, size_t bytes)
{
    uint64_t length = 0;
    must(mica_executable_print(run, text, bytes, &length));
    assert_true(length < bytes);
}

/* Constants are computed in their own type: i64 and i32 beyond what f32 counts, and both forms of gelu. */
static void constants_keep_their_type(void **state)
{
    (void)state;
    static const int64_t wide[] = {9007199254740993, -9007199254740995, 16777217};
    static const int32_t narrow[] = {16777217, -16777219, 2147483646};
    static const float x[] = {0.5f, -1.25f, 2};
    mica_graph *graph = NULL;
    must(mica_graph_create(&graph));
    const mica_tensor a = mica_graph_constant(graph, MICA_DTYPE_I64, 1, SHAPE(3), wide, sizeof wide);
    const mica_tensor b = mica_graph_constant(graph, MICA_DTYPE_I32, 1, SHAPE(3), narrow, sizeof narrow);
    const mica_tensor c = mica_graph_constant(graph, MICA_DTYPE_F32, 1, SHAPE(3), x, sizeof x);
    mica_graph_output(graph, "wide", mica_graph_sub(graph, a, mica_graph_number(graph, MICA_DTYPE_I64, 1)));
    mica_graph_output(graph, "narrow", mica_graph_sub(graph, b, mica_graph_number(graph, MICA_DTYPE_I32, 1)));
    mica_graph_output(graph, "tanh", mica_graph_gelu(graph, c));
    mica_graph_output(graph, "erf", mica_graph_gelu_erf(graph, c));
    must(mica_graph_status(graph));
    EACH_DEVICE(device) EACH_MODE(mode)
    {
        int64_t got_wide[3];
        int32_t got_narrow[3];
        float got_tanh[3], got_erf[3];
        double right_tanh[3], right_erf[3];
        char text[2048];
        mica_executable *run = rig_compile(graph, device, mode);
        mica_array got[] = {OUT_ARRAY("wide", got_wide), OUT_ARRAY("narrow", got_narrow),
                            OUT_ARRAY("tanh", got_tanh), OUT_ARRAY("erf", got_erf)};
        text_of(run, text, sizeof text);
        assert_null(strstr(text, "gelu")); /* nothing is left to be computed */
        assert_null(strstr(text, "sub("));
        must(mica_executable_run(run, NULL, 0, got, 4));
        for (int i = 0; i < 3; i++) {
            const double v = (double)x[i];
            assert_true(got_wide[i] == wide[i] - 1);
            assert_int_equal(got_narrow[i], narrow[i] - 1);
            right_tanh[i] = 0.5 * v * (1 + tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
            right_erf[i] = 0.5 * v * (1 + erf(v / sqrt(2)));
        }
        rig_near(got_tanh, right_tanh, 3, 1e-6); /* the two forms are 2e-4 apart here */
        rig_near(got_erf, right_erf, 3, 1e-6);
        mica_executable_release(run);
    }
    mica_graph_release(graph);
}

/* Mixed precision makes f16 of what a product reads, and of no index on the way: f16 has no 2049 and no 4099. */
static void precision_leaves_indices(void **state)
{
    (void)state;
    enum { ROWS = 4100, WIDTH = 4 };
    static float table[ROWS * WIDTH];
    static const int32_t ids[] = {2048, 4098, 2050, 1};
    float weight[WIDTH * WIDTH], y[4 * WIDTH];
    double right[4 * WIDTH];
    test_random random = test_random_from(3);
    mica_graph *graph = NULL;
    rig_fill(&random, table, ROWS * WIDTH);
    rig_fill(&random, weight, WIDTH * WIDTH);
    must(mica_graph_create(&graph));
    const mica_tensor t = mica_graph_input(graph, "table", MICA_DTYPE_F32, 2, SHAPE(ROWS, WIDTH));
    const mica_tensor w = mica_graph_input(graph, "w", MICA_DTYPE_F32, 2, SHAPE(WIDTH, WIDTH));
    const mica_tensor i = mica_graph_input(graph, "ids", MICA_DTYPE_I32, 1, SHAPE(4));
    const mica_tensor next = mica_graph_add(graph, i, mica_graph_number(graph, MICA_DTYPE_I32, 1));
    mica_graph_output(graph, "y", mica_graph_matmul(graph, mica_graph_gather(graph, t, next, 0), w));
    must(mica_graph_status(graph));
    for (int r = 0; r < 4; r++)
        for (int c = 0; c < WIDTH; c++) {
            right[r * WIDTH + c] = 0;
            for (int k = 0; k < WIDTH; k++)
                right[r * WIDTH + c] +=
                    (double)table[(ids[r] + 1) * WIDTH + k] * (double)weight[k * WIDTH + c];
        }
    EACH_DEVICE(device) EACH_MODE(mode)
    {
        mica_executable *run = NULL;
        const mica_compile_options options = {.mode = mode, .precision = MICA_GRAPH_PRECISION_F16};
        char text[2048];
        must(mica_graph_compile(graph, device, &options, &run));
        text_of(run, text, sizeof text);
        assert_non_null(strstr(text, "f16"));
        mica_array fed[] = {
            F32_ARRAY("table", table, ROWS, WIDTH), F32_ARRAY("w", weight, WIDTH, WIDTH),
            rig_array("ids", MICA_DTYPE_I32, (void *)(uintptr_t)ids, sizeof ids, 1, SHAPE(4))};
        mica_array got = OUT_ARRAY("y", y);
        must(mica_executable_run(run, fed, 3, &got, 1));
        rig_near(y, right, 4 * WIDTH, 1e-2); /* four products of f16 each; another row is another number */
        mica_executable_release(run);
    }
    mica_graph_release(graph);
}

/* x times two weights, one behind the other; or times one as wide. */
static mica_graph *joined_graph(bool joined)
{
    mica_graph *graph = NULL;
    must(mica_graph_create(&graph));
    const mica_tensor x = mica_graph_input(graph, "x", MICA_DTYPE_F32, 2, SHAPE(3, 8));
    mica_tensor w = 0;
    if (joined) {
        const mica_tensor both[] = {mica_graph_parameter(graph, "w", MICA_DTYPE_F32, 2, SHAPE(8, 5)),
                                    mica_graph_parameter(graph, "u", MICA_DTYPE_F32, 2, SHAPE(8, 6))};
        w = mica_graph_concat(graph, both, 2, 1);
    } else {
        w = mica_graph_parameter(graph, "w", MICA_DTYPE_F32, 2, SHAPE(8, 11));
    }
    mica_graph_output(graph, "y", mica_graph_matmul(graph, x, w));
    must(mica_graph_status(graph));
    return graph;
}

/* Weights that are joined are joined when they are set: a run has as many records as with one weight. */
static void weights_are_joined_once(void **state)
{
    (void)state;
    EACH_DEVICE(device) EACH_MODE(mode)
    {
        uint64_t records[2];
        for (int joined = 0; joined < 2; joined++) {
            static float x[24], w[88], u[48], y[33];
            double right[33];
            test_random random = test_random_from(4);
            mica_graph *graph = joined_graph(joined);
            mica_executable *run = rig_compile(graph, device, mode);
            mica_executable_stats stats;
            rig_fill(&random, x, 24);
            for (int again = 0; again < 2; again++) { /* a weight that is set anew is joined anew */
                rig_fill(&random, w, 88);
                rig_fill(&random, u, 48);
                must(rig_set(run, rig_array("w", MICA_DTYPE_F32, w, joined ? 160 : 352, 2,
                                            SHAPE(8, joined ? 5 : 11))));
                if (joined)
                    must(rig_set(run, F32_ARRAY("u", u, 8, 6)));
                mica_array fed = F32_ARRAY("x", x, 3, 8), got = OUT_ARRAY("y", y);
                must(mica_executable_run(run, &fed, 1, &got, 1));
                for (int i = 0; i < 33; i++) {
                    right[i] = 0;
                    for (int k = 0; k < 8; k++)
                        right[i] +=
                            (double)x[i / 11 * 8 + k] * (double)(!joined      ? w[k * 11 + i % 11]
                                                                 : i % 11 < 5 ? w[k * 5 + i % 11]
                                                                              : u[k * 6 + i % 11 - 5]);
                }
                rig_near(y, right, 33, 1e-5);
            }
            must(mica_executable_get_stats(run, &stats));
            records[joined] = stats.records;
            mica_executable_release(run);
            mica_graph_release(graph);
        }
        assert_true(records[0] == records[1]);
    }
}

/* A body has no parameters that could be lost: it says so, and what it gets of the graph around it is a parameter there. */
static void bodies_take_values(void **state)
{
    (void)state;
    mica_graph *body = NULL, *graph = NULL;
    must(mica_graph_create(&body));
    mica_tensor x = mica_graph_input(body, "x", MICA_DTYPE_F32, 1, SHAPE(2));
    mica_graph_output(body, "y",
                      mica_graph_mul(body, x, mica_graph_parameter(body, "w", MICA_DTYPE_F32, 1, SHAPE(2))));
    must(mica_graph_create(&graph));
    mica_tensor in = mica_graph_input(graph, "x", MICA_DTYPE_F32, 1, SHAPE(2)), out = 0;
    assert_int_equal(mica_graph_call(graph, body, NULL, 0, &in, 1, &out, 1), 0);
    assert_int_equal(mica_graph_status(graph), MICA_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(mica_status_message(), "parameters"));
    mica_graph_release(body);
    mica_graph_release(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constants_keep_their_type), cmocka_unit_test(precision_leaves_indices),
        cmocka_unit_test(weights_are_joined_once), cmocka_unit_test(bodies_take_values)};
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
