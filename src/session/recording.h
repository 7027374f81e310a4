/*
 * recording.h - the inside of a recording, for the files that make and show it.
 */
#ifndef MICA_SESSION_RECORDING_H
#define MICA_SESSION_RECORDING_H

#include <pthread.h>

#include "device/encoder.h"
#include "mica/session.h"
#include "session/arena.h"
#include "session/place.h"
#include "session/slots.h"
#include "session/uses.h"

/* What a recording is made of. */
typedef struct mica__recorded_pass {
    mica__record_list list;    /* temporaries are named in it, not placed */
    mica__placement placement; /* where they are */
    mica__slots slots;
} mica__recorded_pass;

struct mica_recording {
    mica_device *device;  /* counted */
    mica_queue *queue;    /* counted; NULL: the first */
    pthread_mutex_t lock; /* guards everything below and the submission of `work`; held over waits */
    mica__fork_guard guard;
    mica__recorded_pass pass;
    mica_arena *arena;      /* counted; NULL: no temporaries */
    bool shared;            /* the arena is of several recordings */
    uint64_t generation;    /* of the arena's memory that `work` uses */
    mica__lowered *lowered; /* [pass.list.count] */
    mica__work *work;       /* reusable; NULL only after a rebind that failed and could not be undone */
    mica_session_stats stats;
    mica__storages storages; /* built when asked for; storage == NULL: not built */
    mica__uses uses;         /* likewise; node == NULL */
};

/* Lowers the pass and takes it over (it is empty afterwards, also on failure). `arena` NULL: one of its own. Adds to `stats`. */
mica_status mica__recording_create(mica_device *device, mica_queue *queue, mica__recorded_pass *pass,
                                   mica_arena *arena, mica_session_stats *stats, mica_recording **out);
void mica__recorded_pass_free(mica__recorded_pass *pass);
/* Makes the work anew from the records, and drops the old one where that went well. Lock held; it does not run. */
mica_status mica__recording_lower(mica_recording *recording);
/* Builds `storages` if it is not there. Lock held. */
mica_status mica__recording_number(mica_recording *recording);
/* A const recording can still be locked: its lock is not part of what is promised not to change. */
mica_recording *mica__recording_lock(const mica_recording *recording);
void mica__recording_unlock(mica_recording *recording);

#endif
