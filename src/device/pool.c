/*
 * pool.c - storage recycled in power-of-two buckets, newest first.
 *
 * The pool holds one reference on every storage it made. A storage whose only reference is the pool's is free: it goes
 * back to its bucket at the next reset (or when the free list of its bucket runs dry).
 */
#include <string.h>

#include "base/alloc.h"
#include "base/env.h"
#include "base/log.h"
#include "base/status.h"
#include "device/objects.h"

#define BUCKETS 64

typedef struct storage_list {
    mica__storage **item;
    uint32_t count, capacity;
} storage_list;

struct mica_pool {
    mica_device *device;
    bool keeps_device; /* the device's own scratch pool does not */
    pthread_mutex_t lock;
    mica__fork_guard guard;
    storage_list free_list[BUCKETS];
    storage_list in_use;
    storage_list registered;
    uint64_t hits, misses, outlived;
};

/* Smallest b with 2^b >= bytes. */
static uint32_t bucket_of(uint64_t bytes)
{
    uint32_t b = 0;
    while (b < BUCKETS - 1 && ((uint64_t)1 << b) < bytes)
        b++;
    return b;
}

static bool list_reserve(storage_list *list)
{
    if (list->count < list->capacity)
        return true;
    uint32_t capacity = list->capacity * 2 + 16;
    mica__storage **grown = mica__realloc(list->item, capacity * sizeof *grown);
    if (grown == NULL)
        return false;
    list->item = grown;
    list->capacity = capacity;
    return true;
}

static void list_drop(storage_list *list)
{
    for (uint32_t i = 0; i < list->count; i++)
        mica__storage_release(list->item[i]);
    mica__free(list->item);
    memset(list, 0, sizeof *list);
}

/* Moves what nobody else holds from in_use to the free lists. Returns how many are still held. Lock held. */
static uint64_t sweep(mica_pool *pool)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < pool->in_use.count; i++) {
        mica__storage *storage = pool->in_use.item[i];
        storage_list *bucket = &pool->free_list[bucket_of(storage->bytes)];
        bool free_now = atomic_load_explicit(&storage->references, memory_order_acquire) == 1;
        if (free_now && list_reserve(bucket))
            bucket->item[bucket->count++] = storage;
        else
            pool->in_use.item[kept++] = storage;
    }
    pool->in_use.count = kept;
    return kept;
}

mica_status mica__pool_open(mica_device *device, bool keep_device, mica_pool **out)
{
    mica_pool *pool = mica__calloc(1, sizeof *pool);
    if (pool == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no host memory for a pool");
    const mica_status status = mica__lock_init(&pool->lock, &pool->guard, true);
    if (status != MICA_OK) {
        mica__free(pool);
        return status;
    }
    pool->device = keep_device ? mica_device_retain(device) : device;
    pool->keeps_device = keep_device;
    *out = pool;
    return MICA_OK;
}

mica_status mica_pool_create(mica_device *device, mica_pool **out_pool)
{
    if (out_pool == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "pool_create: out_pool is NULL");
    *out_pool = NULL;
    if (device == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "pool_create: device is NULL");
    return mica__pool_open(device, true, out_pool);
}

void mica_pool_release(mica_pool *pool)
{
    if (pool == NULL)
        return;
    for (uint32_t b = 0; b < BUCKETS; b++)
        list_drop(&pool->free_list[b]);
    list_drop(&pool->in_use);
    list_drop(&pool->registered);
    mica__lock_destroy(&pool->lock, &pool->guard);
    mica_device *device = pool->keeps_device ? pool->device : NULL;
    mica__free(pool);
    mica_device_release(device);
}

mica_status mica__pool_take(mica_pool *pool, uint64_t bytes, mica__storage **out)
{
    mica_status status = MICA_OK;
    mica__storage *storage = NULL;
    uint32_t bucket = bucket_of(bytes);
    storage_list *list = &pool->free_list[bucket];
    pthread_mutex_lock(&pool->lock);
    if (list->count == 0 && !pool->keeps_device)
        sweep(pool); /* the scratch pool is never reset by anyone */
    if (!list_reserve(&pool->in_use)) {
        status = mica__fail(MICA_ERR_OUT_OF_MEMORY, "no host memory for a pool entry");
    } else if (list->count > 0) {
        storage = list->item[--list->count];
        pool->hits++;
    } else {
        status = mica__storage_create(pool->device, (uint64_t)1 << bucket, true, &storage);
        pool->misses++;
    }
    if (status == MICA_OK)
        pool->in_use.item[pool->in_use.count++] = mica__storage_retain(storage);
    pthread_mutex_unlock(&pool->lock);
    *out = storage;
    return status;
}

mica_status mica_pool_alloc(mica_pool *pool, const mica_buffer_desc *desc, mica_buffer **out_buffer)
{
    uint64_t bytes = 0;
    mica__storage *storage = NULL;
    if (out_buffer == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "pool_alloc: out_buffer is NULL");
    *out_buffer = NULL;
    if (pool == NULL || desc == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "pool_alloc: %s is NULL",
                          pool == NULL ? "pool" : "desc");
    mica_status status = mica__desc_check(desc, NULL, NULL, &bytes);
    if (status == MICA_OK && bytes > ((uint64_t)1 << 62))
        status = mica__fail(MICA_ERR_INVALID_ARGUMENT, "pool_alloc: shape: the bucket size overflows");
    if (status == MICA_OK)
        status = mica__pool_take(pool, bytes, &storage);
    if (status == MICA_OK)
        status = mica__buffer_over(storage, desc, NULL, out_buffer);
    mica__storage_release(storage);
    return status;
}

mica_status mica_pool_alloc_batch(mica_pool *pool, const mica_buffer_desc *descs, uint32_t count,
                                  mica_buffer **out_buffers)
{
    if (out_buffers == NULL || descs == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "pool_alloc_batch: %s is NULL",
                          descs == NULL ? "descs" : "out_buffers");
    memset(out_buffers, 0, count * sizeof *out_buffers);
    for (uint32_t i = 0; i < count; i++) {
        mica_status status = mica_pool_alloc(pool, &descs[i], &out_buffers[i]);
        if (status != MICA_OK) {
            while (i-- > 0) {
                mica_buffer_release(out_buffers[i]);
                out_buffers[i] = NULL;
            }
            return status;
        }
    }
    return MICA_OK;
}

mica_status mica_pool_reset(mica_pool *pool)
{
    if (pool == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "pool_reset: pool is NULL");
    pthread_mutex_lock(&pool->lock);
    uint64_t held = sweep(pool);
    pool->outlived += held;
    pthread_mutex_unlock(&pool->lock);
    if (held > 0 && mica__env_debug(MICA__DEBUG_VALIDATE))
        mica__log(MICA_LOG_WARNING, "pool: %llu buffers are still held at a reset", (unsigned long long)held);
    return MICA_OK;
}

mica_status mica_pool_clear(mica_pool *pool)
{
    if (pool == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "pool_clear: pool is NULL");
    pthread_mutex_lock(&pool->lock);
    for (uint32_t b = 0; b < BUCKETS; b++)
        list_drop(&pool->free_list[b]);
    pthread_mutex_unlock(&pool->lock);
    return MICA_OK;
}

mica_status mica_pool_register(mica_pool *pool, mica_buffer *buffer)
{
    mica_status status = MICA_OK;
    if (pool == NULL || buffer == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "pool_register: %s is NULL",
                          pool == NULL ? "pool" : "buffer");
    if (buffer->storage->device != pool->device)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "pool_register: buffer is on another device");
    MICA__TRY(mica__buffer_placed("pool_register", buffer));
    pthread_mutex_lock(&pool->lock);
    bool known = false;
    for (uint32_t i = 0; i < pool->registered.count && !known; i++)
        known = pool->registered.item[i] == buffer->storage;
    if (!known && !list_reserve(&pool->registered))
        status = mica__fail(MICA_ERR_OUT_OF_MEMORY, "no host memory for a pool entry");
    else if (!known)
        pool->registered.item[pool->registered.count++] = mica__storage_retain(buffer->storage);
    pthread_mutex_unlock(&pool->lock);
    return status;
}

mica_status mica_pool_get_stats(const mica_pool *pool, mica_pool_stats *out)
{
    if (pool == NULL || out == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "pool_get_stats: %s is NULL",
                          pool == NULL ? "pool" : "out");
    mica_pool *self = (mica_pool *)pool; /* the lock is the pool's, whoever reads */
    memset(out, 0, sizeof *out);
    pthread_mutex_lock(&self->lock);
    for (uint32_t b = 0; b < BUCKETS; b++) {
        out->free_count += pool->free_list[b].count;
        for (uint32_t i = 0; i < pool->free_list[b].count; i++)
            out->free_bytes += pool->free_list[b].item[i]->bytes;
    }
    out->in_use_count = pool->in_use.count;
    for (uint32_t i = 0; i < pool->in_use.count; i++)
        out->in_use_bytes += pool->in_use.item[i]->bytes;
    out->hits = pool->hits;
    out->misses = pool->misses;
    out->registered = pool->registered.count;
    out->outlived = pool->outlived;
    pthread_mutex_unlock(&self->lock);
    return MICA_OK;
}
