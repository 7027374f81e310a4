/* gpu_plan_rope.c - plans of rope and kv_write, which is a rope that rotates nothing. */
#include <math.h>
#include <string.h>

#include "backend/gpu/gpu_plan.h"
#include "base/status.h"

#define SUB 32u /* MK_SUB: work-items to a head */
#define CIRCLE 6.283185307179586476925286766559006L

/* Which slots of the record are what; rope's, or kv_write's. */
typedef struct slots {
    uint32_t x, positions, sequences, pages, cache;
} slots;

static const slots rope_slots = {MICA__ROPE_X, MICA__ROPE_POSITIONS, MICA__ROPE_SEQUENCES, MICA__ROPE_PAGES,
                                 MICA__ROPE_CACHE};
static const slots kv_slots = {MICA__KV_X, MICA__KV_POSITIONS, MICA__KV_SEQUENCES, MICA__KV_PAGES,
                               MICA__KV_CACHE};

static bool is_there(const mica__operand *operand)
{
    return mica__operand_present(operand);
}

static mica_status check(const mica__record *record, const slots *s)
{
    const uint16_t cache = record->operand[s->cache].dtype;
    const uint32_t indices = 1u << s->positions | 1u << s->sequences | 1u << s->pages;
    if (is_there(&record->operand[s->cache]) && !mica__gpu_is_float(cache) &&
        mica__gpu_cache_type(cache) < MK_Q8_0)
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "%s: the cache is %s; f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, iq4_nl and "
                          "turbo types are served",
                          mica_op_name((mica_op)record->op), mica_dtype_name((mica_dtype)cache));
    for (uint32_t o = 0; o < record->operand_count; o++) {
        const uint16_t dtype = record->operand[o].dtype;
        if ((indices >> o & 1) != 0 && is_there(&record->operand[o]) && dtype != MICA_DTYPE_I32 &&
            dtype != MICA_DTYPE_U32)
            return mica__fail(MICA_ERR_UNSUPPORTED, "%s: operand %u is %s; u32 and i32 are served",
                              mica_op_name((mica_op)record->op), o, mica_dtype_name((mica_dtype)dtype));
    }
    return mica__gpu_check_floats(record, ~(indices | 1u << s->cache));
}

/* Strides of [tokens, heads, dim], or of [tokens, dim], which has one head. */
static void set_strides(const mica__operand *operand, mk_u64 *token, mk_u64 *head)
{
    *token = operand->stride[0];
    *head = operand->ndim == 3 ? operand->stride[1] : 0;
}

static mica_status set_rows(const mica__record *record, const slots *s, mk_rope_params *params)
{
    const mica__operand *x = &record->operand[s->x], *positions = &record->operand[s->positions];
    const uint64_t heads = x->ndim == 3 ? x->shape[1] : 1, dim = x->shape[x->ndim - 1];
    if (heads > UINT32_MAX || dim > INT32_MAX || x->shape[0] > UINT32_MAX / heads)
        return mica__fail(
            MICA_ERR_UNSUPPORTED, "%s: x has %llu tokens of %llu heads, 2^32 - 1 rows are served",
            mica_op_name((mica_op)record->op), (unsigned long long)x->shape[0], (unsigned long long)heads);
    set_strides(x, &params->x_token, &params->x_head);
    params->rows = (uint32_t)(x->shape[0] * heads);
    params->heads = (uint32_t)heads;
    params->dim = (uint32_t)dim;
    params->x_type = mica__gpu_type(x->dtype);
    params->positions = positions->stride[positions->ndim - 1];
    params->positions_axis = positions->ndim > 1 ? positions->stride[0] : 0;
    params->axis_count = positions->ndim > 1 ? (uint32_t)positions->shape[0] : 1;
    params->flags |= positions->dtype == MICA_DTYPE_I32 ? MK_SIGNED_POSITIONS : 0;
    return MICA_OK;
}

/* Counts over 2^31 are refused, so that a negative index lies outside as the great number that it looks like. */
static mica_status set_cache(const mica__record *record, const slots *s, uint32_t ring,
                             mk_rope_params *params)
{
    const mica__operand *cache = &record->operand[s->cache], *pages = &record->operand[s->pages];
    const mica__operand *sequences = &record->operand[s->sequences];
    const bool paged = is_there(pages);
    if (!is_there(cache))
        return MICA_OK;
    const uint64_t room = cache->shape[paged], count = paged ? cache->shape[0] : 1;
    if (room > INT32_MAX || count > INT32_MAX ||
        (paged && (pages->shape[0] > INT32_MAX || pages->shape[1] > INT32_MAX)))
        return mica__fail(
            MICA_ERR_UNSUPPORTED, "%s: a cache of %llu pages of %llu slots, 2^31 - 1 of each are served",
            mica_op_name((mica_op)record->op), (unsigned long long)count, (unsigned long long)room);
    params->cache_page = paged ? cache->stride[0] : 0;
    params->cache_slot = cache->stride[paged];
    params->cache_head = cache->stride[1 + paged];
    params->cache_type = mica__gpu_cache_type(cache->dtype);
    params->slots = (uint32_t)room;
    params->pages = (uint32_t)count;
    params->flags |= MK_HAS_CACHE | (ring ? MK_RING : 0);
    if (!paged)
        return MICA_OK;
    params->flags |= MK_HAS_PAGES | (is_there(sequences) ? MK_HAS_SEQUENCES : 0);
    params->sequences = sequences->stride[0];
    params->sequence_count = (uint32_t)pages->shape[0];
    params->max_pages = (uint32_t)pages->shape[1];
    params->pages_sequence = pages->stride[0];
    params->pages_entry = pages->stride[1];
    return MICA_OK;
}

/* A number of [0, 1] with 64 bits behind the point; 1 is the greatest below it. */
static uint64_t fraction(long double value)
{
    const long double scaled = value * 18446744073709551616.0L;
    return scaled >= 18446744073709551615.0L ? UINT64_MAX : (uint64_t)scaled;
}

/* They fall from pair to pair, or, with theta below 1, grow: then they are counted from the last. */
mica_status mica__gpu_rope_frequencies(const mica_rope_params *rope, mk_rope_params *params)
{
    const uint32_t pairs = rope->rotary_dims / 2;
    const long double theta = (long double)rope->theta, dims = (long double)rope->frequency_dims;
    const bool grows = theta < 1.0L;
    long double base = fabsl((long double)rope->position_scale) / CIRCLE;
    if (pairs >> MK_ROPE_POWERS != 0)
        return mica__fail(MICA_ERR_UNSUPPORTED, "rope: params.rotary_dims is %u, at most %u are served",
                          rope->rotary_dims, (2u << MK_ROPE_POWERS) - 1);
    if (grows)
        base *= powl(theta, -2.0L * (long double)(pairs - 1) / dims);
    int exponent = 0;
    params->base = fraction(frexpl(base, &exponent));
    params->exponent = exponent;
    for (uint32_t k = 0; k < MK_ROPE_POWERS; k++)
        params->power[k] = fraction(powl(grows ? theta : 1.0L / theta, 2.0L * (long double)(1u << k) / dims));
    params->axes = rope->axes;
    for (uint32_t a = 0; a < 4; a++)
        params->sections[a] = rope->sections[a];
    params->rotary = rope->rotary_dims;
    params->attention_scale = rope->attention_scale;
    params->flags |= (rope->mode == MICA_ROPE_NEOX ? MK_NEOX : 0) | (grows ? MK_REVERSED : 0) |
                     (rope->position_scale < 0 ? MK_NEGATIVE : 0);
    return MICA_OK;
}

/* What rope has and kv_write has not. */
static mica_status set_rope(const mica__record *record, mk_rope_params *params)
{
    const mica__rope_record *rope = record->params;
    const mica__operand *y = &record->operand[MICA__ROPE_Y],
                        *weight = &record->operand[MICA__ROPE_NORM_WEIGHT];
    const mica__operand *factors = &record->operand[MICA__ROPE_FACTORS];
    params->flags |= rope->norm ? MK_NORM : 0;
    params->eps = rope->eps;
    if (rope->norm && is_there(weight)) {
        params->flags |= MK_HAS_WEIGHT;
        params->weight_type = mica__gpu_type(weight->dtype);
    }
    if (is_there(factors)) {
        params->flags |= MK_HAS_FACTORS;
        params->factors = factors->stride[0];
    }
    if (is_there(y)) {
        params->flags |= MK_HAS_Y;
        params->y_type = mica__gpu_type(y->dtype);
        set_strides(y, &params->y_token, &params->y_head);
    }
    return mica__gpu_rope_frequencies(&rope->rope, params);
}

/* What the kernel asks of the parameters again and again, as constants. */
static void fix(const mk_rope_params *params, mica__plan *plan)
{
    mica__gpu_plan_constant(plan, "FIXED", 1);
    mica__gpu_plan_constant(plan, "FLAGS", params->flags);
    mica__gpu_plan_constant(plan, "AXES", params->axes);
    mica__gpu_plan_constant(plan, "X_TYPE", params->x_type);
    mica__gpu_plan_constant(plan, "WEIGHT_TYPE", params->weight_type);
    mica__gpu_plan_constant(plan, "Y_TYPE", params->y_type);
    mica__gpu_plan_constant(plan, "CACHE_TYPE", params->cache_type);
}

static mica_status next(const mica__record *record, mk_rope_params *params, bool fixed, mica__plan *plan)
{
    const uint32_t rows = MICA__MK_WG / SUB; /* of a group */
    params->fault_code = mica__gpu_fault_code(record);
    const mica_status status =
        mica__gpu_plan_next(plan, "rope/rope", ((uint64_t)params->rows + rows - 1) / rows);
    if (status == MICA_OK && params->cache_type > MK_Q8_0)
        mica__gpu_plan_constant(plan, params->cache_type >= MK_TURBO2 ? "TURBO" : "CODED", 1);
    if (status == MICA_OK && fixed)
        fix(params, plan);
    return status;
}

static mica_status plan_rope(const mica__record *record, bool fixed, mica__plan *plan)
{
    const mica__rope_record *rope = record->params;
    mk_rope_params params;
    memset(&params, 0, sizeof params);
    mica_status status = check(record, &rope_slots);
    if (status == MICA_OK)
        status = set_rows(record, &rope_slots, &params);
    if (status == MICA_OK)
        status = set_cache(record, &rope_slots, rope->ring, &params);
    if (status == MICA_OK)
        status = set_rope(record, &params);
    if (status == MICA_OK)
        status = next(record, &params, fixed, plan);
    if (status != MICA_OK)
        return status;
    for (uint32_t o = 0; o < MICA__ROPE_SLOTS; o++)
        mica__gpu_plan_operand(plan, record, o, 0);
    mica__gpu_plan_fault(plan);
    mica__gpu_plan_params(plan, &params, sizeof params);
    return MICA_OK;
}

static mica_status plan_kv_write(const mica__record *record, bool fixed, mica__plan *plan)
{
    /* In the order of the entry; x where kv_write has nothing and the kernel does not look. */
    static const uint32_t slot[] = {MICA__KV_X,         MICA__KV_POSITIONS, MICA__KV_X, MICA__KV_X,
                                    MICA__KV_SEQUENCES, MICA__KV_PAGES,     MICA__KV_X, MICA__KV_CACHE};
    const mica_kv_params *kv = record->params;
    mk_rope_params params;
    memset(&params, 0, sizeof params);
    mica_status status = check(record, &kv_slots);
    if (status == MICA_OK)
        status = set_rows(record, &kv_slots, &params);
    if (status == MICA_OK)
        status = set_cache(record, &kv_slots, kv->ring, &params);
    if (status == MICA_OK)
        status = next(record, &params, fixed, plan);
    if (status != MICA_OK)
        return status;
    for (uint32_t i = 0; i < sizeof slot / sizeof slot[0]; i++)
        mica__gpu_plan_operand(plan, record, slot[i], 0);
    mica__gpu_plan_fault(plan);
    mica__gpu_plan_params(plan, &params, sizeof params);
    return MICA_OK;
}

mica_status mica__gpu_plan_rope(const mica__record *record, const mica__device_info *info, mica__plan *plan)
{
    return mica__gpu_has_own_texts(info) ? plan_rope(record, true, plan) : MICA_ERR_KERNEL_NOT_FOUND;
}

mica_status mica__gpu_plan_rope_any(const mica__record *record, const mica__device_info *info,
                                    mica__plan *plan)
{
    (void)info;
    return plan_rope(record, false, plan);
}

mica_status mica__gpu_plan_kv_write(const mica__record *record, const mica__device_info *info,
                                    mica__plan *plan)
{
    return mica__gpu_has_own_texts(info) ? plan_kv_write(record, true, plan) : MICA_ERR_KERNEL_NOT_FOUND;
}

mica_status mica__gpu_plan_kv_write_any(const mica__record *record, const mica__device_info *info,
                                        mica__plan *plan)
{
    (void)info;
    return plan_kv_write(record, false, plan);
}
