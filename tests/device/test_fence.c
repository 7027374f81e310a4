/* Fences: waiting, polling, times, values, cancelling, errors that belong to the submission. */
#define _GNU_SOURCE
#include "device_test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Busy for params nanoseconds per group. */
static void busy(const mica_host_binding *bindings, uint32_t count, const void *params, uint32_t first,
                 uint32_t last)
{
    (void)count;
    for (uint32_t i = first; i < last; i++) {
        uint64_t end = now_ns() + *(const uint64_t *)params;
        while (now_ns() < end)
            ;
        atomic_fetch_add((_Atomic int32_t *)bindings[0].data, 1);
    }
}

static mica_fence *submit_busy(mica_device *device, mica_kernel *kernel, mica_buffer *buffer, uint64_t ns,
                               uint32_t groups, uint32_t dispatches)
{
    mica_encoder *encoder = NULL;
    mica_fence *fence = NULL;
    mica_binding binding = {buffer, MICA_ACCESS_READ | MICA_ACCESS_WRITE};
    mica_dispatch_desc desc = {.kernel = kernel,
                               .groups = {groups, 1, 1},
                               .bindings = &binding,
                               .binding_count = 1,
                               .params = &ns,
                               .params_size = sizeof ns};
    must(mica_encoder_begin(device, NULL, &encoder));
    for (uint32_t i = 0; i < dispatches; i++)
        must(mica_encoder_dispatch(encoder, &desc));
    must(mica_encoder_commit(encoder, &fence));
    mica_encoder_release(encoder);
    return fence;
}

static int32_t count_in(mica_buffer *buffer)
{
    int32_t count = -1;
    must(mica_buffer_read(buffer, 0, &count, sizeof count));
    return count;
}

static void waiting_gives_times(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= 3; threads++) {
        mica_device *device = open_device("cpu", threads);
        mica_kernel *kernel = host_kernel(device, "busy", busy);
        mica_buffer *buffer = new_vector(device, MICA_DTYPE_I32, 1);
        uint64_t before = now_ns(), begin = 0, end = 0, last = 0;
        for (int i = 0; i < 5; i++) {
            mica_fence *fence = submit_busy(device, kernel, buffer, 200000, 3, 1);
            must(mica_fence_wait(fence, MICA_WAIT_FOREVER));
            must(mica_fence_wait(fence, 0)); /* again, and without waiting */
            must(mica_fence_times(fence, &begin, &end));
            assert_true(end > begin && end - begin >= 200000 && end - begin <= now_ns() - before);
            assert_true(i == 0 || mica_fence_value(fence) == last + 1);
            last = mica_fence_value(fence);
            mica_fence_release(fence);
        }
        assert_int_equal(count_in(buffer), 15);
        mica_buffer_release(buffer);
        mica_kernel_release(kernel);
        mica_device_release(device);
    }
}

/* Work that is under way: the clock is not there yet, polling and short waits end in time. */
static void a_running_submission_times_out(void **state)
{
    (void)state;
    mica_device *device = open_device("null", 1);
    mica_null_faults faults = {.slow_ns = 300000000};
    mica_kernel *kernel = host_kernel(device, "busy", busy);
    mica_buffer *buffer = new_vector(device, MICA_DTYPE_I32, 1);
    uint64_t begin = 1, end = 1;
    must(mica_null_inject(device, &faults));
    mica_fence *fence = submit_busy(device, kernel, buffer, 1, 1, 1);
    assert_int_equal(mica_fence_wait(fence, 0), MICA_ERR_TIMEOUT);
    assert_true(mica_status_is_transient(MICA_ERR_TIMEOUT));
    refused(mica_fence_times(fence, &begin, &end), MICA_ERR_STATE, "running");
    assert_int_equal(mica_fence_wait(fence, 1000000), MICA_ERR_TIMEOUT);
    must(mica_fence_wait(fence, MICA_WAIT_FOREVER));
    must(mica_fence_times(fence, &begin, &end));
    assert_true(end >= begin);
    mica_fence_release(fence);
    mica_buffer_release(buffer);
    mica_kernel_release(kernel);
    mica_device_release(device);
}

/* The cpu: the waiting caller works along, so the wait may not return early, but it may not hang either. */
static void a_short_wait_ends(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 2);
    mica_kernel *kernel = host_kernel(device, "busy", busy);
    mica_buffer *buffer = new_vector(device, MICA_DTYPE_I32, 1);
    mica_fence *fence = submit_busy(device, kernel, buffer, 1000000, 400, 1);
    uint64_t before = now_ns();
    mica_status status = mica_fence_wait(fence, 2000000);
    assert_true(status == MICA_ERR_TIMEOUT || status == MICA_OK);
    assert_true(status == MICA_OK || now_ns() - before < 150000000);
    must(mica_fence_wait(fence, MICA_WAIT_FOREVER));
    assert_int_equal(count_in(buffer), 400);
    mica_fence_release(fence);
    mica_buffer_release(buffer);
    mica_kernel_release(kernel);
    mica_device_release(device);
}

/* 2 s of work in pieces of 1 ms, stopped: the fence says so, soon, and the rest never ran. */
static void cancelled_work_stops(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 2);
    mica_kernel *kernel = host_kernel(device, "busy", busy);
    mica_buffer *buffer = new_vector(device, MICA_DTYPE_I32, 1);
    mica_fence *fence = submit_busy(device, kernel, buffer, 1000000, 20, 100);
    must(mica_fence_cancel(fence));
    uint64_t before = now_ns();
    mica_status status = mica_fence_wait(fence, MICA_WAIT_FOREVER);
    assert_int_equal(status, MICA_ERR_CANCELLED);
    assert_true(now_ns() - before < 1000000000); /* far less than the work; the machine may be busy */
    assert_true(count_in(buffer) < 2000);
    must(mica_fence_cancel(fence));                                   /* too late is no error */
    mica_fence *after = submit_busy(device, kernel, buffer, 1, 1, 1); /* the queue goes on */
    must(mica_fence_wait(after, MICA_WAIT_FOREVER));
    must(mica_fence_cancel(after));
    must(mica_fence_wait(after, 0)); /* done as usual */
    mica_fence_release(after);
    mica_fence_release(fence);
    mica_buffer_release(buffer);
    mica_kernel_release(kernel);
    mica_device_release(device);
}

static void errors_belong_to_the_fence(void **state)
{
    (void)state;
    mica_device *device = open_device("null", 1);
    mica_kernel *kernel = host_kernel(device, "busy", busy);
    mica_buffer *buffer = new_vector(device, MICA_DTYPE_I32, 1);
    mica_null_faults faults = {.fail_wait = 2};
    must(mica_null_inject(device, &faults));
    mica_fence *good = submit_busy(device, kernel, buffer, 1, 1, 1);
    must(mica_fence_wait(good, MICA_WAIT_FOREVER));
    mica_fence *bad = submit_busy(device, kernel, buffer, 1, 1, 1);
    assert_int_equal(mica_fence_wait(bad, MICA_WAIT_FOREVER), MICA_ERR_SUBMISSION);
    assert_int_equal(mica_fence_wait(bad, MICA_WAIT_FOREVER), MICA_ERR_SUBMISSION); /* to everyone who asks */
    assert_true(mica_status_is_transient(MICA_ERR_SUBMISSION));
    must(mica_fence_wait(good, 0));
    mica_fence_release(good);
    mica_fence_release(bad);
    mica_buffer_release(buffer);
    mica_kernel_release(kernel);
    mica_device_release(device);
}

static void a_lost_device_stays_lost(void **state)
{
    (void)state;
    mica_device *device = open_device("null", 1);
    mica_buffer *buffer = new_vector(device, MICA_DTYPE_F32, 4);
    mica_null_faults faults = {.fail_submit = 1};
    must(mica_null_inject(device, &faults));
    for (int i = 0; i < 3; i++) {
        mica_encoder *encoder = NULL;
        mica_fence *fence = (mica_fence *)&encoder;
        mica_status status = mica_encoder_begin(device, NULL, &encoder);
        if (status == MICA_OK)
            status = mica_fill(encoder, 1, buffer);
        if (status == MICA_OK)
            status = mica_encoder_commit(encoder, &fence);
        assert_int_equal(status, MICA_ERR_DEVICE_LOST);
        mica_encoder_release(encoder);
    }
    assert_false(mica_status_is_transient(MICA_ERR_DEVICE_LOST));
    refused(mica_null_inject(NULL, &faults), MICA_ERR_INVALID_ARGUMENT, "device");
    refused(mica_null_inject(device, NULL), MICA_ERR_INVALID_ARGUMENT, "faults");
    mica_device *cpu = open_device("cpu", 1);
    assert_int_not_equal(mica_null_inject(cpu, &faults), MICA_OK);
    mica_device_release(cpu);
    mica_buffer_release(buffer); /* handles can still be released */
    mica_device_release(device);
}

/* More submissions than any list or ring holds, none waited for; the oldest fence still answers. */
static void many_submissions_may_be_in_flight(void **state)
{
    (void)state;
    enum { MANY = 500 };
    mica_device *device = open_device("cpu", 2);
    mica_kernel *kernel = host_kernel(device, "busy", busy);
    mica_buffer *buffer = new_vector(device, MICA_DTYPE_I32, 1);
    mica_fence *fence[MANY];
    for (int i = 0; i < MANY; i++)
        fence[i] = submit_busy(device, kernel, buffer, 1, 3, 2);
    must(mica_device_synchronize(device));
    for (int i = 0; i < MANY; i++) {
        must(mica_fence_wait(fence[i], 0));
        mica_fence_release(fence[i]);
    }
    assert_int_equal(count_in(buffer), MANY * 6);
    mica_buffer_release(buffer);
    mica_kernel_release(kernel);
    mica_device_release(device);
}

static void *wait_on(void *fence)
{
    return mica_fence_wait(fence, MICA_WAIT_FOREVER) == MICA_OK ? fence : NULL;
}

static void any_thread_may_wait(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 2);
    mica_kernel *kernel = host_kernel(device, "busy", busy);
    mica_buffer *buffer = new_vector(device, MICA_DTYPE_I32, 1);
    mica_fence *fence = submit_busy(device, kernel, buffer, 100000, 50, 1);
    pthread_t thread[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, wait_on, fence), 0);
    for (int i = 0; i < 3; i++) {
        void *result = NULL;
        assert_int_equal(pthread_join(thread[i], &result), 0);
        assert_ptr_equal(result, fence);
    }
    assert_int_equal(count_in(buffer), 50);
    mica_fence_release(fence);
    mica_buffer_release(buffer);
    mica_kernel_release(kernel);
    mica_device_release(device);
}

static void null_fences_are_named(void **state)
{
    (void)state;
    uint64_t t;
    refused(mica_fence_wait(NULL, 0), MICA_ERR_INVALID_ARGUMENT, "fence");
    refused(mica_fence_times(NULL, &t, &t), MICA_ERR_INVALID_ARGUMENT, "fence");
    refused(mica_fence_cancel(NULL), MICA_ERR_INVALID_ARGUMENT, "fence");
    assert_int_equal(mica_fence_value(NULL), 0);
    mica_fence_release(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(waiting_gives_times),
        test(a_running_submission_times_out),
        test(a_short_wait_ends),
        test(cancelled_work_stops),
        test(errors_belong_to_the_fence),
        test(a_lost_device_stays_lost),
        test(many_submissions_may_be_in_flight),
        test(any_thread_may_wait),
        test(null_fences_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
