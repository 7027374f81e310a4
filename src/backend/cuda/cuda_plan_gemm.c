/*
 * cuda_plan_gemm.c - matmuls with many rows of x by native/tiles.cu, native/unpack.cu and native/gemm.cu: both operands rounded
 * to 16 bits and put into tiles in the scratch, then multiplied by the matrix units. tiles.cu packs the types and layouts that
 * the other native kernels read, unpack.cu other quantised weights.
 *
 * Activations become f16 with a power of two for each row, or bf16 beside bf16 weights: finer than the 8-bit blocks that
 * quantised weights have by default.
 */
#include "backend/cuda/cuda_plan.h"

#include <string.h>

#include "backend/cuda/cuda_plan_native.h"
#include "base/status.h"
#include "quant/dtype.h"

#define GROUP 384u
#define LOCAL_BYTES (4u * 49152u + 1024u)
#define X_TILE_ROWS 128u
#define W_TILE_ROWS 256u
#define TILE_COLUMNS 64u
#define PACK_ROWS 16u /* of a group of them, and runs of columns */
#define MOST_SCRATCH ((uint64_t)2 << 30)

/* Where things lie in the scratch. */
typedef struct gemm_job {
    mica__cuda_matmul m;
    uint32_t half; /* MK_F16 or MK_BF16 */
    uint32_t k_tiles, row_tiles, column_tiles, first_tile[MICA__MAX_WEIGHTS];
    uint64_t scales, x_tiles, w_tiles, end;
} gemm_job;

static void lay_out(gemm_job *j)
{
    const mica__cuda_matmul *m = &j->m;
    const bool gate = m->params->gate != MICA__GATE_NONE;
    uint64_t tiles = 0;
    j->k_tiles = (uint32_t)mica__cuda_tiles(m->k, TILE_COLUMNS);
    j->row_tiles = (uint32_t)mica__cuda_tiles(m->rows, X_TILE_ROWS);
    for (uint32_t i = 0; i < m->weights; i++) {
        const uint64_t n = mica__cuda_matmul_weight(m, i)->shape[0];
        j->first_tile[i] = (uint32_t)tiles;
        if (!gate || i == 0)
            tiles += mica__cuda_tiles(n, gate ? W_TILE_ROWS / 2 : W_TILE_ROWS);
    }
    j->column_tiles = (uint32_t)tiles;
    j->x_tiles = mica__cuda_tiles(m->rows * sizeof(float), 1024) * 1024;
    j->w_tiles = j->x_tiles + (uint64_t)j->row_tiles * j->k_tiles * X_TILE_ROWS * TILE_COLUMNS * 2;
    j->end = j->w_tiles + tiles * j->k_tiles * W_TILE_ROWS * TILE_COLUMNS * 2;
}

static bool look(const mica__record *record, const mica__device_info *info, gemm_job *j)
{
    memset(j, 0, sizeof *j);
    if (info->compute != MICA__CUDA_MATRIX || info->local_bytes < LOCAL_BYTES + 1024 ||
        !mica__cuda_matmul_look(record, info, &j->m) || j->m.rows <= MICA__CUDA_FEW_ROWS ||
        !mica__cuda_matmul_half(&j->m, &j->half))
        return false;
    lay_out(j);
    return j->end <= MOST_SCRATCH;
}

bool mica__cuda_gemm_serves(const mica__record *record, const mica__device_info *info)
{
    gemm_job j;
    return look(record, info, &j);
}

static uint64_t w_bytes(const gemm_job *j)
{
    return j->end - j->w_tiles;
}

/* Weights [first, first + count), all alike. They write tiles of their own, so runs need not wait for one another. */
static mica_status plan_weights(const gemm_job *j, uint32_t first, uint32_t count, mica__plan *plan)
{
    const mica__cuda_matmul *m = &j->m;
    const mica__operand *weight = mica__cuda_matmul_weight(m, first);
    mk_u32 field_bytes[4];
    mk_tiles_params p;
    uint64_t most = 0;
    memset(&p, 0, sizeof p);
    p.stride = weight->stride[0];
    p.k = (uint32_t)m->k;
    p.k_tiles = j->k_tiles;
    p.gate = m->params->gate;
    p.second = first;
    mica__cuda_planes(weight, p.field_at, field_bytes);
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t n = mica__cuda_matmul_weight(m, first + i)->shape[0];
        p.outputs[i] = (uint32_t)n;
        p.first_tile[i] = j->first_tile[first + i];
        most = n > most ? n : most;
    }
    mica_status status = mica__gpu_plan_next(plan, "tiles/pack_weights", mica__cuda_tiles(most, PACK_ROWS));
    if (status == MICA_OK)
        status = mica__gpu_plan_groups(plan, mica__cuda_tiles(2 * (uint64_t)j->k_tiles, PACK_ROWS), count);
    if (status != MICA_OK)
        return status;
    mica__gpu_plan_constant(plan, "HALF", j->half);
    mica__gpu_plan_constant(plan, "W", weight->dtype);
    mica__cuda_bind_weights(plan, m, first, count, MICA_ACCESS_READ);
    mica__gpu_plan_scratch(plan, j->w_tiles, w_bytes(j), MICA_ACCESS_WRITE);
    mica__gpu_plan_params(plan, &p, sizeof p);
    return MICA_OK;
}

static mica_status plan_unpack(const gemm_job *j, uint32_t i, mica__plan *plan)
{
    const mica__operand *weight = mica__cuda_matmul_weight(&j->m, i);
    mk_unpack_params p;
    memset(&p, 0, sizeof p);
    p.row = mica__cuda_weight_steps(weight, 0);
    p.weight = mica__gpu_weight_describe(weight);
    p.outputs = (uint32_t)weight->shape[0];
    p.k_tiles = j->k_tiles;
    p.side = j->m.params->gate != MICA__GATE_NONE ? 1 + i : 0;
    p.first_tile = j->first_tile[i];
    mica_status status = mica__gpu_plan_next(plan, "unpack/unpack", mica__cuda_tiles(p.outputs, PACK_ROWS));
    if (status == MICA_OK)
        status = mica__gpu_plan_groups(plan, mica__cuda_tiles(2 * (uint64_t)j->k_tiles, PACK_ROWS), 1);
    if (status != MICA_OK)
        return status;
    mica__gpu_plan_constant(plan, "HALF", j->half);
    mica__cuda_any_constants(plan, weight, mica__cuda_weight_is_even(weight));
    mica__gpu_weight_bind(plan, j->m.record, mica__cuda_matmul_slot(i));
    mica__gpu_plan_scratch(plan, j->w_tiles, w_bytes(j), MICA_ACCESS_WRITE);
    mica__gpu_plan_params(plan, &p, sizeof p);
    return MICA_OK;
}

/* Parts of a tile of weights that are tiles of their own: two where that lets more multiprocessors work. Half a tile takes more
 * than half the time, so a quarter fewer rounds are asked for. Sums are the same to the bit. */
static uint32_t choose_parts(const gemm_job *j, const mica__device_info *info)
{
    const uint64_t tiles = (uint64_t)j->row_tiles * j->column_tiles;
    const uint64_t whole = 2 * mica__cuda_tiles(tiles, info->processors),
                   half = mica__cuda_tiles(2 * tiles, info->processors);
    return j->m.params->gate == MICA__GATE_NONE && 4 * half <= 3 * whole ? 2 : 1;
}

static mica_status plan_product(const gemm_job *j, const mica__device_info *info, mica__plan *plan)
{
    const mica__cuda_matmul *m = &j->m;
    const uint32_t parts = choose_parts(j, info);
    const uint64_t tiles = (uint64_t)j->row_tiles * j->column_tiles * parts;
    mk_gemm_params p;
    memset(&p, 0, sizeof p);
    p.rows = (uint32_t)m->rows;
    p.k_tiles = j->k_tiles;
    p.row_tiles = j->row_tiles;
    p.column_tiles = j->column_tiles * parts;
    p.weights = m->weights;
    p.softcap = m->params->softcap;
    p.residual_stride = m->residual_stride;
    p.residual_type = m->residual ? mica__gpu_type(m->record->operand[MICA__MATMUL_RESIDUAL].dtype) : 0;
    for (uint32_t i = 0; i < m->weights; i++) {
        p.outputs[i] = (uint32_t)mica__cuda_matmul_weight(m, i)->shape[0];
        p.first_tile[i] = j->first_tile[i];
        p.y_stride[i] = m->y_stride[i];
        p.y_type[i] = m->y_type[i];
    }
    const mica_status status =
        mica__gpu_plan_next(plan, "gemm/gemm", tiles < info->processors ? tiles : info->processors);
    if (status != MICA_OK)
        return status;
    mica__gpu_plan_constant(plan, "MK_WG", GROUP);
    mica__gpu_plan_constant(plan, "HALF", j->half);
    mica__gpu_plan_constant(plan, "GATE", m->params->gate);
    mica__gpu_plan_constant(plan, "COLUMNS", W_TILE_ROWS / parts);
    mica__gpu_plan_constant(plan, "ADDS", m->residual);
    mica__gpu_plan_constant(plan, "CAPS", m->params->softcap > 0.0f);
    plan->dispatch[plan->dispatch_count - 1].local_bytes = LOCAL_BYTES;
    mica__gpu_plan_scratch(plan, j->x_tiles, j->w_tiles - j->x_tiles, MICA_ACCESS_READ);
    mica__gpu_plan_scratch(plan, j->scales, m->rows * sizeof(float), MICA_ACCESS_READ);
    mica__gpu_plan_scratch(plan, j->w_tiles, w_bytes(j), MICA_ACCESS_READ);
    mica__cuda_bind_or_x(plan, m, MICA__MATMUL_RESIDUAL, m->residual);
    mica__cuda_bind_ys(plan, m, 0, m->weights);
    mica__gpu_plan_params(plan, &p, sizeof p);
    return MICA_OK;
}

mica_status mica__cuda_plan_gemm(const mica__record *record, const mica__device_info *info, mica__plan *plan)
{
    gemm_job j;
    if (!look(record, info, &j))
        return mica__fail(MICA_ERR_INTERNAL,
                          "matmul: a plan of matrix units for a record that they do not serve");
    const mica__cuda_x x = {.half = j.half,
                            .order = MK_X_TILES,
                            .k_tiles = j.k_tiles,
                            .tiles = j.x_tiles,
                            .end = j.w_tiles,
                            .scales = j.scales};
    mica_status status = mica__cuda_plan_x(&j.m, &x, plan);
    for (uint32_t i = 0, count; i < j.m.weights && status == MICA_OK; i += count) {
        count = mica__cuda_matmul_decodes(&j.m, i) ? mica__cuda_matmul_alike(&j.m, i) : 1;
        status =
            mica__cuda_matmul_decodes(&j.m, i) ? plan_weights(&j, i, count, plan) : plan_unpack(&j, i, plan);
    }
    return status == MICA_OK ? plan_product(&j, info, plan) : status;
}
