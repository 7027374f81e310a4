/* cuda_program.c - programs and their kernels: machine code, text or PTX becomes a module of the driver. */
#include <stdio.h>
#include <string.h>

#include "backend/cuda/cuda_device.h"
#include "base/alloc.h"

#define JIT_LOG_BYTES 4096u

/* `image` is machine code, or PTX that ends with a NUL. */
static mica_status load(mica__device *device, const char *name, const void *image, void **out)
{
    static const int option[] = {MICA__CUDA_JIT_ERROR_LOG, MICA__CUDA_JIT_ERROR_LOG_BYTES};
    char log[JIT_LOG_BYTES] = "";
    void *value[] = {log, (void *)(uintptr_t)sizeof log};
    char what[256];
    *out = NULL;
    const int result = device->driver.module_load(out, image, 2, option, value);
    if (result == 0)
        return MICA_OK;
    *out = NULL;
    snprintf(what, sizeof what, "loading kernel %.160s", name);
    const mica_status status = mica__cuda_check(device, result, MICA_ERR_KERNEL_COMPILATION, what);
    if (log[0] == '\0')
        return status;
    log[sizeof log - 1] = '\0';
    return mica__fail(status, "%s: %s", mica_status_message(), log);
}

/* PTX stands in the middle of a longer text: the driver wants it to end. */
static mica_status load_portable(mica__device *device, const mica__program_desc *desc, void **out)
{
    char *text = mica__alloc((size_t)desc->portable_bytes + 1);
    if (text == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no host memory for kernel %s", desc->name);
    memcpy(text, desc->portable, (size_t)desc->portable_bytes);
    text[desc->portable_bytes] = '\0';
    const mica_status status = load(device, desc->name, text, out);
    mica__free(text);
    return status;
}

/* Compiles and keeps the code for the cache. */
static mica_status load_text(mica__device *device, const mica__program_desc *desc, mica__program *program)
{
    mica_status status =
        mica__cuda_compile(device, desc->name, desc->text, &program->binary, &program->binary_bytes);
    if (status == MICA_OK)
        status = load(device, desc->name, program->binary, &program->module);
    if (status != MICA_OK) {
        mica__free(program->binary);
        program->binary = NULL;
    }
    return status;
}

static mica_status load_any(mica__device *device, const mica__program_desc *desc, mica__program *program)
{
    mica_status status = mica__fail(MICA_ERR_KERNEL_NOT_FOUND, "kernel %s has no text for a GPU", desc->name);
    if (desc->binary != NULL)
        status = load(device, desc->name, desc->binary, &program->module);
    if (status != MICA_OK && status != MICA_ERR_DEVICE_LOST && desc->text != NULL)
        status = load_text(device, desc, program);
    if (status != MICA_ERR_KERNEL_NOT_FOUND)
        return status;
    if (desc->portable != NULL)
        return load_portable(device, desc, &program->module);
    return mica__fail(status, "%s; this build has no PTX of kernel %s either", mica_status_message(),
                      desc->name);
}

mica_status mica__cuda_program_create(mica__device *device, const mica__program_desc *desc,
                                      mica__program **out)
{
    *out = NULL;
    mica_status status = mica__cuda_enter(device);
    if (status != MICA_OK)
        return status;
    mica__program *program = mica__calloc(1, sizeof *program);
    if (program == NULL) {
        status = mica__fail(MICA_ERR_OUT_OF_MEMORY, "no host memory for kernel %s", desc->name);
    } else {
        program->device = device;
        program->foreign = desc->foreign;
        snprintf(program->name, sizeof program->name, "%.*s", (int)strcspn(desc->name, "|"), desc->name);
        status = load_any(device, desc, program);
    }
    mica__cuda_leave(device);
    if (status != MICA_OK) {
        mica__free(program);
        return status;
    }
    *out = program;
    return MICA_OK;
}

/* Given away once: nobody else wants it. */
mica_status mica__cuda_program_binary(mica__program *program, void **out, uint64_t *out_bytes)
{
    *out = program->binary;
    *out_bytes = program->binary_bytes;
    program->binary = NULL;
    if (*out == NULL)
        return mica__fail(MICA_ERR_UNSUPPORTED, "kernel %s was not compiled from text", program->name);
    return MICA_OK;
}

void mica__cuda_program_destroy(mica__device *device, mica__program *program)
{
    if (program == NULL)
        return;
    if (mica__cuda_enter_quietly(device)) {
        device->driver.module_unload(program->module);
        mica__cuda_leave(device);
    }
    while (program->kernels != NULL) {
        mica__kernel *kernel = program->kernels;
        program->kernels = kernel->next;
        mica__free(kernel);
    }
    mica__free(program->binary);
    mica__free(program);
}

/* How many arguments a user's kernel takes and the size of the last; 0 where the driver cannot say. The driver tells the
 * end of the list by an error, which tools that watch its calls report: plans say the number for kernels of ours. */
static void ask_arguments(const mica__cuda_driver *driver, mica__kernel *kernel)
{
    size_t offset = 0, size = 0;
    if (driver->function_parameter == NULL)
        return;
    while (kernel->argument_count < MICA__CUDA_ARGUMENTS + 1 &&
           driver->function_parameter(kernel->function, kernel->argument_count, &offset, &size) == 0) {
        kernel->params_bytes = (uint32_t)size;
        kernel->argument_count++;
    }
}

static mica_status find_function(mica__device *device, const mica__program *program, const char *name,
                                 mica__kernel *kernel)
{
    const mica__cuda_driver *driver = &device->driver;
    char what[256];
    int threads = 0, shared = 0;
    int result = driver->module_function(&kernel->function, program->module, name);
    if (result == 0)
        result = driver->function_attribute(&threads, MICA__CUDA_FUNCTION_THREADS, kernel->function);
    if (result == 0)
        result = driver->function_attribute(&shared, MICA__CUDA_FUNCTION_SHARED, kernel->function);
    snprintf(what, sizeof what, "kernel %.120s: finding its entry \"%.80s\"", program->name, name);
    const mica_status status = mica__cuda_check(device, result, MICA_ERR_KERNEL_NOT_FOUND, what);
    if (status != MICA_OK)
        return status;
    kernel->most_threads = (uint32_t)threads;
    kernel->shared = (uint32_t)shared;
    const bool alone = strcmp(program->name, name) == 0;
    snprintf(kernel->name, sizeof kernel->name, "%.30s%s%.31s", alone ? "" : program->name, alone ? "" : "/",
             name);
    if (program->foreign)
        ask_arguments(driver, kernel);
    return MICA_OK;
}

mica_status mica__cuda_kernel_get(mica__device *device, mica__program *program, const char *name,
                                  mica__kernel **out)
{
    *out = NULL;
    if (program == NULL) {
        if (strcmp(name, "cublaslt") == 0)
            return mica__cuda_blas_kernel(device, out);
        return mica__fail(MICA_ERR_KERNEL_NOT_FOUND, "kernel: cuda has none named \"%.80s\" built in", name);
    }
    mica_status status = mica__cuda_enter(device);
    if (status != MICA_OK)
        return status;
    mica__kernel *kernel = mica__calloc(1, sizeof *kernel);
    if (kernel == NULL)
        status = mica__fail(MICA_ERR_OUT_OF_MEMORY, "no host memory for kernel %s", program->name);
    else
        status = find_function(device, program, name, kernel);
    mica__cuda_leave(device);
    if (status != MICA_OK) {
        mica__free(kernel);
        return status;
    }
    pthread_mutex_lock(&device->lock);
    kernel->next = program->kernels;
    program->kernels = kernel;
    pthread_mutex_unlock(&device->lock);
    *out = kernel;
    return MICA_OK;
}
