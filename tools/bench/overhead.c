/*
 * overhead.c - `mica bench overhead`: what mica itself costs the host: encoding a record, keeping it for a recording, fusing,
 * reordering and placing many of them, and replaying a kernel that does next to nothing.
 */
#include <stdio.h>
#include <stdlib.h>

#include "bench/bench.h"
#include "bench/decoder.h"
#include "bench/weights.h"

#define RECORDS 400u
#define NODES 500u
#define VALUES 20000u
#define PASSES 5u
#define SLICES 15u
#define SLICE_NS 20000000u

static const tool_column columns[] = {
    {"what", "what", TOOL_TEXT, 30}, {"ns", "ns each", 0, 9},  {"least_ns", "least", 0, 9},
    {"most_ns", "most", 0, 9},       {"count", "count", 0, 7},
};
#define COLUMNS (sizeof columns / sizeof *columns)

typedef struct overhead {
    mica_device *device;
    uint64_t width;
    mica_buffer *x, *y;         /* [4, width] */
    mica_buffer *weight, *gain; /* [width, width], [width] */
    decoder *decoder;
    decoder_step step;
    mica_kernel *kernel;
    mica_recording *recording;
    uint64_t pass_records;
} overhead;

static mica_status add_adds(overhead *o, mica_encoder *encoder)
{
    for (uint32_t i = 0; i < RECORDS; i++)
        TOOL_TRY(mica_add(encoder, o->x, o->y, o->y));
    return MICA_OK;
}

static mica_status encode_adds(overhead *o)
{
    mica_encoder *encoder = NULL;
    TOOL_TRY(mica_encoder_begin(o->device, NULL, &encoder));
    mica_status status = add_adds(o, encoder);
    mica_encoder_release(encoder);
    return status;
}

static mica_status record_adds(overhead *o)
{
    mica_session *session = NULL;
    TOOL_TRY(mica_session_begin(o->device, NULL, MICA_SESSION_RECORD, &session));
    mica_status status = add_adds(o, mica_session_encoder(session));
    mica_session_release(session);
    return status;
}

static mica_status encode_pass(overhead *o)
{
    mica_encoder *encoder = NULL;
    mica_encoder_stats stats = {0};
    TOOL_TRY(mica_encoder_begin(o->device, NULL, &encoder));
    mica_status status = decoder_encode(o->decoder, &o->step, encoder);
    if (status == MICA_OK)
        status = mica_encoder_get_stats(encoder, &stats);
    o->pass_records = stats.records;
    mica_encoder_release(encoder);
    return status;
}

static mica_status replay(overhead *o)
{
    return mica_recording_replay_and_wait(o->recording);
}

/* Each node writes the same buffer, so each stands behind a barrier. */
static mica_status record_nodes(overhead *o, uint32_t groups)
{
    mica_session *session = NULL;
    TOOL_TRY(bench_step_kernel(o->device, &o->kernel));
    TOOL_TRY(mica_session_begin(o->device, NULL, MICA_SESSION_RECORD, &session));
    mica_status status = MICA_OK;
    for (uint32_t i = 0; i < NODES && status == MICA_OK; i++)
        status = bench_step_encode(mica_session_encoder(session), o->kernel, groups, o->y);
    if (status == MICA_OK)
        status = mica_session_record(session, 0, NULL, &o->recording);
    mica_session_release(session);
    return status;
}

static mica_status prepare(overhead *o, uint32_t groups)
{
    o->width = 64 > groups ? 64 : groups;
    const uint64_t shape[2] = {4, o->width}, square[2] = {o->width, o->width};
    TOOL_TRY(tool_constant_create(o->device, MICA_DTYPE_F32, 2, shape, 0, &o->x));
    TOOL_TRY(tool_constant_create(o->device, MICA_DTYPE_F32, 2, shape, 0, &o->y));
    TOOL_TRY(tool_constant_create(o->device, MICA_DTYPE_F32, 2, square, 0, &o->weight));
    TOOL_TRY(tool_constant_create(o->device, MICA_DTYPE_F32, 1, square, 0, &o->gain));
    TOOL_TRY(decoder_create(o->device, decoder_shape_find("tiny"), MICA_DTYPE_Q4_0, 64, &o->decoder));
    TOOL_TRY(decoder_step_create(o->decoder, NULL, &o->step));
    TOOL_TRY(encode_pass(o)); /* and how many records it has */
    TOOL_TRY(record_nodes(o, groups));
    return replay(o);
}

static void release(overhead *o)
{
    mica_recording_release(o->recording);
    mica_kernel_release(o->kernel);
    decoder_step_release(&o->step);
    decoder_release(o->decoder);
    mica_buffer_release(o->x);
    mica_buffer_release(o->y);
    mica_buffer_release(o->weight);
    mica_buffer_release(o->gain);
}

/* Mean nanoseconds of a call, over a slice of time. */
static mica_status time_slice(overhead *o, mica_status (*run)(overhead *), double *out_ns)
{
    const uint64_t start = tool_clock_ns();
    uint64_t now;
    uint32_t count = 0;
    do {
        TOOL_TRY(run(o));
        count++;
        now = tool_clock_ns();
    } while (now - start < SLICE_NS);
    *out_ns = (double)(now - start) / count;
    return MICA_OK;
}

/* Sorts the samples, of one in `count`. */
static void add_row(tool_json *json, const char *what, double *samples, uint32_t sample_count, double count)
{
    const double median = bench_median(samples, sample_count);
    const tool_cell cells[COLUMNS] = {{.text = what},
                                      {.number = median},
                                      {.number = samples[0]},
                                      {.number = samples[sample_count - 1]},
                                      {.number = count}};
    bench_table_row(json, columns, COLUMNS, cells);
}

/* The ways take turns, so that each sees the same moods of the machine. */
static mica_status measure_ways(overhead *o, tool_json *json)
{
    const struct {
        const char *name;
        mica_status (*run)(overhead *);
        double count;
    } ways[] = {{"encode, an add", encode_adds, RECORDS},
                {"record, an add", record_adds, RECORDS},
                {"encode, decode pass of tiny", encode_pass, (double)o->pass_records},
                {"replay, a step", replay, NODES}};
    enum { WAYS = sizeof ways / sizeof *ways };
    double samples[WAYS][SLICES];
    for (uint32_t slice = 0; slice < SLICES; slice++)
        for (size_t i = 0; i < WAYS; i++) {
            TOOL_TRY(time_slice(o, ways[i].run, &samples[i][slice]));
            samples[i][slice] /= ways[i].count;
        }
    for (size_t i = 0; i < WAYS; i++)
        add_row(json, ways[i].name, samples[i], SLICES, ways[i].count);
    return MICA_OK;
}

/* ---- the passes over a long recording ---- */

/* Value `i` of many that are written once each, by ops that fusion knows and ops that it does not: from the one before, from
 * one some way back, or from the first. */
static mica_status add_value(const overhead *o, mica_session *session, mica_buffer **value, uint32_t i)
{
    mica_encoder *encoder = mica_session_encoder(session);
    mica_buffer *a = value[i % 7 == 3 ? i / 2 : i % 11 == 5 ? 0 : i - 1], *b = value[i > 8 ? i - 8 : 0];
    TOOL_TRY(mica_session_temp(session, MICA_DTYPE_F32, 2, (uint64_t[]){4, o->width}, &value[i]));
    switch (i % 5) {
    case 0: return mica_add(encoder, a, b, value[i]);
    case 1: return mica_matmul(encoder, a, o->weight, NULL, value[i]);
    case 2: return mica_rms_norm(encoder, a, o->gain, 1e-5f, value[i]);
    case 3: return mica_silu_mul(encoder, a, b, value[i]);
    default: return mica_softmax(encoder, a, 1.0f, value[i]);
    }
}

/* How long a session of VALUES records takes to become a recording, of which a value nobody reads is part too. */
static mica_status time_passes(const overhead *o, mica_buffer **value, double *out_ns)
{
    mica_session *session = NULL;
    mica_recording *recording = NULL;
    TOOL_TRY(mica_session_begin(o->device, NULL, MICA_SESSION_RECORD, &session));
    mica_status status = MICA_OK;
    for (uint32_t i = 1; i <= VALUES && status == MICA_OK; i++)
        status = add_value(o, session, value, i);
    const uint64_t start = tool_clock_ns();
    if (status == MICA_OK)
        status = mica_session_record(session, MICA_FINISH_FUSE | MICA_FINISH_REORDER, NULL, &recording);
    *out_ns = (double)(tool_clock_ns() - start);
    mica_recording_release(recording);
    mica_session_release(session);
    for (uint32_t i = 1; i <= VALUES; i++) {
        mica_buffer_release(value[i]);
        value[i] = NULL;
    }
    return status;
}

static mica_status measure_passes(overhead *o, tool_json *json)
{
    double samples[PASSES];
    mica_status status = MICA_OK;
    mica_buffer **value = calloc(VALUES + 1, sizeof *value);
    if (value == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    value[0] = o->x;
    for (uint32_t i = 0; i < PASSES && status == MICA_OK; i++) {
        status = time_passes(o, value, &samples[i]);
        samples[i] /= VALUES;
    }
    free(value);
    if (status == MICA_OK)
        add_row(json, "fuse, reorder, place, lower", samples, PASSES, VALUES);
    return status;
}

static int measure_overhead(const tool_call *call, mica_device *device, const mica_device_properties *p)
{
    overhead o = {.device = device};
    tool_json json = {0}, *list = tool_flag(call, "json") ? &json : NULL;
    mica_status status = prepare(&o, p->threads > 0 ? p->threads : p->processors);
    if (status == MICA_OK) {
        bench_device_facts(list, p);
        bench_table_open(list, "overheads", columns, COLUMNS);
        status = measure_ways(&o, list);
        if (status == MICA_OK)
            status = measure_passes(&o, list);
        bench_table_close(list);
    }
    release(&o);
    return status == MICA_OK ? 0 : tool_fail_status();
}

int bench_overhead(const tool_call *call, uint32_t threads)
{
    return bench_on_device(call, threads, measure_overhead);
}
