/* cpu_plan_experts.c - expert-routed matmul by the kind of its weights, and its plan for quantised ones. */
#include "backend/cpu/cpu_plan.h"

#include "backend/cpu/cpu_params.h"
#include "base/status.h"
#include "backend/cpu/cpu_plan_quant.h"
#include "backend/cpu/kernels/experts.h"

/* One thread adds about this many products in a nanosecond, and reads this many bytes. */
#define PRODUCTS_PER_NS 60.0
#define BYTES_PER_NS 10.0

static mica_status check(const mica__record *record)
{
    mica_status status = mica__cpu_quant_check_weight(record, &record->operand[MICA__EXPERTS_WEIGHT]);
    if (status == MICA_OK)
        status = mica__cpu_quant_check_float(record, MICA__EXPERTS_X, "x");
    return status == MICA_OK ? mica__cpu_quant_check_float(record, MICA__EXPERTS_Y, "y") : status;
}

static void plan_map(const mica__record *record, const mica__experts_map_params *map, uint64_t offset,
                     uint64_t bytes, mica__plan *plan)
{
    mica__cpu_plan_next(plan, "experts_map", 1);
    mica__cpu_plan_operand(plan, record, MICA__EXPERTS_IDS, 0);
    mica__cpu_plan_operand(plan, record, MICA__EXPERTS_Y, 0);
    mica__cpu_plan_scratch(plan, offset, bytes, MICA_ACCESS_WRITE);
    mica__cpu_plan_params(plan, map, sizeof *map);
}

static mica_status plan_units(const mica__record *record, const mica__device_info *info,
                              const mica__experts_quant_params *p, uint64_t units, uint64_t rows_bytes,
                              uint64_t map_bytes, mica__plan *plan)
{
    const mica__operand *w = &record->operand[MICA__EXPERTS_WEIGHT];
    mica__plan_dispatch *dispatch = mica__cpu_plan_next(plan, "experts_quant", units);
    for (uint32_t slot = 0; slot < MICA__EXPERTS_SLOTS; slot++)
        mica__cpu_plan_operand(plan, record, slot, 0);
    mica__cpu_plan_scratch(plan, 0, rows_bytes, MICA_ACCESS_READ);
    if (!p->few)
        mica__cpu_plan_scratch(plan, rows_bytes, map_bytes, MICA_ACCESS_READ);
    mica__cpu_plan_params(plan, p, sizeof *p);
    const double values = (double)w->shape[2] * MICA__QUANT_ROWS;
    const double bytes = values * mica_dtype_block_bytes((mica_dtype)w->dtype) /
                         mica_dtype_block_elements((mica_dtype)w->dtype);
    mica__cpu_plan_shares(dispatch, info->threads,
                          30 + bytes / BYTES_PER_NS + values * p->tile / PRODUCTS_PER_NS);
    const uint64_t work = mica__quant_work_bytes(w->dtype, w->group_size, w->shape[2], p->form);
    return mica__cpu_quant_local(record, info, dispatch, mica__quant_work_offset(p->tile) + work);
}

static mica_status plan_quant(const mica__record *record, const mica__device_info *info, mica__plan *plan)
{
    const mica__operand *w = &record->operand[MICA__EXPERTS_WEIGHT], *x = &record->operand[MICA__EXPERTS_X];
    const mica__operand *ids = &record->operand[MICA__EXPERTS_IDS];
    const mica__matmul_record *matmul = record->params;
    const uint64_t experts = w->shape[0], slots = ids->shape[0] * ids->shape[1],
                   rows = x->ndim == 3 ? slots : x->shape[0];
    const uint64_t even = (slots / experts + 7) / 8 * 8, tile = even < 8 ? 8 : even > 64 ? 64 : even;
    const uint64_t blocks = mica__quant_units(w->shape[1]);
    const bool few = slots <= MICA__EXPERTS_FEW_SLOTS;
    const uint64_t units = (few ? slots : mica__experts_max_tiles(slots, experts, tile)) * blocks;
    if (slots > UINT32_MAX || experts > UINT32_MAX || units > UINT32_MAX)
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "matmul_experts on the cpu: %llu slots of ids and %llu experts are too many",
                          (unsigned long long)slots, (unsigned long long)experts);
    mica__experts_quant_params p = {.few = few, .tile = few ? 1 : (uint32_t)tile, .blocks = (uint32_t)blocks};
    p.form = mica__cpu_quant_form(w, matmul->precision);
    p.activation = (mica__quant_activation){.k = w->shape[2], .forms = p.form};
    const uint64_t rows_bytes = rows * mica__quant_activation_bytes(&p.activation);
    const uint64_t map_bytes = mica__experts_map_bytes(slots, experts, tile);
    mica_status status = mica__cpu_plan_activation(record, info, &p.activation, rows, plan);
    if (status != MICA_OK)
        return status;
    if (!few)
        plan_map(record, &(mica__experts_map_params){(uint32_t)experts, (uint32_t)tile}, rows_bytes,
                 map_bytes, plan);
    return plan_units(record, info, &p, units, rows_bytes, map_bytes, plan);
}

/* The op's rule has it that x and y are f64 as well. */
static mica_status plan_wide(const mica__record *record, mica__plan *plan)
{
    const mica__operand *ids = &record->operand[MICA__EXPERTS_IDS],
                        *w = &record->operand[MICA__EXPERTS_WEIGHT];
    const uint64_t rows = ids->shape[0] * ids->shape[1];
    const mica__cpu_row_range range = {rows, 1 + rows / UINT32_MAX};
    mica__plan_dispatch *dispatch =
        mica__cpu_plan_next(plan, "experts_wide", (rows + range.rows_per_unit - 1) / range.rows_per_unit);
    mica__cpu_plan_operands(plan, record, MICA__EXPERTS_SLOTS);
    mica__cpu_plan_params(plan, &range, sizeof range);
    mica__cpu_plan_grain(dispatch, 10 + (double)(w->shape[1] * w->shape[2]));
    return MICA_OK;
}

mica_status mica__cpu_plan_matmul_experts(const mica__record *record, const mica__device_info *info,
                                          mica__plan *plan)
{
    const mica__operand *weight = &record->operand[MICA__EXPERTS_WEIGHT];
    if (record->operand_count != MICA__EXPERTS_SLOTS)
        return mica__fail(MICA_ERR_UNSUPPORTED, "matmul_experts: a gate is an op of its own");
    if (weight->dtype == MICA_DTYPE_F64)
        return plan_wide(record, plan);
    if (!mica__quant_known(weight->dtype) && !mica__dtype_is_grouped(weight->dtype))
        return mica__cpu_plan_experts_dense(record, info, plan);
    const mica_status status = check(record);
    return status == MICA_OK ? plan_quant(record, info, plan) : status;
}
