/* cpu_plan_product.c - the plan of a product of two dense matrices: a unit for each block of y. */
#include "backend/cpu/cpu_plan.h"

#include "backend/cpu/cpu_params.h"

#define PRODUCTS_PER_NS 40.0 /* of one thread, floats */

mica_status mica__cpu_plan_product(const mica__record *record, const mica__device_info *info,
                                   mica__plan *plan)
{
    (void)info;
    const mica__operand *a = &record->operand[MICA__PRODUCT_A], *y = &record->operand[MICA__PRODUCT_Y];
    const uint64_t m = y->shape[y->ndim - 2], n = y->shape[y->ndim - 1], k = a->shape[a->ndim - 1];
    mica__cpu_product params = {.row_blocks = (m + MICA__CPU_PRODUCT_ROWS - 1) / MICA__CPU_PRODUCT_ROWS,
                                .column_blocks =
                                    (n + MICA__CPU_PRODUCT_COLUMNS - 1) / MICA__CPU_PRODUCT_COLUMNS};
    params.range.rows = params.row_blocks * params.column_blocks;
    for (uint32_t d = 0; d + 2 < y->ndim; d++)
        params.range.rows *= y->shape[d];
    params.range.rows_per_unit = 1 + params.range.rows / UINT32_MAX;
    mica__plan_dispatch *dispatch = mica__cpu_plan_next(
        plan, "product", (params.range.rows + params.range.rows_per_unit - 1) / params.range.rows_per_unit);
    mica__cpu_plan_operands(plan, record, record->operand_count);
    mica__cpu_plan_params(plan, &params, sizeof params);
    dispatch->local_bytes = MICA__CPU_PRODUCT_FLOATS * sizeof(float);
    const double rows = m < MICA__CPU_PRODUCT_ROWS ? (double)m : MICA__CPU_PRODUCT_ROWS,
                 columns = n < MICA__CPU_PRODUCT_COLUMNS ? (double)n : MICA__CPU_PRODUCT_COLUMNS;
    mica__cpu_plan_grain(dispatch, 50 + rows * columns * (double)k / PRODUCTS_PER_NS);
    return MICA_OK;
}
