/*
 * ops_recurrent.c - what carries a state from token to token, as nodes. The next state is an operand that is written in part: what it holds goes in.
 */
#include "graph/ops_build.h"

enum { MOST_INPUTS = 16 };

/* A recurrent op: its own inputs, then those of the sequences. */
static mica_tensor recurrent(mica_graph *graph, mica_op op, const void *params, const mica_tensor *own,
                             uint32_t count, const mica_graph_sequences *sequences, mica_tensor *out_state)
{
    const mica_graph_sequences none = {0}, *s = sequences != NULL ? sequences : &none;
    mica_tensor inputs[MOST_INPUTS], out[2];
    if (out_state != NULL)
        *out_state = 0;
    if (!mica__graph_begins(graph, mica_op_name(op)))
        return 0;
    const mica_tensor before = s->next_state != 0 ? s->next_state : s->state;
    if (out_state != NULL && before == 0)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, mica_op_name(op),
                                "sequences: neither state nor next_state says how large the state is");
    memcpy(inputs, own, count * sizeof *own);
    const mica_tensor rest[] = {s->state, s->starts, s->read_slots, s->write_slots,
                                out_state != NULL || s->next_state != 0 ? before : 0};
    memcpy(inputs + count, rest, sizeof rest);
    const mica_tensor y =
        mica_graph_op(graph, op, params, inputs, count + 5, out_state != NULL ? 3 : 1, NULL, out, 2);
    if (out_state != NULL)
        *out_state = out[1];
    return y;
}

mica_tensor mica_graph_ssm_conv(mica_graph *graph, mica_tensor x, mica_tensor weight, mica_tensor bias,
                                const mica_graph_sequences *sequences, const mica_ssm_conv_params *params,
                                mica_tensor *out_state)
{
    return recurrent(graph, MICA_OP_SSM_CONV, params, (const mica_tensor[]){x, weight, bias}, 3, sequences,
                     out_state);
}

mica_tensor mica_graph_delta_net(mica_graph *graph, const mica_graph_delta_operands *operands,
                                 const mica_graph_sequences *sequences, const mica_delta_params *params,
                                 mica_tensor *out_state)
{
    const mica_graph_delta_operands none = {0}, *o = operands != NULL ? operands : &none;
    return recurrent(graph, MICA_OP_DELTA_NET, params,
                     (const mica_tensor[]){o->q, o->k, o->v, o->g, o->beta, o->skip}, 6, sequences,
                     out_state);
}

mica_tensor mica_graph_selective_scan(mica_graph *graph, const mica_graph_selective_operands *operands,
                                      const mica_graph_sequences *sequences,
                                      const mica_selective_params *params, mica_tensor *out_state)
{
    const mica_graph_selective_operands none = {0}, *o = operands != NULL ? operands : &none;
    return recurrent(graph, MICA_OP_SELECTIVE_SCAN, params,
                     (const mica_tensor[]){o->x, o->dt, o->a, o->b, o->c, o->skip, o->dt_bias, o->z}, 8,
                     sequences, out_state);
}

mica_tensor mica_graph_rnn_cells(mica_graph *graph, mica_tensor x, mica_tensor weight, mica_tensor bias,
                                 const mica_graph_sequences *sequences, const mica_rnn_params *params,
                                 mica_tensor *out_state)
{
    return recurrent(graph, MICA_OP_RNN, params, (const mica_tensor[]){x, weight, bias}, 3, sequences,
                     out_state);
}

/* ---- gates ---- */

static mica_tensor gates(mica_graph *graph, const char *call, const mica__region_program *program,
                         const char *const *names, const mica_tensor *inputs, mica_tensor *out_second)
{
    mica__type type;
    mica_tensor out[2] = {0, 0};
    if (out_second != NULL)
        *out_second = 0;
    if (!mica__graph_begins(graph, call) || !mica__build_takes(graph, call, "a", inputs[0], &type))
        return 0;
    const mica_dtype dtype = type.dtype == MICA_DTYPE_F64 ? MICA_DTYPE_F64 : MICA_DTYPE_F32;
    (void)mica__build_region(graph, call, program, names, inputs, (const mica_dtype[]){dtype, dtype}, out);
    if (out_second != NULL)
        *out_second = out[1];
    return out[0];
}

static mica_register real_of(const mica_graph *graph, mica_tensor x)
{
    const bool there = graph != NULL && x != 0 && x < graph->tensor_count;
    return there ? mica__build_real(mica__type_of(graph, x)->dtype) : MICA_REGISTER_F32;
}

mica_tensor mica_graph_delta_gates(mica_graph *graph, mica_tensor a, mica_tensor b, mica_tensor a_log,
                                   mica_tensor dt_bias, mica_tensor *out_beta)
{
    static const char *const names[] = {"a", "b", "a_log", "dt_bias"};
    mica__region_room room;
    mica__delta_gates_program(real_of(graph, a), &room.program);
    return gates(graph, "delta_gates", &room.program, names, (const mica_tensor[]){a, b, a_log, dt_bias},
                 out_beta);
}

mica_tensor mica_graph_ssm_gates(mica_graph *graph, mica_tensor a, mica_tensor a_log, mica_tensor dt_bias,
                                 mica_tensor *out_dt)
{
    static const char *const names[] = {"a", "a_log", "dt_bias"};
    mica__region_room room;
    mica__ssm_gates_program(real_of(graph, a), &room.program);
    return gates(graph, "ssm_gates", &room.program, names, (const mica_tensor[]){a, a_log, dt_bias}, out_dt);
}

/* ---- layers of cells ---- */

#define LAYER "rnn_layer"

/* Slice `d` of a tensor that has one for each direction. */
static mica_tensor of_direction(mica_graph *graph, mica_tensor x, uint32_t d)
{
    if (x == 0)
        return 0;
    const mica__type type = *mica__type_of(graph, x);
    mica__type own = type;
    own.ndim--;
    memmove(own.shape, own.shape + 1, own.ndim * sizeof own.shape[0]);
    return mica__build_as(graph, mica_graph_slice(graph, x, 0, d, 1, 1), &own);
}

static bool takes_layer(mica_graph *graph, mica_tensor x, const mica_rnn_layer *layer, uint32_t directions,
                        mica__type *type, mica__type *weight)
{
    const struct {
        const char *name;
        mica_tensor tensor;
        uint32_t ndim;
    } all[] = {{"input_weight", layer->input_weight, 3},
               {"state_weight", layer->state_weight, 3},
               {"input_bias", layer->input_bias, 2},
               {"state_bias", layer->state_bias, 2},
               {"state", layer->state, 4}};
    if (!mica__build_takes_rank(graph, LAYER, "x", x, 3, 3, type))
        return false;
    for (uint32_t i = 0; i < 5; i++) {
        mica__type own;
        if (i >= 2 && all[i].tensor == 0)
            continue;
        if (!mica__build_takes_rank(graph, LAYER, all[i].name, all[i].tensor, all[i].ndim, all[i].ndim, &own))
            return false;
        if (!mica__sizes_agree(own.shape[0], directions))
            return mica__build_refuse(graph, LAYER, all[i].name, &own, "is not of %u directions",
                                      directions) != 0;
        if (i == 1)
            *weight = own;
    }
    return true;
}

static mica_tensor direction(mica_graph *graph, mica_tensor x, const mica_rnn_layer *layer, uint32_t d,
                             const mica__type *type, uint64_t hidden, mica_tensor *out_state)
{
    const mica_rnn_params params = {.kind = (uint32_t)layer->kind, .reverse = d};
    const uint64_t kept = layer->kind == MICA_RNN_LSTM ? 2 : 1;
    const mica_dtype dtype = type->dtype == MICA_DTYPE_F64 ? MICA_DTYPE_F64 : MICA_DTYPE_F32;
    const mica_tensor product = mica_graph_linear(graph, x, of_direction(graph, layer->input_weight, d),
                                                  of_direction(graph, layer->input_bias, d));
    const mica_tensor state =
        layer->state != 0
            ? of_direction(graph, layer->state, d)
            : mica_graph_fill(graph, dtype, 3, (const uint64_t[]){type->shape[0], kept, hidden}, 0);
    const mica_graph_sequences sequences = {.state = state};
    const mica_tensor rows = mica__build_merge(graph, product, 0, 2);
    if (rows == 0 || state == 0)
        return 0;
    const mica_tensor y =
        mica_graph_rnn_cells(graph, rows, of_direction(graph, layer->state_weight, d),
                             of_direction(graph, layer->state_bias, d), &sequences, &params, out_state);
    return y == 0
               ? 0
               : mica__build_reshape(graph, y, 3, (const uint64_t[]){type->shape[0], type->shape[1], hidden});
}

mica_tensor mica_graph_rnn_layer(mica_graph *graph, mica_tensor x, const mica_rnn_layer *layer,
                                 mica_tensor *out_state)
{
    mica__type type, weight = {.ndim = 0};
    mica_tensor y[2] = {0, 0}, state[2] = {0, 0};
    if (out_state != NULL)
        *out_state = 0;
    if (!mica__graph_begins(graph, LAYER))
        return 0;
    const uint32_t directions = layer != NULL && layer->directions != 0 ? layer->directions : 1;
    if (layer == NULL || directions > 2)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, LAYER, "layer %s",
                                layer == NULL ? "is NULL" : "has over 2 directions");
    if (!takes_layer(graph, x, layer, directions, &type, &weight))
        return 0;
    for (uint32_t d = 0; d < directions; d++) {
        y[d] = direction(graph, x, layer, d, &type, weight.shape[2], out_state != NULL ? &state[d] : NULL);
        if (y[d] == 0)
            return mica__build_end(graph, LAYER, 0);
    }
    if (out_state != NULL)
        *out_state = mica_graph_stack(graph, state, directions, 0);
    return mica__build_end(graph, LAYER, mica_graph_concat(graph, y, directions, 2));
}

mica_tensor mica_graph_hadamard(mica_graph *graph, mica_tensor x, mica_tensor signs,
                                const mica_hadamard_params *params)
{
    return mica__build_op(graph, MICA_OP_HADAMARD, params, (const mica_tensor[]){x, signs}, 2);
}
