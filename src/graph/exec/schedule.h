/*
 * schedule.h - a graph of known sizes as steps on the devices of its places: runs of nodes that are submitted together, and choices and loops between them, which look at
 * what was computed; between devices, what one needs of another.
 *
 * A schedule owns what its steps share; leaves, outputs and states are buffers that the caller gives. One schedule runs once at a time.
 */
#ifndef MICA_GRAPH_SCHEDULE_H
#define MICA_GRAPH_SCHEDULE_H

#include "graph/exec/emit.h"
#include "mica/executable.h"

typedef struct mica__schedule mica__schedule;

/* Output `output` of the graph is what leaf `leaf` holds after a run. */
typedef struct mica__link {
    uint32_t output;
    mica_tensor leaf;
} mica__link;

/* What serves a place; all borrowed. */
typedef struct mica__station {
    mica_device *device;
    mica_queue *queue; /* NULL: the device's first */
    mica_arena *arena; /* of recordings; NULL: one of their own for each */
} mica__station;

typedef struct mica__schedule_desc {
    const mica_graph *
        graph; /* borrowed while the schedule lives; all sizes known, no CALL; with several places what crosses is in it (mica__graph_cross) */
    const mica__station *station; /* by place; borrowed likewise */
    uint32_t station_count;
    mica_graph_mode mode;
    uint64_t most_rounds;       /* of loops without a bound */
    mica_buffer *const *leaf;   /* by tensor: of every leaf that is used */
    mica_buffer *const *output; /* of every output that is no link, contiguous; NULL: nobody wants it */
    const mica__link *link;
    uint32_t link_count;
} mica__schedule_desc;

mica_status mica__schedule_create(const mica__schedule_desc *desc, mica__schedule **out);
/* NULL is fine. Waits for what runs. */
void mica__schedule_release(mica__schedule *p);
/* Runs it and waits. */
mica_status mica__schedule_run(mica__schedule *p);
/* Submits it; what can only be known behind it is waited for, as is what goes from device to device. */
mica_status mica__schedule_submit(mica__schedule *p);
/* How the run came out that was submitted last; OK where none was. */
mica_status mica__schedule_wait(mica__schedule *p);
/* Leaf `from` is `to` from now on: same type and shape. UNSUPPORTED: recordings cannot be bound so; the caller copies. */
mica_status mica__schedule_bind(mica__schedule *p, mica_tensor leaf, mica_buffer *to);
/* Adds what its recordings hold. */
void mica__schedule_count(const mica__schedule *p, mica_executable_stats *stats);

#endif
