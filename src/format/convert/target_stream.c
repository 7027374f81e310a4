/*
 * target_stream.c - carries a target out: a team makes the pieces, the caller writes them in order and helps in between.
 *
 * The pieces go through a ring of slots: piece i is made in slot i modulo the ring, and may be begun once the piece
 * that had the slot before is written. So memory does not grow with the file, and what is written does not depend on
 * who made it. A thread that the system refuses is missed by nobody: the caller alone can do it all.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/thread.h"
#include "base/work.h"
#include "format/convert/piece.h"

#define MOST_THREADS 256u
#define PATIENCE_NS 20000000u /* between two looks at progress */

typedef struct slot {
    mica__piece piece;
    uint8_t *bytes;
    bool done;
    mica_status status;
    char message[512]; /* of a failure, from the thread that saw it */
} slot;

typedef struct team {
    const mica__target *target;
    mica_writer *writer;
    const mica__target_run *run;
    pthread_mutex_t mutex; /* guards what follows, up to `stopped` */
    mica__piece_cursor cursor;
    bool ended; /* the cursor is behind the last piece */
    uint64_t taken, written;
    bool stopped;
    mica__event event; /* a slot got free or done, or the team is stopped */
    slot *slot;
    uint32_t slot_count;
    mica__thread thread[MOST_THREADS];
    mica__piece_room room[MOST_THREADS]; /* the last one is the caller's */
    uint32_t thread_count;               /* that run */
    uint32_t member_count;               /* rooms: threads and the caller */
    _Atomic uint32_t next_room;
    uint64_t bytes_done, bytes_total, reported_ns;
    const char *reported;
} team;

/* ---- the work ------------------------------------------------------------------------------------------- */

typedef enum next_piece { NEXT_READY, NEXT_LATER, NEXT_NONE } next_piece;

/* Takes the next piece if there is one and its slot is free. */
static next_piece take(team *t, slot **out_slot)
{
    next_piece result = NEXT_LATER;
    pthread_mutex_lock(&t->mutex);
    if (t->stopped) {
        result = NEXT_NONE;
    } else if (t->taken < t->written + t->slot_count) {
        slot *s = &t->slot[t->taken % t->slot_count];
        t->ended = t->ended || !mica__piece_next(t->target, &t->cursor, &s->piece);
        result = t->ended ? NEXT_NONE : NEXT_READY;
        if (result == NEXT_READY) {
            s->done = false;
            t->taken++;
        }
        *out_slot = s;
    }
    pthread_mutex_unlock(&t->mutex);
    return result;
}

static void make(team *t, const mica__piece_room *room, slot *s)
{
    const mica_status status = mica__piece_make(t->target->archive, &s->piece, room, s->bytes);
    if (status != MICA_OK)
        snprintf(s->message, sizeof s->message, "%s", mica_status_message());
    pthread_mutex_lock(&t->mutex);
    s->status = status;
    s->done = true;
    pthread_mutex_unlock(&t->mutex);
    mica__event_signal(&t->event);
}

static void work(void *context)
{
    team *t = context;
    const mica__piece_room *room = &t->room[atomic_fetch_add(&t->next_room, 1)];
    for (;;) {
        const uint32_t ticket = mica__event_ticket(&t->event);
        slot *s;
        const next_piece now = take(t, &s);
        if (now == NEXT_NONE)
            return;
        if (now == NEXT_READY)
            make(t, room, s);
        else
            mica__event_wait(&t->event, ticket, MICA__EVENT_FOREVER);
    }
}

/* ---- the caller ----------------------------------------------------------------------------------------- */

static mica_status report(team *t, const char *what)
{
    const uint64_t now = mica__clock_ns();
    if (t->run->progress == NULL || (what == t->reported && now - t->reported_ns < PATIENCE_NS))
        return MICA_OK;
    t->reported = what;
    t->reported_ns = now;
    if (t->run->progress(t->run->context, what, t->bytes_done, t->bytes_total) != 0)
        return mica__fail(MICA_ERR_CANCELLED, "stopped at tensor \"%s\": progress said so", what);
    return MICA_OK;
}

static mica_status write_slot(team *t, slot *s)
{
    mica_status status = s->status;
    if (status != MICA_OK) {
        mica__status_set(status, s->message);
        return status;
    }
    MICA__TRY(mica_writer_write(t->writer, s->bytes, s->piece.bytes_out));
    t->bytes_done += s->piece.bytes_in;
    status = report(t, s->piece.tensor->name);
    pthread_mutex_lock(&t->mutex);
    t->written++;
    pthread_mutex_unlock(&t->mutex);
    mica__event_signal(&t->event);
    return status;
}

/* Whether the piece that is to be written next is made; *out_last if there is none any more. */
static bool next_is_done(team *t, bool *out_last)
{
    pthread_mutex_lock(&t->mutex);
    const bool done = t->written < t->taken && t->slot[t->written % t->slot_count].done;
    *out_last = t->ended && t->written == t->taken;
    pthread_mutex_unlock(&t->mutex);
    return done;
}

/* Writes what is done, makes a piece where nothing is, waits where nothing can be made. */
static mica_status lead(team *t)
{
    mica_status status = MICA_OK;
    while (status == MICA_OK) {
        const uint32_t ticket = mica__event_ticket(&t->event);
        status = mica__spend(0); /* cancelled? */
        if (status != MICA_OK)
            return status;
        slot *s = &t->slot[t->written % t->slot_count];
        bool last;
        if (next_is_done(t, &last)) {
            status = write_slot(t, s);
            continue;
        }
        if (last)
            return MICA_OK;
        if (take(t, &s) == NEXT_READY)
            make(t, &t->room[t->member_count - 1], s);
        else if (!next_is_done(t, &last) && !last)
            mica__event_wait(&t->event, ticket, PATIENCE_NS);
        if (t->reported != NULL)
            status = report(t, t->reported);
    }
    return status;
}

/* ---- the team's life ------------------------------------------------------------------------------------ */

static mica_status take_rooms(team *t)
{
    mica__piece_sizes sizes = {0};
    mica_status status = mica__piece_measure(t->target, &sizes);
    if (status != MICA_OK)
        return status;
    t->slot = mica__calloc(t->slot_count, sizeof *t->slot);
    bool complete = t->slot != NULL;
    for (uint32_t i = 0; i < t->slot_count && complete; i++)
        complete = (t->slot[i].bytes = mica__alloc((size_t)sizes.out)) != NULL;
    for (uint32_t i = 0; i < t->member_count && complete; i++) {
        t->room[i].raw = mica__alloc((size_t)sizes.raw);
        t->room[i].values = mica__alloc((size_t)sizes.values * sizeof(float));
        complete = t->room[i].raw != NULL && t->room[i].values != NULL;
    }
    if (!complete)
        status = mica__fail(MICA_ERR_OUT_OF_MEMORY,
                            "no memory for %u threads with pieces of %llu bytes; fewer need less",
                            t->member_count, (unsigned long long)(sizes.raw + sizes.out + 4 * sizes.values));
    return status;
}

static void free_team(team *t)
{
    for (uint32_t i = 0; t->slot != NULL && i < t->slot_count; i++)
        mica__free(t->slot[i].bytes);
    mica__free(t->slot);
    for (uint32_t i = 0; i < t->member_count; i++) {
        mica__free(t->room[i].raw);
        mica__free(t->room[i].values);
    }
    mica__event_destroy(&t->event);
    pthread_mutex_destroy(&t->mutex);
    mica__free(t);
}

static mica_status create_team(const mica__target *target, mica_writer *writer, const mica__target_run *run,
                               team **out)
{
    team *t = mica__calloc(1, sizeof *t);
    *out = NULL;
    if (t == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for the threads that write a file");
    if (pthread_mutex_init(&t->mutex, NULL) != 0) {
        mica__free(t);
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "the system refused a mutex");
    }
    mica_status status = mica__event_init(&t->event);
    if (status != MICA_OK) {
        pthread_mutex_destroy(&t->mutex);
        mica__free(t);
        return status;
    }
    const uint32_t wanted = run->threads == 0 ? mica__thread_cpu_count() : run->threads;
    t->target = target;
    t->writer = writer;
    t->run = run;
    t->member_count = wanted < MOST_THREADS ? wanted : MOST_THREADS;
    t->slot_count = 2 * t->member_count + 2;
    t->bytes_total = mica__target_bytes_in(target);
    *out = t;
    return take_rooms(t);
}

static void start_threads(team *t)
{
    for (uint32_t i = 0; i + 1 < t->member_count; i++) {
        if (mica__thread_start(&t->thread[i], "mica-rewrite", work, t) != MICA_OK)
            return;
        t->thread_count++;
    }
}

static void stop_threads(team *t)
{
    pthread_mutex_lock(&t->mutex);
    t->stopped = true;
    pthread_mutex_unlock(&t->mutex);
    mica__event_signal(&t->event);
    for (uint32_t i = 0; i < t->thread_count; i++)
        mica__thread_join(&t->thread[i]);
}

static mica_status stream(const mica__target *target, mica_writer *writer, const mica__target_run *run)
{
    team *t = NULL;
    mica_status status = create_team(target, writer, run, &t);
    if (t == NULL)
        return status;
    if (status == MICA_OK) {
        start_threads(t);
        status = lead(t);
        stop_threads(t);
    }
    free_team(t);
    return status;
}

/* ---- the whole ------------------------------------------------------------------------------------------ */

static mica_status declare(const mica__target *target, mica_writer *writer)
{
    mica_status status = MICA_OK;
    for (uint32_t i = 0; i < target->meta_count && status == MICA_OK; i++)
        status = mica_writer_metadata(writer, target->meta[i].key.data, &target->meta[i].value);
    for (uint32_t i = 0; i < target->tensor_count && status == MICA_OK; i++) {
        const mica__target_tensor *tensor = &target->tensor[i];
        status = mica_writer_tensor(writer, tensor->name, tensor->dtype, tensor->ndim, tensor->shape);
    }
    return status;
}

mica_status mica__target_write(const mica__target *target, mica_writer *writer, const mica__target_run *run)
{
    const uint64_t total = mica__target_bytes_in(target);
    mica_status status = mica__target_check(target);
    if (status == MICA_OK)
        status = declare(target, writer);
    if (status == MICA_OK)
        status = stream(target, writer, run);
    if (status == MICA_OK && run->progress != NULL && run->progress(run->context, "", total, total) != 0)
        status = mica__fail(MICA_ERR_CANCELLED, "stopped before the file got its name: progress said so");
    if (status != MICA_OK) {
        mica_writer_discard(writer);
        return status;
    }
    if (run->ready != NULL)
        run->ready(run->ready_context);
    return mica_writer_finish(writer);
}
