/*
 * times.h - when each dispatch ran: sums for each op and kernel, and the last so many dispatches, newest over oldest.
 *
 * Threads: `enabled` is read by any thread; everything else under the lock of the device that has them.
 */
#ifndef MICA_BACKEND_TIMES_H
#define MICA_BACKEND_TIMES_H

#include <stdatomic.h>

#include "backend/backend.h"

#define MICA__TIMES_KEPT 65536u /* entries */

typedef struct mica__times {
    mica_profile_entry *entry; /* NULL until switched on, and once they were taken away */
    uint64_t count;            /* written so far */
    mica_profile_bucket *bucket;
    uint32_t *place; /* by hash of op and kernel, for twice the capacity: 1 + the bucket, 0: free */
    uint32_t bucket_count, bucket_capacity;
    bool lost;           /* there was no memory for a bucket */
    atomic_bool enabled; /* submissions are to be timed */
} mica__times;

/* Adds `entry` with these texts, cut where they are too long; `kernel` NULL: a copy. Nothing while there is none to add to. */
void mica__times_add(mica__times *times, const mica_profile_entry *entry, const char *kernel,
                     const char *label);
/* The table's `timestamps`: switching on forgets what was there; switched off, what was gathered moves to `out`, or stays where that
 * is NULL. OUT_OF_MEMORY, also where a kernel could not be summed up. */
mica_status mica__times_read(mica__times *times, bool enable, mica__profile *out);
void mica__times_free(mica__times *times);

#endif
