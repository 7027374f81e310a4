/*
 * place.h - where the temporaries of a list of records lie in their arena.
 *
 * The list is in its final order. It keeps naming temporaries by storages without memory, so that further passes and clones see what
 * they are; commands are made from placed copies of its records.
 */
#ifndef MICA_SESSION_PLACE_H
#define MICA_SESSION_PLACE_H

#include "session/storages.h"

#define MICA__PLACE_ALIGNMENT 256u /* what the pickiest backend wants of a binding's offset */

typedef struct mica__placement {
    mica__storages storages; /* of the list */
    uint64_t *offset;        /* [storages.count]: in the arena, for those without memory */
    uint64_t bytes;          /* of the arena */
    uint64_t bound; /* the most bytes that are alive at once: no arrangement of this order has less */
} mica__placement;

/* Valid while the records name the same storages. On failure there is nothing to free. */
mica_status mica__place(mica__record_list *list, mica__placement *out);
void mica__placement_free(mica__placement *placement);
/* The operand as commands have it: a temporary in the arena, any other as it is. */
mica__operand mica__placed_operand(const mica__placement *placement, mica__storage *arena,
                                   const mica__operand *operand);

#endif
