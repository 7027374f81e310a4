/*
 * cuda_queue.c - queues are streams; a submission has a value and two events; its result is read when its second event
 * has happened. A queue's submissions end in order, so the oldest one under way is the only one to ask about.
 */
#include <string.h>

#include "backend/checks.h"
#include "backend/cuda/cuda_device.h"
#include "base/alloc.h"
#include "base/clock.h"

#define SPIN_NS 8000000u      /* a decode step: waking up late costs more than the core */
#define SHORTEST_SLEEP 20000u /* ns */
#define LONGEST_SLEEP 1000000u
#define ORIGIN_MS 4000.0f /* the driver counts in float: a newer origin keeps the nanoseconds */

static mica__queue *queue_of(mica__device *device, mica__queue *queue)
{
    return queue == NULL ? &device->queue : queue;
}

static mica__cuda_slot *slot_of(mica__queue *queue, uint64_t value)
{
    return &queue->slot[value % MICA__CUDA_SLOTS];
}

/* ---- results ---- */

/* Lock held. When the submission ran, on the host's clock. */
static void read_times(mica__device *device, mica__queue *queue, mica__cuda_slot *slot)
{
    const mica__cuda_driver *driver = &device->driver;
    mica__completion *completion = &slot->completion;
    float until_begin = 0, length = 0;
    if (driver->event_elapsed(&until_begin, queue->origin, slot->begin) != 0 ||
        driver->event_elapsed(&length, slot->begin, slot->end) != 0)
        return;
    completion->begin_ns = queue->origin_ns + (uint64_t)((double)until_begin * 1e6);
    completion->end_ns = completion->begin_ns + (uint64_t)((double)length * 1e6);
    if (until_begin < ORIGIN_MS)
        return;
    void *older = queue->origin;
    queue->origin = slot->end;
    queue->origin_ns = completion->end_ns;
    slot->end = older;
}

/* Lock held. The submission is over. */
static void resolve(mica__device *device, mica__queue *queue, mica__cuda_slot *slot)
{
    mica__cuda_fault *fault = slot->commands->fault;
    read_times(device, queue, slot);
    slot->completion.fault = fault == NULL ? 0 : atomic_exchange(fault->host, 0);
    mica__cuda_times_resolve(device, slot, true);
    mica__cuda_commands_unref(slot->commands);
    slot->commands = NULL;
    queue->done = slot->value;
}

/* Lock held. Resolves what is over. */
static mica_status advance(mica__device *device, mica__queue *queue)
{
    while (queue->done < queue->submitted) {
        mica__cuda_slot *slot = slot_of(queue, queue->done + 1);
        const int result = device->driver.event_query(slot->end);
        if (result == MICA__CUDA_ERROR_NOT_READY)
            return MICA_OK;
        if (result != 0)
            return mica__cuda_check(device, result, MICA_ERR_DEVICE_LOST, "submitted work");
        resolve(device, queue, slot);
    }
    return MICA_OK;
}

/* ---- submission ---- */

/* Lock held. A free slot with its events; waits for the oldest submission while there is none. */
static mica_status ready_slot(mica__device *device, mica__queue *queue, mica__cuda_slot **out)
{
    const mica__cuda_driver *driver = &device->driver;
    mica__cuda_slot *slot = slot_of(queue, queue->submitted + 1);
    mica_status status = advance(device, queue);
    while (status == MICA_OK && queue->submitted - queue->done >= MICA__CUDA_SLOTS) {
        status = mica__cuda_check(device, driver->event_wait(slot_of(queue, queue->done + 1)->end),
                                  MICA_ERR_DEVICE_LOST, "submitted work");
        if (status == MICA_OK)
            status = advance(device, queue);
    }
    void **event[2] = {&slot->begin, &slot->end};
    for (uint32_t i = 0; i < 2 && status == MICA_OK; i++) {
        if (*event[i] != NULL)
            continue;
        const int result = driver->event_create(event[i], 0);
        if (result != 0)
            *event[i] = NULL;
        status = mica__cuda_check(device, result, MICA_ERR_OUT_OF_MEMORY, "making an event");
    }
    *out = slot;
    return status;
}

/* An event after the launches so far: times[index]. */
static mica_status mark_time(mica__device *device, void **times, uint32_t index, void *stream)
{
    const mica__cuda_driver *driver = &device->driver;
    int result = driver->event_create(&times[index], 0);
    if (result != 0)
        times[index] = NULL;
    else
        result = driver->event_record(times[index], stream);
    return mica__cuda_check(device, result, MICA_ERR_OUT_OF_MEMORY, "timing a dispatch");
}

/* One launch after the other, with an event between them where `times` is not NULL. */
static mica_status launch_list(mica__commands *commands, void **times, void *stream)
{
    mica_status status = times == NULL ? MICA_OK : mark_time(commands->device, times, 0, stream);
    for (uint32_t i = 0; i < commands->node_count && status == MICA_OK; i++) {
        status = mica__cuda_launch_node(commands, &commands->node[i], stream);
        if (status == MICA_OK && times != NULL)
            status = mark_time(commands->device, times, i + 1, stream);
    }
    return status;
}

static mica_status launch_graph(mica__commands *commands, void *stream)
{
    mica_status status = commands->stale ? mica__cuda_graph_build(commands) : MICA_OK;
    if (status == MICA_OK)
        status = mica__cuda_check(commands->device,
                                  commands->device->driver.graph_launch(commands->executable, stream),
                                  MICA_ERR_SUBMISSION, "launching a graph");
    return status;
}

static mica_status launch(mica__commands *commands, mica__cuda_slot *slot, void *stream)
{
    mica__device *device = commands->device;
    const bool timed = atomic_load(&device->times.enabled);
    if (timed) {
        slot->times = mica__calloc((size_t)commands->node_count + 1, sizeof *slot->times);
        if (slot->times == NULL)
            return mica__fail(MICA_ERR_OUT_OF_MEMORY, "cuda: no host memory to time %u dispatches",
                              commands->node_count);
    }
    const bool graph = !timed && (commands->executable != NULL || commands->stale);
    return graph ? launch_graph(commands, stream) : launch_list(commands, slot->times, stream);
}

/* Lock held. Everything between the two events. What was launched before a failure is waited for: its operands may go. */
static mica_status run(mica__device *device, mica__queue *queue, mica__commands *commands,
                       mica__cuda_slot *slot)
{
    const mica__cuda_driver *driver = &device->driver;
    memset(&slot->completion, 0, sizeof slot->completion);
    slot->commands = commands;
    mica_status status = mica__cuda_check(device, driver->event_record(slot->begin, queue->stream),
                                          MICA_ERR_SUBMISSION, "marking the begin of a submission");
    if (status == MICA_OK)
        status = launch(commands, slot, queue->stream);
    if (status == MICA_OK)
        status = mica__cuda_check(device, driver->event_record(slot->end, queue->stream), MICA_ERR_SUBMISSION,
                                  "marking the end of a submission");
    if (status == MICA_OK)
        return MICA_OK;
    driver->stream_wait(queue->stream);
    mica__cuda_times_resolve(device, slot, false);
    if (commands->fault != NULL)
        atomic_store(commands->fault->host, 0);
    slot->commands = NULL;
    return status;
}

mica_status mica__cuda_submit(mica__device *device, mica__queue *queue, mica__commands *commands,
                              uint64_t *out_value)
{
    mica__queue *to = queue_of(device, queue);
    mica__cuda_slot *slot = NULL;
    *out_value = 0;
    if (commands->reusable) /* the slot's reference; a one-shot one is given with the commands */
        atomic_fetch_add(&commands->references, 1);
    mica_status status = mica__cuda_enter(device);
    if (status != MICA_OK) {
        mica__cuda_commands_unref(commands);
        return status;
    }
    pthread_mutex_lock(&to->lock);
    status = ready_slot(device, to, &slot);
    if (status == MICA_OK)
        status = run(device, to, commands, slot);
    if (status == MICA_OK) {
        slot->value = *out_value = ++to->submitted;
    }
    pthread_mutex_unlock(&to->lock);
    if (status != MICA_OK)
        mica__cuda_commands_unref(commands);
    mica__cuda_leave(device);
    return status;
}

/* ---- waiting ---- */

/* Looks once. `out_over`: the submission is done and `out` filled. */
static mica_status look(mica__device *device, mica__queue *queue, uint64_t value, bool *out_over,
                        mica__completion *out)
{
    *out_over = false;
    pthread_mutex_lock(&queue->lock);
    const uint64_t submitted = queue->submitted;
    const mica_status status = value <= submitted ? advance(device, queue) : MICA_OK;
    if (status == MICA_OK && value <= queue->done) {
        const mica__cuda_slot *slot = slot_of(queue, value);
        *out_over = true;
        if (slot->value == value && value != 0)
            *out = slot->completion;
    }
    pthread_mutex_unlock(&queue->lock);
    return status == MICA_OK ? mica__check_value(value, submitted) : status;
}

/* Spins at first, then sleeps a part of the time already waited. */
static void pause_wait(uint64_t waited_ns, uint64_t left_ns)
{
    mica__event event;
    uint64_t sleep = waited_ns / 16;
    if (waited_ns < SPIN_NS || mica__event_init(&event) != MICA_OK) {
        mica__cpu_relax();
        return;
    }
    sleep = sleep < SHORTEST_SLEEP ? SHORTEST_SLEEP : sleep > LONGEST_SLEEP ? LONGEST_SLEEP : sleep;
    mica__event_wait(&event, mica__event_ticket(&event), sleep < left_ns ? sleep : left_ns);
    mica__event_destroy(&event);
}

mica_status mica__cuda_wait(mica__device *device, mica__queue *queue, uint64_t value, uint64_t timeout_ns,
                            mica__completion *out)
{
    mica__queue *of = queue_of(device, queue);
    bool over = false;
    memset(out, 0, sizeof *out);
    mica_status status = mica__cuda_enter(device);
    if (status != MICA_OK)
        return status;
    status = look(device, of, value, &over, out);
    if (status == MICA_OK && !over && timeout_ns != 0) {
        const uint64_t start = mica__clock_ns();
        for (uint64_t waited = 0; status == MICA_OK && !over && waited < timeout_ns;) {
            pause_wait(waited, timeout_ns - waited);
            status = atomic_load(&device->lost)
                         ? mica__fail(MICA_ERR_DEVICE_LOST, "cuda:%u: the device was lost", device->index)
                         : look(device, of, value, &over, out);
            waited = mica__clock_ns() - start;
        }
    }
    mica__cuda_leave(device);
    return status == MICA_OK && !over ? MICA_ERR_TIMEOUT : status;
}

mica_status mica__cuda_queue_order(mica__device *device, mica__queue *queue, mica__queue *after,
                                   uint64_t value)
{
    mica__queue *to = queue_of(device, queue), *from = queue_of(device, after);
    mica_status status = mica__cuda_enter(device);
    if (status != MICA_OK || to == from) {
        if (status == MICA_OK)
            mica__cuda_leave(device);
        return status;
    }
    pthread_mutex_lock(&from->lock);
    if (value > from->done && value <= from->submitted)
        status =
            mica__cuda_check(device, device->driver.stream_order(to->stream, slot_of(from, value)->end, 0),
                             MICA_ERR_SUBMISSION, "ordering two queues");
    pthread_mutex_unlock(&from->lock);
    mica__cuda_leave(device);
    return status;
}

/* ---- open and close ---- */

/* The stream and the event that times are counted from. */
static int open_stream(const mica__cuda_driver *driver, mica__queue *queue)
{
    int result = driver->stream_create(&queue->stream, MICA__CUDA_STREAM_NON_BLOCKING);
    if (result != 0) {
        queue->stream = NULL;
        return result;
    }
    result = driver->event_create(&queue->origin, 0);
    if (result != 0)
        queue->origin = NULL;
    if (result == 0)
        result = driver->event_record(queue->origin, queue->stream);
    if (result == 0)
        result = driver->event_wait(queue->origin);
    queue->origin_ns = mica__clock_ns();
    return result;
}

static void close_stream(const mica__cuda_driver *driver, mica__queue *queue)
{
    for (uint32_t i = 0; i < MICA__CUDA_SLOTS; i++) {
        if (queue->slot[i].begin != NULL)
            driver->event_destroy(queue->slot[i].begin);
        if (queue->slot[i].end != NULL)
            driver->event_destroy(queue->slot[i].end);
    }
    if (queue->origin != NULL)
        driver->event_destroy(queue->origin);
    if (queue->stream != NULL)
        driver->stream_destroy(queue->stream);
}

mica_status mica__cuda_queue_open(mica__device *device, mica__queue *queue)
{
    mica_status status = mica__lock_init(&queue->lock, &queue->guard, true);
    if (status != MICA_OK)
        return status;
    status = mica__cuda_check(device, open_stream(&device->driver, queue), MICA_ERR_OUT_OF_MEMORY,
                              "making a stream");
    if (status == MICA_OK)
        return MICA_OK;
    close_stream(&device->driver, queue);
    queue->stream = NULL;
    mica__lock_destroy(&queue->lock, &queue->guard);
    return status;
}

void mica__cuda_queue_close(mica__device *device, mica__queue *queue, bool driver)
{
    if (queue->stream == NULL)
        return; /* never opened */
    if (driver)
        device->driver.stream_wait(queue->stream);
    for (; queue->done < queue->submitted; queue->done++) {
        mica__cuda_slot *slot = slot_of(queue, queue->done + 1);
        mica__cuda_times_resolve(device, slot, false);
        mica__cuda_commands_unref(slot->commands);
    }
    if (driver)
        close_stream(&device->driver, queue);
    queue->stream = NULL;
    mica__lock_destroy(&queue->lock, &queue->guard);
}

mica_status mica__cuda_queue_create(mica__device *device, mica__queue **out)
{
    *out = NULL;
    mica__queue *queue = mica__calloc(1, sizeof *queue);
    if (queue == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "cuda: no host memory for a queue");
    mica_status status = mica__cuda_enter(device);
    if (status == MICA_OK) {
        status = mica__cuda_queue_open(device, queue);
        mica__cuda_leave(device);
    }
    if (status != MICA_OK) {
        mica__free(queue);
        return status;
    }
    *out = queue;
    return MICA_OK;
}

void mica__cuda_queue_destroy(mica__device *device, mica__queue *queue)
{
    if (queue == NULL)
        return;
    const bool driver = mica__cuda_enter_quietly(device);
    mica__cuda_queue_close(device, queue, driver);
    if (driver)
        mica__cuda_leave(device);
    mica__free(queue);
}
