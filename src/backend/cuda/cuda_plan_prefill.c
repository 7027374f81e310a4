/*
 * cuda_plan_prefill.c - attention of many tokens over f16 caches by native/prefill.cu. Other caches, masks, odd or long heads
 * and few tokens are for other rows.
 */
#include "backend/cuda/cuda_plan.h"

#include "backend/gpu/gpu_plan_attention.h"
#include "base/env.h"

#define LEAST_COMPUTE 80u /* asynchronous copies, shuffled minima */
#define LEAST_TOKENS 16u  /* fewer leave most of a tile's rows empty */
#define MOST_DIM 256u     /* whose sums registers hold */
#define SHARED_DIM 128u   /* beyond, queries are in shared memory, and tiles have fewer keys */
#define GROUP 128u
#define ROWS (GROUP / 2) /* of a tile: tokens by heads */
#define KEYS 64u
#define STATIC_BYTES 8192u /* more than the kernel's own arrays take */
#define PIECE 16u          /* bytes copied at once; elements deep that a product is */

static bool is_aligned(const mica__operand *cache)
{
    for (uint32_t i = 0; i + 1 < cache->ndim; i++)
        if (cache->stride[i] % PIECE != 0)
            return false;
    return cache->dtype == MICA_DTYPE_F16 && cache->offset % PIECE == 0;
}

static bool fits(uint64_t dim)
{
    return dim % PIECE == 0 && dim <= MOST_DIM;
}

/* Two tiles of keys and values, and the queries in two parts where registers do not hold them. */
static uint64_t local_bytes(uint64_t dim, uint64_t v_dim)
{
    const uint64_t keys = dim > SHARED_DIM ? KEYS / 2 : KEYS;
    return 2 * keys * (2 * (dim + v_dim) + 2 * PIECE) + (dim > SHARED_DIM ? 2 * dim * GROUP : 0);
}

bool mica__cuda_prefill_serves(const mica__record *record, const mica__device_info *info)
{
    const mica__operand *q = &record->operand[MICA__ATTENTION_Q], *y = &record->operand[MICA__ATTENTION_Y];
    return info->compute >= LEAST_COMPUTE && !mica__env_debug(MICA__DEBUG_NONATIVE) &&
           record->operand_count == MICA__ATTENTION_SLOTS &&
           record->operand[MICA__ATTENTION_MASK].memory == NULL && q->shape[0] >= LEAST_TOKENS &&
           q->shape[0] <= UINT32_MAX / 2 && mica__gpu_is_float(q->dtype) && mica__gpu_is_float(y->dtype) &&
           fits(q->shape[2]) && fits(y->shape[2]) &&
           (y->shape[2] <= SHARED_DIM || q->shape[2] > SHARED_DIM) &&
           local_bytes(q->shape[2], y->shape[2]) + STATIC_BYTES <= info->local_bytes &&
           is_aligned(&record->operand[MICA__ATTENTION_K]) && is_aligned(&record->operand[MICA__ATTENTION_V]);
}

mica_status mica__cuda_plan_prefill(const mica__record *record, const mica__device_info *info,
                                    mica__plan *plan)
{
    static const uint32_t slots[] = {
        MICA__ATTENTION_Q,       MICA__ATTENTION_K,         MICA__ATTENTION_V,    MICA__ATTENTION_POSITIONS,
        MICA__ATTENTION_LENGTHS, MICA__ATTENTION_SEQUENCES, MICA__ATTENTION_PAGES};
    mk_attention_params params;
    (void)info;
    mica__gpu_attention_describe(record, &params);
    const uint32_t ratio = params.heads / params.kv_heads;
    params.part_heads = ratio < ROWS ? ratio : ROWS;
    params.head_parts = (ratio + params.part_heads - 1) / params.part_heads;
    params.tile_tokens = ROWS / params.part_heads;
    params.splits = 1;
    const uint64_t tiles = (params.tokens + params.tile_tokens - 1) / params.tile_tokens;
    const mica_status status =
        mica__gpu_plan_next(plan, "prefill/prefill", tiles * params.kv_heads * params.head_parts);
    if (status != MICA_OK)
        return status;
    mica__gpu_plan_constant(plan, "MK_WG", GROUP);
    mica__gpu_plan_constant(plan, "DIM", params.dim);
    mica__gpu_plan_constant(plan, "VDIM", params.v_dim);
    mica__gpu_plan_constant(plan, "CAP", params.softcap > 0);
    plan->dispatch[plan->dispatch_count - 1].local_bytes = (uint32_t)local_bytes(params.dim, params.v_dim);
    for (uint32_t i = 0; i < sizeof slots / sizeof slots[0]; i++)
        mica__gpu_plan_operand(plan, record, slots[i], 0);
    mica__gpu_plan_operand(plan, record, MICA__ATTENTION_Y, 0);
    mica__gpu_plan_fault(plan);
    mica__gpu_plan_params(plan, &params, sizeof params);
    return MICA_OK;
}
