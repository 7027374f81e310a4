/*
 * cpu_plan_attention.c - the plan of attention: tiles of tokens by kv heads, and over keys where these are
 * too few.
 *
 * Lengths and positions are read when the work runs, so the units depend on shapes alone.
 */
#include "backend/cpu/cpu_plan.h"

#include <math.h>

#include "base/status.h"
#include "backend/cpu/kernels/attention/attention.h"

#define TILE_ROWS 128               /* query rows of a unit: enough to share each key among */
#define TILE_FLOATS (64u << 10)     /* that a tile's rows may take in the second cache */
#define SPLIT_CHUNKS 2              /* a split is worth it from this many chunks each */
#define SCRATCH_BYTES (64ull << 20) /* most that partial results may take */

static bool serves(uint32_t slot, uint16_t type)
{
    switch (slot) {
    case MICA__ATTENTION_K:
    case MICA__ATTENTION_V: return mica__cpu_is_float(type) || mica__cpu_is_cache_block(type);
    case MICA__ATTENTION_POSITIONS:
    case MICA__ATTENTION_LENGTHS:
    case MICA__ATTENTION_SEQUENCES:
    case MICA__ATTENTION_PAGES:
    case MICA__ATTENTION_KEYS: return type == MICA_DTYPE_U32 || type == MICA_DTYPE_I32;
    case MICA__ATTENTION_MASK: return mica__cpu_is_float(type) || type == MICA_DTYPE_BOOL;
    default: return mica__cpu_is_float(type);
    }
}

static mica_status check(const mica__record *record)
{
    if (record->operand_count != MICA__ATTENTION_SLOTS)
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "attention on the cpu: rope and kv_write are ops of their own");
    for (uint32_t slot = 0; slot < MICA__ATTENTION_SLOTS; slot++) {
        const mica__operand *operand = &record->operand[slot];
        if (mica__operand_present(operand) && !serves(slot, operand->dtype))
            return mica__fail(MICA_ERR_UNSUPPORTED, "attention on the cpu: operand %u is %s", slot,
                              mica_dtype_name((mica_dtype)operand->dtype));
    }
    return MICA_OK;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t cut(uint64_t n, uint64_t size)
{
    return (n + size - 1) / size;
}

/* Keys that the caller chose for each token; 0: none. */
static uint64_t chosen(const mica__record *record)
{
    const mica__operand *keys = &record->operand[MICA__ATTENTION_KEYS];
    return mica__operand_present(keys) ? keys->shape[1] : 0;
}

/* Keys that a query can see. */
static uint64_t capacity(const mica__record *record)
{
    if (chosen(record) != 0)
        return chosen(record);
    const mica__operand *k = &record->operand[MICA__ATTENTION_K],
                        *pages = &record->operand[MICA__ATTENTION_PAGES];
    return mica__operand_present(pages) ? pages->shape[1] * k->shape[1] : k->shape[0];
}

/* Of blocks that a unit decodes, for which it has room for one kv head. */
static bool is_coded(uint16_t dtype)
{
    return mica__cpu_is_cache_block(dtype) && !mica__attention_reads(dtype);
}

/* How many kv heads a unit of `rows` rows for each takes. Few rows: memory is the limit, and kv heads that
 * lie side by side are best read together, as long as every thread has as much to do as the others. */
static uint64_t kv_heads_together(const mica__record *record, uint64_t rows, uint64_t tiles, uint64_t threads)
{
    const mica__operand *k = &record->operand[MICA__ATTENTION_K];
    const uint64_t kv_heads = k->shape[k->ndim - 2];
    uint64_t together = rows < 8 && k->stride[k->ndim - 2] < k->stride[k->ndim - 3] ? kv_heads : 1;
    if (is_coded(k->dtype) || is_coded(record->operand[MICA__ATTENTION_V].dtype))
        return 1;
    for (; together > 1; together--) {
        const uint64_t units = cut(kv_heads, together) * tiles;
        if (units >= 2 * threads || (units >= threads && kv_heads % together == 0 && units % threads == 0))
            break;
    }
    return larger(together, 1);
}

/* Fills in the tiles. Too few for the threads: fewer tokens each, then splits over keys, then parts of the
 * heads. */
static void choose(const mica__record *record, const mica__device_info *info, mica__attention_plan *plan)
{
    const mica__operand *q = &record->operand[MICA__ATTENTION_Q], *k = &record->operand[MICA__ATTENTION_K];
    const uint64_t tokens = q->shape[0], kv_heads = k->shape[k->ndim - 2], group = q->shape[1] / kv_heads;
    const uint64_t part = mica__attention_partial_floats(record->operand[MICA__ATTENTION_Y].shape[2]);
    const uint64_t row = mica__attention_row_floats(q->shape[2]) + 2 * part, threads = info->threads;
    const uint64_t rows = smaller(larger(TILE_FLOATS / row, 4), TILE_ROWS);
    uint64_t heads = larger(smaller(group, rows), 1), splits = 1;
    uint64_t tile = larger(smaller(rows / heads, smaller(tokens, MICA__ATTENTION_MAX_TOKENS)), 1);
    if (chosen(record) != 0)
        tile = 1; /* tokens share no keys */
    while (tile > 1 && cut(tokens, tile) * kv_heads * cut(group, heads) < 2 * threads)
        tile = tile / 2;
    const uint64_t tiles = cut(tokens, tile),
                   together = kv_heads_together(record, tile * heads, tiles, threads);
    /* One more than fit, because a ring's keys may begin inside a chunk. */
    plan->chunks = cut(capacity(record), MICA__ATTENTION_CHUNK) + 1;
    uint64_t units = tiles * cut(kv_heads, together) * cut(group, heads);
    const uint64_t kept = tokens * q->shape[1] * plan->chunks * part * sizeof(float);
    if (units < threads && kept <= SCRATCH_BYTES)
        splits = larger(smaller(cut(2 * threads, units), plan->chunks / SPLIT_CHUNKS), 1);
    units *= splits;
    if (units < threads)
        heads = larger(heads / cut(2 * threads, units), 1);
    plan->tile_tokens = (uint32_t)tile;
    plan->part_kv_heads = (uint32_t)together;
    plan->kv_parts = (uint32_t)cut(kv_heads, together);
    plan->part_heads = (uint32_t)heads;
    plan->head_parts = (uint32_t)cut(group, heads);
    plan->splits = (uint32_t)splits;
}

static mica_status too_many(const mica__record *record)
{
    return mica__fail(MICA_ERR_UNSUPPORTED, "attention on the cpu: q has %llu tokens of %llu heads; too many",
                      (unsigned long long)record->operand[MICA__ATTENTION_Q].shape[0],
                      (unsigned long long)record->operand[MICA__ATTENTION_Q].shape[1]);
}

static mica_status add_dispatch(const mica__record *record, const mica__attention_plan *attention,
                                uint64_t units, uint64_t local_floats, double unit_ns, mica__plan *plan)
{
    const uint64_t local = local_floats * sizeof(float);
    if (units > UINT32_MAX || local > UINT32_MAX)
        return too_many(record);
    const mica__operand *q = &record->operand[MICA__ATTENTION_Q], *y = &record->operand[MICA__ATTENTION_Y];
    const bool split = attention->mode == MICA__ATTENTION_SPLIT;
    mica__plan_dispatch *dispatch = mica__cpu_plan_next(plan, "attention", units);
    for (uint32_t slot = 0; slot < MICA__ATTENTION_SLOTS; slot++)
        mica__cpu_plan_operand(plan, record, slot, split ? MICA_ACCESS_READ : 0);
    if (attention->mode != MICA__ATTENTION_WHOLE)
        mica__cpu_plan_scratch(plan, 0,
                               q->shape[0] * q->shape[1] * attention->chunks *
                                   mica__attention_partial_floats(y->shape[2]) * sizeof(float),
                               split ? MICA_ACCESS_WRITE : MICA_ACCESS_READ);
    mica__cpu_plan_params(plan, attention, sizeof *attention);
    dispatch->local_bytes = (uint32_t)local;
    mica__cpu_plan_grain(dispatch, unit_ns);
    return MICA_OK;
}

/* f64: a unit is a row of y. */
static mica_status plan_wide(const mica__record *record, mica__plan *plan)
{
    const mica__operand *q = &record->operand[MICA__ATTENTION_Q], *y = &record->operand[MICA__ATTENTION_Y];
    if (record->operand_count != MICA__ATTENTION_SLOTS)
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "attention on the cpu: rope and kv_write are ops of their own");
    if (q->shape[0] > UINT32_MAX || q->shape[1] > UINT32_MAX || q->shape[0] * q->shape[1] > UINT32_MAX)
        return too_many(record);
    mica__plan_dispatch *dispatch = mica__cpu_plan_next(plan, "attention_wide", q->shape[0] * q->shape[1]);
    for (uint32_t slot = 0; slot < MICA__ATTENTION_SLOTS; slot++)
        mica__cpu_plan_operand(plan, record, slot, 0);
    mica__cpu_plan_params(plan, record->params, sizeof(mica_attention_params));
    dispatch->local_bytes = (uint32_t)(y->shape[2] * sizeof(double) + chosen(record) * sizeof(uint32_t));
    mica__cpu_plan_grain(dispatch, 200 + (double)(q->shape[2] + y->shape[2]) * (double)capacity(record));
    return MICA_OK;
}

mica_status mica__cpu_plan_attention(const mica__record *record, const mica__device_info *info,
                                     mica__plan *plan)
{
    const mica__operand *q = &record->operand[MICA__ATTENTION_Q];
    mica__attention_plan attention = {.attention = *(const mica_attention_params *)record->params};
    if (q->dtype == MICA_DTYPE_F64)
        return plan_wide(record, plan);
    mica_status status = check(record);
    if (status != MICA_OK)
        return status;
    if (q->shape[0] > UINT32_MAX || q->shape[1] > UINT32_MAX)
        return too_many(record);
    const uint64_t dim = q->shape[2], v_dim = record->operand[MICA__ATTENTION_Y].shape[2];
    if (attention.attention.scale == 0)
        attention.attention.scale = (float)(1 / sqrt((double)dim));
    choose(record, info, &attention);
    attention.mode = attention.splits > 1 ? MICA__ATTENTION_SPLIT : MICA__ATTENTION_WHOLE;
    const uint64_t rows = (uint64_t)attention.tile_tokens * attention.part_kv_heads * attention.part_heads;
    const uint64_t units =
        cut(q->shape[0], attention.tile_tokens) * attention.kv_parts * attention.head_parts;
    /* How many keys there will be is not known here: half of what the cache can hold. */
    const double keys = (double)capacity(record) / 2 / attention.splits;
    const double unit_ns = 200 + (double)(rows * (dim + v_dim)) * keys / 25;
    status = add_dispatch(record, &attention, units * attention.splits,
                          mica__attention_local_floats(rows, dim, v_dim, chosen(record)), unit_ns, plan);
    if (status != MICA_OK || attention.mode == MICA__ATTENTION_WHOLE)
        return status;
    attention.mode = MICA__ATTENTION_COMBINE;
    return add_dispatch(record, &attention, q->shape[0] * q->shape[1],
                        mica__attention_partial_floats(v_dim) + chosen(record),
                        20 + (double)(attention.chunks * v_dim) / 8, plan);
}
