/* devices.h - every device that there is, for tests that run on each: the cpu has to be there, others where need.h says so. */
#ifndef TEST_DEVICES_H
#define TEST_DEVICES_H

#include "mica/mica.h"
#include "support/need.h"

enum { DEVICES = 3 };
static const char *const device_names[DEVICES] = {"cpu", "opencl", "cuda"};
static mica_device *devices[DEVICES];

/* Before and after a group of tests. */
static inline int open_devices(void **state)
{
    (void)state;
    for (int i = 0; i < DEVICES; i++)
        if (mica_device_open(device_names[i], NULL, &devices[i]) != MICA_OK &&
            (i == 0 || test_is_needed(device_names[i])))
            return -1;
    return 0;
}

static inline int close_devices(void **state)
{
    (void)state;
    for (int i = 0; i < DEVICES; i++)
        mica_device_release(devices[i]);
    return mica_host_bytes() == 0 ? 0 : -1;
}

#define SHAPE(...)  \
    (uint64_t[])    \
    {               \
        __VA_ARGS__ \
    }

#endif
