/*
 * fuse.c - the engine that applies the fusion table.
 *
 * Patterns live in fusion_*.c and know ops; this file knows how records are replaced without changing a
 * result.
 */
#include "mica/session.h"

#include <string.h>

#include "backend/op_table.h"
#include "backend/planning.h"
#include "base/alloc.h"
#include "base/status.h"
#include "base/work.h"
#include "device/registry.h"
#include "session/fusion.h"
#include "session/passes.h"

#define FUSION(function, name, meaning, exact) {name, meaning, exact},
static const mica_fusion_info fusion_info[] = {
#include "session/fusion.def"
};
#undef FUSION
#define FUSION(function, name, meaning, exact) mica__fusion_##function,
static const mica__fusion_apply fusion_apply[] = {
#include "session/fusion.def"
};
#undef FUSION
#define FUSION_COUNT (sizeof fusion_info / sizeof fusion_info[0])

uint32_t mica_fusion_list(const mica_fusion_info **out_table)
{
    if (out_table != NULL)
        *out_table = fusion_info;
    return FUSION_COUNT;
}

/* ---- drafts ---- */

void mica__draft_begin(mica__draft *draft, const mica__fusion_pass *pass, uint32_t at)
{
    draft->record = *pass->list->record[at];
    draft->record.barrier_before = 0;
    draft->record.operand = draft->operand;
    draft->record.params = draft->params;
    draft->member_count = 0;
    mica__draft_join(draft, at);
}

void mica__draft_from(mica__draft *draft, const mica__fusion_pass *pass, uint32_t at)
{
    const mica__record *source = pass->list->record[at];
    memset(draft, 0, sizeof *draft);
    mica__draft_begin(draft, pass, at);
    memcpy(draft->operand, source->operand, source->operand_count * sizeof *source->operand);
    memcpy(draft->params, source->params, source->params_size);
}

void mica__draft_join(mica__draft *draft, uint32_t at)
{
    uint32_t i = draft->member_count++;
    for (; i > 0 && draft->member[i - 1] > at; i--)
        draft->member[i] = draft->member[i - 1];
    draft->member[i] = at;
}

mica__record *mica__fusion_record(const mica__fusion_pass *pass, uint32_t at, mica_op op)
{
    return pass->op[at] == op ? pass->list->record[at] : NULL;
}

bool mica__fusion_reader(const mica__fusion_pass *pass, uint32_t at, uint32_t slot, mica__use *out)
{
    const mica__operand *value = &pass->list->record[at]->operand[slot];
    if (!mica__operand_present(value) || value->dtype != MICA_DTYPE_F32)
        return false;
    if (mica__flow_uses(&pass->flow, at, slot, out, 1) != 1)
        return false;
    const mica__record *reader = pass->list->record[out->record];
    if (!mica__operand_same(&reader->operand[out->slot], value))
        return false;
    if (value->temporary)
        return true;
    for (uint32_t i = 0; i < reader->operand_count; i++)
        if (reader->operand[i].access == MICA_ACCESS_WRITE && mica__operand_same(&reader->operand[i], value))
            return true;
    return false;
}

bool mica__fusion_consumer(const mica__fusion_pass *pass, uint32_t at, uint32_t slot, mica_op op,
                           mica__use *out)
{
    return mica__fusion_reader(pass, at, slot, out) && mica__fusion_record(pass, out->record, op) != NULL;
}

bool mica__fusion_consumer_region(const mica__fusion_pass *pass, uint32_t at, uint32_t slot,
                                  mica_scalar scalar, mica__use *out)
{
    return mica__fusion_reader(pass, at, slot, out) &&
           mica__region_is(pass->list->record[out->record], scalar);
}

bool mica__fusion_rows_like(const mica__operand *operand, const mica__operand *like)
{
    if (!mica__operand_present(operand) || operand->ndim != like->ndim || operand->ndim == 0 ||
        (operand->dtype != MICA_DTYPE_F32 && operand->dtype != MICA_DTYPE_F16 &&
         operand->dtype != MICA_DTYPE_BF16))
        return false;
    for (uint32_t d = 0; d < like->ndim; d++)
        if (operand->shape[d] != like->shape[d])
            return false;
    return operand->stride[operand->ndim - 1u] == mica_dtype_block_bytes((mica_dtype)operand->dtype);
}

/* ---- legality ---- */

/* No output touches another operand, except in place. */
static bool overlaps_legal(const mica__record *record)
{
    for (uint32_t out = 0; out < record->operand_count; out++) {
        const mica__operand *y = &record->operand[out];
        if (!(y->access & MICA_ACCESS_WRITE))
            continue;
        for (uint32_t in = 0; in < record->operand_count; in++) {
            const mica__operand *x = &record->operand[in];
            if (in == out || x->storage != y->storage || !mica__operands_overlap(x, y))
                continue;
            if ((x->access & MICA_ACCESS_WRITE) || !mica__operand_same(x, y) ||
                !mica__may_share(record, out, in))
                return false;
        }
    }
    return true;
}

/* The member at whose place the draft can run: the earliest one. */
static bool find_place(const mica__fusion_pass *pass, const mica__draft *draft, uint32_t *out_target)
{
    for (uint32_t t = 0; t < draft->member_count; t++) {
        if (mica__flow_can_gather(&pass->flow, draft->member, draft->member_count, t)) {
            *out_target = t;
            return true;
        }
    }
    return false;
}

/* ---- replacing ---- */

static void name_draft(const mica__fusion_pass *pass, mica__draft *draft)
{
    mica__record *record = &draft->record;
    record->fused = pass->name;
    record->label = "";
    record->original_index = UINT32_MAX;
    for (uint32_t i = 0; i < draft->member_count; i++) {
        const mica__record *member = pass->list->record[draft->member[i]];
        if (record->label[0] == '\0')
            record->label = member->label;
        if (member->original_index < record->original_index)
            record->original_index = member->original_index;
    }
}

static mica_status replace(mica__fusion_pass *pass, const mica__draft *draft, uint32_t target)
{
    mica__record_list *made = &pass->made;
    MICA__TRY(mica__record_list_add(made, &draft->record));
    made->count = 0;
    const mica_status status =
        mica__flow_replace(&pass->flow, draft->member, draft->member_count, target, made->record[0]);
    if (status != MICA_OK) {
        mica__record_free(made->record[0]);
        return status;
    }
    for (uint32_t i = 0; i < draft->member_count; i++)
        pass->op[draft->member[i]] = UINT16_MAX;
    pass->op[draft->member[target]] = draft->record.op;
    return MICA_OK;
}

/* Whether the members of the draft's own op have the kernels of its row when they are alone. Another row adds up in another
 * order, so joining would change bits; and it is the one that the device has for such a record. Regions add nothing up. */
static bool keeps_its_row(const mica__fusion_pass *pass, const mica__draft *draft)
{
    const mica__kernel_row *row = mica__registry_row(pass->device, &draft->record);
    for (uint32_t i = 0; i < draft->member_count; i++) {
        const mica__record *member = pass->list->record[draft->member[i]];
        if (member->op == draft->record.op && member->op != MICA_OP_REGION &&
            mica__registry_row(pass->device, member) != row)
            return false;
    }
    return true;
}

mica_status mica__fusion_offer(mica__fusion_pass *pass, mica__draft *draft, bool *out_applied)
{
    uint32_t target = 0;
    if (!overlaps_legal(&draft->record) || !find_place(pass, draft, &target))
        return MICA_OK;
    name_draft(pass, draft);
    if (pass->device != NULL) {
        if (!keeps_its_row(pass, draft))
            return MICA_OK;
        mica_status served = mica__record_check(pass->device, &draft->record, true, &pass->room);
        if (served == MICA_ERR_OUT_OF_MEMORY)
            return served;
        if (served != MICA_OK)
            return MICA_OK; /* no kernel for it here: the records stay apart */
    }
    mica_status status = replace(pass, draft, target);
    *out_applied = status == MICA_OK;
    return status;
}

/* ---- the pass ---- */

static void close_holes(mica__record_list *list)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < list->count; i++)
        if (list->record[i] != NULL)
            list->record[kept++] = list->record[i];
    list->count = kept;
}

static mica_status run_row(mica__fusion_pass *pass, size_t row, uint64_t *fusions)
{
    pass->name = fusion_info[row].name;
    for (uint32_t i = 0; i < pass->list->count; i++) {
        bool applied = true;
        while (applied && pass->list->record[i] != NULL) {
            applied = false;
            MICA__TRY(mica__spend(4)); /* and whatever the flow took since the last time */
            MICA__TRY(fusion_apply[row](pass, i, &applied));
            *fusions += applied;
        }
    }
    return MICA_OK;
}

mica_status mica__fuse(mica_device *device, mica__record_list *list, uint64_t *out_fusions)
{
    mica__fusion_pass pass = {.device = device, .list = list};
    uint64_t fusions = 0, before = 0;
    *out_fusions = 0;
    pass.op = mica__alloc((list->count + 1u) * sizeof *pass.op);
    mica_status status = pass.op == NULL
                             ? mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory to fuse %u records", list->count)
                             : mica__flow_build(list, &pass.flow);
    if (status != MICA_OK) {
        mica__free(pass.op);
        return status;
    }
    for (uint32_t i = 0; i < list->count; i++)
        pass.op[i] = list->record[i]->op;
    do {
        before = fusions;
        for (size_t row = 0; row < FUSION_COUNT && status == MICA_OK; row++)
            status = run_row(&pass, row, &fusions);
    } while (status == MICA_OK && fusions != before);
    mica__flow_free(&pass.flow);
    mica__free(pass.op);
    mica__record_list_free(&pass.made);
    mica__planning_end(&pass.room);
    close_holes(list);
    *out_fusions = fusions;
    return status;
}
