/*
 * custom.c - nodes of the caller's own ops: what they are given, types that their function infers, binding of those that were read. Runs nothing.
 */
#include "graph/custom.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/argument.h"

mica_status mica__custom_ask(const mica__custom_data *data, mica_custom_function function,
                             mica_custom_call *call)
{
    call->params = data->params_bytes == 0 ? NULL : data->params;
    call->params_bytes = data->params_bytes;
    call->sentence[0] = 0;
    char before[512]; /* whether a call in the function fails is seen by its sentence */
    snprintf(before, sizeof before, "%s", mica_status_message());
    mica__status_set(MICA_OK, "");
    const mica_status status = function(data->context, call);
    call->sentence[sizeof call->sentence - 1] = 0;
    if (status == MICA_OK)
        mica__status_set(MICA_OK, before);
    else if (call->sentence[0] == 0)
        snprintf(call->sentence, sizeof call->sentence, "%.255s",
                 *mica_status_message() != 0 ? mica_status_message() : "its function failed");
    return status;
}

/* ---- types ---- */

/* What was inferred is of a type that tensors have. */
static bool takes_type(mica_graph *graph, const mica__custom_data *data, uint32_t i,
                       const mica_operand_desc *desc, mica__type *out)
{
    if (desc->dtype == MICA_DTYPE_NONE || desc->dtype >= MICA_DTYPE_COUNT ||
        mica_dtype_block_elements(desc->dtype) != 1 || desc->ndim > MICA_MAX_DIMS)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "custom",
                                "'%s': infer gave output %u type %d and %u dimensions, which no output has",
                                data->name, i, (int)desc->dtype, desc->ndim) != 0;
    *out = (mica__type){.dtype = desc->dtype, .ndim = desc->ndim};
    memcpy(out->shape, desc->shape, desc->ndim * sizeof desc->shape[0]);
    return true;
}

/* The types of the outputs as the caller's function says. */
static bool infer(mica_graph *graph, const mica__custom_data *data, const mica_tensor *inputs,
                  uint32_t input_count, mica__type *types, uint32_t output_count)
{
    mica_operand_desc in[MICA_CUSTOM_TENSORS], out[MICA_CUSTOM_TENSORS];
    memset(out, 0, sizeof out);
    for (uint32_t i = 0; i < input_count; i++)
        in[i] = mica__type_desc(mica__type_of(graph, inputs[i]));
    mica_custom_call call = {
        .input_count = input_count, .output_count = output_count, .input = in, .output = out};
    if (data->infer == NULL && input_count == 0)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "custom",
                                "'%s' takes nothing: infer must say what it gives", data->name) != 0;
    for (uint32_t i = 0; i < output_count && data->infer == NULL; i++)
        out[i] = in[0];
    const mica_status status = data->infer == NULL ? MICA_OK : mica__custom_ask(data, data->infer, &call);
    if (status != MICA_OK)
        return mica__graph_fail(graph, status, "custom", "'%s': %s", data->name, call.sentence) != 0;
    for (uint32_t i = 0; i < output_count; i++)
        if (!takes_type(graph, data, i, &out[i], &types[i]))
            return false;
    return true;
}

/* ---- adding ---- */

mica_tensor mica__graph_custom_node(mica_graph *graph, const mica__custom_data *data,
                                    const mica_tensor *inputs, uint32_t input_count, const mica__type *stated,
                                    mica_tensor *outputs, uint32_t output_count)
{
    mica__type types[MICA_CUSTOM_TENSORS];
    if (graph->status != MICA_OK)
        return 0;
    if (input_count > MICA_CUSTOM_TENSORS || output_count == 0 || output_count > MICA_CUSTOM_TENSORS)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "custom",
                                "'%s' takes %u tensors and gives %u; it may take up to %u and give 1 to %u",
                                data->name, input_count, output_count, MICA_CUSTOM_TENSORS,
                                MICA_CUSTOM_TENSORS);
    for (uint32_t i = 0; i < input_count; i++)
        if (mica__graph_takes(graph, "custom", "an input", inputs[i]) == NULL)
            return 0;
    if (mica__custom_is_bound(data)) {
        if (!infer(graph, data, inputs, input_count, types, output_count))
            return 0;
    } else {
        memcpy(types, stated, output_count * sizeof *types);
    }
    const mica_tensor first =
        mica__graph_add_node(graph, MICA_NODE_CUSTOM, 0, inputs, input_count, types, output_count, data,
                             (uint32_t)sizeof *data + data->params_bytes);
    for (uint32_t i = 0; i < output_count && outputs != NULL; i++)
        outputs[i] = first == 0 ? 0 : first + i;
    return first;
}

static bool is_name(const char *name)
{
    const size_t length = name == NULL ? 0 : strlen(name);
    return length != 0 && length < MICA_CUSTOM_NAME_BYTES && strspn(name, MICA__CUSTOM_LETTERS) == length;
}

/* Attributes of what the caller describes, owned by whoever asks; NULL: the sentence is there. */
static mica__custom_data *take_op(const char *call, const mica_custom *op, mica_status *status)
{
    mica_custom taken;
    *status = op == NULL ? mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: op is NULL", call)
                         : mica__take_options("custom: op", op, sizeof taken, &taken);
    if (*status != MICA_OK)
        return NULL;
    if (!is_name(taken.name))
        *status =
            mica__fail(MICA_ERR_INVALID_ARGUMENT,
                       "%s: op.name is '%.80s'; it must have 1 to %u letters, digits, '_', '.', '-', '/'",
                       call, taken.name == NULL ? "" : taken.name, MICA_CUSTOM_NAME_BYTES - 1);
    else if (taken.encode == NULL && taken.host == NULL)
        *status =
            mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: '%s' has neither encode nor host", call, taken.name);
    else if (taken.params_bytes > MICA_CUSTOM_PARAM_BYTES ||
             (taken.params == NULL && taken.params_bytes != 0))
        *status = mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: '%s' has %u bytes of parameters%s, at most %u",
                             call, taken.name, taken.params_bytes, taken.params == NULL ? ", at NULL" : "",
                             MICA_CUSTOM_PARAM_BYTES);
    if (*status != MICA_OK)
        return NULL;
    mica__custom_data *data = mica__calloc(1, sizeof *data + taken.params_bytes);
    if (data == NULL) {
        *status = mica__fail(MICA_ERR_OUT_OF_MEMORY, "%s: no memory for '%s'", call, taken.name);
        return NULL;
    }
    memcpy(data->name, taken.name, strlen(taken.name));
    data->context = taken.context;
    data->infer = taken.infer;
    data->encode = taken.encode;
    data->host = taken.host;
    data->params_bytes = taken.params_bytes;
    if (taken.params_bytes != 0)
        memcpy(data->params, taken.params, taken.params_bytes);
    return data;
}

/* The node inside a sub-graph, which is called with the caller's gradient: until then its derivative is looked for, afterwards the call is inlined. */
static mica_tensor with_gradient(mica_graph *graph, const mica__custom_data *data, const mica_tensor *inputs,
                                 uint32_t input_count, const mica_graph *gradient, mica_tensor *outputs,
                                 uint32_t output_count)
{
    mica_graph *body = NULL;
    mica_tensor in[MICA_CUSTOM_TENSORS] = {0}, out[MICA_CUSTOM_TENSORS] = {0}, first = 0;
    char name[] = "00";
    mica_status status = mica_graph_create(&body);
    for (uint32_t i = 0; i < input_count && i < MICA_CUSTOM_TENSORS && status == MICA_OK; i++) {
        const mica__type *type = mica__graph_takes(graph, "custom", "an input", inputs[i]);
        uint64_t shape[MICA_MAX_DIMS];
        for (uint32_t d = 0; type != NULL && d < type->ndim; d++) {
            const char *symbol = mica_graph_symbol_name(graph, type->shape[d]);
            const bool named = symbol != NULL && type->shape[d] != MICA_SIZE_UNKNOWN;
            shape[d] = named ? mica_graph_symbol(body, symbol) : type->shape[d];
        }
        name[0] = (char)('0' + i / 10);
        name[1] = (char)('0' + i % 10);
        if (type != NULL)
            in[i] = mica_graph_input(body, name, type->dtype, type->ndim, shape);
    }
    if (status == MICA_OK && graph->status == MICA_OK)
        (void)mica__graph_custom_node(body, data, in, input_count, NULL, out, output_count);
    for (uint32_t i = 0; i < output_count && out[0] != 0; i++) {
        name[0] = (char)('0' + i / 10);
        name[1] = (char)('0' + i % 10);
        (void)mica_graph_output(body, name, out[i]);
    }
    if (status != MICA_OK)
        (void)mica__graph_fail(graph, status, "custom", "no memory for a sub-graph");
    else if (body->status != MICA_OK)
        (void)mica__graph_fail(graph, body->status, "custom", "%s", body->sentence);
    else if (graph->status == MICA_OK)
        first = mica_graph_call(graph, body, gradient, 0, inputs, input_count, outputs, output_count);
    mica_graph_release(body);
    return first;
}

mica_tensor mica_graph_custom(mica_graph *graph, const mica_custom *op, const mica_tensor *inputs,
                              uint32_t input_count, const mica_graph *gradient, mica_tensor *outputs,
                              uint32_t output_count)
{
    mica_status status = MICA_OK;
    for (uint32_t i = 0; i < output_count && outputs != NULL; i++)
        outputs[i] = 0;
    if (!mica__graph_begins(graph, "custom"))
        return 0;
    if (inputs == NULL && input_count != 0)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "custom", "inputs is NULL");
    mica__custom_data *data = take_op("custom", op, &status);
    if (data == NULL) {
        char sentence[320];
        strncpy(sentence, mica_status_message(), sizeof sentence - 1);
        sentence[sizeof sentence - 1] = 0;
        return mica__graph_fail(graph, status, "custom", "%s", sentence);
    }
    const mica_tensor first =
        gradient == NULL
            ? mica__graph_custom_node(graph, data, inputs, input_count, NULL, outputs, output_count)
            : with_gradient(graph, data, inputs, input_count, gradient, outputs, output_count);
    mica__free(data);
    return first;
}

/* ---- binding ---- */

/* For each node of this name, of sub-graphs too. `change` false: only whether they may have the functions. */
static mica_status bind_nodes(mica_graph *graph, const mica__custom_data *op, bool change, uint32_t *count);

static mica_status bind_bodies(const mica__node *node, const mica__custom_data *op, bool change,
                               uint32_t *count)
{
    const mica__body_data *data = node->data;
    for (uint32_t i = 0; i < 2; i++)
        if (data->body[i] != NULL)
            MICA__TRY(bind_nodes(data->body[i], op, change, count));
    return MICA_OK;
}

/* Whether the functions infer what a node was read with. */
static mica_status check_types(mica_graph *graph, const mica__node *node, const mica__custom_data *op)
{
    mica__type types[MICA_CUSTOM_TENSORS];
    char left[160], right[160];
    mica__custom_data *data = mica__alloc(node->data_bytes);
    if (data == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "graph_custom_bind: no memory");
    memcpy(data, node->data, node->data_bytes); /* its own parameters with the functions */
    data->context = op->context;
    data->infer = op->infer;
    const bool fits =
        infer(graph, data, mica__node_inputs(graph, node), node->input_count, types, node->output_count);
    mica__free(data);
    if (!fits) { /* the graph itself has not failed: nothing was added */
        const mica_status status = graph->status;
        graph->status = MICA_OK;
        return mica__fail(status, "graph_custom_bind: %s", graph->sentence);
    }
    for (uint32_t i = 0; i < node->output_count; i++) {
        const mica__type *is = mica__type_of(graph, mica__node_outputs(graph, node)[i]);
        if (is->dtype != types[i].dtype || is->ndim != types[i].ndim ||
            memcmp(is->shape, types[i].shape, is->ndim * sizeof is->shape[0]) != 0)
            return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                              "graph_custom_bind: '%s' infers %s %s for output %u, the node has %s %s",
                              op->name, mica_dtype_name(types[i].dtype),
                              mica__shape_words(graph, types[i].ndim, types[i].shape, left), i,
                              mica_dtype_name(is->dtype),
                              mica__shape_words(graph, is->ndim, is->shape, right));
    }
    return MICA_OK;
}

static mica_status bind_nodes(mica_graph *graph, const mica__custom_data *op, bool change, uint32_t *count)
{
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const mica__node *node = &graph->node[n];
        if (node->kind >= MICA_NODE_CALL && node->kind <= MICA_NODE_SCAN)
            MICA__TRY(bind_bodies(node, op, change, count));
        mica__custom_data *data = node->kind == MICA_NODE_CUSTOM ? node->data : NULL;
        if (data == NULL || strcmp(data->name, op->name) != 0)
            continue;
        ++*count;
        if (!change) {
            MICA__TRY(check_types(graph, node, op));
            continue;
        }
        data->context = op->context;
        data->infer = op->infer;
        data->encode = op->encode;
        data->host = op->host;
    }
    return MICA_OK;
}

mica_status mica_graph_custom_bind(mica_graph *graph, const mica_custom *op, uint32_t *out_count)
{
    uint32_t count = 0;
    mica_status status = MICA_OK;
    if (out_count != NULL)
        *out_count = 0;
    if (graph == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "graph_custom_bind: graph is NULL");
    MICA__TRY(mica_graph_status(graph));
    mica__custom_data *data = take_op("graph_custom_bind", op, &status);
    if (data == NULL)
        return status;
    status = bind_nodes(graph, data, false, &count);
    count = 0;
    if (status == MICA_OK)
        status = bind_nodes(graph, data, true, &count);
    mica__free(data);
    if (out_count != NULL && status == MICA_OK)
        *out_count = count;
    return status;
}

mica_status mica__custom_check_bound(const mica_graph *graph)
{
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const mica__node *node = &graph->node[n];
        if (node->kind >= MICA_NODE_CALL && node->kind <= MICA_NODE_SCAN) {
            const mica__body_data *body = node->data;
            for (uint32_t i = 0; i < 2; i++)
                if (body->body[i] != NULL)
                    MICA__TRY(mica__custom_check_bound(body->body[i]));
        }
        const mica__custom_data *data = node->kind == MICA_NODE_CUSTOM ? node->data : NULL;
        if (data != NULL && !mica__custom_is_bound(data))
            return mica__fail(
                MICA_ERR_UNSUPPORTED,
                "graph_compile: node %u, custom '%s', has no function here: mica_graph_custom_bind "
                "gives it one",
                n, data->name);
    }
    return MICA_OK;
}
