/* nodes.c: the device files through which GPUs are reached. */
#include "base/nodes.h"

#include <stddef.h>

#if defined(__linux__)
#include <unistd.h>

static const char *const nodes[] = {
    "/dev/dri/renderD128", /* most drivers of the kernel */
    "/dev/nvidiactl",      "/dev/kfd",   "/dev/dxg",         "/dev/mali0",
    "/dev/kgsl-3d0",       "/dev/nvmap", "/dev/nvhost-ctrl",
};

bool mica__gpu_possible(void)
{
    for (size_t i = 0; i < sizeof nodes / sizeof nodes[0]; i++)
        if (access(nodes[i], F_OK) == 0)
            return true;
    return false;
}
#else
bool mica__gpu_possible(void)
{
    return true;
}
#endif
