/* gpu_plan_train.c - plans of training: the loss of rows of logits. */
#include <string.h>

#include "backend/gpu/gpu_plan.h"
#include "base/status.h"

_Static_assert(MICA__CROSS_ENTROPY_SLOTS == MK_CROSS_ENTROPY_OPERANDS, "the kernel takes the record's slots");

mica_status mica__gpu_plan_cross_entropy(const mica__record *record, const mica__device_info *info,
                                         mica__plan *plan)
{
    const mica__operand *logits = &record->operand[MICA__CROSS_ENTROPY_LOGITS];
    const mica_cross_entropy_params *params = record->params;
    mk_cross_entropy_params p;
    uint64_t rows = 1;
    (void)info;
    MICA__TRY(mica__gpu_check_floats(record, ~(1u << MICA__CROSS_ENTROPY_LABELS)));
    memset(&p, 0, sizeof p);
    p.ndim = logits->ndim - 1u;
    for (uint32_t d = 0; d < p.ndim; d++) {
        rows *= logits->shape[d];
        p.shape[d] = (uint32_t)logits->shape[d];
        for (uint32_t o = 0; o < MK_CROSS_ENTROPY_OPERANDS; o++)
            p.stride[o][d] = mica__operand_present(&record->operand[o]) ? record->operand[o].stride[d] : 0;
    }
    p.classes = (uint32_t)logits->shape[p.ndim];
    p.logits_type = mica__gpu_type(logits->dtype);
    p.loss_type = mica__gpu_type(record->operand[MICA__CROSS_ENTROPY_LOSS].dtype);
    p.lse_type = mica__gpu_type(record->operand[MICA__CROSS_ENTROPY_LSE].dtype);
    p.has_lse = mica__operand_present(&record->operand[MICA__CROSS_ENTROPY_LSE]);
    p.ignore = params->ignore;
    p.ignored_label = (uint32_t)params->ignored_label;
    p.smoothing = params->smoothing;
    p.fault_code = mica__gpu_fault_code(record);
    MICA__TRY(mica__gpu_plan_next(plan, "cross_entropy/cross_entropy", rows));
    for (uint32_t o = 0; o < MK_CROSS_ENTROPY_OPERANDS; o++)
        mica__gpu_plan_operand(plan, record, o, 0);
    mica__gpu_plan_fault(plan);
    mica__gpu_plan_params(plan, &p, sizeof p);
    return MICA_OK;
}
