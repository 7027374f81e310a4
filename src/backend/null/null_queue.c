/* null_queue.c - submissions that take no time, or as long as a test asks; their results and faults. */
#include <string.h>

#include "backend/checks.h"
#include "backend/null/null_device.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/thread.h"

static mica__queue *queue_of(mica__device *device, mica__queue *queue)
{
    return queue == NULL ? &device->queue : queue;
}

/* Lock held. The time of a submission is divided evenly over what it holds. */
static void add_times(mica__device *device, const mica__commands *commands, uint64_t value,
                      const mica__completion *completion)
{
    const uint64_t span = completion->end_ns - completion->begin_ns;
    for (uint32_t i = 0; atomic_load(&device->times.enabled) && i < commands->entry_count; i++) {
        const mica__null_entry *entry = &commands->entry[i];
        const mica_profile_entry time = {
            .op = (mica_op)entry->op,
            .index = i,
            .submission = value,
            .begin_ns = completion->begin_ns + span * i / commands->entry_count,
            .end_ns = completion->begin_ns + span * (i + 1) / commands->entry_count,
            .bytes = (double)entry->bytes,
            .operations = (double)entry->operations,
        };
        mica__times_add(&device->times, &time, entry->kernel, entry->label);
    }
}

static void count_submission(mica__null_counts *counts, const mica__commands *commands)
{
    for (uint32_t i = 0; i < commands->entry_count; i++) {
        counts->dispatches += commands->entry[i].kind == MICA__NULL_DISPATCH;
        counts->copies += commands->entry[i].kind == MICA__NULL_COPY;
    }
    counts->barriers += commands->barrier_count;
    counts->submissions++;
}

/* Lock held. */
static uint64_t accept(mica__device *device, mica__queue *queue, mica__commands *commands)
{
    const uint64_t now = mica__clock_ns(), value = ++queue->submitted;
    const uint64_t begin = now > queue->end_ns ? now : queue->end_ns;
    mica__completion completion = {MICA_OK, 0, begin, begin + device->faults.slow_ns};
    if (mica__null_fails(&device->faults.fail_wait))
        completion.status = MICA_ERR_SUBMISSION;
    queue->end_ns = completion.end_ns;
    queue->result[value % MICA__NULL_RESULTS].value = value;
    queue->result[value % MICA__NULL_RESULTS].completion = completion;
    count_submission(&device->counts, commands);
    add_times(device, commands, value, &completion);
    commands->references++;
    mica__null_commands_drop(device, device->last);
    device->last = commands;
    return value;
}

mica_status mica__null_submit(mica__device *device, mica__queue *queue, mica__commands *commands,
                              uint64_t *out_value)
{
    *out_value = 0;
    pthread_mutex_lock(&device->lock);
    if (mica__null_fails(&device->faults.fail_submit))
        device->lost = true;
    const bool lost = device->lost;
    if (!lost)
        *out_value = accept(device, queue_of(device, queue), commands);
    if (!commands->reusable)
        mica__null_commands_drop(device, commands);
    pthread_mutex_unlock(&device->lock);
    return lost ? mica__null_lost() : MICA_OK;
}

/* Lock held. What is known of the submission; older ones than those kept ended well. */
static mica__completion *result_of(mica__queue *queue, uint64_t value)
{
    const bool kept = queue->result[value % MICA__NULL_RESULTS].value == value && value != 0;
    return kept ? &queue->result[value % MICA__NULL_RESULTS].completion : NULL;
}

/* Until the clock reaches `end_ns`, at most `timeout_ns`. */
static mica_status sleep_until(uint64_t end_ns, uint64_t timeout_ns)
{
    const uint64_t now = mica__clock_ns();
    mica__event event;
    if (now >= end_ns || timeout_ns == 0)
        return MICA_OK;
    const mica_status status = mica__event_init(&event);
    if (status != MICA_OK)
        return status;
    mica__event_wait(&event, mica__event_ticket(&event),
                     end_ns - now < timeout_ns ? end_ns - now : timeout_ns);
    mica__event_destroy(&event);
    return MICA_OK;
}

mica_status mica__null_wait(mica__device *device, mica__queue *queue, uint64_t value, uint64_t timeout_ns,
                            mica__completion *out)
{
    mica__queue *of = queue_of(device, queue);
    memset(out, 0, sizeof *out);
    pthread_mutex_lock(&device->lock);
    const uint64_t submitted = of->submitted;
    const bool lost = device->lost;
    mica__completion *result = result_of(of, value);
    const uint64_t end_ns = result == NULL ? 0 : result->end_ns;
    pthread_mutex_unlock(&device->lock);
    if (lost)
        return mica__null_lost();
    mica_status status = mica__check_value(value, submitted);
    if (status == MICA_OK)
        status = sleep_until(end_ns, timeout_ns);
    if (status != MICA_OK)
        return status;
    pthread_mutex_lock(&device->lock);
    result = result_of(of, value);
    const bool over = result == NULL || mica__clock_ns() >= result->end_ns;
    if (over && result != NULL)
        *out = *result;
    pthread_mutex_unlock(&device->lock);
    if (!over)
        return MICA_ERR_TIMEOUT;
    return MICA_OK;
}

mica_status mica__null_cancel(mica__device *device, mica__queue *queue, uint64_t value)
{
    const uint64_t now = mica__clock_ns();
    pthread_mutex_lock(&device->lock);
    mica__completion *result = result_of(queue_of(device, queue), value);
    if (result != NULL && result->end_ns > now) {
        result->status = MICA_ERR_CANCELLED;
        result->end_ns = now;
        if (result->begin_ns > now)
            result->begin_ns = now;
    }
    pthread_mutex_unlock(&device->lock);
    return MICA_OK;
}

mica_status mica__null_queue_order(mica__device *device, mica__queue *queue, mica__queue *after,
                                   uint64_t value)
{
    mica__queue *to = queue_of(device, queue);
    pthread_mutex_lock(&device->lock);
    const mica__completion *result = result_of(queue_of(device, after), value);
    if (result != NULL && result->end_ns > to->end_ns)
        to->end_ns = result->end_ns;
    pthread_mutex_unlock(&device->lock);
    return mica__null_check_lost(device);
}

mica_status mica__null_queue_create(mica__device *device, mica__queue **out)
{
    *out = NULL;
    const mica_status status = mica__null_check_lost(device);
    if (status != MICA_OK)
        return status;
    *out = mica__calloc(1, sizeof **out);
    if (*out == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "null: no memory for a queue");
    return MICA_OK;
}

void mica__null_queue_destroy(mica__device *device, mica__queue *queue)
{
    (void)device;
    mica__free(queue);
}

mica_status mica__null_timestamps(mica__device *device, bool enable, mica__profile *out)
{
    pthread_mutex_lock(&device->lock);
    const mica_status status = mica__times_read(&device->times, enable, out);
    pthread_mutex_unlock(&device->lock);
    return status;
}
