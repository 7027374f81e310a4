/*
 * test_opencl_failure.c - a whole life of a device with every single call of the driver failed in turn, once alone and
 * once with all that follow. Nothing crashes, nothing leaks, on either side; what succeeds is right; and afterwards the
 * machine's devices work as before.
 */
#include <stdio.h>
#include <stdlib.h>

#include "device/device_test.h"
#include "opencl/opencl_fake.h"
#include "support/folder.h"
#include "support/need.h"

#define COUNT 300u
#define TRY(call)                      \
    do {                               \
        const mica_status s_ = (call); \
        if (s_ != MICA_OK)             \
            return s_;                 \
    } while (0)

/* y[i] = 3 x[i], and faults for nobody. */
static const char triple[] = "typedef struct triple_params { mk_u32 count; } triple_params;\n"
                             "MK_KERNEL(triple) MK_IN(x), MK_OUT(y), MK_PARAM(triple_params, p) MK_END\n"
                             "{\n"
                             "    MK_BIND(x);\n"
                             "    MK_BIND(y);\n"
                             "    const mk_u32 i = MK_GROUP_X * MK_WG + MK_LID;\n"
                             "    if (i < p.count)\n"
                             "        mk_st_f32(y, i * 4u, 3.0f * mk_ld_f32(x, i * 4u));\n"
                             "}\n";

typedef struct scene {
    mica_device *device;
    mica_buffer *x, *y, *z, *w;
    mica_queue *queue;
    mica_kernel *kernel;
    mica_encoder *encoder;
    mica_session *session;
    mica_recording *recording;
    mica_fence *fence;
    float value[COUNT];
} scene;

static void leave(scene *s)
{
    mica_fence_release(s->fence);
    mica_recording_release(s->recording);
    mica_session_release(s->session);
    mica_encoder_release(s->encoder);
    mica_kernel_release(s->kernel);
    mica_queue_release(s->queue);
    mica_buffer_release(s->x);
    mica_buffer_release(s->y);
    mica_buffer_release(s->z);
    mica_buffer_release(s->w);
    mica_device_release(s->device);
}

/* Every element of the buffer is `factor` times its place. */
static mica_status look(scene *s, mica_buffer *buffer, float factor)
{
    float value[COUNT];
    TRY(mica_buffer_read(buffer, 0, value, sizeof value));
    for (uint32_t i = 0; i < COUNT; i++)
        if (value[i] != factor * s->value[i])
            fail_msg("element %u is %g, wanted %g", i, (double)value[i], (double)(factor * s->value[i]));
    return MICA_OK;
}

static mica_status make(scene *s)
{
    const uint64_t count = COUNT;
    for (uint32_t i = 0; i < COUNT; i++)
        s->value[i] = (float)i;
    TRY(mica_device_open("opencl", NULL, &s->device));
    TRY(mica_buffer_alloc(s->device, MICA_DTYPE_F32, 1, &count, &s->x));
    TRY(mica_buffer_alloc(s->device, MICA_DTYPE_F32, 1, &count, &s->y));
    TRY(mica_buffer_alloc(s->device, MICA_DTYPE_F32, 1, &count, &s->z));
    TRY(mica_buffer_alloc(s->device, MICA_DTYPE_F32, 1, &count, &s->w));
    TRY(mica_buffer_write(s->x, 0, s->value, sizeof s->value));
    return MICA_OK;
}

static mica_status map_buffer(scene *s)
{
    void *pointer = NULL, *again = NULL;
    TRY(mica_buffer_map(s->x, MICA_ACCESS_READ | MICA_ACCESS_WRITE, &pointer));
    const mica_status status = mica_buffer_map(s->x, MICA_ACCESS_READ, &again);
    if (status == MICA_OK) {
        assert_ptr_equal(pointer, again);
        assert_memory_equal(pointer, s->value, sizeof s->value);
        mica_buffer_unmap(s->x);
    }
    mica_buffer_unmap(s->x);
    return status;
}

/* A user's kernel, one-shot. */
static mica_status encode_kernel(scene *s)
{
    const mica_kernel_desc desc = {.name = "triple", .source = triple};
    const uint32_t count = COUNT;
    mica_binding bindings[2] = {{s->x, MICA_ACCESS_READ}, {s->y, MICA_ACCESS_WRITE}};
    mica_dispatch_desc dispatch = {.groups = {2, 1, 1},
                                   .local = {256, 1, 1},
                                   .bindings = bindings,
                                   .binding_count = 2,
                                   .params = &count,
                                   .params_size = sizeof count};
    TRY(mica_kernel_register(s->device, &desc));
    TRY(mica_kernel_get(s->device, "triple", NULL, 0, &s->kernel));
    TRY(mica_encoder_begin(s->device, NULL, &s->encoder));
    dispatch.kernel = s->kernel;
    TRY(mica_encoder_dispatch(s->encoder, &dispatch));
    TRY(mica_encoder_commit(s->encoder, &s->fence));
    mica_encoder_release(s->encoder);
    s->encoder = NULL;
    return MICA_OK;
}

/* Ops on a second queue that waits for the first. */
static mica_status encode_ops(scene *s)
{
    TRY(mica_queue_create(s->device, &s->queue));
    TRY(mica_encoder_begin(s->device, s->queue, &s->encoder));
    TRY(mica_encoder_wait_fence(s->encoder, s->fence));
    TRY(mica_add(s->encoder, s->x, s->y, s->z));
    TRY(mica_copy(s->encoder, s->z, s->y));
    TRY(mica_encoder_commit_and_wait(s->encoder));
    mica_encoder_release(s->encoder);
    s->encoder = NULL;
    const mica_status status = mica_fence_wait(s->fence, 1000000000);
    mica_fence_release(s->fence);
    s->fence = NULL;
    return status == MICA_OK ? look(s, s->y, 4) : status;
}

static mica_status record(scene *s)
{
    uint64_t count = 0, begin = 0, end = 0;
    uint32_t uses = 0;
    mica_profile_entry entry[8];
    TRY(mica_session_begin(s->device, NULL, MICA_SESSION_RECORD, &s->session));
    TRY(mica_add(mica_session_encoder(s->session), s->x, s->x, s->y));
    TRY(mica_copy(mica_session_encoder(s->session), s->y, s->z));
    TRY(mica_session_record(s->session, 0, NULL, &s->recording));
    TRY(mica_recording_replay_and_wait(s->recording));
    TRY(look(s, s->z, 2));
    TRY(mica_profile_begin(s->device));
    TRY(mica_recording_replay(s->recording, &s->fence));
    TRY(mica_fence_wait(s->fence, MICA_WAIT_FOREVER));
    TRY(mica_fence_times(s->fence, &begin, &end));
    assert_true(begin <= end);
    TRY(mica_profile_end(s->device));
    TRY(mica_profile_entries(s->device, entry, 8, &count));
    assert_int_equal(count, 2);
    assert_int_equal(entry[0].op, MICA_OP_REGION);
    TRY(mica_buffer_write(s->w, 0, s->value, sizeof s->value));
    TRY(mica_recording_rebind(s->recording, s->x, s->w, &uses));
    TRY(mica_recording_replay_and_wait(s->recording));
    return look(s, s->y, 2);
}

/* `brief`: one kernel alone. */
static mica_status live(scene *s, bool brief)
{
    memset(s, 0, sizeof *s);
    TRY(make(s));
    TRY(encode_kernel(s));
    if (brief)
        return look(s, s->y, 3);
    TRY(encode_ops(s));
    TRY(map_buffer(s));
    return record(s);
}

static uint64_t live_once(uint64_t fail_at, cl_int code, bool for_good, bool brief, mica_status *out)
{
    scene s;
    atomic_store(&fake_calls, 0);
    atomic_store(&fake_code, code);
    atomic_store(&fake_for_good, for_good);
    atomic_store(&fake_fail_at, fail_at);
    *out = live(&s, brief);
    leave(&s);
    const uint64_t calls = atomic_load(&fake_calls);
    atomic_store(&fake_fail_at, 0);
    if (mica_host_allocations() != 0 || atomic_load(&fake_live) != 0)
        fail_msg("call %llu failed with %s%s: %llu blocks and %lld objects of the driver are left",
                 (unsigned long long)fail_at, mica__opencl_error_name(code), for_good ? " for good" : "",
                 (unsigned long long)mica_host_allocations(), (long long)atomic_load(&fake_live));
    return calls;
}

static char cache[512];

/* With the cache of kernels empty the text is compiled, else its binary is loaded. */
static void fail_each(cl_int code, bool for_good, bool cached)
{
    mica_status status;
    uint64_t failed = 0;
    test_folder_empty(cache);
    uint64_t calls = live_once(0, CL_SUCCESS, false, !cached, &status);
    must(status);
    if (cached)
        calls = live_once(0, CL_SUCCESS, false, !cached, &status);
    for (uint64_t n = 1; n <= calls; n++) {
        if (!cached)
            test_folder_empty(cache);
        live_once(n, code, for_good, !cached, &status);
        failed += status != MICA_OK;
    }
    print_message("%s%s: %llu calls, %llu of them turn into a status\n", mica__opencl_error_name(code),
                  for_good ? " for good" : "", (unsigned long long)calls, (unsigned long long)failed);
    assert_true(failed * 3 > calls);
    live_once(0, CL_SUCCESS, false, !cached, &status);
    must(status);
}

static void each_call_fails_once(void **state)
{
    (void)state;
    fail_each(-5, false, true);
}

static void each_call_fails_while_kernels_compile(void **state)
{
    (void)state;
    fail_each(-6, false, false);
}

static void each_call_and_all_later_ones_fail(void **state)
{
    (void)state;
    fail_each(-36, true, true);
}

/* A device that is lost says so ever after; one opened beside it works. */
static void lost_stays_lost(void **state)
{
    (void)state;
    scene s, other;
    float value[COUNT];
    memset(&s, 0, sizeof s);
    memset(&other, 0, sizeof other);
    must(make(&s));
    atomic_store(&fake_calls, 0);
    atomic_store(&fake_code, -36);
    atomic_store(&fake_for_good, 0);
    atomic_store(&fake_fail_at, 1);
    refused(mica_buffer_read(s.x, 0, value, sizeof value), MICA_ERR_DEVICE_LOST, "CL_INVALID_COMMAND_QUEUE");
    atomic_store(&fake_fail_at, 0);
    refused(mica_buffer_read(s.x, 0, value, sizeof value), MICA_ERR_DEVICE_LOST, "lost");
    refused(mica_buffer_write(s.x, 0, value, sizeof value), MICA_ERR_DEVICE_LOST, "lost");
    refused(mica_queue_create(s.device, &s.queue), MICA_ERR_DEVICE_LOST, "lost");
    must(make(&other));
    must(look(&other, other.x, 1));
    leave(&s);
    leave(&other);
    assert_int_equal(atomic_load(&fake_live), 0);
}

static mica__opencl_symbols table;

/* What was uploaded is there for kernels of every queue, also where the driver is late with it. */
static void uploads_are_there_when_they_return(void **state)
{
    const mica__opencl_symbols prompt = table;
    scene s;
    (void)state;
    memset(&s, 0, sizeof s);
    table.clEnqueueWriteBuffer = fake_late_clEnqueueWriteBuffer;
    table.clWaitForEvents = fake_late_clWaitForEvents;
    table.clFinish = fake_late_clFinish;
    must(make(&s));
    must(mica_encoder_begin(s.device, NULL, &s.encoder));
    must(mica_add(s.encoder, s.x, s.x, s.y));
    must(mica_encoder_commit_and_wait(s.encoder));
    must(look(&s, s.y, 2));
    leave(&s);
    table = prompt;
    assert_int_equal(atomic_load(&fake_live), 0);
}

/* Sub-groups that are narrow, of an odd width, or no runs of local ids are not used. Without them, the device does its work as
 * one that offers none. */
static void sub_groups_are_looked_at(void **state)
{
    static const struct {
        uint32_t found[2], used;
    } row[] = {{{8, 0}, 8}, {{64, 0}, 64}, {{4, 0}, 0}, {{24, 0}, 0}, {{512, 0}, 0}, {{16, 1}, 0}};
    const mica__opencl_symbols plain = table;
    mica_device_properties properties;
    scene s;
    (void)state;
    table.clGetDeviceInfo = fake_subgroups_clGetDeviceInfo;
    table.clCreateProgramWithSource = fake_subgroups_clCreateProgramWithSource;
    for (uint32_t i = 0; i < sizeof row / sizeof *row; i++) {
        memset(&s, 0, sizeof s);
        fake_subgroups = row[i].found;
        must(make(&s));
        must(mica_device_get_properties(s.device, &properties));
        assert_int_equal(properties.subgroup_width, row[i].used);
        assert_int_equal(strstr(properties.features, "no sub-groups") != NULL, row[i].used == 0);
        if (row[i].used == 0)
            must(encode_kernel(&s));
        leave(&s);
    }
    fake_subgroups = NULL; /* the machine's own answer, whatever it is */
    memset(&s, 0, sizeof s);
    must(live(&s, false));
    leave(&s);
    table = plain;
    assert_int_equal(atomic_load(&fake_live), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(each_call_fails_once),
        test(each_call_fails_while_kernels_compile),
        test(each_call_and_all_later_ones_fail),
        test(lost_stays_lost),
        test(uploads_are_there_when_they_return),
        test(sub_groups_are_looked_at),
    };
    if (test_folder_make(cache, sizeof cache, "opencl_failure") != 0)
        return 1;
    setenv("MICA_CACHE_DIR", cache, 1); /* before the environment is read */
    int result = test_need("opencl");
    if (result == 0 && fake_install(&table) == MICA_OK)
        result = cmocka_run_group_tests(tests, NULL, NULL);
    test_folder_remove(cache);
    return result;
}
