/* cpu_plan_product.c - the plan of a product of two dense matrices: a unit for each block of y. */
#include "backend/cpu/cpu_plan.h"

#include "backend/cpu/cpu_params.h"

#define PRODUCTS_PER_NS 40.0 /* of one thread, floats */
#define CODES_PER_NS 200.0   /* the same of codes of 8 bits */
#define LEAST_ROWS 24        /* of a block of those: b is packed anew for each */

static uint64_t cut(uint64_t n, uint64_t size)
{
    return (n + size - 1) / size;
}

static uint64_t smaller_of(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Blocks of codes, of which no bit depends: as large as the second cache holds, but several for each thread. */
static void cut_codes(uint64_t matrices, uint64_t m, uint64_t n, uint64_t threads, mica__cpu_product *p)
{
    uint64_t rows = MICA__CPU_CODES_ROWS, columns = MICA__CPU_CODES_COLUMNS;
    while (matrices * cut(m, rows) * cut(n, columns) < 4 * threads)
        if (columns > MICA__CPU_CODES_LEAST)
            columns /= 2;
        else if (rows > LEAST_ROWS && m > rows / 2)
            rows /= 2;
        else
            break;
    p->block_rows = rows;
    p->block_columns = columns;
}

/* Per-thread memory of such a block: rows of a, a panel of b, sums, and what rows, columns and zero points add up to. Codes take up to
 * four bytes, a panel is up to `least` columns. */
static uint64_t code_bytes(const mica__cpu_product *p)
{
    const uint64_t rows = p->block_rows, columns = p->block_columns;
    return 4 * ((rows + MICA__CPU_CODES_LEAST) * MICA__CPU_CODES_K + rows * columns + rows + 2 * columns);
}

mica_status mica__cpu_plan_product(const mica__record *record, const mica__device_info *info,
                                   mica__plan *plan)
{
    const mica__operand *a = &record->operand[MICA__PRODUCT_A], *y = &record->operand[MICA__PRODUCT_Y];
    const bool codes = a->dtype == MICA_DTYPE_I8 || a->dtype == MICA_DTYPE_U8;
    const uint64_t m = y->shape[y->ndim - 2], n = y->shape[y->ndim - 1], k = a->shape[a->ndim - 1];
    mica__cpu_product params = {.block_rows = MICA__CPU_PRODUCT_ROWS,
                                .block_columns = MICA__CPU_PRODUCT_COLUMNS};
    uint64_t matrices = 1;
    for (uint32_t d = 0; d + 2 < y->ndim; d++)
        matrices *= y->shape[d];
    if (codes)
        cut_codes(matrices, m, n, info->threads, &params);
    params.row_blocks = cut(m, params.block_rows);
    params.column_blocks = cut(n, params.block_columns);
    params.range.rows = matrices * params.row_blocks * params.column_blocks;
    params.range.rows_per_unit = 1 + params.range.rows / UINT32_MAX;
    mica__plan_dispatch *dispatch = mica__cpu_plan_next(plan, codes ? "product_codes" : "product",
                                                        cut(params.range.rows, params.range.rows_per_unit));
    mica__cpu_plan_operands(plan, record, record->operand_count);
    mica__cpu_plan_params(plan, &params, sizeof params);
    dispatch->local_bytes =
        codes ? (uint32_t)code_bytes(&params) : MICA__CPU_PRODUCT_FLOATS * (uint32_t)sizeof(float);
    const double rows = (double)smaller_of(m, params.block_rows),
                 columns = (double)smaller_of(n, params.block_columns);
    mica__cpu_plan_grain(dispatch, 50 +
                                       rows * columns * (double)k / (codes ? CODES_PER_NS : PRODUCTS_PER_NS) +
                                       (codes ? (rows + columns) * (double)k / 20 : 0));
    return MICA_OK;
}
