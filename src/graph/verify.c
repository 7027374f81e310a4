/*
 * verify.c - everything that building a graph checked, once more: first that the numbers are those of a graph, then all of it again by writing it again.
 */
#include <string.h>

#include "base/alloc.h"
#include "graph/custom.h"

static mica_status wrong_node(const mica__node *node, uint32_t at, const char *what, uint32_t number)
{
    return mica__fail(MICA_ERR_INVALID_ARGUMENT, "graph_verify: node %u, %s: %s %u", at,
                      node->kind < MICA_NODE_COUNT ? mica__node_name(node) : "none", what, number);
}

/* Bytes of attributes that nodes of a kind have at the least. */
static uint32_t data_bytes(const mica__node *node)
{
    static const uint32_t bytes[MICA_NODE_COUNT] = {
        [MICA_NODE_INPUT] = sizeof(mica__leaf_data),        [MICA_NODE_PARAMETER] = sizeof(mica__leaf_data),
        [MICA_NODE_CONSTANT] = sizeof(mica__constant_data), [MICA_NODE_REGION] = sizeof(mica__region_program),
        [MICA_NODE_INDEX] = sizeof(mica__shape_data),       [MICA_NODE_RESHAPE] = sizeof(mica__shape_data),
        [MICA_NODE_PERMUTE] = sizeof(mica__permute_data),   [MICA_NODE_SLICE] = sizeof(mica__slice_data),
        [MICA_NODE_EXPAND] = sizeof(mica__shape_data),      [MICA_NODE_CONCAT] = sizeof(mica__concat_data),
        [MICA_NODE_CALL] = sizeof(mica__body_data),         [MICA_NODE_IF] = sizeof(mica__body_data),
        [MICA_NODE_WHILE] = sizeof(mica__body_data),        [MICA_NODE_SCAN] = sizeof(mica__body_data),
        [MICA_NODE_CUSTOM] = sizeof(mica__custom_data)};
    return node->kind == MICA_NODE_OP
               ? (uint32_t)(sizeof(mica__op_data) + node->output_count * sizeof(mica_operand_desc))
               : bytes[node->kind];
}

static mica_status check_bodies(const mica__node *node, uint32_t at)
{
    const mica__body_data *data = node->data;
    for (uint32_t i = 0; i < 2; i++)
        if (data->body[i] != NULL && mica_graph_verify(data->body[i]) != MICA_OK)
            return mica__fail(MICA_ERR_INVALID_ARGUMENT, "graph_verify: node %u, %s: sub-graph %u: %s", at,
                              mica__node_name(node), i, mica_status_message());
    return MICA_OK;
}

static mica_status check_node(const mica_graph *graph, uint32_t at)
{
    const mica__node *node = &graph->node[at];
    if (node->kind == MICA_NODE_NONE || node->kind >= MICA_NODE_COUNT)
        return wrong_node(node, at, "it is of kind", node->kind);
    const uint64_t end = (uint64_t)node->inputs + node->input_count;
    if (end > node->outputs || (uint64_t)node->outputs + node->output_count > graph->list_count)
        return wrong_node(node, at, "its tensors lie beyond the list of", graph->list_count);
    if (node->label >= graph->text_bytes && node->label != 0)
        return wrong_node(node, at, "its label lies at", node->label);
    if (node->place >= MICA_GRAPH_PLACES)
        return wrong_node(node, at, "it belongs to place", node->place);
    if (node->data_bytes < data_bytes(node) || (node->data == NULL && data_bytes(node) != 0))
        return wrong_node(node, at, "its attributes have bytes,", node->data_bytes);
    for (uint32_t i = 0; i < node->input_count; i++) {
        const mica_tensor tensor = mica__node_inputs(graph, node)[i];
        if (tensor >= graph->tensor_count)
            return wrong_node(node, at, "it takes a tensor that is not there,", tensor);
        if (tensor != 0 && graph->tensor[tensor].node >= at)
            return wrong_node(node, at, "it takes a tensor that comes later,", tensor);
    }
    for (uint32_t i = 0; i < node->output_count; i++) {
        const mica_tensor tensor = mica__node_outputs(graph, node)[i];
        if (tensor >= graph->tensor_count ||
            (tensor != 0 && (graph->tensor[tensor].node != at || graph->tensor[tensor].output != i)))
            return wrong_node(node, at, "it does not give tensor", tensor);
    }
    return node->kind >= MICA_NODE_CALL && node->kind <= MICA_NODE_SCAN ? check_bodies(node, at) : MICA_OK;
}

static mica_status check_names(const mica_graph *graph)
{
    for (uint32_t i = 0; i < graph->outputs.count; i++) {
        const mica__named *output = &graph->outputs.list[i];
        if (output->name >= graph->text_bytes || output->tensor == 0 || output->tensor >= graph->tensor_count)
            return mica__fail(MICA_ERR_INVALID_ARGUMENT, "graph_verify: output %u is tensor %u", i,
                              output->tensor);
    }
    for (uint32_t i = 0; i < graph->input_count; i++)
        if (graph->inputs[i] >= graph->tensor_count ||
            mica__node_of(graph, graph->inputs[i])->kind != MICA_NODE_INPUT)
            return mica__fail(MICA_ERR_INVALID_ARGUMENT, "graph_verify: input %u is tensor %u", i,
                              graph->inputs[i]);
    return MICA_OK;
}

/* Types against what building the graph again makes of them. */
static mica_status compare_types(const mica_graph *graph, const mica__rewrite *again)
{
    char left[160], right[160];
    for (mica_tensor t = 1; t < graph->tensor_count; t++) {
        const mica__type *is = mica__type_of(graph, t);
        const mica_tensor other = again->map[t];
        if (other == 0)
            return mica__fail(MICA_ERR_INVALID_ARGUMENT, "graph_verify: tensor %u comes from no node", t);
        const mica__type *follows = mica__type_of(again->to, other);
        if (is->dtype == follows->dtype && is->ndim == follows->ndim &&
            is->group_size == follows->group_size &&
            memcmp(is->shape, follows->shape, is->ndim * sizeof is->shape[0]) == 0)
            continue;
        return mica__fail(
            MICA_ERR_INVALID_ARGUMENT, "graph_verify: node %u, %s: tensor %u is %s %s, but should be %s %s",
            graph->tensor[t].node, mica__node_name(mica__node_of(graph, t)), t, mica_dtype_name(is->dtype),
            mica__shape_words(graph, is->ndim, is->shape, left), mica_dtype_name(follows->dtype),
            mica__shape_words(again->to, follows->ndim, follows->shape, right));
    }
    return MICA_OK;
}

mica_status mica_graph_verify(const mica_graph *graph)
{
    mica__rewrite again;
    mica_graph *out = NULL;
    if (graph == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "graph_verify: graph is NULL");
    MICA__TRY(mica_graph_status(graph));
    for (uint32_t i = 0; i < graph->node_count; i++)
        MICA__TRY(check_node(graph, i));
    MICA__TRY(check_names(graph));
    mica_status status = mica__rewrite_begin(&again, graph, NULL);
    if (status == MICA_OK)
        status = mica__graph_again_all(&again);
    if (status == MICA_OK)
        status = compare_types(graph, &again);
    const mica_status end = mica__rewrite_end(&again, &out);
    mica_graph_release(out);
    return status != MICA_OK ? status : end;
}
