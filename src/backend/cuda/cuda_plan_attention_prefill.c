/* cuda_plan_attention_prefill.c - attention of many tokens by native/attention_prefill.cu. Odd or long heads and few tokens are for other rows. */
#include "backend/cuda/cuda_plan.h"

#include "backend/gpu/gpu_plan_attention.h"
#include "base/env.h"

#define LEAST_COMPUTE 80u /* asynchronous copies, shuffled minima */
#define LEAST_TOKENS 16u  /* fewer leave most of a tile's rows empty */
#define MOST_DIM 256u     /* whose sums registers hold */
#define SHARED_DIM 128u   /* beyond, queries are in shared memory, and tiles have fewer keys */
#define GROUP 128u
#define WIDE_TOKENS 64u /* from here on a group may have twice as many work-items */
#define KEYS 64u
#define STATIC_BYTES 8192u /* more than the kernel's own arrays take */
#define PIECE 16u          /* bytes copied at once; elements deep that a product is */
#define BLOCK_VALUES 32u   /* of q8_0 */
#define BLOCK_BYTES 34u

/* What the rows of a cache are a multiple of wherever they begin: pieces, or for blocks what the length of a row allows. */
static uint64_t alignment(uint32_t type, uint64_t dim)
{
    const uint64_t bytes = dim / BLOCK_VALUES * BLOCK_BYTES;
    return type == MK_Q8_0 ? bytes & (~bytes + 1) : PIECE;
}

static bool is_aligned(const mica__operand *cache, uint64_t align)
{
    for (uint32_t i = 0; i + 1 < cache->ndim; i++)
        if (cache->stride[i] % align != 0)
            return false;
    return cache->offset % align == 0;
}

static bool fits(uint64_t dim)
{
    return dim % PIECE == 0 && dim <= MOST_DIM;
}

static bool is_f32(uint32_t type)
{
    return type == mica__gpu_type(MICA_DTYPE_F32);
}

/* Of a row in shared memory as the matrix units read it: f16, in two parts where one does not hold the numbers. */
static uint64_t row_bytes(uint32_t type, uint64_t dim)
{
    return (is_f32(type) || type == MK_Q8_0 ? 4 : 2) * dim + PIECE;
}

/* Of a row as it comes: blocks that begin somewhere in a piece, in an odd number of pieces; others are converted where they lie. */
static uint64_t raw_bytes(uint32_t type, uint64_t dim)
{
    const uint64_t bytes = dim / BLOCK_VALUES * BLOCK_BYTES + PIECE - alignment(type, dim);
    return type == MK_Q8_0 ? ((bytes + PIECE - 1) / PIECE | 1) * PIECE : row_bytes(type, dim);
}

static bool has_f32(const mk_attention_params *p)
{
    return is_f32(p->k_type) || is_f32(p->v_type);
}

/* Work-items. Rows of f32 take so much room that a multiprocessor has one group: a larger one, unless its queries are there too. */
static uint32_t group_of(const mk_attention_params *p)
{
    return has_f32(p) && p->dim <= SHARED_DIM && p->tokens >= WIDE_TOKENS ? 2 * GROUP : GROUP;
}

/* Of a tile. */
static uint32_t keys_of(const mk_attention_params *p)
{
    return p->dim > SHARED_DIM || (has_f32(p) && group_of(p) == GROUP) ? KEYS / 2 : KEYS;
}

/* Two tiles of keys and values, those made of blocks, and the queries in two parts where registers do not hold them. */
static uint64_t local_bytes(const mk_attention_params *p)
{
    uint64_t bytes = 2 * (raw_bytes(p->k_type, p->dim) + raw_bytes(p->v_type, p->v_dim));
    bytes += p->k_type == MK_Q8_0 ? row_bytes(p->k_type, p->dim) : 0;
    bytes += p->v_type == MK_Q8_0 ? row_bytes(p->v_type, p->v_dim) : 0;
    return keys_of(p) * bytes + (p->dim > SHARED_DIM ? 2ull * p->dim * group_of(p) : 0);
}

bool mica__cuda_attention_prefill_serves(const mica__record *record, const mica__device_info *info)
{
    const mica__operand *k = &record->operand[MICA__ATTENTION_K], *v = &record->operand[MICA__ATTENTION_V];
    mk_attention_params p;
    if (info->compute < LEAST_COMPUTE || mica__env_debug(MICA__DEBUG_NONATIVE) ||
        record->operand_count != MICA__ATTENTION_SLOTS || !mica__gpu_attention_is_plain(record) ||
        mica__gpu_attention_check(record) != MICA_OK)
        return false;
    mica__gpu_attention_describe(record, &p);
    return p.tokens >= LEAST_TOKENS && fits(p.dim) && fits(p.v_dim) &&
           (p.v_dim <= SHARED_DIM || p.dim > SHARED_DIM) &&
           local_bytes(&p) + STATIC_BYTES <= info->local_bytes && is_aligned(k, alignment(p.k_type, p.dim)) &&
           is_aligned(v, alignment(p.v_type, p.v_dim));
}

mica_status mica__cuda_plan_attention_prefill(const mica__record *record, const mica__device_info *info,
                                              mica__plan *plan)
{
    static const uint32_t slots[] = {
        MICA__ATTENTION_Q,       MICA__ATTENTION_K,         MICA__ATTENTION_V,     MICA__ATTENTION_POSITIONS,
        MICA__ATTENTION_LENGTHS, MICA__ATTENTION_SEQUENCES, MICA__ATTENTION_PAGES, MICA__ATTENTION_MASK};
    mk_attention_params params;
    (void)info;
    mica__gpu_attention_describe(record, &params);
    const uint32_t ratio = params.heads / params.kv_heads, group = group_of(&params);
    const uint32_t rows = group / 2; /* of a tile: tokens by heads */
    params.part_heads = ratio < rows ? ratio : rows;
    params.head_parts = (ratio + params.part_heads - 1) / params.part_heads;
    params.tile_tokens = rows / params.part_heads;
    params.splits = 1;
    const uint64_t tiles = (params.tokens + params.tile_tokens - 1) / params.tile_tokens;
    const mica_status status = mica__gpu_plan_next(plan, "attention_prefill/attention_prefill",
                                                   tiles * params.kv_heads * params.head_parts);
    if (status != MICA_OK)
        return status;
    mica__gpu_plan_constant(plan, "MK_WG", group);
    mica__gpu_plan_constant(plan, "DIM", params.dim);
    mica__gpu_plan_constant(plan, "VDIM", params.v_dim);
    mica__gpu_plan_constant(plan, "KT", params.k_type);
    mica__gpu_plan_constant(plan, "VT", params.v_type);
    mica__gpu_plan_constant(plan, "KEYS", keys_of(&params));
    mica__gpu_plan_constant(plan, "CAP", params.softcap > 0);
    mica__gpu_plan_constant(plan, "MASKED", (params.flags & MK_HAS_MASK) != 0);
    plan->dispatch[plan->dispatch_count - 1].local_bytes = (uint32_t)local_bytes(&params);
    for (uint32_t i = 0; i < sizeof slots / sizeof slots[0]; i++)
        mica__gpu_plan_operand(plan, record, slots[i], 0);
    mica__gpu_plan_operand(plan, record, MICA__ATTENTION_Y, 0);
    mica__gpu_plan_fault(plan);
    mica__gpu_plan_params(plan, &params, sizeof params);
    return MICA_OK;
}
