/* cuda_plan_native.c - what the plans of native matmuls share. */
#include "backend/cuda/cuda_plan_native.h"

#include <string.h>

#include "base/env.h"
#include "quant/dtype.h"
#include "quant/planes.h"

#define LEAST_COMPUTE 90u
#define RUN 32u /* columns of a thread that unpacks */

uint32_t mica__cuda_matmul_slot(uint32_t weight)
{
    return (uint32_t)MICA__MATMUL_SLOT(weight, MICA__WEIGHT_DATA);
}

const mica__operand *mica__cuda_matmul_weight(const mica__cuda_matmul *m, uint32_t weight)
{
    return &m->record->operand[mica__cuda_matmul_slot(weight)];
}

static const mica__operand *y_of(const mica__cuda_matmul *m, uint32_t weight)
{
    return &m->record->operand[MICA__MATMUL_SLOT(weight, MICA__WEIGHT_Y)];
}

bool mica__cuda_is_half(uint16_t dtype)
{
    return dtype == MICA_DTYPE_F16 || dtype == MICA_DTYPE_BF16;
}

bool mica__cuda_is_known(uint16_t dtype)
{
    return mica__cuda_is_half(dtype) || dtype == MICA_DTYPE_Q4_0 || dtype == MICA_DTYPE_Q8_0 ||
           dtype == MICA_DTYPE_Q4_K || dtype == MICA_DTYPE_Q6_K;
}

bool mica__cuda_weight_reads(const mica__operand *weight, uint32_t ndim, uint64_t k)
{
    const bool canonical = mica__cuda_is_half(weight->dtype);
    if (weight->ndim != ndim || weight->shape[ndim - 1] != k || k == 0 || k > INT32_MAX / 4 ||
        weight->shape[ndim - 2] == 0 || weight->shape[ndim - 2] > INT32_MAX / 4)
        return false;
    return mica__cuda_is_known(weight->dtype) &&
           weight->layout == (canonical ? MICA_LAYOUT_CANONICAL : MICA_LAYOUT_PLANES);
}

bool mica__cuda_weight_unpacks(const mica__record *record, const mica__operand *weight)
{
    const uint64_t *shape = weight->shape + weight->ndim - 2;
    return !mica__gpu_is_float(weight->dtype) && shape[0] > 0 && shape[1] > 0 && shape[1] % RUN == 0 &&
           mica__gpu_weight_check(record, weight) == MICA_OK &&
           (!mica__dtype_is_grouped(weight->dtype) ||
            mica__gpu_weight_takes_codes(weight, MICA_PRECISION_DEFAULT));
}

bool mica__cuda_weight_is_even(const mica__operand *weight)
{
    mk_u64 at[4];
    mk_u32 bytes[4];
    bool even = weight->offset % MICA__CUDA_WIDE == 0;
    for (uint32_t d = 0; d + 1 < weight->ndim; d++)
        even = even && weight->stride[d] % MICA__CUDA_WIDE == 0;
    for (uint32_t f = mica__cuda_planes(weight, at, bytes); f-- > 0;)
        even = even && at[f] % MICA__CUDA_WIDE == 0;
    return even;
}

bool mica__cuda_weight_has(const mica__operand *weight, uint32_t table)
{
    return table == MICA__WEIGHT_DATA ||
           (mica__dtype_is_grouped(weight->dtype) && mica__operand_present(&weight[table]));
}

static uint64_t step_of(const mica__operand *weight, uint32_t table, uint32_t dimension)
{
    return mica__cuda_weight_has(weight, table) ? weight[table].stride[dimension] : 0;
}

mk_steps mica__cuda_weight_steps(const mica__operand *weight, uint32_t dimension)
{
    return (mk_steps){step_of(weight, MICA__WEIGHT_DATA, dimension),
                      step_of(weight, MICA__WEIGHT_SCALES, dimension),
                      step_of(weight, MICA__WEIGHT_BIASES, dimension)};
}

bool mica__cuda_weight_alike(const mica__operand *a, const mica__operand *b)
{
    bool alike = mica__gpu_weight_alike(a, b);
    for (uint32_t d = 0; d + 1 < a->ndim; d++)
        for (uint32_t table = MICA__WEIGHT_DATA; table <= MICA__WEIGHT_BIASES; table++)
            alike = alike && step_of(a, table, d) == step_of(b, table, d);
    return alike;
}

void mica__cuda_any_constants(mica__plan *plan, const mica__operand *weight, bool even)
{
    const bool grouped = mica__dtype_is_grouped(weight->dtype);
    mica__gpu_weight_constants(plan, weight, false);
    if (grouped ? even && weight->shape[weight->ndim - 1] % weight->group_size == 0
                : weight->layout == MICA_LAYOUT_PLANES)
        mica__gpu_plan_constant(plan, "PLANES", 1);
}

uint64_t mica__cuda_tiles(uint64_t n, uint64_t tile)
{
    return (n + tile - 1) / tile;
}

bool mica__cuda_half_is_enough(uint32_t half, uint32_t precision)
{
    return precision == MICA_PRECISION_DEFAULT ||
           precision == (half == MICA__MK_BF16 ? MICA_PRECISION_Q8 : MICA_PRECISION_F16);
}

static uint64_t stride_of(const mica__gpu_rows *rows, uint32_t view)
{
    return rows->view[view].ndim == 0 ? 0 : rows->view[view].stride[0];
}

/* Rows of x, y and residual: one stride each. */
static bool look_at_rows(mica__cuda_matmul *m)
{
    const mica__record *record = m->record;
    mica__gpu_rows rows = {.count = 0};
    uint32_t y_view[MICA__MAX_WEIGHTS] = {0}, residual_view = 0;
    mica__gpu_rows_add(&rows, &record->operand[MICA__MATMUL_X]);
    if (m->residual)
        residual_view = mica__gpu_rows_add(&rows, &record->operand[MICA__MATMUL_RESIDUAL]);
    for (uint32_t i = 0; i < m->weights; i++)
        if (mica__operand_present(y_of(m, i)))
            y_view[i] = mica__gpu_rows_add(&rows, y_of(m, i));
    mica__gpu_view_collapse(rows.view, rows.count, 0);
    if (rows.view[0].ndim > 1 || rows.rows == 0 || rows.rows > INT32_MAX)
        return false;
    m->rows = rows.rows;
    m->x_stride = stride_of(&rows, 0);
    m->residual_stride = m->residual ? stride_of(&rows, residual_view) : 0;
    for (uint32_t i = 0; i < m->weights; i++)
        if (mica__operand_present(y_of(m, i))) {
            m->y_stride[i] = stride_of(&rows, y_view[i]);
            m->y_type[i] = mica__gpu_type(y_of(m, i)->dtype);
        }
    return true;
}

bool mica__cuda_matmul_look(const mica__record *record, const mica__device_info *info, mica__cuda_matmul *out)
{
    const mica__matmul_record *params = record->params;
    const mica__operand *x = &record->operand[MICA__MATMUL_X];
    const mica__operand *norm = &record->operand[MICA__MATMUL_NORM_WEIGHT];
    const mica__operand *residual = &record->operand[MICA__MATMUL_RESIDUAL];
    if (info->compute < LEAST_COMPUTE || mica__env_debug(MICA__DEBUG_NONATIVE))
        return false;
    memset(out, 0, sizeof *out);
    out->record = record;
    out->params = params;
    out->weights = params->weight_count;
    out->k = x->shape[x->ndim - 1];
    out->residual = mica__operand_present(residual);
    out->norm = params->norm == 0 ? 0 : mica__operand_present(norm) ? 2 : 1;
    if (!mica__gpu_is_float(x->dtype) || (out->norm == 2 && !mica__gpu_is_float(norm->dtype)) ||
        (out->residual && !mica__gpu_is_float(residual->dtype)))
        return false;
    for (uint32_t i = 0; i < out->weights; i++)
        if (mica__cuda_matmul_weight(out, i)->ndim != 2 ||
            (mica__operand_present(y_of(out, i)) && !mica__gpu_is_float(y_of(out, i)->dtype)))
            return false;
    return look_at_rows(out);
}

bool mica__cuda_matmul_decodes(const mica__cuda_matmul *m, uint32_t weight)
{
    return mica__cuda_weight_reads(mica__cuda_matmul_weight(m, weight), 2, m->k);
}

bool mica__cuda_matmul_half(const mica__cuda_matmul *m, uint32_t *out_half)
{
    uint32_t wide = 0;
    for (uint32_t i = 0; i < m->weights; i++) {
        const mica__operand *weight = mica__cuda_matmul_weight(m, i);
        if (!mica__cuda_matmul_decodes(m, i) && !mica__cuda_weight_unpacks(m->record, weight))
            return false;
        wide += weight->dtype == MICA_DTYPE_BF16;
    }
    *out_half = wide > 0 ? MICA__MK_BF16 : MICA__MK_F16;
    return (wide == 0 || wide == m->weights) && mica__cuda_half_is_enough(*out_half, m->params->precision);
}

uint32_t mica__cuda_matmul_alike(const mica__cuda_matmul *m, uint32_t first)
{
    const mica__operand *weight = mica__cuda_matmul_weight(m, first);
    uint32_t count = 1;
    while (first + count < m->weights &&
           mica__cuda_weight_alike(mica__cuda_matmul_weight(m, first + count), weight))
        count++;
    return count;
}

uint32_t mica__cuda_planes(const mica__operand *weight, mk_u64 at[4], mk_u32 bytes[4])
{
    const mica__planes planes = mica__planes_of(weight->dtype);
    const uint64_t blocks =
        weight->shape[weight->ndim - 1] / mica_dtype_block_elements((mica_dtype)weight->dtype);
    uint64_t start = 0;
    if (mica__cuda_is_half(weight->dtype)) {
        at[0] = 0;
        bytes[0] = 2;
        return 1;
    }
    for (uint32_t f = 0; f < planes.count; f++) {
        at[f] = start;
        bytes[f] = planes.field[f].bytes;
        start += blocks * planes.field[f].bytes;
    }
    return planes.count;
}

void mica__cuda_bind_weights(mica__plan *plan, const mica__cuda_matmul *m, uint32_t first, uint32_t count,
                             uint32_t access)
{
    const bool tables = mica__dtype_is_grouped(mica__cuda_matmul_weight(m, first)->dtype);
    for (uint32_t i = 0; i < MICA__MAX_WEIGHTS; i++) {
        const uint32_t slot = mica__cuda_matmul_slot(first + (i < count ? i : 0));
        for (uint32_t part = 0; part <= (tables ? MICA__WEIGHT_BIASES : MICA__WEIGHT_DATA); part++)
            mica__gpu_plan_operand(plan, m->record, slot + part, access);
    }
}

void mica__cuda_bind_ys(mica__plan *plan, const mica__cuda_matmul *m, uint32_t first, uint32_t count)
{
    for (uint32_t i = 0; i < MICA__MAX_WEIGHTS; i++) {
        const bool there = i < count && mica__operand_present(y_of(m, first + i));
        mica__gpu_plan_operand(plan, m->record,
                               (uint32_t)MICA__MATMUL_SLOT(first + (there ? i : 0), MICA__WEIGHT_Y), 0);
    }
}

void mica__cuda_bind_or_x(mica__plan *plan, const mica__cuda_matmul *m, uint32_t slot, bool there)
{
    mica__gpu_plan_operand(plan, m->record, there ? slot : (uint32_t)MICA__MATMUL_X, MICA_ACCESS_READ);
}

mica_status mica__cuda_plan_x(const mica__cuda_matmul *m, const mica__cuda_x *x, mica__plan *plan)
{
    const mica__operand *operand = m->record->operand;
    mk_tiles_params p;
    memset(&p, 0, sizeof p);
    p.stride = m->x_stride;
    p.rows = (uint32_t)m->rows;
    p.k = (uint32_t)m->k;
    p.k_tiles = x->k_tiles;
    p.order = x->order;
    p.norm = m->norm;
    p.x_type = mica__gpu_type(operand[MICA__MATMUL_X].dtype);
    p.norm_type = m->norm == 2 ? mica__gpu_type(operand[MICA__MATMUL_NORM_WEIGHT].dtype) : 0;
    p.eps = m->params->eps;
    const mica_status status = mica__gpu_plan_next(plan, "tiles/pack_x", m->rows);
    if (status != MICA_OK)
        return status;
    mica__gpu_plan_constant(plan, "HALF", x->half);
    mica__gpu_plan_operand(plan, m->record, MICA__MATMUL_X, 0);
    mica__cuda_bind_or_x(plan, m, MICA__MATMUL_NORM_WEIGHT, m->norm == 2);
    mica__gpu_plan_scratch(plan, x->tiles, x->end - x->tiles, MICA_ACCESS_WRITE);
    mica__gpu_plan_scratch(plan, x->scales, m->rows * sizeof(float), MICA_ACCESS_WRITE);
    mica__gpu_plan_params(plan, &p, sizeof p);
    return MICA_OK;
}
