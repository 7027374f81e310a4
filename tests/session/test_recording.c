/*
 * test_recording.c - recordings: replayed, inspected, printed, rebound, cloned, optimised.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "session/rig.h"
#include "support/meter.h"

static const char *const devices[] = {"null", "cpu"};
#define DEVICES 2
#define CPU 1

/* What direct dispatch gives: the oracle for everything that is only arranged differently. */
static rig_result direct(rig *r)
{
    rig_result result;
    mica_session *session = rig_session(r, 0);
    ok(mica_session_finish(session, 0, NULL));
    mica_session_release(session);
    rig_take(r, r->y, &result);
    return result;
}

/* The pass ran `runs` times over the same x. The null device computes nothing, so there is nothing to
 * compare. */
static void check_result(int device, const rig_result *got, const rig_result *expected, uint32_t runs)
{
    if (device != CPU)
        return;
    assert_memory_equal(got->y, expected->y, sizeof got->y);
    assert_int_equal(got->counter, runs);
}

static void test_replay(void **state)
{
    (void)state;
    for (int d = 0; d < DEVICES; d++) {
        for (uint32_t flags = 0; flags <= MICA_FINISH_ALL; flags++) {
            rig r;
            rig_open(&r, devices[d]);
            rig_result expected = direct(&r), got;
            mica_counters before, after;
            mica_recording *recording = rig_record(&r, flags, NULL);
            ok(mica_counters_get(r.device, &before));
            for (uint32_t n = 0; n < 5; n++) {
                mica_fence *fence = NULL;
                if (n == 0)
                    ok(mica_recording_replay(recording, NULL));
                else if (n == 1)
                    ok(mica_recording_replay(recording, &fence));
                else
                    ok(mica_recording_replay_and_wait(recording));
                if (fence != NULL)
                    ok(mica_fence_wait(fence, MICA_WAIT_FOREVER));
                mica_fence_release(fence);
            }
            ok(mica_counters_get(r.device, &after));
            assert_int_equal(after.replays - before.replays, 5);
            assert_int_equal(after.submissions - before.submissions, 5);
            rig_take(&r, r.y, &got);
            check_result(d, &got, &expected, 5);
            mica_recording_release(recording);
            rig_close(&r);
        }
    }
}

/* ---- shown ---- */

static void test_inspect(void **state)
{
    static const mica_op ops[RIG_RECORDS] = {MICA_OP_RMS_NORM, MICA_OP_MATMUL, MICA_OP_MATMUL, MICA_OP_REGION,
                                             MICA_OP_MATMUL,   MICA_OP_REGION, MICA_OP_REGION};
    (void)state;
    rig r;
    rig_open(&r, "null");
    mica_recording *recording = rig_record(&r, 0, NULL);
    mica_record_info info;
    mica_operand_info operand;
    assert_int_equal(mica_recording_count(recording), RIG_RECORDS);
    uint32_t group = 0;
    for (uint32_t i = 0; i < RIG_RECORDS; i++) {
        ok(mica_recording_inspect(recording, i, &info));
        assert_int_equal(info.op, ops[i]);
        assert_string_equal(info.label, i < RIG_RECORDS - 1 ? "ffn" : "");
        assert_string_equal(info.fused, "");
        assert_int_equal(info.dispatches, 1);
        assert_int_equal(info.original_index, i);
        assert_true(info.group >= group);
        group = info.group;
    }
    assert_int_equal(group, 4); /* norm | gate up | silu_mul | down | add advance */
    /* The norm: x first, then its weight, then the temporary. */
    ok(mica_recording_operand(recording, 0, 0, &operand));
    assert_int_equal(operand.dtype, MICA_DTYPE_F32);
    assert_int_equal(operand.access, MICA_ACCESS_READ);
    assert_int_equal(operand.ndim, 2);
    assert_int_equal(operand.shape[1], RIG_DIM);
    assert_int_equal(operand.stride[0], 4 * RIG_DIM);
    assert_int_equal(operand.byte_end - operand.byte_begin, 4 * RIG_ROWS * RIG_DIM);
    assert_int_equal(operand.temporary, 0);
    uint64_t x = operand.storage;
    ok(mica_recording_inspect(recording, 0, &info));
    ok(mica_recording_operand(recording, 0, info.operand_count - 1, &operand));
    assert_int_equal(operand.access, MICA_ACCESS_WRITE);
    assert_int_equal(operand.temporary, 1);
    uint64_t normed = operand.storage;
    ok(mica_recording_operand(recording, 1, 0, &operand)); /* gate reads it */
    assert_int_equal(operand.storage, normed);
    ok(mica_recording_operand(recording, 5, 0, &operand)); /* add reads x */
    assert_int_equal(operand.storage, x);
    ok(mica_recording_operand(recording, 0, 2, &operand)); /* no residual */
    assert_int_equal(operand.dtype, MICA_DTYPE_NONE);

    refused(mica_recording_inspect(recording, RIG_RECORDS, &info), MICA_ERR_INVALID_ARGUMENT, "index");
    refused(mica_recording_operand(recording, 0, 99, &operand), MICA_ERR_INVALID_ARGUMENT, "operand");
    refused(mica_recording_operand(recording, 99, 0, &operand), MICA_ERR_INVALID_ARGUMENT, "index");
    refused(mica_recording_inspect(recording, 0, NULL), MICA_ERR_INVALID_ARGUMENT, "out");
    refused(mica_recording_inspect(NULL, 0, &info), MICA_ERR_INVALID_ARGUMENT, "recording");
    assert_int_equal(mica_recording_count(NULL), 0);
    mica_recording_release(recording);
    mica_recording_release(NULL);
    rig_close(&r);
}

static void test_print(void **state)
{
    char whole[4096], cut[64];
    uint64_t length = 0, again = 0;
    (void)state;
    rig r;
    rig_open(&r, "null");
    mica_recording *recording = rig_record(&r, MICA_FINISH_FUSE, NULL);
    ok(mica_recording_print(recording, whole, sizeof whole, &length));
    assert_int_equal(length, strlen(whole));
    uint32_t lines = 0;
    for (const char *c = whole; *c != '\0'; c++)
        lines += *c == '\n';
    assert_int_equal(lines, mica_recording_count(recording));
    assert_non_null(strstr(whole, "matmul {norm+matmul} \"ffn\""));
    assert_non_null(strstr(whole, "region (constant add)"));
    assert_non_null(strstr(whole, "f32[3,17]"));
    memset(cut, 'x', sizeof cut);
    ok(mica_recording_print(recording, cut, sizeof cut - 1, &again));
    assert_int_equal(again, length);
    assert_memory_equal(cut, whole, sizeof cut - 2);
    assert_int_equal(cut[sizeof cut - 2], '\0');
    assert_int_equal(cut[sizeof cut - 1], 'x');
    ok(mica_recording_print(recording, NULL, 0, &again));
    assert_int_equal(again, length);
    refused(mica_recording_print(recording, NULL, 5, NULL), MICA_ERR_INVALID_ARGUMENT, "text");
    refused(mica_recording_print(NULL, cut, 5, NULL), MICA_ERR_INVALID_ARGUMENT, "recording");
    mica_recording_release(recording);
    rig_close(&r);
}

static void test_stats(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, "null");
    mica_session_stats stats, kept;
    mica_recording *recording = rig_record(&r, MICA_FINISH_ALL, &stats);
    assert_int_equal(stats.records_in, RIG_RECORDS);
    assert_int_equal(stats.records_out, RIG_FUSED);
    assert_int_equal(stats.fusions, 3); /* gate+up, norm+matmul, matmul+residual */
    assert_int_equal(stats.dispatches, RIG_FUSED);
    assert_int_equal(stats.barriers, 1);
    assert_int_equal(stats.submissions, 0);
    assert_int_equal(stats.temp_bytes, 4 * RIG_ROWS * (2 * RIG_DIM + 3 * RIG_HIDDEN));
    assert_int_equal(stats.temp_bound, 4 * RIG_ROWS * RIG_HIDDEN); /* only what goes into down is left */
    assert_true(stats.temp_placed >= stats.temp_bound && stats.temp_placed < stats.temp_bound + 256);
    assert_true(stats.encode_ns > 0);
    ok(mica_recording_get_stats(recording, &kept));
    assert_memory_equal(&stats, &kept, sizeof stats);
    refused(mica_recording_get_stats(recording, NULL), MICA_ERR_INVALID_ARGUMENT, "out");
    refused(mica_recording_get_stats(NULL, &kept), MICA_ERR_INVALID_ARGUMENT, "recording");
    mica_recording_release(recording);
    rig_close(&r);
}

static void test_optimize(void **state)
{
    (void)state;
    for (int d = 0; d < DEVICES; d++) {
        rig r;
        rig_open(&r, devices[d]);
        rig_result expected = direct(&r), got;
        mica_session_stats stats, kept;
        mica_recording *recording = rig_record(&r, 0, NULL);
        ok(mica_recording_replay(recording, NULL)); /* it may still run when the passes come */
        ok(mica_recording_optimize(recording, MICA_FINISH_FUSE | MICA_FINISH_REORDER, &stats));
        assert_int_equal(stats.records_in, RIG_RECORDS);
        assert_int_equal(stats.records_out, RIG_FUSED);
        assert_int_equal(mica_recording_count(recording), RIG_FUSED);
        ok(mica_recording_replay_and_wait(recording));
        rig_take(&r, r.y, &got);
        check_result(d, &got, &expected, 2);
        ok(mica_recording_optimize(recording, MICA_FINISH_ALL, &stats)); /* nothing left to do */
        assert_int_equal(stats.records_in, RIG_FUSED);
        assert_int_equal(stats.fusions, 0);
        ok(mica_recording_get_stats(recording, &kept));
        assert_int_equal(kept.records_in, RIG_RECORDS);
        assert_int_equal(kept.fusions, 3);
        refused(mica_recording_optimize(recording, 64, NULL), MICA_ERR_INVALID_ARGUMENT, "flags");
        refused(mica_recording_optimize(NULL, 0, NULL), MICA_ERR_INVALID_ARGUMENT, "recording");
        mica_recording_release(recording);
        rig_close(&r);
    }
}

/* ---- rebind ---- */

static void test_rebind(void **state)
{
    (void)state;
    for (int d = 0; d < DEVICES; d++) {
        for (uint32_t flags = 0; flags <= MICA_FINISH_ALL; flags += MICA_FINISH_ALL) {
            rig r;
            rig_open(&r, devices[d]);
            uint32_t uses = 99;
            rig_result got, other;
            mica_recording *recording = rig_record(&r, flags, NULL);
            mica_buffer *x = r.x, *x2 = rig_buffer(r.device, MICA_DTYPE_F32, RIG_ROWS, RIG_DIM, 77);
            mica_buffer *y2 = rig_buffer(r.device, MICA_DTYPE_F32, RIG_ROWS, RIG_DIM, 0);
            ok(mica_recording_replay(recording, NULL)); /* a rebind waits for it */
            ok(mica_recording_rebind(recording, r.x, x2, &uses));
            assert_int_equal(uses, 2); /* norm and residual */
            ok(mica_recording_rebind(recording, r.y, y2, &uses));
            assert_int_equal(uses, 1);
            rig_take(&r, r.y, &got);
            ok(mica_recording_replay_and_wait(recording));
            rig_take(&r, y2, &got);
            r.x = x2;
            other = direct(&r);
            check_result(d, &got, &other, 1);
            ok(mica_recording_rebind(recording, x, x2, &uses)); /* not in it any more */
            assert_int_equal(uses, 0);
            ok(mica_recording_rebind(recording, x2, x, NULL)); /* and back */
            ok(mica_recording_replay_and_wait(recording));
            rig_take(&r, y2, &got);
            r.x = x;
            other = direct(&r);
            check_result(d, &got, &other, 1);
            mica_recording_release(recording);
            mica_buffer_release(x2);
            mica_buffer_release(y2);
            rig_close(&r);
        }
    }
}

static void test_rebind_refused(void **state)
{
    (void)state;
    rig r, elsewhere;
    rig_open(&r, "null");
    rig_open(&elsewhere, "null");
    uint32_t uses = 99;
    uint64_t strides[2] = {8 * RIG_DIM, 4}, shape[2] = {RIG_ROWS, RIG_DIM};
    mica_recording *recording = rig_record(&r, 0, NULL);
    mica_buffer *half = rig_buffer(r.device, MICA_DTYPE_F16, RIG_ROWS, RIG_DIM, 0);
    mica_buffer *tall = rig_buffer(r.device, MICA_DTYPE_F32, 2 * RIG_ROWS, RIG_DIM, 0), *wide = NULL,
                *shifted = NULL;
    ok(mica_buffer_view(tall, MICA_DTYPE_F32, 2, shape, strides, 0, &wide));
    refused(mica_recording_rebind(recording, r.x, r.y, &uses), MICA_ERR_INVALID_ARGUMENT, "overlaps");
    assert_int_equal(uses, 0);
    refused(mica_recording_rebind(recording, r.y, r.x, &uses), MICA_ERR_INVALID_ARGUMENT, "overlaps");
    refused(mica_recording_rebind(recording, r.gate, r.up, NULL), MICA_ERR_INVALID_ARGUMENT, "overlaps");
    refused(mica_recording_rebind(recording, r.x, half, NULL), MICA_ERR_INVALID_ARGUMENT, "dtype");
    refused(mica_recording_rebind(recording, r.x, tall, NULL), MICA_ERR_INVALID_ARGUMENT, "shape");
    refused(mica_recording_rebind(recording, r.x, wide, NULL), MICA_ERR_INVALID_ARGUMENT, "strides");
    refused(mica_recording_rebind(recording, r.x, elsewhere.x, NULL), MICA_ERR_INVALID_ARGUMENT,
            "to is on another");
    refused(mica_recording_rebind(recording, elsewhere.x, r.x, NULL), MICA_ERR_INVALID_ARGUMENT,
            "from is on another");
    refused(mica_recording_rebind(recording, NULL, r.x, NULL), MICA_ERR_INVALID_ARGUMENT, "from");
    refused(mica_recording_rebind(recording, r.x, NULL, NULL), MICA_ERR_INVALID_ARGUMENT, "to");
    refused(mica_recording_rebind(NULL, r.x, r.x, NULL), MICA_ERR_INVALID_ARGUMENT, "recording");
    /* Overlapping `from` itself is no new neighbour. */
    mica_buffer *first = NULL;
    ok(mica_buffer_slice(tall, 0, 0, RIG_ROWS, &first));
    ok(mica_buffer_slice(tall, 0, 1, RIG_ROWS, &shifted));
    ok(mica_recording_rebind(recording, r.x, first, &uses));
    ok(mica_recording_rebind(recording, first, shifted, &uses));
    assert_int_equal(uses, 2);
    ok(mica_recording_replay_and_wait(recording));
    mica_buffer *all[] = {half, tall, wide, first, shifted};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        mica_buffer_release(all[i]);
    mica_recording_release(recording);
    rig_close(&r);
    rig_close(&elsewhere);
}

/* A vector that is repeated over the rows is found by the buffer it came from. */
static void test_rebind_broadcast(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, "cpu");
    mica_session *session = NULL;
    mica_recording *recording = NULL;
    uint32_t uses = 0;
    mica_buffer *bias = rig_buffer(r.device, MICA_DTYPE_F32, 1, RIG_DIM, 9);
    ok(mica_session_begin(r.device, NULL, MICA_SESSION_RECORD, &session));
    ok(mica_add(mica_session_encoder(session), r.x, r.gain, r.y));
    ok(mica_session_record(session, 0, NULL, &recording));
    mica_session_release(session);
    ok(mica_recording_rebind(recording, r.gain, bias, &uses));
    assert_int_equal(uses, 1);
    ok(mica_recording_replay_and_wait(recording));
    float x[RIG_ROWS * RIG_DIM], y[RIG_ROWS * RIG_DIM], b[RIG_DIM];
    ok(mica_buffer_read(r.x, 0, x, sizeof x));
    ok(mica_buffer_read(r.y, 0, y, sizeof y));
    ok(mica_buffer_read(bias, 0, b, sizeof b));
    for (uint32_t i = 0; i < RIG_ROWS * RIG_DIM; i++)
        assert_true(y[i] == x[i] + b[i % RIG_DIM]);
    mica_recording_release(recording);
    mica_buffer_release(bias);
    rig_close(&r);
}

/* ---- clones and threads ---- */

typedef struct worker {
    mica_recording *recording;
    uint32_t rounds;
    mica_status status;
} worker;

static void *replay_rounds(void *context)
{
    worker *w = context;
    for (uint32_t i = 0; i < w->rounds && w->status == MICA_OK; i++)
        w->status =
            i % 2 ? mica_recording_replay(w->recording, NULL) : mica_recording_replay_and_wait(w->recording);
    return NULL;
}

/* The clone works in temporaries of its own: both run at once, over and over, into outputs of their own. */
static void test_clone(void **state)
{
    (void)state;
    for (int d = 0; d < DEVICES; d++) {
        rig r;
        rig_open(&r, devices[d]);
        rig_result expected = direct(&r), got;
        mica_device_memory before, after;
        mica_session_stats stats, cloned;
        mica_recording *original = rig_record(&r, 0, &stats), *clone = NULL;
        mica_buffer *y2 = rig_buffer(r.device, MICA_DTYPE_F32, RIG_ROWS, RIG_DIM, 0);
        mica_buffer *counter2 = rig_buffer(r.device, MICA_DTYPE_U32, 1, 1, 0);
        ok(mica_device_get_memory(r.device, &before));
        ok(mica_recording_clone(original, &clone));
        ok(mica_device_get_memory(r.device, &after));
        assert_true(after.owned_bytes >= before.owned_bytes + stats.temp_placed);
        assert_int_equal(mica_recording_count(clone), mica_recording_count(original));
        ok(mica_recording_get_stats(clone, &cloned));
        assert_memory_equal(&cloned, &stats, sizeof stats);
        ok(mica_recording_rebind(clone, r.y, y2, NULL));
        ok(mica_recording_rebind(clone, r.counter, counter2, NULL));
        worker a = {original, 200, MICA_OK}, b = {clone, 200, MICA_OK};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, replay_rounds, &b), 0);
        replay_rounds(&a);
        pthread_join(thread, NULL);
        assert_int_equal(a.status, MICA_OK);
        assert_int_equal(b.status, MICA_OK);
        ok(mica_device_synchronize(r.device));
        rig_take(&r, r.y, &got);
        check_result(d, &got, &expected, 200);
        rig_take(&r, y2, &got);
        check_result(d, &got, &expected, 0); /* the clone has a counter of its own */
        mica_recording_release(original);    /* the clone lives on without it */
        ok(mica_recording_replay_and_wait(clone));
        mica_recording_release(clone);
        refused(mica_recording_clone(NULL, &clone), MICA_ERR_INVALID_ARGUMENT, "recording");
        assert_null(clone);
        mica_buffer_release(y2);
        mica_buffer_release(counter2);
        rig_close(&r);
    }
}

/* One recording, three threads: it runs once at a time, and every time. */
static void test_shared(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, "cpu");
    rig_result got;
    mica_recording *recording = rig_record(&r, MICA_FINISH_ALL, NULL);
    worker w[3];
    pthread_t thread[3];
    for (int i = 0; i < 3; i++) {
        w[i] = (worker){recording, 100, MICA_OK};
        assert_int_equal(pthread_create(&thread[i], NULL, replay_rounds, &w[i]), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(w[i].status, MICA_OK);
    }
    ok(mica_device_synchronize(r.device));
    rig_take(&r, r.y, &got);
    assert_int_equal(got.counter, 300);
    mica_recording_release(recording);
    rig_close(&r);
}

/* ---- trouble ---- */

/* A fault belongs to the replay it happened in; the next one, and a rebind, start clean. */
static void test_fault(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, "cpu");
    mica_session *session = NULL;
    mica_recording *recording = NULL;
    uint64_t one = 1;
    uint32_t bad = 1000, good = 2, uses = 0;
    mica_buffer *ids = NULL, *row = rig_buffer(r.device, MICA_DTYPE_F32, 1, RIG_DIM, 0);
    mica_buffer *row2 = rig_buffer(r.device, MICA_DTYPE_F32, 1, RIG_DIM, 0);
    ok(mica_buffer_alloc(r.device, MICA_DTYPE_U32, 1, &one, &ids));
    ok(mica_session_begin(r.device, NULL, MICA_SESSION_RECORD, &session));
    ok(mica_embedding(mica_session_encoder(session), r.x, ids, row));
    ok(mica_session_record(session, 0, NULL, &recording));
    mica_session_release(session);
    ok(mica_buffer_write(ids, 0, &bad, sizeof bad));
    refused(mica_recording_replay_and_wait(recording), MICA_ERR_FAULT, "embedding");
    ok(mica_recording_rebind(recording, row, row2, &uses));
    assert_int_equal(uses, 1);
    ok(mica_buffer_write(ids, 0, &good, sizeof good));
    ok(mica_recording_replay_and_wait(recording));
    mica_recording_release(recording);
    mica_buffer_release(ids);
    mica_buffer_release(row);
    mica_buffer_release(row2);
    rig_close(&r);
}

static void test_lost_device(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, "null");
    mica_recording *recording = rig_record(&r, MICA_FINISH_ALL, NULL);
    ok(mica_recording_replay_and_wait(recording));
    mica_null_faults faults = {.fail_wait = 1};
    ok(mica_null_inject(r.device, &faults));
    assert_int_equal(mica_recording_replay_and_wait(recording), MICA_ERR_SUBMISSION);
    ok(mica_recording_replay_and_wait(recording));
    faults = (mica_null_faults){.fail_submit = 1};
    ok(mica_null_inject(r.device, &faults));
    assert_int_equal(mica_recording_replay_and_wait(recording), MICA_ERR_DEVICE_LOST);
    assert_int_equal(mica_recording_replay(recording, NULL), MICA_ERR_DEVICE_LOST);
    mica_recording_release(recording);
    rig_close(&r);
}

static void test_null_arguments(void **state)
{
    (void)state;
    refused(mica_recording_replay(NULL, NULL), MICA_ERR_INVALID_ARGUMENT, "recording");
    refused(mica_recording_replay_and_wait(NULL), MICA_ERR_INVALID_ARGUMENT, "recording");
    refused(mica_recording_clone(NULL, NULL), MICA_ERR_INVALID_ARGUMENT, "out_clone");
}

/* ---- memory ---- */

static mica_recording *record_in(rig *r, mica_arena *arena, uint32_t flags)
{
    mica_session *session = rig_session(r, MICA_SESSION_RECORD);
    mica_recording *recording = NULL;
    ok(mica_session_use_arena(session, arena));
    ok(mica_session_record(session, flags, NULL, &recording));
    mica_session_release(session);
    return recording;
}

static void test_replay_allocates_nothing(void **state)
{
    (void)state;
    for (int d = 0; d < DEVICES; d++) {
        test_meter m = {0};
        ok(test_meter_set(&m));
        rig r;
        rig_open(&r, devices[d]);
        mica_arena *arena = NULL;
        ok(mica_arena_create(r.device, &arena));
        mica_recording *recording[3] = {rig_record(&r, MICA_FINISH_ALL, NULL), /* an arena of its own */
                                        record_in(&r, arena, MICA_FINISH_ALL),
                                        record_in(&r, arena, 0)}; /* which makes the other one follow */
        for (int i = 0; i < 3; i++)
            ok(mica_recording_replay_and_wait(recording[i])); /* the first may set up threads */
        uint64_t before = m.calls;
        for (int i = 0; i < 20; i++) {
            ok(mica_recording_replay(recording[i % 3], NULL));
            ok(mica_recording_replay_and_wait(recording[i % 3]));
        }
        assert_int_equal(m.calls, before);
        for (int i = 0; i < 3; i++)
            mica_recording_release(recording[i]);
        mica_arena_release(arena);
        rig_close(&r);
        assert_int_equal(mica_host_bytes(), 0);
        ok(mica_set_allocator(NULL));
    }
}

/* Everything a recording can do, once, with the n-th allocation failing: the first failure is handed on. */
static mica_status life(rig *r, mica_buffer *x2)
{
    mica_session *session = NULL;
    mica_recording *recording = NULL, *clone = NULL;
    mica_arena *arena = NULL;
    mica_fence *fence = NULL;
    uint64_t length = 0;
    mica_operand_info operand;
    mica_status status = mica_session_begin(r->device, NULL, MICA_SESSION_RECORD, &session);
    if (status == MICA_OK)
        status = mica_arena_create(r->device, &arena);
    if (status == MICA_OK)
        status = mica_session_use_arena(session, arena);
    if (status == MICA_OK)
        status = mica_session_slot(session, "x", r->x);
    if (status == MICA_OK)
        status = rig_encode(r, session);
    if (status == MICA_OK)
        status = mica_session_record(session, MICA_FINISH_REORDER, NULL, &recording);
    mica_session_release(session);
    mica_arena_release(arena);
    if (status == MICA_OK)
        status = mica_recording_optimize(recording, MICA_FINISH_ALL, NULL);
    if (status == MICA_OK)
        status = mica_recording_bind(recording, "x", x2);
    if (status == MICA_OK)
        status = mica_recording_clone(recording, &clone);
    if (status == MICA_OK)
        status = mica_recording_replay(clone, &fence);
    if (status == MICA_OK)
        status = mica_fence_wait(fence, MICA_WAIT_FOREVER);
    if (status == MICA_OK)
        status = mica_recording_operand(clone, 0, 0, &operand);
    if (status == MICA_OK)
        status = mica_recording_print(recording, NULL, 0, &length);
    mica_fence_release(fence);
    mica_recording_release(recording);
    mica_recording_release(clone);
    if (status == MICA_OK &&
        (status = mica_session_begin(r->device, NULL, MICA_SESSION_RECORD, &session)) == MICA_OK) {
        status = rig_encode(r, session);
        if (status == MICA_OK)
            status = mica_session_finish(session, MICA_FINISH_ALL, NULL);
        mica_session_release(session);
    }
    return status;
}

static void test_every_allocation_fails(void **state)
{
    (void)state;
    for (int d = 0; d < DEVICES; d++) {
        uint64_t n = 1, survived = 0;
        for (; n < 2000 && !survived; n++) {
            test_meter m = {0};
            ok(test_meter_set(&m));
            rig r;
            rig_open(&r, devices[d]);
            mica_buffer *x2 = rig_buffer(r.device, MICA_DTYPE_F32, RIG_ROWS, RIG_DIM, 6);
            m.fail_at = m.calls + n;
            mica_status status = life(&r, x2);
            bool reached = m.calls >= m.fail_at;
            m.fail_at = 0;
            survived = !reached;
            if (status != MICA_OK && status != MICA_ERR_OUT_OF_MEMORY)
                fail_msg("%s, allocation %llu: %s: %s", devices[d], (unsigned long long)n,
                         mica_status_name(status), mica_status_message());
            if (!reached)
                ok(status);
            mica_buffer_release(x2);
            rig_close(&r);
            assert_int_equal(mica_host_bytes(), 0);
            ok(mica_set_allocator(NULL));
        }
        assert_true(survived);
        assert_true(n > 50);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replay),
        cmocka_unit_test(test_inspect),
        cmocka_unit_test(test_print),
        cmocka_unit_test(test_stats),
        cmocka_unit_test(test_optimize),
        cmocka_unit_test(test_rebind),
        cmocka_unit_test(test_rebind_refused),
        cmocka_unit_test(test_rebind_broadcast),
        cmocka_unit_test(test_clone),
        cmocka_unit_test(test_shared),
        cmocka_unit_test(test_fault),
        cmocka_unit_test(test_lost_device),
        cmocka_unit_test(test_null_arguments),
        cmocka_unit_test(test_replay_allocates_nothing),
        cmocka_unit_test(test_every_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
