/*
 * dataflow.c - see dataflow.h.
 */
#include "session/dataflow.h"

#include <string.h>

#include "backend/op_table.h"
#include "base/alloc.h"
#include "base/status.h"
#include "base/work.h"
#include "session/storages.h"

#define NODE_STEPS 50u /* of what a record touches */
#define NO_TOUCH ((mica__touch_ref){UINT32_MAX, 0})

bool mica__operands_overlap(const mica__operand *a, const mica__operand *b)
{
    mica__range ra, rb;
    if (!mica__operand_present(a) || !mica__operand_present(b) || a->storage != b->storage)
        return false;
    mica__range_of(a, &ra);
    mica__range_of(b, &rb);
    return mica__ranges_overlap(&ra, &rb);
}

/* Steps of a walk over so many touches. Whoever asked for it is told when there are none left, the next time that it takes
 * one. */
static void count_walk(uint64_t touches)
{
    (void)mica__spend(1 + touches / 4);
}

static bool writes(const mica__touch *touch)
{
    return (touch->range.access & MICA_ACCESS_WRITE) != 0;
}

/* ---- links ---- */

/* Everything after `at`, up to the next write and with it, has `writer` before it. */
static void point_at_writer(mica__flow *flow, mica__touch_ref at, mica__touch_ref writer)
{
    uint64_t walked = 0;
    for (mica__touch_ref r = mica__touch_at(flow, at)->next; mica__touch_is(r);
         r = mica__touch_at(flow, r)->next) {
        mica__touch_at(flow, r)->writer = writer;
        walked++;
        if (writes(mica__touch_at(flow, r)))
            break;
    }
    count_walk(walked);
}

/* Links a touch between two neighbours, of which either may not be there. */
static void link_touch(mica__flow *flow, mica__touch_ref ref, mica__touch_ref before, mica__touch_ref after)
{
    mica__touch *touch = mica__touch_at(flow, ref);
    touch->prev = before;
    touch->next = after;
    touch->writer = NO_TOUCH;
    if (mica__touch_is(before)) {
        mica__touch *b = mica__touch_at(flow, before);
        touch->writer = writes(b) ? before : b->writer;
        b->next = ref;
    }
    if (mica__touch_is(after))
        mica__touch_at(flow, after)->prev = ref;
    if (writes(touch))
        point_at_writer(flow, ref, ref);
}

static void unlink_touch(mica__flow *flow, mica__touch_ref ref)
{
    const mica__touch *touch = mica__touch_at(flow, ref);
    if (writes(touch))
        point_at_writer(flow, ref, touch->writer);
    if (mica__touch_is(touch->prev))
        mica__touch_at(flow, touch->prev)->next = touch->next;
    if (mica__touch_is(touch->next))
        mica__touch_at(flow, touch->next)->prev = touch->prev;
}

/* ---- building ---- */

static uint32_t count_present(const mica__record *record)
{
    uint32_t count = 0;
    for (uint32_t i = 0; record != NULL && i < record->operand_count; i++)
        count += mica__operand_present(&record->operand[i]);
    return count;
}

/* The touches of a record, not linked yet. */
static void fill_touches(const mica__record *record, mica__touch *touch)
{
    for (uint32_t i = 0; record != NULL && i < record->operand_count; i++) {
        if (!mica__operand_present(&record->operand[i]))
            continue;
        mica__range_of(&record->operand[i], &touch->range);
        touch->slot = i;
        touch->prev = touch->next = touch->writer = NO_TOUCH;
        touch++;
    }
}

/* Links the touches of record `at` behind the last ones of their storages, which `last` has by number. */
static void append(mica__flow *flow, uint32_t at, const mica__storages *storages, mica__touch_ref *last)
{
    const mica__flow_node *node = &flow->node[at];
    for (uint32_t i = 0; i < node->count; i++) {
        mica__touch *touch = &node->touch[i];
        const uint32_t number = mica__storages_find(storages, touch->range.storage);
        touch->storage = number;
        link_touch(flow, (mica__touch_ref){at, i}, last[number], NO_TOUCH);
        flow->written[number] |= writes(touch);
        last[number] = (mica__touch_ref){at, i};
    }
}

static mica_status build_nodes(mica__flow *flow, const mica__storages *storages, mica__touch_ref *last)
{
    mica__touch *touch = flow->touch;
    uint32_t segment = 0;
    memset(last, 0xff, (storages->count + 1u) * sizeof *last);
    for (uint32_t i = 0; i < flow->list->count; i++) {
        const mica__record *record = flow->list->record[i];
        MICA__TRY(mica__spend(NODE_STEPS));
        segment += record->barrier_before != 0;
        flow->segment[i] = segment;
        flow->node[i] = (mica__flow_node){touch, count_present(record), false};
        fill_touches(record, touch);
        touch += flow->node[i].count;
        append(flow, i, storages, last);
    }
    return MICA_OK;
}

mica_status mica__flow_build(mica__record_list *list, mica__flow *out)
{
    mica__flow flow = {.list = list};
    mica__storages storages;
    uint64_t touches = 0;
    memset(out, 0, sizeof *out);
    out->list = list;
    if (list->count == 0)
        return MICA_OK;
    for (uint32_t i = 0; i < list->count; i++)
        touches += count_present(list->record[i]);
    mica_status status = mica__storages_build(list, &storages);
    if (status != MICA_OK)
        return status;
    mica__touch_ref *last = mica__alloc((storages.count + 1u) * sizeof *last);
    flow.node = mica__calloc(list->count, sizeof *flow.node);
    flow.touch = mica__alloc((touches + 1) * sizeof *flow.touch);
    flow.segment = mica__alloc(list->count * sizeof *flow.segment);
    flow.written = mica__calloc(storages.count + 1u, 1);
    status =
        last == NULL || flow.node == NULL || flow.touch == NULL || flow.segment == NULL ||
                flow.written == NULL
            ? mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for the data flow of %u records", list->count)
            : build_nodes(&flow, &storages, last);
    mica__free(last);
    mica__storages_free(&storages);
    if (status == MICA_OK)
        *out = flow;
    else
        mica__flow_free(&flow);
    return status;
}

void mica__flow_free(mica__flow *flow)
{
    for (uint32_t i = 0; flow->node != NULL && i < flow->list->count; i++)
        if (flow->node[i].own)
            mica__free(flow->node[i].touch);
    mica__free(flow->node);
    mica__free(flow->touch);
    mica__free(flow->segment);
    mica__free(flow->written);
    *flow = (mica__flow){.list = flow->list};
}

/* ---- replacing ---- */

static bool is_member(const uint32_t *member, uint32_t count, uint32_t at)
{
    for (uint32_t i = 0; i < count; i++)
        if (member[i] == at)
            return true;
    return false;
}

/* A touch of the members on that storage: what a fused record touches, one of its parts did. */
static mica__touch_ref find_touch(const mica__flow *flow, const uint32_t *member, uint32_t count,
                                  const void *storage)
{
    for (uint32_t m = 0; m < count; m++)
        for (uint32_t i = 0; i < flow->node[member[m]].count; i++)
            if (flow->node[member[m]].touch[i].range.storage == storage)
                return (mica__touch_ref){member[m], i};
    return NO_TOUCH;
}

/* The neighbours that a touch at `place` has once the members are gone, in `prev` and `next` of it. Where nobody writes there is no
 * order to keep: it stays where the member's was. */
static void find_neighbours(const mica__flow *flow, const uint32_t *member, uint32_t count, uint32_t place,
                            mica__touch *touch)
{
    const mica__touch_ref part = find_touch(flow, member, count, touch->range.storage);
    mica__touch_ref before = part, after = part, r;
    uint64_t walked = 0;
    touch->storage = mica__touch_at(flow, part)->storage;
    const bool ordered = flow->written[touch->storage] != 0;
    for (; ordered && mica__touch_is(r = mica__touch_at(flow, before)->next) && r.record < place; walked++)
        before = r;
    for (; mica__touch_is(before) &&
           ((ordered && before.record >= place) || is_member(member, count, before.record));
         walked++)
        before = mica__touch_at(flow, before)->prev;
    for (; ordered && mica__touch_is(r = mica__touch_at(flow, after)->prev) && r.record > place; walked++)
        after = r;
    for (; mica__touch_is(after) &&
           ((ordered && after.record <= place) || is_member(member, count, after.record));
         walked++)
        after = mica__touch_at(flow, after)->next;
    touch->prev = before;
    touch->next = after;
    count_walk(walked);
}

/* Gives every new touch its neighbours. False: it touches what no member did. */
static bool find_all(const mica__flow *flow, const uint32_t *member, uint32_t count, uint32_t place,
                     mica__touch *touch, uint32_t touches)
{
    for (uint32_t i = 0; i < touches; i++) {
        if (!mica__touch_is(find_touch(flow, member, count, touch[i].range.storage)))
            return false;
        find_neighbours(flow, member, count, place, &touch[i]);
    }
    return true;
}

static void link_all(mica__flow *flow, uint32_t place)
{
    const mica__flow_node *node = &flow->node[place];
    for (uint32_t i = 0; i < node->count; i++) {
        mica__touch_ref before = node->touch[i].prev, after = node->touch[i].next;
        for (uint32_t k = 0; k < i; k++)
            if (node->touch[k].storage == node->touch[i].storage)
                before = (mica__touch_ref){place, k};
        link_touch(flow, (mica__touch_ref){place, i}, before, after);
    }
}

/* A barrier asked for before the first member stays where it was. */
static void keep_barrier(mica__record_list *list, uint32_t first)
{
    while (list->record[first] == NULL)
        first++;
    list->record[first]->barrier_before = 1;
}

mica_status mica__flow_replace(mica__flow *flow, const uint32_t *member, uint32_t count, uint32_t target,
                               mica__record *fused)
{
    const uint32_t place = member[target], touches = count_present(fused);
    mica__record_list *list = flow->list;
    mica__touch *touch = mica__alloc((touches + 1u) * sizeof *touch);
    if (touch == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for what a record touches");
    fill_touches(fused, touch);
    if (!find_all(flow, member, count, place, touch, touches)) {
        mica__free(touch);
        return mica__fail(MICA_ERR_INTERNAL, "fusion %s touches what none of its records did", fused->fused);
    }
    for (uint32_t m = 0; m < count; m++)
        for (uint32_t i = 0; i < flow->node[member[m]].count; i++)
            unlink_touch(flow, (mica__touch_ref){member[m], i});
    const bool barrier = list->record[member[0]]->barrier_before != 0;
    for (uint32_t m = 0; m < count; m++) {
        mica__flow_node *node = &flow->node[member[m]];
        if (node->own)
            mica__free(node->touch);
        *node = (mica__flow_node){0};
        mica__record_free(list->record[member[m]]);
        list->record[member[m]] = NULL;
    }
    list->record[place] = fused;
    flow->node[place] = (mica__flow_node){touch, touches, true};
    link_all(flow, place);
    if (barrier)
        keep_barrier(list, member[0]);
    return MICA_OK;
}

/* ---- order ---- */

/* Whether a touch of a member can go from its record to `place` past whoever is between and stays. */
static bool can_pass(const mica__flow *flow, const uint32_t *member, uint32_t count, mica__touch_ref own,
                     uint32_t place)
{
    const mica__touch *touch = mica__touch_at(flow, own);
    const bool down = own.record < place;
    mica__touch_ref r = down ? touch->next : touch->prev;
    uint64_t walked = 0;
    bool passes = true;
    if (!flow->written[touch->storage])
        return true;
    for (; passes && mica__touch_is(r) && (down ? r.record < place : r.record > place); walked++) {
        const mica__touch *other = mica__touch_at(flow, r);
        passes = !mica__ranges_conflict(&touch->range, &other->range) || is_member(member, count, r.record);
        r = down ? other->next : other->prev;
    }
    count_walk(walked);
    return passes;
}

bool mica__flow_can_gather(const mica__flow *flow, const uint32_t *member, uint32_t count, uint32_t target)
{
    const uint32_t place = member[target];
    if (flow->segment[member[0]] != flow->segment[member[count - 1]])
        return false;
    for (uint32_t m = 0; m < count; m++)
        for (uint32_t i = 0; m != target && i < flow->node[member[m]].count; i++)
            if (!can_pass(flow, member, count, (mica__touch_ref){member[m], i}, place))
                return false;
    return true;
}

/* ---- values ---- */

/* No gap between the first and the last byte. */
static bool is_solid(const mica__operand *operand)
{
    uint64_t elements = 1, block = mica_dtype_block_elements((mica_dtype)operand->dtype);
    for (uint32_t d = 0; d < operand->ndim; d++)
        elements *= operand->shape[d]; /* checked when the buffer was made */
    return block != 0 &&
           elements / block * mica_dtype_block_bytes((mica_dtype)operand->dtype) == operand->length;
}

static bool covers(const mica__operand *writer, const mica__operand *value)
{
    if (mica__operand_same(writer, value))
        return true;
    return writer->storage == value->storage && writer->layout == MICA_LAYOUT_CANONICAL && is_solid(writer) &&
           writer->offset <= value->offset &&
           writer->offset + writer->length >= value->offset + value->length;
}

static mica__touch_ref find_slot(const mica__flow *flow, uint32_t at, uint32_t slot)
{
    for (uint32_t i = 0; i < flow->node[at].count; i++)
        if (flow->node[at].touch[i].slot == slot)
            return (mica__touch_ref){at, i};
    return NO_TOUCH;
}

uint32_t mica__flow_uses(const mica__flow *flow, uint32_t at, uint32_t slot, mica__use *out,
                         uint32_t capacity)
{
    const mica__operand *value = &flow->list->record[at]->operand[slot];
    mica__touch_ref r = find_slot(flow, at, slot);
    uint32_t found = 0, gone = UINT32_MAX; /* gone: the record that overwrites it */
    uint64_t walked = 0;
    for (; mica__touch_is(r) && r.record <= gone && found <= capacity;
         r = mica__touch_at(flow, r)->next, walked++) {
        const mica__record *record = flow->list->record[r.record];
        const uint32_t i = mica__touch_at(flow, r)->slot;
        const mica__operand *operand = &record->operand[i];
        if (r.record == at)
            continue;
        if ((operand->access & MICA_ACCESS_READ) && mica__operands_overlap(operand, value)) {
            if (found < capacity)
                out[found] = (mica__use){r.record, i};
            found++;
        }
        if (mica__writes_whole(record, i) && covers(operand, value))
            gone = r.record;
    }
    count_walk(walked);
    return found;
}

bool mica__flow_last_write(const mica__flow *flow, uint32_t at, uint32_t slot, mica__use *out)
{
    const mica__operand *value = &flow->list->record[at]->operand[slot];
    mica__touch_ref r = find_slot(flow, at, slot);
    uint64_t walked = 0;
    while (mica__touch_is(r)) {
        const mica__touch *touch = mica__touch_at(flow, r);
        if (r.record != at &&
            mica__operands_overlap(&flow->list->record[r.record]->operand[touch->slot], value))
            break;
        r = touch->writer;
        walked++;
    }
    count_walk(walked);
    if (!mica__touch_is(r))
        return false;
    *out = (mica__use){r.record, mica__touch_at(flow, r)->slot};
    return true;
}

bool mica__flow_writer(const mica__flow *flow, uint32_t at, uint32_t slot, mica__use *out)
{
    if (!mica__flow_last_write(flow, at, slot, out))
        return false;
    const mica__record *writer = flow->list->record[out->record];
    return mica__writes_whole(writer, out->slot) &&
           mica__operand_same(&writer->operand[out->slot], &flow->list->record[at]->operand[slot]);
}

bool mica__flow_next(const mica__flow *flow, mica__use *use)
{
    mica__touch_ref r = find_slot(flow, use->record, use->slot);
    while (mica__touch_is(r) && r.record == use->record)
        r = mica__touch_at(flow, r)->next;
    if (!mica__touch_is(r))
        return false;
    *use = (mica__use){r.record, mica__touch_at(flow, r)->slot};
    return true;
}
