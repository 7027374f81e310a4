/* places.h - elements of 1, 2, 4 or 8 bytes from place to place, whatever they are. Strides are in bytes and may be below 0. */
#ifndef MICA_CPU_PLACES_H
#define MICA_CPU_PLACES_H

#include <stdint.h>
#include <string.h>

static inline uint32_t id_at(const unsigned char *ids)
{
    uint32_t id;
    memcpy(&id, ids, sizeof id);
    return id; /* one below 0 is above every size */
}

/* The size is a constant in each call of this, so that an element is one load and one store. */
static inline void move_each(unsigned char *to, int64_t to_stride, const unsigned char *from,
                             int64_t from_stride, size_t bytes, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        memcpy(to + (int64_t)i * to_stride, from + (int64_t)i * from_stride, bytes);
}

static inline void move_places(unsigned char *to, int64_t to_stride, const unsigned char *from,
                               int64_t from_stride, uint32_t bytes, uint64_t n)
{
    if (to_stride == (int64_t)bytes && from_stride == (int64_t)bytes && n > 1)
        memcpy(to, from, n * bytes);
    else if (bytes == 1)
        move_each(to, to_stride, from, from_stride, 1, n);
    else if (bytes == 2)
        move_each(to, to_stride, from, from_stride, 2, n);
    else if (bytes == 4)
        move_each(to, to_stride, from, from_stride, 4, n);
    else
        move_each(to, to_stride, from, from_stride, 8, n);
}

#define LINE 64 /* bytes of a cache line */

/* n bytes; meanwhile the lines of as many bytes at `next` come, wherever that is. */
static inline void move_ahead(unsigned char *to, const unsigned char *from, uint64_t n,
                              const unsigned char *next)
{
    uint64_t i = 0;
    for (; i + LINE <= n; i += LINE) {
        __builtin_prefetch(next + i);
        memcpy(to + i, from + i, LINE);
    }
    if (i == n)
        return;
    __builtin_prefetch(next + i);
    __builtin_prefetch(next + n - 1);
    for (; i + 16 <= n; i += 16)
        memcpy(to + i, from + i, 16);
    if ((n & 8) != 0)
        memcpy(to + i, from + i, 8);
    if ((n & 4) != 0)
        memcpy(to + i + (n & 8), from + i + (n & 8), 4);
    if ((n & 2) != 0)
        memcpy(to + n - 2 - (n & 1), from + n - 2 - (n & 1), 2);
    if ((n & 1) != 0)
        to[n - 1] = from[n - 1];
}

static inline void fill_places(unsigned char *to, int64_t stride, uint64_t bits, uint32_t bytes, uint64_t n)
{
    unsigned char element[8];
    memcpy(element, &bits, sizeof bits); /* its low bytes come first */
    if (bits == 0 && stride == (int64_t)bytes)
        memset(to, 0, n * bytes);
    else
        move_places(to, stride, element, 0, bytes, n);
}

#endif
