/* buffer.h: growing text and growing lists of spans, for one call of an encoder or one loader.
 *
 * A failure is kept: what is added after it goes nowhere, and whoever uses the result looks at `failed` once. */
#ifndef MICA_TEXT_TOKENIZER_BUFFER_H
#define MICA_TEXT_TOKENIZER_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/alloc.h"
#include "base/status.h"
#include "base/work.h"

/* Positions in a text are 32 bits wide. */
#define MICA__TEXT_LIMIT ((size_t)1 << 31)

/* Bytes that are written between two looks at the limits of work. */
#define MICA__TEXT_PIECE ((size_t)1 << 16)

typedef struct mica__bytes {
    char *data;
    size_t size, room;
    size_t edge;        /* up to here nothing need be asked: the least of room, limit and `asked` */
    size_t limit;       /* of the size; 0 = MICA__TEXT_LIMIT */
    size_t asked;       /* bytes that are spent already */
    bool failed;        /* no memory, past the limit, or stopped */
    bool full;          /* past the limit */
    mica_status status; /* of the work that was spent */
} mica__bytes;

typedef struct mica__span {
    uint32_t start, end;
} mica__span;

typedef struct mica__spans {
    mica__span *data;
    size_t count, room;
    bool failed;
} mica__spans;

/* Moves the edge so that `more` bytes fit; false if that may not be. */
bool mica__bytes_reach(mica__bytes *bytes, size_t more);

/* Room for `more` bytes after the end, NULL if there is none; the caller adds to `size` what it wrote. */
static inline char *mica__bytes_grow(mica__bytes *bytes, size_t more)
{
    if (more >= bytes->edge || bytes->size > bytes->edge - more)
        return mica__bytes_reach(bytes, more) ? bytes->data + bytes->size : NULL;
    return bytes->data + bytes->size;
}

static inline void mica__bytes_add(mica__bytes *bytes, const char *text, size_t length)
{
    char *end = mica__bytes_grow(bytes, length);
    if (end == NULL || length == 0)
        return;
    memcpy(end, text, length);
    bytes->size += length;
}

/* An empty text again, which may grow to a bound for what the steps of a tokenizer make of `length` bytes: the longest
 * normal form has 11 times its bytes, and a blank 3; a file may ask for much more. */
static inline void mica__bytes_restart(mica__bytes *bytes, size_t length)
{
    bytes->size = bytes->asked = bytes->edge = 0;
    bytes->limit = length * 32 + 65536;
}

/* The status of a text that failed. */
static inline mica_status mica__bytes_fail(const mica__bytes *bytes)
{
    if (bytes->status != MICA_OK)
        return bytes->status;
    return bytes->full
               ? mica__fail(MICA_ERR_BUDGET, "the steps of the tokenizer make a text longer than %zu bytes",
                            bytes->limit)
               : mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for a text of a tokenizer");
}

static inline void mica__spans_add(mica__spans *spans, size_t start, size_t end)
{
    if (start >= end || spans->failed)
        return;
    if (spans->count == spans->room) {
        const size_t room = spans->room * 2 + 64;
        mica__span *data = mica__realloc(spans->data, room * sizeof *data);
        if (data == NULL) {
            spans->failed = true;
            return;
        }
        spans->data = data;
        spans->room = room;
    }
    spans->data[spans->count++] = (mica__span){(uint32_t)start, (uint32_t)end};
}

#endif
