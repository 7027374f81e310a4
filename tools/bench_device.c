/* bench_device.c - what the measurements of a device share: opening it, its words, the best of some replays. */
#include <math.h>
#include <stdio.h>

#include "bench.h"
#include "output.h"

#define MEASURE_NS 150000000u
#define MAX_ROUNDS 1000u

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

void bench_device_line(const mica_device_properties *p)
{
    printf("%s: %s, %s, %u %s\n", p->id, p->name, p->driver, p->threads > 0 ? p->threads : p->processors,
           p->threads > 0 ? "threads" : "processors");
}

void bench_device_facts(tool_json *json, const mica_device_properties *p)
{
    tool_json_text(json, "version", mica_version());
    tool_json_text(json, "device", p->id);
    tool_json_text(json, "name", p->name);
    tool_json_text(json, "driver", p->driver);
    tool_json_uint(json, "threads", p->threads);
    tool_json_uint(json, "processors", p->processors);
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

mica_status bench_best_replay(mica_recording *recording, double *out_ns, uint32_t *out_replays)
{
    mica_status status = MICA_OK;
    uint64_t start = tool_clock_ns();
    *out_ns = INFINITY;
    for (*out_replays = 0; *out_replays < MAX_ROUNDS && status == MICA_OK; ++*out_replays) {
        double ns = 0;
        if (*out_replays > 2 && tool_clock_ns() - start > MEASURE_NS)
            break;
        status = time_replay(recording, &ns);
        *out_ns = ns < *out_ns ? ns : *out_ns;
    }
    return status;
}
