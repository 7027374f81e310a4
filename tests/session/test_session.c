/*
 * test_session.c - one forward pass: direct, recorded, overlapped; temporaries; stages; misuse.
 */
#include <stdlib.h>

#include "session/rig.h"

/* All ways of running the same pass give the same bits. */
static void test_same_bits(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, "cpu");
    rig_result expected, got;
    mica_session_stats stats;
    for (uint32_t record = 0; record <= MICA_SESSION_RECORD; record++) {
        for (uint32_t flags = 0; flags <= MICA_FINISH_ALL; flags++) {
            mica_session *session = rig_session(&r, record);
            ok(mica_session_finish(session, flags, &stats));
            mica_session_release(session);
            rig_take(&r, r.y, &got);
            if (record == 0 && flags == 0)
                expected = got;
            assert_memory_equal(&got, &expected, sizeof got);
            assert_int_equal(stats.records_in, RIG_RECORDS);
            assert_int_equal(stats.records_out,
                             record && (flags & MICA_FINISH_FUSE) ? RIG_FUSED : RIG_RECORDS);
            assert_int_equal(stats.submissions, 1);
            assert_true(stats.encode_ns > 0);
            assert_true(stats.wait_ns > 0);
            assert_true(stats.device_ns > 0);
        }
    }
    assert_int_equal(expected.counter, 1);
    rig_close(&r);
}

static void test_commit(void **state)
{
    (void)state;
    for (uint32_t record = 0; record <= MICA_SESSION_RECORD; record++) {
        rig r;
        rig_open(&r, "cpu");
        rig_result got;
        mica_fence *fence = NULL;
        mica_session_stats stats;
        mica_session *session = rig_session(&r, record);
        ok(mica_session_commit(session, MICA_FINISH_ALL, &stats, &fence));
        assert_non_null(fence);
        ok(mica_fence_wait(fence, MICA_WAIT_FOREVER));
        assert_int_equal(stats.wait_ns, 0);
        assert_int_equal(stats.device_ns, 0);
        mica_fence_release(fence);
        mica_session_release(session);
        rig_take(&r, r.y, &got);
        assert_int_equal(got.counter, 1);
        session = rig_session(&r, record);
        ok(mica_session_commit(session, 0, NULL, NULL)); /* nobody wants to know */
        mica_session_release(session);
        ok(mica_device_synchronize(r.device));
        rig_take(&r, r.y, &got);
        assert_int_equal(got.counter, 1);
        rig_close(&r);
    }
}

/* A long chain in two submissions: the head is 64 records or a tenth. */
static void test_overlap(void **state)
{
    static const char *const devices[] = {"null", "cpu"};
    static const uint32_t lengths[] = {64, 65, 900};
    (void)state;
    for (int d = 0; d < 2; d++) {
        for (int k = 0; k < 3; k++) {
            rig r;
            rig_open(&r, devices[d]);
            mica_session *session = NULL;
            mica_session_stats stats;
            uint32_t counter = 0;
            ok(mica_session_begin(r.device, NULL, MICA_SESSION_RECORD, &session));
            for (uint32_t i = 0; i < lengths[k]; i++)
                ok(mica_advance(mica_session_encoder(session), 1, r.counter));
            ok(mica_session_finish(session, MICA_FINISH_ALL & ~MICA_FINISH_FUSE,
                                   &stats)); /* they would be one */
            mica_session_release(session);
            uint32_t head = k == 0 ? 0 : k == 1 ? 64 : 90;
            assert_int_equal(stats.submissions, head > 0 ? 2 : 1);
            assert_int_equal(stats.barriers_head, head > 0 ? head - 1 : 0);
            assert_int_equal(stats.barriers_tail, lengths[k] - head - 1);
            assert_int_equal(stats.barriers, stats.barriers_head + stats.barriers_tail);
            assert_int_equal(stats.dispatches, lengths[k]);
            assert_int_equal(stats.group_sizes[0], lengths[k]);
            ok(mica_buffer_read(r.counter, 0, &counter, sizeof counter));
            assert_int_equal(counter, d == 0 ? 0 : lengths[k]);
            rig_close(&r);
        }
    }
}

/* Two passes in one session, the second over what the first gave: in one stage, in two, on a direct session. */
static void test_stages(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, "cpu");
    rig_result expected, got;
    for (uint32_t staged = 0; staged <= 1; staged++) {
        mica_session_stats stats;
        mica_fence *fence = NULL;
        mica_session *session = rig_session(&r, MICA_SESSION_RECORD);
        if (staged)
            ok(mica_session_stage(session, MICA_FINISH_FUSE | MICA_FINISH_REORDER));
        rig back = r;
        back.x = r.y;
        back.y = r.x;
        ok(rig_encode(&back, session));
        ok(mica_session_commit(session, MICA_FINISH_FUSE | MICA_FINISH_REORDER, &stats, &fence));
        mica_session_release(session);
        ok(mica_fence_wait(fence, MICA_WAIT_FOREVER));
        uint64_t begin = 0, end = 0;
        ok(mica_fence_times(fence, &begin, &end));
        assert_true(end > begin);
        mica_fence_release(fence);
        assert_int_equal(stats.submissions, 1 + staged);
        assert_int_equal(stats.records_in, 2 * RIG_RECORDS);
        rig_take(&r, r.x, staged ? &got : &expected);
        rig_close(&r);
        rig_open(&r, "cpu");
    }
    assert_memory_equal(&got, &expected, sizeof got);
    rig_close(&r);
}

/* One fence answers for all stages: what went wrong in the first is not lost behind the second. */
static void test_stage_failure(void **state)
{
    static const uint32_t outside[3] = {0, 99, 1};
    (void)state;
    rig r;
    rig_open(&r, "cpu");
    mica_session *session = NULL;
    mica_fence *fence = NULL;
    mica_recording *recording = NULL;
    mica_buffer *ids = NULL;
    ok(mica_buffer_alloc(r.device, MICA_DTYPE_U32, 1, (uint64_t[]){3}, &ids));
    ok(mica_buffer_write(ids, 0, outside, sizeof outside));
    ok(mica_session_begin(r.device, NULL, MICA_SESSION_RECORD, &session));
    ok(mica_embedding(mica_session_encoder(session), r.gate, ids, r.y));
    ok(mica_session_stage(session, 0));
    ok(mica_advance(mica_session_encoder(session), 1, r.counter));
    refused(mica_session_stage(session, MICA_FINISH_ALL + 1), MICA_ERR_INVALID_ARGUMENT, "session_stage");
    refused(mica_session_record(session, 0, NULL, &recording), MICA_ERR_STATE, "stages");
    ok(mica_session_commit(session, 0, NULL, &fence));
    refused(mica_session_stage(session, 0), MICA_ERR_STATE, "finished");
    mica_session_release(session);
    refused(mica_fence_wait(fence, MICA_WAIT_FOREVER), MICA_ERR_FAULT, "embedding");
    mica_fence_release(fence);
    ok(mica_session_begin(r.device, NULL, 0, &session));
    refused(mica_session_stage(session, 0), MICA_ERR_STATE, "direct");
    refused(mica_session_stage(NULL, 0), MICA_ERR_INVALID_ARGUMENT, "session");
    mica_session_release(session);
    mica_buffer_release(ids);
    rig_close(&r);
}

/* Independent work is one group, and reordering makes it so. */
static void test_groups(void **state)
{
    (void)state;
    for (uint32_t flags = 0; flags <= MICA_FINISH_REORDER; flags += MICA_FINISH_REORDER) {
        rig r;
        rig_open(&r, "null");
        mica_session *session = NULL;
        mica_session_stats stats;
        mica_buffer *b[4];
        ok(mica_session_begin(r.device, NULL, MICA_SESSION_RECORD, &session));
        mica_encoder *e = mica_session_encoder(session);
        for (int i = 0; i < 4; i++) {
            b[i] = rig_buffer(r.device, MICA_DTYPE_F32, 1, 8, 0);
            ok(mica_gelu(e, b[i], b[i]));
            ok(mica_gelu(e, b[i], b[i]));
        }
        ok(mica_session_finish(session, flags, &stats));
        assert_int_equal(stats.barriers, flags ? 1 : 4);
        assert_int_equal(stats.group_sizes[3], flags ? 2 : 0); /* two groups of four */
        assert_int_equal(stats.reordered, flags ? 6 : 0);
        mica_session_release(session);
        for (int i = 0; i < 4; i++)
            mica_buffer_release(b[i]);
        rig_close(&r);
    }
}

/* The caller's barrier stays, and nothing crosses it. */
static void test_barrier(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, "null");
    mica_session *session = NULL;
    mica_recording *recording = NULL;
    mica_record_info info;
    mica_buffer *a = rig_buffer(r.device, MICA_DTYPE_F32, 1, 8, 0),
                *b = rig_buffer(r.device, MICA_DTYPE_F32, 1, 8, 0);
    ok(mica_session_begin(r.device, NULL, MICA_SESSION_RECORD, &session));
    mica_encoder *e = mica_session_encoder(session);
    ok(mica_softmax(e, a, 1.0f, a));
    ok(mica_softmax(e, a, 1.0f, a));
    ok(mica_encoder_barrier(e));
    ok(mica_softmax(e, b, 1.0f, b));
    ok(mica_session_record(session, MICA_FINISH_ALL, NULL, &recording));
    for (uint32_t i = 0; i < 3; i++) {
        ok(mica_recording_inspect(recording, i, &info));
        assert_int_equal(info.original_index, i);
        assert_int_equal(info.group, i);
    }
    mica_recording_release(recording);
    mica_session_release(session);
    mica_buffer_release(a);
    mica_buffer_release(b);
    rig_close(&r);
}

/* ---- custom kernels ---- */

static void add_one(const mica_host_binding *bindings, uint32_t count, const void *params, uint32_t first,
                    uint32_t last)
{
    (void)count;
    for (uint32_t i = first; i < last; i++)
        ((float *)bindings[1].data)[i] = ((const float *)bindings[0].data)[i] + *(const float *)params;
}

/* A kernel of one's own takes part by its marks: fusions around it see that it reads the temporary. */
static void test_custom(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, "cpu");
    mica_session *session = NULL;
    mica_recording *recording = NULL, *clone = NULL;
    mica_kernel *kernel = NULL;
    mica_buffer *t = NULL, *z = rig_buffer(r.device, MICA_DTYPE_F32, RIG_ROWS, RIG_DIM, 0);
    uint64_t shape[2] = {RIG_ROWS, RIG_DIM};
    float amount = 1.5f, norm[RIG_ROWS * RIG_DIM], moved[RIG_ROWS * RIG_DIM];
    mica_kernel_desc desc = {.name = "add_one", .host = add_one};
    ok(mica_kernel_register(r.device, &desc));
    ok(mica_kernel_get(r.device, "add_one", NULL, 0, &kernel));
    ok(mica_session_begin(r.device, NULL, MICA_SESSION_RECORD, &session));
    mica_encoder *e = mica_session_encoder(session);
    ok(mica_session_temp(session, MICA_DTYPE_F32, 2, shape, &t));
    mica_binding bindings[2] = {{t, MICA_ACCESS_READ}, {z, MICA_ACCESS_WRITE}};
    mica_dispatch_desc dispatch = {.kernel = kernel,
                                   .groups = {RIG_ROWS * RIG_DIM, 1, 1},
                                   .bindings = bindings,
                                   .binding_count = 2,
                                   .params = &amount,
                                   .params_size = sizeof amount};
    ok(mica_rms_norm(e, r.x, NULL, 1e-5f, t));
    ok(mica_mul(e, t, r.x, r.y));
    ok(mica_encoder_dispatch(e, &dispatch));
    ok(mica_session_record(session, MICA_FINISH_ALL, NULL, &recording));
    assert_int_equal(mica_recording_count(recording), 3);
    mica_kernel_release(kernel); /* the recording keeps it */
    ok(mica_recording_clone(recording, &clone));
    mica_recording_release(recording);
    ok(mica_recording_replay_and_wait(clone));
    ok(mica_buffer_read(z, 0, moved, sizeof moved));
    mica_session_release(session);
    ok(mica_session_begin(r.device, NULL, 0, &session));
    ok(mica_rms_norm(mica_session_encoder(session), r.x, NULL, 1e-5f, z));
    ok(mica_session_finish(session, 0, NULL));
    ok(mica_buffer_read(z, 0, norm, sizeof norm));
    for (uint32_t i = 0; i < RIG_ROWS * RIG_DIM; i++)
        assert_true(moved[i] == norm[i] + amount);
    mica_session_release(session);
    mica_recording_release(clone);
    mica_buffer_release(t);
    mica_buffer_release(z);
    rig_close(&r);
}

/* ---- temporaries ---- */

static void test_temporaries(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, "null");
    mica_session *session = NULL;
    mica_buffer *t = NULL, *view = NULL;
    mica_buffer_info info;
    uint64_t shape[2] = {4, 8}, wraps[3] = {1ull << 62, 0, 8};
    ok(mica_session_begin(r.device, NULL, MICA_SESSION_RECORD, &session));
    ok(mica_session_temp(session, MICA_DTYPE_F16, 2, shape, &t));
    ok(mica_buffer_get_info(t, &info));
    assert_int_equal(info.dtype, MICA_DTYPE_F16);
    assert_int_equal(info.byte_length, 64);
    refused(mica_session_temp(session, MICA_DTYPE_F32, 2, NULL, &view), MICA_ERR_INVALID_ARGUMENT, "shape");
    refused(mica_session_temp(session, MICA_DTYPE_F32, 9, shape, &view), MICA_ERR_INVALID_ARGUMENT, "ndim");
    refused(mica_session_temp(session, MICA_DTYPE_F32, 3, wraps, &view), MICA_ERR_INVALID_ARGUMENT, "shape");
    refused(mica_session_temp(session, MICA_DTYPE_F32, 2, shape, NULL), MICA_ERR_INVALID_ARGUMENT,
            "out_buffer");
    refused(mica_session_temp(NULL, MICA_DTYPE_F32, 2, shape, &view), MICA_ERR_INVALID_ARGUMENT, "session");
    ok(mica_session_finish(session, 0, NULL));
    refused(mica_session_temp(session, MICA_DTYPE_F32, 2, shape, &view), MICA_ERR_STATE, "session");
    mica_session_release(session);
    ok(mica_buffer_get_info(t, &info)); /* the caller's reference is his own */
    mica_buffer_release(t);
    rig_close(&r);
}

/* ---- misuse ---- */

static void test_misuse(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, "null");
    mica_session *session = NULL;
    mica_recording *recording = NULL, *second = NULL;
    refused(mica_session_begin(NULL, NULL, 0, &session), MICA_ERR_INVALID_ARGUMENT, "device");
    refused(mica_session_begin(r.device, NULL, 0, NULL), MICA_ERR_INVALID_ARGUMENT, "out_session");
    refused(mica_session_begin(r.device, NULL, 8, &session), MICA_ERR_INVALID_ARGUMENT, "flags");
    assert_null(session);
    refused(mica_session_finish(NULL, 0, NULL), MICA_ERR_INVALID_ARGUMENT, "session");
    refused(mica_session_commit(NULL, 0, NULL, NULL), MICA_ERR_INVALID_ARGUMENT, "session");
    refused(mica_session_record(NULL, 0, NULL, &recording), MICA_ERR_INVALID_ARGUMENT, "session");
    assert_null(mica_session_encoder(NULL));
    mica_session_release(NULL);

    session = rig_session(&r, 0);
    refused(mica_session_record(session, 0, NULL, &recording), MICA_ERR_STATE, "direct");
    refused(mica_session_finish(session, 8, NULL), MICA_ERR_INVALID_ARGUMENT, "flags");
    ok(mica_session_finish(session, 0, NULL)); /* a wrong call spends nothing */
    refused(mica_session_finish(session, 0, NULL), MICA_ERR_STATE, "session");
    refused(mica_session_commit(session, 0, NULL, NULL), MICA_ERR_STATE, "session");
    assert_null(mica_session_encoder(session));
    mica_session_release(session);

    session = rig_session(&r, MICA_SESSION_RECORD);
    refused(mica_session_record(session, 0, NULL, NULL), MICA_ERR_INVALID_ARGUMENT, "out_recording");
    ok(mica_session_record(session, 0, NULL, &recording));
    refused(mica_session_record(session, 0, NULL, &second), MICA_ERR_STATE, "session");
    assert_null(second);
    mica_recording_release(recording);
    mica_session_release(session);
    session = rig_session(&r, MICA_SESSION_RECORD);
    mica_session_release(session); /* what was not finished is dropped */
    rig_close(&r);
}

/* An empty pass is a pass. */
static void test_empty(void **state)
{
    (void)state;
    static const char *const devices[] = {"null", "cpu"};
    for (int d = 0; d < 2; d++) {
        rig r;
        rig_open(&r, devices[d]);
        for (uint32_t record = 0; record <= MICA_SESSION_RECORD; record++) {
            mica_session *session = NULL;
            ok(mica_session_begin(r.device, NULL, record, &session));
            ok(mica_session_finish(session, MICA_FINISH_ALL, NULL));
            mica_session_release(session);
        }
        mica_session *session = NULL;
        mica_recording *recording = NULL;
        ok(mica_session_begin(r.device, NULL, MICA_SESSION_RECORD, &session));
        ok(mica_session_record(session, MICA_FINISH_ALL, NULL, &recording));
        mica_session_release(session);
        ok(mica_recording_replay_and_wait(recording));
        assert_int_equal(mica_recording_count(recording), 0);
        mica_recording_release(recording);
        rig_close(&r);
    }
}

/* ---- stages ---- */

static void test_stage_copy(void **state)
{
    (void)state;
    rig here, there;
    rig_open(&here, "cpu");
    rig_open(&there, "null");
    rig_result got;
    float arrived[RIG_ROWS * RIG_DIM];
    uint64_t shape[2] = {RIG_ROWS, 4}, stride[2] = {4 * RIG_DIM, 4};
    mica_fence *fence = NULL;
    mica_session *session = rig_session(&here, MICA_SESSION_RECORD);
    ok(mica_session_commit(session, MICA_FINISH_ALL, NULL, &fence));
    mica_session_release(session);
    ok(mica_stage_copy(fence, here.y, there.x));
    mica_fence_release(fence);
    rig_take(&here, here.y, &got);
    ok(mica_buffer_read(there.x, 0, arrived, sizeof arrived));
    assert_memory_equal(arrived, got.y, sizeof arrived);
    ok(mica_stage_copy(NULL, there.x, there.y)); /* on one device too */
    ok(mica_buffer_read(there.y, 0, arrived, sizeof arrived));
    assert_memory_equal(arrived, got.y, sizeof arrived);
    mica_buffer *strided = NULL;
    ok(mica_buffer_view(here.x, MICA_DTYPE_F32, 2, shape, stride, 0, &strided));
    refused(mica_stage_copy(NULL, strided, there.x), MICA_ERR_INVALID_ARGUMENT, "from");
    refused(mica_stage_copy(NULL, here.x, strided), MICA_ERR_INVALID_ARGUMENT, "to");
    refused(mica_stage_copy(NULL, here.x, there.up), MICA_ERR_INVALID_ARGUMENT, "bytes");
    refused(mica_stage_copy(NULL, here.x, here.x), MICA_ERR_INVALID_ARGUMENT, "overlap");
    refused(mica_stage_copy(NULL, NULL, here.x), MICA_ERR_INVALID_ARGUMENT, "from");
    refused(mica_stage_copy(NULL, here.x, NULL), MICA_ERR_INVALID_ARGUMENT, "to");
    mica_buffer_release(strided);
    rig_close(&here);
    rig_close(&there);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),     cmocka_unit_test(test_commit),
        cmocka_unit_test(test_overlap),       cmocka_unit_test(test_stages),
        cmocka_unit_test(test_stage_failure), cmocka_unit_test(test_groups),
        cmocka_unit_test(test_barrier),       cmocka_unit_test(test_custom),
        cmocka_unit_test(test_temporaries),   cmocka_unit_test(test_misuse),
        cmocka_unit_test(test_empty),         cmocka_unit_test(test_stage_copy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
