/* gpu_plan_attention_backward.c - the plan of attention's gradient: a group for each query, then for each key, then for each head. */
#include <string.h>

#include "backend/gpu/gpu_plan.h"
#include "base/status.h"

#define MOST_PER 4u /* dimensions of a head that a work-item owns at most */
#define SLOT(name) MICA__ATTENTION_BACKWARD_##name

static mica_status check(const mica__record *record)
{
    const mica__operand *o = record->operand, *q = &o[SLOT(Q)], *k = &o[SLOT(K)];
    const uint64_t v_dim = o[SLOT(Y)].shape[2], most = MOST_PER * MICA__MK_WG;
    uint32_t floats = ~(1u << SLOT(POSITIONS) | 1u << SLOT(LENGTHS));
    if (o[SLOT(MASK)].dtype == MICA_DTYPE_BOOL)
        floats &= ~(1u << SLOT(MASK));
    if (q->shape[2] > most || v_dim > most)
        return mica__fail(MICA_ERR_UNSUPPORTED, "attention_backward: heads of %llu and %llu; %llu are served",
                          (unsigned long long)q->shape[2], (unsigned long long)v_dim,
                          (unsigned long long)most);
    if (q->shape[0] > INT32_MAX || k->shape[0] > INT32_MAX || q->shape[1] > INT32_MAX)
        return mica__fail(MICA_ERR_UNSUPPORTED, "attention_backward: 2^31 - 1 tokens and keys are served");
    return mica__gpu_check_floats(record, floats);
}

static void set_strides(const mica__operand *operand, mk_u64 *first, mk_u64 *second, mk_u32 *type)
{
    *first = operand->stride[0];
    *second = operand->stride[1];
    *type = mica__gpu_type(operand->dtype);
}

/* Of an operand with one element for each head. */
static void set_heads(const mica__operand *operand, mk_u64 *stride, mk_u32 *type)
{
    if (!mica__operand_present(operand))
        return;
    *stride = operand->stride[0];
    *type = mica__gpu_type(operand->dtype);
}

static void set_mask(const mica__operand *mask, mk_attention_backward_params *p)
{
    if (!mica__operand_present(mask))
        return;
    const uint64_t keys = mask->shape[mask->ndim - 1];
    p->flags |= MK_GRADIENT_MASK;
    p->mask_head = mask->ndim > 2 && mask->shape[0] > 1 ? mask->stride[0] : 0;
    p->mask_token = mask->stride[mask->ndim - 2], p->mask_key = mask->stride[mask->ndim - 1];
    p->mask_keys = keys > UINT32_MAX ? UINT32_MAX : (uint32_t)keys;
    p->mask_type = mask->dtype == MICA_DTYPE_BOOL ? MK_GRADIENT_BOOL : mica__gpu_type(mask->dtype);
}

static void describe(const mica__record *record, mk_attention_backward_params *p)
{
    const mica_attention_params *attention = record->params;
    const mica__operand *o = record->operand;
    mk_u32 lse_type = 0;
    memset(p, 0, sizeof *p);
    set_strides(&o[SLOT(Q)], &p->q_token, &p->q_head, &p->q_type);
    set_strides(&o[SLOT(K)], &p->k_key, &p->k_head, &p->k_type);
    set_strides(&o[SLOT(V)], &p->v_key, &p->v_head, &p->v_type);
    set_strides(&o[SLOT(Y)], &p->y_token, &p->y_head, &p->y_type);
    set_strides(&o[SLOT(DY)], &p->dy_token, &p->dy_head, &p->dy_type);
    set_strides(&o[SLOT(LSE)], &p->lse_token, &p->lse_head, &lse_type);
    set_strides(&o[SLOT(DQ)], &p->dq_token, &p->dq_head, &p->dq_type);
    set_strides(&o[SLOT(DK)], &p->dk_key, &p->dk_head, &p->dk_type);
    set_strides(&o[SLOT(DV)], &p->dv_key, &p->dv_head, &p->dv_type);
    set_heads(&o[SLOT(SINKS)], &p->sinks, &p->sinks_type);
    set_heads(&o[SLOT(SLOPES)], &p->slopes, &p->slopes_type);
    set_heads(&o[SLOT(DSINKS)], &p->dsinks, &p->dsinks_type);
    set_mask(&o[SLOT(MASK)], p);
    p->positions = o[SLOT(POSITIONS)].stride[0];
    p->tokens = (uint32_t)o[SLOT(Q)].shape[0], p->heads = (uint32_t)o[SLOT(Q)].shape[1];
    p->dim = (uint32_t)o[SLOT(Q)].shape[2], p->v_dim = (uint32_t)o[SLOT(Y)].shape[2];
    p->keys = (uint32_t)o[SLOT(K)].shape[0], p->kv_heads = (uint32_t)o[SLOT(K)].shape[1];
    p->window = attention->window, p->scale = attention->scale, p->softcap = attention->softcap;
    p->flags |= mica__operand_present(&o[SLOT(SLOPES)]) ? MK_GRADIENT_SLOPES : 0;
    p->flags |= attention->bidirectional != 0 ? MK_GRADIENT_BIDIRECTIONAL : 0;
    p->flags |= o[SLOT(POSITIONS)].dtype == MICA_DTYPE_I32 ? MK_GRADIENT_SIGNED_POSITIONS : 0;
    p->flags |= o[SLOT(LENGTHS)].dtype == MICA_DTYPE_I32 ? MK_GRADIENT_SIGNED_LENGTHS : 0;
    p->fault_code = mica__gpu_fault_code(record);
}

/* One dispatch: its operands in order, with delta, which lies in scratch, and the place of faults where the entry has them. */
typedef struct entry {
    const char *kernel;
    uint64_t groups;
    const uint32_t *slots; /* in the order of the entry; DELTA: scratch */
    uint32_t slot_count, delta_access;
    bool fault;
} entry;

#define DELTA UINT32_MAX

static mica_status add(const mica__record *record, const entry *e, const mk_attention_backward_params *p,
                       mica__plan *plan)
{
    const uint32_t longest = p->dim > p->v_dim ? p->dim : p->v_dim;
    const mica_status status = mica__gpu_plan_next(plan, e->kernel, e->groups);
    if (status != MICA_OK)
        return status;
    mica__gpu_plan_constant(plan, "PER", longest > MICA__MK_WG ? MOST_PER : 1);
    for (uint32_t i = 0; i < e->slot_count; i++)
        if (e->slots[i] == DELTA)
            mica__gpu_plan_scratch(plan, 0, 4ull * p->tokens * p->heads, e->delta_access);
        else
            mica__gpu_plan_operand(plan, record, e->slots[i], 0);
    if (e->fault)
        mica__gpu_plan_fault(plan);
    mica__gpu_plan_params(plan, p, sizeof *p);
    return MICA_OK;
}

#define COUNT(array) (uint32_t)(sizeof(array) / sizeof(array)[0])

mica_status mica__gpu_plan_attention_backward(const mica__record *record, const mica__device_info *info,
                                              mica__plan *plan)
{
    static const uint32_t of_queries[] = {SLOT(Q),       SLOT(K),    SLOT(V),      SLOT(POSITIONS),
                                          SLOT(LENGTHS), SLOT(MASK), SLOT(SLOPES), SLOT(Y),
                                          SLOT(LSE),     SLOT(DY),   SLOT(DQ),     DELTA};
    static const uint32_t of_keys[] = {SLOT(Q),       SLOT(K),    SLOT(V),      SLOT(POSITIONS),
                                       SLOT(LENGTHS), SLOT(MASK), SLOT(SLOPES), SLOT(LSE),
                                       SLOT(DY),      DELTA,      SLOT(DK),     SLOT(DV)};
    static const uint32_t of_sinks[] = {SLOT(SINKS), SLOT(LSE), DELTA, SLOT(DSINKS)};
    mk_attention_backward_params p;
    (void)info;
    mica_status status = check(record);
    if (status != MICA_OK)
        return status;
    describe(record, &p);
    const entry queries = {"attention_backward/queries",
                           (uint64_t)p.tokens * p.heads,
                           of_queries,
                           COUNT(of_queries),
                           MICA_ACCESS_WRITE,
                           true};
    const entry keys = {"attention_backward/keys",
                        (uint64_t)p.keys * p.kv_heads,
                        of_keys,
                        COUNT(of_keys),
                        MICA_ACCESS_READ,
                        false};
    const entry sinks = {"attention_backward/sinks", p.heads, of_sinks, COUNT(of_sinks),
                         MICA_ACCESS_READ,           false};
    status = add(record, &queries, &p, plan);
    if (status == MICA_OK)
        status = add(record, &keys, &p, plan);
    if (status == MICA_OK && mica__operand_present(&record->operand[SLOT(DSINKS)]))
        status = add(record, &sinks, &p, plan);
    return status;
}
