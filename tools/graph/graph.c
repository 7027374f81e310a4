/*
 * graph.c - `mica graph run|print|bench`: graphs from files, on any device, in any mode.
 */
#include "graph/graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stdbool.h>
#include <time.h>

#include "commands.h"
#include "terminal/output.h"

typedef struct work {
    const tool_call *call;
    mica_device *device[MICA_GRAPH_PLACES + 1]; /* by place; one more is told of */
    uint32_t device_count;
    mica_graph *graph;
    mica_executable *executable;
    graph_arrays inputs;
    mica_array *outputs;
    uint32_t output_count;
} work;

static mica_graph_mode mode_of(const char *word)
{
    return word == NULL                 ? MICA_MODE_DEFAULT
           : strcmp(word, "eager") == 0 ? MICA_MODE_EAGER
           : strcmp(word, "lazy") == 0  ? MICA_MODE_LAZY
                                        : MICA_MODE_COMPILED;
}

/* The inputs of the file that was given, else drawn ones. */
static mica_status take_inputs(work *w)
{
    const char *path = tool_word(w->call, "inputs");
    mica_status status = path != NULL ? graph_read(path, &w->inputs) : MICA_OK;
    if (status == MICA_OK)
        status = graph_open(w->call->argument[1], &w->inputs, &w->graph);
    if (status == MICA_OK && path == NULL)
        status = graph_draw(w->graph, (uint64_t)tool_number(w->call, "seed"), &w->inputs);
    return status;
}

static mica_status open_device(work *w, const char *id)
{
    const mica_device_options options = {.threads = (uint32_t)tool_number(w->call, "threads")};
    const mica_status status = mica_device_open(id, &options, &w->device[w->device_count]);
    w->device_count += status == MICA_OK;
    return status;
}

/* One device, or one for each place: "cpu,opencl:0". */
static mica_status open_devices(work *w)
{
    char id[64];
    const char *at = tool_word(w->call, "device");
    mica_status status = MICA_OK;
    while (status == MICA_OK && at != NULL && w->device_count <= MICA_GRAPH_PLACES) {
        const char *end = strchr(at, ',');
        snprintf(id, sizeof id, "%.*s", end == NULL ? (int)sizeof id - 1 : (int)(end - at), at);
        status = open_device(w, id);
        at = end == NULL ? NULL : end + 1;
    }
    return status;
}

static bool has_places(const mica_graph *graph)
{
    mica_graph_node_info info;
    bool has = false;
    for (uint32_t i = 0; i < mica_graph_node_count(graph) && !has; i++)
        has = mica_graph_get_node(graph, i, &info) == MICA_OK && info.place != 0;
    return has;
}

static mica_status make(work *w)
{
    const char *precision = tool_word(w->call, "precision");
    mica_compile_options options = {.mode = mode_of(tool_word(w->call, "mode"))};
    if (precision != NULL && strcmp(precision, "as-written") != 0)
        options.precision =
            strcmp(precision, "f16") == 0 ? MICA_GRAPH_PRECISION_F16 : MICA_GRAPH_PRECISION_BF16;
    mica_status status = open_devices(w);
    if (status == MICA_OK && w->device_count > 1 && !has_places(w->graph))
        status = mica_graph_choose_device_places(w->graph, w->device, w->device_count, NULL);
    options.devices = w->device;
    options.device_count = w->device_count;
    if (status == MICA_OK)
        status = mica_graph_compile(w->graph, NULL, &options, &w->executable);
    const char *weights = tool_word(w->call, "parameters");
    if (status == MICA_OK && weights != NULL)
        status = mica_executable_set_from(w->executable, weights, NULL);
    w->output_count = mica_graph_output_count(w->graph);
    w->outputs = calloc(w->output_count + 1u, sizeof *w->outputs);
    return status == MICA_OK && w->outputs == NULL ? MICA_ERR_OUT_OF_MEMORY : status;
}

static void end(work *w)
{
    for (uint32_t i = 0; w->outputs != NULL && i < w->output_count; i++)
        mica_buffer_release(w->outputs[i].buffer);
    free(w->outputs);
    graph_free(&w->inputs);
    mica_executable_release(w->executable);
    mica_graph_release(w->graph);
    for (uint32_t i = 0; i < w->device_count; i++)
        mica_device_release(w->device[i]);
}

/* ---- run ---- */

static mica_status fetch(mica_array *array)
{
    uint64_t elements = 1;
    for (uint32_t d = 0; d < array->ndim; d++)
        elements *= array->shape[d];
    array->bytes = elements * mica_dtype_block_bytes(array->dtype);
    array->data = malloc(array->bytes + 1);
    return array->data == NULL ? MICA_ERR_OUT_OF_MEMORY
                               : mica_buffer_read(array->buffer, 0, array->data, array->bytes);
}

static void show(const mica_array *array)
{
    printf("%s %s [", array->name, mica_dtype_name(array->dtype));
    for (uint32_t d = 0; d < array->ndim; d++)
        printf("%s%llu", d == 0 ? "" : ", ", (unsigned long long)array->shape[d]);
    printf("]");
    const float *x = array->data;
    for (uint64_t i = 0; array->dtype == MICA_DTYPE_F32 && i < array->bytes / 4 && i < 8; i++)
        printf(" %g", (double)x[i]);
    printf("%s\n", array->dtype == MICA_DTYPE_F32 && array->bytes > 32 ? " .." : "");
}

static mica_status run(work *w)
{
    const char *path = tool_word(w->call, "outputs");
    for (uint32_t i = 0; i < w->output_count; i++)
        (void)mica_graph_get_output(w->graph, i, &w->outputs[i].name);
    mica_status status =
        mica_executable_run(w->executable, w->inputs.list, w->inputs.count, w->outputs, w->output_count);
    for (uint32_t i = 0; status == MICA_OK && i < w->output_count; i++)
        status = fetch(&w->outputs[i]);
    if (status == MICA_OK && path != NULL)
        status = graph_write(path, w->outputs, w->output_count);
    for (uint32_t i = 0; status == MICA_OK && path == NULL && i < w->output_count; i++)
        show(&w->outputs[i]);
    for (uint32_t i = 0; i < w->output_count; i++)
        free(w->outputs[i].data);
    return status;
}

/* ---- bench ---- */

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Inputs as buffers, so that a run moves nothing. */
static mica_status to_device(work *w)
{
    for (uint32_t i = 0; i < w->inputs.count; i++) {
        mica_array *array = &w->inputs.list[i];
        mica_status status =
            mica_buffer_alloc(w->device[0], array->dtype, array->ndim, array->shape, &array->buffer);
        if (status == MICA_OK)
            status = mica_buffer_write(array->buffer, 0, array->data, array->bytes);
        if (status != MICA_OK)
            return status;
    }
    return MICA_OK;
}

static const tool_column columns[] = {
    {"nodes", "nodes", 0, 7},         {"records", "records", 0, 7},      {"compile_ms", "compile ms", 2, 10},
    {"least_us", "least us", 1, 11},  {"median_us", "median us", 1, 11}, {"arena_mb", "arena MB", 1, 8},
    {"bound", "of its bound", 2, 12},
};
#define COLUMNS (sizeof columns / sizeof *columns)

static mica_status bench(work *w)
{
    enum { MOST = 1000 };
    static double times[MOST];
    const double allowed = tool_real(w->call, "seconds");
    uint32_t count = 0;
    mica_executable_stats stats;
    mica_status status = to_device(w);
    if (status == MICA_OK) /* plans, and compiles kernels */
        status = mica_executable_run(w->executable, w->inputs.list, w->inputs.count, NULL, 0);
    const double begin = seconds();
    while (status == MICA_OK && count < MOST && (count < 3 || seconds() - begin < allowed)) {
        const double start = seconds();
        status = mica_executable_run(w->executable, w->inputs.list, w->inputs.count, NULL, 0);
        times[count++] = seconds() - start;
    }
    if (status == MICA_OK)
        status = mica_executable_get_stats(w->executable, &stats);
    for (uint32_t i = 0; i < w->inputs.count; i++)
        mica_buffer_release(w->inputs.list[i].buffer);
    if (status != MICA_OK)
        return status;
    qsort(times, count, sizeof *times, compare);
    const double arena = (double)stats.arena_bytes,
                 bound = stats.arena_bound == 0 ? 1 : (double)stats.arena_bound;
    const tool_cell cells[COLUMNS] = {{NULL, (double)stats.nodes_out},
                                      {NULL, (double)stats.records},
                                      {NULL, (double)stats.compile_ns * 1e-6},
                                      {NULL, times[0] * 1e6},
                                      {NULL, times[count / 2] * 1e6},
                                      {NULL, arena * 1e-6},
                                      {NULL, stats.arena_bound == 0 ? 1 : arena / bound}};
    tool_json json = {0};
    if (tool_flag(w->call, "json")) {
        tool_json_open(&json, NULL, '{');
        for (size_t c = 0; c < COLUMNS; c++)
            tool_json_real(&json, columns[c].key, cells[c].number);
        tool_json_close(&json, '}');
        return MICA_OK;
    }
    tool_table_head(columns, COLUMNS);
    tool_table_row(columns, COLUMNS, cells);
    return MICA_OK;
}

/* ---- print ---- */

static mica_status print(work *w)
{
    const bool dot = tool_flag(w->call, "dot") != 0, behind = tool_flag(w->call, "optimised") != 0;
    mica_status (*text_of)(const mica_graph *, char *, uint64_t, uint64_t *) =
        dot ? mica_graph_print_dot : mica_graph_print;
    uint64_t length = 0;
    if (behind) {
        const mica_status status = make(w);
        if (status != MICA_OK)
            return status;
    }
    mica_status status =
        behind ? mica_executable_print(w->executable, NULL, 0, &length) : text_of(w->graph, NULL, 0, &length);
    char *text = status == MICA_OK ? malloc(length + 1) : NULL;
    if (status == MICA_OK && text == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    if (status == MICA_OK)
        status = behind ? mica_executable_print(w->executable, text, length + 1, &length)
                        : text_of(w->graph, text, length + 1, &length);
    if (status == MICA_OK)
        fwrite(text, 1, length, stdout);
    free(text);
    return status;
}

int tool_graph(const tool_call *call)
{
    static work w;
    w = (work){.call = call};
    const char *what = call->argument[0];
    mica_status status = MICA_OK;
    if (strcmp(what, "print") == 0) {
        status = graph_open(call->argument[1], NULL, &w.graph);
        if (status == MICA_OK)
            status = print(&w);
    } else {
        status = take_inputs(&w);
        if (status == MICA_OK)
            status = make(&w);
        if (status == MICA_OK)
            status = strcmp(what, "run") == 0 ? run(&w) : bench(&w);
    }
    const int code = status == MICA_OK ? tool_output_flush() : tool_fail_status();
    end(&w);
    return code;
}
