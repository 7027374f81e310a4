/* thread.c: threads on pthreads. The names and the affinity mask are the system's own calls. */
#if defined(__linux__)
#define _GNU_SOURCE /* sched_getaffinity, pthread_setname_np */
#elif defined(__APPLE__)
#define _DARWIN_C_SOURCE /* pthread_setname_np, pthread_cond_timedwait_relative_np */
#else
#define _POSIX_C_SOURCE 200809L
#endif
#include "base/thread.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

static void *thread_main(void *argument)
{
    mica__thread *thread = argument;
#if defined(__linux__)
    pthread_setname_np(pthread_self(), thread->name);
#elif defined(__APPLE__)
    pthread_setname_np(thread->name);
#endif
    thread->run(thread->context);
    return NULL;
}

mica_status mica__thread_start(mica__thread *thread, const char *name, void (*run)(void *), void *context)
{
    sigset_t all, before;
    thread->run = run;
    thread->context = context;
    snprintf(thread->name, sizeof thread->name, "%s", name);
    /* A thread inherits the mask of its maker, so it never runs with signals open, not even at its start. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failure = pthread_create(&thread->handle, NULL, thread_main, thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failure != 0)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "the system refused the thread \"%s\" (error %d)",
                          thread->name, failure);
    return MICA_OK;
}

void mica__thread_join(mica__thread *thread)
{
    pthread_join(thread->handle, NULL);
}

uint32_t mica__thread_cpu_count(void)
{
#if defined(__linux__)
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return (uint32_t)CPU_COUNT(&set);
#endif
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (uint32_t)online : 1;
}

/* A condition variable whose deadlines are on the clock of mica__clock_ns. Returns 0 or an errno. */
static int init_cond(pthread_cond_t *cond)
{
#if defined(__APPLE__)
    return pthread_cond_init(cond, NULL); /* waits take a duration there */
#else
    pthread_condattr_t attributes;
    int failure = pthread_condattr_init(&attributes);
    if (failure != 0)
        return failure;
    failure = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    if (failure == 0)
        failure = pthread_cond_init(cond, &attributes);
    pthread_condattr_destroy(&attributes);
    return failure;
#endif
}

static void wait_cond(mica__event *event, uint64_t deadline_ns)
{
    struct timespec when;
    if (deadline_ns == MICA__EVENT_FOREVER) {
        pthread_cond_wait(&event->cond, &event->mutex);
        return;
    }
#if defined(__APPLE__)
    const uint64_t now = mica__clock_ns(), left = deadline_ns > now ? deadline_ns - now : 0;
    when.tv_sec = (time_t)(left / 1000000000u);
    when.tv_nsec = (long)(left % 1000000000u);
    pthread_cond_timedwait_relative_np(&event->cond, &event->mutex, &when);
#else
    when.tv_sec = (time_t)(deadline_ns / 1000000000u);
    when.tv_nsec = (long)(deadline_ns % 1000000000u);
    pthread_cond_timedwait(&event->cond, &event->mutex, &when);
#endif
}

mica_status mica__event_init(mica__event *event)
{
    memset(event, 0, sizeof *event);
    if (pthread_mutex_init(&event->mutex, NULL) != 0)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "the system refused a mutex");
    if (init_cond(&event->cond) != 0) {
        pthread_mutex_destroy(&event->mutex);
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "the system refused a condition variable");
    }
    return MICA_OK;
}

void mica__event_destroy(mica__event *event)
{
    pthread_cond_destroy(&event->cond);
    pthread_mutex_destroy(&event->mutex);
}

uint32_t mica__event_ticket(mica__event *event)
{
    return atomic_load(&event->sequence);
}

bool mica__event_wait(mica__event *event, uint32_t ticket, uint64_t timeout_ns)
{
    const uint64_t now = mica__clock_ns();
    const uint64_t deadline = timeout_ns < MICA__EVENT_FOREVER - now ? now + timeout_ns : MICA__EVENT_FOREVER;
    bool signalled;
    /* The waiter announces itself, then looks at the sequence; the signaller moves the sequence, then
     * looks for waiters. Sequential consistency lets at least one of them see the other. */
    atomic_fetch_add(&event->waiters, 1);
    pthread_mutex_lock(&event->mutex);
    while (!(signalled = atomic_load(&event->sequence) != ticket) && mica__clock_ns() < deadline)
        wait_cond(event, deadline);
    pthread_mutex_unlock(&event->mutex);
    atomic_fetch_sub(&event->waiters, 1);
    return signalled;
}

void mica__event_signal(mica__event *event)
{
    atomic_fetch_add(&event->sequence, 1);
    if (atomic_load(&event->waiters) == 0)
        return;
    /* With the mutex held once after the sequence moved, a waiter either saw it or is inside the wait. */
    pthread_mutex_lock(&event->mutex);
    pthread_cond_broadcast(&event->cond);
    pthread_mutex_unlock(&event->mutex);
}

/* ---- forks ---- */

#define FORK_PATIENCE_NS 1000000000u /* a callback of ours may fork with a lock held: then no wait helps */

static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
static _Atomic uint32_t fork_generation;
static bool fork_watched;
static pthread_mutex_t guards_lock = PTHREAD_MUTEX_INITIALIZER; /* held over a fork */
static mica__fork_guard *guards;

/* Lets go of what is held, up to `end` (NULL: of all). */
static void release_guards(const mica__fork_guard *end)
{
    for (mica__fork_guard *guard = guards; guard != end; guard = guard->next) {
        if (guard->held)
            pthread_mutex_unlock(guard->mutex);
        guard->held = false;
    }
}

/* Takes every mutex that is free. False, with none taken, if a brief one is not and there is time left. */
static bool hold_guards(bool late)
{
    for (mica__fork_guard *guard = guards; guard != NULL; guard = guard->next) {
        guard->held = pthread_mutex_trylock(guard->mutex) == 0;
        if (!guard->held && guard->brief && !late) {
            release_guards(guard);
            return false;
        }
    }
    return true;
}

/* Never waits for one mutex with another held, so no order among them is needed. */
static void before_fork(void)
{
    const uint64_t deadline = mica__clock_ns() + FORK_PATIENCE_NS;
    pthread_mutex_lock(&guards_lock);
    while (!hold_guards(mica__clock_ns() >= deadline)) {
        pthread_mutex_unlock(&guards_lock);
        sched_yield();
        pthread_mutex_lock(&guards_lock);
    }
}

static void after_fork_in_parent(void)
{
    release_guards(NULL);
    pthread_mutex_unlock(&guards_lock);
}

static void after_fork_in_child(void)
{
    atomic_fetch_add_explicit(&fork_generation, 1, memory_order_relaxed);
    for (const mica__fork_guard *guard = guards; guard != NULL; guard = guard->next)
        if (!guard->held) /* by a thread that is not here */
            pthread_mutex_init(guard->mutex, NULL);
    release_guards(NULL);
    pthread_mutex_unlock(&guards_lock);
}

static void watch_forks(void)
{
    fork_watched = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) == 0;
}

uint32_t mica__fork_generation(void)
{
    pthread_once(&fork_once, watch_forks);
    if (!fork_watched) /* no memory for the handlers: the process number differs in a child too */
        return (uint32_t)getpid();
    return atomic_load_explicit(&fork_generation, memory_order_relaxed);
}

mica_status mica__lock_init(pthread_mutex_t *mutex, mica__fork_guard *guard, bool brief)
{
    pthread_once(&fork_once, watch_forks);
    if (pthread_mutex_init(mutex, NULL) != 0)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "the system refused a mutex");
    pthread_mutex_lock(&guards_lock);
    *guard = (mica__fork_guard){guards, &guards, mutex, brief, false};
    if (guards != NULL)
        guards->link = &guard->next;
    guards = guard;
    pthread_mutex_unlock(&guards_lock);
    return MICA_OK;
}

void mica__lock_destroy(pthread_mutex_t *mutex, mica__fork_guard *guard)
{
    pthread_mutex_lock(&guards_lock);
    *guard->link = guard->next;
    if (guard->next != NULL)
        guard->next->link = guard->link;
    pthread_mutex_unlock(&guards_lock);
    pthread_mutex_destroy(mutex);
}
