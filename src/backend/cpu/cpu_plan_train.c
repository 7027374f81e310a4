/* cpu_plan_train.c - plans of training: the loss of rows of logits. */
#include "backend/cpu/cpu_plan.h"

#include "base/status.h"
#include "backend/cpu/cpu_params.h"

/* A view with a number for each row: it stands still along the last dimension of the rows. */
static void follow_rows(mica__cpu_view *view, const mica__operand *operand, const mica__cpu_view *rows)
{
    const uint32_t last = rows->ndim - 1u;
    for (uint32_t d = 0; d < last; d++)
        view->stride[d] = mica__operand_present(operand) ? operand->stride[d] : 0;
    for (uint32_t d = 0; d <= last; d++)
        view->shape[d] = rows->shape[d];
    view->stride[last] = 0;
    view->ndim = rows->ndim;
}

mica_status mica__cpu_plan_cross_entropy(const mica__record *record, const mica__device_info *info,
                                         mica__plan *plan)
{
    (void)info;
    const mica__operand *logits = &record->operand[MICA__CROSS_ENTROPY_LOGITS];
    const mica_cross_entropy_params *params = record->params;
    uint64_t rows = 1;
    for (uint32_t d = 0; d + 1 < logits->ndim; d++)
        rows *= logits->shape[d];
    mica__cpu_cross_entropy block = {{rows, 1 + rows / UINT32_MAX}, *params};
    mica__plan_dispatch *dispatch = mica__cpu_plan_next(
        plan, "cross_entropy", (rows + block.range.rows_per_unit - 1) / block.range.rows_per_unit);
    mica__cpu_plan_operands(plan, record, record->operand_count);
    mica__cpu_view *view = mica__cpu_plan_views(plan);
    for (uint32_t slot = MICA__CROSS_ENTROPY_LABELS; slot < MICA__CROSS_ENTROPY_SLOTS; slot++)
        follow_rows(&view[slot], &record->operand[slot], &view[MICA__CROSS_ENTROPY_LOGITS]);
    mica__cpu_plan_params(plan, &block, sizeof block);
    mica__cpu_plan_grain(dispatch, 40 + 0.6 * (double)logits->shape[logits->ndim - 1]);
    return MICA_OK;
}
