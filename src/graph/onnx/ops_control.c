/*
 * ops_control.c - If, Loop, Scan. A choice that is known becomes the nodes of its branch; a short loop whose rounds are known becomes the nodes of its rounds.
 */
#include <string.h>

#include "base/work.h"
#include "graph/onnx/body.h"
#include "graph/onnx/operators.h"
#include "graph/onnx/rows.h"

#define MOST_UNROLLED 4096u /* nodes */

/* ---- If ------------------------------------------------------------------------------------------------- */

/* Its nodes are those of the graph around, so that it may give rows as the run finds them. */
static mica_status branch_result(mica__ox_op *o, mica__ox_scope *scope, const char *name, mica__ox_value *out)
{
    const mica__ox_scope *owner = NULL;
    return mica__ox_find(o->im, scope, name, out, &owner) && mica__ox_value_open(out) &&
                   owner->graph == o->graph
               ? MICA_OK
               : mica__ox_body_result(o, scope, name, out);
}

static mica_status branch_known(mica__ox_op *o, const mica__onnx_graph *branch)
{
    mica__ox_scope scope;
    MICA__TRY(mica__ox_scope_open(o->im, &scope, o->scope, o->graph));
    mica_status status = mica__ox_body(o->im, &scope, branch);
    for (uint32_t i = 0; i < o->output_count && status == MICA_OK; i++)
        status = branch_result(o, &scope, branch->output[i].name, &o->out[i]);
    mica__ox_scope_close(&scope);
    return status;
}

/* A branch as a graph whose inputs are the captures. */
static mica_status branch_graph(mica__ox_op *o, const mica__onnx_graph *branch,
                                const mica__ox_captures *captures, mica__ox_body_graph *body)
{
    MICA__TRY(mica__ox_body_begin(o, body));
    MICA__TRY(mica__ox_body_captures(o, body, captures));
    MICA__TRY(mica__ox_body(o->im, &body->scope, branch));
    for (uint32_t i = 0; i < branch->output_count; i++) {
        mica__ox_value value = {0};
        MICA__TRY(mica__ox_body_result(o, &body->scope, branch->output[i].name, &value));
        mica__ox_body_output(body, mica__ox_materialise(body->graph, &value));
    }
    return mica_graph_status(body->graph);
}

mica_status mica__ox_if_op(mica__ox_op *o)
{
    const mica__onnx_graph *yes = mica__ox_body_attribute(o, "then_branch"),
                           *no = mica__ox_body_attribute(o, "else_branch");
    mica__ox_body_graph bodies[2] = {{.graph = NULL}, {.graph = NULL}};
    mica__ox_captures captures = {.count = 0};
    if (yes == NULL || no == NULL || yes->output_count != o->output_count ||
        no->output_count != o->output_count)
        return mica__ox_fail(o, "branches that are absent, or give other numbers of outputs");
    const mica__ox_host *known = mica__ox_known(o, 0);
    if (known != NULL && known->elements == 1)
        return branch_known(o, mica__ox_host_int(known, 0) != 0 ? yes : no);
    MICA__TRY(mica__ox_capture(o, yes, &captures));
    MICA__TRY(mica__ox_capture(o, no, &captures));
    mica_tensor *outputs = mica__ox_memory(o->im, o->output_count, sizeof *outputs);
    if (outputs == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    mica_status status = branch_graph(o, yes, &captures, &bodies[0]);
    if (status == MICA_OK)
        status = branch_graph(o, no, &captures, &bodies[1]);
    if (status == MICA_OK)
        (void)mica_graph_if(o->graph, mica__ox_reshape(o, mica__ox_in(o, 0), 0, NULL), bodies[0].graph,
                            bodies[1].graph, captures.tensor, captures.count, outputs, o->output_count);
    for (uint32_t i = 0; i < o->output_count && status == MICA_OK; i++)
        mica__ox_out(o, i, outputs[i]);
    mica__ox_body_end(&bodies[0]);
    mica__ox_body_end(&bodies[1]);
    return status;
}

/* ---- Loop ----------------------------------------------------------------------------------------------- */

typedef struct loop {
    const mica__onnx_graph *body; /* of round, condition, carried; gives condition, carried, slices */
    uint32_t carried, slices;
    int64_t most;          /* rounds; INT64_MAX: no bound */
    bool most_known;       /* or there is none */
    bool runs;             /* the condition is known to hold at first */
    mica__ox_value *value; /* [carried] */
    mica_tensor **slice;   /* [slices][rounds] */
} loop;

static mica_status host_number(mica__ox_op *o, mica_dtype dtype, int64_t number, mica__ox_value *out)
{
    const uint8_t truth = number != 0;
    mica__ox_value *const saved = o->out;
    const uint32_t count = o->output_count;
    o->out = out;
    o->output_count = 1;
    const mica_status status =
        mica__ox_out_host(o, 0, dtype, 0, NULL, dtype == MICA_DTYPE_BOOL ? (const void *)&truth : &number);
    o->out = saved;
    o->output_count = count;
    return status;
}

/* One round as nodes of the graph around. out_more false: it was the last one. *out_known false: the condition is not known. */
static mica_status unrolled_round(mica__ox_op *o, loop *l, int64_t round, bool *out_more, bool *out_known)
{
    mica__ox_scope scope;
    mica__ox_value number = {0}, condition = {0}, given = {0};
    MICA__TRY(host_number(o, MICA_DTYPE_I64, round, &number));
    MICA__TRY(host_number(o, MICA_DTYPE_BOOL, 1, &condition));
    MICA__TRY(mica__ox_scope_open(o->im, &scope, o->scope, o->graph));
    mica_status status = mica__ox_define(o->im, &scope, l->body->input[0].name, number);
    if (status == MICA_OK)
        status = mica__ox_define(o->im, &scope, l->body->input[1].name, condition);
    for (uint32_t i = 0; i < l->carried && status == MICA_OK; i++)
        status = mica__ox_define(o->im, &scope, l->body->input[2 + i].name, l->value[i]);
    if (status == MICA_OK)
        status = mica__ox_body(o->im, &scope, l->body);
    if (status == MICA_OK)
        status = mica__ox_body_result(o, &scope, l->body->output[0].name, &given);
    for (uint32_t i = 0; i < l->carried && status == MICA_OK; i++)
        status = mica__ox_body_result(o, &scope, l->body->output[1 + i].name, &l->value[i]);
    for (uint32_t i = 0; i < l->slices && status == MICA_OK; i++) {
        mica__ox_value slice = {0};
        status = mica__ox_body_result(o, &scope, l->body->output[1 + l->carried + i].name, &slice);
        l->slice[i][round] = mica__ox_unsqueeze(o, mica__ox_materialise(o->graph, &slice), 0);
    }
    mica__ox_scope_close(&scope);
    *out_known = given.host != NULL && given.host->elements == 1;
    *out_more = *out_known && mica__ox_host_int(given.host, 0) != 0;
    return status;
}

/* Whether the condition that a body gives is known to hold whenever it is run: then a loop has as many rounds as it may have. Imports the body once, into a graph that is
 * thrown away. */
static mica_status always_runs(mica__ox_op *o, const loop *l, const mica__ox_captures *captures, bool *out)
{
    mica__ox_body_graph body;
    mica__ox_value number = {0}, condition = {0}, given = {0};
    const mica__type round = {.dtype = MICA_DTYPE_I64};
    *out = false;
    mica_status status = mica__ox_body_begin(o, &body);
    if (status == MICA_OK)
        status = host_number(o, MICA_DTYPE_BOOL, 1, &condition);
    if (status == MICA_OK) {
        number.tensor = mica__ox_body_input(&body, &round, 0);
        status = mica__ox_define(o->im, &body.scope, l->body->input[0].name, number);
    }
    if (status == MICA_OK)
        status = mica__ox_define(o->im, &body.scope, l->body->input[1].name, condition);
    for (uint32_t i = 0; i < l->carried && status == MICA_OK; i++) {
        const mica__type type = mica__ox_in_type(o, 2 + i);
        const mica__ox_value value = {.tensor = mica__ox_body_input(&body, &type, 0)};
        status = mica__ox_define(o->im, &body.scope, l->body->input[2 + i].name, value);
    }
    if (status == MICA_OK)
        status = mica__ox_body_captures(o, &body, captures);
    if (status == MICA_OK)
        status = mica__ox_body(o->im, &body.scope, l->body);
    if (status == MICA_OK)
        status = mica__ox_body_result(o, &body.scope, l->body->output[0].name, &given);
    *out = given.host != NULL && given.host->elements == 1 && mica__ox_host_int(given.host, 0) != 0;
    mica__ox_body_end(&body);
    return status;
}

static mica_status give_unrolled(mica__ox_op *o, const loop *l, int64_t rounds)
{
    for (uint32_t i = 0; i < l->carried; i++)
        o->out[i] = l->value[i];
    for (uint32_t i = 0; i < l->slices; i++) {
        if (rounds == 0 && mica__ox_wants(o, l->carried + i))
            return mica__ox_fail(o, "slices of a loop without a round");
        if (rounds != 0)
            mica__ox_out(o, l->carried + i, mica_graph_concat(o->graph, l->slice[i], (uint32_t)rounds, 0));
    }
    return MICA_OK;
}

/* Rounds one behind another. *out_done false: a condition is not known, and nothing was given. */
static mica_status unrolled(mica__ox_op *o, loop *l, bool *out_done)
{
    bool more = l->runs, known = true;
    int64_t round = 0;
    const uint32_t nodes = l->body->node_count + 1;
    const int64_t room = MOST_UNROLLED / nodes;
    *out_done = false;
    l->slice = mica__ox_memory(o->im, l->slices, sizeof *l->slice);
    if (l->slice == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < l->slices; i++) {
        l->slice[i] = mica__ox_memory(o->im, (uint64_t)room + 1, sizeof **l->slice);
        if (l->slice[i] == NULL)
            return MICA_ERR_OUT_OF_MEMORY;
    }
    for (; more && round < l->most; round++) {
        if (round >= room)
            return MICA_OK;
        MICA__TRY(unrolled_round(o, l, round, &more, &known));
        if (!known && round + 1 < l->most)
            return MICA_OK; /* what was added is not used, and goes with the passes */
        more = more || !known;
    }
    *out_done = true;
    return give_unrolled(o, l, round);
}

/* The body of a While or Scan: round, condition, carried and captures in; round + 1, condition and carried out, then slices. */
static mica_status loop_body(mica__ox_op *o, const loop *l, const mica__ox_captures *captures,
                             mica__ox_body_graph *body)
{
    const mica__type round_type = {.dtype = MICA_DTYPE_I64}, bool_type = {.dtype = MICA_DTYPE_BOOL};
    MICA__TRY(mica__ox_body_begin(o, body));
    const mica_tensor round = mica__ox_body_input(body, &round_type, 0),
                      condition = mica__ox_body_input(body, &bool_type, 0);
    MICA__TRY(
        mica__ox_define(o->im, &body->scope, l->body->input[0].name, (mica__ox_value){.tensor = round}));
    MICA__TRY(
        mica__ox_define(o->im, &body->scope, l->body->input[1].name, (mica__ox_value){.tensor = condition}));
    for (uint32_t i = 0; i < l->carried; i++) {
        const mica__type type = mica__ox_in_type(o, 2 + i);
        const mica__ox_value value = {.tensor = mica__ox_body_input(body, &type, 0)};
        MICA__TRY(mica__ox_define(o->im, &body->scope, l->body->input[2 + i].name, value));
    }
    MICA__TRY(mica__ox_body_captures(o, body, captures));
    MICA__TRY(mica__ox_body(o->im, &body->scope, l->body));
    mica__ox_body_output(body, mica_graph_scalar(body->graph, MICA_SCALAR_ADD, round,
                                                 mica_graph_number(body->graph, MICA_DTYPE_I64, 1), 0));
    for (uint32_t i = 0; i < l->body->output_count; i++) {
        mica__ox_value value = {0};
        MICA__TRY(mica__ox_body_result(o, &body->scope, l->body->output[i].name, &value));
        mica_tensor tensor = mica__ox_materialise(body->graph, &value);
        if (i == 0)
            tensor = mica_graph_reshape(body->graph, tensor, 0, NULL);
        mica__ox_body_output(body, tensor);
    }
    return mica_graph_status(body->graph);
}

/* condition and round < most, over the same inputs as the body. */
static mica_status loop_condition(mica__ox_op *o, const mica_tensor *inputs, uint32_t count, int64_t most,
                                  mica_graph **out)
{
    mica__ox_body_graph body;
    MICA__TRY(mica__ox_body_begin(o, &body));
    mica_tensor round = 0, condition = 0;
    for (uint32_t i = 0; i < count; i++) {
        const mica__type type = *mica__type_of(o->graph, inputs[i]);
        const mica_tensor input = mica__ox_body_input(&body, &type, 0);
        round = i == 0 ? input : round;
        condition = i == 1 ? input : condition;
    }
    const mica_tensor bound = mica_graph_constant(body.graph, MICA_DTYPE_I64, 0, NULL, &most, sizeof most);
    const mica_tensor below = mica_graph_scalar(body.graph, MICA_SCALAR_LESS, round, bound, 0);
    mica__ox_body_output(&body, mica_graph_scalar(body.graph, MICA_SCALAR_BIT_AND, condition, below, 0));
    const mica_status status = mica_graph_status(body.graph);
    *out = body.graph;
    mica__ox_scope_close(&body.scope);
    return status;
}

/* Round, condition, carried, captures: what goes in. */
static mica_status loop_inputs(mica__ox_op *o, const loop *l, const mica__ox_captures *captures,
                               mica_tensor **out, uint32_t *out_count)
{
    *out_count = 2 + l->carried + captures->count;
    mica_tensor *inputs = mica__ox_memory(o->im, *out_count, sizeof *inputs);
    *out = inputs;
    if (inputs == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    inputs[0] = mica_graph_number(o->graph, MICA_DTYPE_I64, 0);
    inputs[1] = mica__ox_has(o, 1) ? mica__ox_reshape(o, mica__ox_in(o, 1), 0, NULL)
                                   : mica_graph_number(o->graph, MICA_DTYPE_BOOL, 1);
    for (uint32_t i = 0; i < l->carried; i++)
        inputs[2 + i] = mica__ox_in(o, 2 + i);
    if (captures->count != 0)
        memcpy(inputs + 2 + l->carried, captures->tensor, captures->count * sizeof *inputs);
    return mica_graph_status(o->graph);
}

static mica_status real_loop(mica__ox_op *o, const loop *l)
{
    mica__ox_captures captures = {.count = 0};
    mica__ox_body_graph body = {.graph = NULL};
    mica_graph *condition = NULL;
    mica_tensor *inputs = NULL;
    uint32_t count = 0;
    bool always = false;
    MICA__TRY(mica__ox_capture(o, l->body, &captures));
    MICA__TRY(always_runs(o, l, &captures, &always));
    const bool scans = always && l->runs && l->most_known && l->most > 0 && l->most < INT32_MAX;
    if (l->slices != 0 && !scans)
        return mica__ox_fail(o, "slices of a loop whose number of rounds is not known while importing");
    if (!l->most_known)
        return mica__ox_fail(o, "input \"%.100s\", the number of rounds, must be known while importing",
                             o->node->input[0]);
    MICA__TRY(loop_inputs(o, l, &captures, &inputs, &count));
    mica_tensor *outputs = mica__ox_memory(o->im, 2 + l->carried + l->slices, sizeof *outputs);
    if (outputs == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    const mica_scan_desc desc = {
        .carried = 2 + l->carried, .others = captures.count, .length = (uint64_t)l->most};
    mica_status status = loop_body(o, l, &captures, &body);
    if (status == MICA_OK && scans)
        (void)mica_graph_scan(o->graph, body.graph, &desc, inputs, outputs, 2 + l->carried + l->slices);
    if (status == MICA_OK && !scans)
        status = loop_condition(o, inputs, count, l->most, &condition);
    if (status == MICA_OK && !scans)
        (void)mica_graph_while(o->graph, condition, body.graph, 0, inputs, count, 2 + l->carried, outputs);
    for (uint32_t i = 0; i < l->carried + l->slices && status == MICA_OK; i++)
        mica__ox_out(o, i, outputs[2 + i]);
    mica_graph_release(condition);
    mica__ox_body_end(&body);
    return status;
}

mica_status mica__ox_loop_op(mica__ox_op *o)
{
    loop l = {
        .body = mica__ox_body_attribute(o, "body"), .most = INT64_MAX, .runs = true, .most_known = true};
    bool done = false;
    l.carried = o->input_count < 2 ? 0 : o->input_count - 2;
    if (l.body == NULL || l.body->input_count != 2 + l.carried || l.body->output_count < 1 + l.carried ||
        o->output_count > l.body->output_count - 1)
        return mica__ox_fail(o, "a body of other inputs or outputs");
    l.slices = l.body->output_count - 1 - l.carried;
    const mica__ox_host *condition = mica__ox_known(o, 1);
    l.runs = !mica__ox_has(o, 1) || (condition != NULL && mica__ox_host_int(condition, 0) != 0);
    if (mica__ox_has(o, 0)) {
        l.most_known = mica__ox_known(o, 0) != NULL;
        if (l.most_known)
            MICA__TRY(mica__ox_need_int(o, 0, &l.most));
    }
    l.value = mica__ox_memory(o->im, l.carried, sizeof *l.value);
    if (l.value == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < l.carried; i++)
        l.value[i] = o->in[2 + i];
    if (l.most_known && (!mica__ox_has(o, 1) || condition != NULL))
        MICA__TRY(unrolled(o, &l, &done));
    return done ? MICA_OK : real_loop(o, &l);
}

/* ---- Scan ----------------------------------------------------------------------------------------------- */

static mica_tensor backwards(const mica__ox_op *o, mica_tensor x)
{
    const mica__type type = mica__ox_type(o, x);
    const uint64_t n = type.shape[0];
    return x == 0 || n < 2 ? x : mica_graph_slice(o->graph, x, 0, n - 1, n, -1);
}

/* The i-th number of an attribute, 0 where it is absent. */
static int64_t entry(const int64_t *list, uint32_t count, uint32_t i)
{
    return list == NULL || i >= count ? 0 : list[i];
}

static mica_status scan_inputs(mica__ox_op *o, uint32_t states, mica_tensor *inputs)
{
    uint32_t axes_count = 0, ways_count = 0, axis = 0;
    const int64_t *axes = mica__ox_ints(o, "scan_input_axes", &axes_count);
    const int64_t *ways = mica__ox_ints(o, "scan_input_directions", &ways_count);
    for (uint32_t i = 0; i < o->input_count; i++) {
        inputs[i] = mica__ox_in(o, i);
        if (i < states)
            continue;
        MICA__TRY(
            mica__ox_axis(o, entry(axes, axes_count, i - states), mica__ox_type(o, inputs[i]).ndim, &axis));
        inputs[i] = mica__ox_move(o, inputs[i], axis, 0);
        MICA__TRY(mica__ox_need_shape(o, inputs[i], "a scanned input"));
        if (entry(ways, ways_count, i - states) != 0)
            inputs[i] = backwards(o, inputs[i]);
    }
    return mica_graph_status(o->graph);
}

static mica_status scan_body(mica__ox_op *o, const mica__onnx_graph *from, uint32_t states,
                             const mica_tensor *inputs, const mica__ox_captures *captures,
                             mica__ox_body_graph *body)
{
    MICA__TRY(mica__ox_body_begin(o, body));
    for (uint32_t i = 0; i < o->input_count; i++) {
        const mica__type type = *mica__type_of(o->graph, inputs[i]);
        const mica__ox_value value = {.tensor = mica__ox_body_input(body, &type, i >= states)};
        MICA__TRY(mica__ox_define(o->im, &body->scope, from->input[i].name, value));
    }
    MICA__TRY(mica__ox_body_captures(o, body, captures));
    MICA__TRY(mica__ox_body(o->im, &body->scope, from));
    for (uint32_t i = 0; i < from->output_count; i++) {
        mica__ox_value value = {0};
        MICA__TRY(mica__ox_body_result(o, &body->scope, from->output[i].name, &value));
        mica__ox_body_output(body, mica__ox_materialise(body->graph, &value));
    }
    return mica_graph_status(body->graph);
}

static mica_status scan_outputs(mica__ox_op *o, uint32_t states, const mica_tensor *outputs)
{
    uint32_t axes_count = 0, ways_count = 0, axis = 0;
    const int64_t *axes = mica__ox_ints(o, "scan_output_axes", &axes_count);
    const int64_t *ways = mica__ox_ints(o, "scan_output_directions", &ways_count);
    for (uint32_t i = 0; i < o->output_count; i++) {
        mica_tensor y = outputs[i];
        if (i >= states && y != 0) {
            MICA__TRY(mica__ox_axis(o, entry(axes, axes_count, i - states), mica__ox_type(o, y).ndim, &axis));
            if (entry(ways, ways_count, i - states) != 0)
                y = backwards(o, y);
            y = mica__ox_move(o, y, 0, axis);
        }
        mica__ox_out(o, i, y);
    }
    return MICA_OK;
}

mica_status mica__ox_scan_op(mica__ox_op *o)
{
    const mica__onnx_graph *from = mica__ox_body_attribute(o, "body");
    const int64_t scanned = mica__ox_int(o, "num_scan_inputs", 0);
    mica__ox_captures captures = {.count = 0};
    mica__ox_body_graph body = {.graph = NULL};
    if (from == NULL || scanned < 1 || scanned > (int64_t)o->input_count ||
        from->input_count != o->input_count || from->output_count != o->output_count)
        return mica__ox_fail(o, "a body of other inputs or outputs");
    const uint32_t states = o->input_count - (uint32_t)scanned;
    MICA__TRY(mica__ox_capture(o, from, &captures));
    mica_tensor *inputs = mica__ox_memory(o->im, o->input_count + captures.count, sizeof *inputs);
    mica_tensor *outputs = mica__ox_memory(o->im, o->output_count, sizeof *outputs);
    if (inputs == NULL || outputs == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    MICA__TRY(scan_inputs(o, states, inputs));
    if (captures.count != 0)
        memcpy(inputs + o->input_count, captures.tensor, captures.count * sizeof *inputs);
    const mica_scan_desc desc = {.carried = states, .scanned = (uint32_t)scanned, .others = captures.count};
    mica_status status = scan_body(o, from, states, inputs, &captures, &body);
    if (status == MICA_OK)
        (void)mica_graph_scan(o->graph, body.graph, &desc, inputs, outputs, o->output_count);
    mica__ox_body_end(&body);
    return status == MICA_OK ? scan_outputs(o, states, outputs) : status;
}
