/*
 * cpu.c - the cpu backend's door: what it says of itself, opening and closing, kernels by name.
 */
#include "backend/cpu/cpu.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backend/cpu/cpu_plan.h"
#include "base/alloc.h"
#include "base/env.h"
#include "base/isa.h"

#define DEFAULT_CACHE_BYTES (1u << 20)

static void fill_info(mica__device *device, mica__device_info *out)
{
    mica_device_properties *properties = &out->properties;
    uint64_t unused;
    memset(out, 0, sizeof *out);
    snprintf(properties->id, sizeof properties->id, "cpu");
    snprintf(properties->backend, sizeof properties->backend, "cpu");
    snprintf(properties->driver, sizeof properties->driver, "%s", mica__cpu_isa_name(device->isa));
    mica__isa_processor(properties->name, sizeof properties->name);
    mica__cpu_memory_amount(device, &unused, &properties->total_memory);
    properties->max_buffer = SIZE_MAX / 2;
    properties->threads = device->team.slots;
    properties->unified_memory = 1;
    properties->buffer_alignment = MICA__ALLOC_ALIGN;
    out->dlpack_device = 1; /* kDLCPU */
    out->threads = device->team.slots;
    out->isa = device->isa;
    out->max_group = 1;
    out->local_bytes = MICA__CPU_MAX_LOCAL;
    out->params_bytes = UINT32_MAX;
    out->cache_bytes = DEFAULT_CACHE_BYTES;
#if defined(_SC_LEVEL2_CACHE_SIZE)
    const long cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
    if (cache > 0)
        out->cache_bytes = (uint64_t)cache;
#endif
}

/* ---- kernels ---- */

static mica_status program_create(mica__device *device, const mica__program_desc *desc, mica__program **out)
{
    (void)device;
    *out = NULL;
    if (desc->host == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "kernel \"%s\": host is NULL, expected a function for the cpu", desc->name);
    const size_t name_bytes = strlen(desc->name) + 1;
    mica__program *program = mica__calloc(1, sizeof *program + name_bytes);
    if (program == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "cpu: no memory for kernel \"%s\"", desc->name);
    program->kernel.name = memcpy(program + 1, desc->name, name_bytes);
    program->kernel.host = desc->host;
    *out = program;
    return MICA_OK;
}

static void program_destroy(mica__device *device, mica__program *program)
{
    /* A kernel's name may be wanted by a submission that is still being timed. */
    if (program != NULL && mica__cpu_device_awake(device) == MICA_OK)
        mica__cpu_team_drain(&device->team);
    mica__free(program);
}

static mica_status kernel_get(mica__device *device, mica__program *program, const char *name,
                              mica__kernel **out)
{
    *out = NULL;
    if (program != NULL && strcmp(program->kernel.name, name) == 0)
        *out = &program->kernel;
    for (uint32_t i = 0; program == NULL && *out == NULL && i < MICA__CPU_KERNEL_COUNT; i++)
        if (strcmp(device->kernel[i].name, name) == 0)
            *out = &device->kernel[i];
    if (*out == NULL)
        return mica__fail(MICA_ERR_KERNEL_NOT_FOUND, "kernel: the cpu has none named \"%s\"", name);
    return MICA_OK;
}

/* ---- open and close ---- */

static void close_device(mica__device *device)
{
    /* A team that cannot be woken cannot be ended: then it all stays. */
    if (device == NULL || mica__cpu_device_awake(device) != MICA_OK)
        return;
    mica__cpu_team_destroy(&device->team);
    mica__cpu_commands_forget(device);
    for (mica__cpu_local *local = atomic_load(&device->local); local != NULL;) {
        mica__cpu_local *older = local->older;
        mica__free(local);
        local = older;
    }
    mica__times_free(&device->times);
    mica__lock_destroy(&device->lock, &device->guard);
    mica__free(device);
}

static const mica__backend_table table = {
    .version = MICA__BACKEND_VERSION,
    .close = close_device,
    .info = fill_info,
    .memory = mica__cpu_memory_amount,
    .buffer_create = mica__cpu_buffer_create,
    .buffer_import = mica__cpu_buffer_import,
    .buffer_destroy = mica__cpu_buffer_destroy,
    .buffer_map = mica__cpu_buffer_map,
    .buffer_unmap = mica__cpu_buffer_unmap,
    .upload = mica__cpu_upload,
    .download = mica__cpu_download,
    .program_create = program_create,
    .program_destroy = program_destroy,
    .kernel_get = kernel_get,
    .encoder_begin = mica__cpu_encoder_begin,
    .dispatch = mica__cpu_dispatch_add,
    .barrier = mica__cpu_barrier,
    .encoder_end = mica__cpu_encoder_end,
    .submit = mica__cpu_submit,
    .commands_destroy = mica__cpu_commands_destroy,
    .wait = mica__cpu_wait,
    .queue_create = mica__cpu_queue_create,
    .queue_destroy = mica__cpu_queue_destroy,
    .commands_update = mica__cpu_commands_update,
    .timestamps = mica__cpu_timestamps,
    .cancel = mica__cpu_cancel,
    .queue_order = mica__cpu_queue_order,
};

static uint32_t probe(char *reason, size_t reason_bytes)
{
    if (reason_bytes != 0)
        reason[0] = '\0';
    return 1;
}

static mica_status check_index(uint32_t index)
{
    if (index != 0)
        return mica__fail(MICA_ERR_DEVICE_NOT_FOUND, "cpu:%u does not exist, there is one: \"cpu\"", index);
    return MICA_OK;
}

static mica_status describe(uint32_t index, char *name, size_t name_bytes)
{
    mica__isa_processor(name, name_bytes);
    return check_index(index);
}

static mica_status choose_threads(uint32_t wanted, uint32_t *out)
{
    const uint32_t asked = wanted != 0 ? wanted : mica__env_get()->threads;
    const uint32_t cores = mica__thread_cpu_count();
    *out = asked != 0 ? asked : cores < MICA__CPU_MAX_THREADS ? cores : MICA__CPU_MAX_THREADS;
    if (*out > MICA__CPU_MAX_THREADS)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "threads: %u, expected at most %u", *out,
                          MICA__CPU_MAX_THREADS);
    return MICA_OK;
}

static mica_status open_device(uint32_t index, const mica_device_options *options, mica__device **out,
                               const mica__backend_table **out_table)
{
    static const mica_device_options defaults = {0};
    const mica_device_options *from = options != NULL ? options : &defaults;
    uint32_t threads, isa;
    *out = NULL;
    *out_table = NULL;
    mica_status status = check_index(index);
    if (status == MICA_OK)
        status = choose_threads(from->threads, &threads);
    if (status == MICA_OK)
        status = mica__cpu_isa_choose(from->isa, &isa);
    if (status != MICA_OK)
        return status;
    mica__device *device = mica__calloc(1, sizeof *device);
    if (device == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "cpu: no memory to open the device");
    status = mica__cpu_team_init(&device->team, threads, &mica__cpu_queue_hooks, device);
    if (status == MICA_OK) {
        status = mica__lock_init(&device->lock, &device->guard, true);
        if (status != MICA_OK)
            mica__cpu_team_destroy(&device->team);
    }
    if (status != MICA_OK) {
        mica__free(device);
        return status;
    }
    atomic_store(&device->generation, mica__fork_generation());
    device->isa = isa;
    for (uint32_t i = 0; i < MICA__CPU_KERNEL_COUNT; i++) {
        const mica__cpu_kernel *kernel = &mica__cpu_isa_table(isa)[i];
        device->kernel[i] = (mica__kernel){kernel->name, kernel->run, kernel->prepare, NULL};
    }
    *out = device;
    *out_table = &table;
    return MICA_OK;
}

const mica__backend mica__backend_cpu = {
    .version = MICA__BACKEND_VERSION,
    .name = "cpu",
    .probe = probe,
    .describe = describe,
    .open = open_device,
    .kernel_rows = mica__cpu_kernel_rows,
    .weight_layout = mica__cpu_weight_layout,
    .outputs_inner = mica__cpu_outputs_inner,
};
