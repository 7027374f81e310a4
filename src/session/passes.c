/*
 * passes.c - from records to work, with the counts of a session.
 */
#include "session/passes.h"

#include "base/argument.h"
#include "base/status.h"
#include "session/storages.h"

#define RECORD_STEPS 400u /* of lowering a record */
#define POLL_NS 20000000u /* how long a wait goes without a look whether the call was cancelled */

mica_status mica__passes_check_flags(uint32_t flags)
{
    return mica__check_flags("flags", flags, MICA_FINISH_ALL);
}

void mica__passes_begin(mica__call *call, const char *name)
{
    mica__call_begin(call, name);
    if (call->outer == NULL)
        mica__spend_allow(UINT64_MAX);
}

mica_status mica__passes_wait(const mica_device *device, mica_fence *fence)
{
    bool stopped = device->table->cancel == NULL;
    mica_status status;
    do {
        if (!stopped && mica__is_cancelled()) {
            (void)mica_fence_cancel(fence);
            stopped = true;
        }
        status = mica_fence_wait(fence, stopped ? MICA_WAIT_FOREVER : POLL_NS);
    } while (status == MICA_ERR_TIMEOUT);
    return status;
}

mica_status mica__passes_run(mica_device *device, mica__record_list *list, uint32_t flags,
                             mica_session_stats *stats)
{
    mica__storages storages;
    mica_status status = MICA_OK;
    uint64_t fusions = 0, moved = 0;
    stats->records_in += list->count;
    if (flags & MICA_FINISH_FUSE)
        status = mica__fuse(device, list, &fusions);
    if (status == MICA_OK && (flags & MICA_FINISH_REORDER))
        status = mica__reorder(list, &moved);
    stats->fusions += fusions;
    stats->reordered += moved;
    stats->records_out += list->count;
    if (status == MICA_OK)
        status = mica__storages_build(list, &storages);
    if (status != MICA_OK)
        return status;
    const uint64_t temp_bytes = mica__storages_temp_bytes(&storages);
    if (temp_bytes > stats->temp_bytes) /* stages share them */
        stats->temp_bytes = temp_bytes;
    mica__storages_free(&storages);
    return MICA_OK;
}

void mica__passes_count(mica_session_stats *stats, const mica_encoder_stats *part)
{
    stats->dispatches += part->dispatches;
    stats->barriers += part->barriers;
    stats->barriers_elided += part->barriers_elided;
    stats->tracker_checks += part->tracker_checks;
    stats->tracker_ns += part->tracker_ns;
    if (part->scratch_bytes > stats->scratch_bytes) /* stages share it */
        stats->scratch_bytes = part->scratch_bytes;
    for (int i = 0; i < 8; i++)
        stats->group_sizes[i] += part->group_sizes[i];
}

/* The lowering is gone afterwards. */
static mica_status lower(mica__lowering *lowering, const mica__record_list *list, mica__lowered *lowered,
                         mica_session_stats *stats, mica__work **out)
{
    mica_encoder_stats part;
    if (list->count > 0)
        mica__lowering_prepare(lowering, (const mica__record *const *)list->record, list->count);
    for (uint32_t i = 0; i < list->count; i++) {
        mica_status status = mica__spend(RECORD_STEPS);
        if (status == MICA_OK)
            status = mica__lowering_add(lowering, list->record[i], lowered == NULL ? NULL : &lowered[i]);
        if (status != MICA_OK) {
            mica__lowering_discard(lowering);
            return status;
        }
    }
    mica__lowering_stats(lowering, &part);
    mica__passes_count(stats, &part);
    return mica__lowering_end(lowering, out);
}

mica_status mica__passes_lower_once(mica_device *device, const mica__record_list *list,
                                    mica__scratch *scratch, mica_session_stats *stats, mica__work **out)
{
    mica__lowering *lowering = NULL;
    *out = NULL;
    mica_status status = mica__lowering_begin(device, false, &lowering);
    if (status != MICA_OK)
        return status;
    status = mica__lowering_share(lowering, scratch);
    if (status != MICA_OK) {
        mica__lowering_discard(lowering);
        return status;
    }
    return lower(lowering, list, NULL, stats, out);
}

mica_status mica__passes_lower(mica_device *device, const mica__record_list *list, mica__lowered *lowered,
                               mica_session_stats *stats, mica__work **out)
{
    mica__lowering *lowering = NULL;
    *out = NULL;
    const mica_status status = mica__lowering_begin(device, true, &lowering);
    return status != MICA_OK ? status : lower(lowering, list, lowered, stats, out);
}
