/*
 * cpu_plan_rows.c - plans of the ops that work row by row: norms, softmax, rope, cache writes, lookup, the
 * routing of experts.
 *
 * A unit is a row (a token where heads share work). Estimates of time are for data in the cache.
 */
#include "backend/cpu/cpu_plan.h"

#include "base/status.h"
#include "backend/cpu/cpu_params.h"
#include "quant/packed.h"
#include "quant/quant.h"

#define MOST_LANES 64 /* to which a row of softmax is filled up, at most */

#define CACHE_TYPES "f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, iq4_nl and turbo types"

static bool is_index(uint16_t dtype)
{
    return dtype == MICA_DTYPE_I32 || dtype == MICA_DTYPE_U32;
}

static bool is_cache(uint16_t dtype)
{
    return mica__cpu_is_float(dtype) || mica__cpu_is_cache_block(dtype);
}

/* Checks one operand, if it is there, against what the kernels read. */
static mica_status check(const mica__record *record, uint32_t slot, bool (*served)(uint16_t dtype),
                         const char *what)
{
    const mica__operand *operand = &record->operand[slot];
    if (!mica__operand_present(operand) || served(operand->dtype))
        return MICA_OK;
    return mica__fail(MICA_ERR_UNSUPPORTED, "%s on the cpu: operand %u is %s; %s are served",
                      mica_op_name((mica_op)record->op), slot, mica_dtype_name((mica_dtype)operand->dtype),
                      what);
}

/* Floats in the slots of the mask `floats`, indices in those of `indices`. */
static mica_status check_types(const mica__record *record, uint32_t floats, uint32_t indices)
{
    mica_status status = MICA_OK;
    for (uint32_t slot = 0; status == MICA_OK && slot < record->operand_count; slot++) {
        if (floats >> slot & 1)
            status = check(record, slot, mica__cpu_is_float, "f32, f16 and bf16");
        else if (indices >> slot & 1)
            status = check(record, slot, is_index, "u32 and i32");
    }
    return status;
}

/* Units are 32 bits wide; more rows than that share them. */
static mica__cpu_row_range range_of(uint64_t rows)
{
    const mica__cpu_row_range range = {rows, 1 + rows / UINT32_MAX};
    return range;
}

static uint64_t rows_of(const mica__operand *operand)
{
    uint64_t rows = 1;
    for (uint32_t d = 0; d + 1 < operand->ndim; d++)
        rows *= operand->shape[d];
    return rows;
}

static uint64_t row_length(const mica__operand *operand)
{
    return operand->shape[operand->ndim - 1];
}

/* Starts a dispatch over the rows with all operands of the record as views. */
static mica__plan_dispatch *begin(const mica__record *record, const char *kernel, mica__cpu_row_range range,
                                  mica__plan *plan)
{
    const uint64_t units = (range.rows + range.rows_per_unit - 1) / range.rows_per_unit;
    mica__plan_dispatch *dispatch = mica__cpu_plan_next(plan, kernel, units);
    mica__cpu_plan_operands(plan, record, record->operand_count);
    return dispatch;
}

/* Ends it: parameters, per-thread memory, grain. */
static mica_status finish(mica__plan *plan, const void *params, uint32_t size, uint64_t local_bytes,
                          double unit_ns)
{
    mica__plan_dispatch *dispatch = &plan->dispatch[plan->dispatch_count - 1];
    if (local_bytes > UINT32_MAX)
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "%s on the cpu: a row needs %llu bytes of work memory; 4 GiB are served",
                          dispatch->kernel, (unsigned long long)local_bytes);
    mica__cpu_plan_params(plan, params, size);
    dispatch->local_bytes = (uint32_t)local_bytes;
    mica__cpu_plan_grain(dispatch, unit_ns);
    return MICA_OK;
}

mica_status mica__cpu_plan_rms_norm(const mica__record *record, const mica__device_info *info,
                                    mica__plan *plan)
{
    (void)info;
    const mica_status status = check_types(record, UINT32_MAX, 0);
    if (status != MICA_OK)
        return status;
    const mica__operand *y = &record->operand[MICA__NORM_Y];
    const mica_norm_params *norm = record->params;
    mica__cpu_row_params params = {range_of(rows_of(y)), norm->eps};
    begin(record, "rms_norm", params.range, plan);
    mica__cpu_view *view = mica__cpu_plan_views(plan);
    for (uint32_t v = 0; v < MICA__NORM_Y; v++)
        mica__cpu_view_expand(&view[v], &view[MICA__NORM_Y]);
    mica__cpu_view_collapse(view, MICA__NORM_SLOTS, 1);
    const uint64_t n = row_length(y);
    return finish(plan, &params, sizeof params, 3 * n * sizeof(float), 10 + 0.3 * (double)n);
}

mica_status mica__cpu_plan_layer_norm(const mica__record *record, const mica__device_info *info,
                                      mica__plan *plan)
{
    (void)info;
    const mica_status status = check_types(record, UINT32_MAX, 0);
    if (status != MICA_OK)
        return status;
    const mica__operand *y = &record->operand[MICA__LAYER_NORM_Y];
    const mica_norm_params *norm = record->params;
    mica__cpu_row_params params = {range_of(rows_of(y)), norm->eps};
    begin(record, "layer_norm", params.range, plan);
    mica__cpu_view *view = mica__cpu_plan_views(plan);
    for (uint32_t v = 0; v < MICA__LAYER_NORM_Y; v++)
        mica__cpu_view_expand(&view[v], &view[MICA__LAYER_NORM_Y]);
    mica__cpu_view_collapse(view, MICA__LAYER_NORM_SLOTS, 1);
    const uint64_t n = row_length(y);
    return finish(plan, &params, sizeof params, 3 * n * sizeof(float), 15 + 0.4 * (double)n);
}

mica_status mica__cpu_plan_softmax(const mica__record *record, const mica__device_info *info,
                                   mica__plan *plan)
{
    (void)info;
    const mica__operand *y = &record->operand[MICA__SOFTMAX_Y];
    const mica_softmax_params *softmax = record->params;
    if (y->dtype == MICA_DTYPE_F64 || softmax->log != 0)
        return mica__cpu_plan_softmax_any(record, plan);
    const bool truth = record->operand[MICA__SOFTMAX_MASK].dtype == MICA_DTYPE_BOOL;
    const mica_status status = check_types(record, truth ? ~(1u << MICA__SOFTMAX_MASK) : UINT32_MAX, 0);
    if (status != MICA_OK)
        return status;
    mica__cpu_row_params params = {range_of(rows_of(y)), softmax->scale};
    begin(record, "softmax", params.range, plan);
    mica__cpu_view *view = mica__cpu_plan_views(plan);
    mica__cpu_view_expand(&view[MICA__SOFTMAX_MASK], &view[MICA__SOFTMAX_Y]);
    mica__cpu_view_collapse(view, MICA__SOFTMAX_SLOTS, 1);
    const uint64_t n = row_length(y);
    return finish(plan, &params, sizeof params, (2 * n + MOST_LANES) * sizeof(float), 10 + 0.7 * (double)n);
}

/* [tokens, dim] is one head of [tokens, heads, dim]. */
static void give_heads(mica__cpu_view *x)
{
    if (x->ndim != 2)
        return;
    x->shape[2] = x->shape[1];
    x->stride[2] = x->stride[1];
    x->shape[1] = 1;
    x->stride[1] = 0;
    x->ndim = 3;
}

/* Fusion has put nothing beside it: no norm and no cache is of f64. */
static mica_status plan_rope_wide(const mica__record *record, mica__plan *plan)
{
    const mica__operand *x = &record->operand[MICA__ROPE_X];
    const mica__rope_record *rope = record->params;
    const mica__cpu_rope params = {range_of(x->shape[0]), *rope};
    if (rope->norm || mica__operand_present(&record->operand[MICA__ROPE_CACHE]))
        return mica__fail(MICA_ERR_UNSUPPORTED, "rope: f64 is served without a norm and a cache");
    begin(record, "rope_wide", params.range, plan);
    mica__cpu_view *view = mica__cpu_plan_views(plan);
    give_heads(&view[MICA__ROPE_X]);
    give_heads(&view[MICA__ROPE_Y]);
    const uint64_t elements = rows_of(x) / x->shape[0] * row_length(x);
    return finish(plan, &params, sizeof params, 0, 100 + 60 * (double)elements);
}

mica_status mica__cpu_plan_rope(const mica__record *record, const mica__device_info *info, mica__plan *plan)
{
    (void)info;
    if (record->operand[MICA__ROPE_X].dtype == MICA_DTYPE_F64)
        return plan_rope_wide(record, plan);
    const uint32_t indices = 1u << MICA__ROPE_POSITIONS | 1u << MICA__ROPE_SEQUENCES | 1u << MICA__ROPE_PAGES;
    mica_status status = check_types(record, ~(indices | 1u << MICA__ROPE_CACHE), indices);
    if (status == MICA_OK)
        status = check(record, MICA__ROPE_CACHE, is_cache, CACHE_TYPES);
    if (status != MICA_OK)
        return status;
    const mica__operand *x = &record->operand[MICA__ROPE_X];
    const mica__rope_record *rope = record->params;
    mica__cpu_rope params = {range_of(x->shape[0]), *rope};
    begin(record, "rope", params.range, plan);
    mica__cpu_view *view = mica__cpu_plan_views(plan);
    give_heads(&view[MICA__ROPE_X]);
    give_heads(&view[MICA__ROPE_Y]);
    const uint64_t dim = row_length(x), rotary = rope->rope.rotary_dims, heads = rows_of(x) / x->shape[0];
    const uint64_t local = rotary * sizeof(double) + (4 * rotary + 2 * dim) * sizeof(float);
    return finish(plan, &params, sizeof params, local,
                  100 + (double)rotary * 1.5 + 0.3 * (double)(heads * dim));
}

mica_status mica__cpu_plan_kv_write(const mica__record *record, const mica__device_info *info,
                                    mica__plan *plan)
{
    (void)info;
    const uint32_t indices = 1u << MICA__KV_POSITIONS | 1u << MICA__KV_SEQUENCES | 1u << MICA__KV_PAGES;
    mica_status status = check_types(record, ~(indices | 1u << MICA__KV_CACHE), indices);
    if (status == MICA_OK)
        status = check(record, MICA__KV_CACHE, is_cache, CACHE_TYPES);
    if (status != MICA_OK)
        return status;
    const mica__operand *x = &record->operand[MICA__KV_X];
    const mica_kv_params *kv = record->params;
    mica__cpu_kv_write params = {range_of(x->shape[0]), *kv};
    begin(record, "kv_write", params.range, plan);
    give_heads(&mica__cpu_plan_views(plan)[MICA__KV_X]);
    const double token = (double)rows_of(x) / (double)x->shape[0] * (double)row_length(x);
    return finish(plan, &params, sizeof params, row_length(x) * sizeof(float), 20 + 0.15 * token);
}

static bool is_table(uint16_t dtype)
{
    return mica__cpu_is_float(dtype) || mica__quant_known(dtype) || mica__dtype_is_grouped(dtype);
}

static bool is_scale(uint16_t dtype)
{
    return mica__cpu_is_float(dtype) || dtype == MICA_DTYPE_E8M0 || dtype == MICA_DTYPE_F8_E4M3;
}

mica_status mica__cpu_plan_embedding(const mica__record *record, const mica__device_info *info,
                                     mica__plan *plan)
{
    (void)info;
    mica_status status =
        check(record, MICA__EMBEDDING_TABLE, is_table, "f32, f16, bf16, the types of matmul and turbo types");
    if (status == MICA_OK)
        status = check(record, MICA__EMBEDDING_SCALES, is_scale, "f32, f16, bf16, e8m0 and f8_e4m3");
    if (status == MICA_OK)
        status = check_types(record, 1u << MICA__EMBEDDING_BIASES | 1u << MICA__EMBEDDING_Y,
                             1u << MICA__EMBEDDING_IDS);
    if (status != MICA_OK)
        return status;
    const mica__operand *y = &record->operand[MICA__EMBEDDING_Y];
    const bool plain = mica__cpu_is_float(record->operand[MICA__EMBEDDING_TABLE].dtype);
    mica__cpu_row_range range = range_of(rows_of(y));
    begin(record, "embedding", range, plan);
    const uint64_t n = row_length(y);
    return finish(plan, &range, sizeof range, n * sizeof(float), 50 + (plain ? 0.2 : 1.0) * (double)n);
}

mica_status mica__cpu_plan_route(const mica__record *record, const mica__device_info *info, mica__plan *plan)
{
    const mica__operand *logits = &record->operand[MICA__ROUTE_LOGITS];
    const mica_route_params *route = record->params;
    const bool wide = logits->dtype == MICA_DTYPE_F64; /* then all are */
    (void)info;
    if (!wide)
        MICA__TRY(check_types(record, ~(1u << MICA__ROUTE_IDS), 1u << MICA__ROUTE_IDS));
    mica__cpu_route params = {range_of(logits->shape[0]), *route};
    begin(record, wide ? "route_wide" : "route", params.range, plan);
    const uint64_t n = row_length(logits), slots = row_length(&record->operand[MICA__ROUTE_IDS]);
    if (wide)
        return finish(plan, &params, sizeof params,
                      (3 * n + 3 * slots + 3 * (uint64_t)route->groups) * sizeof(double),
                      50 + 20.0 * (double)n + 50.0 * (double)slots);
    return finish(plan, &params, sizeof params,
                  (3 * (n + slots + (uint64_t)route->groups) + 4 * MOST_LANES) * sizeof(float),
                  50 + 1.5 * (double)n + 5 * (double)slots);
}

mica_status mica__cpu_plan_expert_sum(const mica__record *record, const mica__device_info *info,
                                      mica__plan *plan)
{
    const mica__operand *x = &record->operand[MICA__EXPERT_SUM_X];
    (void)info;
    if (x->dtype == MICA_DTYPE_F64) { /* then all are */
        mica__cpu_row_range rows = range_of(x->shape[0]);
        begin(record, "expert_sum_wide", rows, plan);
        return finish(plan, &rows, sizeof rows, 0, 10 + 2.0 * (double)(x->shape[1] * x->shape[2]));
    }
    MICA__TRY(check_types(record, UINT32_MAX, 0));
    const uint64_t tiles = (row_length(x) + MICA__CPU_SUM_TILE - 1) / MICA__CPU_SUM_TILE;
    mica__cpu_row_range range = range_of(x->shape[0] * tiles);
    begin(record, "expert_sum", range, plan);
    return finish(plan, &range, sizeof range, 0, 10 + 0.15 * (double)(x->shape[1] * MICA__CPU_SUM_TILE));
}
