/* counters.c - what was done, per device and for the process. Relaxed atomics: exact once the counting is over. */
#include <string.h>

#include "base/status.h"
#include "device/objects.h"

#define FIELDS (sizeof(mica_counters) / sizeof(uint64_t))

static _Atomic uint64_t mica__process_counters[FIELDS];

void mica__counters_add(mica_device *device, size_t index, uint64_t n)
{
    atomic_fetch_add_explicit(&device->counters[index], n, memory_order_relaxed);
    atomic_fetch_add_explicit(&mica__process_counters[index], n, memory_order_relaxed);
}

mica_status mica_counters_get(const mica_device *device, mica_counters *out)
{
    uint64_t values[FIELDS];
    if (out == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "counters: out is NULL");
    const _Atomic uint64_t *source = device != NULL ? device->counters : mica__process_counters;
    for (size_t i = 0; i < FIELDS; i++)
        values[i] = atomic_load_explicit(&source[i], memory_order_relaxed);
    memcpy(out, values, sizeof values);
    return MICA_OK;
}

mica_status mica_counters_reset(mica_device *device)
{
    _Atomic uint64_t *target = device != NULL ? device->counters : mica__process_counters;
    for (size_t i = 0; i < FIELDS; i++)
        atomic_store_explicit(&target[i], 0, memory_order_relaxed);
    return MICA_OK;
}
