/* test_base_thread.c: threads with signals blocked, parking without lost wake-ups, and the fork
 * generation. */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/thread.h"

static void read_mask(void *context)
{
    pthread_sigmask(SIG_BLOCK, NULL, context);
}

static void signals_are_blocked_in_threads(void **state)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGUSR1, SIGCHLD, SIGALRM};
    sigset_t theirs, ours;
    mica__thread thread;
    (void)state;
    sigemptyset(&theirs);
    assert_int_equal(mica__thread_start(&thread, "a name longer than fifteen bytes", read_mask, &theirs),
                     MICA_OK);
    mica__thread_join(&thread);
    pthread_sigmask(SIG_BLOCK, NULL, &ours);
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        assert_int_equal(sigismember(&theirs, signals[i]), 1);
        assert_int_equal(sigismember(&ours, signals[i]), 0); /* the caller's mask is as it was */
    }
    assert_string_equal(thread.name, "a name longer t");
}

static void there_is_a_processor(void **state)
{
    (void)state;
    assert_in_range(mica__thread_cpu_count(), 1, 65536);
}

static void wait_times_out(void **state)
{
    mica__event event;
    (void)state;
    assert_int_equal(mica__event_init(&event), MICA_OK);
    const uint32_t ticket = mica__event_ticket(&event);
    const uint64_t start = mica__clock_ns();
    assert_false(mica__event_wait(&event, ticket, 20000000));
    assert_true(mica__clock_ns() - start >= 20000000);
    assert_false(mica__event_wait(&event, ticket, 0));
    mica__event_signal(&event);
    assert_true(mica__event_wait(&event, ticket, MICA__EVENT_FOREVER)); /* the signal came after the ticket */
    assert_true(mica__event_wait(&event, ticket, 0));
    mica__event_destroy(&event);
}

/* Two threads that hand a number to and fro; each parks until the other has moved it. */
typedef struct game {
    mica__event moved;
    _Atomic int number;
    int rounds;
} game;

static void wait_for(game *g, int number)
{
    for (;;) {
        const uint32_t ticket = mica__event_ticket(&g->moved);
        if (atomic_load(&g->number) == number)
            return;
        mica__event_wait(&g->moved, ticket, MICA__EVENT_FOREVER);
    }
}

static void play_odd(void *context)
{
    game *g = context;
    for (int i = 0; i < g->rounds; i++) {
        wait_for(g, 2 * i + 1);
        atomic_store(&g->number, 2 * i + 2);
        mica__event_signal(&g->moved);
    }
}

static void no_wake_up_is_lost(void **state)
{
    game g;
    mica__thread thread;
    (void)state;
    g.number = 0;
    g.rounds = 5000;
    assert_int_equal(mica__event_init(&g.moved), MICA_OK);
    assert_int_equal(mica__thread_start(&thread, "odd", play_odd, &g), MICA_OK);
    for (int i = 0; i < g.rounds; i++) {
        wait_for(&g, 2 * i);
        atomic_store(&g.number, 2 * i + 1);
        mica__event_signal(&g.moved);
        mica__cpu_relax();
    }
    mica__thread_join(&thread);
    assert_int_equal(g.number, 2 * g.rounds);
    mica__event_destroy(&g.moved);
}

static void count_in(void *context)
{
    game *g = context;
    for (;;) {
        const uint32_t ticket = mica__event_ticket(&g->moved);
        if (atomic_load(&g->number) == 1)
            break;
        mica__event_wait(&g->moved, ticket, MICA__EVENT_FOREVER);
    }
}

static void signal_wakes_everyone(void **state)
{
    game g;
    mica__thread threads[4];
    (void)state;
    g.number = 0;
    g.rounds = 0;
    assert_int_equal(mica__event_init(&g.moved), MICA_OK);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(mica__thread_start(&threads[i], "sleeper", count_in, &g), MICA_OK);
    while (atomic_load(&g.moved.waiters) != 4)
        mica__cpu_relax();
    atomic_store(&g.number, 1);
    mica__event_signal(&g.moved);
    for (size_t i = 0; i < 4; i++)
        mica__thread_join(&threads[i]);
    mica__event_destroy(&g.moved);
}

static void child_sees_another_generation(void **state)
{
    const uint32_t ours = mica__fork_generation();
    int status = 0;
    (void)state;
    assert_int_equal(mica__fork_generation(), ours);
    const pid_t child = fork();
    if (child == 0) {
        const uint32_t theirs = mica__fork_generation();
        const pid_t grandchild = fork();
        if (grandchild == 0)
            _exit(mica__fork_generation() != theirs && mica__fork_generation() != ours ? 0 : 1);
        waitpid(grandchild, &status, 0);
        _exit(theirs != ours && status == 0 ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(mica__fork_generation(), ours);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signals_are_blocked_in_threads),
        cmocka_unit_test(there_is_a_processor),
        cmocka_unit_test(wait_times_out),
        cmocka_unit_test(no_wake_up_is_lost),
        cmocka_unit_test(signal_wakes_everyone),
        cmocka_unit_test(child_sees_another_generation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
