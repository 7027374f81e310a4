/* work.c - commands with all they hold on to; submitting, waiting, rebinding. */
#include <string.h>

#include "base/alloc.h"
#include "base/status.h"
#include "device/custom.h"
#include "device/inflight.h"
#include "device/registry.h"
#include "device/work_object.h"

/* Grows an array of `size`-byte items so that one more fits. */
static mica_status reserve(void **items, uint32_t count, uint32_t *capacity, size_t size)
{
    if (count < *capacity)
        return MICA_OK;
    uint32_t wanted = *capacity * 2 + 16;
    void *grown = mica__realloc(*items, wanted * size);
    if (grown == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no host memory to encode");
    *items = grown;
    *capacity = wanted;
    return MICA_OK;
}

mica_status mica__work_create(mica_device *device, bool reusable, mica__work **out)
{
    mica__work *work = mica__calloc(1, sizeof *work);
    *out = work;
    if (work == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no host memory to encode");
    work->device = device;
    work->reusable = reusable;
    return MICA_OK;
}

mica_status mica__work_hold_another(mica__work *work, mica__storage *storage)
{
    mica_status status =
        reserve((void **)&work->held, work->held_count, &work->held_capacity, sizeof *work->held);
    if (status != MICA_OK)
        return status;
    work->held[work->held_count++] = mica__storage_retain(storage);
    *mica__work_recent(work, storage) = storage;
    return MICA_OK;
}

mica_status mica__work_hold_kernel(mica__work *work, mica_kernel *kernel)
{
    for (uint32_t i = 0; i < work->kernel_count; i++)
        if (work->kernel[i] == kernel)
            return MICA_OK;
    mica_status status =
        reserve((void **)&work->kernel, work->kernel_count, &work->kernel_capacity, sizeof *work->kernel);
    if (status != MICA_OK)
        return status;
    mica__custom_hold(&(mica__custom){.kernel = kernel});
    work->kernel[work->kernel_count++] = kernel;
    return MICA_OK;
}

mica_status mica__work_add_scratch(mica__work *work, uint64_t bytes)
{
    mica__scratch *scratch = &work->scratch;
    mica_status status =
        reserve((void **)&scratch->chunk, scratch->count, &scratch->capacity, sizeof *scratch->chunk);
    if (status == MICA_OK)
        status = mica__pool_take(work->device->scratch, bytes, &scratch->chunk[scratch->count]);
    if (status == MICA_OK)
        scratch->count++;
    return status;
}

mica_status mica__scratch_share(const mica__scratch *from, mica__scratch *to)
{
    mica_status status = MICA_OK;
    while (to->count < from->count && status == MICA_OK) {
        status = reserve((void **)&to->chunk, to->count, &to->capacity, sizeof *to->chunk);
        if (status == MICA_OK) {
            to->chunk[to->count] = mica__storage_retain(from->chunk[to->count]);
            to->count++;
        }
    }
    return status;
}

void mica__scratch_release(mica__scratch *scratch)
{
    for (uint32_t i = 0; i < scratch->count; i++)
        mica__storage_release(scratch->chunk[i]);
    mica__free(scratch->chunk);
    memset(scratch, 0, sizeof *scratch);
}

mica_status mica__work_note(mica__work *work, uint32_t dispatch, uint32_t binding,
                            const mica__operand *operand)
{
    if (!work->reusable || !mica__operand_present(operand))
        return MICA_OK;
    mica_status status =
        reserve((void **)&work->note, work->note_count, &work->note_capacity, sizeof *work->note);
    if (status == MICA_OK)
        work->note[work->note_count++] = (mica__binding_note){dispatch, binding, *operand};
    return status;
}

uint64_t mica__work_scratch(const mica__work *work)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < work->scratch.count; i++)
        bytes += work->scratch.chunk[i]->bytes;
    return bytes;
}

void mica__work_release(mica__work *work)
{
    if (work == NULL)
        return;
    if (work->reusable)
        mica__work_wait(work, NULL, NULL);
    if (work->commands != NULL)
        work->device->table->commands_destroy(work->device->impl, work->commands);
    for (uint32_t i = 0; i < work->held_count; i++)
        mica__storage_release(work->held[i]);
    mica__scratch_release(&work->scratch);
    for (uint32_t i = 0; i < work->kernel_count; i++)
        mica__custom_drop(&(mica__custom){.kernel = work->kernel[i]});
    mica__queue_unref(work->queue);
    mica__free(work->held);
    mica__free(work->kernel);
    mica__free(work->note);
    mica__free(work);
}

mica_status mica__work_submit(mica__work *work, mica_queue *queue, mica_fence **out_fence)
{
    mica_device *device = work->device;
    bool reusable = work->reusable;
    mica__residency_flush(device);
    mica_status status = mica__inflight_submit(device, work, queue, out_fence);
    if (status == MICA_OK && reusable)
        MICA__COUNT(device, replays, 1);
    return status;
}

mica_status mica__work_wait(mica__work *work, uint64_t *out_begin_ns, uint64_t *out_end_ns)
{
    mica__completion done = {MICA_OK, 0, 0, 0};
    mica_status status = mica__inflight_work(work, &done);
    if (status != MICA_OK)
        return status;
    if (out_begin_ns != NULL)
        *out_begin_ns = done.begin_ns;
    if (out_end_ns != NULL)
        *out_end_ns = done.end_ns;
    return mica__completion_status(&done);
}

/* The first note of a dispatch from `dispatch` on: notes are in the order of dispatches. */
static uint32_t first_note(const mica__work *work, uint32_t dispatch)
{
    uint32_t low = 0, high = work->note_count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (work->note[middle].dispatch < dispatch)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

mica_status mica__work_rebind(mica__work *work, const mica__lowered *place, const mica__operand *from,
                              const mica__operand *to)
{
    mica__completion last; /* how the last run ended is for its fence to say; here only that it did */
    mica_status status = mica__inflight_work(work, &last);
    const uint32_t end = place->first_dispatch + place->dispatch_count;
    for (uint32_t i = first_note(work, place->first_dispatch);
         status == MICA_OK && i < work->note_count && work->note[i].dispatch < end; i++) {
        mica__binding_note *note = &work->note[i];
        if (!mica__operand_same(&note->operand, from))
            continue;
        mica__binding binding = {to->memory, to->offset, to->length, note->operand.access};
        status =
            work->device->table->commands_update(work->commands, note->dispatch, note->binding, &binding);
        if (status != MICA_OK)
            break;
        note->operand.memory = to->memory;
        note->operand.storage = to->storage;
        note->operand.offset = to->offset;
    }
    return status;
}

mica_status mica__record_check(mica_device *device, const mica__record *record, bool sure, mica__plan *room)
{
    return record->op == MICA_OP_CUSTOM ? MICA_OK : mica__registry_check(device, record, sure, room);
}
