/* arena.h: memory that only grows and goes as a whole: a parsed template, and the values of one rendering.
 *
 * Templates come from files that nobody vouches for, so an arena has a limit. Nothing is given back before the end:
 * values may point into each other freely. One thread at a time. */
#ifndef MICA_TEXT_TEMPLATE_ARENA_H
#define MICA_TEXT_TEMPLATE_ARENA_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct mica__jinja_arena {
    struct mica__jinja_chunk *chunks;
    char *at, *end;              /* what is free in the newest chunk */
    char *text_end, *text_limit; /* the newest text made by append, and how far it may grow in place */
    uint64_t used, limit;
    mica_status status; /* of the allocation that failed */
} mica__jinja_arena;

void mica__jinja_arena_init(mica__jinja_arena *arena, uint64_t limit);
void mica__jinja_arena_release(mica__jinja_arena *arena);

/* `size` bytes aligned to 8, contents undefined. NULL with a sentence set and arena->status BUDGET or OUT_OF_MEMORY. */
void *mica__jinja_alloc(mica__jinja_arena *arena, size_t size);
/* count * size bytes, zeroed. */
void *mica__jinja_calloc(mica__jinja_arena *arena, size_t count, size_t size);
/* Why the last allocation failed; never MICA_OK. */
static inline mica_status mica__jinja_arena_failure(const mica__jinja_arena *arena)
{
    return arena->status == MICA_OK ? MICA_ERR_OUT_OF_MEMORY : arena->status;
}

/* left + right. If left was made by this function last, it grows in place: a text built piece by piece costs its own
 * length and not the square. Old values keep seeing their own part. NULL as above. */
const char *mica__jinja_append(mica__jinja_arena *arena, const char *left, size_t left_length,
                               const char *right, size_t right_length);

#endif
