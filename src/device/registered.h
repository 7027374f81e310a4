/*
 * registered.h - kernels that users register, by name and constants.
 *
 * A name stands for its last registration. What was compiled of one belongs to it: handles given out keep their kernels, and a
 * registration that was replaced goes when nobody compiles it any more.
 */
#ifndef MICA_DEVICE_REGISTERED_H
#define MICA_DEVICE_REGISTERED_H

#include "device/objects.h"
#include "device/once.h"

struct mica_kernel {
    _Atomic uint32_t references;
    mica_device *device;    /* not counted for the registry's own entries: the device owns them */
    mica__program *program; /* NULL: built in */
    mica__kernel *kernel;
    char *key;
};

typedef struct mica__registered {
    mica__once names;     /* what a name stands for */
    pthread_mutex_t lock; /* guards which registration that is */
    mica__fork_guard guard;
} mica__registered;

mica_status mica__registered_init(mica__registered *registered);
void mica__registered_free(mica__registered *registered);
/* How many names there are, and how many kernels were compiled of them. */
void mica__registered_stats(mica__registered *registered, uint64_t *out_names, uint64_t *out_compiled);

#endif
