/* test_graph_conv.c - weights of convolutions, made ready once: the same bits as where they lie as they came, whatever holds them. */
#include "graph/graph_rig.h"

/* How a graph has its weight. */
typedef enum held { CONSTANT, PARAMETER, COMPUTED, SHARED, HELD_COUNT } held;

typedef struct layer {
    uint32_t ndim, groups;
    uint64_t x[5], weight[5]; /* shapes */
} layer;

/* Whole blocks of outputs, parts of them, groups whose last has none behind it, one and three dimensions, few outputs. */
static const layer layers[] = {
    {4, 1, {2, 5, 9, 11}, {64, 5, 3, 3}},   {4, 2, {1, 8, 6, 6}, {160, 4, 3, 3}},
    {4, 1, {1, 33, 7, 7}, {128, 33, 3, 3}}, {4, 1, {1, 40, 6, 5}, {17, 40, 1, 1}},
    {4, 4, {3, 8, 8, 8}, {64, 2, 3, 2}},    {4, 3, {1, 6, 8, 9}, {15, 2, 3, 3}},
    {3, 1, {2, 7, 31}, {96, 7, 5}},         {5, 1, {1, 3, 5, 6, 7}, {32, 3, 2, 3, 2}},
    {4, 6, {1, 6, 9, 9}, {6, 1, 3, 3}},
};

static uint64_t elements(const uint64_t *shape, uint32_t ndim)
{
    uint64_t count = 1;
    for (uint32_t d = 0; d < ndim; d++)
        count *= shape[d];
    return count;
}

static mica_graph *graph_of(const layer *l, held how, const float *weight, uint64_t *out_shape)
{
    const uint64_t bytes = elements(l->weight, l->ndim) * sizeof *weight;
    const mica_conv_params params = {.low = {1}, .high = {0, 0, 0}, .groups = l->groups};
    mica_graph *graph = NULL;
    must(mica_graph_create(&graph));
    const mica_tensor x = mica_graph_input(graph, "x", MICA_DTYPE_F32, l->ndim, l->x);
    mica_tensor w = how == CONSTANT
                        ? mica_graph_constant(graph, MICA_DTYPE_F32, l->ndim, l->weight, weight, bytes)
                        : mica_graph_parameter(graph, "w", MICA_DTYPE_F32, l->ndim, l->weight);
    if (how == COMPUTED)
        w = mica_graph_mul(graph, w, mica_graph_number(graph, MICA_DTYPE_F32, 0.75));
    const mica_tensor y = mica_graph_conv(graph, x, w, 0, &params);
    mica_graph_output(graph, "y", y);
    if (how == SHARED) /* something else reads it as it is */
        mica_graph_output(graph, "norm",
                          mica_graph_reduce(graph, MICA_REDUCE_SUM, w, (const int32_t[]){0}, 1, 0));
    must(mica_graph_status(graph));
    mica_graph_tensor_info info;
    must(mica_graph_get_tensor(graph, y, &info));
    memcpy(out_shape, info.shape, sizeof info.shape);
    return graph;
}

/* What the graph gives with a weight, at `y`. */
static void run(mica_executable *executable, const layer *l, held how, float *x, float *weight, float *y,
                uint64_t count)
{
    mica_array in = rig_array("x", MICA_DTYPE_F32, x, elements(l->x, l->ndim) * 4, l->ndim, l->x);
    mica_array out = {.name = "y", .data = y, .bytes = count * 4};
    if (how != CONSTANT)
        must(rig_set(executable, rig_array("w", MICA_DTYPE_F32, weight, elements(l->weight, l->ndim) * 4,
                                           l->ndim, l->weight)));
    memset(y, 0xff, count * sizeof *y);
    must(mica_executable_run(executable, &in, 1, &out, 1));
}

static void check(mica_device *device, const layer *l, held how)
{
    const uint64_t x_count = elements(l->x, l->ndim), w_count = elements(l->weight, l->ndim);
    float *x = malloc(x_count * 4), *w = malloc(w_count * 4);
    uint64_t shape[MICA_MAX_DIMS];
    test_random random = test_random_from(11 + l->groups);
    assert_true(x != NULL && w != NULL);
    rig_fill(&random, x, x_count);
    rig_fill(&random, w, w_count);
    mica_graph *graph = graph_of(l, how, w, shape);
    const uint64_t count = elements(shape, l->ndim);
    float *y = malloc(count * 4), *wanted = malloc(count * 4);
    assert_true(y != NULL && wanted != NULL);
    mica_executable *plain = NULL, *ready = rig_compile(graph, device, MICA_MODE_COMPILED);
    const mica_compile_options as_written = {.mode = MICA_MODE_EAGER, .flags = MICA_COMPILE_AS_WRITTEN};
    must(mica_graph_compile(graph, device, &as_written, &plain));
    for (int again = 0; again < 3; again++) {
        run(plain, l, how, x, w, wanted, count);
        run(ready, l, how, x, w, y, count);
        assert_memory_equal(y, wanted, count * 4);
        if (how != CONSTANT && again == 0)
            rig_fill(&random, w, w_count); /* another weight */
    }
    mica_executable_release(plain);
    mica_executable_release(ready);
    mica_graph_release(graph);
    free(x);
    free(w);
    free(y);
    free(wanted);
}

static void test_weights_made_ready(void **state)
{
    (void)state;
    mica_device *device = NULL;
    must(mica_device_open("cpu", NULL, &device));
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        for (held how = CONSTANT; how < HELD_COUNT; how++)
            check(device, &layers[i], how);
    mica_device_release(device);
}

/* A buffer that the caller gives is read as it is with each run. */
static void test_weight_of_the_caller(void **state)
{
    (void)state;
    const layer *l = &layers[0];
    const uint64_t w_count = elements(l->weight, 4), x_count = elements(l->x, 4);
    static float x[2 * 5 * 9 * 11], w[64 * 5 * 3 * 3];
    uint64_t shape[MICA_MAX_DIMS];
    test_random random = test_random_from(3);
    mica_device *device = NULL;
    mica_buffer *buffer = NULL;
    must(mica_device_open("cpu", NULL, &device));
    must(mica_buffer_alloc(device, MICA_DTYPE_F32, 4, l->weight, &buffer));
    rig_fill(&random, x, x_count);
    mica_graph *graph = graph_of(l, PARAMETER, w, shape);
    const uint64_t count = elements(shape, 4);
    float *y = malloc(count * 4), *wanted = malloc(count * 4);
    assert_true(y != NULL && wanted != NULL);
    mica_executable *given = rig_compile(graph, device, MICA_MODE_COMPILED),
                    *set = rig_compile(graph, device, MICA_MODE_COMPILED);
    must(rig_set(given, (mica_array){.name = "w", .buffer = buffer}));
    for (int again = 0; again < 2; again++) {
        rig_fill(&random, w, w_count);
        must(mica_buffer_write(buffer, 0, w, sizeof w));
        run(set, l, PARAMETER, x, w, wanted, count);
        mica_array in = rig_array("x", MICA_DTYPE_F32, x, sizeof x, 4, l->x),
                   out = {.name = "y", .data = y, .bytes = count * 4};
        must(mica_executable_run(given, &in, 1, &out, 1));
        assert_memory_equal(y, wanted, count * 4);
    }
    mica_executable_release(given);
    mica_executable_release(set);
    mica_graph_release(graph);
    mica_buffer_release(buffer);
    mica_device_release(device);
    free(y);
    free(wanted);
}

/* What was computed is not kept beside what was made of it. */
static void test_memory(void **state)
{
    (void)state;
    const layer big = {4, 1, {1, 256, 4, 4}, {256, 256, 3, 3}};
    const uint64_t bytes = elements(big.weight, 4) * 4;
    for (held how = CONSTANT; how <= COMPUTED; how++) {
        float *x = calloc(elements(big.x, 4), 4), *w = calloc(1, bytes), *y = NULL;
        uint64_t shape[MICA_MAX_DIMS];
        mica_device *device = NULL;
        mica_device_memory memory;
        must(mica_device_open("cpu", NULL, &device));
        mica_graph *graph = graph_of(&big, how, w, shape);
        mica_executable *executable = rig_compile(graph, device, MICA_MODE_COMPILED);
        y = malloc(elements(shape, 4) * 4);
        assert_true(x != NULL && w != NULL && y != NULL);
        run(executable, &big, how, x, w, y, elements(shape, 4));
        must(mica_device_get_memory(device, &memory));
        assert_true(memory.owned_bytes < (how == CONSTANT ? 1 : 2) * bytes + bytes / 2);
        mica_executable_release(executable);
        mica_graph_release(graph);
        mica_device_release(device);
        free(x);
        free(w);
        free(y);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights_made_ready),
        cmocka_unit_test(test_weight_of_the_caller),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
