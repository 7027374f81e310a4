/*
 * reverse.c - reverse mode: the nodes of a graph are walked from the last to the first, and what reaches a tensor is added up as nodes of the same graph.
 *
 * Knows no op: what reaches a node's inputs is its rule's to say (rules.h). Only what depends on what is asked about, and is depended on, is walked.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "graph/gradient/rules.h"

typedef struct walk {
    mica_graph *graph;
    mica_tensor *reaches; /* by tensor; 0: nothing yet */
    bool *depends;        /* by tensor: on what is asked about */
    uint32_t count;       /* of both */
} walk;

static bool no_memory(mica_graph *graph)
{
    return mica__graph_fail(graph, MICA_ERR_OUT_OF_MEMORY, "gradient", "no memory") != 0;
}

/* Makes room for all tensors that there are now. */
static bool grow(walk *w)
{
    const uint32_t count = w->graph->tensor_count;
    mica_tensor *reaches = mica__realloc(w->reaches, count * sizeof *reaches);
    if (reaches == NULL)
        return no_memory(w->graph);
    w->reaches = reaches;
    bool *depends = mica__realloc(w->depends, count * sizeof *depends);
    if (depends == NULL)
        return no_memory(w->graph);
    w->depends = depends;
    memset(reaches + w->count, 0, (count - w->count) * sizeof *reaches);
    memset(depends + w->count, 0, (count - w->count) * sizeof *depends);
    w->count = count;
    return true;
}

/* Marks outputs of nodes [first, last) that depend on something that does. */
static void mark(walk *w, uint32_t first, uint32_t last)
{
    const mica_graph *graph = w->graph;
    for (uint32_t i = first; i < last; i++) {
        const mica__node *node = &graph->node[i];
        const mica_tensor *in = mica__node_inputs(graph, node), *out = mica__node_outputs(graph, node);
        bool any = false;
        for (uint32_t j = 0; j < node->input_count && !any; j++)
            any = w->depends[in[j]];
        if (node->kind == MICA_NODE_STOP_GRADIENT)
            any = false;
        for (uint32_t j = 0; j < node->output_count && any; j++)
            w->depends[out[j]] |= out[j] != 0 && mica__is_float(mica__type_of(graph, out[j])->dtype);
    }
}

/* A gradient has the type of what it is of, whatever its rule computed in. */
static mica_tensor settled(mica_graph *graph, mica_tensor dx, mica_tensor x)
{
    return dx == 0 ? 0 : mica_graph_cast(graph, dx, mica__type_of(graph, x)->dtype);
}

static bool has_shape(const mica_graph *graph, mica_tensor a, mica_tensor b)
{
    const mica__type *x = mica__type_of(graph, a), *y = mica__type_of(graph, b);
    bool same = x->ndim == y->ndim;
    for (uint32_t d = 0; d < x->ndim && same; d++)
        same = mica__sizes_agree(x->shape[d], y->shape[d]);
    return same;
}

/* c64 numbers are added by a region. */
static mica_tensor added(mica_graph *graph, mica_tensor a, mica_tensor b)
{
    if (mica__type_of(graph, a)->dtype != MICA_DTYPE_C64)
        return mica_graph_add(graph, a, b);
    return mica__complex_add(graph, a, b);
}

static bool reach(walk *w, mica_tensor x, mica_tensor by)
{
    const mica_tensor dx = settled(w->graph, by, x);
    const uint8_t place = w->graph->place;
    if (dx == 0)
        return w->graph->status == MICA_OK;
    if (w->reaches[x] != 0) /* from several nodes, perhaps of several places: added up where x is */
        w->graph->place = mica__node_of(w->graph, x)->place;
    w->reaches[x] = w->reaches[x] == 0 ? dx : added(w->graph, w->reaches[x], dx);
    w->graph->place = place;
    return w->graph->status == MICA_OK;
}

static bool go_back(walk *w, uint32_t first, uint32_t last);

/* The node in other nodes, which are walked. */
static bool through_expansion(walk *w, mica__back *b, const mica__gradient_rule *rule, mica_tensor *out)
{
    mica_graph *graph = w->graph;
    const uint32_t first = graph->node_count;
    memset(out, 0, b->node.output_count * sizeof *out);
    rule->expand(b, out);
    const uint32_t last = graph->node_count;
    if (graph->status != MICA_OK || !grow(w))
        return false;
    mark(w, first, last);
    for (uint32_t i = 0; i < b->node.output_count; i++)
        if (b->dy[i] != 0 && out[i] != 0 && w->depends[out[i]] && !reach(w, out[i], b->dy[i]))
            return false;
    return go_back(w, first, last);
}

static bool through_rule(walk *w, mica__back *b, mica_tensor *out)
{
    mica_graph *graph = w->graph;
    const mica__gradient_rule *rule = mica__rule_of(&b->node);
    if (rule == NULL) {
        mica__back_refuses(b, "has no derivative");
        return false;
    }
    if (rule->derive != NULL && rule->derive(b) == MICA__DERIVED) {
        for (uint32_t i = 0; i < b->node.input_count && graph->status == MICA_OK; i++) {
            if (!b->wanted[i] || b->dx[i] == 0)
                continue;
            if (!has_shape(graph, b->dx[i], b->in[i]))
                (void)mica__graph_fail(graph, MICA_ERR_INTERNAL, "gradient",
                                       "%s: the gradient of input %u has another shape",
                                       mica__node_name(&b->node), i);
            else
                (void)reach(w, b->in[i], b->dx[i]);
        }
        return graph->status == MICA_OK;
    }
    if (graph->status != MICA_OK)
        return false;
    if (rule->expand == NULL) {
        mica__back_refuses(b, "has no derivative here");
        return false;
    }
    return through_expansion(w, b, rule, out);
}

/* Room for one node's lists: in, out, what reaches it, results. */
static bool through_node(walk *w, uint32_t at)
{
    enum { FEW = 96 };
    mica_graph *graph = w->graph;
    const mica__node node = graph->node[at];
    mica_tensor few[FEW], *list = few;
    bool few_wanted[FEW], *wanted = few_wanted;
    const size_t inputs = node.input_count, outputs = node.output_count, room = 2 * inputs + 3 * outputs;
    bool fine = true;
    if (room > FEW) {
        list = mica__alloc(room * sizeof *list);
        wanted = mica__alloc((inputs + 1) * sizeof *wanted);
    }
    if (list == NULL || wanted == NULL)
        fine = no_memory(graph);
    if (fine) {
        mica_tensor *in = list, *dx = in + inputs, *out = dx + inputs, *dy = out + outputs;
        bool reached = false, needed = false;
        memcpy(in, mica__node_inputs(graph, &node), inputs * sizeof *in);
        memcpy(out, mica__node_outputs(graph, &node), outputs * sizeof *out);
        memset(dx, 0, inputs * sizeof *dx);
        for (size_t i = 0; i < outputs; i++)
            reached |= (dy[i] = w->reaches[out[i]]) != 0;
        for (size_t i = 0; i < inputs; i++)
            needed |= wanted[i] = w->depends[in[i]];
        mica__back b = {graph, at, node, in, out, dy, wanted, dx};
        const uint32_t label = graph->label;
        const uint8_t place = graph->place;
        graph->label = node.label;
        graph->place = node.place;
        fine =
            !reached || !needed || node.kind == MICA_NODE_STOP_GRADIENT || through_rule(w, &b, dy + outputs);
        graph->label = label;
        graph->place = place;
    }
    if (list != few)
        mica__free(list);
    if (wanted != few_wanted)
        mica__free(wanted);
    return fine;
}

static bool go_back(walk *w, uint32_t first, uint32_t last)
{
    for (uint32_t i = last; i-- > first;)
        if (!through_node(w, i))
            return false;
    return true;
}

void mica__back_refuses(mica__back *b, const char *format, ...)
{
    char text[300];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    (void)mica__graph_fail(b->graph, MICA_ERR_UNSUPPORTED, "gradient", "node %u (%s) %s", b->at,
                           mica__node_name(&b->node), text);
}

/* ---- what callers have ---- */

static bool takes_one(mica_graph *graph, const char *what, uint32_t i, mica_tensor x)
{
    if (x == 0 || x >= graph->tensor_count)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "gradient",
                                "%s[%u] is %u, which the graph does not have", what, i, x) != 0;
    if (!mica__is_float(mica__type_of(graph, x)->dtype))
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "gradient", "%s[%u] is %s, not a float",
                                what, i, mica_dtype_name(mica__type_of(graph, x)->dtype)) != 0;
    return true;
}

static bool takes_seed(mica_graph *graph, uint32_t i, mica_tensor value, mica_tensor seed)
{
    char left[160], right[160];
    if (seed == 0)
        return true;
    if (!takes_one(graph, "seeds", i, seed))
        return false;
    const mica__type *x = mica__type_of(graph, value), *s = mica__type_of(graph, seed);
    if (x->dtype == s->dtype && has_shape(graph, value, seed))
        return true;
    return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "gradient",
                            "seeds[%u] is %s %s, but its value is %s %s", i, mica_dtype_name(s->dtype),
                            mica__shape_words(graph, s->ndim, s->shape, left), mica_dtype_name(x->dtype),
                            mica__shape_words(graph, x->ndim, x->shape, right)) != 0;
}

static bool takes_all(mica_graph *graph, const mica_tensor *values, const mica_tensor *seeds,
                      uint32_t value_count, const mica_tensor *of, uint32_t count)
{
    if (values == NULL || of == NULL || value_count == 0 || count == 0)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "gradient", "there are no %s",
                                values == NULL || value_count == 0 ? "values"
                                                                   : "tensors to differentiate by") != 0;
    for (uint32_t i = 0; i < value_count; i++)
        if (!takes_one(graph, "values", i, values[i]) ||
            !takes_seed(graph, i, values[i], seeds == NULL ? 0 : seeds[i]))
            return false;
    for (uint32_t i = 0; i < count; i++)
        if (!takes_one(graph, "of", i, of[i]))
            return false;
    return true;
}

static bool walk_all(walk *w, const mica_tensor *values, const mica_tensor *seeds, uint32_t value_count,
                     const mica_tensor *of, uint32_t count, mica_tensor *out)
{
    mica_graph *graph = w->graph;
    const uint32_t nodes = graph->node_count;
    if (!grow(w))
        return false;
    for (uint32_t i = 0; i < count; i++)
        w->depends[of[i]] = true;
    mark(w, 0, nodes);
    for (uint32_t i = 0; i < value_count; i++) {
        const mica_dtype dtype = mica__type_of(graph, values[i])->dtype;
        const mica_tensor seed = seeds != NULL && seeds[i] != 0
                                     ? seeds[i]
                                     : mica__repeat_to(graph, mica_graph_number(graph, dtype, 1), values[i]);
        if (w->depends[values[i]] && !reach(w, values[i], seed))
            return false;
    }
    if (!go_back(w, 0, nodes))
        return false;
    for (uint32_t i = 0; i < count; i++)
        out[i] = w->reaches[of[i]] != 0 ? w->reaches[of[i]]
                                        : mica__zeros_like(graph, of[i], mica__type_of(graph, of[i])->dtype);
    return graph->status == MICA_OK;
}

bool mica__gradients(mica_graph *graph, const mica_tensor *values, const mica_tensor *seeds,
                     uint32_t value_count, const mica_tensor *of, uint32_t count, mica_tensor *out)
{
    walk w = {.graph = graph};
    const uint32_t label = graph->label;
    const uint8_t place = graph->place;
    const bool fine = takes_all(graph, values, seeds, value_count, of, count) &&
                      walk_all(&w, values, seeds, value_count, of, count, out);
    graph->label = label;
    graph->place = place;
    mica__free(w.reaches);
    mica__free(w.depends);
    for (uint32_t i = 0; i < count && !fine && out != NULL; i++)
        out[i] = 0;
    return fine;
}

mica_status mica_graph_gradients(mica_graph *graph, const mica_tensor *values, const mica_tensor *seeds,
                                 uint32_t value_count, const mica_tensor *of, uint32_t count,
                                 mica_tensor *out_gradients)
{
    for (uint32_t i = 0; i < count && out_gradients != NULL; i++)
        out_gradients[i] = 0;
    if (!mica__graph_begins(graph, "gradient"))
        return graph == NULL ? MICA_ERR_INVALID_ARGUMENT : mica_graph_status(graph);
    if (out_gradients == NULL)
        (void)mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "gradient", "out_gradients is NULL");
    else
        (void)mica__gradients(graph, values, seeds, value_count, of, count, out_gradients);
    return mica_graph_status(graph);
}

mica_status mica_graph_gradient(mica_graph *graph, mica_tensor value, mica_tensor seed, const mica_tensor *of,
                                uint32_t count, mica_tensor *out_gradients)
{
    return mica_graph_gradients(graph, &value, &seed, 1, of, count, out_gradients);
}
