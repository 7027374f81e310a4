/* table.c - the kernels of one instruction set by name: what a device looks a plan's kernel up in. */
#include "backend/cpu/kernels/kernels.h"

const mica__cpu_kernel MICA__ISA(table)[MICA__CPU_KERNEL_COUNT] = {
#define MICA__CPU_KERNEL(name) {#name, MICA__ISA(name), NULL},
#define MICA__CPU_KERNEL_PREPARED(name) {#name, MICA__ISA(name), MICA__ISA(name##_prepare)},
#include "backend/cpu/cpu_kernels.def"
#undef MICA__CPU_KERNEL
#undef MICA__CPU_KERNEL_PREPARED
};
