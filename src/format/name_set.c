/* name_set.c - a hash table of names, so that a name that comes twice is found. */
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "format/writer.h"

#define FIRST_SLOTS 64 /* a power of two */

/* The slot that holds the name, or the free one where it belongs. */
static mica_string *find_slot(mica_string *slots, size_t capacity, uint64_t seed, const char *name,
                              size_t length)
{
    size_t at = (size_t)mica__hash_bytes(name, length, seed) & (capacity - 1);
    while (slots[at].data != NULL &&
           (slots[at].length != length || memcmp(slots[at].data, name, length) != 0))
        at = (at + 1) & (capacity - 1);
    return &slots[at];
}

static mica_status grow(mica__name_set *set)
{
    const size_t capacity = set->capacity == 0 ? FIRST_SLOTS : set->capacity * 2;
    mica_string *slots = mica__calloc(capacity, sizeof *slots);
    if (slots == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for %zu names", capacity);
    if (set->capacity == 0)
        set->seed = mica__hash_seed();
    for (size_t i = 0; i < set->capacity; i++)
        if (set->slot[i].data != NULL)
            *find_slot(slots, capacity, set->seed, set->slot[i].data, (size_t)set->slot[i].length) =
                set->slot[i];
    mica__free(set->slot);
    set->slot = slots;
    set->capacity = capacity;
    return MICA_OK;
}

mica_status mica__name_set_add(mica__name_set *set, const char *name, size_t length, bool *out_new)
{
    *out_new = false;
    if (set->count >= set->capacity / 2) {
        const mica_status status = grow(set);
        if (status != MICA_OK)
            return status;
    }
    mica_string *slot = find_slot(set->slot, set->capacity, set->seed, name, length);
    if (slot->data != NULL)
        return MICA_OK;
    *slot = (mica_string){name, length};
    set->count++;
    *out_new = true;
    return MICA_OK;
}

bool mica__name_set_has(const mica__name_set *set, const char *name, size_t length)
{
    return set->count != 0 && find_slot(set->slot, set->capacity, set->seed, name, length)->data != NULL;
}

void mica__name_set_free(mica__name_set *set)
{
    mica__free(set->slot);
    *set = (mica__name_set){0};
}
