/* cpu_plan_attention_backward.c - the plan of attention's gradient: splits of the keys, and of f64 tiles of tokens, then of keys; then heads. */
#include "backend/cpu/cpu_plan.h"

#include "base/status.h"
#include "backend/cpu/kernels/attention/attention_backward.h"

#define NS_PER_PRODUCT 0.12       /* of a query and a key, per element, f64; */
#define NS_PER_TILE_PRODUCT 0.005 /* f32 */
/* f32, by shapes alone, as sums of dq end with a split: */
#define CHUNK_FLOATS (128u << 10)       /* of the keys that stay in the second cache, */
#define CHUNK_MOST 384                  /* as far as there is more to gain; */
#define CHUNK_LEAST 96                  /* keys that loading the queries once more is worth; */
#define UNITS_ENOUGH 8                  /* units that a sequence is cut into, whatever that costs, */
#define UNITS_WANTED 32                 /* and where dq goes through scratch anyway; */
#define KEPT_BYTES (UINT64_C(64) << 20) /* most that more splits than one may take */

static uint64_t larger_of(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t smaller_of(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t cut(uint64_t n, uint64_t size)
{
    return (n + size - 1) / size;
}

static mica_status check(const mica__record *record)
{
    const mica__operand *q = &record->operand[MICA__ATTENTION_BACKWARD_Q],
                        *k = &record->operand[MICA__ATTENTION_BACKWARD_K];
    if (q->shape[0] > UINT32_MAX || k->shape[0] > UINT32_MAX || q->shape[1] > UINT32_MAX ||
        q->shape[0] * q->shape[1] > UINT32_MAX || k->shape[0] * k->shape[1] > UINT32_MAX ||
        q->shape[0] * k->shape[1] > UINT32_MAX)
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "attention_backward on the cpu: %llu tokens and %llu keys of %llu heads; too many",
                          (unsigned long long)q->shape[0], (unsigned long long)k->shape[0],
                          (unsigned long long)q->shape[1]);
    return MICA_OK;
}

/* Operands that the dispatch writes. */
static uint32_t written_by(uint32_t mode, bool kept)
{
    const uint32_t keys = 1u << MICA__ATTENTION_BACKWARD_DK | 1u << MICA__ATTENTION_BACKWARD_DV,
                   queries = 1u << MICA__ATTENTION_BACKWARD_DQ;
    switch (mode) {
    case MICA__ATTENTION_BACKWARD_SPLITS: return kept ? keys : keys | queries;
    case MICA__ATTENTION_BACKWARD_JOIN:
    case MICA__ATTENTION_BACKWARD_QUERIES: return queries;
    case MICA__ATTENTION_BACKWARD_KEYS: return keys;
    default: return 1u << MICA__ATTENTION_BACKWARD_DSINKS;
    }
}

static mica_status add_dispatch(const mica__record *record, const mica__attention_backward_plan *backward,
                                uint64_t units, uint64_t local, double unit_ns, mica__plan *plan)
{
    const mica__operand *q = &record->operand[MICA__ATTENTION_BACKWARD_Q];
    const bool wide = q->dtype == MICA_DTYPE_F64, kept = backward->kept != 0;
    if (local > UINT32_MAX)
        return mica__fail(MICA_ERR_UNSUPPORTED, "attention_backward on the cpu: heads of %llu are too long",
                          (unsigned long long)q->shape[2]);
    mica__plan_dispatch *dispatch =
        mica__cpu_plan_next(plan, wide ? "attention_backward_wide" : "attention_backward", units);
    const uint32_t written = written_by(backward->mode, kept);
    for (uint32_t slot = 0; slot < MICA__ATTENTION_BACKWARD_SLOTS; slot++) {
        const bool output = slot >= MICA__ATTENTION_BACKWARD_DQ;
        mica__cpu_plan_operand(plan, record, slot,
                               output && (written >> slot & 1) == 0 ? MICA_ACCESS_READ : 0);
    }
    if (kept)
        mica__cpu_plan_scratch(plan, 0,
                               backward->splits * q->shape[0] * q->shape[1] *
                                   mica__attention_backward_row(q->shape[2]) * sizeof(float),
                               backward->mode == MICA__ATTENTION_BACKWARD_SPLITS ? MICA_ACCESS_WRITE
                                                                                 : MICA_ACCESS_READ);
    mica__cpu_plan_params(plan, backward, sizeof *backward);
    dispatch->local_bytes = (uint32_t)local;
    mica__cpu_plan_grain(dispatch, unit_ns);
    return MICA_OK;
}

/* Chunks of keys, and splits of these. */
static void choose(const mica__record *record, mica__attention_backward_plan *p)
{
    const mica__operand *q = &record->operand[MICA__ATTENTION_BACKWARD_Q],
                        *k = &record->operand[MICA__ATTENTION_BACKWARD_K];
    const uint64_t dim = q->shape[2], v_dim = record->operand[MICA__ATTENTION_BACKWARD_Y].shape[2],
                   keys = k->shape[0], kv_heads = k->shape[1], tile = MICA__ATTENTION_BACKWARD_TILE;
    const uint64_t most = smaller_of(CHUNK_FLOATS / mica__attention_backward_key(dim, v_dim), CHUNK_MOST);
    const uint64_t even = larger_of(cut(keys, cut(UNITS_ENOUGH, kv_heads)), CHUNK_LEAST);
    const uint64_t kept = q->shape[0] * q->shape[1] * mica__attention_backward_row(dim) * sizeof(float);
    p->chunk_keys =
        (uint32_t)larger_of(smaller_of(most / tile * tile, cut(smaller_of(even, keys), tile) * tile), tile);
    p->chunks = (uint32_t)cut(keys, p->chunk_keys);
    p->splits = (uint32_t)smaller_of(smaller_of(p->chunks, cut(UNITS_WANTED, kv_heads)),
                                     larger_of(KEPT_BYTES / larger_of(kept, 1), 1));
    p->kept = p->chunks > 1;
}

static mica_status plan_splits(const mica__record *record, mica__attention_backward_plan *p, mica__plan *plan)
{
    const mica__operand *q = &record->operand[MICA__ATTENTION_BACKWARD_Q],
                        *k = &record->operand[MICA__ATTENTION_BACKWARD_K];
    const uint64_t dim = q->shape[2], v_dim = record->operand[MICA__ATTENTION_BACKWARD_Y].shape[2];
    const uint64_t group = q->shape[1] / k->shape[1];
    choose(record, p);
    p->mode = MICA__ATTENTION_BACKWARD_SPLITS;
    const double each = NS_PER_TILE_PRODUCT * (double)(3 * dim + 2 * v_dim);
    const mica_status status =
        add_dispatch(record, p, p->splits * k->shape[1],
                     mica__attention_backward_floats(p->chunk_keys, dim, v_dim) * sizeof(float),
                     1000 + each * (double)(q->shape[0] * group) * (double)k->shape[0] / p->splits, plan);
    if (status != MICA_OK || p->kept == 0)
        return status;
    p->mode = MICA__ATTENTION_BACKWARD_JOIN;
    return add_dispatch(record, p, q->shape[0] * q->shape[1],
                        mica__attention_backward_row(dim) * sizeof(float),
                        10 + 0.05 * (double)(dim * p->splits), plan);
}

static mica_status plan_wide(const mica__record *record, mica__attention_backward_plan *p, mica__plan *plan)
{
    const mica__operand *q = &record->operand[MICA__ATTENTION_BACKWARD_Q],
                        *k = &record->operand[MICA__ATTENTION_BACKWARD_K];
    const uint64_t group = q->shape[1] / k->shape[1], rows = MICA__ATTENTION_BACKWARD_ROWS, dim = q->shape[2],
                   v_dim = record->operand[MICA__ATTENTION_BACKWARD_Y].shape[2];
    const uint64_t local = mica__attention_backward_doubles(dim, v_dim) * sizeof(double);
    const double each = NS_PER_PRODUCT * (double)(3 * dim + 2 * v_dim);
    p->mode = MICA__ATTENTION_BACKWARD_QUERIES;
    p->tile = (uint32_t)(group < rows ? rows / group : 1);
    const mica_status status =
        add_dispatch(record, p, cut(q->shape[0], p->tile) * k->shape[1], local,
                     200 + each * (double)(p->tile * group) * (double)k->shape[0] / 2, plan);
    if (status != MICA_OK)
        return status;
    p->mode = MICA__ATTENTION_BACKWARD_KEYS;
    p->tile = (uint32_t)rows;
    return add_dispatch(record, p, cut(k->shape[0], rows) * k->shape[1], local,
                        200 + each * (double)(rows * group) * (double)q->shape[0] / 2, plan);
}

mica_status mica__cpu_plan_attention_backward(const mica__record *record, const mica__device_info *info,
                                              mica__plan *plan)
{
    const mica__operand *o = record->operand, *q = &o[MICA__ATTENTION_BACKWARD_Q];
    const uint64_t v_dim = o[MICA__ATTENTION_BACKWARD_Y].shape[2];
    mica__attention_backward_plan backward = {.attention = *(const mica_attention_params *)record->params};
    (void)info;
    mica_status status = check(record);
    if (status == MICA_OK)
        status = q->dtype == MICA_DTYPE_F64 ? plan_wide(record, &backward, plan)
                                            : plan_splits(record, &backward, plan);
    if (status != MICA_OK || !mica__operand_present(&o[MICA__ATTENTION_BACKWARD_DSINKS]))
        return status;
    backward.mode = MICA__ATTENTION_BACKWARD_OF_SINKS;
    backward.kept = 0;
    return add_dispatch(record, &backward, q->shape[1],
                        2 * mica__attention_backward_row(v_dim) * sizeof(float),
                        50 + NS_PER_PRODUCT * (double)(v_dim * q->shape[0]), plan);
}
