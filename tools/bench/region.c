/*
 * region.c - `mica bench region`: programs of a few steps over 10^3 to 10^8 elements of f32, beside a copy of as many: the bytes
 * that a program reads and writes in a second are given as a share of the copy's.
 *
 * "made" is how long the host took to have the first one ready, which is compiling where a kernel is made for the program. On GPUs
 * MICA_DEBUG=generate and MICA_DEBUG=interpret measure one of the two kernels at every size.
 */
#include <stdio.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/weights.h"

#define LEAST_ELEMENTS 1000u
#define SIZES 6u /* in steps of ten */
#define BUFFERS 4u
#define MOST_STEPS 12u
#define NODES 8u /* of a recording */

static const tool_column columns[] = {
    {"program", "program", TOOL_TEXT, 14},
    {"elements", "elements", 0, 10},
    {"made_ms", "made ms", 2, 9},
    {"us", "us", 2, 11},
    {"gbs", "GB/s", 1, 9},
    {"of_copy", "% copy", 1, 8},
    {"kernels", "kernels", TOOL_TEXT, 7},
};
#define COLUMNS (sizeof columns / sizeof *columns)

typedef struct region_program {
    const char *name;
    uint32_t inputs, steps;
    uint8_t step[MOST_STEPS][3]; /* scalar, values */
} region_program;

#define NO MICA_REGION_NONE
static const region_program programs[] = {
    {"copy", 1, 0, {{0}}}, /* no program: the op */
    {"add", 2, 1, {{MICA_SCALAR_ADD, 0, 1}}},
    {"silu, mul", 2, 2, {{MICA_SCALAR_SILU, 0, NO}, {MICA_SCALAR_MUL, 2, 1}}},
    {"ten",
     3,
     10,
     {{MICA_SCALAR_ADD, 0, 1},
      {MICA_SCALAR_MUL, 3, 2},
      {MICA_SCALAR_MAX, 4, 1},
      {MICA_SCALAR_ADD, 5, 0},
      {MICA_SCALAR_MUL, 6, 1},
      {MICA_SCALAR_MAX, 7, 2},
      {MICA_SCALAR_ADD, 8, 1},
      {MICA_SCALAR_MUL, 9, 0},
      {MICA_SCALAR_MAX, 10, 2},
      {MICA_SCALAR_ADD, 11, 2}}},
    {"ten, two exp",
     3,
     12,
     {{MICA_SCALAR_ADD, 0, 1},
      {MICA_SCALAR_MUL, 3, 2},
      {MICA_SCALAR_EXP, 4, NO},
      {MICA_SCALAR_MAX, 5, 1},
      {MICA_SCALAR_ADD, 6, 0},
      {MICA_SCALAR_MUL, 7, 1},
      {MICA_SCALAR_MAX, 8, 2},
      {MICA_SCALAR_EXP, 9, NO},
      {MICA_SCALAR_ADD, 10, 1},
      {MICA_SCALAR_MUL, 11, 0},
      {MICA_SCALAR_MAX, 12, 2},
      {MICA_SCALAR_ADD, 13, 2}}},
};

static mica_status make(const region_program *program, mica_region **out)
{
    mica_region_step step[MOST_STEPS];
    mica_region_desc desc = {
        .input_count = program->inputs, .output_count = 1, .step_count = program->steps, .step = step};
    memset(step, 0, sizeof step);
    memset(desc.output, NO, sizeof desc.output);
    memset(desc.output_imag, NO, sizeof desc.output_imag);
    memset(desc.input, MICA_REGISTER_F32, program->inputs);
    for (uint32_t s = 0; s < program->steps; s++) {
        step[s].scalar = program->step[s][0];
        step[s].type = MICA_REGISTER_F32;
        step[s].value[0] = program->step[s][1];
        step[s].value[1] = program->step[s][2];
        step[s].value[2] = NO;
    }
    desc.output[0] = (uint8_t)(program->inputs + program->steps - 1);
    return mica_region_create(&desc, out);
}

typedef struct region_time {
    double made_ns, ns;
    char kernels[BENCH_KERNELS_BYTES];
} region_time;

/* `region` NULL: copies its input. All nodes write the same buffer, so each waits for the one before. */
static mica_status measure(mica_device *device, const mica_region *region, mica_buffer *const *in,
                           mica_buffer *out, region_time *time)
{
    mica_session *session = NULL;
    mica_recording *recording = NULL;
    uint32_t replays = 0;
    const uint64_t start = tool_clock_ns();
    TOOL_TRY(mica_session_begin(device, NULL, MICA_SESSION_RECORD, &session));
    mica_status status = MICA_OK;
    for (uint32_t i = 0; i < NODES && status == MICA_OK; i++)
        status = region == NULL ? mica_copy(mica_session_encoder(session), in[0], out)
                                : mica_region_apply(mica_session_encoder(session), region, in, &out);
    if (status == MICA_OK)
        status = mica_session_record(session, 0, NULL, &recording);
    mica_session_release(session);
    if (status == MICA_OK)
        status = mica_recording_replay_and_wait(recording);
    time->made_ns = (double)(tool_clock_ns() - start);
    if (status == MICA_OK)
        status = bench_best_replay(recording, 0, &time->ns, &replays);
    if (status == MICA_OK)
        status = bench_kernels_of(device, recording, time->kernels);
    mica_recording_release(recording);
    time->ns /= NODES;
    return status;
}

/* One program at one size: views of the whole buffers, the last of which is written. `*copy_gbs` comes from the copy, which is the
 * first. */
static mica_status run_size(mica_device *device, const region_program *program, const mica_region *region,
                            mica_buffer *const *whole, uint64_t elements, double *copy_gbs, tool_json *json)
{
    mica_buffer *part[BUFFERS] = {NULL};
    region_time time = {0};
    mica_status status = MICA_OK;
    for (uint32_t i = 0; i < BUFFERS && status == MICA_OK; i++)
        status = mica_buffer_slice(whole[i], 0, 0, elements, &part[i]);
    if (status == MICA_OK)
        status = measure(device, region, part, part[BUFFERS - 1], &time);
    for (uint32_t i = 0; i < BUFFERS; i++)
        mica_buffer_release(part[i]);
    if (status != MICA_OK)
        return status;
    const double gbs = 4.0 * (program->inputs + 1) * (double)elements / time.ns;
    if (region == NULL)
        *copy_gbs = gbs;
    const tool_cell cells[COLUMNS] = {{.text = program->name},
                                      {.number = (double)elements},
                                      {.number = time.made_ns / 1e6},
                                      {.number = time.ns / 1e3},
                                      {.number = gbs},
                                      {.number = 100 * gbs / *copy_gbs},
                                      {.text = time.kernels}};
    bench_table_row(json, columns, COLUMNS, cells);
    return MICA_OK;
}

static mica_status run_all(mica_device *device, mica_buffer *const *whole, uint32_t sizes, tool_json *json)
{
    mica_status status = MICA_OK;
    double copy_gbs[SIZES];
    for (size_t k = 0; k < sizeof programs / sizeof *programs && status == MICA_OK; k++) {
        mica_region *region = NULL;
        uint64_t n = LEAST_ELEMENTS;
        if (programs[k].steps > 0)
            status = make(&programs[k], &region);
        for (uint32_t size = 0; size < sizes && status == MICA_OK; size++, n *= 10)
            status = run_size(device, &programs[k], region, whole, n, &copy_gbs[size], json);
        mica_region_release(region);
    }
    return status;
}

static int measure_regions(const tool_call *call, mica_device *device, const mica_device_properties *p)
{
    tool_json json = {0}, *list = tool_flag(call, "json") ? &json : NULL;
    const uint32_t sizes = tool_flag(call, "quick") ? SIZES - 1 : SIZES;
    const uint64_t elements = sizes == SIZES ? 100000000u : 10000000u;
    mica_buffer *whole[BUFFERS] = {NULL};
    mica_status status = MICA_OK;
    bench_device_facts(list, p);
    bench_table_open(list, "regions", columns, COLUMNS);
    for (uint32_t i = 0; i < BUFFERS && status == MICA_OK; i++)
        status = mica_buffer_alloc(device, MICA_DTYPE_F32, 1, &elements, &whole[i]);
    if (status == MICA_OK)
        status = run_all(device, whole, sizes, list);
    for (uint32_t i = 0; i < BUFFERS; i++)
        mica_buffer_release(whole[i]);
    bench_table_close(list);
    return status == MICA_OK ? 0 : tool_fail_status();
}

int bench_region(const tool_call *call, uint32_t threads)
{
    return bench_on_device(call, threads, measure_regions);
}
