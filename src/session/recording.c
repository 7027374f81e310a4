/*
 * recording.c - records kept with the work they were lowered to: replayed, cloned, optimised.
 *
 * The lock makes one recording run once at a time. Results of earlier replays belong to their fences; whoever
 * waits here for its turn does not care how they ended.
 */
#include "session/recording.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/status.h"
#include "device/inflight.h"
#include "session/passes.h"

mica_recording *mica__recording_lock(const mica_recording *recording)
{
    mica_recording *open = (mica_recording *)recording;
    pthread_mutex_lock(&open->lock);
    return open;
}

void mica__recording_unlock(mica_recording *recording)
{
    pthread_mutex_unlock(&recording->lock);
}

/* ---- life ---- */

static mica_status make(mica_device *device, mica_queue *queue, mica_recording **out)
{
    mica_recording *recording = mica__calloc(1, sizeof *recording);
    if (recording == NULL || mica__lock_init(&recording->lock, &recording->guard, false) != MICA_OK) {
        mica__free(recording);
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for a recording");
    }
    recording->device = mica_device_retain(device);
    recording->queue = queue;
    if (queue != NULL)
        atomic_fetch_add(&queue->references, 1);
    *out = recording;
    return MICA_OK;
}

/* Lowers `list` into fresh work with its places. On failure nothing is left. */
static mica_status lower(mica_device *device, const mica__record_list *list, mica_session_stats *stats,
                         mica__lowered **out_lowered, mica__work **out_work)
{
    *out_work = NULL;
    *out_lowered = mica__calloc(list->count + 1u, sizeof **out_lowered);
    if (*out_lowered == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for the places of %u records", list->count);
    mica_status status = mica__passes_lower(device, list, *out_lowered, stats, out_work);
    if (status != MICA_OK) {
        mica__free(*out_lowered);
        *out_lowered = NULL;
    }
    return status;
}

mica_status mica__recording_create(mica_device *device, mica_queue *queue, mica__record_list *list,
                                   mica_session_stats *stats, mica_recording **out)
{
    mica_recording *recording = NULL;
    *out = NULL;
    mica_status status = make(device, queue, &recording);
    if (status != MICA_OK) {
        mica__record_list_free(list);
        return status;
    }
    recording->list = *list;
    memset(list, 0, sizeof *list);
    status = lower(device, &recording->list, stats, &recording->lowered, &recording->work);
    if (status != MICA_OK) {
        mica_recording_release(recording);
        return status;
    }
    recording->stats = *stats;
    *out = recording;
    return MICA_OK;
}

void mica_recording_release(mica_recording *recording)
{
    if (recording == NULL)
        return;
    mica_device *device = recording->device;
    mica__work_release(recording->work);
    mica__storages_free(&recording->storages);
    mica__record_list_free(&recording->list);
    mica__free(recording->lowered);
    mica__queue_unref(recording->queue);
    mica__lock_destroy(&recording->lock, &recording->guard);
    mica__free(recording);
    mica_device_release(device);
}

mica_status mica__recording_number(mica_recording *recording)
{
    return recording->storages.storage != NULL ? MICA_OK
                                               : mica__storages_build(&recording->list, &recording->storages);
}

/* ---- replay ---- */

/* Waits for the turn and submits. Lock held. */
static mica_status submit(mica_recording *recording, mica_fence **out_fence)
{
    if (recording->work == NULL)
        return mica__fail(MICA_ERR_STATE, "recording was left without commands by a failed rebind");
    (void)mica__work_wait(recording->work, NULL, NULL);
    return mica__work_submit(recording->work, recording->queue, out_fence);
}

mica_status mica_recording_replay(mica_recording *recording, mica_fence **out_fence)
{
    mica__call call;
    if (out_fence != NULL)
        *out_fence = NULL;
    if (recording == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "recording_replay: recording is NULL");
    mica__call_begin(&call, "recording_replay");
    mica__recording_lock(recording);
    const mica_status status = submit(recording, out_fence);
    mica__recording_unlock(recording);
    return mica__call_end(&call, status);
}

/* A thread whose calls can be cancelled waits for a fence. Lock held. */
static mica_status submit_and_wait(mica_recording *recording, const mica__call *call)
{
    mica_fence *fence = NULL;
    const bool plain = call->work == NULL && call->outer == NULL;
    MICA__TRY(submit(recording, plain ? NULL : &fence));
    const mica_status status =
        plain ? mica__work_wait(recording->work, NULL, NULL) : mica__passes_wait(recording->device, fence);
    mica_fence_release(fence);
    return status;
}

/* The lock is held to the end: a replay of another thread would have to wait anyway, and the result is surely
 * ours. */
mica_status mica_recording_replay_and_wait(mica_recording *recording)
{
    mica__call call;
    if (recording == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "recording_replay_and_wait: recording is NULL");
    mica__call_begin(&call, "recording_replay_and_wait");
    mica__recording_lock(recording);
    const mica_status status = submit_and_wait(recording, &call);
    mica__recording_unlock(recording);
    return mica__call_end(&call, status);
}

/* ---- clone ---- */

/* Fresh storage for every temporary; NULL at the numbers of all others. */
static mica_status fresh_temporaries(mica_device *device, const mica__storages *storages, mica__storage **out)
{
    for (uint32_t i = 0; i < storages->count; i++) {
        if (!storages->temporary[i])
            continue;
        mica_status status = mica__storage_create(device, storages->storage[i]->bytes, false, &out[i]);
        if (status != MICA_OK)
            return status;
    }
    return MICA_OK;
}

/* Adds a copy of `record` that uses fresh[number] where there is one. `operand` has room for its operands. */
static mica_status add_moved(mica__record_list *list, const mica__record *record,
                             const mica__storages *storages, mica__storage *const *fresh,
                             mica__operand *operand)
{
    mica__record moved = *record;
    moved.operand = operand;
    for (uint32_t i = 0; i < record->operand_count; i++) {
        operand[i] = record->operand[i];
        if (operand[i].memory == NULL)
            continue;
        mica__storage *storage = fresh[mica__storages_find(storages, operand[i].storage)];
        if (storage != NULL) {
            operand[i].storage = storage;
            operand[i].memory = storage->memory;
        }
    }
    return mica__record_list_add(list, &moved);
}

/* Copies the records, over the same storages. */
static mica_status copy_records(const mica__record_list *from, mica__record_list *to)
{
    mica_status status = MICA_OK;
    for (uint32_t i = 0; i < from->count && status == MICA_OK; i++)
        status = mica__record_list_add(to, from->record[i]);
    if (status != MICA_OK)
        mica__record_list_free(to);
    return status;
}

static mica_status clone_records(mica_device *device, const mica__record_list *from,
                                 const mica__storages *storages, mica__record_list *to)
{
    uint32_t most = 1;
    for (uint32_t i = 0; i < from->count; i++)
        most = from->record[i]->operand_count > most ? from->record[i]->operand_count : most;
    mica__storage **fresh = mica__calloc(storages->count + 1u, sizeof *fresh);
    mica__operand *operand = mica__alloc(most * sizeof *operand);
    mica_status status =
        fresh == NULL || operand == NULL
            ? mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory to clone %u records", from->count)
            : fresh_temporaries(device, storages, fresh);
    for (uint32_t i = 0; i < from->count && status == MICA_OK; i++)
        status = add_moved(to, from->record[i], storages, fresh, operand);
    for (uint32_t i = 0; fresh != NULL && i < storages->count; i++)
        mica__storage_release(fresh[i]); /* the records hold them now */
    mica__free(fresh);
    mica__free(operand);
    if (status != MICA_OK)
        mica__record_list_free(to);
    return status;
}

static mica_status clone(const mica_recording *recording, mica_recording **out_clone)
{
    mica__record_list list = {0};
    mica_recording *original = mica__recording_lock(recording);
    mica_session_stats stats = original->stats, lowered = {0};
    mica_status status = mica__recording_number(original);
    if (status == MICA_OK)
        status = clone_records(original->device, &original->list, &original->storages, &list);
    mica__recording_unlock(original);
    if (status == MICA_OK)
        status = mica__recording_create(recording->device, recording->queue, &list, &lowered, out_clone);
    if (status == MICA_OK)
        (*out_clone)->stats = stats;
    return status;
}

mica_status mica_recording_clone(const mica_recording *recording, mica_recording **out_clone)
{
    mica__call call;
    if (out_clone == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "recording_clone: out_clone is NULL");
    *out_clone = NULL;
    if (recording == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "recording_clone: recording is NULL");
    mica__passes_begin(&call, "recording_clone");
    return mica__call_end(&call, clone(recording, out_clone));
}

/* ---- optimise ---- */

/* What the recording as a whole went through: the new shape, the sum of the passes. */
static void merge_stats(mica_session_stats *whole, const mica_session_stats *step)
{
    mica_session_stats merged = *step;
    merged.records_in = whole->records_in;
    merged.fusions += whole->fusions;
    merged.reordered += whole->reordered;
    merged.encode_ns += whole->encode_ns;
    *whole = merged;
}

/* Works on copies, so that a failure leaves the recording as it was. Lock held. */
static mica_status optimize(mica_recording *recording, uint32_t flags, mica_session_stats *stats)
{
    mica__record_list list = {0};
    mica__lowered *lowered = NULL;
    mica__work *work = NULL;
    mica_status status = copy_records(&recording->list, &list);
    if (status != MICA_OK)
        return status;
    status = mica__passes_run(recording->device, &list, flags, stats);
    if (status == MICA_OK)
        status = lower(recording->device, &list, stats, &lowered, &work);
    if (status != MICA_OK) {
        mica__record_list_free(&list);
        return status;
    }
    mica__work_release(recording->work); /* waits for a running replay */
    mica__storages_free(&recording->storages);
    mica__record_list_free(&recording->list);
    mica__free(recording->lowered);
    recording->work = work;
    recording->list = list;
    recording->lowered = lowered;
    return MICA_OK;
}

mica_status mica_recording_optimize(mica_recording *recording, uint32_t flags, mica_session_stats *out_stats)
{
    mica_session_stats stats = {0};
    if (out_stats != NULL)
        memset(out_stats, 0, sizeof *out_stats);
    mica__call call;
    if (recording == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "recording_optimize: recording is NULL");
    mica__passes_begin(&call, "recording_optimize");
    mica_status status = mica__passes_check_flags(flags);
    if (status != MICA_OK)
        return mica__call_end(&call, status);
    uint64_t begin = mica__clock_ns();
    mica__recording_lock(recording);
    status = optimize(recording, flags, &stats);
    stats.encode_ns = mica__clock_ns() - begin;
    if (status == MICA_OK)
        merge_stats(&recording->stats, &stats);
    mica__recording_unlock(recording);
    if (status == MICA_OK && out_stats != NULL)
        *out_stats = stats;
    return mica__call_end(&call, status);
}
