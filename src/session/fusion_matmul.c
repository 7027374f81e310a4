/*
 * fusion_matmul.c - patterns that end in or gather matmuls.
 *
 * Exact because a matmul keeps each sum in f32 and applies softcap, gate and residual to it with the
 * functions of the separate ops before it rounds once to y's type.
 */
#include "base/status.h"
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
    float cap = 0.0f;
    if (matmul == NULL || !mica__fusion_reader(pass, anchor, Y0, &use))
        return MICA_OK;
    const mica__record *softcap = pass->list->record[use.record];
    if (!mica__region_is_softcap(softcap, &cap))
        return MICA_OK;
    const mica__operand *y = &softcap->operand[MICA__UNARY_Y];
    if (!mica__fusion_rows_like(y, &matmul->operand[Y0]))
        return MICA_OK;
    mica__draft draft;
    mica__draft_from(&draft, pass, anchor);
    mica__draft_join(&draft, use.record);
    ((mica__matmul_record *)draft.record.params)->softcap = cap;
    draft.operand[Y0] = *y;
    return mica__fusion_offer(pass, &draft, out_applied);
}

mica_status mica__fusion_matmul_residual(mica__fusion_pass *pass, uint32_t anchor, bool *out_applied)
{
    mica__use use;
    const mica__record *matmul = mica__fusion_record(pass, anchor, MICA_OP_MATMUL);
    if (matmul == NULL || params_of(matmul)->gate != MICA__GATE_NONE ||
        mica__operand_present(&matmul->operand[MICA__MATMUL_RESIDUAL]) ||
        !mica__fusion_consumer_region(pass, anchor, Y0, MICA_SCALAR_ADD, &use))
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
    uint32_t at = MICA__MATMUL_OPERANDS(params->weight_count);
    for (uint32_t i = MICA__MATMUL_WEIGHT; i < other->operand_count; i++)
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
    mica__use use = {anchor, MICA__MATMUL_X};
    while (!*out_applied && params_of(first)->weight_count < MICA__MAX_WEIGHTS &&
           mica__flow_next(&pass->flow, &use)) {
        const uint32_t i = use.record;
        const mica__record *second = bare_matmul(pass, i);
        MICA__TRY(mica__spend(1));
        if (overwrites(pass, i, &x))
            break;
        if (second == NULL || i < anchor || !can_share(first, second) ||
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

/* A multiplication that is one record or two: where its factors are read, and what opens the gate. */
typedef struct product {
    mica__use gate, up;
    mica_scalar act;
} product;

/* act(g) * u in one region, or a region act(g) and one that multiplies what it wrote, as nobody else reads it. */
static bool find_product(const mica__fusion_pass *pass, uint32_t anchor, uint32_t act_slot, product *out)
{
    const mica__record *record = pass->list->record[anchor];
    mica__use act, reader;
    out->gate.record = out->up.record = anchor;
    if (mica__region_is_gate(record, &out->act, &out->gate.slot, &out->up.slot))
        return act_slot == MICA__BINARY_A; /* once */
    if (!mica__region_is(record, MICA_SCALAR_MUL) || !mica__flow_writer(&pass->flow, anchor, act_slot, &act))
        return false;
    const mica__record *opens = pass->list->record[act.record];
    out->act = mica__region_is(opens, MICA_SCALAR_SILU) ? MICA_SCALAR_SILU : MICA_SCALAR_GELU;
    if (!mica__region_is(opens, out->act) || !opens->operand[MICA__UNARY_Y].temporary ||
        !mica__fusion_reader(pass, act.record, MICA__UNARY_Y, &reader) || reader.record != anchor)
        return false;
    out->gate = (mica__use){act.record, MICA__UNARY_X};
    out->up.slot = act_slot == MICA__BINARY_A ? MICA__BINARY_B : MICA__BINARY_A;
    return true;
}

/* Anchored at the multiplication: the matmuls behind its factors. */
static mica_status gate_up(mica__fusion_pass *pass, uint32_t anchor, uint32_t act_slot, bool *out_applied)
{
    const mica__operand *y = &pass->list->record[anchor]->operand[MICA__BINARY_Y];
    product found;
    uint32_t gate = 0, up = 0;
    if (!find_product(pass, anchor, act_slot, &found) ||
        !producer(pass, found.gate.record, found.gate.slot, &gate) ||
        !producer(pass, found.up.record, found.up.slot, &up) || gate == up ||
        !can_share(pass->list->record[gate], pass->list->record[up]) ||
        !mica__fusion_rows_like(y, &pass->list->record[gate]->operand[Y0]))
        return MICA_OK;
    mica__draft draft;
    draft_pair(&draft, pass, gate, up);
    mica__draft_join(&draft, anchor);
    if (found.gate.record != anchor)
        mica__draft_join(&draft, found.gate.record);
    ((mica__matmul_record *)draft.record.params)->gate =
        found.act == MICA_SCALAR_SILU ? MICA__GATE_SILU : MICA__GATE_GELU;
    draft.operand[Y0] = *y;
    draft.operand[MICA__MATMUL_SLOT(1, MICA__WEIGHT_Y)] = (mica__operand){0};
    return mica__fusion_offer(pass, &draft, out_applied);
}

mica_status mica__fusion_gate_up(mica__fusion_pass *pass, uint32_t anchor, bool *out_applied)
{
    if (mica__fusion_record(pass, anchor, MICA_OP_REGION) == NULL)
        return MICA_OK;
    MICA__TRY(gate_up(pass, anchor, MICA__BINARY_A, out_applied));
    return *out_applied ? MICA_OK : gate_up(pass, anchor, MICA__BINARY_B, out_applied);
}
