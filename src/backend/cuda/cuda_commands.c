/*
 * cuda_commands.c - encoding: dispatches and copies become a flat list, in one blob that grows and moves; nodes hold places
 * in it. Reusable commands become a graph at the end. Finished one-shot commands are kept and written again, so that
 * encoding allocates nothing once their arrays have grown.
 */
#include <string.h>

#include "backend/cuda/cuda_device.h"
#include "base/alloc.h"
#include "base/checked.h"
#include "base/env.h"

#define MAX_SPARES 8u
#define MAX_SPARE_BLOB ((uint64_t)4 << 20)
#define MAX_NODES (1u << 20)
#define MOST_GROUPS_X 0x7fffffffu
#define MOST_GROUPS_YZ 65535u
#define SHARED_WITHOUT_ASKING 49152u

/* ---- the object ---- */

static void free_commands(mica__commands *commands)
{
    mica__free(commands->node);
    mica__free(commands->dependency);
    mica__free(commands->written);
    mica__free(commands->blob);
    mica__free(commands);
}

static bool keep_spare(mica__device *device, mica__commands *commands)
{
    bool kept = false;
    if (commands->reusable || commands->blob_capacity > MAX_SPARE_BLOB)
        return false;
    pthread_mutex_lock(&device->lock);
    if (device->spare_count < MAX_SPARES) {
        commands->next_spare = device->spare;
        device->spare = commands;
        device->spare_count++;
        kept = true;
    }
    pthread_mutex_unlock(&device->lock);
    return kept;
}

void mica__cuda_commands_unref(mica__commands *commands)
{
    if (commands == NULL || atomic_fetch_sub(&commands->references, 1) != 1)
        return;
    mica__device *device = commands->device;
    if (commands->graph != NULL && mica__cuda_enter_quietly(device)) {
        mica__cuda_graph_drop(commands);
        mica__cuda_leave(device);
    }
    mica__cuda_fault_give(device, commands->fault);
    commands->fault = NULL;
    if (!keep_spare(device, commands))
        free_commands(commands);
}

void mica__cuda_commands_destroy(mica__device *device, mica__commands *commands)
{
    (void)device;
    mica__cuda_commands_unref(commands);
}

void mica__cuda_commands_forget(mica__device *device)
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
    if (encoding->error != MICA_OK || status == MICA_OK)
        return;
    encoding->error = status;
    strncpy(encoding->sentence, mica_status_message(), sizeof encoding->sentence - 1);
    encoding->sentence[sizeof encoding->sentence - 1] = '\0';
}

/* Room for `more` of `size` bytes behind `count`. */
static bool reserve(mica__encoding *encoding, void **array, uint64_t count, uint64_t more, uint64_t *capacity,
                    size_t size)
{
    if (count + more <= *capacity)
        return true;
    const uint64_t wanted = 2 * (count + more) + 64;
    size_t bytes;
    void *moved = NULL;
    if (mica__mul_size((size_t)wanted, size, &bytes))
        moved = mica__realloc(*array, bytes);
    if (moved == NULL) {
        latch(encoding, mica__fail(MICA_ERR_OUT_OF_MEMORY, "cuda: no host memory to encode %llu more",
                                   (unsigned long long)more));
        return false;
    }
    *array = moved;
    *capacity = wanted;
    return true;
}

static bool reserve_node(mica__encoding *encoding)
{
    mica__commands *commands = encoding->commands;
    void *array = commands->node;
    uint64_t capacity = commands->node_capacity;
    if (commands->node_count == MAX_NODES) {
        latch(encoding, mica__fail(MICA_ERR_BUDGET, "dispatch: more than %u in one encoder", MAX_NODES));
        return false;
    }
    if (!reserve(encoding, &array, commands->node_count, 1, &capacity, sizeof *commands->node))
        return false;
    commands->node = array;
    commands->node_capacity = (uint32_t)capacity;
    return true;
}

/* A fresh piece of the blob, 16-byte aligned, valid until the next one is taken. NULL: latched. */
static unsigned char *take_blob(mica__encoding *encoding, uint64_t bytes, uint64_t *out_place)
{
    mica__commands *commands = encoding->commands;
    const uint64_t place = (commands->blob_used + 15) & ~(uint64_t)15;
    void *blob = commands->blob;
    if (!reserve(encoding, &blob, place, bytes, &commands->blob_capacity, 1))
        return NULL;
    commands->blob = blob;
    commands->blob_used = place + bytes;
    *out_place = place;
    return commands->blob + place;
}

static uint64_t copy_text(mica__encoding *encoding, const char *text)
{
    const size_t bytes = strlen(text) + 1;
    uint64_t place;
    unsigned char *to = take_blob(encoding, bytes, &place);
    if (to == NULL)
        return encoding->label[0];
    memcpy(to, text, bytes);
    return place;
}

/* A dispatch's own label, else the innermost pushed one. */
static uint64_t choose_label(mica__encoding *encoding, const char *label)
{
    const uint32_t depth = encoding->label_depth;
    if (label != NULL && label[0] != '\0')
        return copy_text(encoding, label);
    return encoding->label[depth < MICA__CUDA_LABEL_DEPTH ? depth : MICA__CUDA_LABEL_DEPTH];
}

void mica__cuda_label(mica__encoding *encoding, const char *text)
{
    if (text == NULL) {
        encoding->label_depth -= encoding->label_depth != 0;
        return;
    }
    if (++encoding->label_depth <= MICA__CUDA_LABEL_DEPTH)
        encoding->label[encoding->label_depth] = copy_text(encoding, text);
}

void mica__cuda_barrier(mica__encoding *encoding)
{
    encoding->commands->group += encoding->open;
    encoding->open = false;
}

/* ---- one dispatch ---- */

/* The address that a kernel gets for a binding. */
static mica_status address_of(mica__commands *commands, const mica__binding *binding, uint32_t index,
                              uint64_t *out)
{
    mica__device *device = commands->device;
    uint64_t end;
    if (binding->memory != NULL) {
        if (!mica__add_u64(binding->offset, binding->length, &end) || end > binding->memory->bytes)
            return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                              "binding %u: %llu bytes at %llu, expected to end within %llu", index,
                              (unsigned long long)binding->length, (unsigned long long)binding->offset,
                              (unsigned long long)binding->memory->bytes);
        *out = mica__cuda_address(binding->memory) + binding->offset;
        return MICA_OK;
    }
    if (binding->access != MICA__BIND_FAULT) {
        *out = device->dummy;
        return MICA_OK;
    }
    if (commands->fault == NULL) {
        mica_status status = mica__cuda_enter(device);
        if (status != MICA_OK)
            return status;
        status = mica__cuda_fault_take(device, &commands->fault);
        mica__cuda_leave(device);
        if (status != MICA_OK)
            return status;
    }
    *out = commands->fault->device;
    return MICA_OK;
}

static mica_status check_size(const mica__device *device, const mica__kernel *kernel,
                              const mica__cuda_node *node)
{
    const uint64_t threads = (uint64_t)node->block[0] * node->block[1] * node->block[2];
    if (node->grid[0] == 0 || node->grid[1] == 0 || node->grid[2] == 0 || node->grid[0] > MOST_GROUPS_X ||
        node->grid[1] > MOST_GROUPS_YZ || node->grid[2] > MOST_GROUPS_YZ)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "groups: %u x %u x %u, expected 1 to %u x %u x %u",
                          node->grid[0], node->grid[1], node->grid[2], MOST_GROUPS_X, MOST_GROUPS_YZ,
                          MOST_GROUPS_YZ);
    if (kernel->encode != NULL)
        return MICA_OK;
    if (threads > kernel->most_threads)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "local: %u x %u x %u work-items, kernel %s runs at most %u", node->block[0],
                          node->block[1], node->block[2], kernel->name, kernel->most_threads);
    if ((uint64_t)node->shared + kernel->shared > device->shared)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "local_bytes: %u + %u of kernel %s, expected at most %u",
                          node->shared, kernel->shared, kernel->name, device->shared);
    return MICA_OK;
}

/* A wrong number of arguments would have the driver read past what it is given. */
static mica_status check_arguments(const mica__kernel *kernel, const mica__dispatch *dispatch)
{
    const uint32_t count = dispatch->binding_count + (dispatch->params_size != 0);
    if (dispatch->binding_count > MICA__CUDA_ARGUMENTS || dispatch->params_size > MICA__CUDA_PARAMS_BYTES)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "kernel %s: %u bindings and %u parameter bytes, expected at most %u and %u",
                          kernel->name, dispatch->binding_count, dispatch->params_size, MICA__CUDA_ARGUMENTS,
                          MICA__CUDA_PARAMS_BYTES);
    if (kernel->argument_count == 0)
        return MICA_OK;
    if (count != kernel->argument_count ||
        (dispatch->params_size != 0 && dispatch->params_size != kernel->params_bytes))
        return mica__fail(
            MICA_ERR_INVALID_ARGUMENT,
            "kernel %s: %u bindings and %u parameter bytes, its text has %u arguments, the last of %u",
            kernel->name, dispatch->binding_count, dispatch->params_size, kernel->argument_count,
            kernel->params_bytes);
    return MICA_OK;
}

/* More local memory than every kernel may use has to be asked for. */
static mica_status allow_shared(mica__device *device, const mica__kernel *kernel, const mica__cuda_node *node)
{
    if (kernel->encode != NULL || node->shared + kernel->shared <= SHARED_WITHOUT_ASKING)
        return MICA_OK;
    mica_status status = mica__cuda_enter(device);
    if (status != MICA_OK)
        return status;
    const int result = device->driver.function_set(kernel->function, MICA__CUDA_FUNCTION_DYNAMIC,
                                                   (int)(device->shared - kernel->shared));
    status = mica__cuda_check(device, result, MICA_ERR_UNSUPPORTED, "asking for local memory");
    mica__cuda_leave(device);
    return status;
}

/* What it waits for: earlier nodes of the same group; the barrier stands for those before. */
static bool add_dependencies(mica__encoding *encoding, const mica__dispatch *dispatch, mica__cuda_node *node)
{
    mica__commands *commands = encoding->commands;
    void *array = commands->dependency;
    uint64_t capacity = commands->dependency_capacity;
    node->first_dependency = commands->dependency_count;
    node->dependency_count = 0;
    if (!commands->reusable)
        return true; /* a stream keeps the order */
    if (!reserve(encoding, &array, commands->dependency_count, dispatch->dependency_count, &capacity,
                 sizeof *commands->dependency))
        return false;
    commands->dependency = array;
    commands->dependency_capacity = (uint32_t)capacity;
    for (uint32_t i = 0; i < dispatch->dependency_count; i++) {
        const uint32_t earlier = dispatch->dependencies[i];
        if (earlier >= commands->node_count) {
            latch(encoding,
                  mica__fail(MICA_ERR_INTERNAL, "dependencies: dispatch %u waits for %u, not an earlier one",
                             commands->node_count, earlier));
            return false;
        }
        if (commands->node[earlier].group == node->group)
            commands->dependency[commands->dependency_count++] = earlier;
    }
    node->dependency_count = commands->dependency_count - node->first_dependency;
    return true;
}

/* Bindings and parameters into the blob. */
static bool write_block(mica__encoding *encoding, const mica__dispatch *dispatch, mica__cuda_node *node)
{
    const uint64_t bindings = ((uint64_t)dispatch->binding_count * sizeof(uint64_t) + 15) & ~(uint64_t)15;
    unsigned char *block = take_blob(encoding, bindings + dispatch->params_size, &node->bindings);
    if (block == NULL)
        return false;
    node->params = node->bindings + bindings;
    node->binding_count = dispatch->binding_count;
    node->params_size = dispatch->params_size;
    for (uint32_t i = 0; i < dispatch->binding_count; i++) {
        const mica_status status =
            address_of(encoding->commands, &dispatch->bindings[i], i, (uint64_t *)(void *)block + i);
        latch(encoding, status);
        if (status != MICA_OK)
            return false;
    }
    if (dispatch->params_size != 0)
        memcpy(block + bindings, dispatch->params, dispatch->params_size);
    return true;
}

static bool is_written(const mica__commands *commands, uint64_t begin, uint64_t end)
{
    for (uint32_t i = 0; i < commands->written_count; i++)
        if (begin < commands->written[i].end && commands->written[i].begin < end)
            return true;
    return false;
}

/* Whether the node may start early: what it reads ahead is not written before it. Then what it writes itself. */
static bool note_accesses(mica__encoding *encoding, const mica__dispatch *dispatch, mica__cuda_node *node)
{
    mica__commands *commands = encoding->commands;
    const uint64_t *address = (const uint64_t *)(const void *)(commands->blob + node->bindings);
    void *array = commands->written;
    uint64_t capacity = commands->written_capacity;
    if (!commands->reusable)
        return true; /* no graph, no edges */
    if (!reserve(encoding, &array, commands->written_count, dispatch->binding_count, &capacity,
                 sizeof *commands->written))
        return false;
    commands->written = array;
    commands->written_capacity = (uint32_t)capacity;
    node->early = true;
    for (uint32_t i = 0; i < dispatch->binding_count; i++) {
        const mica__binding *binding = &dispatch->bindings[i];
        if ((binding->access & MICA__BIND_AHEAD) == 0 || binding->memory == NULL)
            continue;
        node->ahead |= 1u << i;
        node->early = node->early && !is_written(commands, address[i], address[i] + binding->length);
    }
    node->early = node->early && node->ahead != 0;
    commands->early |= node->early;
    for (uint32_t i = 0; i < dispatch->binding_count; i++) {
        const mica__binding *binding = &dispatch->bindings[i];
        if ((binding->access & MICA_ACCESS_WRITE) == 0 || binding->memory == NULL)
            continue;
        node->written |= 1u << i;
        commands->written[commands->written_count++] =
            (mica__cuda_range){address[i], address[i] + binding->length};
    }
    return true;
}

/* `kernel` NULL: a copy. */
static void add_node(mica__encoding *encoding, const mica__dispatch *dispatch)
{
    mica__commands *commands = encoding->commands;
    mica__kernel *kernel = dispatch->kernel;
    mica__cuda_node node = {.kernel = kernel, .shared = dispatch->local_bytes, .group = commands->group};
    if (encoding->error != MICA_OK || !reserve_node(encoding))
        return;
    for (uint32_t d = 0; d < 3; d++) {
        node.grid[d] = dispatch->groups[d];
        node.block[d] = dispatch->local[d] != 0 ? dispatch->local[d] : 1;
    }
    mica_status status = MICA_OK;
    if (kernel != NULL)
        status = check_size(commands->device, kernel, &node);
    if (status == MICA_OK && kernel != NULL && kernel->encode == NULL)
        status = check_arguments(kernel, dispatch);
    if (status == MICA_OK && kernel != NULL)
        status = allow_shared(commands->device, kernel, &node);
    latch(encoding, status);
    if (status != MICA_OK || !add_dependencies(encoding, dispatch, &node) ||
        !write_block(encoding, dispatch, &node) || !note_accesses(encoding, dispatch, &node))
        return;
    node.label = choose_label(encoding, dispatch->label);
    node.op = dispatch->op;
    commands->node[commands->node_count++] = node;
    encoding->open = true;
    if (encoding->serial)
        mica__cuda_barrier(encoding);
}

void mica__cuda_dispatch(mica__encoding *encoding, const mica__dispatch *dispatch)
{
    add_node(encoding, dispatch);
}

void mica__cuda_copy_add(mica__encoding *encoding, const mica__binding *from, const mica__binding *to)
{
    mica__binding bindings[2] = {*from, *to};
    const uint64_t length = from->length;
    bindings[0].access = MICA_ACCESS_READ;
    bindings[1].access = MICA_ACCESS_WRITE;
    if (from->memory == NULL || to->memory == NULL || from->length != to->length) {
        latch(encoding,
              mica__fail(MICA_ERR_INVALID_ARGUMENT, "copy: from %llu bytes to %llu, expected equal lengths",
                         (unsigned long long)from->length, (unsigned long long)to->length));
        return;
    }
    const mica__dispatch dispatch = {.bindings = bindings,
                                     .binding_count = 2,
                                     .params = &length,
                                     .params_size = sizeof length,
                                     .op = MICA_OP_COPY};
    add_node(encoding, &dispatch);
}

/* ---- begin, end, and what may change afterwards ---- */

mica_status mica__cuda_encoder_begin(mica__device *device, uint32_t flags, mica__encoding **out)
{
    *out = NULL;
    const mica_status status = mica__cuda_enter(device);
    if (status != MICA_OK)
        return status;
    mica__cuda_leave(device);
    mica__commands *commands = take_spare(device);
    if (commands == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "cuda: no host memory for an encoder");
    atomic_store(&commands->references, 1);
    commands->device = device;
    commands->next_spare = NULL;
    commands->reusable = (flags & MICA__ENCODE_REUSABLE) != 0;
    commands->node_count = commands->dependency_count = commands->written_count = commands->group = 0;
    commands->early = commands->plain = false;
    commands->blob_used = 0;
    mica__encoding *encoding = &commands->encoding;
    memset(encoding, 0, sizeof *encoding);
    encoding->commands = commands;
    encoding->serial = mica__env_debug(MICA__DEBUG_SERIAL);
    encoding->label[0] = copy_text(encoding, "");
    *out = encoding;
    return MICA_OK;
}

mica_status mica__cuda_encoder_end(mica__encoding *encoding, bool discard, mica__commands **out)
{
    mica__commands *commands = encoding->commands;
    mica__device *device = commands->device;
    mica_status status = MICA_OK;
    *out = NULL;
    if (!discard && encoding->error != MICA_OK)
        status = mica__fail(encoding->error, "%s", encoding->sentence);
    if (!discard && status == MICA_OK && commands->reusable && mica__cuda_has_graphs(device)) {
        status = mica__cuda_enter(device);
        if (status == MICA_OK) {
            status = mica__cuda_graph_build(commands);
            mica__cuda_leave(device);
        }
    }
    if (discard || status != MICA_OK) {
        mica__cuda_commands_unref(commands);
        return status;
    }
    *out = commands;
    return MICA_OK;
}

mica_status mica__cuda_commands_update(mica__commands *commands, uint32_t dispatch, uint32_t binding,
                                       const mica__binding *to)
{
    uint64_t address = 0;
    if (dispatch >= commands->node_count)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "dispatch: %u, expected less than %u", dispatch,
                          commands->node_count);
    mica__cuda_node *node = &commands->node[dispatch];
    if (binding >= node->binding_count)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "binding: %u, expected less than %u", binding,
                          node->binding_count);
    mica_status status = address_of(commands, to, binding, &address);
    if (status == MICA_OK)
        status = mica__cuda_enter(commands->device);
    if (status != MICA_OK)
        return status;
    memcpy(commands->blob + node->bindings + binding * sizeof address, &address, sizeof address);
    if (commands->executable != NULL && commands->early && !commands->plain &&
        ((node->written | node->ahead) >> binding & 1) != 0)
        commands->plain = commands->stale =
            true; /* what was said of writing and reading ahead no longer holds */
    if (commands->executable != NULL && !commands->stale)
        commands->stale = !mica__cuda_graph_update(commands, node);
    mica__cuda_leave(commands->device);
    return MICA_OK;
}
