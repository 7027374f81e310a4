/* alloc.h: the one way to host memory. Every block goes through the hook of mica/host.h and is counted.
 *
 * The hook can only be changed while nothing is live, so nothing may keep a block for the life of the
 * process: what lasts that long is static storage. Thread-safe. None of these sets a sentence; the caller
 * knows what it was for. */
#ifndef MICA_BASE_ALLOC_H
#define MICA_BASE_ALLOC_H

#include <stddef.h>

/* Alignment of every block: a cache line, and the widest vector register. */
#define MICA__ALLOC_ALIGN 64

/* A block of `size` bytes (0 counts as 1), contents undefined, 64-byte aligned. NULL when there is none. */
void *mica__alloc(size_t size);

/* A zeroed block of count * size bytes; NULL when there is none or the product overflows. */
void *mica__calloc(size_t count, size_t size);

/* Resizes a block (NULL: a new one), keeping the first min(old, new) bytes. On NULL the old block is
 * intact. */
void *mica__realloc(void *pointer, size_t new_size);

/* Gives a block back; NULL is fine. */
void mica__free(void *pointer);

/* A copy of a NUL-terminated text, to be freed with mica__free; NULL when there is no memory. */
char *mica__strdup(const char *text);

#endif
