/*
 * cpu_walk.c - one member inside one submission: claim chunks, run them, open the next step.
 *
 * Invariants. No lock and no allocation here.
 * 1. A step is open while team->now carries its tag; it stays open until `done` reaches its target, so whoever
 *    holds a claimed chunk keeps the step open.
 * 2. Of an open step's share a cursor with an older tag has claimed nothing; with the step's tag, `next` chunks;
 *    a newer tag means that the step is over. When a step is over, every share of it that is not empty was claimed
 *    to its end; so a thread that slept on an old tag can claim nothing, and cursors need no reset between steps.
 * 3. What a step wrote is visible in the next: members add to `done` (release), the one that completes it read
 *    all those adds (acquire), publishes `now` (release), and everyone enters a step by reading it (acquire).
 */
#if defined(__SSE2__)
#include <xmmintrin.h>
#else
#include <fenv.h>
#endif

#include "backend/cpu/cpu_team.h"
#include "base/clock.h"

/* A share of one chunk was most likely taken by its owner at once: looking at its cursor would only cost the owner
 * its cache line. After this long the owner may have lost its processor. */
#define PATIENCE_NS 5000u

typedef struct member {
    mica__cpu_team *team;
    mica__cpu_submission *submission;
    uint32_t slot;
    uint32_t local_owner; /* dispatch whose `prepare` is in local memory; UINT32_MAX: none */
    uint64_t deadline_ns;
    bool late; /* the deadline has passed */
} member;

typedef struct step {
    uint64_t now;
    uint64_t target; /* of `done` when it is over */
    uint64_t chunks;
    uint32_t index, tag;
    uint32_t first, end; /* dispatches */
} step;

/* ---- the floating-point state: the same in every kernel, the caller's own afterwards ---- */

#if defined(__SSE2__)
typedef uint32_t fp_state;
#define FP_DEFAULT 0x1f80u /* nearest even, no flush to zero, all exceptions masked */
static void fp_enter(fp_state *saved)
{
    *saved = _mm_getcsr();
    _mm_setcsr(FP_DEFAULT);
}
static void fp_leave(const fp_state *saved)
{
    /* A kernel may leave the upper halves of vector registers in use (gcc 12 forgets them around calls through static
     * functions); code outside, built for SSE, would then pay for them on every instruction. */
    if (__builtin_cpu_supports("avx"))
        __asm__ volatile("vzeroupper");
    _mm_setcsr(*saved);
}
#else
typedef fenv_t fp_state;
static void fp_enter(fp_state *saved)
{
    fegetenv(saved);
    fesetenv(FE_DFL_ENV);
}
static void fp_leave(const fp_state *saved)
{
    fesetenv(saved);
}
#endif

/* ---- claiming ---- */

/* Claims the next chunk below `limit` of a share, or all that are left; how many, and the first in `out_next`. */
static uint32_t claim(_Atomic uint64_t *cursor, uint32_t tag, uint32_t limit, bool all, uint32_t *out_next)
{
    uint64_t seen = atomic_load_explicit(cursor, memory_order_relaxed);
    for (;;) {
        const int32_t age = (int32_t)(mica__cpu_high(seen) - tag);
        const uint32_t next = age < 0 ? 0 : (uint32_t)seen;
        if (age > 0 || next >= limit)
            return 0;
        const uint32_t after = all ? limit : next + 1;
        if (atomic_compare_exchange_weak_explicit(cursor, &seen, mica__cpu_pack(tag, after),
                                                  memory_order_relaxed, memory_order_relaxed)) {
            *out_next = next;
            return after - next;
        }
    }
}

/* First chunk of share `rank` of `slots`; shares differ by at most one chunk, the greater ones first. */
static uint32_t share_begin(uint32_t chunks, uint32_t rank, uint32_t slots)
{
    return (chunks * rank + slots - 1) / slots;
}

static void run_chunk(member *m, uint32_t index, uint32_t chunk)
{
    mica__cpu_submission *submission = m->submission;
    const mica__cpu_dispatch *dispatch = &submission->list.dispatch[index];
    const mica__kernel *kernel = dispatch->kernel;
    const uint32_t first = chunk * dispatch->grain;
    const uint32_t left = dispatch->units - first;
    const uint32_t last = first + (left < dispatch->grain ? left : dispatch->grain);
    const void *bindings = submission->list.blob + dispatch->block;
    const void *params = submission->list.blob + dispatch->block + dispatch->bindings_bytes;
    if (kernel->host != NULL) {
        kernel->host(bindings, dispatch->binding_count, params, first, last);
        return;
    }
    const mica__cpu_local *local = submission->local;
    mica__cpu_args args = {bindings,
                           dispatch->binding_count,
                           params,
                           local == NULL ? NULL : (void *)(local->data + m->slot * local->stride),
                           &submission->fault,
                           dispatch->op + 1};
    if (m->local_owner != index && (kernel->prepare != NULL || dispatch->local_bytes != 0)) {
        m->local_owner = index;
        if (kernel->prepare != NULL)
            kernel->prepare(&args);
    }
    kernel->run(&args, first, last);
}

static bool is_late(member *m)
{
    if (m->deadline_ns != MICA__EVENT_FOREVER && mica__clock_ns() >= m->deadline_ns)
        m->late = true;
    return m->late;
}

/* Runs what is left of one slot's share of the step; how many chunks that were. Dispatch i of a step gives its first
 * share to slot i, so that several small dispatches spread over the team. */
static uint32_t work_share(member *m, const step *s, uint32_t owner)
{
    mica__cpu_submission *submission = m->submission;
    const uint32_t slots = m->team->slots;
    _Atomic uint64_t *cursor = &m->team->slot[owner].cursor;
    uint32_t worked = 0, base = 0;
    for (uint32_t d = s->first; d < s->end; d++) {
        const uint32_t rank = (owner + slots - (d - s->first) % slots) % slots;
        const uint32_t chunks = submission->list.dispatch[d].chunks;
        const uint32_t begin = share_begin(chunks, rank, slots);
        const uint32_t limit = base + share_begin(chunks, rank + 1, slots) - begin;
        while (limit != base) {
            const bool skip = atomic_load_explicit(&submission->cancelled, memory_order_relaxed) != 0;
            uint32_t next;
            const uint32_t count = claim(cursor, s->tag, limit, skip, &next);
            if (count == 0)
                break;
            worked += count;
            if (skip)
                atomic_store_explicit(&submission->skipped, 1, memory_order_relaxed);
            else
                run_chunk(m, d, begin + next - base);
            if (is_late(m))
                return worked;
        }
        base = limit;
    }
    return worked;
}

/* ---- steps ---- */

static void read_step(const mica__cpu_submission *submission, uint64_t now, step *out)
{
    const mica__cpu_list *list = &submission->list;
    out->now = now;
    out->tag = (uint32_t)now;
    out->index = out->tag - submission->base;
    if (submission->serial) {
        out->first = out->index;
        out->end = out->first + 1;
    } else {
        out->first = out->index == 0 ? 0 : list->step_end[out->index - 1];
        out->end = list->step_end[out->index];
    }
    out->target = list->dispatch[out->end - 1].chunk_end;
    out->chunks = out->target - (out->first == 0 ? 0 : list->dispatch[out->first - 1].chunk_end);
}

static void close_step(member *m, const step *s)
{
    mica__cpu_submission *submission = m->submission;
    mica__cpu_team *team = m->team;
    if (submission->timed) {
        const uint64_t stamp = mica__clock_ns();
        team->hooks.timed(team->context, submission, s->first, submission->stamp_ns, stamp);
        submission->stamp_ns = stamp;
    }
    if (s->index + 1 < submission->step_count)
        atomic_store_explicit(&team->now, mica__cpu_pack(submission->number, s->tag + 1),
                              memory_order_release);
    else
        mica__cpu_team_finish(team, submission);
}

/* Adds the chunks to what is done; true if that closed the step. */
static bool add_done(member *m, const step *s, uint32_t worked)
{
    _Atomic uint64_t *done = &m->submission->done;
    if (worked == 0)
        return false;
    if (worked == s->chunks) /* nobody else has any to add */
        atomic_store_explicit(done, s->target, memory_order_relaxed);
    else if (atomic_fetch_add_explicit(done, worked, memory_order_acq_rel) + worked != s->target)
        return false;
    close_step(m, s);
    return true;
}

/* Works on the shares of the others: of all, or only of those whose owner is not here. True if that closed the step. */
static bool steal(member *m, const step *s, bool all)
{
    const uint32_t slots = m->team->slots;
    uint32_t worked = 0;
    for (uint32_t i = 1; i < slots && !m->late; i++) {
        const uint32_t victim = (m->slot + i) % slots;
        if (worked == 0 && atomic_load_explicit(&m->team->now, memory_order_relaxed) != s->now)
            return false;
        if (all || atomic_load_explicit(&m->team->slot[victim].present, memory_order_relaxed) == 0)
            worked += work_share(m, s, victim);
    }
    return add_done(m, s, worked);
}

/* The own share is done: helps the others, then waits for the next step. */
static void await_step(member *m, const step *s)
{
    const bool eager = s->chunks > m->team->slots;
    bool looked = eager;
    mica__cpu_spin spin = {0, 0, 0};
    if (steal(m, s, eager))
        return;
    while (!m->late && atomic_load_explicit(&m->team->now, memory_order_acquire) == s->now) {
        const uint64_t waited_ns = mica__cpu_spin_once(&spin);
        if (waited_ns == 0)
            continue;
        if (!looked && waited_ns >= PATIENCE_NS) {
            looked = true;
            if (steal(m, s, true))
                return;
        }
        is_late(m);
    }
}

static void walk_steps(member *m)
{
    const mica__cpu_submission *submission = m->submission;
    while (!m->late) {
        const uint64_t now = atomic_load_explicit(&m->team->now, memory_order_acquire);
        step s;
        if (mica__cpu_high(now) != submission->number ||
            (uint32_t)now - submission->base >= submission->step_count)
            return;
        read_step(submission, now, &s);
        if (!add_done(m, &s, work_share(m, &s, m->slot)))
            await_step(m, &s);
    }
}

void mica__cpu_walk(mica__cpu_team *team, uint32_t slot, uint64_t now, uint64_t deadline_ns)
{
    mica__cpu_submission *submission = &team->submission[mica__cpu_high(now) % MICA__CPU_RUNS];
    member m = {team, submission, slot, UINT32_MAX, deadline_ns, false};
    fp_state saved;
    /* The place in the ring may have got a new tenant since `now` was read. It cannot get one while we are counted
     * and `now` still says that it is the old one. */
    atomic_fetch_add(&submission->members, 1);
    if (mica__cpu_high(atomic_load(&team->now)) == mica__cpu_high(now)) {
        atomic_store_explicit(&team->slot[slot].present, 1, memory_order_relaxed);
        fp_enter(&saved);
        walk_steps(&m);
        fp_leave(&saved);
        atomic_store_explicit(&team->slot[slot].present, 0, memory_order_relaxed);
    }
    mica__cpu_team_leave(team, submission);
}
