/*
 * passes.h - what is done to a list of records before and while it is lowered.
 *
 * Fusing and reordering keep the list valid on failure: it then holds the records as far as the pass had
 * come, and running it still gives the same results.
 */
#ifndef MICA_SESSION_PASSES_H
#define MICA_SESSION_PASSES_H

#include "base/work.h"
#include "device/encoder.h"
#include "mica/session.h"
#include "session/arena.h"
#include "session/place.h"

/* Applies the fusion table until nothing changes. A fused record is taken only if the device has a kernel for
 * it; `device` NULL: always (the list is not going to be lowered). */
mica_status mica__fuse(mica_device *device, mica__record_list *list, uint64_t *out_fusions);
/* List scheduling by true dependencies: records go as early as what they wait for allows, in waves, stable
 * inside a wave. Nothing crosses a barrier the caller asked for. `out_moved`: records at another place than
 * before. */
mica_status mica__reorder(mica__record_list *list, uint64_t *out_moved);

/* The passes that `flags` (MICA_FINISH_*) asks for, then places for what temporaries are left; adds to what `stats` has of
 * records, fusions and temporaries. On failure there is no placement. */
mica_status mica__passes_run(mica_device *device, mica__record_list *list, uint32_t flags,
                             mica_session_stats *stats, mica__placement *out_placement);
/* Unknown bits in `flags` are INVALID_ARGUMENT. */
mica_status mica__passes_check_flags(uint32_t flags);
/* Begins a call that runs passes. Where nobody else called it the records are the program's own: only a limit of steps that
 * the caller chose holds, and a cancel. */
void mica__passes_begin(mica__call *call, const char *name);
/* Lowers the records to work that runs once, its temporaries in `memory`, adding to `stats` what came out. `scratch`: shared with
 * the stages of the session before and after them. */
mica_status mica__passes_lower_once(mica_device *device, const mica__record_list *list,
                                    const mica__placement *placement, mica__storage *memory,
                                    mica__scratch *scratch, mica_session_stats *stats, mica__work **out);
/* The same to reusable work, its temporaries in memory of the arena (NULL where there are none), of which *out_generation says
 * which. `lowered`: NULL, or a place for each record. */
mica_status mica__passes_lower(mica_device *device, const mica__record_list *list,
                               const mica__placement *placement, mica_arena *arena, mica__lowered *lowered,
                               mica_session_stats *stats, mica__work **out, uint64_t *out_generation);
/* Waits for the fence of a device; a call that is cancelled meanwhile stops it, where the device can. */
mica_status mica__passes_wait(const mica_device *device, mica_fence *fence);
/* Adds an encoder's counts to a session's. */
void mica__passes_count(mica_session_stats *stats, const mica_encoder_stats *part);

#endif
