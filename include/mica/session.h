/*
 * session.h - one forward pass; recordings of it that are optimised and replayed.
 *
 * A direct session encodes as ops are called. A recording session keeps the op records; finishing it fuses and
 * reorders them as asked, then either runs them once (mica_session_finish) or gives a mica_recording that is
 * replayed any number of times. Without fusion a replay gives the same bits as direct dispatch; a fusion that
 * changes bits says so in its row (mica_fusion_list).
 *
 * Ownership and failure as in device.h. Threads: one session, one thread at a time; one recording runs once
 * at a time (a replay while it runs waits its turn); clones run side by side. Calls that fuse, reorder, lower
 * or wait end with CANCELLED when the work that their thread uses is cancelled (work.h); of its limits they
 * obey `steps`, if it was chosen.
 */
#ifndef MICA_SESSION_H
#define MICA_SESSION_H

#include "mica/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mica_session mica_session;
typedef struct mica_recording mica_recording;
typedef struct mica_arena mica_arena;

#define MICA_SESSION_RECORD 1u /* keep records; else direct */

#define MICA_FINISH_FUSE 1u    /* apply the fusion table */
#define MICA_FINISH_REORDER 2u /* schedule by true dependencies so that fewer barriers are needed */
#define MICA_FINISH_OVERLAP 4u /* submit the head while the tail is being encoded */
#define MICA_FINISH_ALL (MICA_FINISH_FUSE | MICA_FINISH_REORDER | MICA_FINISH_OVERLAP)

/* What a finish did. Counts are of this session alone. */
typedef struct mica_session_stats {
    uint64_t records_in;  /* op records before the passes */
    uint64_t records_out; /* after */
    uint64_t fusions;     /* patterns applied */
    uint64_t reordered;   /* records that ended at another place */
    uint64_t dispatches;
    uint64_t barriers;                     /* all submissions */
    uint64_t barriers_head, barriers_tail; /* before the last submission / in it */
    uint64_t barriers_elided;
    uint64_t group_sizes[8]; /* groups between barriers of 1..7, 8 or more dispatches */
    uint64_t submissions;
    uint64_t encode_ns; /* begin to last submission, host */
    uint64_t wait_ns;   /* last submission to completion, host; 0 if not waited */
    uint64_t device_ns; /* device clock, begin of first to end of last; 0 if not waited */
    uint64_t tracker_checks, tracker_ns;
    uint64_t scratch_bytes; /* kernels' scratch that the pass holds */
    uint64_t temp_bytes;    /* of temporaries, as they were asked for */
    uint64_t temp_placed;   /* of the arena that the passes left of them; 0 for a direct session */
    uint64_t temp_bound;    /* what the schedule holds at once at most: no arena could be smaller */
} mica_session_stats;

/* `queue` NULL: the first. */
MICA_API mica_status mica_session_begin(mica_device *device, mica_queue *queue, uint32_t flags,
                                        mica_session **out_session);
/* What was not finished is dropped; stages that run are stopped, or waited for where the device cannot. */
MICA_API void mica_session_release(mica_session *session);
/* Where ops go. Borrowed: valid until the session is finished or released. */
MICA_API mica_encoder *mica_session_encoder(mica_session *session);
/* A buffer whose contents nobody needs after the pass: the only kind whose writes a fusion may drop. One reference
 * for the caller; records that use it keep it too. Not zeroed.
 * That of a recording session is a name: ops take it and views of it, but it has no memory of its own. When the
 * passes are done, those that are still used get places in an arena, where what is not needed at the same time
 * lies in the same bytes; so making one for every value costs nothing. Reading, writing, mapping or exporting
 * one is STATE, before and after. */
MICA_API mica_status mica_session_temp(mica_session *session, mica_dtype dtype, uint32_t ndim,
                                       const uint64_t *shape, mica_buffer **out_buffer);
/* Memory for the temporaries of recordings that need not run at once: they share one arena, as large as the largest
 * needs, and wait for each other. It grows when a recording is made that needs more; those made before follow when
 * they are replayed next. Any thread. Without one, each recording and each clone has its own. */
MICA_API mica_status mica_arena_create(mica_device *device, mica_arena **out_arena);
/* Sessions and recordings that use it keep it. NULL is fine. */
MICA_API void mica_arena_release(mica_arena *arena);
/* How large it is now; 0 for NULL. */
MICA_API uint64_t mica_arena_bytes(const mica_arena *arena);
/* Temporaries of the session, and of the recording made from it, are going to lie there. STATE for a direct session
 * and for one with stages; INVALID_ARGUMENT for an arena of another device. */
MICA_API mica_status mica_session_use_arena(mica_session *session, mica_arena *arena);
/* Names `buffer` as an input or output of the recording that is going to be made: mica_recording_bind finds it by the
 * name. INVALID_ARGUMENT: an empty or too long name (63 bytes are allowed), one that the session has already. STATE
 * for a direct session. The buffer is kept. */
MICA_API mica_status mica_session_slot(mica_session *session, const char *name, mica_buffer *buffer);
/* Submits what a recording session has so far, with the passes that `flags` asks for, and goes on: the device works
 * while the host records what follows, which starts after it. Temporaries lose what they hold: whatever the next
 * stage reads must be in other buffers. How the stage ended is told with the whole session. STATE for a direct
 * session, which has mica_encoder_commit_stage. */
MICA_API mica_status mica_session_stage(mica_session *session, uint32_t flags);
/* Runs the pass and waits. `flags` MICA_FINISH_*; passes need a recording session, a direct one ignores them.
 * `out_stats` may be NULL. The session is spent. */
MICA_API mica_status mica_session_finish(mica_session *session, uint32_t flags,
                                         mica_session_stats *out_stats);
/* Runs it without waiting. One fence answers for all of it: its stages, and the head that OVERLAP submits. */
MICA_API mica_status mica_session_commit(mica_session *session, uint32_t flags, mica_session_stats *out_stats,
                                         mica_fence **out_fence);
/* Makes a recording instead of running it (STATE for a direct session, and for one with stages). The session is
 * spent. */
MICA_API mica_status mica_session_record(mica_session *session, uint32_t flags, mica_session_stats *out_stats,
                                         mica_recording **out_recording);

/* Waits if it is running, then gives back all it held. NULL is fine. */
MICA_API void mica_recording_release(mica_recording *recording);
/* Submits the whole pass again. `out_fence` may be NULL. Allocates nothing, unless its arena has moved since the last
 * time: then its commands are made anew first. */
MICA_API mica_status mica_recording_replay(mica_recording *recording, mica_fence **out_fence);
/* Submits it and waits: the result of the work. Allocates as mica_recording_replay. */
MICA_API mica_status mica_recording_replay_and_wait(mica_recording *recording);
/* An own copy of the commands, scratch and temporaries over the same other buffers; runs beside the original. */
MICA_API mica_status mica_recording_clone(const mica_recording *recording, mica_recording **out_clone);
/* Further passes over a recording made without them (FUSE, REORDER). */
MICA_API mica_status mica_recording_optimize(mica_recording *recording, uint32_t flags,
                                             mica_session_stats *out_stats);
/* Every use of storage `from` (matched by the exact view) becomes `to`: same device, dtype, shape, strides. Refused
 * if `to` overlaps another operand that `from` did not overlap, and with STATE if `to` is a temporary without memory;
 * `from` may be one. Waits for a running replay. Costs as much as there are uses of both storages. */
MICA_API mica_status mica_recording_rebind(mica_recording *recording, mica_buffer *from, mica_buffer *to,
                                           uint32_t *out_uses);
/* The same for what is bound to a slot (mica_session_slot): it becomes `buffer`. INVALID_ARGUMENT for a name that the
 * recording does not have. A clone has slots of its own, bound as the original's were. */
MICA_API mica_status mica_recording_bind(mica_recording *recording, const char *name, mica_buffer *buffer);
/* What the passes and the lowering did. INVALID_ARGUMENT for NULL. */
MICA_API mica_status mica_recording_get_stats(const mica_recording *recording, mica_session_stats *out);

/* One record of a recording. */
typedef struct mica_record_info {
    mica_op op;
    char label[64];
    char fused[64]; /* the pattern that made it, "" if none */
    uint32_t operand_count;
    uint32_t dispatches;
    uint32_t group;           /* records with the same number run between the same two barriers */
    uint32_t original_index;  /* place before reordering, of the first record it came from */
    double bytes, operations; /* that it moves and takes at the least; 0 for a kernel of the caller's */
} mica_record_info;
typedef struct mica_operand_info {
    mica_dtype dtype; /* MICA_DTYPE_NONE: this optional operand is absent */
    uint32_t access;
    uint32_t ndim;
    uint64_t shape[MICA_MAX_DIMS], stride[MICA_MAX_DIMS];
    uint64_t storage;              /* number of the storage within the recording */
    uint64_t byte_begin, byte_end; /* in that storage */
    uint32_t temporary;
    uint32_t placed; /* 1: a temporary that lies in the arena, whose first byte is there: */
    uint64_t place;
} mica_operand_info;
/* Number of records; 0 for NULL. */
MICA_API uint32_t mica_recording_count(const mica_recording *recording);
/* Facts of record `index`. INVALID_ARGUMENT past the end. */
MICA_API mica_status mica_recording_inspect(const mica_recording *recording, uint32_t index,
                                            mica_record_info *out);
/* Facts of one operand of a record. INVALID_ARGUMENT past the end. */
MICA_API mica_status mica_recording_operand(const mica_recording *recording, uint32_t index, uint32_t operand,
                                            mica_operand_info *out);
/* Text form, one record a line, cut at `capacity` (NUL-terminated when capacity > 0); `out_length` is the full
 * length without the NUL. */
MICA_API mica_status mica_recording_print(const mica_recording *recording, char *text, uint64_t capacity,
                                          uint64_t *out_length);

/* The fusion table. */
typedef struct mica_fusion_info {
    const char *name;
    const char *meaning;
    uint32_t exact; /* 1: same bits as the unfused records */
} mica_fusion_info;
/* The number of patterns; the table lives for ever. */
MICA_API uint32_t mica_fusion_list(const mica_fusion_info **out_table);

/* How a pass that moves between devices is written: run or replay one stage, copy, run the next. Waits for `after`
 * (NULL: nothing), then copies a contiguous buffer to another of equal size, on any two devices. */
MICA_API mica_status mica_stage_copy(mica_fence *after, mica_buffer *from, mica_buffer *to);

#ifdef __cplusplus
}
#endif
#endif
