/*
 * fusion_matmul.c - patterns that end in or gather matmuls.
 *
 * Exact because a matmul keeps each sum in f32 and applies softcap, gate and residual to it with the
 * functions of the separate ops before it rounds once to y's type.
 */
#include "base/work.h"
#include "session/fusion.h"

#define Y0 MICA__MATMUL_SLOT(0, MICA__WEIGHT_Y)

static const mica__matmul_record *params_of(const mica__record *matmul)
{
    return matmul->params;
}

/* A matmul whose y_0 is still the bare sum. */
static const mica__record *bare_matmul(const mica__fusion_pass *pass, uint32_t at)
{
    const mica__record *matmul = mica__fusion_record(pass, at, MICA_OP_MATMUL);
    if (matmul == NULL || params_of(matmul)->gate != MICA__GATE_NONE || params_of(matmul)->softcap != 0 ||
        mica__operand_present(&matmul->operand[MICA__MATMUL_RESIDUAL]))
        return NULL;
    return matmul;
}

mica_status mica__fusion_matmul_softcap(mica__fusion_pass *pass, uint32_t anchor, bool *out_applied)
{
    mica__use use;
    const mica__record *matmul = bare_matmul(pass, anchor);
    if (matmul == NULL || !mica__fusion_consumer(pass, anchor, Y0, MICA_OP_SOFTCAP, &use))
        return MICA_OK;
    const mica__record *softcap = pass->list->record[use.record];
    const mica__operand *y = &softcap->operand[MICA__UNARY_Y];
    if (!mica__fusion_rows_like(y, &matmul->operand[Y0]))
        return MICA_OK;
    mica__draft draft;
    mica__draft_from(&draft, pass, anchor);
    mica__draft_join(&draft, use.record);
    ((mica__matmul_record *)draft.record.params)->softcap =
        ((const mica__scalar_params *)softcap->params)->value;
    draft.operand[Y0] = *y;
    return mica__fusion_offer(pass, &draft, out_applied);
}

mica_status mica__fusion_matmul_residual(mica__fusion_pass *pass, uint32_t anchor, bool *out_applied)
{
    mica__use use;
    const mica__record *matmul = mica__fusion_record(pass, anchor, MICA_OP_MATMUL);
    if (matmul == NULL || params_of(matmul)->gate != MICA__GATE_NONE ||
        mica__operand_present(&matmul->operand[MICA__MATMUL_RESIDUAL]) ||
        !mica__fusion_consumer(pass, anchor, Y0, MICA_OP_ADD, &use))
        return MICA_OK;
    const mica__record *add = pass->list->record[use.record];
    const mica__operand *other = &add->operand[use.slot == MICA__BINARY_A ? MICA__BINARY_B : MICA__BINARY_A];
    const mica__operand *y = &add->operand[MICA__BINARY_Y];
    if (!mica__fusion_rows_like(other, &matmul->operand[Y0]) ||
        !mica__fusion_rows_like(y, &matmul->operand[Y0]))
        return MICA_OK;
    mica__draft draft;
    mica__draft_from(&draft, pass, anchor);
    mica__draft_join(&draft, use.record);
    draft.operand[MICA__MATMUL_RESIDUAL] = *other;
    draft.operand[Y0] = *y;
    return mica__fusion_offer(pass, &draft, out_applied);
}

/* ---- several weights, one x ---- */

static bool is_dense(const mica__operand *weight)
{
    return weight->dtype == MICA_DTYPE_F32 || weight->dtype == MICA_DTYPE_F16 ||
           weight->dtype == MICA_DTYPE_BF16;
}

/* The same optional view on both sides. */
static bool same_or_absent(const mica__operand *a, const mica__operand *b)
{
    if (!mica__operand_present(a) && !mica__operand_present(b))
        return true;
    return mica__operand_same(a, b);
}

/* Both see the same activations, the same way, with weights that one kernel can walk together. */
static bool can_share(const mica__record *a, const mica__record *b)
{
    const mica__matmul_record *p = params_of(a), *q = params_of(b);
    const mica__operand *v = &a->operand[MICA__MATMUL_SLOT(0, MICA__WEIGHT_DATA)];
    const mica__operand *w = &b->operand[MICA__MATMUL_SLOT(0, MICA__WEIGHT_DATA)];
    return mica__operand_same(&a->operand[MICA__MATMUL_X], &b->operand[MICA__MATMUL_X]) &&
           p->precision == q->precision && p->norm == q->norm && (!p->norm || p->eps == q->eps) &&
           same_or_absent(&a->operand[MICA__MATMUL_NORM_WEIGHT], &b->operand[MICA__MATMUL_NORM_WEIGHT]) &&
           v->ndim == 2 && w->ndim == 2 && is_dense(v) == is_dense(w);
}

/* A draft of `first` with the weights of `second` behind its own. */
static void draft_pair(mica__draft *draft, const mica__fusion_pass *pass, uint32_t first, uint32_t second)
{
    const mica__record *other = pass->list->record[second];
    mica__draft_from(draft, pass, first);
    mica__draft_join(draft, second);
    mica__matmul_record *params = draft->record.params;
    uint32_t at = MICA__MATMUL_SLOTS(params->weight_count);
    for (uint32_t i = MICA__MATMUL_FIRST; i < other->operand_count; i++)
        draft->operand[at++] = other->operand[i];
    params->weight_count += params_of(other)->weight_count;
    draft->record.operand_count = (uint16_t)at;
}

/* Whether record `at` changes what `x` holds: no reader of it can pass. */
static bool overwrites(const mica__fusion_pass *pass, uint32_t at, const mica__operand *x)
{
    const mica__record *record = pass->list->record[at];
    for (uint32_t i = 0; record != NULL && i < record->operand_count; i++)
        if ((record->operand[i].access & MICA_ACCESS_WRITE) && mica__operands_overlap(&record->operand[i], x))
            return true;
    return false;
}

mica_status mica__fusion_matmul_group(mica__fusion_pass *pass, uint32_t anchor, bool *out_applied)
{
    const mica__record *first = bare_matmul(pass, anchor);
    if (first == NULL)
        return MICA_OK;
    const mica__operand x = first->operand[MICA__MATMUL_X];
    for (uint32_t i = anchor + 1; i < pass->list->count && !*out_applied; i++) {
        const mica__record *second = bare_matmul(pass, i);
        MICA__TRY(mica__spend(1));
        if (overwrites(pass, i, &x))
            break;
        if (second == NULL || !can_share(first, second) ||
            params_of(first)->weight_count + params_of(second)->weight_count > MICA__MAX_WEIGHTS)
            continue;
        mica__draft draft;
        draft_pair(&draft, pass, anchor, i);
        mica_status status = mica__fusion_offer(pass, &draft, out_applied);
        if (status != MICA_OK)
            return status;
    }
    return MICA_OK;
}

/* ---- gate and up ---- */

/* The single-weight matmul that wrote what `slot` of record `at` reads, if nobody else reads it. */
static bool producer(const mica__fusion_pass *pass, uint32_t at, uint32_t slot, uint32_t *out_matmul)
{
    mica__use writer, reader;
    if (!mica__flow_writer(&pass->flow, at, slot, &writer))
        return false;
    const mica__record *matmul = bare_matmul(pass, writer.record);
    if (matmul == NULL || params_of(matmul)->weight_count != 1 || writer.slot != Y0 ||
        !matmul->operand[Y0].temporary ||
        !mica__fusion_consumer(pass, writer.record, Y0, (mica_op)pass->list->record[at]->op, &reader) ||
        reader.record != at || reader.slot != slot)
        return false;
    *out_matmul = writer.record;
    return true;
}

/* One multiplication: the matmul behind its `gate` operand (for a plain mul through a gelu) and the one
 * behind `up`. */
static mica_status gate_up(mica__fusion_pass *pass, uint32_t anchor, uint32_t gate_slot, mica__gate act,
                           bool *out_applied)
{
    const mica__record *product = pass->list->record[anchor];
    uint32_t up_slot = gate_slot == MICA__BINARY_A ? MICA__BINARY_B : MICA__BINARY_A;
    mica__use gelu = {anchor, gate_slot}, reader;
    uint32_t gate = 0, up = 0;
    const bool apart = product->op == MICA_OP_MUL;
    if (apart) {
        if (!mica__flow_writer(&pass->flow, anchor, gate_slot, &gelu) ||
            mica__fusion_record(pass, gelu.record, MICA_OP_GELU) == NULL ||
            !pass->list->record[gelu.record]->operand[MICA__UNARY_Y].temporary ||
            !mica__fusion_consumer(pass, gelu.record, MICA__UNARY_Y, MICA_OP_MUL, &reader) ||
            reader.record != anchor)
            return MICA_OK;
        gelu.slot = MICA__UNARY_X;
    }
    if (!producer(pass, gelu.record, gelu.slot, &gate) || !producer(pass, anchor, up_slot, &up) ||
        gate == up || !can_share(pass->list->record[gate], pass->list->record[up]) ||
        !mica__fusion_rows_like(&product->operand[MICA__BINARY_Y], &pass->list->record[gate]->operand[Y0]))
        return MICA_OK;
    mica__draft draft;
    draft_pair(&draft, pass, gate, up);
    mica__draft_join(&draft, anchor);
    if (apart)
        mica__draft_join(&draft, gelu.record);
    ((mica__matmul_record *)draft.record.params)->gate = act;
    draft.operand[Y0] = product->operand[MICA__BINARY_Y];
    draft.operand[MICA__MATMUL_SLOT(1, MICA__WEIGHT_Y)] = (mica__operand){0};
    return mica__fusion_offer(pass, &draft, out_applied);
}

/* Anchored at the multiplication. */
mica_status mica__fusion_gate_up(mica__fusion_pass *pass, uint32_t anchor, bool *out_applied)
{
    if (mica__fusion_record(pass, anchor, MICA_OP_SILU_MUL) != NULL)
        return gate_up(pass, anchor, MICA__BINARY_A, MICA__GATE_SILU, out_applied);
    if (mica__fusion_record(pass, anchor, MICA_OP_GELU_MUL) != NULL)
        return gate_up(pass, anchor, MICA__BINARY_A, MICA__GATE_GELU, out_applied);
    if (mica__fusion_record(pass, anchor, MICA_OP_MUL) == NULL)
        return MICA_OK;
    mica_status status = gate_up(pass, anchor, MICA__BINARY_A, MICA__GATE_GELU, out_applied);
    if (status == MICA_OK && !*out_applied)
        status = gate_up(pass, anchor, MICA__BINARY_B, MICA__GATE_GELU, out_applied);
    return status;
}
