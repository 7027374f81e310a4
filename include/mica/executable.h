/*
 * executable.h - a graph made ready for a device, and run.
 *
 *     mica_executable *run;
 *     mica_graph_compile(graph, device, NULL, &run);
 *     mica_array weight = {.name = "w", .dtype = MICA_DTYPE_F32, .ndim = 2, .shape = {784, 10}, .data = w,
 *                          .bytes = sizeof w};
 *     mica_executable_set(run, &weight);
 *     mica_array x = {.name = "x", .dtype = MICA_DTYPE_F32, .ndim = 2, .shape = {32, 784}, .data = pixels,
 *                     .bytes = sizeof pixels};
 *     mica_array y = {.name = "y", .data = scores, .bytes = sizeof scores};
 *     mica_executable_run(run, &x, 1, &y, 1);
 *
 * Modes. EAGER runs node by node and waits for each, so that a failure names its node. LAZY makes the whole
 * graph ready with every run and submits it once. COMPILED plans once for the shapes of the inputs, fused,
 * reordered and placed (session.h), and replays; it keeps the plans of the last few shapes. All give the same
 * numbers; LAZY and COMPILED the same bits.
 *
 * Several devices. Nodes belong to places (mica_graph_place), and `devices[i]` serves place i. Each place's part of
 * the graph is made ready on its device, parameters lie where they are used, and what one place needs of another is
 * copied: the copies are nodes, which mica_executable_print shows. Devices work at the same time where the graph lets
 * them; what goes from one to another is waited for, and carried, by the thread that runs or commits. A choice or a
 * loop runs at its place, its sub-graphs may use others. Outputs lie at the place of their node, states at that of
 * their input; buffers of the caller's may lie on any of the devices. Failures name place, device and node. Results
 * have the bits that one device of the same kind gives.
 *
 * Runs have queues of their own where the device has several (opencl, cuda), so that executables do not wait for each
 * other's work. Work of the caller's that writes a buffer must be over before the buffer is given.
 *
 * Ownership and failure as in device.h. Threads: any; runs of one executable wait for each other unless `in_flight`
 * says otherwise.
 */
#ifndef MICA_EXECUTABLE_H
#define MICA_EXECUTABLE_H

#include "mica/graph.h"
#include "mica/session.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mica_executable mica_executable;
typedef struct mica_run mica_run;

typedef enum mica_graph_mode {
    MICA_MODE_DEFAULT = 0, /* what MICA_MODE says (eager, lazy, compiled), else COMPILED */
    MICA_MODE_EAGER,
    MICA_MODE_LAZY,
    MICA_MODE_COMPILED
} mica_graph_mode;

/* In which type products, convolutions and attention compute, and what lies between them (passes: mixed precision). */
typedef enum mica_graph_precision {
    MICA_GRAPH_PRECISION_AS_WRITTEN = 0,
    MICA_GRAPH_PRECISION_F16,
    MICA_GRAPH_PRECISION_BF16
} mica_graph_precision;

#define MICA_COMPILE_AS_WRITTEN 1u /* no passes: the nodes as they are */
/* parameters change with each run: nothing is computed from them beforehand */
#define MICA_COMPILE_TRAINING 2u

/* All zero is fine. */
typedef struct mica_compile_options {
    uint64_t size; /* sizeof this struct, or 0 */
    mica_graph_mode mode;
    uint32_t flags; /* MICA_COMPILE_* */
    mica_graph_precision precision;
    uint32_t signatures;  /* plans that are kept, one for each set of input shapes; 0: 4 */
    uint32_t in_flight;   /* runs at once, each with memory of its own; 0: 1; at most 64 */
    uint64_t most_rounds; /* of a loop that states no bound: BUDGET behind it; 0: 2^20 */
    mica_device *const
        *devices;          /* by place, each once; NULL: all on `device`. They are kept, the list is not */
    uint32_t device_count; /* of them: at most MICA_GRAPH_PLACES */
} mica_compile_options;

/* Checks the whole graph for the device, or for that of each place (`device` is NULL then, or devices[0]): UNSUPPORTED
 * names every node that it does not serve, as far as shapes are known; INVALID_ARGUMENT a node whose place has no
 * device, a device that is there twice. The graph may be released afterwards. */
MICA_API mica_status mica_graph_compile(const mica_graph *graph, mica_device *device,
                                        const mica_compile_options *options,
                                        mica_executable **out_executable);
/* Waits for its runs. NULL is fine. */
MICA_API void mica_executable_release(mica_executable *executable);

/* What tensors hold outside of the graph: bytes in the caller's memory, contiguous; or a buffer. */
typedef struct mica_array {
    const char *name;
    mica_dtype dtype; /* with `data`; NONE: that of the graph */
    uint32_t ndim;
    uint64_t shape[MICA_MAX_DIMS];
    void *data; /* not written for inputs and parameters */
    uint64_t bytes;
    mica_buffer *buffer;
} mica_array;

/* Sets a parameter: `data` is copied, a `buffer` is kept and read as it is (any strides and layouts that the node
 * which reads it takes). Waits for runs. INVALID_ARGUMENT names the parameter and both types or shapes; NOT_FOUND. A
 * parameter that the passes found unused is taken and forgotten. */
MICA_API mica_status mica_executable_set(mica_executable *executable, const mica_array *parameter);
/* Sets all parameters that have a tensor of their name in the file or folder (weights.h). `out_count` may be NULL. */
MICA_API mica_status mica_executable_set_from(mica_executable *executable, const char *path,
                                              uint32_t *out_count);
/* The memory of a parameter, of a state, or of an output of the last run, one reference for the
 * caller. STATE: it has none yet. */
MICA_API mica_status mica_executable_get(mica_executable *executable, const char *name,
                                         mica_buffer **out_buffer);
/* From now on the value of output `output` after a run is what input or parameter `state` holds in the next: it stays
 * on the device and need not be fed. Before the first run the state is zeros, or what mica_executable_set put there.
 * Types and shapes are equal. Where nothing else needs the old value it is updated in place. */
MICA_API mica_status mica_executable_link(mica_executable *executable, const char *output, const char *state);

/* Runs the graph and waits. `inputs`: every input but states, by name, in any order; shapes make the symbols known.
 * `outputs`: those that are wanted, by name, with memory to copy to (`data`, `bytes`: at least what it takes), or a
 * buffer to write to, or neither: then `buffer` becomes one, owned by the caller, valid until it is released; dtype,
 * ndim and shape are filled in. Of an output whose rows the run counts (mica_graph_output_rows) those that it found
 * come, and shape says how many; a buffer of the caller's, and mica_executable_get, have all. What was not asked for
 * can be got behind it. INVALID_ARGUMENT names input and shapes; STATE: a parameter was not set. A failure of the
 * device is that of the node. */
MICA_API mica_status mica_executable_run(mica_executable *executable, const mica_array *inputs,
                                         uint32_t input_count, mica_array *outputs, uint32_t output_count);
/* The same without waiting: up to options.in_flight runs at once, the next waits for the oldest.
 * `outputs` are copied when mica_run_wait is called, and are kept alive by the caller until then. Inputs
 * in `data` are copied before it returns. */
MICA_API mica_status mica_executable_commit(mica_executable *executable, const mica_array *inputs,
                                            uint32_t input_count, mica_array *outputs, uint32_t output_count,
                                            mica_run **out_run);
/* Waits, fills the outputs, ends the run, whatever the status. NULL is fine. */
MICA_API mica_status mica_run_wait(mica_run *run);
/* Waits for all runs in flight. */
MICA_API mica_status mica_executable_sync(mica_executable *executable);

typedef struct mica_executable_stats {
    uint64_t nodes_in, nodes_out; /* of the graph, before and after the passes */
    uint64_t records, dispatches; /* of the last plan */
    uint64_t plans; /* made so far: one for each signature that came, and came again after it was dropped */
    uint64_t compile_ns;  /* of the last plan, passes included */
    uint64_t arena_bytes; /* what temporaries of a run take */
    uint64_t arena_bound; /* what their schedule needs at the least */
    uint64_t parameter_bytes,
        io_bytes; /* parameters with what is computed from them; inputs, outputs and states */
} mica_executable_stats;
/* What is known so far. INVALID_ARGUMENT for NULL. Any thread. */
MICA_API mica_status mica_executable_get_stats(const mica_executable *executable, mica_executable_stats *out);
/* The graph behind the passes: text as mica_graph_print gives it. */
MICA_API mica_status mica_executable_print(const mica_executable *executable, char *text, uint64_t capacity,
                                           uint64_t *out_length);

#ifdef __cplusplus
}
#endif
#endif
