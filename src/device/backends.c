/* backends.c - the only file that names all backends. Order is the order of "auto". */
#include "device/backends.h"

#include "backend/null/null.h"
#include "base/status.h"
#include "device/objects.h"

static const mica__backend *const list[] = {&mica__backend_cuda, &mica__backend_opencl, &mica__backend_cpu,
                                            &mica__backend_null};

const mica__backend *mica__backend_at(uint32_t index)
{
    return index < sizeof list / sizeof list[0] ? list[index] : NULL;
}

mica_status mica_null_inject(mica_device *device, const mica_null_faults *faults)
{
    if (device == NULL || faults == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "null_inject: %s is NULL",
                          device == NULL ? "device" : "faults");
    if (device->backend != &mica__backend_null)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "null_inject: device is %s", device->info.properties.id);
    return mica__null_inject(device->impl, faults);
}
