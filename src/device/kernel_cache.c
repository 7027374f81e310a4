/* kernel_cache.c - compiled kernels on disk. */
#include "device/kernel_cache.h"

#include <stddef.h>

void *mica__kernel_cache_load(mica__hash128 key, uint64_t *out_bytes)
{
    (void)key;
    *out_bytes = 0;
    return NULL;
}

void mica__kernel_cache_store(mica__hash128 key, const char *name, const void *bytes, uint64_t size)
{
    (void)key;
    (void)name;
    (void)bytes;
    (void)size;
}
