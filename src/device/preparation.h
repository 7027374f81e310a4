/*
 * preparation.h - compiles what the plans of many records ask for and nobody has asked for yet, side by side: compilers take long and
 * use one core. What cannot be had is left to mica__registry_plan, which says why. One thread at a time.
 */
#ifndef MICA_DEVICE_PREPARATION_H
#define MICA_DEVICE_PREPARATION_H

#include "device/registry.h"

typedef struct mica__preparation mica__preparation;
mica__preparation *mica__preparation_begin(mica_device *device,
                                           bool reusable); /* NULL: no memory, which costs time and no more */
void mica__preparation_add(mica__preparation *preparation, const mica__record *record);
/* Compiles, and frees it. NULL ok. */
void mica__preparation_end(mica__preparation *preparation);

#endif
