/*
 * recurrent.c - derivatives of recurrences, by their backward ops: operands, then the state that sequences begin with and which slots they have; out come y and the states that
 * they end with.
 */
#include <string.h>

#include "graph/gradient/rules.h"

/* Inputs behind the operands, in the table's order; the last is what the slots of next_state held before. */
enum { STATE, STARTS, READ_SLOTS, WRITE_SLOTS, BEFORE };

typedef struct recurrence {
    mica__back *b;
    const mica_tensor *more; /* inputs from STATE on */
    uint32_t operands;
    uint64_t sequences; /* how many; UNKNOWN */
} recurrence;

/* How many sequences there are, as ops_recurrent.h says: starts has one more. */
static uint64_t sequences_of(const recurrence *r)
{
    const mica_graph *graph = r->b->graph;
    const mica_tensor starts = r->more[STARTS];
    const mica_tensor slots = r->more[READ_SLOTS] != 0 ? r->more[READ_SLOTS] : r->more[WRITE_SLOTS];
    const mica_tensor states = r->more[STATE] != 0 ? r->more[STATE] : r->more[BEFORE];
    if (slots != 0)
        return mica__type_of(graph, slots)->shape[0];
    if (starts == 0)
        return states == 0 ? 1 : mica__type_of(graph, states)->shape[0];
    const uint64_t size = mica__type_of(graph, starts)->shape[0];
    return mica__size_known(size) && size != 0 ? size - 1 : MICA_SIZE_UNKNOWN;
}

/* Where sequences start; 0: nowhere but where the backward op, which has no slots that are written, takes them to. A failure is the graph's. */
static mica_tensor starts_of(const recurrence *r, mica_tensor dnext)
{
    mica_graph *graph = r->b->graph;
    const mica_tensor says = r->more[READ_SLOTS] != 0 ? r->more[READ_SLOTS]
                             : r->more[STATE] != 0    ? r->more[STATE]
                                                      : dnext;
    const uint64_t tokens = mica__type_of(graph, r->b->in[0])->shape[0];
    if (r->more[STARTS] != 0 || r->sequences == (says == 0 ? 1 : mica__type_of(graph, says)->shape[0]))
        return r->more[STARTS];
    if (!mica__size_known(r->sequences) || !mica__size_known(tokens) || r->sequences == 0) {
        mica__back_refuses(r->b, "has sequences whose number is not known yet");
        return 0;
    }
    const uint64_t count = r->sequences + 1;
    const uint64_t length = tokens / r->sequences;
    const mica_tensor each = mica_graph_number(graph, MICA_DTYPE_I32, (double)length);
    return mica_graph_mul(graph, mica_graph_index(graph, MICA_DTYPE_I32, 1, &count, 0), each);
}

/* Slots [S, ..] as sequences [N, ..]: those that ids name, or the first N. */
static mica_tensor by_sequence(const recurrence *r, mica_tensor slots, mica_tensor ids)
{
    mica_graph *graph = r->b->graph;
    const uint64_t size = mica__type_of(graph, slots)->shape[0];
    if (ids != 0)
        return mica__take(graph, slots, ids, 0);
    return size == r->sequences ? slots : mica_graph_slice(graph, slots, 0, 0, r->sequences, 1);
}

/* Sequences [N, ..] as slots of the shape of `like`, added up where several have one. */
static mica_tensor by_slot(const recurrence *r, mica_tensor sequences, mica_tensor ids, mica_tensor like)
{
    mica_graph *graph = r->b->graph;
    const uint64_t size = mica__type_of(graph, like)->shape[0];
    if (ids != 0)
        return mica__put(graph, MICA_SCATTER_ADD, sequences, ids, 0, like);
    if (size == r->sequences)
        return sequences;
    mica_pad_params pad = {.mode = MICA_PAD_CONSTANT};
    pad.high[0] = (int64_t)(size - r->sequences);
    return mica__op1(graph, MICA_OP_PAD, &pad, &sequences, 1);
}

/* What reaches slots that no sequence has written goes to what they held before. */
static mica_tensor of_before(const recurrence *r, mica_tensor dnext)
{
    mica_graph *graph = r->b->graph;
    const mica_scatter_params set = {.mode = MICA_SCATTER_SET};
    mica_tensor ids = r->more[WRITE_SLOTS];
    if (ids == 0)
        ids = mica_graph_index(graph, MICA_DTYPE_I32, 1, &r->sequences, 0);
    const mica_tensor zeros =
        mica__zeros_like(graph, by_sequence(r, dnext, ids), mica__type_of(graph, dnext)->dtype);
    return mica__op1(graph, MICA_OP_SCATTER, &set, (const mica_tensor[]){zeros, ids, dnext}, 3);
}

/* The state of each sequence. */
static mica_operand_desc state_of(const recurrence *r)
{
    const mica__type type = mica__type_copy(r->b->graph, r->more[STATE]);
    mica_operand_desc asked = {.dtype = type.dtype, .ndim = type.ndim};
    memcpy(asked.shape, type.shape, sizeof asked.shape);
    asked.shape[0] = r->sequences;
    return asked;
}

/* What the states get, and what the slots held before that nobody wrote. */
static void derive_states(const recurrence *r, mica_tensor dstate, mica_tensor dnext)
{
    mica__back *b = r->b;
    const uint32_t state = r->operands + STATE, before = r->operands + BEFORE;
    if (b->wanted[state])
        b->dx[state] = by_slot(r, dstate, r->more[READ_SLOTS], r->more[STATE]);
    if (b->wanted[before] && dnext != 0)
        b->dx[before] = of_before(r, dnext);
}

static mica__derived derive(mica__back *b, mica_op backward, uint32_t operands)
{
    enum { MOST = 16 };
    mica_graph *graph = b->graph;
    recurrence r = {.b = b, .more = b->in + operands, .operands = operands};
    mica_tensor in[MOST] = {0}, out[MOST] = {0}, dnext = b->dy[1];
    mica_operand_desc asked[MOST];
    uint32_t wanted = 0;
    r.sequences = sequences_of(&r);
    const bool states = dnext != 0 || b->wanted[operands + STATE];
    if (states && !mica__size_known(r.sequences)) {
        mica__back_refuses(b, "has sequences whose number is not known yet");
        return MICA__DERIVED;
    }
    for (uint32_t i = 0; i <= operands; i++)
        asked[i] = (mica_operand_desc){.ndim = MICA_RANK_UNKNOWN};
    for (uint32_t i = 0; i < operands; i++)
        wanted |= (uint32_t)b->wanted[i] << i;
    if (b->wanted[operands + STATE]) {
        wanted |= 1u << operands;
        asked[operands] = state_of(&r);
    }
    memcpy(in, b->in, operands * sizeof *in);
    memcpy(in + operands, r.more, 3 * sizeof *in);
    in[operands + 3] =
        b->dy[0] != 0 ? b->dy[0] : mica__zeros_like(graph, b->out[0], mica__type_of(graph, b->out[0])->dtype);
    in[operands + 4] = dnext == 0 ? 0 : by_sequence(&r, dnext, r.more[WRITE_SLOTS]);
    in[operands + STARTS] = starts_of(&r, in[operands + 4]);
    (void)mica_graph_op(graph, backward, mica__op_params(&b->node), in, operands + 5, wanted, asked, out,
                        operands + 1);
    memcpy(b->dx, out, operands * sizeof *out);
    derive_states(&r, out[operands], dnext);
    return MICA__DERIVED;
}

mica__derived mica__derive_ssm_conv(mica__back *b)
{
    return derive(b, MICA_OP_SSM_CONV_BACKWARD, 3);
}

mica__derived mica__derive_delta_net(mica__back *b)
{
    return derive(b, MICA_OP_DELTA_NET_BACKWARD, 6);
}

mica__derived mica__derive_selective_scan(mica__back *b)
{
    return derive(b, MICA_OP_SELECTIVE_SCAN_BACKWARD, 8);
}

mica__derived mica__derive_rnn(mica__back *b)
{
    return derive(b, MICA_OP_RNN_BACKWARD, 3);
}
