/* gpu_plan_rows.c - plans of norms, softmax and running sums: ops over the rows of the last dimension. */
#include <string.h>

#include "backend/gpu/gpu_plan.h"
#include "base/status.h"

#define SUB 32u          /* MK_SUB */
#define MOST_NARROW 512u /* elements of a row that MK_SUB work-items serve */

static mica_status check_sizes(const mica__record *record, uint64_t rows, uint64_t n)
{
    if (rows <= UINT32_MAX && n <= UINT32_MAX)
        return MICA_OK;
    return mica__fail(MICA_ERR_UNSUPPORTED, "%s: %llu rows of %llu elements, 2^32 - 1 of each are served",
                      mica_op_name((mica_op)record->op), (unsigned long long)rows, (unsigned long long)n);
}

/* Whether operand o may be read by four: absent, or contiguous with rows that begin at a multiple of four elements. */
static bool takes_four(const mk_rows_params *params, uint32_t o)
{
    const uint64_t bytes = params->type[o] == MICA__MK_F32 ? 4 : 2;
    if ((params->present >> o & 1) == 0)
        return true;
    bool fine = params->step[o] == bytes;
    for (uint32_t d = 0; d + 1 < params->ndim; d++)
        fine = fine && params->stride[o][d] % (4 * bytes) == 0;
    return fine;
}

/* All operands of the record, in the order of their slots; the last is y. */
static mica_status describe(const mica__record *record, mk_rows_params *params)
{
    const uint32_t count = record->operand_count;
    mica__gpu_view view[MK_ROWS_OPERANDS];
    memset(params, 0, sizeof *params);
    for (uint32_t o = count; o-- > 0;) {
        const mica__operand *operand = &record->operand[o];
        const bool present = mica__operand_present(operand);
        view[o] = present ? mica__gpu_view_of(operand) : view[count - 1];
        mica__gpu_view_expand(&view[o], &view[count - 1]);
        params->type[o] = mica__gpu_type(operand->dtype);
        params->present |= (uint32_t)present << o;
    }
    mica__gpu_view_collapse(view, count, 1);
    const uint32_t last = view[0].ndim - 1;
    uint64_t rows = 1;
    params->ndim = view[0].ndim;
    params->four = view[0].shape[last] % 4 == 0;
    for (uint32_t d = 0; d < last; d++) {
        rows *= view[0].shape[d];
        params->shape[d] = (uint32_t)view[0].shape[d];
    }
    for (uint32_t o = 0; o < count; o++) {
        memcpy(params->stride[o], view[o].stride, last * sizeof view[o].stride[0]);
        params->step[o] = view[o].stride[last];
        params->four = params->four && takes_four(params, o);
    }
    params->rows = (uint32_t)rows;
    params->n = (uint32_t)view[0].shape[last];
    params->narrow = params->n <= MOST_NARROW;
    return check_sizes(record, rows, view[0].shape[last]);
}

/* `truths`: bits of the slots that are of bool. */
static mica_status plan_rows(const mica__record *record, const char *kernel, float value, uint32_t truths,
                             mica__plan *plan)
{
    mk_rows_params params;
    mica_status status = mica__gpu_check_floats(record, ~truths);
    if (status == MICA_OK)
        status = describe(record, &params);
    if (status != MICA_OK)
        return status;
    const uint32_t rows = params.narrow ? MICA__MK_WG / SUB : 1; /* of a group */
    params.value = value;
    params.truth = truths != 0;
    status = mica__gpu_plan_next(plan, kernel, ((uint64_t)params.rows + rows - 1) / rows);
    if (status != MICA_OK)
        return status;
    for (uint32_t o = 0; o < record->operand_count; o++)
        mica__gpu_plan_operand(plan, record, o, 0);
    mica__gpu_plan_params(plan, &params, sizeof params);
    return MICA_OK;
}

_Static_assert(MICA__NORM_SLOTS == MK_ROWS_OPERANDS, "the kernel takes the record's slots");

mica_status mica__gpu_plan_rms_norm(const mica__record *record, const mica__device_info *info,
                                    mica__plan *plan)
{
    const mica_norm_params *norm = record->params;
    (void)info;
    return plan_rows(record, "rows/rms_norm", norm->eps, 0, plan);
}

mica_status mica__gpu_plan_layer_norm(const mica__record *record, const mica__device_info *info,
                                      mica__plan *plan)
{
    const mica_norm_params *norm = record->params;
    (void)info;
    return plan_rows(record, "rows/layer_norm", norm->eps, 0, plan);
}

mica_status mica__gpu_plan_softmax(const mica__record *record, const mica__device_info *info,
                                   mica__plan *plan)
{
    const mica_softmax_params *softmax = record->params;
    (void)info;
    if (softmax->log != 0)
        return mica__gpu_plan_log_softmax(record, plan);
    const bool truth = record->operand[MICA__SOFTMAX_MASK].dtype == MICA_DTYPE_BOOL;
    return plan_rows(record, "rows/softmax", softmax->scale, (uint32_t)truth << MICA__SOFTMAX_MASK, plan);
}
