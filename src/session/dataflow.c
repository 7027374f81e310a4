/*
 * dataflow.c - see dataflow.h.
 */
#include "session/dataflow.h"

#include "base/alloc.h"
#include "base/status.h"
#include "base/work.h"

#define NODE_STEPS 50u /* of what a record touches */

static uint64_t storage_bit(const void *storage)
{
    /* Fibonacci hashing: the top six bits of the product spread neighbouring addresses. */
    return (uint64_t)1 << (((uint64_t)(uintptr_t)storage * UINT64_C(0x9E3779B97F4A7C15)) >> 58);
}

bool mica__operands_overlap(const mica__operand *a, const mica__operand *b)
{
    mica__range ra, rb;
    if (!mica__operand_present(a) || !mica__operand_present(b) || a->storage != b->storage)
        return false;
    mica__range_of(a, &ra);
    mica__range_of(b, &rb);
    return mica__ranges_overlap(&ra, &rb);
}

/* Steps of a search over so many records: most are passed over at a glance. Whoever asked for it is told when there are
 * none left, the next time that it takes one. */
static void count_search(uint64_t records)
{
    (void)mica__spend(1 + records / 8);
}

/* ---- building ---- */

static mica_status node_fill(mica__flow_node *node, const mica__record *record)
{
    mica__flow_node fresh = {0};
    if (record != NULL && record->operand_count > 0) {
        fresh.range = mica__alloc(record->operand_count * sizeof *fresh.range);
        if (fresh.range == NULL)
            return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for the ranges of a record");
    }
    for (uint32_t i = 0; record != NULL && i < record->operand_count; i++) {
        const mica__operand *operand = &record->operand[i];
        if (!mica__operand_present(operand))
            continue;
        mica__range_of(operand, &fresh.range[fresh.range_count++]);
        if (operand->access & MICA_ACCESS_READ)
            fresh.reads |= storage_bit(operand->storage);
        if (operand->access & MICA_ACCESS_WRITE)
            fresh.writes |= storage_bit(operand->storage);
    }
    mica__free(node->range);
    *node = fresh;
    return MICA_OK;
}

mica_status mica__flow_build(mica__record_list *list, mica__flow *out)
{
    mica__flow flow = {list, NULL};
    *out = flow;
    if (list->count == 0)
        return MICA_OK;
    flow.node = mica__calloc(list->count, sizeof *flow.node);
    if (flow.node == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for the data flow of %u records", list->count);
    for (uint32_t i = 0; i < list->count; i++) {
        mica_status status = mica__spend(NODE_STEPS);
        if (status == MICA_OK)
            status = node_fill(&flow.node[i], list->record[i]);
        if (status != MICA_OK) {
            mica__flow_free(&flow);
            return status;
        }
    }
    *out = flow;
    return MICA_OK;
}

void mica__flow_free(mica__flow *flow)
{
    for (uint32_t i = 0; flow->node != NULL && i < flow->list->count; i++)
        mica__free(flow->node[i].range);
    mica__free(flow->node);
    flow->node = NULL;
}

mica_status mica__flow_refresh(mica__flow *flow, uint32_t at)
{
    return node_fill(&flow->node[at], flow->list->record[at]);
}

/* ---- order ---- */

bool mica__flow_conflict(const mica__flow *flow, uint32_t a, uint32_t b)
{
    const mica__flow_node *x = &flow->node[a], *y = &flow->node[b];
    if (((x->reads & y->writes) | (x->writes & (y->reads | y->writes))) == 0)
        return false;
    for (uint32_t i = 0; i < x->range_count; i++)
        for (uint32_t j = 0; j < y->range_count; j++)
            if (x->range[i].storage == y->range[j].storage &&
                mica__ranges_conflict(&x->range[i], &y->range[j]))
                return true;
    return false;
}

static bool is_member(const uint32_t *member, uint32_t count, uint32_t at)
{
    for (uint32_t i = 0; i < count; i++)
        if (member[i] == at)
            return true;
    return false;
}

bool mica__flow_can_gather(const mica__flow *flow, const uint32_t *member, uint32_t count, uint32_t target)
{
    uint32_t place = member[target];
    count_search(member[count - 1] - member[0]);
    for (uint32_t k = member[0]; k <= member[count - 1]; k++) {
        const mica__record *record = flow->list->record[k];
        if (record == NULL)
            continue;
        if (record->barrier_before && k != member[0])
            return false;
        if (is_member(member, count, k))
            continue;
        for (uint32_t i = 0; i < count; i++) {
            bool passes = member[i] < place ? (k > member[i] && k < place) : (k < member[i] && k > place);
            if (passes && mica__flow_conflict(flow, member[i], k))
                return false;
        }
    }
    return true;
}

/* ---- values ---- */

/* Does the op write every byte of this operand? Caches get only some slots; what a custom kernel does is not
 * known. */
static bool writes_whole(const mica__record *record, uint32_t slot)
{
    if (record->operand[slot].access != MICA_ACCESS_WRITE || record->op == MICA_OP_CUSTOM)
        return false;
    return !(record->op == MICA_OP_KV_WRITE && slot == MICA__KV_CACHE) &&
           !(record->op == MICA_OP_ROPE && slot == MICA__ROPE_CACHE);
}

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

static bool overwrites(const mica__record *record, const mica__operand *value)
{
    for (uint32_t i = 0; i < record->operand_count; i++)
        if (mica__operand_present(&record->operand[i]) && writes_whole(record, i) &&
            covers(&record->operand[i], value))
            return true;
    return false;
}

uint32_t mica__flow_uses(const mica__flow *flow, uint32_t at, uint32_t slot, mica__use *out,
                         uint32_t capacity)
{
    const mica__operand *value = &flow->list->record[at]->operand[slot];
    uint64_t bit = storage_bit(value->storage);
    uint32_t found = 0, k = at + 1;
    for (; k < flow->list->count; k++) {
        const mica__flow_node *node = &flow->node[k];
        const mica__record *record = flow->list->record[k];
        if (record == NULL || ((node->reads | node->writes) & bit) == 0)
            continue;
        for (uint32_t i = 0; i < record->operand_count; i++) {
            const mica__operand *operand = &record->operand[i];
            if (!(operand->access & MICA_ACCESS_READ) || !mica__operands_overlap(operand, value))
                continue;
            if (found < capacity)
                out[found] = (mica__use){k, i};
            found++;
        }
        if (overwrites(record, value))
            break;
    }
    count_search(k - at);
    return found;
}

bool mica__flow_writer(const mica__flow *flow, uint32_t at, uint32_t slot, mica__use *out)
{
    const mica__operand *value = &flow->list->record[at]->operand[slot];
    uint64_t bit = storage_bit(value->storage);
    for (uint32_t k = at; k-- > 0;) {
        const mica__record *record = flow->list->record[k];
        if (record == NULL || (flow->node[k].writes & bit) == 0)
            continue;
        for (uint32_t i = 0; i < record->operand_count; i++) {
            const mica__operand *operand = &record->operand[i];
            if (!(operand->access & MICA_ACCESS_WRITE) || !mica__operands_overlap(operand, value))
                continue;
            *out = (mica__use){k, i};
            count_search(at - k);
            return writes_whole(record, i) && mica__operand_same(operand, value);
        }
    }
    count_search(at);
    return false;
}
