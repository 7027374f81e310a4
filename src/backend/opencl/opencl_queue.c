/*
 * opencl_queue.c - in-order queues: submissions with values, their results, waiting.
 *
 * A submission ends with a command whose event is kept: the read of the fault word, or a marker. It is resolved, under
 * the queue's lock, by the first thread that sees that event done; what it held goes then.
 */
#include <stdio.h>
#include <string.h>

#include "backend/checks.h"
#include "backend/opencl/opencl_device.h"
#include "base/alloc.h"
#include "base/clock.h"

#define POLL_NS 50000u /* between two looks at an event while a wait has a limit */

static mica__queue *queue_of(mica__device *device, mica__queue *queue)
{
    return queue == NULL ? &device->queue : queue;
}

/* ---- results ---- */

/* Lock held. Gives back what the submission held. */
static void let_go(mica__device *device, mica__opencl_submission *submission)
{
    const bool alive = mica__opencl_alive(device);
    if (submission->begin != NULL && alive)
        device->cl.clReleaseEvent(submission->begin);
    if (submission->end != NULL && alive)
        device->cl.clReleaseEvent(submission->end);
    for (uint32_t i = 0; submission->step_event != NULL && alive && i < submission->commands->step_count; i++)
        if (submission->step_event[i] != NULL)
            device->cl.clReleaseEvent(submission->step_event[i]);
    mica__free(submission->step_event);
    submission->step_event = NULL;
    submission->begin = submission->end = NULL;
    if (submission->commands != NULL)
        mica__opencl_commands_unref(submission->commands);
    submission->commands = NULL;
    submission->resolved = true;
}

/* Work that fails on the device leaves nothing to go on with, except where it says that memory was short. */
static mica_status failed_work(mica__device *device, cl_int code)
{
    const mica_status status = mica__opencl_error_status(code);
    if (status == MICA_ERR_OUT_OF_MEMORY && code != CL_OUT_OF_RESOURCES)
        return MICA_ERR_SUBMISSION;
    atomic_store(&device->lost, 1);
    return MICA_ERR_DEVICE_LOST;
}

/* Lock held. The event of its last command is done, or the driver cannot tell: then the device is lost. */
static void resolve(mica__device *device, mica__opencl_submission *submission)
{
    mica__completion *completion = &submission->completion;
    cl_int state = CL_COMPLETE;
    uint64_t unused;
    const cl_int code = device->cl.clGetEventInfo(submission->end, CL_EVENT_COMMAND_EXECUTION_STATUS,
                                                  sizeof state, &state, NULL);
    if (code != CL_SUCCESS || state > CL_COMPLETE)
        state = CL_OUT_OF_RESOURCES;
    memset(completion, 0, sizeof *completion);
    if (state < 0) {
        completion->status = failed_work(device, state);
    } else {
        completion->fault = submission->fault;
        mica__opencl_event_times(device, submission->begin, &completion->begin_ns, &unused);
        mica__opencl_event_times(device, submission->end, &unused, &completion->end_ns);
        if (completion->end_ns < completion->begin_ns)
            completion->end_ns = completion->begin_ns;
        mica__opencl_times_add(device, submission);
    }
    let_go(device, submission);
}

/* Lock taken here. Nothing is asked of the driver: the device is lost, or closes with all its work done. */
static void abandon(mica__device *device, mica__queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    for (uint32_t i = 0; i < MICA__OPENCL_RESULTS; i++) {
        mica__opencl_submission *submission = &queue->submission[i];
        if (submission->value == 0 || submission->resolved)
            continue;
        submission->completion = (mica__completion){MICA_ERR_DEVICE_LOST, 0, 0, 0};
        let_go(device, submission);
    }
    pthread_mutex_unlock(&queue->lock);
}

/* ---- submitting ---- */

static cl_int enqueue_step(mica__device *device, cl_command_queue queue, const mica__opencl_step *step,
                           cl_event *out_event)
{
    const mica__binding *from = &step->from, *to = &step->to;
    if (step->kernel != NULL)
        return device->cl.clEnqueueNDRangeKernel(queue, step->object, 3, NULL, step->global, step->local, 0,
                                                 NULL, out_event);
    if (from->memory == to->memory && from->offset == to->offset) /* onto itself, which the driver refuses */
        return device->cl.clEnqueueMarkerWithWaitList(queue, 0, NULL, out_event);
    return device->cl.clEnqueueCopyBuffer(queue, from->memory->native, to->memory->native,
                                          (size_t)from->offset, (size_t)to->offset, (size_t)from->length, 0,
                                          NULL, out_event);
}

/* The steps, between the clearing and the reading of the fault word. `out_failed` is the step that was refused. */
static cl_int enqueue_all(mica__device *device, cl_command_queue queue, mica__opencl_submission *submission,
                          const mica__opencl_step **out_failed)
{
    static const uint32_t zero = 0;
    const mica__commands *commands = submission->commands;
    cl_int code = CL_SUCCESS;
    *out_failed = NULL;
    if (commands->raises)
        code = device->cl.clEnqueueFillBuffer(queue, commands->fault, &zero, sizeof zero, 0, sizeof zero, 0,
                                              NULL, &submission->begin);
    for (uint32_t i = 0; i < commands->step_count && code == CL_SUCCESS; i++) {
        cl_event *event = submission->step_event != NULL ? &submission->step_event[i] : NULL;
        if (event == NULL && submission->begin == NULL)
            event = &submission->begin;
        code = enqueue_step(device, queue, &commands->step[i], event);
        if (code != CL_SUCCESS)
            *out_failed = &commands->step[i];
    }
    if (code == CL_SUCCESS && commands->raises)
        code = device->cl.clEnqueueReadBuffer(queue, commands->fault, 0, 0, sizeof submission->fault,
                                              &submission->fault, 0, NULL, &submission->end);
    else if (code == CL_SUCCESS)
        code = device->cl.clEnqueueMarkerWithWaitList(queue, 0, NULL, &submission->end);
    if (code == CL_SUCCESS)
        code = device->cl.clFlush(queue);
    return code;
}

/* Lock held. The place of the next submission, waiting for the one that has it now. */
static mica__opencl_submission *next_place(mica__device *device, mica__queue *queue)
{
    mica__opencl_submission *submission = &queue->submission[(queue->submitted + 1) % MICA__OPENCL_RESULTS];
    if (submission->value != 0 && !submission->resolved) {
        device->cl.clWaitForEvents(1, &submission->end);
        resolve(device, submission);
    }
    memset(submission, 0, sizeof *submission);
    return submission;
}

static mica_status refuse(mica__device *device, cl_int code, const mica__opencl_step *failed)
{
    if (failed == NULL)
        return mica__opencl_fail(device, code, "clEnqueueMarkerWithWaitList", "a submission");
    if (failed->kernel == NULL)
        return mica__opencl_fail(device, code, "clEnqueueCopyBuffer", "a copy");
    return mica__opencl_fail(device, code, "clEnqueueNDRangeKernel", failed->kernel->name);
}

/* Lock held; the submission owns a reference of the commands. */
static mica_status submit_locked(mica__device *device, mica__queue *queue, mica__commands *commands)
{
    const mica__opencl_step *failed = NULL;
    mica__opencl_submission *submission = next_place(device, queue);
    submission->commands = commands;
    if (atomic_load(&device->times.enabled) && commands->step_count > 0) {
        submission->step_event = mica__calloc(commands->step_count, sizeof *submission->step_event);
        if (submission->step_event == NULL) {
            let_go(device, submission);
            return mica__fail(MICA_ERR_OUT_OF_MEMORY, "opencl: no host memory to time %u dispatches",
                              commands->step_count);
        }
    }
    const cl_int code = enqueue_all(device, queue->queue, submission, &failed);
    if (code != CL_SUCCESS) { /* what was enqueued before uses what the caller frees next */
        const mica_status status = refuse(device, code, failed);
        device->cl.clFinish(queue->queue);
        let_go(device, submission);
        return status;
    }
    submission->value = ++queue->submitted;
    return MICA_OK;
}

mica_status mica__opencl_submit(mica__device *device, mica__queue *queue, mica__commands *commands,
                                uint64_t *out_value)
{
    mica__queue *to = queue_of(device, queue);
    *out_value = 0;
    mica_status status = mica__opencl_check(device);
    if (status != MICA_OK) {
        if (!commands->reusable)
            mica__opencl_commands_unref(commands);
        return status;
    }
    if (commands->reusable)
        atomic_fetch_add(&commands->references, 1);
    pthread_mutex_lock(&to->lock);
    status = submit_locked(device, to, commands);
    if (status == MICA_OK)
        *out_value = to->submitted;
    pthread_mutex_unlock(&to->lock);
    return status;
}

/* ---- waiting ---- */

static void sleep_ns(uint64_t ns)
{
    mica__event event;
    if (mica__event_init(&event) != MICA_OK)
        return;
    mica__event_wait(&event, mica__event_ticket(&event), ns);
    mica__event_destroy(&event);
}

static bool is_done(const mica__device *device, cl_event event)
{
    cl_int state = CL_COMPLETE;
    return device->cl.clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL) !=
               CL_SUCCESS ||
           state <= CL_COMPLETE;
}

/* False when it was not done in time. */
static bool await(const mica__device *device, cl_event event, uint64_t timeout_ns)
{
    if (timeout_ns == MICA_WAIT_FOREVER) {
        device->cl.clWaitForEvents(1, &event);
        return true;
    }
    const uint64_t start = mica__clock_ns();
    while (!is_done(device, event)) {
        const uint64_t passed = mica__clock_ns() - start;
        if (passed >= timeout_ns)
            return false;
        sleep_ns(timeout_ns - passed < POLL_NS ? timeout_ns - passed : POLL_NS);
    }
    return true;
}

/* The event of a submission under way, kept for the caller; NULL when it is over, with the result in `out`. A driver that
 * cannot even keep an event is lost. */
static mica_status look(mica__device *device, mica__queue *queue, uint64_t value, cl_event *out_event,
                        mica__completion *out)
{
    bool kept = true;
    *out_event = NULL;
    pthread_mutex_lock(&queue->lock);
    const uint64_t submitted = queue->submitted;
    const mica__opencl_submission *submission = &queue->submission[value % MICA__OPENCL_RESULTS];
    if (value != 0 && submission->value == value) {
        *out = submission->completion;
        if (!submission->resolved) {
            kept = device->cl.clRetainEvent(submission->end) == CL_SUCCESS;
            *out_event = kept ? submission->end : NULL;
        }
    }
    pthread_mutex_unlock(&queue->lock);
    if (!kept) {
        atomic_store(&device->lost, 1);
        return mica__opencl_check(device);
    }
    return mica__check_value(value, submitted);
}

static void finish(mica__device *device, mica__queue *queue, uint64_t value, mica__completion *out)
{
    mica__opencl_submission *submission = &queue->submission[value % MICA__OPENCL_RESULTS];
    pthread_mutex_lock(&queue->lock);
    if (submission->value == value) {
        if (!submission->resolved)
            resolve(device, submission);
        *out = submission->completion;
    }
    pthread_mutex_unlock(&queue->lock);
}

mica_status mica__opencl_wait(mica__device *device, mica__queue *queue, uint64_t value, uint64_t timeout_ns,
                              mica__completion *out)
{
    mica__queue *of = queue_of(device, queue);
    cl_event event = NULL;
    memset(out, 0, sizeof *out);
    mica_status status = mica__opencl_check(device);
    if (status == MICA_OK)
        status = look(device, of, value, &event, out);
    if (status == MICA_ERR_DEVICE_LOST)
        abandon(device, of);
    if (status != MICA_OK || event == NULL)
        return status;
    const bool done = await(device, event, timeout_ns);
    device->cl.clReleaseEvent(event);
    if (!done)
        return MICA_ERR_TIMEOUT;
    finish(device, of, value, out);
    return MICA_OK;
}

mica_status mica__opencl_queue_order(mica__device *device, mica__queue *queue, mica__queue *after,
                                     uint64_t value)
{
    cl_event event = NULL;
    mica__completion unused;
    mica_status status = mica__opencl_check(device);
    if (status == MICA_OK)
        status = look(device, queue_of(device, after), value, &event, &unused);
    if (status != MICA_OK || event == NULL)
        return status;
    const cl_int code =
        device->cl.clEnqueueBarrierWithWaitList(queue_of(device, queue)->queue, 1, &event, NULL);
    device->cl.clReleaseEvent(event);
    return code == CL_SUCCESS ? MICA_OK
                              : mica__opencl_fail(device, code, "clEnqueueBarrierWithWaitList", "a queue");
}

/* ---- queues ---- */

mica_status mica__opencl_queue_init(mica__device *device, mica__queue *queue)
{
    cl_int code = CL_SUCCESS;
    memset(queue, 0, sizeof *queue);
    queue->queue =
        device->cl.clCreateCommandQueue(device->context, device->id, CL_QUEUE_PROFILING_ENABLE, &code);
    if (queue->queue == NULL || code != CL_SUCCESS)
        return mica__opencl_fail(device, code, "clCreateCommandQueue", "a queue");
    const mica_status status = mica__lock_init(&queue->lock, &queue->guard, false);
    if (status != MICA_OK) {
        device->cl.clReleaseCommandQueue(queue->queue);
        queue->queue = NULL;
    }
    return status;
}

void mica__opencl_queue_close(mica__device *device, mica__queue *queue)
{
    if (queue->queue == NULL)
        return;
    const bool alive = mica__opencl_alive(device);
    if (alive)
        device->cl.clFinish(queue->queue);
    abandon(device, queue);
    if (alive)
        device->cl.clReleaseCommandQueue(queue->queue);
    mica__lock_destroy(&queue->lock, &queue->guard);
}

mica_status mica__opencl_queue_create(mica__device *device, mica__queue **out)
{
    *out = NULL;
    mica_status status = mica__opencl_check(device);
    if (status != MICA_OK)
        return status;
    mica__queue *queue = mica__alloc(sizeof *queue);
    if (queue == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "opencl: no host memory for a queue");
    status = mica__opencl_queue_init(device, queue);
    if (status != MICA_OK) {
        mica__free(queue);
        return status;
    }
    *out = queue;
    return MICA_OK;
}

void mica__opencl_queue_destroy(mica__device *device, mica__queue *queue)
{
    if (queue == NULL)
        return;
    mica__opencl_queue_close(device, queue);
    mica__free(queue);
}
