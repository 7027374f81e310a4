/*
 * recording.h - the inside of a recording, for the files that make and show it.
 */
#ifndef MICA_SESSION_RECORDING_H
#define MICA_SESSION_RECORDING_H

#include <pthread.h>

#include "device/encoder.h"
#include "mica/session.h"
#include "session/storages.h"

struct mica_recording {
    mica_device *device;  /* counted */
    mica_queue *queue;    /* counted; NULL: the first */
    pthread_mutex_t lock; /* guards everything below and the submission of `work`; held over waits */
    mica__fork_guard guard;
    mica__record_list list;
    mica__lowered *lowered; /* [list.count] */
    mica__work *work;       /* reusable; NULL only after a rebind that failed and could not be undone */
    mica_session_stats stats;
    mica__storages storages; /* built when asked for; storage == NULL: not built */
};

/* Lowers the records and takes them over (`list` is empty afterwards, also on failure). Adds to `stats`. */
mica_status mica__recording_create(mica_device *device, mica_queue *queue, mica__record_list *list,
                                   mica_session_stats *stats, mica_recording **out);
/* Builds `storages` if it is not there. Lock held. */
mica_status mica__recording_number(mica_recording *recording);
/* A const recording can still be locked: its lock is not part of what is promised not to change. */
mica_recording *mica__recording_lock(const mica_recording *recording);
void mica__recording_unlock(mica_recording *recording);

#endif
