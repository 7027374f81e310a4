/* cuda_times.c - the time of each dispatch: events between the launches of a submission, read when it is done. */
#include "backend/cuda/cuda_device.h"
#include "base/alloc.h"

void mica__cuda_times_resolve(mica__device *device, mica__cuda_slot *slot, bool read)
{
    const mica__cuda_driver *driver = &device->driver;
    const mica__commands *commands = slot->commands;
    const uint32_t count = slot->times == NULL ? 0 : commands->node_count;
    uint64_t begin_ns = slot->completion.begin_ns;
    if (slot->times == NULL)
        return;
    pthread_mutex_lock(&device->lock);
    for (uint32_t i = 0; i < count && read; i++) {
        const mica__cuda_node *node = &commands->node[i];
        float ms = 0;
        if (driver->event_elapsed(&ms, slot->times[i], slot->times[i + 1]) != 0)
            break;
        const mica_profile_entry entry = {.op = (mica_op)node->op,
                                          .index = i,
                                          .submission = slot->value,
                                          .begin_ns = begin_ns,
                                          .end_ns = begin_ns + (uint64_t)((double)ms * 1e6),
                                          .bytes = (double)node->bytes,
                                          .operations = (double)node->operations};
        mica__times_add(&device->times, &entry, node->kernel != NULL ? node->kernel->name : NULL,
                        mica__blob_text(&commands->blob, node->label));
        begin_ns = entry.end_ns;
    }
    pthread_mutex_unlock(&device->lock);
    const bool own = device->generation == mica__fork_generation();
    for (uint32_t i = 0; i <= count && own; i++)
        if (slot->times[i] != NULL)
            driver->event_destroy(slot->times[i]);
    mica__free(slot->times);
    slot->times = NULL;
}

mica_status mica__cuda_timestamps(mica__device *device, bool enable, mica__profile *out)
{
    pthread_mutex_lock(&device->lock);
    const mica_status status = mica__times_read(&device->times, enable, out);
    pthread_mutex_unlock(&device->lock);
    return status;
}
