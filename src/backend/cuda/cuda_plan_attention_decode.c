/* cuda_plan_attention_decode.c - attention of few tokens by native/attention_decode.cu: a cluster of groups for each token and kv head. */
#include "backend/cuda/cuda_plan.h"

#include <string.h>

#include "backend/gpu/gpu_plan_attention.h"
#include "base/env.h"

#define LEAST_COMPUTE 90u
#define MOST_TOKENS 15u
#define MOST_DIM 256u
#define MOST_SPLITS 8u    /* groups of a cluster */
#define MOST_ROWS 4u      /* query heads of a group */
#define LEAST_KEYS 128u   /* of attention_decode.cu */
#define EACH 8u           /* values of a lane in attention_decode.cu */
#define LEAST_ROTATED 32u /* values of a head whose blocks of q8_0 end where it does */
#define CACHE_ALIGN 16u

static bool is_turbo(uint32_t type)
{
    return type >= MK_TURBO2;
}

static bool is_even(uint64_t stride)
{
    return stride % CACHE_ALIGN == 0;
}

/* Heads of a cache begin where 16 bytes at once can be read, or are blocks, which are read two bytes at a time, or one. */
static bool reads_cache(uint32_t type, uint64_t page, uint64_t slot, uint64_t head)
{
    return type == MK_Q8_0 || is_turbo(type) || (is_even(page) && is_even(slot) && is_even(head));
}

/* With rope and kv_write: one token, whole heads of f32 in pairs that lie in neighbouring lanes or half a head apart. */
static bool can_rotate(const mica__record *record, const mk_attention_params *p)
{
    const mica__attention_record *params = record->params;
    const mica__operand *o = record->operand;
    return p->tokens == 1 && params->rope.rotary_dims == p->dim && (p->dim & (p->dim - 1)) == 0 &&
           p->dim >= LEAST_ROTATED && o[MICA__ATTENTION_Q].dtype == MICA_DTYPE_F32 &&
           o[MICA__ATTENTION_NEW_K].dtype == MICA_DTYPE_F32 &&
           o[MICA__ATTENTION_NEW_V].dtype == MICA_DTYPE_F32 && o[MICA__ATTENTION_NEW_K].ndim == 3 &&
           o[MICA__ATTENTION_NEW_V].ndim == 3;
}

bool mica__cuda_attention_decode_serves(const mica__record *record, const mica__device_info *info)
{
    mk_attention_params p;
    if (info->compute < LEAST_COMPUTE || mica__env_debug(MICA__DEBUG_NONATIVE) ||
        mica__operand_present(&record->operand[MICA__ATTENTION_MASK]) ||
        !mica__gpu_attention_is_simple(record) || mica__gpu_attention_check(record) != MICA_OK)
        return false;
    mica__gpu_attention_describe(record, &p);
    const bool turbo = is_turbo(p.k_type) || is_turbo(p.v_type);
    if ((p.k_type > MK_Q8_0 && !is_turbo(p.k_type)) || (p.v_type > MK_Q8_0 && !is_turbo(p.v_type)) ||
        (turbo && record->operand_count != MICA__ATTENTION_SLOTS)) /* nobody makes such blocks here */
        return false;
    return p.tokens <= MOST_TOKENS && p.dim == p.v_dim && p.dim % EACH == 0 && p.dim <= MOST_DIM &&
           reads_cache(p.k_type, p.k_page, p.k_slot, p.k_head) &&
           reads_cache(p.v_type, p.v_page, p.v_slot, p.v_head) &&
           (record->operand_count == MICA__ATTENTION_SLOTS || can_rotate(record, &p));
}

/* Heads to a group and parts of the keys. Returns ROWS. */
static uint32_t choose(const mica__device_info *info, mk_attention_params *p)
{
    const uint32_t ratio = p->heads / p->kv_heads;
    uint32_t rows = 1;
    while (rows < ratio && rows < MOST_ROWS)
        rows *= 2;
    p->part_heads = rows < ratio ? rows : ratio;
    p->head_parts = (ratio + p->part_heads - 1) / p->part_heads;
    const uint64_t groups = (uint64_t)p->tokens * p->kv_heads * p->head_parts;
    for (p->splits = MOST_SPLITS; p->splits > 1; p->splits /= 2)
        if (groups * p->splits <= 2ull * info->processors &&
            (uint64_t)p->splits / 2 * LEAST_KEYS < p->capacity)
            break;
    return rows;
}

static mica_status set_rope(const mica__record *record, mk_attention_decode_params *p)
{
    const mica__attention_record *params = record->params;
    const mica__operand *o = record->operand, *factors = &o[MICA__ATTENTION_FACTORS];
    p->new_k_head = o[MICA__ATTENTION_NEW_K].stride[1];
    p->new_v_head = o[MICA__ATTENTION_NEW_V].stride[1];
    if (mica__operand_present(factors)) {
        p->rope.flags |= MK_HAS_FACTORS;
        p->rope.factors = factors->stride[0];
    }
    return mica__gpu_rope_frequencies(&params->rope, &p->rope);
}

/* In the order of the entry; q in the place of what plain attention has not. */
static void bind(const mica__record *record, bool rotated, mica__plan *plan)
{
    static const uint32_t slots[] = {
        MICA__ATTENTION_Q,       MICA__ATTENTION_K,         MICA__ATTENTION_V,     MICA__ATTENTION_POSITIONS,
        MICA__ATTENTION_LENGTHS, MICA__ATTENTION_SEQUENCES, MICA__ATTENTION_PAGES, MICA__ATTENTION_FACTORS,
        MICA__ATTENTION_NEW_K,   MICA__ATTENTION_NEW_V,     MICA__ATTENTION_Y};
    const uint32_t caches = 1u << MICA__ATTENTION_K | 1u << MICA__ATTENTION_V;
    const uint32_t ahead = (rotated ? caches : 0) | 1u << MICA__ATTENTION_POSITIONS |
                           1u << MICA__ATTENTION_LENGTHS | 1u << MICA__ATTENTION_SEQUENCES |
                           1u << MICA__ATTENTION_PAGES | 1u << MICA__ATTENTION_FACTORS;
    for (uint32_t i = 0; i < sizeof slots / sizeof slots[0]; i++) {
        const bool there = rotated || slots[i] < MICA__ATTENTION_SLOTS;
        mica__gpu_plan_operand(plan, record, there ? slots[i] : (uint32_t)MICA__ATTENTION_Q,
                               !there ? MICA_ACCESS_READ
                               : (ahead >> slots[i] & 1) != 0
                                   ? record->operand[slots[i]].access | MICA__BIND_AHEAD
                                   : 0);
    }
    mica__gpu_plan_fault(plan);
}

mica_status mica__cuda_plan_attention_decode(const mica__record *record, const mica__device_info *info,
                                             mica__plan *plan)
{
    const bool rotated = record->operand_count != MICA__ATTENTION_SLOTS;
    mk_attention_decode_params p;
    memset(&p, 0, sizeof p);
    mica__gpu_attention_describe(record, &p.a);
    const uint32_t rows = choose(info, &p.a);
    while (p.slots_shift < 32 && (uint64_t)1 << p.slots_shift != p.a.slots)
        p.slots_shift++;
    mica_status status = mica__gpu_plan_next(plan, "attention_decode/attention_decode",
                                             (uint64_t)p.a.tokens * p.a.kv_heads * p.a.head_parts);
    if (status == MICA_OK)
        status = mica__gpu_plan_groups(plan, p.a.splits, 1);
    if (status == MICA_OK && rotated)
        status = set_rope(record, &p);
    if (status != MICA_OK)
        return status;
    mica__gpu_plan_constant(plan, "DIM", p.a.dim);
    mica__gpu_plan_constant(plan, "ROWS", rows);
    mica__gpu_plan_constant(plan, "SPLITS", p.a.splits);
    mica__gpu_plan_constant(plan, "KT", p.a.k_type);
    mica__gpu_plan_constant(plan, "VT", p.a.v_type);
    mica__gpu_plan_constant(plan, "ROTATED", rotated);
    if (is_turbo(p.a.k_type) || is_turbo(p.a.v_type))
        mica__gpu_plan_constant(plan, "TURBO", 1);
    bind(record, rotated, plan);
    mica__gpu_plan_params(plan, &p, sizeof p);
    return MICA_OK;
}
