/* gpu_plan_recurrent.c - plans of ops that carry a state from token to token. */
#include <string.h>

#include "backend/gpu/gpu_plan_recurrent.h"
#include "base/status.h"

#define ULL(x) ((unsigned long long)(x))
#define COLUMNS 32u /* of a state, a group's */
#define PARTS 8u    /* in which a group has its rows */
#define MOST_ROWS 128u
#define SCAN_WG 64u /* channels of a group */
#define MOST_PLACES 256u
#define CHUNK 64u /* tokens */
/* Bytes that a chunk of a head has in the scratch: delta_chunk.kc. */
#define CHUNK_ROOM ((2u * CHUNK + 4u) * CHUNK * 4u)

static uint64_t ceil_of(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}

static mica__gpu_sequence_slots slots_of(uint32_t state, uint32_t y)
{
    const mica__gpu_sequence_slots at = {state, state + 1, state + 2, state + 3, y, y + 1};
    return at;
}

mk_sequences mica__gpu_sequences_of(const mica__record *record, const mica__gpu_sequence_slots *at,
                                    uint32_t count)
{
    const uint32_t slot[] = {at->state, at->starts, at->read_slots, at->write_slots, at->next_state};
    const mica__operand *operand = record->operand;
    mk_sequences of;
    memset(&of, 0, sizeof of);
    for (uint32_t i = 0; i < 5; i++)
        of.present |= (uint32_t)(slot[i] != MICA__GPU_NO_SLOT && mica__operand_present(&operand[slot[i]]))
                      << i;
    of.tokens = (uint32_t)operand[at->y].shape[0];
    of.count = count;
    of.each = count > 0 ? of.tokens / count : 0;
    of.state_step = operand[at->state].stride[0];
    of.state_slots = (uint32_t)operand[at->state].shape[0];
    of.starts_step = operand[at->starts].stride[0];
    of.read_step = operand[at->read_slots].stride[0];
    of.fault_code = mica__gpu_fault_code(record);
    if (at->next_state == MICA__GPU_NO_SLOT)
        return of;
    of.next_step = operand[at->next_state].stride[0];
    of.next_slots = (uint32_t)operand[at->next_state].shape[0];
    of.write_step = operand[at->write_slots].stride[0];
    return of;
}

bool mica__gpu_is_packed(const mk_sequences *of)
{
    return (of->present & (MK_SEQUENCES_STARTS | MK_SEQUENCES_READ | MK_SEQUENCES_WRITE)) != 0;
}

mica_status mica__gpu_recurrent_check(const mica__record *record, uint32_t indices)
{
    for (uint32_t s = 0; s < record->operand_count; s++)
        for (uint32_t d = 0; d < record->operand[s].ndim; d++)
            if (mica__operand_present(&record->operand[s]) && record->operand[s].shape[d] > INT32_MAX)
                return mica__fail(MICA_ERR_UNSUPPORTED,
                                  "%s: a dimension of %llu elements, 2^31 - 1 are served",
                                  mica_op_name((mica_op)record->op), ULL(record->operand[s].shape[d]));
    return mica__gpu_check_floats(record, ~indices);
}

static void set2(uint64_t *to, const uint64_t *from)
{
    to[0] = from[0];
    to[1] = from[1];
}

mica_status mica__gpu_plan_gaps(const mica__record *record, const mica__gpu_sequence_slots *at,
                                uint32_t y_slot, const mk_sequences *of, mica__plan *plan)
{
    const mica__operand *y = &record->operand[y_slot];
    mk_gaps_params p;
    if (!mica__gpu_is_packed(of) || of->tokens == 0 || !mica__operand_present(y))
        return MICA_OK;
    memset(&p, 0, sizeof p);
    p.of = *of;
    p.token_stride = y->stride[0];
    p.row_stride = y->ndim > 2 ? y->stride[1] : 0;
    p.stride = y->stride[y->ndim - 1];
    p.rows = y->ndim > 2 ? (uint32_t)y->shape[1] : 1;
    p.n = (uint32_t)y->shape[y->ndim - 1];
    p.type = mica__gpu_type(y->dtype);
    MICA__TRY(mica__gpu_plan_next(plan, "gaps/gaps", of->tokens));
    mica__gpu_plan_operand(plan, record, at->starts, 0);
    mica__gpu_plan_operand(plan, record, at->read_slots, 0);
    mica__gpu_plan_operand(plan, record, at->write_slots, 0);
    mica__gpu_plan_operand(plan, record, y_slot, 0);
    mica__gpu_plan_fault(plan);
    mica__gpu_plan_params(plan, &p, sizeof p);
    return MICA_OK;
}

/* ---- convolution ---- */

static mk_ssm_conv_params conv_params(const mica__record *record, const mica__gpu_sequence_slots *at)
{
    const mica__ssm_conv_record *conv = record->params;
    const mica__operand *operand = record->operand, *weight = &operand[MICA__SSM_CONV_WEIGHT];
    mk_ssm_conv_params p;
    memset(&p, 0, sizeof p);
    p.of = mica__gpu_sequences_of(record, at, conv->sequences);
    p.x_stride = operand[MICA__SSM_CONV_X].stride[0];
    p.y_stride = operand[MICA__SSM_CONV_Y].stride[0];
    set2(p.weight_stride, weight->stride);
    p.bias_stride = operand[MICA__SSM_CONV_BIAS].stride[0];
    set2(p.state_stride, operand[MICA__SSM_CONV_STATE].stride + 1);
    set2(p.next_stride, operand[MICA__SSM_CONV_NEXT_STATE].stride + 1);
    p.channels = (uint32_t)weight->shape[0];
    p.width = (uint32_t)weight->shape[1];
    p.silu = conv->conv.activation == MICA_SSM_SILU;
    p.has_bias = mica__operand_present(&operand[MICA__SSM_CONV_BIAS]);
    p.x_type = mica__gpu_type(operand[MICA__SSM_CONV_X].dtype);
    p.weight_type = mica__gpu_type(weight->dtype);
    p.bias_type = mica__gpu_type(operand[MICA__SSM_CONV_BIAS].dtype);
    p.state_type = mica__gpu_type(operand[MICA__SSM_CONV_STATE].dtype);
    p.y_type = mica__gpu_type(operand[MICA__SSM_CONV_Y].dtype);
    p.next_type = mica__gpu_type(operand[MICA__SSM_CONV_NEXT_STATE].dtype);
    return p;
}

mica_status mica__gpu_plan_ssm_conv(const mica__record *record, const mica__device_info *info,
                                    mica__plan *plan)
{
    const mica__gpu_sequence_slots at = slots_of(MICA__SSM_CONV_STATE, MICA__SSM_CONV_Y);
    (void)info;
    MICA__TRY(mica__gpu_recurrent_check(record, 7u << MICA__SSM_CONV_STARTS));
    const mk_ssm_conv_params p = conv_params(record, &at);
    const uint64_t blocks = ceil_of(p.channels, MICA__MK_WG);
    if (p.of.tokens > 0) {
        MICA__TRY(mica__gpu_plan_next(plan, "ssm_conv/forward", p.of.tokens));
        MICA__TRY(mica__gpu_plan_groups(plan, blocks, 1));
        for (uint32_t slot = MICA__SSM_CONV_X; slot <= MICA__SSM_CONV_Y; slot++)
            mica__gpu_plan_operand(plan, record, slot, 0);
        mica__gpu_plan_params(plan, &p, sizeof p);
    }
    if (p.of.count == 0 || (!mica__gpu_is_packed(&p.of) && (p.of.present & MK_SEQUENCES_NEXT) == 0))
        return MICA_OK;
    MICA__TRY(mica__gpu_plan_next(plan, "ssm_conv/next", p.of.count));
    MICA__TRY(mica__gpu_plan_groups(plan, blocks, 1));
    mica__gpu_plan_operand(plan, record, MICA__SSM_CONV_X, 0);
    for (uint32_t slot = MICA__SSM_CONV_STATE; slot <= MICA__SSM_CONV_WRITE_SLOTS; slot++)
        mica__gpu_plan_operand(plan, record, slot, 0);
    mica__gpu_plan_operand(plan, record, MICA__SSM_CONV_NEXT_STATE, 0);
    mica__gpu_plan_fault(plan);
    mica__gpu_plan_params(plan, &p, sizeof p);
    return MICA_OK;
}

/* ---- the delta rule ---- */

mk_delta_params mica__gpu_delta_params(const mica__record *record, const mica__gpu_sequence_slots *at)
{
    const mica__delta_record *delta = record->params;
    const mica__operand *operand = record->operand, *q = &operand[MICA__DELTA_Q],
                        *v = &operand[MICA__DELTA_V];
    mk_delta_params p;
    memset(&p, 0, sizeof p);
    p.of = mica__gpu_sequences_of(record, at, delta->sequences);
    set2(p.q_stride, q->stride);
    set2(p.k_stride, operand[MICA__DELTA_K].stride);
    set2(p.v_stride, v->stride);
    set2(p.g_stride, operand[MICA__DELTA_G].stride);
    set2(p.beta_stride, operand[MICA__DELTA_BETA].stride);
    set2(p.y_stride, operand[MICA__DELTA_Y].stride);
    set2(p.state_stride, operand[MICA__DELTA_STATE].stride + 1);
    set2(p.next_stride, operand[MICA__DELTA_NEXT_STATE].stride + 1);
    p.skip_stride = operand[MICA__DELTA_SKIP].stride[0];
    p.by_row = mica__operand_present(&operand[MICA__DELTA_G]) && operand[MICA__DELTA_G].ndim == 3;
    p.g_row = p.by_row != 0 ? operand[MICA__DELTA_G].stride[2] : 0;
    p.heads = (uint32_t)v->shape[1];
    p.share = q->shape[1] > 0 ? (uint32_t)(v->shape[1] / q->shape[1]) : 1;
    p.dim = (uint32_t)q->shape[2];
    p.columns = (uint32_t)v->shape[2];
    p.blocks = (uint32_t)ceil_of(p.columns, COLUMNS);
    p.correct = delta->delta.rule == MICA_DELTA_CORRECT;
    p.normalise = delta->delta.normalise;
    p.present = (mica__operand_present(&operand[MICA__DELTA_G]) ? MK_DELTA_G : 0) |
                (mica__operand_present(&operand[MICA__DELTA_BETA]) ? MK_DELTA_BETA : 0) |
                (mica__operand_present(&operand[MICA__DELTA_SKIP]) ? MK_DELTA_SKIP : 0);
    p.q_type = mica__gpu_type(q->dtype);
    p.k_type = mica__gpu_type(operand[MICA__DELTA_K].dtype);
    p.v_type = mica__gpu_type(v->dtype);
    p.g_type = mica__gpu_type(operand[MICA__DELTA_G].dtype);
    p.beta_type = mica__gpu_type(operand[MICA__DELTA_BETA].dtype);
    p.skip_type = mica__gpu_type(operand[MICA__DELTA_SKIP].dtype);
    p.y_type = mica__gpu_type(operand[MICA__DELTA_Y].dtype);
    p.eps = delta->delta.eps;
    p.scale = delta->delta.scale;
    return p;
}

/* What `forward` asks of the parameters for every token, as constants. */
static void fix(const mk_delta_params *p, mica__plan *plan)
{
    mica__gpu_plan_constant(plan, "FIXED", 1);
    mica__gpu_plan_constant(plan, "PRESENT", p->present);
    mica__gpu_plan_constant(plan, "BY_ROW", p->by_row);
    mica__gpu_plan_constant(plan, "Q_TYPE", p->q_type);
    mica__gpu_plan_constant(plan, "K_TYPE", p->k_type);
    mica__gpu_plan_constant(plan, "V_TYPE", p->v_type);
    mica__gpu_plan_constant(plan, "G_TYPE", p->g_type);
    mica__gpu_plan_constant(plan, "BETA_TYPE", p->beta_type);
    mica__gpu_plan_constant(plan, "SKIP_TYPE", p->skip_type);
    mica__gpu_plan_constant(plan, "Y_TYPE", p->y_type);
}

/* Rows that do not fit into registers lie in the scratch. */
static mica_status plan_tokens(const mica__record *record, const mk_delta_params *p, uint32_t rows,
                               bool fixed, mica__plan *plan)
{
    const uint64_t groups = (uint64_t)p->of.count * p->heads * p->blocks;
    const bool fits = rows <= MOST_ROWS;
    MICA__TRY(mica__gpu_plan_next(plan, fits ? "delta_net/forward" : "delta_net/forward_long", groups));
    mica__gpu_plan_constant(plan, "ROWS", fits ? rows : 4);
    if (fixed && fits)
        fix(p, plan);
    for (uint32_t slot = 0; slot < MICA__DELTA_SLOTS; slot++)
        mica__gpu_plan_operand(plan, record, slot, 0);
    if (!fits)
        mica__gpu_plan_scratch(plan, 0, groups * p->dim * COLUMNS * 4, MICA_ACCESS_READ | MICA_ACCESS_WRITE);
    mica__gpu_plan_fault(plan);
    mica__gpu_plan_params(plan, p, sizeof *p);
    return MICA_OK;
}

/* Scratch: a room for every chunk of every head, as many as there can be, then the states of all heads, in blocks of columns. */
static mica_status plan_chunks(const mica__record *record, mk_delta_params *p, mica__plan *plan)
{
    static const uint32_t prepare[] = {MICA__DELTA_Q,          MICA__DELTA_K,      MICA__DELTA_G,
                                       MICA__DELTA_BETA,       MICA__DELTA_STARTS, MICA__DELTA_READ_SLOTS,
                                       MICA__DELTA_WRITE_SLOTS};
    static const uint32_t forward[] = {MICA__DELTA_Q,      MICA__DELTA_K,          MICA__DELTA_V,
                                       MICA__DELTA_BETA,   MICA__DELTA_SKIP,       MICA__DELTA_STATE,
                                       MICA__DELTA_STARTS, MICA__DELTA_READ_SLOTS, MICA__DELTA_WRITE_SLOTS,
                                       MICA__DELTA_Y,      MICA__DELTA_NEXT_STATE};
    const uint64_t chunks = ceil_of(p->of.tokens, CHUNK) + p->of.count;
    const uint64_t groups = (uint64_t)p->of.count * p->heads * p->blocks;
    p->carried = chunks * p->heads * CHUNK_ROOM;
    const uint64_t bytes = p->carried + groups * (p->dim > 0 ? p->dim : 1) * COLUMNS * 4;
    if (p->of.tokens > 0) {
        MICA__TRY(mica__gpu_plan_next(plan, "delta_chunk/prepare", chunks * p->heads));
        for (size_t i = 0; i < sizeof prepare / sizeof *prepare; i++)
            mica__gpu_plan_operand(plan, record, prepare[i], 0);
        mica__gpu_plan_scratch(plan, 0, p->carried, MICA_ACCESS_WRITE);
        mica__gpu_plan_params(plan, p, sizeof *p);
    }
    MICA__TRY(mica__gpu_plan_next(plan, "delta_chunk/forward", groups));
    for (size_t i = 0; i < sizeof forward / sizeof *forward; i++)
        mica__gpu_plan_operand(plan, record, forward[i], 0);
    mica__gpu_plan_scratch(plan, 0, bytes, MICA_ACCESS_READ | MICA_ACCESS_WRITE);
    mica__gpu_plan_fault(plan);
    mica__gpu_plan_params(plan, p, sizeof *p);
    return MICA_OK;
}

/* By itself token by token: whether chunks are faster has not been measured on a GPU. But for keys that are too long for its registers. */
static mica_status plan_delta(const mica__record *record, bool fixed, mica__plan *plan)
{
    const mica__gpu_sequence_slots at = slots_of(MICA__DELTA_STATE, MICA__DELTA_Y);
    const uint32_t form = ((const mica__delta_record *)record->params)->delta.form;
    MICA__TRY(mica__gpu_recurrent_check(record, 7u << MICA__DELTA_STARTS));
    mk_delta_params p = mica__gpu_delta_params(record, &at);
    uint32_t rows = 4;
    while (rows * PARTS < p.dim && rows <= MOST_ROWS)
        rows *= 2;
    const bool tokens =
        form == MICA_DELTA_SEQUENTIAL || p.by_row != 0 || (form == MICA_DELTA_AUTO && rows <= MOST_ROWS);
    MICA__TRY(mica__gpu_plan_gaps(record, &at, at.y, &p.of, plan));
    if (p.of.count == 0 || p.heads == 0 || p.blocks == 0)
        return MICA_OK;
    return tokens ? plan_tokens(record, &p, rows, fixed, plan) : plan_chunks(record, &p, plan);
}

mica_status mica__gpu_plan_delta_net(const mica__record *record, const mica__device_info *info,
                                     mica__plan *plan)
{
    return mica__gpu_has_own_texts(info) ? plan_delta(record, true, plan) : MICA_ERR_KERNEL_NOT_FOUND;
}

mica_status mica__gpu_plan_delta_net_any(const mica__record *record, const mica__device_info *info,
                                         mica__plan *plan)
{
    (void)info;
    return plan_delta(record, false, plan);
}

/* ---- selective scan ---- */

static mk_selective_params scan_params(const mica__record *record, const mica__gpu_sequence_slots *at)
{
    const mica__selective_record *scan = record->params;
    const mica__operand *operand = record->operand, *a = &operand[MICA__SELECTIVE_A];
    mk_selective_params p;
    memset(&p, 0, sizeof p);
    p.of = mica__gpu_sequences_of(record, at, scan->sequences);
    p.x_stride = operand[MICA__SELECTIVE_X].stride[0];
    p.dt_stride = operand[MICA__SELECTIVE_DT].stride[0];
    p.z_stride = operand[MICA__SELECTIVE_Z].stride[0];
    p.y_stride = operand[MICA__SELECTIVE_Y].stride[0];
    p.skip_stride = operand[MICA__SELECTIVE_SKIP].stride[0];
    p.bias_stride = operand[MICA__SELECTIVE_DT_BIAS].stride[0];
    set2(p.a_stride, a->stride);
    memcpy(p.b_stride, operand[MICA__SELECTIVE_B].stride, sizeof p.b_stride);
    memcpy(p.c_stride, operand[MICA__SELECTIVE_C].stride, sizeof p.c_stride);
    set2(p.state_stride, operand[MICA__SELECTIVE_STATE].stride + 1);
    set2(p.next_stride, operand[MICA__SELECTIVE_NEXT_STATE].stride + 1);
    p.channels = (uint32_t)a->shape[0];
    p.places = (uint32_t)a->shape[1];
    p.share = operand[MICA__SELECTIVE_B].shape[1] > 0
                  ? (uint32_t)(a->shape[0] / operand[MICA__SELECTIVE_B].shape[1])
                  : 1;
    p.blocks = (uint32_t)ceil_of(p.channels, SCAN_WG);
    p.softplus = scan->selective.softplus;
    p.present = (mica__operand_present(&operand[MICA__SELECTIVE_SKIP]) ? MK_SELECTIVE_SKIP : 0) |
                (mica__operand_present(&operand[MICA__SELECTIVE_DT_BIAS]) ? MK_SELECTIVE_DT_BIAS : 0) |
                (mica__operand_present(&operand[MICA__SELECTIVE_Z]) ? MK_SELECTIVE_Z : 0);
    p.x_type = mica__gpu_type(operand[MICA__SELECTIVE_X].dtype);
    p.dt_type = mica__gpu_type(operand[MICA__SELECTIVE_DT].dtype);
    p.a_type = mica__gpu_type(a->dtype);
    p.b_type = mica__gpu_type(operand[MICA__SELECTIVE_B].dtype);
    p.c_type = mica__gpu_type(operand[MICA__SELECTIVE_C].dtype);
    p.skip_type = mica__gpu_type(operand[MICA__SELECTIVE_SKIP].dtype);
    p.bias_type = mica__gpu_type(operand[MICA__SELECTIVE_DT_BIAS].dtype);
    p.z_type = mica__gpu_type(operand[MICA__SELECTIVE_Z].dtype);
    p.y_type = mica__gpu_type(operand[MICA__SELECTIVE_Y].dtype);
    return p;
}

mica_status mica__gpu_plan_selective_scan(const mica__record *record, const mica__device_info *info,
                                          mica__plan *plan)
{
    const mica__gpu_sequence_slots at = slots_of(MICA__SELECTIVE_STATE, MICA__SELECTIVE_Y);
    (void)info;
    MICA__TRY(mica__gpu_recurrent_check(record, 7u << MICA__SELECTIVE_STARTS));
    const mk_selective_params p = scan_params(record, &at);
    uint32_t places = 8;
    while (places < p.places && places <= MOST_PLACES)
        places *= 2;
    MICA__TRY(mica__gpu_plan_gaps(record, &at, at.y, &p.of, plan));
    if (p.of.count == 0 || p.blocks == 0)
        return MICA_OK;
    const bool fits = places <= MOST_PLACES;
    MICA__TRY(mica__gpu_plan_next(plan, fits ? "selective_scan/forward" : "selective_scan/forward_long",
                                  (uint64_t)p.of.count * p.blocks));
    mica__gpu_plan_constant(plan, "MK_WG", SCAN_WG);
    mica__gpu_plan_constant(plan, "PLACES", fits ? places : 8);
    for (uint32_t slot = 0; slot < MICA__SELECTIVE_SLOTS; slot++)
        mica__gpu_plan_operand(plan, record, slot, 0);
    if (!fits)
        mica__gpu_plan_scratch(plan, 0, (uint64_t)p.of.count * p.places * p.channels * 4,
                               MICA_ACCESS_READ | MICA_ACCESS_WRITE);
    mica__gpu_plan_fault(plan);
    mica__gpu_plan_params(plan, &p, sizeof p);
    return MICA_OK;
}

/* ---- cells ---- */

_Static_assert(MK_RNN_TANH == MICA_RNN_TANH && MK_RNN_RELU == MICA_RNN_RELU && MK_RNN_GRU == MICA_RNN_GRU &&
                   MK_RNN_LSTM == MICA_RNN_LSTM,
               "kernels know kinds by the same numbers");

/* A token waits for the one before it and for all of its units, so a sequence is one group: a batch of few sequences leaves most of a GPU idle. */
mica_status mica__gpu_plan_rnn(const mica__record *record, const mica__device_info *info, mica__plan *plan)
{
    const mica__gpu_sequence_slots at = slots_of(MICA__RNN_STATE, MICA__RNN_Y);
    const mica__rnn_record *rnn = record->params;
    const mica__operand *operand = record->operand, *weight = &operand[MICA__RNN_WEIGHT];
    mk_rnn_params p;
    (void)info;
    MICA__TRY(mica__gpu_recurrent_check(record, 7u << MICA__RNN_STARTS));
    memset(&p, 0, sizeof p);
    p.of = mica__gpu_sequences_of(record, &at, rnn->sequences);
    p.x_stride = operand[MICA__RNN_X].stride[0];
    p.y_stride = operand[MICA__RNN_Y].stride[0];
    p.weight_stride = weight->stride[0];
    p.bias_stride = operand[MICA__RNN_BIAS].stride[0];
    p.state_stride = operand[MICA__RNN_STATE].stride[1];
    p.next_stride = operand[MICA__RNN_NEXT_STATE].stride[1];
    p.hidden = (uint32_t)weight->shape[1];
    p.gates = (uint32_t)mica__rnn_gates(rnn->rnn.kind);
    p.kept = rnn->rnn.kind == MICA_RNN_LSTM ? 2 : 1;
    p.kind = rnn->rnn.kind;
    p.reverse = rnn->rnn.reverse;
    p.has_bias = mica__operand_present(&operand[MICA__RNN_BIAS]);
    p.x_type = mica__gpu_type(operand[MICA__RNN_X].dtype);
    p.weight_type = mica__gpu_type(weight->dtype);
    p.bias_type = mica__gpu_type(operand[MICA__RNN_BIAS].dtype);
    p.y_type = mica__gpu_type(operand[MICA__RNN_Y].dtype);
    MICA__TRY(mica__gpu_plan_gaps(record, &at, at.y, &p.of, plan));
    if (p.of.count == 0 || p.hidden == 0)
        return MICA_OK;
    MICA__TRY(mica__gpu_plan_next(plan, "rnn/forward", p.of.count));
    for (uint32_t slot = 0; slot < MICA__RNN_SLOTS; slot++)
        mica__gpu_plan_operand(plan, record, slot, 0);
    mica__gpu_plan_scratch(plan, 0, 4ull * p.of.count * (2 + p.gates) * p.hidden,
                           MICA_ACCESS_READ | MICA_ACCESS_WRITE);
    mica__gpu_plan_fault(plan);
    mica__gpu_plan_params(plan, &p, sizeof p);
    return MICA_OK;
}
