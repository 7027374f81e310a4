/*
 * again.c - a graph written again: copies, graphs whose symbols have become sizes, and the ground that passes stand on. Each node is added by the call that
 * added it first, so that whatever is written again has been checked again.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "graph/custom.h"
#include "ops/region.h"

/* ---- sizes ---- */

uint64_t mica__rewrite_size(mica__rewrite *rewrite, uint64_t size)
{
    if (size == MICA_SIZE_REST || mica__size_known(size) || size == MICA_SIZE_UNKNOWN)
        return size;
    const uint64_t symbol = size - MICA_SIZE_UNKNOWN - 1;
    if (rewrite->binding != NULL && rewrite->binding[symbol] != MICA_SIZE_UNKNOWN)
        return rewrite->binding[symbol];
    return mica_graph_symbol(rewrite->to, rewrite->from->text + rewrite->from->symbol[symbol]);
}

static void write_shape(mica__rewrite *rewrite, uint32_t ndim, const uint64_t *from, uint64_t *to)
{
    for (uint32_t d = 0; d < ndim; d++)
        to[d] = mica__rewrite_size(rewrite, from[d]);
}

/* ---- one node, by kind: inputs are of the new graph; the node's outputs go to `out` ---- */

typedef void again(mica__rewrite *rewrite, const mica__node *node, const mica_tensor *inputs,
                   mica_tensor *out);

static void again_leaf(mica__rewrite *rewrite, const mica__node *node, const mica_tensor *inputs,
                       mica_tensor *out)
{
    (void)inputs;
    const mica_graph *from = rewrite->from;
    const mica__leaf_data *leaf = node->data;
    const mica__type *type = mica__type_of(from, *mica__node_outputs(from, node));
    const char *name = from->text + leaf->name;
    if (node->kind == MICA_NODE_INPUT && rewrite->inputs != NULL)
        type = &rewrite->inputs[leaf->index];
    uint64_t shape[MICA_MAX_DIMS];
    write_shape(rewrite, type->ndim, type->shape, shape);
    *out = node->kind == MICA_NODE_INPUT
               ? mica_graph_input(rewrite->to, name, type->dtype, type->ndim, shape)
               : mica_graph_parameter_scaled(rewrite->to, name, type->dtype, type->ndim, shape,
                                             type->group_size, type->scale_dtype);
}

static void again_constant(mica__rewrite *rewrite, const mica__node *node, const mica_tensor *inputs,
                           mica_tensor *out)
{
    (void)inputs;
    mica__blob *blob = ((const mica__constant_data *)node->data)->blob;
    atomic_fetch_add(&blob->uses, 1);
    *out = mica__graph_constant_blob(
        rewrite->to, mica__type_of(rewrite->from, *mica__node_outputs(rewrite->from, node)), blob);
}

static void again_scalar(mica__rewrite *rewrite, const mica__node *node, const mica_tensor *inputs,
                         mica_tensor *out)
{
    *out = mica_graph_scalar(rewrite->to, (mica_scalar)node->code, inputs[0],
                             node->input_count > 1 ? inputs[1] : 0, node->input_count > 2 ? inputs[2] : 0);
}

static void again_op(mica__rewrite *rewrite, const mica__node *node, const mica_tensor *inputs,
                     mica_tensor *out)
{
    const mica__op_data *data = node->data;
    mica_operand_desc asked[24];
    for (uint32_t i = 0; i < node->output_count && i < 24; i++) {
        asked[i] = data->asked[i];
        if (asked[i].ndim <= MICA_MAX_DIMS)
            write_shape(rewrite, asked[i].ndim, data->asked[i].shape, asked[i].shape);
    }
    (void)mica_graph_op(rewrite->to, (mica_op)node->code, mica__op_params(node), inputs, node->input_count,
                        data->wanted, asked, out, node->output_count);
}

static void again_region(mica__rewrite *rewrite, const mica__node *node, const mica_tensor *inputs,
                         mica_tensor *out)
{
    mica_region *region = NULL;
    mica_dtype dtypes[MICA_REGION_OUTPUTS];
    for (uint32_t i = 0; i < node->output_count; i++)
        dtypes[i] = mica__type_of(rewrite->from, mica__node_outputs(rewrite->from, node)[i])->dtype;
    const mica_status status = mica__region_copy("region", node->data, &region);
    if (status != MICA_OK)
        (void)mica__graph_fail(rewrite->to, status, "region", "no memory for a region");
    else
        (void)mica_graph_region(rewrite->to, region, inputs, dtypes, out);
    mica_region_release(region);
}

static void again_cast(mica__rewrite *rewrite, const mica__node *node, const mica_tensor *inputs,
                       mica_tensor *out)
{
    const mica_dtype dtype = mica__type_of(rewrite->from, *mica__node_outputs(rewrite->from, node))->dtype;
    *out = node->kind == MICA_NODE_CAST ? mica_graph_cast(rewrite->to, inputs[0], dtype)
                                        : mica_graph_bits(rewrite->to, inputs[0], dtype);
}

static void again_shape(mica__rewrite *rewrite, const mica__node *node, const mica_tensor *inputs,
                        mica_tensor *out)
{
    const mica__shape_data *data = node->data;
    const mica_dtype dtype = mica__type_of(rewrite->from, *mica__node_outputs(rewrite->from, node))->dtype;
    uint64_t shape[MICA_MAX_DIMS];
    write_shape(rewrite, data->ndim, data->shape, shape);
    if (node->kind == MICA_NODE_RESHAPE)
        *out = mica_graph_reshape(rewrite->to, inputs[0], data->ndim, shape);
    else if (node->kind == MICA_NODE_EXPAND)
        *out = mica_graph_expand(rewrite->to, inputs[0], data->ndim, shape);
    else
        *out = mica_graph_index(rewrite->to, dtype, data->ndim, shape, data->axis);
}

static void again_permute(mica__rewrite *rewrite, const mica__node *node, const mica_tensor *inputs,
                          mica_tensor *out)
{
    *out = mica_graph_permute(rewrite->to, inputs[0], ((const mica__permute_data *)node->data)->order);
}

static void again_slice(mica__rewrite *rewrite, const mica__node *node, const mica_tensor *inputs,
                        mica_tensor *out)
{
    const mica__slice_data *data = node->data;
    *out = mica_graph_slice(rewrite->to, inputs[0], data->axis, data->start, data->count, data->step);
}

static void again_concat(mica__rewrite *rewrite, const mica__node *node, const mica_tensor *inputs,
                         mica_tensor *out)
{
    *out = mica_graph_concat(rewrite->to, inputs, node->input_count,
                             ((const mica__concat_data *)node->data)->axis);
}

static void again_stop(mica__rewrite *rewrite, const mica__node *node, const mica_tensor *inputs,
                       mica_tensor *out)
{
    (void)node;
    *out = mica_graph_stop_gradient(rewrite->to, inputs[0]);
}

static void again_body(mica__rewrite *rewrite, const mica__node *node, const mica_tensor *inputs,
                       mica_tensor *out)
{
    const mica__body_data *from = node->data;
    mica__body_data data = *from;
    data.body[0] = data.body[1] = NULL;
    for (uint32_t i = 0; i < 2 && from->body[i] != NULL; i++) {
        const mica_status status = mica_graph_clone(from->body[i], &data.body[i]);
        if (status != MICA_OK)
            (void)mica__graph_fail(rewrite->to, status, "node", "a sub-graph cannot be copied");
    }
    (void)mica__graph_body_node(rewrite->to, (mica_node_kind)node->kind, &data, inputs, node->input_count,
                                out, node->output_count);
}

static void again_custom(mica__rewrite *rewrite, const mica__node *node, const mica_tensor *inputs,
                         mica_tensor *out)
{
    mica__type stated[MICA_CUSTOM_TENSORS]; /* of one that nobody bound */
    for (uint32_t i = 0; i < node->output_count; i++) {
        stated[i] = *mica__type_of(rewrite->from, mica__node_outputs(rewrite->from, node)[i]);
        write_shape(rewrite, stated[i].ndim, stated[i].shape, stated[i].shape);
    }
    (void)mica__graph_custom_node(rewrite->to, node->data, inputs, node->input_count, stated, out,
                                  node->output_count);
}

static again *const kinds[MICA_NODE_COUNT] = {[MICA_NODE_INPUT] = again_leaf,
                                              [MICA_NODE_PARAMETER] = again_leaf,
                                              [MICA_NODE_CONSTANT] = again_constant,
                                              [MICA_NODE_SCALAR] = again_scalar,
                                              [MICA_NODE_OP] = again_op,
                                              [MICA_NODE_REGION] = again_region,
                                              [MICA_NODE_CAST] = again_cast,
                                              [MICA_NODE_INDEX] = again_shape,
                                              [MICA_NODE_BITS] = again_cast,
                                              [MICA_NODE_RESHAPE] = again_shape,
                                              [MICA_NODE_PERMUTE] = again_permute,
                                              [MICA_NODE_SLICE] = again_slice,
                                              [MICA_NODE_EXPAND] = again_shape,
                                              [MICA_NODE_CONCAT] = again_concat,
                                              [MICA_NODE_STOP_GRADIENT] = again_stop,
                                              [MICA_NODE_CALL] = again_body,
                                              [MICA_NODE_IF] = again_body,
                                              [MICA_NODE_WHILE] = again_body,
                                              [MICA_NODE_SCAN] = again_body,
                                              [MICA_NODE_CUSTOM] = again_custom};

void mica__rewrite_mark(mica__rewrite *rewrite, const mica__node *node)
{
    if (node->label != 0 && node->label != rewrite->label_of) { /* neighbours share theirs */
        (void)mica_graph_label(rewrite->to, rewrite->from->text + node->label);
        rewrite->label_of = node->label;
        rewrite->label = rewrite->to->label;
    }
    if (node->label != 0)
        rewrite->to->label = rewrite->label;
    if (node->round != 0)
        rewrite->to->round = (uint16_t)(rewrite->round_base + node->round);
    if (rewrite->placed || node->place != 0)
        rewrite->to->place = rewrite->placed ? rewrite->place : node->place;
}

bool mica__graph_again(mica__rewrite *rewrite, uint32_t at)
{
    enum { FEW = 32 };
    const mica__node *node = &rewrite->from->node[at];
    const mica_tensor *from = mica__node_inputs(rewrite->from, node);
    mica_tensor few[FEW], *inputs = few;
    const uint32_t room = (uint32_t)node->input_count + node->output_count;
    if (room > FEW && (inputs = mica__alloc(room * sizeof *inputs)) == NULL)
        return mica__graph_fail(rewrite->to, MICA_ERR_OUT_OF_MEMORY, "again", "no memory for %u tensors",
                                room) != 0;
    mica_tensor *outputs = inputs + node->input_count;
    for (uint32_t i = 0; i < node->input_count; i++)
        inputs[i] = rewrite->map[from[i]];
    memset(outputs, 0, node->output_count * sizeof *outputs);
    const uint32_t label = rewrite->to->label;
    const uint16_t round = rewrite->to->round;
    const uint8_t place = rewrite->to->place;
    mica__rewrite_mark(rewrite, node);
    if (rewrite->to->status == MICA_OK)
        kinds[node->kind](rewrite, node, inputs, outputs);
    rewrite->to->label = label;
    rewrite->to->round = round;
    rewrite->to->place = place;
    for (uint32_t i = 0; i < node->output_count; i++)
        rewrite->map[mica__node_outputs(rewrite->from, node)[i]] = outputs[i];
    rewrite->map[0] = 0;
    if (inputs != few)
        mica__free(inputs);
    return rewrite->to->status == MICA_OK;
}

/* ---- whole graphs ---- */

mica_status mica__rewrite_begin(mica__rewrite *rewrite, const mica_graph *from, const uint64_t *binding)
{
    *rewrite = (mica__rewrite){.from = from, .binding = binding};
    MICA__TRY(mica_graph_status(from));
    rewrite->map = mica__calloc(from->tensor_count, sizeof *rewrite->map);
    if (rewrite->map == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "graph: no memory for %u tensors", from->tensor_count);
    const mica_status status = mica_graph_create(&rewrite->to);
    if (status != MICA_OK) { /* who fails to begin has nothing to end */
        mica__free(rewrite->map);
        rewrite->map = NULL;
    }
    for (uint32_t i = 0; i < from->symbol_count && status == MICA_OK; i++) /* they keep their numbers */
        (void)mica_graph_symbol(rewrite->to, from->text + from->symbol[i]);
    return status;
}

mica_status mica__graph_again_all(mica__rewrite *rewrite)
{
    for (uint32_t i = 0; i < rewrite->from->node_count; i++)
        if (!mica__graph_again(rewrite, i))
            break;
    return mica_graph_status(rewrite->to);
}

mica_status mica__rewrite_end(mica__rewrite *rewrite, mica_graph **out_graph)
{
    const mica_graph *from = rewrite->from;
    mica_status status = rewrite->to == NULL || rewrite->map == NULL ? MICA_ERR_OUT_OF_MEMORY : MICA_OK;
    for (uint32_t i = 0; status == MICA_OK && i < from->outputs.count; i++)
        (void)mica_graph_output(rewrite->to, from->text + from->outputs.list[i].name,
                                rewrite->map[from->outputs.list[i].tensor]);
    for (uint32_t i = 0; status == MICA_OK && i < from->outputs.count; i++) {
        uint32_t axis = 0;
        const char *count = mica_graph_get_output_rows(from, i, &axis);
        if (count != NULL)
            (void)mica_graph_output_rows(rewrite->to, from->text + from->outputs.list[i].name, axis, count);
    }
    if (status == MICA_OK)
        status = mica_graph_status(rewrite->to);
    *out_graph = status == MICA_OK ? rewrite->to : NULL;
    if (status != MICA_OK)
        mica_graph_release(rewrite->to);
    mica__free(rewrite->map);
    return status;
}

mica_status mica_graph_clone(const mica_graph *graph, mica_graph **out_graph)
{
    mica__rewrite rewrite;
    if (graph == NULL || out_graph == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "graph_clone: %s is NULL",
                          graph == NULL ? "graph" : "out_graph");
    *out_graph = NULL;
    MICA__TRY(mica_graph_status(graph));
    mica_status status = mica__rewrite_begin(&rewrite, graph, NULL);
    if (status == MICA_OK)
        status = mica__graph_again_all(&rewrite);
    const mica_status end = mica__rewrite_end(&rewrite, out_graph);
    if (status == MICA_OK)
        return end;
    if (end == MICA_OK)
        mica_graph_release(*out_graph);
    *out_graph = NULL;
    return status;
}
