/*
 * cuda_plan_direct.c - matmuls with a batch of rows of x by native/mixed_gemm.cu: x rounded to 16 bits and put into windows in the
 * scratch, weights multiplied as they come from memory. For more rows it pays to unpack weights first (cuda_plan_gemm.c).
 */
#include "backend/cuda/cuda_plan.h"

#include <string.h>

#include "backend/cuda/cuda_plan_native.h"

#define MOST_ROWS 128u
#define WINDOW_COLUMNS 128u
#define X_TILE_ROWS 128u
#define LONG_ROW 64u /* windows */

typedef struct direct_job {
    mica__cuda_matmul m;
    uint32_t half;    /* MK_F16 or MK_BF16 */
    uint32_t columns; /* of the matrix unit: rows of x */
    uint32_t windows;
    uint32_t workers;    /* of a group, times four warps: as many as have registers for that many columns */
    uint32_t out, split; /* how they and the groups of a cluster share rows of weights and windows */
    uint64_t scales, x_tiles, end; /* places in the scratch */
} direct_job;

static bool is_gated(const direct_job *j)
{
    return j->m.params->gate != MICA__GATE_NONE;
}

/* Weights [first, first + count), all alike. */
static uint32_t tiles_of(const direct_job *j, uint32_t first, uint32_t count, mk_u32 first_tile[4])
{
    const uint32_t outputs = is_gated(j) ? 32 * j->out : 64 * j->out;
    uint64_t tiles = 0;
    for (uint32_t i = 0; i < (is_gated(j) ? 1 : count); i++) {
        first_tile[i] = (uint32_t)tiles;
        tiles += mica__cuda_tiles(mica__cuda_matmul_weight(&j->m, first + i)->shape[0], outputs);
    }
    return (uint32_t)tiles;
}

static bool is_even(const direct_job *j, uint32_t first, uint32_t count)
{
    bool even = true;
    for (uint32_t i = first; i < first + count; i++)
        even = even && mica__cuda_weight_is_even(mica__cuda_matmul_weight(&j->m, i));
    return even;
}

/* Few columns of the matrix unit leave registers for four workers, which take windows in turn. With many, x is what is read most,
 * and two workers share it. Nothing here asks how many weights there are: the order of a sum is that of each weight alone. */
static void choose_sharing(direct_job *j)
{
    const bool is_long = j->windows >= LONG_ROW;
    if (j->columns < MOST_ROWS) {
        j->workers = 4;
        j->out = 1;
        j->split = is_long ? 2 : 1;
    } else {
        j->workers = j->out = 2;
        j->split = is_long ? 3 : 2;
    }
}

/* Windows of x, and the sums of each worker. */
static uint32_t local_bytes(const direct_job *j)
{
    const uint32_t stages = j->columns == MOST_ROWS ? 4 : 8;
    const uint32_t sums = j->workers / j->out * (64 * j->out + 4);
    return 1024 + j->columns * (stages * 2 * WINDOW_COLUMNS + sums * (uint32_t)sizeof(float));
}

static bool look(const mica__record *record, const mica__device_info *info, direct_job *j)
{
    memset(j, 0, sizeof *j);
    if (info->compute != MICA__CUDA_MATRIX || !mica__cuda_matmul_look(record, info, &j->m) ||
        j->m.rows <= MICA__CUDA_FEW_ROWS || j->m.rows > MOST_ROWS || !mica__cuda_matmul_half(&j->m, &j->half))
        return false;
    const mica__cuda_matmul *m = &j->m;
    if (m->k % WINDOW_COLUMNS != 0 || (is_gated(j) && mica__cuda_matmul_alike(m, 0) != 2))
        return false;
    j->columns = m->rows <= 32 ? 32 : m->rows <= 64 ? 64 : 128;
    j->windows = (uint32_t)(m->k / WINDOW_COLUMNS);
    choose_sharing(j);
    j->x_tiles = 1024;
    j->end = j->x_tiles + (uint64_t)j->windows * X_TILE_ROWS * WINDOW_COLUMNS * 2;
    return j->windows >= j->split * (j->workers / j->out) && info->local_bytes >= local_bytes(j) + 1024;
}

bool mica__cuda_direct_serves(const mica__record *record, const mica__device_info *info)
{
    direct_job j;
    return look(record, info, &j);
}

/* Of weights [first, first + count), all alike; gives the tiles that they have. Softcap and residual are of y_0. */
static uint32_t fill_params(const direct_job *j, uint32_t first, uint32_t count, mk_direct_params *p)
{
    const mica__cuda_matmul *m = &j->m;
    const mica__operand *weight = mica__cuda_matmul_weight(m, first);
    mk_u32 field_bytes[4];
    memset(p, 0, sizeof *p);
    p->row = mica__cuda_weight_steps(weight, 0);
    if (mica__cuda_matmul_decodes(m, first))
        mica__cuda_planes(weight, p->field_at, field_bytes);
    else
        p->weight = mica__gpu_weight_describe(weight);
    p->rows = (uint32_t)m->rows;
    p->k = (uint32_t)m->k;
    p->windows = j->windows;
    p->weights = count;
    p->softcap = first == 0 ? m->params->softcap : 0;
    p->residual = first == 0 && m->residual;
    p->residual_stride = m->residual_stride;
    p->residual_type = p->residual ? mica__gpu_type(m->record->operand[MICA__MATMUL_RESIDUAL].dtype) : 0;
    for (uint32_t i = 0; i < count; i++) {
        p->outputs[i] = (uint32_t)mica__cuda_matmul_weight(m, first + i)->shape[0];
        p->y_stride[i] = m->y_stride[first + i];
        p->y_type[i] = m->y_type[first + i];
    }
    return tiles_of(j, first, count, p->first_tile);
}

/* They write results of their own, so that launches need not wait for one another. */
static mica_status plan_alike(const direct_job *j, uint32_t first, uint32_t count, mica__plan *plan)
{
    const mica__cuda_matmul *m = &j->m;
    mk_direct_params p;
    const uint32_t tiles = fill_params(j, first, count, &p);
    const bool decoded = mica__cuda_matmul_decodes(m, first), even = is_even(j, first, count);
    const mica_status status = mica__gpu_plan_next(plan, decoded ? "direct/direct" : "direct_any/direct",
                                                   (uint64_t)tiles * j->split);
    if (status != MICA_OK)
        return status;
    mica__gpu_plan_constant(plan, "MK_WG", 128 * (j->workers + 1));
    mica__gpu_plan_constant(plan, "HALF", j->half);
    if (decoded)
        mica__gpu_plan_constant(plan, "W", mica__cuda_matmul_weight(m, first)->dtype);
    else
        mica__cuda_any_constants(plan, mica__cuda_matmul_weight(m, first), even);
    if (decoded && even)
        mica__gpu_plan_constant(plan, "EVEN", 1);
    mica__gpu_plan_constant(plan, "GATE", m->params->gate);
    mica__gpu_plan_constant(plan, "COLUMNS", j->columns);
    mica__gpu_plan_constant(plan, "SPLIT", j->split);
    plan->dispatch[plan->dispatch_count - 1].local_bytes = local_bytes(j);
    mica__gpu_plan_scratch(plan, j->x_tiles, j->end - j->x_tiles, MICA_ACCESS_READ);
    mica__gpu_plan_scratch(plan, j->scales, m->rows * sizeof(float), MICA_ACCESS_READ);
    mica__cuda_bind_or_x(plan, m, MICA__MATMUL_RESIDUAL, p.residual != 0);
    mica__cuda_bind_weights(plan, m, first, count, MICA_ACCESS_READ | MICA__BIND_AHEAD);
    mica__cuda_bind_ys(plan, m, first, count);
    mica__gpu_plan_params(plan, &p, sizeof p);
    return MICA_OK;
}

mica_status mica__cuda_plan_direct(const mica__record *record, const mica__device_info *info,
                                   mica__plan *plan)
{
    direct_job j;
    look(record, info, &j);
    const mica__cuda_x x = {.half = j.half,
                            .order = MK_X_WINDOWS,
                            .k_tiles = 2 * j.windows,
                            .tiles = j.x_tiles,
                            .end = j.end,
                            .scales = j.scales};
    mica_status status = mica__cuda_plan_x(&j.m, &x, plan);
    for (uint32_t i = 0, count; i < j.m.weights && status == MICA_OK; i += count) {
        count = mica__cuda_matmul_alike(&j.m, i);
        status = plan_alike(&j, i, count, plan);
    }
    return status;
}
