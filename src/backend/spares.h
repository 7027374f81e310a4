/*
 * spares.h - finished command objects, kept to be written again: encoding allocates nothing once their arrays have grown.
 *
 * Threads: any, at once. Zeroed memory is a list without any; whoever closes the device takes and frees what is left.
 */
#ifndef MICA_BACKEND_SPARES_H
#define MICA_BACKEND_SPARES_H

#include <stdatomic.h>

#include "backend/backend.h"

#define MICA__SPARES 8u

typedef struct mica__spares {
    _Atomic(mica__commands *) kept[MICA__SPARES];
} mica__spares;

/* One that the caller owns now; NULL: there is none. */
mica__commands *mica__spares_take(mica__spares *spares);
/* False: there are enough, the caller frees it. */
bool mica__spares_give(mica__spares *spares, mica__commands *commands);

#endif
