/*
 * cpu_commands.c - encoding: dispatches become a flat list with steps between barriers.
 *
 * Bindings, parameters and labels go into one blob that grows and moves while encoding; dispatches hold offsets.
 * Finished one-shot commands are kept and written again, so that encoding allocates
 * nothing once their arrays have grown.
 */
#include <string.h>

#include "backend/checks.h"
#include "backend/cpu/cpu.h"
#include "base/alloc.h"
#include "base/checked.h"

#define COPY_BYTES (256u * 1024u) /* of one unit of a copy */
#define MAX_SPARE_BLOB (4u << 20)

/* ---- copy as a kernel ---- */

static void run_copy(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const uint64_t length = args->view[0].length;
    const uint64_t begin = (uint64_t)first * COPY_BYTES, end = (uint64_t)last * COPY_BYTES;
    if (begin < length)
        memcpy(args->view[1].data + begin, args->view[0].data + begin,
               (size_t)((end < length ? end : length) - begin));
}

static const mica__kernel copy_kernel = {"copy_bytes", run_copy, NULL, NULL};

/* ---- the object ---- */

static void free_commands(mica__commands *commands)
{
    mica__free(commands->dispatch);
    mica__free(commands->step_end);
    mica__free(commands->blob.bytes);
    mica__free(commands);
}

void mica__cpu_commands_unref(mica__device *device, mica__commands *commands)
{
    if (atomic_fetch_sub(&commands->references, 1) != 1)
        return;
    if (commands->blob.capacity > MAX_SPARE_BLOB || !mica__spares_give(&device->spares, commands))
        free_commands(commands);
}

void mica__cpu_commands_destroy(mica__device *device, mica__commands *commands)
{
    if (commands != NULL && mica__cpu_device_awake(device) == MICA_OK)
        mica__cpu_commands_unref(device, commands);
}

void mica__cpu_commands_forget(mica__device *device)
{
    for (mica__commands *commands; (commands = mica__spares_take(&device->spares)) != NULL;)
        free_commands(commands);
}

/* ---- one dispatch; a failure is latched ---- */

/* Room for one more dispatch and the end of its step, in two arrays of one capacity: no step is empty. */
static bool reserve_dispatch(mica__encoding *encoding)
{
    mica__commands *commands = encoding->commands;
    mica__latch *latch = &encoding->latch;
    uint64_t capacity = commands->capacity;
    if (commands->dispatch_count < capacity)
        return true;
    if (commands->dispatch_count == MICA__CPU_MAX_DISPATCHES)
        return mica__latch_keep(latch, mica__fail(MICA_ERR_BUDGET, "dispatch: more than %u in one encoder",
                                                  MICA__CPU_MAX_DISPATCHES));
    const uint64_t least = commands->dispatch_count + 1u;
    void *dispatch =
        mica__encode_grow(latch, commands->dispatch, least, &capacity, sizeof *commands->dispatch);
    if (dispatch == NULL)
        return false;
    commands->dispatch = dispatch;
    void *step_end =
        mica__encode_grow(latch, commands->step_end, least, &capacity, sizeof *commands->step_end);
    if (step_end == NULL)
        return false;
    commands->step_end = step_end;
    commands->capacity = capacity < MICA__CPU_MAX_DISPATCHES ? capacity : MICA__CPU_MAX_DISPATCHES;
    return true;
}

static unsigned char *binding_data(const mica__binding *binding)
{
    return binding->memory == NULL ? NULL : (unsigned char *)binding->memory->native + binding->offset;
}

/* Where the bindings of a dispatch are written: views for built-in kernels, mica_host_binding for a user's. */
static void set_binding(bool user, void *bindings, uint32_t index, const mica__binding *binding)
{
    if (user) {
        mica_host_binding *host = (mica_host_binding *)bindings + index;
        host->data = binding_data(binding);
        host->bytes = binding->memory == NULL ? 0 : binding->length;
    } else {
        ((mica__cpu_view *)bindings)[index].data = binding_data(binding);
    }
}

/* The number of units, 0 with a latched error. */
static uint32_t count_units(mica__encoding *encoding, const mica__dispatch *dispatch)
{
    const uint32_t *groups = dispatch->groups;
    uint64_t units = (uint64_t)groups[0] * groups[1];
    if (units == 0 || groups[2] == 0 || !mica__mul_u64(units, groups[2], &units) || units > UINT32_MAX) {
        mica__latch_keep(&encoding->latch,
                         mica__fail(MICA_ERR_INVALID_ARGUMENT,
                                    "groups: %u x %u x %u, expected a product from 1 to 2^32 - 1", groups[0],
                                    groups[1], groups[2]));
        return 0;
    }
    return (uint32_t)units;
}

static void set_chunks(mica__commands *commands, mica__cpu_dispatch *to, uint32_t units, uint32_t grain)
{
    const uint32_t least = units / MICA__CPU_MAX_CHUNKS + (units % MICA__CPU_MAX_CHUNKS != 0);
    const uint32_t index = commands->dispatch_count;
    to->units = units;
    to->grain = grain > least ? grain : least;
    to->chunks = units / to->grain + (units % to->grain != 0);
    to->chunk_end = to->chunks + (index == 0 ? 0 : commands->dispatch[index - 1].chunk_end);
}

/* Chunks of the dispatches since the last barrier; a share's count must fit 32 bits. */
static uint64_t open_chunks(const mica__commands *commands)
{
    const uint32_t first = commands->step_count == 0 ? 0 : commands->step_end[commands->step_count - 1];
    if (commands->dispatch_count == 0)
        return 0;
    return commands->dispatch[commands->dispatch_count - 1].chunk_end -
           (first == 0 ? 0 : commands->dispatch[first - 1].chunk_end);
}

void mica__cpu_barrier(mica__encoding *encoding)
{
    mica__commands *commands = encoding->commands;
    if (open_chunks(commands) != 0)
        commands->step_end[commands->step_count++] = commands->dispatch_count;
}

/* Writes bindings and parameters. A built-in kernel's views come in front of its parameters in one block; a user's
 * kernel gets its bindings made here. */
static bool write_block(mica__encoding *encoding, const mica__dispatch *dispatch, mica__cpu_dispatch *to)
{
    const mica__kernel *kernel = dispatch->kernel;
    const bool host = kernel->host != NULL;
    const uint64_t bytes =
        dispatch->binding_count * (host ? sizeof(mica_host_binding) : sizeof(mica__cpu_view));
    const uint64_t made = host ? bytes : 0;
    if (!host && dispatch->params_size < bytes)
        return mica__latch_keep(&encoding->latch,
                                mica__fail(MICA_ERR_INTERNAL,
                                           "dispatch \"%s\": %u parameter bytes, expected %u views first",
                                           kernel->name, dispatch->params_size, dispatch->binding_count));
    unsigned char *block = mica__blob_take(&encoding->commands->blob, &encoding->latch,
                                           made + dispatch->params_size, &to->block);
    if (block == NULL)
        return false;
    if (dispatch->params_size != 0)
        memcpy(block + made, dispatch->params, dispatch->params_size);
    for (uint32_t i = 0; i < dispatch->binding_count; i++) {
        const mica__binding *binding = &dispatch->bindings[i];
        if (!mica__latch_keep(&encoding->latch, mica__check_binding(i, binding)))
            return false;
        set_binding(host, block, i, binding);
    }
    to->bindings_bytes = (uint32_t)bytes;
    return true;
}

static void add_dispatch(mica__encoding *encoding, const mica__dispatch *dispatch)
{
    mica__commands *commands = encoding->commands;
    if (encoding->latch.status != MICA_OK)
        return;
    const uint32_t units = count_units(encoding, dispatch);
    if (units == 0 || !reserve_dispatch(encoding))
        return;
    if (dispatch->local_bytes > MICA__CPU_MAX_LOCAL) {
        mica__latch_keep(&encoding->latch,
                         mica__fail(MICA_ERR_INVALID_ARGUMENT, "local_bytes: %u, expected at most %u",
                                    dispatch->local_bytes, MICA__CPU_MAX_LOCAL));
        return;
    }
    if (open_chunks(commands) > UINT32_MAX - MICA__CPU_MAX_CHUNKS)
        mica__cpu_barrier(encoding);
    mica__cpu_dispatch *to = &commands->dispatch[commands->dispatch_count];
    if (!write_block(encoding, dispatch, to))
        return;
    to->kernel = dispatch->kernel;
    to->label = mica__blob_put_text(&commands->blob, &encoding->latch, dispatch->label);
    to->binding_count = dispatch->binding_count;
    to->local_bytes = dispatch->local_bytes;
    to->op = dispatch->op;
    to->bytes = dispatch->bytes;
    to->operations = dispatch->operations;
    set_chunks(commands, to, units, dispatch->grain);
    if (dispatch->local_bytes > commands->local_bytes)
        commands->local_bytes = dispatch->local_bytes;
    commands->dispatch_count++;
}

/* A copy is a dispatch of its own kernel over flat views. */
static void add_copy(mica__encoding *encoding, const mica__dispatch *asked)
{
    if (!mica__latch_keep(&encoding->latch, mica__check_copy(asked)))
        return;
    const uint64_t length = asked->bindings[0].length;
    const uint64_t units = length / COPY_BYTES + (length % COPY_BYTES != 0);
    const mica__cpu_view view[2] = {{.length = length}, {.length = length}};
    mica__dispatch dispatch = *asked;
    dispatch.kernel = (mica__kernel *)&copy_kernel;
    dispatch.groups[0] = units == 0 ? 1 : units > UINT32_MAX ? 0 : (uint32_t)units;
    dispatch.groups[1] = dispatch.groups[2] = dispatch.grain = 1;
    dispatch.params = view;
    dispatch.params_size = sizeof view;
    add_dispatch(encoding, &dispatch);
}

void mica__cpu_dispatch_add(mica__encoding *encoding, const mica__dispatch *dispatch)
{
    (dispatch->kernel != NULL ? add_dispatch : add_copy)(encoding, dispatch);
}

/* ---- begin, end, and what may change afterwards ---- */

mica_status mica__cpu_encoder_begin(mica__device *device, uint32_t flags, mica__encoding **out)
{
    *out = NULL;
    const mica_status status = mica__cpu_device_awake(device);
    if (status != MICA_OK)
        return status;
    mica__commands *commands = mica__spares_take(&device->spares);
    if (commands == NULL)
        commands = mica__calloc(1, sizeof *commands);
    if (commands == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "cpu: no memory for an encoder");
    atomic_store(&commands->references, 1);
    commands->reusable = (flags & MICA__ENCODE_REUSABLE) != 0;
    commands->local_bytes = 0;
    commands->dispatch_count = commands->step_count = 0;
    commands->blob.used = 0;
    mica__encoding *encoding = &commands->encoding;
    encoding->device = device;
    encoding->commands = commands;
    encoding->latch.status = MICA_OK;
    *out = encoding;
    return MICA_OK;
}

mica_status mica__cpu_encoder_end(mica__encoding *encoding, bool discard, mica__commands **out)
{
    mica__commands *commands = encoding->commands;
    mica__device *device = encoding->device;
    mica_status status = discard ? MICA_OK : mica__latch_report(&encoding->latch);
    *out = NULL;
    if (!discard && status == MICA_OK)
        status = mica__cpu_device_awake(device);
    if (!discard && status == MICA_OK)
        status = mica__cpu_local_reserve(device, commands->local_bytes);
    if (discard || status != MICA_OK) {
        mica__cpu_commands_destroy(device, commands);
        return status;
    }
    mica__cpu_barrier(encoding);
    *out = commands;
    return MICA_OK;
}

mica_status mica__cpu_commands_update(mica__commands *commands, uint32_t dispatch, uint32_t binding,
                                      const mica__binding *to)
{
    mica_status status = mica__check_index("dispatch", dispatch, commands->dispatch_count);
    if (status != MICA_OK)
        return status;
    const mica__cpu_dispatch *target = &commands->dispatch[dispatch];
    status = mica__check_index("binding", binding, target->binding_count);
    if (status == MICA_OK)
        status = mica__check_binding(binding, to);
    if (status == MICA_OK)
        set_binding(target->kernel->host != NULL, commands->blob.bytes + target->block, binding, to);
    return status;
}
