/* once.c - a hash table of entries that stay where they are; an entry is there from the moment that somebody makes it. */
#include "device/once.h"

#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "backend/encode.h"

struct mica__once_entry {
    uint64_t hash;
    void *value; /* NULL: being made, or failed */
    bool failed;
    uint32_t users; /* its maker and who waits for it: the last one frees an entry that failed */
    mica__latch failure;
    char key[];
};

mica_status mica__once_init(mica__once *once)
{
    memset(once, 0, sizeof *once);
    mica_status status = mica__lock_init(&once->lock, &once->guard, true);
    if (status != MICA_OK)
        return status;
    status = mica__event_init(&once->made);
    if (status != MICA_OK)
        mica__lock_destroy(&once->lock, &once->guard);
    once->generation = mica__fork_generation();
    return status;
}

/* Where the key is, or would be. There is an empty slot. */
static uint32_t place_of(const mica__once *once, uint64_t hash, const char *key)
{
    uint32_t at = (uint32_t)hash & (once->slots - 1);
    for (; once->slot[at] != NULL; at = (at + 1) & (once->slots - 1))
        if (once->slot[at]->hash == hash && strcmp(once->slot[at]->key, key) == 0)
            break;
    return at;
}

static mica__once_entry *find(const mica__once *once, uint64_t hash, const char *key)
{
    return once->slots == 0 ? NULL : once->slot[place_of(once, hash, key)];
}

/* Takes an entry out; those behind it move up, so that none is cut off from where it is looked for. */
static void take_out(mica__once *once, const mica__once_entry *entry)
{
    uint32_t hole = place_of(once, entry->hash, entry->key);
    once->slot[hole] = NULL;
    once->used--;
    for (uint32_t at = (hole + 1) & (once->slots - 1); once->slot[at] != NULL;
         at = (at + 1) & (once->slots - 1)) {
        mica__once_entry *moved = once->slot[at];
        once->slot[at] = NULL;
        once->slot[place_of(once, moved->hash, moved->key)] = moved;
    }
}

/* The child of a fork has none of the threads that were making something. */
static void forget_makers(mica__once *once)
{
    for (uint32_t i = 0; i < once->slots; i++) {
        mica__once_entry *entry = once->slot[i];
        if (entry == NULL || entry->value != NULL)
            continue;
        take_out(once, entry);
        mica__free(entry);
        i--; /* another one may have moved here */
    }
    mica__event_init(&once->made); /* nobody waits here, whatever it says */
    once->generation = mica__fork_generation();
}

static void lock(mica__once *once)
{
    pthread_mutex_lock(&once->lock);
    if (once->generation != mica__fork_generation())
        forget_makers(once);
}

void mica__once_free(mica__once *once, mica__once_drop drop, void *context)
{
    lock(once);
    pthread_mutex_unlock(&once->lock);
    for (uint32_t i = 0; i < once->slots; i++) {
        if (once->slot[i] != NULL)
            drop(context, once->slot[i]->value);
        mica__free(once->slot[i]);
    }
    mica__free(once->slot);
    mica__event_destroy(&once->made);
    mica__lock_destroy(&once->lock, &once->guard);
}

/* Room for one more, at least half of it empty. */
static bool reserve(mica__once *once)
{
    if (2 * (once->used + 1) <= once->slots)
        return true;
    const mica__once old = *once;
    const uint32_t slots = old.slots == 0 ? 16 : 2 * old.slots;
    mica__once_entry **grown = mica__calloc(slots, sizeof *grown);
    if (grown == NULL)
        return false;
    once->slot = grown;
    once->slots = slots;
    for (uint32_t i = 0; i < old.slots; i++)
        if (old.slot[i] != NULL)
            grown[place_of(once, old.slot[i]->hash, old.slot[i]->key)] = old.slot[i];
    mica__free(old.slot);
    return true;
}

/* An entry that the caller makes. NULL: no memory. */
static mica__once_entry *add(mica__once *once, uint64_t hash, const char *key)
{
    const size_t bytes = strlen(key) + 1;
    mica__once_entry *entry = reserve(once) ? mica__alloc(sizeof *entry + bytes) : NULL;
    if (entry == NULL)
        return NULL;
    *entry = (mica__once_entry){.hash = hash, .users = 1};
    memcpy(entry->key, key, bytes);
    once->slot[place_of(once, hash, key)] = entry;
    once->used++;
    return entry;
}

/* Gives the result to the caller, and the entry up where it failed and nobody else looks at it. Locked on entry, not
 * afterwards. */
static mica_status leave(mica__once *once, mica__once_entry *entry, void **out)
{
    const mica_status status = entry->failed ? mica__latch_report(&entry->failure) : MICA_OK;
    const bool last = --entry->users == 0 && entry->failed;
    *out = entry->value;
    pthread_mutex_unlock(&once->lock);
    if (last)
        mica__free(entry);
    return status;
}

static mica_status wait_for(mica__once *once, mica__once_entry *entry, void **out)
{
    entry->users++;
    while (entry->value == NULL && !entry->failed) {
        const uint32_t ticket = mica__event_ticket(&once->made);
        pthread_mutex_unlock(&once->lock);
        mica__event_wait(&once->made, ticket, MICA__EVENT_FOREVER);
        pthread_mutex_lock(&once->lock);
    }
    return leave(once, entry, out);
}

mica_status mica__once_get(mica__once *once, const char *key, mica__once_make make, void *context, void **out)
{
    const uint64_t hash = mica__hash_bytes(key, strlen(key), 0);
    *out = NULL;
    lock(once);
    mica__once_entry *entry = find(once, hash, key);
    if (entry != NULL)
        return wait_for(once, entry, out);
    entry = add(once, hash, key);
    pthread_mutex_unlock(&once->lock);
    if (entry == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no host memory for kernel %.60s", key);
    void *value = NULL;
    const mica_status status = make(context, key, &value);
    pthread_mutex_lock(&once->lock);
    entry->failed = !mica__latch_keep(&entry->failure, status);
    if (entry->failed)
        take_out(once, entry);
    else
        entry->value = value;
    mica__event_signal(&once->made);
    return leave(once, entry, out);
}

void *mica__once_find(mica__once *once, const char *key)
{
    lock(once);
    const mica__once_entry *entry = find(once, mica__hash_bytes(key, strlen(key), 0), key);
    void *value = entry != NULL ? entry->value : NULL;
    pthread_mutex_unlock(&once->lock);
    return value;
}

void mica__once_each(mica__once *once, void (*show)(void *context, void *value), void *context)
{
    lock(once);
    for (uint32_t i = 0; i < once->slots; i++)
        if (once->slot[i] != NULL && once->slot[i]->value != NULL)
            show(context, once->slot[i]->value);
    pthread_mutex_unlock(&once->lock);
}

static void count_one(void *context, void *value)
{
    (void)value;
    ++*(uint32_t *)context;
}

uint32_t mica__once_count(mica__once *once)
{
    uint32_t count = 0;
    mica__once_each(once, count_one, &count);
    return count;
}
