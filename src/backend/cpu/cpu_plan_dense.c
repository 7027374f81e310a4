/*
 * cpu_plan_dense.c - plans of matmul and expert-routed matmul with f32, f16 or bf16 weights.
 *
 * Chooses blocks: small enough that every thread has several, large enough that what a unit packs is used
 * often. How a block is computed, and the vectors and tiles in it, belong to the kernels.
 */
#include "backend/cpu/cpu_plan.h"

#include "base/status.h"
#include "backend/cpu/kernels/dense.h"
#include "backend/cpu/kernels/experts.h"

/* Units for each thread, so that the last ones even out. */
#define UNITS_PER_THREAD 8
/* Estimates of one thread's speed, for the grain: bytes read and operations done in a nanosecond. */
#define BYTES_PER_NS 10.0
#define FLOPS_PER_NS 50.0

static bool is_float(uint16_t dtype)
{
    return dtype == MICA_DTYPE_F32 || dtype == MICA_DTYPE_F16 || dtype == MICA_DTYPE_BF16;
}

static uint64_t element_bytes(uint16_t dtype)
{
    return dtype == MICA_DTYPE_F32 ? 4 : 2;
}

static mica_status check_float(const mica__record *record, uint32_t slot, const char *what)
{
    const mica__operand *operand = &record->operand[slot];
    if (!mica__operand_present(operand) || is_float(operand->dtype))
        return MICA_OK;
    return mica__fail(MICA_ERR_UNSUPPORTED,
                      "%s on the cpu: %s is %s; beside a dense weight f32, f16 and bf16 are served",
                      mica_op_name((mica_op)record->op), what, mica_dtype_name((mica_dtype)operand->dtype));
}

/* Gives the dispatch being built its per-thread memory and its grain. */
static mica_status finish(const mica__record *record, uint64_t k, uint64_t local_floats, double unit_ns,
                          mica__plan *plan)
{
    mica__plan_dispatch *dispatch = &plan->dispatch[plan->dispatch_count - 1];
    if (local_floats > UINT32_MAX / sizeof(float))
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "%s on the cpu: rows of x have %llu values; their blocks pass 4 GiB",
                          mica_op_name((mica_op)record->op), (unsigned long long)k);
    dispatch->local_bytes = (uint32_t)(local_floats * sizeof(float));
    mica__cpu_plan_grain(dispatch, unit_ns);
    return MICA_OK;
}

static mica_status check_matmul(const mica__record *record, uint32_t weights)
{
    mica_status status = check_float(record, MICA__MATMUL_X, "x");
    if (status == MICA_OK)
        status = check_float(record, MICA__MATMUL_NORM_WEIGHT, "the norm's weight");
    if (status == MICA_OK)
        status = check_float(record, MICA__MATMUL_RESIDUAL, "the residual");
    for (uint32_t i = 0; status == MICA_OK && i < weights; i++) {
        status = check_float(record, MICA__MATMUL_SLOT(i, MICA__WEIGHT_DATA), "a weight");
        if (status == MICA_OK)
            status = check_float(record, MICA__MATMUL_SLOT(i, MICA__WEIGHT_Y), "y");
    }
    return status;
}

static uint64_t rows_of(const mica__operand *operand)
{
    uint64_t rows = 1;
    for (uint32_t d = 0; d + 1 < operand->ndim; d++)
        rows *= operand->shape[d];
    return rows;
}

static uint64_t at_least(uint64_t n, uint64_t least)
{
    return n < least ? least : n;
}

static uint64_t at_most(uint64_t n, uint64_t most)
{
    return n < most ? n : most;
}

static uint64_t second_cache(const mica__device_info *info)
{
    return info->cache_bytes != 0 ? info->cache_bytes : 512 << 10;
}

/* Rows of x of which a part of K takes half of the second cache. */
static uint64_t tile_rows(const mica__device_info *info, uint64_t k)
{
    return at_least(second_cache(info) / 2 / (at_most(k, MICA__DENSE_K_PART) * sizeof(float)),
                    MICA__DENSE_PANEL);
}

/* Columns of a block of so many rows, whose results and waiting sums take a quarter of it. */
static uint64_t tile_columns(const mica__device_info *info, uint64_t k, uint64_t rows, uint32_t weights)
{
    const uint64_t bytes = sizeof(float) * (k > MICA__DENSE_K_PART ? MICA__DENSE_LANES : weights);
    const uint64_t columns = second_cache(info) / 4 / (rows * bytes);
    return at_most(at_least(columns / MICA__DENSE_TILE_STEP, 1), 12) * MICA__DENSE_TILE_STEP;
}

/* Column blocks of all weights, each at most `columns` wide. */
static uint64_t cut_columns(const mica__record *record, mica__dense_params *p, uint64_t columns)
{
    const bool gate = p->matmul.gate != MICA__GATE_NONE;
    uint64_t blocks = 0;
    for (uint32_t i = 0; i < (gate ? 1 : p->matmul.weight_count); i++) {
        const mica__operand *w = &record->operand[MICA__MATMUL_SLOT(i, MICA__WEIGHT_DATA)];
        p->column_blocks[i] = (uint32_t)((w->shape[w->ndim - 2] + columns - 1) / columns);
        blocks += p->column_blocks[i];
    }
    p->block_columns = (uint32_t)columns;
    return blocks;
}

/* The operands that the mode needs, scratch unless there is none, the parameters. */
static mica_status add_dispatch(const mica__record *record, const mica__dense_params *p, uint64_t units,
                                uint64_t scratch, uint64_t local_floats, double unit_ns, mica__plan *plan)
{
    if (units > UINT32_MAX)
        return mica__fail(MICA_ERR_UNSUPPORTED, "matmul on the cpu: %llu blocks of y; at most %u are served",
                          (unsigned long long)units, UINT32_MAX);
    mica__cpu_plan_next(plan, "matmul_dense", units);
    const bool pack = p->mode == MICA__DENSE_PACK;
    mica__cpu_plan_operands(plan, record, pack ? MICA__MATMUL_RESIDUAL : record->operand_count);
    if (scratch != 0)
        mica__cpu_plan_scratch(plan, 0, scratch, pack ? MICA_ACCESS_WRITE : MICA_ACCESS_READ);
    mica__cpu_plan_params(plan, p, sizeof *p);
    return finish(record, p->k, local_floats, unit_ns, plan);
}

/* Columns of a block for few rows of x, of `bytes` of w in all. Where w is read again for more rows of x its rows are some
 * tens of kilobytes; else up to a megabyte, which is read in long streams, as far as threads have units enough. */
static uint64_t few_columns(const mica__device_info *info, uint64_t rows, uint64_t row_bytes, uint64_t bytes)
{
    const uint64_t step = mica__dense_few_step(rows), near = 32 << 10,
                   share = bytes / ((uint64_t)info->threads * UNITS_PER_THREAD);
    const uint64_t block = rows <= MICA__DENSE_DOTS ? at_least(at_most(share, 1 << 20), near) : near;
    return at_most(at_least(block / (row_bytes * step), 1), 512 / step) * step;
}

static mica_status plan_rows(const mica__record *record, const mica__device_info *info, mica__dense_params *p,
                             mica__plan *plan)
{
    const uint64_t row_bytes =
        p->k * element_bytes(record->operand[MICA__MATMUL_SLOT(0, MICA__WEIGHT_DATA)].dtype);
    p->mode = MICA__DENSE_ROWS;
    p->row_blocks = 1;
    const uint64_t bytes = p->groups * row_bytes * cut_columns(record, p, 1);
    const uint64_t blocks = cut_columns(record, p, few_columns(info, p->rows, row_bytes, bytes));
    const uint64_t local = (1 + p->rows) * mica__dense_row_floats(p->k) + 2 * p->rows * p->block_columns;
    const double flops = 2 * (double)(p->rows * p->block_columns) * (double)p->k;
    const double unit_ns = 20 + (double)(p->block_columns * row_bytes) / BYTES_PER_NS + flops / FLOPS_PER_NS;
    return add_dispatch(record, p, p->groups * blocks, 0, local, unit_ns, plan);
}

static mica_status plan_tiles(const mica__record *record, const mica__device_info *info,
                              mica__dense_params *p, mica__plan *plan)
{
    const uint32_t weights = p->matmul.gate != MICA__GATE_NONE ? 2 : 1;
    const uint64_t wanted = (uint64_t)info->threads * UNITS_PER_THREAD, most = tile_rows(info, p->k);
    uint64_t row_blocks = (p->rows + most - 1) / most;
    uint64_t columns = tile_columns(info, p->k, (p->rows + row_blocks - 1) / row_blocks, weights);
    uint64_t blocks = cut_columns(record, p, columns);
    while (p->groups * row_blocks * blocks < wanted) {
        if (columns > MICA__DENSE_TILE_STEP)
            blocks =
                cut_columns(record, p, columns = columns / 2 / MICA__DENSE_TILE_STEP * MICA__DENSE_TILE_STEP);
        else if (p->rows / row_blocks >= 8 * MICA__DENSE_PANEL)
            row_blocks *= 2;
        else
            break;
    }
    const uint64_t row_floats = mica__dense_row_floats(p->k), rows = (p->rows + row_blocks - 1) / row_blocks;
    const uint64_t scratch = p->groups * p->rows * row_floats * sizeof(float);
    p->row_blocks = (uint32_t)row_blocks;
    p->block_rows = (uint32_t)rows;
    p->pieces =
        (uint32_t)at_most(at_least(rows * row_floats / (16 << 10), 1), at_least(rows / MICA__DENSE_PANEL, 1));
    p->mode = MICA__DENSE_PACK;
    const double piece_ns = (double)(rows * row_floats * 8) / p->pieces / BYTES_PER_NS;
    const mica_status status =
        add_dispatch(record, p, p->groups * row_blocks * p->pieces, scratch, 2 * row_floats, piece_ns, plan);
    if (status != MICA_OK)
        return status;
    p->mode = MICA__DENSE_TILES;
    const uint64_t local = 2 * mica__dense_out_floats(rows, columns) + mica__dense_lines_floats(p->k) +
                           mica__dense_partial_floats(rows, columns, p->k);
    const double unit_ns = (double)(2 * weights * rows * columns) * (double)p->k / FLOPS_PER_NS;
    return add_dispatch(record, p, p->groups * row_blocks * blocks, scratch, local, unit_ns, plan);
}

mica_status mica__cpu_plan_matmul_dense(const mica__record *record, const mica__device_info *info,
                                        mica__plan *plan)
{
    const mica__matmul_record *matmul = record->params;
    const mica__operand *x = &record->operand[MICA__MATMUL_X];
    mica__dense_params p = {.matmul = *matmul, .groups = 1, .k = x->shape[x->ndim - 1]};
    const mica_status status = check_matmul(record, matmul->weight_count);
    if (status != MICA_OK)
        return status;
    for (uint32_t i = 0; i < matmul->weight_count; i++) {
        const mica__operand *w = &record->operand[MICA__MATMUL_SLOT(i, MICA__WEIGHT_DATA)];
        if (w->ndim > 2)
            p.groups = w->shape[w->ndim - 3];
    }
    p.rows = rows_of(x) / p.groups;
    const bool f32 = record->operand[MICA__MATMUL_SLOT(0, MICA__WEIGHT_DATA)].dtype == MICA_DTYPE_F32;
    return p.rows <= (f32 ? MICA__DENSE_FEW_F32 : MICA__DENSE_FEW) ? plan_rows(record, info, &p, plan)
                                                                   : plan_tiles(record, info, &p, plan);
}

/* Adds experts_dense with all operands, then the map and the packed rows unless the mode is FEW. */
static void add_experts(const mica__record *record, const mica__experts_dense_params *p, uint64_t units,
                        uint64_t map_bytes, uint64_t packed_bytes, mica__plan *plan)
{
    const bool pack = p->mode == MICA__EXPERTS_PACK;
    mica__cpu_plan_next(plan, "experts_dense", units);
    for (uint32_t slot = 0; slot < MICA__EXPERTS_SLOTS; slot++)
        mica__cpu_plan_operand(plan, record, slot, pack ? MICA_ACCESS_READ : 0);
    if (p->mode != MICA__EXPERTS_FEW) {
        mica__cpu_plan_scratch(plan, 0, map_bytes, MICA_ACCESS_READ);
        mica__cpu_plan_scratch(plan, map_bytes, packed_bytes, pack ? MICA_ACCESS_WRITE : MICA_ACCESS_READ);
    }
    mica__cpu_plan_params(plan, p, sizeof *p);
}

static mica_status plan_few_slots(const mica__record *record, const mica__device_info *info, uint64_t slots,
                                  mica__plan *plan)
{
    const mica__operand *w = &record->operand[MICA__EXPERTS_WEIGHT];
    const uint64_t n = w->shape[1], row_bytes = w->shape[2] * element_bytes(w->dtype);
    mica__experts_dense_params p = {.mode = MICA__EXPERTS_FEW,
                                    .block_columns =
                                        (uint32_t)few_columns(info, 1, row_bytes, slots * n * row_bytes)};
    p.column_blocks = (uint32_t)((n + p.block_columns - 1) / p.block_columns);
    add_experts(record, &p, slots * p.column_blocks, 0, 0, plan);
    return finish(record, w->shape[2], mica__dense_row_floats(w->shape[2]) + p.block_columns,
                  30 + (double)(p.block_columns * row_bytes) / BYTES_PER_NS, plan);
}

static void add_map(const mica__record *record, uint64_t map_bytes, const mica__experts_map_params *params,
                    mica__plan *plan)
{
    mica__cpu_plan_next(plan, "experts_map", 1);
    mica__cpu_plan_operand(plan, record, MICA__EXPERTS_IDS, 0);
    mica__cpu_plan_operand(plan, record, MICA__EXPERTS_Y, 0);
    mica__cpu_plan_scratch(plan, 0, map_bytes, MICA_ACCESS_WRITE);
    mica__cpu_plan_params(plan, params, sizeof *params);
}

/* Many slots: the map says which share an expert, their rows are packed in that order, then tiles of them
 * meet column blocks of their expert. */
static mica_status plan_many_slots(const mica__record *record, const mica__device_info *info, uint64_t slots,
                                   mica__plan *plan)
{
    const mica__operand *w = &record->operand[MICA__EXPERTS_WEIGHT];
    const uint64_t experts = w->shape[0], n = w->shape[1], k = w->shape[2],
                   row_floats = mica__dense_row_floats(k);
    const uint64_t tile = at_most(at_least(2 * slots / experts, 16), 256);
    const uint64_t tiles = mica__experts_max_tiles(slots, experts, tile),
                   columns = tile_columns(info, k, tile, 1);
    const uint64_t map_bytes = mica__dense_round(mica__experts_map_bytes(slots, experts, tile), 64);
    const uint64_t packed_bytes = slots * row_floats * sizeof(float);
    mica__experts_dense_params p = {
        .mode = MICA__EXPERTS_PACK, .block_columns = (uint32_t)columns, .block_rows = (uint32_t)tile};
    p.column_blocks = (uint32_t)((n + columns - 1) / columns);
    if (slots > UINT32_MAX || experts > UINT32_MAX || tiles * p.column_blocks > UINT32_MAX)
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "matmul_experts on the cpu: %llu slots of ids and %llu experts are too many",
                          (unsigned long long)slots, (unsigned long long)experts);
    const mica__experts_map_params map = {(uint32_t)experts, (uint32_t)tile};
    add_map(record, map_bytes, &map, plan);
    add_experts(record, &p, tiles, map_bytes, packed_bytes, plan);
    const mica_status status = finish(record, k, 0, (double)(tile * row_floats * 8) / BYTES_PER_NS, plan);
    if (status != MICA_OK)
        return status;
    p.mode = MICA__EXPERTS_TILES;
    add_experts(record, &p, tiles * p.column_blocks, map_bytes, packed_bytes, plan);
    const uint64_t local = mica__dense_out_floats(tile, columns) + mica__dense_lines_floats(k) +
                           mica__dense_partial_floats(tile, columns, k);
    const double unit_ns =
        (double)(columns * row_floats) / BYTES_PER_NS + (double)(tile * columns) * (double)k / FLOPS_PER_NS;
    return finish(record, k, local, unit_ns, plan);
}

mica_status mica__cpu_plan_experts_dense(const mica__record *record, const mica__device_info *info,
                                         mica__plan *plan)
{
    const mica__operand *ids = &record->operand[MICA__EXPERTS_IDS];
    mica_status status = check_float(record, MICA__EXPERTS_X, "x");
    if (status == MICA_OK)
        status = check_float(record, MICA__EXPERTS_WEIGHT, "the weight");
    if (status == MICA_OK)
        status = check_float(record, MICA__EXPERTS_Y, "y");
    if (status != MICA_OK)
        return status;
    const uint64_t slots = ids->shape[0] * ids->shape[1];
    return slots <= MICA__EXPERTS_FEW_SLOTS ? plan_few_slots(record, info, slots, plan)
                                            : plan_many_slots(record, info, slots, plan);
}
