/*
 * dataflow.h - which record reads what another one wrote, and what may change places.
 *
 * Works on a list of records with holes (records merged into others leave NULL). Knows bytes and marks, not
 * kernels and not backends. Everything here errs towards "no": an overlap that is not understood is a
 * conflict, a write that is not surely whole overwrites nothing.
 */
#ifndef MICA_SESSION_DATAFLOW_H
#define MICA_SESSION_DATAFLOW_H

#include <stdbool.h>

#include "device/encoder.h"
#include "device/hazard.h"

/* What a record touches. */
typedef struct mica__flow_node {
    mica__range *range; /* of the present operands, in slot order; owned */
    uint32_t range_count;
    uint64_t reads, writes; /* one bit per storage, hashed: no common bit, no common storage */
} mica__flow_node;

typedef struct mica__flow {
    mica__record_list *list; /* borrowed; node[i] stands for list->record[i] */
    mica__flow_node *node;
} mica__flow;

/* One operand that reads a value. */
typedef struct mica__use {
    uint32_t record, slot;
} mica__use;

/* The list must not change except through mica__flow_refresh. On failure there is nothing to free. */
mica_status mica__flow_build(mica__record_list *list, mica__flow *out);
void mica__flow_free(mica__flow *flow);
/* After list->record[at] was replaced or set to NULL. On failure the node is as before. */
mica_status mica__flow_refresh(mica__flow *flow, uint32_t at);

/* Must the two records keep their order? */
bool mica__flow_conflict(const mica__flow *flow, uint32_t a, uint32_t b);
/* May the records `member` (ascending) all run at the place of member[target]? No record between, other than
 * they, may conflict with one that moves past it, and nothing crosses a barrier that the caller asked for. */
bool mica__flow_can_gather(const mica__flow *flow, const uint32_t *member, uint32_t count, uint32_t target);

/* Every operand that reads some of what record `at` writes to `slot`, up to the record that overwrites it
 * whole. The first `capacity` go to `out`; returns how many there are. */
uint32_t mica__flow_uses(const mica__flow *flow, uint32_t at, uint32_t slot, mica__use *out,
                         uint32_t capacity);
/* The operand that wrote what `slot` of record `at` reads, if one record wrote exactly that view. */
bool mica__flow_writer(const mica__flow *flow, uint32_t at, uint32_t slot, mica__use *out);

static inline bool mica__operand_present(const mica__operand *operand)
{
    return operand->memory != NULL;
}
bool mica__operands_overlap(const mica__operand *a, const mica__operand *b);

#endif
