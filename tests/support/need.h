/*
 * need.h - for tests of devices that a machine may lack. MICA_TEST_NEEDS lists the backends that must be there, as
 * 'make test' (opencl) and 'make test-gpu' (cuda) do: then a device that is missing is a failure. Elsewhere the test is
 * skipped, and says why.
 */
#ifndef TEST_SUPPORT_NEED_H
#define TEST_SUPPORT_NEED_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mica/device.h"

#define TEST_SKIPPED 77 /* the exit status that CTest is told means so */

/* Whether the backend of `id` is one that must be there. */
static inline int test_is_needed(const char *id)
{
    const char *needs = getenv("MICA_TEST_NEEDS");
    const size_t length = strcspn(id, ":");
    while (needs != NULL && *needs != '\0') {
        const size_t word = strcspn(needs, ",");
        if (word == length && strncmp(needs, id, length) == 0)
            return 1;
        needs += word + (needs[word] == ',');
    }
    return 0;
}

/* 0 when the device opens, else what main should return. */
static inline int test_need(const char *id)
{
    mica_device *device = NULL;
    const mica_status status = mica_device_open(id, NULL, &device);
    mica_device_release(device);
    if (status == MICA_OK)
        return 0;
    const int skipped = status == MICA_ERR_DEVICE_NOT_FOUND && !test_is_needed(id);
    printf("%s: %s: %s\n", id, skipped ? "skipped" : "cannot be tested", mica_status_message());
    return skipped ? TEST_SKIPPED : 1;
}

#endif
