/* gpu_plan_transposed.c - the plan of rows times a weight as it lies: a group for each tile of y, of experts behind the map of their slots. */
#include <string.h>

#include "backend/gpu/gpu_plan_experts.h"
#include "backend/gpu/gpu_plan_weight.h"
#include "base/status.h"

#define ROWS (MK_TILE / 2) /* of a group, and its columns */
#define COLUMNS 128u

/* The map is made for a record of matmul_experts by the places of its operands. */
_Static_assert((int)MICA__TRANSPOSED_X == (int)MICA__EXPERTS_X &&
                   (int)MICA__TRANSPOSED_IDS == (int)MICA__EXPERTS_IDS &&
                   (int)MICA__TRANSPOSED_WEIGHT == (int)MICA__EXPERTS_WEIGHT &&
                   (int)MICA__TRANSPOSED_Y == (int)MICA__EXPERTS_Y,
               "slots as those of matmul_experts");

static uint64_t batch_stride(const mica__operand *operand)
{
    return mica__operand_present(operand) && operand->ndim == 3 ? operand->stride[0] : 0;
}

static uint64_t row_stride(const mica__operand *operand)
{
    return mica__operand_present(operand) ? operand->stride[operand->ndim - 2] : 0;
}

static void describe(const mica__record *record, const mica__gpu_rows *rows, mk_transposed_params *p)
{
    const mica__operand *w = &record->operand[MICA__TRANSPOSED_WEIGHT];
    memset(p, 0, sizeof *p);
    p->weight = mica__gpu_weight_describe(w);
    p->weight_batch = batch_stride(w);
    p->scale_batch = batch_stride(&w[MICA__WEIGHT_SCALES]);
    p->bias_batch = batch_stride(&w[MICA__WEIGHT_BIASES]);
    p->weight_stride = row_stride(w);
    p->scale_stride = row_stride(&w[MICA__WEIGHT_SCALES]);
    p->bias_stride = row_stride(&w[MICA__WEIGHT_BIASES]);
    mica__gpu_rows_shape(rows, p->shape, &p->ndim);
    mica__gpu_rows_strides(rows, 0, p->x_stride);
    mica__gpu_rows_strides(rows, 1, p->y_stride);
    p->n = (uint32_t)w->shape[w->ndim - 2];
    p->batches = w->ndim == 3 ? (uint32_t)w->shape[0] : 1;
    p->rows = (uint32_t)rows->rows / p->batches;
    p->row_tiles = (p->rows + ROWS - 1) / ROWS;
    p->x_type = mica__gpu_type(record->operand[MICA__TRANSPOSED_X].dtype);
    p->y_type = mica__gpu_type(record->operand[MICA__TRANSPOSED_Y].dtype);
    if (!mica__operand_present(&record->operand[MICA__TRANSPOSED_IDS]))
        return;
    p->experts = p->batches;
    p->tiles = mica__gpu_experts_tiles(record);
}

static mica_status plan_tiles(const mica__record *record, const mk_transposed_params *p, mica__plan *plan)
{
    mica_status status =
        mica__gpu_plan_next(plan, "transposed/transposed", (p->weight.k + COLUMNS - 1) / COLUMNS);
    if (status == MICA_OK)
        status = mica__gpu_plan_places(plan, p->experts != 0 ? 2 * (uint64_t)p->tiles
                                                             : (uint64_t)p->batches * p->row_tiles);
    if (status != MICA_OK)
        return status;
    mica__gpu_weight_constants(plan, &record->operand[MICA__TRANSPOSED_WEIGHT], false);
    mica__gpu_plan_operand(plan, record, MICA__TRANSPOSED_X, 0);
    mica__gpu_weight_bind(plan, record, MICA__TRANSPOSED_WEIGHT);
    if (p->experts != 0)
        mica__gpu_plan_scratch(plan, 0, mica__gpu_experts_map_bytes(record), MICA_ACCESS_READ);
    else
        mica__gpu_plan_operand(plan, record, MICA__TRANSPOSED_X, 0); /* no map */
    mica__gpu_plan_operand(plan, record, MICA__TRANSPOSED_Y, 0);
    mica__gpu_plan_params(plan, p, sizeof *p);
    return MICA_OK;
}

mica_status mica__gpu_plan_matmul_transposed(const mica__record *record, const mica__device_info *info,
                                             mica__plan *plan)
{
    const mica__operand *w = &record->operand[MICA__TRANSPOSED_WEIGHT];
    mica__gpu_rows rows = {0};
    mk_transposed_params p;
    mica_status status = mica__gpu_weight_check(record, w);
    if (status == MICA_OK)
        status = mica__gpu_check_floats(record, 1u << MICA__TRANSPOSED_X | 1u << MICA__TRANSPOSED_Y);
    mica__gpu_rows_add(&rows, &record->operand[MICA__TRANSPOSED_X]);
    mica__gpu_rows_add(&rows, &record->operand[MICA__TRANSPOSED_Y]);
    if (status == MICA_OK)
        status = mica__gpu_rows_merge(&rows, record);
    if (status != MICA_OK)
        return status;
    describe(record, &rows, &p);
    if (p.experts != 0)
        status = mica__gpu_plan_experts_map(record, info, 0, plan);
    return status == MICA_OK ? plan_tiles(record, &p, plan) : status;
}
