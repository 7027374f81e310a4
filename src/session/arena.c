/* arena.c - see arena.h. */
#include "session/arena.h"

#include "base/alloc.h"
#include "base/status.h"
#include "device/inflight.h"

/* ---- life ---- */

mica_status mica_arena_create(mica_device *device, mica_arena **out_arena)
{
    if (out_arena == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "arena_create: out_arena is NULL");
    *out_arena = NULL;
    if (device == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "arena_create: device is NULL");
    mica_arena *arena = mica__calloc(1, sizeof *arena);
    if (arena == NULL || mica__lock_init(&arena->lock, &arena->guard, false) != MICA_OK) {
        mica__free(arena);
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for an arena");
    }
    atomic_init(&arena->references, 1);
    arena->device = mica_device_retain(device);
    *out_arena = arena;
    return MICA_OK;
}

mica_arena *mica__arena_retain(mica_arena *arena)
{
    if (arena != NULL)
        atomic_fetch_add_explicit(&arena->references, 1, memory_order_relaxed);
    return arena;
}

void mica_arena_release(mica_arena *arena)
{
    if (arena == NULL || atomic_fetch_sub_explicit(&arena->references, 1, memory_order_acq_rel) != 1)
        return;
    mica_device *device = arena->device;
    mica__storage_release(arena->storage);
    mica__scratch_release(&arena->scratch);
    mica__queue_unref(arena->last.queue);
    mica__queue_unref(arena->replayed.queue);
    mica__lock_destroy(&arena->lock, &arena->guard);
    mica__free(arena);
    mica_device_release(device);
}

uint64_t mica_arena_bytes(const mica_arena *arena)
{
    mica_arena *open = (mica_arena *)arena;
    if (arena == NULL)
        return 0;
    pthread_mutex_lock(&open->lock);
    const uint64_t bytes = open->storage == NULL ? 0 : open->storage->bytes;
    pthread_mutex_unlock(&open->lock);
    return bytes;
}

/* ---- submissions ---- */

static void set_mark(mica__arena_mark *mark, mica_queue *queue, uint64_t value)
{
    mica_queue *old = mark->queue;
    if (queue != NULL && queue != old)
        atomic_fetch_add(&queue->references, 1);
    *mark = (mica__arena_mark){queue, value};
    if (queue != old)
        mica__queue_unref(old);
}

/* How it ended is for its fence to say. Lock held. */
static void wait_mark(const mica_arena *arena, const mica__arena_mark *mark)
{
    mica__completion done;
    if (mark->value != 0)
        (void)mica__inflight_wait(arena->device, mark->queue, mark->value, MICA_WAIT_FOREVER, &done);
}

/* One queue keeps the order by itself; between two the host waits. Lock held. */
static mica_status submit(mica_arena *arena, mica__work *work, mica_queue *queue, mica_fence **out_fence)
{
    const bool reusable = work->reusable;
    mica_fence *fence = NULL;
    if (arena->last.queue != queue)
        wait_mark(arena, &arena->last);
    const mica_status status = mica__work_submit(work, queue, reusable ? out_fence : &fence);
    if (status != MICA_OK)
        return status;
    const uint64_t value = reusable ? work->value : mica_fence_value(fence);
    set_mark(&arena->last, queue, value);
    if (reusable)
        set_mark(&arena->replayed, queue, value);
    else if (out_fence != NULL)
        *out_fence = fence;
    else
        mica_fence_release(fence);
    return MICA_OK;
}

mica_status mica__arena_submit(mica_arena *arena, mica__work *work, mica_queue *queue, uint64_t generation,
                               mica_fence **out_fence, bool *out_stale)
{
    *out_stale = false;
    if (arena == NULL)
        return mica__work_submit(work, queue, out_fence);
    pthread_mutex_lock(&arena->lock);
    *out_stale = work->reusable && generation != MICA__NO_GENERATION && arena->generation != generation;
    const mica_status status = *out_stale ? MICA_OK : submit(arena, work, queue, out_fence);
    pthread_mutex_unlock(&arena->lock);
    return status;
}

/* ---- memory ---- */

/* The old memory goes first, so that both are not needed at once; work that runs once may still have it. Lock held. */
static mica_status grow(mica_arena *arena, uint64_t bytes)
{
    wait_mark(arena, &arena->replayed);
    mica__storage_release(arena->storage);
    arena->storage = NULL;
    arena->generation++;
    mica_status status = mica__storage_create(arena->device, bytes, false, &arena->storage);
    if (status == MICA_ERR_BUDGET || status == MICA_ERR_OUT_OF_MEMORY) {
        wait_mark(arena, &arena->last);
        status = mica__storage_create(arena->device, bytes, false, &arena->storage);
    }
    return status;
}

mica_status mica__arena_reserve(mica_arena *arena, uint64_t bytes, mica__storage **out,
                                uint64_t *out_generation)
{
    mica_status status = MICA_OK;
    *out = NULL;
    pthread_mutex_lock(&arena->lock);
    if (bytes > 0 && (arena->storage == NULL || arena->storage->bytes < bytes))
        status = grow(arena, bytes);
    if (status == MICA_OK && bytes > 0)
        *out = mica__storage_retain(arena->storage);
    *out_generation = bytes > 0 ? arena->generation : MICA__NO_GENERATION;
    pthread_mutex_unlock(&arena->lock);
    return status;
}

mica_status mica__arena_lend(mica_arena *arena, mica__scratch *out)
{
    pthread_mutex_lock(&arena->lock);
    const mica_status status = mica__scratch_share(&arena->scratch, out);
    pthread_mutex_unlock(&arena->lock);
    return status;
}

mica_status mica__arena_keep(mica_arena *arena, const mica__scratch *scratch)
{
    pthread_mutex_lock(&arena->lock);
    const mica_status status = mica__scratch_share(scratch, &arena->scratch);
    pthread_mutex_unlock(&arena->lock);
    return status;
}
