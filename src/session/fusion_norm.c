/*
 * fusion_norm.c - patterns around rms_norm: what follows it element by element, the sum before it, the rope
 * after it.
 *
 * Exact because the kernel keeps the row in f32 in the order s = x + residual, n = ((s * r) * weight) * mul +
 * add: the same roundings as the separate ops make when the values between them are stored as f32.
 */
#include "session/fusion.h"

static bool absent(const mica__record *record, uint32_t slot)
{
    return !mica__operand_present(&record->operand[slot]);
}

/* Norm, then a region of one step of its result and rows of the same shape, which go to `slot`. */
static mica_status norm_then(mica__fusion_pass *pass, uint32_t anchor, mica_scalar scalar, uint32_t slot,
                             bool *out_applied)
{
    mica__use use;
    const mica__record *norm = mica__fusion_record(pass, anchor, MICA_OP_RMS_NORM);
    if (norm == NULL || !absent(norm, slot) || !absent(norm, MICA__NORM_ADD) ||
        !mica__fusion_consumer_region(pass, anchor, MICA__NORM_Y, scalar, &use))
        return MICA_OK;
    const mica__record *binary = pass->list->record[use.record];
    const mica__operand *other =
        &binary->operand[use.slot == MICA__BINARY_A ? MICA__BINARY_B : MICA__BINARY_A];
    const mica__operand *y = &binary->operand[MICA__BINARY_Y];
    if (!mica__fusion_rows_like(other, &norm->operand[MICA__NORM_Y]) ||
        !mica__fusion_rows_like(y, &norm->operand[MICA__NORM_Y]))
        return MICA_OK;
    mica__draft draft;
    mica__draft_from(&draft, pass, anchor);
    mica__draft_join(&draft, use.record);
    draft.operand[slot] = *other;
    draft.operand[MICA__NORM_Y] = *y;
    return mica__fusion_offer(pass, &draft, out_applied);
}

mica_status mica__fusion_norm_mul(mica__fusion_pass *pass, uint32_t anchor, bool *out_applied)
{
    return norm_then(pass, anchor, MICA_SCALAR_MUL, MICA__NORM_MUL, out_applied);
}

mica_status mica__fusion_norm_add(mica__fusion_pass *pass, uint32_t anchor, bool *out_applied)
{
    return norm_then(pass, anchor, MICA_SCALAR_ADD, MICA__NORM_ADD, out_applied);
}

/* The first norm that reads exactly what the add at `anchor` wrote; `reads` is how many operands read it at
 * all. */
static bool norm_of_sum(const mica__fusion_pass *pass, uint32_t anchor, uint32_t *out_norm,
                        uint32_t *out_reads)
{
    mica__use use[8];
    const mica__operand *sum = &pass->list->record[anchor]->operand[MICA__BINARY_Y];
    *out_reads = mica__flow_uses(&pass->flow, anchor, MICA__BINARY_Y, use, 8);
    for (uint32_t i = 0; i < *out_reads && i < 8; i++) {
        const mica__record *norm = mica__fusion_record(pass, use[i].record, MICA_OP_RMS_NORM);
        if (norm != NULL && use[i].slot == MICA__NORM_X &&
            mica__operand_same(&norm->operand[MICA__NORM_X], sum)) {
            *out_norm = use[i].record;
            return true;
        }
    }
    return false;
}

/* Anchored at the add. The sum is still written unless only the norm wanted it. */
mica_status mica__fusion_residual_norm(mica__fusion_pass *pass, uint32_t anchor, bool *out_applied)
{
    uint32_t at = 0, reads = 0;
    const mica__record *add = pass->list->record[anchor];
    if (!mica__region_is(add, MICA_SCALAR_ADD) || add->operand[MICA__BINARY_Y].dtype != MICA_DTYPE_F32 ||
        !norm_of_sum(pass, anchor, &at, &reads))
        return MICA_OK;
    const mica__record *norm = pass->list->record[at];
    const mica__operand *a = &add->operand[MICA__BINARY_A], *b = &add->operand[MICA__BINARY_B];
    const mica__operand *sum = &add->operand[MICA__BINARY_Y];
    if (!absent(norm, MICA__NORM_RESIDUAL) || !absent(norm, MICA__NORM_SUM) ||
        !mica__fusion_rows_like(a, sum) || !mica__fusion_rows_like(b, sum))
        return MICA_OK;
    mica__draft draft;
    mica__use only;
    mica__draft_from(&draft, pass, at);
    mica__draft_join(&draft, anchor);
    draft.operand[MICA__NORM_X] = *a;
    draft.operand[MICA__NORM_RESIDUAL] = *b;
    if (!mica__fusion_consumer(pass, anchor, MICA__BINARY_Y, MICA_OP_RMS_NORM, &only))
        draft.operand[MICA__NORM_SUM] = *sum;
    return mica__fusion_offer(pass, &draft, out_applied);
}

/* Nothing but x, an optional weight and y. */
static bool is_plain(const mica__record *norm)
{
    return absent(norm, MICA__NORM_RESIDUAL) && absent(norm, MICA__NORM_MUL) &&
           absent(norm, MICA__NORM_ADD) && absent(norm, MICA__NORM_SUM);
}

mica_status mica__fusion_head_norm_rope(mica__fusion_pass *pass, uint32_t anchor, bool *out_applied)
{
    mica__use use;
    const mica__record *norm = mica__fusion_record(pass, anchor, MICA_OP_RMS_NORM);
    if (norm == NULL || !is_plain(norm) ||
        !mica__fusion_consumer(pass, anchor, MICA__NORM_Y, MICA_OP_ROPE, &use) || use.slot != MICA__ROPE_X)
        return MICA_OK;
    mica__draft draft;
    mica__draft_from(&draft, pass, use.record);
    mica__draft_join(&draft, anchor);
    mica__rope_record *params = draft.record.params;
    if (params->norm || !mica__fusion_rows_like(&norm->operand[MICA__NORM_X], &draft.operand[MICA__ROPE_X]))
        return MICA_OK;
    params->norm = 1;
    params->eps = ((const mica_norm_params *)norm->params)->eps;
    draft.operand[MICA__ROPE_X] = norm->operand[MICA__NORM_X];
    draft.operand[MICA__ROPE_NORM_WEIGHT] = norm->operand[MICA__NORM_WEIGHT];
    return mica__fusion_offer(pass, &draft, out_applied);
}

/* Few rows only: every thread norms them again for itself, which is cheaper than the barrier it saves. */
#define NORM_MATMUL_ROWS 4

static uint64_t row_count(const mica__operand *operand)
{
    uint64_t rows = 1;
    for (uint32_t d = 0; d + 1u < operand->ndim; d++)
        rows *= operand->shape[d];
    return rows;
}

mica_status mica__fusion_norm_matmul(mica__fusion_pass *pass, uint32_t anchor, bool *out_applied)
{
    mica__use use;
    const mica__record *norm = mica__fusion_record(pass, anchor, MICA_OP_RMS_NORM);
    if (norm == NULL || !is_plain(norm) || row_count(&norm->operand[MICA__NORM_Y]) > NORM_MATMUL_ROWS ||
        !mica__fusion_consumer(pass, anchor, MICA__NORM_Y, MICA_OP_MATMUL, &use) ||
        use.slot != MICA__MATMUL_X)
        return MICA_OK;
    mica__draft draft;
    mica__draft_from(&draft, pass, use.record);
    mica__draft_join(&draft, anchor);
    mica__matmul_record *params = draft.record.params;
    if (params->norm || draft.operand[MICA__MATMUL_SLOT(0, MICA__WEIGHT_DATA)].ndim != 2 ||
        !mica__fusion_rows_like(&norm->operand[MICA__NORM_X], &draft.operand[MICA__MATMUL_X]))
        return MICA_OK;
    params->norm = 1;
    params->eps = ((const mica_norm_params *)norm->params)->eps;
    draft.operand[MICA__MATMUL_X] = norm->operand[MICA__NORM_X];
    draft.operand[MICA__MATMUL_NORM_WEIGHT] = norm->operand[MICA__NORM_WEIGHT];
    return mica__fusion_offer(pass, &draft, out_applied);
}
