/* arena.c: chunks that double; a block that is larger than a chunk gets its own. */
#include "text/template/arena.h"

#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"

#define FIRST_CHUNK 4096u
#define LARGEST_CHUNK (256u * 1024u)

struct mica__jinja_chunk {
    struct mica__jinja_chunk *next;
    size_t size; /* of what follows */
};

void mica__jinja_arena_init(mica__jinja_arena *arena, uint64_t limit)
{
    memset(arena, 0, sizeof *arena);
    arena->limit = limit;
}

void mica__jinja_arena_release(mica__jinja_arena *arena)
{
    while (arena->chunks != NULL) {
        struct mica__jinja_chunk *next = arena->chunks->next;
        mica__free(arena->chunks);
        arena->chunks = next;
    }
}

/* A chunk with room for `size` bytes. */
static mica_status add_chunk(mica__jinja_arena *arena, size_t size)
{
    size_t room = arena->chunks == NULL ? FIRST_CHUNK : arena->chunks->size * 2, whole;
    if (room > LARGEST_CHUNK)
        room = LARGEST_CHUNK;
    if (room < size)
        room = size;
    if (!mica__add_size(room, sizeof(struct mica__jinja_chunk), &whole))
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for %zu bytes", size);
    struct mica__jinja_chunk *chunk = mica__alloc(whole);
    if (chunk == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for %zu bytes", whole);
    chunk->next = arena->chunks;
    chunk->size = room;
    arena->chunks = chunk;
    arena->at = (char *)(chunk + 1);
    arena->end = arena->at + room;
    return MICA_OK;
}

void *mica__jinja_alloc(mica__jinja_arena *arena, size_t size)
{
    if (size > arena->limit || arena->used > arena->limit - size || size > SIZE_MAX - 8) {
        arena->status = mica__fail(MICA_ERR_BUDGET, "its values take more than the limit of %llu bytes",
                                   (unsigned long long)arena->limit);
        return NULL;
    }
    size = (size + 7) & ~(size_t)7;
    if ((size_t)(arena->end - arena->at) < size) {
        arena->status = add_chunk(arena, size);
        if (arena->status != MICA_OK)
            return NULL;
    }
    void *block = arena->at;
    arena->at += size;
    arena->used += size;
    return block;
}

void *mica__jinja_calloc(mica__jinja_arena *arena, size_t count, size_t size)
{
    size_t bytes = SIZE_MAX;
    (void)mica__mul_size(count, size, &bytes); /* the limit refuses SIZE_MAX */
    void *block = mica__jinja_alloc(arena, bytes);
    if (block != NULL)
        memset(block, 0, bytes);
    return block;
}

const char *mica__jinja_append(mica__jinja_arena *arena, const char *left, size_t left_length,
                               const char *right, size_t right_length)
{
    if (left + left_length == arena->text_end &&
        (size_t)(arena->text_limit - arena->text_end) >= right_length) {
        memcpy(arena->text_end, right, right_length);
        arena->text_end += right_length;
        return left;
    }
    size_t length, room;
    if (!mica__add_size(left_length, right_length, &length) ||
        !mica__add_size(length, length / 2 + 32, &room))
        room = length = SIZE_MAX;
    char *text = mica__jinja_alloc(arena, room);
    if (text == NULL)
        return NULL;
    memcpy(text, left, left_length);
    memcpy(text + left_length, right, right_length);
    arena->text_end = text + length;
    arena->text_limit = text + room;
    return text;
}
