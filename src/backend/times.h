/*
 * times.h - when each dispatch ran: the last so many, newest over oldest.
 *
 * Threads: `enabled` is read by any thread; everything else under the lock of the device that has them.
 */
#ifndef MICA_BACKEND_TIMES_H
#define MICA_BACKEND_TIMES_H

#include <stdatomic.h>

#include "backend/backend.h"

typedef struct mica__times {
    mica_profile_entry *entry; /* NULL until first switched on; freed with mica__free */
    uint64_t count;            /* written so far */
    atomic_bool enabled;       /* submissions are to be timed */
} mica__times;

/* Keeps `entry` with these texts, cut where they are too long; `kernel` NULL: a copy. Nothing before the first switching
 * on. */
void mica__times_add(mica__times *times, const mica_profile_entry *entry, const char *kernel,
                     const char *label);
/* The table's `timestamps`: switching on forgets what was there, switching off keeps it. Gives the last ones, oldest
 * first. */
mica_status mica__times_read(mica__times *times, bool enable, mica_profile_entry *out, uint64_t capacity,
                             uint64_t *out_count);

#endif
