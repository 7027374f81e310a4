/*
 * lift.h - what the files that lift a recording share: the values that lie in its storages while its records are walked.
 */
#ifndef MICA_GRAPH_LIFT_LIFT_H
#define MICA_GRAPH_LIFT_LIFT_H

#include "graph/ir.h"
#include "graph/lift/view.h"
#include "mica/lift.h"
#include "session/recording.h"

#define MICA__LIFT_PIECES 4096u /* that one value may be put together of */

typedef enum mica__lift_kind {
    MICA__LIFT_WRITTEN,   /* by a record, or a constant */
    MICA__LIFT_SLOT,      /* what a slot holds before the pass */
    MICA__LIFT_PARAMETER, /* what a parameter holds */
} mica__lift_kind;

/* Elements of a storage that are a tensor. */
typedef struct mica__lift_value {
    mica__operand place;
    mica_tensor tensor; /* 0: a leaf that nobody needed yet */
    mica__lift_kind kind;
    uint32_t index;  /* of its slot or parameter */
    uint32_t before; /* the value under it, of the same storage; MICA__LIFT_NONE */
} mica__lift_value;

#define MICA__LIFT_NONE UINT32_MAX

typedef struct mica__lift {
    const mica_recording *recording;
    const mica_lift_desc *desc;
    mica_graph *graph;
    mica__storages storages;
    uint32_t *newest; /* [storages.count]: the value on top of each */
    mica__lift_value *value;
    uint32_t value_count, value_capacity;
    bool *given; /* [slots]: some record wrote there */
    uint32_t pieces;
} mica__lift;

/* The leaves: slots and parameters, before any record. */
mica_status mica__lift_leaves(mica__lift *lift);
/* The tensor of what lies there now. `any`: what nothing wrote may be anything, and is zeros. */
mica_status mica__lift_read(mica__lift *lift, const mica__operand *place, bool any, mica_tensor *out);
/* From here on the tensor lies there. */
mica_status mica__lift_write(mica__lift *lift, const mica__operand *place, mica_tensor tensor);
/* What a slot's bytes are at the end, as outputs. */
mica_status mica__lift_outputs(mica__lift *lift);

#endif
