/* chunks.h - memory that is freed together: blocks cut into pieces (archive_memory.c). */
#ifndef MICA_FORMAT_CHUNKS_H
#define MICA_FORMAT_CHUNKS_H

#include <stddef.h>

struct mica__chunk;

/* A list of blocks that are freed together; starts as NULL. Memory of it is 16-byte aligned, not zeroed; NULL with the
 * status set if there is none. */
void *mica__chunks_alloc(struct mica__chunk **chunks, size_t bytes);
void mica__chunks_free(struct mica__chunk **chunks);
/* `from` becomes part of `to`, and empty. */
void mica__chunks_join(struct mica__chunk **to, struct mica__chunk **from);

#endif
