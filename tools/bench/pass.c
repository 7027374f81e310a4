/* pass.c - `mica pass`: one decoder, three ways to run its steps, one table. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "bench/bench.h"
#include "bench/decoder.h"
#include "terminal/output.h"
#include "bench/weights.h"

enum { WAY_DIRECT, WAY_REPLAY, WAY_FUSED, WAYS };

/* What one way of running gave. */
typedef struct way_result {
    mica_session_stats stats;
    double median_ns;
    uint32_t *tokens; /* [count] */
} way_result;

typedef struct pass_run {
    decoder *d;
    uint32_t count;
    double *ns; /* [count], of the way that runs */
    way_result result[WAYS];
} pass_run;

static const char *const way_names[WAYS] = {"direct", "replay", "replay, fused and reordered"};

static const tool_column columns[] = {
    {"way", "", TOOL_TEXT, 28},     {"us_per_token", "us/token", 1, 10}, {"tokens_per_s", "tokens/s", 1, 10},
    {"speedup", "speedup", 2, 8},   {"records", "records", 0, 8},        {"dispatches", "dispatches", 0, 10},
    {"barriers", "barriers", 0, 8},
};
#define COLUMNS (sizeof columns / sizeof *columns)

static mica_status direct_step(decoder *d, const decoder_step *step, mica_session_stats *out_stats)
{
    mica_session *session = NULL;
    TOOL_TRY(mica_session_begin(d->device, NULL, 0, &session));
    mica_status status = decoder_encode(d, step, mica_session_encoder(session));
    if (status == MICA_OK)
        status = mica_session_finish(session, 0, out_stats);
    mica_session_release(session);
    return status;
}

static mica_status record_step(decoder *d, uint32_t flags, mica_session_stats *out_stats,
                               mica_recording **out)
{
    mica_session *session = NULL;
    decoder_step step;
    TOOL_TRY(mica_session_begin(d->device, NULL, MICA_SESSION_RECORD, &session));
    mica_status status = decoder_step_create(d, session, &step);
    if (status == MICA_OK)
        status = decoder_encode(d, &step, mica_session_encoder(session));
    if (status == MICA_OK)
        status = mica_session_record(session, flags, out_stats, out);
    decoder_step_release(&step);
    mica_session_release(session);
    return status;
}

/* All tokens of one way; `recording` NULL: direct. */
static mica_status decode(pass_run *run, const decoder_step *step, mica_recording *recording,
                          way_result *result)
{
    TOOL_TRY(decoder_restart(run->d));
    for (uint32_t i = 0; i < run->count; i++) {
        uint64_t start = tool_clock_ns();
        if (recording != NULL)
            TOOL_TRY(mica_recording_replay_and_wait(recording));
        else
            TOOL_TRY(direct_step(run->d, step, &result->stats));
        run->ns[i] = (double)(tool_clock_ns() - start);
        TOOL_TRY(mica_buffer_read(run->d->token, 0, &result->tokens[i], sizeof *result->tokens));
    }
    const double median = bench_median(run->ns, run->count);
    if (result->median_ns == 0 || median < result->median_ns)
        result->median_ns = median;
    return MICA_OK;
}

static mica_status run_way(pass_run *run, int way)
{
    way_result *result = &run->result[way];
    mica_recording *recording = NULL;
    decoder_step step = {0};
    mica_status status;
    if (way == WAY_DIRECT)
        status = decoder_step_create(run->d, NULL, &step);
    else
        status = record_step(run->d, way == WAY_FUSED ? MICA_FINISH_FUSE | MICA_FINISH_REORDER : 0,
                             &result->stats, &recording);
    if (status == MICA_OK)
        status = decode(run, &step, recording, result);
    decoder_step_release(&step);
    mica_recording_release(recording);
    return status;
}

static void way_cells(const pass_run *run, int way, tool_cell *cells)
{
    const way_result *r = &run->result[way];
    double ns = r->median_ns;
    cells[0].text = way_names[way];
    cells[1].number = ns / 1000;
    cells[2].number = 1e9 / ns;
    cells[3].number = run->result[WAY_DIRECT].median_ns / ns;
    cells[4].number = (double)r->stats.records_out;
    cells[5].number = (double)r->stats.dispatches;
    cells[6].number = (double)r->stats.barriers;
}

static int same_tokens(const pass_run *run)
{
    size_t bytes = run->count * sizeof(uint32_t);
    return memcmp(run->result[0].tokens, run->result[1].tokens, bytes) == 0 &&
           memcmp(run->result[0].tokens, run->result[2].tokens, bytes) == 0;
}

static void print_json(const pass_run *run, const mica_device_properties *p, const char *type)
{
    tool_json json = {0};
    tool_cell cells[COLUMNS];
    tool_json_open(&json, NULL, '{');
    tool_json_text(&json, "version", mica_version());
    tool_json_text(&json, "device", p->id);
    tool_json_text(&json, "driver", p->driver);
    tool_json_uint(&json, "threads", p->threads);
    tool_json_text(&json, "shape", run->d->shape.name);
    tool_json_text(&json, "type", type);
    tool_json_uint(&json, "tokens", run->count);
    tool_json_uint(&json, "weight_bytes", run->d->weight_bytes);
    tool_json_uint(&json, "fusions", run->result[WAY_FUSED].stats.fusions);
    tool_json_uint(&json, "reordered", run->result[WAY_FUSED].stats.reordered);
    tool_json_bool(&json, "same_tokens", same_tokens(run));
    tool_json_open(&json, "ways", '[');
    for (int way = 0; way < WAYS; way++) {
        way_cells(run, way, cells);
        tool_table_object(&json, columns, COLUMNS, cells);
    }
    tool_json_close(&json, ']');
    tool_json_close(&json, '}');
}

static void print_table(const pass_run *run, const mica_device_properties *p, const char *type)
{
    const decoder_shape *s = &run->d->shape;
    char size[TOOL_SIZE_BYTES];
    tool_cell cells[COLUMNS];
    printf("decoding %u tokens on %s (%s, %u thread%s)\n", run->count, p->id, p->driver, p->threads,
           p->threads == 1 ? "" : "s");
    printf("shape %s: %u layers, %u wide, vocabulary %u; random %s weights, %s\n\n", s->name, s->layers,
           s->dim, s->vocab, type, tool_size_text(run->d->weight_bytes, size));
    tool_table_head(columns, COLUMNS);
    for (int way = 0; way < WAYS; way++) {
        way_cells(run, way, cells);
        tool_table_row(columns, COLUMNS, cells);
    }
    printf("\n%u fusions, %u records moved; %s\n", (unsigned)run->result[WAY_FUSED].stats.fusions,
           (unsigned)run->result[WAY_FUSED].stats.reordered,
           same_tokens(run) ? "all three ways gave the same tokens" : "THE WAYS GAVE DIFFERENT TOKENS");
}

static mica_status run_all(pass_run *run, mica_device *device, const decoder_shape *shape, mica_dtype type)
{
    TOOL_TRY(decoder_create(device, shape, type, run->count + 1, &run->d));
    int rounds = shape->layers < 8 ? 5 : 1; /* a short run is done again, warm; the best round counts */
    for (int way = 0; way < WAYS * rounds; way++)
        TOOL_TRY(run_way(run, way % WAYS));
    return MICA_OK;
}

static int report(pass_run *run, const tool_call *call, mica_device *device)
{
    mica_device_properties properties;
    const char *type = tool_word(call, "type");
    if (run_all(run, device, decoder_shape_find(tool_word(call, "shape")), mica_dtype_from_name(type)) !=
            MICA_OK ||
        mica_device_get_properties(device, &properties) != MICA_OK)
        return tool_fail_status();
    if (tool_flag(call, "json"))
        print_json(run, &properties, type);
    else
        print_table(run, &properties, type);
    return same_tokens(run) ? 0 : tool_fail("pass: direct dispatch and replay disagree");
}

int tool_pass(const tool_call *call)
{
    pass_run run = {.count = (uint32_t)tool_number(call, "tokens")};
    mica_device_options options = {.size = sizeof options, .threads = (uint32_t)tool_number(call, "threads")};
    mica_device *device = NULL;
    if (mica_device_open(tool_word(call, "device"), &options, &device) != MICA_OK)
        return tool_fail_status();
    int enough = (run.ns = calloc(run.count, sizeof *run.ns)) != NULL;
    for (int way = 0; way < WAYS; way++)
        enough &= (run.result[way].tokens = calloc(run.count, sizeof(uint32_t))) != NULL;
    int result = enough ? report(&run, call, device) : tool_fail("pass: no memory for %u tokens", run.count);
    for (int way = 0; way < WAYS; way++)
        free(run.result[way].tokens);
    free(run.ns);
    decoder_release(run.d);
    mica_device_release(device);
    return result;
}
