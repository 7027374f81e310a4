/*
 * device_test.h - what the tests of the device layer share: cmocka, two asserts about statuses, and a check that
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

#define must(call) must_at((call), #call, __FILE__, __LINE__)
#define refused(call, code, word) refused_at((call), (code), (word), #call, __FILE__, __LINE__)

static inline void must_at(mica_status status, const char *call, const char *file, int line)
{
    if (status == MICA_OK)
        return;
    print_error("%s gave %s: %s\n", call, mica_status_name(status), mica_status_message());
    _fail(file, line);
}

/* The call fails with this code, and its sentence contains `word` (the argument's name, or what was found). */
static inline void refused_at(mica_status status, mica_status code, const char *word, const char *call,
                              const char *file, int line)
{
    if (status == code && strstr(mica_status_message(), word) != NULL)
        return;
    print_error("%s gave %s (\"%s\"), wanted %s naming \"%s\"\n", call, mica_status_name(status),
                mica_status_message(), mica_status_name(code), word);
    _fail(file, line);
}

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
