/* thread.h: threads, parking, and what a fork leaves behind. Knows no work. */
#ifndef MICA_BASE_THREAD_H
#define MICA_BASE_THREAD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* A thread of ours, with all signals blocked so that the host's handlers never run on it. The struct must
 * stay where it is from start to join. */
typedef struct mica__thread {
    pthread_t handle;
    void (*run)(void *context);
    void *context;
    char name[16];
} mica__thread;

/* Starts run(context); the name (cut to 15 bytes) is what debuggers show. Fails with MICA_ERR_OUT_OF_MEMORY
 * when the system has no thread to give; then nothing is to be joined. */
mica_status mica__thread_start(mica__thread *thread, const char *name, void (*run)(void *), void *context);

/* Waits for the end of a started thread. */
void mica__thread_join(mica__thread *thread);

/* Processors this process may run on, at least 1. */
uint32_t mica__thread_cpu_count(void);

/* Tells the core that this is a spin loop. */
static inline void mica__cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield" ::: "memory");
#endif
}

/* Where threads park. A waiter takes a ticket, looks whether there is work, and waits on the ticket: a signal
 * that came after the ticket is never missed. A signal costs one atomic add while nobody waits. */
typedef struct mica__event {
    _Atomic uint32_t sequence;
    _Atomic uint32_t waiters;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
} mica__event;

#define MICA__EVENT_FOREVER UINT64_MAX

/* Makes it ready; also for a child after fork, whose copy may be locked by a thread that is not there. Fails
 * with MICA_ERR_OUT_OF_MEMORY. */
mica_status mica__event_init(mica__event *event);

/* Only when nobody waits. */
void mica__event_destroy(mica__event *event);

/* The ticket to take before looking for work. */
uint32_t mica__event_ticket(mica__event *event);

/* Parks until a signal later than the ticket (true) or until timeout_ns have passed (false). */
bool mica__event_wait(mica__event *event, uint32_t ticket, uint64_t timeout_ns);

/* Wakes everyone who waits. What was written before is visible to them. */
void mica__event_signal(mica__event *event);

/* A number that differs in each child after a fork: whoever owns threads or device handles keeps the
 * number of their birth and compares. Cheap. Forks before the first call in a process do not count. */
uint32_t mica__fork_generation(void);

/* What makes a mutex usable in the child of a fork that came while another thread held it. */
typedef struct mica__fork_guard {
    struct mica__fork_guard *next, **link;
    pthread_mutex_t *mutex;
    bool brief, held;
} mica__fork_guard;

/* Makes the mutex ready and guards it until mica__lock_destroy. `brief`: it is held for moments only, so a fork waits
 * until it is free and the child finds whole what it guards. Otherwise the child gets it free at once, with what it
 * guards as it was. Fails with MICA_ERR_OUT_OF_MEMORY. */
mica_status mica__lock_init(pthread_mutex_t *mutex, mica__fork_guard *guard, bool brief);
void mica__lock_destroy(pthread_mutex_t *mutex, mica__fork_guard *guard);

#endif
