/* test_cuda_device.c - the CUDA backend under the device room: ops, recordings, cuBLASLt, the cache of kernels, forks, and
 * several threads at once. */
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_rig.h"

#include "mica/mica.h"
#include "support/folder.h"
#include "support/sanitizer.h"

static const char add_source[] = "MK_KERNEL(fake_add) MK_IN(a), MK_IN(b), MK_OUT(y), MK_PARAM(p) MK_END\n";

static mica_device *open_device(void)
{
    mica_device *device = NULL;
    fake_reset();
    must(mica_device_open("cuda:0", NULL, &device));
    return device;
}

static void check_closed(mica_device *device)
{
    mica_device_release(device);
    rig_check_clean();
}

static mica_buffer *buffer_of(mica_device *device, mica_dtype dtype, uint64_t rows, uint64_t columns)
{
    const uint64_t shape[2] = {rows, columns};
    mica_buffer *buffer = NULL;
    must(mica_buffer_alloc(device, dtype, 2, shape, &buffer));
    return buffer;
}

static void test_list(void **state)
{
    mica_device_entry entries[16];
    mica_device *device = NULL;
    uint32_t count = 0, found = 0;
    (void)state;
    must(mica_device_list(entries, 16, &count));
    for (uint32_t i = 0; i < count && i < 16; i++)
        found += strncmp(entries[i].id, "cuda:", 5) == 0 && entries[i].usable;
    assert_int_equal(found, FAKE_DEVICES);
    refused(mica_device_open("cuda:7", NULL, &device), MICA_ERR_DEVICE_NOT_FOUND, "cuda:7");
    rig_check_clean();
}

static void test_ops(void **state)
{
    (void)state;
    mica_device *device = open_device();
    mica_buffer *a = buffer_of(device, MICA_DTYPE_F32, 3, 33), *y = buffer_of(device, MICA_DTYPE_F32, 3, 33);
    mica_encoder *encoder = NULL;
    must(mica_encoder_begin(device, NULL, &encoder));
    must(mica_add(encoder, a, a, y));
    must(mica_mul(encoder, y, a, y));
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    assert_int_equal(fake_get_counts().kernels, 2);
    assert_true(fake_get_counts().fills >= 2);
    mica_buffer_release(a);
    mica_buffer_release(y);
    check_closed(device);
}

/* A map is a copy on the host of the view alone; the last unmap takes back what was open to writes. */
static void test_map(void **state)
{
    const float values[6] = {1, 2, 3, 4, 5, 6};
    const uint64_t part = 3;
    float back[6], *first = NULL, *second = NULL;
    mica_buffer *view = NULL;
    (void)state;
    mica_device *device = open_device();
    mica_buffer *buffer = buffer_of(device, MICA_DTYPE_F32, 2, 3);
    must(mica_buffer_write(buffer, 0, values, sizeof values));
    must(mica_buffer_view(buffer, MICA_DTYPE_F32, 1, &part, NULL, 2 * sizeof(float), &view));
    must(mica_buffer_map(view, MICA_ACCESS_READ, (void **)&first));
    must(mica_buffer_map(view, MICA_ACCESS_WRITE, (void **)&second));
    assert_ptr_equal(first, second);
    assert_memory_equal(first, values + 2, 3 * sizeof(float));
    second[0] = 30;
    must(mica_buffer_unmap(view));
    must(mica_buffer_read(buffer, 0, back, sizeof back));
    assert_true(back[2] == 3); /* still mapped */
    second[2] = 50;
    must(mica_buffer_unmap(view));
    must(mica_buffer_unmap(view)); /* one too many changes nothing */
    must(mica_buffer_read(buffer, 0, back, sizeof back));
    assert_true(back[1] == 2 && back[2] == 30 && back[3] == 4 && back[4] == 50 && back[5] == 6);
    must(mica_buffer_map(buffer, MICA_ACCESS_READ, (void **)&first));
    first[0] = 99; /* nobody asked to write */
    must(mica_buffer_unmap(buffer));
    must(mica_buffer_read(buffer, 0, back, sizeof back));
    assert_true(back[0] == 1);
    mica_buffer_release(view);
    must(mica_buffer_map(buffer, MICA_ACCESS_WRITE,
                         (void **)&first)); /* left mapped: given back with the buffer */
    mica_buffer_release(buffer);
    check_closed(device);
}

/* A kernel text of one's own, compiled once and then found in the cache. */
static void test_own_kernel(void **state)
{
    const mica_kernel_desc desc = {.name = "fake_add", .source = add_source};
    float values[99], back[99];
    (void)state;
    for (uint32_t i = 0; i < 99; i++)
        values[i] = (float)i;
    for (uint32_t round = 0; round < 2; round++) {
        mica_device *device = open_device();
        mica_kernel *kernel = NULL;
        mica_encoder *encoder = NULL;
        mica_buffer *a = buffer_of(device, MICA_DTYPE_F32, 3, 33),
                    *y = buffer_of(device, MICA_DTYPE_F32, 3, 33);
        const mica_binding bindings[3] = {
            {a, MICA_ACCESS_READ}, {a, MICA_ACCESS_READ}, {y, MICA_ACCESS_WRITE}};
        const add_params params = {99};
        must(mica_kernel_register(device, &desc));
        must(mica_kernel_get(device, "fake_add", NULL, 0, &kernel));
        must(mica_buffer_write(a, 0, values, sizeof values));
        must(mica_encoder_begin(device, NULL, &encoder));
        must(mica_encoder_dispatch(
            encoder,
            &(mica_dispatch_desc){kernel, {1, 1, 1}, {256, 1, 1}, bindings, 3, &params, sizeof params}));
        must(mica_encoder_commit_and_wait(encoder));
        must(mica_buffer_read(y, 0, back, sizeof back));
        for (uint32_t i = 0; i < 99; i++)
            assert_true(back[i] == 2 * values[i]);
        assert_int_equal(fake_get_counts().compiled, round == 0);
        mica_encoder_release(encoder);
        mica_kernel_release(kernel);
        mica_buffer_release(a);
        mica_buffer_release(y);
        check_closed(device);
    }
}

static void encode_matmul(mica_encoder *encoder, mica_buffer *x, mica_buffer *weight, mica_buffer *y)
{
    must(mica_matmul(encoder, x, weight, NULL, y));
}

static void test_cublaslt(void **state)
{
    (void)state;
    mica_device *device = open_device();
    mica_buffer *x = buffer_of(device, MICA_DTYPE_BF16, 100, 256),
                *w = buffer_of(device, MICA_DTYPE_BF16, 512, 256);
    mica_buffer *y = buffer_of(device, MICA_DTYPE_F32, 100, 512),
                *other = buffer_of(device, MICA_DTYPE_F32, 100, 512);
    mica_encoder *encoder = NULL;
    mica_session *session = NULL;
    mica_recording *recording = NULL;
    uint32_t uses = 0;
    must(mica_encoder_begin(device, NULL, &encoder));
    encode_matmul(encoder, x, w, y);
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    assert_int_equal(fake_get_counts().matmuls, 1);
    must(mica_session_begin(device, NULL, MICA_SESSION_RECORD, &session));
    encode_matmul(mica_session_encoder(session), x, w, y);
    must(mica_session_record(session, 0, NULL, &recording));
    assert_int_equal(fake_get_counts().matmuls, 2); /* captured once */
    for (uint32_t i = 0; i < 5; i++)
        must(mica_recording_replay_and_wait(recording));
    assert_int_equal(fake_get_counts().matmuls, 2);
    assert_int_equal(fake_get_counts().graphs, 5);
    must(mica_recording_rebind(recording, y, other, &uses));
    must(mica_recording_replay_and_wait(recording));
    assert_int_equal(fake_get_counts().updates, 1);
    mica_recording_release(recording);
    mica_session_release(session);
    mica_buffer_release(x);
    mica_buffer_release(w);
    mica_buffer_release(y);
    mica_buffer_release(other);
    check_closed(device);
}

/* Its algorithms count on operands at multiples of 256 bytes unless they are told. */
static void test_cublaslt_alignment(void **state)
{
    const uint64_t shape[2] = {100, 256};
    mica_encoder *encoder = NULL;
    mica_buffer *x = NULL;
    (void)state;
    mica_device *device = open_device();
    mica_buffer *w = buffer_of(device, MICA_DTYPE_BF16, 512, 256),
                *y = buffer_of(device, MICA_DTYPE_F32, 100, 512),
                *all = buffer_of(device, MICA_DTYPE_BF16, 101, 256);
    for (uint64_t offset = 0; offset <= 48; offset += 16) {
        must(mica_buffer_view(all, MICA_DTYPE_BF16, 2, shape, NULL, offset, &x));
        must(mica_encoder_begin(device, NULL, &encoder));
        encode_matmul(encoder, x, w, y);
        must(mica_encoder_commit_and_wait(encoder));
        mica_encoder_release(encoder);
        mica_buffer_release(x);
        assert_string_equal(fake_complaint(), "");
    }
    assert_int_equal(fake_get_counts().matmuls, 4);
    mica_buffer_release(w);
    mica_buffer_release(y);
    mica_buffer_release(all);
    check_closed(device);
}

/* cuBLASLt was chosen for operands that begin at multiples of 16 bytes. Rebound to others, our own kernels do it; and back. */
static void test_rebound_between_multiples(void **state)
{
    const uint64_t shape[2] = {100, 512};
    mica_session *session = NULL;
    mica_recording *recording = NULL;
    mica_buffer *odd = NULL;
    uint32_t uses = 0;
    (void)state;
    mica_device *device = open_device();
    mica_buffer *x = buffer_of(device, MICA_DTYPE_BF16, 100, 256),
                *w = buffer_of(device, MICA_DTYPE_BF16, 512, 256);
    mica_buffer *y = buffer_of(device, MICA_DTYPE_F32, 100, 512),
                *other = buffer_of(device, MICA_DTYPE_F32, 101, 512);
    must(mica_buffer_view(other, MICA_DTYPE_F32, 2, shape, NULL, sizeof(float), &odd));
    must(mica_session_begin(device, NULL, MICA_SESSION_RECORD, &session));
    encode_matmul(mica_session_encoder(session), x, w, y);
    must(mica_session_record(session, 0, NULL, &recording));
    assert_int_equal(fake_get_counts().matmuls, 1);
    must(mica_recording_replay_and_wait(recording));
    must(mica_recording_rebind(recording, y, odd, &uses));
    assert_int_equal(uses, 1);
    must(mica_recording_replay_and_wait(recording));
    assert_int_equal(fake_get_counts().matmuls, 1);
    must(mica_recording_rebind(recording, odd, y, &uses));
    assert_int_equal(uses, 1);
    must(mica_recording_replay_and_wait(recording));
    assert_int_equal(fake_get_counts().matmuls, 2);
    mica_recording_release(recording);
    mica_session_release(session);
    mica_buffer_release(x);
    mica_buffer_release(w);
    mica_buffer_release(odd);
    mica_buffer_release(y);
    mica_buffer_release(other);
    check_closed(device);
}

/* ---- fork ---- */

static int in_child(mica_device *device, mica_buffer *buffer)
{
    mica_encoder *encoder = NULL;
    mica_buffer *other = NULL;
    float value = 0;
    const uint64_t one = 1;
    int wrong = mica_buffer_read(buffer, 0, &value, 4) == MICA_ERR_DEVICE_LOST ? 0 : 1;
    wrong |= mica_buffer_alloc(device, MICA_DTYPE_F32, 1, &one, &other) == MICA_ERR_DEVICE_LOST ? 0 : 2;
    wrong |= strstr(mica_status_message(), "fork") != NULL ? 0 : 4;
    mica_status status = mica_encoder_begin(device, NULL, &encoder);
    if (status == MICA_OK)
        status = mica_add(encoder, buffer, buffer, buffer);
    wrong |= status == MICA_ERR_DEVICE_LOST ? 0 : 8;
    mica_encoder_release(encoder);
    mica_buffer_release(buffer);
    mica_device_release(device);
    mica_device *cpu = NULL;
    wrong |= mica_device_open("cpu", NULL, &cpu) == MICA_OK ? 0 : 16;
    mica_device_release(cpu);
    return wrong | (mica_host_allocations() == 0 ? 0 : 32);
}

static void test_fork(void **state)
{
    int result = -1;
    (void)state;
    mica_device *device = open_device();
    mica_buffer *buffer = buffer_of(device, MICA_DTYPE_F32, 1, 5);
    const uint32_t calls = fake_calls();
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(in_child(device, buffer) | (fake_calls() == calls ? 0 : 64));
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFEXITED(result));
    assert_int_equal(WEXITSTATUS(result), 0);
    mica_buffer_release(buffer);
    check_closed(device);
}

/* ---- threads ---- */

enum { THREADS = 4, ROUNDS = TEST_THREAD_SANITIZER ? 20 : 60 };

typedef struct worker {
    mica_device *device;
    mica_kernel *kernel;
    uint32_t number;
    mica_status status;
    uint32_t wrong;
} worker;

static mica_status one_round(worker *w, mica_queue *queue, mica_buffer *a, mica_buffer *y, float value)
{
    float sent[64], back[64];
    mica_encoder *encoder = NULL;
    mica_fence *fence = NULL;
    const mica_binding bindings[3] = {{a, MICA_ACCESS_READ}, {a, MICA_ACCESS_READ}, {y, MICA_ACCESS_WRITE}};
    const add_params params = {64};
    const mica_dispatch_desc desc = {w->kernel, {1, 1, 1}, {64, 1, 1}, bindings, 3, &params, sizeof params};
    for (uint32_t i = 0; i < 64; i++)
        sent[i] = value + (float)i;
    mica_status status = mica_buffer_write(a, 0, sent, sizeof sent);
    if (status == MICA_OK)
        status = mica_encoder_begin(w->device, queue, &encoder);
    if (status == MICA_OK)
        status = mica_encoder_dispatch(encoder, &desc);
    if (status == MICA_OK)
        status = mica_encoder_commit(encoder, &fence);
    if (status == MICA_OK)
        status = mica_fence_wait(fence, MICA_WAIT_FOREVER);
    if (status == MICA_OK)
        status = mica_buffer_read(y, 0, back, sizeof back);
    for (uint32_t i = 0; status == MICA_OK && i < 64; i++)
        w->wrong += back[i] != 2 * sent[i];
    mica_fence_release(fence);
    mica_encoder_release(encoder);
    return status;
}

static void *work(void *context)
{
    worker *w = context;
    mica_queue *queue = NULL;
    const uint64_t count = 64;
    mica_buffer *a = NULL, *y = NULL;
    if (w->number % 2 == 0)
        w->status = mica_queue_create(w->device, &queue);
    for (uint32_t round = 0; round < ROUNDS && w->status == MICA_OK; round++) {
        w->status = mica_buffer_alloc(w->device, MICA_DTYPE_F32, 1, &count, &a);
        if (w->status == MICA_OK)
            w->status = mica_buffer_alloc(w->device, MICA_DTYPE_F32, 1, &count, &y);
        if (w->status == MICA_OK)
            w->status = one_round(w, queue, a, y, (float)(w->number * 1000 + round));
        mica_buffer_release(a);
        mica_buffer_release(y);
        a = y = NULL;
    }
    mica_queue_release(queue);
    return NULL;
}

static void test_threads(void **state)
{
    const mica_kernel_desc desc = {.name = "fake_add", .source = add_source};
    pthread_t thread[THREADS];
    worker workers[THREADS];
    mica_kernel *kernel = NULL;
    (void)state;
    mica_device *device = open_device();
    must(mica_kernel_register(device, &desc));
    must(mica_kernel_get(device, "fake_add", NULL, 0, &kernel));
    fake_slow(20000);
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i] = (worker){device, kernel, i, MICA_OK, 0};
        assert_int_equal(pthread_create(&thread[i], NULL, work, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(workers[i].status, MICA_OK);
        assert_int_equal(workers[i].wrong, 0);
    }
    fake_slow(0);
    mica_kernel_release(kernel);
    check_closed(device);
}

/* ---- each driver call failed, under the device room ---- */

/* A product by cuBLASLt, recorded, replayed and rebound to where cuBLASLt cannot read. */
static mica_status record_and_rebind(mica_device *device, mica_buffer *x, mica_buffer *w, mica_buffer *y)
{
    const uint64_t shape[2] = {100, 256}, more[2] = {101, 256};
    mica_session *session = NULL;
    mica_recording *recording = NULL;
    mica_buffer *all = NULL, *odd = NULL;
    uint32_t uses = 0;
    mica_status status = mica_buffer_alloc(device, MICA_DTYPE_F16, 2, more, &all);
    if (status == MICA_OK)
        status = mica_buffer_view(all, MICA_DTYPE_F16, 2, shape, NULL, 2, &odd);
    if (status == MICA_OK)
        status = mica_session_begin(device, NULL, MICA_SESSION_RECORD, &session);
    if (status == MICA_OK)
        status = mica_matmul(mica_session_encoder(session), x, w, NULL, y);
    if (status == MICA_OK)
        status = mica_session_record(session, 0, NULL, &recording);
    if (status == MICA_OK)
        status = mica_recording_replay_and_wait(recording);
    if (status == MICA_OK) {
        status = mica_recording_rebind(recording, y, odd, &uses);
        if (status == MICA_OK)
            status = mica_recording_replay_and_wait(recording);
        else if (mica_recording_rebind(recording, odd, y, &uses) == MICA_OK)
            assert_int_equal(uses, 0); /* its records are as they were */
    }
    mica_recording_release(recording);
    mica_session_release(session);
    mica_buffer_release(odd);
    mica_buffer_release(all);
    return status;
}

static mica_status live(void)
{
    const mica_kernel_desc desc = {.name = "fake_add", .source = add_source};
    const uint64_t shape[2] = {100, 256}, wide[2] = {256, 256};
    mica_device *device = NULL;
    mica_buffer *x = NULL, *w = NULL, *y = NULL;
    mica_encoder *encoder = NULL;
    mica_kernel *kernel = NULL;
    void *pointer = NULL;
    mica_status status = mica_device_open("cuda:1", NULL, &device);
    if (status == MICA_OK)
        status = mica_kernel_register(device, &desc);
    if (status == MICA_OK)
        status = mica_kernel_get(device, "fake_add", NULL, 0, &kernel);
    if (status == MICA_OK)
        status = mica_buffer_alloc(device, MICA_DTYPE_F16, 2, shape, &x);
    if (status == MICA_OK)
        status = mica_buffer_alloc(device, MICA_DTYPE_F16, 2, wide, &w);
    if (status == MICA_OK)
        status = mica_buffer_alloc(device, MICA_DTYPE_F16, 2, shape, &y);
    if (status == MICA_OK)
        status = mica_encoder_begin(device, NULL, &encoder);
    if (status == MICA_OK)
        status = mica_add(encoder, x, x, x);
    if (status == MICA_OK)
        status = mica_matmul(encoder, x, w, NULL, y);
    if (status == MICA_OK)
        status = mica_encoder_commit_and_wait(encoder);
    if (status == MICA_OK)
        status = mica_buffer_map(w, MICA_ACCESS_WRITE, &pointer);
    if (status == MICA_OK)
        status = mica_buffer_unmap(w);
    if (status == MICA_OK)
        status = record_and_rebind(device, x, w, y);
    mica_encoder_release(encoder);
    mica_kernel_release(kernel);
    mica_buffer_release(x);
    mica_buffer_release(w);
    mica_buffer_release(y);
    mica_device_release(device);
    return status;
}

/* Under sanitizers, which are slow, a call fails with one of the two errors in turn. */
static void test_each_call(void **state)
{
    static const int errors[] = {2, 700};
    (void)state;
    for (uint32_t e = 0; e < (TEST_ANY_SANITIZER ? 1 : 2); e++) {
        for (uint32_t n = 1;; n++) {
            const int error = errors[TEST_ANY_SANITIZER ? n % 2 : e];
            fake_reset();
            fake_fail_call(n, error);
            const mica_status status = live();
            if (strcmp(fake_failed(), "cuCtxPushCurrent") != 0 &&
                (fake_live() != 0 || mica_host_allocations() != 0 || fake_complaint()[0] != '\0'))
                fail_msg("call %u (%s, error %d): %u driver objects and %llu host blocks are left; %s", n,
                         fake_failed(), error, fake_live(), (unsigned long long)mica_host_allocations(),
                         fake_complaint());
            if (fake_failed()[0] == '\0') {
                must(status);
                break;
            }
            assert_true(status == MICA_OK || mica_status_message()[0] != '\0');
        }
    }
}

/* What a user is told about the device and the libraries that it opens late. */
static void test_facts(void **state)
{
    mica_device *device = NULL;
    mica_device_properties properties;
    char text[256], little[8];
    (void)state;
    fake_reset();
    must(mica_device_open("cuda:0", NULL, &device));
    must(mica_device_get_properties(device, &properties));
    assert_true(properties.processors > 0);
    assert_non_null(strstr(properties.features, "graphs"));
    must(mica_device_find_libraries(device, text, sizeof text));
    assert_string_equal(text, "NVRTC: libnvrtc.so.13, cuBLASLt: libcublasLt.so.13");
    must(mica_device_find_libraries(device, little, sizeof little));
    assert_string_equal(little, "NVRTC: ");
    refused(mica_device_find_libraries(NULL, text, sizeof text), MICA_ERR_INVALID_ARGUMENT, "device");
    refused(mica_device_find_libraries(device, NULL, 1), MICA_ERR_INVALID_ARGUMENT, "out");
    refused(mica_device_find_libraries(device, text, 0), MICA_ERR_INVALID_ARGUMENT, "out");
    mica_device_release(device);
    rig_check_clean();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list),
        cmocka_unit_test(test_ops),
        cmocka_unit_test(test_map),
        cmocka_unit_test(test_own_kernel),
        cmocka_unit_test(test_cublaslt),
        cmocka_unit_test(test_cublaslt_alignment),
        cmocka_unit_test(test_rebound_between_multiples),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_each_call),
        cmocka_unit_test(test_facts),
    };
    char folder[256];
    if (test_folder_make(folder, sizeof folder, "cuda") != 0)
        return 1;
    setenv("MICA_CACHE_DIR", folder, 1);
    const int failed = cmocka_run_group_tests_name("CUDA under the device room", tests, NULL, NULL);
    test_folder_remove(folder);
    return failed;
}
