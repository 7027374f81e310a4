/*
 * hazard.h - who must wait for whom, from what each dispatch reads and writes.
 *
 * Byte ranges of storage, with one refinement: views made of equal rows at an equal stride conflict only if their
 * columns do. Two forms of the answer: does this dispatch need a barrier (queues, the cpu), or which earlier
 * dispatches does it depend on (graphs). Used for dispatches while lowering and for whole records by the passes.
 */
#ifndef MICA_DEVICE_HAZARD_H
#define MICA_DEVICE_HAZARD_H

#include "backend/backend.h"

typedef struct mica__range {
    const void *storage; /* identity */
    uint64_t begin, end; /* hull */
    uint64_t stride;     /* 0: one solid range; else rows of `width` bytes every `stride` */
    uint64_t width;
    uint32_t access;
    uint32_t owner; /* number of the dispatch or record */
} mica__range;

/* Both present, and the same elements at the same places: the stride of a dimension of one is no difference. */
bool mica__operand_same(const mica__operand *a, const mica__operand *b);
/* The bytes an operand touches. Absent operands give access 0. */
void mica__range_of(const mica__operand *operand, mica__range *out);
bool mica__ranges_overlap(const mica__range *a, const mica__range *b);
/* Overlap and at least one writes. */
bool mica__ranges_conflict(const mica__range *a, const mica__range *b);

typedef struct mica__tracker {
    mica__range *range;
    uint32_t count, capacity;
    uint64_t checks;
} mica__tracker;

void mica__tracker_reset(mica__tracker *tracker);
void mica__tracker_free(mica__tracker *tracker);
/* True if one of the ranges conflicts with what is recorded. */
bool mica__tracker_conflicts(mica__tracker *tracker, const mica__range *ranges, uint32_t count);
/* Owners of conflicting ranges, each once, ascending, into `out` (capacity owners); returns how many there are. */
uint32_t mica__tracker_dependencies(mica__tracker *tracker, const mica__range *ranges, uint32_t count,
                                    uint32_t *out, uint32_t capacity);
/* Remembers the ranges under `owner`; drops recorded ranges that a new write covers whole. */
mica_status mica__tracker_record(mica__tracker *tracker, const mica__range *ranges, uint32_t count,
                                 uint32_t owner);

#endif
