/*
 * plan_cache.h - plans of records like those seen before.
 *
 * A plan follows from the device, the op, its parameters and what kind of operands it has: types, shapes, strides,
 * layouts, which are absent, which begin at a multiple of MICA__PLAN_ALIGNMENT bytes. Beyond that it never follows from where they
 * lie, so a decode pass, whose layers and steps repeat the same few records, is planned once. One thread at a time.
 */
#ifndef MICA_DEVICE_PLAN_CACHE_H
#define MICA_DEVICE_PLAN_CACHE_H

#include "device/registry.h"

#define MICA__PLAN_CACHE_SLOTS 256 /* power of two */
/* Bytes read at once: a plan may ask where between two multiples an operand begins. */
#define MICA__PLAN_ALIGNMENT 16u

typedef struct mica__cached_plan mica__cached_plan;

typedef struct mica__plan_cache {
    mica__cached_plan *slot[MICA__PLAN_CACHE_SLOTS];
    mica__plan fresh; /* the one being made; its `reusable` is said of all that follow */
    uint64_t *word;   /* of the key being looked for */
    uint32_t word_capacity;
} mica__plan_cache;

/* A plan in the cache, valid until the next one is asked for. */
typedef struct mica__planned {
    uint32_t dispatch_count;
    uint64_t scratch_bytes;
    const mica__plan_dispatch *dispatch;
    const mica__plan_binding *binding;
    const unsigned char *params;
} mica__planned;

/* Empty. */
void mica__plan_cache_init(mica__plan_cache *cache);
void mica__plan_cache_free(mica__plan_cache *cache);
/* Whether it has the record's plan. */
bool mica__plan_cache_has(mica__plan_cache *cache, const mica__record *record);
/* The record's plan, from the cache or from the registry. Having no memory to keep one is no failure. */
mica_status mica__plan_cache_get(mica__plan_cache *cache, mica_device *device, const mica__record *record,
                                 mica__planned *out);

#endif
