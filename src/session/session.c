/*
 * session.c - one forward pass: where ops go, and how it ends.
 *
 * A direct session is an encoder with counts around it. A recording session captures records; ending it, or a stage of
 * it, runs the passes and lowers them, to work that runs once or to a recording.
 */
#include "mica/session.h"

#include <string.h>

#include "base/alloc.h"
#include "base/argument.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/work.h"
#include "device/inflight.h"
#include "session/passes.h"
#include "session/recording.h"

struct mica_session {
    mica_device *device;   /* counted */
    mica_encoder *encoder; /* NULL: spent */
    bool recording;
    mica_arena *arena; /* where temporaries are placed; NULL: none was needed yet */
    mica__slots slots; /* of the recording to come */
    uint64_t begin_ns;
    mica_session_stats stats; /* of the stages so far */
    mica_fence *staged;       /* of the last of them, which answers for all; NULL: none */
    mica__scratch scratch;    /* what they share */
};

mica_status mica_session_begin(mica_device *device, mica_queue *queue, uint32_t flags,
                               mica_session **out_session)
{
    if (out_session == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "session_begin: out_session is NULL");
    *out_session = NULL;
    if (device == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "session_begin: device is NULL");
    MICA__TRY(mica__check_flags("session_begin: flags", flags, MICA_SESSION_RECORD));
    mica_session *session = mica__calloc(1, sizeof *session);
    if (session == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for a session");
    session->recording = (flags & MICA_SESSION_RECORD) != 0;
    session->begin_ns = mica__clock_ns();
    mica_status status = session->recording ? mica__encoder_begin_capture(device, queue, &session->encoder)
                                            : mica_encoder_begin(device, queue, &session->encoder);
    if (status != MICA_OK) {
        mica__free(session);
        return status;
    }
    session->device = mica_device_retain(device);
    *out_session = session;
    return MICA_OK;
}

/* Nothing more can be encoded. */
static void spend(mica_session *session)
{
    mica_encoder_release(session->encoder);
    session->encoder = NULL;
    mica_arena_release(session->arena);
    session->arena = NULL;
    mica__slots_free(&session->slots);
    mica__scratch_release(&session->scratch);
}

/* Stages that run write into buffers that the caller goes on with: they end before the session does. */
static void stop_stages(mica_session *session)
{
    if (session->encoder == NULL || session->staged == NULL)
        return;
    (void)mica_fence_cancel(session->staged); /* where the device can */
    (void)mica_fence_wait(session->staged, MICA_WAIT_FOREVER);
}

void mica_session_release(mica_session *session)
{
    if (session == NULL)
        return;
    mica_device *device = session->device;
    stop_stages(session);
    spend(session);
    mica_fence_release(session->staged);
    mica__free(session);
    mica_device_release(device);
}

mica_encoder *mica_session_encoder(mica_session *session)
{
    return session == NULL ? NULL : session->encoder;
}

static mica_status check_open(const mica_session *session)
{
    if (session == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "session is NULL");
    if (session->encoder == NULL)
        return mica__fail(MICA_ERR_STATE, "session was finished already");
    return MICA_OK;
}

/* ---- temporaries ---- */

/* In a recording session a name of so many bytes: the passes decide whether and where it gets memory. */
static mica_status make_storage(const mica_session *session, uint64_t bytes, mica__storage **out)
{
    return session->recording ? mica__storage_promise(session->device, bytes, out)
                              : mica__storage_create(session->device, bytes, false, out);
}

static mica_status make_temp(mica_session *session, mica_dtype dtype, uint32_t ndim, const uint64_t *shape,
                             mica_buffer **out_buffer)
{
    mica__storage *storage = NULL;
    uint64_t bytes = 0;
    MICA__TRY(check_open(session));
    mica_buffer_desc desc = {.dtype = dtype};
    MICA__TRY(mica__shape_take(ndim, shape, &desc));
    MICA__TRY(mica__desc_check(&desc, NULL, NULL, &bytes));
    MICA__TRY(make_storage(session, bytes, &storage));
    const mica_status status = mica__buffer_over(storage, &desc, NULL, out_buffer);
    mica__storage_release(storage);
    if (status != MICA_OK)
        return status;
    (*out_buffer)->temporary = 1;
    session->stats.temp_bytes += bytes;
    return MICA_OK;
}

mica_status mica_session_temp(mica_session *session, mica_dtype dtype, uint32_t ndim, const uint64_t *shape,
                              mica_buffer **out_buffer)
{
    mica__call call;
    if (out_buffer == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "session_temp: out_buffer is NULL");
    *out_buffer = NULL;
    mica__call_begin(&call, "session_temp");
    return mica__call_end(&call, make_temp(session, dtype, ndim, shape, out_buffer));
}

static mica_status check_recording(const mica_session *session)
{
    MICA__TRY(check_open(session));
    return session->recording
               ? MICA_OK
               : mica__fail(MICA_ERR_STATE, "session is a direct one; begin it with MICA_SESSION_RECORD");
}

static mica_status use_arena(mica_session *session, mica_arena *arena)
{
    MICA__TRY(check_recording(session));
    if (arena == NULL || arena->device != session->device)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "arena is %s",
                          arena == NULL ? "NULL" : "of another device");
    if (session->staged != NULL)
        return mica__fail(MICA_ERR_STATE, "session has stages, which are submitted already");
    mica_arena_release(session->arena);
    session->arena = mica__arena_retain(arena);
    return MICA_OK;
}

mica_status mica_session_use_arena(mica_session *session, mica_arena *arena)
{
    mica__call call;
    mica__call_begin(&call, "session_use_arena");
    return mica__call_end(&call, use_arena(session, arena));
}

static mica_status add_slot(mica_session *session, const char *name, mica_buffer *buffer)
{
    MICA__TRY(check_recording(session));
    if (name == NULL || buffer == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s is NULL", name == NULL ? "name" : "buffer");
    if (mica_buffer_device(buffer) != session->device)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "buffer is on another device");
    return mica__slots_add(&session->slots, name, buffer);
}

mica_status mica_session_slot(mica_session *session, const char *name, mica_buffer *buffer)
{
    mica__call call;
    mica__call_begin(&call, "session_slot");
    return mica__call_end(&call, add_slot(session, name, buffer));
}

/* ---- running ---- */

static mica_status commit_direct(mica_session *session)
{
    mica_session_stats *stats = &session->stats;
    mica_encoder_stats part = {0};
    mica_status status = mica_encoder_commit(session->encoder, &session->staged);
    (void)mica_encoder_get_stats(session->encoder, &part);
    mica__passes_count(stats, &part);
    stats->records_in = stats->records_out = part.records;
    stats->submissions = part.stages;
    return status;
}

/* What was recorded since the last stage, as it goes to the device. */
typedef struct stage_source {
    mica__record_list list;
    mica__placement placement;
    mica__storage *memory; /* of temporaries; NULL: there are none */
} stage_source;

/* The passes, then memory for the temporaries that they left: that of the stages before, which are over when this one begins,
 * where it is enough. */
static mica_status prepare_stage(mica_session *session, uint32_t flags, stage_source *from)
{
    uint64_t generation = 0;
    MICA__TRY(mica__passes_run(session->device, &from->list, flags, &session->stats, &from->placement));
    if (from->placement.bytes == 0)
        return MICA_OK;
    if (session->arena == NULL)
        MICA__TRY(mica_arena_create(session->device, &session->arena));
    return mica__arena_reserve(session->arena, from->placement.bytes, &from->memory, &generation);
}

/* Records [first, end) as one stage. The fence of the last stage answers for those before it. */
static mica_status submit_stage(mica_session *session, const stage_source *from, uint32_t first, uint32_t end)
{
    const mica__record_list part = {.record = first < end ? from->list.record + first : NULL,
                                    .count = end - first};
    mica__work *work = NULL;
    mica_fence *fence = NULL;
    bool stale = false;
    MICA__TRY(mica__passes_lower_once(session->device, &part, &from->placement, from->memory,
                                      &session->scratch, &session->stats, &work));
    MICA__TRY(mica__arena_submit(session->arena, work, mica__encoder_queue(session->encoder),
                                 MICA__NO_GENERATION, &fence, &stale));
    session->stats.submissions++;
    mica__fence_follow(fence, session->staged);
    mica_fence_release(session->staged);
    session->staged = fence;
    return MICA_OK;
}

/* With OVERLAP a tenth of the records, 64 at least, goes ahead: enough to keep the device busy while the rest
 * is lowered. */
static uint32_t head_count(uint32_t count, uint32_t flags)
{
    uint32_t head = count / 10 > 64 ? count / 10 : 64;
    return (flags & MICA_FINISH_OVERLAP) && head < count ? head : 0;
}

static mica_status commit_recorded(mica_session *session, uint32_t flags)
{
    mica_session_stats *stats = &session->stats;
    stage_source from = {0};
    mica_status status = mica__encoder_take(session->encoder, &from.list);
    if (status == MICA_OK)
        status = prepare_stage(session, flags, &from);
    const uint32_t head = head_count(from.list.count, flags);
    if (status == MICA_OK && head > 0)
        status = submit_stage(session, &from, 0, head);
    stats->barriers_head = stats->barriers;
    if (status == MICA_OK)
        status = submit_stage(session, &from, head, from.list.count);
    stats->barriers_tail = stats->barriers - stats->barriers_head;
    mica__storage_release(from.memory);
    mica__placement_free(&from.placement);
    mica__record_list_free(&from.list);
    return status;
}

static mica_status stage(mica_session *session, uint32_t flags)
{
    MICA__TRY(check_open(session));
    MICA__TRY(mica__passes_check_flags(flags));
    MICA__TRY(check_recording(session));
    return commit_recorded(session, flags);
}

mica_status mica_session_stage(mica_session *session, uint32_t flags)
{
    mica__call call;
    mica__passes_begin(&call, "session_stage");
    return mica__call_end(&call, stage(session, flags));
}

static mica_status commit(mica_session *session, uint32_t flags)
{
    mica_status status = session->recording ? commit_recorded(session, flags) : commit_direct(session);
    session->stats.encode_ns = mica__clock_ns() - session->begin_ns;
    if (status != MICA_OK)
        stop_stages(session);
    spend(session);
    return status;
}

/* What was submitted is waited for also where the rest could not be. */
static mica_status wait_staged(mica_session *session)
{
    uint64_t begin = 0, end = 0, start = mica__clock_ns();
    mica_status status =
        session->staged == NULL ? MICA_OK : mica__passes_wait(session->device, session->staged);
    session->stats.wait_ns = mica__clock_ns() - start;
    if (session->staged != NULL && mica_fence_times(session->staged, &begin, &end) == MICA_OK)
        session->stats.device_ns = end - begin;
    return status;
}

/* Whether the session may end with `flags`. */
static mica_status check_end(const mica_session *session, uint32_t flags, mica_session_stats *out_stats)
{
    if (out_stats != NULL)
        memset(out_stats, 0, sizeof *out_stats);
    MICA__TRY(check_open(session));
    return mica__passes_check_flags(flags);
}

static mica_status finish(mica_session *session, uint32_t flags, mica_session_stats *out_stats)
{
    MICA__TRY(check_end(session, flags, out_stats));
    const mica_status status = commit(session, flags), waited = wait_staged(session);
    if (out_stats != NULL)
        *out_stats = session->stats;
    return status != MICA_OK ? status : waited;
}

mica_status mica_session_finish(mica_session *session, uint32_t flags, mica_session_stats *out_stats)
{
    mica__call call;
    mica__passes_begin(&call, "session_finish");
    return mica__call_end(&call, finish(session, flags, out_stats));
}

static mica_status commit_session(mica_session *session, uint32_t flags, mica_session_stats *out_stats,
                                  mica_fence **out_fence)
{
    MICA__TRY(check_end(session, flags, out_stats));
    const mica_status status = commit(session, flags);
    if (out_stats != NULL)
        *out_stats = session->stats;
    if (status == MICA_OK && out_fence != NULL) {
        *out_fence = session->staged;
        session->staged = NULL;
    }
    return status;
}

mica_status mica_session_commit(mica_session *session, uint32_t flags, mica_session_stats *out_stats,
                                mica_fence **out_fence)
{
    mica__call call;
    if (out_fence != NULL)
        *out_fence = NULL;
    mica__passes_begin(&call, "session_commit");
    return mica__call_end(&call, commit_session(session, flags, out_stats, out_fence));
}

static mica_status record(mica_session *session, uint32_t flags, mica_session_stats *stats,
                          mica_recording **out_recording)
{
    mica__recorded_pass pass = {0};
    MICA__TRY(check_open(session));
    MICA__TRY(mica__passes_check_flags(flags));
    MICA__TRY(check_recording(session));
    if (session->staged != NULL)
        return mica__fail(MICA_ERR_STATE, "session has stages, which are submitted already");
    MICA__TRY(mica__encoder_take(session->encoder, &pass.list));
    pass.slots = session->slots;
    session->slots = (mica__slots){0};
    stats->temp_bytes = session->stats.temp_bytes;
    mica_status status = mica__passes_run(session->device, &pass.list, flags, stats, &pass.placement);
    if (status == MICA_OK)
        status = mica__recording_create(session->device, mica__encoder_queue(session->encoder), &pass,
                                        session->arena, stats, out_recording);
    else
        mica__recorded_pass_free(&pass);
    stats->encode_ns = mica__clock_ns() - session->begin_ns;
    if (status == MICA_OK)
        (*out_recording)->stats.encode_ns = stats->encode_ns;
    spend(session);
    return status;
}

mica_status mica_session_record(mica_session *session, uint32_t flags, mica_session_stats *out_stats,
                                mica_recording **out_recording)
{
    mica_session_stats stats = {0};
    mica__call call;
    if (out_recording == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "session_record: out_recording is NULL");
    *out_recording = NULL;
    mica__passes_begin(&call, "session_record");
    const mica_status status = record(session, flags, &stats, out_recording);
    if (out_stats != NULL)
        *out_stats = stats;
    return mica__call_end(&call, status);
}
