/*
 * arena.h - the memory that temporaries of recordings lie in.
 *
 * Recordings of one arena run one after the other, so all use the same bytes. It grows when one of them needs more; those made
 * before see by the generation that their commands show memory that is gone, and make them anew.
 */
#ifndef MICA_SESSION_ARENA_H
#define MICA_SESSION_ARENA_H

#include <pthread.h>

#include "device/work.h"
#include "mica/session.h"

/* A submission: of work that runs once and keeps its memory itself, or of recordings, for which the arena keeps it. */
typedef struct mica__arena_mark {
    mica_queue *queue; /* counted; NULL: the first */
    uint64_t value;    /* 0: none */
} mica__arena_mark;

struct mica_arena {
    _Atomic uint32_t references;
    mica_device *device;  /* counted */
    pthread_mutex_t lock; /* guards what follows */
    mica__fork_guard guard;
    mica__storage *storage;          /* NULL: nothing was asked for yet, or there was no memory for it */
    uint64_t generation;             /* how often `storage` changed */
    mica__scratch scratch;           /* of kernels, which recordings share too */
    mica__arena_mark last, replayed; /* the last submission, the last of a recording */
};

#define MICA__NO_GENERATION UINT64_MAX /* of commands without temporaries */

/* NULL is fine, as everywhere. */
mica_arena *mica__arena_retain(mica_arena *arena);
/* At least `bytes`, with a reference on the memory for the caller, and its generation. Where it must grow, waits for recordings
 * that run in it and lets its memory go first. */
mica_status mica__arena_reserve(mica_arena *arena, uint64_t bytes, mica__storage **out,
                                uint64_t *out_generation);
/* Submits work after what was submitted before in the same arena. Reusable work: only if the arena still has the memory of
 * `generation`, else *out_stale. `arena` NULL: just submits. */
mica_status mica__arena_submit(mica_arena *arena, mica__work *work, mica_queue *queue, uint64_t generation,
                               mica_fence **out_fence, bool *out_stale);
/* Scratch to lower with, and what the lowering made of it. */
mica_status mica__arena_lend(mica_arena *arena, mica__scratch *out);
mica_status mica__arena_keep(mica_arena *arena, const mica__scratch *scratch);

#endif
