/*
 * cpu_memory.c - buffers are host memory, and the memory that kernels have per thread.
 */
#include <string.h>

#include "backend/checks.h"
#include "backend/cpu/cpu.h"
#include "base/alloc.h"
#include "base/checked.h"
#include "base/pages.h"

void mica__cpu_memory_amount(mica__device *device, uint64_t *out_free, uint64_t *out_total)
{
    (void)device;
    mica__pages_amount(out_free, out_total);
}

mica_status mica__cpu_buffer_create(mica__device *device, uint64_t bytes, mica__memory **out)
{
    /* The head takes a whole line so that the bytes behind it are aligned. */
    const uint64_t head = MICA__ALLOC_ALIGN;
    uint64_t total;
    (void)device;
    _Static_assert(sizeof(mica__memory) <= MICA__ALLOC_ALIGN, "the head of a buffer fits a line");
    *out = NULL;
    mica__memory *memory = NULL;
    if (mica__add_u64(bytes, head, &total) && total <= SIZE_MAX)
        memory = mica__alloc((size_t)total);
    if (memory == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "cpu: no memory for a buffer of %llu bytes",
                          (unsigned long long)bytes);
    memory->native = (unsigned char *)memory + head;
    memory->bytes = bytes;
    *out = memory;
    return MICA_OK;
}

mica_status mica__cpu_buffer_import(mica__device *device, void *pointer, uint64_t bytes, mica__memory **out)
{
    (void)device;
    *out = NULL;
    if (pointer == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "pointer: NULL, expected the memory to import");
    mica__memory *memory = mica__alloc(sizeof *memory);
    if (memory == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "cpu: no memory to import %llu bytes",
                          (unsigned long long)bytes);
    memory->native = pointer;
    memory->bytes = bytes;
    *out = memory;
    return MICA_OK;
}

void mica__cpu_buffer_destroy(mica__device *device, mica__memory *memory)
{
    (void)device;
    mica__free(memory);
}

mica_status mica__cpu_buffer_map(mica__device *device, mica__memory *memory, void **out)
{
    (void)device;
    *out = memory->native;
    return MICA_OK;
}

void mica__cpu_buffer_unmap(mica__device *device, mica__memory *memory)
{
    (void)device;
    (void)memory;
}

/* Waits until nothing is in flight and checks the range. */
static mica_status prepare_access(mica__device *device, const mica__memory *memory, uint64_t offset,
                                  uint64_t bytes)
{
    mica_status status = mica__check_range(memory, offset, bytes);
    if (status == MICA_OK)
        status = mica__cpu_device_awake(device);
    if (status == MICA_OK)
        mica__cpu_team_drain(&device->team);
    return status;
}

mica_status mica__cpu_upload(mica__device *device, mica__memory *memory, uint64_t offset, const void *from,
                             uint64_t bytes)
{
    const mica_status status = prepare_access(device, memory, offset, bytes);
    if (status == MICA_OK && bytes != 0)
        memcpy((unsigned char *)memory->native + offset, from, (size_t)bytes);
    return status;
}

mica_status mica__cpu_download(mica__device *device, mica__memory *memory, uint64_t offset, void *to,
                               uint64_t bytes)
{
    const mica_status status = prepare_access(device, memory, offset, bytes);
    if (status == MICA_OK && bytes != 0)
        memcpy(to, (unsigned char *)memory->native + offset, (size_t)bytes);
    return status;
}

/* Lock held. Sizes are powers of two, so that all the older blocks together are smaller than the newest. */
static mica_status grow_local(mica__device *device, mica__cpu_local *older, uint32_t bytes)
{
    size_t stride = 4096, total;
    while (stride < bytes)
        stride *= 2;
    mica__cpu_local *local = NULL;
    if (mica__mul_size(stride, device->team.slots, &total) && mica__add_size(total, sizeof *local, &total))
        local = mica__alloc(total);
    if (local == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY,
                          "cpu: no memory for %zu bytes of kernel memory on %u threads", stride,
                          device->team.slots);
    local->older = older;
    local->stride = stride;
    atomic_store(&device->local, local);
    return MICA_OK;
}

mica_status mica__cpu_local_reserve(mica__device *device, uint32_t bytes)
{
    mica_status status = MICA_OK;
    if (bytes == 0)
        return MICA_OK;
    pthread_mutex_lock(&device->lock);
    mica__cpu_local *local = atomic_load(&device->local);
    if (local == NULL || local->stride < bytes)
        status = grow_local(device, local, bytes);
    pthread_mutex_unlock(&device->lock);
    return status;
}
