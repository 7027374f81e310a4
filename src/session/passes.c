/*
 * passes.c - from records to work, with the counts of a session.
 */
#include "session/passes.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/status.h"

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
                             mica_session_stats *stats, mica__placement *out_placement)
{
    mica_status status = MICA_OK;
    uint64_t fusions = 0, moved = 0;
    *out_placement = (mica__placement){0};
    stats->records_in += list->count;
    if (flags & MICA_FINISH_FUSE)
        status = mica__fuse(device, list, &fusions);
    if (status == MICA_OK && (flags & MICA_FINISH_REORDER))
        status = mica__reorder(list, &moved);
    stats->fusions += fusions;
    stats->reordered += moved;
    stats->records_out += list->count;
    if (status == MICA_OK)
        status = mica__place(list, out_placement);
    if (out_placement->bytes > stats->temp_placed) /* stages share the arena */
        stats->temp_placed = out_placement->bytes;
    if (out_placement->bound > stats->temp_bound)
        stats->temp_bound = out_placement->bound;
    return status;
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

/* Records as commands have them: temporaries in `memory`. */
typedef struct source {
    const mica__record_list *list;
    const mica__placement *placement;
    mica__storage *memory;  /* NULL: there are none */
    mica__operand *operand; /* room for those of one record */
} source;

static mica_status make_room(source *from)
{
    uint32_t most = 1;
    for (uint32_t i = 0; i < from->list->count; i++)
        most = from->list->record[i]->operand_count > most ? from->list->record[i]->operand_count : most;
    from->operand = from->memory == NULL ? NULL : mica__alloc(most * sizeof *from->operand);
    return from->memory == NULL || from->operand != NULL
               ? MICA_OK
               : mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for %u operands", most);
}

static mica_status add_record(mica__lowering *lowering, const source *from, uint32_t index,
                              mica__lowered *lowered)
{
    mica__record record = *from->list->record[index];
    MICA__TRY(mica__spend(RECORD_STEPS));
    for (uint32_t i = 0; from->operand != NULL && i < record.operand_count; i++)
        from->operand[i] = mica__placed_operand(from->placement, from->memory, &record.operand[i]);
    if (from->operand != NULL)
        record.operand = from->operand;
    return mica__lowering_add(lowering, &record, lowered == NULL ? NULL : &lowered[index]);
}

/* The lowering is gone afterwards. */
static mica_status lower(mica__lowering *lowering, source *from, mica__lowered *lowered,
                         mica_session_stats *stats, mica__work **out)
{
    const mica__record_list *list = from->list;
    mica_encoder_stats part;
    mica_status status = make_room(from);
    if (status == MICA_OK && list->count > 0)
        mica__lowering_prepare(lowering, (const mica__record *const *)list->record, list->count);
    for (uint32_t i = 0; i < list->count && status == MICA_OK; i++)
        status = add_record(lowering, from, i, lowered);
    mica__free(from->operand);
    if (status != MICA_OK) {
        mica__lowering_discard(lowering);
        return status;
    }
    mica__lowering_stats(lowering, &part);
    mica__passes_count(stats, &part);
    return mica__lowering_end(lowering, out);
}

/* Lowers with the scratch of others, who get what was added to it. */
static mica_status lower_sharing(mica_device *device, bool reusable, source *from, mica__scratch *scratch,
                                 mica__lowered *lowered, mica_session_stats *stats, mica__work **out)
{
    mica__lowering *lowering = NULL;
    *out = NULL;
    MICA__TRY(mica__lowering_begin(device, reusable, &lowering));
    const mica_status status = mica__lowering_share(lowering, scratch);
    if (status == MICA_OK)
        return lower(lowering, from, lowered, stats, out);
    mica__lowering_discard(lowering);
    return status;
}

mica_status mica__passes_lower_once(mica_device *device, const mica__record_list *list,
                                    const mica__placement *placement, mica__storage *memory,
                                    mica__scratch *scratch, mica_session_stats *stats, mica__work **out)
{
    source from = {list, placement, memory, NULL};
    return lower_sharing(device, false, &from, scratch, NULL, stats, out);
}

mica_status mica__passes_lower(mica_device *device, const mica__record_list *list,
                               const mica__placement *placement, mica_arena *arena, mica__lowered *lowered,
                               mica_session_stats *stats, mica__work **out, uint64_t *out_generation)
{
    source from = {list, placement, NULL, NULL};
    mica__scratch scratch = {0};
    *out = NULL;
    *out_generation = MICA__NO_GENERATION;
    if (arena == NULL)
        return lower_sharing(device, true, &from, NULL, lowered, stats, out);
    MICA__TRY(mica__arena_reserve(arena, placement->bytes, &from.memory, out_generation));
    mica_status status = mica__arena_lend(arena, &scratch);
    if (status == MICA_OK)
        status = lower_sharing(device, true, &from, &scratch, lowered, stats, out);
    if (status == MICA_OK)
        status = mica__arena_keep(arena, &scratch);
    if (status != MICA_OK) {
        mica__work_release(*out);
        *out = NULL;
    }
    mica__scratch_release(&scratch);
    mica__storage_release(from.memory);
    return status;
}
