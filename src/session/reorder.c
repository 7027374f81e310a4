/*
 * reorder.c - list scheduling over true dependencies.
 *
 * A record's wave is one more than the last wave it must wait for, so there are as many waves as the longest
 * chain has records: no order needs fewer barriers between records.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/status.h"
#include "base/work.h"
#include "session/dataflow.h"
#include "session/passes.h"

/* A solid write over all of `range`: whoever was in conflict with `range` before it was in conflict with it too. */
static bool hides(const mica__range *write, const mica__range *range)
{
    return (write->access & MICA_ACCESS_WRITE) != 0 && write->stride == 0 && write->begin <= range->begin &&
           write->end >= range->end;
}

/* The wave that record `at` cannot be before, for what one of its touches must wait for from `first` on. */
static uint32_t wave_of(const mica__flow *flow, const mica__touch *touch, uint32_t at, uint32_t first,
                        const uint32_t *wave, uint64_t *steps)
{
    uint32_t found = 0;
    mica__touch_ref r = mica__touch_rival(touch, touch);
    for (; mica__touch_is(r) && r.record >= first; ++*steps) {
        const mica__touch *other = mica__touch_at(flow, r);
        if (r.record != at && wave[r.record] >= found && mica__ranges_conflict(&touch->range, &other->range))
            found = wave[r.record] + 1;
        if (r.record != at && hides(&other->range, &touch->range))
            break;
        r = mica__touch_rival(touch, other);
    }
    return found;
}

/* Waves of records [first, end), counted from 0. */
static mica_status find_waves(const mica__flow *flow, uint32_t first, uint32_t end, uint32_t *wave,
                              uint32_t *out_waves)
{
    uint32_t top = 0;
    for (uint32_t i = first; i < end; i++) {
        const mica__flow_node *node = &flow->node[i];
        uint64_t steps = 1;
        wave[i] = 0;
        for (uint32_t k = 0; k < node->count; k++) {
            const uint32_t w = wave_of(flow, &node->touch[k], i, first, wave, &steps);
            wave[i] = w > wave[i] ? w : wave[i];
        }
        top = wave[i] > top ? wave[i] : top;
        MICA__TRY(mica__spend(steps));
    }
    *out_waves = top + 1;
    return MICA_OK;
}

/* Puts the records of [first, end) into `order` wave by wave: a counting sort, stable. `start` has room for
 * waves + 1. */
static void sort_waves(const uint32_t *wave, uint32_t first, uint32_t end, uint32_t waves, uint32_t *start,
                       uint32_t *order)
{
    memset(start, 0, (waves + 1) * sizeof *start);
    for (uint32_t i = first; i < end; i++)
        start[wave[i] + 1]++;
    for (uint32_t w = 0; w < waves; w++)
        start[w + 1] += start[w];
    for (uint32_t i = first; i < end; i++)
        order[first + start[wave[i]]++] = i;
}

/* Moves the records of the segment; the barrier in front of it stays in front. `moved_to` is scratch. */
static uint64_t apply(mica__record_list *list, const uint32_t *order, uint32_t first, uint32_t end,
                      mica__record **moved_to)
{
    uint64_t moved = 0;
    uint16_t barrier = list->record[first]->barrier_before;
    list->record[first]->barrier_before = 0;
    for (uint32_t i = first; i < end; i++) {
        moved_to[i] = list->record[order[i]];
        moved += order[i] != i;
    }
    memcpy(list->record + first, moved_to + first, (end - first) * sizeof *moved_to);
    list->record[first]->barrier_before = barrier;
    return moved;
}

mica_status mica__reorder(mica__record_list *list, uint64_t *out_moved)
{
    mica__flow flow;
    uint32_t n = list->count;
    *out_moved = 0;
    if (n == 0)
        return MICA_OK;
    /* wave [n], order [n], start [n + 1] */
    uint32_t *wave = mica__alloc((3 * (size_t)n + 1) * sizeof *wave);
    mica__record **moved_to = mica__alloc(n * sizeof *moved_to);
    mica_status status = wave == NULL || moved_to == NULL
                             ? mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory to schedule %u records", n)
                             : mica__flow_build(list, &flow);
    if (status == MICA_OK) {
        uint32_t *order = wave + n, *start = order + n;
        for (uint32_t first = 0, end = 0; first < n && status == MICA_OK; first = end) {
            uint32_t waves = 0;
            for (end = first + 1; end < n && !list->record[end]->barrier_before;)
                end++;
            status = find_waves(&flow, first, end, wave, &waves);
            if (status != MICA_OK)
                break;
            sort_waves(wave, first, end, waves, start, order);
            *out_moved += apply(list, order, first, end, moved_to);
        }
        mica__flow_free(&flow);
    }
    mica__free(wave);
    mica__free(moved_to);
    return status;
}
