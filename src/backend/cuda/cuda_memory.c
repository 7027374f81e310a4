/*
 * cuda_memory.c - device memory, and the way to it and back.
 *
 * Memory comes from a pool of the driver in the order of a stream of its own, so that giving it back does not stop the
 * device; drivers without pools allocate plainly. Transfers go through pinned pieces, two to a staging: while one is on its
 * way, the other is filled. They block, and the device room has waited for the work that wrote what is read.
 */
#include <string.h>

#include "backend/checks.h"
#include "backend/cuda/cuda_device.h"
#include "base/alloc.h"

#define POOL_KEEPS ((uint64_t)256 << 20) /* free bytes that the pool does not give back to the system */
#define DUMMY_BYTES 256u

uint64_t mica__cuda_address(const mica__memory *memory)
{
    return (uint64_t)(uintptr_t)memory->native;
}

/* ---- allocation ---- */

/* A pool is used whole or not at all. */
static void open_pool(mica__device *device)
{
    const mica__cuda_driver *driver = &device->driver;
    const mica__cuda_pool_desc desc = {.allocation = MICA__CUDA_ALLOCATION_PINNED,
                                       .location = MICA__CUDA_LOCATION_DEVICE,
                                       .device = device->ordinal};
    uint64_t keeps = POOL_KEEPS;
    int supported = 0;
    if (driver->pool_create == NULL || driver->pool_destroy == NULL || driver->pool_set == NULL ||
        driver->pool_trim == NULL || driver->pool_alloc == NULL || driver->pool_free == NULL)
        return;
    if (driver->device_attribute(&supported, MICA__CUDA_DEVICE_POOLS, device->ordinal) != 0 || supported == 0)
        return;
    if (driver->stream_create(&device->pool_stream, MICA__CUDA_STREAM_NON_BLOCKING) != 0) {
        device->pool_stream = NULL;
        return;
    }
    if (driver->pool_create(&device->pool, &desc) == 0) {
        if (driver->pool_set(device->pool, MICA__CUDA_POOL_RELEASE_THRESHOLD, &keeps) == 0)
            return;
        driver->pool_destroy(device->pool);
    }
    device->pool = NULL;
    driver->stream_destroy(device->pool_stream);
    device->pool_stream = NULL;
}

/* The memory may be used by any stream when this returns. */
static int take(mica__device *device, uint64_t *out, size_t bytes)
{
    const mica__cuda_driver *driver = &device->driver;
    if (device->pool == NULL)
        return driver->memory_alloc(out, bytes);
    int result = driver->pool_alloc(out, bytes, device->pool, device->pool_stream);
    if (result == MICA__CUDA_ERROR_MEMORY) {
        driver->stream_wait(device->pool_stream);
        driver->pool_trim(device->pool, 0);
        result = driver->pool_alloc(out, bytes, device->pool, device->pool_stream);
    }
    if (result != 0)
        return result;
    result = driver->stream_wait(device->pool_stream);
    if (result != 0)
        driver->pool_free(*out, device->pool_stream);
    return result;
}

static void give(mica__device *device, uint64_t address)
{
    if (device->pool != NULL)
        device->driver.pool_free(address, device->pool_stream);
    else
        device->driver.memory_free(address);
}

mica_status mica__cuda_buffer_create(mica__device *device, uint64_t bytes, mica__memory **out)
{
    uint64_t address = 0;
    *out = NULL;
    mica_status status = mica__cuda_enter(device);
    if (status != MICA_OK)
        return status;
    mica__memory *memory = mica__calloc(1, sizeof *memory);
    if (memory == NULL) {
        status = mica__fail(MICA_ERR_OUT_OF_MEMORY, "cuda: no host memory for a buffer");
    } else {
        const int result = take(device, &address, (size_t)(bytes > 0 ? bytes : 1));
        status = mica__cuda_check(device, result, MICA_ERR_OUT_OF_MEMORY, "allocating device memory");
        if (status == MICA_ERR_OUT_OF_MEMORY)
            status = mica__fail(status, "%s; %llu bytes were asked for", mica_status_message(),
                                (unsigned long long)bytes);
    }
    mica__cuda_leave(device);
    if (status != MICA_OK) {
        mica__free(memory);
        return status;
    }
    memory->native = (void *)(uintptr_t)address;
    memory->bytes = bytes;
    *out = memory;
    return MICA_OK;
}

void mica__cuda_buffer_destroy(mica__device *device, mica__memory *memory)
{
    if (memory == NULL)
        return;
    if (mica__cuda_enter_quietly(device)) {
        give(device, mica__cuda_address(memory));
        mica__cuda_leave(device);
    }
    mica__free(memory);
}

void mica__cuda_memory_amount(mica__device *device, uint64_t *out_free, uint64_t *out_total)
{
    size_t free_bytes = 0, total = 0;
    *out_free = 0;
    *out_total = device->info.properties.total_memory;
    if (!mica__cuda_enter_quietly(device))
        return;
    if (device->driver.memory_info(&free_bytes, &total) == 0) {
        *out_free = free_bytes;
        *out_total = total;
    }
    mica__cuda_leave(device);
}

/* ---- stagings ---- */

static mica_status init_stagings(mica__device *device)
{
    for (; device->staging_count < MICA__CUDA_STAGINGS; device->staging_count++) {
        mica__cuda_staging *staging = &device->staging[device->staging_count];
        const mica_status status = mica__lock_init(&staging->lock, &staging->guard, false);
        if (status != MICA_OK)
            return status;
    }
    return MICA_OK;
}

static void close_staging(mica__device *device, mica__cuda_staging *staging)
{
    for (uint32_t i = 0; i < 2; i++) {
        if (staging->piece[i] != NULL)
            device->driver.host_free(staging->piece[i]);
        if (staging->event[i] != NULL)
            device->driver.event_destroy(staging->event[i]);
        staging->piece[i] = NULL;
        staging->event[i] = NULL;
    }
    if (staging->stream != NULL)
        device->driver.stream_destroy(staging->stream);
    staging->stream = NULL;
}

/* Lock held. Makes what the staging needs, all or nothing; the driver's word. */
static int ready_staging(mica__device *device, mica__cuda_staging *staging)
{
    const mica__cuda_driver *driver = &device->driver;
    void *piece = NULL;
    if (staging->stream != NULL)
        return 0;
    int result = driver->stream_create(&staging->stream, MICA__CUDA_STREAM_NON_BLOCKING);
    if (result != 0)
        staging->stream = NULL;
    for (uint32_t i = 0; i < 2 && result == 0; i++) {
        result = driver->event_create(&staging->event[i], MICA__CUDA_EVENT_UNTIMED);
        if (result != 0) {
            staging->event[i] = NULL;
            break;
        }
        result = driver->host_alloc(&piece, MICA__CUDA_CHUNK, MICA__CUDA_HOST_PORTABLE);
        staging->piece[i] = result == 0 ? piece : NULL;
    }
    if (result != 0)
        close_staging(device, staging);
    return result;
}

/* A staging that nobody uses, or the next in turn; locked. */
static mica__cuda_staging *take_staging(mica__device *device)
{
    const uint32_t first = atomic_fetch_add(&device->next_staging, 1);
    for (uint32_t i = 0; i < MICA__CUDA_STAGINGS; i++) /* one that has its pieces already */
        if (pthread_mutex_trylock(&device->staging[i].lock) == 0)
            return &device->staging[i];
    mica__cuda_staging *staging = &device->staging[first % MICA__CUDA_STAGINGS];
    pthread_mutex_lock(&staging->lock);
    return staging;
}

/* One piece after the other; waits for the last. */
static int send(mica__device *device, mica__cuda_staging *staging, uint64_t to, const unsigned char *from,
                uint64_t bytes)
{
    const mica__cuda_driver *driver = &device->driver;
    int result = 0;
    for (uint64_t at = 0, piece = 0; at < bytes && result == 0; at += MICA__CUDA_CHUNK, piece++) {
        const uint32_t i = piece & 1;
        const size_t n = bytes - at < MICA__CUDA_CHUNK ? (size_t)(bytes - at) : MICA__CUDA_CHUNK;
        if (piece >= 2)
            result = driver->event_wait(staging->event[i]);
        if (result == 0) {
            memcpy(staging->piece[i], from + at, n);
            result = driver->upload(to + at, staging->piece[i], n, staging->stream);
        }
        if (result == 0)
            result = driver->event_record(staging->event[i], staging->stream);
    }
    const int waited = driver->stream_wait(staging->stream);
    return result != 0 ? result : waited;
}

/* Piece n + 1 is under way while piece n is copied out. */
static int receive(mica__device *device, mica__cuda_staging *staging, unsigned char *to, uint64_t from,
                   uint64_t bytes)
{
    const mica__cuda_driver *driver = &device->driver;
    const uint64_t pieces = bytes / MICA__CUDA_CHUNK + (bytes % MICA__CUDA_CHUNK != 0);
    int result = 0;
    for (uint64_t piece = 0; piece <= pieces && result == 0; piece++) {
        if (piece < pieces) {
            const uint64_t at = piece * MICA__CUDA_CHUNK;
            const size_t n = bytes - at < MICA__CUDA_CHUNK ? (size_t)(bytes - at) : MICA__CUDA_CHUNK;
            result = driver->download(staging->piece[piece & 1], from + at, n, staging->stream);
            if (result == 0)
                result = driver->event_record(staging->event[piece & 1], staging->stream);
        }
        if (piece > 0 && result == 0) {
            const uint64_t at = (piece - 1) * MICA__CUDA_CHUNK;
            const size_t n = bytes - at < MICA__CUDA_CHUNK ? (size_t)(bytes - at) : MICA__CUDA_CHUNK;
            result = driver->event_wait(staging->event[(piece - 1) & 1]);
            if (result == 0)
                memcpy(to + at, staging->piece[(piece - 1) & 1], n);
        }
    }
    if (result != 0)
        driver->stream_wait(staging->stream); /* nothing may arrive in a piece that is used again */
    return result;
}

/* Either `from` or `to` is the host's. */
static mica_status transfer(mica__device *device, const mica__memory *memory, uint64_t offset,
                            const void *from, void *to, uint64_t bytes)
{
    mica_status status = mica__check_range(memory, offset, bytes);
    if (status == MICA_OK)
        status = mica__cuda_enter(device);
    if (status != MICA_OK)
        return status;
    if (bytes > 0) {
        const uint64_t address = mica__cuda_address(memory) + offset;
        mica__cuda_staging *staging = take_staging(device);
        int result = ready_staging(device, staging);
        if (result != 0) {
            status =
                mica__cuda_check(device, result, MICA_ERR_OUT_OF_MEMORY, "making a staging for transfers");
        } else {
            result = from != NULL ? send(device, staging, address, from, bytes)
                                  : receive(device, staging, to, address, bytes);
            status = mica__cuda_check(device, result, MICA_ERR_SUBMISSION,
                                      from != NULL ? "copying to the device" : "copying from the device");
        }
        pthread_mutex_unlock(&staging->lock);
    }
    mica__cuda_leave(device);
    return status;
}

mica_status mica__cuda_upload(mica__device *device, mica__memory *memory, uint64_t offset, const void *from,
                              uint64_t bytes)
{
    return transfer(device, memory, offset, from, NULL, bytes);
}

mica_status mica__cuda_download(mica__device *device, mica__memory *memory, uint64_t offset, void *to,
                                uint64_t bytes)
{
    return transfer(device, memory, offset, NULL, to, bytes);
}

mica_status mica__cuda_buffer_fill(mica__device *device, mica__memory *memory, uint8_t byte)
{
    mica_status status = mica__cuda_enter(device);
    if (status != MICA_OK)
        return status;
    mica__cuda_staging *staging = take_staging(device);
    status = ready_staging(device, staging);
    if (status == MICA_OK && memory->bytes > 0) {
        int result =
            device->driver.fill(mica__cuda_address(memory), byte, (size_t)memory->bytes, staging->stream);
        if (result == 0)
            result = device->driver.stream_wait(staging->stream);
        status = mica__cuda_check(device, result, MICA_ERR_SUBMISSION, "filling device memory");
    }
    pthread_mutex_unlock(&staging->lock);
    mica__cuda_leave(device);
    return status;
}

/* ---- open and close ---- */

mica_status mica__cuda_memory_open(mica__device *device)
{
    const mica_status status = init_stagings(device);
    if (status != MICA_OK)
        return status;
    open_pool(device);
    const int result = take(device, &device->dummy, DUMMY_BYTES);
    if (result != 0)
        device->dummy = 0;
    return mica__cuda_check(device, result, MICA_ERR_OUT_OF_MEMORY, "allocating device memory");
}

void mica__cuda_memory_close(mica__device *device, bool driver)
{
    if (driver && device->dummy != 0)
        give(device, device->dummy);
    if (driver && device->pool != NULL) {
        device->driver.stream_wait(device->pool_stream);
        device->driver.pool_destroy(device->pool);
        device->driver.stream_destroy(device->pool_stream);
    }
    device->dummy = 0;
    device->pool = NULL;
    for (; device->staging_count > 0; device->staging_count--) {
        mica__cuda_staging *staging = &device->staging[device->staging_count - 1];
        if (driver)
            close_staging(device, staging);
        mica__lock_destroy(&staging->lock, &staging->guard);
    }
}
