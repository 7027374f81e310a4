/*
 * opencl.c - the OpenCL backend's door: what there is, opening and closing, what a device says of itself, and what
 * becomes of the driver's failures.
 */
#include <stdio.h>
#include <string.h>

#include "backend/gpu/gpu_plan.h"
#include "backend/opencl/opencl_device.h"
#include "base/alloc.h"
#include "base/env.h"
#include "base/nodes.h"

#define CONTEXT_PLATFORM 0x1084 /* CL_CONTEXT_PLATFORM */
#define DLPACK_OPENCL 4
#define NOTHING_BYTES 64u
#define ROUNDED "-cl-fp32-correctly-rounded-divide-sqrt"

/* ---- failures ---- */

bool mica__opencl_alive(const mica__device *device)
{
    return device->generation == mica__fork_generation();
}

mica_status mica__opencl_check(mica__device *device)
{
    if (!mica__opencl_alive(device))
        return mica__fail(MICA_ERR_DEVICE_LOST,
                          "%s was opened before a fork, and the child has no part in it",
                          device->info.properties.id);
    if (atomic_load(&device->lost) != 0)
        return mica__fail(MICA_ERR_DEVICE_LOST, "%s: the device was lost", device->info.properties.id);
    return MICA_OK;
}

mica_status mica__opencl_fail(mica__device *device, cl_int code, const char *call, const char *what)
{
    const mica_status status = mica__opencl_error_status(code);
    if (status == MICA_ERR_DEVICE_LOST)
        atomic_store(&device->lost, 1);
    return mica__fail(status, "opencl:%u: %s of %.100s: %s (%d)", device->index, call, what,
                      mica__opencl_error_name(code), code);
}

/* ---- what it says of itself ---- */

static uint64_t number(const mica__device *device, cl_uint what)
{
    return mica__opencl_device_number(&device->cl, device->id, what, 0);
}

static bool offers(const mica__device *device, const char *extension)
{
    char extensions[8192];
    mica__opencl_device_text(&device->cl, device->id, CL_DEVICE_EXTENSIONS, extensions, sizeof extensions);
    return strstr(extensions, extension) != NULL;
}

/* Whether the compiler is NVIDIA's, which takes PTX in its text, and groups are cut into warps of 32. */
static bool speaks_ptx(const mica__device *device)
{
    return offers(device, "cl_nv_compiler_options") && number(device, CL_DEVICE_WARP_SIZE_NV) == 32;
}

static bool is_cpu(const mica__device *device)
{
    return (number(device, CL_DEVICE_TYPE) & CL_DEVICE_TYPE_CPU) != 0;
}

static void set_options(mica__device *device, const char *language)
{
    const bool rounded =
        (number(device, CL_DEVICE_SINGLE_FP_CONFIG) & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT) != 0;
    snprintf(device->options, sizeof device->options, "%s%s", language, rounded ? ROUNDED : "");
}

/* Whether OpenCL's own sub-groups are worth a look. Those of a CPU are not: docs/measurements.md. */
static bool wants_subgroups(const mica__device *device)
{
    return !mica__env_debug(MICA__DEBUG_NOSUBGROUPS) &&
           (!is_cpu(device) || mica__env_debug(MICA__DEBUG_SUBGROUPS)) &&
           mica__opencl_device_version(&device->cl, device->id) >= 20 &&
           offers(device, "cl_khr_subgroup_shuffle");
}

/* Sub-groups, and the options that kernels are compiled with: the names of OpenCL's own are not in the language of 1.2. */
static void choose_subgroups(mica__device *device)
{
    mica__device_info *info = &device->info;
    set_options(device, "");
    if (speaks_ptx(device)) {
        info->properties.subgroup_width = 32;
        info->features |= MICA__FEATURE_SUBGROUPS | MICA__FEATURE_PTX;
    } else if (wants_subgroups(device)) {
        const bool old = mica__opencl_device_version(&device->cl, device->id) < 30;
        set_options(device, old ? "-cl-std=CL2.0 " : "-cl-std=CL3.0 ");
        info->properties.subgroup_width = mica__opencl_subgroup_width(device);
        if (info->properties.subgroup_width != 0)
            info->features |= MICA__FEATURE_SUBGROUPS;
        else
            set_options(device, "");
    }
}

static void fill_texts(mica__device *device)
{
    mica__device_info *info = &device->info;
    mica_device_properties *properties = &info->properties;
    char platform[64] = "", driver[64], version[64];
    if (device->cl.clGetPlatformInfo(device->platform, CL_PLATFORM_NAME, sizeof platform - 1, platform,
                                     NULL) != CL_SUCCESS)
        snprintf(platform, sizeof platform, "unknown platform");
    mica__opencl_device_text(&device->cl, device->id, CL_DEVICE_NAME, properties->name,
                             sizeof properties->name);
    mica__opencl_device_text(&device->cl, device->id, CL_DRIVER_VERSION, driver, sizeof driver);
    mica__opencl_device_text(&device->cl, device->id, CL_DEVICE_VERSION, version, sizeof version);
    snprintf(properties->id, sizeof properties->id, "opencl:%u", device->index);
    snprintf(properties->backend, sizeof properties->backend, "opencl");
    snprintf(properties->driver, sizeof properties->driver, "%.40s, %.10s, driver %.40s", platform, version,
             driver);
    snprintf(info->identity, sizeof info->identity, "%s|%s|%s|%s|%s", platform, properties->name, driver,
             version, device->options);
}

static void gather_info(mica__device *device)
{
    mica__device_info *info = &device->info;
    mica_device_properties *properties = &info->properties;
    char subgroups[32] = "no sub-groups";
    choose_subgroups(device);
    fill_texts(device);
    properties->total_memory = number(device, CL_DEVICE_GLOBAL_MEM_SIZE);
    properties->max_buffer = number(device, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
    properties->buffer_alignment = (uint32_t)(number(device, CL_DEVICE_MEM_BASE_ADDR_ALIGN) / 8);
    info->max_group = (uint32_t)number(device, CL_DEVICE_MAX_WORK_GROUP_SIZE);
    info->local_bytes = (uint32_t)number(device, CL_DEVICE_LOCAL_MEM_SIZE);
    info->params_bytes = (uint32_t)number(device, CL_DEVICE_MAX_PARAMETER_SIZE);
    info->cache_bytes = number(device, CL_DEVICE_GLOBAL_MEM_CACHE_SIZE);
    info->processors = properties->processors = (uint32_t)number(device, CL_DEVICE_MAX_COMPUTE_UNITS);
    info->native = device->context;
    info->dlpack_device = DLPACK_OPENCL;
    info->target = "MK_OPENCL";
    if (is_cpu(device))
        info->features |= MICA__FEATURE_SLOW_BARRIER;
    if (number(device, CL_DEVICE_DOUBLE_FP_CONFIG) != 0)
        info->features |= MICA__FEATURE_F64;
    if ((info->features & MICA__FEATURE_PTX) != 0)
        snprintf(subgroups, sizeof subgroups, "warps of 32, takes PTX");
    else if ((info->features & MICA__FEATURE_SUBGROUPS) != 0)
        snprintf(subgroups, sizeof subgroups, "sub-groups of %u", properties->subgroup_width);
    snprintf(properties->features, sizeof properties->features, "%u KB local memory, %s%s",
             info->local_bytes / 1024, subgroups,
             (info->features & MICA__FEATURE_SLOW_BARRIER) != 0 ? ", work-items are loops of a CPU" : "");
}

static void get_info(mica__device *device, mica__device_info *out)
{
    *out = device->info;
}

/* ---- open and close ---- */

static void close_device(mica__device *device)
{
    if (device == NULL)
        return;
    const mica__opencl_symbols *cl = &device->cl;
    const bool alive = mica__opencl_alive(device);
    mica__opencl_queue_close(device, &device->queue);
    mica__opencl_commands_forget(device);
    if (alive && device->nothing != NULL)
        cl->clReleaseMemObject(device->nothing);
    if (alive && device->transfers != NULL)
        cl->clReleaseCommandQueue(device->transfers);
    if (alive && device->context != NULL)
        cl->clReleaseContext(device->context);
    mica__times_free(&device->times);
    mica__lock_destroy(&device->lock, &device->guard);
    mica__free(device);
}

static const mica__backend_table table = {
    .version = MICA__BACKEND_VERSION,
    .close = close_device,
    .info = get_info,
    .memory = mica__opencl_memory_amount,
    .buffer_create = mica__opencl_buffer_create,
    .buffer_destroy = mica__opencl_buffer_destroy,
    .buffer_map = mica__opencl_buffer_map,
    .buffer_unmap = mica__opencl_buffer_unmap,
    .upload = mica__opencl_upload,
    .download = mica__opencl_download,
    .program_create = mica__opencl_program_create,
    .program_binary = mica__opencl_program_binary,
    .program_destroy = mica__opencl_program_destroy,
    .kernel_get = mica__opencl_kernel_get,
    .encoder_begin = mica__opencl_encoder_begin,
    .dispatch = mica__opencl_dispatch,
    .barrier = mica__opencl_barrier,
    .encoder_end = mica__opencl_encoder_end,
    .submit = mica__opencl_submit,
    .commands_destroy = mica__opencl_commands_destroy,
    .wait = mica__opencl_wait,
    .queue_create = mica__opencl_queue_create,
    .queue_destroy = mica__opencl_queue_destroy,
    .commands_update = mica__opencl_commands_update,
    .timestamps = mica__opencl_timestamps,
    .queue_order = mica__opencl_queue_order,
    .buffer_fill = mica__opencl_buffer_fill,
};

/* The context and what every device has: queue 0, the queue of transfers, the stand-in for absent operands. */
static mica_status open_parts(mica__device *device)
{
    const mica__opencl_symbols *cl = &device->cl;
    const intptr_t properties[] = {CONTEXT_PLATFORM, (intptr_t)device->platform, 0};
    cl_int code = CL_SUCCESS;
    device->context = cl->clCreateContext(properties, 1, &device->id, NULL, NULL, &code);
    if (device->context == NULL || code != CL_SUCCESS)
        return mica__opencl_fail(device, code, "clCreateContext", "the device");
    const mica_status status = mica__opencl_queue_init(device, &device->queue);
    if (status != MICA_OK)
        return status;
    device->transfers = cl->clCreateCommandQueue(device->context, device->id, 0, &code);
    if (device->transfers == NULL || code != CL_SUCCESS)
        return mica__opencl_fail(device, code, "clCreateCommandQueue", "transfers");
    device->nothing = cl->clCreateBuffer(device->context, CL_MEM_READ_WRITE, NOTHING_BYTES, NULL, &code);
    if (device->nothing == NULL || code != CL_SUCCESS)
        return mica__opencl_fail(device, code, "clCreateBuffer", "absent operands");
    gather_info(device);
    return MICA_OK;
}

static mica_status open_device(uint32_t index, const mica_device_options *options, mica__device **out,
                               const mica__backend_table **out_table)
{
    mica__opencl_list list;
    (void)options;
    *out = NULL;
    *out_table = NULL;
    mica_status status = mica__opencl_list_fill(&list);
    if (status == MICA_OK)
        status = mica__opencl_entry_check(&list, index);
    if (status != MICA_OK)
        return status;
    mica__device *device = mica__calloc(1, sizeof *device);
    if (device == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "opencl: no host memory to open a device");
    status = mica__lock_init(&device->lock, &device->guard, true);
    if (status != MICA_OK) {
        mica__free(device);
        return status;
    }
    device->cl = list.cl;
    device->index = index;
    device->generation = mica__fork_generation();
    device->platform = list.entry[index].platform;
    device->id = list.entry[index].device;
    status = open_parts(device);
    if (status != MICA_OK) {
        close_device(device);
        return status;
    }
    *out = device;
    *out_table = &table;
    return MICA_OK;
}

/* ---- the list ---- */

static uint32_t probe(char *reason, size_t reason_bytes)
{
    mica__opencl_list list;
    const mica_status status = mica__opencl_list_fill(&list);
    snprintf(reason, reason_bytes, "%s", status == MICA_OK ? "" : mica_status_message());
    return status == MICA_OK ? list.count : 0;
}

/* A driver that runs kernels on the processor has nothing that the cpu backend does not do better. */
static uint32_t automatic(void)
{
    mica__opencl_list list;
    uint32_t gpus = 0;
    if (mica__gpu_possible() && mica__opencl_list_fill(&list) == MICA_OK)
        while (gpus < list.count && list.entry[gpus].rank == 0)
            gpus++;
    return gpus;
}

static mica_status describe(uint32_t index, char *name, size_t name_bytes)
{
    mica__opencl_list list;
    if (name_bytes != 0)
        name[0] = '\0';
    const mica_status status = mica__opencl_list_fill(&list);
    if (status != MICA_OK)
        return status;
    if (index < list.count)
        mica__opencl_device_text(&list.cl, list.entry[index].device, CL_DEVICE_NAME, name, name_bytes);
    return mica__opencl_entry_check(&list, index);
}

static const mica__kernel_row *kernel_rows(uint32_t *out_count)
{
    static const mica__kernel_row list[] = {
#define MICA__GPU_KERNEL_ROW(op, name, plan) {MICA_OP_##op, name, NULL, plan},
#include "backend/gpu/gpu_kernel_rows.def"
#undef MICA__GPU_KERNEL_ROW
    };
    *out_count = (uint32_t)(sizeof list / sizeof list[0]);
    return list;
}

const mica__backend mica__backend_opencl = {
    .version = MICA__BACKEND_VERSION,
    .name = "opencl",
    .probe = probe,
    .describe = describe,
    .open = open_device,
    .kernel_rows = kernel_rows,
    .weight_layout = mica__gpu_weight_layout,
    .automatic = automatic,
};
