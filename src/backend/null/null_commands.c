/* null_commands.c - encoding on the null device: everything is checked and written down. */
#include <stdio.h>
#include <string.h>

#include "backend/checks.h"
#include "backend/null/null_device.h"
#include "base/alloc.h"

static void free_commands(mica__commands *commands)
{
    mica__free(commands->entry);
    mica__free(commands->dependency);
    mica__free(commands);
}

void mica__null_commands_drop(mica__device *device, mica__commands *commands)
{
    if (commands == NULL || --commands->references != 0)
        return;
    device->counts.commands_live--;
    free_commands(commands);
}

void mica__null_commands_destroy(mica__device *device, mica__commands *commands)
{
    pthread_mutex_lock(&device->lock);
    mica__null_commands_drop(device, commands);
    pthread_mutex_unlock(&device->lock);
}

mica_status mica__null_encoder_begin(mica__device *device, uint32_t flags, mica__encoding **out)
{
    *out = NULL;
    const mica_status status = mica__null_check_lost(device);
    if (status != MICA_OK)
        return status;
    mica__commands *commands = mica__calloc(1, sizeof *commands);
    if (commands == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "null: no memory for an encoder");
    commands->references = 1;
    commands->reusable = (flags & MICA__ENCODE_REUSABLE) != 0;
    commands->encoding.device = device;
    commands->encoding.commands = commands;
    pthread_mutex_lock(&device->lock);
    device->counts.encodings++;
    device->counts.commands_live++;
    pthread_mutex_unlock(&device->lock);
    *out = &commands->encoding;
    return MICA_OK;
}

/* A dispatch may depend only on what was encoded before it. */
static bool add_dependencies(mica__encoding *encoding, const mica__dispatch *dispatch)
{
    mica__commands *commands = encoding->commands;
    for (uint32_t i = 0; i < dispatch->dependency_count; i++)
        if (dispatch->dependencies[i] >= commands->entry_count)
            return mica__latch_keep(
                &encoding->latch,
                mica__fail(MICA_ERR_INTERNAL,
                           "dependencies: dispatch %u waits for %u, expected an earlier one",
                           commands->entry_count, dispatch->dependencies[i]));
    uint32_t *dependency =
        mica__encode_reserve(&encoding->latch, commands->dependency, commands->dependency_count,
                             dispatch->dependency_count, &commands->dependency_capacity, sizeof *dependency);
    if (dependency == NULL)
        return false;
    commands->dependency = dependency;
    if (dispatch->dependency_count != 0)
        memcpy(commands->dependency + commands->dependency_count, dispatch->dependencies,
               dispatch->dependency_count * sizeof *commands->dependency);
    commands->dependency_count += dispatch->dependency_count;
    return true;
}

static mica_status check_dispatch(const mica__dispatch *dispatch)
{
    const uint32_t *groups = dispatch->groups;
    mica_status status = MICA_OK;
    if (dispatch->kernel == NULL)
        return mica__check_copy(dispatch);
    if (groups[0] == 0 || groups[1] == 0 || groups[2] == 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "groups: %u x %u x %u, expected none to be 0", groups[0],
                          groups[1], groups[2]);
    for (uint32_t i = 0; i < dispatch->binding_count && status == MICA_OK; i++)
        status = mica__check_binding(i, &dispatch->bindings[i]);
    return status;
}

void mica__null_dispatch(mica__encoding *encoding, const mica__dispatch *dispatch)
{
    mica__commands *commands = encoding->commands;
    if (encoding->latch.status != MICA_OK || !mica__latch_keep(&encoding->latch, check_dispatch(dispatch)))
        return;
    mica__null_entry *entry = mica__encode_reserve(&encoding->latch, commands->entry, commands->entry_count,
                                                   1, &commands->entry_capacity, sizeof *entry);
    if (entry == NULL)
        return;
    commands->entry = entry;
    if (!add_dependencies(encoding, dispatch))
        return;
    entry += commands->entry_count++;
    memset(entry, 0, sizeof *entry);
    entry->kind = dispatch->kernel != NULL ? MICA__NULL_DISPATCH : MICA__NULL_COPY;
    entry->group = commands->barrier_count;
    entry->op = dispatch->op;
    entry->bytes = dispatch->bytes;
    entry->operations = dispatch->operations;
    entry->binding_count = dispatch->binding_count;
    entry->first_dependency = commands->dependency_count - dispatch->dependency_count;
    entry->dependency_count = dispatch->dependency_count;
    snprintf(entry->kernel, sizeof entry->kernel, "%s",
             dispatch->kernel != NULL ? dispatch->kernel->name : "copy_bytes");
    snprintf(entry->label, sizeof entry->label, "%.63s", dispatch->label != NULL ? dispatch->label : "");
    commands->barrier_open = true;
}

void mica__null_barrier(mica__encoding *encoding)
{
    encoding->commands->barrier_count += encoding->commands->barrier_open;
    encoding->commands->barrier_open = false;
}

mica_status mica__null_encoder_end(mica__encoding *encoding, bool discard, mica__commands **out)
{
    mica__commands *commands = encoding->commands;
    mica__device *device = encoding->device;
    *out = NULL;
    const mica_status status = discard ? MICA_OK : mica__latch_report(&encoding->latch);
    if (discard || status != MICA_OK)
        mica__null_commands_destroy(device, commands);
    else
        *out = commands;
    return status;
}

mica_status mica__null_commands_update(mica__commands *commands, uint32_t dispatch, uint32_t binding,
                                       const mica__binding *to)
{
    mica__device *device = commands->encoding.device;
    mica_status status = mica__check_index("dispatch", dispatch, commands->entry_count);
    if (status == MICA_OK)
        status = mica__check_index("binding", binding, commands->entry[dispatch].binding_count);
    if (status == MICA_OK)
        status = mica__check_binding(binding, to);
    if (status != MICA_OK)
        return status;
    pthread_mutex_lock(&device->lock);
    device->counts.updates++;
    pthread_mutex_unlock(&device->lock);
    return MICA_OK;
}
