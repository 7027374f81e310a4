/* ops.c - `mica bench ops`: each op against the ceilings of its device. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/case.h"
#include "bench/catalogue.h"
#include "bench/ceiling.h"
#include "terminal/output.h"
#include "bench/weights.h"

#define ROTATE_BYTES 200e6      /* sets of operands together: more than the caches hold */
#define ROTATE_BYTES_GPU 1200e6 /* the same for GPUs */
#define MAX_SETS 128
#define NAME_BYTES 41

static const tool_column columns[] = {
    {"op", "op", TOOL_TEXT, 22},       {"type", "type", TOOL_TEXT, 8},
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
        status = bench_case_encode(mica_session_encoder(session), c, &sets[s]);
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
typedef struct op_measured {
    double ns;                /* of one record, in the best of the rounds that fit the time */
    double bytes, operations; /* of one record */
    char kernels[BENCH_KERNELS_BYTES];
} op_measured;

/* What the op moves and takes at the least, as its record says. */
static mica_status cost_of(mica_device *device, const bench_case *c, const bench_set *set, op_measured *out)
{
    mica_recording *recording = NULL;
    mica_record_info info = {.op = MICA_OP_NONE};
    TOOL_TRY(record_round(device, c, set, 1, &recording));
    const mica_status status = mica_recording_inspect(recording, 0, &info);
    out->bytes = info.bytes;
    out->operations = info.operations;
    mica_recording_release(recording);
    return status;
}

/* rotate: bytes of all sets together; 0: one set. */
static mica_status measure(mica_device *device, const bench_case *c, double rotate, op_measured *out)
{
    out->bytes = 1;
    bench_set sets[MAX_SETS] = {{{NULL}}};
    uint32_t count = 1;
    mica_status status = c->family->create(device, c, &sets[0]);
    if (status == MICA_OK)
        status = cost_of(device, c, &sets[0], out);
    double wanted = c->family->rotate ? ceil(rotate / out->bytes) : 1;
    while (count < wanted && count < MAX_SETS && status == MICA_OK)
        status = c->family->create(device, c, &sets[count++]);
    mica_recording *recording = NULL;
    uint32_t rounds = 0;
    out->ns = INFINITY;
    if (status == MICA_OK)
        status = record_round(device, c, sets, count, &recording);
    if (status == MICA_OK)
        status = bench_best_replay(recording, rotate == 0, &out->ns, &rounds);
    if (status == MICA_OK)
        status = bench_kernels_of(device, recording, out->kernels);
    out->ns /= count;
    mica_recording_release(recording);
    release_sets(sets, count);
    return status;
}

/* The ceiling that is nearer: the larger of the two shares. */
static void fill_cells(const bench_case *c, const op_measured *m, const tool_ceilings *most, tool_cell *cells)
{
    double gbs = m->bytes / m->ns, gflops = m->operations / m->ns;
    double share = fmax(gbs / most->read_gbs, gflops / most->gflops);
    cells[0].text = bench_case_name(c);
    cells[1].text = mica_dtype_name(c->type);
    cells[3].number = m->ns / 1000;
    cells[4].number = gbs;
    cells[5].number = gflops > 0 ? gflops : NAN;
    cells[6].number = share * 100;
    cells[7].text = m->kernels;
}

/* Whether the device is of the kind that the row is for. */
static int is_for(const bench_case *c, int gpu)
{
    const bench_listed *listed = bench_listed_of(c);
    return gpu ? listed == NULL || !listed->host : !c->large;
}

/* The name at *list, a list with commas, which is then behind it; 0 behind the last. NULL: an empty list. */
static int next_name(const char **list, char name[NAME_BYTES])
{
    if (*list == NULL)
        return 0;
    const size_t length = strcspn(*list, ",");
    snprintf(name, NAME_BYTES, "%.*s", (int)length, *list);
    *list = (*list)[length] == ',' ? *list + length + 1 : NULL;
    return 1;
}

static int is_listed(const char *list, const char *name)
{
    char listed[NAME_BYTES];
    while (next_name(&list, listed))
        if (strcmp(listed, name) == 0)
            return 1;
    return 0;
}

/* Whether the caller wants the row: NULL wants all. */
static int is_wanted(const bench_case *c, const char *ops, const char *types)
{
    return (ops == NULL || is_listed(ops, bench_case_name(c))) &&
           (types == NULL || is_listed(types, mica_dtype_name(c->type)));
}

static int run_cases(mica_device *device, int gpu, const tool_call *call, const tool_ceilings *most,
                     tool_json *json)
{
    const char *op = tool_word(call, "op"), *type = tool_word(call, "type");
    double rotate = 0;
    size_t count = 0;
    const bench_case *cases = bench_cases(&count);
    if (!tool_flag(call, "quick") && rotated_bytes(device, gpu, &rotate) != MICA_OK)
        return tool_fail_status();
    for (size_t i = 0; i < count; i++) {
        char shape[48];
        op_measured m;
        tool_cell cells[COLUMNS];
        if (!is_wanted(&cases[i], op, type) || !is_for(&cases[i], gpu))
            continue;
        if (measure(device, &cases[i], rotate, &m) != MICA_OK)
            return tool_fail_status();
        bench_case_shape(&cases[i], shape, sizeof shape);
        cells[2].text = shape;
        fill_cells(&cases[i], &m, most, cells);
        bench_table_row(json, columns, COLUMNS, cells);
    }
    return 0;
}

static int measure_ops(const tool_call *call, mica_device *device, const mica_device_properties *p)
{
    tool_ceilings most;
    tool_json json = {0}, *list = tool_flag(call, "json") ? &json : NULL;
    if (tool_ceilings_measure(device, &most) != MICA_OK)
        return tool_fail_status();
    bench_device_facts(list, p);
    if (list != NULL) {
        tool_json_real(list, "read_gb_per_s", most.read_gbs);
        tool_json_real(list, "gflop_per_s", most.gflops);
    } else {
        printf("ceilings: %.1f GB/s read, %.1f GFLOP/s f32\n", most.read_gbs, most.gflops);
    }
    bench_table_open(list, "ops", columns, COLUMNS);
    const int result = run_cases(device, p->threads == 0, call, &most, list);
    bench_table_close(list);
    return result;
}

static int is_benched(const char *ops, const char *types)
{
    size_t count = 0;
    const bench_case *cases = bench_cases(&count);
    for (size_t i = 0; i < count; i++)
        if (is_wanted(&cases[i], ops, types))
            return 1;
    return 0;
}

int bench_ops(const tool_call *call, uint32_t threads)
{
    const char *ops = tool_word(call, "op"), *types = tool_word(call, "type");
    char name[NAME_BYTES];
    for (const char *at = ops; next_name(&at, name);)
        if (!is_benched(name, NULL))
            return tool_misuse("bench: --op is \"%s\", which is no op that is measured", name);
    for (const char *at = types; next_name(&at, name);)
        if (!is_benched(ops, name))
            return tool_misuse("bench: --type is \"%s\", which no row has", name);
    return bench_on_device(call, threads, measure_ops);
}
