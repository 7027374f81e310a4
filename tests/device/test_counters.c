/* Counters of a device and of the process. */
#include "device_test.h"

static void count_one(const mica_host_binding *bindings, uint32_t count, const void *params, uint32_t first,
                      uint32_t last)
{
    (void)count, (void)params;
    for (uint32_t i = first; i < last; i++)
        ((int32_t *)bindings[0].data)[i]++;
}

static mica_counters read_counters(mica_device *device)
{
    mica_counters counters;
    must(mica_counters_get(device, &counters));
    return counters;
}

static void dispatch_once(mica_encoder *encoder, mica_kernel *kernel, mica_buffer *buffer)
{
    mica_binding binding = {buffer, MICA_ACCESS_READ | MICA_ACCESS_WRITE};
    mica_dispatch_desc desc = {
        .kernel = kernel, .groups = {4, 1, 1}, .bindings = &binding, .binding_count = 1};
    must(mica_encoder_dispatch(encoder, &desc));
}

/* Two independent dispatches, then one that depends on the first: one barrier, one elided. */
static void a_submission_is_counted(void **state)
{
    (void)state;
    const char *ids[] = {"cpu", "null"};
    for (int d = 0; d < 2; d++) {
        mica_device *device = open_device(ids[d], 1);
        mica_kernel *kernel = host_kernel(device, "count", count_one);
        mica_counters start = read_counters(device), end;
        mica_buffer *a = new_vector(device, MICA_DTYPE_I32, 4), *b = new_vector(device, MICA_DTYPE_I32, 4);
        mica_encoder *encoder = NULL;
        must(mica_encoder_begin(device, NULL, &encoder));
        dispatch_once(encoder, kernel, a);
        dispatch_once(encoder, kernel, b);
        dispatch_once(encoder, kernel, a);
        must(mica_encoder_commit_and_wait(encoder));
        mica_encoder_release(encoder);
        int32_t back[4];
        must(mica_buffer_write(a, 0, (int32_t[4]){0}, 12));
        must(mica_buffer_read(a, 0, back, 16));
        end = read_counters(device);
        assert_int_equal(end.records - start.records, 3);
        assert_int_equal(end.dispatches - start.dispatches, 3);
        assert_int_equal(end.barriers - start.barriers, 1);
        assert_int_equal(end.barriers_elided - start.barriers_elided, 1);
        assert_int_equal(end.submissions - start.submissions, 1);
        assert_int_equal(end.buffers_created - start.buffers_created, 2);
        assert_int_equal(end.bytes_uploaded - start.bytes_uploaded, 12);
        assert_int_equal(end.bytes_downloaded - start.bytes_downloaded, 16);
        assert_in_range(end.syncs - start.syncs, 1, 2);
        assert_int_equal(end.replays, start.replays);
        mica_buffer_release(a);
        mica_buffer_release(b);
        mica_kernel_release(kernel);
        mica_device_release(device);
    }
}

static void kernels_and_replays_are_counted(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 1);
    mica_counters start = read_counters(device), end;
    mica_kernel *kernel = host_kernel(device, "count", count_one);
    mica_buffer *a = new_vector(device, MICA_DTYPE_I32, 4);
    mica_session *session = NULL;
    mica_recording *recording = NULL;
    must(mica_session_begin(device, NULL, MICA_SESSION_RECORD, &session));
    dispatch_once(mica_session_encoder(session), kernel, a);
    must(mica_session_record(session, 0, NULL, &recording));
    for (int i = 0; i < 5; i++)
        must(mica_recording_replay_and_wait(recording));
    end = read_counters(device);
    assert_int_equal(end.kernels_compiled - start.kernels_compiled, 1);
    assert_int_equal(end.replays - start.replays, 5);
    assert_int_equal(end.submissions - start.submissions, 5);
    int32_t back[4];
    must(mica_buffer_read(a, 0, back, sizeof back));
    assert_int_equal(back[3], 5);
    mica_recording_release(recording);
    mica_session_release(session);
    mica_buffer_release(a);
    mica_kernel_release(kernel);
    mica_device_release(device);
}

static void faults_are_counted(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 1);
    uint64_t table_shape[2] = {3, 8}, y_shape[2] = {1, 8};
    mica_buffer *table = NULL, *y = NULL, *ids = new_vector(device, MICA_DTYPE_U32, 1);
    mica_encoder *encoder = NULL;
    must(mica_buffer_alloc(device, MICA_DTYPE_F32, 2, table_shape, &table));
    must(mica_buffer_alloc(device, MICA_DTYPE_F32, 2, y_shape, &y));
    must(mica_buffer_write(ids, 0, &(uint32_t){3}, 4));
    uint64_t before = read_counters(device).faults;
    must(mica_encoder_begin(device, NULL, &encoder));
    must(mica_embedding(encoder, table, ids, y));
    refused(mica_encoder_commit_and_wait(encoder), MICA_ERR_FAULT, "embedding");
    assert_int_equal(read_counters(device).faults, before + 1);
    mica_encoder_release(encoder);
    mica_buffer_release(table);
    mica_buffer_release(ids);
    mica_buffer_release(y);
    mica_device_release(device);
}

/* The process sees all devices; resetting a device leaves the process alone, and the other way round. */
static void process_and_device_are_apart(void **state)
{
    (void)state;
    mica_device *one = open_device("cpu", 1), *two = open_device("null", 1);
    must(mica_counters_reset(NULL));
    must(mica_counters_reset(one));
    must(mica_counters_reset(two));
    mica_buffer *a = new_vector(one, MICA_DTYPE_F32, 1), *b = new_vector(two, MICA_DTYPE_F32, 1);
    mica_buffer *c = new_vector(two, MICA_DTYPE_F32, 1);
    assert_int_equal(read_counters(one).buffers_created, 1);
    assert_int_equal(read_counters(two).buffers_created, 2);
    assert_int_equal(read_counters(NULL).buffers_created, 3);
    must(mica_counters_reset(two));
    assert_int_equal(read_counters(two).buffers_created, 0);
    assert_int_equal(read_counters(NULL).buffers_created, 3);
    must(mica_counters_reset(NULL));
    assert_int_equal(read_counters(NULL).buffers_created, 0);
    assert_int_equal(read_counters(one).buffers_created, 1);
    refused(mica_counters_get(one, NULL), MICA_ERR_INVALID_ARGUMENT, "out");
    mica_buffer_release(a);
    mica_buffer_release(b);
    mica_buffer_release(c);
    mica_device_release(one);
    mica_device_release(two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(a_submission_is_counted),
        test(kernels_and_replays_are_counted),
        test(faults_are_counted),
        test(process_and_device_are_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
