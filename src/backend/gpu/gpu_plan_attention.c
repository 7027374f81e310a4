/* gpu_plan_attention.c - the plan of attention: tiles of tokens by kv heads, and parts of the keys where these are few. */
#include "backend/gpu/gpu_plan_attention.h"

#include <math.h>
#include <string.h>

#include "base/status.h"

#define Q_FLOATS 4096u     /* of attention.kc */
#define KEYS 32u           /* of attention.kc */
#define MOST_SPLITS 64u    /* that combine reads one after the other */
#define PREFILL_TOKENS 16u /* from here on tokens share a tile */
#define PREFILL_ROWS 32u   /* rows of such a tile */
#define DECODE_ROWS 8u     /* most rows where a tile has one token */

static uint32_t type_of(const mica__operand *operand)
{
    return operand->dtype == MICA_DTYPE_Q8_0 ? MK_Q8_0 : mica__gpu_type(operand->dtype);
}

mica_status mica__gpu_attention_check(const mica__record *record)
{
    const mica__operand *q = &record->operand[MICA__ATTENTION_Q], *y = &record->operand[MICA__ATTENTION_Y];
    uint32_t floats = 1u << MICA__ATTENTION_Q | 1u << MICA__ATTENTION_MASK | 1u << MICA__ATTENTION_Y;
    if (record->operand[MICA__ATTENTION_K].dtype != MICA_DTYPE_Q8_0)
        floats |= 1u << MICA__ATTENTION_K;
    if (record->operand[MICA__ATTENTION_V].dtype != MICA_DTYPE_Q8_0)
        floats |= 1u << MICA__ATTENTION_V;
    if (q->shape[2] > Q_FLOATS || y->shape[2] > Q_FLOATS || q->shape[0] > UINT32_MAX / 2)
        return mica__fail(MICA_ERR_UNSUPPORTED, "attention: heads of %llu and %llu; %u are served",
                          (unsigned long long)q->shape[2], (unsigned long long)y->shape[2], Q_FLOATS);
    return mica__gpu_check_floats(record, floats);
}

/* Strides, shapes and types. */
static void set_operands(const mica__record *record, mk_attention_params *p)
{
    const mica__operand *o = record->operand;
    const mica__operand *q = &o[MICA__ATTENTION_Q], *k = &o[MICA__ATTENTION_K], *v = &o[MICA__ATTENTION_V];
    const mica__operand *y = &o[MICA__ATTENTION_Y], *mask = &o[MICA__ATTENTION_MASK];
    const mica__operand *pages = &o[MICA__ATTENTION_PAGES], *lengths = &o[MICA__ATTENTION_LENGTHS];
    const bool paged = mica__operand_present(pages);
    p->q_token = q->stride[0], p->q_head = q->stride[1];
    p->y_token = y->stride[0], p->y_head = y->stride[1];
    p->k_page = paged ? k->stride[0] : 0, p->v_page = paged ? v->stride[0] : 0;
    p->k_slot = k->stride[k->ndim - 3], p->v_slot = v->stride[v->ndim - 3];
    p->k_head = k->stride[k->ndim - 2], p->v_head = v->stride[v->ndim - 2];
    p->positions = o[MICA__ATTENTION_POSITIONS].stride[0];
    p->lengths = lengths->stride[0];
    p->sequences = o[MICA__ATTENTION_SEQUENCES].stride[0];
    p->tokens = (uint32_t)q->shape[0], p->heads = (uint32_t)q->shape[1], p->dim = (uint32_t)q->shape[2];
    p->kv_heads = (uint32_t)k->shape[k->ndim - 2], p->v_dim = (uint32_t)y->shape[2];
    p->slots = (uint32_t)k->shape[k->ndim - 3];
    p->capacity = p->slots;
    p->sequence_count = (uint32_t)lengths->shape[0];
    if (paged) {
        p->pages_sequence = pages->stride[0], p->pages_entry = pages->stride[1];
        p->pages = (uint32_t)k->shape[0], p->max_pages = (uint32_t)pages->shape[1];
        p->capacity = (uint64_t)p->slots * p->max_pages;
        p->flags |= MK_HAS_PAGES;
    }
    if (mica__operand_present(mask)) {
        p->mask_head = mask->ndim > 2 && mask->shape[0] > 1 ? mask->stride[0] : 0;
        p->mask_token = mask->stride[mask->ndim - 2], p->mask_key = mask->stride[mask->ndim - 1];
        p->mask_keys =
            mask->shape[mask->ndim - 1] > UINT32_MAX ? UINT32_MAX : (uint32_t)mask->shape[mask->ndim - 1];
        p->mask_type = mica__gpu_type(mask->dtype);
        p->flags |= MK_HAS_MASK;
    }
    p->flags |= mica__operand_present(&o[MICA__ATTENTION_SEQUENCES]) ? MK_HAS_SEQUENCES : 0;
    p->flags |= o[MICA__ATTENTION_POSITIONS].dtype == MICA_DTYPE_I32 ? MK_SIGNED_POSITIONS : 0;
    p->flags |= lengths->dtype == MICA_DTYPE_I32 ? MK_SIGNED_LENGTHS : 0;
    p->q_type = mica__gpu_type(q->dtype), p->y_type = mica__gpu_type(y->dtype);
    p->k_type = type_of(k), p->v_type = type_of(v);
}

void mica__gpu_attention_describe(const mica__record *record, mk_attention_params *out)
{
    const mica_attention_params *attention = record->params;
    memset(out, 0, sizeof *out);
    set_operands(record, out);
    out->window = attention->window;
    out->flags |=
        (attention->ring != 0 ? MK_RING : 0) | (attention->bidirectional != 0 ? MK_BIDIRECTIONAL : 0);
    out->softcap = attention->softcap;
    out->scale = attention->scale != 0 ? attention->scale : 1.0f / sqrtf((float)out->dim);
    out->fault_code = mica__gpu_fault_code(record);
}

/* Tiles: many tokens share the keys of a tile, few leave them to be split. Returns ROWS. */
static uint32_t choose(const mica__device_info *info, mk_attention_params *p)
{
    const uint32_t shared = p->heads / p->kv_heads, ratio = shared > 0 ? shared : 1;
    uint32_t rows = p->tokens >= PREFILL_TOKENS ? PREFILL_ROWS
                    : ratio == 1                ? 1
                    : ratio <= 4                ? 4
                                                : DECODE_ROWS;
    if ((info->features & MICA__FEATURE_SLOW_BARRIER) != 0 && rows < DECODE_ROWS)
        rows = DECODE_ROWS; /* compiling takes such a device longer than running: fewer programs */
    while (rows > 1 && (rows * p->dim > Q_FLOATS || p->v_dim > 2 * MICA__MK_WG))
        rows = rows == 4 ? 1 : rows / 2;
    p->part_heads = ratio < rows ? ratio : rows;
    p->head_parts = (ratio + p->part_heads - 1) / p->part_heads;
    p->tile_tokens = p->tokens >= PREFILL_TOKENS ? rows / p->part_heads : 1;
    const uint64_t tiles = (p->tokens + p->tile_tokens - 1) / p->tile_tokens;
    const uint64_t groups = tiles * p->kv_heads * p->head_parts;
    uint64_t splits = groups < info->processors ? (2 * info->processors + groups - 1) / groups : 1;
    const uint64_t useful = (p->capacity + 2 * KEYS - 1) / (2 * KEYS);
    splits = splits > useful ? useful : splits;
    p->splits = (uint32_t)(splits > MOST_SPLITS ? MOST_SPLITS : splits);
    p->v_lanes = 1;
    while (p->v_lanes < p->v_dim && p->v_lanes < MICA__MK_WG)
        p->v_lanes *= 2;
    return rows;
}

static mica_status add_combine(const mica__record *record, const mk_attention_params *params, uint32_t rows,
                               uint32_t values, uint64_t bytes, mica__plan *plan)
{
    const mica_status status =
        mica__gpu_plan_next(plan, "attention/combine", (uint64_t)params->tokens * params->heads);
    if (status != MICA_OK)
        return status;
    mica__gpu_plan_constant(plan, "ROWS", rows);
    mica__gpu_plan_constant(plan, "VPER", values);
    mica__gpu_plan_scratch(plan, 0, bytes, MICA_ACCESS_READ);
    mica__gpu_plan_operand(plan, record, MICA__ATTENTION_Y, 0);
    mica__gpu_plan_params(plan, params, sizeof *params);
    return MICA_OK;
}

mica_status mica__gpu_plan_attention(const mica__record *record, const mica__device_info *info,
                                     mica__plan *plan)
{
    static const uint32_t slots[] = {
        MICA__ATTENTION_Q,       MICA__ATTENTION_K,         MICA__ATTENTION_V,     MICA__ATTENTION_POSITIONS,
        MICA__ATTENTION_LENGTHS, MICA__ATTENTION_SEQUENCES, MICA__ATTENTION_PAGES, MICA__ATTENTION_MASK};
    mk_attention_params params;
    mica_status status = mica__gpu_attention_check(record);
    if (status != MICA_OK)
        return status;
    if (record->operand_count != MICA__ATTENTION_SLOTS)
        return mica__fail(MICA_ERR_UNSUPPORTED, "attention: rope and kv_write are ops of their own");
    mica__gpu_attention_describe(record, &params);
    const uint32_t rows = choose(info, &params), values = (params.v_dim + MICA__MK_WG - 1) / MICA__MK_WG;
    const uint64_t tiles = (params.tokens + params.tile_tokens - 1) / params.tile_tokens;
    const uint64_t bytes =
        params.splits > 1 ? 4ull * params.tokens * params.heads * params.splits * (params.v_dim + 2) : 64;
    status = mica__gpu_plan_next(plan, "attention/part", tiles * params.kv_heads * params.head_parts);
    if (status == MICA_OK)
        status = mica__gpu_plan_groups(plan, params.splits, 1);
    if (status != MICA_OK)
        return status;
    mica__gpu_plan_constant(plan, "ROWS", rows);
    mica__gpu_plan_constant(plan, "VPER", values);
    for (uint32_t i = 0; i < sizeof slots / sizeof slots[0]; i++)
        mica__gpu_plan_operand(plan, record, slots[i], 0);
    mica__gpu_plan_operand(plan, record, MICA__ATTENTION_Y, 0);
    mica__gpu_plan_scratch(plan, 0, bytes, MICA_ACCESS_WRITE);
    mica__gpu_plan_fault(plan);
    mica__gpu_plan_params(plan, &params, sizeof params);
    return params.splits > 1 ? add_combine(record, &params, rows, values, bytes, plan) : MICA_OK;
}
