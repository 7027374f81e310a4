/* clock.h: monotonic time. */
#ifndef MICA_BASE_CLOCK_H
#define MICA_BASE_CLOCK_H

#include <stdint.h>

/* Nanoseconds since some fixed point of this boot; never goes back. Any thread. Never fails. */
uint64_t mica__clock_ns(void);

#endif
