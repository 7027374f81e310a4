/* device.c - what the measurements of a device share: opening it, its words, tables, medians, the best of
 * some replays and what ran in them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "terminal/output.h"
#include "bench/weights.h"

#define MEASURE_NS 150000000u
#define MAX_ROUNDS 1000u
#define FIRST_ENTRIES 64u /* of a profile: more than an op is planned into */

int bench_on_device(const tool_call *call, uint32_t threads, bench_measure measure)
{
    mica_device_options options = {.size = sizeof options, .threads = threads};
    mica_device_properties p;
    mica_device *device = NULL;
    if (mica_device_open(tool_word(call, "device"), &options, &device) != MICA_OK)
        return tool_fail_status();
    int result =
        mica_device_get_properties(device, &p) == MICA_OK ? measure(call, device, &p) : tool_fail_status();
    mica_device_release(device);
    return result;
}

void bench_device_facts(tool_json *json, const mica_device_properties *p)
{
    if (json == NULL) {
        printf("%s: %s, %s, %u %s\n", p->id, p->name, p->driver, p->threads > 0 ? p->threads : p->processors,
               p->threads > 0 ? "threads" : "processors");
        return;
    }
    tool_json_open(json, NULL, '{');
    tool_json_text(json, "version", mica_version());
    tool_json_text(json, "device", p->id);
    tool_json_text(json, "name", p->name);
    tool_json_text(json, "driver", p->driver);
    tool_json_uint(json, "threads", p->threads);
    tool_json_uint(json, "processors", p->processors);
}

void bench_table_open(tool_json *json, const char *name, const tool_column *columns, size_t count)
{
    if (json != NULL) {
        tool_json_open(json, name, '[');
        return;
    }
    putchar('\n');
    tool_table_head(columns, count);
}

void bench_table_row(tool_json *json, const tool_column *columns, size_t count, const tool_cell *cells)
{
    if (json != NULL)
        tool_table_object(json, columns, count, cells);
    else
        tool_table_row(columns, count, cells);
}

void bench_table_close(tool_json *json)
{
    if (json == NULL)
        return;
    tool_json_close(json, ']');
    tool_json_close(json, '}');
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *samples, uint32_t count)
{
    qsort(samples, count, sizeof *samples, by_size);
    return samples[count / 2];
}

static mica_status time_replay(mica_recording *recording, double *out_ns)
{
    mica_fence *fence = NULL;
    uint64_t begin = 0, end = 0;
    mica_status status = mica_recording_replay(recording, &fence);
    if (status == MICA_OK)
        status = mica_fence_wait(fence, MICA_WAIT_FOREVER);
    if (status == MICA_OK)
        status = mica_fence_times(fence, &begin, &end);
    *out_ns = (double)(end - begin);
    mica_fence_release(fence);
    return status;
}

mica_status bench_best_replay(mica_recording *recording, int once, double *out_ns, uint32_t *out_replays)
{
    mica_status status = MICA_OK;
    uint64_t start = tool_clock_ns();
    *out_ns = INFINITY;
    for (*out_replays = 0; *out_replays < MAX_ROUNDS && status == MICA_OK; ++*out_replays) {
        double ns = 0;
        if (*out_replays > (once ? 0 : 2) && (once || tool_clock_ns() - start > MEASURE_NS))
            break;
        status = time_replay(recording, &ns);
        *out_ns = ns < *out_ns ? ns : *out_ns;
    }
    return status;
}

/* Whether one of the `count` entries before it has its name. */
static int is_named(const mica_profile_entry *entries, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        if (strcmp(entries[i].kernel, entries[count].kernel) == 0)
            return 1;
    return 0;
}

mica_status bench_kernels_of(mica_device *device, mica_recording *recording, char out[BENCH_KERNELS_BYTES])
{
    mica_profile_entry entries[FIRST_ENTRIES];
    uint64_t count = 0;
    TOOL_TRY(mica_profile_begin(device));
    mica_status status = mica_recording_replay_and_wait(recording);
    const mica_status ended = mica_profile_end(device);
    if (status == MICA_OK)
        status = ended;
    if (status == MICA_OK)
        status = mica_profile_entries(device, entries, FIRST_ENTRIES, &count);
    size_t used = 0;
    out[0] = '\0';
    for (uint64_t i = 0; i < count && i < FIRST_ENTRIES; i++) {
        if (is_named(entries, i) || used + strlen(entries[i].kernel) + 3 > BENCH_KERNELS_BYTES)
            continue;
        used += (size_t)snprintf(out + used, BENCH_KERNELS_BYTES - used, "%s%s", used > 0 ? ", " : "",
                                 entries[i].kernel);
    }
    return status;
}
