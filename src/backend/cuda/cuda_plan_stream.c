/*
 * cuda_plan_stream.c - matmuls with few rows of x by native/matvec_ring.cu: 8-bit activations against every type of weights that they
 * meet, or f32 against 16-bit numbers. Weights that are alike share a dispatch.
 */
#include "backend/cuda/cuda_plan.h"

#include <string.h>

#include "backend/cuda/cuda_plan_native.h"
#include "quant/dtype.h"
#include "quant/planes.h"

#define WARPS_SHIFT 4u
#define WARPS (1u << WARPS_SHIFT) /* that work */
#define THREADS (32u * (WARPS + 1u))
#define MOST_STAGES 8u
#define LEAST_STAGES 2u
#define ENOUGH_STAGES 4u
/* Units of a row to a lane: with one, going from stage to stage is what takes the time. */
#define LEAST_EACH 2u
#define MOST_EACH 4u
#define PARTS 3u /* tables of a weight: codes, scales, biases */
#define RUN 32u  /* of values that blocks.kc takes apart */
/* Bytes of a group: so many that two never share a multiprocessor, of which another one would then have none, and so few that
 * a group of attention_decode.cu fits beside it; more only where a ring would have too few stages for the rows of a group. */
#define ALONE (116u << 10)
#define STATIC_LOCAL (9u << 10)  /* at most, besides */
#define LEAST_LOCAL (160u << 10) /* that a device must have */
#define LEAST_ROWS 4u            /* of a group */

static uint32_t round_up(uint32_t n, uint32_t to)
{
    return (n + to - 1) / to * to;
}

/* Whether neighbouring runs are made of the same bytes, so that a lane takes two: RUNS of dot_blocks.cu. */
static bool has_pairs(uint16_t dtype)
{
    return dtype == MICA_DTYPE_Q2_K || dtype == MICA_DTYPE_Q3_K || dtype == MICA_DTYPE_Q5_K;
}

/* Elements that lie in 16 bytes of a row's first plane, or in the runs that a lane takes together. */
static uint32_t unit_of(uint16_t dtype)
{
    if (mica__cuda_is_half(dtype))
        return 8;
    return dtype == MICA_DTYPE_Q8_0 ? 16 : has_pairs(dtype) ? 2 * RUN : RUN;
}

/* Warps to two rows, so that a lane has `each` units of both; false where all of them are too few. With a gate those are rows
 * of two weights, of which a stage then has half as many each. */
static bool choose_team(mk_stream_params *p, uint32_t units, uint32_t each, bool gated)
{
    p->team_shift = 0;
    while (p->team_shift < WARPS_SHIFT && units > 32 * each << p->team_shift)
        p->team_shift++;
    p->stage_shift = WARPS_SHIFT + !gated - p->team_shift;
    p->stage_bytes = 0;
    for (uint32_t part = 0; part < PARTS; part++) {
        p->part_at[part] = p->stage_bytes;
        p->stage_bytes += (2 * WARPS >> p->team_shift) * p->row_bytes[part];
    }
    return units <= 32 * each << p->team_shift;
}

/* Slots of the ring: what fits into ALONE, or more where a group has rows for them; fewer than LEAST_STAGES: too few fit. */
static uint32_t choose_stages(const mk_stream_params *p, const mica__device_info *info)
{
    const uint32_t rows = (p->row_end[3] + info->processors - 1) / info->processors;
    const uint32_t fills = (rows + (1u << p->stage_shift) - 1) >> p->stage_shift,
                   all = info->local_bytes - STATIC_LOCAL;
    const uint32_t wanted = fills < LEAST_STAGES    ? LEAST_STAGES
                            : fills < ENOUGH_STAGES ? fills
                                                    : ENOUGH_STAGES;
    const uint32_t fit = p->ring_at < all ? (all - p->ring_at) / p->stage_bytes : 0;
    const uint32_t alone = p->ring_at < ALONE ? (ALONE - p->ring_at) / p->stage_bytes : 0;
    if (alone < wanted)
        return fit < wanted ? fit : wanted;
    return alone < MOST_STAGES ? alone : MOST_STAGES;
}

/* Bytes of shared memory; 0: what fits is too small to be of use. */
static uint32_t lay_out(mk_stream_params *p, uint16_t dtype, bool gated, const mica__device_info *info,
                        uint32_t *out_each)
{
    const bool dense = mica__cuda_is_half(dtype);
    const uint32_t units = p->k / unit_of(dtype), pair = has_pairs(dtype) ? 2 : 1;
    p->codes_bytes = round_up(dense ? 4 * p->k : p->k, 16);
    p->info_bytes = dense ? 0 : round_up(p->k / 32 * 8, 16);
    p->info_at = p->rows * p->codes_bytes;
    p->ring_at = round_up(p->info_at + p->rows * p->info_bytes, 128);
    *out_each = LEAST_EACH / pair;
    while (!choose_team(p, units, *out_each, gated))
        if ((*out_each *= 2) > MOST_EACH / pair)
            return 0;
    p->stages = choose_stages(p, info);
    const uint32_t bytes = p->ring_at + p->stages * p->stage_bytes;
    return p->stages < LEAST_STAGES ? 0 : bytes > ALONE ? bytes : ALONE;
}

static bool is_gated(const mica__cuda_matmul *m, uint32_t first)
{
    return first == 0 && m->params->gate != MICA__GATE_NONE;
}

/* How many weights from `first` on a dispatch takes: alike, with results of one type; two with a gate. */
static uint32_t count_alike(const mica__cuda_matmul *m, uint32_t first)
{
    const uint32_t most = mica__cuda_matmul_alike(m, first);
    uint32_t count = 1;
    if (is_gated(m, first))
        return most;
    while (count < most && m->y_type[first + count] == m->y_type[first])
        count++;
    return count;
}

/* Everything of the weights and of shared memory; the bytes of it, 0 where it does not fit. */
static uint32_t fill_weights(const mica__cuda_matmul *m, uint32_t first, uint32_t count,
                             const mica__device_info *info, mk_stream_params *p, uint32_t *out_each)
{
    const mica__operand *weight = mica__cuda_matmul_weight(m, first);
    memset(p, 0, sizeof *p);
    p->k = (uint32_t)m->k;
    p->rows = (uint32_t)m->rows;
    p->weight = mica__gpu_weight_describe(weight);
    for (uint32_t part = 0; part < PARTS; part++)
        p->row_bytes[part] = mica__cuda_weight_has(weight, part) ? (uint32_t)weight[part].stride[0] : 0;
    for (uint32_t i = 0; i < MICA__MAX_WEIGHTS; i++) {
        const bool there = i < (is_gated(m, first) ? 1 : count);
        const uint32_t n = there ? (uint32_t)mica__cuda_matmul_weight(m, first + i)->shape[0] : 0;
        p->row_end[i] = (i > 0 ? p->row_end[i - 1] : 0) + n;
    }
    return lay_out(p, weight->dtype, is_gated(m, first), info, out_each);
}

/* Bytes of k values, or of the scales of a row. */
static uint64_t solid_bytes(const mica__operand *weight, uint32_t part)
{
    const uint64_t k = weight->shape[1];
    if (weight->layout == MICA_LAYOUT_PLANES)
        return mica__planes_row_bytes(weight->dtype, k);
    const uint64_t values = part == MICA__WEIGHT_DATA ? k : k / weight->group_size;
    const mica_dtype dtype = (mica_dtype)weight[part].dtype;
    return values / mica_dtype_block_elements(dtype) * mica_dtype_block_bytes(dtype);
}

/* Whether the rows of each table follow each other without a gap, and begin where a bulk copy can. */
static bool is_solid(const mica__operand *weight)
{
    for (uint32_t part = 0; part < PARTS; part++) {
        const uint64_t row = mica__cuda_weight_has(weight, part) ? solid_bytes(weight, part) : 0;
        if (mica__cuda_weight_has(weight, part) &&
            (weight[part].stride[0] != row || row % MICA__CUDA_WIDE != 0 ||
             weight[part].offset % MICA__CUDA_WIDE != 0))
            return false;
    }
    return true;
}

/* Whether matvec_ring.cu reads the weight: 16-bit numbers for one row of x, blocks in planes, or whole groups with tables of scales. */
static bool is_read(const mica__cuda_matmul *m, const mica__operand *weight)
{
    const uint64_t k = weight->shape[1];
    if (k != m->k || k == 0 || k > INT32_MAX / 4 || weight->shape[0] == 0 ||
        weight->shape[0] > INT32_MAX / 4 || k % unit_of(weight->dtype) != 0)
        return false;
    if (mica__cuda_is_half(weight->dtype))
        return weight->layout == MICA_LAYOUT_CANONICAL && m->rows == 1 && is_solid(weight);
    return mica__gpu_weight_reads_codes(weight, m->params->precision) &&
           (weight->group_size == 0 || k % weight->group_size == 0) && is_solid(weight);
}

bool mica__cuda_stream_serves(const mica__record *record, const mica__device_info *info)
{
    mica__cuda_matmul m;
    mk_stream_params p;
    uint32_t each = 0;
    if (info->local_bytes < LEAST_LOCAL || !mica__cuda_matmul_look(record, info, &m) ||
        m.rows > MICA__CUDA_FEW_ROWS || m.x_stride % MICA__CUDA_WIDE != 0 ||
        record->operand[MICA__MATMUL_X].offset % MICA__CUDA_WIDE != 0 ||
        (m.norm == 2 && record->operand[MICA__MATMUL_NORM_WEIGHT].offset % MICA__CUDA_WIDE != 0))
        return false;
    for (uint32_t i = 0; i < m.weights; i++)
        if (!is_read(&m, mica__cuda_matmul_weight(&m, i)))
            return false;
    if (m.params->gate != MICA__GATE_NONE && mica__cuda_matmul_alike(&m, 0) != 2)
        return false;
    for (uint32_t i = 0, count; i < m.weights; i += count) {
        count = count_alike(&m, i);
        if (fill_weights(&m, i, count, info, &p, &each) == 0)
            return false;
    }
    return true;
}

/* The rest of the parameters: x, results, and the rows of each of `groups`. */
static void fill_rest(const mica__cuda_matmul *m, uint32_t first, uint32_t count, uint32_t groups,
                      mk_stream_params *p)
{
    p->share = p->row_end[3] / groups;
    p->longer = p->row_end[3] % groups;
    p->x_stride = m->x_stride;
    p->eps = m->params->eps;
    for (uint32_t i = 0; i < count; i++)
        p->y_stride[i] = m->y_stride[first + i];
    p->softcap = m->params->softcap;
    p->residual_stride = m->residual_stride;
}

/* What the program of a dispatch is made for. Softcap and residual are of y_0. */
static void set_constants(mica__plan *plan, const mica__cuda_matmul *m, uint32_t first, uint32_t count,
                          uint32_t each, const mk_stream_params *p)
{
    const mica__operand *operand = m->record->operand, *weight = mica__cuda_matmul_weight(m, first);
    const bool gated = is_gated(m, first);
    uint32_t rows = 1;
    while (rows < m->rows)
        rows *= 2;
    mica__gpu_plan_constant(plan, "MK_WG", THREADS);
    mica__gpu_plan_constant(plan, "W", weight->dtype);
    mica__gpu_plan_constant(plan, "ROWS", rows);
    mica__gpu_plan_constant(plan, "EACH", each);
    mica__gpu_plan_constant(plan, "XT", mica__gpu_type(operand[MICA__MATMUL_X].dtype));
    mica__gpu_plan_constant(plan, "NORM", m->norm);
    mica__gpu_plan_constant(plan, "NT",
                            m->norm == 2 ? mica__gpu_type(operand[MICA__MATMUL_NORM_WEIGHT].dtype) : 0);
    mica__gpu_plan_constant(plan, "GATE", gated ? m->params->gate : 0);
    mica__gpu_plan_constant(plan, "MANY", !gated && count > 1);
    mica__gpu_plan_constant(plan, "YT", m->y_type[first]);
    mica__gpu_plan_constant(plan, "CAPS", first == 0 && m->params->softcap > 0);
    mica__gpu_plan_constant(
        plan, "ADDS",
        first == 0 && m->residual ? 1 + mica__gpu_type(operand[MICA__MATMUL_RESIDUAL].dtype) : 0);
    if (!mica__cuda_is_known(weight->dtype))
        mica__gpu_plan_constant(plan, "PLANES", 1);
    if (mica__dtype_is_grouped(weight->dtype)) {
        mica__gpu_plan_constant(plan, "GROUP", weight->group_size);
        mica__gpu_plan_constant(plan, "SCALE", p->weight.scale_type);
    }
}

static mica_status plan_alike(const mica__cuda_matmul *m, uint32_t first, uint32_t count,
                              const mica__device_info *info, mica__plan *plan)
{
    mk_stream_params p;
    uint32_t each = 0;
    const uint32_t local_bytes = fill_weights(m, first, count, info, &p, &each);
    const uint32_t most = (p.row_end[3] + LEAST_ROWS - 1) / LEAST_ROWS;
    const uint32_t groups = most < info->processors ? most : info->processors;
    const bool lanes = mica__cuda_is_known(mica__cuda_matmul_weight(m, first)->dtype);
    const mica_status status =
        mica__gpu_plan_next(plan, lanes ? "stream/matvec" : "stream_any/matvec", groups);
    if (status != MICA_OK)
        return status;
    fill_rest(m, first, count, groups, &p);
    set_constants(plan, m, first, count, each, &p);
    plan->dispatch[plan->dispatch_count - 1].local_bytes = local_bytes;
    mica__gpu_plan_operand(plan, m->record, MICA__MATMUL_X, 0);
    mica__gpu_plan_operand(plan, m->record,
                           m->norm == 2 ? (uint32_t)MICA__MATMUL_NORM_WEIGHT : (uint32_t)MICA__MATMUL_X,
                           m->norm == 2 ? MICA_ACCESS_READ | MICA__BIND_AHEAD : MICA_ACCESS_READ);
    mica__cuda_bind_or_x(plan, m, MICA__MATMUL_RESIDUAL, first == 0 && m->residual);
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
        count = count_alike(&m, i);
        status = plan_alike(&m, i, count, info, plan);
    }
    return status;
}
