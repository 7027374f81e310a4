/*
 * work.h - records become commands, commands become submissions.
 *
 * A lowering plans records one by one through the registry's kernel rows, finds their hazards and hands dispatches
 * to the backend. What comes out is a mica__work: commands with everything they hold on to (storages, scratch).
 * Encoders use one-shot work; recordings keep reusable work and submit it again and again.
 */
#ifndef MICA_DEVICE_WORK_H
#define MICA_DEVICE_WORK_H

#include "device/hazard.h"
#include "device/objects.h"

typedef struct mica__lowering mica__lowering;

/* Chunks of the device's scratch pool, a reference on each. Works that run one after the other may share them. */
typedef struct mica__scratch {
    mica__storage **chunk;
    uint32_t count, capacity;
} mica__scratch;
/* `to` has what `from` has. */
mica_status mica__scratch_share(const mica__scratch *from, mica__scratch *to);
void mica__scratch_release(mica__scratch *scratch);

/* Where one record went. */
typedef struct mica__lowered {
    uint32_t first_dispatch, dispatch_count;
    uint32_t group; /* number of barriers before its first dispatch */
} mica__lowered;

/* `reusable`: the work can be submitted more than once and updated. */
mica_status mica__lowering_begin(mica_device *device, bool reusable, mica__lowering **out);
/* Shares the scratch of works before it on the same queue, and what is added to it from here on is shared with those after
 * it: NULL, or alive until the lowering ends. Before the first record. */
mica_status mica__lowering_share(mica__lowering *lowering, mica__scratch *scratch);
/* Plans and dispatches one record; takes references on its storages. `out` may be NULL. */
/* Has the kernels of records that are going to be added compiled together, where they must be. */
void mica__lowering_prepare(mica__lowering *lowering, const mica__record *const *records, uint32_t count);
mica_status mica__lowering_add(mica__lowering *lowering, const mica__record *record, mica__lowered *out);
mica_status mica__lowering_barrier(mica__lowering *lowering);
void mica__lowering_set_manual(mica__lowering *lowering, bool manual);
/* Emits a barrier if the ranges conflict with what is in flight; says whether it did. */
mica_status mica__lowering_barrier_between(mica__lowering *lowering, const mica__range *ranges,
                                           uint32_t count, bool *out_emitted);
mica_status mica__lowering_track(mica__lowering *lowering, const mica__range *ranges, uint32_t count);
void mica__lowering_stats(const mica__lowering *lowering, mica_encoder_stats *out);
/* The lowering is gone afterwards, also on failure. */
mica_status mica__lowering_end(mica__lowering *lowering, mica__work **out);
void mica__lowering_discard(mica__lowering *lowering); /* NULL ok */
/* Frees one that was kept for the next encoder. NULL ok. */
void mica__lowering_free(mica__lowering *lowering);

/* Submits. `out_fence` may be NULL: then nothing is allocated. One-shot work is consumed, also on failure; reusable
 * work must not be in flight: mica__work_wait first. */
mica_status mica__work_submit(mica__work *work, mica_queue *queue, mica_fence **out_fence);
/* Waits for the last submission of reusable work and gives its result; MICA_OK if there was none. Device clock of that
 * submission in the last two, which may be NULL. */
mica_status mica__work_wait(mica__work *work, uint64_t *out_begin_ns, uint64_t *out_end_ns);
void mica__work_release(mica__work *work); /* NULL ok; waits if it is in flight */
/* Replaces `from` by `to` in every binding of the record that went to `place` whose view is exactly `from`. Reusable work keeps
 * no storage: its owner has the records, which do. */
mica_status mica__work_rebind(mica__work *work, const mica__lowered *place, const mica__operand *from,
                              const mica__operand *to);
uint64_t mica__work_scratch(const mica__work *work);

/* Plans `record` without dispatching it: does any kernel row serve it? UNSUPPORTED with a sentence if not. `sure`: and
 * can its kernels be had, as a fused record needs, whose only row may have none where there is no compiler; others may be
 * fused away before anybody wants them. `room` is the caller's, who asks again and again and ends it (mica__planning_end). */
mica_status mica__record_check(mica_device *device, const mica__record *record, bool sure, mica__plan *room);

#endif
