/*
 * slots.h - names of a recording's inputs and outputs.
 */
#ifndef MICA_SESSION_SLOTS_H
#define MICA_SESSION_SLOTS_H

#include "mica/session.h"

#define MICA__SLOT_NAME 64 /* with its NUL */

typedef struct mica__slot {
    char name[MICA__SLOT_NAME];
    mica_buffer *buffer; /* what is bound to it; counted */
} mica__slot;

typedef struct mica__slots {
    mica__slot *slot;
    uint32_t count, capacity;
} mica__slots;

/* INVALID_ARGUMENT: a name that is empty, too long, or there already. */
mica_status mica__slots_add(mica__slots *slots, const char *name, mica_buffer *buffer);
/* NULL if there is none of that name. */
mica__slot *mica__slots_find(const mica__slots *slots, const char *name);
mica_status mica__slots_copy(const mica__slots *from, mica__slots *to);
void mica__slots_free(mica__slots *slots);

#endif
