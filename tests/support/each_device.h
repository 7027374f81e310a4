/* each_device.h - a body that runs on every device, with an encoder. */
#ifndef TEST_EACH_DEVICE_H
#define TEST_EACH_DEVICE_H

#include <stdbool.h>

#include "support/devices.h"
#include "support/status.h"

static mica_encoder *encoder;

static inline bool begin(mica_device *device)
{
    must(mica_encoder_begin(device, NULL, &encoder));
    return true;
}

/* The body runs on every device, with an encoder that has begun; end() runs what it has added. */
#define ON_EACH(device)                  \
    for (int d_ = 0; d_ < DEVICES; d_++) \
        for (mica_device *device = devices[d_]; device != NULL && begin(device); device = NULL)

static inline void end(void)
{
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    encoder = NULL;
}

#endif
