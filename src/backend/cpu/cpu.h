/*
 * cpu.h - the objects of the cpu backend, shared by its files. Nobody else includes this.
 */
#ifndef MICA_CPU_H
#define MICA_CPU_H

#include "backend/cpu/cpu_team.h"
#include "backend/encode.h"
#include "backend/spares.h"
#include "backend/times.h"

/* Of one list: keeps step tags of 64 pending lists in half their range. */
#define MICA__CPU_MAX_DISPATCHES (1u << 24)
#define MICA__CPU_MAX_LOCAL (64u << 20) /* bytes of per-thread memory that a dispatch may want */
#define MICA__CPU_RESULTS 64u           /* completions kept per queue */

struct mica__program {
    mica__kernel kernel; /* its name follows the struct */
};

struct mica__queue {
    uint64_t submitted; /* guarded by the team's lock, like `result` */
    _Atomic uint64_t done;
    struct {
        uint64_t value;
        mica__completion completion;
    } result[MICA__CPU_RESULTS]; /* value % MICA__CPU_RESULTS */
};

/* A list being written; part of the commands that it becomes. */
struct mica__encoding {
    mica__device *device;
    mica__commands *commands;
    mica__latch latch;
};

/* The arrays keep their capacity when the object is used again. */
struct mica__commands {
    _Atomic uint32_t references; /* its owner's, and one per submission of it */
    bool reusable;
    uint32_t local_bytes; /* the most that any dispatch wants */
    mica__cpu_dispatch *dispatch;
    uint32_t *step_end;
    uint32_t dispatch_count, step_count;
    uint64_t capacity;
    mica__blob blob; /* bindings, params and labels */
    mica__encoding encoding;
};

struct mica__device {
    mica__cpu_team team;
    uint32_t isa;
    mica__kernel kernel[MICA__CPU_KERNEL_COUNT];
    mica__queue queue; /* queue 0 */
    _Atomic uint32_t generation;
    mica__spares spares;
    pthread_mutex_t lock; /* guards what follows; may be taken inside the team's */
    mica__fork_guard guard;
    _Atomic(mica__cpu_local *) local;
    mica__times times;
};

/* ---- cpu_isa.c ---- */

/* The instruction set named, or for "" the one of MICA_CPU_ISA, or the best. UNSUPPORTED names what is missing. */
mica_status mica__cpu_isa_choose(const char *name, uint32_t *out_isa);
const char *mica__cpu_isa_name(uint32_t isa);
const mica__cpu_kernel *mica__cpu_isa_table(uint32_t isa);

/* ---- cpu_plan_matmul.c ---- */

mica_layout mica__cpu_weight_layout(const mica__operand *weight, const mica__device_info *info);
bool mica__cpu_outputs_inner(const mica__operand *weight, uint32_t groups, const mica__device_info *info);

/* ---- cpu_memory.c ---- */

void mica__cpu_memory_amount(mica__device *device, uint64_t *out_free, uint64_t *out_total);
mica_status mica__cpu_buffer_create(mica__device *device, uint64_t bytes, mica__memory **out);
mica_status mica__cpu_buffer_import(mica__device *device, void *pointer, uint64_t bytes, mica__memory **out);
void mica__cpu_buffer_destroy(mica__device *device, mica__memory *memory);
mica_status mica__cpu_buffer_map(mica__device *device, mica__memory *memory, void **out);
void mica__cpu_buffer_unmap(mica__device *device, mica__memory *memory);
mica_status mica__cpu_upload(mica__device *device, mica__memory *memory, uint64_t offset, const void *from,
                             uint64_t bytes);
mica_status mica__cpu_download(mica__device *device, mica__memory *memory, uint64_t offset, void *to,
                               uint64_t bytes);
/* Per-thread memory of at least `bytes` a slot is there from now on. */
mica_status mica__cpu_local_reserve(mica__device *device, uint32_t bytes);

/* ---- cpu_commands.c ---- */

mica_status mica__cpu_encoder_begin(mica__device *device, uint32_t flags, mica__encoding **out);
void mica__cpu_dispatch_add(mica__encoding *encoding, const mica__dispatch *dispatch);
void mica__cpu_barrier(mica__encoding *encoding);
mica_status mica__cpu_encoder_end(mica__encoding *encoding, bool discard, mica__commands **out);
mica_status mica__cpu_commands_update(mica__commands *commands, uint32_t dispatch, uint32_t binding,
                                      const mica__binding *to);
void mica__cpu_commands_destroy(mica__device *device, mica__commands *commands);
/* Gives a reference back; the device is awake. */
void mica__cpu_commands_unref(mica__device *device, mica__commands *commands);
/* Frees what is kept for use again. */
void mica__cpu_commands_forget(mica__device *device);

/* ---- cpu_queue.c ---- */

extern const mica__cpu_hooks mica__cpu_queue_hooks;
/* First thing of every call that may meet threads: in a child after fork the device gets a new team. */
mica_status mica__cpu_device_awake(mica__device *device);
mica_status mica__cpu_submit(mica__device *device, mica__queue *queue, mica__commands *commands,
                             uint64_t *out_value);
mica_status mica__cpu_wait(mica__device *device, mica__queue *queue, uint64_t value, uint64_t timeout_ns,
                           mica__completion *out);
mica_status mica__cpu_cancel(mica__device *device, mica__queue *queue, uint64_t value);
mica_status mica__cpu_queue_create(mica__device *device, mica__queue **out);
void mica__cpu_queue_destroy(mica__device *device, mica__queue *queue);
mica_status mica__cpu_queue_order(mica__device *device, mica__queue *queue, mica__queue *after,
                                  uint64_t value);
mica_status mica__cpu_timestamps(mica__device *device, bool enable, mica__profile *out);

#endif
