/* backends.h - the list of backends. */
#ifndef MICA_DEVICE_BACKENDS_H
#define MICA_DEVICE_BACKENDS_H

#include "backend/backend.h"

/* The index-th backend, NULL past the end. The first with a device is what "auto" opens. */
const mica__backend *mica__backend_at(uint32_t index);

#endif
