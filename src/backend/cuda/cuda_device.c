/*
 * cuda_device.c - the CUDA backend's door: what there is, opening and closing, the current context, errors.
 */
#include "backend/cuda/cuda_device.h"

#include <stdio.h>
#include <string.h>

#include "backend/gpu/gpu_plan.h"
#include "base/alloc.h"
#include "base/env.h"

/* ---- errors ---- */

/* Errors after which a context never works again. */
static const int fatal_errors[] = {4, 214, 220, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 999};

static bool is_fatal(int result)
{
    for (size_t i = 0; i < sizeof fatal_errors / sizeof fatal_errors[0]; i++)
        if (fatal_errors[i] == result)
            return true;
    return false;
}

static const char *error_name(const mica__cuda_driver *driver, int result)
{
    const char *name = NULL;
    return driver->error_name(result, &name) == 0 && name != NULL ? name : "an unknown error";
}

mica_status mica__cuda_check(mica__device *device, int result, mica_status code, const char *what)
{
    if (result == 0)
        return MICA_OK;
    if (is_fatal(result)) {
        atomic_store(&device->lost, true);
        code = MICA_ERR_DEVICE_LOST;
    } else if (result == MICA__CUDA_ERROR_MEMORY) {
        code = MICA_ERR_OUT_OF_MEMORY;
    }
    return mica__fail(code, "cuda:%u: %s: %s (%d)", device->index, what, error_name(&device->driver, result),
                      result);
}

/* ---- the current context ---- */

bool mica__cuda_enter_quietly(mica__device *device)
{
    return device->generation == mica__fork_generation() && device->driver.context_push(device->context) == 0;
}

mica_status mica__cuda_enter(mica__device *device)
{
    if (device->generation != mica__fork_generation())
        return mica__fail(MICA_ERR_DEVICE_LOST,
                          "cuda:%u: a process that was forked cannot use its parent's device", device->index);
    if (atomic_load_explicit(&device->lost, memory_order_relaxed))
        return mica__fail(MICA_ERR_DEVICE_LOST, "cuda:%u: the device was lost", device->index);
    return mica__cuda_check(device, device->driver.context_push(device->context), MICA_ERR_DEVICE_LOST,
                            "making the context current");
}

void mica__cuda_leave(mica__device *device)
{
    void *context = NULL;
    device->driver.context_pop(&context);
}

/* ---- what there is ---- */

/* The driver, ready to be asked, and how many devices it has. UNSUPPORTED otherwise; then nothing is open. */
static mica_status open_driver(mica__cuda_driver *driver, int *out_count)
{
    *out_count = 0;
    mica_status status = mica__cuda_driver_open(driver);
    if (status != MICA_OK)
        return status;
    int result = driver->init(0);
    if (result == 0)
        result = driver->device_count(out_count);
    if (result == 0 && *out_count > 0)
        return MICA_OK;
    status = mica__fail(MICA_ERR_UNSUPPORTED, "%s: %s", mica__dl_name(driver->library),
                        result != 0 ? error_name(driver, result) : "there is no device");
    mica__dl_close(driver->library);
    return status;
}

static uint32_t probe(char *reason, size_t reason_bytes)
{
    mica__cuda_driver driver;
    int count = 0;
    if (reason_bytes != 0)
        reason[0] = '\0';
    if (open_driver(&driver, &count) == MICA_OK)
        mica__dl_close(driver.library);
    else if (reason_bytes != 0)
        snprintf(reason, reason_bytes, "%.*s", (int)reason_bytes - 1, mica_status_message());
    return (uint32_t)count;
}

static mica_status check_index(uint32_t index, int count)
{
    if (index >= (uint32_t)count)
        return mica__fail(MICA_ERR_DEVICE_NOT_FOUND, "cuda:%u does not exist, there are %d, from cuda:0 on",
                          index, count);
    return MICA_OK;
}

static mica_status describe(uint32_t index, char *name, size_t name_bytes)
{
    mica__cuda_driver driver;
    int count = 0, ordinal = 0;
    if (name_bytes != 0)
        name[0] = '\0';
    mica_status status = open_driver(&driver, &count);
    if (status != MICA_OK)
        return status;
    status = check_index(index, count);
    if (status == MICA_OK) {
        int result = driver.device_get(&ordinal, (int)index);
        if (result == 0)
            result = driver.device_name(name, (int)name_bytes, ordinal);
        if (result != 0)
            status = mica__fail(MICA_ERR_UNSUPPORTED, "cuda:%u: %s", index, error_name(&driver, result));
    }
    mica__dl_close(driver.library);
    return status;
}

/* The driver's version as cuDriverGetVersion counts; 0: there is none. */
static int installed_version(void)
{
    mica__cuda_driver driver;
    int version = 0;
    if (mica__cuda_driver_open(&driver) != MICA_OK)
        return 0;
    if (driver.driver_version(&version) != 0)
        version = 0;
    mica__dl_close(driver.library);
    return version;
}

/* "NVRTC: libnvrtc.so.13" or why not, for each library that is opened late. */
static void describe_libraries(char *out, size_t out_bytes)
{
    mica__cuda_compiler compiler = {0};
    mica__cuda_blas blas = {0};
    char missing[2][MICA_NAME_BYTES] = {"hidden by MICA_DEBUG", "hidden by MICA_DEBUG"};
    if (!mica__env_debug(MICA__DEBUG_NONVRTC) &&
        mica__cuda_compiler_open(installed_version(), &compiler) != MICA_OK)
        snprintf(missing[0], sizeof missing[0], "%.100s", mica_status_message());
    if (!mica__env_debug(MICA__DEBUG_NOCUBLAS) && mica__cuda_blas_open(&blas) != MICA_OK)
        snprintf(missing[1], sizeof missing[1], "%.100s", mica_status_message());
    snprintf(out, out_bytes, "NVRTC: %s, cuBLASLt: %s",
             compiler.library != NULL ? mica__dl_name(compiler.library) : missing[0],
             blas.library != NULL ? mica__dl_name(blas.library) : missing[1]);
    mica__dl_close(compiler.library);
    mica__dl_close(blas.library);
}

/* ---- facts ---- */

static void describe_features(mica__device *device)
{
    const mica__cuda_driver *driver = &device->driver;
    mica_device_properties *properties = &device->info.properties;
    snprintf(properties->features, sizeof properties->features,
             "warps of 32, %u KB local memory, %u MB cache%s%s", (unsigned)(device->shared / 1024),
             (unsigned)(device->info.cache_bytes >> 20),
             driver->graph_create != NULL && driver->graph_instantiate != NULL ? ", graphs" : "",
             driver->pool_create != NULL && driver->pool_alloc != NULL ? ", memory pools" : "");
}

static uint32_t attribute(const mica__device *device, int which)
{
    int value = 0;
    return device->driver.device_attribute(&value, which, device->ordinal) == 0 && value > 0 ? (uint32_t)value
                                                                                             : 0;
}

static mica_status read_facts(mica__device *device)
{
    const mica__cuda_driver *driver = &device->driver;
    mica__device_info *info = &device->info;
    mica_device_properties *properties = &info->properties;
    size_t total = 0;
    int result = driver->device_name(properties->name, sizeof properties->name, device->ordinal);
    if (result == 0)
        result = driver->device_memory(&total, device->ordinal);
    if (result == 0)
        result = driver->driver_version(&device->version);
    if (result != 0)
        return mica__cuda_check(device, result, MICA_ERR_UNSUPPORTED, "asking the device what it is");
    info->compute =
        10 * attribute(device, MICA__CUDA_DEVICE_MAJOR) + attribute(device, MICA__CUDA_DEVICE_MINOR);
    snprintf(properties->id, sizeof properties->id, "cuda:%u", device->index);
    snprintf(properties->backend, sizeof properties->backend, "cuda");
    snprintf(properties->driver, sizeof properties->driver, "CUDA %d.%d, compute capability %u.%u",
             device->version / 1000, device->version % 1000 / 10, info->compute / 10, info->compute % 10);
    properties->total_memory = properties->max_buffer = total;
    properties->subgroup_width = 32;
    properties->buffer_alignment = 256;
    info->max_group = attribute(device, MICA__CUDA_DEVICE_THREADS);
    properties->processors = attribute(device, MICA__CUDA_DEVICE_PROCESSORS);
    info->processors = properties->processors > 0 ? properties->processors : 1; /* plans divide work by it */
    info->cache_bytes = attribute(device, MICA__CUDA_DEVICE_CACHE);
    info->local_bytes = device->shared = attribute(device, MICA__CUDA_DEVICE_SHARED);
    info->params_bytes = MICA__CUDA_ARGUMENT_BYTES;
    info->edges = 1;
    info->in_order = 1;
    info->dlpack_device = 2; /* kDLCUDA */
    info->target = "MK_CUDA";
    info->features = MICA__FEATURE_SUBGROUPS | MICA__FEATURE_F64;
    describe_features(device);
    /* The compiler's version is not in it: asking would open the compiler, and what an older one made still runs. */
    snprintf(info->identity, sizeof info->identity, "cuda %s sm_%u driver %d %s%s", properties->name,
             info->compute, device->version, MICA__CUDA_OPTIONS,
             mica__env_debug(MICA__DEBUG_NONVRTC) ? " nonvrtc" : "");
    return MICA_OK;
}

static void fill_info(mica__device *device, mica__device_info *out)
{
    *out = device->info;
    out->native = device->context;
}

/* ---- open and close ---- */

static mica_status init_locks(mica__device *device)
{
    mica_status status = mica__lock_init(&device->lock, &device->guard, true);
    if (status != MICA_OK)
        return status;
    status = mica__lock_init(&device->library_lock, &device->library_guard, false);
    if (status != MICA_OK)
        mica__lock_destroy(&device->lock, &device->guard);
    return status;
}

static void destroy_locks(mica__device *device)
{
    mica__lock_destroy(&device->library_lock, &device->library_guard);
    mica__lock_destroy(&device->lock, &device->guard);
}

/* Everything that needs the context. What came about is given back by close_context. */
static mica_status open_context(mica__device *device)
{
    mica_status status = mica__cuda_enter(device);
    if (status != MICA_OK)
        return status;
    status = mica__cuda_memory_open(device);
    if (status == MICA_OK)
        status = mica__cuda_queue_open(device, &device->queue);
    mica__cuda_leave(device);
    return status;
}

static void close_context(mica__device *device)
{
    const bool driver = mica__cuda_enter_quietly(device);
    mica__cuda_queue_close(device, &device->queue, driver);
    mica__cuda_commands_forget(device);
    mica__cuda_blas_close(device, driver);
    mica__cuda_faults_close(device, driver);
    mica__cuda_memory_close(device, driver);
    if (driver)
        mica__cuda_leave(device);
}

static void free_device(mica__device *device)
{
    if (device->context != NULL && device->generation == mica__fork_generation())
        device->driver.context_release(device->ordinal);
    mica__dl_close(device->compiler.library);
    mica__dl_close(device->driver.library);
    mica__times_free(&device->times);
    destroy_locks(device);
    mica__free(device);
}

static void close_device(mica__device *device)
{
    if (device == NULL)
        return;
    close_context(device);
    free_device(device);
}

static const mica__backend_table table = {
    .version = MICA__BACKEND_VERSION,
    .close = close_device,
    .info = fill_info,
    .memory = mica__cuda_memory_amount,
    .buffer_create = mica__cuda_buffer_create,
    .buffer_destroy = mica__cuda_buffer_destroy,
    .upload = mica__cuda_upload,
    .download = mica__cuda_download,
    .program_create = mica__cuda_program_create,
    .program_binary = mica__cuda_program_binary,
    .program_destroy = mica__cuda_program_destroy,
    .kernel_get = mica__cuda_kernel_get,
    .encoder_begin = mica__cuda_encoder_begin,
    .dispatch = mica__cuda_dispatch,
    .barrier = mica__cuda_barrier,
    .encoder_end = mica__cuda_encoder_end,
    .submit = mica__cuda_submit,
    .commands_destroy = mica__cuda_commands_destroy,
    .wait = mica__cuda_wait,
    .queue_create = mica__cuda_queue_create,
    .queue_destroy = mica__cuda_queue_destroy,
    .commands_update = mica__cuda_commands_update,
    .timestamps = mica__cuda_timestamps,
    .queue_order = mica__cuda_queue_order,
    .buffer_fill = mica__cuda_buffer_fill,
};

/* Driver, device and its facts, the context. */
static mica_status open_parts(mica__device *device)
{
    int count = 0;
    mica_status status = open_driver(&device->driver, &count);
    if (status != MICA_OK) {
        device->driver.library = NULL;
        return status;
    }
    status = check_index(device->index, count);
    if (status == MICA_OK)
        status = mica__cuda_check(device, device->driver.device_get(&device->ordinal, (int)device->index),
                                  MICA_ERR_DEVICE_NOT_FOUND, "finding the device");
    if (status == MICA_OK)
        status = read_facts(device);
    if (status == MICA_OK)
        status = mica__cuda_check(device, device->driver.context_retain(&device->context, device->ordinal),
                                  MICA_ERR_UNSUPPORTED, "making a context");
    if (status != MICA_OK) {
        device->context = NULL;
        return status;
    }
    status = open_context(device);
    if (status != MICA_OK)
        close_context(device);
    return status;
}

static mica_status open_device(uint32_t index, const mica_device_options *options, mica__device **out,
                               const mica__backend_table **out_table)
{
    (void)options;
    *out = NULL;
    *out_table = NULL;
    mica__device *device = mica__calloc(1, sizeof *device);
    if (device == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "cuda: no memory to open the device");
    mica_status status = init_locks(device);
    if (status != MICA_OK) {
        mica__free(device);
        return status;
    }
    device->index = index;
    device->generation = mica__fork_generation();
    status = open_parts(device);
    if (status != MICA_OK) {
        free_device(device);
        return status;
    }
    *out = device;
    *out_table = &table;
    return MICA_OK;
}

const mica__backend mica__backend_cuda = {
    .version = MICA__BACKEND_VERSION,
    .name = "cuda",
    .probe = probe,
    .describe = describe,
    .open = open_device,
    .kernel_rows = mica__cuda_kernel_rows,
    .weight_layout = mica__gpu_weight_layout,
    .libraries = describe_libraries,
};
