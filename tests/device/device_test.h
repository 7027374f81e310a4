/*
 * device_test.h - what the tests of the device layer share: cmocka, devices and buffers in a line, and a check that
 * nothing of the library's memory outlives a test.
 */
#ifndef TEST_DEVICE_TEST_H
#define TEST_DEVICE_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "mica/mica.h"
#include "support/status.h"

static inline mica_device *open_device(const char *id, uint32_t threads)
{
    mica_device *device = NULL;
    mica_device_options options = {.size = sizeof options, .threads = threads};
    must(mica_device_open(id, &options, &device));
    assert_non_null(device);
    return device;
}

/* A zeroed one-dimensional buffer. */
static inline mica_buffer *new_vector(mica_device *device, mica_dtype dtype, uint64_t count)
{
    mica_buffer *buffer = NULL;
    must(mica_buffer_alloc(device, dtype, 1, &count, &buffer));
    return buffer;
}

static inline mica_kernel *host_kernel(mica_device *device, const char *name, mica_host_kernel function)
{
    mica_kernel *kernel = NULL;
    mica_kernel_desc desc = {.name = name, .host = function};
    must(mica_kernel_register(device, &desc));
    must(mica_kernel_get(device, name, NULL, 0, &kernel));
    return kernel;
}

/* cmocka teardown: every handle was released, so no block may be left. */
static inline int nothing_left(void **state)
{
    (void)state;
    if (mica_host_allocations() == 0)
        return 0;
    print_error("%llu blocks of the library are left\n", (unsigned long long)mica_host_allocations());
    return -1;
}

#define test(function) cmocka_unit_test_teardown(function, nothing_left)

#endif
