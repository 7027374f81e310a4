/*
 * registry.h - kernel name and specialisation -> compiled kernel; op record -> kernel row.
 */
#ifndef MICA_DEVICE_REGISTRY_H
#define MICA_DEVICE_REGISTRY_H

#include "device/objects.h"

struct mica_kernel {
    _Atomic uint32_t references;
    mica_device *device;    /* not counted for the registry's own entries: the device owns them */
    mica__program *program; /* NULL: built in */
    mica__kernel *kernel;
    char *key;
};

mica_status mica__registry_create(mica_device *device, mica__registry **out);
void mica__registry_destroy(mica__registry *registry); /* NULL ok */
/* Plans the record with the first row that serves it and finds its kernels, compiled where they must be. UNSUPPORTED
 * names op and types. */
mica_status mica__registry_plan(mica_device *device, const mica__record *record, mica__plan *plan);
/* The same without compiling. */
mica_status mica__registry_check(mica_device *device, const mica__record *record, mica__plan *plan);
/* That row, whether its kernels can be had or not; NULL: none. */
const mica__kernel_row *mica__registry_row(mica_device *device, const mica__record *record);

/* Compiles what the plans of many records ask for and nobody has asked for yet, side by side: compilers take long and use one
 * core. What cannot be had is left to mica__registry_plan, which says why. */
typedef struct mica__preparation mica__preparation;
mica__preparation *
mica__preparation_begin(mica_device *device); /* NULL: no memory, which costs time and no more */
void mica__preparation_add(mica__preparation *preparation, const mica__record *record);
/* Compiles, and frees it. NULL ok. */
void mica__preparation_end(mica__preparation *preparation);

#endif
