/*
 * place.c - see place.h.
 *
 * Time is counted in groups of records that no hazard separates: what lies in a place is gone only when the whole group of its
 * last user is, so that the next one there waits for nobody it would not have waited for. The exception is an output that
 * takes over an input of its own record. Values are placed in the order of their birth, the large ones of a group
 * first, each into the smallest gap that holds it. Where that leaves holes, and the values are not too many, they are placed once more, the largest
 * first, and the better of both stays.
 */
#include "session/place.h"

#include <stdlib.h>
#include <string.h>

#include "backend/op_table.h"
#include "base/alloc.h"
#include "base/status.h"
#include "base/work.h"
#include "session/dataflow.h"
#include "session/passes.h"

#define NONE UINT32_MAX
#define MOST_AGAIN 4096u /* values that are placed once more, which takes the square of their number */

typedef struct value {
    uint64_t bytes, size; /* size: rounded up */
    uint64_t offset;
    uint32_t first, last;  /* groups */
    mica__touch_ref birth; /* the touch that comes first */
    uint32_t number;       /* of its storage in the placement */
    uint32_t last_record;  /* that touches it */
    uint32_t other_group;  /* the last group before that record that touches it; NONE: none */
    uint32_t next_dead;    /* list of those with the same `last` */
    uint32_t owner; /* by birth: the value that was first in its place and handed it on to this one; itself */
    bool taken;     /* its place was taken over where it died */
} value;

typedef struct gap {
    uint64_t begin, end;
} gap;

typedef struct placing {
    mica__flow flow;
    uint32_t *group; /* [records] */
    uint32_t *of;    /* [storages]: value, or NONE */
    uint32_t *dead;  /* [groups]: first of the values that die there */
    value *value;    /* by birth */
    uint32_t count, groups;
    gap *gap; /* [count + 1] free places below `end`, ascending, apart from each other */
    uint32_t gaps;
    uint64_t end;
} placing;

/* ---- lifetimes ---- */

/* Whether a record must wait for one of [first, at). */
static bool waits(const mica__flow *flow, uint32_t at, uint32_t first, uint64_t *steps)
{
    const mica__flow_node *node = &flow->node[at];
    for (uint32_t i = 0; i < node->count; i++) {
        const mica__touch *touch = &node->touch[i];
        mica__touch_ref r = mica__touch_rival(touch, touch);
        for (; mica__touch_is(r) && r.record >= first; ++*steps) {
            const mica__touch *other = mica__touch_at(flow, r);
            if (r.record != at && mica__ranges_conflict(&touch->range, &other->range))
                return true;
            r = mica__touch_rival(touch, other);
        }
    }
    return false;
}

static mica_status find_groups(placing *p)
{
    const mica__record_list *list = p->flow.list;
    uint32_t first = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        uint64_t steps = 1;
        if (i > 0 && (list->record[i]->barrier_before || waits(&p->flow, i, first, &steps))) {
            first = i;
            p->groups++;
        }
        p->group[i] = p->groups;
        MICA__TRY(mica__spend(steps));
    }
    p->groups++;
    return MICA_OK;
}

/* A touch of a temporary without memory: the first is its birth. */
static void add_touch(placing *p, const mica__storages *storages, mica__touch_ref ref)
{
    const mica__touch *touch = mica__touch_at(&p->flow, ref);
    const mica__operand *operand = &p->flow.list->record[ref.record]->operand[touch->slot];
    if (operand->memory != NULL)
        return;
    const uint32_t number = touch->storage, group = p->group[ref.record];
    if (p->of[number] == NONE) {
        const uint64_t bytes = storages->storage[number]->bytes;
        p->of[number] = p->count;
        p->value[p->count++] =
            (value){.bytes = bytes,
                    .size = bytes / MICA__PLACE_ALIGNMENT * MICA__PLACE_ALIGNMENT +
                            (bytes % MICA__PLACE_ALIGNMENT != 0 || bytes == 0) * MICA__PLACE_ALIGNMENT,
                    .first = group,
                    .last = group,
                    .birth = ref,
                    .number = number,
                    .last_record = ref.record,
                    .other_group = NONE};
        return;
    }
    value *v = &p->value[p->of[number]];
    if (v->last_record != ref.record)
        v->other_group = v->last;
    v->last_record = ref.record;
    v->last = group;
}

static int by_birth(const void *a, const void *b)
{
    const value *x = a, *y = b;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    if (x->size != y->size)
        return x->size > y->size ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

static mica_status find_values(placing *p, const mica__storages *storages)
{
    const uint32_t records = p->flow.list->count;
    memset(p->of, 0xff, (storages->count + 1u) * sizeof *p->of);
    for (uint32_t i = 0; i < records; i++) {
        MICA__TRY(mica__spend(1));
        for (uint32_t k = 0; k < p->flow.node[i].count; k++)
            add_touch(p, storages, (mica__touch_ref){i, k});
    }
    if (p->count > 0)
        qsort(p->value, p->count, sizeof *p->value, by_birth);
    for (uint32_t i = 0; i < p->count; i++)
        p->of[p->value[i].number] = i;
    return MICA_OK;
}

/* ---- gaps ---- */

static void remove_gap(placing *p, uint32_t at)
{
    p->gaps--;
    memmove(p->gap + at, p->gap + at + 1, (p->gaps - at) * sizeof *p->gap);
}

/* Gives a place back, joined with its neighbours. */
static void give_place(placing *p, uint64_t begin, uint64_t end)
{
    uint32_t low = 0, high = p->gaps;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (p->gap[middle].begin < begin)
            low = middle + 1;
        else
            high = middle;
    }
    if (low > 0 && p->gap[low - 1].end == begin) {
        p->gap[low - 1].end = end;
        if (low < p->gaps && p->gap[low].begin == end) {
            p->gap[low - 1].end = p->gap[low].end;
            remove_gap(p, low);
        }
        return;
    }
    if (low < p->gaps && p->gap[low].begin == end) {
        p->gap[low].begin = begin;
        return;
    }
    memmove(p->gap + low + 1, p->gap + low, (p->gaps - low) * sizeof *p->gap);
    p->gap[low] = (gap){begin, end};
    p->gaps++;
}

/* The smallest gap that holds it; else the end, with the gap before it. */
static uint64_t take_place(placing *p, uint64_t size)
{
    uint32_t best = NONE;
    for (uint32_t i = 0; i < p->gaps; i++) {
        const uint64_t room = p->gap[i].end - p->gap[i].begin;
        if (room >= size && (best == NONE || room < p->gap[best].end - p->gap[best].begin))
            best = i;
    }
    (void)mica__spend(p->gaps / 8);
    if (best != NONE) {
        const uint64_t at = p->gap[best].begin;
        p->gap[best].begin += size;
        if (p->gap[best].begin == p->gap[best].end)
            remove_gap(p, best);
        return at;
    }
    uint64_t at = p->end;
    if (p->gaps > 0 && p->gap[p->gaps - 1].end == p->end)
        at = p->gap[--p->gaps].begin;
    p->end = at + size;
    return at;
}

/* ---- in place ---- */

static bool same_view(const mica__operand *a, const mica__operand *b)
{
    mica__operand there = *a;
    there.storage = b->storage;
    return mica__operand_same(&there, b);
}

/* Whether `output`, with which the value is born in its record, may take the place of the value `old`: nobody but that record
 * touches `old` from its group on, and only through the very same view, where the op allows it. */
static bool takes_over(const placing *p, const mica__record *record, const value *v, uint32_t output,
                       const value *old)
{
    if (old->taken || old->last_record != v->birth.record || old->size != v->size ||
        (old->other_group != NONE && old->other_group == old->last) || old->first == old->last)
        return false;
    for (uint32_t i = 0; i < p->flow.node[v->birth.record].count; i++) {
        const mica__touch *touch = &p->flow.node[v->birth.record].touch[i];
        const mica__operand *operand = &record->operand[touch->slot];
        if (touch->storage == v->number && touch->slot != output)
            return false;
        if (touch->storage == old->number &&
            (operand->access != MICA_ACCESS_READ || !same_view(operand, &record->operand[output]) ||
             !mica__may_share(record, output, touch->slot)))
            return false;
    }
    return true;
}

/* The value whose place this one takes over, or NULL. */
static value *find_taken(placing *p, const value *v)
{
    const mica__flow_node *node = &p->flow.node[v->birth.record];
    const mica__record *record = p->flow.list->record[v->birth.record];
    const uint32_t output = node->touch[v->birth.at].slot;
    if (record->operand[output].access != MICA_ACCESS_WRITE)
        return NULL;
    for (uint32_t i = 0; i < node->count; i++) {
        const uint32_t old = p->of[node->touch[i].storage];
        if (old != NONE && &p->value[old] != v && takes_over(p, record, v, output, &p->value[old]))
            return &p->value[old];
    }
    return NULL;
}

/* ---- placing ---- */

/* What died before `group` is free. `next` is the first group whose dead were not looked at. */
static void free_dead(placing *p, uint32_t group, uint32_t *next, uint64_t *alive)
{
    for (; *next < group; ++*next)
        for (uint32_t i = p->dead[*next]; i != NONE; i = p->value[i].next_dead) {
            if (p->value[i].taken)
                continue;
            give_place(p, p->value[i].offset, p->value[i].offset + p->value[i].size);
            *alive -= p->value[i].bytes;
        }
}

static mica_status place_values(placing *p, uint64_t *out_bound)
{
    uint64_t alive = 0;
    uint32_t next = 0;
    memset(p->dead, 0xff, p->groups * sizeof *p->dead);
    for (uint32_t i = 0; i < p->count; i++) {
        p->value[i].next_dead = p->dead[p->value[i].last];
        p->dead[p->value[i].last] = i;
    }
    for (uint32_t i = 0; i < p->count; i++) {
        value *v = &p->value[i];
        MICA__TRY(mica__spend(4));
        free_dead(p, v->first, &next, &alive);
        value *old = find_taken(p, v);
        v->owner = old != NULL ? old->owner : i;
        if (old != NULL) {
            old->taken = true;
            v->offset = old->offset;
            alive += v->bytes - old->bytes;
        } else {
            v->offset = take_place(p, v->size);
            alive += v->bytes;
        }
        *out_bound = alive > *out_bound ? alive : *out_bound;
    }
    return MICA_OK;
}

/* A place, from the birth of the first value there to the death of the last. */
typedef struct lot {
    uint64_t offset, size;
    uint32_t first, last, owner;
} lot;

static int by_size(const void *a, const void *b)
{
    const lot *x = a, *y = b;
    if (x->size != y->size)
        return x->size > y->size ? -1 : 1;
    return x->owner < y->owner ? -1 : x->owner > y->owner;
}

static uint32_t find_lots(const placing *p, lot *lots, uint32_t *lot_of)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        const value *v = &p->value[i];
        if (v->owner == i) {
            lot_of[i] = count;
            lots[count++] = (lot){.size = v->size, .first = v->first, .last = v->last, .owner = i};
        } else if (lots[lot_of[v->owner]].last < v->last) {
            lots[lot_of[v->owner]].last = v->last;
        }
    }
    return count;
}

/* Where a lot fits between those that were placed, which are in the order of their offsets, and live when it does; and how many of them lie before it. */
static uint64_t find_offset(const lot *placed, uint32_t count, const lot *l)
{
    uint64_t end = 0, best = UINT64_MAX, at = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (placed[i].last < l->first || l->last < placed[i].first)
            continue;
        const uint64_t room = placed[i].offset > end ? placed[i].offset - end : 0;
        if (room >= l->size && room < best) {
            best = room;
            at = end;
        }
        end = end > placed[i].offset + placed[i].size ? end : placed[i].offset + placed[i].size;
    }
    return best == UINT64_MAX ? end : at;
}

/* Lots in `lots`, by size, to `placed`, by offset; where they end. */
static mica_status place_lots(const lot *lots, uint32_t count, lot *placed, uint64_t *out_end)
{
    *out_end = 0;
    for (uint32_t i = 0; i < count; i++) {
        lot l = lots[i];
        MICA__TRY(mica__spend(1 + i / 8));
        l.offset = find_offset(placed, i, &l);
        *out_end = *out_end > l.offset + l.size ? *out_end : l.offset + l.size;
        uint32_t at = i;
        for (; at > 0 && placed[at - 1].offset > l.offset; at--)
            placed[at] = placed[at - 1];
        placed[at] = l;
    }
    return MICA_OK;
}

static mica_status place_again(placing *p)
{
    lot *lots = mica__alloc(2u * p->count * sizeof *lots);
    uint32_t *lot_of = mica__alloc(p->count * sizeof *lot_of);
    uint64_t end = 0;
    mica_status status =
        lots == NULL || lot_of == NULL
            ? mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory to place %u temporaries", p->count)
            : MICA_OK;
    if (status == MICA_OK) {
        lot *placed = lots + p->count;
        const uint32_t count = find_lots(p, lots, lot_of);
        qsort(lots, count, sizeof *lots, by_size);
        status = place_lots(lots, count, placed, &end);
        for (uint32_t i = 0; i < count && status == MICA_OK && end < p->end; i++)
            p->value[placed[i].owner].offset = placed[i].offset;
        for (uint32_t i = 0; i < p->count && status == MICA_OK && end < p->end; i++)
            p->value[i].offset = p->value[p->value[i].owner].offset;
        p->end = status == MICA_OK && end < p->end ? end : p->end;
    }
    mica__free(lots);
    mica__free(lot_of);
    return status;
}

static mica_status place(placing *p, const mica__storages *storages, mica__placement *out)
{
    const uint32_t records = p->flow.list->count, numbers = storages->count;
    p->group = mica__alloc((records + 1u) * sizeof *p->group);
    p->dead = mica__alloc((records + 1u) * sizeof *p->dead);
    p->of = mica__alloc((numbers + 1u) * sizeof *p->of);
    p->value = mica__alloc((numbers + 1u) * sizeof *p->value);
    p->gap = mica__alloc((numbers + 2u) * sizeof *p->gap);
    out->offset = mica__calloc(numbers + 1u, sizeof *out->offset);
    if (p->group == NULL || p->dead == NULL || p->of == NULL || p->value == NULL || p->gap == NULL ||
        out->offset == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory to place the temporaries of %u records",
                          records);
    MICA__TRY(find_groups(p));
    MICA__TRY(find_values(p, storages));
    MICA__TRY(place_values(p, &out->bound));
    if (p->end > out->bound + out->bound / 64 && p->count <= MOST_AGAIN)
        MICA__TRY(place_again(p));
    for (uint32_t i = 0; i < p->count; i++)
        out->offset[p->value[i].number] = p->value[i].offset;
    out->bytes = p->end;
    return MICA_OK;
}

static bool has_unplaced(const mica__storages *storages)
{
    for (uint32_t i = 0; i < storages->count; i++)
        if (storages->storage[i]->memory == NULL)
            return true;
    return false;
}

mica_status mica__place(mica__record_list *list, mica__placement *out)
{
    placing p = {0};
    memset(out, 0, sizeof *out);
    MICA__TRY(mica__storages_build(list, &out->storages));
    if (!has_unplaced(&out->storages))
        return MICA_OK;
    mica_status status = mica__flow_build(list, &p.flow); /* which numbers storages in the same way */
    if (status == MICA_OK)
        status = place(&p, &out->storages, out);
    mica__flow_free(&p.flow);
    mica__free(p.group);
    mica__free(p.dead);
    mica__free(p.of);
    mica__free(p.value);
    mica__free(p.gap);
    if (status != MICA_OK)
        mica__placement_free(out);
    return status;
}

void mica__placement_free(mica__placement *placement)
{
    mica__storages_free(&placement->storages);
    mica__free(placement->offset);
    memset(placement, 0, sizeof *placement);
}

mica__operand mica__placed_operand(const mica__placement *placement, mica__storage *arena,
                                   const mica__operand *operand)
{
    mica__operand placed = *operand;
    if (!mica__operand_present(operand) || operand->memory != NULL)
        return placed;
    placed.offset += placement->offset[mica__storages_find(&placement->storages, operand->storage)];
    placed.storage = arena;
    placed.memory = arena->memory;
    return placed;
}
