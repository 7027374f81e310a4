/* opencl_memory.c - buffers, and what goes between them and the host. */
#include <stdio.h>
#include <string.h>

#include "backend/checks.h"
#include "backend/opencl/opencl_device.h"
#include "base/alloc.h"

static cl_mem handle(const mica__memory *memory)
{
    return memory->native;
}

void mica__opencl_memory_amount(mica__device *device, uint64_t *out_free, uint64_t *out_total)
{
    const uint64_t total = device->info.properties.total_memory, owned = atomic_load(&device->owned);
    *out_total = total;
    *out_free = owned < total ? total - owned : 0; /* OpenCL does not say what others use */
}

mica_status mica__opencl_buffer_create(mica__device *device, uint64_t bytes, mica__memory **out)
{
    const mica_device_properties *properties = &device->info.properties;
    *out = NULL;
    const mica_status status = mica__opencl_check(device);
    if (status != MICA_OK)
        return status;
    if (bytes > properties->max_buffer)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "buffer: %llu bytes, %s takes at most %llu in one piece",
                          (unsigned long long)bytes, properties->id,
                          (unsigned long long)properties->max_buffer);
    mica__opencl_memory *memory = mica__calloc(1, sizeof *memory);
    if (memory == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "opencl: no host memory for a buffer");
    cl_int code = CL_SUCCESS;
    memory->head.native = device->cl.clCreateBuffer(device->context, CL_MEM_READ_WRITE,
                                                    bytes == 0 ? 1 : (size_t)bytes, NULL, &code);
    memory->head.bytes = bytes;
    if (memory->head.native == NULL || code != CL_SUCCESS) {
        char what[64];
        mica__free(memory);
        snprintf(what, sizeof what, "%llu bytes", (unsigned long long)bytes);
        return mica__opencl_fail(device, code, "clCreateBuffer", what);
    }
    atomic_fetch_add(&device->owned, bytes);
    *out = &memory->head;
    return MICA_OK;
}

void mica__opencl_buffer_destroy(mica__device *device, mica__memory *memory)
{
    if (memory == NULL)
        return;
    if (mica__opencl_alive(device))
        device->cl.clReleaseMemObject(handle(memory));
    atomic_fetch_sub(&device->owned, memory->bytes);
    mica__free(memory);
}

/* Lock held: maps of one buffer are counted, the driver sees the first and the last. */
static cl_int map_locked(mica__device *device, mica__opencl_memory *memory)
{
    cl_int code = CL_SUCCESS;
    if (memory->maps == 0)
        memory->mapped =
            device->cl.clEnqueueMapBuffer(device->transfers, handle(&memory->head), 1, CL_MAP_READ_WRITE, 0,
                                          (size_t)memory->head.bytes, 0, NULL, NULL, &code);
    memory->maps += code == CL_SUCCESS;
    return code;
}

mica_status mica__opencl_buffer_map(mica__device *device, mica__memory *memory, void **out)
{
    mica__opencl_memory *mapped = (mica__opencl_memory *)memory;
    *out = NULL;
    const mica_status status = mica__opencl_check(device);
    if (status != MICA_OK)
        return status;
    pthread_mutex_lock(&device->lock);
    const cl_int code = map_locked(device, mapped);
    *out = code == CL_SUCCESS ? mapped->mapped : NULL;
    pthread_mutex_unlock(&device->lock);
    return code == CL_SUCCESS ? MICA_OK : mica__opencl_fail(device, code, "clEnqueueMapBuffer", "a buffer");
}

void mica__opencl_buffer_unmap(mica__device *device, mica__memory *memory)
{
    mica__opencl_memory *mapped = (mica__opencl_memory *)memory;
    if (!mica__opencl_alive(device))
        return;
    pthread_mutex_lock(&device->lock);
    mapped->maps -= mapped->maps != 0;
    if (mapped->maps == 0 && mapped->mapped != NULL) {
        device->cl.clEnqueueUnmapMemObject(device->transfers, handle(memory), mapped->mapped, 0, NULL, NULL);
        device->cl.clFinish(device->transfers);
        mapped->mapped = NULL;
    }
    pthread_mutex_unlock(&device->lock);
}

static mica_status check_range(mica__device *device, const mica__memory *memory, uint64_t offset,
                               uint64_t bytes)
{
    const mica_status status = mica__check_range(memory, offset, bytes);
    return status == MICA_OK ? mica__opencl_check(device) : status;
}

/* A blocking write is done with the host's bytes when it returns. That they are in the buffer, where kernels of other queues
 * look for them, its event says. */
mica_status mica__opencl_upload(mica__device *device, mica__memory *memory, uint64_t offset, const void *from,
                                uint64_t bytes)
{
    const mica_status status = check_range(device, memory, offset, bytes);
    if (status != MICA_OK || bytes == 0)
        return status;
    cl_event written = NULL;
    cl_int code = device->cl.clEnqueueWriteBuffer(device->transfers, handle(memory), 1, (size_t)offset,
                                                  (size_t)bytes, from, 0, NULL, &written);
    if (code == CL_SUCCESS) {
        code = device->cl.clWaitForEvents(1, &written);
        device->cl.clReleaseEvent(written);
    }
    return code == CL_SUCCESS ? MICA_OK
                              : mica__opencl_fail(device, code, "clEnqueueWriteBuffer", "an upload");
}

mica_status mica__opencl_download(mica__device *device, mica__memory *memory, uint64_t offset, void *to,
                                  uint64_t bytes)
{
    const mica_status status = check_range(device, memory, offset, bytes);
    if (status != MICA_OK || bytes == 0)
        return status;
    const cl_int code = device->cl.clEnqueueReadBuffer(device->transfers, handle(memory), 1, (size_t)offset,
                                                       (size_t)bytes, to, 0, NULL, NULL);
    return code == CL_SUCCESS ? MICA_OK
                              : mica__opencl_fail(device, code, "clEnqueueReadBuffer", "a download");
}

mica_status mica__opencl_buffer_fill(mica__device *device, mica__memory *memory, uint8_t byte)
{
    const mica_status status = mica__opencl_check(device);
    if (status != MICA_OK || memory->bytes == 0)
        return status;
    cl_int code = device->cl.clEnqueueFillBuffer(device->transfers, handle(memory), &byte, sizeof byte, 0,
                                                 (size_t)memory->bytes, 0, NULL, NULL);
    if (code == CL_SUCCESS)
        code = device->cl.clFinish(device->transfers);
    return code == CL_SUCCESS ? MICA_OK : mica__opencl_fail(device, code, "clEnqueueFillBuffer", "a buffer");
}
