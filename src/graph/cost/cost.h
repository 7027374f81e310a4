/*
 * cost.h - what the files of this folder share: figures that are checked, and where they are kept.
 */
#ifndef MICA_GRAPH_COST_COST_H
#define MICA_GRAPH_COST_COST_H

#include <stdbool.h>

#include "base/status.h"
#include "mica/cost.h"

/* INVALID_ARGUMENT names a figure that is no rate (above 0, finite), or no time (0 or more). */
mica_status mica__calibration_check(const mica_calibration *calibration);
/* Which device it is of: name, driver, processors; no figures. UNSUPPORTED for one that computes nothing. */
mica_status mica__calibration_identify(mica_device *device, mica_calibration *out);
/* The figures that are kept for the device that `calibration` names. False: none that are whole, and of it. */
bool mica__calibration_load(mica_calibration *calibration);
/* Keeps them where there is a folder for it. Never fails. */
void mica__calibration_store(const mica_calibration *calibration);

#endif
