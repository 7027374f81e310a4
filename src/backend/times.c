/* times.c - when each dispatch ran. */
#include "backend/times.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/status.h"

#define KEPT 65536u

void mica__times_add(mica__times *times, const mica_profile_entry *entry, const char *kernel,
                     const char *label)
{
    if (times->entry == NULL)
        return;
    mica_profile_entry *kept = &times->entry[times->count++ % KEPT];
    *kept = *entry;
    snprintf(kept->kernel, sizeof kept->kernel, "%s", kernel != NULL ? kernel : "copy_bytes");
    snprintf(kept->label, sizeof kept->label, "%s", label);
}

static mica_status enable_times(mica__times *times)
{
    if (times->entry == NULL)
        times->entry = mica__alloc(KEPT * sizeof *times->entry);
    if (times->entry == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no host memory to keep %u times", KEPT);
    times->count = 0;
    return MICA_OK;
}

mica_status mica__times_read(mica__times *times, bool enable, mica_profile_entry *out, uint64_t capacity,
                             uint64_t *out_count)
{
    *out_count = 0;
    const mica_status status = enable ? enable_times(times) : MICA_OK;
    if (status != MICA_OK)
        return status;
    atomic_store(&times->enabled, enable);
    const uint64_t kept = times->count < KEPT ? times->count : KEPT;
    for (uint64_t i = 0; i < kept && i < capacity; i++)
        out[i] = times->entry[(times->count - kept + i) % KEPT];
    *out_count = kept;
    return MICA_OK;
}
