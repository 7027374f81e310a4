/* ceiling.h - what a device can do at most, measured the way its ops run: on its own threads, through the public API. */
#ifndef TOOL_BENCH_CEILING_H
#define TOOL_BENCH_CEILING_H

#include "mica/mica.h"

typedef struct tool_ceilings {
    double read_gbs; /* bytes read a second from memory larger than the caches, 1e9 */
    double gflops;   /* f32 multiply-adds from registers, two operations each, 1e9 a second */
} tool_ceilings;

/* Takes about a second. Fails where the device can run neither host kernels nor text (the null device). */
mica_status tool_ceilings_measure(mica_device *device, tool_ceilings *out);

#endif
