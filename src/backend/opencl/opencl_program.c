/* opencl_program.c - programs from text or from the disk cache's bytes, their entries, and kernel objects to use. */
#include <stdio.h>
#include <string.h>

#include "backend/opencl/opencl_device.h"
#include "base/alloc.h"

#define LOG_SHOWN 300 /* bytes of the compiler's log that a sentence has room for */

/* The log from its first error on; "" when there is none to be had. Freed by the caller, NULL without memory. */
static char *build_log(mica__device *device, cl_program program, const char **out_begin)
{
    size_t bytes = 0;
    *out_begin = "";
    if (device->cl.clGetProgramBuildInfo(program, device->id, CL_PROGRAM_BUILD_LOG, 0, NULL, &bytes) !=
            CL_SUCCESS ||
        bytes == 0)
        return NULL;
    char *log = mica__calloc(1, bytes + 1);
    if (log == NULL || device->cl.clGetProgramBuildInfo(program, device->id, CL_PROGRAM_BUILD_LOG, bytes, log,
                                                        NULL) != CL_SUCCESS)
        return log;
    const char *error = strstr(log, "error");
    while (error != NULL && error > log && error[-1] != '\n')
        error--;
    *out_begin = error != NULL ? error : log;
    return log;
}

static mica_status refuse_text(mica__device *device, const mica__program_desc *desc, cl_program program,
                               cl_int code)
{
    const char *begin;
    mica_status status = mica__opencl_fail(device, code, "clBuildProgram", desc->name);
    if (status != MICA_ERR_KERNEL_COMPILATION)
        return status;
    char *log = build_log(device, program, &begin);
    status = mica__fail(status, "kernel \"%.60s\" does not compile on %s: %.*s", desc->name,
                        device->info.properties.id, LOG_SHOWN, begin);
    mica__free(log);
    return status;
}

/* Bytes that the driver does not take are no failure: the text is there too. */
static cl_program build_binary(mica__device *device, const unsigned char *binary, size_t bytes)
{
    cl_int taken = CL_SUCCESS, code = CL_SUCCESS;
    if (binary == NULL || bytes == 0)
        return NULL;
    cl_program program =
        device->cl.clCreateProgramWithBinary(device->context, 1, &device->id, &bytes, &binary, &taken, &code);
    if (program == NULL)
        return NULL;
    if (code == CL_SUCCESS && taken == CL_SUCCESS)
        code = device->cl.clBuildProgram(program, 1, &device->id, device->options, NULL, NULL);
    if (code == CL_SUCCESS && taken == CL_SUCCESS)
        return program;
    device->cl.clReleaseProgram(program);
    return NULL;
}

/* The bytes of a built program, with a NUL behind them that is not counted; freed by the caller. */
static mica_status take_binary(mica__device *device, cl_program program, const char *name, char **out,
                               size_t *out_bytes)
{
    size_t bytes = 0;
    *out = NULL;
    cl_int code = device->cl.clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof bytes, &bytes, NULL);
    if (code != CL_SUCCESS || bytes == 0)
        return mica__fail(MICA_ERR_UNSUPPORTED, "opencl: the driver gives no binary of \"%.60s\"", name);
    char *binary = mica__calloc(1, bytes + 1);
    if (binary == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "opencl: no host memory for the binary of \"%.60s\"", name);
    code = device->cl.clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL);
    if (code != CL_SUCCESS) {
        mica__free(binary);
        return mica__opencl_fail(device, code, "clGetProgramInfo", name);
    }
    *out = binary;
    *out_bytes = bytes;
    return MICA_OK;
}

/* The program with the bounds that its text asks for, in place of the one without; that one where it cannot be had. */
static void bound(mica__device *device, const mica__program_desc *desc, cl_program *program)
{
    char *ptx = NULL;
    size_t bytes = 0;
    if ((device->info.features & MICA__FEATURE_PTX) == 0 ||
        take_binary(device, *program, desc->name, &ptx, &bytes) != MICA_OK)
        return;
    char *bounded = mica__opencl_ptx_bound(ptx, desc->text, &bytes);
    cl_program again = build_binary(device, (const unsigned char *)bounded, bytes);
    if (again != NULL) {
        device->cl.clReleaseProgram(*program);
        *program = again;
    }
    mica__free(bounded);
    mica__free(ptx);
}

static mica_status build_text(mica__device *device, const mica__program_desc *desc, cl_program *out)
{
    const char *text = desc->text;
    cl_int code = CL_SUCCESS;
    *out = device->cl.clCreateProgramWithSource(device->context, 1, &text, NULL, &code);
    if (*out == NULL || code != CL_SUCCESS)
        return mica__opencl_fail(device, code, "clCreateProgramWithSource", desc->name);
    code = device->cl.clBuildProgram(*out, 1, &device->id, device->options, NULL, NULL);
    if (code == CL_SUCCESS) {
        bound(device, desc, out);
        return MICA_OK;
    }
    const mica_status status = refuse_text(device, desc, *out, code);
    device->cl.clReleaseProgram(*out);
    *out = NULL;
    return status;
}

mica_status mica__opencl_program_create(mica__device *device, const mica__program_desc *desc,
                                        mica__program **out)
{
    *out = NULL;
    mica_status status = mica__opencl_check(device);
    if (status != MICA_OK)
        return status;
    mica__program *program = mica__calloc(1, sizeof *program);
    if (program == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "opencl: no host memory for kernel \"%.60s\"", desc->name);
    program->device = device;
    snprintf(program->name, sizeof program->name, "%s", desc->name);
    program->program = build_binary(device, desc->binary, (size_t)desc->binary_bytes);
    if (program->program == NULL && desc->text != NULL)
        status = build_text(device, desc, &program->program);
    else if (program->program == NULL)
        status = mica__fail(MICA_ERR_KERNEL_NOT_FOUND, "kernel \"%.60s\" has no text that %s can compile",
                            desc->name, device->info.properties.id);
    if (status != MICA_OK) {
        mica__free(program);
        return status;
    }
    *out = program;
    return MICA_OK;
}

mica_status mica__opencl_program_binary(mica__program *program, void **out, uint64_t *out_bytes)
{
    mica__device *device = program->device;
    size_t bytes = 0;
    *out = NULL;
    *out_bytes = 0;
    mica_status status = mica__opencl_check(device);
    if (status != MICA_OK)
        return status;
    /* Such drivers keep what they compiled by themselves. For a binary they compile every entry once more, for any size of
     * group: it takes longer than the rest, and runs slower. */
    if ((device->info.features & MICA__FEATURE_SLOW_BARRIER) != 0)
        return mica__fail(MICA_ERR_UNSUPPORTED, "opencl: the driver of a CPU keeps \"%.60s\" itself",
                          program->name);
    char *binary = NULL;
    status = take_binary(device, program->program, program->name, &binary, &bytes);
    *out = binary;
    *out_bytes = bytes;
    return status;
}

/* ---- entries ---- */

static void destroy_kernel(mica__device *device, mica__kernel *kernel)
{
    for (uint32_t i = 0; i < kernel->spare_count && mica__opencl_alive(device); i++)
        device->cl.clReleaseKernel(kernel->spare[i]);
    mica__free(kernel->spare);
    mica__free(kernel);
}

void mica__opencl_program_destroy(mica__device *device, mica__program *program)
{
    if (program == NULL)
        return;
    while (program->kernels != NULL) {
        mica__kernel *kernel = program->kernels;
        program->kernels = kernel->next;
        destroy_kernel(device, kernel);
    }
    if (mica__opencl_alive(device))
        device->cl.clReleaseProgram(program->program);
    mica__free(program);
}

/* A place for one more object among the spare ones, so that giving one back needs no memory. Lock held. */
static bool reserve_spare(mica__kernel *kernel)
{
    if (kernel->made < kernel->spare_capacity)
        return true;
    const uint32_t capacity = 2 * kernel->spare_capacity + 4;
    cl_kernel *grown = mica__realloc(kernel->spare, capacity * sizeof *grown);
    if (grown == NULL)
        return false;
    kernel->spare = grown;
    kernel->spare_capacity = capacity;
    return true;
}

mica_status mica__opencl_kernel_take(mica__kernel *kernel, cl_kernel *out)
{
    mica__device *device = kernel->program->device;
    cl_int code = CL_SUCCESS;
    *out = NULL;
    pthread_mutex_lock(&device->lock);
    if (kernel->spare_count > 0)
        *out = kernel->spare[--kernel->spare_count];
    const bool make = *out == NULL && reserve_spare(kernel);
    kernel->made += make;
    pthread_mutex_unlock(&device->lock);
    if (*out != NULL)
        return MICA_OK;
    if (!make)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "opencl: no host memory for kernel %.60s", kernel->name);
    *out = device->cl.clCreateKernel(kernel->program->program, kernel->entry, &code);
    if (*out != NULL && code == CL_SUCCESS)
        return MICA_OK;
    pthread_mutex_lock(&device->lock);
    kernel->made--;
    pthread_mutex_unlock(&device->lock);
    *out = NULL;
    return mica__opencl_fail(device, code, "clCreateKernel", kernel->name);
}

void mica__opencl_kernel_give(mica__kernel *kernel, cl_kernel object)
{
    mica__device *device = kernel->program->device;
    pthread_mutex_lock(&device->lock);
    kernel->spare[kernel->spare_count++] = object;
    pthread_mutex_unlock(&device->lock);
}

/* "file/entry"; a user's kernel has the name of its program. */
static void name_kernel(mica__kernel *kernel)
{
    const char *program = kernel->program->name;
    const int file = (int)strcspn(program, "|");
    if (strncmp(program, kernel->entry, (size_t)file) == 0 && kernel->entry[file] == '\0')
        snprintf(kernel->name, sizeof kernel->name, "%s", kernel->entry);
    else
        snprintf(kernel->name, sizeof kernel->name, "%.*s/%.60s", file < 60 ? file : 60, program,
                 kernel->entry);
}

mica_status mica__opencl_kernel_get(mica__device *device, mica__program *program, const char *name,
                                    mica__kernel **out)
{
    cl_kernel object;
    *out = NULL;
    if (program == NULL)
        return mica__fail(MICA_ERR_KERNEL_NOT_FOUND, "kernel: OpenCL has no built-in one named \"%.60s\"",
                          name);
    mica_status status = mica__opencl_check(device);
    if (status != MICA_OK)
        return status;
    mica__kernel *kernel = mica__calloc(1, sizeof *kernel);
    if (kernel == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "opencl: no host memory for kernel \"%.60s\"", name);
    kernel->program = program;
    snprintf(kernel->entry, sizeof kernel->entry, "%s", name);
    name_kernel(kernel);
    status = mica__opencl_kernel_take(kernel, &object);
    if (status != MICA_OK) {
        destroy_kernel(device, kernel);
        return status;
    }
    kernel->most_items = device->info.max_group;
    size_t most = 0;
    if (device->cl.clGetKernelWorkGroupInfo(object, device->id, CL_KERNEL_WORK_GROUP_SIZE, sizeof most, &most,
                                            NULL) == CL_SUCCESS &&
        most > 0)
        kernel->most_items = most;
    mica__opencl_kernel_give(kernel, object);
    pthread_mutex_lock(&device->lock);
    kernel->next = program->kernels;
    program->kernels = kernel;
    pthread_mutex_unlock(&device->lock);
    *out = kernel;
    return MICA_OK;
}
