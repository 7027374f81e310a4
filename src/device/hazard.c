/* hazard.c - ranges and the tracker over them. Knows operands, no backend, no op. */
#include "device/hazard.h"

#include <string.h>

#include "base/alloc.h"
#include "base/status.h"
#include "quant/dtype.h"

bool mica__operand_same(const mica__operand *a, const mica__operand *b)
{
    if (!mica__operand_present(a) || !mica__operand_present(b) || a->storage != b->storage ||
        a->offset != b->offset || a->dtype != b->dtype || a->ndim != b->ndim || a->layout != b->layout)
        return false;
    for (uint32_t d = 0; d < a->ndim; d++)
        if (a->shape[d] != b->shape[d] || (a->shape[d] > 1 && a->stride[d] != b->stride[d]))
            return false;
    return true;
}

/* Bytes of one innermost run: dimensions from the last upwards that follow each other without a gap. On return
 * `*dim` is the number of dimensions above the run. */
static uint64_t solid_run(const mica__operand *o, uint32_t *dim)
{
    uint32_t elements = mica__dtype_elements(o->dtype);
    uint64_t run = mica__dtype_bytes(o->dtype);
    uint32_t d = o->ndim;
    while (d > 0) {
        uint64_t n = o->shape[d - 1];
        if (d == o->ndim && elements > 1)
            n /= elements;
        if (n > 1 && o->stride[d - 1] != run)
            break;
        run *= n;
        d--;
    }
    *dim = d;
    return run;
}

/* The common case, found without looking at types: the first dimension of more than one row fills the hull by itself.
 * A gap further inside would be a second dimension above the run, for which the hull is all there is to say. */
static bool fills_hull(const mica__operand *o)
{
    uint32_t d = 0;
    while (d + 1u < o->ndim && o->shape[d] == 1)
        d++;
    return o->ndim == 0 || o->shape[d] * o->stride[d] == o->length;
}

void mica__range_of(const mica__operand *o, mica__range *out)
{
    if (!mica__operand_present(o)) {
        memset(out, 0, sizeof *out);
        return;
    }
    out->storage = o->storage;
    out->stride = out->width = 0;
    out->owner = 0;
    out->begin = o->offset;
    out->end = o->offset + o->length;
    out->access = o->access;
    if (o->layout != MICA_LAYOUT_CANONICAL || o->length == 0 || fills_hull(o))
        return;
    uint32_t above = 0;
    uint64_t width = solid_run(o, &above);
    /* One dimension of more than one row above the run: rows of `width` every `stride`. */
    uint64_t stride = 0;
    for (uint32_t d = 0; d < above; d++) {
        if (o->shape[d] == 1)
            continue;
        if (stride != 0)
            return;
        stride = o->stride[d];
    }
    if (stride > width) {
        out->stride = stride;
        out->width = width;
    }
}

/* Rows of equal stride: do the column intervals meet, on the circle of `stride` bytes? */
static bool columns_overlap(const mica__range *a, const mica__range *b)
{
    uint64_t stride = a->stride;
    /* b's column seen from a's */
    uint64_t from_a = (b->begin % stride + stride - a->begin % stride) % stride;
    return from_a < a->width || stride - from_a < b->width;
}

bool mica__ranges_overlap(const mica__range *a, const mica__range *b)
{
    /* Of what both have: of an empty one that is nothing, wherever it lies. */
    const uint64_t begin = a->begin > b->begin ? a->begin : b->begin;
    const uint64_t end = a->end < b->end ? a->end : b->end;
    if (a->storage != b->storage || begin >= end)
        return false;
    if (a->stride != 0 && a->stride == b->stride)
        return columns_overlap(a, b);
    return true;
}

bool mica__ranges_conflict(const mica__range *a, const mica__range *b)
{
    return ((a->access | b->access) & MICA_ACCESS_WRITE) != 0 && a->access != 0 && b->access != 0 &&
           mica__ranges_overlap(a, b);
}

void mica__tracker_reset(mica__tracker *tracker)
{
    tracker->count = 0;
}

void mica__tracker_free(mica__tracker *tracker)
{
    mica__free(tracker->range);
    memset(tracker, 0, sizeof *tracker);
}

bool mica__tracker_conflicts(mica__tracker *tracker, const mica__range *ranges, uint32_t count)
{
    const mica__range *tracked = tracker->range;
    const uint32_t tracked_count = tracker->count;
    for (uint32_t i = 0; i < count; i++) {
        const void *storage = ranges[i].storage;
        tracker->checks += tracked_count;
        for (uint32_t j = 0; j < tracked_count; j++)
            if (tracked[j].storage == storage && mica__ranges_conflict(&ranges[i], &tracked[j]))
                return true;
    }
    return false;
}

/* Inserts into an ascending list without repeats. Returns the new length; counts past `capacity` without storing. */
static uint32_t insert_owner(uint32_t *list, uint32_t count, uint32_t capacity, uint32_t owner)
{
    uint32_t at = count;
    while (at > 0 && at <= capacity && list[at - 1] > owner)
        at--;
    if (at > 0 && at <= capacity && list[at - 1] == owner)
        return count;
    if (count < capacity) {
        memmove(list + at + 1, list + at, (count - at) * sizeof *list);
        list[at] = owner;
    }
    return count + 1;
}

uint32_t mica__tracker_dependencies(mica__tracker *tracker, const mica__range *ranges, uint32_t count,
                                    uint32_t *out, uint32_t capacity)
{
    uint32_t found = 0;
    for (uint32_t j = 0; j < tracker->count; j++) {
        for (uint32_t i = 0; i < count; i++) {
            tracker->checks++;
            if (mica__ranges_conflict(&ranges[i], &tracker->range[j])) {
                found = insert_owner(out, found, capacity, tracker->range[j].owner);
                break;
            }
        }
    }
    return found;
}

/* A solid write hides every older range that lies inside it: whoever conflicts with that one conflicts with the write,
 * which itself waited for it. */
static void drop_covered(mica__tracker *tracker, const mica__range *write)
{
    uint32_t kept = 0;
    for (uint32_t j = 0; j < tracker->count; j++) {
        const mica__range *r = &tracker->range[j];
        if (r->storage == write->storage && r->begin >= write->begin && r->end <= write->end)
            continue;
        if (kept != j)
            tracker->range[kept] = *r;
        kept++;
    }
    tracker->count = kept;
}

mica_status mica__tracker_record(mica__tracker *tracker, const mica__range *ranges, uint32_t count,
                                 uint32_t owner)
{
    if (tracker->count + count > tracker->capacity) {
        uint32_t capacity = tracker->capacity * 2 + count + 32;
        mica__range *grown = mica__realloc(tracker->range, capacity * sizeof *grown);
        if (grown == NULL)
            return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory to track %u ranges", capacity);
        tracker->range = grown;
        tracker->capacity = capacity;
    }
    for (uint32_t i = 0; i < count; i++)
        if ((ranges[i].access & MICA_ACCESS_WRITE) != 0 && ranges[i].stride == 0)
            drop_covered(tracker, &ranges[i]);
    for (uint32_t i = 0; i < count; i++) {
        if (ranges[i].access == 0)
            continue;
        tracker->range[tracker->count] = ranges[i];
        tracker->range[tracker->count++].owner = owner;
    }
    return MICA_OK;
}
