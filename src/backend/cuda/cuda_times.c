/* cuda_times.c - the time of each dispatch: events between the launches of a submission, read when it is done. */
#include <stdio.h>
#include <string.h>

#include "backend/cuda/cuda_device.h"
#include "base/alloc.h"

#define TIMES_CAPACITY 65536u

/* Lock held. */
static void keep(mica__device *device, const mica__cuda_slot *slot, uint32_t index, uint64_t begin_ns,
                 uint64_t end_ns)
{
    const mica__commands *commands = slot->commands;
    const mica__cuda_node *node = &commands->node[index];
    mica_profile_entry *entry = &device->times.entry[device->times.count++ % TIMES_CAPACITY];
    memset(entry, 0, sizeof *entry);
    snprintf(entry->kernel, sizeof entry->kernel, "%.47s",
             node->kernel != NULL ? node->kernel->name : "copy_bytes");
    snprintf(entry->label, sizeof entry->label, "%.63s", (const char *)commands->blob + node->label);
    entry->op = (mica_op)node->op;
    entry->index = index;
    entry->submission = slot->value;
    entry->begin_ns = begin_ns;
    entry->end_ns = end_ns;
}

void mica__cuda_times_resolve(mica__device *device, mica__cuda_slot *slot, bool read)
{
    const mica__cuda_driver *driver = &device->driver;
    const uint32_t count = slot->times == NULL ? 0 : slot->commands->node_count;
    uint64_t begin_ns = slot->completion.begin_ns;
    if (slot->times == NULL)
        return;
    pthread_mutex_lock(&device->lock);
    for (uint32_t i = 0; i < count && read && device->times.entry != NULL; i++) {
        float ms = 0;
        if (driver->event_elapsed(&ms, slot->times[i], slot->times[i + 1]) != 0)
            break;
        const uint64_t end_ns = begin_ns + (uint64_t)((double)ms * 1e6);
        keep(device, slot, i, begin_ns, end_ns);
        begin_ns = end_ns;
    }
    pthread_mutex_unlock(&device->lock);
    const bool own = device->generation == mica__fork_generation();
    for (uint32_t i = 0; i <= count && own; i++)
        if (slot->times[i] != NULL)
            driver->event_destroy(slot->times[i]);
    mica__free(slot->times);
    slot->times = NULL;
}

/* Lock held. Switching on forgets what was there. */
static mica_status enable_times(mica__cuda_times *times)
{
    if (times->entry == NULL)
        times->entry = mica__alloc(TIMES_CAPACITY * sizeof *times->entry);
    if (times->entry == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "cuda: no host memory to keep %u times", TIMES_CAPACITY);
    times->count = 0;
    times->enabled = true;
    return MICA_OK;
}

/* Switching off keeps what was gathered. Gives the last ones, oldest first. */
mica_status mica__cuda_timestamps(mica__device *device, bool enable, mica_profile_entry *out,
                                  uint64_t capacity, uint64_t *out_count)
{
    mica__cuda_times *times = &device->times;
    mica_status status = MICA_OK;
    *out_count = 0;
    pthread_mutex_lock(&device->lock);
    if (enable && !times->enabled)
        status = enable_times(times);
    else
        times->enabled = enable;
    if (status == MICA_OK) {
        const uint64_t kept = times->count < TIMES_CAPACITY ? times->count : TIMES_CAPACITY;
        for (uint64_t i = 0; i < kept && i < capacity; i++)
            out[i] = times->entry[(times->count - kept + i) % TIMES_CAPACITY];
        *out_count = kept;
    }
    pthread_mutex_unlock(&device->lock);
    return status;
}
