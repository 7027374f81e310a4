/*
 * dataflow.h - which record reads what another one wrote, and what may change places.
 *
 * Works on a list of records with holes (records merged into others leave NULL). Knows bytes and marks, not
 * kernels and not backends. Everything here errs towards "no": an overlap that is not understood is a
 * conflict, a write that is not surely whole overwrites nothing.
 *
 * Every present operand is a touch. The touches of one storage are linked in the order of their records, and each knows the
 * write before it: whoever follows a value meets those who touch its storage and nobody else. Where no record writes, fusions
 * leave the links in no order.
 */
#ifndef MICA_SESSION_DATAFLOW_H
#define MICA_SESSION_DATAFLOW_H

#include <stdbool.h>

#include "device/encoder.h"
#include "device/hazard.h"

/* Touch `at` of a record's node. */
typedef struct mica__touch_ref {
    uint32_t record, at; /* record UINT32_MAX: none */
} mica__touch_ref;

typedef struct mica__touch {
    mica__range range;
    uint32_t slot;
    uint32_t storage;           /* number in the flow */
    mica__touch_ref prev, next; /* on the same storage */
    mica__touch_ref writer;     /* the nearest before it that writes */
} mica__touch;

/* What a record touches, in slot order. */
typedef struct mica__flow_node {
    mica__touch *touch;
    uint32_t count;
    bool own; /* `touch` is freed with the node; else it lies in the flow's */
} mica__flow_node;

typedef struct mica__flow {
    mica__record_list *list; /* borrowed; node[i] stands for list->record[i] */
    mica__flow_node *node;
    mica__touch *touch; /* of the records it was built from */
    uint32_t *segment;  /* [count]: barriers that the caller asked for before each record */
    uint8_t *written;   /* [storages]: some record writes it */
} mica__flow;

/* One operand that reads or writes a value. */
typedef struct mica__use {
    uint32_t record, slot;
} mica__use;

/* The list must not change except through mica__flow_replace. On failure there is nothing to free. */
mica_status mica__flow_build(mica__record_list *list, mica__flow *out);
void mica__flow_free(mica__flow *flow);
/* Record `fused` takes the place of member[target] (ascending, `count` of them); the others leave holes. The records are freed,
 * and what the list holds of the caller's barriers stays between the same records. On failure nothing changed and `fused`
 * is still the caller's. */
mica_status mica__flow_replace(mica__flow *flow, const uint32_t *member, uint32_t count, uint32_t target,
                               mica__record *fused);

static inline bool mica__touch_is(mica__touch_ref ref)
{
    return ref.record != UINT32_MAX;
}
static inline mica__touch *mica__touch_at(const mica__flow *flow, mica__touch_ref ref)
{
    return &flow->node[ref.record].touch[ref.at];
}

/* The next touch backwards from `touch` that may be in conflict with it: for one that only reads, the next write. */
static inline mica__touch_ref mica__touch_rival(const mica__touch *touch, const mica__touch *from)
{
    return (touch->range.access & MICA_ACCESS_WRITE) != 0 ? from->prev : from->writer;
}
/* May the records `member` (ascending) all run at the place of member[target]? No record between, other than
 * they, may conflict with one that moves past it, and nothing crosses a barrier that the caller asked for. */
bool mica__flow_can_gather(const mica__flow *flow, const uint32_t *member, uint32_t count, uint32_t target);

/* Every operand that reads some of what record `at` writes to `slot`, up to the record that overwrites it
 * whole. The first `capacity` go to `out`; returns how many there are, or capacity + 1 where there are more. */
uint32_t mica__flow_uses(const mica__flow *flow, uint32_t at, uint32_t slot, mica__use *out,
                         uint32_t capacity);
/* The operand that wrote what `slot` of record `at` reads, if one record wrote exactly that view. */
bool mica__flow_writer(const mica__flow *flow, uint32_t at, uint32_t slot, mica__use *out);
/* The last operand before record `at` that writes some of the bytes of its `slot`. */
bool mica__flow_last_write(const mica__flow *flow, uint32_t at, uint32_t slot, mica__use *out);
/* The next operand, in a later record, that touches the storage of this one; in any other record, where none writes it. */
bool mica__flow_next(const mica__flow *flow, mica__use *use);

bool mica__operands_overlap(const mica__operand *a, const mica__operand *b);

#endif
