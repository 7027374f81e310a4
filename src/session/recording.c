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

void mica__recorded_pass_free(mica__recorded_pass *pass)
{
    mica__record_list_free(&pass->list);
    mica__placement_free(&pass->placement);
    mica__slots_free(&pass->slots);
}

/* What replaces the commands of a recording. */
typedef struct commands {
    mica_arena *arena;
    mica__lowered *lowered;
    mica__work *work;
    uint64_t generation;
} commands;

static void drop(commands *made)
{
    mica__work_release(made->work); /* waits for a running replay */
    mica_arena_release(made->arena);
    mica__free(made->lowered);
}

/* Lowers a pass into fresh work with its places, in `arena`, or in one of its own where it needs one. On failure nothing is
 * left. */
static mica_status lower(mica_device *device, const mica__recorded_pass *pass, mica_arena *arena,
                         mica_session_stats *stats, commands *out)
{
    *out = (commands){.arena = mica__arena_retain(arena)};
    out->lowered = mica__calloc(pass->list.count + 1u, sizeof *out->lowered);
    mica_status status = MICA_OK;
    if (out->lowered == NULL)
        status =
            mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for the places of %u records", pass->list.count);
    if (status == MICA_OK && arena == NULL && pass->placement.bytes > 0)
        status = mica_arena_create(device, &out->arena);
    if (status == MICA_OK)
        status = mica__passes_lower(device, &pass->list, &pass->placement, out->arena, out->lowered, stats,
                                    &out->work, &out->generation);
    if (status != MICA_OK) {
        drop(out);
        *out = (commands){0};
    }
    return status;
}

static void take(mica_recording *recording, const commands *made)
{
    recording->arena = made->arena;
    recording->lowered = made->lowered;
    recording->work = made->work;
    recording->generation = made->generation;
}

mica_status mica__recording_create(mica_device *device, mica_queue *queue, mica__recorded_pass *pass,
                                   mica_arena *arena, mica_session_stats *stats, mica_recording **out)
{
    mica_recording *recording = NULL;
    commands made;
    *out = NULL;
    mica_status status = make(device, queue, &recording);
    if (status != MICA_OK) {
        mica__recorded_pass_free(pass);
        return status;
    }
    recording->pass = *pass;
    memset(pass, 0, sizeof *pass);
    recording->shared = arena != NULL;
    status = lower(device, &recording->pass, arena, stats, &made);
    if (status != MICA_OK) {
        mica_recording_release(recording);
        return status;
    }
    take(recording, &made);
    recording->stats = *stats;
    *out = recording;
    return MICA_OK;
}

void mica_recording_release(mica_recording *recording)
{
    if (recording == NULL)
        return;
    mica_device *device = recording->device;
    drop(&(commands){recording->arena, recording->lowered, recording->work, 0});
    mica__storages_free(&recording->storages);
    mica__uses_free(&recording->uses);
    mica__recorded_pass_free(&recording->pass);
    mica__queue_unref(recording->queue);
    mica__lock_destroy(&recording->lock, &recording->guard);
    mica__free(recording);
    mica_device_release(device);
}

mica_status mica__recording_lower(mica_recording *recording)
{
    mica_session_stats ignored = {0};
    mica__work *work = NULL;
    uint64_t generation = 0;
    MICA__TRY(mica__passes_lower(recording->device, &recording->pass.list, &recording->pass.placement,
                                 recording->arena, recording->lowered, &ignored, &work, &generation));
    mica__work_release(recording->work);
    recording->work = work;
    recording->generation = generation;
    return MICA_OK;
}

mica_status mica__recording_number(mica_recording *recording)
{
    return recording->storages.storage != NULL
               ? MICA_OK
               : mica__storages_build(&recording->pass.list, &recording->storages);
}

/* ---- replay ---- */

/* Waits for the turn and submits. Lock held. */
static mica_status submit(mica_recording *recording, mica_fence **out_fence)
{
    if (recording->work == NULL)
        return mica__fail(MICA_ERR_STATE, "recording was left without commands by a failed rebind");
    (void)mica__work_wait(recording->work, NULL, NULL);
    for (;;) {
        bool stale = false;
        MICA__TRY(mica__arena_submit(recording->arena, recording->work, recording->queue,
                                     recording->generation, out_fence, &stale));
        if (!stale)
            return MICA_OK;
        MICA__TRY(mica__recording_lower(recording)); /* where the arena is now */
    }
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

/* Temporaries have the same names and the same places, in an arena of the clone's own. */
static mica_status clone(const mica_recording *recording, mica_recording **out_clone)
{
    mica__recorded_pass pass = {0};
    mica_recording *original = mica__recording_lock(recording);
    mica_session_stats stats = original->stats, lowered = {0};
    mica_status status = copy_records(&original->pass.list, &pass.list);
    if (status == MICA_OK)
        status = mica__slots_copy(&original->pass.slots, &pass.slots);
    mica__recording_unlock(original);
    if (status == MICA_OK)
        status = mica__place(&pass.list, &pass.placement);
    if (status != MICA_OK) {
        mica__recorded_pass_free(&pass);
        return status;
    }
    status = mica__recording_create(recording->device, recording->queue, &pass, NULL, &lowered, out_clone);
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
    merged.temp_bytes = whole->temp_bytes;
    *whole = merged;
}

/* Works on copies, so that a failure leaves the recording as it was. Lock held. */
static mica_status optimize(mica_recording *recording, uint32_t flags, mica_session_stats *stats)
{
    mica__recorded_pass pass = {0};
    commands made;
    MICA__TRY(copy_records(&recording->pass.list, &pass.list));
    mica_status status = mica__passes_run(recording->device, &pass.list, flags, stats, &pass.placement);
    if (status == MICA_OK)
        status = lower(recording->device, &pass, recording->shared ? recording->arena : NULL, stats, &made);
    if (status != MICA_OK) {
        mica__recorded_pass_free(&pass);
        return status;
    }
    stats->temp_bytes = recording->stats.temp_bytes;
    drop(&(commands){recording->arena, recording->lowered, recording->work, 0});
    take(recording, &made);
    mica__storages_free(&recording->storages);
    mica__uses_free(&recording->uses);
    pass.slots = recording->pass.slots;
    memset(&recording->pass.slots, 0, sizeof recording->pass.slots);
    mica__recorded_pass_free(&recording->pass);
    recording->pass = pass;
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
