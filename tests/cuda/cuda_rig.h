/* cuda_rig.h - the CUDA backend over the stand-in of its driver, for tests of its own table. */
#ifndef CUDA_RIG_H
#define CUDA_RIG_H

#include <stdlib.h>

#include "support/status.h"
#include "support/table.h"

#include "backend/backend.h"
#include "fake_cuda/fake_cuda.h"
#include "mica/host.h"

#define RIG_FOREVER UINT64_MAX

typedef struct rig {
    mica__device *device;
    const mica__backend_table *table;
    mica__program *program;
    mica__kernel *add, *fault, *bare, *far;
} rig;

typedef struct add_params {
    uint64_t count;
} add_params;

/* Kernels that the stand-in knows how to run. */
static const char rig_text[] = "MK_KERNEL(fake_add)\nMK_KERNEL(fake_fault)\nMK_KERNEL(fake_bare)\n"
                               "MK_KERNEL(fake_far)\n";

static inline mica_status rig_open_index(rig *r, uint32_t index)
{
    const mica__program_desc desc = {.name = "rig", .text = rig_text, .foreign = true};
    memset(r, 0, sizeof *r);
    mica_status status = mica__backend_cuda.open(index, NULL, &r->device, &r->table);
    if (status == MICA_OK)
        status = r->table->program_create(r->device, &desc, &r->program);
    if (status == MICA_OK)
        status = r->table->kernel_get(r->device, r->program, "fake_add", &r->add);
    if (status == MICA_OK)
        status = r->table->kernel_get(r->device, r->program, "fake_fault", &r->fault);
    if (status == MICA_OK)
        status = r->table->kernel_get(r->device, r->program, "fake_bare", &r->bare);
    if (status == MICA_OK)
        status = r->table->kernel_get(r->device, r->program, "fake_far", &r->far);
    return status;
}

static inline void rig_close(rig *r)
{
    if (r->program != NULL)
        r->table->program_destroy(r->device, r->program);
    if (r->table != NULL)
        r->table->close(r->device);
    memset(r, 0, sizeof *r);
}

/* Nothing is left, and nothing was wrong on the way. */
static inline void rig_check_clean(void)
{
    assert_string_equal(fake_complaint(), "");
    assert_int_equal(fake_live(), 0);
    assert_int_equal(mica_host_allocations(), 0);
}

static inline mica__binding rig_whole(mica__memory *memory, uint32_t access)
{
    return (mica__binding){memory, 0, memory->bytes, access};
}

/* y = a + b over f32, waiting for the dispatches named. `access` is b's. */
static inline void rig_add_as(rig *r, mica__encoding *encoding, mica__memory *a, mica__memory *b,
                              uint32_t access, mica__memory *y, const uint32_t *dependencies,
                              uint32_t dependency_count)
{
    const mica__binding bindings[3] = {rig_whole(a, MICA_ACCESS_READ), rig_whole(b, access),
                                       rig_whole(y, MICA_ACCESS_WRITE)};
    const add_params params = {y->bytes / 4};
    const mica__dispatch dispatch = {.kernel = r->add,
                                     .groups = {1, 1, 1},
                                     .local = {256, 1, 1},
                                     .bindings = bindings,
                                     .binding_count = 3,
                                     .params = &params,
                                     .params_size = sizeof params,
                                     .dependencies = dependencies,
                                     .dependency_count = dependency_count,
                                     .op = MICA_OP_REGION};
    r->table->dispatch(encoding, &dispatch);
}

static inline void rig_add(rig *r, mica__encoding *encoding, mica__memory *a, mica__memory *b,
                           mica__memory *y, const uint32_t *dependencies, uint32_t dependency_count)
{
    rig_add_as(r, encoding, a, b, MICA_ACCESS_READ, y, dependencies, dependency_count);
}

/* Sets the fault word to `code` when it runs; its first operand is absent. */
static inline void rig_fault(rig *r, mica__encoding *encoding, uint32_t code)
{
    const mica__binding bindings[2] = {{NULL, 0, 0, 0}, {NULL, 0, 4, MICA__BIND_FAULT}};
    const mica__dispatch dispatch = {.kernel = r->fault,
                                     .groups = {1, 1, 1},
                                     .local = {32, 1, 1},
                                     .bindings = bindings,
                                     .binding_count = 2,
                                     .params = &code,
                                     .params_size = sizeof code,
                                     .op = MICA_OP_EMBEDDING};
    r->table->dispatch(encoding, &dispatch);
}

static inline rig rig_opened(void)
{
    rig r;
    fake_reset();
    must(rig_open_index(&r, 0));
    return r;
}

static inline void rig_closed(rig *r)
{
    rig_close(r);
    rig_check_clean();
}

static inline mica__memory *rig_memory(rig *r, const float *values, uint64_t count)
{
    mica__memory *memory = NULL;
    must(r->table->buffer_create(r->device, count * sizeof *values, &memory));
    if (values != NULL)
        must(r->table->upload(r->device, memory, 0, values, count * sizeof *values));
    return memory;
}

static inline mica__encoding *rig_begin(rig *r, uint32_t flags)
{
    mica__encoding *encoding = NULL;
    must(r->table->encoder_begin(r->device, flags, &encoding));
    return encoding;
}

static inline mica__commands *rig_end(rig *r, mica__encoding *encoding)
{
    mica__commands *commands = NULL;
    must(r->table->encoder_end(encoding, false, &commands));
    return commands;
}

/* Submits to the first queue and waits. */
static inline mica__completion rig_run(rig *r, mica__commands *commands)
{
    mica__completion done;
    uint64_t value = 0;
    must(r->table->submit(r->device, NULL, commands, &value));
    must(r->table->wait(r->device, NULL, value, RIG_FOREVER, &done));
    assert_int_equal(done.status, MICA_OK);
    return done;
}

#endif
