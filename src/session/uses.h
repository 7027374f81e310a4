/*
 * uses.h - where each storage is used in a recording, so that another buffer in its place costs its uses.
 */
#ifndef MICA_SESSION_USES_H
#define MICA_SESSION_USES_H

#include "device/encoder.h"

/* One present operand, in a list of all those of its storage. */
typedef struct mica__use_node {
    uint32_t record, slot;
    uint32_t next; /* node, MICA__USES_END: none */
} mica__use_node;

#define MICA__USES_END UINT32_MAX

typedef struct mica__uses_entry {
    const void *storage; /* NULL: free */
    uint32_t first;      /* node */
} mica__uses_entry;

typedef struct mica__uses {
    mica__use_node *node;    /* NULL: not built */
    mica__uses_entry *entry; /* hash table [mask + 1] */
    uint32_t mask, count;    /* entries in use */
} mica__uses;

/* On failure there is nothing to free. */
mica_status mica__uses_build(const mica__record_list *list, mica__uses *out);
void mica__uses_free(mica__uses *uses);
/* The list of the storage: its first node. Valid until another storage is asked for that is not in the table; while `uses` has
 * room, which mica__uses_room says. */
uint32_t *mica__uses_of(mica__uses *uses, const void *storage);
/* Whether `more` storages that are not in the table would still find room. */
bool mica__uses_room(const mica__uses *uses, uint32_t more);

#endif
