/*
 * test_alloc_failure.c - a whole session with every single host allocation failed in turn, once alone and once with all
 * that follow. Nothing crashes, nothing leaks, and the status is "out of memory" or success, never another.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "mica/mica.h"
#include "support/meter.h"
#include "support/sanitizer.h"
#include "support/transformer.h"
#include "support/transformer_parts.h"

#define SAMPLE 7 /* each how many failures one is also met with two threads */
/* Everything that the session holds, so that leaving early gives it all back. */
typedef struct scene {
    mica_device *device;
    test_model *model;
    test_stream *stream, *other;
    test_pass *pass;
    mica_recording *recording, *clone;
    mica_pool *pool;
    mica_buffer *pooled[2];
    mica_kernel *kernel;
    mica_encoder *encoder;
    mica_fence *fence, *stage;
} scene;

static void leave(scene *s)
{
    mica_fence_release(s->fence);
    mica_fence_release(s->stage);
    mica_encoder_release(s->encoder);
    mica_kernel_release(s->kernel);
    mica_buffer_release(s->pooled[0]);
    mica_buffer_release(s->pooled[1]);
    mica_pool_release(s->pool);
    mica_recording_release(s->clone);
    mica_recording_release(s->recording);
    test_pass_release(s->pass);
    test_stream_release(s->stream);
    test_stream_release(s->other);
    test_model_release(s->model);
    mica_device_release(s->device);
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

static mica_status record_and_replay(scene *s)
{
    mica_session_stats stats;
    char text[64];
    uint64_t length;

    TEST_TRY(test_decode_record(s->stream, MICA_FINISH_FUSE | MICA_FINISH_REORDER, &stats, &s->recording));
    TEST_TRY(mica_recording_replay_and_wait(s->recording));
    TEST_TRY(mica_recording_replay(s->recording, &s->fence));
    TEST_TRY(mica_fence_wait(s->fence, MICA_WAIT_FOREVER));
    TEST_TRY(mica_recording_clone(s->recording, &s->clone));
    TEST_TRY(test_stream_rebind(s->clone, s->stream, s->other));
    TEST_TRY(mica_recording_replay_and_wait(s->clone));
    mica_recording_release(s->clone);
    s->clone = NULL;
    TEST_TRY(test_decode_record(s->stream, 0, &stats, &s->clone));
    TEST_TRY(mica_recording_optimize(s->clone, MICA_FINISH_FUSE | MICA_FINISH_REORDER, &stats));
    TEST_TRY(mica_recording_replay_and_wait(s->clone));
    return mica_recording_print(s->recording, text, sizeof text, &length);
}

static mica_status profile_and_trace(scene *s)
{
    mica_profile_entry entry;
    mica_profile_bucket bucket;
    char path[128];
    uint64_t count;
    mica_status status;

    TEST_TRY(mica_profile_begin(s->device));
    TEST_TRY(mica_recording_replay_and_wait(s->recording));
    TEST_TRY(test_decode_direct(s->stream, s->pass));
    TEST_TRY(mica_profile_end(s->device));
    TEST_TRY(mica_profile_entries(s->device, &entry, 1, &count));
    TEST_TRY(mica_profile_buckets(s->device, &bucket, 1, &count));
    snprintf(path, sizeof path, "%s/mica_alloc_failure_%ld.json", P_tmpdir, (long)getpid());
    status = mica_profile_write_trace(s->device, path);
    unlink(path);
    return status;
}

static mica_status encode_stages(scene *s)
{
    mica_kernel_desc desc = {.name = "nothing", .host = nothing};
    mica_constant constants[] = {{"b", 2}, {"a", 1}};
    mica_dispatch_desc dispatch = {.groups = {3, 1, 1}, .binding_count = 1};
    mica_binding binding = {s->pooled[0], MICA_ACCESS_WRITE};

    TEST_TRY(mica_kernel_register(s->device, &desc));
    TEST_TRY(mica_kernel_get(s->device, "nothing", constants, 2, &s->kernel));
    TEST_TRY(mica_encoder_begin(s->device, NULL, &s->encoder));
    TEST_TRY(mica_encoder_label_push(s->encoder, "first"));
    dispatch.kernel = s->kernel;
    dispatch.bindings = &binding;
    TEST_TRY(mica_encoder_dispatch(s->encoder, &dispatch));
    TEST_TRY(mica_encoder_commit_stage(s->encoder, &s->stage));
    TEST_TRY(mica_copy(s->encoder, s->pooled[0], s->pooled[1]));
    return mica_encoder_commit_and_wait(s->encoder);
}

static mica_status use_pool(scene *s)
{
    mica_buffer_desc descs[2] = {{MICA_DTYPE_F32, 1, {100}, 0}, {MICA_DTYPE_F16, 1, {100}, 0}};

    TEST_TRY(mica_pool_create(s->device, &s->pool));
    TEST_TRY(mica_pool_alloc_batch(s->pool, descs, 2, s->pooled));
    mica_buffer_release(s->pooled[0]);
    s->pooled[0] = NULL;
    TEST_TRY(mica_pool_reset(s->pool));
    return mica_pool_alloc(s->pool, descs, &s->pooled[0]);
}

static mica_status play(scene *s, const char *id, mica_dtype weight, uint32_t threads)
{
    mica_device_options options = {.size = sizeof options, .threads = threads};
    test_shape shape = {
        .dim = 32, .layers = 1, .ffn = 32, .heads = 2, .kv_heads = 1, .head_dim = 16, .vocab = 17};
    uint32_t tokens[3] = {1, 2, 3};
    float logits[3 * 17];

    shape.weight = weight;
    shape.positions = 16;
    shape.page_slots = 4;
    shape.packed = 1;
    TEST_TRY(mica_device_open(id, &options, &s->device));
    TEST_TRY(test_model_create(s->device, &shape, 3, &s->model));
    TEST_TRY(test_stream_create(s->model, &s->stream));
    TEST_TRY(test_stream_create(s->model, &s->other));
    TEST_TRY(test_prefill(s->stream, tokens, 3, 3, logits));
    TEST_TRY(test_stream_set(s->stream, 1, 3));
    TEST_TRY(test_pass_create(s->stream, 1, NULL, &s->pass));
    TEST_TRY(record_and_replay(s));
    TEST_TRY(use_pool(s));
    TEST_TRY(encode_stages(s));
    return profile_and_trace(
        s); /* last: the entries of a profile are megabytes, and each run makes them anew */
}

/* One run with one way of failing; false when the failure was never reached. */
static bool survive(const char *id, mica_dtype weight, uint32_t threads, uint64_t fail_at, bool for_good)
{
    test_meter f = {.fail_at = fail_at, .for_good = for_good};
    scene s;
    mica_status status;

    memset(&s, 0, sizeof s);
    assert_int_equal(MICA_OK, test_meter_set(&f));
    status = play(&s, id, weight, threads);
    if (status != MICA_OK && (fail_at == 0 || status != MICA_ERR_OUT_OF_MEMORY))
        fail_msg("allocation %llu%s failed on %s: %s: %s", (unsigned long long)fail_at,
                 for_good ? " and later" : "", id, mica_status_name(status), mica_status_message());
    assert_true(status == MICA_OK || mica_status_message()[0]);
    leave(&s);
    if (atomic_load(&f.live) != 0 || mica_host_bytes() != 0 || mica_host_allocations() != 0)
        fail_msg("allocation %llu%s failed on %s: %llu blocks leak", (unsigned long long)fail_at,
                 for_good ? " and later" : "", id, (unsigned long long)atomic_load(&f.live));
    assert_int_equal(MICA_OK, mica_set_allocator(NULL));
    return atomic_load(&f.calls) >= fail_at;
}

/* Threads of the device allocate nothing of their own, so each failure is met with one and a sample with two. With one there
 * is nothing that the thread sanitizer could see, so it looks at the sample. */
static void fail_each(const char *id, mica_dtype weight)
{
    survive(id, weight, 2, 0, false);
    for (int for_good = 0; for_good < 2; for_good++) {
        for (uint64_t n = 1; !TEST_THREAD_SANITIZER && survive(id, weight, 1, n, for_good); n++)
            ;
        for (uint64_t n = SAMPLE; survive(id, weight, 2, n, for_good); n += SAMPLE)
            ;
    }
}

static void test_null(void **state)
{
    (void)state;
    fail_each("null", MICA_DTYPE_F32);
}

static void test_cpu_dense(void **state)
{
    (void)state;
    fail_each("cpu", MICA_DTYPE_F32);
}

static void test_cpu_blocks(void **state)
{
    (void)state;
    fail_each("cpu", MICA_DTYPE_Q4_0);
}

static void test_cpu_affine(void **state)
{
    (void)state;
    fail_each("cpu", MICA_DTYPE_AFFINE4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_null),
        cmocka_unit_test(test_cpu_dense),
        cmocka_unit_test(test_cpu_blocks),
        cmocka_unit_test(test_cpu_affine),
    };

    return cmocka_run_group_tests_name("alloc_failure", tests, NULL, NULL);
}
