/*
 * far.h - parameter blocks that a device does not take as arguments: gathered while encoding, sent to one buffer of the
 * commands at the end. They belong to the commands, and are used again with them.
 */
#ifndef MICA_BACKEND_FAR_H
#define MICA_BACKEND_FAR_H

#include "backend/backend.h"
#include "backend/encode.h"

typedef struct mica__far {
    mica__blob blob;
    mica__memory *memory; /* NULL: none yet */
} mica__far;

/* What the backend does with memory. */
typedef struct mica__far_calls {
    mica_status (*create)(mica__device *, uint64_t bytes, mica__memory **out);
    void (*destroy)(mica__device *, mica__memory *);
    mica_status (*upload)(mica__device *, mica__memory *, uint64_t offset, const void *, uint64_t bytes);
} mica__far_calls;

/* The place of the block in the buffer, 16-byte aligned. 0: no memory, latched. */
uint64_t mica__far_put(mica__far *far, mica__latch *latch, const void *params, uint32_t bytes);
/* `memory` holds all blocks from now on, if there are any; no work is under way that uses it. */
mica_status mica__far_send(mica__far *far, mica__device *device, const mica__far_calls *calls);
void mica__far_free(mica__far *far, mica__device *device, const mica__far_calls *calls);

#endif
