/*
 * kernel_cache.h - compiled kernels on disk, shared by all processes of a user.
 *
 * One file per entry in the folder of mica__kernel_cache_folder; entries appear whole or not at all. The key says all that
 * an entry depends on; a damaged entry is as good as none and is removed. Any thread, any process. Nothing here fails:
 * without a usable folder there is no cache.
 */
#ifndef MICA_DEVICE_KERNEL_CACHE_H
#define MICA_DEVICE_KERNEL_CACHE_H

#include <stdint.h>

#include "base/hash.h"

/* The bytes kept under that key, freed with mica__free; NULL if there are none. */
void *mica__kernel_cache_load(mica__hash128 key, uint64_t *out_bytes);
/* Keeps them; `name` is for people who list the cache. The oldest entries go when the folder grows past its limit. */
void mica__kernel_cache_store(mica__hash128 key, const char *name, const void *bytes, uint64_t size);

#endif
