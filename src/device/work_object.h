/* work_object.h - the inside of a mica__work, for the files that build it. */
#ifndef MICA_DEVICE_WORK_OBJECT_H
#define MICA_DEVICE_WORK_OBJECT_H

#include "device/work.h"

/* Which binding of which dispatch shows which view; kept for reusable work so that it can be rebound. */
typedef struct mica__binding_note {
    uint32_t dispatch, binding;
    mica__operand operand;
} mica__binding_note;

#define MICA__WORK_RECENT 64 /* power of two */

struct mica__work {
    mica_device *device; /* not counted: whoever owns the work keeps it */
    bool reusable;
    mica__commands *commands;
    mica__storage **held;
    uint32_t held_count, held_capacity;
    /* some of those held, by address: most operands are held already */
    const mica__storage *recent[MICA__WORK_RECENT];
    mica__scratch scratch;
    mica_kernel **kernel;
    uint32_t kernel_count, kernel_capacity;
    mica__binding_note *note;
    uint32_t note_count, note_capacity;
    /* reusable work: its last submission, under the device's lock */
    mica_queue *queue; /* counted; NULL: queue 0 */
    uint64_t value;    /* 0: none */
    bool resolved;
    mica__completion completion;
};

mica_status mica__work_create(mica_device *device, bool reusable, mica__work **out);
/* Takes a further reference on the storage until the work is gone. */
mica_status mica__work_hold_another(mica__work *work, mica__storage *storage);
/* Where the storage stands if it is among the recent. */
static inline const mica__storage **mica__work_recent(mica__work *work, const mica__storage *storage)
{
    return &work->recent[((uintptr_t)storage >> 6) % MICA__WORK_RECENT];
}
/* Takes a reference (NULL is fine) unless it is known to have one. */
static inline mica_status mica__work_hold(mica__work *work, mica__storage *storage)
{
    return storage == NULL || *mica__work_recent(work, storage) == storage
               ? MICA_OK
               : mica__work_hold_another(work, storage);
}
mica_status mica__work_hold_kernel(mica__work *work, mica_kernel *kernel);
/* A further scratch chunk from the device's scratch pool. */
mica_status mica__work_add_scratch(mica__work *work, uint64_t bytes);
/* Remembers a binding; does nothing for one-shot work and absent operands. */
mica_status mica__work_note(mica__work *work, uint32_t dispatch, uint32_t binding,
                            const mica__operand *operand);
/* What a submission that ended means for the caller: a status with its sentence. */
mica_status mica__completion_status(const mica__completion *completion);

#endif
