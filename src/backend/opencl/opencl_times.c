/* opencl_times.c - what the driver's events say about when commands ran. */
#include <stdio.h>
#include <string.h>

#include "backend/opencl/opencl_device.h"
#include "base/alloc.h"

#define TIMES_CAPACITY 65536u

static uint64_t event_time(const mica__device *device, cl_event event, cl_uint what)
{
    cl_ulong ns = 0;
    if (event == NULL || device->cl.clGetEventProfilingInfo(event, what, sizeof ns, &ns, NULL) != CL_SUCCESS)
        return 0;
    return ns;
}

void mica__opencl_event_times(const mica__device *device, cl_event event, uint64_t *out_begin_ns,
                              uint64_t *out_end_ns)
{
    *out_begin_ns = event_time(device, event, CL_PROFILING_COMMAND_START);
    *out_end_ns = event_time(device, event, CL_PROFILING_COMMAND_END);
}

void mica__opencl_times_add(mica__device *device, const mica__opencl_submission *submission)
{
    const mica__commands *commands = submission->commands;
    for (uint32_t i = 0; submission->step_event != NULL && i < commands->step_count; i++) {
        const mica__opencl_step *step = &commands->step[i];
        mica_profile_entry time;
        memset(&time, 0, sizeof time);
        snprintf(time.kernel, sizeof time.kernel, "%.47s",
                 step->kernel != NULL ? step->kernel->name : "copy_bytes");
        memcpy(time.label, step->label, sizeof time.label);
        time.op = (mica_op)step->op;
        time.index = i;
        time.submission = submission->value;
        mica__opencl_event_times(device, submission->step_event[i], &time.begin_ns, &time.end_ns);
        pthread_mutex_lock(&device->lock);
        if (device->times != NULL)
            device->times[device->times_count++ % TIMES_CAPACITY] = time;
        pthread_mutex_unlock(&device->lock);
    }
}

/* Switching on forgets what was there; switching off keeps it. Gives the last ones, oldest first. */
mica_status mica__opencl_timestamps(mica__device *device, bool enable, mica_profile_entry *out,
                                    uint64_t capacity, uint64_t *out_count)
{
    *out_count = 0;
    mica_status status = mica__opencl_check(device);
    if (status != MICA_OK)
        return status;
    pthread_mutex_lock(&device->lock);
    if (enable && atomic_load(&device->timed) == 0) {
        device->times_count = 0;
        if (device->times == NULL)
            device->times = mica__alloc(TIMES_CAPACITY * sizeof *device->times);
        if (device->times == NULL)
            status =
                mica__fail(MICA_ERR_OUT_OF_MEMORY, "opencl: no host memory to keep %u times", TIMES_CAPACITY);
    }
    atomic_store(&device->timed, enable && status == MICA_OK);
    const uint64_t kept = device->times_count < TIMES_CAPACITY ? device->times_count : TIMES_CAPACITY;
    for (uint64_t i = 0; i < kept && i < capacity; i++)
        out[i] = device->times[(device->times_count - kept + i) % TIMES_CAPACITY];
    *out_count = kept;
    pthread_mutex_unlock(&device->lock);
    return status;
}
