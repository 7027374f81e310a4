/*
 * opencl_commands.c - encoding: a list of steps, each dispatch with a kernel object whose arguments are set here.
 *
 * Finished one-shot commands are kept and written again, with their fault word.
 */
#include <stdio.h>
#include <string.h>

#include "backend/checks.h"
#include "backend/opencl/opencl_device.h"
#include "base/alloc.h"
#include "base/checked.h"

#define MAX_STEPS (1u << 20)

/* ---- the object ---- */

static void drop_steps(mica__commands *commands)
{
    for (uint32_t i = 0; i < commands->step_count; i++)
        if (commands->step[i].kernel != NULL)
            mica__opencl_kernel_give(commands->step[i].kernel, commands->step[i].object);
    commands->step_count = 0;
}

static const mica__far_calls far_calls = {mica__opencl_buffer_create, mica__opencl_buffer_destroy,
                                          mica__opencl_upload};

static void free_commands(mica__device *device, mica__commands *commands)
{
    mica__far_free(&commands->far, device, &far_calls);
    if (commands->fault != NULL && mica__opencl_alive(device))
        device->cl.clReleaseMemObject(commands->fault);
    mica__free(commands->step);
    mica__free(commands);
}

void mica__opencl_commands_unref(mica__commands *commands)
{
    if (atomic_fetch_sub(&commands->references, 1) != 1)
        return;
    mica__device *device = commands->device;
    drop_steps(commands);
    if (!mica__spares_give(&device->spares, commands))
        free_commands(device, commands);
}

void mica__opencl_commands_destroy(mica__device *device, mica__commands *commands)
{
    (void)device;
    if (commands != NULL)
        mica__opencl_commands_unref(commands);
}

void mica__opencl_commands_forget(mica__device *device)
{
    for (mica__commands *commands; (commands = mica__spares_take(&device->spares)) != NULL;)
        free_commands(device, commands);
}

/* ---- one step ---- */

/* A zeroed step behind the last one, not yet counted. NULL: latched. */
static mica__opencl_step *next_step(mica__encoding *encoding)
{
    mica__commands *commands = encoding->commands;
    if (commands->step_count == MAX_STEPS) {
        mica__latch_keep(&encoding->latch,
                         mica__fail(MICA_ERR_BUDGET, "dispatch: more than %u in one encoder", MAX_STEPS));
        return NULL;
    }
    mica__opencl_step *step = mica__encode_reserve(&encoding->latch, commands->step, commands->step_count, 1,
                                                   &commands->step_capacity, sizeof *step);
    if (step == NULL)
        return NULL;
    commands->step = step;
    step += commands->step_count;
    memset(step, 0, sizeof *step);
    return step;
}

/* The fault word of these commands; NULL with the status set where there is no memory for it. */
static mica_status fault_word(mica__commands *commands, cl_mem *out)
{
    mica__device *device = commands->device;
    cl_int code = CL_SUCCESS;
    if (commands->fault == NULL)
        commands->fault =
            device->cl.clCreateBuffer(device->context, CL_MEM_READ_WRITE, sizeof(uint32_t), NULL, &code);
    commands->raises = true;
    *out = commands->fault;
    return commands->fault != NULL ? MICA_OK
                                   : mica__opencl_fail(device, code, "clCreateBuffer", "the fault word");
}

/* Binding i is the arguments 2i, the buffer, and 2i + 1, the byte offset. */
static mica_status set_binding(mica__commands *commands, const mica__opencl_step *step, uint32_t index,
                               const mica__binding *binding)
{
    mica__device *device = commands->device;
    cl_mem memory = device->nothing;
    cl_ulong offset = 0;
    mica_status status = mica__check_binding(index, binding);
    if (status == MICA_OK && binding->memory != NULL) {
        memory = binding->memory->native;
        offset = binding->offset;
    } else if (status == MICA_OK && (binding->access & MICA__BIND_FAULT) != 0) {
        status = fault_word(commands, &memory);
    }
    if (status != MICA_OK)
        return status;
    cl_int code = device->cl.clSetKernelArg(step->object, 2 * index, sizeof memory, &memory);
    if (code == CL_SUCCESS)
        code = device->cl.clSetKernelArg(step->object, 2 * index + 1, sizeof offset, &offset);
    return code == CL_SUCCESS ? MICA_OK
                              : mica__opencl_fail(device, code, "clSetKernelArg", step->kernel->name);
}

/* Parameters are the last argument, or wait until their buffer is there. */
static mica_status set_params(mica__encoding *encoding, mica__opencl_step *step,
                              const mica__dispatch *dispatch)
{
    mica__device *device = encoding->commands->device;
    if (dispatch->params_size == 0)
        return MICA_OK;
    if (step->far != 0) {
        step->far_place = mica__far_put(&encoding->commands->far, &encoding->latch, dispatch->params,
                                        dispatch->params_size);
        return encoding->latch.status;
    }
    const cl_int code = device->cl.clSetKernelArg(step->object, 2 * dispatch->binding_count,
                                                  dispatch->params_size, dispatch->params);
    return code == CL_SUCCESS ? MICA_OK
                              : mica__opencl_fail(device, code, "clSetKernelArg", step->kernel->name);
}

static mica_status set_arguments(mica__encoding *encoding, mica__opencl_step *step,
                                 const mica__dispatch *dispatch)
{
    mica_status status = MICA_OK;
    for (uint32_t i = 0; i < dispatch->binding_count && status == MICA_OK; i++) {
        status = set_binding(encoding->commands, step, i, &dispatch->bindings[i]);
        if (dispatch->bindings[i].access == MICA__BIND_PARAMS)
            step->far = i + 1;
    }
    return status == MICA_OK ? set_params(encoding, step, dispatch) : status;
}

/* Sends parameters that are no arguments, and binds them. */
static mica_status send_far(mica__commands *commands)
{
    mica_status status = mica__far_send(&commands->far, commands->device, &far_calls);
    if (commands->far.blob.used == 0)
        return status;
    for (uint32_t i = 0; i < commands->step_count && status == MICA_OK; i++) {
        const mica__opencl_step *step = &commands->step[i];
        const mica__binding binding = {commands->far.memory, step->far_place, 0, MICA_ACCESS_READ};
        if (step->far != 0)
            status = set_binding(commands, step, step->far - 1, &binding);
    }
    return status;
}

/* Work-items of a group and of the whole grid, against what the kernel and the device take. */
static mica_status set_grid(const mica__device *device, const mica__dispatch *dispatch,
                            mica__opencl_step *step)
{
    const mica__kernel *kernel = dispatch->kernel;
    uint64_t items = 1;
    for (uint32_t d = 0; d < 3; d++) {
        const uint64_t local = dispatch->local[d] == 0 ? 1 : dispatch->local[d];
        uint64_t global;
        if (dispatch->groups[d] == 0)
            return mica__fail(MICA_ERR_INVALID_ARGUMENT, "groups: %u x %u x %u, expected each from 1",
                              dispatch->groups[0], dispatch->groups[1], dispatch->groups[2]);
        if (!mica__mul_u64(items, local, &items) || items > kernel->most_items)
            return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                              "local: %u x %u x %u work-items, %s runs kernel %.60s with at most %zu",
                              dispatch->local[0], dispatch->local[1], dispatch->local[2],
                              device->info.properties.id, kernel->name, kernel->most_items);
        if (!mica__mul_u64(local, dispatch->groups[d], &global) || global > SIZE_MAX)
            return mica__fail(MICA_ERR_INVALID_ARGUMENT, "groups: %u of %u work-items are too many",
                              dispatch->groups[d], dispatch->local[d]);
        step->local[d] = (size_t)local;
        step->global[d] = (size_t)global;
    }
    if (dispatch->local_bytes != 0)
        return mica__fail(MICA_ERR_UNSUPPORTED, "local_bytes: %u of kernel %.60s, expected 0 on OpenCL",
                          dispatch->local_bytes, kernel->name);
    return MICA_OK;
}

static mica_status fill_step(mica__encoding *encoding, const mica__dispatch *dispatch,
                             mica__opencl_step *step)
{
    mica__commands *commands = encoding->commands;
    mica_status status =
        dispatch->kernel == NULL ? mica__check_copy(dispatch) : set_grid(commands->device, dispatch, step);
    if (status == MICA_OK && dispatch->kernel != NULL)
        status = mica__opencl_kernel_take(dispatch->kernel, &step->object);
    if (status != MICA_OK)
        return status;
    step->kernel = dispatch->kernel;
    step->op = dispatch->op;
    step->bytes = dispatch->bytes;
    step->operations = dispatch->operations;
    step->binding_count = dispatch->binding_count;
    snprintf(step->label, sizeof step->label, "%s", dispatch->label != NULL ? dispatch->label : "");
    commands->step_count++; /* from here on it is dropped with the others */
    if (dispatch->kernel != NULL)
        return set_arguments(encoding, step, dispatch);
    step->from = dispatch->bindings[0];
    step->to = dispatch->bindings[1];
    return MICA_OK;
}

void mica__opencl_dispatch(mica__encoding *encoding, const mica__dispatch *dispatch)
{
    mica__opencl_step *step = encoding->latch.status == MICA_OK ? next_step(encoding) : NULL;
    if (step != NULL)
        mica__latch_keep(&encoding->latch, fill_step(encoding, dispatch, step));
}

/* The queue is in order. */
void mica__opencl_barrier(mica__encoding *encoding)
{
    (void)encoding;
}

/* ---- begin, end, and what may change afterwards ---- */

mica_status mica__opencl_encoder_begin(mica__device *device, uint32_t flags, mica__encoding **out)
{
    *out = NULL;
    const mica_status status = mica__opencl_check(device);
    if (status != MICA_OK)
        return status;
    mica__commands *commands = mica__spares_take(&device->spares);
    if (commands == NULL)
        commands = mica__calloc(1, sizeof *commands);
    if (commands == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "opencl: no host memory for an encoder");
    atomic_store(&commands->references, 1);
    commands->reusable = (flags & MICA__ENCODE_REUSABLE) != 0;
    commands->raises = false;
    commands->device = device;
    commands->step_count = 0;
    commands->far.blob.used = 0;
    commands->encoding.commands = commands;
    commands->encoding.latch.status = MICA_OK;
    *out = &commands->encoding;
    return MICA_OK;
}

mica_status mica__opencl_encoder_end(mica__encoding *encoding, bool discard, mica__commands **out)
{
    mica__commands *commands = encoding->commands;
    mica_status status = discard ? MICA_OK : mica__latch_report(&encoding->latch);
    *out = NULL;
    if (!discard && status == MICA_OK)
        status = mica__opencl_check(commands->device);
    if (!discard && status == MICA_OK)
        status = send_far(commands);
    if (discard || status != MICA_OK) {
        mica__opencl_commands_unref(commands);
        return status;
    }
    *out = commands;
    return MICA_OK;
}

mica_status mica__opencl_commands_update(mica__commands *commands, uint32_t dispatch, uint32_t binding,
                                         const mica__binding *to)
{
    mica_status status = mica__opencl_check(commands->device);
    if (status == MICA_OK)
        status = mica__check_index("dispatch", dispatch, commands->step_count);
    if (status != MICA_OK)
        return status;
    mica__opencl_step *step = &commands->step[dispatch];
    status = mica__check_index("binding", binding, step->binding_count);
    if (status == MICA_OK && step->kernel != NULL)
        return set_binding(commands, step, binding, to);
    if (status == MICA_OK)
        status = mica__check_binding(binding, to);
    if (status == MICA_OK)
        *(binding == 0 ? &step->from : &step->to) = *to;
    return status;
}
