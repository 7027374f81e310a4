/*
 * cpu_kernel.h - what a cpu kernel gets and how it is named.
 *
 * Every file in kernels/ is compiled once per instruction set with MICA_ISA set to its name; its functions
 * carry that name as a suffix (MICA__ISA(rms_norm) is rms_norm__avx2). A plan names a kernel of
 * cpu_kernels.def; the device's instruction set decides which compiled form runs.
 *
 * The order in which the terms of one output element are added depends on the op, the types and the
 * instruction set alone: never on threads, ranges or other rows.
 */
#ifndef MICA_CPU_KERNEL_H
#define MICA_CPU_KERNEL_H

#include <stdatomic.h>
#include <stdint.h>

#include "backend/record.h"

#define MICA__ISA_JOIN2(name, isa) mica__cpu_##name##__##isa
#define MICA__ISA_JOIN(name, isa) MICA__ISA_JOIN2(name, isa)
#define MICA__ISA(name) MICA__ISA_JOIN(name, MICA_ISA)

/* One binding of a dispatch. `data` is the first byte of the view. Absent operands: data NULL. */
typedef struct mica__cpu_view {
    unsigned char *data;
    uint64_t shape[MICA_MAX_DIMS], stride[MICA_MAX_DIMS]; /* stride in bytes */
    uint64_t length;                                      /* bytes of the hull */
    uint16_t dtype;
    uint8_t ndim, layout;
    uint32_t group_size;
} mica__cpu_view;

/* The arguments of one dispatch, shared read-only by all threads, except `local`, which is the thread's own. */
typedef struct mica__cpu_args {
    const mica__cpu_view *view; /* one per binding, in the plan's order */
    uint32_t view_count;
    const void *params; /* what the plan put behind the views */
    void *local;        /* local_bytes of per-thread memory, 64-byte aligned */
    _Atomic uint32_t *fault;
    uint32_t fault_code; /* store this into *fault when an index is out of range */
} mica__cpu_args;

/* Works on units [first, last) of the dispatch. */
typedef void (*mica__cpu_run)(const mica__cpu_args *args, uint32_t first, uint32_t last);
/* Runs once per thread and dispatch before its first unit there; leaves its result in `local` for run. */
typedef void (*mica__cpu_prepare)(const mica__cpu_args *args);

typedef struct mica__cpu_kernel {
    const char *name;
    mica__cpu_run run;
    mica__cpu_prepare prepare; /* may be NULL */
} mica__cpu_kernel;

typedef enum mica__cpu_kernel_id {
#define MICA__CPU_KERNEL(name) MICA__CPU_KERNEL_##name,
#define MICA__CPU_KERNEL_PREPARED(name) MICA__CPU_KERNEL_##name,
#include "backend/cpu/cpu_kernels.def"
#undef MICA__CPU_KERNEL
#undef MICA__CPU_KERNEL_PREPARED
    MICA__CPU_KERNEL_COUNT
} mica__cpu_kernel_id;

/* Marks a bad index; the fence reports it. */
static inline void mica__cpu_fault(const mica__cpu_args *args)
{
    atomic_store_explicit(args->fault, args->fault_code, memory_order_relaxed);
}

#endif
