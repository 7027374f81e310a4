/* Queues: several side by side on one device, in order each, ordered among each other by fences. */
#include "device_test.h"

static void append(const mica_host_binding *bindings, uint32_t count, const void *params, uint32_t first,
                   uint32_t last)
{
    (void)count, (void)first, (void)last;
    int32_t *list = bindings[0].data; /* [0] is the length */
    list[++list[0]] = *(const int32_t *)params;
}

static mica_fence *submit(mica_device *device, mica_queue *queue, mica_kernel *kernel, mica_buffer *list,
                          int32_t value, mica_fence *after)
{
    mica_encoder *encoder = NULL;
    mica_fence *fence = NULL;
    mica_binding binding = {list, MICA_ACCESS_READ | MICA_ACCESS_WRITE};
    mica_dispatch_desc desc = {.kernel = kernel,
                               .groups = {1, 1, 1},
                               .bindings = &binding,
                               .binding_count = 1,
                               .params = &value,
                               .params_size = sizeof value};
    must(mica_encoder_begin(device, queue, &encoder));
    if (after != NULL)
        must(mica_encoder_wait_fence(encoder, after));
    must(mica_encoder_dispatch(encoder, &desc));
    must(mica_encoder_commit(encoder, &fence));
    mica_encoder_release(encoder);
    return fence;
}

static void a_queue_keeps_its_order(void **state)
{
    (void)state;
    enum { WORK = 100, QUEUES = 3 };
    mica_device *device = open_device("cpu", 3);
    mica_kernel *kernel = host_kernel(device, "append", append);
    mica_queue *queue[QUEUES] = {NULL};
    mica_buffer *list[QUEUES];
    mica_fence *last[QUEUES] = {NULL};
    for (int q = 0; q < QUEUES; q++) {
        if (q > 0)
            must(mica_queue_create(device, &queue[q]));
        list[q] = new_vector(device, MICA_DTYPE_I32, WORK + 1);
    }
    for (int i = 0; i < WORK; i++)
        for (int q = 0; q < QUEUES; q++) {
            mica_fence *fence = submit(device, queue[q], kernel, list[q], i * QUEUES + q, NULL);
            if (last[q] != NULL)
                assert_int_equal(mica_fence_value(fence), mica_fence_value(last[q]) + 1);
            mica_fence_release(last[q]);
            last[q] = fence;
        }
    for (int q = 0; q < QUEUES; q++) {
        int32_t back[WORK + 1];
        must(mica_fence_wait(last[q], MICA_WAIT_FOREVER));
        must(mica_buffer_read(list[q], 0, back, sizeof back));
        assert_int_equal(back[0], WORK);
        for (int i = 0; i < WORK; i++)
            assert_int_equal(back[i + 1], i * QUEUES + q);
        mica_fence_release(last[q]);
        mica_buffer_release(list[q]);
        mica_queue_release(queue[q]);
    }
    mica_kernel_release(kernel);
    mica_device_release(device);
}

/* Two queues write one list in turn; only the fences order them. */
static void fences_order_queues(void **state)
{
    (void)state;
    enum { WORK = 60 };
    mica_device *device = open_device("cpu", 2);
    mica_kernel *kernel = host_kernel(device, "append", append);
    mica_queue *queue[2] = {NULL, NULL};
    mica_buffer *list = new_vector(device, MICA_DTYPE_I32, WORK + 1);
    mica_fence *before = NULL;
    must(mica_queue_create(device, &queue[1]));
    for (int i = 0; i < WORK; i++) {
        mica_fence *fence = submit(device, queue[i % 2], kernel, list, i, before);
        mica_fence_release(before);
        before = fence;
    }
    must(mica_fence_wait(before, MICA_WAIT_FOREVER));
    mica_fence_release(before);
    int32_t back[WORK + 1];
    must(mica_buffer_read(list, 0, back, sizeof back));
    assert_int_equal(back[0], WORK);
    for (int i = 0; i < WORK; i++)
        assert_int_equal(back[i + 1], i);
    mica_queue_release(queue[1]);
    mica_buffer_release(list);
    mica_kernel_release(kernel);
    mica_device_release(device);
}

/* What was encoded before the wait does not have to wait, and is not lost. */
static void work_before_a_wait_goes_ahead(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 2);
    mica_kernel *kernel = host_kernel(device, "append", append);
    mica_buffer *list = new_vector(device, MICA_DTYPE_I32, 8), *other = new_vector(device, MICA_DTYPE_I32, 8);
    mica_fence *fence = submit(device, NULL, kernel, other, 1, NULL);
    mica_encoder *encoder = NULL;
    mica_binding binding = {list, MICA_ACCESS_READ | MICA_ACCESS_WRITE};
    int32_t value = 5, back[8];
    mica_dispatch_desc desc = {.kernel = kernel,
                               .groups = {1, 1, 1},
                               .bindings = &binding,
                               .binding_count = 1,
                               .params = &value,
                               .params_size = sizeof value};
    must(mica_encoder_begin(device, NULL, &encoder));
    must(mica_encoder_dispatch(encoder, &desc));
    must(mica_encoder_wait_fence(encoder, fence));
    value = 6;
    must(mica_encoder_dispatch(encoder, &desc));
    must(mica_encoder_commit_and_wait(encoder));
    must(mica_buffer_read(list, 0, back, sizeof back));
    assert_true(back[0] == 2 && back[1] == 5 && back[2] == 6);
    mica_encoder_release(encoder);
    mica_fence_release(fence);
    mica_buffer_release(list);
    mica_buffer_release(other);
    mica_kernel_release(kernel);
    mica_device_release(device);
}

/* The handles may go in any order; the queue keeps its device. */
static void queues_outlive_their_device_handle(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 2);
    mica_kernel *kernel = host_kernel(device, "append", append);
    mica_buffer *list = new_vector(device, MICA_DTYPE_I32, 4);
    mica_queue *queue = NULL;
    must(mica_queue_create(device, &queue));
    mica_fence *fence = submit(device, queue, kernel, list, 3, NULL);
    mica_kernel_release(kernel);
    mica_buffer_release(list);
    mica_device_release(device);
    must(mica_fence_wait(fence, MICA_WAIT_FOREVER));
    mica_fence_release(fence);
    mica_queue_release(queue);

    device = open_device("cpu", 1);
    must(mica_queue_create(device, &queue));
    mica_device_release(device);
    mica_queue_release(queue); /* the last handle */
    mica_queue_release(NULL);
}

static void wrong_queues_are_refused(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 1), *other = open_device("cpu", 1);
    mica_queue *queue = (mica_queue *)&device;
    mica_encoder *encoder = NULL;
    refused(mica_queue_create(NULL, &queue), MICA_ERR_INVALID_ARGUMENT, "device");
    assert_null(queue);
    refused(mica_queue_create(device, NULL), MICA_ERR_INVALID_ARGUMENT, "out_queue");
    must(mica_queue_create(other, &queue));
    refused(mica_encoder_begin(device, queue, &encoder), MICA_ERR_INVALID_ARGUMENT, "queue");
    assert_null(encoder);
    mica_queue_release(queue);
    mica_device_release(other);
    mica_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(a_queue_keeps_its_order),       test(fences_order_queues),
        test(work_before_a_wait_goes_ahead), test(queues_outlive_their_device_handle),
        test(wrong_queues_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
