/*
 * cpu_plan_recurrent.c - plans of ops that carry a state from token to token. Units are what has nothing to do with each other: sequences, heads,
 * channels, columns of states; tokens follow each other inside of a unit.
 */
#include "backend/cpu/cpu_plan.h"

#include "backend/cpu/cpu_plan_recurrent.h"
#include "backend/cpu/kernels/dense.h"
#include "base/status.h"
#include "quant/dtype.h"

#define STRIP_MOST 64u      /* floats of a strip of columns, on any instruction set */
#define UNITS_PER_THREAD 4u /* where there are so many channels */

static uint64_t ceil_of(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}

/* Slots of the record are views of the dispatch. `first` is the slot of state, behind which starts and the slots come. */
static mica__cpu_sequences sequences_of(const mica__record *record, uint32_t count, uint32_t state,
                                        uint32_t y)
{
    const mica__cpu_sequences found = {
        .tokens = record->operand[y].shape[0],
        .count = count,
        .state = state,
        .starts = state + 1,
        .read_slots = state + 2,
        .write_slots = state + 3,
        .next_state = y + 1,
        .y = y,
        .packed = mica__operand_present(&record->operand[state + 1]) ||
                  mica__operand_present(&record->operand[state + 2]) ||
                  mica__operand_present(&record->operand[state + 3]),
    };
    return found;
}

_Static_assert(MICA__SSM_CONV_STARTS == MICA__SSM_CONV_STATE + 1 &&
                   MICA__SSM_CONV_READ_SLOTS == MICA__SSM_CONV_STATE + 2 &&
                   MICA__SSM_CONV_WRITE_SLOTS == MICA__SSM_CONV_STATE + 3 &&
                   MICA__SSM_CONV_NEXT_STATE == MICA__SSM_CONV_Y + 1,
               "sequences_of counts from state and y on");
_Static_assert(MICA__DELTA_STARTS == MICA__DELTA_STATE + 1 &&
                   MICA__DELTA_READ_SLOTS == MICA__DELTA_STATE + 2 &&
                   MICA__DELTA_WRITE_SLOTS == MICA__DELTA_STATE + 3 &&
                   MICA__DELTA_NEXT_STATE == MICA__DELTA_Y + 1,
               "sequences_of counts from state and y on");

static mica__cpu_row_range range_of(uint64_t rows, const mica__cpu_sequences *sequences)
{
    rows += sequences->packed;
    const mica__cpu_row_range range = {rows, 1 + rows / UINT32_MAX};
    return range;
}

/* The dispatch with its operands; parameters are still to come. */
static mica_status begin(const mica__record *record, const char *kernel, const mica__cpu_row_range *range,
                         uint64_t local_bytes, mica__plan *plan)
{
    if (local_bytes > UINT32_MAX)
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "%s on the cpu: a unit needs %llu bytes of work memory; 4 GiB are served", kernel,
                          (unsigned long long)local_bytes);
    mica__plan_dispatch *dispatch =
        mica__cpu_plan_next(plan, kernel, ceil_of(range->rows, range->rows_per_unit));
    dispatch->local_bytes = (uint32_t)local_bytes;
    mica__cpu_plan_operands(plan, record, record->operand_count);
    return MICA_OK;
}

static mica_status finish(const mica__record *record, const char *kernel, const mica__cpu_row_range *range,
                          const void *params, uint32_t size, uint64_t local_bytes, double unit_ns,
                          mica__plan *plan)
{
    MICA__TRY(begin(record, kernel, range, local_bytes, plan));
    mica__cpu_plan_params(plan, params, size);
    mica__cpu_plan_grain(&plan->dispatch[plan->dispatch_count - 1], unit_ns);
    return MICA_OK;
}

mica_status mica__cpu_plan_ssm_conv(const mica__record *record, const mica__device_info *info,
                                    mica__plan *plan)
{
    const mica__ssm_conv_record *conv = record->params;
    const mica__operand *weight = &record->operand[MICA__SSM_CONV_WEIGHT];
    const uint64_t width = weight->shape[1];
    const bool wide = weight->dtype == MICA_DTYPE_F64;
    mica__cpu_ssm_conv params = {.activation = conv->conv.activation, .channels = MICA__CPU_CONV_MOST};
    params.sequences = sequences_of(record, conv->sequences, MICA__SSM_CONV_STATE, MICA__SSM_CONV_Y);
    const uint64_t tokens = params.sequences.tokens / (conv->sequences + 1u) + 1;
    while (params.channels > MICA__CPU_CONV_LEAST &&
           params.sequences.count * ceil_of(weight->shape[0], params.channels) <
               (uint64_t)info->threads * UNITS_PER_THREAD)
        params.channels /= 2;
    params.range =
        range_of(params.sequences.count * ceil_of(weight->shape[0], params.channels), &params.sequences);
    return finish(record, wide ? "ssm_conv_wide" : "ssm_conv", &params.range, &params, sizeof params,
                  wide ? 0 : mica__cpu_conv_bytes(params.channels, width),
                  100 + 0.05 * (double)(tokens * (8 + width) * params.channels), plan);
}

/* When chunks are taken by themselves. They cost a third more operations (3 D V a token for both; with chunks 64 (D + V) / 2 more for each of two
 * matrices, a solve and their use) and win where token by token a strip of the state, D by 64 floats, falls out of the first-level cache: beyond D = 128 of
 * 32 KB. Measured on one thread of an AMD EPYC with AVX-512, the least of 40 runs: D = V = 256 takes 1/1.1 of the time from 16 tokens on and 1/1.3 from 128 on,
 * 128 the same, 64 1.6 times. The portable form loses a seventh at 256. */
#define CHUNK_FROM 16u /* tokens */
#define CHUNK_DIM 192u

static uint64_t chunk_from(const mica__record *record)
{
    const uint32_t form = ((const mica__delta_record *)record->params)->delta.form;
    const mica__operand *q = &record->operand[MICA__DELTA_Q];
    if (record->operand[MICA__DELTA_G].ndim == 3) /* a decay for each row */
        return UINT64_MAX;
    if (form == MICA_DELTA_CHUNKED)
        return 0;
    return form == MICA_DELTA_AUTO && q->dtype != MICA_DTYPE_F64 && q->shape[2] >= CHUNK_DIM ? CHUNK_FROM
                                                                                             : UINT64_MAX;
}

static mica_status plan_tokens(const mica__record *record, mica__cpu_delta *params, uint64_t tokens,
                               uint32_t threads, mica__plan *plan)
{
    const mica__operand *q = &record->operand[MICA__DELTA_Q], *v = &record->operand[MICA__DELTA_V];
    const uint64_t dim = q->shape[2], columns = v->shape[2], padded = mica__cpu_delta_padded(dim);
    const bool wide = q->dtype == MICA_DTYPE_F64;
    params->blocks = wide ? 1 : ceil_of(columns, MICA__CPU_DELTA_COLUMNS);
    const uint64_t all = v->shape[1] * params->blocks,
                   each = params->sequences.count * all / (threads * UNITS_PER_THREAD);
    params->together = wide || each < 1                  ? 1
                       : each < MICA__CPU_DELTA_TOGETHER ? each
                                                         : MICA__CPU_DELTA_TOGETHER;
    params->range = range_of(params->sequences.count * ceil_of(all, params->together), &params->sequences);
    const uint64_t local = wide ? (2 * dim + dim * columns) * sizeof(double)
                                : (MICA__CPU_DELTA_LOADED * (2 * padded + 2 + STRIP_MOST) + STRIP_MOST +
                                   params->together * dim * STRIP_MOST) *
                                      sizeof(float);
    return finish(
        record, wide ? "delta_net_wide" : "delta_net", &params->range, params, sizeof *params, local,
        100 + (wide ? 2.0 : 0.05) * (double)(tokens * dim * MICA__CPU_DELTA_COLUMNS * params->together),
        plan);
}

static mica_status plan_chunks(const mica__record *record, mica__cpu_delta *params, uint64_t tokens,
                               mica__plan *plan)
{
    const mica__operand *q = &record->operand[MICA__DELTA_Q], *v = &record->operand[MICA__DELTA_V];
    const uint64_t dim = q->shape[2], columns = v->shape[2];
    const bool wide = q->dtype == MICA_DTYPE_F64;
    params->blocks = 1;
    params->range = range_of(params->sequences.count * v->shape[1], &params->sequences);
    return finish(record, wide ? "delta_chunk_wide" : "delta_chunk", &params->range, params, sizeof *params,
                  mica__cpu_delta_chunk_room(dim, columns) * (wide ? sizeof(double) : sizeof(float)),
                  1000 + (wide ? 2.0 : 0.1) * (double)(tokens * dim * columns), plan);
}

/* Which form a sequence takes is a matter of its own length alone, so that its bits do not depend on what it is batched with. */
mica_status mica__cpu_plan_delta_net(const mica__record *record, const mica__device_info *info,
                                     mica__plan *plan)
{
    const mica__delta_record *delta = record->params;
    mica__cpu_delta params = {.delta = delta->delta, .chunk_from = chunk_from(record)};
    params.sequences = sequences_of(record, delta->sequences, MICA__DELTA_STATE, MICA__DELTA_Y);
    const bool even = !mica__operand_present(&record->operand[MICA__DELTA_STARTS]);
    const uint64_t each = params.sequences.tokens / (delta->sequences > 0 ? delta->sequences : 1);
    const uint64_t shortest = even ? each : 0, longest = even ? each : params.sequences.tokens;
    if (shortest < params.chunk_from) {
        MICA__TRY(plan_tokens(record, &params, each + 1, info->threads, plan));
        params.sequences.packed = 0; /* the zeros of tokens that are nobody's are written then */
    }
    return longest >= params.chunk_from ? plan_chunks(record, &params, each + 1, plan) : MICA_OK;
}

mica_status mica__cpu_plan_selective_scan(const mica__record *record, const mica__device_info *info,
                                          mica__plan *plan)
{
    (void)info;
    const mica__selective_record *scan = record->params;
    const mica__operand *a = &record->operand[MICA__SELECTIVE_A], *b = &record->operand[MICA__SELECTIVE_B];
    const uint64_t places = a->shape[1];
    const bool wide = a->dtype == MICA_DTYPE_F64;
    mica__cpu_selective params = {.groups = b->shape[1], .softplus = scan->selective.softplus};
    params.channels = b->shape[1] > 0 ? a->shape[0] / b->shape[1] : 0;
    params.sequences = sequences_of(record, scan->sequences, MICA__SELECTIVE_STATE, MICA__SELECTIVE_Y);
    params.range = range_of(params.sequences.count * params.groups *
                                ceil_of(params.channels, MICA__CPU_SELECTIVE_CHANNELS),
                            &params.sequences);
    const uint64_t tokens = params.sequences.tokens / (scan->sequences + 1u) + 1;
    const uint64_t local =
        wide ? places * sizeof(double)
             : ((7 + 2 * places) * MICA__CPU_SELECTIVE_CHANNELS + 2 * places) * sizeof(float);
    return finish(record, wide ? "selective_scan_wide" : "selective_scan", &params.range, &params,
                  sizeof params, local,
                  100 + (wide ? 20.0 : 1.0) * (double)(tokens * places * MICA__CPU_SELECTIVE_CHANNELS), plan);
}

_Static_assert(MICA__SELECTIVE_STARTS == MICA__SELECTIVE_STATE + 1 &&
                   MICA__SELECTIVE_READ_SLOTS == MICA__SELECTIVE_STATE + 2 &&
                   MICA__SELECTIVE_WRITE_SLOTS == MICA__SELECTIVE_STATE + 3 &&
                   MICA__SELECTIVE_NEXT_STATE == MICA__SELECTIVE_Y + 1,
               "sequences_of counts from state and y on");
_Static_assert(MICA__RNN_STARTS == MICA__RNN_STATE + 1 && MICA__RNN_READ_SLOTS == MICA__RNN_STATE + 2 &&
                   MICA__RNN_WRITE_SLOTS == MICA__RNN_STATE + 3 && MICA__RNN_NEXT_STATE == MICA__RNN_Y + 1,
               "sequences_of counts from state and y on");

#define RNN_NEAR (1u << 20) /* bytes of a weight that stays in a thread's own second-level cache */
#define RNN_PART_NS 2000.0  /* the least work a token that is worth a barrier */
#define RNN_ALONE 4u        /* sequences a thread that make up for each reading the whole weight */

/* Threads take sequences of their own where there are enough, for they need no barrier then; else they share units, and with them what of the weight each
 * reads. No sum depends on it. */
mica__cpu_rnn_cut mica__cpu_rnn_cut_of(const mica__operand *weight, uint64_t count, uint32_t pieces,
                                       double sum_ns, uint32_t threads)
{
    const uint64_t elements = weight->shape[0] * weight->shape[1];
    const bool near = elements * mica__dtype_bytes(weight->dtype) <= RNN_NEAR;
    mica__cpu_rnn_cut cut = {.parts = 1, .together = 1};
    uint64_t blocks = ceil_of(count, MICA__CPU_RNN_SEQUENCES);
    if (count == 0)
        return cut;
    if (blocks < threads && !(near && count >= (uint64_t)RNN_ALONE * threads)) {
        const double token_ns = (double)elements * (0.02 + sum_ns * (double)ceil_of(count, blocks));
        const double worth = token_ns / RNN_PART_NS;
        const uint64_t shares = threads / blocks, most = shares < pieces ? shares : pieces;
        cut.parts = worth < 2 || most < 2 ? 1 : worth < (double)most ? (uint32_t)worth : (uint32_t)most;
    }
    if (cut.parts == 1 && blocks < threads)
        blocks = count < threads ? count : threads;
    cut.together = (uint32_t)ceil_of(count, blocks);
    cut.blocks = ceil_of(count, cut.together);
    return cut;
}

/* A block's first states, and where its parts meet. */
static void plan_rnn_begin(const mica__record *record, const mica__cpu_rnn *params, mica__plan *plan)
{
    mica__cpu_plan_next(plan, "rnn_begin", params->cut.blocks);
    mica__cpu_plan_operands(plan, record, record->operand_count);
    mica__cpu_plan_scratch(plan, 0, params->cut.blocks * params->block_bytes, MICA_ACCESS_WRITE);
    mica__cpu_plan_params(plan, params, sizeof *params);
}

static mica_status plan_rnn_wide(const mica__record *record, mica__cpu_rnn *params, mica__plan *plan)
{
    const mica__operand *weight = &record->operand[MICA__RNN_WEIGHT];
    const uint64_t rows = weight->shape[0], hidden = weight->shape[1];
    params->range = range_of(params->sequences.count, &params->sequences);
    return finish(record, "rnn_wide", &params->range, params, sizeof *params,
                  (2 * hidden + rows) * sizeof(double),
                  1000 + 2.0 * (double)(params->sequences.tokens * rows * hidden), plan);
}

mica_status mica__cpu_plan_rnn(const mica__record *record, const mica__device_info *info, mica__plan *plan)
{
    const mica__rnn_record *rnn = record->params;
    const mica__operand *weight = &record->operand[MICA__RNN_WEIGHT];
    const uint64_t rows = weight->shape[0], hidden = weight->shape[1], gates = mica__rnn_gates(rnn->rnn.kind);
    mica__cpu_rnn params = {.rnn = rnn->rnn};
    params.sequences = sequences_of(record, rnn->sequences, MICA__RNN_STATE, MICA__RNN_Y);
    if (weight->dtype == MICA_DTYPE_F64)
        return plan_rnn_wide(record, &params, plan);
    params.cut = mica__cpu_rnn_cut_of(weight, params.sequences.count,
                                      (uint32_t)ceil_of(hidden, MICA__CPU_RNN_UNITS), 0.01, info->threads);
    params.range = range_of(params.cut.blocks * params.cut.parts, &params.sequences);
    params.block_bytes = mica__cpu_rnn_block_bytes(hidden, gates, &params.cut);
    const uint64_t width = mica__cpu_rnn_width(hidden, params.cut.parts);
    const uint64_t work = params.cut.together * mica__cpu_delta_padded(hidden) +
                          mica__dense_lines_floats(hidden) +
                          mica__dense_partial_floats(params.cut.together, width, hidden) +
                          gates * mica__dense_out_floats(params.cut.together, width);
    const uint64_t local = work * sizeof(float) + (params.cut.parts == 1 ? params.block_bytes : 0);
    if (params.cut.parts > 1)
        plan_rnn_begin(record, &params, plan);
    MICA__TRY(begin(record, "rnn", &params.range, local, plan));
    if (params.cut.parts > 1)
        mica__cpu_plan_scratch(plan, 0, params.cut.blocks * params.block_bytes,
                               MICA_ACCESS_READ | MICA_ACCESS_WRITE);
    mica__cpu_plan_params(plan, &params, sizeof params);
    const uint64_t tokens = params.sequences.tokens / (params.cut.blocks > 0 ? params.cut.blocks : 1);
    mica__plan_dispatch *dispatch = &plan->dispatch[plan->dispatch_count - 1];
    mica__cpu_plan_grain(dispatch, 1000 + 0.02 * (double)(tokens * rows * hidden));
    if (params.cut.parts > 1)
        dispatch->grain = 1;
    return MICA_OK;
}
