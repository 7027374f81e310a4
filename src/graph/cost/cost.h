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

/* The kernel that a node is of, as the model has it: nodes of one have one level, which is above those of all kernels that they wait for. */
typedef struct mica__kernel_of {
    uint32_t level, first; /* first: its first node */
    bool live;             /* it computes something that is needed */
} mica__kernel_of;
/* What each kernel of a graph of known sizes takes on a device, at its first node, and the kernels. */
mica_status mica__cost_nodes(const mica_graph *graph, const mica_calibration *calibration, double *out_ns,
                             mica__kernel_of *out_kernels);

#endif
