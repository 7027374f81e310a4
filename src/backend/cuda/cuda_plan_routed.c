/*
 * cuda_plan_routed.c - expert-routed matmuls of many slots by native/grouped_gemm.cu: rows of x rounded to 16 bits in the scratch, the
 * map of slots by expert beside them, then both multiplied by the matrix units; weights are unpacked on the way.
 */
#include "backend/cuda/cuda_plan.h"

#include <string.h>

#include "backend/cuda/cuda_plan_native.h"
#include "backend/gpu/gpu_plan_experts.h"
#include "base/env.h"

#define GROUP 512u
#define LOCAL_BYTES (6u * 32768u + 1024u)
#define W_TILE_ROWS 128u
#define TILE_COLUMNS 64u
#define PACK_GROUP 256u /* of pack_x, 8 columns a thread */
#define LEAST_SLOTS 2u  /* for each expert: fewer, and reading weights once per slot costs no more */
#define MOST_X_BYTES ((uint64_t)2 << 30) /* offsets in x are of 32 bits */

typedef struct routed_job {
    const mica__record *record;
    const mica__operand *x, *y, *weight;
    uint32_t gate; /* mica__gate */
    mica__gpu_rows x_rows, y_rows;
    uint32_t half; /* MK_F16 or MK_BF16 */
    bool any;      /* weights that dequantize.cu does not know */
    uint64_t k, k_tiles, column_tiles;
    uint64_t scales, rows, map, end; /* places in the scratch */
} routed_job;

static uint64_t stride_of(const mica__gpu_rows *rows)
{
    return rows->view[0].ndim == 0 ? 0 : rows->view[0].stride[0];
}

static uint32_t up_slot(const routed_job *j)
{
    return j->gate != MICA__GATE_NONE ? MICA__EXPERTS_UP : MICA__EXPERTS_WEIGHT;
}

/* The second weight of a gate, else the only one. */
static const mica__operand *up_of(const routed_job *j)
{
    return &j->record->operand[up_slot(j)];
}

/* Rows one stride apart. */
static bool look_at_rows(mica__gpu_rows *rows, const mica__operand *operand)
{
    mica__gpu_rows_add(rows, operand);
    mica__gpu_view_collapse(rows->view, rows->count, 0);
    return rows->view[0].ndim <= 1 && rows->rows != 0 && rows->rows <= INT32_MAX;
}

static bool look(const mica__record *record, const mica__device_info *info, routed_job *j)
{
    const mica__matmul_record *params = record->params;
    memset(j, 0, sizeof *j);
    j->record = record;
    j->x = &record->operand[MICA__EXPERTS_X];
    j->y = &record->operand[MICA__EXPERTS_Y];
    j->weight = &record->operand[MICA__EXPERTS_WEIGHT];
    j->gate = params->gate;
    j->k = j->weight->shape[2];
    j->any = !mica__cuda_weight_reads(j->weight, 3, j->k);
    j->half = j->weight->dtype == MICA_DTYPE_BF16 ? MICA__MK_BF16 : MICA__MK_F16;
    if (info->compute != MICA__CUDA_MATRIX || info->local_bytes < LOCAL_BYTES + 1024 ||
        mica__env_debug(MICA__DEBUG_NONATIVE) || !mica__gpu_is_float(j->x->dtype) ||
        !mica__gpu_is_float(j->y->dtype) || (j->any && !mica__cuda_weight_unpacks(record, j->weight)) ||
        !mica__cuda_weight_alike(j->weight, up_of(j)) ||
        !mica__cuda_half_is_enough(j->half, params->precision) || !look_at_rows(&j->x_rows, j->x) ||
        !look_at_rows(&j->y_rows, j->y) || j->y_rows.rows < LEAST_SLOTS * j->weight->shape[0])
        return false;
    j->k_tiles = mica__cuda_tiles(j->k, TILE_COLUMNS);
    j->column_tiles =
        mica__cuda_tiles(j->weight->shape[1], j->gate != MICA__GATE_NONE ? W_TILE_ROWS / 2 : W_TILE_ROWS);
    j->rows = mica__cuda_tiles(j->x_rows.rows * sizeof(float), 1024) * 1024;
    j->map = j->rows + j->x_rows.rows * j->k_tiles * TILE_COLUMNS * 2;
    j->end = j->map + mica__gpu_experts_map_bytes(record);
    return j->map - j->rows <= MOST_X_BYTES;
}

bool mica__cuda_routed_serves(const mica__record *record, const mica__device_info *info)
{
    routed_job j;
    return look(record, info, &j);
}

static mica_status plan_x(const routed_job *j, mica__plan *plan)
{
    mk_tiles_params p;
    memset(&p, 0, sizeof p);
    p.stride = stride_of(&j->x_rows);
    p.rows = (uint32_t)j->x_rows.rows;
    p.k = (uint32_t)j->k;
    p.k_tiles = (uint32_t)j->k_tiles;
    p.order = MK_X_ROWS;
    p.x_type = mica__gpu_type(j->x->dtype);
    const mica_status status = mica__gpu_plan_next(plan, "tiles/pack_x", p.rows);
    if (status != MICA_OK)
        return status;
    if (j->k <= 8 * PACK_GROUP / 2)
        mica__gpu_plan_constant(plan, "MK_WG", PACK_GROUP / 2);
    mica__gpu_plan_constant(plan, "HALF", j->half);
    mica__gpu_plan_operand(plan, j->record, MICA__EXPERTS_X, 0);
    mica__gpu_plan_operand(plan, j->record, MICA__EXPERTS_X, 0); /* no weight of a norm */
    mica__gpu_plan_scratch(plan, j->rows, j->map - j->rows, MICA_ACCESS_WRITE);
    mica__gpu_plan_scratch(plan, j->scales, j->x_rows.rows * sizeof(float), MICA_ACCESS_WRITE);
    mica__gpu_plan_params(plan, &p, sizeof p);
    return MICA_OK;
}

static void fill_params(const routed_job *j, mk_routed_params *p)
{
    mk_u32 field_bytes[4];
    memset(p, 0, sizeof *p);
    p->expert = mica__cuda_weight_steps(j->weight, 0);
    p->row = mica__cuda_weight_steps(j->weight, 1);
    if (j->any)
        p->weight = mica__gpu_weight_describe(j->weight);
    else
        mica__cuda_planes(j->weight, p->field_at, field_bytes);
    p->y_stride = stride_of(&j->y_rows);
    p->experts = (uint32_t)j->weight->shape[0];
    p->outputs = (uint32_t)j->weight->shape[1];
    p->k = (uint32_t)j->k;
    p->k_tiles = (uint32_t)j->k_tiles;
    p->tiles = mica__gpu_experts_tiles(j->record);
    p->column_tiles = (uint32_t)j->column_tiles;
    p->x_slots = mica__gpu_experts_x_slots(j->record);
    p->y_type = mica__gpu_type(j->y->dtype);
}

static mica_status plan_product(const routed_job *j, const mica__device_info *info, mica__plan *plan)
{
    mk_routed_params p;
    fill_params(j, &p);
    const uint64_t most = p.tiles * j->column_tiles;
    const mica_status status = mica__gpu_plan_next(plan, j->any ? "routed_any/routed" : "routed/routed",
                                                   most < info->processors ? most : info->processors);
    if (status != MICA_OK)
        return status;
    mica__gpu_plan_constant(plan, "MK_WG", GROUP);
    mica__gpu_plan_constant(plan, "HALF", j->half);
    if (j->any)
        mica__cuda_any_constants(plan, j->weight,
                                 mica__cuda_weight_is_even(j->weight) && mica__cuda_weight_is_even(up_of(j)));
    else
        mica__gpu_plan_constant(plan, "W", j->weight->dtype);
    mica__gpu_plan_constant(plan, "GATE", j->gate);
    mica__gpu_plan_constant(plan, "COLUMNS", MK_TILE);
    plan->dispatch[plan->dispatch_count - 1].local_bytes = LOCAL_BYTES;
    mica__gpu_plan_scratch(plan, j->rows, j->map - j->rows, MICA_ACCESS_READ);
    mica__gpu_plan_scratch(plan, j->scales, j->x_rows.rows * sizeof(float), MICA_ACCESS_READ);
    mica__gpu_weight_bind(plan, j->record, MICA__EXPERTS_WEIGHT);
    mica__gpu_weight_bind(plan, j->record, up_slot(j));
    mica__gpu_plan_scratch(plan, j->map, j->end - j->map, MICA_ACCESS_READ);
    mica__gpu_plan_operand(plan, j->record, MICA__EXPERTS_Y, 0);
    mica__gpu_plan_params(plan, &p, sizeof p);
    return MICA_OK;
}

mica_status mica__cuda_plan_routed(const mica__record *record, const mica__device_info *info,
                                   mica__plan *plan)
{
    routed_job j;
    look(record, info, &j);
    mica_status status = plan_x(&j, plan);
    if (status == MICA_OK)
        status = mica__gpu_plan_experts_map(record, info, j.map, plan);
    return status == MICA_OK ? plan_product(&j, info, plan) : status;
}
