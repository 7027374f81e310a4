/* device.c - the list of devices, opening one, its facts and its ledger. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/argument.h"
#include "base/env.h"
#include "base/log.h"
#include "base/status.h"
#include "device/backends.h"
#include "device/objects.h"
#include "device/registry.h"
#include "device/work.h"

static void fill_entry(const mica__backend *backend, uint32_t index, uint32_t count, mica_device_entry *entry)
{
    memset(entry, 0, sizeof *entry);
    snprintf(entry->id, sizeof entry->id, count > 1 ? "%s:%u" : "%s", backend->name, index);
    if (backend->describe(index, entry->name, sizeof entry->name) == MICA_OK)
        entry->usable = 1;
    else
        snprintf(entry->reason, sizeof entry->reason, "%.*s", (int)sizeof entry->reason - 1,
                 mica_status_message());
}

mica_status mica_device_list(mica_device_entry *entries, uint32_t capacity, uint32_t *out_count)
{
    if (out_count == NULL || (entries == NULL && capacity > 0))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "device_list: %s is NULL",
                          out_count == NULL ? "out_count" : "entries");
    uint32_t total = 0;
    const mica__backend *backend;
    for (uint32_t b = 0; (backend = mica__backend_at(b)) != NULL; b++) {
        char reason[MICA_NAME_BYTES] = "";
        uint32_t count = backend->probe(reason, sizeof reason);
        for (uint32_t i = 0; i < count; i++, total++)
            if (total < capacity)
                fill_entry(backend, i, count, &entries[total]);
        if (count == 0) {
            if (total < capacity) {
                memset(&entries[total], 0, sizeof entries[total]);
                snprintf(entries[total].id, sizeof entries[total].id, "%s", backend->name);
                snprintf(entries[total].reason, sizeof entries[total].reason, "%s", reason);
            }
            total++;
        }
    }
    *out_count = total;
    return MICA_OK;
}

/* "name" or "name:3". */
static bool id_matches(const char *id, const mica__backend *backend, uint32_t *out_index)
{
    size_t n = strlen(backend->name);
    if (strncmp(id, backend->name, n) != 0)
        return false;
    *out_index = 0;
    if (id[n] == '\0')
        return true;
    if (id[n] != ':' || id[n + 1] < '0' || id[n + 1] > '9')
        return false;
    char *end = NULL;
    unsigned long index = strtoul(id + n + 1, &end, 10);
    if (*end != '\0' || index > UINT32_MAX)
        return false;
    *out_index = (uint32_t)index;
    return true;
}

static mica_status not_found(const char *id)
{
    mica_device_entry entries[16];
    uint32_t count = 0;
    char known[256] = "";
    size_t at = 0;
    mica_device_list(entries, 16, &count);
    for (uint32_t i = 0; i < count && i < 16; i++)
        if (entries[i].usable && at < sizeof known - sizeof entries[i].id - 3)
            at +=
                (size_t)snprintf(known + at, sizeof known - at, "%s%.31s", at > 0 ? ", " : "", entries[i].id);
    return mica__fail(MICA_ERR_DEVICE_NOT_FOUND,
                      "device_open: id \"%.40s\" names no device here; there is %s", id, known);
}

static mica_status find_backend(const char *id, const mica__backend **out, uint32_t *out_index)
{
    const mica__backend *backend;
    bool automatic = strcmp(id, "auto") == 0;
    if (automatic && mica__env_get()->device[0] != '\0') {
        id = mica__env_get()->device;
        automatic = strcmp(id, "auto") == 0;
    }
    for (uint32_t b = 0; (backend = mica__backend_at(b)) != NULL; b++) {
        char reason[MICA_NAME_BYTES] = "";
        *out_index = 0;
        if (!automatic && !id_matches(id, backend, out_index))
            continue;
        uint32_t count = automatic && backend->automatic != NULL ? backend->automatic()
                                                                 : backend->probe(reason, sizeof reason);
        if (*out_index < count) {
            *out = backend;
            return MICA_OK;
        }
        if (!automatic && count == 0)
            return mica__fail(MICA_ERR_DEVICE_NOT_FOUND, "device_open: id \"%.40s\": %s", id, reason);
    }
    return not_found(id);
}

static mica_status open_parts(mica_device *device, uint32_t index, const mica_device_options *options)
{
    mica_status status = device->backend->open(index, options, &device->impl, &device->table);
    if (status != MICA_OK)
        return status;
    device->table->info(device->impl, &device->info);
    status = mica__registry_create(device, &device->registry);
    if (status == MICA_OK)
        status = mica__pool_open(device, false, &device->scratch);
    if (status == MICA_OK && mica__env_get()->trace_path[0] != '\0')
        status = mica_profile_begin(device);
    return status;
}

/* MICA_TRACE: the timeline goes to its file when the device closes. A program that takes profiles itself has ended this one:
 * then the file has what it took last. */
static void write_trace(mica_device *device)
{
    const char *path = mica__env_get()->trace_path;
    if (path[0] == '\0')
        return;
    const mica_status ended = mica_profile_end(device);
    if (ended != MICA_OK && ended != MICA_ERR_STATE)
        return;
    if (mica_profile_write_trace(device, path) != MICA_OK)
        mica__log(MICA_LOG_ERROR, "MICA_TRACE: %s", mica_status_message());
}

static void close_parts(mica_device *device)
{
    if (device->table != NULL) {
        mica__device_wait_idle(device);
        write_trace(device);
    }
    mica__lowering_free(device->spare_lowering);
    mica__free(device->spare_fence);
    mica_pool_release(device->scratch);
    mica__registry_destroy(device->registry);
    if (device->table != NULL)
        device->table->close(device->impl);
    mica__free(device->profile.entry);
    mica__free(device->profile.bucket);
    mica__lock_destroy(&device->lock, &device->guard);
    mica__free(device);
}

mica_status mica_device_open(const char *id, const mica_device_options *options, mica_device **out_device)
{
    const mica__backend *backend = NULL;
    mica_device_options chosen;
    uint32_t index = 0;
    if (out_device == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "device_open: out_device is NULL");
    *out_device = NULL;
    if (id == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "device_open: id is NULL");
    mica_status status = mica__take_options("device_open: options", options, sizeof chosen, &chosen);
    if (status != MICA_OK)
        return status;
    if (memchr(chosen.isa, '\0', sizeof chosen.isa) == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "device_open: options.isa has no end");
    status = find_backend(id, &backend, &index);
    if (backend == NULL)
        return status;
    mica_device *device = mica__calloc(1, sizeof *device);
    if (device == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no host memory for a device");
    status = mica__lock_init(&device->lock, &device->guard, true);
    if (status != MICA_OK) {
        mica__free(device);
        return status;
    }
    device->generation = mica__fork_generation();
    atomic_init(&device->references, 1);
    device->backend = backend;
    device->budget = chosen.budget_bytes;
    status = open_parts(device, index, &chosen);
    if (status != MICA_OK) {
        close_parts(device);
        return status;
    }
    *out_device = device;
    return MICA_OK;
}

mica_device *mica_device_retain(mica_device *device)
{
    if (device != NULL)
        atomic_fetch_add_explicit(&device->references, 1, memory_order_relaxed);
    return device;
}

void mica_device_release(mica_device *device)
{
    if (device != NULL && atomic_fetch_sub_explicit(&device->references, 1, memory_order_acq_rel) == 1)
        close_parts(device);
}

mica_status mica_device_get_properties(const mica_device *device, mica_device_properties *out)
{
    if (device == NULL || out == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "device_get_properties: %s is NULL",
                          device == NULL ? "device" : "out");
    *out = device->info.properties;
    return MICA_OK;
}

mica_status mica_device_find_libraries(const mica_device *device, char *out, uint64_t out_bytes)
{
    if (device == NULL || out == NULL || out_bytes == 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "device_find_libraries: %s is NULL or has no room",
                          device == NULL ? "device" : "out");
    out[0] = '\0';
    if (device->backend->libraries != NULL)
        device->backend->libraries(out, (size_t)out_bytes);
    return MICA_OK;
}

mica_status mica_device_get_memory(const mica_device *device, mica_device_memory *out)
{
    if (device == NULL || out == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "device_get_memory: %s is NULL",
                          device == NULL ? "device" : "out");
    mica_device *self = (mica_device *)device;
    memset(out, 0, sizeof *out);
    device->table->memory(device->impl, &out->free_bytes, &out->total_bytes);
    pthread_mutex_lock(&self->lock);
    out->owned_bytes = device->owned;
    out->owned_peak_bytes = device->owned_peak;
    out->mapped_bytes = device->mapped;
    out->budget_bytes = device->budget;
    out->buffer_count = device->buffer_count;
    pthread_mutex_unlock(&self->lock);
    return MICA_OK;
}

mica_status mica_device_set_budget(mica_device *device, uint64_t bytes)
{
    if (device == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "device_set_budget: device is NULL");
    pthread_mutex_lock(&device->lock);
    uint64_t owned = device->owned;
    bool fits = bytes == 0 || owned <= bytes;
    if (fits)
        device->budget = bytes;
    pthread_mutex_unlock(&device->lock);
    if (!fits)
        return mica__fail(MICA_ERR_BUDGET, "device_set_budget: bytes %llu, but %llu are owned already",
                          (unsigned long long)bytes, (unsigned long long)owned);
    return MICA_OK;
}

mica_status mica_device_synchronize(mica_device *device)
{
    if (device == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "device_synchronize: device is NULL");
    MICA__COUNT(device, syncs, 1);
    return mica__device_wait_idle(device);
}

mica_status mica_device_native(const mica_device *device, void **out_handle)
{
    if (device == NULL || out_handle == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "device_native: %s is NULL",
                          device == NULL ? "device" : "out_handle");
    *out_handle = device->info.native;
    return MICA_OK;
}

mica_status mica_device_get_residency(const mica_device *device, mica_residency_stats *out)
{
    if (device == NULL || out == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "device_get_residency: %s is NULL",
                          device == NULL ? "device" : "out");
    mica_device *self = (mica_device *)device;
    pthread_mutex_lock(&self->lock);
    out->allocations = device->resident;
    out->commits = device->residency_commits;
    out->pending = device->residency_pending;
    pthread_mutex_unlock(&self->lock);
    return MICA_OK;
}

static mica_status residency_edit(const char *call, mica_device *device, mica_buffer *buffer, int64_t delta)
{
    if (device == NULL || buffer == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: %s is NULL", call,
                          device == NULL ? "device" : "buffer");
    if (buffer->storage->device != device)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: buffer is on another device", call);
    MICA__TRY(mica__buffer_placed(call, buffer));
    mica__storage *storage = buffer->storage;
    bool leave = delta < 0;
    pthread_mutex_lock(&device->lock);
    bool change = storage->evicted != leave;
    if (change) {
        storage->evicted = leave;
        device->resident += (uint64_t)delta;
        device->residency_pending = 1;
    }
    pthread_mutex_unlock(&device->lock);
    return MICA_OK;
}

mica_status mica_device_residency_add(mica_device *device, mica_buffer *buffer)
{
    return residency_edit("device_residency_add", device, buffer, 1);
}

mica_status mica_device_residency_remove(mica_device *device, mica_buffer *buffer)
{
    return residency_edit("device_residency_remove", device, buffer, -1);
}
