/* storage.c - one backend allocation each, under the device's ledger and residency set. */
#include <string.h>

#include "base/alloc.h"
#include "base/env.h"
#include "base/status.h"
#include "device/objects.h"

void mica__residency_change(mica_device *device, int64_t delta)
{
    pthread_mutex_lock(&device->lock);
    device->resident += (uint64_t)delta;
    device->residency_pending = 1;
    pthread_mutex_unlock(&device->lock);
}

void mica__residency_flush(mica_device *device)
{
    pthread_mutex_lock(&device->lock);
    device->residency_commits += device->residency_pending;
    device->residency_pending = 0;
    pthread_mutex_unlock(&device->lock);
}

/* Books `bytes` as owned, or refuses. */
static mica_status ledger_take(mica_device *device, uint64_t bytes)
{
    mica_status status = MICA_OK;
    pthread_mutex_lock(&device->lock);
    uint64_t owned = device->owned, budget = device->budget;
    if (budget != 0 && (bytes > budget || owned > budget - bytes)) {
        status = MICA_ERR_BUDGET;
    } else {
        device->owned += bytes;
        if (device->owned > device->owned_peak)
            device->owned_peak = device->owned;
        device->buffer_count++;
    }
    pthread_mutex_unlock(&device->lock);
    if (status != MICA_OK)
        mica__fail(status, "budget: %llu bytes more would exceed the budget of %llu (%llu owned)",
                   (unsigned long long)bytes, (unsigned long long)budget, (unsigned long long)owned);
    return status;
}

static void ledger_give(mica_device *device, uint64_t bytes, bool imported)
{
    pthread_mutex_lock(&device->lock);
    if (imported)
        device->mapped -= bytes;
    else
        device->owned -= bytes;
    device->buffer_count--;
    pthread_mutex_unlock(&device->lock);
}

/* Fills fresh memory: zeros, or under the debug word "poison" a pattern that no test mistakes for a value. */
static mica_status clear_memory(mica_device *device, mica__memory *memory, uint64_t bytes, int byte)
{
    void *pointer = NULL;
    if (device->table->buffer_fill != NULL)
        return device->table->buffer_fill(device->impl, memory, (uint8_t)byte);
    if (device->table->buffer_map != NULL &&
        device->table->buffer_map(device->impl, memory, &pointer) == MICA_OK) {
        memset(pointer, byte, bytes);
        if (device->table->buffer_unmap != NULL)
            device->table->buffer_unmap(device->impl, memory);
        return MICA_OK;
    }
    unsigned char block[4096];
    memset(block, byte, sizeof block);
    for (uint64_t at = 0; at < bytes; at += sizeof block) {
        uint64_t n = bytes - at < sizeof block ? bytes - at : sizeof block;
        mica_status status = device->table->upload(device->impl, memory, at, block, n);
        if (status != MICA_OK)
            return status;
    }
    return MICA_OK;
}

mica_status mica__storage_create(mica_device *device, uint64_t bytes, bool zero, mica__storage **out)
{
    *out = NULL;
    mica_status status = ledger_take(device, bytes);
    if (status != MICA_OK)
        return status;
    mica__storage *storage = mica__calloc(1, sizeof *storage);
    if (storage == NULL)
        status = mica__fail(MICA_ERR_OUT_OF_MEMORY, "no host memory for a buffer");
    else
        status = device->table->buffer_create(device->impl, bytes, &storage->memory);
    bool poison = !zero && mica__env_debug(MICA__DEBUG_POISON);
    if (status == MICA_OK && (zero || poison)) {
        status = clear_memory(device, storage->memory, bytes, zero ? 0 : 0xa5);
        if (status != MICA_OK)
            device->table->buffer_destroy(device->impl, storage->memory);
    }
    if (status != MICA_OK) {
        mica__free(storage);
        ledger_give(device, bytes, false);
        return status;
    }
    atomic_init(&storage->references, 1);
    storage->device = device;
    storage->bytes = bytes;
    mica__residency_change(device, 1);
    MICA__COUNT(device, buffers_created, 1);
    *out = storage;
    return MICA_OK;
}

mica_status mica__storage_import(mica_device *device, void *pointer, uint64_t bytes, bool read_only,
                                 mica__storage **out)
{
    *out = NULL;
    if (device->table->buffer_import == NULL)
        return mica__fail(MICA_ERR_UNSUPPORTED, "device %s cannot use host memory in place",
                          device->info.properties.id);
    mica__storage *storage = mica__calloc(1, sizeof *storage);
    if (storage == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no host memory for a buffer");
    /* Nothing at all needs no pointer, but memory that stands for it. */
    mica_status status = pointer == NULL
                             ? device->table->buffer_create(device->impl, 0, &storage->memory)
                             : device->table->buffer_import(device->impl, pointer, bytes, &storage->memory);
    if (status != MICA_OK) {
        mica__free(storage);
        return status;
    }
    atomic_init(&storage->references, 1);
    storage->device = device;
    storage->bytes = bytes;
    storage->imported = 1;
    storage->read_only = read_only;
    storage->import_pointer = pointer;
    pthread_mutex_lock(&device->lock);
    device->mapped += bytes;
    device->buffer_count++;
    pthread_mutex_unlock(&device->lock);
    mica__residency_change(device, 1);
    *out = storage;
    return MICA_OK;
}

mica_status mica__storage_promise(mica_device *device, uint64_t bytes, mica__storage **out)
{
    mica__storage *storage = mica__calloc(1, sizeof *storage);
    *out = storage;
    if (storage == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no host memory for a buffer");
    atomic_init(&storage->references, 1);
    storage->device = device;
    storage->bytes = bytes;
    return MICA_OK;
}

mica__storage *mica__storage_retain(mica__storage *storage)
{
    atomic_fetch_add_explicit(&storage->references, 1, memory_order_relaxed);
    return storage;
}

void mica__storage_release(mica__storage *storage)
{
    if (storage == NULL || atomic_fetch_sub_explicit(&storage->references, 1, memory_order_acq_rel) != 1)
        return;
    mica_device *device = storage->device;
    if (storage->memory != NULL) {
        device->table->buffer_destroy(device->impl, storage->memory);
        ledger_give(device, storage->bytes, storage->imported);
        if (!storage->evicted)
            mica__residency_change(device, -1);
    }
    if (storage->release != NULL)
        storage->release(storage->release_context, storage->import_pointer);
    mica__free(storage);
}
