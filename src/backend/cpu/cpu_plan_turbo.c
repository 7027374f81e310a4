/* cpu_plan_turbo.c - plans of rotations. A unit is a row. */
#include <math.h>

#include "backend/cpu/cpu_params.h"
#include "backend/cpu/cpu_plan.h"
#include "base/status.h"

mica_status mica__cpu_plan_hadamard(const mica__record *record, const mica__device_info *info,
                                    mica__plan *plan)
{
    (void)info;
    const mica_hadamard_params *hadamard = record->params;
    const mica__operand *y = &record->operand[MICA__HADAMARD_Y];
    const uint64_t n = y->shape[y->ndim - 1],
                   local = 2 * n * (y->dtype == MICA_DTYPE_F64 ? sizeof(double) : sizeof(float));
    uint64_t rows = 1;
    for (uint32_t d = 0; d + 1 < y->ndim; d++)
        rows *= y->shape[d];
    if (local > UINT32_MAX)
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "hadamard on the cpu: a row needs %llu bytes of work memory; 4 GiB are served",
                          (unsigned long long)local);
    const mica__cpu_hadamard params = {{rows, 1 + rows / UINT32_MAX},
                                       hadamard->scale != 0 ? (double)hadamard->scale : 1 / sqrt((double)n),
                                       hadamard->undo};
    const uint64_t units = (rows + params.range.rows_per_unit - 1) / params.range.rows_per_unit;
    mica__plan_dispatch *dispatch = mica__cpu_plan_next(plan, "hadamard", units);
    mica__cpu_plan_operands(plan, record, MICA__HADAMARD_SLOTS);
    mica__cpu_view *view = mica__cpu_plan_views(plan);
    mica__cpu_view_expand(&view[MICA__HADAMARD_SIGNS], &view[MICA__HADAMARD_Y]);
    mica__cpu_view_collapse(view, MICA__HADAMARD_SLOTS, 1);
    mica__cpu_plan_params(plan, &params, sizeof params);
    dispatch->local_bytes = (uint32_t)local;
    mica__cpu_plan_grain(dispatch, 10 + 0.1 * (double)n * (1 + log2((double)n)));
    return MICA_OK;
}
