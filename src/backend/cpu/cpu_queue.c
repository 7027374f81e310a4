/*
 * cpu_queue.c - submissions with values, their results, their times; and what a fork leaves of them.
 *
 * All queues of a device share the team's one line; a queue is a counter and the results of its last submissions.
 */
#include <sched.h>
#include <string.h>

#include "backend/checks.h"
#include "backend/cpu/cpu.h"
#include "base/alloc.h"
#include "base/env.h"

#define REVIVING 0x80000000u /* a bit that no generation has */

/* ---- hooks of the team ---- */

static void on_timed(void *context, const mica__cpu_submission *submission, uint32_t index, uint64_t begin_ns,
                     uint64_t end_ns)
{
    mica__device *device = context;
    const mica__cpu_dispatch *dispatch = &submission->list.dispatch[index];
    const mica_profile_entry entry = {.op = (mica_op)dispatch->op,
                                      .index = index,
                                      .submission = submission->value,
                                      .begin_ns = begin_ns,
                                      .end_ns = end_ns,
                                      .bytes = (double)dispatch->bytes,
                                      .operations = (double)dispatch->operations};
    pthread_mutex_lock(&device->lock);
    mica__times_add(&device->times, &entry, dispatch->kernel->name,
                    dispatch->label == 0 ? "" : (const char *)submission->list.blob + dispatch->label);
    pthread_mutex_unlock(&device->lock);
}

static void on_finished(void *context, const mica__cpu_submission *submission)
{
    mica__queue *queue = submission->queue;
    mica__completion *completion = &queue->result[submission->value % MICA__CPU_RESULTS].completion;
    (void)context;
    queue->result[submission->value % MICA__CPU_RESULTS].value = submission->value;
    completion->status = MICA_OK;
    if (submission->lost)
        completion->status = MICA_ERR_DEVICE_LOST;
    else if (atomic_load(&submission->skipped) != 0)
        completion->status = MICA_ERR_CANCELLED;
    completion->fault = atomic_load(&submission->fault);
    completion->begin_ns = submission->begin_ns;
    completion->end_ns = submission->end_ns;
    atomic_store(&queue->done, submission->value);
}

static void on_released(void *context, mica__commands *commands)
{
    mica__cpu_commands_unref(context, commands);
}

const mica__cpu_hooks mica__cpu_queue_hooks = {on_timed, on_finished, on_released};

/* ---- fork ---- */

mica_status mica__cpu_device_awake(mica__device *device)
{
    const uint32_t generation = mica__fork_generation();
    uint32_t seen = atomic_load(&device->generation);
    while (seen != generation) {
        if (seen == (generation | REVIVING)) { /* another thread of this process is at it */
            sched_yield();
            seen = atomic_load(&device->generation);
        } else if (atomic_compare_exchange_strong(&device->generation, &seen, generation | REVIVING)) {
            const mica_status status = mica__cpu_team_revive(&device->team);
            atomic_store(&device->generation, status == MICA_OK ? generation : seen);
            return status;
        }
    }
    return MICA_OK;
}

/* ---- submissions ---- */

static mica__queue *queue_of(mica__device *device, mica__queue *queue)
{
    return queue == NULL ? &device->queue : queue;
}

mica_status mica__cpu_submit(mica__device *device, mica__queue *queue, mica__commands *commands,
                             uint64_t *out_value)
{
    mica__queue *to = queue_of(device, queue);
    *out_value = 0;
    const mica_status status = mica__cpu_device_awake(device);
    if (status != MICA_OK) {
        if (!commands->reusable)
            mica__cpu_commands_unref(device, commands);
        return status;
    }
    if (commands->reusable)
        atomic_fetch_add(&commands->references, 1);
    const mica__cpu_job job = {
        .list = {commands->dispatch, commands->blob.bytes, commands->step_end, commands->dispatch_count,
                 commands->step_count},
        .local = atomic_load(&device->local),
        .commands = commands,
        .queue = to,
        .counter = &to->submitted,
        .serial = mica__env_debug(MICA__DEBUG_SERIAL),
        .timed = atomic_load(&device->times.enabled),
    };
    *out_value = mica__cpu_team_submit(&device->team, &job);
    return MICA_OK;
}

static mica_status check_value(mica__device *device, const mica__queue *queue, uint64_t value)
{
    pthread_mutex_lock(&device->team.lock);
    const uint64_t submitted = queue->submitted;
    pthread_mutex_unlock(&device->team.lock);
    return mica__check_value(value, submitted);
}

mica_status mica__cpu_wait(mica__device *device, mica__queue *queue, uint64_t value, uint64_t timeout_ns,
                           mica__completion *out)
{
    mica__queue *of = queue_of(device, queue);
    mica_status status = mica__cpu_device_awake(device);
    memset(out, 0, sizeof *out);
    if (status == MICA_OK && atomic_load(&of->done) < value)
        status = check_value(device, of, value);
    if (status != MICA_OK)
        return status;
    if (!mica__cpu_team_wait(&device->team, &of->done, value, timeout_ns))
        return MICA_ERR_TIMEOUT;
    pthread_mutex_lock(&device->team.lock);
    if (of->result[value % MICA__CPU_RESULTS].value == value)
        *out = of->result[value % MICA__CPU_RESULTS].completion;
    pthread_mutex_unlock(&device->team.lock);
    return MICA_OK;
}

mica_status mica__cpu_cancel(mica__device *device, mica__queue *queue, uint64_t value)
{
    const mica_status status = mica__cpu_device_awake(device);
    if (status == MICA_OK)
        mica__cpu_team_cancel(&device->team, queue_of(device, queue), value);
    return status;
}

mica_status mica__cpu_queue_create(mica__device *device, mica__queue **out)
{
    (void)device;
    *out = mica__calloc(1, sizeof **out);
    if (*out == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "cpu: no memory for a queue");
    return MICA_OK;
}

void mica__cpu_queue_destroy(mica__device *device, mica__queue *queue)
{
    if (queue == NULL)
        return;
    if (mica__cpu_device_awake(device) == MICA_OK)
        mica__cpu_team_drain(&device->team);
    mica__free(queue);
}

/* All queues stand in the one line: whatever was submitted before is done before. */
mica_status mica__cpu_queue_order(mica__device *device, mica__queue *queue, mica__queue *after,
                                  uint64_t value)
{
    (void)queue;
    return check_value(device, queue_of(device, after), value);
}

/* ---- times ---- */

mica_status mica__cpu_timestamps(mica__device *device, bool enable, mica__profile *out)
{
    mica_status status = mica__cpu_device_awake(device);
    if (status != MICA_OK)
        return status;
    pthread_mutex_lock(&device->lock);
    status = mica__times_read(&device->times, enable, out);
    pthread_mutex_unlock(&device->lock);
    return status;
}
