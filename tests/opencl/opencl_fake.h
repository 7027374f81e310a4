/*
 * opencl_fake.h - the machine's OpenCL behind a table that counts the calls, fails the n-th and keeps account of every
 * object. Calls that only give something back, or wait, still do so when they fail: what the device is doing must not
 * outlive what it is done with.
 */
#ifndef TEST_OPENCL_FAKE_H
#define TEST_OPENCL_FAKE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "backend/opencl/opencl_symbols.h"

static mica__opencl_symbols fake_real;
static atomic_uint_fast64_t fake_calls, fake_fail_at; /* 0: none fails */
static atomic_int fake_code, fake_for_good;
static atomic_int_fast64_t fake_live; /* contexts, queues, buffers, programs, kernels, events */

/* Is this call the one to fail? */
static bool fake_strikes(void)
{
    const uint64_t call = atomic_fetch_add(&fake_calls, 1) + 1, at = atomic_load(&fake_fail_at);
    return at != 0 && (call == at || (atomic_load(&fake_for_good) && call > at));
}

static bool fake_is(const char *name, const char *begin)
{
    return strncmp(name, begin, strlen(begin)) == 0;
}

/* What a call that ended well changes in the account: by its name, and by the event it may have made. */
static cl_int fake_account(const char *name, cl_int code)
{
    if (code == CL_SUCCESS && fake_is(name, "clRelease"))
        atomic_fetch_sub(&fake_live, 1);
    if (code == CL_SUCCESS && fake_is(name, "clRetain"))
        atomic_fetch_add(&fake_live, 1);
    return code;
}

static bool fake_must_run(const char *name)
{
    return fake_is(name, "clRelease") || fake_is(name, "clFinish") || fake_is(name, "clWaitForEvents") ||
           fake_is(name, "clEnqueueUnmap");
}

#define OPENCL_STATUS(name, parameters, arguments)                         \
    static cl_int fake_##name parameters                                   \
    {                                                                      \
        const bool strikes = fake_strikes();                               \
        if (strikes && !fake_must_run(#name))                              \
            return atomic_load(&fake_code);                                \
        const cl_int code = fake_account(#name, fake_real.name arguments); \
        return strikes ? atomic_load(&fake_code) : code;                   \
    }
#define OPENCL_OBJECT(type, name, parameters, arguments)                            \
    static type fake_##name parameters                                              \
    {                                                                               \
        if (fake_strikes()) {                                                       \
            *error = atomic_load(&fake_code);                                       \
            return NULL;                                                            \
        }                                                                           \
        type object = fake_real.name arguments;                                     \
        atomic_fetch_add(&fake_live, object != NULL && fake_is(#name, "clCreate")); \
        return object;                                                              \
    }
#include "backend/opencl/opencl_symbols.def"
#undef OPENCL_STATUS
#undef OPENCL_OBJECT

/* Enqueued commands that leave an event are counted apart: the macro above does not see it. */
#define FAKE_EVENT(name, parameters, arguments)                                \
    static cl_int fake_event_##name parameters                                 \
    {                                                                          \
        const cl_int code = fake_##name arguments;                             \
        atomic_fetch_add(&fake_live, code == CL_SUCCESS && out_event != NULL); \
        return code;                                                           \
    }
FAKE_EVENT(clEnqueueNDRangeKernel,
           (cl_command_queue queue, cl_kernel kernel, cl_uint dimensions, const size_t *offset,
            const size_t *global, const size_t *local, cl_uint wait_count, const cl_event *wait,
            cl_event *out_event),
           (queue, kernel, dimensions, offset, global, local, wait_count, wait, out_event))
FAKE_EVENT(clEnqueueReadBuffer,
           (cl_command_queue queue, cl_mem memory, cl_uint blocking, size_t offset, size_t bytes, void *to,
            cl_uint wait_count, const cl_event *wait, cl_event *out_event),
           (queue, memory, blocking, offset, bytes, to, wait_count, wait, out_event))
FAKE_EVENT(clEnqueueWriteBuffer,
           (cl_command_queue queue, cl_mem memory, cl_uint blocking, size_t offset, size_t bytes,
            const void *from, cl_uint wait_count, const cl_event *wait, cl_event *out_event),
           (queue, memory, blocking, offset, bytes, from, wait_count, wait, out_event))
FAKE_EVENT(clEnqueueCopyBuffer,
           (cl_command_queue queue, cl_mem from, cl_mem to, size_t from_offset, size_t to_offset,
            size_t bytes, cl_uint wait_count, const cl_event *wait, cl_event *out_event),
           (queue, from, to, from_offset, to_offset, bytes, wait_count, wait, out_event))
FAKE_EVENT(clEnqueueFillBuffer,
           (cl_command_queue queue, cl_mem memory, const void *pattern, size_t pattern_bytes, size_t offset,
            size_t bytes, cl_uint wait_count, const cl_event *wait, cl_event *out_event),
           (queue, memory, pattern, pattern_bytes, offset, bytes, wait_count, wait, out_event))
FAKE_EVENT(clEnqueueMarkerWithWaitList,
           (cl_command_queue queue, cl_uint wait_count, const cl_event *wait, cl_event *out_event),
           (queue, wait_count, wait, out_event))

/* The device says that it is a GPU: of those mica keeps binaries, which a CPU's driver keeps itself. */
static cl_int fake_gpu_clGetDeviceInfo(cl_device_id device, cl_uint what, size_t bytes, void *value,
                                       size_t *out_bytes)
{
    const cl_int code = fake_clGetDeviceInfo(device, what, bytes, value, out_bytes);
    const cl_ulong gpu = CL_DEVICE_TYPE_GPU;
    if (code == CL_SUCCESS && what == CL_DEVICE_TYPE && bytes >= sizeof gpu)
        memcpy(value, &gpu, sizeof gpu);
    return code;
}

/* The device offers sub-groups with shuffles, and the kernel that looks at them finds `fake_subgroups`: their width, and whether
 * they are not runs of local ids. NULL: the kernel is the library's. */
static const uint32_t *fake_subgroups;

static cl_int fake_subgroups_clGetDeviceInfo(cl_device_id device, cl_uint what, size_t bytes, void *value,
                                             size_t *out_bytes)
{
    const cl_int code = fake_gpu_clGetDeviceInfo(device, what, bytes, value, out_bytes);
    static const char offer[] = " cl_khr_subgroup_shuffle";
    if (code == CL_SUCCESS && what == CL_DEVICE_EXTENSIONS && strlen(value) + sizeof offer <= bytes)
        memcpy((char *)value + strlen(value), offer, sizeof offer);
    return code;
}

static cl_program fake_subgroups_clCreateProgramWithSource(cl_context context, cl_uint count,
                                                           const char **texts, const size_t *lengths,
                                                           cl_int *error)
{
    char text[200];
    const char *begin = text;
    if (fake_subgroups == NULL || strstr(texts[0], "void look(") == NULL)
        return fake_clCreateProgramWithSource(context, count, texts, lengths, error);
    snprintf(text, sizeof text, "__kernel void look(__global uint *out) { out[0] = %uu; out[1] = %uu; }",
             fake_subgroups[0], fake_subgroups[1]);
    return fake_clCreateProgramWithSource(context, 1, &begin, NULL, error);
}

/* A blocking write that lands as late as OpenCL 1.2 allows: the host's bytes are taken, and the buffer gets them when the event
 * is waited for or the queue finished. One is on its way at a time, of one thread. */
static struct {
    cl_command_queue queue;
    cl_mem memory;
    size_t offset, bytes;
    unsigned char from[2048];
} fake_late;

static cl_int fake_late_land(void)
{
    const size_t bytes = fake_late.bytes;
    fake_late.bytes = 0;
    return bytes == 0 ? CL_SUCCESS
                      : fake_real.clEnqueueWriteBuffer(fake_late.queue, fake_late.memory, 1, fake_late.offset,
                                                       bytes, fake_late.from, 0, NULL, NULL);
}

static cl_int fake_late_clEnqueueWriteBuffer(cl_command_queue queue, cl_mem memory, cl_uint blocking,
                                             size_t offset, size_t bytes, const void *from,
                                             cl_uint wait_count, const cl_event *wait, cl_event *out_event)
{
    if (fake_late_land() != CL_SUCCESS || blocking == 0 || bytes > sizeof fake_late.from)
        return CL_INVALID_VALUE;
    fake_late.queue = queue;
    fake_late.memory = memory;
    fake_late.offset = offset;
    fake_late.bytes = bytes;
    memcpy(fake_late.from, from, bytes);
    return out_event == NULL ? CL_SUCCESS
                             : fake_event_clEnqueueMarkerWithWaitList(queue, wait_count, wait, out_event);
}

static cl_int fake_late_clWaitForEvents(cl_uint count, const cl_event *events)
{
    const cl_int code = fake_late_land();
    return code == CL_SUCCESS ? fake_clWaitForEvents(count, events) : code;
}

static cl_int fake_late_clFinish(cl_command_queue queue)
{
    const cl_int code = fake_late.queue == queue ? fake_late_land() : CL_SUCCESS;
    return code == CL_SUCCESS ? fake_clFinish(queue) : code;
}

/* The table of the fake over the machine's own library. */
static mica_status fake_install(mica__opencl_symbols *table)
{
    mica__opencl_symbols_replace(NULL);
    const mica_status status = mica__opencl_symbols_load(&fake_real);
    *table = (mica__opencl_symbols){
#define OPENCL_STATUS(name, parameters, arguments) .name = fake_##name,
#define OPENCL_OBJECT(type, name, parameters, arguments) .name = fake_##name,
#include "backend/opencl/opencl_symbols.def"
#undef OPENCL_STATUS
#undef OPENCL_OBJECT
    };
    table->clGetDeviceInfo = fake_gpu_clGetDeviceInfo;
    table->clEnqueueNDRangeKernel = fake_event_clEnqueueNDRangeKernel;
    table->clEnqueueReadBuffer = fake_event_clEnqueueReadBuffer;
    table->clEnqueueWriteBuffer = fake_event_clEnqueueWriteBuffer;
    table->clEnqueueCopyBuffer = fake_event_clEnqueueCopyBuffer;
    table->clEnqueueFillBuffer = fake_event_clEnqueueFillBuffer;
    table->clEnqueueMarkerWithWaitList = fake_event_clEnqueueMarkerWithWaitList;
    mica__opencl_symbols_replace(table);
    return status;
}

#endif
