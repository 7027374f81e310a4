/* cpu_plan_attention_backward.c - the plan of attention's gradient: tiles of tokens, then of keys, then heads. */
#include "backend/cpu/cpu_plan.h"

#include "base/status.h"
#include "backend/cpu/kernels/attention/attention_backward.h"

#define NS_PER_PRODUCT 0.12 /* of a query and a key, per element */

static uint64_t larger_of(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static mica_status check(const mica__record *record)
{
    const mica__operand *q = &record->operand[MICA__ATTENTION_BACKWARD_Q],
                        *k = &record->operand[MICA__ATTENTION_BACKWARD_K];
    if (q->shape[0] > UINT32_MAX || k->shape[0] > UINT32_MAX || q->shape[1] > UINT32_MAX ||
        larger_of(q->shape[0], k->shape[0]) * k->shape[1] > UINT32_MAX)
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "attention_backward on the cpu: %llu tokens and %llu keys of %llu heads; too many",
                          (unsigned long long)q->shape[0], (unsigned long long)k->shape[0],
                          (unsigned long long)q->shape[1]);
    return MICA_OK;
}

static mica_status add_dispatch(const mica__record *record, const mica__attention_backward_plan *backward,
                                uint64_t units, double unit_ns, mica__plan *plan)
{
    const mica__operand *o = record->operand;
    const uint64_t dim = o[MICA__ATTENTION_BACKWARD_Q].shape[2],
                   v_dim = o[MICA__ATTENTION_BACKWARD_Y].shape[2];
    const uint64_t bytes =
        o[MICA__ATTENTION_BACKWARD_Q].dtype == MICA_DTYPE_F64 ? sizeof(double) : sizeof(float);
    const uint64_t local =
        mica__attention_backward_numbers(MICA__ATTENTION_BACKWARD_ROWS, dim, v_dim) * bytes;
    if (local > UINT32_MAX)
        return mica__fail(MICA_ERR_UNSUPPORTED, "attention_backward on the cpu: heads of %llu are too long",
                          (unsigned long long)dim);
    mica__plan_dispatch *dispatch = mica__cpu_plan_next(plan, "attention_backward", units);
    const uint32_t written = backward->mode == MICA__ATTENTION_BACKWARD_QUERIES
                                 ? 1u << MICA__ATTENTION_BACKWARD_DQ
                             : backward->mode == MICA__ATTENTION_BACKWARD_KEYS
                                 ? 1u << MICA__ATTENTION_BACKWARD_DK | 1u << MICA__ATTENTION_BACKWARD_DV
                                 : 1u << MICA__ATTENTION_BACKWARD_DSINKS;
    for (uint32_t slot = 0; slot < MICA__ATTENTION_BACKWARD_SLOTS; slot++) {
        const bool output = slot >= MICA__ATTENTION_BACKWARD_DQ;
        mica__cpu_plan_operand(plan, record, slot,
                               output && (written >> slot & 1) == 0 ? MICA_ACCESS_READ : 0);
    }
    mica__cpu_plan_params(plan, backward, sizeof *backward);
    dispatch->local_bytes = (uint32_t)local;
    mica__cpu_plan_grain(dispatch, unit_ns);
    return MICA_OK;
}

mica_status mica__cpu_plan_attention_backward(const mica__record *record, const mica__device_info *info,
                                              mica__plan *plan)
{
    const mica__operand *o = record->operand, *q = &o[MICA__ATTENTION_BACKWARD_Q],
                        *k = &o[MICA__ATTENTION_BACKWARD_K];
    const uint64_t group = q->shape[1] / k->shape[1], rows = MICA__ATTENTION_BACKWARD_ROWS;
    mica__attention_backward_plan backward = {.attention = *(const mica_attention_params *)record->params};
    (void)info;
    mica_status status = check(record);
    if (status != MICA_OK)
        return status;
    const double each =
        NS_PER_PRODUCT * (double)(3 * q->shape[2] + 2 * o[MICA__ATTENTION_BACKWARD_Y].shape[2]);
    backward.mode = MICA__ATTENTION_BACKWARD_QUERIES;
    backward.tile = (uint32_t)(group < rows ? rows / group : 1);
    status = add_dispatch(record, &backward, (q->shape[0] + backward.tile - 1) / backward.tile * k->shape[1],
                          200 + each * (double)(backward.tile * group) * (double)k->shape[0] / 2, plan);
    backward.mode = MICA__ATTENTION_BACKWARD_KEYS;
    backward.tile = (uint32_t)rows;
    if (status == MICA_OK)
        status = add_dispatch(record, &backward, (k->shape[0] + rows - 1) / rows * k->shape[1],
                              200 + each * (double)(rows * group) * (double)q->shape[0] / 2, plan);
    backward.mode = MICA__ATTENTION_BACKWARD_OF_SINKS;
    if (status == MICA_OK && mica__operand_present(&o[MICA__ATTENTION_BACKWARD_DSINKS]))
        status = add_dispatch(record, &backward, q->shape[1], 50 + each * (double)q->shape[0], plan);
    return status;
}
