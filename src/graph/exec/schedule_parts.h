/*
 * schedule_parts.h - the insides of a schedule, for the file that makes it and the one that runs it.
 */
#ifndef MICA_GRAPH_SCHEDULE_PARTS_H
#define MICA_GRAPH_SCHEDULE_PARTS_H

#include "graph/exec/host_call.h"
#include "graph/exec/loop.h"
#include "graph/exec/order.h"
#include "graph/exec/schedule.h"

/* What runs a step. */
typedef struct mica__step_run {
    mica__loop *loop; /* of control; one of both */
    mica__host_call *call;
    mica_recording *recording; /* COMPILED */
    mica_fence *fence;         /* of the run in flight; NULL: it is over, or has not begun */
    bool empty;                /* nothing is submitted */
} mica__step_run;

/* At the end of a run: what an output is, to where it belongs. */
typedef struct end_copy {
    mica_tensor tensor;
    uint8_t place; /* of the tensor */
    bool crosses;  /* `to` lies at another place */
    mica_buffer *to,
        *through; /* `through`: it goes there first, since another copy may overwrite it, or for the way */
} end_copy;

struct mica__schedule {
    mica__schedule_desc desc;
    mica_buffer **fixed; /* by tensor: what is there before a step begins, or where it belongs */
    uint8_t *computed;   /* by tensor: leaves, and what other steps compute */
    uint32_t *root, *last_use;
    uint8_t *used;
    mica__order order;
    mica__step_run *run; /* by step */
    uint32_t last_step[MICA_GRAPH_PLACES];
    end_copy *copies;
    uint32_t copy_count;
    bool to_carry;            /* copies that cross are still to be made in the run in flight */
    mica_session_stats stats; /* sums */
};

static inline bool mica__schedule_uses(const mica__schedule *p, const mica__node *node)
{
    return mica__node_is_used(p->desc.graph, p->used, node);
}
/* Step `at` in one session: kept as a recording, or submitted (`out_fence`), or run at once. */
mica_status mica__schedule_session(mica__schedule *p, uint32_t at, bool record, mica_fence **out_fence);
/* Its nodes one after the other, each to its end; what nobody needs any more goes. */
mica_status mica__schedule_one_by_one(mica__schedule *p, uint32_t at);
/* The failure with the node's name before its sentence, and with its device's where there are several; the same for what a step came to. */
mica_status mica__schedule_fail(const mica__schedule *p, mica_status status, uint32_t node);
mica_status mica__schedule_fail_step(const mica__schedule *p, mica_status status, uint32_t at);

#endif
