/* Forks while another thread encodes, submits and replays: the child finds every lock free and can use what it
 * inherited. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device_test.h"
#include "support/sanitizer.h"

enum { FORKS = 200, COUNT = 1000, SECONDS = 30 };

/* What parent and child both use; the thread of the parent has buffers of its own. */
typedef struct shared {
    mica_device *device;
    mica_pool *pool;
    mica_recording *recording; /* adds `a` and `b` into `c` */
    mica_buffer *a, *b, *c;
    atomic_int stop, rounds, failed;
} shared;

/* Allocates, encodes, submits and reads back; 0 if all of it is right. */
static int use_device(const shared *s, mica_queue *queue, float value)
{
    float values[COUNT], back[COUNT];
    uint64_t count = COUNT;
    mica_buffer_desc desc = {.dtype = MICA_DTYPE_F32, .ndim = 1, .shape = {COUNT}};
    mica_buffer *x = NULL, *y = NULL;
    mica_encoder *encoder = NULL;
    mica_fence *fence = NULL;
    int wrong = 0;
    for (int i = 0; i < COUNT; i++)
        values[i] = value + (float)i;
    mica_status status = mica_buffer_alloc(s->device, MICA_DTYPE_F32, 1, &count, &x);
    if (status == MICA_OK)
        status = mica_pool_alloc(s->pool, &desc, &y);
    if (status == MICA_OK)
        status = mica_buffer_write(x, 0, values, sizeof values);
    if (status == MICA_OK)
        status = mica_encoder_begin(s->device, queue, &encoder);
    if (status == MICA_OK)
        status = mica_add(encoder, x, x, y);
    if (status == MICA_OK)
        status = mica_encoder_commit(encoder, &fence);
    if (status == MICA_OK)
        status = mica_fence_wait(fence, MICA_WAIT_FOREVER);
    if (status == MICA_OK)
        status = mica_buffer_read(y, 0, back, sizeof back);
    for (int i = 0; status == MICA_OK && i < COUNT; i++)
        wrong += back[i] != 2 * values[i];
    mica_fence_release(fence);
    mica_encoder_release(encoder);
    mica_buffer_release(x);
    mica_buffer_release(y);
    return status == MICA_OK && wrong == 0 ? 0 : 1;
}

static void *keep_busy(void *context)
{
    shared *s = context;
    mica_fence *fence = NULL;
    while (atomic_load(&s->stop) == 0) {
        int failed = use_device(s, NULL, 3) != 0 || mica_pool_reset(s->pool) != MICA_OK;
        for (int i = 0; i < 3 && failed == 0; i++) {
            mica_fence_release(fence);
            failed = mica_recording_replay(s->recording, &fence) != MICA_OK;
        }
        if (failed != 0 || mica_recording_replay_and_wait(s->recording) != MICA_OK)
            atomic_store(&s->failed, 1);
        atomic_fetch_add(&s->rounds, 1);
    }
    mica_fence_release(fence);
    return NULL;
}

static int in_child(const shared *s)
{
    float back[COUNT] = {0};
    mica_queue *queue = NULL;
    mica_device *fresh = NULL;
    const mica_status lost =
        mica_device_synchronize(s->device); /* what was on its way is not in this process */
    if (lost != MICA_OK && lost != MICA_ERR_DEVICE_LOST)
        return 6;
    if (mica_buffer_write(s->c, 0, back, sizeof back) != MICA_OK ||
        mica_recording_replay_and_wait(s->recording) != MICA_OK)
        return 1;
    if (mica_buffer_read(s->c, 0, back, sizeof back) != MICA_OK || back[COUNT - 1] != 7)
        return 2;
    if (mica_queue_create(s->device, &queue) != MICA_OK || use_device(s, queue, 5) != 0)
        return 3;
    mica_queue_release(queue);
    if (use_device(s, NULL, 6) != 0)
        return 4;
    if (mica_device_open("cpu", NULL, &fresh) != MICA_OK)
        return 5;
    mica_device_release(fresh);
    return 0;
}

static void record_sum(shared *s)
{
    mica_session *session = NULL;
    must(mica_session_begin(s->device, NULL, MICA_SESSION_RECORD, &session));
    must(mica_add(mica_session_encoder(session), s->a, s->b, s->c));
    must(mica_session_record(session, 0, NULL, &s->recording));
    mica_session_release(session);
}

static void a_child_uses_what_another_thread_held(void **state)
{
    (void)state;
    if (TEST_THREAD_SANITIZER)
        skip(); /* it allows no threads in the child of a threaded process */
    shared s = {.device = open_device("cpu", 2)};
    float three[COUNT], four[COUNT];
    pthread_t thread;
    for (int i = 0; i < COUNT; i++) {
        three[i] = 3;
        four[i] = 4;
    }
    must(mica_pool_create(s.device, &s.pool));
    s.a = new_vector(s.device, MICA_DTYPE_F32, COUNT);
    s.b = new_vector(s.device, MICA_DTYPE_F32, COUNT);
    s.c = new_vector(s.device, MICA_DTYPE_F32, COUNT);
    must(mica_buffer_write(s.a, 0, three, sizeof three));
    must(mica_buffer_write(s.b, 0, four, sizeof four));
    record_sum(&s);
    assert_int_equal(pthread_create(&thread, NULL, keep_busy, &s), 0);
    for (int i = 0; i < FORKS; i++) {
        int result = -1;
        const int rounds = atomic_load(&s.rounds);
        const pid_t child = fork();
        if (child == 0) {
            alarm(SECONDS);
            _exit(in_child(&s));
        }
        assert_true(child > 0);
        assert_int_equal(waitpid(child, &result, 0), child);
        if (!WIFEXITED(result) || WEXITSTATUS(result) != 0)
            fail_msg("fork %d: the child ended with %#x", i, (unsigned)result);
        while (i % 10 == 0 && atomic_load(&s.rounds) == rounds) /* the parent's thread goes on */
            usleep(100);
    }
    atomic_store(&s.stop, 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(atomic_load(&s.failed), 0);
    mica_recording_release(s.recording);
    mica_buffer_release(s.a);
    mica_buffer_release(s.b);
    mica_buffer_release(s.c);
    mica_pool_release(s.pool);
    mica_device_release(s.device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(a_child_uses_what_another_thread_held),
    };
    return cmocka_run_group_tests_name("fork", tests, NULL, NULL);
}
