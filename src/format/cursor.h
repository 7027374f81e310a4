/*
 * cursor.h - a walk over the bytes of a file that cannot pass its end.
 *
 * The cursor sees the file through a window of memory that it owns; the window moves along with it, or holds everything
 * from the start of the file up to some byte. Nothing is read from a map. Little endian unless `swap`.
 */
#ifndef MICA_FORMAT_CURSOR_H
#define MICA_FORMAT_CURSOR_H

#include <stdbool.h>

#include "base/file/file.h"

typedef struct mica__cursor {
    const mica__file *file;
    uint8_t *window; /* bytes [start, start + loaded) of the file */
    size_t loaded, capacity;
    uint64_t start;
    uint64_t at, end; /* where it is, and where it may not pass */
    bool swap;        /* numbers are big endian */
} mica__cursor;

/* At byte 0, up to `end` (at most the file's size), with a window of `capacity` bytes. */
mica_status mica__cursor_open(mica__cursor *out_cursor, const mica__file *file, uint64_t end,
                              size_t capacity);
/* Over the first `size` bytes of the file, which the caller has read into `window` and keeps. Not to be closed. */
mica__cursor mica__cursor_over(const mica__file *file, uint8_t *window, size_t size);
/* Frees the window; a zeroed cursor is fine. */
void mica__cursor_close(mica__cursor *cursor);

/* The next `size` bytes, at most the capacity; they stay where they are until the window moves. MALFORMED_FILE says
 * how many bytes there are. */
mica_status mica__cursor_take(mica__cursor *cursor, size_t size, uint8_t **out_bytes);
mica_status mica__cursor_skip(mica__cursor *cursor, uint64_t size);
/* A number of 1, 2, 4 or 8 bytes. */
mica_status mica__cursor_number(mica__cursor *cursor, uint32_t size, uint64_t *out_number);

static inline uint64_t mica__cursor_left(const mica__cursor *cursor)
{
    return cursor->end - cursor->at;
}

#endif
