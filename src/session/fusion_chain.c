/*
 * fusion_chain.c - runs of elementwise ops, one pass instead of one each.
 *
 * Exact because the kernel keeps the value between two steps in f32, which is what it was stored as.
 */
#include <string.h>

#include "session/fusion.h"

static bool is_elementwise(const mica__record *record)
{
    switch (record->op) {
    case MICA_OP_ADD:
    case MICA_OP_MUL:
    case MICA_OP_SILU_MUL:
    case MICA_OP_GELU_MUL:
    case MICA_OP_GELU:
    case MICA_OP_GELU_ERF:
    case MICA_OP_SOFTCAP:
    case MICA_OP_CHAIN: return true;
    default: return false;
    }
}

/* One more step, if there is room. */
static bool add_step(mica__draft *draft, mica__chain_step step, const mica__operand *other)
{
    mica__chain_record *chain = draft->record.params;
    if (chain->step_count == MICA__CHAIN_STEPS)
        return false;
    if (other != NULL)
        draft->operand[MICA__CHAIN_OTHER + chain->step_count] = *other;
    chain->step[chain->step_count++] = step;
    return true;
}

/* Goes on from the draft's value, which is what `slot` of the record reads, to what the record writes. */
static bool add_record(mica__draft *draft, const mica__record *record, uint32_t slot)
{
    const mica__operand *operand = record->operand;
    draft->operand[MICA__CHAIN_Y] = operand[record->operand_count - 1];
    if (record->op == MICA_OP_CHAIN) {
        const mica__chain_record *chain = record->params;
        for (uint32_t i = 0; i < chain->step_count; i++)
            if (slot != MICA__CHAIN_X || !add_step(draft, chain->step[i], &operand[MICA__CHAIN_OTHER + i]))
                return false;
        return true;
    }
    const float value = ((const mica__scalar_params *)record->params)->value;
    mica__chain_step step = {record->op, slot != 0, value};
    const bool binary = record->operand_count == MICA__BINARY_SLOTS;
    return add_step(draft, step,
                    binary ? &operand[slot == MICA__BINARY_A ? MICA__BINARY_B : MICA__BINARY_A] : NULL);
}

/* Anchored at the first record, which the only reader of its result follows. */
mica_status mica__fusion_chain(mica__fusion_pass *pass, uint32_t anchor, bool *out_applied)
{
    mica__use use;
    const mica__record *first = pass->list->record[anchor];
    if (!is_elementwise(first) || !mica__fusion_reader(pass, anchor, first->operand_count - 1u, &use) ||
        !is_elementwise(pass->list->record[use.record]))
        return MICA_OK;
    mica__draft draft;
    mica__draft_from(&draft, pass, anchor);
    mica__draft_join(&draft, use.record);
    draft.record.op = MICA_OP_CHAIN;
    draft.record.operand_count = MICA__CHAIN_SLOTS;
    draft.record.params_size = sizeof(mica__chain_record);
    memset(draft.operand, 0, sizeof draft.operand);
    memset(draft.params, 0, sizeof draft.params);
    draft.operand[MICA__CHAIN_X] = first->operand[0];
    if (!add_record(&draft, first, 0) || !add_record(&draft, pass->list->record[use.record], use.slot))
        return MICA_OK;
    return mica__fusion_offer(pass, &draft, out_applied);
}
