/*
 * cpu_team.c - the team's threads and its line of submissions: who comes, who waits, what runs next.
 *
 * Submissions run one at a time in the order in which they were accepted. `now` names the one that runs; its tag
 * is past the last step when nothing does. The lock is taken once per submission and side, never inside one.
 */
#include "backend/cpu/cpu_team.h"

#include <sched.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/work.h"

#define IDLE_SPIN_NS 100000u  /* a helper looks for the next submission this long before it parks */
#define YIELD_AFTER_NS 30000u /* then the processor is offered to others between looks */
#define POLL_NS 20000000u     /* a caller that runs what it submits looks as often whether it was cancelled */
#define RENEW_TAGS (1u << 28) /* cursors older than half the tag range would look new again */

uint64_t mica__cpu_spin_once(mica__cpu_spin *spin)
{
    mica__cpu_relax();
    if (++spin->rounds % 64 != 0)
        return spin->now_ns - spin->since_ns;
    spin->now_ns = mica__clock_ns();
    if (spin->since_ns == 0)
        spin->since_ns = spin->now_ns;
    if (spin->now_ns - spin->since_ns > YIELD_AFTER_NS)
        sched_yield();
    return spin->now_ns - spin->since_ns;
}

/* ---- one submission ---- */

static mica__cpu_submission *submission_at(mica__cpu_team *team, uint64_t number)
{
    return &team->submission[number % MICA__CPU_RUNS];
}

/* Lock held. Lets go of the list if nobody is inside any more. */
static void release_locked(mica__cpu_team *team, mica__cpu_submission *submission)
{
    mica__commands *commands = submission->commands;
    if (atomic_load(&submission->members) != 0 || commands == NULL)
        return;
    submission->commands = NULL;
    team->hooks.released(team->context, commands);
}

void mica__cpu_team_leave(mica__cpu_team *team, mica__cpu_submission *submission)
{
    if (atomic_fetch_sub(&submission->members, 1) != 1)
        return;
    pthread_mutex_lock(&team->lock);
    release_locked(team, submission);
    pthread_mutex_unlock(&team->lock);
}

/* Lock held. */
static void record_finished(mica__cpu_team *team, mica__cpu_submission *submission)
{
    submission->end_ns = mica__clock_ns();
    team->hooks.finished(team->context, submission);
    team->head++;
    atomic_store(&team->finished, team->head);
}

/* Lock held, nothing runs. A cursor that was not used for half the range of tags would look newer than its step. */
static void renew_cursors(mica__cpu_team *team)
{
    if (team->next_tag - team->renewed_tag < RENEW_TAGS)
        return;
    team->renewed_tag = team->next_tag;
    for (uint32_t i = 0; i < team->slots; i++)
        atomic_store(&team->slot[i].cursor, mica__cpu_pack(team->next_tag - 1, 0));
}

/* Lock held, nothing runs. Publishes the next submission that has something to do. */
static void start_next(mica__cpu_team *team)
{
    while (team->head < team->tail) {
        mica__cpu_submission *submission = submission_at(team, team->head);
        renew_cursors(team);
        submission->base = team->next_tag;
        submission->begin_ns = submission->stamp_ns = mica__clock_ns();
        /* One tag more than steps: that one says "over". */
        team->next_tag += submission->step_count + 1;
        atomic_store(&team->now, mica__cpu_pack(submission->number, submission->base));
        if (submission->step_count != 0)
            return;
        record_finished(team, submission);
        atomic_fetch_sub(&submission->members, 1);
        release_locked(team, submission);
    }
}

void mica__cpu_team_finish(mica__cpu_team *team, mica__cpu_submission *submission)
{
    pthread_mutex_lock(&team->lock);
    record_finished(team, submission);
    atomic_store(&team->now, mica__cpu_pack(submission->number, submission->base + submission->step_count));
    start_next(team);
    pthread_mutex_unlock(&team->lock);
    mica__event_signal(&team->work);
    mica__event_signal(&team->done);
    mica__cpu_team_leave(team, submission);
}

/* ---- helpers ---- */

static void await_submission(mica__cpu_team *team, uint32_t last)
{
    mica__cpu_spin spin = {0, 0, 0};
    while (mica__cpu_spin_once(&spin) < IDLE_SPIN_NS)
        if (mica__cpu_high(atomic_load_explicit(&team->now, memory_order_acquire)) != last)
            return;
    const uint32_t ticket = mica__event_ticket(&team->work);
    if (mica__cpu_high(atomic_load(&team->now)) == last && atomic_load(&team->stopping) == 0)
        mica__event_wait(&team->work, ticket, MICA__EVENT_FOREVER);
}

static void helper_main(void *context)
{
    const mica__cpu_helper *helper = context;
    mica__cpu_team *team = helper->team;
    uint32_t last = UINT32_MAX; /* `now` before the first submission */
    while (atomic_load_explicit(&team->stopping, memory_order_relaxed) == 0) {
        const uint64_t now = atomic_load_explicit(&team->now, memory_order_acquire);
        if (mica__cpu_high(now) == last) {
            await_submission(team, last);
            continue;
        }
        last = mica__cpu_high(now);
        mica__cpu_walk(team, helper->slot, now, MICA__EVENT_FOREVER);
    }
}

/* Lock held. A thread that the system refuses is done without: the others take its share. */
static void start_helpers(mica__cpu_team *team)
{
    team->started = true;
    while (team->helpers + 1 < team->slots) {
        mica__cpu_helper *helper = &team->helper[team->helpers];
        helper->team = team;
        helper->slot = team->helpers + 1;
        if (mica__thread_start(&helper->thread, "mica-cpu", helper_main, helper) != MICA_OK)
            return;
        team->helpers++;
    }
}

/* ---- the door ---- */

static mica_status init_events(mica__cpu_team *team)
{
    mica_status status = mica__event_init(&team->work);
    if (status != MICA_OK)
        return status;
    status = mica__event_init(&team->done);
    if (status != MICA_OK)
        mica__event_destroy(&team->work);
    return status;
}

static mica_status init_sync(mica__cpu_team *team)
{
    mica_status status = mica__lock_init(&team->lock, &team->guard, true);
    if (status != MICA_OK)
        return status;
    status = init_events(team);
    if (status != MICA_OK)
        mica__lock_destroy(&team->lock, &team->guard);
    return status;
}

mica_status mica__cpu_team_init(mica__cpu_team *team, uint32_t threads, const mica__cpu_hooks *hooks,
                                void *context)
{
    memset(team, 0, sizeof *team);
    team->slots = threads;
    team->hooks = *hooks;
    team->context = context;
    team->next_tag = 1; /* fresh cursors carry tag 0: older than any step */
    atomic_store(&team->now, mica__cpu_pack(UINT32_MAX, 0));
    team->slot = mica__calloc(threads, sizeof *team->slot);
    team->helper = mica__calloc(threads, sizeof *team->helper);
    mica_status status = MICA_OK;
    if (team->slot == NULL || team->helper == NULL)
        status = mica__fail(MICA_ERR_OUT_OF_MEMORY, "cpu: no memory for a team of %u threads", threads);
    else
        status = init_sync(team);
    if (status != MICA_OK) {
        mica__free(team->slot);
        mica__free(team->helper);
    }
    return status;
}

void mica__cpu_team_destroy(mica__cpu_team *team)
{
    mica__cpu_team_drain(team);
    atomic_store(&team->stopping, 1);
    mica__event_signal(&team->work);
    for (uint32_t i = 0; i < team->helpers; i++)
        mica__thread_join(&team->helper[i].thread);
    mica__event_destroy(&team->done);
    mica__event_destroy(&team->work);
    mica__lock_destroy(&team->lock, &team->guard);
    mica__free(team->slot);
    mica__free(team->helper);
}

mica_status mica__cpu_team_revive(mica__cpu_team *team)
{
    const mica_status status = init_events(team);
    if (status != MICA_OK)
        return status;
    team->helpers = 0;
    team->started = false;
    atomic_store(&team->caller, 0);
    for (uint32_t i = 0; i < team->slots; i++)
        atomic_store(&team->slot[i].present, 0);
    while (team->head < team->tail) {
        submission_at(team, team->head)->lost = true;
        record_finished(team, submission_at(team, team->head));
    }
    for (uint32_t i = 0; i < MICA__CPU_RUNS; i++) {
        atomic_store(&team->submission[i].members, 0); /* whoever was inside does not exist here */
        release_locked(team, &team->submission[i]);
        team->submission[i].step_count = 0;
    }
    atomic_store(&team->now, mica__cpu_pack((uint32_t)(team->head - 1), team->next_tag++));
    return MICA_OK;
}

/* Lock held. The place for the next submission, counted once; NULL while it is in use. */
static mica__cpu_submission *take_place(mica__cpu_team *team)
{
    mica__cpu_submission *submission = submission_at(team, team->tail);
    if (team->tail - team->head == MICA__CPU_RUNS)
        return NULL;
    if (atomic_fetch_add(&submission->members, 1) == 0) {
        /* Whoever left last has not let go of the old list yet; it will find this done. */
        if (submission->commands != NULL)
            team->hooks.released(team->context, submission->commands);
        submission->commands = NULL;
        return submission;
    }
    atomic_fetch_sub(&submission->members, 1);
    release_locked(team, submission);
    return NULL;
}

static void fill_place(mica__cpu_team *team, mica__cpu_submission *submission, const mica__cpu_job *job)
{
    submission->list = job->list;
    submission->local = job->local;
    submission->commands = job->commands;
    submission->queue = job->queue;
    submission->value = ++*job->counter;
    submission->number = (uint32_t)team->tail;
    submission->serial = job->serial || job->timed;
    submission->timed = job->timed;
    submission->lost = false;
    submission->step_count = submission->serial ? job->list.dispatch_count : job->list.step_count;
    atomic_store(&submission->cancelled, 0);
    atomic_store(&submission->skipped, 0);
    atomic_store(&submission->fault, 0);
    atomic_store(&submission->done, 0);
}

uint64_t mica__cpu_team_submit(mica__cpu_team *team, const mica__cpu_job *job)
{
    mica__cpu_submission *submission;
    pthread_mutex_lock(&team->lock);
    const bool first = !team->started;
    if (first)
        start_helpers(team);
    while ((submission = take_place(team)) == NULL) {
        pthread_mutex_unlock(&team->lock);
        sched_yield();
        pthread_mutex_lock(&team->lock);
    }
    fill_place(team, submission, job);
    const uint64_t value = submission->value;
    const uint64_t finished = ++team->tail;
    const uint32_t helpers = team->helpers;
    const bool empty = submission->step_count == 0;
    if (team->tail - team->head == 1)
        start_next(team);
    pthread_mutex_unlock(&team->lock);
    mica__event_signal(&team->work);
    if (empty) /* may be finished already */
        mica__event_signal(&team->done);
    if (first && helpers + 1 < team->slots)
        mica__log(MICA_LOG_WARNING, "cpu: %u of %u threads: %s", helpers + 1, team->slots,
                  mica_status_message());
    while (helpers == 0 && !mica__cpu_team_wait(team, &team->finished, finished, POLL_NS))
        if (mica__is_cancelled()) /* nobody has the fence yet who could */
            mica__cpu_team_cancel(team, job->queue, value);
    return value;
}

/* In slot 0: through one submission after the other until the target or the deadline. */
static void work_along(mica__cpu_team *team, _Atomic uint64_t *counter, uint64_t target, uint64_t deadline_ns)
{
    uint32_t last = 0;
    bool first = true;
    mica__cpu_spin spin = {0, 0, 0};
    while (atomic_load(counter) < target && mica__clock_ns() < deadline_ns) {
        const uint64_t now = atomic_load(&team->now);
        if (!first && mica__cpu_high(now) == last) {
            mica__cpu_spin_once(&spin);
            continue;
        }
        first = false;
        last = mica__cpu_high(now);
        mica__cpu_walk(team, 0, now, deadline_ns);
    }
}

bool mica__cpu_team_wait(mica__cpu_team *team, _Atomic uint64_t *counter, uint64_t target,
                         uint64_t timeout_ns)
{
    if (atomic_load(counter) >= target)
        return true;
    if (timeout_ns == 0)
        return false;
    const uint64_t start = mica__clock_ns();
    const uint64_t deadline =
        timeout_ns < MICA__EVENT_FOREVER - start ? start + timeout_ns : MICA__EVENT_FOREVER;
    while (atomic_load(counter) < target) {
        const uint64_t now = mica__clock_ns();
        if (now >= deadline)
            return false;
        const uint32_t ticket = mica__event_ticket(&team->done);
        if (atomic_exchange(&team->caller, 1) == 0) {
            work_along(team, counter, target, deadline);
            atomic_store(&team->caller, 0);
            mica__event_signal(&team->done); /* another caller may take the slot */
        } else if (atomic_load(counter) < target) {
            mica__event_wait(&team->done, ticket,
                             deadline == MICA__EVENT_FOREVER ? MICA__EVENT_FOREVER : deadline - now);
        }
    }
    return true;
}

void mica__cpu_team_drain(mica__cpu_team *team)
{
    pthread_mutex_lock(&team->lock);
    const uint64_t tail = team->tail;
    pthread_mutex_unlock(&team->lock);
    mica__cpu_team_wait(team, &team->finished, tail, MICA__EVENT_FOREVER);
}

void mica__cpu_team_cancel(mica__cpu_team *team, const mica__queue *queue, uint64_t value)
{
    pthread_mutex_lock(&team->lock);
    for (uint64_t i = team->head; i < team->tail; i++) {
        mica__cpu_submission *submission = submission_at(team, i);
        if (submission->queue == queue && submission->value == value)
            atomic_store(&submission->cancelled, 1);
    }
    pthread_mutex_unlock(&team->lock);
}
