/*
 * kernel_cache.h - compiled kernels on disk, shared by all processes of a user.
 *
 * One file per entry in the folder of mica_cache_folder; entries appear whole or not at all. An entry holds all that it
 * depends on, and is taken only where that is the very same; a damaged one is as good as none and is removed. Code of
 * another user is never run: a folder or a file that someone else may have written is passed over. Any thread, any process.
 * Nothing here fails: without a usable folder there is no cache.
 */
#ifndef MICA_DEVICE_KERNEL_CACHE_H
#define MICA_DEVICE_KERNEL_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All that compiled code depends on: the device with its driver and the options of its compiler, and the whole text. */
typedef struct mica__kernel_key {
    const char *identity, *text;
} mica__kernel_key;

/* The bytes kept under that key, freed with mica__free; NULL if there are none. */
void *mica__kernel_cache_load(const mica__kernel_key *key, uint64_t *out_bytes);
/* Keeps them; `name` is for people who list the cache. The oldest entries go when the folder grows past its limit. */
void mica__kernel_cache_store(const mica__kernel_key *key, const char *name, const void *bytes,
                              uint64_t size);
/* The path of another file of the folder, which mica_cache_clear leaves; `make`: a folder that is not there is made. False: there is
 * no folder, or others may write there. */
bool mica__kernel_cache_path(const char *name, bool make, char *path, size_t capacity);

#endif
