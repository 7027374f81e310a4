/*
 * fusion_experts.c - two expert-routed matmuls of the same rows and their product as one record.
 *
 * Exact because the kernel keeps each sum in f32 and applies the gate to it before it rounds once to y's type. Only where a
 * kernel serves it: elsewhere the records stay apart.
 */
#include "session/fusion.h"

/* The routed matmul that wrote what `slot` of the product reads, if nobody else reads it. */
static const mica__record *producer(const mica__fusion_pass *pass, uint32_t anchor, uint32_t slot,
                                    uint32_t *out_at)
{
    mica__use writer, reader;
    if (!mica__flow_writer(&pass->flow, anchor, slot, &writer) || writer.slot != MICA__EXPERTS_Y)
        return NULL;
    const mica__record *matmul = mica__fusion_record(pass, writer.record, MICA_OP_MATMUL_EXPERTS);
    if (matmul == NULL || matmul->operand_count != MICA__EXPERTS_SLOTS ||
        !matmul->operand[MICA__EXPERTS_Y].temporary ||
        !mica__fusion_consumer(pass, writer.record, MICA__EXPERTS_Y, (mica_op)pass->list->record[anchor]->op,
                               &reader) ||
        reader.record != anchor || reader.slot != slot)
        return NULL;
    *out_at = writer.record;
    return matmul;
}

/* Two weights that one kernel can walk together. */
static bool weights_alike(const mica__operand *a, const mica__operand *b)
{
    if (a->dtype != b->dtype || a->layout != b->layout || a->ndim != b->ndim)
        return false;
    for (uint32_t d = 0; d < a->ndim; d++)
        if (a->shape[d] != b->shape[d] || a->stride[d] != b->stride[d])
            return false;
    return true;
}

static bool can_share(const mica__record *a, const mica__record *b)
{
    return mica__operand_same(&a->operand[MICA__EXPERTS_X], &b->operand[MICA__EXPERTS_X]) &&
           mica__operand_same(&a->operand[MICA__EXPERTS_IDS], &b->operand[MICA__EXPERTS_IDS]) &&
           weights_alike(&a->operand[MICA__EXPERTS_WEIGHT], &b->operand[MICA__EXPERTS_WEIGHT]) &&
           ((const mica__matmul_record *)a->params)->precision ==
               ((const mica__matmul_record *)b->params)->precision;
}

/* Anchored at the product. */
mica_status mica__fusion_experts_gate_up(mica__fusion_pass *pass, uint32_t anchor, bool *out_applied)
{
    mica_scalar act = MICA_SCALAR_NONE;
    uint32_t gate_at = 0, up_at = 0, gate_slot = 0, up_slot = 0;
    if (!mica__region_is_gate(pass->list->record[anchor], &act, &gate_slot, &up_slot))
        return MICA_OK;
    const mica__operand *y = &pass->list->record[anchor]->operand[MICA__BINARY_Y];
    const mica__record *gate = producer(pass, anchor, gate_slot, &gate_at);
    const mica__record *up = producer(pass, anchor, up_slot, &up_at);
    if (gate == NULL || up == NULL || gate == up || !can_share(gate, up) ||
        !mica__fusion_rows_like(y, &gate->operand[MICA__EXPERTS_Y]))
        return MICA_OK;
    mica__draft draft;
    mica__draft_from(&draft, pass, gate_at);
    mica__draft_join(&draft, up_at);
    mica__draft_join(&draft, anchor);
    ((mica__matmul_record *)draft.record.params)->gate =
        act == MICA_SCALAR_SILU ? MICA__GATE_SILU : MICA__GATE_GELU;
    for (uint32_t i = 0; i < MICA__WEIGHT_Y; i++)
        draft.operand[MICA__EXPERTS_UP + i] = up->operand[MICA__EXPERTS_WEIGHT + i];
    draft.operand[MICA__EXPERTS_Y] = *y;
    draft.record.operand_count = MICA__EXPERTS_ALL_SLOTS;
    return mica__fusion_offer(pass, &draft, out_applied);
}
