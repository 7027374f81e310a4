/* cpu_rig.h: a cpu device without any op, for the tests of its team and of its table. */
#ifndef MICA_TESTS_CPU_RIG_H
#define MICA_TESTS_CPU_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu_team.h"
#include "mica/host.h"

typedef struct rig {
    mica__device *device;
    const mica__backend_table *table;
    const char *label; /* of the dispatches that are added; NULL: none */
} rig;

static inline rig open_rig(uint32_t threads)
{
    mica_device_options options = {0};
    rig r = {0};
    options.threads = threads;
    assert_int_equal(mica__backend_cpu.open(0, &options, &r.device, &r.table), MICA_OK);
    return r;
}

static inline void close_rig(rig *r)
{
    r->table->close(r->device);
    assert_int_equal(mica_host_allocations(), 0);
}

static inline mica__encoding *begin(rig *r, uint32_t flags)
{
    mica__encoding *encoding;
    assert_int_equal(r->table->encoder_begin(r->device, flags, &encoding), MICA_OK);
    return encoding;
}

static inline mica__commands *end(rig *r, mica__encoding *encoding)
{
    mica__commands *commands;
    assert_int_equal(r->table->encoder_end(encoding, false, &commands), MICA_OK);
    assert_non_null(commands);
    return commands;
}

static inline uint64_t submit(rig *r, mica__queue *queue, mica__commands *commands)
{
    uint64_t value = 0;
    assert_int_equal(r->table->submit(r->device, queue, commands, &value), MICA_OK);
    return value;
}

static inline mica__completion wait_for(rig *r, mica__queue *queue, uint64_t value)
{
    mica__completion completion;
    assert_int_equal(r->table->wait(r->device, queue, value, MICA_WAIT_FOREVER, &completion), MICA_OK);
    return completion;
}

static inline mica__kernel host_kernel(const char *name, mica_host_kernel function)
{
    return (mica__kernel){name, NULL, NULL, function};
}

static inline void add(rig *r, mica__encoding *encoding, mica__kernel *kernel, uint32_t units, uint32_t grain,
                       const void *params, uint32_t params_size)
{
    mica__dispatch dispatch = {0};
    dispatch.kernel = kernel;
    dispatch.groups[0] = units;
    dispatch.groups[1] = dispatch.groups[2] = 1;
    dispatch.grain = grain;
    dispatch.params = params;
    dispatch.params_size = params_size;
    dispatch.op = MICA_OP_CUSTOM;
    dispatch.label = r->label;
    r->table->dispatch(encoding, &dispatch);
}

static inline void count_units(const mica_host_binding *bindings, uint32_t binding_count, const void *params,
                               uint32_t first, uint32_t last)
{
    _Atomic uint64_t *counter;
    (void)bindings;
    (void)binding_count;
    memcpy(&counter, params, sizeof counter);
    atomic_fetch_add(counter, last - first);
}

static inline void add_count(rig *r, mica__encoding *encoding, mica__kernel *kernel, uint32_t units,
                             _Atomic uint64_t *counter)
{
    add(r, encoding, kernel, units, 1, &counter, sizeof counter);
}

#endif
