/* gpu_plan_train.c - plans of training: the loss of rows of logits and its derivative. */
#include <string.h>

#include "backend/gpu/gpu_plan.h"
#include "base/status.h"

_Static_assert(MICA__CROSS_ENTROPY_BACKWARD_SLOTS == MK_CROSS_ENTROPY_OPERANDS,
               "the kernels take the slots of the record");

static bool is_there(const mica__record *record, uint32_t slot)
{
    return mica__operand_present(&record->operand[slot]);
}

static mica_status plan_rows(const mica__record *record, const char *kernel, mica__plan *plan)
{
    const mica__operand *logits = &record->operand[MICA__CROSS_ENTROPY_LOGITS],
                        *weight = &record->operand[MICA__CROSS_ENTROPY_WEIGHT];
    const mica_cross_entropy_params *params = record->params;
    mk_cross_entropy_params p;
    uint64_t rows = 1;
    MICA__TRY(mica__gpu_check_floats(record, ~(1u << MICA__CROSS_ENTROPY_LABELS)));
    memset(&p, 0, sizeof p);
    p.ndim = logits->ndim - 1u;
    for (uint32_t d = 0; d < p.ndim; d++) {
        rows *= logits->shape[d];
        p.shape[d] = (uint32_t)logits->shape[d];
        for (uint32_t o = 0; o < record->operand_count; o++)
            if (is_there(record, o) && o != MICA__CROSS_ENTROPY_WEIGHT)
                p.stride[o][d] = record->operand[o].stride[d];
    }
    p.classes = (uint32_t)logits->shape[p.ndim];
    p.weight_stride = mica__operand_present(weight) ? weight->stride[0] : 0;
    for (uint32_t o = 0; o < record->operand_count; o++)
        p.type[o] = o != MICA__CROSS_ENTROPY_LABELS && is_there(record, o)
                        ? mica__gpu_type(record->operand[o].dtype)
                        : 0;
    p.flags = (is_there(record, MICA__CROSS_ENTROPY_TARGETS) ? MK_TARGETS : 0) |
              (is_there(record, MICA__CROSS_ENTROPY_WEIGHT) ? MK_WEIGHTS : 0) |
              (is_there(record, MICA__CROSS_ENTROPY_LSE) ? MK_LSE : 0);
    p.ignore = params->ignore;
    p.ignored_label = (uint32_t)params->ignored_label;
    p.smoothing = params->smoothing;
    p.fault_code = mica__gpu_fault_code(record);
    MICA__TRY(mica__gpu_plan_next(plan, kernel, rows));
    for (uint32_t o = 0; o < record->operand_count; o++)
        mica__gpu_plan_operand(plan, record, o, 0);
    mica__gpu_plan_fault(plan);
    mica__gpu_plan_params(plan, &p, sizeof p);
    return MICA_OK;
}

mica_status mica__gpu_plan_cross_entropy(const mica__record *record, const mica__device_info *info,
                                         mica__plan *plan)
{
    (void)info;
    return plan_rows(record, "cross_entropy/cross_entropy", plan);
}

mica_status mica__gpu_plan_cross_entropy_backward(const mica__record *record, const mica__device_info *info,
                                                  mica__plan *plan)
{
    (void)info;
    return plan_rows(record, "cross_entropy/backward", plan);
}
