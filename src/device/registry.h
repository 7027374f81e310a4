/*
 * registry.h - op record -> kernel row -> plan with its kernels, found or compiled.
 *
 * Kernels of plans are known by file, entry and constants, programs by file and constants; both are made once, outside of any lock.
 * Threads: any.
 */
#ifndef MICA_DEVICE_REGISTRY_H
#define MICA_DEVICE_REGISTRY_H

#include "device/objects.h"
#include "device/once.h"
#include "device/registered.h"

struct mica__registry {
    mica_device *device;
    const mica__kernel_row *rows;
    uint32_t row_count;
    uint32_t first_row[MICA_OP_COUNT]; /* where to begin looking for an op */
    mica__once programs;               /* by "file|constants": mica__program */
    mica__once kernels;                /* of plans, by "file/entry|constants": mica__kernel */
    mica__registered registered;
    _Atomic uint64_t compilations, lookups;
    _Atomic bool compiles; /* a text was compiled here: there is a compiler */
};

mica_status mica__registry_create(mica_device *device, mica__registry **out);
void mica__registry_destroy(mica__registry *registry); /* NULL ok */
/* A program of kernel files, by "file|constants". */
mica_status mica__registry_program(mica__registry *registry, const char *key, mica__program **out);
/* A program was made. */
void mica__registry_count(mica__registry *registry);
/* Plans the record with the first row that serves it and finds its kernels, compiled where they must be. UNSUPPORTED
 * names op and types. */
mica_status mica__registry_plan(mica_device *device, const mica__record *record, mica__plan *plan);
/* The same without compiling. `sure`: not for a kernel that only a compiler makes, unless there is one; it is compiled where
 * that is not known yet. */
mica_status mica__registry_check(mica_device *device, const mica__record *record, bool sure,
                                 mica__plan *plan);
/* That row, whether its kernels can be had or not; NULL: none. */
const mica__kernel_row *mica__registry_row(mica_device *device, const mica__record *record);
/* The record's plan by that row, without kernels. */
mica_status mica__registry_plan_with(const mica__kernel_row *row, const mica__record *record,
                                     const mica__device_info *info, mica__plan *plan);

#endif
