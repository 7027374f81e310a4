/*
 * work.h - how much a call may do with what a stranger wrote, and how to stop it.
 *
 * Texts, model files, patterns, schemas, grammars and templates come from people that a program does not know. Every
 * call that reads one counts its steps and ends with BUDGET when there are too many, so that no input can hold a
 * program for long. A step is a small piece of work, about ten nanoseconds.
 *
 * A program that wants other limits, or to stop a call from outside, makes a work and uses it on the thread that
 * calls:
 *
 *     mica_work_create(NULL, &work);        once a request, or once a program
 *     mica_work_use(work);                  this thread's calls are charged to it and stopped by it
 *     mica_tokenizer_encode(...);           BUDGET past a limit, CANCELLED within 100 ms of mica_work_cancel
 *     mica_work_use(NULL);
 *
 * Without one each call has the limits that stand here as defaults, and runs to its end.
 */
#ifndef MICA_WORK_H
#define MICA_WORK_H

#include <stdint.h>

#include "mica/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The limits of one call: X(name, default, what it bounds). A limit of 0 means its default. */
#define MICA_LIMIT_LIST(X)                                                                  \
    X(steps, 100000000,                                                                     \
      "steps of one call; by default 256 more for each byte of text or file that it reads") \
    X(pattern_steps, 100000000,                                                             \
      "of them, inside of patterns of a tokenizer, beyond 64 for each byte of text")        \
    X(layers, 10000, "layers of a model")                                                   \
    X(vocabulary, 4194304, "tokens of a vocabulary")                                        \
    X(token_bytes, 16384, "bytes of one token's text")                                      \
    X(states, 200000, "places of a schema, and those that a text can have in a grammar at once and over time")

#define MICA_LIMIT_FIELD(name, by_default, bounds) uint64_t name;
typedef struct mica_limits {
    uint64_t size; /* sizeof(mica_limits); 0 = this version's */
    MICA_LIMIT_LIST(MICA_LIMIT_FIELD)
} mica_limits;
#undef MICA_LIMIT_FIELD

typedef struct mica_work mica_work;

/* A work with these limits; NULL: the defaults. INVALID_ARGUMENT for a size that is not known,
 * OUT_OF_MEMORY. The caller releases *out_work. */
MICA_API mica_status mica_work_create(const mica_limits *limits, mica_work **out_work);
/* NULL is fine. No thread may use it any more. */
MICA_API void mica_work_release(mica_work *work);
/* From now on the calls of this thread are charged to `work`, obey its limits and are stopped by it; NULL: to none,
 * with the defaults. Gives back what was used before. The work is borrowed: it must outlive its use. Any number of
 * threads may use one. Never fails. */
MICA_API mica_work *mica_work_use(mica_work *work);
/* The calls that are charged to it end with CANCELLED, within 100 ms, and so do later ones, until mica_work_clear.
 * Work on a device is stopped where the device can (mica_context_cancel says more). NULL does nothing. Never fails.
 * Any thread at any time, signal handlers too. */
MICA_API void mica_work_cancel(mica_work *work);
/* Calls may run again. NULL does nothing. Never fails. Any thread, signal handlers too. */
MICA_API void mica_work_clear(mica_work *work);
/* Steps taken, and bytes of host memory asked for, by the calls that were charged to it and are over. Either may be
 * NULL. INVALID_ARGUMENT for a work of NULL. Any thread. */
MICA_API mica_status mica_work_spent(const mica_work *work, uint64_t *out_steps, uint64_t *out_bytes);

#ifdef __cplusplus
}
#endif
#endif
