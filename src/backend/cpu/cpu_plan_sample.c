/* cpu_plan_sample.c - plans of the end of a decode step. A unit is a row of logits; the work memory of a row is a
 * thread's own. */
#include "base/status.h"
#include "backend/cpu/cpu_params.h"
#include "backend/cpu/cpu_plan.h"

static mica_status check_floats(const mica__record *record, uint32_t slots)
{
    for (uint32_t slot = 0; slot < record->operand_count; slot++) {
        const mica__operand *operand = &record->operand[slot];
        if ((slots >> slot & 1) != 0 && mica__operand_present(operand) && !mica__cpu_is_float(operand->dtype))
            return mica__fail(
                MICA_ERR_UNSUPPORTED, "%s on the cpu: operand %u is %s; f32, f16 and bf16 are served",
                mica_op_name((mica_op)record->op), slot, mica_dtype_name((mica_dtype)operand->dtype));
    }
    return MICA_OK;
}

static mica_status plan_rows(const mica__record *record, const char *kernel, uint64_t rows,
                             uint64_t local_bytes, double row_ns, mica__plan *plan)
{
    const mica__cpu_row_range range = {rows, 1 + rows / UINT32_MAX};
    if (local_bytes > UINT32_MAX)
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "%s on the cpu: a row needs %llu bytes of work memory; 4 GiB are served", kernel,
                          (unsigned long long)local_bytes);
    mica__plan_dispatch *dispatch =
        mica__cpu_plan_next(plan, kernel, (rows + range.rows_per_unit - 1) / range.rows_per_unit);
    mica__cpu_plan_operands(plan, record, record->operand_count);
    mica__cpu_plan_params(plan, &range, sizeof range);
    dispatch->local_bytes = (uint32_t)local_bytes;
    mica__cpu_plan_grain(dispatch, row_ns);
    return MICA_OK;
}

mica_status mica__cpu_plan_penalize(const mica__record *record, const mica__device_info *info,
                                    mica__plan *plan)
{
    (void)info;
    const mica_status status = check_floats(record, 1u << MICA__PENALIZE_LOGITS | 1u << MICA__PENALIZE_BIAS |
                                                        1u << MICA__PENALIZE_Y);
    if (status != MICA_OK)
        return status;
    const mica__operand *y = &record->operand[MICA__PENALIZE_Y],
                        *history = &record->operand[MICA__PENALIZE_HISTORY];
    const uint64_t n = y->shape[1], width = mica__operand_present(history) ? history->shape[1] : 0;
    return plan_rows(record, "penalize", y->shape[0], (n + 1) * sizeof(float) + width * sizeof(uint64_t),
                     100 + 0.2 * (double)n + 10 * (double)width, plan);
}

mica_status mica__cpu_plan_sample(const mica__record *record, const mica__device_info *info, mica__plan *plan)
{
    (void)info;
    const mica_status status = check_floats(record, 1u << MICA__SAMPLE_LOGITS | 1u << MICA__SAMPLE_RAW |
                                                        1u << MICA__SAMPLE_LOG_PROBABILITIES);
    if (status != MICA_OK)
        return status;
    const mica__operand *logits = &record->operand[MICA__SAMPLE_LOGITS];
    const uint64_t n = logits->shape[1];
    return plan_rows(record, "sample", logits->shape[0], mica__cpu_sample_bytes(n), 500 + 0.3 * (double)n,
                     plan);
}
