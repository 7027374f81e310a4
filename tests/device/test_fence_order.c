/* A fence that an encoder waits for holds back the device, not the calling thread. */
#include <stdatomic.h>
#include <unistd.h>

#include "device_test.h"

enum { PATIENCE_S = 60 }; /* a call that waits for what only this thread can open would never return */

static atomic_int gate_open;

static void wait_at_gate(const mica_host_binding *bindings, uint32_t count, const void *params,
                         uint32_t first, uint32_t last)
{
    (void)count, (void)params, (void)first, (void)last;
    while (atomic_load(&gate_open) == 0)
        usleep(100);
    ((int32_t *)bindings[0].data)[0] = 1;
}

/* What the first word of the first buffer is now, plus 1, goes to the second. */
static void look(const mica_host_binding *bindings, uint32_t count, const void *params, uint32_t first,
                 uint32_t last)
{
    (void)count, (void)params, (void)first, (void)last;
    *(int32_t *)bindings[1].data = *(const int32_t *)bindings[0].data + 1;
}

/* Runs the kernel over the buffers, after the fence if there is one. The tracker sees no hazard between encoders. */
static mica_fence *submit(mica_device *device, mica_queue *queue, mica_kernel *kernel,
                          mica_buffer *const *buffer, uint32_t count, mica_fence *after)
{
    mica_encoder *encoder = NULL;
    mica_fence *fence = NULL;
    mica_binding binding[2] = {{buffer[0], MICA_ACCESS_READ | MICA_ACCESS_WRITE},
                               {count > 1 ? buffer[1] : NULL, MICA_ACCESS_WRITE}};
    mica_dispatch_desc desc = {
        .kernel = kernel, .groups = {1, 1, 1}, .bindings = binding, .binding_count = count};
    must(mica_encoder_begin(device, queue, &encoder));
    if (after != NULL)
        must(mica_encoder_wait_fence(encoder, after));
    must(mica_encoder_dispatch(encoder, &desc));
    must(mica_encoder_commit(encoder, &fence));
    mica_encoder_release(encoder);
    return fence;
}

static void committing_does_not_wait(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 2);
    mica_kernel *gate = host_kernel(device, "gate", wait_at_gate), *next = host_kernel(device, "look", look);
    mica_buffer *buffer[2] = {new_vector(device, MICA_DTYPE_I32, 4), new_vector(device, MICA_DTYPE_I32, 4)};
    mica_queue *queue = NULL;
    int32_t back[4];
    alarm(PATIENCE_S);
    atomic_store(&gate_open, 0);
    must(mica_queue_create(device, &queue));
    mica_fence *first = submit(device, NULL, gate, buffer, 1, NULL);
    mica_fence *second = submit(device, queue, next, buffer, 2, first);
    assert_int_equal(mica_fence_wait(first, 0), MICA_ERR_TIMEOUT);
    assert_int_equal(mica_fence_wait(second, 0), MICA_ERR_TIMEOUT);
    atomic_store(&gate_open, 1);
    must(mica_fence_wait(second, MICA_WAIT_FOREVER));
    assert_int_equal(mica_fence_wait(first, 0), MICA_OK);
    must(mica_buffer_read(buffer[1], 0, back, sizeof back));
    assert_int_equal(back[0], 2);
    alarm(0);
    mica_fence_release(first);
    mica_fence_release(second);
    mica_queue_release(queue);
    mica_buffer_release(buffer[0]);
    mica_buffer_release(buffer[1]);
    mica_kernel_release(gate);
    mica_kernel_release(next);
    mica_device_release(device);
}

/* The null device's queues run side by side, unless a fence orders them. */
static void queues_are_ordered_on_the_device(void **state)
{
    (void)state;
    mica_device *device = open_device("null", 1);
    mica_kernel *kernel = host_kernel(device, "look", look);
    mica_buffer *buffer[2] = {new_vector(device, MICA_DTYPE_I32, 4), new_vector(device, MICA_DTYPE_I32, 4)};
    mica_queue *queue[2] = {NULL, NULL};
    mica_null_faults faults = {.slow_ns = 50000000};
    uint64_t begin[3], end[3];
    must(mica_null_inject(device, &faults));
    must(mica_queue_create(device, &queue[0]));
    must(mica_queue_create(device, &queue[1]));
    mica_fence *fence[3] = {submit(device, NULL, kernel, buffer, 2, NULL)};
    fence[1] = submit(device, queue[0], kernel, buffer, 2, NULL);
    fence[2] = submit(device, queue[1], kernel, buffer, 2, fence[0]);
    for (int i = 0; i < 3; i++) {
        must(mica_fence_wait(fence[i], MICA_WAIT_FOREVER));
        must(mica_fence_times(fence[i], &begin[i], &end[i]));
        mica_fence_release(fence[i]);
    }
    assert_true(begin[1] < end[0]);
    assert_true(begin[2] >= end[0]);
    mica_queue_release(queue[0]);
    mica_queue_release(queue[1]);
    mica_buffer_release(buffer[0]);
    mica_buffer_release(buffer[1]);
    mica_kernel_release(kernel);
    mica_device_release(device);
}

/* A fence of another device is waited for on the host; its own result stays with it. */
static void fences_of_other_devices_count(void **state)
{
    (void)state;
    mica_device *other = open_device("null", 1), *device = open_device("cpu", 1);
    mica_kernel *there = host_kernel(other, "look", look), *here = host_kernel(device, "look", look);
    mica_buffer *from[2] = {new_vector(other, MICA_DTYPE_I32, 4), new_vector(other, MICA_DTYPE_I32, 4)};
    mica_buffer *to[2] = {new_vector(device, MICA_DTYPE_I32, 4), new_vector(device, MICA_DTYPE_I32, 4)};
    mica_null_faults faults = {.slow_ns = 20000000, .fail_wait = 1};
    must(mica_null_inject(other, &faults));
    mica_fence *first = submit(other, NULL, there, from, 2, NULL);
    mica_fence *second = submit(device, NULL, here, to, 2, first);
    must(mica_fence_wait(second, MICA_WAIT_FOREVER));
    assert_int_equal(mica_fence_wait(first, 0), MICA_ERR_SUBMISSION);
    mica_fence_release(first);
    mica_fence_release(second);
    for (int i = 0; i < 2; i++) {
        mica_buffer_release(from[i]);
        mica_buffer_release(to[i]);
    }
    mica_kernel_release(there);
    mica_kernel_release(here);
    mica_device_release(other);
    mica_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(committing_does_not_wait),
        test(queues_are_ordered_on_the_device),
        test(fences_of_other_devices_count),
    };
    return cmocka_run_group_tests_name("fence order", tests, NULL, NULL);
}
