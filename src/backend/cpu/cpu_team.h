/*
 * cpu_team.h - the threads that walk a planned list together.
 *
 * A team has a fixed number of slots. Slot 0 belongs to whichever caller waits, the others to threads of the
 * team's own. A list is cut into steps; within a step each dispatch is cut into chunks; members claim chunks,
 * their own share first, and the one whose chunk completes a step opens the next. Knows kernels and lists, no
 * device, no queue, no memory: those come back through the hooks.
 */
#ifndef MICA_CPU_TEAM_H
#define MICA_CPU_TEAM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "backend/backend.h"
#include "backend/cpu/cpu_kernel.h"
#include "base/thread.h"

#define MICA__CPU_LINE 64
#define MICA__CPU_MAX_THREADS 1024u
#define MICA__CPU_MAX_CHUNKS 65536u /* of one dispatch; with the line above: share arithmetic fits 32 bits */
#define MICA__CPU_RUNS 64u          /* submissions that may be pending; a power of two */

/* One of the two forms is set: a built-in kernel or a user's. */
struct mica__kernel {
    const char *name;
    mica__cpu_run run;
    mica__cpu_prepare prepare;
    mica_host_kernel host;
};

typedef struct mica__cpu_dispatch {
    const mica__kernel *kernel;
    uint64_t block; /* in the list's blob: mica__cpu_view[binding_count], or mica_host_binding[] for a user's
                         * kernel; then the parameters */
    uint64_t label; /* in the blob; text */
    uint64_t chunk_end; /* chunks of the list up to and with this dispatch */
    uint32_t binding_count, bindings_bytes;
    uint32_t units, grain, chunks;
    uint32_t local_bytes;
    uint32_t op;
    float bytes, operations; /* for profiles */
} mica__cpu_dispatch;

/* What one submission walks; immutable while any run refers to it, except for the data pointers of bindings. */
typedef struct mica__cpu_list {
    const mica__cpu_dispatch *dispatch;
    const unsigned char *blob;
    const uint32_t *step_end; /* step i is dispatches [step_end[i-1], step_end[i]) */
    uint32_t dispatch_count, step_count;
} mica__cpu_list;

/* Per-thread memory of kernels: one block of `stride` bytes a slot. */
typedef struct mica__cpu_local {
    struct mica__cpu_local *older; /* kept until the device closes: a run may still use it */
    size_t stride;
    _Alignas(MICA__CPU_LINE) unsigned char data[];
} mica__cpu_local;

/* One submission from submit to the end of its last user. Lives in the team's ring and is used again. */
typedef struct mica__cpu_submission {
    mica__cpu_list list;
    const mica__cpu_local *local; /* NULL: no kernel of the list wants any */
    mica__commands *commands;     /* what keeps the list alive; guarded by the team's lock */
    mica__queue *queue;
    uint64_t value; /* of the queue */
    uint64_t begin_ns, end_ns, stamp_ns;
    uint32_t number;     /* of the submission in the team, wraps */
    uint32_t base;       /* tag of step 0 */
    uint32_t step_count; /* dispatches when serial */
    bool serial, timed, lost;
    _Atomic uint32_t cancelled, skipped, fault;
    _Alignas(MICA__CPU_LINE) _Atomic uint32_t members; /* threads inside, plus one until it is finished */
    _Alignas(MICA__CPU_LINE) _Atomic uint64_t done;    /* chunks run so far */
} mica__cpu_submission;

typedef struct mica__cpu_hooks {
    /* A dispatch of a timed submission has ended. */
    void (*timed)(void *context, const mica__cpu_submission *, uint32_t dispatch, uint64_t begin_ns,
                  uint64_t end_ns);
    /* All is done. Called once, in the order of submission, with the team's lock held. */
    void (*finished)(void *context, const mica__cpu_submission *);
    /* No thread looks at the list any more. May be called with the team's lock held. */
    void (*released)(void *context, mica__commands *commands);
} mica__cpu_hooks;

typedef struct mica__cpu_slot {
    /* tag of the step (high 32 bits), chunks of this slot's share that are claimed in it */
    _Alignas(MICA__CPU_LINE) _Atomic uint64_t cursor;
    _Alignas(MICA__CPU_LINE) _Atomic uint32_t present; /* 1: its member is inside a submission */
} mica__cpu_slot;

typedef struct mica__cpu_helper {
    struct mica__cpu_team *team;
    uint32_t slot;
    mica__thread thread;
} mica__cpu_helper;

typedef struct mica__cpu_team {
    _Alignas(
        MICA__CPU_LINE) _Atomic uint64_t now; /* number of the submission (high 32 bits), tag of its step */
    _Alignas(MICA__CPU_LINE) mica__cpu_slot *slot;
    mica__cpu_helper *helper;
    mica__cpu_hooks hooks;
    void *context;
    uint32_t slots, helpers; /* helpers: threads that run */
    bool started;
    _Atomic uint32_t stopping;
    _Alignas(MICA__CPU_LINE) pthread_mutex_t lock; /* guards what follows and `started` */
    mica__fork_guard guard;
    uint64_t head, tail; /* submissions finished / accepted so far */
    uint32_t next_tag, renewed_tag;
    _Atomic uint64_t finished; /* = head, for those who wait */
    _Atomic uint32_t caller;   /* 1: slot 0 is taken */
    mica__event work, done;
    mica__cpu_submission submission[MICA__CPU_RUNS];
} mica__cpu_team;

/* What to submit. `counter` grows by one and gives the submission its value. */
typedef struct mica__cpu_job {
    mica__cpu_list list;
    const mica__cpu_local *local;
    mica__commands *commands;
    mica__queue *queue;
    uint64_t *counter;
    bool serial; /* each dispatch alone */
    bool timed;  /* serial, and the hook gets its times */
} mica__cpu_job;

/* `threads` 1 to MICA__CPU_MAX_THREADS. No thread starts before the first submission. */
mica_status mica__cpu_team_init(mica__cpu_team *team, uint32_t threads, const mica__cpu_hooks *hooks,
                                void *context);
/* Waits for all submissions, ends the threads, frees. */
void mica__cpu_team_destroy(mica__cpu_team *team);
/* In a child after fork: the threads are gone and what was in flight is lost (`lost` in the finished hook). */
mica_status mica__cpu_team_revive(mica__cpu_team *team);

/* Accepts the job; returns its value. Without threads to give it to, it has run when this returns. */
uint64_t mica__cpu_team_submit(mica__cpu_team *team, const mica__cpu_job *job);
/* Until *counter >= target (true) or the time is over (false); the caller works along. 0 only looks. */
bool mica__cpu_team_wait(mica__cpu_team *team, _Atomic uint64_t *counter, uint64_t target,
                         uint64_t timeout_ns);
/* Until everything accepted so far is finished. */
void mica__cpu_team_drain(mica__cpu_team *team);
/* The submission skips what is left of it. Nothing happens if it is finished. */
void mica__cpu_team_cancel(mica__cpu_team *team, const mica__queue *queue, uint64_t value);

/* Inside a submission: cpu_walk.c. `now` is what was read from the team; returns when that submission is over, or
 * when deadline_ns has passed. */
void mica__cpu_walk(mica__cpu_team *team, uint32_t slot, uint64_t now, uint64_t deadline_ns);
/* The last step is done: records it, starts the next submission. */
void mica__cpu_team_finish(mica__cpu_team *team, mica__cpu_submission *submission);
/* Gives a reference on the submission back. */
void mica__cpu_team_leave(mica__cpu_team *team, mica__cpu_submission *submission);

static inline uint64_t mica__cpu_pack(uint32_t high, uint32_t low)
{
    return (uint64_t)high << 32 | low;
}

static inline uint32_t mica__cpu_high(uint64_t word)
{
    return (uint32_t)(word >> 32);
}

/* A bounded spin: short pauses first, then the processor is offered to others. */
typedef struct mica__cpu_spin {
    uint32_t rounds;
    uint64_t since_ns, now_ns; /* 0 until the first look at the clock */
} mica__cpu_spin;

/* One pause; returns the nanoseconds spent so far, in coarse steps. */
uint64_t mica__cpu_spin_once(mica__cpu_spin *spin);

#endif
