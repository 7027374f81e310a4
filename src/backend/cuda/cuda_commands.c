/*
 * cuda_commands.c - encoding: dispatches and copies become a flat list, in one blob that grows and moves; nodes hold places
 * in it. Reusable commands become a graph at the end. Finished one-shot commands are kept and written again, so that
 * encoding allocates nothing once their arrays have grown.
 */
#include <string.h>

#include "backend/checks.h"
#include "backend/cuda/cuda_device.h"
#include "base/alloc.h"
#include "base/env.h"

#define MAX_SPARE_BLOB ((uint64_t)4 << 20)
#define MAX_NODES (1u << 20)
#define MOST_GROUPS_X 0x7fffffffu
#define MOST_GROUPS_YZ 65535u
#define SHARED_WITHOUT_ASKING 49152u

/* ---- the object ---- */

static const mica__far_calls far_calls = {mica__cuda_buffer_create, mica__cuda_buffer_destroy,
                                          mica__cuda_upload};

static void free_commands(mica__commands *commands)
{
    mica__far_free(&commands->far, commands->device, &far_calls);
    mica__free(commands->node);
    mica__free(commands->dependency);
    mica__free(commands->written);
    mica__free(commands->blob.bytes);
    mica__free(commands);
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
    if (commands->reusable || commands->blob.capacity > MAX_SPARE_BLOB ||
        !mica__spares_give(&device->spares, commands))
        free_commands(commands);
}

void mica__cuda_commands_destroy(mica__device *device, mica__commands *commands)
{
    (void)device;
    mica__cuda_commands_unref(commands);
}

void mica__cuda_commands_forget(mica__device *device)
{
    for (mica__commands *commands; (commands = mica__spares_take(&device->spares)) != NULL;)
        free_commands(commands);
}

/* ---- one dispatch; a failure is latched ---- */

static bool reserve_node(mica__encoding *encoding)
{
    mica__commands *commands = encoding->commands;
    if (commands->node_count == MAX_NODES)
        return mica__latch_keep(
            &encoding->latch,
            mica__fail(MICA_ERR_BUDGET, "dispatch: more than %u in one encoder", MAX_NODES));
    void *node = mica__encode_reserve(&encoding->latch, commands->node, commands->node_count, 1,
                                      &commands->node_capacity, sizeof *commands->node);
    if (node == NULL)
        return false;
    commands->node = node;
    return true;
}

void mica__cuda_barrier(mica__encoding *encoding)
{
    encoding->commands->group += encoding->open;
    encoding->open = false;
}

/* The address that a kernel gets for a binding. */
static mica_status address_of(mica__commands *commands, const mica__binding *binding, uint32_t index,
                              uint64_t *out)
{
    mica__device *device = commands->device;
    if (binding->memory != NULL) {
        *out = mica__cuda_address(binding->memory) + binding->offset;
        return mica__check_binding(index, binding);
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
static mica_status check_arguments(const mica__kernel *kernel, const mica__dispatch *dispatch,
                                   const mica__cuda_node *node)
{
    const uint32_t params = node->far == 0 ? dispatch->params_size : 0;
    const uint32_t count = dispatch->binding_count + (params != 0);
    if (dispatch->binding_count > MICA__CUDA_ARGUMENTS ||
        (uint64_t)dispatch->binding_count * 8 + params > MICA__CUDA_ARGUMENT_BYTES)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "kernel %s: %u bindings of 8 bytes and %u parameter bytes, expected at most %u",
                          kernel->name, dispatch->binding_count, params, MICA__CUDA_ARGUMENT_BYTES);
    if (kernel->argument_count == 0)
        return MICA_OK;
    if (count != kernel->argument_count || (params != 0 && params != kernel->params_bytes))
        return mica__fail(
            MICA_ERR_INVALID_ARGUMENT,
            "kernel %s: %u bindings and %u parameter bytes, its text has %u arguments, the last of %u",
            kernel->name, dispatch->binding_count, params, kernel->argument_count, kernel->params_bytes);
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
    node->first_dependency = commands->dependency_count;
    node->dependency_count = 0;
    if (!commands->reusable)
        return true; /* a stream keeps the order */
    void *dependency = mica__encode_reserve(&encoding->latch, commands->dependency,
                                            commands->dependency_count, dispatch->dependency_count,
                                            &commands->dependency_capacity, sizeof *commands->dependency);
    if (dependency == NULL)
        return false;
    commands->dependency = dependency;
    for (uint32_t i = 0; i < dispatch->dependency_count; i++) {
        const uint32_t earlier = dispatch->dependencies[i];
        if (earlier >= commands->node_count)
            return mica__latch_keep(&encoding->latch,
                                    mica__fail(MICA_ERR_INTERNAL,
                                               "dependencies: dispatch %u waits for %u, not an earlier one",
                                               commands->node_count, earlier));
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
    unsigned char *block = mica__blob_take(&encoding->commands->blob, &encoding->latch,
                                           bindings + dispatch->params_size, &node->bindings);
    if (block == NULL)
        return false;
    node->params = node->bindings + bindings;
    node->binding_count = dispatch->binding_count;
    node->params_size = dispatch->params_size;
    for (uint32_t i = 0; i < dispatch->binding_count; i++) {
        const mica_status status =
            address_of(encoding->commands, &dispatch->bindings[i], i, (uint64_t *)(void *)block + i);
        if (!mica__latch_keep(&encoding->latch, status))
            return false;
    }
    if (dispatch->params_size != 0)
        memcpy(block + bindings, dispatch->params, dispatch->params_size);
    if (node->far == 0)
        return true;
    uint64_t *place = (uint64_t *)(void *)block + node->far - 1; /* an address when the encoding ends */
    *place =
        mica__far_put(&encoding->commands->far, &encoding->latch, dispatch->params, dispatch->params_size);
    return *place != 0;
}

/* Sends parameters that are no arguments, and puts their addresses where they are bound. */
static mica_status send_far(mica__commands *commands)
{
    const mica_status status = mica__far_send(&commands->far, commands->device, &far_calls);
    if (status != MICA_OK || commands->far.blob.used == 0)
        return status;
    for (uint32_t i = 0; i < commands->node_count; i++) {
        const mica__cuda_node *node = &commands->node[i];
        uint64_t *address = (uint64_t *)(void *)(commands->blob.bytes + node->bindings);
        if (node->far != 0)
            address[node->far - 1] += mica__cuda_address(commands->far.memory);
    }
    return MICA_OK;
}

static uint64_t mark(uint32_t binding)
{
    return (uint64_t)1 << (binding < MICA__CUDA_MARKED ? binding : MICA__CUDA_MARKED);
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
    const uint64_t *address = (const uint64_t *)(const void *)(commands->blob.bytes + node->bindings);
    if (!commands->reusable)
        return true; /* no graph, no edges */
    void *written =
        mica__encode_reserve(&encoding->latch, commands->written, commands->written_count,
                             dispatch->binding_count, &commands->written_capacity, sizeof *commands->written);
    if (written == NULL)
        return false;
    commands->written = written;
    node->early = true;
    for (uint32_t i = 0; i < dispatch->binding_count; i++) {
        const mica__binding *binding = &dispatch->bindings[i];
        if ((binding->access & MICA__BIND_AHEAD) == 0 || binding->memory == NULL)
            continue;
        node->ahead |= mark(i);
        node->early = node->early && !is_written(commands, address[i], address[i] + binding->length);
    }
    node->early = node->early && node->ahead != 0;
    commands->early |= node->early;
    for (uint32_t i = 0; i < dispatch->binding_count; i++) {
        const mica__binding *binding = &dispatch->bindings[i];
        if ((binding->access & MICA_ACCESS_WRITE) == 0 || binding->memory == NULL)
            continue;
        node->written |= mark(i);
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
    if (encoding->latch.status != MICA_OK || !reserve_node(encoding))
        return;
    for (uint32_t d = 0; d < 3; d++) {
        node.grid[d] = dispatch->groups[d];
        node.block[d] = dispatch->local[d] != 0 ? dispatch->local[d] : 1;
    }
    for (uint32_t i = 0; i < dispatch->binding_count; i++)
        if (dispatch->bindings[i].access == MICA__BIND_PARAMS)
            node.far = i + 1;
    mica_status status = MICA_OK;
    if (kernel != NULL)
        status = check_size(commands->device, kernel, &node);
    if (status == MICA_OK && kernel != NULL && kernel->encode == NULL)
        status = check_arguments(kernel, dispatch, &node);
    if (status == MICA_OK && kernel != NULL)
        status = allow_shared(commands->device, kernel, &node);
    if (!mica__latch_keep(&encoding->latch, status) || !add_dependencies(encoding, dispatch, &node) ||
        !write_block(encoding, dispatch, &node) || !note_accesses(encoding, dispatch, &node))
        return;
    node.label = mica__blob_put_text(&commands->blob, &encoding->latch, dispatch->label);
    node.op = dispatch->op;
    node.bytes = dispatch->bytes;
    node.operations = dispatch->operations;
    commands->node[commands->node_count++] = node;
    encoding->open = true;
    if (encoding->serial)
        mica__cuda_barrier(encoding);
}

void mica__cuda_dispatch(mica__encoding *encoding, const mica__dispatch *dispatch)
{
    if (dispatch->kernel != NULL) {
        add_node(encoding, dispatch);
        return;
    }
    mica__dispatch copy = *dispatch; /* its parameters are its length */
    if (!mica__latch_keep(&encoding->latch, mica__check_copy(dispatch)))
        return;
    copy.params = &dispatch->bindings[0].length;
    copy.params_size = sizeof dispatch->bindings[0].length;
    add_node(encoding, &copy);
}

/* ---- begin, end, and what may change afterwards ---- */

mica_status mica__cuda_encoder_begin(mica__device *device, uint32_t flags, mica__encoding **out)
{
    *out = NULL;
    const mica_status status = mica__cuda_enter(device);
    if (status != MICA_OK)
        return status;
    mica__cuda_leave(device);
    mica__commands *commands = mica__spares_take(&device->spares);
    if (commands == NULL)
        commands = mica__calloc(1, sizeof *commands);
    if (commands == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "cuda: no host memory for an encoder");
    atomic_store(&commands->references, 1);
    commands->device = device;
    commands->reusable = (flags & MICA__ENCODE_REUSABLE) != 0;
    commands->node_count = commands->dependency_count = commands->written_count = commands->group = 0;
    commands->early = commands->plain = false;
    commands->blob.used = commands->far.blob.used = 0;
    mica__encoding *encoding = &commands->encoding;
    encoding->commands = commands;
    encoding->latch.status = MICA_OK;
    encoding->open = false;
    encoding->serial = mica__env_debug(MICA__DEBUG_SERIAL);
    *out = encoding;
    return MICA_OK;
}

mica_status mica__cuda_encoder_end(mica__encoding *encoding, bool discard, mica__commands **out)
{
    mica__commands *commands = encoding->commands;
    mica__device *device = commands->device;
    mica_status status = discard ? MICA_OK : mica__latch_report(&encoding->latch);
    *out = NULL;
    if (!discard && status == MICA_OK)
        status = send_far(commands);
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
    mica_status status = mica__check_index("dispatch", dispatch, commands->node_count);
    if (status != MICA_OK)
        return status;
    mica__cuda_node *node = &commands->node[dispatch];
    status = mica__check_index("binding", binding, node->binding_count);
    if (status == MICA_OK)
        status = address_of(commands, to, binding, &address);
    if (status == MICA_OK)
        status = mica__cuda_enter(commands->device);
    if (status != MICA_OK)
        return status;
    memcpy(commands->blob.bytes + node->bindings + binding * sizeof address, &address, sizeof address);
    if (commands->executable != NULL && commands->early && !commands->plain &&
        ((node->written | node->ahead) & mark(binding)) != 0)
        commands->plain = commands->stale = true; /* what was said of it no longer holds */
    if (commands->executable != NULL && !commands->stale)
        commands->stale = !mica__cuda_graph_update(commands, node);
    mica__cuda_leave(commands->device);
    return MICA_OK;
}
