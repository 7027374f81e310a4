/*
 * cpu_plan_quant.c - plans of matmul with quantised weights.
 *
 * Chooses how many rows of x a unit takes and whether threads prepare activations for themselves; how sixteen rows
 * of a weight meet them belongs to the kernels.
 */
#include "backend/cpu/cpu_plan_quant.h"

#include "base/status.h"

/* Estimates of one thread's speed, for the grain: bytes of weight read and products added in a nanosecond. */
#define BYTES_PER_NS 10.0
#define PRODUCTS_PER_NS 60.0
#define UNITS_PER_THREAD 4
#define MOST_COLUMNS 128u

static bool is_float(uint16_t dtype)
{
    return dtype == MICA_DTYPE_F32 || dtype == MICA_DTYPE_F16 || dtype == MICA_DTYPE_BF16;
}

mica_status mica__cpu_quant_check_float(const mica__record *record, uint32_t slot, const char *name)
{
    const mica__operand *operand = &record->operand[slot];
    if (!mica__operand_present(operand) || is_float(operand->dtype))
        return MICA_OK;
    return mica__fail(MICA_ERR_UNSUPPORTED,
                      "%s on the cpu: %s is %s; beside a quantised weight f32, f16 and bf16 are served",
                      mica_op_name((mica_op)record->op), name, mica_dtype_name((mica_dtype)operand->dtype));
}

mica_status mica__cpu_quant_check_weight(const mica__record *record, const mica__operand *weight)
{
    const mica__operand *scales = weight + MICA__WEIGHT_SCALES, *biases = weight + MICA__WEIGHT_BIASES;
    if (mica__quant_known(weight->dtype))
        return MICA_OK;
    if (!mica__dtype_is_grouped(weight->dtype))
        return mica__fail(MICA_ERR_UNSUPPORTED, "%s on the cpu: weight is %s, which no kernel serves",
                          mica_op_name((mica_op)record->op), mica_dtype_name((mica_dtype)weight->dtype));
    if (weight->layout != MICA_LAYOUT_CANONICAL)
        return MICA_OK;
    const bool biased = mica__dtype_is_affine(weight->dtype);
    if (!mica__operand_present(scales) || (biased && !mica__operand_present(biases)) ||
        weight->group_size == 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: weight is %s without scales%s",
                          mica_op_name((mica_op)record->op), mica_dtype_name((mica_dtype)weight->dtype),
                          biased ? " and biases" : "");
    return MICA_OK;
}

uint32_t mica__cpu_quant_form(const mica__operand *weight, uint32_t precision)
{
    const mica__operand *scales = weight + MICA__WEIGHT_SCALES;
    mica__packed_form form;
    if (precision == MICA_PRECISION_F32 || precision == MICA_PRECISION_F16)
        return MICA__QUANT_F32;
    if (!mica__packed_form_of(weight->dtype, weight->group_size, &form))
        return MICA__QUANT_F32;
    return mica__operand_present(scales) &&
                   !mica__packed_scales(weight->dtype, weight->group_size, scales->dtype)
               ? MICA__QUANT_F32
               : MICA__QUANT_Q8;
}

mica_status mica__cpu_quant_local(const mica__record *record, const mica__device_info *info,
                                  mica__plan_dispatch *dispatch, uint64_t bytes)
{
    if (bytes > info->local_bytes)
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "%s on the cpu: rows of x need %llu bytes of per-thread memory, not %u",
                          mica_op_name((mica_op)record->op), (unsigned long long)bytes, info->local_bytes);
    dispatch->local_bytes = (uint32_t)bytes;
    return MICA_OK;
}

mica_status mica__cpu_plan_activation(const mica__record *record, const mica__device_info *info,
                                      const mica__quant_activation *a, uint64_t rows, mica__plan *plan)
{
    const bool matmul = record->op == MICA_OP_MATMUL;
    const uint32_t x = matmul ? (uint32_t)MICA__MATMUL_X : (uint32_t)MICA__EXPERTS_X;
    mica__plan_dispatch *dispatch = mica__cpu_plan_next(plan, "matmul_activation", rows);
    mica__cpu_plan_operand(plan, record, x, 0);
    if (matmul)
        mica__cpu_plan_operand(plan, record, MICA__MATMUL_NORM_WEIGHT, 0);
    else /* no norm, so this view is not read */
        mica__cpu_plan_operand(plan, record, MICA__EXPERTS_SCALES, 0);
    mica__cpu_plan_scratch(plan, 0, rows * mica__quant_activation_bytes(a), MICA_ACCESS_WRITE);
    mica__cpu_plan_params(plan, a, sizeof *a);
    mica__cpu_plan_grain(dispatch, (double)a->k);
    return mica__cpu_quant_local(record, info, dispatch, 2 * a->k * sizeof(float));
}

static uint64_t rows_of(const mica__operand *operand, uint32_t kept)
{
    uint64_t rows = 1;
    for (uint32_t d = 0; d + kept < operand->ndim; d++)
        rows *= operand->shape[d];
    return rows;
}

static const mica__operand *weight_at(const mica__record *record, uint32_t i)
{
    return &record->operand[MICA__MATMUL_SLOT(i, MICA__WEIGHT_DATA)];
}

static mica_status check(const mica__record *record, uint32_t weights)
{
    mica_status status = mica__cpu_quant_check_float(record, MICA__MATMUL_X, "x");
    if (status == MICA_OK)
        status = mica__cpu_quant_check_float(record, MICA__MATMUL_NORM_WEIGHT, "the norm's weight");
    if (status == MICA_OK)
        status = mica__cpu_quant_check_float(record, MICA__MATMUL_RESIDUAL, "the residual");
    for (uint32_t i = 0; status == MICA_OK && i < weights; i++) {
        status = mica__cpu_quant_check_weight(record, weight_at(record, i));
        if (status == MICA_OK)
            status = mica__cpu_quant_check_float(record, MICA__MATMUL_SLOT(i, MICA__WEIGHT_Y), "y");
    }
    return status;
}

/* Forms, blocks of sixteen rows and the greatest work area of all weights. */
static uint64_t measure_weights(const mica__record *record, mica__matmul_quant_params *p)
{
    const bool gate = p->matmul.gate != MICA__GATE_NONE;
    uint64_t work = 0, blocks = 0;
    for (uint32_t i = 0; i < p->matmul.weight_count; i++) {
        const mica__operand *w = weight_at(record, i);
        p->form[i] = mica__cpu_quant_form(w, p->matmul.precision);
        p->activation.forms |= p->form[i];
        if (!gate || i == 0)
            blocks += mica__quant_units(w->shape[w->ndim - 2]);
        p->end_block[i] = blocks < UINT32_MAX ? (uint32_t)blocks : UINT32_MAX;
        const uint64_t bytes = mica__quant_work_bytes(w->dtype, w->group_size, p->activation.k, p->form[i]);
        work = bytes > work ? bytes : work;
    }
    return work;
}

/* Rows of x of a unit: what half of a second-level cache holds, fewer where that leaves threads without work. */
static uint64_t unit_columns(const mica__device_info *info, uint64_t activation_bytes, uint64_t rows,
                             uint64_t units)
{
    const uint64_t cache = info->cache_bytes != 0 ? info->cache_bytes : 512 << 10;
    uint64_t columns = 8;
    if (rows <= columns)
        return rows;
    while (columns < MOST_COLUMNS && (columns + 8) * activation_bytes <= cache / 2)
        columns += 8;
    while (columns > 8 && (rows + columns - 1) / columns * units < (uint64_t)info->threads * UNITS_PER_THREAD)
        columns = columns < 32 ? 8 : columns / 16 * 8;
    return columns < rows ? columns : rows;
}

static mica_status plan_units(const mica__record *record, const mica__device_info *info,
                              mica__matmul_quant_params *p, uint64_t work, mica__plan *plan)
{
    const uint32_t weights = p->matmul.weight_count, last = weights - 1;
    const uint64_t units = p->groups * p->column_blocks * p->end_block[last];
    const uint64_t row_bytes = mica__quant_activation_bytes(&p->activation);
    if (units > UINT32_MAX)
        return mica__fail(MICA_ERR_UNSUPPORTED, "matmul on the cpu: %llu blocks of y; at most %u are served",
                          (unsigned long long)units, UINT32_MAX);
    mica__plan_dispatch *dispatch = mica__cpu_plan_next(plan, "matmul_quant", units);
    mica__cpu_plan_operands(plan, record, record->operand_count);
    if (!p->prepared)
        mica__cpu_plan_scratch(plan, 0, p->groups * p->rows * row_bytes, MICA_ACCESS_READ);
    mica__cpu_plan_params(plan, p, sizeof *p);
    const mica__operand *w = weight_at(record, 0);
    const double values =
        (double)p->activation.k * MICA__QUANT_ROWS * (p->matmul.gate != MICA__GATE_NONE ? 2 : 1);
    const double bytes = values * mica_dtype_block_bytes((mica_dtype)w->dtype) /
                         mica_dtype_block_elements((mica_dtype)w->dtype);
    const double read_ns = bytes / BYTES_PER_NS, add_ns = values * p->columns / PRODUCTS_PER_NS;
    mica__cpu_plan_shares(dispatch, info->threads, 30 + (read_ns > add_ns ? read_ns : add_ns));
    const uint64_t unit = mica__quant_work_offset(p->columns) + work,
                   prepare = 2 * p->activation.k * sizeof(float);
    const uint64_t kept = p->prepared ? p->groups * p->rows * row_bytes : 0;
    return mica__cpu_quant_local(record, info, dispatch,
                                 kept + (p->prepared && prepare > unit ? prepare : unit));
}

mica_status mica__cpu_plan_matmul_quant(const mica__record *record, const mica__device_info *info,
                                        mica__plan *plan)
{
    const mica__matmul_record *matmul = record->params;
    const mica__operand *x = &record->operand[MICA__MATMUL_X];
    mica_status status = check(record, matmul->weight_count);
    if (status != MICA_OK)
        return status;
    mica__matmul_quant_params p = {.matmul = *matmul, .groups = rows_of(weight_at(record, 0), 2)};
    p.activation =
        (mica__quant_activation){.k = x->shape[x->ndim - 1], .norm = matmul->norm, .eps = matmul->eps};
    const uint64_t work = measure_weights(record, &p), rows = rows_of(x, 1);
    p.rows = rows / p.groups;
    p.prepared = rows <= MICA__QUANT_FEW;
    const uint64_t units = p.groups * p.end_block[matmul->weight_count - 1];
    const uint64_t columns = unit_columns(info, mica__quant_activation_bytes(&p.activation), p.rows, units);
    p.columns = (uint32_t)columns;
    p.column_blocks = (uint32_t)((p.rows + columns - 1) / columns);
    if (!p.prepared)
        status = mica__cpu_plan_activation(record, info, &p.activation, rows, plan);
    return status == MICA_OK ? plan_units(record, info, &p, work, plan) : status;
}
