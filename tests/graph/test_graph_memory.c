/*
 * test_graph_memory.c - what a compiled transformer of twelve layers takes: an arena near the least that its schedule needs, though its values are of three sizes and
 * the large ones are born beside those that live long.
 */
#include "graph/graph_rig.h"
#include "graph/ir.h"

enum { LAYERS = 12, TOKENS = 64, WIDTH = 32, HEADS = 4, INNER = 4 * WIDTH };

static mica_executable *run;

/* A parameter of the next name, to be set to small numbers. */
static mica_tensor weight(mica_graph *graph, uint64_t rows, uint64_t columns)
{
    char name[24];
    snprintf(name, sizeof name, "w%u", mica_graph_parameter_count(graph));
    return mica_graph_parameter(graph, name, MICA_DTYPE_F32, rows == 0 ? 1 : 2,
                                rows == 0 ? SHAPE(columns) : SHAPE(rows, columns));
}

static mica_graph *transformer(void)
{
    mica_graph *graph = NULL;
    must(mica_graph_create(&graph));
    mica_tensor h = mica_graph_input(graph, "x", MICA_DTYPE_F32, 3, SHAPE(1, TOKENS, WIDTH));
    for (uint32_t i = 0; i < LAYERS; i++) {
        const mica_graph_attention_desc heads = {.layout = MICA_HEADS_TOGETHER, .heads = HEADS};
        const mica_tensor q = mica_graph_linear(graph, h, weight(graph, WIDTH, WIDTH), 0);
        const mica_tensor k = mica_graph_linear(graph, h, weight(graph, WIDTH, WIDTH), 0);
        const mica_tensor v = mica_graph_linear(graph, h, weight(graph, WIDTH, WIDTH), 0);
        const mica_tensor seen = mica_graph_attention(graph, q, k, v, &heads, NULL);
        const mica_tensor out = mica_graph_linear(graph, seen, weight(graph, WIDTH, WIDTH), 0);
        h = mica_graph_layer_norm(graph, mica_graph_add(graph, out, h), weight(graph, 0, WIDTH), 0, 1e-5f);
        const mica_tensor up = mica_graph_linear(graph, h, weight(graph, INNER, WIDTH), 0);
        const mica_tensor down =
            mica_graph_linear(graph, mica_graph_gelu_erf(graph, up), weight(graph, WIDTH, INNER), 0);
        h = mica_graph_layer_norm(graph, mica_graph_add(graph, down, h), weight(graph, 0, WIDTH), 0, 1e-5f);
    }
    mica_graph_output(graph, "y", h);
    must(mica_graph_status(graph));
    return graph;
}

static void set_weights(const mica_graph *graph)
{
    static float numbers[INNER * WIDTH];
    test_random random = test_random_from(3);
    for (uint32_t i = 0; i < mica_graph_parameter_count(graph); i++) {
        mica_array array = {.dtype = MICA_DTYPE_F32, .data = numbers};
        mica_tensor tensor = mica_graph_get_parameter(graph, i, &array.name);
        const mica__type *type = mica__type_of(graph, tensor);
        array.ndim = type->ndim;
        array.bytes = 4;
        for (uint32_t d = 0; d < type->ndim; d++)
            array.bytes *= array.shape[d] = type->shape[d];
        rig_fill(&random, numbers, (uint32_t)(array.bytes / 4));
        must(mica_executable_set(run, &array));
    }
}

static void test_transformer(void **state)
{
    (void)state;
    static float x[TOKENS * WIDTH], y[2][TOKENS * WIDTH];
    test_random random = test_random_from(5);
    rig_fill(&random, x, TOKENS * WIDTH);
    mica_graph *graph = transformer();
    mica_device *device = NULL;
    mica_executable_stats stats;
    must(mica_device_open("cpu", NULL, &device));
    for (int eager = 0; eager < 2; eager++) {
        run = rig_compile(graph, device, eager ? MICA_MODE_EAGER : MICA_MODE_COMPILED);
        set_weights(graph);
        mica_array in = F32_ARRAY("x", x, 1, TOKENS, WIDTH), out = OUT_ARRAY("y", y[eager]);
        must(mica_executable_run(run, &in, 1, &out, 1));
        if (!eager)
            must(mica_executable_get_stats(run, &stats));
        mica_executable_release(run);
    }
    assert_true(stats.arena_bytes > 0 && stats.arena_bound > 0);
    if ((double)stats.arena_bytes > 1.1 * (double)stats.arena_bound)
        fail_msg("%llu bytes where %llu are needed", (unsigned long long)stats.arena_bytes,
                 (unsigned long long)stats.arena_bound);
    double right[TOKENS * WIDTH];
    for (uint32_t i = 0; i < TOKENS * WIDTH; i++)
        right[i] = (double)y[1][i]; /* each value in memory of its own */
    rig_near(y[0], right, TOKENS * WIDTH, 1e-4);
    mica_graph_release(graph);
    mica_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_transformer)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
