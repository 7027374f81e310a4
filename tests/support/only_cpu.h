/* only_cpu.h - the cpu device of tests that look at nothing else: open_cpu and close_cpu are a group's setup and teardown. */
#ifndef TEST_ONLY_CPU_H
#define TEST_ONLY_CPU_H

#include "mica/mica.h"

static mica_device *cpu;

static inline int open_cpu(void **state)
{
    (void)state;
    return mica_device_open("cpu", NULL, &cpu) == MICA_OK ? 0 : -1;
}

/* Nothing of the library is left. */
static inline int close_cpu(void **state)
{
    (void)state;
    mica_device_release(cpu);
    return mica_host_bytes() == 0 ? 0 : -1;
}

#endif
