/* cpu_plan_transposed.c - the plan of rows times a weight as it lies: a unit for each block of y, of experts behind the map of their slots. */
#include "backend/cpu/cpu_plan.h"

#include "backend/cpu/cpu_params.h"
#include "backend/cpu/cpu_plan_quant.h"
#include "backend/cpu/kernels/experts.h"
#include "base/status.h"
#include "quant/packed.h"

#define PRODUCTS_PER_NS 100.0 /* of one thread */
#define DECODED_PER_NS 1.0

#define WHOLE_ROWS 12    /* whole tiles of every instruction set */
#define LEAST_COLUMNS 64 /* of a block, where threads want more of them, */
#define LEAST_ROWS 48    /* and rows, for which the weight is decoded anew */

static uint64_t cut(uint64_t n, uint64_t size)
{
    return (n + size - 1) / size;
}

static uint64_t shared_multiple(uint64_t a, uint64_t b)
{
    uint64_t x = a, y = b;
    while (y != 0) {
        const uint64_t rest = x % y;
        x = y;
        y = rest;
    }
    return a / x * b;
}

/* Values of a row from multiples of which it can be decoded. */
static uint64_t decode_step(const mica__operand *weight)
{
    const uint64_t block = mica_dtype_block_elements((mica_dtype)weight->dtype);
    if (weight->layout == MICA_LAYOUT_ROWS8)
        return MICA__PACKED_PART;
    return mica__dtype_is_grouped(weight->dtype) ? shared_multiple(block, weight->group_size) : block;
}

static uint64_t plan_map(const mica__record *record, uint64_t slots, mica__plan *plan)
{
    const mica__experts_map_params map = {(uint32_t)record->operand[MICA__TRANSPOSED_WEIGHT].shape[0],
                                          MICA__CPU_TRANSPOSED_ROWS};
    const uint64_t bytes = mica__experts_map_bytes(slots, map.experts, map.tile);
    mica__cpu_plan_next(plan, "experts_map", 1);
    mica__cpu_plan_operand(plan, record, MICA__TRANSPOSED_IDS, 0);
    mica__cpu_plan_operand(plan, record, MICA__TRANSPOSED_Y, 0);
    mica__cpu_plan_scratch(plan, 0, bytes, MICA_ACCESS_WRITE);
    mica__cpu_plan_params(plan, &map, sizeof map);
    return bytes;
}

/* Rows of all weights cut into blocks, evenly, and columns. No bit depends on them: threads may want more blocks, as narrow as a tile where
 * decoding goes by values, else with fewer rows. Returns the blocks of rows. */
static uint64_t cut_blocks(const mica__record *record, uint64_t threads, mica__cpu_transposed *p)
{
    const mica__operand *x = &record->operand[MICA__TRANSPOSED_X],
                        *w = &record->operand[MICA__TRANSPOSED_WEIGHT];
    const uint64_t weights = w->ndim == 3 ? w->shape[0] : 1, k = w->shape[w->ndim - 1];
    uint64_t rows = 1;
    for (uint32_t d = 0; d + 1 < x->ndim; d++)
        rows *= x->shape[d];
    p->routed = mica__operand_present(&record->operand[MICA__TRANSPOSED_IDS]);
    p->block_rows = MICA__CPU_TRANSPOSED_ROWS;
    p->block_columns = MICA__CPU_TRANSPOSED_COLUMNS;
    if (p->routed != 0) {
        p->column_units = cut(k, p->block_columns);
        p->row_units = mica__experts_max_tiles(rows, weights, p->block_rows);
        return p->row_units;
    }
    p->rows = rows / weights;
    p->row_units = cut(p->rows, p->block_rows);
    p->column_units = cut(k, p->block_columns);
    if (p->rows == 0)
        return 0;
    while (weights * p->row_units * cut(k, p->block_columns) < 2 * threads) {
        if (p->step == 1 && p->block_columns > LEAST_COLUMNS)
            p->block_columns /= 2;
        else if (p->rows / p->row_units >= 2 * LEAST_ROWS)
            p->row_units *= 2;
        else
            break;
    }
    p->block_rows = cut(p->rows, p->row_units);
    p->row_units = cut(p->rows, p->block_rows);
    p->column_units = cut(k, p->block_columns);
    return p->row_units * weights;
}

static mica_status check(const mica__record *record, uint64_t slots)
{
    const mica__operand *w = &record->operand[MICA__TRANSPOSED_WEIGHT];
    if (w->ndim == 3 && (slots > UINT32_MAX || w->shape[0] > UINT32_MAX))
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "matmul_transposed on the cpu: %llu rows of x and %llu weights are too many",
                          (unsigned long long)slots, (unsigned long long)w->shape[0]);
    return mica__cpu_is_float(w->dtype) ? MICA_OK : mica__cpu_quant_check_weight(record, w);
}

mica_status mica__cpu_plan_matmul_transposed(const mica__record *record, const mica__device_info *info,
                                             mica__plan *plan)
{
    const mica__operand *w = &record->operand[MICA__TRANSPOSED_WEIGHT],
                        *ids = &record->operand[MICA__TRANSPOSED_IDS];
    const uint64_t k = w->shape[w->ndim - 1], n = w->shape[w->ndim - 2];
    const uint64_t slots = mica__operand_present(ids) ? ids->shape[0] * ids->shape[1] : 0;
    mica__cpu_transposed p = {.step = decode_step(w)};
    const mica_status status = check(record, slots);
    if (status != MICA_OK)
        return status;
    const uint64_t rows = cut_blocks(record, info->threads, &p), units = rows * p.column_units;
    const uint64_t room = cut(p.block_rows, WHOLE_ROWS) * WHOLE_ROWS,
                   local = ((room + p.block_columns) * MICA__CPU_TRANSPOSED_N + room * p.block_columns +
                            p.block_columns + 2 * p.step) *
                           sizeof(float);
    if (units > UINT32_MAX || local > UINT32_MAX)
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "matmul_transposed on the cpu: %llu blocks of y; at most %u are served",
                          (unsigned long long)units, UINT32_MAX);
    const uint64_t map_bytes = p.routed != 0 ? plan_map(record, slots, plan) : 0;
    mica__plan_dispatch *dispatch = mica__cpu_plan_next(plan, "matmul_transposed", units);
    mica__cpu_plan_operands(plan, record, MICA__TRANSPOSED_SLOTS);
    if (p.routed != 0)
        mica__cpu_plan_scratch(plan, 0, map_bytes, MICA_ACCESS_READ);
    mica__cpu_plan_params(plan, &p, sizeof p);
    dispatch->local_bytes = (uint32_t)local;
    const double columns = (double)(k < p.block_columns ? k : p.block_columns);
    mica__cpu_plan_grain(dispatch, 50 + columns * (double)n *
                                            (1 / DECODED_PER_NS + (double)p.block_rows / PRODUCTS_PER_NS));
    return MICA_OK;
}
