/*
 * kernels.h - the kernels of one instruction set, declared from cpu_kernels.def.
 */
#ifndef MICA_CPU_KERNELS_H
#define MICA_CPU_KERNELS_H

#include "backend/cpu/cpu_kernel.h"

#define MICA__CPU_KERNEL(name) \
    void MICA__ISA(name)(const mica__cpu_args *args, uint32_t first, uint32_t last);
#define MICA__CPU_KERNEL_PREPARED(name) \
    MICA__CPU_KERNEL(name)              \
    void MICA__ISA(name##_prepare)(const mica__cpu_args *args);
#include "backend/cpu/cpu_kernels.def"
#undef MICA__CPU_KERNEL
#undef MICA__CPU_KERNEL_PREPARED

/* In the order of mica__cpu_kernel_id. */
extern const mica__cpu_kernel MICA__ISA(table)[MICA__CPU_KERNEL_COUNT];

#endif
