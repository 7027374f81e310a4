/* inflight.c - submissions, fences and queues. The list of submissions under way is guarded by the device's lock; no
 * lock is held while waiting. */
#include "device/inflight.h"

#include <string.h>

#include "base/alloc.h"
#include "base/status.h"

struct mica_fence {
    _Atomic uint32_t references;
    mica_device *device; /* counted for the caller's reference, not for the list's */
    mica_queue *queue;   /* counted; NULL: queue 0 */
    uint64_t value;
    /* counted: the stage before it on the same queue, whose failure is its own too; NULL: none */
    mica_fence *before;
    bool resolved; /* under the device's lock, as is the completion */
    mica__completion completion;
};

static mica__queue *queue_impl(mica_queue *queue)
{
    return queue == NULL ? NULL : queue->impl;
}

/* References from inside keep the queue but not the device, which they stand on. */
static mica_queue *queue_ref(mica_queue *queue)
{
    if (queue != NULL)
        atomic_fetch_add(&queue->references, 1);
    return queue;
}

void mica__queue_unref(mica_queue *queue)
{
    if (queue == NULL || atomic_fetch_sub(&queue->references, 1) != 1)
        return;
    if (queue->device->table->queue_destroy != NULL)
        queue->device->table->queue_destroy(queue->device->impl, queue->impl);
    mica__free(queue);
}

mica_status mica__completion_status(const mica__completion *completion)
{
    if (completion->status != MICA_OK) {
        mica__status_set(completion->status, NULL);
        return completion->status;
    }
    if (completion->fault != 0)
        return mica__fail(MICA_ERR_FAULT, "%s: an index operand pointed outside its table",
                          mica_op_name((mica_op)(completion->fault - 1)));
    return MICA_OK;
}

/* ---- fences ---- */

static void fence_unref(mica_fence *fence)
{
    while (fence != NULL && atomic_fetch_sub(&fence->references, 1) == 1) {
        mica_fence *before = fence->before;
        mica__queue_unref(fence->queue);
        mica__free(atomic_exchange(&fence->device->spare_fence, fence));
        fence = before;
    }
}

static mica_status fence_create(mica_device *device, mica_queue *queue, mica_fence **out)
{
    mica_fence *fence = atomic_exchange(&device->spare_fence, NULL);
    if (fence == NULL)
        fence = mica__alloc(sizeof *fence);
    if (fence == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no host memory for a fence");
    memset(fence, 0, sizeof *fence);
    atomic_init(&fence->references, 1);
    fence->device = device;
    fence->queue = queue_ref(queue);
    *out = fence;
    return MICA_OK;
}

void mica_fence_release(mica_fence *fence)
{
    if (fence == NULL)
        return;
    mica_device *device = fence->device;
    fence_unref(fence);
    mica_device_release(device);
}

void mica__fence_follow(mica_fence *fence, mica_fence *before)
{
    fence->before = before;
    if (before != NULL)
        atomic_fetch_add(&before->references, 1);
}

uint64_t mica_fence_value(const mica_fence *fence)
{
    return fence == NULL ? 0 : fence->value;
}

/* ---- the list ---- */

/* What an ended submission gives back, gathered under the lock and freed outside it. */
typedef struct ended {
    mica__work *work[MICA__INFLIGHT_MAX];
    mica_fence *fence[MICA__INFLIGHT_MAX];
    mica_queue *queue[MICA__INFLIGHT_MAX];
    uint32_t count;
} ended;

static void resolve(mica_device *device, const mica__inflight *entry, const mica__completion *done)
{
    if (entry->fence != NULL) {
        entry->fence->completion = *done;
        entry->fence->resolved = true;
    }
    if (entry->work != NULL && entry->work->reusable && entry->work->value == entry->value) {
        entry->work->completion = *done;
        entry->work->resolved = true;
    }
    if (done->fault != 0)
        MICA__COUNT(device, faults, 1);
}

/* Asks the backend. A lost device's submissions are over too: their result says so. */
static mica_status ask(mica_device *device, mica_queue *queue, uint64_t value, uint64_t timeout_ns,
                       mica__completion *out)
{
    memset(out, 0, sizeof *out);
    mica_status status = device->table->wait(device->impl, queue_impl(queue), value, timeout_ns, out);
    if (status != MICA_ERR_DEVICE_LOST)
        return status;
    out->status = status;
    return MICA_OK;
}

/* Takes every submission that is done off the list. Lock held. */
static void gather(mica_device *device, ended *out)
{
    uint32_t kept = 0;
    out->count = 0;
    for (uint32_t i = 0; i < device->inflight_count; i++) {
        mica__inflight *entry = &device->inflight[i];
        mica__completion done;
        if (ask(device, entry->queue, entry->value, 0, &done) != MICA_OK) {
            device->inflight[kept++] = *entry;
            continue;
        }
        resolve(device, entry, &done);
        out->work[out->count] = entry->work != NULL && !entry->work->reusable ? entry->work : NULL;
        out->fence[out->count] = entry->fence;
        out->queue[out->count++] = entry->queue;
    }
    device->inflight_count = kept;
}

static void give_back(ended *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        mica__work_release(list->work[i]);
        fence_unref(list->fence[i]);
        mica__queue_unref(list->queue[i]);
    }
}

static void reap(mica_device *device)
{
    ended list;
    pthread_mutex_lock(&device->lock);
    gather(device, &list);
    pthread_mutex_unlock(&device->lock);
    give_back(&list);
}

mica_status mica__inflight_wait(mica_device *device, mica_queue *queue, uint64_t value, uint64_t timeout_ns,
                                mica__completion *out)
{
    mica_status status = ask(device, queue, value, timeout_ns, out);
    if (status == MICA_OK)
        reap(device);
    return status;
}

/* The oldest submission on the list, its queue kept; false when there is none. */
static bool oldest_submission(mica_device *device, mica__inflight *out)
{
    pthread_mutex_lock(&device->lock);
    bool any = device->inflight_count > 0;
    if (any) {
        *out = device->inflight[0];
        queue_ref(out->queue);
    }
    pthread_mutex_unlock(&device->lock);
    return any;
}

/* Reserves a place on the list, waiting for the oldest submission while it is full. */
static mica_status reserve_place(mica_device *device)
{
    for (;;) {
        reap(device);
        pthread_mutex_lock(&device->lock);
        if (device->generation != mica__fork_generation()) { /* whoever reserved is not in this process */
            device->generation = mica__fork_generation();
            device->inflight_reserved = 0;
        }
        bool room = device->inflight_count + device->inflight_reserved < MICA__INFLIGHT_MAX;
        device->inflight_reserved += room;
        pthread_mutex_unlock(&device->lock);
        if (room)
            return MICA_OK;
        mica__inflight oldest;
        if (!oldest_submission(device, &oldest))
            continue; /* all places are reserved by threads about to submit */
        mica__completion done;
        mica_status status = ask(device, oldest.queue, oldest.value, MICA_WAIT_FOREVER, &done);
        mica__queue_unref(oldest.queue);
        if (status != MICA_OK)
            return status;
    }
}

/* Puts a submission on its reserved place (value 0: it did not come about). */
static void note_submission(mica_device *device, mica__work *work, mica_queue *queue, mica_fence *fence,
                            uint64_t value)
{
    mica_queue *old = NULL;
    pthread_mutex_lock(&device->lock);
    device->inflight_reserved--;
    if (value != 0) {
        if (work->reusable) {
            old = work->queue;
            work->queue = queue_ref(queue);
        }
        work->value = value;
        work->resolved = false;
        if (fence != NULL) {
            fence->value = value;
            atomic_fetch_add(&fence->references, 1);
        }
        device->inflight[device->inflight_count++] = (mica__inflight){queue_ref(queue), value, work, fence};
    }
    pthread_mutex_unlock(&device->lock);
    mica__queue_unref(old);
}

mica_status mica__inflight_submit(mica_device *device, mica__work *work, mica_queue *queue,
                                  mica_fence **out_fence)
{
    mica_fence *fence = NULL;
    mica_status status = MICA_OK;
    uint64_t value = 0;
    if (out_fence != NULL) {
        *out_fence = NULL;
        status = fence_create(device, queue, &fence);
    }
    if (status == MICA_OK)
        status = reserve_place(device);
    if (status == MICA_OK) {
        mica__commands *commands = work->commands;
        if (!work->reusable)
            work->commands = NULL; /* consumed by the backend, also on failure */
        status = device->table->submit(device->impl, queue_impl(queue), commands, &value);
        note_submission(device, work, queue, fence, status == MICA_OK ? value : 0);
    }
    if (status != MICA_OK) {
        fence_unref(fence);
        if (!work->reusable)
            mica__work_release(work);
        return status;
    }
    MICA__COUNT(device, submissions, 1);
    if (out_fence != NULL) {
        mica_device_retain(device);
        *out_fence = fence;
    }
    return MICA_OK;
}

mica_status mica__device_wait_idle(mica_device *device)
{
    mica_status first = MICA_OK;
    mica__inflight oldest;
    while (oldest_submission(device, &oldest)) {
        mica__completion done = {MICA_OK, 0, 0, 0};
        mica_status status =
            mica__inflight_wait(device, oldest.queue, oldest.value, MICA_WAIT_FOREVER, &done);
        mica__queue_unref(oldest.queue);
        if (status != MICA_OK)
            return status;
        if (first == MICA_OK)
            first = mica__completion_status(&done);
    }
    return first;
}

/* The result of reusable work's last submission; waits for it. Others may note it at the same time. */
mica_status mica__inflight_work(mica__work *work, mica__completion *out)
{
    mica_device *device = work->device;
    pthread_mutex_lock(&device->lock);
    bool resolved = work->value == 0 || work->resolved;
    uint64_t value = work->value;
    mica_queue *queue = queue_ref(work->queue);
    *out = work->completion;
    pthread_mutex_unlock(&device->lock);
    mica_status status = MICA_OK;
    if (!resolved)
        status = mica__inflight_wait(device, queue, value, MICA_WAIT_FOREVER, out);
    mica__queue_unref(queue);
    return status;
}

/* ---- waiting on fences ---- */

static bool fence_resolved(mica_fence *fence, mica__completion *out)
{
    pthread_mutex_lock(&fence->device->lock);
    bool resolved = fence->resolved;
    *out = fence->completion;
    pthread_mutex_unlock(&fence->device->lock);
    return resolved;
}

/* What the stages of a fence that is over came to: the first failure, the times of all. Those before it ended before it. */
static mica__completion sum_stages(mica_fence *fence, mica__completion last)
{
    mica__completion sum = last, done;
    for (fence = fence->before; fence != NULL && fence_resolved(fence, &done); fence = fence->before) {
        if (done.status != MICA_OK || done.fault != 0) {
            sum.status = done.status;
            sum.fault = done.fault;
        }
        sum.begin_ns = done.begin_ns;
    }
    return sum;
}

mica_status mica_fence_wait(mica_fence *fence, uint64_t timeout_ns)
{
    mica__completion done = {MICA_OK, 0, 0, 0};
    if (fence == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "fence_wait: fence is NULL");
    if (!fence_resolved(fence, &done)) {
        mica_status status =
            mica__inflight_wait(fence->device, fence->queue, fence->value, timeout_ns, &done);
        if (timeout_ns > 0 && status != MICA_ERR_TIMEOUT) /* one wait, however often it looked up */
            MICA__COUNT(fence->device, syncs, 1);
        if (status == MICA_ERR_TIMEOUT)
            return mica__fail(status, "fence_wait: fence: submission %llu is not done after %llu ns",
                              (unsigned long long)fence->value, (unsigned long long)timeout_ns);
        if (status != MICA_OK)
            return status;
        fence_resolved(fence, &done); /* what the list noted holds, however late we look */
    }
    done = sum_stages(fence, done);
    return mica__completion_status(&done);
}

mica_status mica__inflight_order(mica_device *device, mica_queue *queue, mica_fence *fence)
{
    mica__completion done;
    if (fence_resolved(fence, &done))
        return MICA_OK;
    if (fence->device != device || device->table->queue_order == NULL) {
        MICA__COUNT(fence->device, syncs, 1);
        return mica__inflight_wait(fence->device, fence->queue, fence->value, MICA_WAIT_FOREVER, &done);
    }
    return device->table->queue_order(device->impl, queue_impl(queue), queue_impl(fence->queue),
                                      fence->value);
}

mica_status mica_fence_times(mica_fence *fence, uint64_t *out_begin_ns, uint64_t *out_end_ns)
{
    mica__completion done = {MICA_OK, 0, 0, 0};
    if (fence == NULL || out_begin_ns == NULL || out_end_ns == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "fence_times: %s is NULL",
                          fence == NULL          ? "fence"
                          : out_begin_ns == NULL ? "out_begin_ns"
                                                 : "out_end_ns");
    *out_begin_ns = *out_end_ns = 0;
    reap(fence->device);
    if (!fence_resolved(fence, &done))
        return mica__fail(MICA_ERR_STATE, "fence_times: fence: its submission is still running");
    done = sum_stages(fence, done);
    *out_begin_ns = done.begin_ns;
    *out_end_ns = done.end_ns;
    return MICA_OK;
}

mica_status mica_fence_cancel(mica_fence *fence)
{
    if (fence == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "fence_cancel: fence is NULL");
    mica_device *device = fence->device;
    if (device->table->cancel == NULL)
        return mica__fail(MICA_ERR_UNSUPPORTED, "device %s cannot cancel work", device->info.properties.id);
    mica_status first = MICA_OK;
    for (; fence != NULL; fence = fence->before) {
        const mica_status status =
            device->table->cancel(device->impl, queue_impl(fence->queue), fence->value);
        first = first == MICA_OK ? status : first;
    }
    return first;
}

/* ---- queues ---- */

mica_status mica_queue_create(mica_device *device, mica_queue **out_queue)
{
    if (out_queue == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "queue_create: out_queue is NULL");
    *out_queue = NULL;
    if (device == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "queue_create: device is NULL");
    if (device->table->queue_create == NULL)
        return mica__fail(MICA_ERR_UNSUPPORTED, "device %s has one queue only", device->info.properties.id);
    mica_queue *queue = mica__calloc(1, sizeof *queue);
    if (queue == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no host memory for a queue");
    mica_status status = device->table->queue_create(device->impl, &queue->impl);
    if (status != MICA_OK) {
        mica__free(queue);
        return status;
    }
    atomic_init(&queue->references, 1);
    queue->device = mica_device_retain(device);
    *out_queue = queue;
    return MICA_OK;
}

void mica_queue_release(mica_queue *queue)
{
    if (queue == NULL)
        return;
    mica_device *device = queue->device;
    mica__queue_unref(queue);
    mica_device_release(device);
}
