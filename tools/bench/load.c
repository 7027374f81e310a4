/*
 * load.c - `mica bench load`: opening a model file, and bringing its tensors to a device by every way.
 *
 * After the first round the file lies in the system's memory: what is measured is mica and copying, not the disk.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/bench.h"
#include "bench/weights.h"

static const tool_column columns[] = {
    {"way", "way", TOOL_TEXT, 16},
    {"ms", "ms", 2, 10},
    {"gb_per_s", "GB/s", 2, 8},
};
#define COLUMNS (sizeof columns / sizeof *columns)

typedef struct load_way {
    const char *name;
    uint32_t open, load;
    int only_open;
} load_way;

static const load_way ways[] = {
    {"open", 0, 0, 1},
    {"mapped", 0, 0, 0},
    {"mapped, packed", 0, MICA_LOAD_PACK, 0},
    {"read", MICA_WEIGHTS_NO_MAP, 0, 0},
    {"read, packed", MICA_WEIGHTS_NO_MAP, MICA_LOAD_PACK, 0},
};

static mica_status load_all(mica_weights *weights, mica_device *device, uint32_t flags, uint64_t count)
{
    uint64_t *index = calloc(count + 1, sizeof *index);
    mica_buffer **buffers = calloc(count + 1, sizeof *buffers);
    mica_status status = index != NULL && buffers != NULL ? MICA_OK : MICA_ERR_OUT_OF_MEMORY;
    for (uint64_t i = 0; i < count && status == MICA_OK; i++)
        index[i] = i;
    if (status == MICA_OK)
        status = mica_weights_load_all(weights, index, count, device, flags, NULL, NULL, buffers);
    for (uint64_t i = 0; i < count && status == MICA_OK; i++)
        mica_buffer_release(buffers[i]);
    free(index);
    free(buffers);
    return status;
}

static mica_status run_way(const char *path, mica_device *device, const load_way *way, uint64_t *out_bytes)
{
    const mica_weights_options options = {.flags = way->open};
    mica_weights *weights = NULL;
    mica_weights_info info;
    TOOL_TRY(mica_weights_open(path, &options, &weights));
    mica_status status = mica_weights_get_info(weights, &info);
    if (status == MICA_OK && !way->only_open)
        status = load_all(weights, device, way->load, info.tensor_count);
    *out_bytes = status == MICA_OK && !way->only_open ? info.tensor_bytes : 0;
    mica_weights_release(weights);
    return status;
}

/* The median of the repetitions behind one that is not counted. */
static mica_status measure(const char *path, mica_device *device, const load_way *way, double *ns,
                           uint32_t repetitions, tool_json *json)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i <= repetitions; i++) {
        const uint64_t start = tool_clock_ns();
        TOOL_TRY(run_way(path, device, way, &bytes));
        ns[i > 0 ? i - 1 : 0] = (double)(tool_clock_ns() - start);
    }
    const double median = bench_median(ns, repetitions);
    const tool_cell cells[COLUMNS] = {{.text = way->name},
                                      {.number = median / 1e6},
                                      {.number = way->only_open ? NAN : (double)bytes / median}};
    bench_table_row(json, columns, COLUMNS, cells);
    return MICA_OK;
}

static int measure_loads(const tool_call *call, mica_device *device, const mica_device_properties *p)
{
    const uint32_t repetitions = (uint32_t)tool_number(call, "repetitions");
    tool_json json = {0}, *list = tool_flag(call, "json") ? &json : NULL;
    double *ns = calloc(repetitions, sizeof *ns);
    const char *path = tool_word(call, "model");
    uint64_t bytes = 0;
    if (ns == NULL)
        return tool_fail("there is no memory left");
    mica_status status = run_way(path, device, &ways[0], &bytes); /* before anything is printed */
    if (status != MICA_OK) {
        free(ns);
        return tool_fail_status();
    }
    bench_device_facts(list, p);
    bench_table_open(list, "loads", columns, COLUMNS);
    for (size_t i = 0; i < sizeof ways / sizeof *ways && status == MICA_OK; i++)
        status = measure(path, device, &ways[i], ns, repetitions, list);
    bench_table_close(list);
    free(ns);
    return status == MICA_OK ? 0 : tool_fail_status();
}

int bench_load(const tool_call *call, uint32_t threads)
{
    return bench_on_device(call, threads, measure_loads);
}
