/*
 * cpu_commands.c - encoding: dispatches become a flat list with steps between barriers.
 *
 * Bindings, parameters and labels go into one blob that grows and moves while encoding; dispatches hold offsets.
 * Finished one-shot commands are kept and written again, so that encoding allocates
 * nothing once their arrays have grown.
 */
#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/alloc.h"
#include "base/checked.h"

#define COPY_BYTES (256u * 1024u) /* of one unit of a copy */
#define MAX_SPARES 8u
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
    mica__free(commands->blob);
    mica__free(commands);
}

/* Keeps the object for the next encoding, or frees it. */
static void recycle(mica__device *device, mica__commands *commands)
{
    bool kept = false;
    if (commands->blob_capacity <= MAX_SPARE_BLOB) {
        pthread_mutex_lock(&device->lock);
        if (device->spare_count < MAX_SPARES) {
            commands->next_spare = device->spare;
            device->spare = commands;
            device->spare_count++;
            kept = true;
        }
        pthread_mutex_unlock(&device->lock);
    }
    if (!kept)
        free_commands(commands);
}

void mica__cpu_commands_unref(mica__device *device, mica__commands *commands)
{
    if (atomic_fetch_sub(&commands->references, 1) == 1)
        recycle(device, commands);
}

void mica__cpu_commands_destroy(mica__device *device, mica__commands *commands)
{
    if (commands != NULL && mica__cpu_device_awake(device) == MICA_OK)
        mica__cpu_commands_unref(device, commands);
}

void mica__cpu_commands_forget(mica__device *device)
{
    while (device->spare != NULL) {
        mica__commands *commands = device->spare;
        device->spare = commands->next_spare;
        free_commands(commands);
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

/* ---- growing; a failure is latched ---- */

/* Keeps the code and the sentence of the first failure. */
static void latch(mica__encoding *encoding, mica_status status)
{
    if (encoding->error != MICA_OK)
        return;
    encoding->error = status;
    strncpy(encoding->sentence, mica_status_message(), sizeof encoding->sentence - 1);
    encoding->sentence[sizeof encoding->sentence - 1] = '\0';
}

static void *grow_array(mica__encoding *encoding, void *array, uint64_t count, size_t size)
{
    size_t bytes;
    void *moved = NULL;
    if (count <= SIZE_MAX && mica__mul_size((size_t)count, size, &bytes))
        moved = mica__realloc(array, bytes);
    if (moved == NULL)
        latch(encoding, mica__fail(MICA_ERR_OUT_OF_MEMORY, "cpu: no memory to encode %llu more",
                                   (unsigned long long)count));
    return moved;
}

static bool reserve_dispatch(mica__encoding *encoding)
{
    mica__commands *commands = encoding->commands;
    if (commands->dispatch_count < commands->capacity)
        return true;
    if (commands->dispatch_count == MICA__CPU_MAX_DISPATCHES) {
        latch(encoding,
              mica__fail(MICA_ERR_BUDGET, "dispatch: more than %u in one encoder", MICA__CPU_MAX_DISPATCHES));
        return false;
    }
    const uint32_t capacity = commands->capacity == 0 ? 64 : 2 * commands->capacity;
    void *dispatch = grow_array(encoding, commands->dispatch, capacity, sizeof *commands->dispatch);
    if (dispatch == NULL)
        return false;
    commands->dispatch = dispatch;
    void *step_end = grow_array(encoding, commands->step_end, capacity, sizeof *commands->step_end);
    if (step_end == NULL)
        return false;
    commands->step_end = step_end;
    commands->capacity = capacity;
    return true;
}

/* A fresh piece of the blob, valid until the next one is taken. NULL: latched. */
static unsigned char *take_blob(mica__encoding *encoding, uint64_t bytes, uint64_t *out_offset)
{
    mica__commands *commands = encoding->commands;
    const uint64_t offset = (commands->blob_used + 15) & ~(uint64_t)15;
    if (offset + bytes > commands->blob_capacity) {
        const uint64_t capacity = 2 * (offset + bytes) + 4096;
        void *blob = grow_array(encoding, commands->blob, capacity, 1);
        if (blob == NULL)
            return NULL;
        commands->blob = blob;
        commands->blob_capacity = capacity;
    }
    commands->blob_used = offset + bytes;
    *out_offset = offset;
    return commands->blob + offset;
}

/* ---- one dispatch ---- */

static bool binding_fits(const mica__binding *binding)
{
    uint64_t end;
    return binding->memory == NULL ||
           (mica__add_u64(binding->offset, binding->length, &end) && end <= binding->memory->bytes);
}

static mica_status refuse_binding(uint32_t index, const mica__binding *binding)
{
    return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                      "binding %u: %llu bytes at %llu, expected to end within %llu", index,
                      (unsigned long long)binding->length, (unsigned long long)binding->offset,
                      (unsigned long long)binding->memory->bytes);
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
        latch(encoding, mica__fail(MICA_ERR_INVALID_ARGUMENT,
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

static uint64_t copy_text(mica__encoding *encoding, const char *text)
{
    const size_t bytes = strlen(text) + 1;
    uint64_t offset;
    unsigned char *to = take_blob(encoding, bytes, &offset);
    if (to == NULL)
        return 0;
    memcpy(to, text, bytes);
    return offset;
}

/* A dispatch's own label, else the innermost pushed one. */
static uint64_t choose_label(mica__encoding *encoding, const char *label)
{
    const uint32_t depth = encoding->label_depth;
    if (label != NULL && label[0] != '\0')
        return copy_text(encoding, label);
    return encoding->label[depth < MICA__CPU_LABEL_DEPTH ? depth : MICA__CPU_LABEL_DEPTH];
}

void mica__cpu_label(mica__encoding *encoding, const char *text)
{
    if (text == NULL) {
        encoding->label_depth -= encoding->label_depth != 0;
        return;
    }
    if (++encoding->label_depth <= MICA__CPU_LABEL_DEPTH)
        encoding->label[encoding->label_depth] = copy_text(encoding, text);
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
    if (!host && dispatch->params_size < bytes) {
        latch(encoding,
              mica__fail(MICA_ERR_INTERNAL, "dispatch \"%s\": %u parameter bytes, expected %u views first",
                         kernel->name, dispatch->params_size, dispatch->binding_count));
        return false;
    }
    unsigned char *block = take_blob(encoding, made + dispatch->params_size, &to->block);
    if (block == NULL)
        return false;
    if (dispatch->params_size != 0)
        memcpy(block + made, dispatch->params, dispatch->params_size);
    for (uint32_t i = 0; i < dispatch->binding_count; i++) {
        const mica__binding *binding = &dispatch->bindings[i];
        if (!binding_fits(binding)) {
            latch(encoding, refuse_binding(i, binding));
            return false;
        }
        set_binding(host, block, i, binding);
    }
    to->bindings_bytes = (uint32_t)bytes;
    return true;
}

void mica__cpu_dispatch_add(mica__encoding *encoding, const mica__dispatch *dispatch)
{
    mica__commands *commands = encoding->commands;
    if (encoding->error != MICA_OK)
        return;
    const uint32_t units = count_units(encoding, dispatch);
    if (units == 0 || !reserve_dispatch(encoding))
        return;
    if (dispatch->local_bytes > MICA__CPU_MAX_LOCAL) {
        latch(encoding, mica__fail(MICA_ERR_INVALID_ARGUMENT, "local_bytes: %u, expected at most %u",
                                   dispatch->local_bytes, MICA__CPU_MAX_LOCAL));
        return;
    }
    if (open_chunks(commands) > UINT32_MAX - MICA__CPU_MAX_CHUNKS)
        mica__cpu_barrier(encoding);
    mica__cpu_dispatch *to = &commands->dispatch[commands->dispatch_count];
    if (!write_block(encoding, dispatch, to))
        return;
    to->kernel = dispatch->kernel;
    to->label = choose_label(encoding, dispatch->label);
    to->binding_count = dispatch->binding_count;
    to->local_bytes = dispatch->local_bytes;
    to->op = dispatch->op;
    set_chunks(commands, to, units, dispatch->grain);
    if (dispatch->local_bytes > commands->local_bytes)
        commands->local_bytes = dispatch->local_bytes;
    commands->dispatch_count++;
}

/* A copy is a dispatch of its own kernel over flat views. */
void mica__cpu_copy(mica__encoding *encoding, const mica__binding *from, const mica__binding *to)
{
    const mica__binding bindings[2] = {*from, *to};
    const uint64_t units = from->length / COPY_BYTES + (from->length % COPY_BYTES != 0);
    mica__cpu_view view[2] = {{.length = from->length}, {.length = to->length}};
    if (from->memory == NULL || to->memory == NULL || from->length != to->length) {
        latch(encoding,
              mica__fail(MICA_ERR_INVALID_ARGUMENT, "copy: from %llu bytes to %llu, expected equal lengths",
                         (unsigned long long)from->length, (unsigned long long)to->length));
        return;
    }
    const mica__dispatch dispatch = {.kernel = (mica__kernel *)&copy_kernel,
                                     .groups = {units == 0           ? 1
                                                : units > UINT32_MAX ? 0
                                                                     : (uint32_t)units,
                                                1, 1},
                                     .grain = 1,
                                     .bindings = bindings,
                                     .binding_count = 2,
                                     .params = view,
                                     .params_size = sizeof view,
                                     .op = MICA_OP_COPY};
    mica__cpu_dispatch_add(encoding, &dispatch);
}

/* ---- begin, end, and what may change afterwards ---- */

mica_status mica__cpu_encoder_begin(mica__device *device, uint32_t flags, mica__encoding **out)
{
    *out = NULL;
    const mica_status status = mica__cpu_device_awake(device);
    if (status != MICA_OK)
        return status;
    mica__commands *commands = take_spare(device);
    if (commands == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "cpu: no memory for an encoder");
    atomic_store(&commands->references, 1);
    commands->next_spare = NULL;
    commands->reusable = (flags & MICA__ENCODE_REUSABLE) != 0;
    commands->local_bytes = 0;
    commands->dispatch_count = commands->step_count = 0;
    commands->blob_used = 0;
    mica__encoding *encoding = &commands->encoding;
    encoding->device = device;
    encoding->commands = commands;
    encoding->error = MICA_OK;
    encoding->label_depth = 0;
    encoding->label[0] = copy_text(encoding, "");
    *out = encoding;
    return MICA_OK;
}

mica_status mica__cpu_encoder_end(mica__encoding *encoding, bool discard, mica__commands **out)
{
    mica__commands *commands = encoding->commands;
    mica__device *device = encoding->device;
    mica_status status = MICA_OK;
    *out = NULL;
    if (!discard && encoding->error != MICA_OK)
        status = mica__fail(encoding->error, "%s", encoding->sentence);
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
    if (dispatch >= commands->dispatch_count)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "dispatch: %u, expected less than %u", dispatch,
                          commands->dispatch_count);
    const mica__cpu_dispatch *target = &commands->dispatch[dispatch];
    if (binding >= target->binding_count)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "binding: %u, expected less than %u", binding,
                          target->binding_count);
    if (!binding_fits(to))
        return refuse_binding(binding, to);
    set_binding(target->kernel->host != NULL, commands->blob + target->block, binding, to);
    return MICA_OK;
}
