/*
 * cost.h - how fast a device is, and how long a graph would take there.
 *
 *     mica_calibration speed;
 *     mica_device_calibration(device, 0, &speed);          measured once per machine, then read from a file
 *     mica_graph_cost(graph, &speed, &ns);
 *     mica_graph_choose_device(graph, devices, 2, &best);   the one that would be done first
 *
 * Units: a GFLOP/s is an operation per ns, a GB/s (10^9 bytes) a byte per ns; times are in ns. A figure is about what
 * the device reaches with f32 in the shapes below, so a cost is an estimate for comparing devices, not a promise:
 * other types, shapes that fit a device badly and masks that spare work are not seen.
 */
#ifndef MICA_COST_H
#define MICA_COST_H

#include "mica/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What is measured: X(name, unit, what it is). Each is the median of several runs. */
#define MICA_CALIBRATION_LIST(X)                                                                     \
    X(matmul_large, "GFLOP/s", "product of f32 [256, 768] and [768, 3072]")                          \
    X(matmul_small, "GFLOP/s", "product of f32 [8, 64] and [64, 64], without the start of a kernel") \
    X(attention, "GFLOP/s", "attention of 128 queries over 128 keys, 4 heads of 64")                 \
    X(memory, "GB/s", "read and written by an elementwise op over 2^23 f32")                         \
    X(reduce, "GB/s", "read by sums of f32 [8192, 1024] over the last dimension")                    \
    X(transfer, "GB/s", "from the host's memory to the device's, 16 MiB at once")                    \
    X(roundtrip, "ns", "submission of one small kernel until the host knows that it is over")        \
    X(launch, "ns", "one more small kernel of a submission, which waits for the one before")

#define MICA_CALIBRATION_FIELD(name, unit, meaning) double name;
typedef struct mica_calibration {
    char device[MICA_NAME_BYTES]; /* the hardware's own name */
    char driver[MICA_NAME_BYTES]; /* and its driver; on the cpu the instruction set */
    uint32_t processors;          /* threads of the cpu, multiprocessors or compute units of a GPU */
    MICA_CALIBRATION_LIST(MICA_CALIBRATION_FIELD)
} mica_calibration;
#undef MICA_CALIBRATION_FIELD

/* Measures now: about two seconds on a device that does 5 GFLOP/s or more, besides what compiling the kernels
 * takes, and 64 MB there. Nothing else should run. CANCELLED as work.h says; UNSUPPORTED for a device that computes
 * nothing (null); BUDGET, OUT_OF_MEMORY. */
MICA_API mica_status mica_device_calibrate(mica_device *device, mica_calibration *out);

#define MICA_CALIBRATION_ANEW 1u /* measures though figures are kept */
#define MICA_CALIBRATION_KEPT 2u /* never measures: NOT_FOUND where none are kept */

/* The figures that are kept in mica_cache_folder, a JSON file for each device; where there are none, or they are
 * damaged or of another device, driver, number of processors or version of mica, measures and keeps them. A folder
 * that cannot be used only costs time. */
MICA_API mica_status mica_device_calibration(mica_device *device, uint32_t flags, mica_calibration *out);

/*
 * The time of one run: a round trip; the bytes of inputs and outputs over `transfer`; and for each kernel one
 * `launch` and the longer of two: its operations over their rate, the bytes that it reads and writes, in their types,
 * over `memory` (sums: `reduce`). Rates: attention has its own; others go from `matmul_small` at 2^16 operations and
 * fewer to `matmul_large` at 1.2 * 10^9 and more, evenly in the logarithms. Elementwise nodes of one size that feed
 * each other are one kernel, whose values between them are not moved. Views and what no output needs cost nothing.
 * Parameters are on the device already. Of a branch the dearer side counts; a loop counts as many rounds as it may
 * take; both ask the host, a round trip for each round. Of an op of the caller's (custom.h) nothing is known but its
 * bytes: on the host they go over `transfer`, with a round trip.
 *
 * INVALID_ARGUMENT names a figure that is no rate, or an input whose size is a symbol.
 * UNSUPPORTED: a loop that states no bound.
 */
MICA_API mica_status mica_graph_cost(const mica_graph *graph, const mica_calibration *calibration,
                                     double *out_ns);
/* The least of these costs, the first of equals. INVALID_ARGUMENT for a count of 0, else as mica_graph_cost. */
MICA_API mica_status mica_graph_choose(const mica_graph *graph, const mica_calibration *calibrations,
                                       uint32_t count, uint32_t *out_index);
/* The same over devices (mica_device_calibration); those that do not serve the graph (mica_graph_compile) are passed
 * over. UNSUPPORTED, with the last one's sentence, where none does. */
MICA_API mica_status mica_graph_choose_device(const mica_graph *graph, mica_device *const *devices,
                                              uint32_t count, uint32_t *out_index);

/*
 * Which node belongs to which device (mica_graph_place), so that a run is over first: sets the places of all nodes, 0
 * to count - 1; those that the graph had are forgotten, also where the call fails. Kernels are those of
 * mica_graph_cost; each runs on one device, behind those of that device before it, and waits for its inputs. A value
 * that goes from one device to another takes a round trip of the first and its bytes over the `transfer` of both.
 * Parameters are where they are used already.
 *
 * It promises the least time, by this model, among: each device alone, which takes what mica_graph_cost says; the cut
 * of the order of kernels into runs whose kernels and ways, each of which takes along all that is needed later, take
 * least together; and each kernel where it is over first, which finds branches that can go on at the same time. So no
 * device alone is better that has the memory. `budgets`: bytes that each device has, NULL for no limit; a place takes
 * its parameters and constants, what comes from elsewhere, and what is computed and still needed. `out_ns`, which may
 * be NULL, is the time.
 *
 * BUDGET where nothing was found that fits; INVALID_ARGUMENT and UNSUPPORTED as mica_graph_cost, and for a count over
 * MICA_GRAPH_PLACES.
 */
MICA_API mica_status mica_graph_choose_places(mica_graph *graph, const mica_calibration *calibrations,
                                              const uint64_t *budgets, uint32_t count, double *out_ns);
/* The same over devices, for mica_compile_options.devices: their figures (mica_device_calibration), and what their
 * budgets and their memory leave. UNSUPPORTED names a device that does not serve the graph. */
MICA_API mica_status mica_graph_choose_device_places(mica_graph *graph, mica_device *const *devices,
                                                     uint32_t count, double *out_ns);

#ifdef __cplusplus
}
#endif
#endif
