/*
 * inlining.c - a call becomes the nodes of its sub-graph. Nothing is left then of its flags and of its gradient: derivatives are taken before.
 */
#include <string.h>

#include "base/alloc.h"
#include "graph/passes/passes.h"

/* What the symbols of a body are in the graph around it; false where one of them does not follow from the inputs. */
static bool bind_symbols(const mica_graph *body, const mica_graph *graph, const mica_tensor *inputs,
                         uint64_t *binding)
{
    for (uint32_t i = 0; i < body->symbol_count; i++)
        binding[i] = MICA_SIZE_UNKNOWN;
    for (uint32_t i = 0; i < body->input_count; i++) {
        const mica__type *inner = mica__type_of(body, body->inputs[i]),
                         *outer = mica__type_of(graph, inputs[i]);
        for (uint32_t d = 0; d < inner->ndim; d++) {
            const uint64_t size = inner->shape[d];
            if (mica__size_known(size) || size == MICA_SIZE_UNKNOWN)
                continue;
            uint64_t *bound = &binding[size - MICA_SIZE_UNKNOWN - 1];
            if (!mica__size_known(*bound) &&
                (*bound == MICA_SIZE_UNKNOWN || mica__size_known(outer->shape[d])))
                *bound = outer->shape[d];
        }
    }
    for (uint32_t i = 0; i < body->symbol_count; i++)
        if (binding[i] == MICA_SIZE_UNKNOWN)
            return false;
    return true;
}

/* Rounds of a body that is itself written in a round: numbers that no other node has. */
static uint16_t take_rounds(mica__walk *walk, const mica_graph *body)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < body->node_count; i++)
        most = body->node[i].round > most ? body->node[i].round : most;
    if (most == 0 || walk->rounds + most > UINT16_MAX)
        return 0;
    const uint16_t base = (uint16_t)walk->rounds;
    walk->rounds += most;
    return base;
}

static bool add_call(mica__walk *walk, mica__rewrite *outer, const mica__node *node);

/* All nodes but inputs, which the map has. False: the new graph has failed, or walk->status is set. */
static bool add_nodes(mica__walk *walk, mica__rewrite *inner)
{
    mica_graph *to = walk->rewrite.to;
    for (uint32_t i = 0; i < inner->from->node_count; i++) {
        const mica__node *node = &inner->from->node[i];
        const uint32_t label = to->label;
        const uint16_t round = to->round;
        const uint8_t place = to->place;
        if (node->kind == MICA_NODE_INPUT)
            continue;
        mica__rewrite_mark(inner, node);
        const bool added = node->kind == MICA_NODE_CALL && add_call(walk, inner, node);
        to->label = label;
        to->round = round;
        to->place = place;
        if (walk->status != MICA_OK || (!added && !mica__graph_again(inner, i)))
            return false;
    }
    return true;
}

/* The nodes of `body` over `inputs`; `outputs` gets what it gives. False: it cannot be, and if it is for want of memory walk->status or the new graph says so. */
static bool add_body(mica__walk *walk, const mica_graph *body, const mica_tensor *inputs,
                     mica_tensor *outputs)
{
    mica__rewrite inner = {.from = body, .to = walk->rewrite.to};
    inner.map = mica__calloc(body->tensor_count, sizeof *inner.map);
    uint64_t *binding = mica__alloc((body->symbol_count + 1) * sizeof *binding);
    bool fits = inner.map != NULL && binding != NULL;
    if (!fits)
        walk->status =
            mica__fail(MICA_ERR_OUT_OF_MEMORY, "graph: no memory for %u tensors", body->tensor_count);
    fits = fits && bind_symbols(body, inner.to, inputs, binding);
    inner.binding = binding;
    inner.round_base = fits && inner.to->round != 0 ? take_rounds(walk, body) : 0;
    for (uint32_t i = 0; fits && i < body->input_count; i++)
        inner.map[body->inputs[i]] = inputs[i];
    fits = fits && add_nodes(walk, &inner);
    for (uint32_t i = 0; fits && i < body->outputs.count; i++)
        outputs[i] = inner.map[body->outputs.list[i].tensor];
    mica__free(inner.map);
    mica__free(binding);
    return fits;
}

static bool add_call(mica__walk *walk, mica__rewrite *outer, const mica__node *node)
{
    const mica_tensor *from = mica__node_inputs(outer->from, node),
                      *to = mica__node_outputs(outer->from, node);
    const uint32_t room = (uint32_t)node->input_count + node->output_count;
    mica_tensor *inputs = mica__calloc(room + 1, sizeof *inputs);
    if (inputs == NULL) {
        walk->status = mica__fail(MICA_ERR_OUT_OF_MEMORY, "graph: no memory for %u tensors", room);
        return false;
    }
    mica_tensor *outputs = inputs + node->input_count;
    for (uint32_t i = 0; i < node->input_count; i++)
        inputs[i] = outer->map[from[i]];
    const bool fits = add_body(walk, ((const mica__body_data *)node->data)->body[0], inputs, outputs);
    for (uint32_t i = 0; fits && i < node->output_count; i++)
        outer->map[to[i]] = outputs[i];
    mica__free(inputs);
    return fits;
}

static bool begin_inlining(mica__walk *walk)
{
    for (uint32_t i = 0; i < walk->rewrite.from->node_count; i++)
        if (walk->rewrite.from->node[i].round > walk->rounds)
            walk->rounds = walk->rewrite.from->node[i].round;
    return true;
}

static mica__visit inline_call(mica__walk *walk, uint32_t at)
{
    const mica__node *node = mica__walk_node(walk, at);
    if (node->kind != MICA_NODE_CALL)
        return MICA__VISIT_LEFT;
    return add_call(walk, &walk->rewrite, node) ? MICA__VISIT_CHANGED : MICA__VISIT_LEFT;
}

static bool is_call(const mica__node *node, const mica__pass_options *options)
{
    (void)options;
    return node->kind == MICA_NODE_CALL;
}

const mica__graph_pass mica__graph_pass_inlining = {
    "inlining", "calls become the nodes of their sub-graphs", is_call, inline_call, begin_inlining, NULL};

/* ---- sub-graphs that stay ---- */

static mica__visit optimise_bodies(mica__walk *walk, uint32_t at)
{
    const mica__node *node = mica__walk_node(walk, at);
    if (node->kind < MICA_NODE_CALL || node->kind > MICA_NODE_SCAN)
        return MICA__VISIT_LEFT;
    const mica__body_data *from = node->data;
    mica__body_data data = *from;
    const mica_tensor *outputs = mica__node_outputs(walk->rewrite.from, node);
    const uint32_t room = (uint32_t)node->input_count + node->output_count;
    mica_tensor *inputs = mica__calloc(room + 1, sizeof *inputs), first = 0;
    if (inputs == NULL)
        walk->status = mica__fail(MICA_ERR_OUT_OF_MEMORY, "graph: no memory for %u tensors", room);
    data.body[0] = data.body[1] = NULL;
    for (uint32_t i = 0; i < 2 && from->body[i] != NULL && walk->status == MICA_OK; i++)
        walk->status = mica__graph_optimise(from->body[i], walk->options, &data.body[i]);
    for (uint32_t i = 0; walk->status == MICA_OK && i < node->input_count; i++)
        inputs[i] = mica__walk_input(walk, node, i);
    if (walk->status == MICA_OK)
        first = mica__graph_body_node(walk->rewrite.to, (mica_node_kind)node->kind, &data, inputs,
                                      node->input_count, inputs + node->input_count, node->output_count);
    else
        mica_graph_release(data.body[0]);
    for (uint32_t i = 0; first != 0 && i < node->output_count; i++)
        walk->rewrite.map[outputs[i]] = inputs[node->input_count + i];
    mica__free(inputs);
    return MICA__VISIT_DONE;
}

static bool has_bodies(const mica__node *node, const mica__pass_options *options)
{
    (void)options;
    return node->kind >= MICA_NODE_CALL && node->kind <= MICA_NODE_SCAN;
}

const mica__graph_pass mica__graph_pass_bodies = {
    "sub-graphs", "what choices and loops run goes through all passes", has_bodies, optimise_bodies, NULL,
    NULL};
