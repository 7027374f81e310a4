/*
 * opencl_commands.c - encoding: a list of steps, each dispatch with a kernel object whose arguments are set here.
 *
 * Finished one-shot commands are kept and written again, with their fault word.
 */
#include <stdio.h>
#include <string.h>

#include "backend/opencl/opencl_device.h"
#include "base/alloc.h"
#include "base/checked.h"

#define MAX_SPARES 8u
#define MAX_STEPS (1u << 20)
#define LABEL_DEPTH 8u

/* ---- the object ---- */

static void drop_steps(mica__commands *commands)
{
    for (uint32_t i = 0; i < commands->step_count; i++)
        if (commands->step[i].kernel != NULL)
            mica__opencl_kernel_give(commands->step[i].kernel, commands->step[i].object);
    commands->step_count = 0;
}

static void free_commands(mica__device *device, mica__commands *commands)
{
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
    pthread_mutex_lock(&device->lock);
    const bool kept = device->spare_count < MAX_SPARES;
    if (kept) {
        commands->next_spare = device->spare;
        device->spare = commands;
        device->spare_count++;
    }
    pthread_mutex_unlock(&device->lock);
    if (!kept)
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
    while (device->spare != NULL) {
        mica__commands *commands = device->spare;
        device->spare = commands->next_spare;
        free_commands(device, commands);
    }
    device->spare_count = 0;
}

static mica__commands *take_spare(mica__device *device)
{
    pthread_mutex_lock(&device->lock);
    mica__commands *commands = device->spare;
    if (commands != NULL) {
        device->spare = commands->next_spare;
        device->spare_count--;
    }
    pthread_mutex_unlock(&device->lock);
    return commands != NULL ? commands : mica__calloc(1, sizeof *commands);
}

/* ---- one step ---- */

/* Keeps the code and the sentence of the first failure. */
static void latch(mica__encoding *encoding, mica_status status)
{
    if (encoding->error != MICA_OK)
        return;
    encoding->error = status;
    snprintf(encoding->sentence, sizeof encoding->sentence, "%s", mica_status_message());
}

/* A zeroed step behind the last one, not yet counted. NULL: latched. */
static mica__opencl_step *next_step(mica__encoding *encoding)
{
    mica__commands *commands = encoding->commands;
    if (commands->step_count == MAX_STEPS) {
        latch(encoding, mica__fail(MICA_ERR_BUDGET, "dispatch: more than %u in one encoder", MAX_STEPS));
        return NULL;
    }
    if (commands->step_count == commands->step_capacity) {
        const uint32_t capacity = 2 * commands->step_capacity + 32;
        void *grown = mica__realloc(commands->step, capacity * sizeof *commands->step);
        if (grown == NULL) {
            latch(encoding, mica__fail(MICA_ERR_OUT_OF_MEMORY, "opencl: no host memory to encode"));
            return NULL;
        }
        commands->step = grown;
        commands->step_capacity = capacity;
    }
    mica__opencl_step *step = &commands->step[commands->step_count];
    memset(step, 0, sizeof *step);
    return step;
}

static void name_step(const mica__encoding *encoding, mica__opencl_step *step, const char *label)
{
    const uint32_t depth = encoding->label_depth < LABEL_DEPTH ? encoding->label_depth : LABEL_DEPTH;
    if ((label == NULL || label[0] == '\0') && depth > 0)
        label = encoding->label[depth - 1];
    snprintf(step->label, sizeof step->label, "%s", label != NULL ? label : "");
}

static mica_status check_binding(uint32_t index, const mica__binding *binding)
{
    uint64_t end;
    if (binding->memory == NULL ||
        (mica__add_u64(binding->offset, binding->length, &end) && end <= binding->memory->bytes))
        return MICA_OK;
    return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                      "binding %u: %llu bytes at %llu, expected to end within %llu", index,
                      (unsigned long long)binding->length, (unsigned long long)binding->offset,
                      (unsigned long long)binding->memory->bytes);
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
    mica_status status = check_binding(index, binding);
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

static mica_status set_arguments(mica__commands *commands, const mica__opencl_step *step,
                                 const mica__dispatch *dispatch)
{
    mica_status status = MICA_OK;
    for (uint32_t i = 0; i < dispatch->binding_count && status == MICA_OK; i++)
        status = set_binding(commands, step, i, &dispatch->bindings[i]);
    if (status != MICA_OK || dispatch->params_size == 0)
        return status;
    const cl_int code = commands->device->cl.clSetKernelArg(step->object, 2 * dispatch->binding_count,
                                                            dispatch->params_size, dispatch->params);
    return code == CL_SUCCESS
               ? MICA_OK
               : mica__opencl_fail(commands->device, code, "clSetKernelArg", step->kernel->name);
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

void mica__opencl_dispatch(mica__encoding *encoding, const mica__dispatch *dispatch)
{
    mica__commands *commands = encoding->commands;
    mica__opencl_step *step = encoding->error == MICA_OK ? next_step(encoding) : NULL;
    if (step == NULL)
        return;
    mica_status status = set_grid(commands->device, dispatch, step);
    if (status == MICA_OK)
        status = mica__opencl_kernel_take(dispatch->kernel, &step->object);
    if (status != MICA_OK) {
        latch(encoding, status);
        return;
    }
    step->kernel = dispatch->kernel;
    step->op = dispatch->op;
    step->binding_count = dispatch->binding_count;
    name_step(encoding, step, dispatch->label);
    commands->step_count++; /* from here on it is dropped with the others */
    status = set_arguments(commands, step, dispatch);
    if (status != MICA_OK)
        latch(encoding, status);
}

static mica_status check_copy(const mica__binding *from, const mica__binding *to)
{
    if (from->memory == NULL || to->memory == NULL || from->length != to->length)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "copy: from %llu bytes to %llu, expected equal lengths",
                          (unsigned long long)from->length, (unsigned long long)to->length);
    const mica_status status = check_binding(0, from);
    return status == MICA_OK ? check_binding(1, to) : status;
}

void mica__opencl_copy(mica__encoding *encoding, const mica__binding *from, const mica__binding *to)
{
    mica__opencl_step *step = encoding->error == MICA_OK ? next_step(encoding) : NULL;
    if (step == NULL)
        return;
    const mica_status status = check_copy(from, to);
    if (status != MICA_OK) {
        latch(encoding, status);
        return;
    }
    step->op = MICA_OP_COPY;
    step->from = *from;
    step->to = *to;
    step->binding_count = 2;
    name_step(encoding, step, NULL);
    encoding->commands->step_count++;
}

/* The queue is in order. */
void mica__opencl_barrier(mica__encoding *encoding)
{
    (void)encoding;
}

void mica__opencl_label(mica__encoding *encoding, const char *text)
{
    if (text == NULL) {
        encoding->label_depth -= encoding->label_depth != 0;
        return;
    }
    if (encoding->label_depth++ < LABEL_DEPTH)
        snprintf(encoding->label[encoding->label_depth - 1], sizeof encoding->label[0], "%s", text);
}

/* ---- begin, end, and what may change afterwards ---- */

mica_status mica__opencl_encoder_begin(mica__device *device, uint32_t flags, mica__encoding **out)
{
    *out = NULL;
    const mica_status status = mica__opencl_check(device);
    if (status != MICA_OK)
        return status;
    mica__commands *commands = take_spare(device);
    if (commands == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "opencl: no host memory for an encoder");
    atomic_store(&commands->references, 1);
    commands->reusable = (flags & MICA__ENCODE_REUSABLE) != 0;
    commands->raises = false;
    commands->device = device;
    commands->step_count = 0;
    commands->next_spare = NULL;
    commands->encoding.commands = commands;
    commands->encoding.error = MICA_OK;
    commands->encoding.label_depth = 0;
    *out = &commands->encoding;
    return MICA_OK;
}

mica_status mica__opencl_encoder_end(mica__encoding *encoding, bool discard, mica__commands **out)
{
    mica__commands *commands = encoding->commands;
    mica_status status = MICA_OK;
    *out = NULL;
    if (!discard && encoding->error != MICA_OK)
        status = mica__fail(encoding->error, "%s", encoding->sentence);
    if (!discard && status == MICA_OK)
        status = mica__opencl_check(commands->device);
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
    if (status != MICA_OK)
        return status;
    if (dispatch >= commands->step_count)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "dispatch: %u, expected less than %u", dispatch,
                          commands->step_count);
    mica__opencl_step *step = &commands->step[dispatch];
    if (binding >= step->binding_count)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "binding: %u, expected less than %u", binding,
                          step->binding_count);
    if (step->kernel != NULL)
        return set_binding(commands, step, binding, to);
    status = check_binding(binding, to);
    if (status == MICA_OK)
        *(binding == 0 ? &step->from : &step->to) = *to;
    return status;
}
