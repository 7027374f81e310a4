/* recurrent.c - ops that carry a state from token to token: convolutions of state-space models, the gated delta rule;
 * and their gradients. */
#include <math.h>
#include <string.h>

#include "device/objects.h"
#include "ops/programs.h"

#define ULL(x) ((unsigned long long)(x))
#define NONE MICA_REGION_NONE

/* ---- sequences ---- */

static uint64_t first_size(const mica__op_builder *op, uint32_t slot)
{
    return op->record.operand[slot].shape[0];
}

/* Where the slots of sequences stand in the record of an op. */
typedef struct sequence_slots {
    uint32_t state, starts, read_slots, write_slots, next_state;
} sequence_slots;

/* How many sequences there are, as ops_recurrent.h says; unknown where the size is. */
static uint64_t count_sequences(const mica__op_builder *op, const sequence_slots *at)
{
    if (mica__op_has(op, at->starts)) {
        const uint64_t starts = first_size(op, at->starts);
        return mica__size_known(starts) && starts > 0 ? starts - 1 : starts;
    }
    if (mica__op_has(op, at->read_slots))
        return first_size(op, at->read_slots);
    if (mica__op_has(op, at->write_slots))
        return first_size(op, at->write_slots);
    if (mica__op_has(op, at->state))
        return first_size(op, at->state);
    return mica__op_has(op, at->next_state) ? first_size(op, at->next_state) : 1;
}

/* A sequence has a slot where nobody says which. */
static void check_slots(mica__op_builder *op, uint32_t state, uint32_t slots, uint64_t count)
{
    if (!mica__op_has(op, state) || mica__op_has(op, slots))
        return;
    const uint64_t there = first_size(op, state);
    mica__op_require(op, !mica__size_known(there) || !mica__size_known(count) || there >= count,
                     "%s: shape[0] is %llu, but there are %llu sequences", mica__op_argument(op, state),
                     ULL(there), ULL(count));
}

static uint32_t check_sequences(mica__op_builder *op, const sequence_slots *at)
{
    const uint64_t count = count_sequences(op, at), tokens = mica__op_size(op, 'T');
    if (mica__op_has(op, at->starts)) {
        const uint64_t starts = first_size(op, at->starts);
        mica__op_require(op, starts != 0, "starts: shape[0] is 0, not one more than there are sequences");
        for (uint32_t s = 0; s < 2; s++) {
            const uint32_t slot = s == 0 ? at->read_slots : at->write_slots;
            if (mica__op_has(op, slot))
                mica__op_require(op, mica__sizes_agree(first_size(op, slot), count),
                                 "%s: shape[0] is %llu, but starts is of %llu sequences",
                                 mica__op_argument(op, slot), ULL(first_size(op, slot)), ULL(count));
        }
    } else if (mica__size_known(count) && mica__size_known(tokens)) {
        mica__op_require(op, count > 0 ? tokens % count == 0 : tokens == 0,
                         "%s: shape[0] is %llu, no multiple of %llu sequences, and starts is absent",
                         mica__op_argument(op, 0), ULL(tokens), ULL(count));
    }
    check_slots(op, at->state, at->read_slots, count);
    check_slots(op, at->next_state, at->write_slots, count);
    mica__op_require(op, !mica__size_known(count) || count < UINT32_MAX, "starts: %llu sequences, over 2^32",
                     ULL(count));
    mica__op_require(op, !mica__size_known(tokens) || tokens < UINT32_MAX, "%s: shape[0] is over 2^32",
                     mica__op_argument(op, 0));
    return mica__size_known(count) ? (uint32_t)count : 0;
}

/* f64 is a matter of all operands: those that are reals, `slots`, are f64 or none is. */
static void check_wide(mica__op_builder *op, uint32_t slots)
{
    const bool wide = op->record.operand[0].dtype == MICA_DTYPE_F64;
    for (uint32_t s = 1; s < op->record.operand_count; s++) {
        const uint16_t dtype = op->record.operand[s].dtype;
        if ((slots >> s & 1) == 0 || !mica__op_has(op, s) || dtype == MICA_DTYPE_NONE)
            continue;
        mica__op_require(op, (dtype == MICA_DTYPE_F64) == wide, "%s is %s, but %s is %s",
                         mica__op_argument(op, s), mica_dtype_name((mica_dtype)dtype),
                         mica__op_argument(op, 0), mica_dtype_name((mica_dtype)op->record.operand[0].dtype));
    }
}

/* ---- convolution ---- */

void mica__rule_ssm_conv(mica__op_builder *op)
{
    static const sequence_slots at = {MICA__SSM_CONV_STATE, MICA__SSM_CONV_STARTS, MICA__SSM_CONV_READ_SLOTS,
                                      MICA__SSM_CONV_WRITE_SLOTS, MICA__SSM_CONV_NEXT_STATE};
    mica__ssm_conv_record *record = op->record.params;
    const uint64_t width = mica__op_size(op, 'K');
    mica__op_require(op, record->conv.activation <= MICA_SSM_SILU,
                     "params.activation is %u, which is no mica_ssm_activation", record->conv.activation);
    mica__op_require(op, !mica__size_known(width) || (width > 0 && width < UINT32_MAX),
                     "weight: shape[1] is %llu, not a width from 1 on", ULL(width));
    for (uint32_t s = 0; s < 2; s++) {
        const uint32_t slot = s == 0 ? MICA__SSM_CONV_STATE : MICA__SSM_CONV_NEXT_STATE;
        const uint64_t kept = mica__op_has(op, slot) ? op->record.operand[slot].shape[2] : width - 1;
        mica__op_require(op, !mica__size_known(width) || !mica__size_known(kept) || kept + 1 == width,
                         "%s: shape[2] is %llu, not one less than shape[1] of weight, %llu",
                         mica__op_argument(op, slot), ULL(kept), ULL(width));
    }
    check_wide(op, 1u << MICA__SSM_CONV_WEIGHT | 1u << MICA__SSM_CONV_BIAS | 1u << MICA__SSM_CONV_STATE |
                       1u << MICA__SSM_CONV_Y | 1u << MICA__SSM_CONV_NEXT_STATE);
    record->sequences = check_sequences(op, &at);
}

mica_status mica_ssm_conv(mica_encoder *encoder, mica_buffer *x, mica_buffer *weight, mica_buffer *bias,
                          const mica_sequences *sequences, const mica_ssm_conv_params *params, mica_buffer *y)
{
    const mica_sequences none = {0}, *of = sequences != NULL ? sequences : &none;
    mica__ssm_conv_record record = {.sequences = 0};
    if (params != NULL)
        record.conv = *params;
    return mica__op_call(encoder, MICA_OP_SSM_CONV, &record,
                         (mica_buffer *const[]){x, weight, bias, of->state, of->starts, of->read_slots,
                                                of->write_slots, y, of->next_state});
}

/* ---- the delta rule ---- */

/* What the rule and its gradient ask alike; their slots of q to g are the same. */
static void check_delta(mica__op_builder *op, mica_delta_params *params)
{
    const uint64_t heads = mica__op_size(op, 'H'), groups = mica__op_size(op, 'G'),
                   dim = mica__op_size(op, 'D');
    mica__op_require(op, params->rule <= MICA_DELTA_ADD, "params.rule is %u, which is no mica_delta_rule",
                     params->rule);
    mica__op_require(op, params->form <= MICA_DELTA_CHUNKED, "params.form is %u, which is no mica_delta_form",
                     params->form);
    mica__op_require(op, params->normalise <= 1, "params.normalise is %u, not 0 or 1", params->normalise);
    mica__op_require(op, params->eps >= 0.0f && isfinite(params->eps),
                     "params.eps is %g, not 0 or above and finite", (double)params->eps);
    mica__op_require(op, isfinite(params->scale), "params.scale is not finite");
    if (mica__size_known(heads) && mica__size_known(groups))
        mica__op_require(op, groups > 0 ? heads % groups == 0 : heads == 0,
                         "v: shape[1] is %llu, no multiple of the %llu heads of k", ULL(heads), ULL(groups));
    if (params->scale == 0.0f && mica__size_known(dim) && dim > 0)
        params->scale = (float)(1.0 / sqrt((double)dim));
    mica__op_require(op,
                     params->form != MICA_DELTA_CHUNKED || !mica__op_has(op, MICA__DELTA_G) ||
                         op->record.operand[MICA__DELTA_G].ndim != 3,
                     "params.form is chunked, but g has a decay for each row of the state");
}

void mica__rule_delta_net(mica__op_builder *op)
{
    static const sequence_slots at = {MICA__DELTA_STATE, MICA__DELTA_STARTS, MICA__DELTA_READ_SLOTS,
                                      MICA__DELTA_WRITE_SLOTS, MICA__DELTA_NEXT_STATE};
    mica__delta_record *record = op->record.params;
    check_delta(op, &record->delta);
    check_wide(op,
               ~(1u << MICA__DELTA_STARTS | 1u << MICA__DELTA_READ_SLOTS | 1u << MICA__DELTA_WRITE_SLOTS));
    record->sequences = check_sequences(op, &at);
}

mica_status mica_delta_net(mica_encoder *encoder, const mica_delta_operands *operands,
                           const mica_sequences *sequences, const mica_delta_params *params, mica_buffer *y)
{
    const mica_sequences none = {0}, *of = sequences != NULL ? sequences : &none;
    mica__delta_record record = {.sequences = 0};
    if (operands == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "delta_net: operands is NULL");
    if (params != NULL)
        record.delta = *params;
    return mica__op_call(encoder, MICA_OP_DELTA_NET, &record,
                         (mica_buffer *const[]){operands->q, operands->k, operands->v, operands->g,
                                                operands->beta, operands->skip, of->state, of->starts,
                                                of->read_slots, of->write_slots, y, of->next_state});
}

/* ---- selective scan ---- */

static void check_selective(mica__op_builder *op, const mica_selective_params *params)
{
    mica__op_require(op, params->softplus <= 1, "params.softplus is %u, not 0 or 1", params->softplus);
    const uint64_t channels = mica__op_size(op, 'D'), groups = mica__op_size(op, 'G');
    if (mica__size_known(channels) && mica__size_known(groups))
        mica__op_require(op, groups > 0 ? channels % groups == 0 : channels == 0,
                         "x: shape[1] is %llu, no multiple of the %llu groups of b", ULL(channels),
                         ULL(groups));
}

void mica__rule_selective_scan(mica__op_builder *op)
{
    static const sequence_slots at = {MICA__SELECTIVE_STATE, MICA__SELECTIVE_STARTS,
                                      MICA__SELECTIVE_READ_SLOTS, MICA__SELECTIVE_WRITE_SLOTS,
                                      MICA__SELECTIVE_NEXT_STATE};
    mica__selective_record *record = op->record.params;
    check_selective(op, &record->selective);
    check_wide(op, ~(1u << MICA__SELECTIVE_STARTS | 1u << MICA__SELECTIVE_READ_SLOTS |
                     1u << MICA__SELECTIVE_WRITE_SLOTS));
    record->sequences = check_sequences(op, &at);
}

mica_status mica_selective_scan(mica_encoder *encoder, const mica_selective_operands *operands,
                                const mica_sequences *sequences, const mica_selective_params *params,
                                mica_buffer *y)
{
    const mica_sequences none = {0}, *of = sequences != NULL ? sequences : &none;
    mica__selective_record record = {.sequences = 0};
    if (operands == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "selective_scan: operands is NULL");
    if (params != NULL)
        record.selective = *params;
    return mica__op_call(encoder, MICA_OP_SELECTIVE_SCAN, &record,
                         (mica_buffer *const[]){operands->x, operands->dt, operands->a, operands->b,
                                                operands->c, operands->skip, operands->dt_bias, operands->z,
                                                of->state, of->starts, of->read_slots, of->write_slots, y,
                                                of->next_state});
}

/* ---- cells ---- */

/* `state`: a slot whose shape[1] is the rows of a state; UINT32_MAX: there is none. */
static void check_cell(mica__op_builder *op, const mica_rnn_params *params, uint32_t state)
{
    const uint64_t rows = mica__op_size(op, 'F'), hidden = mica__op_size(op, 'H'),
                   kept = mica__op_size(op, 'K');
    const uint64_t gates = mica__rnn_gates(params->kind), wanted = params->kind == MICA_RNN_LSTM ? 2 : 1;
    mica__op_require(op, params->kind <= MICA_RNN_LSTM, "params.kind is %u, which is no mica_rnn_kind",
                     params->kind);
    mica__op_require(op, params->reverse <= 1, "params.reverse is %u, not 0 or 1", params->reverse);
    if (mica__size_known(rows) && mica__size_known(hidden))
        mica__op_require(op, rows / gates == hidden && rows % gates == 0,
                         "weight: shape[0] is %llu, not %llu times shape[1], %llu", ULL(rows), ULL(gates),
                         ULL(hidden));
    if (state != UINT32_MAX)
        mica__op_require(op, !mica__size_known(kept) || kept == wanted, "%s: shape[1] is %llu, not %llu",
                         mica__op_argument(op, state), ULL(kept), ULL(wanted));
}

void mica__rule_rnn(mica__op_builder *op)
{
    static const sequence_slots at = {MICA__RNN_STATE, MICA__RNN_STARTS, MICA__RNN_READ_SLOTS,
                                      MICA__RNN_WRITE_SLOTS, MICA__RNN_NEXT_STATE};
    mica__rnn_record *record = op->record.params;
    check_cell(op, &record->rnn,
               mica__op_has(op, at.state)        ? at.state
               : mica__op_has(op, at.next_state) ? at.next_state
                                                 : UINT32_MAX);
    check_wide(op, ~(1u << MICA__RNN_STARTS | 1u << MICA__RNN_READ_SLOTS | 1u << MICA__RNN_WRITE_SLOTS));
    record->sequences = check_sequences(op, &at);
}

mica_status mica_rnn(mica_encoder *encoder, mica_buffer *x, mica_buffer *weight, mica_buffer *bias,
                     const mica_sequences *sequences, const mica_rnn_params *params, mica_buffer *y)
{
    const mica_sequences none = {0}, *of = sequences != NULL ? sequences : &none;
    mica__rnn_record record = {.sequences = 0};
    if (params != NULL)
        record.rnn = *params;
    return mica__op_call(encoder, MICA_OP_RNN, &record,
                         (mica_buffer *const[]){x, weight, bias, of->state, of->starts, of->read_slots,
                                                of->write_slots, y, of->next_state});
}

/* ---- gradients ---- */

/* Where the slots of sequences stand in the record of a gradient. */
typedef struct gradient_slots {
    uint32_t state, starts, read_slots, dnext, dstate;
} gradient_slots;

static uint64_t count_stretches(const mica__op_builder *op, const gradient_slots *at)
{
    const uint32_t slot[] = {at->read_slots, at->state, at->dnext, at->dstate};
    if (mica__op_has(op, at->starts)) {
        const uint64_t starts = first_size(op, at->starts);
        return mica__size_known(starts) && starts > 0 ? starts - 1 : starts;
    }
    for (uint32_t i = 0; i < 4; i++)
        if (mica__op_has(op, slot[i]) && op->record.operand[slot[i]].ndim != MICA_RANK_UNKNOWN)
            return first_size(op, slot[i]);
    return 1;
}

static void check_count(mica__op_builder *op, uint32_t slot, uint64_t count)
{
    if (mica__op_has(op, slot) && op->record.operand[slot].ndim != MICA_RANK_UNKNOWN)
        mica__op_require(op, mica__sizes_agree(first_size(op, slot), count),
                         "%s: shape[0] is %llu, but there are %llu sequences", mica__op_argument(op, slot),
                         ULL(first_size(op, slot)), ULL(count));
}

static uint32_t check_stretches(mica__op_builder *op, const gradient_slots *at)
{
    const uint64_t count = count_stretches(op, at), tokens = mica__op_size(op, 'T');
    if (mica__op_has(op, at->starts))
        mica__op_require(op, first_size(op, at->starts) != 0,
                         "starts: shape[0] is 0, not one more than there are sequences");
    else if (mica__size_known(count) && mica__size_known(tokens))
        mica__op_require(op, count > 0 ? tokens % count == 0 : tokens == 0,
                         "%s: shape[0] is %llu, no multiple of %llu sequences, and starts is absent",
                         mica__op_argument(op, 0), ULL(tokens), ULL(count));
    check_count(op, at->read_slots, count);
    check_count(op, at->dnext, count);
    check_slots(op, at->state, at->read_slots, count);
    if (op->record.operand[at->dstate].ndim != MICA_RANK_UNKNOWN) {
        check_count(op, at->dstate, count);
    } else if (mica__op_has(op, at->dstate)) {
        const uint32_t like = mica__op_has(op, at->dnext) ? at->dnext : at->state;
        mica__op_require(op, mica__op_has(op, like), "dstate: its shape does not follow from the others");
        uint64_t shape[MICA_MAX_DIMS];
        memcpy(shape, op->record.operand[like].shape, sizeof shape);
        shape[0] = count;
        mica__op_shape(op, at->dstate, op->record.operand[like].ndim, shape);
    }
    mica__op_require(op, !mica__size_known(count) || count < UINT32_MAX, "starts: %llu sequences, over 2^32",
                     ULL(count));
    mica__op_require(op, !mica__size_known(tokens) || tokens < UINT32_MAX, "%s: shape[0] is over 2^32",
                     mica__op_argument(op, 0));
    return mica__size_known(count) ? (uint32_t)count : 0;
}

/* There is no gradient of what is not there. */
static void check_of(mica__op_builder *op, uint32_t gradient, uint32_t of)
{
    mica__op_require(op, !mica__op_has(op, gradient) || mica__op_has(op, of), "%s is given, but %s is NULL",
                     mica__op_argument(op, gradient), mica__op_argument(op, of));
}

/* What says where last states go has no place in a gradient. */
static mica_status check_no_ends(const char *call, const mica_sequences *of)
{
    if (of->write_slots == NULL && of->next_state == NULL)
        return MICA_OK;
    return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: sequences->%s is given, where a gradient takes dnext",
                      call, of->next_state != NULL ? "next_state" : "write_slots");
}

void mica__rule_ssm_conv_backward(mica__op_builder *op)
{
    static const gradient_slots at = {MICA__SSM_CONV_BACKWARD_STATE, MICA__SSM_CONV_BACKWARD_STARTS,
                                      MICA__SSM_CONV_BACKWARD_READ_SLOTS, MICA__SSM_CONV_BACKWARD_DNEXT,
                                      MICA__SSM_CONV_BACKWARD_DSTATE};
    mica__ssm_conv_record *record = op->record.params;
    const uint64_t width = mica__op_size(op, 'K'), kept = mica__op_size(op, 'J');
    mica__op_require(op, record->conv.activation <= MICA_SSM_SILU,
                     "params.activation is %u, which is no mica_ssm_activation", record->conv.activation);
    mica__op_require(op, !mica__size_known(width) || (width > 0 && width < UINT32_MAX),
                     "weight: shape[1] is %llu, not a width from 1 on", ULL(width));
    const bool has_kept =
        mica__op_has(op, at.state) || mica__op_has(op, at.dnext) ||
        (mica__op_has(op, at.dstate) && op->record.operand[at.dstate].ndim != MICA_RANK_UNKNOWN);
    if (has_kept && mica__size_known(width) && mica__size_known(kept))
        mica__op_require(op, kept + 1 == width,
                         "%s: shape[2] is %llu, not one less than shape[1] of weight, %llu",
                         mica__op_argument(op, mica__op_has(op, at.state)   ? at.state
                                               : mica__op_has(op, at.dnext) ? at.dnext
                                                                            : at.dstate),
                         ULL(kept), ULL(width));
    check_of(op, MICA__SSM_CONV_BACKWARD_DBIAS, MICA__SSM_CONV_BACKWARD_BIAS);
    check_wide(op, ~(1u << at.starts | 1u << at.read_slots));
    record->sequences = check_stretches(op, &at);
}

mica_status mica_ssm_conv_backward(mica_encoder *encoder, mica_buffer *x, mica_buffer *weight,
                                   mica_buffer *bias, const mica_sequences *sequences,
                                   const mica_ssm_conv_params *params, mica_buffer *dy, mica_buffer *dnext,
                                   mica_buffer *dx, mica_buffer *dweight, mica_buffer *dbias,
                                   mica_buffer *dstate)
{
    const mica_sequences none = {0}, *of = sequences != NULL ? sequences : &none;
    mica__ssm_conv_record record = {.sequences = 0};
    MICA__TRY(check_no_ends("ssm_conv_backward", of));
    if (params != NULL)
        record.conv = *params;
    return mica__op_call(encoder, MICA_OP_SSM_CONV_BACKWARD, &record,
                         (mica_buffer *const[]){x, weight, bias, of->state, of->starts, of->read_slots, dy,
                                                dnext, dx, dweight, dbias, dstate});
}

void mica__rule_delta_net_backward(mica__op_builder *op)
{
    static const gradient_slots at = {MICA__DELTA_BACKWARD_STATE, MICA__DELTA_BACKWARD_STARTS,
                                      MICA__DELTA_BACKWARD_READ_SLOTS, MICA__DELTA_BACKWARD_DNEXT,
                                      MICA__DELTA_BACKWARD_DSTATE};
    mica__delta_record *record = op->record.params;
    const mica__operand *g = &op->record.operand[MICA__DELTA_BACKWARD_G];
    check_delta(op, &record->delta);
    check_of(op, MICA__DELTA_BACKWARD_DG, MICA__DELTA_BACKWARD_G);
    check_of(op, MICA__DELTA_BACKWARD_DBETA, MICA__DELTA_BACKWARD_BETA);
    check_of(op, MICA__DELTA_BACKWARD_DSKIP, MICA__DELTA_BACKWARD_SKIP);
    if (mica__op_ok(op) && mica__op_has(op, MICA__DELTA_BACKWARD_DG))
        mica__op_shape(op, MICA__DELTA_BACKWARD_DG, g->ndim, g->shape);
    check_wide(op, ~(1u << at.starts | 1u << at.read_slots));
    record->sequences = check_stretches(op, &at);
}

mica_status mica_delta_net_backward(mica_encoder *encoder, const mica_delta_operands *operands,
                                    const mica_sequences *sequences, const mica_delta_params *params,
                                    mica_buffer *dy, mica_buffer *dnext,
                                    const mica_delta_gradients *gradients)
{
    const mica_sequences none = {0}, *of = sequences != NULL ? sequences : &none;
    const mica_delta_gradients *to = gradients;
    mica__delta_record record = {.sequences = 0};
    if (operands == NULL || to == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "delta_net_backward: %s is NULL",
                          operands == NULL ? "operands" : "gradients");
    MICA__TRY(check_no_ends("delta_net_backward", of));
    if (params != NULL)
        record.delta = *params;
    return mica__op_call(encoder, MICA_OP_DELTA_NET_BACKWARD, &record,
                         (mica_buffer *const[]){operands->q, operands->k, operands->v, operands->g,
                                                operands->beta, operands->skip, of->state, of->starts,
                                                of->read_slots, dy, dnext, to->dq, to->dk, to->dv, to->dg,
                                                to->dbeta, to->dskip, to->dstate});
}

void mica__rule_selective_scan_backward(mica__op_builder *op)
{
    static const gradient_slots at = {MICA__SELECTIVE_BACKWARD_STATE, MICA__SELECTIVE_BACKWARD_STARTS,
                                      MICA__SELECTIVE_BACKWARD_READ_SLOTS, MICA__SELECTIVE_BACKWARD_DNEXT,
                                      MICA__SELECTIVE_BACKWARD_DSTATE};
    mica__selective_record *record = op->record.params;
    check_selective(op, &record->selective);
    check_of(op, MICA__SELECTIVE_BACKWARD_DSKIP, MICA__SELECTIVE_BACKWARD_SKIP);
    check_of(op, MICA__SELECTIVE_BACKWARD_DDT_BIAS, MICA__SELECTIVE_BACKWARD_DT_BIAS);
    check_of(op, MICA__SELECTIVE_BACKWARD_DZ, MICA__SELECTIVE_BACKWARD_Z);
    check_wide(op, ~(1u << at.starts | 1u << at.read_slots));
    record->sequences = check_stretches(op, &at);
}

mica_status mica_selective_scan_backward(mica_encoder *encoder, const mica_selective_operands *operands,
                                         const mica_sequences *sequences, const mica_selective_params *params,
                                         mica_buffer *dy, mica_buffer *dnext,
                                         const mica_selective_gradients *gradients)
{
    const mica_sequences none = {0}, *of = sequences != NULL ? sequences : &none;
    const mica_selective_gradients *to = gradients;
    mica__selective_record record = {.sequences = 0};
    if (operands == NULL || to == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "selective_scan_backward: %s is NULL",
                          operands == NULL ? "operands" : "gradients");
    MICA__TRY(check_no_ends("selective_scan_backward", of));
    if (params != NULL)
        record.selective = *params;
    return mica__op_call(encoder, MICA_OP_SELECTIVE_SCAN_BACKWARD, &record,
                         (mica_buffer *const[]){operands->x, operands->dt,   operands->a,       operands->b,
                                                operands->c, operands->skip, operands->dt_bias, operands->z,
                                                of->state,   of->starts,     of->read_slots,    dy,
                                                dnext,       to->dx,         to->ddt,           to->da,
                                                to->db,      to->dc,         to->dskip,         to->ddt_bias,
                                                to->dz,      to->dstate});
}

void mica__rule_rnn_backward(mica__op_builder *op)
{
    static const gradient_slots at = {MICA__RNN_BACKWARD_STATE, MICA__RNN_BACKWARD_STARTS,
                                      MICA__RNN_BACKWARD_READ_SLOTS, MICA__RNN_BACKWARD_DNEXT,
                                      MICA__RNN_BACKWARD_DSTATE};
    mica__rnn_record *record = op->record.params;
    const bool has_kept =
        mica__op_has(op, at.state) || mica__op_has(op, at.dnext) ||
        (mica__op_has(op, at.dstate) && op->record.operand[at.dstate].ndim != MICA_RANK_UNKNOWN);
    check_cell(op, &record->rnn,
               !has_kept                    ? UINT32_MAX
               : mica__op_has(op, at.state) ? at.state
               : mica__op_has(op, at.dnext) ? at.dnext
                                            : at.dstate);
    check_of(op, MICA__RNN_BACKWARD_DBIAS, MICA__RNN_BACKWARD_BIAS);
    check_wide(op, ~(1u << at.starts | 1u << at.read_slots));
    record->sequences = check_stretches(op, &at);
}

mica_status mica_rnn_backward(mica_encoder *encoder, mica_buffer *x, mica_buffer *weight, mica_buffer *bias,
                              const mica_sequences *sequences, const mica_rnn_params *params, mica_buffer *dy,
                              mica_buffer *dnext, mica_buffer *dx, mica_buffer *dweight, mica_buffer *dbias,
                              mica_buffer *dstate)
{
    const mica_sequences none = {0}, *of = sequences != NULL ? sequences : &none;
    mica__rnn_record record = {.sequences = 0};
    MICA__TRY(check_no_ends("rnn_backward", of));
    if (params != NULL)
        record.rnn = *params;
    return mica__op_call(encoder, MICA_OP_RNN_BACKWARD, &record,
                         (mica_buffer *const[]){x, weight, bias, of->state, of->starts, of->read_slots, dy,
                                                dnext, dx, dweight, dbias, dstate});
}

/* ---- gates ---- */

/* Inputs 0, `log` and `bias`: softplus(a + bias) and -e^log times it. */
static uint8_t add_steps(mica__region_program *p, mica_register type, uint8_t log, uint8_t bias,
                         uint8_t *out_dt)
{
    const uint8_t sum = mica__region_step(p, MICA_SCALAR_ADD, type, 0, bias, NONE);
    const uint8_t rate = mica__region_step(p, MICA_SCALAR_EXP, type, log, NONE, NONE);
    const uint8_t below = mica__region_step(p, MICA_SCALAR_NEG, type, rate, NONE, NONE);
    *out_dt = mica__region_step(p, MICA_SCALAR_SOFTPLUS, type, sum, NONE, NONE);
    return mica__region_step(p, MICA_SCALAR_MUL, type, below, *out_dt, NONE);
}

static mica_register register_of(const mica_buffer *x)
{
    return x != NULL && x->dtype == MICA_DTYPE_F64 ? MICA_REGISTER_F64 : MICA_REGISTER_F32;
}

void mica__delta_gates_program(mica_register type, mica__region_program *out)
{
    uint8_t dt;
    mica__region_begin(out, 4, 2);
    memset(out->input, (uint8_t)type, 4);
    out->output[0] = add_steps(out, type, 2, 3, &dt);
    out->output[1] = mica__region_step(out, MICA_SCALAR_SIGMOID, type, 1, NONE, NONE);
}

void mica__ssm_gates_program(mica_register type, mica__region_program *out)
{
    mica__region_begin(out, 3, 2);
    memset(out->input, (uint8_t)type, 3);
    out->output[0] = add_steps(out, type, 1, 2, &out->output[1]);
}

mica_status mica_delta_gates(mica_encoder *encoder, mica_buffer *a, mica_buffer *b, mica_buffer *a_log,
                             mica_buffer *dt_bias, mica_buffer *g, mica_buffer *beta)
{
    static const char *const inputs[] = {"a", "b", "a_log", "dt_bias"}, *const outputs[] = {"g", "beta"};
    static const mica__region_names names = {"delta_gates", inputs, outputs};
    mica__region_room room;
    mica__delta_gates_program(register_of(a), &room.program);
    return mica__region_add(encoder, &names, &room.program, (mica_buffer *const[]){a, b, a_log, dt_bias},
                            false, (mica_buffer *const[]){g, beta});
}

mica_status mica_ssm_gates(mica_encoder *encoder, mica_buffer *a, mica_buffer *a_log, mica_buffer *dt_bias,
                           mica_buffer *g, mica_buffer *dt)
{
    static const char *const inputs[] = {"a", "a_log", "dt_bias"}, *const outputs[] = {"g", "dt"};
    static const mica__region_names names = {"ssm_gates", inputs, outputs};
    mica__region_room room;
    mica__ssm_gates_program(register_of(a), &room.program);
    return mica__region_add(encoder, &names, &room.program, (mica_buffer *const[]){a, a_log, dt_bias}, false,
                            (mica_buffer *const[]){g, dt});
}
