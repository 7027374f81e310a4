/*
 * crossing.c - where values go from place to place: a copy for each value and place, in the graph, so that whoever prints it sees them.
 *
 * A view lies where what it shows does. Where a part of a value is taken (a slice), the part crosses, in a row; else what is below all views, which
 * are made again on the other side. Constants and views of them are there twice. A body gets its inputs, and gives its outputs, at the place of its node.
 */
#include <string.h>

#include "base/alloc.h"
#include "graph/exec/emit.h"
#include "graph/passes/passes.h"

/* One graph, written again. */
typedef struct crossing {
    mica__rewrite rewrite;
    uint32_t count; /* of places */
    uint8_t base;   /* what 0 is */
    bool within;    /* a body: inputs and outputs lie at `base` */
    uint64_t
        *readers;   /* by tensor: the places of nodes that compute with it, or with views of it; a bit each */
    uint8_t *place; /* by tensor of `from`: where it lies */
    mica_tensor *there
        [MICA_GRAPH_PLACES]; /* by tensor of `from`: as that place has it; NULL: no list yet, 0: not yet */
    mica_status status;      /* a failure that is not the new graph's */
} crossing;

static uint8_t place_of(const crossing *c, const mica__node *node)
{
    return node->place == 0 ? c->base : node->place;
}

/* ---- where leaves lie ---- */

static void find_readers(crossing *c)
{
    const mica_graph *from = c->rewrite.from;
    for (uint32_t n = from->node_count; n-- > 0;) {
        const mica__node *node = &from->node[n];
        uint64_t readers = 1ull << place_of(c, node);
        if (mica__is_view(node))
            readers = c->readers[*mica__node_outputs(from, node)];
        for (uint32_t i = 0; i < node->input_count; i++)
            c->readers[mica__node_inputs(from, node)[i]] |= readers;
    }
}

static uint8_t leaf_place(const crossing *c, const mica__node *node)
{
    const uint8_t own = place_of(c, node);
    const uint64_t readers = c->readers[*mica__node_outputs(c->rewrite.from, node)];
    uint8_t first = 0;
    if (c->within && node->kind == MICA_NODE_INPUT)
        return c->base;
    if (readers == 0 || (readers >> own & 1) != 0)
        return own;
    while ((readers >> first & 1) == 0)
        first++;
    return first;
}

/* ---- values of another place ---- */

static bool no_memory(crossing *c)
{
    if (c->status == MICA_OK)
        c->status = mica__fail(MICA_ERR_OUT_OF_MEMORY, "graph: no memory for %u tensors of another place",
                               c->rewrite.from->tensor_count);
    return false;
}

/* The list of what a place has; its own are the rewrite's map. */
static mica_tensor *list_of(crossing *c, uint8_t place)
{
    if (c->there[place] == NULL)
        c->there[place] = mica__calloc(c->rewrite.from->tensor_count, sizeof(mica_tensor));
    if (c->there[place] == NULL)
        (void)no_memory(c);
    return c->there[place];
}

/* A node of `from` once more, at another place, over what that has: a constant, or a view. */
static mica_tensor again_at(crossing *c, uint8_t place, mica_tensor tensor, const mica_tensor *there)
{
    mica__rewrite *rewrite = &c->rewrite;
    const mica_graph *from = rewrite->from;
    const mica__tensor *t = &from->tensor[tensor];
    const mica__node *node = &from->node[t->node];
    const mica_tensor in = node->input_count == 0 ? 0 : *mica__node_inputs(from, node);
    const mica_tensor kept = rewrite->map[tensor], kept_in = rewrite->map[in];
    rewrite->map[in] = in == 0 ? 0 : there[in];
    rewrite->place = place;
    (void)mica__graph_again(rewrite, t->node);
    const mica_tensor made = rewrite->map[tensor];
    rewrite->map[in] = kept_in;
    rewrite->map[tensor] = kept;
    return made;
}

static mica_tensor copied(crossing *c, mica_tensor x, uint8_t place)
{
    mica_graph *to = c->rewrite.to;
    const uint8_t now = to->place;
    to->place = place;
    const mica_tensor y =
        mica_graph_op(to, MICA_OP_COPY, NULL, (const mica_tensor[]){x}, 1, 1, NULL, NULL, 0);
    to->place = now;
    return y;
}

/* `tensor` crosses as it is; a view is put in a row first. */
static mica_tensor carry(crossing *c, mica_tensor tensor, uint8_t place)
{
    const mica_graph *from = c->rewrite.from;
    mica_tensor x = c->rewrite.map[tensor];
    if (mica__is_view(mica__node_of(from, tensor))) {
        mica_tensor *home = list_of(c, c->place[tensor]); /* the row serves all places */
        if (home == NULL)
            return 0;
        if (home[tensor] == 0)
            home[tensor] = copied(c, x, c->place[tensor]);
        x = home[tensor];
    }
    return x == 0 ? 0 : copied(c, x, place);
}

/* `tensor` as `place` has it; 0: a failure. */
static mica_tensor at_place(crossing *c, mica_tensor tensor, uint8_t place)
{
    enum { MOST = 64 };
    const mica_graph *from = c->rewrite.from;
    mica_tensor chain[MOST], *there = list_of(c, place);
    uint32_t depth = 0;
    if (tensor == 0 || there == NULL || c->place[tensor] == place)
        return c->rewrite.map[tensor];
    for (; there[tensor] == 0; tensor = *mica__node_inputs(from, mica__node_of(from, tensor))) {
        const mica__node *node = mica__node_of(from, tensor);
        if (node->kind == MICA_NODE_CONSTANT)
            there[tensor] = again_at(c, place, tensor, there);
        else if (!mica__is_view(node) || node->kind == MICA_NODE_SLICE || depth == MOST)
            there[tensor] = carry(c, tensor, place);
        else
            chain[depth++] = tensor;
        if (c->rewrite.to->status != MICA_OK || c->status != MICA_OK)
            return 0;
        if (there[tensor] != 0)
            break;
    }
    mica_tensor last = there[tensor];
    while (depth-- > 0 && last != 0)
        last = there[chain[depth]] = again_at(c, place, chain[depth], there);
    return last;
}

/* ---- nodes ---- */

static mica_status cross(const mica_graph *from, uint32_t count, const uint8_t *base, mica_graph **out);

/* What a choice or a loop runs, at its place. */
static bool cross_bodies(crossing *c, const mica__node *node, uint8_t place)
{
    mica__rewrite *rewrite = &c->rewrite;
    const mica__body_data *from = node->data;
    mica__body_data data = *from;
    const uint32_t room = (uint32_t)node->input_count + node->output_count;
    mica_tensor *inputs = mica__calloc(room + 1, sizeof *inputs), first = 0;
    if (inputs == NULL)
        return no_memory(c);
    mica_tensor *outputs = inputs + node->input_count;
    data.body[0] = data.body[1] = NULL;
    for (uint32_t i = 0; i < 2 && from->body[i] != NULL && c->status == MICA_OK; i++)
        c->status = cross(from->body[i], c->count, &place, &data.body[i]);
    for (uint32_t i = 0; i < node->input_count; i++)
        inputs[i] = rewrite->map[mica__node_inputs(rewrite->from, node)[i]];
    mica__rewrite_mark(rewrite, node);
    if (c->status == MICA_OK)
        first = mica__graph_body_node(rewrite->to, (mica_node_kind)node->kind, &data, inputs,
                                      node->input_count, outputs, node->output_count);
    else
        mica_graph_release(data.body[0]);
    rewrite->to->label = 0;
    rewrite->to->round = 0;
    for (uint32_t i = 0; i < node->output_count && first != 0; i++)
        rewrite->map[mica__node_outputs(rewrite->from, node)[i]] = outputs[i];
    rewrite->map[0] = 0;
    mica__free(inputs);
    return first != 0;
}

static bool has_device(crossing *c, uint32_t at, uint8_t place)
{
    const mica_graph *from = c->rewrite.from;
    const mica__node *node = &from->node[at];
    if (place < c->count)
        return true;
    c->status =
        mica__fail(MICA_ERR_INVALID_ARGUMENT,
                   "graph_compile: node %u, %s%s%s, belongs to place %u, but there %s %u device%s", at,
                   mica__node_name(node), node->label != 0 ? " in " : "", from->text + node->label, place,
                   c->count == 1 ? "is" : "are", c->count, c->count == 1 ? "" : "s");
    return false;
}

/* The node at its place, over what that has: the map has it meanwhile. `kept` and `list` have room for its inputs. */
static bool cross_node(crossing *c, uint32_t at, mica_tensor *kept, mica_tensor *list)
{
    mica__rewrite *rewrite = &c->rewrite;
    const mica_graph *from = rewrite->from;
    const mica__node *node = &from->node[at];
    const mica_tensor *in = mica__node_inputs(from, node), *out = mica__node_outputs(from, node);
    const uint8_t place = mica__is_leaf(node)   ? leaf_place(c, node)
                          : mica__is_view(node) ? c->place[*in]
                                                : place_of(c, node);
    bool fits = has_device(c, at, place);
    for (uint32_t i = 0; i < node->output_count; i++)
        c->place[out[i]] = place;
    for (uint32_t i = 0; i < node->input_count && fits; i++) {
        list[i] = at_place(c, in[i], place);
        fits = list[i] != 0 || in[i] == 0;
    }
    if (!fits)
        return false;
    for (uint32_t i = 0; i < node->input_count; i++) {
        kept[i] = rewrite->map[in[i]];
        rewrite->map[in[i]] = list[i];
    }
    rewrite->place = place;
    fits = node->kind >= MICA_NODE_CALL && node->kind <= MICA_NODE_SCAN ? cross_bodies(c, node, place)
                                                                        : mica__graph_again(rewrite, at);
    for (uint32_t i = node->input_count; i-- > 0;) /* one that is taken twice: what it was first */
        rewrite->map[in[i]] = kept[i];
    return fits;
}

static bool cross_nodes(crossing *c)
{
    const mica_graph *from = c->rewrite.from;
    uint32_t most = 0;
    for (uint32_t n = 0; n < from->node_count; n++)
        most = from->node[n].input_count > most ? from->node[n].input_count : most;
    mica_tensor *lists = mica__alloc(((size_t)most * 2 + 1) * sizeof *lists);
    bool fits = lists != NULL || no_memory(c);
    for (uint32_t n = 0; n < from->node_count && fits; n++)
        fits = cross_node(c, n, lists, lists + most);
    mica__free(lists);
    for (uint32_t i = 0; i < from->outputs.count && fits && c->within; i++) {
        const mica_tensor out = from->outputs.list[i].tensor;
        const mica_tensor there = at_place(c, out, c->base);
        fits = there != 0;
        c->rewrite.map[out] = there; /* nothing but outputs is looked up from here on */
        c->place[out] = c->base;
    }
    return fits;
}

/* ---- graphs ---- */

static mica_status cross(const mica_graph *from, uint32_t count, const uint8_t *base, mica_graph **out)
{
    crossing c = {.count = count, .base = base == NULL ? 0 : *base, .within = base != NULL};
    *out = NULL;
    c.readers = mica__calloc(from->tensor_count, sizeof *c.readers);
    c.place = mica__calloc(from->tensor_count, 1);
    mica_status status = mica__rewrite_begin(&c.rewrite, from, NULL);
    c.rewrite.placed = true;
    if (status == MICA_OK && (c.readers == NULL || c.place == NULL))
        status = no_memory(&c) ? MICA_OK : c.status;
    if (status == MICA_OK) {
        find_readers(&c);
        (void)cross_nodes(&c);
        status = c.status;
    }
    for (uint32_t p = 0; p < MICA_GRAPH_PLACES; p++)
        mica__free(c.there[p]);
    mica__free(c.readers);
    mica__free(c.place);
    if (status == MICA_OK)
        return mica__rewrite_end(&c.rewrite, out);
    mica__free(c.rewrite.map);
    mica_graph_release(c.rewrite.to);
    return status;
}

mica_status mica__graph_cross(const mica_graph *from, uint32_t count, mica_graph **out_graph)
{
    return cross(from, count, NULL, out_graph);
}

bool mica__graph_is_placed(const mica_graph *graph)
{
    bool placed = false;
    for (uint32_t n = 0; n < graph->node_count && !placed; n++) {
        const mica__node *node = &graph->node[n];
        placed = node->place != 0;
        if (node->kind < MICA_NODE_CALL || node->kind > MICA_NODE_SCAN)
            continue;
        const mica__body_data *data = node->data;
        for (uint32_t i = 0; i < 2 && data->body[i] != NULL; i++)
            placed = placed || mica__graph_is_placed(data->body[i]);
    }
    return placed;
}
