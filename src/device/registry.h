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

#endif
