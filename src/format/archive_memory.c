/* archive_memory.c - memory that lives as long as an archive: blocks cut into pieces, freed together. */
#include "format/archive.h"

#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"

#define PIECE_ALIGN 16
#define FIRST_BYTES ((size_t)4 << 10)   /* a small file takes little */
#define LARGEST_BYTES ((size_t)1 << 20) /* and a large one few blocks */

struct mica__chunk {
    struct mica__chunk *next; /* filled before this one */
    size_t used, size;        /* of the bytes behind this struct */
    char padding[40];         /* so that they are aligned as the block is */
};

_Static_assert(sizeof(struct mica__chunk) % PIECE_ALIGN == 0, "pieces are aligned");

static struct mica__chunk *add_chunk(struct mica__chunk **chunks, size_t bytes)
{
    const size_t last = *chunks == NULL ? FIRST_BYTES / 2 : (*chunks)->size;
    size_t size = last < LARGEST_BYTES / 2 ? last * 2 : LARGEST_BYTES, total;
    if (size < bytes)
        size = bytes;
    if (!mica__add_size(size, sizeof(struct mica__chunk), &total))
        return NULL;
    struct mica__chunk *chunk = mica__alloc(total);
    if (chunk == NULL)
        return NULL;
    *chunk = (struct mica__chunk){.next = *chunks, .size = size};
    *chunks = chunk;
    return chunk;
}

void *mica__chunks_alloc(struct mica__chunk **chunks, size_t bytes)
{
    struct mica__chunk *chunk = *chunks;
    size_t size;
    if (!mica__add_size(bytes, PIECE_ALIGN - 1, &size)) {
        mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for %zu bytes of a file's tables", bytes);
        return NULL;
    }
    size -= size % PIECE_ALIGN;
    if (chunk == NULL || size > chunk->size - chunk->used)
        chunk = add_chunk(chunks, size);
    if (chunk == NULL) {
        mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for %zu bytes of a file's tables", bytes);
        return NULL;
    }
    void *piece = (char *)(chunk + 1) + chunk->used;
    chunk->used += size;
    return piece;
}

void mica__chunks_free(struct mica__chunk **chunks)
{
    while (*chunks != NULL) {
        struct mica__chunk *chunk = *chunks;
        *chunks = chunk->next;
        mica__free(chunk);
    }
}

void mica__chunks_join(struct mica__chunk **to, struct mica__chunk **from)
{
    struct mica__chunk **end = to;
    while (*end != NULL)
        end = &(*end)->next;
    *end = *from;
    *from = NULL;
}

void *mica__archive_alloc(mica__archive *archive, size_t bytes)
{
    return mica__chunks_alloc(&archive->chunks, bytes);
}

char *mica__archive_text(mica__archive *archive, const void *bytes, size_t length)
{
    size_t size;
    char *text = mica__archive_alloc(archive, mica__add_size(length, 1, &size) ? size : SIZE_MAX);
    if (text == NULL)
        return NULL;
    if (length != 0)
        memcpy(text, bytes, length);
    text[length] = '\0';
    return text;
}
