/*
 * storages.h - the distinct storages of a list of records, numbered by first use.
 */
#ifndef MICA_SESSION_STORAGES_H
#define MICA_SESSION_STORAGES_H

#include "device/encoder.h"

typedef struct mica__storages {
    mica__storage **storage; /* [count], borrowed from the records */
    uint32_t count;
    uint32_t *place; /* hash table [mask + 1]: number + 1, 0 = free */
    uint32_t mask;
} mica__storages;

/* Valid while the records name the same storages. On failure there is nothing to free. */
mica_status mica__storages_build(const mica__record_list *list, mica__storages *out);
void mica__storages_free(mica__storages *storages);
/* The number of a storage that is in the table. */
uint32_t mica__storages_find(const mica__storages *storages, const void *storage);

#endif
