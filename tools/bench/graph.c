/*
 * graph.c - `mica bench graph`: what a graph costs the host: building it, making it ready, running it in each mode.
 *
 * Nodes are small and each reads what the one before wrote, so that nothing but their cost is measured: of adds, which become passes of many nodes
 * each, and of softmaxes, which stay what they are.
 */
#include <string.h>

#include "bench/bench.h"
#include "bench/weights.h"

#define BUILT 100000u
#define NODES 10000u
#define FEW 100u
#define WIDTH 8u
#define SLICES 5u

static const tool_column columns[] = {
    {"what", "what", TOOL_TEXT, 34}, {"ns", "ns a node", 1, 10}, {"least_ns", "least", 1, 9},
    {"most_ns", "most", 1, 9},       {"nodes", "nodes", 0, 8},   {"ms", "ms in all", 3, 10},
};
#define COLUMNS (sizeof columns / sizeof *columns)

typedef struct graphs {
    mica_device *device;
    tool_json *json;
    mica_buffer *x;
} graphs;

/* Sorts the samples, nanoseconds of `nodes` nodes. */
static void add_row(const graphs *g, const char *what, double *samples, uint32_t count, uint32_t nodes)
{
    const double median = bench_median(samples, count);
    const tool_cell cells[COLUMNS] = {{.text = what},
                                      {.number = median / nodes},
                                      {.number = samples[0] / nodes},
                                      {.number = samples[count - 1] / nodes},
                                      {.number = nodes},
                                      {.number = median * 1e-6}};
    bench_table_row(g->json, columns, COLUMNS, cells);
}

/* A chain of adds or of softmaxes. */
static mica_status build(uint32_t nodes, int adds, mica_graph **out)
{
    mica_graph *graph = NULL;
    TOOL_TRY(mica_graph_create(&graph));
    const mica_tensor x = mica_graph_input(graph, "x", MICA_DTYPE_F32, 2, (uint64_t[]){1, WIDTH});
    mica_tensor value = x;
    for (uint32_t i = 0; i < nodes; i++)
        value = adds ? mica_graph_add(graph, value, x) : mica_graph_softmax(graph, value, 1.0f, -1);
    mica_graph_output(graph, "y", value);
    const mica_status status = mica_graph_status(graph);
    if (status == MICA_OK)
        *out = graph;
    else
        mica_graph_release(graph);
    return status;
}

static mica_status measure_building(const graphs *g)
{
    double samples[SLICES];
    for (uint32_t i = 0; i < SLICES; i++) {
        mica_graph *graph = NULL;
        const uint64_t start = tool_clock_ns();
        TOOL_TRY(build(BUILT, 1, &graph));
        samples[i] = (double)(tool_clock_ns() - start);
        mica_graph_release(graph);
    }
    add_row(g, "build, adds", samples, SLICES, BUILT);
    return MICA_OK;
}

static mica_status run(const graphs *g, mica_executable *executable)
{
    const mica_array x = {.name = "x", .ndim = 2, .shape = {1, WIDTH}, .buffer = g->x};
    return mica_executable_run(executable, &x, 1, NULL, 0);
}

static mica_status time_runs(const graphs *g, mica_executable *executable, double samples[SLICES])
{
    for (uint32_t i = 0; i < SLICES; i++) {
        uint32_t count = 0;
        const uint64_t start = tool_clock_ns();
        uint64_t now;
        do {
            TOOL_TRY(run(g, executable));
            now = tool_clock_ns();
            count++;
        } while (now - start < 5000000);
        samples[i] = (double)(now - start) / count;
    }
    return MICA_OK;
}

/* Making it ready is compiling and, as shapes are known only then, the plan of the first run. */
static mica_status measure_mode(const graphs *g, const mica_graph *graph, uint32_t nodes,
                                mica_graph_mode mode, const char *ready, const char *runs)
{
    const mica_compile_options options = {.mode = mode};
    double samples[SLICES], first[SLICES];
    mica_status status = MICA_OK;
    for (uint32_t i = 0; i < SLICES && status == MICA_OK; i++) {
        mica_executable *executable = NULL;
        const uint64_t start = tool_clock_ns();
        status = mica_graph_compile(graph, g->device, &options, &executable);
        if (status == MICA_OK)
            status = run(g, executable);
        first[i] = (double)(tool_clock_ns() - start);
        if (status == MICA_OK && i + 1 == SLICES)
            status = time_runs(g, executable, samples);
        mica_executable_release(executable);
    }
    TOOL_TRY(status);
    if (ready != NULL)
        add_row(g, ready, first, SLICES, nodes);
    add_row(g, runs, samples, SLICES, nodes);
    return MICA_OK;
}

static mica_status measure_chain(const graphs *g, uint32_t nodes, int adds)
{
    static const struct {
        mica_graph_mode mode;
        const char *ready[2], *runs[2];
    } modes[] = {
        {MICA_MODE_COMPILED,
         {"compile and run, softmaxes", "compile and run, adds"},
         {"run, compiled, softmaxes", "run, compiled, adds"}},
        {MICA_MODE_LAZY, {NULL, NULL}, {"run, lazy, softmaxes", "run, lazy, adds"}},
        {MICA_MODE_EAGER, {NULL, NULL}, {"run, eager, softmaxes", "run, eager, adds"}},
    };
    mica_graph *graph = NULL;
    mica_status status = build(nodes, adds, &graph);
    for (size_t i = 0; i < sizeof modes / sizeof *modes && status == MICA_OK; i++)
        status = measure_mode(g, graph, nodes, modes[i].mode, modes[i].ready[adds], modes[i].runs[adds]);
    mica_graph_release(graph);
    return status;
}

static mica_status measure_all(const graphs *g)
{
    TOOL_TRY(measure_building(g));
    for (int adds = 0; adds < 2; adds++) {
        TOOL_TRY(measure_chain(g, 1, adds));
        TOOL_TRY(measure_chain(g, FEW, adds));
        TOOL_TRY(measure_chain(g, NODES, adds));
    }
    return MICA_OK;
}

static int measure_graphs(const tool_call *call, mica_device *device, const mica_device_properties *p)
{
    tool_json json = {0};
    graphs g = {.device = device, .json = tool_flag(call, "json") ? &json : NULL};
    mica_status status = mica_buffer_alloc(device, MICA_DTYPE_F32, 2, (uint64_t[]){1, WIDTH}, &g.x);
    if (status == MICA_OK) {
        bench_device_facts(g.json, p);
        bench_table_open(g.json, "graphs", columns, COLUMNS);
        status = measure_all(&g);
        bench_table_close(g.json);
    }
    mica_buffer_release(g.x);
    return status == MICA_OK ? 0 : tool_fail_status();
}

int bench_graph(const tool_call *call, uint32_t threads)
{
    return bench_on_device(call, threads, measure_graphs);
}
