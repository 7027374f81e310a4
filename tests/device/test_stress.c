/*
 * test_stress.c - several threads with one device: each replays a recording of its own, on a queue of its own or the
 * common one, and encodes between; ten thousand replays, each of which must give the same bits.
 *
 *   test_stress [DEVICE [REPLAYS]]     cpu and opencl unless one is named; replays of all threads together
 */
#include <pthread.h>

#include "device/device_test.h"
#include "support/need.h"
#include "support/random.h"
#include "support/sanitizer.h"

#define THREADS 4u
#define COUNT 777u
#define ONE_SHOT 16u /* each how many replays a thread also encodes */

static uint32_t replays = TEST_ANY_SANITIZER ? 1000 : 10000;

typedef struct worker {
    pthread_t thread;
    mica_device *device;
    uint32_t number;
    const char *wrong; /* NULL: all was right */
    char sentence[512];
} worker;

typedef struct parts {
    mica_queue *queue; /* NULL: the common one */
    mica_buffer *buffer[4];
    mica_recording *recording;
    float expected[COUNT];
} parts;

static mica_status make_parts(worker *w, parts *p)
{
    const uint64_t count = COUNT;
    float value[2][COUNT];
    mica_session *session = NULL;
    test_random random = test_random_from(w->number + 1);
    for (uint32_t i = 0; i < COUNT; i++) {
        value[0][i] = (float)test_random_uniform(&random, -1, 1);
        value[1][i] = (float)test_random_uniform(&random, -1, 1);
        p->expected[i] = value[0][i] * value[1][i];
        p->expected[i] = p->expected[i] + value[1][i];
    }
    mica_status status = w->number % 2 == 0 ? mica_queue_create(w->device, &p->queue) : MICA_OK;
    for (uint32_t i = 0; i < 4 && status == MICA_OK; i++)
        status = mica_buffer_alloc(w->device, MICA_DTYPE_F32, 1, &count, &p->buffer[i]);
    for (uint32_t i = 0; i < 2 && status == MICA_OK; i++)
        status = mica_buffer_write(p->buffer[i], 0, value[i], sizeof value[i]);
    if (status == MICA_OK)
        status = mica_session_begin(w->device, p->queue, MICA_SESSION_RECORD, &session);
    if (status == MICA_OK)
        status = mica_mul(mica_session_encoder(session), p->buffer[0], p->buffer[1], p->buffer[2]);
    if (status == MICA_OK)
        status = mica_add(mica_session_encoder(session), p->buffer[2], p->buffer[1], p->buffer[3]);
    if (status == MICA_OK)
        status = mica_session_record(session, 0, NULL, &p->recording);
    mica_session_release(session);
    return status;
}

static void release_parts(parts *p)
{
    mica_recording_release(p->recording);
    for (uint32_t i = 0; i < 4; i++)
        mica_buffer_release(p->buffer[i]);
    mica_queue_release(p->queue);
}

/* Spoils what the next replay must write again. */
static mica_status encode_once(worker *w, parts *p)
{
    mica_encoder *encoder = NULL;
    mica_status status = mica_encoder_begin(w->device, p->queue, &encoder);
    if (status == MICA_OK)
        status = mica_copy(encoder, p->buffer[0], p->buffer[3]);
    if (status == MICA_OK)
        status = mica_encoder_commit(encoder, NULL);
    mica_encoder_release(encoder);
    return status;
}

static void *work(void *context)
{
    worker *w = context;
    parts p;
    float value[COUNT];
    memset(&p, 0, sizeof p);
    mica_status status = make_parts(w, &p);
    for (uint32_t i = 0; i < replays / THREADS && status == MICA_OK && w->wrong == NULL; i++) {
        if (i % ONE_SHOT == 0)
            status = encode_once(w, &p);
        if (status == MICA_OK)
            status = mica_recording_replay_and_wait(p.recording);
        if (status == MICA_OK)
            status = mica_buffer_read(p.buffer[3], 0, value, sizeof value);
        if (status == MICA_OK && memcmp(value, p.expected, sizeof value) != 0)
            w->wrong = "other bits than before";
    }
    if (status != MICA_OK) {
        snprintf(w->sentence, sizeof w->sentence, "%s", mica_status_message());
        w->wrong = w->sentence;
    }
    release_parts(&p);
    return NULL;
}

/* `state`: the device's id. */
static void threads_replay_side_by_side(void **state)
{
    const char *id = *state;
    worker workers[THREADS];
    mica_device *device = open_device(id, 0);
    memset(workers, 0, sizeof workers);
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i].device = device;
        workers[i].number = i;
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
    mica_device_release(device);
    for (uint32_t i = 0; i < THREADS; i++)
        if (workers[i].wrong != NULL)
            fail_msg("thread %u: %s", i, workers[i].wrong);
}

/* 0, or what main should return. */
static int stress(const char *id)
{
    struct CMUnitTest test = test(threads_replay_side_by_side);
    const int missing = test_need(id);
    if (missing != 0)
        return missing;
    test.initial_state = (void *)(uintptr_t)id;
    return _cmocka_run_group_tests(id, &test, 1, NULL, NULL);
}

int main(int argc, char **argv)
{
    if (argc > 2)
        replays = (uint32_t)strtoul(argv[2], NULL, 10);
    if (argc > 1)
        return stress(argv[1]);
    const int failed = stress("cpu");
    /* PoCL's threads wait for each other in ways that the thread sanitizer does not see. */
    return failed != 0 || TEST_THREAD_SANITIZER ? failed : stress("opencl");
}
