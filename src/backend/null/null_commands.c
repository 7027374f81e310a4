/* null_commands.c - encoding on the null device: everything is checked and written down. */
#include <stdio.h>
#include <string.h>

#include "backend/null/null_device.h"
#include "base/alloc.h"
#include "base/checked.h"

/* Keeps the code and the sentence of the first failure. */
static void latch(mica__encoding *encoding, mica_status status)
{
    if (encoding->error != MICA_OK)
        return;
    encoding->error = status;
    snprintf(encoding->sentence, sizeof encoding->sentence, "%.200s", mica_status_message());
}

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

/* Room for `more` of `size` bytes behind `count`. False: latched. */
static bool reserve(mica__encoding *encoding, void **array, uint32_t count, uint32_t *capacity, uint32_t more,
                    size_t size)
{
    if (count + more <= *capacity)
        return true;
    const uint32_t wanted = 2 * (count + more) + 32;
    void *moved = mica__realloc(*array, wanted * size);
    if (moved == NULL) {
        latch(encoding, mica__fail(MICA_ERR_OUT_OF_MEMORY, "null: no memory to encode %u more", wanted));
        return false;
    }
    *array = moved;
    *capacity = wanted;
    return true;
}

static bool check_binding(mica__encoding *encoding, const mica__binding *binding, uint32_t index)
{
    uint64_t end;
    if (binding->memory == NULL ||
        (mica__add_u64(binding->offset, binding->length, &end) && end <= binding->memory->bytes))
        return true;
    latch(encoding,
          mica__fail(MICA_ERR_INVALID_ARGUMENT, "binding %u: %llu + %llu bytes, expected at most %llu", index,
                     (unsigned long long)binding->offset, (unsigned long long)binding->length,
                     (unsigned long long)binding->memory->bytes));
    return false;
}

/* A dispatch may depend only on what was encoded before it. */
static bool add_dependencies(mica__encoding *encoding, const mica__dispatch *dispatch)
{
    mica__commands *commands = encoding->commands;
    void *array = commands->dependency;
    for (uint32_t i = 0; i < dispatch->dependency_count; i++) {
        if (dispatch->dependencies[i] >= commands->entry_count) {
            latch(encoding, mica__fail(MICA_ERR_INTERNAL,
                                       "dependencies: dispatch %u waits for %u, expected an earlier one",
                                       commands->entry_count, dispatch->dependencies[i]));
            return false;
        }
    }
    if (!reserve(encoding, &array, commands->dependency_count, &commands->dependency_capacity,
                 dispatch->dependency_count, sizeof *commands->dependency))
        return false;
    commands->dependency = array;
    if (dispatch->dependency_count != 0)
        memcpy(commands->dependency + commands->dependency_count, dispatch->dependencies,
               dispatch->dependency_count * sizeof *commands->dependency);
    commands->dependency_count += dispatch->dependency_count;
    return true;
}

static void add_entry(mica__encoding *encoding, mica__null_kind kind, const char *kernel,
                      const mica__dispatch *from)
{
    mica__commands *commands = encoding->commands;
    void *array = commands->entry;
    if (encoding->error != MICA_OK)
        return;
    for (uint32_t i = 0; i < from->binding_count; i++)
        if (!check_binding(encoding, &from->bindings[i], i))
            return;
    if (!reserve(encoding, &array, commands->entry_count, &commands->entry_capacity, 1,
                 sizeof *commands->entry))
        return;
    commands->entry = array;
    if (!add_dependencies(encoding, from))
        return;
    mica__null_entry *entry = &commands->entry[commands->entry_count++];
    memset(entry, 0, sizeof *entry);
    entry->kind = kind;
    entry->group = commands->barrier_count;
    entry->op = from->op;
    entry->binding_count = from->binding_count;
    entry->first_dependency = commands->dependency_count - from->dependency_count;
    entry->dependency_count = from->dependency_count;
    snprintf(entry->kernel, sizeof entry->kernel, "%s", kernel);
    snprintf(entry->label, sizeof entry->label, "%.63s",
             from->label != NULL && from->label[0] != '\0' ? from->label : encoding->label);
    commands->barrier_open = true;
}

void mica__null_dispatch(mica__encoding *encoding, const mica__dispatch *dispatch)
{
    const uint32_t *groups = dispatch->groups;
    if (groups[0] == 0 || groups[1] == 0 || groups[2] == 0)
        latch(encoding, mica__fail(MICA_ERR_INVALID_ARGUMENT, "groups: %u x %u x %u, expected none to be 0",
                                   groups[0], groups[1], groups[2]));
    add_entry(encoding, MICA__NULL_DISPATCH, dispatch->kernel->name, dispatch);
}

void mica__null_copy(mica__encoding *encoding, const mica__binding *from, const mica__binding *to)
{
    const mica__binding bindings[2] = {*from, *to};
    const mica__dispatch dispatch = {.bindings = bindings, .binding_count = 2, .op = MICA_OP_COPY};
    if (from->length != to->length)
        latch(encoding,
              mica__fail(MICA_ERR_INVALID_ARGUMENT, "copy: from %llu bytes to %llu, expected equal lengths",
                         (unsigned long long)from->length, (unsigned long long)to->length));
    add_entry(encoding, MICA__NULL_COPY, "copy_bytes", &dispatch);
}

void mica__null_barrier(mica__encoding *encoding)
{
    encoding->commands->barrier_count += encoding->commands->barrier_open;
    encoding->commands->barrier_open = false;
}

void mica__null_label(mica__encoding *encoding, const char *text)
{
    snprintf(encoding->label, sizeof encoding->label, "%.63s", text == NULL ? "" : text);
}

mica_status mica__null_encoder_end(mica__encoding *encoding, bool discard, mica__commands **out)
{
    mica__commands *commands = encoding->commands;
    mica__device *device = encoding->device;
    *out = NULL;
    if (!discard && encoding->error == MICA_OK) {
        *out = commands;
        return MICA_OK;
    }
    const mica_status status = discard ? MICA_OK : mica__fail(encoding->error, "%s", encoding->sentence);
    mica__null_commands_destroy(device, commands);
    return status;
}

mica_status mica__null_commands_update(mica__commands *commands, uint32_t dispatch, uint32_t binding,
                                       const mica__binding *to)
{
    mica__encoding *encoding = &commands->encoding;
    mica__device *device = encoding->device;
    if (dispatch >= commands->entry_count)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "dispatch: %u, expected less than %u", dispatch,
                          commands->entry_count);
    if (binding >= commands->entry[dispatch].binding_count)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "binding: %u, expected less than %u", binding,
                          commands->entry[dispatch].binding_count);
    encoding->error = MICA_OK;
    if (!check_binding(encoding, to, binding))
        return encoding->error;
    pthread_mutex_lock(&device->lock);
    device->counts.updates++;
    pthread_mutex_unlock(&device->lock);
    return MICA_OK;
}
