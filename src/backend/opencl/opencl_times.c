/* opencl_times.c - what the driver's events say about when commands ran. */
#include "backend/opencl/opencl_device.h"

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
        mica_profile_entry time = {.op = (mica_op)step->op,
                                   .index = i,
                                   .submission = submission->value,
                                   .bytes = (double)step->bytes,
                                   .operations = (double)step->operations};
        mica__opencl_event_times(device, submission->step_event[i], &time.begin_ns, &time.end_ns);
        pthread_mutex_lock(&device->lock);
        mica__times_add(&device->times, &time, step->kernel != NULL ? step->kernel->name : NULL, step->label);
        pthread_mutex_unlock(&device->lock);
    }
}

mica_status mica__opencl_timestamps(mica__device *device, bool enable, mica__profile *out)
{
    mica_status status = mica__opencl_check(device);
    if (status != MICA_OK)
        return status;
    pthread_mutex_lock(&device->lock);
    status = mica__times_read(&device->times, enable, out);
    pthread_mutex_unlock(&device->lock);
    return status;
}
