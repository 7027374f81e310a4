/* cpu_plan_linear.c - plans of linear algebra: a matrix is a unit, worked on in f64 in the thread's memory. */
#include <string.h>

#include "backend/cpu/cpu_linear.h"
#include "backend/cpu/cpu_plan.h"
#include "base/status.h"

static mica__cpu_linear_part part_of(const mica__operand *operand, uint32_t outer)
{
    mica__cpu_linear_part part = {1, 1, 0, 0};
    if (operand->ndim > outer) {
        part.rows = operand->shape[outer];
        part.row_step = operand->stride[outer];
    }
    if (operand->ndim > outer + 1) {
        part.columns = operand->shape[outer + 1];
        part.column_step = operand->stride[outer + 1];
    }
    return part;
}

/* The dimensions that count matrices, at least one. */
static void leave_outer(mica__cpu_view *view, uint32_t outer)
{
    view->ndim = (uint8_t)(outer > 0 ? outer : 1);
    if (outer == 0) {
        view->shape[0] = 1;
        view->stride[0] = 0;
    }
}

static mica_status plan_linear(const mica__record *record, mica__cpu_linear *params, mica__plan *plan)
{
    const mica__operand *a = &record->operand[0];
    const uint32_t outer = a->ndim - 2u;
    uint64_t matrices = 1, numbers = 0, most = 1;
    for (uint32_t d = 0; d < outer; d++)
        matrices *= a->shape[d];
    for (uint32_t o = 0; o < record->operand_count; o++) {
        const mica__cpu_linear_part *part = &params->part[o];
        params->part[o] = part_of(&record->operand[o], outer);
        numbers += part->rows * part->columns;
        most = part->rows > most ? part->rows : most;
        most = part->columns > most ? part->columns : most;
    }
    const uint64_t n = params->part[0].columns, m = params->part[0].rows, least = m < n ? m : n;
    const uint64_t local =
        (numbers + m * n + 2 * least * least + mica__cpu_linear_work(most)) * sizeof(double);
    if (local > UINT32_MAX)
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "%s on the cpu: a matrix needs %llu bytes of work memory; 4 GiB are served",
                          mica_op_name((mica_op)record->op), (unsigned long long)local);
    params->op = record->op;
    params->range.rows = matrices;
    params->range.rows_per_unit = 1 + matrices / UINT32_MAX;
    mica__plan_dispatch *dispatch = mica__cpu_plan_next(
        plan, "linear", (matrices + params->range.rows_per_unit - 1) / params->range.rows_per_unit);
    mica__cpu_plan_operands(plan, record, record->operand_count);
    mica__cpu_view *view = mica__cpu_plan_views(plan);
    for (uint32_t o = 0; o < record->operand_count; o++)
        leave_outer(&view[o], outer);
    mica__cpu_plan_params(plan, params, sizeof *params);
    dispatch->local_bytes = (uint32_t)local;
    mica__cpu_plan_grain(dispatch, 100 + 2 * (double)(m * n) * (double)most);
    return MICA_OK;
}

mica_status mica__cpu_plan_triangular_solve(const mica__record *record, const mica__device_info *info,
                                            mica__plan *plan)
{
    mica__cpu_linear params = {.triangular = *(const mica_triangular_params *)record->params};
    (void)info;
    return plan_linear(record, &params, plan);
}

mica_status mica__cpu_plan_cholesky(const mica__record *record, const mica__device_info *info,
                                    mica__plan *plan)
{
    mica__cpu_linear params = {.triangular.upper = ((const mica_cholesky_params *)record->params)->upper};
    (void)info;
    return plan_linear(record, &params, plan);
}

mica_status mica__cpu_plan_determinant(const mica__record *record, const mica__device_info *info,
                                       mica__plan *plan)
{
    mica__cpu_linear params = {.triangular.unit = ((const mica_determinant_params *)record->params)->log};
    (void)info;
    return plan_linear(record, &params, plan);
}

#define WITHOUT_PARAMS(name)                                                                     \
    mica_status mica__cpu_plan_##name(const mica__record *record, const mica__device_info *info, \
                                      mica__plan *plan)                                          \
    {                                                                                            \
        mica__cpu_linear params = {.op = record->op};                                            \
        (void)info;                                                                              \
        return plan_linear(record, &params, plan);                                               \
    }
WITHOUT_PARAMS(solve)
WITHOUT_PARAMS(inverse)
WITHOUT_PARAMS(qr)
WITHOUT_PARAMS(eigh)
WITHOUT_PARAMS(svd)
