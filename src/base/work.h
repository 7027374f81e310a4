/* work.h (base): public calls as frames on their thread. The outermost one counts steps and bytes, gives its name to the
 * sentence of a failure, and is stopped by the work that the thread uses.
 *
 *     mica_status mica_thing_read(...)
 *     {
 *         mica__call call;
 *         mica__call_begin(&call, "thing_read");
 *         return mica__call_end(&call, thing_read(...));
 *     }
 *
 * Inside, every loop over something that a stranger chose the size of calls mica__spend, with as many steps as it is about to
 * take or took since the last time: at least once in a million steps, so that a cancel is seen in time. */
#ifndef MICA_BASE_WORK_H
#define MICA_BASE_WORK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "mica/work.h"

#define MICA__STEPS_PER_BYTE 256u

struct mica_work {
    atomic_int cancelled;
    mica_limits limits; /* filled with the defaults */
    bool steps_chosen;  /* `limits.steps` is what the caller wrote: nothing is added for bytes */
    _Atomic uint64_t steps, bytes;
};

/* Fills a work in memory of the caller, as mica_work_create does; `limits` are checked already, or NULL. */
void mica__work_init(mica_work *work, const mica_limits *limits);

/* One public call, on the stack of its thread. */
typedef struct mica__call {
    const char *name;
    struct mica__call *outer; /* the call that made this one, or NULL */
    struct mica__call *root;  /* the outermost: it has the counts */
    mica_work *work;          /* the thread's; NULL: none */
    mica_work *own;           /* of the handle that is called: another way to cancel; NULL: none */
    uint64_t steps, allowed, bytes;
} mica__call;

/* Begins a call; `name` without the mica_ lives for ever. mica__call_end must follow on every way out. */
void mica__call_begin(mica__call *call, const char *name);
/* Ends it and gives `status` back. The sentence of a failure of the outermost call begins with its name afterwards. */
mica_status mica__call_end(mica__call *call, mica_status status);
/* This call, and what it calls, is also stopped by `own`, which is the handle's. */
void mica__call_cancelled_by(mica__call *call, mica_work *own);

/* Takes steps. BUDGET: the call has none left. CANCELLED. Outside of a call, as on threads that a call started, it is free and
 * always OK. What cannot fail asks mica__is_cancelled instead. */
mica_status mica__spend(uint64_t steps);
/* The call reads so many more bytes of text or file: it may take steps for them, unless the caller chose the limit. */
void mica__spend_allow(uint64_t bytes);
/* Whether the call should stop. */
bool mica__is_cancelled(void);
/* The limits of the thread's work, or the defaults. Never NULL; stands while the call does. */
const mica_limits *mica__limits(void);
/* BUDGET when `found` is above the limit, naming it: mica__limit_check("layers", limits->layers, count). */
mica_status mica__limit_check(const char *what, uint64_t limit, uint64_t found);

/* For alloc.c: the call asked for memory. */
void mica__call_count(size_t bytes);

#endif
