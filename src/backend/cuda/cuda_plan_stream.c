/*
 * cuda_plan_stream.c - matmuls with few rows of x by native/stream.cu: 8-bit activations against blocks in planes, or f32
 * against 16-bit numbers. Weights that are alike share a dispatch.
 */
#include "backend/cuda/cuda_plan.h"

#include <string.h>

#include "backend/cuda/cuda_plan_native.h"

#define GROUP 512u
#define WARPS (GROUP / 32u)
#define ENOUGH_STAGES 2u
#define MOST_STAGES 3u
/* Bytes of a group: so many that two never share a multiprocessor, of which another one would then have none, and so few that
 * a group of attend.cu fits beside it. */
#define ALONE (116u << 10)
#define MOST_LOCAL (200u << 10)
#define LEAST_LOCAL (160u << 10) /* bytes of a group, of which STATIC_LOCAL stand in the text */
#define STATIC_LOCAL 2048u
#define ROW_ALIGN 16u

static uint32_t round_up(uint32_t n, uint32_t to)
{
    return (n + to - 1) / to * to;
}

/* Planes, slots and rings for segments of `segment` elements; false where a bulk copy could not bring them. */
static bool try_segment(mk_stream_params *p, uint32_t segment)
{
    const uint32_t last = p->k % segment;
    uint32_t row = p->row_bytes;
    p->segment = segment < p->k ? segment : p->k;
    p->segments = (p->k + p->segment - 1) / p->segment;
    for (uint32_t f = 0, at = 0; f < p->fields; f++) {
        const uint32_t bytes = p->segment / p->block * p->field_bytes[f];
        p->slot_at[f] = p->segments == 1 ? (uint32_t)p->field_at[f] : at;
        at += bytes;
        if (p->segments > 1) {
            row = at;
            if (p->segment % p->block != 0 || bytes % ROW_ALIGN != 0 || p->field_at[f] % ROW_ALIGN != 0 ||
                last / p->block * p->field_bytes[f] % ROW_ALIGN != 0)
                return false;
        }
    }
    p->slot_bytes = 2 * round_up(row, 128);
    return true;
}

/* Bytes of shared memory; 0: what fits is too small to be of use. Large segments, but not without some slots of them. */
static uint32_t lay_out(mk_stream_params *p, bool dense, bool halves, uint32_t local_bytes)
{
    static const uint32_t segments[] = {2048, 1024, 512};
    const uint32_t most = (local_bytes < MOST_LOCAL ? local_bytes : MOST_LOCAL) - STATIC_LOCAL;
    p->codes_bytes = round_up(dense ? 4 * p->k : p->k, 16);
    p->info_bytes = dense ? 0 : round_up(p->k / (halves ? 16 : 32) * 8, 16);
    p->info_at = p->rows * p->codes_bytes;
    p->ring_at = round_up(p->info_at + p->rows * p->info_bytes, 128);
    if (p->ring_at >= most)
        return 0;
    for (uint32_t least = ENOUGH_STAGES; least > 0; least--)
        for (uint32_t i = 0; i < sizeof segments / sizeof segments[0]; i++) {
            if (!try_segment(p, segments[i]) && !try_segment(p, p->k))
                continue;
            p->stages = (most - p->ring_at) / (WARPS * p->slot_bytes);
            p->stages = p->stages < MOST_STAGES ? p->stages : MOST_STAGES;
            const uint32_t bytes = p->ring_at + WARPS * p->stages * p->slot_bytes;
            if (p->stages >= least)
                return bytes > ALONE ? bytes : ALONE;
        }
    return 0;
}

/* Everything of the weights and of shared memory; the bytes of it, 0 where it does not fit. */
static uint32_t fill_weights(const mica__cuda_matmul *m, uint32_t first, uint32_t count,
                             const mica__device_info *info, mk_stream_params *p)
{
    const mica__operand *weight = mica__cuda_matmul_weight(m, first);
    const bool dense = mica__cuda_is_half(weight->dtype);
    memset(p, 0, sizeof *p);
    p->k = (uint32_t)m->k;
    p->rows = (uint32_t)m->rows;
    p->weight_stride = weight->stride[0];
    p->fields = mica__cuda_planes(weight, p->field_at, p->field_bytes);
    p->block = mica_dtype_block_elements((mica_dtype)weight->dtype);
    p->block_bytes = mica_dtype_block_bytes((mica_dtype)weight->dtype);
    p->row_bytes = round_up(p->k / p->block * p->block_bytes, ROW_ALIGN);
    p->gate = first == 0 ? m->params->gate : 0;
    for (uint32_t i = 0; i < MICA__MAX_WEIGHTS; i++) {
        const uint32_t n = i < count ? (uint32_t)mica__cuda_matmul_weight(m, first + i)->shape[0] : 0;
        p->outputs[i] = n;
        p->pairs += p->gate != 0 ? (i == 0 ? n : 0) : (n + 1) / 2;
        p->pair_end[i] = p->pairs;
    }
    return lay_out(p, dense, weight->dtype == MICA_DTYPE_Q4_K, info->local_bytes);
}

bool mica__cuda_stream_serves(const mica__record *record, const mica__device_info *info)
{
    mica__cuda_matmul m;
    mk_stream_params p;
    if (info->local_bytes < LEAST_LOCAL || !mica__cuda_matmul_look(record, info, &m) ||
        m.rows > MICA__CUDA_FEW_ROWS)
        return false;
    if (m.params->gate != MICA__GATE_NONE && mica__cuda_matmul_alike(&m, 0) != 2)
        return false;
    for (uint32_t i = 0, count; i < m.weights; i += count) {
        const mica__operand *weight = mica__cuda_matmul_weight(&m, i);
        const bool dense = mica__cuda_is_half(weight->dtype);
        count = mica__cuda_matmul_alike(&m, i);
        if (weight->stride[0] % ROW_ALIGN != 0 || (dense && (m.rows > 1 || m.k % 8 != 0)) ||
            (!dense && !mica__gpu_weight_takes_codes(weight, m.params->precision)) ||
            fill_weights(&m, i, count, info, &p) == 0)
            return false;
    }
    return true;
}

/* The rest of the parameters: x and what happens to sums. */
static void fill_rest(const mica__cuda_matmul *m, uint32_t first, uint32_t count, mk_stream_params *p)
{
    const mica__operand *operand = m->record->operand;
    p->x_stride = m->x_stride;
    p->x_type = mica__gpu_type(operand[MICA__MATMUL_X].dtype);
    p->norm = m->norm;
    p->norm_type = m->norm == 2 ? mica__gpu_type(operand[MICA__MATMUL_NORM_WEIGHT].dtype) : 0;
    p->eps = m->params->eps;
    for (uint32_t i = 0; i < count; i++) {
        p->y_stride[i] = m->y_stride[first + i];
        p->y_type[i] = m->y_type[first + i];
    }
    if (first != 0)
        return; /* softcap and residual are of y_0 */
    p->softcap = m->params->softcap;
    p->residual = m->residual;
    p->residual_stride = m->residual_stride;
    p->residual_type = m->residual ? mica__gpu_type(operand[MICA__MATMUL_RESIDUAL].dtype) : 0;
}

static mica_status plan_alike(const mica__cuda_matmul *m, uint32_t first, uint32_t count,
                              const mica__device_info *info, mica__plan *plan)
{
    mk_stream_params p;
    uint32_t rows = 1;
    const uint32_t local_bytes = fill_weights(m, first, count, info, &p);
    while (rows < m->rows)
        rows *= 2;
    fill_rest(m, first, count, &p);
    const uint32_t groups = (p.pairs + WARPS - 1) / WARPS;
    const mica_status status =
        mica__gpu_plan_next(plan, "stream/matvec", groups < info->processors ? groups : info->processors);
    if (status != MICA_OK)
        return status;
    mica__gpu_plan_constant(plan, "MK_WG", GROUP);
    mica__gpu_plan_constant(plan, "W", mica__cuda_matmul_weight(m, first)->dtype);
    mica__gpu_plan_constant(plan, "ROWS", rows);
    plan->dispatch[plan->dispatch_count - 1].local_bytes = local_bytes;
    mica__gpu_plan_operand(plan, m->record, MICA__MATMUL_X, 0);
    mica__cuda_bind_or_x(plan, m, MICA__MATMUL_NORM_WEIGHT, m->norm == 2);
    mica__cuda_bind_or_x(plan, m, MICA__MATMUL_RESIDUAL, p.residual != 0);
    mica__cuda_bind_weights(plan, m, first, count, MICA_ACCESS_READ | MICA__BIND_AHEAD);
    mica__cuda_bind_ys(plan, m, first, count);
    mica__gpu_plan_params(plan, &p, sizeof p);
    return MICA_OK;
}

mica_status mica__cuda_plan_stream(const mica__record *record, const mica__device_info *info,
                                   mica__plan *plan)
{
    mica__cuda_matmul m;
    mica_status status = MICA_OK;
    mica__cuda_matmul_look(record, info, &m);
    for (uint32_t i = 0, count; i < m.weights && status == MICA_OK; i += count) {
        count = mica__cuda_matmul_alike(&m, i);
        status = plan_alike(&m, i, count, info, plan);
    }
    return status;
}
