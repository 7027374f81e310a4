/* null.c - the null backend's door: opening, memory, kernels, faults, and what tests may ask. */
#include "backend/null/null.h"

#include <stdio.h>
#include <string.h>

#include "backend/checks.h"
#include "backend/null/null_device.h"
#include "base/alloc.h"
#include "base/checked.h"

#define DEVICES 2u                /* null:0 with barriers, null:1 with edges */
#define TOTAL_MEMORY (1ull << 40) /* what it claims to have */

/* ---- faults ---- */

bool mica__null_fails(uint32_t *countdown)
{
    return *countdown != 0 && --*countdown == 0;
}

mica_status mica__null_lost(void)
{
    return mica__fail(MICA_ERR_DEVICE_LOST, "null: the device was lost, as a test asked");
}

mica_status mica__null_check_lost(mica__device *device)
{
    pthread_mutex_lock(&device->lock);
    const bool lost = device->lost;
    pthread_mutex_unlock(&device->lock);
    return lost ? mica__null_lost() : MICA_OK;
}

mica_status mica__null_inject(mica__device *device, const mica_null_faults *faults)
{
    pthread_mutex_lock(&device->lock);
    device->faults = *faults;
    pthread_mutex_unlock(&device->lock);
    return MICA_OK;
}

void mica__null_get_counts(mica__device *device, mica__null_counts *out)
{
    pthread_mutex_lock(&device->lock);
    *out = device->counts;
    pthread_mutex_unlock(&device->lock);
}

void mica__null_get_log(mica__device *device, mica__null_log *out)
{
    memset(out, 0, sizeof *out);
    pthread_mutex_lock(&device->lock);
    const mica__commands *last = device->last;
    if (last != NULL)
        *out = (mica__null_log){last->entry, last->entry_count, last->dependency, last->dependency_count,
                                last->barrier_count};
    pthread_mutex_unlock(&device->lock);
}

/* ---- what it says of itself ---- */

static void fill_info(mica__device *device, mica__device_info *out)
{
    mica_device_properties *properties = &out->properties;
    memset(out, 0, sizeof *out);
    snprintf(properties->id, sizeof properties->id, "null:%u", device->index);
    snprintf(properties->name, sizeof properties->name, "null device with %s",
             device->index == 1 ? "edges" : "barriers");
    snprintf(properties->backend, sizeof properties->backend, "null");
    snprintf(properties->driver, sizeof properties->driver, "none");
    properties->total_memory = properties->max_buffer = TOTAL_MEMORY;
    properties->unified_memory = 1;
    properties->buffer_alignment = MICA__ALLOC_ALIGN;
    out->max_group = 1024;
    out->local_bytes = 32768;
    out->params_bytes = UINT32_MAX;
    out->edges = device->index == 1;
    out->cache_bytes = 1u << 20;
    out->dlpack_device = 1; /* its memory is the host's */
}

static void memory_amount(mica__device *device, uint64_t *out_free, uint64_t *out_total)
{
    (void)device;
    *out_free = *out_total = TOTAL_MEMORY;
}

/* ---- memory ---- */

/* Lock taken here: lost first, then the fault of allocations. */
static mica_status may_allocate(mica__device *device, uint64_t bytes)
{
    pthread_mutex_lock(&device->lock);
    const bool lost = device->lost;
    const bool fails = !lost && mica__null_fails(&device->faults.fail_alloc);
    pthread_mutex_unlock(&device->lock);
    if (lost)
        return mica__null_lost();
    if (fails)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "null: no memory for %llu bytes, as a test asked",
                          (unsigned long long)bytes);
    return MICA_OK;
}

/* A head and the bytes behind it, or behind `pointer` if that is not NULL. */
static mica_status make_memory(mica__device *device, void *pointer, uint64_t bytes, mica__memory **out)
{
    uint64_t total;
    *out = NULL;
    const mica_status status = may_allocate(device, bytes);
    if (status != MICA_OK)
        return status;
    mica__memory *memory = NULL;
    if (mica__add_u64(pointer == NULL ? bytes : 0, MICA__ALLOC_ALIGN, &total) && total <= SIZE_MAX)
        memory = mica__calloc(1, (size_t)total);
    if (memory == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "null: no memory for %llu bytes",
                          (unsigned long long)bytes);
    memory->native = pointer == NULL ? (unsigned char *)memory + MICA__ALLOC_ALIGN : pointer;
    memory->bytes = bytes;
    pthread_mutex_lock(&device->lock);
    device->counts.buffers++;
    device->counts.buffers_live++;
    pthread_mutex_unlock(&device->lock);
    *out = memory;
    return MICA_OK;
}

static mica_status buffer_create(mica__device *device, uint64_t bytes, mica__memory **out)
{
    return make_memory(device, NULL, bytes, out);
}

static mica_status buffer_import(mica__device *device, void *pointer, uint64_t bytes, mica__memory **out)
{
    *out = NULL;
    if (pointer == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "pointer: NULL, expected the memory to import");
    return make_memory(device, pointer, bytes, out);
}

static void buffer_destroy(mica__device *device, mica__memory *memory)
{
    if (memory == NULL)
        return;
    pthread_mutex_lock(&device->lock);
    device->counts.buffers_live--;
    pthread_mutex_unlock(&device->lock);
    mica__free(memory);
}

static mica_status buffer_map(mica__device *device, mica__memory *memory, void **out)
{
    *out = NULL;
    const mica_status status = mica__null_check_lost(device);
    if (status == MICA_OK)
        *out = memory->native;
    return status;
}

static void buffer_unmap(mica__device *device, mica__memory *memory)
{
    (void)device;
    (void)memory;
}

static mica_status check_range(mica__device *device, const mica__memory *memory, uint64_t offset,
                               uint64_t bytes)
{
    const mica_status status = mica__check_range(memory, offset, bytes);
    return status == MICA_OK ? mica__null_check_lost(device) : status;
}

static mica_status upload(mica__device *device, mica__memory *memory, uint64_t offset, const void *from,
                          uint64_t bytes)
{
    const mica_status status = check_range(device, memory, offset, bytes);
    if (status != MICA_OK || bytes == 0)
        return status;
    memcpy((unsigned char *)memory->native + offset, from, (size_t)bytes);
    pthread_mutex_lock(&device->lock);
    device->counts.bytes_uploaded += bytes;
    pthread_mutex_unlock(&device->lock);
    return MICA_OK;
}

static mica_status download(mica__device *device, mica__memory *memory, uint64_t offset, void *to,
                            uint64_t bytes)
{
    const mica_status status = check_range(device, memory, offset, bytes);
    if (status != MICA_OK || bytes == 0)
        return status;
    memcpy(to, (unsigned char *)memory->native + offset, (size_t)bytes);
    pthread_mutex_lock(&device->lock);
    device->counts.bytes_downloaded += bytes;
    pthread_mutex_unlock(&device->lock);
    return MICA_OK;
}

/* ---- kernels ---- */

/* Counts a compilation: of a user's kernel, or the first use of a built-in one. */
static mica_status may_compile(mica__device *device, const char *name)
{
    pthread_mutex_lock(&device->lock);
    const bool lost = device->lost;
    const bool fails = !lost && mica__null_fails(&device->faults.fail_compile);
    pthread_mutex_unlock(&device->lock);
    if (lost)
        return mica__null_lost();
    if (fails)
        return mica__fail(MICA_ERR_KERNEL_COMPILATION, "null: kernel \"%s\" refused, as a test asked", name);
    return MICA_OK;
}

static mica_status program_create(mica__device *device, const mica__program_desc *desc, mica__program **out)
{
    *out = NULL;
    const mica_status status = may_compile(device, desc->name);
    if (status != MICA_OK)
        return status;
    mica__program *program = mica__calloc(1, sizeof *program);
    if (program == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "null: no memory for kernel \"%s\"", desc->name);
    snprintf(program->kernel.name, sizeof program->kernel.name, "%s", desc->name);
    pthread_mutex_lock(&device->lock);
    device->counts.programs++;
    pthread_mutex_unlock(&device->lock);
    *out = program;
    return MICA_OK;
}

static void program_destroy(mica__device *device, mica__program *program)
{
    (void)device;
    mica__free(program);
}

static mica_status kernel_get(mica__device *device, mica__program *program, const char *name,
                              mica__kernel **out)
{
    *out = NULL;
    if (program != NULL) {
        *out = &program->kernel;
        return MICA_OK;
    }
    for (uint32_t op = MICA_OP_CUSTOM + 1; op < MICA_OP_COUNT; op++) {
        if (strcmp(device->kernel[op].name, name) == 0) {
            const mica_status status = may_compile(device, name);
            if (status == MICA_OK)
                *out = &device->kernel[op];
            return status;
        }
    }
    return mica__fail(MICA_ERR_KERNEL_NOT_FOUND, "kernel: the null device has none named \"%s\"", name);
}

/* ---- open and close ---- */

static void close_device(mica__device *device)
{
    if (device == NULL)
        return;
    mica__null_commands_destroy(device, device->last);
    mica__times_free(&device->times);
    mica__lock_destroy(&device->lock, &device->guard);
    mica__free(device);
}

static const mica__backend_table table = {
    .version = MICA__BACKEND_VERSION,
    .close = close_device,
    .info = fill_info,
    .memory = memory_amount,
    .buffer_create = buffer_create,
    .buffer_import = buffer_import,
    .buffer_destroy = buffer_destroy,
    .buffer_map = buffer_map,
    .buffer_unmap = buffer_unmap,
    .upload = upload,
    .download = download,
    .program_create = program_create,
    .program_destroy = program_destroy,
    .kernel_get = kernel_get,
    .encoder_begin = mica__null_encoder_begin,
    .dispatch = mica__null_dispatch,
    .barrier = mica__null_barrier,
    .encoder_end = mica__null_encoder_end,
    .submit = mica__null_submit,
    .commands_destroy = mica__null_commands_destroy,
    .wait = mica__null_wait,
    .queue_create = mica__null_queue_create,
    .queue_destroy = mica__null_queue_destroy,
    .commands_update = mica__null_commands_update,
    .timestamps = mica__null_timestamps,
    .cancel = mica__null_cancel,
    .queue_order = mica__null_queue_order,
};

static uint32_t probe(char *reason, size_t reason_bytes)
{
    if (reason_bytes != 0)
        reason[0] = '\0';
    return DEVICES;
}

static mica_status check_index(uint32_t index)
{
    if (index >= DEVICES)
        return mica__fail(MICA_ERR_DEVICE_NOT_FOUND, "null:%u does not exist, expected null:0 or null:1",
                          index);
    return MICA_OK;
}

static mica_status describe(uint32_t index, char *name, size_t name_bytes)
{
    snprintf(name, name_bytes, "null device with %s", index == 1 ? "edges" : "barriers");
    return check_index(index);
}

static mica_status open_device(uint32_t index, const mica_device_options *options, mica__device **out,
                               const mica__backend_table **out_table)
{
    (void)options;
    *out = NULL;
    *out_table = NULL;
    mica_status status = check_index(index);
    if (status != MICA_OK)
        return status;
    mica__device *device = mica__calloc(1, sizeof *device);
    if (device == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "null: no memory to open the device");
    status = mica__lock_init(&device->lock, &device->guard, true);
    if (status != MICA_OK) {
        mica__free(device);
        return status;
    }
    device->index = index;
    for (uint32_t op = MICA_OP_CUSTOM; op < MICA_OP_COUNT; op++)
        snprintf(device->kernel[op].name, sizeof device->kernel[op].name, "%s", mica_op_name((mica_op)op));
    *out = device;
    *out_table = &table;
    return MICA_OK;
}

const mica__backend mica__backend_null = {
    .version = MICA__BACKEND_VERSION,
    .name = "null",
    .probe = probe,
    .describe = describe,
    .open = open_device,
    .kernel_rows = mica__null_kernel_rows,
    .weight_layout = mica__null_weight_layout,
};
