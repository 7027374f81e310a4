/* cpu_plan_train.c - plans of training: the loss of rows of logits and its derivative. */
#include "backend/cpu/cpu_plan.h"

#include "base/status.h"
#include "backend/cpu/cpu_params.h"

/* A view beside rows of logits: it goes with their leading dimensions and stands still along the last, or, as weights, everywhere. */
static void follow_rows(mica__cpu_view *view, const mica__operand *operand, const mica__cpu_view *rows,
                        bool still)
{
    const uint32_t last = rows->ndim - 1u;
    for (uint32_t d = 0; d < last; d++)
        view->stride[d] = mica__operand_present(operand) && !still ? operand->stride[d] : 0;
    for (uint32_t d = 0; d <= last; d++)
        view->shape[d] = rows->shape[d];
    view->stride[last] = 0;
    view->ndim = rows->ndim;
}

static mica_status plan_rows(const mica__record *record, const char *kernel, double class_ns,
                             mica__plan *plan)
{
    const mica__operand *logits = &record->operand[MICA__CROSS_ENTROPY_LOGITS],
                        *weight = &record->operand[MICA__CROSS_ENTROPY_WEIGHT];
    const mica_cross_entropy_params *params = record->params;
    uint64_t rows = 1;
    for (uint32_t d = 0; d + 1 < logits->ndim; d++)
        rows *= logits->shape[d];
    mica__cpu_cross_entropy block = {
        {rows, 1 + rows / UINT32_MAX}, mica__operand_present(weight) ? weight->stride[0] : 0, *params};
    mica__plan_dispatch *dispatch =
        mica__cpu_plan_next(plan, kernel, (rows + block.range.rows_per_unit - 1) / block.range.rows_per_unit);
    mica__cpu_plan_operands(plan, record, record->operand_count);
    mica__cpu_view *view = mica__cpu_plan_views(plan);
    for (uint32_t slot = MICA__CROSS_ENTROPY_LABELS; slot < record->operand_count; slot++)
        follow_rows(&view[slot], &record->operand[slot], &view[MICA__CROSS_ENTROPY_LOGITS],
                    slot == MICA__CROSS_ENTROPY_WEIGHT);
    mica__cpu_plan_params(plan, &block, sizeof block);
    mica__cpu_plan_grain(dispatch, 40 + class_ns * (double)logits->shape[logits->ndim - 1]);
    return MICA_OK;
}

mica_status mica__cpu_plan_cross_entropy(const mica__record *record, const mica__device_info *info,
                                         mica__plan *plan)
{
    (void)info;
    return plan_rows(record, "cross_entropy", 0.6, plan);
}

mica_status mica__cpu_plan_cross_entropy_backward(const mica__record *record, const mica__device_info *info,
                                                  mica__plan *plan)
{
    (void)info;
    return plan_rows(record, "cross_entropy_backward", 1, plan);
}
