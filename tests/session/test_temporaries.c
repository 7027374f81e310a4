/*
 * test_temporaries.c - temporaries are names until the passes are done: what may be done with one, where they lie, what they
 * cost, how recordings share an arena.
 */
#include <pthread.h>

#include "session/rig.h"

static const char *const devices[] = {"null", "cpu"};
#define CPU 1

static uint64_t owned(mica_device *device)
{
    mica_device_memory memory;
    ok(mica_device_get_memory(device, &memory));
    return memory.owned_bytes;
}

/* ---- names ---- */

static void refuse_access(mica_device *device, mica_buffer *t)
{
    char bytes[4] = {0};
    void *pointer = NULL;
    uint64_t offset = 0;
    mica_dlpack_view view;
    mica_pool *pool = NULL;
    refused(mica_buffer_read(t, 0, bytes, 4), MICA_ERR_STATE, "buffer_read: buffer is a temporary");
    refused(mica_buffer_write(t, 0, bytes, 4), MICA_ERR_STATE, "buffer_write: buffer is a temporary");
    refused(mica_buffer_map(t, MICA_ACCESS_READ, &pointer), MICA_ERR_STATE, "buffer_map: buffer is a temp");
    refused(mica_buffer_unmap(t), MICA_ERR_STATE, "buffer_unmap");
    refused(mica_buffer_native(t, &pointer, &offset), MICA_ERR_STATE, "buffer_native");
    refused(mica_buffer_dlpack(t, &view), MICA_ERR_STATE, "buffer_dlpack");
    refused(mica_device_residency_remove(device, t), MICA_ERR_STATE, "device_residency_remove");
    ok(mica_pool_create(device, &pool));
    refused(mica_pool_register(pool, t), MICA_ERR_STATE, "pool_register");
    mica_pool_release(pool);
}

static void test_names(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        rig r;
        rig_open(&r, devices[d]);
        const uint64_t shape[2] = {RIG_ROWS, RIG_DIM}, flat = RIG_ROWS * RIG_DIM, before = owned(r.device);
        mica_session *session = NULL;
        mica_encoder *direct = NULL;
        mica_buffer *t = NULL, *view = NULL, *row = NULL;
        ok(mica_session_begin(r.device, NULL, MICA_SESSION_RECORD, &session));
        ok(mica_session_temp(session, MICA_DTYPE_F32, 2, shape, &t));
        ok(mica_buffer_reshape(t, 1, &flat, &view));
        ok(mica_buffer_slice(t, 0, 1, 1, &row));
        assert_int_equal(owned(r.device), before);
        refuse_access(r.device, t);
        refuse_access(r.device, row);
        refused(mica_stage_copy(NULL, t, r.y), MICA_ERR_STATE, "buffer_map");
        ok(mica_encoder_begin(r.device, NULL, &direct)); /* whoever runs now cannot use it */
        refused(mica_copy(direct, r.x, t), MICA_ERR_STATE, "temporary");
        mica_encoder_release(direct);
        ok(mica_softmax(mica_session_encoder(session), r.x, 1.0f, t));
        ok(mica_copy(mica_session_encoder(session), t, r.y));
        ok(mica_session_finish(session, 0, NULL));
        refuse_access(r.device, view);
        mica_session_release(session);
        refuse_access(r.device, t);
        mica_buffer_release(view);
        mica_buffer_release(row);
        mica_buffer_release(t);
        ok(mica_session_begin(r.device, NULL, 0, &session)); /* a direct session's has memory at once */
        ok(mica_session_temp(session, MICA_DTYPE_F32, 2, shape, &t));
        assert_true(owned(r.device) >= before + 4 * flat);
        ok(mica_buffer_write(t, 0, &(float){1}, 4));
        mica_session_release(session);
        mica_buffer_release(t);
        rig_close(&r);
    }
}

/* ---- places ---- */

/* y = softmax applied n times to x, each time into a value of its own: none is fused away. */
static mica_status encode_chain(rig *r, mica_session *session, uint32_t n, mica_buffer **keep)
{
    static const uint64_t shape[2] = {RIG_ROWS, RIG_DIM};
    mica_encoder *e = mica_session_encoder(session);
    mica_buffer *from = mica_buffer_retain(r->x), *to = NULL;
    mica_status status = MICA_OK;
    for (uint32_t i = 0; i < n && status == MICA_OK; i++) {
        status = mica_session_temp(session, MICA_DTYPE_F32, 2, shape, &to);
        if (status == MICA_OK)
            status = i == 1 ? mica_rms_norm(e, from, NULL, 1e-5f, to) : mica_softmax(e, from, 3.0f, to);
        if (keep != NULL && i == 0)
            *keep = mica_buffer_retain(to);
        mica_buffer_release(from);
        from = to;
        to = NULL;
    }
    if (status == MICA_OK)
        status = mica_copy(e, from, r->y);
    mica_buffer_release(from);
    return status;
}

static mica_recording *record_chain(rig *r, uint32_t n, mica_arena *arena, uint32_t flags,
                                    mica_session_stats *stats)
{
    mica_session *session = NULL;
    mica_recording *recording = NULL;
    ok(mica_session_begin(r->device, NULL, MICA_SESSION_RECORD, &session));
    if (arena != NULL)
        ok(mica_session_use_arena(session, arena));
    ok(encode_chain(r, session, n, NULL));
    ok(mica_session_record(session, flags, stats, &recording));
    mica_session_release(session);
    return recording;
}

static rig_result direct_chain(rig *r, uint32_t n)
{
    mica_session *session = NULL;
    rig_result result;
    ok(mica_session_begin(r->device, NULL, 0, &session));
    ok(encode_chain(r, session, n, NULL));
    ok(mica_session_finish(session, 0, NULL));
    mica_session_release(session);
    rig_take(r, r->y, &result);
    return result;
}

static void check_y(int device, rig *r, const rig_result *expected)
{
    rig_result got;
    rig_take(r, r->y, &got);
    if (device == CPU)
        assert_memory_equal(got.y, expected->y, sizeof got.y);
}

#define VALUE_BYTES (4 * RIG_ROWS * RIG_DIM)
#define PLACE_BYTES 256 /* of one value */

/* A softmax may write where it reads: a chain of any length needs one place. Values that are alive at once need their own. */
static void test_places(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        for (uint32_t flags = 0; flags <= MICA_FINISH_ALL; flags++) {
            rig r;
            rig_open(&r, devices[d]);
            const uint64_t before = owned(r.device);
            const rig_result expected = direct_chain(&r, 50);
            mica_session_stats stats;
            mica_recording *recording = record_chain(&r, 50, NULL, flags, &stats);
            assert_int_equal(stats.temp_bytes, 50 * VALUE_BYTES);
            assert_int_equal(stats.temp_bound, VALUE_BYTES);
            assert_int_equal(stats.temp_placed, PLACE_BYTES);
            assert_int_equal(owned(r.device), before + PLACE_BYTES);
            ok(mica_recording_replay_and_wait(recording));
            check_y(d, &r, &expected);
            mica_recording_release(recording);
            assert_int_equal(owned(r.device), before);
            rig_close(&r);
        }
    }
}

/* z = x + the bytes of what is bound between them. */
static void add_bytes(const mica_host_binding *bindings, uint32_t binding_count, const void *params,
                      uint32_t first, uint32_t last)
{
    (void)params;
    for (uint32_t i = first; i < last; i++) {
        float sum = ((const float *)bindings[0].data)[i];
        for (uint32_t b = 1; b + 1 < binding_count; b++)
            sum += (float)bindings[b].bytes;
        ((float *)bindings[binding_count - 1].data)[i] = sum;
    }
}

/* Two dispatches around values that are empty: one of the session, one at the end of a storage, both read and written. */
static mica_status encode_around_nothing(rig *r, mica_session *session, mica_kernel *kernel,
                                         mica_buffer *nothing)
{
    static const uint64_t empty[3] = {4, 0, 3};
    mica_buffer *t = NULL, *scalar = NULL, *one = NULL;
    mica_encoder *e = mica_session_encoder(session);
    mica_status status = mica_session_temp(session, MICA_DTYPE_F32, 3, empty, &t);
    if (status == MICA_OK)
        status = mica_session_temp(session, MICA_DTYPE_F32, 0, NULL, &scalar);
    if (status == MICA_OK)
        status = mica_buffer_view(r->gain, MICA_DTYPE_F32, 0, NULL, NULL, 4, &one);
    mica_binding bindings[] = {{r->x, MICA_ACCESS_READ},
                               {t, 3},
                               {nothing, 3},
                               {scalar, MICA_ACCESS_READ},
                               {r->y, MICA_ACCESS_WRITE}};
    mica_dispatch_desc dispatch = {
        .kernel = kernel, .groups = {RIG_ROWS * RIG_DIM, 1, 1}, .bindings = bindings, .binding_count = 5};
    if (status == MICA_OK)
        status = mica_add(e, one, one, scalar);
    if (status == MICA_OK)
        status = mica_encoder_dispatch(e, &dispatch);
    bindings[0].buffer = r->y;
    bindings[4].buffer = r->x;
    if (status == MICA_OK)
        status = mica_encoder_dispatch(e, &dispatch);
    if (status == MICA_OK)
        status = mica_mul(e, scalar, r->x, r->y);
    mica_buffer_release(t);
    mica_buffer_release(scalar);
    mica_buffer_release(one);
    return status;
}

static void test_empty_ones(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        rig r;
        rig_open(&r, devices[d]);
        mica_session *session = NULL;
        mica_recording *recording = NULL;
        mica_kernel *kernel = NULL;
        mica_buffer *nothing = NULL;
        mica_kernel_desc desc = {.name = "add_bytes", .host = add_bytes};
        float x[RIG_ROWS * RIG_DIM], y[RIG_ROWS * RIG_DIM], gain[2];
        char text[4096];
        ok(mica_kernel_register(r.device, &desc));
        ok(mica_kernel_get(r.device, "add_bytes", NULL, 0, &kernel));
        ok(mica_buffer_slice(r.gain, 1, RIG_DIM, 0, &nothing));
        ok(mica_buffer_read(r.x, 0, x, sizeof x));
        ok(mica_buffer_read(r.gain, 0, gain, sizeof gain));
        ok(mica_session_begin(r.device, NULL, MICA_SESSION_RECORD, &session));
        ok(encode_around_nothing(&r, session, kernel, nothing));
        ok(mica_session_record(session, MICA_FINISH_ALL, NULL, &recording));
        ok(mica_recording_print(recording, text, sizeof text, NULL));
        assert_non_null(strstr(text, "rw f32[4,0,3] #"));
        assert_non_null(strstr(text, "w f32[] #"));
        ok(mica_recording_replay_and_wait(recording));
        ok(mica_buffer_read(r.y, 0, y, sizeof y));
        for (uint32_t i = 0; d == CPU && i < RIG_ROWS * RIG_DIM; i++)
            assert_true(y[i] == 2 * gain[1] * (x[i] + 4 + 4));
        mica_recording_release(recording);
        mica_session_release(session);
        mica_kernel_release(kernel);
        mica_buffer_release(nothing);
        rig_close(&r);
    }
}

/* Where they lie is shown, and is 256 bytes apart from what lives beside them. */
static void test_shown(void **state)
{
    (void)state;
    rig r;
    char text[4096];
    rig_open(&r, "null");
    mica_recording *recording = rig_record(&r, 0, NULL);
    mica_operand_info gate, up, x;
    ok(mica_recording_operand(recording, 3, 0, &gate)); /* silu_mul reads both */
    ok(mica_recording_operand(recording, 3, 1, &up));
    ok(mica_recording_operand(recording, 0, 0, &x));
    assert_int_equal(gate.placed, 1);
    assert_int_equal(up.placed, 1);
    assert_int_equal(x.placed, 0);
    assert_int_equal(gate.byte_begin, 0);
    assert_int_equal(gate.place % 256, 0);
    assert_true(gate.place + gate.byte_end <= up.place || up.place + up.byte_end <= gate.place);
    ok(mica_recording_print(recording, text, sizeof text, NULL));
    assert_non_null(strstr(text, "t@"));
    mica_recording_release(recording);
    rig_close(&r);
}

/* What fusion removed, and what nobody used, costs nothing. */
static void test_removed(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, "null");
    const uint64_t shape[2] = {RIG_ROWS, RIG_DIM};
    mica_session *session = NULL;
    mica_recording *recording = NULL;
    mica_session_stats stats;
    mica_buffer *t = NULL, *idle = NULL;
    ok(mica_session_begin(r.device, NULL, MICA_SESSION_RECORD, &session));
    ok(mica_session_temp(session, MICA_DTYPE_F32, 2, shape, &t));
    ok(mica_session_temp(session, MICA_DTYPE_F32, 2, shape, &idle));
    ok(mica_rms_norm(mica_session_encoder(session), r.x, NULL, 1e-5f, t));
    ok(mica_mul(mica_session_encoder(session), t, r.x, r.y));
    ok(mica_session_record(session, MICA_FINISH_FUSE, &stats, &recording));
    assert_int_equal(stats.fusions, 1);
    assert_int_equal(stats.temp_bytes, 2 * VALUE_BYTES);
    assert_int_equal(stats.temp_placed, 0);
    assert_int_equal(stats.temp_bound, 0);
    ok(mica_recording_replay_and_wait(recording));
    mica_recording_release(recording);
    mica_session_release(session);
    mica_buffer_release(t);
    mica_buffer_release(idle);
    rig_close(&r);
}

/* Further passes see temporaries, not places: what was placed apart is fused and placed again. */
static void test_optimized(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, "cpu");
    rig_result expected, got;
    mica_session_stats stats, kept;
    mica_session *session = rig_session(&r, 0);
    ok(mica_session_finish(session, 0, NULL));
    mica_session_release(session);
    rig_take(&r, r.y, &expected);
    mica_recording *recording = rig_record(&r, 0, &stats), *clone = NULL;
    ok(mica_recording_replay(recording, NULL));
    ok(mica_recording_optimize(recording, MICA_FINISH_FUSE | MICA_FINISH_REORDER, &kept));
    assert_int_equal(kept.records_out, RIG_FUSED);
    assert_int_equal(kept.temp_bytes, stats.temp_bytes);
    assert_true(kept.temp_placed < stats.temp_placed);
    ok(mica_recording_clone(recording, &clone));
    mica_recording_release(recording);
    ok(mica_recording_replay_and_wait(clone));
    rig_take(&r, r.y, &got);
    assert_memory_equal(got.y, expected.y, sizeof got.y);
    mica_recording_release(clone);
    rig_close(&r);
}

/* Every stage places its own in the memory of the one before. */
static void test_stages(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, "cpu");
    const rig_result expected = direct_chain(&r, 7);
    mica_session *session = NULL;
    mica_session_stats stats;
    ok(mica_session_begin(r.device, NULL, MICA_SESSION_RECORD, &session));
    for (uint32_t i = 1; i < 40; i++) {
        ok(encode_chain(&r, session, 40 - i, NULL));
        ok(mica_session_stage(session, i % 2 ? MICA_FINISH_ALL : 0));
    }
    ok(encode_chain(&r, session, 7, NULL));
    ok(mica_session_finish(session, MICA_FINISH_ALL, &stats));
    assert_int_equal(stats.temp_placed, PLACE_BYTES);
    assert_int_equal(stats.submissions, 40);
    mica_session_release(session);
    check_y(CPU, &r, &expected);
    rig_close(&r);
}

/* A temporary that becomes a buffer holds what the pass wrote. */
static void test_rebound(void **state)
{
    (void)state;
    for (uint32_t flags = 0; flags <= MICA_FINISH_ALL; flags += MICA_FINISH_ALL) {
        rig r;
        rig_open(&r, "cpu");
        const rig_result expected = direct_chain(&r, 4), first = direct_chain(&r, 1);
        mica_session *session = NULL;
        mica_recording *recording = NULL;
        mica_buffer *t = NULL, *seen = rig_buffer(r.device, MICA_DTYPE_F32, RIG_ROWS, RIG_DIM, 0);
        uint32_t uses = 0;
        rig_result got;
        ok(mica_session_begin(r.device, NULL, MICA_SESSION_RECORD, &session));
        ok(encode_chain(&r, session, 4, &t));
        ok(mica_session_record(session, flags, NULL, &recording));
        mica_session_release(session);
        refused(mica_recording_rebind(recording, r.x, t, &uses), MICA_ERR_STATE, "to is a temporary");
        ok(mica_recording_rebind(recording, t, seen, &uses));
        assert_int_equal(uses, 2);
        ok(mica_recording_replay_and_wait(recording));
        check_y(CPU, &r, &expected);
        rig_take(&r, seen, &got);
        assert_memory_equal(got.y, first.y, sizeof got.y);
        ok(mica_recording_rebind(recording, t, seen, &uses));
        assert_int_equal(uses, 0); /* not in it any more */
        mica_recording_release(recording);
        mica_buffer_release(t);
        mica_buffer_release(seen);
        rig_close(&r);
    }
}

/* No memory for the arena: BUDGET, and nothing is left of it. */
static void test_budget(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        rig r;
        rig_open(&r, devices[d]);
        const uint64_t before = owned(r.device);
        mica_session *session = NULL;
        mica_recording *recording = NULL;
        ok(mica_device_set_budget(r.device, before + PLACE_BYTES - 1));
        for (uint32_t once = 0; once < 2; once++) {
            ok(mica_session_begin(r.device, NULL, MICA_SESSION_RECORD, &session));
            ok(encode_chain(&r, session, 5, NULL)); /* names are free */
            refused(once ? mica_session_finish(session, 0, NULL)
                         : mica_session_record(session, 0, NULL, &recording),
                    MICA_ERR_BUDGET, "budget");
            mica_session_release(session);
            assert_int_equal(owned(r.device), before);
        }
        ok(mica_device_set_budget(r.device, before + PLACE_BYTES));
        recording = record_chain(&r, 5, NULL, 0, NULL);
        ok(mica_recording_replay_and_wait(recording));
        mica_recording_release(recording);
        rig_close(&r);
    }
}

/* ---- arenas ---- */

/* Sums of `width` values that are alive at once: so many places. */
static mica_recording *record_wide(rig *r, mica_queue *queue, mica_arena *arena, uint32_t width)
{
    static const uint64_t shape[2] = {RIG_ROWS, RIG_DIM};
    mica_session *session = NULL;
    mica_recording *recording = NULL;
    mica_buffer *part[16], *sum = NULL;
    ok(mica_session_begin(r->device, queue, MICA_SESSION_RECORD, &session));
    ok(mica_session_use_arena(session, arena));
    mica_encoder *e = mica_session_encoder(session);
    for (uint32_t i = 0; i < width; i++) {
        ok(mica_session_temp(session, MICA_DTYPE_F32, 2, shape, &part[i]));
        ok(mica_softmax(e, r->x, 1.0f + (float)i, part[i]));
    }
    ok(mica_copy(e, part[0], r->y));
    for (uint32_t i = 1; i < width; i++) {
        ok(mica_session_temp(session, MICA_DTYPE_F32, 2, shape, &sum));
        ok(mica_add(e, r->y, part[i], sum));
        ok(mica_copy(e, sum, r->y));
        mica_buffer_release(sum);
    }
    ok(mica_session_record(session, MICA_FINISH_REORDER, NULL, &recording));
    mica_session_release(session);
    for (uint32_t i = 0; i < width; i++)
        mica_buffer_release(part[i]);
    return recording;
}

#define WIDEST 12

/* Recordings of all widths have the memory of the widest, in any order, and give what they gave. */
static void test_arena(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        rig r;
        rig_open(&r, devices[d]);
        mica_arena *arena = NULL;
        mica_recording *recording[WIDEST + 1];
        rig_result expected[WIDEST + 1], got;
        ok(mica_arena_create(r.device, &arena));
        assert_int_equal(mica_arena_bytes(arena), 0);
        const uint64_t before = owned(r.device);
        for (uint32_t w = 1; w <= WIDEST; w++) {
            recording[w] = record_wide(&r, NULL, arena, w);
            ok(mica_recording_replay_and_wait(recording[w]));
            rig_take(&r, r.y, &expected[w]);
            assert_int_equal(owned(r.device), before + mica_arena_bytes(arena));
        }
        assert_true(mica_arena_bytes(arena) >= WIDEST * PLACE_BYTES);
        assert_true(mica_arena_bytes(arena) <= (WIDEST + 1) * PLACE_BYTES);
        for (uint32_t round = 0; round < 3; round++)
            for (uint32_t w = WIDEST; w >= 1; w--) {
                ok(mica_recording_replay_and_wait(recording[w]));
                rig_take(&r, r.y, &got);
                if (d == CPU) /* the null device computes nothing */
                    assert_memory_equal(got.y, expected[w].y, sizeof got.y);
            }
        mica_arena_release(arena); /* they keep it */
        for (uint32_t w = 1; w <= WIDEST; w++) {
            ok(mica_recording_replay_and_wait(recording[w]));
            mica_recording_release(recording[w]);
        }
        assert_int_equal(owned(r.device), before);
        rig_close(&r);
    }
}

typedef struct turn {
    mica_recording *recording;
    mica_status status;
} turn;

static void *replay_often(void *context)
{
    turn *t = context;
    for (int i = 0; i < 100 && t->status == MICA_OK; i++)
        t->status =
            i % 3 ? mica_recording_replay(t->recording, NULL) : mica_recording_replay_and_wait(t->recording);
    return NULL;
}

/* Two threads, two queues, one arena that grows meanwhile. Each pass writes y from x: whoever was last, it is one of them. */
static void test_arena_threads(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, "cpu");
    mica_arena *arena = NULL;
    mica_queue *queue = NULL;
    rig_result expected[4], got;
    pthread_t thread[2];
    turn t[2];
    mica_buffer *y[2] = {r.y, rig_buffer(r.device, MICA_DTYPE_F32, RIG_ROWS, RIG_DIM, 0)};
    ok(mica_arena_create(r.device, &arena));
    ok(mica_queue_create(r.device, &queue));
    for (int i = 0; i < 2; i++) {
        r.y = y[i];
        t[i] = (turn){record_wide(&r, i == 0 ? NULL : queue, arena, 2 + 2 * (uint32_t)i), MICA_OK};
        ok(mica_recording_replay_and_wait(t[i].recording));
        rig_take(&r, y[i], &expected[i]);
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, replay_often, &t[i]), 0);
    r.y = rig_buffer(r.device, MICA_DTYPE_F32, RIG_ROWS, RIG_DIM, 0);
    for (uint32_t w = 5; w <= WIDEST; w++) {
        mica_recording *other = record_wide(&r, NULL, arena, w);
        ok(mica_recording_replay(other, NULL));
        mica_recording_release(other);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(t[i].status, MICA_OK);
    }
    ok(mica_device_synchronize(r.device));
    for (int i = 0; i < 2; i++) {
        rig_take(&r, y[i], &got);
        assert_memory_equal(got.y, expected[i].y, sizeof got.y);
        mica_recording_release(t[i].recording);
    }
    mica_buffer_release(y[0]);
    mica_buffer_release(y[1]);
    mica_queue_release(queue);
    mica_arena_release(arena);
    rig_close(&r);
}

/* A clone runs beside its original, so it has an arena of its own; passes that run once use the arena too. */
static void test_arena_users(void **state)
{
    (void)state;
    rig r, elsewhere;
    rig_open(&r, "cpu");
    rig_open(&elsewhere, "null");
    mica_arena *arena = NULL, *other = NULL;
    mica_session *session = NULL;
    const rig_result expected = direct_chain(&r, 3);
    refused(mica_arena_create(NULL, &arena), MICA_ERR_INVALID_ARGUMENT, "device");
    refused(mica_arena_create(r.device, NULL), MICA_ERR_INVALID_ARGUMENT, "out_arena");
    ok(mica_arena_create(r.device, &arena));
    ok(mica_arena_create(elsewhere.device, &other));
    const uint64_t before = owned(r.device);
    ok(mica_session_begin(r.device, NULL, MICA_SESSION_RECORD, &session));
    refused(mica_session_use_arena(NULL, arena), MICA_ERR_INVALID_ARGUMENT, "session");
    refused(mica_session_use_arena(session, NULL), MICA_ERR_INVALID_ARGUMENT, "arena");
    refused(mica_session_use_arena(session, other), MICA_ERR_INVALID_ARGUMENT, "another device");
    ok(mica_session_use_arena(session, arena));
    ok(encode_chain(&r, session, 3, NULL));
    ok(mica_session_stage(session, 0));
    refused(mica_session_use_arena(session, arena), MICA_ERR_STATE, "stages");
    ok(mica_session_finish(session, 0, NULL));
    mica_session_release(session);
    check_y(CPU, &r, &expected);
    assert_int_equal(mica_arena_bytes(arena), PLACE_BYTES);
    assert_int_equal(owned(r.device), before + PLACE_BYTES);
    mica_recording *recording = record_chain(&r, 3, arena, 0, NULL), *clone = NULL;
    assert_int_equal(owned(r.device), before + PLACE_BYTES);
    ok(mica_recording_clone(recording, &clone));
    assert_int_equal(owned(r.device), before + 2 * PLACE_BYTES);
    ok(mica_recording_optimize(recording, MICA_FINISH_ALL, NULL)); /* stays in the shared one */
    assert_int_equal(owned(r.device), before + 2 * PLACE_BYTES);
    ok(mica_recording_replay_and_wait(recording));
    ok(mica_recording_replay_and_wait(clone));
    check_y(CPU, &r, &expected);
    mica_recording_release(recording);
    mica_recording_release(clone);
    ok(mica_session_begin(r.device, NULL, 0, &session));
    refused(mica_session_use_arena(session, arena), MICA_ERR_STATE, "direct");
    mica_session_release(session);
    mica_arena_release(arena);
    mica_arena_release(other);
    mica_arena_release(NULL);
    assert_int_equal(mica_arena_bytes(NULL), 0);
    rig_close(&r);
    rig_close(&elsewhere);
}

/* ---- slots ---- */

static mica_recording *record_slots(rig *r)
{
    mica_session *session = rig_session(r, MICA_SESSION_RECORD);
    mica_recording *recording = NULL;
    char name[80];
    memset(name, 'n', sizeof name);
    name[64] = '\0';
    refused(mica_session_slot(session, name, r->x), MICA_ERR_INVALID_ARGUMENT, "name");
    name[63] = '\0';
    ok(mica_session_slot(session, name, r->gate));
    refused(mica_session_slot(session, "", r->x), MICA_ERR_INVALID_ARGUMENT, "name");
    refused(mica_session_slot(session, NULL, r->x), MICA_ERR_INVALID_ARGUMENT, "name");
    refused(mica_session_slot(session, "x", NULL), MICA_ERR_INVALID_ARGUMENT, "buffer");
    refused(mica_session_slot(NULL, "x", r->x), MICA_ERR_INVALID_ARGUMENT, "session");
    ok(mica_session_slot(session, "x", r->x));
    refused(mica_session_slot(session, "x", r->y), MICA_ERR_INVALID_ARGUMENT, "already");
    ok(mica_session_slot(session, "y", r->y));
    ok(mica_session_record(session, MICA_FINISH_ALL, NULL, &recording));
    mica_session_release(session);
    return recording;
}

static void test_slots(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, "cpu");
    rig_result expected, got;
    mica_recording *recording = record_slots(&r), *clone = NULL;
    mica_buffer *x2 = rig_buffer(r.device, MICA_DTYPE_F32, RIG_ROWS, RIG_DIM, 77), *x = r.x;
    mica_buffer *y2 = rig_buffer(r.device, MICA_DTYPE_F32, RIG_ROWS, RIG_DIM, 0);
    ok(mica_recording_bind(recording, "x", x2));
    ok(mica_recording_clone(recording, &clone));
    ok(mica_recording_bind(recording, "y", y2));
    ok(mica_recording_rebind(recording, x2, x, NULL)); /* the slot follows */
    ok(mica_recording_bind(recording, "x", x2));
    ok(mica_recording_replay_and_wait(recording));
    r.x = x2;
    mica_session *session = rig_session(&r, 0);
    ok(mica_session_finish(session, 0, NULL));
    mica_session_release(session);
    rig_take(&r, r.y, &expected);
    rig_take(&r, y2, &got);
    assert_memory_equal(got.y, expected.y, sizeof got.y);
    ok(mica_recording_replay_and_wait(clone)); /* bound as the original was */
    rig_take(&r, r.y, &got);
    assert_memory_equal(got.y, expected.y, sizeof got.y);
    refused(mica_recording_bind(clone, "x", r.y), MICA_ERR_INVALID_ARGUMENT, "overlaps");
    refused(mica_recording_bind(clone, "x", r.gate), MICA_ERR_INVALID_ARGUMENT, "shape");
    refused(mica_recording_bind(clone, "z", r.y), MICA_ERR_INVALID_ARGUMENT, "\"z\"");
    refused(mica_recording_bind(clone, NULL, r.y), MICA_ERR_INVALID_ARGUMENT, "name");
    refused(mica_recording_bind(clone, "x", NULL), MICA_ERR_INVALID_ARGUMENT, "buffer");
    refused(mica_recording_bind(NULL, "x", r.y), MICA_ERR_INVALID_ARGUMENT, "recording");
    mica_recording_release(recording);
    mica_recording_release(clone);
    r.x = x;
    mica_buffer_release(x2);
    mica_buffer_release(y2);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),       cmocka_unit_test(test_places),
        cmocka_unit_test(test_shown),       cmocka_unit_test(test_removed),
        cmocka_unit_test(test_optimized),   cmocka_unit_test(test_stages),
        cmocka_unit_test(test_rebound),     cmocka_unit_test(test_budget),
        cmocka_unit_test(test_arena),       cmocka_unit_test(test_arena_threads),
        cmocka_unit_test(test_arena_users), cmocka_unit_test(test_slots),
        cmocka_unit_test(test_empty_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
