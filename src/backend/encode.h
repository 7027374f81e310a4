/*
 * encode.h - what encodings of all backends share: the first failure, arrays that grow, a blob of small things. What every
 * dispatch passes through is inline where nothing fails or grows.
 *
 * Threads: all of it belongs to one encoding, and so to one thread at a time.
 */
#ifndef MICA_BACKEND_ENCODE_H
#define MICA_BACKEND_ENCODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mica/status.h"

/* The first failure of an encoding, until its end reports it. */
typedef struct mica__latch {
    mica_status status; /* MICA_OK: none; what the sentence holds then does not matter */
    char sentence[512];
} mica__latch;

/* Keeps the code and the thread's sentence, unless there is a failure already. False. */
bool mica__latch_failure(mica__latch *latch, mica_status status);
/* The same for what may be MICA_OK, which is true. */
static inline bool mica__latch_keep(mica__latch *latch, mica_status status)
{
    return status == MICA_OK || mica__latch_failure(latch, status);
}
/* The failure, with its sentence set again. */
mica_status mica__latch_report(const mica__latch *latch);

/* `array` moved to where more than `least` items of `size` bytes fit. NULL: no memory, latched, and `array` is as it was. */
void *mica__encode_grow(mica__latch *latch, void *array, uint64_t least, uint64_t *capacity, size_t size);
/* `array`, grown where `more` items do not fit behind `count`; there is one even for none. */
static inline void *mica__encode_reserve(mica__latch *latch, void *array, uint64_t count, uint64_t more,
                                         uint64_t *capacity, size_t size)
{
    return array != NULL && count + more <= *capacity
               ? array
               : mica__encode_grow(latch, array, count + more, capacity, size);
}

/* Bytes in one piece that grows and moves: whoever keeps something in it keeps its place. Place 0 is nothing's. */
typedef struct mica__blob {
    unsigned char *bytes;
    uint64_t used, capacity;
} mica__blob;

/* A fresh piece, 16-byte aligned, valid until the next one is taken. NULL: no memory, latched. */
static inline void *mica__blob_take(mica__blob *blob, mica__latch *latch, uint64_t bytes, uint64_t *out_place)
{
    const uint64_t place = blob->used == 0 ? 16 : (blob->used + 15) & ~(uint64_t)15;
    unsigned char *moved = mica__encode_reserve(latch, blob->bytes, place, bytes, &blob->capacity, 1);
    if (moved == NULL)
        return NULL;
    blob->bytes = moved;
    blob->used = place + bytes;
    *out_place = place;
    return moved + place;
}
/* The place of a copy of `text`; 0 for NULL and "", and where there is no memory, which is latched. */
uint64_t mica__blob_put_text(mica__blob *blob, mica__latch *latch, const char *text);
/* What put_text was given, "" for 0. Valid until the next piece is taken. */
const char *mica__blob_text(const mica__blob *blob, uint64_t place);

#endif
