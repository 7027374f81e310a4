/* custom.h - the parameters of a CUSTOM record: a user's kernel and its grid. */
#ifndef MICA_DEVICE_CUSTOM_H
#define MICA_DEVICE_CUSTOM_H

#include "device/objects.h"

typedef struct mica__custom {
    mica_kernel *kernel;
    uint32_t groups[3], local[3];
    uint32_t params_size; /* bytes behind this struct */
    uint32_t pad;
} mica__custom;

#define MICA__CUSTOM_BINDINGS 24
#define MICA__CUSTOM_PARAM_BYTES 1024 /* what every backend takes */

void mica__custom_hold(mica__custom *custom);
void mica__custom_drop(mica__custom *custom);

#endif
