/*
 * bench_overhead.c - what mica itself costs: encoding a record, replaying a node that does nothing.
 */
#include "bench.h"

#include "support/transformer.h"

#define RECORDS 400u
#define NODES 500u
#define SLICES 15u

mica_device *bench_device(uint32_t threads)
{
    mica_device_options options = {.size = sizeof options, .threads = threads};
    mica_device *device;

    bench_must(mica_device_open("cpu", &options, &device));
    return device;
}

mica_buffer *bench_buffer(mica_device *device, mica_dtype dtype, uint64_t rows, uint64_t columns)
{
    uint64_t shape[2] = {rows, columns};
    mica_buffer *buffer;

    bench_must(mica_buffer_alloc(device, dtype, 2, shape, &buffer));
    return buffer;
}

mica_recording *bench_record(mica_device *device, uint32_t flags, void (*encode)(mica_encoder *, void *),
                             void *argument)
{
    mica_session *session;
    mica_recording *recording;

    bench_must(mica_session_begin(device, NULL, MICA_SESSION_RECORD, &session));
    encode(mica_session_encoder(session), argument);
    bench_must(mica_session_record(session, flags, NULL, &recording));
    mica_session_release(session);
    return recording;
}

void bench_replay(void *recording)
{
    bench_must(mica_recording_replay_and_wait(recording));
}

double bench_replay_time(mica_recording *recording, double budget)
{
    bench_replay(recording);
    return bench_time(bench_replay, recording, budget);
}

typedef struct encoding {
    mica_device *device;
    mica_buffer *x, *y;
    test_pass *pass;
} encoding;

static void encode_adds(void *argument)
{
    encoding *e = argument;
    mica_encoder *encoder;

    bench_must(mica_encoder_begin(e->device, NULL, &encoder));
    for (uint32_t i = 0; i < RECORDS; i++)
        bench_must(mica_add(encoder, e->x, e->y, e->y));
    mica_encoder_release(encoder);
}

static void encode_pass(void *argument)
{
    encoding *e = argument;
    mica_encoder *encoder;

    bench_must(mica_encoder_begin(e->device, NULL, &encoder));
    bench_must(test_pass_encode(e->pass, encoder));
    mica_encoder_release(encoder);
}

static uint64_t pass_records(encoding *e)
{
    mica_encoder *encoder;
    mica_encoder_stats stats;

    bench_must(mica_encoder_begin(e->device, NULL, &encoder));
    bench_must(test_pass_encode(e->pass, encoder));
    bench_must(mica_encoder_get_stats(encoder, &stats));
    mica_encoder_release(encoder);
    return stats.records;
}

static void capture_adds(mica_encoder *encoder, void *argument)
{
    encoding *e = argument;

    for (uint32_t i = 0; i < RECORDS; i++)
        bench_must(mica_add(encoder, e->x, e->y, e->y));
}

static void capture(void *argument)
{
    encoding *e = argument;
    mica_session *session;

    bench_must(mica_session_begin(e->device, NULL, MICA_SESSION_RECORD, &session));
    capture_adds(mica_session_encoder(session), e);
    mica_session_release(session);
}

/* The ways of encoding take turns, so that each sees the same moods of the machine. */
static void time_encodings(encoding *e)
{
    const struct {
        const char *name, *note;
        void (*run)(void *);
        double records;
    } ways[] = {
        {"encode, one add", "direct, goal 300", encode_adds, RECORDS},
        {"record, one add", "kept for a recording", capture, RECORDS},
        {"encode, decode pass of shape tiny", "direct, goal 300", encode_pass, (double)pass_records(e)}};
    double samples[sizeof ways / sizeof *ways][SLICES];

    for (uint32_t slice = 0; slice < SLICES; slice++) {
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
            samples[i][slice] = bench_slice(ways[i].run, e, 0.02) * 1e9 / ways[i].records;
    }
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        double median = bench_median(samples[i], SLICES);

        bench_row(ways[i].name, median, "ns/record", "%.0f to %.0f in %u slices; %s, %.0f records",
                  samples[i][0], samples[i][SLICES - 1], SLICES, ways[i].note, ways[i].records);
    }
}

static void measure_encoding(mica_device *device)
{
    test_shape shape;
    test_model *model;
    test_stream *stream;
    encoding e = {.device = device, .x = bench_buffer(device, MICA_DTYPE_F32, 4, 64)};

    e.y = bench_buffer(device, MICA_DTYPE_F32, 4, 64);
    test_shape_named("tiny", &shape);
    shape.weight = MICA_DTYPE_Q4_0;
    shape.positions = 64;
    shape.packed = 1;
    bench_must(test_model_create(device, &shape, 1, &model));
    bench_must(test_stream_create(model, &stream));
    bench_must(test_pass_create(stream, 1, NULL, &e.pass));
    time_encodings(&e);
    test_pass_release(e.pass);
    test_stream_release(stream);
    test_model_release(model);
    mica_buffer_release(e.x);
    mica_buffer_release(e.y);
}

static void nothing(const mica_host_binding *bindings, uint32_t count, const void *params, uint32_t first,
                    uint32_t last)
{
    (void)bindings;
    (void)count;
    (void)params;
    (void)first;
    (void)last;
}

typedef struct nodes {
    mica_kernel *kernel;
    mica_buffer *buffer;
    uint32_t groups;
} nodes;

/* Each node writes the same buffer, so each stands behind a barrier. */
static void encode_nodes(mica_encoder *encoder, void *argument)
{
    nodes *n = argument;
    mica_binding binding = {n->buffer, MICA_ACCESS_WRITE};
    mica_dispatch_desc desc = {
        .kernel = n->kernel, .groups = {n->groups, 1, 1}, .bindings = &binding, .binding_count = 1};

    for (uint32_t i = 0; i < NODES; i++)
        bench_must(mica_encoder_dispatch(encoder, &desc));
}

static void measure_replay(uint32_t threads)
{
    mica_device *device = bench_device(threads);
    mica_kernel_desc desc = {.name = "nothing", .host = nothing};
    nodes n = {.buffer = bench_buffer(device, MICA_DTYPE_F32, 1, 16), .groups = threads};
    mica_recording *recording;
    mica_session_stats stats;

    bench_must(mica_kernel_register(device, &desc));
    bench_must(mica_kernel_get(device, "nothing", NULL, 0, &n.kernel));
    recording = bench_record(device, 0, encode_nodes, &n);
    bench_must(mica_recording_get_stats(recording, &stats));
    bench_row("replay, no-op node behind a barrier", bench_replay_time(recording, 0.5) * 1e9 / NODES,
              "ns/node", "%u threads, %u nodes, %llu barriers, goal 1000", threads, NODES,
              (unsigned long long)stats.barriers);
    mica_recording_release(recording);
    mica_kernel_release(n.kernel);
    mica_buffer_release(n.buffer);
    mica_device_release(device);
}

void bench_overhead(void)
{
    mica_device *device = bench_device(2);

    bench_section("overhead");
    measure_encoding(device);
    mica_device_release(device);
    measure_replay(1);
    measure_replay(2);
}
