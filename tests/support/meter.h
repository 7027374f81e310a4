/* meter.h - an allocator that counts what it is asked and refuses what a test wants refused. Any thread may ask. */
#ifndef SUPPORT_METER_H
#define SUPPORT_METER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "mica/host.h"

#define METER_POISON 4096u /* bytes of a block that are made unlike zero */

typedef struct test_meter {
    _Atomic uint64_t calls, live; /* asked for; blocks that are there */
    _Atomic uint64_t fail_at;     /* the call (from 1) that is refused; 0: none */
    atomic_bool for_good;         /* and so are all later ones */
} test_meter;

static inline void *test_meter_take(void *context, size_t size, size_t align)
{
    test_meter *m = context;
    const uint64_t call = atomic_fetch_add(&m->calls, 1) + 1, fail_at = atomic_load(&m->fail_at);
    void *memory = NULL;
    if (fail_at != 0 && (call == fail_at || (atomic_load(&m->for_good) && call > fail_at)))
        return NULL;
    if (posix_memalign(&memory, align < sizeof(void *) ? sizeof(void *) : align, size) != 0)
        return NULL;
    atomic_fetch_add(&m->live, 1);
    memset(memory, 0xa5, size < METER_POISON ? size : METER_POISON);
    return memory;
}

static inline void test_meter_give(void *context, void *pointer, size_t size)
{
    (void)size;
    atomic_fetch_sub(&((test_meter *)context)->live, 1);
    free(pointer);
}

/* All memory comes from the meter until mica_set_allocator(NULL). */
static inline mica_status test_meter_set(test_meter *meter)
{
    const mica_allocator allocator = {meter, test_meter_take, test_meter_give};
    return mica_set_allocator(&allocator);
}

/* Counts from 0 again: `more` calls succeed and none after them. UINT64_MAX: all do. */
static inline void test_meter_allow(test_meter *meter, uint64_t more)
{
    atomic_store(&meter->calls, 0);
    atomic_store(&meter->for_good, true);
    atomic_store(&meter->fail_at, more + 1);
}

#endif
