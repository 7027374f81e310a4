/* Profiles: entries, buckets per kernel, the trace file, frame capture where there is none. */
#define _GNU_SOURCE
#include "device_test.h"

#include <unistd.h>

#include "base/json/json.h"

static void spin(const mica_host_binding *bindings, uint32_t count, const void *params, uint32_t first,
                 uint32_t last)
{
    (void)count;
    volatile int32_t *data = bindings[0].data;
    for (uint32_t i = first; i < last; i++)
        for (int32_t k = 0; k < *(const int32_t *)params; k++)
            data[i] += 1;
}

static void encode_spin(mica_encoder *encoder, mica_kernel *kernel, mica_buffer *buffer, int32_t rounds)
{
    mica_binding binding = {buffer, MICA_ACCESS_READ | MICA_ACCESS_WRITE};
    mica_dispatch_desc desc = {.kernel = kernel,
                               .groups = {8, 1, 1},
                               .bindings = &binding,
                               .binding_count = 1,
                               .params = &rounds,
                               .params_size = sizeof rounds};
    must(mica_encoder_dispatch(encoder, &desc));
}

/* Three dispatches of "long" under labels, two fills, a copy of bytes under a label: one profiled submission. */
static void profiled_pass(mica_device *device)
{
    mica_kernel *kernel = host_kernel(device, "long", spin);
    mica_buffer *buffer = new_vector(device, MICA_DTYPE_I32, 8);
    mica_buffer *copy = new_vector(device, MICA_DTYPE_I32, 8);
    mica_encoder *encoder = NULL;
    must(mica_encoder_begin(device, NULL, &encoder));
    must(mica_encoder_label_push(encoder, "outer \"quoted\""));
    encode_spin(encoder, kernel, buffer, 20000);
    must(mica_encoder_label_push(encoder, "inner"));
    encode_spin(encoder, kernel, buffer, 20000);
    must(mica_encoder_label_pop(encoder));
    encode_spin(encoder, kernel, buffer, 20000);
    must(mica_encoder_label_pop(encoder));
    must(mica_fill(encoder, 3, buffer));
    must(mica_fill(encoder, 4, buffer));
    must(mica_encoder_label_push(encoder, "copied"));
    must(mica_copy(encoder, buffer, copy));
    must(mica_encoder_label_pop(encoder));
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    mica_buffer_release(buffer);
    mica_buffer_release(copy);
    mica_kernel_release(kernel);
}

static void entries_tell_what_ran(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 2);
    mica_profile_entry entries[16];
    uint64_t count = 0;
    profiled_pass(device); /* before begin: not seen */
    must(mica_profile_begin(device));
    profiled_pass(device);
    must(mica_profile_end(device));
    profiled_pass(device); /* after end: not seen */
    must(mica_profile_entries(device, NULL, 0, &count));
    assert_int_equal(count, 6);
    must(mica_profile_entries(device, entries, 16, &count));
    assert_int_equal(count, 6);
    const char *labels[6] = {"outer \"quoted\"", "inner", "outer \"quoted\"", "", "", "copied"};
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(entries[i].index, i);
        assert_int_equal(entries[i].submission, entries[0].submission);
        assert_int_equal(entries[i].op, i < 3 ? MICA_OP_CUSTOM : i < 5 ? MICA_OP_REGION : MICA_OP_COPY);
        assert_string_equal(entries[i].label, labels[i]);
        assert_true(entries[i].end_ns >= entries[i].begin_ns);
        if (i > 0) /* one at a time */
            assert_true(entries[i].begin_ns >= entries[i - 1].end_ns);
        if (i < 3) {
            assert_string_equal(entries[i].kernel, "long");
            assert_true(entries[i].end_ns > entries[i].begin_ns);
        }
    }
    mica_device_release(device);
}

/* However many kernels ran, each has its bucket. */
static void no_bucket_is_dropped(void **state)
{
    enum { KERNELS = 300 };
    (void)state;
    mica_device *device = open_device("cpu", 1);
    mica_buffer *buffer = new_vector(device, MICA_DTYPE_I32, 8);
    mica_encoder *encoder = NULL;
    mica_profile_bucket *buckets = calloc(KERNELS + 1, sizeof *buckets);
    uint64_t count = 0, dispatches = 0;
    char seen[KERNELS] = {0};
    assert_non_null(buckets);
    must(mica_profile_begin(device));
    must(mica_encoder_begin(device, NULL, &encoder));
    for (uint32_t i = 0; i < 2 * KERNELS; i++) {
        char name[16];
        snprintf(name, sizeof name, "kernel %u", i % KERNELS);
        mica_kernel *kernel = host_kernel(device, name, spin);
        encode_spin(encoder, kernel, buffer, 1);
        mica_kernel_release(kernel);
    }
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    must(mica_profile_end(device));
    must(mica_profile_buckets(device, buckets, KERNELS + 1, &count));
    assert_int_equal(count, KERNELS);
    for (uint64_t b = 0; b < count; b++) {
        dispatches += buckets[b].count;
        seen[strtoul(buckets[b].kernel + 7, NULL, 10)]++;
        assert_true(b == 0 || buckets[b - 1].total_ns >= buckets[b].total_ns);
    }
    assert_int_equal(dispatches, 2 * KERNELS);
    for (uint32_t i = 0; i < KERNELS; i++)
        assert_int_equal(seen[i], 1);
    free(buckets);
    mica_buffer_release(buffer);
    mica_device_release(device);
}

/* More dispatches than entries are kept: the sums have all of them, the entries are the last ones. */
static void early_kernels_are_summed_up(void **state)
{
    enum { STEPS = 1000, REPLAYS = 70, KEPT = 65536 };
    (void)state;
    mica_device *device = open_device("cpu", 1);
    mica_kernel *early = host_kernel(device, "early", spin), *late = host_kernel(device, "late", spin);
    mica_buffer *buffer = new_vector(device, MICA_DTYPE_I32, 8);
    mica_session *session = NULL;
    mica_recording *recording = NULL;
    mica_encoder *encoder = NULL;
    mica_profile_bucket buckets[4];
    uint64_t count = 0;
    must(mica_session_begin(device, NULL, MICA_SESSION_RECORD, &session));
    for (uint32_t i = 0; i < STEPS; i++)
        encode_spin(mica_session_encoder(session), late, buffer, 0);
    must(mica_session_record(session, 0, NULL, &recording));
    must(mica_profile_begin(device));
    must(mica_encoder_begin(device, NULL, &encoder));
    for (uint32_t i = 0; i < 5; i++)
        encode_spin(encoder, early, buffer, 0);
    must(mica_encoder_commit_and_wait(encoder));
    for (uint32_t i = 0; i < REPLAYS; i++)
        must(mica_recording_replay_and_wait(recording));
    must(mica_profile_end(device));
    must(mica_profile_buckets(device, buckets, 4, &count));
    assert_int_equal(count, 2);
    const uint32_t first = strcmp(buckets[0].kernel, "late") == 0 ? 0 : 1;
    assert_string_equal(buckets[1 - first].kernel, "early");
    assert_int_equal(buckets[first].count, STEPS * REPLAYS);
    assert_int_equal(buckets[1 - first].count, 5);
    mica_profile_entry *entries = calloc(KEPT + 1, sizeof *entries);
    assert_non_null(entries);
    must(mica_profile_entries(device, entries, KEPT + 1, &count));
    assert_int_equal(count, KEPT);
    for (uint32_t i = 1; i < KEPT; i++)
        assert_true(entries[i].begin_ns >= entries[i - 1].begin_ns && strcmp(entries[i].kernel, "late") == 0);
    assert_int_equal(entries[KEPT - 1].index, STEPS - 1);
    free(entries);
    mica_encoder_release(encoder);
    mica_recording_release(recording);
    mica_session_release(session);
    mica_buffer_release(buffer);
    mica_kernel_release(early);
    mica_kernel_release(late);
    mica_device_release(device);
}

/* What an op moves and takes is told by the dispatch that does most of it, direct and in recordings made before. */
static void kernels_tell_what_they_cost(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 1);
    mica_buffer *x = new_vector(device, MICA_DTYPE_F32, 1000), *y = new_vector(device, MICA_DTYPE_F32, 1000);
    mica_session *session = NULL;
    mica_recording *recording = NULL;
    mica_encoder *encoder = NULL;
    mica_profile_bucket bucket;
    uint64_t count = 0;
    must(mica_session_begin(device, NULL, MICA_SESSION_RECORD, &session));
    must(mica_add(mica_session_encoder(session), x, x, y));
    must(mica_session_record(session, 0, NULL, &recording));
    must(mica_profile_begin(device));
    must(mica_encoder_begin(device, NULL, &encoder));
    must(mica_add(encoder, x, x, y));
    must(mica_encoder_commit_and_wait(encoder));
    must(mica_recording_replay_and_wait(recording));
    must(mica_recording_replay_and_wait(recording));
    must(mica_profile_end(device));
    must(mica_profile_buckets(device, &bucket, 1, &count));
    assert_int_equal(count, 1);
    assert_int_equal(bucket.count, 3);
    assert_int_equal((uint64_t)bucket.bytes, 3 * 12000);
    assert_int_equal((uint64_t)bucket.operations, 3 * 1000);
    mica_encoder_release(encoder);
    mica_recording_release(recording);
    mica_session_release(session);
    mica_buffer_release(x);
    mica_buffer_release(y);
    mica_device_release(device);
}

static void buckets_sum_up(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 1);
    mica_profile_entry entries[16];
    mica_profile_bucket buckets[16];
    uint64_t count = 0, bucket_count = 0;
    must(mica_profile_begin(device));
    profiled_pass(device);
    must(mica_profile_end(device));
    must(mica_profile_entries(device, entries, 16, &count));
    must(mica_profile_buckets(device, buckets, 16, &bucket_count));
    assert_int_equal(bucket_count, 3);
    for (uint64_t b = 0; b < bucket_count; b++) {
        uint64_t n = 0, total = 0, least = UINT64_MAX, most = 0;
        for (uint64_t i = 0; i < count; i++) {
            uint64_t ns = entries[i].end_ns - entries[i].begin_ns;
            if (strcmp(entries[i].kernel, buckets[b].kernel) != 0)
                continue;
            n++;
            total += ns;
            least = ns < least ? ns : least;
            most = ns > most ? ns : most;
        }
        assert_true(n > 0 && buckets[b].count == n && buckets[b].total_ns == total);
        assert_true(buckets[b].min_ns == least && buckets[b].max_ns == most);
    }
    assert_true(buckets[0].total_ns >= buckets[1].total_ns);
    must(mica_profile_buckets(device, buckets, 1, &bucket_count)); /* cut, not refused */
    assert_int_equal(bucket_count, 3);
    must(mica_profile_begin(device)); /* a new profile forgets the old one */
    profiled_pass(device);
    must(mica_profile_begin(device));
    must(mica_profile_end(device));
    must(mica_profile_entries(device, NULL, 0, &count));
    assert_int_equal(count, 0);
    mica_device_release(device);
}

static char *read_whole(const char *path, size_t *out_size)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char *text = calloc(1, 1 << 20);
    *out_size = fread(text, 1, 1 << 20, file);
    fclose(file);
    return text;
}

static void check_events(const mica__json *json, const mica_profile_entry *entries, uint64_t count)
{
    const mica__json_node *list = NULL;
    uint64_t seen = 0;
    must(mica__json_get_container(json, mica__json_root(json), "traceEvents", MICA__JSON_ARRAY, &list));
    for (const mica__json_node *e = mica__json_first(list); e != NULL; e = mica__json_next(json, e)) {
        const char *phase = NULL, *name = NULL, *label = NULL;
        double begin = -1, duration = -1;
        must(mica__json_get_string(json, e, "ph", &phase, NULL));
        if (strcmp(phase, "X") != 0)
            continue; /* names of tracks */
        assert_true(seen < count);
        must(mica__json_get_string(json, e, "name", &name, NULL));
        must(mica__json_get_double(json, e, "ts", 0, 1e18, &begin));
        must(mica__json_get_double(json, e, "dur", 0, 1e18, &duration));
        must(mica__json_get_string(json, mica__json_get(json, e, "args"), "label", &label, NULL));
        assert_non_null(mica__json_get(json, e, "pid"));
        assert_non_null(mica__json_get(json, e, "tid"));
        assert_string_equal(name, entries[seen].kernel);
        assert_string_equal(label, entries[seen].label);
        double wanted =
            (double)(entries[seen].end_ns - entries[seen].begin_ns) / 1000; /* the format counts in us */
        assert_true(duration > wanted - 0.01 && duration < wanted + 0.01);
        seen++;
    }
    assert_int_equal(seen, count);
}

static void the_trace_is_json(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 1);
    mica_profile_entry entries[16];
    uint64_t count = 0;
    char path[128];
    snprintf(path, sizeof path, "%s/mica-trace-%ld", P_tmpdir, (long)getpid());
    must(mica_profile_begin(device));
    profiled_pass(device);
    must(mica_profile_end(device));
    must(mica_profile_entries(device, entries, 16, &count));
    must(mica_profile_write_trace(device, path));
    must(mica_profile_write_trace(device, path)); /* replaces */
    size_t size = 0;
    char *text = read_whole(path, &size);
    mica__json *json = NULL;
    must(mica__json_parse(text, size, NULL, &json));
    check_events(json, entries, count);
    mica__json_release(json);
    free(text);
    unlink(path);
    assert_int_equal(mica_profile_write_trace(device, P_tmpdir "/no such folder/trace"), MICA_ERR_IO);
    refused(mica_profile_write_trace(device, NULL), MICA_ERR_INVALID_ARGUMENT, "path");
    refused(mica_profile_write_trace(NULL, path), MICA_ERR_INVALID_ARGUMENT, "device");
    mica_device_release(device);
}

static void replays_are_profiled_too(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 2);
    mica_kernel *kernel = host_kernel(device, "long", spin);
    mica_buffer *buffer = new_vector(device, MICA_DTYPE_I32, 8);
    mica_session *session = NULL;
    mica_recording *recording = NULL;
    must(mica_session_begin(device, NULL, MICA_SESSION_RECORD, &session));
    encode_spin(mica_session_encoder(session), kernel, buffer, 10);
    encode_spin(mica_session_encoder(session), kernel, buffer, 10);
    must(mica_session_record(session, 0, NULL, &recording));
    must(mica_profile_begin(device));
    for (int i = 0; i < 3; i++)
        must(mica_recording_replay_and_wait(recording));
    must(mica_profile_end(device));
    mica_profile_entry entries[8];
    uint64_t count = 0;
    must(mica_profile_entries(device, entries, 8, &count));
    assert_int_equal(count, 6);
    assert_int_not_equal(entries[0].submission, entries[5].submission);
    mica_recording_release(recording);
    mica_session_release(session);
    mica_buffer_release(buffer);
    mica_kernel_release(kernel);
    mica_device_release(device);
}

static void wrong_calls_are_refused(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 1);
    mica_profile_entry entry;
    mica_profile_bucket bucket;
    uint64_t count;
    refused(mica_profile_end(device), MICA_ERR_STATE, "profile");
    refused(mica_profile_begin(NULL), MICA_ERR_INVALID_ARGUMENT, "device");
    refused(mica_profile_end(NULL), MICA_ERR_INVALID_ARGUMENT, "device");
    refused(mica_profile_entries(NULL, &entry, 1, &count), MICA_ERR_INVALID_ARGUMENT, "device");
    refused(mica_profile_entries(device, NULL, 1, &count), MICA_ERR_INVALID_ARGUMENT, "entries");
    refused(mica_profile_entries(device, &entry, 1, NULL), MICA_ERR_INVALID_ARGUMENT, "out_count");
    refused(mica_profile_buckets(NULL, &bucket, 1, &count), MICA_ERR_INVALID_ARGUMENT, "device");
    refused(mica_profile_buckets(device, NULL, 1, &count), MICA_ERR_INVALID_ARGUMENT, "buckets");
    refused(mica_capture_begin(device, "frame"), MICA_ERR_UNSUPPORTED, "cpu");
    refused(mica_capture_begin(device, NULL), MICA_ERR_INVALID_ARGUMENT, "path");
    refused(mica_capture_begin(NULL, "frame"), MICA_ERR_INVALID_ARGUMENT, "device");
    refused(mica_capture_end(device), MICA_ERR_STATE, "capture");
    refused(mica_capture_end(NULL), MICA_ERR_INVALID_ARGUMENT, "device");
    mica_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(entries_tell_what_ran),       test(buckets_sum_up),
        test(no_bucket_is_dropped),        test(early_kernels_are_summed_up),
        test(kernels_tell_what_they_cost), test(the_trace_is_json),
        test(replays_are_profiled_too),    test(wrong_calls_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
