/*
 * concrete.c - a graph for inputs of given types: symbols become sizes, calls become what they call.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "graph/ir.h"

/* A size that a body states against the one that comes in. */
static bool bind_size(uint64_t inner, uint64_t outer, uint64_t *sizes)
{
    if (mica__size_known(inner) || inner == MICA_SIZE_UNKNOWN)
        return mica__sizes_agree(inner, outer);
    uint64_t *size = &sizes[inner - MICA_SIZE_UNKNOWN - 1];
    const bool agree = mica__sizes_agree(*size, outer);
    if (!mica__size_known(*size))
        *size = outer;
    return agree;
}

bool mica__graph_bind(const mica_graph *body, const mica__type *inputs, uint64_t *out_sizes)
{
    for (uint32_t i = 0; i < body->symbol_count; i++)
        out_sizes[i] = MICA_SIZE_UNKNOWN;
    for (uint32_t i = 0; i < body->input_count; i++) {
        const mica__type *inner = mica__type_of(body, body->inputs[i]);
        bool fits = inner->dtype == inputs[i].dtype && inner->ndim == inputs[i].ndim;
        for (uint32_t d = 0; d < inner->ndim && fits; d++)
            fits = bind_size(inner->shape[d], inputs[i].shape[d], out_sizes);
        if (!fits)
            return false;
    }
    return true;
}

/* The types of tensors, and the sizes that a body's symbols have with them; one block of memory. */
static mica__type *types_and_sizes(const mica_graph *graph, const mica_tensor *inputs, const mica_graph *body,
                                   uint64_t **out_sizes)
{
    const size_t types = body->input_count * sizeof(mica__type);
    mica__type *memory = mica__alloc(types + (body->symbol_count + 1) * sizeof(uint64_t));
    if (memory == NULL)
        return NULL;
    for (uint32_t i = 0; i < body->input_count; i++)
        memory[i] = *mica__type_of(graph, inputs[i]);
    *out_sizes = (uint64_t *)(void *)((unsigned char *)memory + types);
    return memory;
}

static bool add_node(mica__rewrite *rewrite, uint32_t at);

static bool inline_nodes(mica_graph *to, const mica_graph *body, const mica_tensor *inputs,
                         const uint64_t *sizes, mica_tensor *outputs,
                         bool (*add)(mica__rewrite *rewrite, uint32_t node))
{
    mica__rewrite rewrite = {.from = body, .to = to, .binding = sizes};
    rewrite.map = mica__calloc(body->tensor_count, sizeof *rewrite.map);
    if (rewrite.map == NULL)
        return mica__graph_fail(to, MICA_ERR_OUT_OF_MEMORY, "call", "no memory for %u tensors",
                                body->tensor_count) != 0;
    for (uint32_t i = 0; i < body->input_count; i++)
        rewrite.map[body->inputs[i]] = inputs[i];
    bool fits = true;
    for (uint32_t n = 0; n < body->node_count && fits; n++)
        if (body->node[n].kind != MICA_NODE_INPUT)
            fits = add(&rewrite, n);
    for (uint32_t i = 0; i < body->outputs.count && fits; i++)
        outputs[i] = rewrite.map[body->outputs.list[i].tensor];
    mica__free(rewrite.map);
    return fits;
}

static bool inline_by(mica_graph *to, const mica_graph *body, const mica_tensor *inputs, mica_tensor *outputs,
                      bool (*add)(mica__rewrite *rewrite, uint32_t node))
{
    uint64_t *sizes = NULL;
    if (to->status != MICA_OK)
        return false;
    mica__type *types = types_and_sizes(to, inputs, body, &sizes);
    if (types == NULL)
        return mica__graph_fail(to, MICA_ERR_OUT_OF_MEMORY, "call", "no memory") != 0;
    const bool fits =
        mica__graph_bind(body, types, sizes)
            ? inline_nodes(to, body, inputs, sizes, outputs, add)
            : mica__graph_fail(to, MICA_ERR_INVALID_ARGUMENT, "call", "inputs do not fit the sub-graph") != 0;
    mica__free(types);
    return fits;
}

bool mica__graph_inline(mica_graph *to, const mica_graph *body, const mica_tensor *inputs,
                        mica_tensor *outputs)
{
    return inline_by(to, body, inputs, outputs, mica__graph_again);
}

/* ---- known sizes ---- */

static bool is_view(const mica__node *node)
{
    return node->kind >= MICA_NODE_RESHAPE && node->kind <= MICA_NODE_EXPAND;
}

/* What control and the caller's ops take lies in memory of its own. */
static bool settle_inputs(mica__rewrite *rewrite, const mica__node *node)
{
    const uint8_t place = rewrite->to->place;
    if (node->place != 0)
        rewrite->to->place = node->place;
    for (uint32_t i = 0; i < node->input_count; i++) {
        mica_tensor *in = &rewrite->map[mica__node_inputs(rewrite->from, node)[i]];
        if (*in != 0 && (is_view(mica__node_of(rewrite->to, *in)) ||
                         mica__node_of(rewrite->to, *in)->kind == MICA_NODE_STOP_GRADIENT))
            *in = mica_graph_op(rewrite->to, MICA_OP_COPY, NULL, in, 1, 1, NULL, NULL, 0);
    }
    rewrite->to->place = place;
    return rewrite->to->status == MICA_OK;
}

static bool call_inline(mica__rewrite *rewrite, const mica__node *node)
{
    const mica_graph *body = ((const mica__body_data *)node->data)->body[0];
    mica_tensor *tensors =
        mica__alloc(((uint32_t)node->input_count + node->output_count + 1) * sizeof *tensors);
    if (tensors == NULL)
        return mica__graph_fail(rewrite->to, MICA_ERR_OUT_OF_MEMORY, "call", "no memory") != 0;
    for (uint32_t i = 0; i < node->input_count; i++)
        tensors[i] = rewrite->map[mica__node_inputs(rewrite->from, node)[i]];
    mica_tensor *outputs = tensors + node->input_count;
    const uint8_t place = rewrite->to->place;
    if (node->place != 0)
        rewrite->to->place = node->place;
    const bool fits = inline_by(rewrite->to, body, tensors, outputs, add_node);
    rewrite->to->place = place;
    for (uint32_t i = 0; i < node->output_count && fits; i++)
        rewrite->map[mica__node_outputs(rewrite->from, node)[i]] = outputs[i];
    mica__free(tensors);
    return fits;
}

/* The sub-graph for what the node takes in the new graph: what it gives may have sizes that follow from others inside alone. NULL: the new graph has failed. */
static mica_graph *known_body(mica__rewrite *rewrite, const mica__node *node, const mica_graph *body)
{
    const mica__body_data *data = node->data;
    const mica_tensor *in = mica__node_inputs(rewrite->from, node) + (node->kind == MICA_NODE_IF);
    mica_graph *known = NULL;
    mica__type *types = mica__alloc((body->input_count + 1) * sizeof *types);
    if (types == NULL) {
        (void)mica__graph_fail(rewrite->to, MICA_ERR_OUT_OF_MEMORY, mica__node_name(node), "no memory");
        return NULL;
    }
    for (uint32_t i = 0; i < body->input_count; i++) {
        mica__type *type = &types[i];
        *type = *mica__type_of(rewrite->to, rewrite->map[in[i]]);
        if (node->kind == MICA_NODE_SCAN && i >= data->scan.carried &&
            i < data->scan.carried + data->scan.scanned) /* a slice */
            memmove(type->shape, type->shape + 1, --type->ndim * sizeof type->shape[0]);
    }
    const mica_status status = mica__graph_concrete(body, types, &known);
    if (status != MICA_OK) {
        char sentence[512];
        (void)snprintf(sentence, sizeof sentence, "%s", mica_status_message());
        (void)mica__graph_fail(rewrite->to, status, mica__node_name(node), "%s", sentence);
    }
    mica__free(types);
    return known;
}

static bool add_control(mica__rewrite *rewrite, const mica__node *node)
{
    if (!settle_inputs(rewrite, node))
        return false;
    const mica_tensor *from = mica__node_inputs(rewrite->from, node);
    const mica__body_data *data = node->data;
    mica__body_data known = *data;
    mica_tensor *tensors =
        mica__alloc(((uint32_t)node->input_count + node->output_count + 1) * sizeof *tensors);
    if (tensors == NULL)
        return mica__graph_fail(rewrite->to, MICA_ERR_OUT_OF_MEMORY, "node", "no memory") != 0;
    for (uint32_t i = 0; i < node->input_count; i++)
        tensors[i] = rewrite->map[from[i]];
    for (uint32_t i = 0; i < 2; i++)
        known.body[i] = data->body[i] == NULL || rewrite->to->status != MICA_OK
                            ? NULL
                            : known_body(rewrite, node, data->body[i]);
    const uint32_t label = rewrite->to->label;
    const uint16_t round = rewrite->to->round;
    mica_tensor *outputs = tensors + node->input_count;
    mica__rewrite_mark(rewrite, node);
    (void)mica__graph_body_node(rewrite->to, (mica_node_kind)node->kind, &known, tensors, node->input_count,
                                outputs, node->output_count);
    rewrite->to->label = label;
    rewrite->to->round = round;
    for (uint32_t i = 0; i < node->output_count; i++)
        rewrite->map[mica__node_outputs(rewrite->from, node)[i]] = outputs[i];
    mica__free(tensors);
    return rewrite->to->status == MICA_OK;
}

static bool add_node(mica__rewrite *rewrite, uint32_t at)
{
    const mica__node *node = &rewrite->from->node[at];
    if (node->kind == MICA_NODE_CALL)
        return call_inline(rewrite, node);
    const bool control =
        node->kind == MICA_NODE_IF || node->kind == MICA_NODE_WHILE || node->kind == MICA_NODE_SCAN;
    if (control)
        return add_control(rewrite, node);
    return (node->kind != MICA_NODE_CUSTOM || settle_inputs(rewrite, node)) && mica__graph_again(rewrite, at);
}

/* Every size must be known by now. */
static mica_status check_known(const mica_graph *graph)
{
    char words[160];
    for (mica_tensor t = 1; t < graph->tensor_count; t++) {
        const mica__type *type = mica__type_of(graph, t);
        if (mica__type_elements(type) != MICA_SIZE_UNKNOWN)
            continue;
        const mica__node *node = mica__node_of(graph, t);
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "graph: the sizes of %s %s (node %u%s%s) do not follow from the inputs",
                          mica__node_name(node), mica__shape_words(graph, type->ndim, type->shape, words),
                          graph->tensor[t].node, node->label != 0 ? ", " : "", graph->text + node->label);
    }
    return MICA_OK;
}

mica_status mica__graph_concrete(const mica_graph *from, const mica__type *inputs, mica_graph **out_graph)
{
    return mica__graph_concrete_nodes(from, inputs, NULL, out_graph);
}

mica_status mica__graph_concrete_nodes(const mica_graph *from, const mica__type *inputs, uint32_t *begins,
                                       mica_graph **out_graph)
{
    mica__rewrite rewrite;
    *out_graph = NULL;
    uint64_t *sizes = mica__alloc((from->symbol_count + 1) * sizeof *sizes);
    if (sizes == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "graph: no memory for symbols");
    mica_status status = mica__graph_bind(from, inputs, sizes)
                             ? MICA_OK
                             : mica__fail(MICA_ERR_INVALID_ARGUMENT, "graph: inputs do not fit the graph");
    if (status == MICA_OK)
        status = mica__rewrite_begin(&rewrite, from, sizes);
    if (status != MICA_OK) {
        mica__free(sizes);
        return status;
    }
    rewrite.inputs = inputs;
    for (uint32_t n = 0; n < from->node_count; n++) {
        if (begins != NULL)
            begins[n] = rewrite.to->node_count;
        if (!add_node(&rewrite, n))
            break;
    }
    if (begins != NULL)
        begins[from->node_count] = rewrite.to->node_count;
    status = mica__rewrite_end(&rewrite, out_graph);
    mica__free(sizes);
    if (status == MICA_OK && (status = check_known(*out_graph)) != MICA_OK) {
        mica_graph_release(*out_graph);
        *out_graph = NULL;
    }
    return status;
}
