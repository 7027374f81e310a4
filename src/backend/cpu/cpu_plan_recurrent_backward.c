/* cpu_plan_recurrent_backward.c - plans of the gradients of what carries a state from token to token. */
#include "backend/cpu/cpu_plan.h"

#include <math.h>

#include "backend/cpu/cpu_plan_recurrent.h"
#include "backend/cpu/cpu_recurrent_backward.h"
#include "base/status.h"

#define UNITS_PER_THREAD 4u /* so that the last ones even out */

static uint64_t ceil_of(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}

/* `state` is followed by starts and read_slots. */
static mica__cpu_split split_of(const mica__record *record, uint32_t count, uint32_t state)
{
    const uint64_t tokens = record->operand[0].shape[0];
    const bool even = !mica__operand_present(&record->operand[state + 1]);
    const mica__cpu_split split = {.tokens = tokens,
                                   .longest = even && count > 0 ? tokens / count : tokens,
                                   .count = count,
                                   .state = state,
                                   .starts = state + 1,
                                   .read_slots = state + 2};
    return split;
}

_Static_assert(MICA__SSM_CONV_BACKWARD_READ_SLOTS == MICA__SSM_CONV_BACKWARD_STATE + 2 &&
                   MICA__DELTA_BACKWARD_READ_SLOTS == MICA__DELTA_BACKWARD_STATE + 2 &&
                   MICA__SELECTIVE_BACKWARD_READ_SLOTS == MICA__SELECTIVE_BACKWARD_STATE + 2 &&
                   MICA__RNN_BACKWARD_READ_SLOTS == MICA__RNN_BACKWARD_STATE + 2,
               "split_of counts from state on");

static mica__cpu_row_range range_of(uint64_t rows)
{
    const mica__cpu_row_range range = {rows, 1 + rows / UINT32_MAX};
    return range;
}

/* The dispatch, whose parameters are still to come. */
static mica_status begin(const mica__record *record, const char *kernel, const mica__cpu_row_range *range,
                         uint64_t local, double unit_ns, mica__plan *plan)
{
    if (local * sizeof(double) > UINT32_MAX)
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "%s on the cpu: a unit needs %llu bytes of work memory; 4 GiB are served", kernel,
                          (unsigned long long)(local * sizeof(double)));
    mica__plan_dispatch *dispatch =
        mica__cpu_plan_next(plan, kernel, ceil_of(range->rows, range->rows_per_unit));
    dispatch->local_bytes = (uint32_t)(local * sizeof(double));
    mica__cpu_plan_grain(dispatch, unit_ns);
    mica__cpu_plan_operands(plan, record, record->operand_count);
    return MICA_OK;
}

mica_status mica__cpu_plan_ssm_conv_backward(const mica__record *record, const mica__device_info *info,
                                             mica__plan *plan)
{
    const mica__ssm_conv_record *conv = record->params;
    const mica__operand *weight = &record->operand[MICA__SSM_CONV_BACKWARD_WEIGHT];
    mica__cpu_conv_backward params = {.activation = conv->conv.activation,
                                      .channels = MICA__CPU_CONV_BACKWARD_MOST};
    params.split = split_of(record, conv->sequences, MICA__SSM_CONV_BACKWARD_STATE);
    while (params.channels > MICA__CPU_CONV_BACKWARD_LEAST &&
           ceil_of(weight->shape[0], params.channels) < (uint64_t)info->threads * UNITS_PER_THREAD)
        params.channels /= 2;
    params.range = range_of(ceil_of(weight->shape[0], params.channels) + 1);
    const uint64_t local = mica__cpu_conv_backward_room(params.channels, weight->shape[1]);
    MICA__TRY(begin(record, "ssm_conv_backward", &params.range, local,
                    100 + 0.5 * (double)(params.split.tokens * params.channels * (4 + weight->shape[1])),
                    plan));
    mica__cpu_plan_params(plan, &params, sizeof params);
    return MICA_OK;
}

mica_status mica__cpu_plan_delta_net_backward(const mica__record *record, const mica__device_info *info,
                                              mica__plan *plan)
{
    const mica__delta_record *delta = record->params;
    const mica__operand *q = &record->operand[MICA__DELTA_BACKWARD_Q],
                        *v = &record->operand[MICA__DELTA_BACKWARD_V];
    const uint64_t dim = q->shape[2], columns = v->shape[2];
    mica__cpu_delta_backward params = {.delta = delta->delta};
    (void)info;
    params.split = split_of(record, delta->sequences, MICA__DELTA_BACKWARD_STATE);
    const uint64_t longest = params.split.longest;
    params.stride = longest > 0 ? (uint64_t)ceil(sqrt((double)longest)) : 1;
    params.range = range_of(params.split.count * q->shape[1] + v->shape[1] + 1);
    const uint64_t states = ceil_of(longest, params.stride) + params.stride + 2;
    const uint64_t local = states * dim * columns + 5 * dim + 4 * columns + 2 * longest * dim;
    MICA__TRY(begin(record, "delta_net_backward", &params.range, local,
                    100 + 20.0 * (double)(longest * dim * columns), plan));
    mica__cpu_plan_params(plan, &params, sizeof params);
    return MICA_OK;
}

mica_status mica__cpu_plan_selective_scan_backward(const mica__record *record, const mica__device_info *info,
                                                   mica__plan *plan)
{
    const mica__selective_record *scan = record->params;
    const mica__operand *a = &record->operand[MICA__SELECTIVE_BACKWARD_A],
                        *b = &record->operand[MICA__SELECTIVE_BACKWARD_B];
    const uint64_t places = a->shape[1], groups = b->shape[1];
    mica__cpu_selective_backward params = {.groups = groups, .softplus = scan->selective.softplus};
    (void)info;
    params.channels = groups > 0 ? a->shape[0] / groups : 0;
    params.blocks = ceil_of(params.channels, MICA__CPU_SELECTIVE_CHANNELS);
    params.split = split_of(record, scan->sequences, MICA__SELECTIVE_BACKWARD_STATE);
    params.range = range_of(groups * params.blocks + 1);
    const uint64_t tokens = params.split.tokens,
                   bytes = params.blocks * tokens * groups * 2 * places * sizeof(double);
    const uint64_t local = mica__cpu_selective_backward_room(places, params.split.longest);
    MICA__TRY(begin(record, "selective_scan_backward", &params.range, local,
                    100 + 10.0 * (double)(tokens * places * MICA__CPU_SELECTIVE_CHANNELS), plan));
    mica__cpu_plan_scratch(plan, 0, bytes, MICA_ACCESS_WRITE);
    mica__cpu_plan_params(plan, &params, sizeof params);
    if (tokens == 0 || groups * places == 0)
        return MICA_OK;
    mica__plan_dispatch *dispatch = mica__cpu_plan_next(plan, "selective_scan_sums", tokens);
    mica__cpu_plan_operand(plan, record, MICA__SELECTIVE_BACKWARD_DB, 0);
    mica__cpu_plan_operand(plan, record, MICA__SELECTIVE_BACKWARD_DC, 0);
    mica__cpu_plan_scratch(plan, 0, bytes, MICA_ACCESS_READ);
    mica__cpu_plan_params(plan, &params, sizeof params);
    mica__cpu_plan_grain(dispatch, 10 + (double)(params.blocks * groups * 2 * places));
    return MICA_OK;
}

static mica__cpu_rnn_room rnn_room(const mica__cpu_rnn_backward *p, uint64_t hidden, uint64_t gates,
                                   bool wide)
{
    mica__cpu_rnn_room room = {.block_bytes = MICA__CPU_ROUNDS_LINE + mica__cpu_rounds_bytes(p->cut.parts)};
    const uint64_t row = p->padded * sizeof(double),
                   weight = gates * hidden * p->padded * (wide ? sizeof(double) : sizeof(float));
    room.block_bytes +=
        ceil_of(p->cut.together * MICA__CPU_SEQUENCE_BYTES, MICA__CPU_ROUNDS_LINE) * MICA__CPU_ROUNDS_LINE;
    uint64_t at = p->cut.blocks * room.block_bytes;
    room.ahead = at;
    room.back = at += weight;
    room.bias = at += weight;
    room.before = at += gates * row;
    room.cell = at += p->split.tokens * row;
    room.extra = at += p->split.tokens * row;
    room.gates = at += p->split.tokens * row;
    room.reach = at += p->split.tokens * gates * row;
    room.bytes = at + p->split.count * 2 * row;
    return room;
}

static void plan_rnn_begin(const mica__record *record, const mica__cpu_rnn_backward *params, uint64_t gates,
                           mica__plan *plan)
{
    const uint64_t panels = params->padded / MICA__CPU_RNN_PANEL;
    mica__plan_dispatch *dispatch =
        mica__cpu_plan_next(plan, "rnn_backward_begin", (gates + 1) * panels + 1 + params->cut.blocks);
    mica__cpu_plan_grain(dispatch, 100 + 0.1 * (double)(record->operand[MICA__RNN_BACKWARD_WEIGHT].shape[1] *
                                                        MICA__CPU_RNN_PANEL * 2));
    mica__cpu_plan_operands(plan, record, record->operand_count);
    mica__cpu_plan_scratch(plan, 0, params->room.bytes, MICA_ACCESS_WRITE);
    mica__cpu_plan_params(plan, params, sizeof *params);
}

static void plan_rnn_weight(const mica__record *record, const mica__cpu_rnn_backward *params, uint64_t gates,
                            mica__plan *plan)
{
    const uint64_t units = record->operand[MICA__RNN_BACKWARD_WEIGHT].shape[1];
    mica__plan_dispatch *dispatch =
        mica__cpu_plan_next(plan, "rnn_weight_backward", gates * ceil_of(units, MICA__CPU_RNN_ROWS));
    dispatch->local_bytes = (uint32_t)(MICA__CPU_RNN_ROWS * (params->padded + 1) * sizeof(double));
    mica__cpu_plan_grain(dispatch, 100 + 0.02 * (double)(params->split.tokens * units * MICA__CPU_RNN_ROWS));
    mica__cpu_plan_operands(plan, record, record->operand_count);
    mica__cpu_plan_scratch(plan, 0, params->room.bytes, MICA_ACCESS_READ);
    mica__cpu_plan_params(plan, params, sizeof *params);
}

mica_status mica__cpu_plan_rnn_backward(const mica__record *record, const mica__device_info *info,
                                        mica__plan *plan)
{
    const mica__rnn_record *rnn = record->params;
    const mica__operand *weight = &record->operand[MICA__RNN_BACKWARD_WEIGHT];
    const uint64_t rows = weight->shape[0], units = weight->shape[1], gates = mica__rnn_gates(rnn->rnn.kind);
    mica__cpu_rnn_backward params = {.rnn = rnn->rnn, .padded = mica__cpu_rnn_padded(units)};
    params.split = split_of(record, rnn->sequences, MICA__RNN_BACKWARD_STATE);
    params.cut = mica__cpu_rnn_cut_of(weight, params.split.count,
                                      (uint32_t)(params.padded / MICA__CPU_RNN_PANEL), 0.02, info->threads);
    params.room = rnn_room(&params, units, gates, weight->dtype == MICA_DTYPE_F64);
    params.range = range_of(params.cut.blocks * params.cut.parts + 1);
    if (params.padded * MICA__CPU_RNN_ROWS * sizeof(double) > UINT32_MAX / 2)
        return mica__fail(MICA_ERR_UNSUPPORTED, "rnn_backward on the cpu: %llu units; 2^22 are served",
                          (unsigned long long)units);
    plan_rnn_begin(record, &params, gates, plan);
    MICA__TRY(begin(record, "rnn_backward", &params.range, 0,
                    1000 + 0.05 * (double)(params.split.longest * params.cut.together * rows * units), plan));
    if (params.cut.parts > 1)
        plan->dispatch[plan->dispatch_count - 1].grain = 1;
    mica__cpu_plan_scratch(plan, 0, params.room.bytes, MICA_ACCESS_READ | MICA_ACCESS_WRITE);
    mica__cpu_plan_params(plan, &params, sizeof params);
    if (mica__operand_present(&record->operand[MICA__RNN_BACKWARD_DWEIGHT]) ||
        mica__operand_present(&record->operand[MICA__RNN_BACKWARD_DBIAS]))
        plan_rnn_weight(record, &params, gates, plan);
    return MICA_OK;
}
