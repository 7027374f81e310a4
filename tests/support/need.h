/*
 * need.h - for tests of devices that a machine may lack. 'make test' brings what they need and sets MICA_TEST_NEEDS=1:
 * then a device that is missing is a failure. Elsewhere the test is skipped, and says why.
 */
#ifndef TEST_SUPPORT_NEED_H
#define TEST_SUPPORT_NEED_H

#include <stdio.h>
#include <stdlib.h>

#include "mica/device.h"

#define TEST_SKIPPED 77 /* the exit status that CTest is told means so */

/* 0 when the device opens, else what main should return. */
static inline int test_need(const char *id)
{
    const char *needs = getenv("MICA_TEST_NEEDS");
    mica_device *device = NULL;
    const mica_status status = mica_device_open(id, NULL, &device);
    mica_device_release(device);
    if (status == MICA_OK)
        return 0;
    const int skipped = status == MICA_ERR_DEVICE_NOT_FOUND && (needs == NULL || needs[0] != '1');
    printf("%s: %s: %s\n", id, skipped ? "skipped" : "cannot be tested", mica_status_message());
    return skipped ? TEST_SKIPPED : 1;
}

#endif
