/*
 * test_load_threads.c - eight threads find, read and load the same and different tensors of the same weights at once,
 * by every way, and release them in any order.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <cmocka.h>

#include "support/sanitizer.h"
#include "weights/scene.h"

#define THREADS 8
#define HELD 4

typedef struct worker {
    pthread_t thread;
    const scene *scene;
    mica_weights *weights;
    mica_device *device;
    uint32_t number;
    const char *wrong; /* NULL: all well */
} worker;

/* The first bytes of a canonical buffer, or nothing of a packed one. */
static const char *check(const worker *w, uint32_t t, mica_buffer *buffer)
{
    mica_buffer_info info;
    unsigned char bytes[20];

    if (mica_buffer_get_info(buffer, &info) != MICA_OK || info.dtype != scene_table[t].dtype)
        return "the wrong tensor";
    if (info.layout != MICA_LAYOUT_CANONICAL)
        return NULL;
    if (mica_buffer_read(buffer, 0, bytes, sizeof bytes) != MICA_OK)
        return "a buffer that cannot be read";
    return memcmp(bytes, w->scene->data[t], sizeof bytes) == 0 ? NULL : "the wrong bytes";
}

static const char *one_round(const worker *w, test_random *random, mica_buffer **held)
{
    uint32_t t = (uint32_t)test_random_below(random, SCENE_TENSORS);
    uint64_t index, order[3] = {t, 0, test_random_below(random, 6)};
    unsigned char bytes[20];
    mica_buffer *buffers[3], **slot = &held[test_random_below(random, HELD)];

    if (mica_weights_find(w->weights, scene_table[t].name, &index) != MICA_OK || index != t)
        return "a tensor that is not found";
    if (mica_weights_read(w->weights, t, 0, bytes, sizeof bytes) != MICA_OK ||
        memcmp(bytes, w->scene->data[t], sizeof bytes) != 0)
        return "bytes that are not read";
    if (mica_weights_find(w->weights, "blk.0.ids2", &index) != MICA_ERR_NOT_FOUND)
        return "a tensor that is not there";
    mica_buffer_release(*slot);
    *slot = NULL;
    if (mica_weights_load(w->weights, t, w->device, test_random_one_in(random, 2) ? MICA_LOAD_PACK : 0,
                          slot) != MICA_OK)
        return "a load that failed";
    if (check(w, t, *slot) != NULL)
        return check(w, t, *slot);
    if (mica_weights_load_all(w->weights, order, 3, w->device, 0, NULL, NULL, buffers) != MICA_OK)
        return "a load of three that failed";
    for (int i = 0; i < 3; i++)
        mica_buffer_release(buffers[i]);
    return NULL;
}

static void *work(void *argument)
{
    worker *w = argument;
    test_random random = test_random_from(w->number);
    mica_buffer *held[HELD] = {NULL};

    for (int round = 0; round < (TEST_THREAD_SANITIZER ? 12 : 60) && w->wrong == NULL; round++)
        w->wrong = one_round(w, &random, held);
    for (int i = 0; i < HELD; i++)
        mica_buffer_release(held[i]);
    return NULL;
}

static void run(const char *device_id, uint32_t flags)
{
    scene s;
    mica_weights_options options = {.flags = flags};
    mica_weights *weights;
    mica_device *device;
    mica_device_memory memory;
    worker workers[THREADS];

    scene_make(&s, "threads.gguf");
    assert_int_equal(mica_device_open(device_id, NULL, &device), MICA_OK);
    assert_int_equal(mica_weights_open(s.path, &options, &weights), MICA_OK);
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i] = (worker){.scene = &s, .weights = weights, .device = device, .number = i + 1};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++)
        pthread_join(workers[i].thread, NULL);
    for (uint32_t i = 0; i < THREADS; i++)
        if (workers[i].wrong != NULL)
            fail_msg("thread %u met %s", i, workers[i].wrong);
    assert_int_equal(mica_device_get_memory(device, &memory), MICA_OK);
    assert_int_equal(memory.owned_bytes + memory.mapped_bytes, 0);
    mica_weights_release(weights);
    mica_device_release(device);
    scene_free(&s);
}

static void test_mapped(void **state)
{
    (void)state;
    run("cpu", 0);
}

static void test_read(void **state)
{
    (void)state;
    run("cpu", MICA_WEIGHTS_NO_MAP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mapped), cmocka_unit_test(test_read)};
    return cmocka_run_group_tests_name("load_threads", tests, NULL, NULL);
}
