/* bench_ops.c - `mica bench ops`: each op against the ceilings of its device. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "bench_case.h"
#include "ceiling.h"
#include "output.h"
#include "weights.h"

#define ROTATE_BYTES 200e6      /* sets of operands together: more than the caches hold */
#define ROTATE_BYTES_GPU 1200e6 /* the same for GPUs */
#define MAX_SETS 128

static const tool_column columns[] = {
    {"op", "op", TOOL_TEXT, 14},       {"type", "type", TOOL_TEXT, 8},
    {"shape", "shape", TOOL_TEXT, 20}, {"us", "us", 1, 10},
    {"gb_per_s", "GB/s", 1, 8},        {"gflop_per_s", "GFLOP/s", 1, 9},
    {"share", "% of ceiling", 0, 12},  {"kernels", "kernels", TOOL_TEXT, 7},
};
#define COLUMNS (sizeof columns / sizeof *columns)

static void release_sets(bench_set *sets, uint32_t count)
{
    for (uint32_t s = 0; s < count; s++)
        for (int i = 0; i < BENCH_BUFFERS; i++)
            mica_buffer_release(sets[s].buffer[i]);
}

/* A recording that runs the op once on each set, one after the other, as in a model. */
static mica_status record_round(mica_device *device, const bench_case *c, const bench_set *sets,
                                uint32_t count, mica_recording **out)
{
    mica_session *session = NULL;
    TOOL_TRY(mica_session_begin(device, NULL, MICA_SESSION_RECORD, &session));
    mica_status status = MICA_OK;
    for (uint32_t s = 0; s < count && status == MICA_OK; s++) {
        status = c->family->encode(mica_session_encoder(session), c, &sets[s]);
        if (status == MICA_OK)
            status = mica_encoder_barrier(mica_session_encoder(session));
    }
    if (status == MICA_OK)
        status = mica_session_record(session, 0, NULL, out);
    mica_session_release(session);
    return status;
}

/* How much the sets may have together: no more than half of what is free. */
static mica_status rotated_bytes(mica_device *device, int gpu, double *out)
{
    mica_device_memory memory;
    TOOL_TRY(mica_device_get_memory(device, &memory));
    *out = fmin(gpu ? ROTATE_BYTES_GPU : ROTATE_BYTES, (double)memory.free_bytes / 2);
    return MICA_OK;
}

/* What is known of a row once it has run. */
typedef struct measured {
    double ns;    /* of one record, in the best of the rounds that fit the time */
    double bytes; /* of one set */
    char kernels[BENCH_KERNELS_BYTES];
} measured;

static mica_status measure(mica_device *device, const bench_case *c, double rotate, measured *out)
{
    bench_set sets[MAX_SETS] = {{{NULL}}};
    uint32_t count = 1;
    mica_status status = c->family->create(device, c, &sets[0]);
    out->bytes = status == MICA_OK ? c->family->bytes(c, &sets[0]) : 1;
    double wanted = c->family->rotate ? ceil(rotate / out->bytes) : 1;
    while (count < wanted && count < MAX_SETS && status == MICA_OK)
        status = c->family->create(device, c, &sets[count++]);
    mica_recording *recording = NULL;
    uint32_t rounds = 0;
    out->ns = INFINITY;
    if (status == MICA_OK)
        status = record_round(device, c, sets, count, &recording);
    if (status == MICA_OK)
        status = bench_best_replay(recording, &out->ns, &rounds);
    if (status == MICA_OK)
        status = bench_kernels_of(device, recording, out->kernels);
    out->ns /= count;
    mica_recording_release(recording);
    release_sets(sets, count);
    return status;
}

/* The ceiling that is nearer: the larger of the two shares. */
static void fill_cells(const bench_case *c, const measured *m, const tool_ceilings *most, tool_cell *cells)
{
    double gbs = m->bytes / m->ns, gflops = c->family->flops(c) / m->ns;
    double share = fmax(gbs / most->read_gbs, gflops / most->gflops);
    cells[0].text = mica_op_name(c->op);
    cells[1].text = mica_dtype_name(c->type);
    cells[3].number = m->ns / 1000;
    cells[4].number = gbs;
    cells[5].number = gflops > 0 ? gflops : NAN;
    cells[6].number = share * 100;
    cells[7].text = m->kernels;
}

/* Whether the caller wants the row: NULL wants all. */
static int is_wanted(const bench_case *c, const char *op, const char *type)
{
    return (op == NULL || strcmp(op, mica_op_name(c->op)) == 0) &&
           (type == NULL || strcmp(type, mica_dtype_name(c->type)) == 0);
}

static int run_cases(mica_device *device, int gpu, const tool_call *call, const tool_ceilings *most,
                     tool_json *json)
{
    const char *op = tool_word(call, "op"), *type = tool_word(call, "type");
    double rotate = 0;
    size_t count = 0;
    const bench_case *cases = bench_cases(&count);
    if (rotated_bytes(device, gpu, &rotate) != MICA_OK)
        return tool_fail_status();
    for (size_t i = 0; i < count; i++) {
        char shape[48];
        measured m;
        tool_cell cells[COLUMNS];
        if (!is_wanted(&cases[i], op, type) || cases[i].large > gpu)
            continue;
        if (measure(device, &cases[i], rotate, &m) != MICA_OK)
            return tool_fail_status();
        bench_case_shape(&cases[i], shape, sizeof shape);
        cells[2].text = shape;
        fill_cells(&cases[i], &m, most, cells);
        if (json != NULL)
            tool_table_object(json, columns, COLUMNS, cells);
        else
            tool_table_row(columns, COLUMNS, cells);
    }
    return 0;
}

static int measure_ops(const tool_call *call, mica_device *device, const mica_device_properties *p)
{
    tool_ceilings most;
    tool_json json = {0};
    if (tool_ceilings_measure(device, &most) != MICA_OK)
        return tool_fail_status();
    if (!tool_flag(call, "json")) {
        bench_device_line(p);
        printf("ceilings: %.1f GB/s read, %.1f GFLOP/s f32\n\n", most.read_gbs, most.gflops);
        tool_table_head(columns, COLUMNS);
        return run_cases(device, p->threads == 0, call, &most, NULL);
    }
    tool_json_open(&json, NULL, '{');
    bench_device_facts(&json, p);
    tool_json_real(&json, "read_gb_per_s", most.read_gbs);
    tool_json_real(&json, "gflop_per_s", most.gflops);
    tool_json_open(&json, "ops", '[');
    int result = run_cases(device, p->threads == 0, call, &most, &json);
    tool_json_close(&json, ']');
    tool_json_close(&json, '}');
    return result;
}

static int is_benched(const char *op, const char *type)
{
    size_t count = 0;
    const bench_case *cases = bench_cases(&count);
    for (size_t i = 0; i < count; i++)
        if (is_wanted(&cases[i], op, type))
            return 1;
    return 0;
}

int bench_ops(const tool_call *call, uint32_t threads)
{
    const char *op = tool_word(call, "op"), *type = tool_word(call, "type");
    if (op != NULL && !is_benched(op, NULL))
        return tool_misuse("bench: --op is \"%.40s\", which is no op that is measured", op);
    if (type != NULL && !is_benched(op, type))
        return tool_misuse("bench: --type is \"%.40s\", which no row has", type);
    return bench_on_device(call, threads, measure_ops);
}
