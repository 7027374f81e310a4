/*
 * plan.h - an executable's insides: parameters, states, and a plan for each set of input shapes, with as many runs at once as were asked for.
 */
#ifndef MICA_GRAPH_PLAN_H
#define MICA_GRAPH_PLAN_H

#include <pthread.h>

#include "base/thread.h"
#include "graph/exec/prepare.h"

#define MICA__MOST_IN_FLIGHT 64u

/* A parameter, a constant, or a state: what a leaf of the graph holds from run to run. */
typedef struct mica__held {
    mica_tensor leaf;
    mica_buffer *buffer; /* NULL: nothing yet */
    mica_buffer *packed; /* a weight as its matmul reads it fastest; NULL: as it is */
    bool ours;           /* no caller's: it may be written */
} mica__held;

/* One run at a time: a schedule with inputs and outputs of its own. */
typedef struct mica__instance {
    mica__schedule *schedule;
    mica__station *station; /* by place: queues and arenas of its own */
    mica_buffer **leaf;     /* by tensor of the plan's graph: all leaves; a reference each */
    mica_buffer **mine;     /* by input: where bytes of the caller's go; NULL: a state */
    mica_buffer **output;   /* by output; NULL: a state */
    mica_run *run;          /* in flight, whose outputs are waited for; NULL: none */
} mica__instance;

typedef struct mica__plan_of {
    mica__type *types; /* of the inputs */
    mica_graph *graph; /* of known sizes */
    mica__instance instance[MICA__MOST_IN_FLIGHT];
    uint32_t instance_count, next;
    uint64_t used; /* when, in runs */
} mica__plan_of;

struct mica_executable {
    pthread_mutex_t lock;
    mica__fork_guard guard;
    mica_device **device; /* by place */
    uint32_t device_count;
    mica_graph *graph;   /* behind the passes, with what crosses */
    mica_graph *written; /* as the caller gave it: what parameters there were */
    mica_compile_options options;
    mica__prepared prepared; /* main NULL: not parted yet */
    mica__held *held;        /* by leaf tensor of `graph`: those of parameters, constants, states */
    mica__link *link;        /* of `graph` */
    uint32_t link_count;
    mica__plan_of **plan;
    uint32_t plan_count;
    mica__instance *last; /* of the last run that ended well; NULL */
    uint64_t runs;
    mica_executable_stats stats;
};

struct mica_run {
    mica_executable *executable;
    mica__plan_of *plan;
    mica__instance *instance; /* NULL: it has ended already */
    mica_array *outputs;      /* the caller's */
    uint32_t output_count;
    mica_status status;
};

/* UNSUPPORTED names the nodes that their devices do not serve, as far as sizes are known. */
mica_status mica__check_served(const mica_executable *executable);
/* The plan for inputs of such types: found, or made, in place of the one that was not used for longest. */
mica_status mica__plan_find(mica_executable *executable, const mica__type *types, mica__plan_of **out);
/* The next of its instances; it may still run. */
mica_status mica__plan_instance(mica_executable *executable, mica__plan_of *plan, mica__instance **out);
void mica__plan_release(const mica_executable *executable, mica__plan_of *plan);
/* All of them, since buffers that they stand on have changed. */
void mica__plans_drop(mica_executable *executable);
/* And how the graph was parted, since other leaves are states now. */
void mica__plans_forget(mica_executable *executable);
/* The device where a tensor of a graph that was made ready lies. */
static inline mica_device *mica__device_of(const mica_executable *executable, const mica_graph *graph,
                                           mica_tensor tensor)
{
    return executable->device[mica__node_of(graph, tensor)->place];
}
/* The link whose leaf this is; NULL. */
const mica__link *mica__link_of(const mica_executable *executable, mica_tensor leaf);
/* Makes sure that a state has memory: zeros, of such a type. */
mica_status mica__state_memory(mica_executable *executable, mica_tensor leaf, const mica__type *type);

/* What a caller asks for, checked, with what stands for 0. */
mica_status mica__compile_options_take(const mica_compile_options *options, mica_compile_options *out);

#endif
