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
#define TURBO 64u          /* values of a turbo block, which are transformed together */
#define HADAMARD_RUNS 16u  /* blocks that a group transforms */

static bool is_there(const mica__record *record, uint32_t slot)
{
    return mica__operand_present(&record->operand[slot]);
}

bool mica__gpu_attention_is_simple(const mica__record *record)
{
    return !is_there(record, MICA__ATTENTION_SINKS) && !is_there(record, MICA__ATTENTION_SLOPES) &&
           !is_there(record, MICA__ATTENTION_KEYS) && !is_there(record, MICA__ATTENTION_LSE) &&
           (!is_there(record, MICA__ATTENTION_MASK) ||
            record->operand[MICA__ATTENTION_MASK].dtype != MICA_DTYPE_BOOL);
}

bool mica__gpu_attention_is_plain(const mica__record *record)
{
    const mica__operand *o = record->operand;
    return mica__gpu_attention_is_simple(record) &&
           mica__gpu_cache_type(o[MICA__ATTENTION_K].dtype) <= MK_Q8_0 &&
           mica__gpu_cache_type(o[MICA__ATTENTION_V].dtype) <= MK_Q8_0;
}

mica_status mica__gpu_attention_check(const mica__record *record)
{
    const mica__operand *q = &record->operand[MICA__ATTENTION_Q], *y = &record->operand[MICA__ATTENTION_Y];
    uint32_t floats = 1u << MICA__ATTENTION_Q | 1u << MICA__ATTENTION_Y | 1u << MICA__ATTENTION_SINKS |
                      1u << MICA__ATTENTION_SLOPES | 1u << MICA__ATTENTION_LSE;
    if (mica__gpu_cache_type(record->operand[MICA__ATTENTION_K].dtype) < MK_Q8_0)
        floats |= 1u << MICA__ATTENTION_K;
    if (mica__gpu_cache_type(record->operand[MICA__ATTENTION_V].dtype) < MK_Q8_0)
        floats |= 1u << MICA__ATTENTION_V;
    if (record->operand[MICA__ATTENTION_MASK].dtype != MICA_DTYPE_BOOL)
        floats |= 1u << MICA__ATTENTION_MASK;
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
        p->mask_type = mask->dtype == MICA_DTYPE_BOOL ? MK_MASK_BOOL : mica__gpu_type(mask->dtype);
        p->flags |= MK_HAS_MASK;
    }
    p->flags |= mica__operand_present(&o[MICA__ATTENTION_SEQUENCES]) ? MK_HAS_SEQUENCES : 0;
    p->flags |= o[MICA__ATTENTION_POSITIONS].dtype == MICA_DTYPE_I32 ? MK_SIGNED_POSITIONS : 0;
    p->flags |= lengths->dtype == MICA_DTYPE_I32 ? MK_SIGNED_LENGTHS : 0;
    p->q_type = mica__gpu_type(q->dtype), p->y_type = mica__gpu_type(y->dtype);
    p->k_type = mica__gpu_cache_type(k->dtype), p->v_type = mica__gpu_cache_type(v->dtype);
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

/* Tiles: many tokens share the keys of a tile, unless each has chosen its own; few leave them to be split. Returns ROWS. */
static uint32_t choose(const mica__device_info *info, bool chosen, mk_attention_params *p)
{
    const uint32_t shared = p->heads / p->kv_heads, ratio = shared > 0 ? shared : 1;
    uint32_t rows = p->tokens >= PREFILL_TOKENS && !chosen ? PREFILL_ROWS
                    : ratio == 1                           ? 1
                    : ratio <= 4                           ? 4
                                                           : DECODE_ROWS;
    if ((info->features & MICA__FEATURE_SLOW_BARRIER) != 0 && rows < DECODE_ROWS)
        rows = DECODE_ROWS; /* compiling takes such a device longer than running: fewer programs */
    while (rows > 1 && (rows * p->dim > Q_FLOATS || p->v_dim > 2 * MICA__MK_WG))
        rows = rows == 4 ? 1 : rows / 2;
    p->part_heads = ratio < rows ? ratio : rows;
    p->head_parts = (ratio + p->part_heads - 1) / p->part_heads;
    p->tile_tokens = p->tokens >= PREFILL_TOKENS && !chosen ? rows / p->part_heads : 1;
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

static void describe_more(const mica__record *record, mk_attention_more_params *p)
{
    const mica__operand *o = record->operand;
    const mica__operand *sinks = &o[MICA__ATTENTION_SINKS], *slopes = &o[MICA__ATTENTION_SLOPES];
    const mica__operand *keys = &o[MICA__ATTENTION_KEYS], *lse = &o[MICA__ATTENTION_LSE];
    if (is_there(record, MICA__ATTENTION_SINKS)) {
        p->more |= MK_HAS_SINKS;
        p->sinks = sinks->stride[0], p->sinks_type = mica__gpu_type(sinks->dtype);
    }
    if (is_there(record, MICA__ATTENTION_SLOPES)) {
        p->more |= MK_HAS_SLOPES;
        p->slopes = slopes->stride[0], p->slopes_type = mica__gpu_type(slopes->dtype);
    }
    if (is_there(record, MICA__ATTENTION_KEYS)) {
        p->more |= MK_HAS_KEYS;
        p->keys_token = keys->stride[0], p->keys_key = keys->stride[1];
        p->keys = (uint32_t)keys->shape[1];
        p->a.capacity = p->a.capacity < p->keys ? p->a.capacity : p->keys;
    }
    if (is_there(record, MICA__ATTENTION_LSE)) {
        p->more |= MK_HAS_LSE;
        p->lse_token = lse->stride[0], p->lse_head = lse->stride[1];
    }
}

/* An attention that is being planned: its parameters, and the constants of its program. */
typedef struct attention_plan {
    const mica__record *record;
    mk_attention_more_params params;
    bool plain;
    /* keys or values are turbo blocks: q goes into their basis first, y comes back out of it */
    bool hadamard_q, hadamard_y;
    uint32_t rows, values;
    uint64_t partial_bytes, q_at, q_bytes, y_at, y_bytes; /* in scratch: f32 in the blocks' basis */
} attention_plan;

static void set_program(const attention_plan *a, mica__plan *plan)
{
    mica__gpu_plan_constant(plan, "ROWS", a->rows);
    mica__gpu_plan_constant(plan, "VPER", a->values);
    if (!a->plain)
        mica__gpu_plan_constant(plan, "MORE", 1);
    if (a->hadamard_q || a->hadamard_y)
        mica__gpu_plan_constant(plan, "TURBO", 1);
}

/* q, and y: the operand, or what stands for it in scratch. */
static void bind_q(const attention_plan *a, mica__plan *plan)
{
    if (a->hadamard_q)
        mica__gpu_plan_scratch(plan, a->q_at, a->q_bytes, MICA_ACCESS_READ);
    else
        mica__gpu_plan_operand(plan, a->record, MICA__ATTENTION_Q, 0);
}

static void bind_y(const attention_plan *a, mica__plan *plan)
{
    if (a->hadamard_y)
        mica__gpu_plan_scratch(plan, a->y_at, a->y_bytes, MICA_ACCESS_WRITE);
    else
        mica__gpu_plan_operand(plan, a->record, MICA__ATTENTION_Y, 0);
}

/* Those who have nothing more get the parameters that all kernels know. */
static void set_params(const attention_plan *a, mica__plan *plan)
{
    if (a->plain)
        mica__gpu_plan_params(plan, &a->params.a, sizeof a->params.a);
    else
        mica__gpu_plan_params(plan, &a->params, sizeof a->params);
}

static mica_status add_combine(const attention_plan *a, mica__plan *plan)
{
    const mica_status status =
        mica__gpu_plan_next(plan, "attention/combine", (uint64_t)a->params.a.tokens * a->params.a.heads);
    if (status != MICA_OK)
        return status;
    set_program(a, plan);
    mica__gpu_plan_scratch(plan, 0, a->partial_bytes, MICA_ACCESS_READ);
    bind_y(a, plan);
    if (!a->plain) {
        mica__gpu_plan_operand(plan, a->record, MICA__ATTENTION_SINKS, 0);
        mica__gpu_plan_operand(plan, a->record, MICA__ATTENTION_LSE, 0);
    }
    set_params(a, plan);
    return MICA_OK;
}

static mica_status add_part(const attention_plan *a, mica__plan *plan)
{
    static const uint32_t slots[] = {
        MICA__ATTENTION_K,         MICA__ATTENTION_V,     MICA__ATTENTION_POSITIONS, MICA__ATTENTION_LENGTHS,
        MICA__ATTENTION_SEQUENCES, MICA__ATTENTION_PAGES, MICA__ATTENTION_MASK};
    static const uint32_t more[] = {MICA__ATTENTION_SINKS, MICA__ATTENTION_SLOPES, MICA__ATTENTION_KEYS,
                                    MICA__ATTENTION_LSE};
    const mk_attention_params *p = &a->params.a;
    const uint64_t tiles = (p->tokens + p->tile_tokens - 1) / p->tile_tokens;
    mica_status status = mica__gpu_plan_next(plan, "attention/part", tiles * p->kv_heads * p->head_parts);
    if (status == MICA_OK)
        status = mica__gpu_plan_groups(plan, p->splits, 1);
    if (status != MICA_OK)
        return status;
    set_program(a, plan);
    bind_q(a, plan);
    for (uint32_t i = 0; i < sizeof slots / sizeof slots[0]; i++)
        mica__gpu_plan_operand(plan, a->record, slots[i], 0);
    bind_y(a, plan);
    mica__gpu_plan_scratch(plan, 0, a->partial_bytes, MICA_ACCESS_WRITE);
    for (uint32_t i = 0; !a->plain && i < sizeof more / sizeof more[0]; i++)
        mica__gpu_plan_operand(plan, a->record, more[i], 0);
    mica__gpu_plan_fault(plan);
    set_params(a, plan);
    return MICA_OK;
}

/* Decides where the transformed q and y lie, and has the kernel read and write them there. */
static void place_turned(attention_plan *a)
{
    mk_attention_params *p = &a->params.a;
    const uint64_t rows = (uint64_t)p->tokens * p->heads;
    a->hadamard_q = p->k_type >= MK_TURBO2, a->hadamard_y = p->v_type >= MK_TURBO2;
    a->q_at = (a->partial_bytes + 63) / 64 * 64;
    a->q_bytes = a->hadamard_q ? (4 * rows * p->dim + 63) / 64 * 64 : 0;
    a->y_at = a->q_at + a->q_bytes;
    a->y_bytes = a->hadamard_y ? (4 * rows * p->v_dim + 63) / 64 * 64 : 0;
    if (a->hadamard_q)
        p->q_type = MICA__MK_F32, p->q_head = 4ull * p->dim, p->q_token = p->heads * p->q_head;
    if (a->hadamard_y)
        p->y_type = MICA__MK_F32, p->y_head = 4ull * p->v_dim, p->y_token = p->heads * p->y_head;
}

/* q into the basis of the blocks, or y back: runs of TURBO values of each head. */
static mica_status add_hadamard(const attention_plan *a, bool back, mica__plan *plan)
{
    const uint32_t slot = back ? MICA__ATTENTION_Y : MICA__ATTENTION_Q;
    const mica__operand *o = &a->record->operand[slot];
    const uint64_t dim = o->shape[2], scratch_head = 4 * dim;
    const uint32_t bytes = o->dtype == MICA_DTYPE_F32 ? 4 : 2, own = back ? 1 : 0;
    mk_hadamard_params p;
    memset(&p, 0, sizeof p);
    p.ndim = 4;
    p.shape[0] = (uint32_t)o->shape[0], p.shape[1] = (uint32_t)o->shape[1],
    p.shape[2] = (uint32_t)(dim / TURBO);
    p.stride[own][0] = o->stride[0], p.stride[own][1] = o->stride[1], p.stride[own][2] = TURBO * bytes;
    p.stride[1 - own][0] = o->shape[1] * scratch_head, p.stride[1 - own][1] = scratch_head,
                 p.stride[1 - own][2] = 4 * TURBO;
    p.step[own] = bytes, p.step[1 - own] = 4;
    p.n = p.length = TURBO, p.apart = 1, p.columns = HADAMARD_RUNS;
    p.runs = o->shape[0] * o->shape[1] * (dim / TURBO);
    p.flags = MK_HADAMARD_FIRST | MK_HADAMARD_LAST | MK_HADAMARD_SIGNS | MK_HADAMARD_TURBO |
              (back ? MK_HADAMARD_UNDO : 0);
    p.x_type = back ? MICA__MK_F32 : mica__gpu_type(o->dtype);
    p.y_type = back ? mica__gpu_type(o->dtype) : MICA__MK_F32;
    p.scale = 0.125f;
    const mica_status status =
        mica__gpu_plan_next(plan, "hadamard/hadamard", (p.runs + HADAMARD_RUNS - 1) / HADAMARD_RUNS);
    if (status != MICA_OK)
        return status;
    for (uint32_t i = 0; i < 2; i++) { /* x, and signs, which are not read */
        if (back)
            mica__gpu_plan_scratch(plan, a->y_at, a->y_bytes, MICA_ACCESS_READ);
        else
            mica__gpu_plan_operand(plan, a->record, slot, 0);
    }
    if (back)
        mica__gpu_plan_operand(plan, a->record, slot, 0);
    else
        mica__gpu_plan_scratch(plan, a->q_at, a->q_bytes, MICA_ACCESS_WRITE);
    mica__gpu_plan_scratch(plan, a->y_at + a->y_bytes, 64, MICA_ACCESS_WRITE); /* one pass: not touched */
    mica__gpu_plan_params(plan, &p, sizeof p);
    return MICA_OK;
}

mica_status mica__gpu_plan_attention(const mica__record *record, const mica__device_info *info,
                                     mica__plan *plan)
{
    attention_plan a = {.record = record, .plain = mica__gpu_attention_is_plain(record)};
    mk_attention_params *p = &a.params.a;
    mica_status status = mica__gpu_attention_check(record);
    if (status != MICA_OK)
        return status;
    if (record->operand_count != MICA__ATTENTION_SLOTS)
        return mica__fail(MICA_ERR_UNSUPPORTED, "attention: rope and kv_write are ops of their own");
    memset(&a.params, 0, sizeof a.params);
    mica__gpu_attention_describe(record, p);
    const uint64_t room = p->capacity;
    describe_more(record, &a.params);
    a.rows = choose(info, is_there(record, MICA__ATTENTION_KEYS), p);
    p->capacity = room; /* which a list does not change: it only says how many keys there are to split */
    a.values = (p->v_dim + MICA__MK_WG - 1) / MICA__MK_WG;
    a.partial_bytes = p->splits > 1 ? 4ull * p->tokens * p->heads * p->splits * (p->v_dim + 2) : 64;
    place_turned(&a);
    status = a.hadamard_q ? add_hadamard(&a, false, plan) : MICA_OK;
    if (status == MICA_OK)
        status = add_part(&a, plan);
    if (status == MICA_OK && p->splits > 1)
        status = add_combine(&a, plan);
    return status == MICA_OK && a.hadamard_y ? add_hadamard(&a, true, plan) : status;
}
