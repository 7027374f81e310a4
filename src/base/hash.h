/* hash.h: hashes of bytes for tables and cache keys. Not cryptographic.
 *
 * A table whose keys come from a file or a network must give a seed that its author cannot know. Values
 * depend on the machine's byte order: they may name files in a cache of this machine, never be part of a
 * format. */
#ifndef MICA_BASE_HASH_H
#define MICA_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

typedef struct mica__hash128 {
    uint64_t low, high;
} mica__hash128;

/* 64 bits of `size` bytes; `data` may be NULL when size is 0. */
uint64_t mica__hash_bytes(const void *data, size_t size, uint64_t seed);

/* 128 bits. Start with a zero seed; give the last result as seed to add a further part. The length of each
 * part is in the hash, so ("ab", "c") and ("a", "bc") differ. */
mica__hash128 mica__hash_key(const void *data, size_t size, mica__hash128 seed);

/* A seed that differs from run to run and call to call. */
uint64_t mica__hash_seed(void);

#endif
