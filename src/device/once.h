/*
 * once.h - things by key, each made by whoever asks for it first, outside of the lock: others make other things meanwhile, and
 * those who ask for the same wait for it. Knows not what the things are.
 *
 * Threads: any, until it is freed. In the child of a fork what another thread was making has not been asked for.
 */
#ifndef MICA_DEVICE_ONCE_H
#define MICA_DEVICE_ONCE_H

#include "base/thread.h"

typedef struct mica__once_entry mica__once_entry;

typedef struct mica__once {
    pthread_mutex_t lock; /* guards what follows; held for moments */
    mica__fork_guard guard;
    uint32_t generation;
    mica__event made; /* or failed */
    mica__once_entry **slot;
    uint32_t slots, used; /* slots: 0 or a power of two */
} mica__once;

/* Makes the thing of a key; not NULL where it is MICA_OK. */
typedef mica_status (*mica__once_make)(void *context, const char *key, void **out);
typedef void (*mica__once_drop)(void *context, void *value);

mica_status mica__once_init(mica__once *once);
/* Drops all things; nobody waits for one. */
void mica__once_free(mica__once *once, mica__once_drop drop, void *context);
/* What the key stands for, made if nobody has yet. A failure is given to all who wait for it and is not kept. */
mica_status mica__once_get(mica__once *once, const char *key, mica__once_make make, void *context,
                           void **out);
/* The same without making or waiting for it; NULL: it is not there. */
void *mica__once_find(mica__once *once, const char *key);
/* Shows every thing that is there. */
void mica__once_each(mica__once *once, void (*show)(void *context, void *value), void *context);
/* How many things there are. */
uint32_t mica__once_count(mica__once *once);

#endif
