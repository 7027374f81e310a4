/*
 * body.c - nodes over sub-graphs: calls, choices, loops. A sub-graph's symbols are its own; what they stand for follows from the inputs it gets.
 */
#include <string.h>

#include "base/alloc.h"
#include "graph/ir.h"

typedef struct matching {
    mica_graph *graph;
    const char *call;
    uint64_t *size; /* of the body's symbols; MICA_SIZE_UNKNOWN: nothing is known */
} matching;

static bool match_size(matching *m, uint64_t inner, uint64_t outer)
{
    if (mica__size_known(inner) || inner == MICA_SIZE_UNKNOWN)
        return mica__sizes_agree(inner, outer);
    uint64_t *size = &m->size[inner - MICA_SIZE_UNKNOWN - 1];
    const bool agrees = mica__sizes_agree(*size, outer);
    if (*size == MICA_SIZE_UNKNOWN || (!mica__size_known(*size) && mica__size_known(outer)))
        *size = outer;
    return agrees;
}

/* The type that input `i` of the body has against what comes in, of which the first `drop` dimensions are taken off. */
static bool match_input(matching *m, const mica_graph *body, uint32_t i, mica_tensor tensor, uint32_t drop)
{
    const mica__type *outer = mica__graph_takes(m->graph, m->call, "an input", tensor);
    const mica__type *inner = mica__type_of(body, body->inputs[i]);
    char left[160], right[160];
    if (outer == NULL)
        return false;
    bool fits = outer->dtype == inner->dtype && outer->ndim == inner->ndim + drop;
    for (uint32_t d = 0; d < inner->ndim && fits; d++)
        fits = match_size(m, inner->shape[d], outer->shape[d + drop]);
    if (!fits)
        (void)mica__graph_fail(
            m->graph, MICA_ERR_INVALID_ARGUMENT, m->call,
            "input %u is %s %s, but its sub-graph takes %s %s there%s", i, mica_dtype_name(outer->dtype),
            mica__shape_words(m->graph, outer->ndim, outer->shape, left), mica_dtype_name(inner->dtype),
            mica__shape_words(body, inner->ndim, inner->shape, right),
            drop != 0 ? ", a slice of the first dimension" : "");
    return fits;
}

/* The type of output `i` of the body as the graph around it sees it. */
static mica__type output_type(const matching *m, const mica_graph *body, uint32_t i)
{
    mica__type type = *mica__type_of(body, body->outputs.list[i].tensor);
    for (uint32_t d = 0; d < type.ndim; d++)
        if (!mica__size_known(type.shape[d]) && type.shape[d] != MICA_SIZE_UNKNOWN)
            type.shape[d] = m->size[type.shape[d] - MICA_SIZE_UNKNOWN - 1];
    return type;
}

static bool types_agree(const mica__type *a, const mica__type *b)
{
    bool agree = a->dtype == b->dtype && a->ndim == b->ndim;
    for (uint32_t d = 0; d < a->ndim && agree; d++)
        agree = mica__sizes_agree(a->shape[d], b->shape[d]);
    return agree;
}

static bool takes_body(mica_graph *graph, const char *call, const char *name, const mica_graph *body,
                       uint32_t inputs)
{
    if (body == NULL)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, call, "%s is NULL", name) != 0;
    if (body->status != MICA_OK)
        return mica__graph_fail(graph, body->status, call, "%s failed: %s", name, body->sentence) != 0;
    if (body->parameter_count != 0)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, call,
                                "%s has parameters: they must come in as inputs", name) != 0;
    if (body->input_count != inputs)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, call, "%s takes %u inputs, not %u", name,
                                body->input_count, inputs) != 0;
    if (body->outputs.count == 0)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, call, "%s has no outputs", name) != 0;
    for (uint32_t i = 0; i < body->outputs.count; i++)
        if (body->outputs.list[i].rows != 0)
            return mica__graph_fail(graph, MICA_ERR_UNSUPPORTED, call,
                                    "%s gives as many rows as the run finds, which no sub-graph does",
                                    name) != 0;
    return true;
}

/* Begins to match: nothing is known of the body's symbols. */
static bool begin_matching(matching *m, mica_graph *graph, const char *call, const mica_graph *body)
{
    *m = (matching){.graph = graph, .call = call};
    m->size = mica__alloc((body->symbol_count + 1) * sizeof *m->size);
    if (m->size == NULL)
        return mica__graph_fail(graph, MICA_ERR_OUT_OF_MEMORY, call, "no memory for symbols") != 0;
    for (uint32_t i = 0; i < body->symbol_count; i++)
        m->size[i] = MICA_SIZE_UNKNOWN;
    return true;
}

/* ---- types of a node, by its kind: false and a failure where it cannot be ---- */

static bool is_predicate(const mica__type *type)
{
    bool one = type->dtype == MICA_DTYPE_BOOL;
    for (uint32_t d = 0; d < type->ndim && one; d++)
        one = mica__sizes_agree(type->shape[d], 1);
    return one;
}

/* What a body gives of all inputs. */
static bool plain_types(mica_graph *graph, const char *call, const char *name, const mica_graph *body,
                        const mica_tensor *inputs, uint32_t count, mica__type *types)
{
    matching m;
    if (!takes_body(graph, call, name, body, count) || !begin_matching(&m, graph, call, body))
        return false;
    bool fits = true;
    for (uint32_t i = 0; i < count && fits; i++)
        fits = match_input(&m, body, i, inputs[i], 0);
    for (uint32_t i = 0; i < body->outputs.count && fits; i++)
        types[i] = output_type(&m, body, i);
    mica__free(m.size);
    return fits;
}

static bool call_types(mica_graph *graph, const mica__body_data *data, const mica_tensor *inputs,
                       uint32_t count, mica__type *types)
{
    const mica_graph *body = data->body[0], *gradient = data->body[1];
    if (!plain_types(graph, "call", "body", body, inputs, count, types))
        return false;
    if (gradient == NULL)
        return true;
    const uint32_t outputs = body->outputs.count;
    if (!takes_body(graph, "call", "gradient", gradient, count + 2 * outputs))
        return false;
    if (gradient->outputs.count != count)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "call",
                                "gradient gives %u tensors, not one for each of %u inputs",
                                gradient->outputs.count, count) != 0;
    return true;
}

static bool if_types(mica_graph *graph, const mica__body_data *data, const mica_tensor *inputs,
                     uint32_t count, mica__type *types)
{
    const mica_graph *yes = data->body[0], *no = data->body[1];
    const mica__type *predicate = mica__graph_takes(graph, "if", "predicate", inputs[0]);
    if (predicate == NULL)
        return false;
    if (!is_predicate(predicate))
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "if", "predicate is not one bool") != 0;
    if (!takes_body(graph, "if", "else_body", no, count - 1))
        return false;
    mica__type *others = mica__alloc((no->outputs.count + 1) * sizeof *others);
    if (others == NULL)
        return mica__graph_fail(graph, MICA_ERR_OUT_OF_MEMORY, "if", "no memory") != 0;
    bool fits = plain_types(graph, "if", "then_body", yes, inputs + 1, count - 1, types) &&
                plain_types(graph, "if", "else_body", no, inputs + 1, count - 1, others);
    if (fits && yes->outputs.count != no->outputs.count)
        fits = mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "if",
                                "then_body gives %u tensors, else_body %u", yes->outputs.count,
                                no->outputs.count) != 0;
    for (uint32_t i = 0; fits && i < yes->outputs.count; i++)
        if (!types_agree(&types[i], &others[i]))
            fits = mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "if",
                                    "output %u has another type or shape in else_body", i) != 0;
    mica__free(others);
    return fits;
}

/* Whether what a body gives first is what is carried. */
static bool carries(mica_graph *graph, const char *call, const mica_tensor *inputs, uint32_t carried,
                    mica__type *types)
{
    for (uint32_t i = 0; i < carried; i++) {
        if (!types_agree(&types[i], mica__type_of(graph, inputs[i])))
            return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, call,
                                    "carried tensor %u changes its type or shape", i) != 0;
        types[i] = *mica__type_of(graph, inputs[i]);
    }
    return true;
}

static bool while_types(mica_graph *graph, const mica__body_data *data, const mica_tensor *inputs,
                        uint32_t count, mica__type *types)
{
    const mica_graph *condition = data->body[0], *body = data->body[1];
    mica__type predicate = {.ndim = 0};
    if (!takes_body(graph, "while", "condition", condition, count))
        return false;
    if (condition->outputs.count != 1)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "while",
                                "condition gives %u tensors, not one", condition->outputs.count) != 0;
    if (!plain_types(graph, "while", "condition", condition, inputs, count, &predicate))
        return false;
    if (!is_predicate(&predicate))
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "while",
                                "condition does not give one bool") != 0;
    if (data->carried == 0 || data->carried > count || body == NULL || body->outputs.count != data->carried)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "while",
                                "%u of %u inputs are carried, body gives %u", data->carried, count,
                                body == NULL ? 0 : body->outputs.count) != 0;
    return plain_types(graph, "while", "body", body, inputs, count, types) &&
           carries(graph, "while", inputs, data->carried, types);
}

/* The length that the scanned inputs state; MICA_SIZE_UNKNOWN where it is not known. */
static bool scan_length(mica_graph *graph, const mica_scan_desc *scan, const mica_tensor *inputs,
                        uint64_t *out)
{
    *out = scan->length != 0 || scan->scanned == 0 ? scan->length : MICA_SIZE_UNKNOWN;
    for (uint32_t i = 0; i < scan->scanned; i++) {
        const mica__type *type = mica__graph_takes(graph, "scan", "an input", inputs[scan->carried + i]);
        if (type == NULL)
            return false;
        if (type->ndim == 0 || !mica__sizes_agree(*out, type->shape[0]))
            return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "scan",
                                    "scanned input %u has another length", i) != 0;
        if (*out == MICA_SIZE_UNKNOWN || !mica__size_known(*out))
            *out = type->shape[0];
    }
    return true;
}

static bool scan_types(mica_graph *graph, const mica__body_data *data, const mica_tensor *inputs,
                       uint32_t count, mica__type *types)
{
    const mica_graph *body = data->body[0];
    const mica_scan_desc *scan = &data->scan;
    uint64_t length = 0;
    matching m;
    if (!takes_body(graph, "scan", "body", body, count) || !scan_length(graph, scan, inputs, &length))
        return false;
    if (body->outputs.count < scan->carried)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "scan",
                                "body gives %u tensors, but %u are carried", body->outputs.count,
                                scan->carried) != 0;
    if (!begin_matching(&m, graph, "scan", body))
        return false;
    bool fits = true;
    for (uint32_t i = 0; i < count && fits; i++)
        fits = match_input(&m, body, i, inputs[i], i >= scan->carried && i < scan->carried + scan->scanned);
    for (uint32_t i = 0; i < body->outputs.count && fits; i++)
        types[i] = output_type(&m, body, i);
    mica__free(m.size);
    if (!fits || !carries(graph, "scan", inputs, scan->carried, types))
        return false;
    for (uint32_t i = scan->carried; i < body->outputs.count; i++) {
        if (types[i].ndim == MICA_MAX_DIMS)
            return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "scan",
                                    "output %u has %u dimensions: none is left to stack it", i,
                                    types[i].ndim) != 0;
        memmove(types[i].shape + 1, types[i].shape, types[i].ndim++ * sizeof types[i].shape[0]);
        types[i].shape[0] = length;
    }
    return true;
}

/* ---- adding ---- */

typedef bool find_types(mica_graph *graph, const mica__body_data *data, const mica_tensor *inputs,
                        uint32_t count, mica__type *types);

static uint32_t outputs_of(mica_node_kind kind, const mica__body_data *data)
{
    const mica_graph *gives = data->body[kind == MICA_NODE_WHILE];
    return gives == NULL ? 0 : gives->outputs.count;
}

static mica_tensor add_body(mica_graph *graph, mica_node_kind kind, const mica__body_data *data,
                            const mica_tensor *inputs, uint32_t input_count, mica_tensor *outputs,
                            uint32_t output_count)
{
    static find_types *const rule[MICA_NODE_COUNT] = {[MICA_NODE_CALL] = call_types,
                                                      [MICA_NODE_IF] = if_types,
                                                      [MICA_NODE_WHILE] = while_types,
                                                      [MICA_NODE_SCAN] = scan_types};
    mica__type *types = mica__alloc((outputs_of(kind, data) + 1) * sizeof *types);
    if (types == NULL)
        return mica__graph_fail(graph, MICA_ERR_OUT_OF_MEMORY, "node", "no memory");
    const uint32_t count = outputs_of(kind, data);
    mica_tensor first = 0;
    const bool fits = inputs != NULL || input_count == 0
                          ? rule[kind](graph, data, inputs, input_count, types)
                          : mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "node", "inputs is NULL") != 0;
    if (fits && outputs != NULL && output_count != count)
        (void)mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "node", "it gives %u outputs, not %u", count,
                               output_count);
    else if (fits)
        first = mica__graph_add_node(graph, kind, 0, inputs, input_count, types, count, data, sizeof *data);
    for (uint32_t i = 0; i < output_count && outputs != NULL; i++)
        outputs[i] = first == 0 ? 0 : first + i;
    mica__free(types);
    return first;
}

mica_tensor mica__graph_body_node(mica_graph *graph, mica_node_kind kind, mica__body_data *data,
                                  const mica_tensor *inputs, uint32_t input_count, mica_tensor *outputs,
                                  uint32_t output_count)
{
    const mica_tensor first = graph->status == MICA_OK
                                  ? add_body(graph, kind, data, inputs, input_count, outputs, output_count)
                                  : 0;
    if (first == 0) {
        mica_graph_release(data->body[0]);
        mica_graph_release(data->body[1]);
    }
    return first;
}

/* A copy of a caller's sub-graph; NULL for NULL. A failure is the graph's. */
static mica_graph *copy_body(mica_graph *graph, const char *call, const mica_graph *body)
{
    mica_graph *copy = NULL;
    if (body == NULL || graph->status != MICA_OK)
        return NULL;
    if (body == graph) {
        (void)mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, call, "a graph is no sub-graph of itself");
        return NULL;
    }
    const mica_status status = mica_graph_clone(body, &copy);
    if (status != MICA_OK)
        (void)mica__graph_fail(graph, status, call, "the sub-graph failed");
    return copy;
}

mica_tensor mica_graph_call(mica_graph *graph, const mica_graph *body, const mica_graph *gradient,
                            uint32_t flags, const mica_tensor *inputs, uint32_t input_count,
                            mica_tensor *outputs, uint32_t output_count)
{
    if (!mica__graph_begins(graph, "call"))
        return 0;
    if ((flags & ~MICA_CALL_CHECKPOINT) != 0)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "call", "flags is 0x%x", flags);
    mica__body_data data = {.flags = flags,
                            .body = {copy_body(graph, "call", body), copy_body(graph, "call", gradient)}};
    return mica__graph_body_node(graph, MICA_NODE_CALL, &data, inputs, input_count, outputs, output_count);
}

mica_tensor mica_graph_if(mica_graph *graph, mica_tensor predicate, const mica_graph *then_body,
                          const mica_graph *else_body, const mica_tensor *inputs, uint32_t input_count,
                          mica_tensor *outputs, uint32_t output_count)
{
    if (!mica__graph_begins(graph, "if"))
        return 0;
    mica_tensor *all = input_count < MICA_GRAPH_INPUTS ? mica__alloc((input_count + 1) * sizeof *all) : NULL;
    if (all == NULL)
        return mica__graph_fail(graph, MICA_ERR_OUT_OF_MEMORY, "if", "no memory for %u inputs", input_count);
    all[0] = predicate;
    if (input_count != 0)
        memcpy(all + 1, inputs, input_count * sizeof *all);
    mica__body_data data = {.body = {copy_body(graph, "if", then_body), copy_body(graph, "if", else_body)}};
    const mica_tensor first =
        mica__graph_body_node(graph, MICA_NODE_IF, &data, all, input_count + 1, outputs, output_count);
    mica__free(all);
    return first;
}

mica_tensor mica_graph_while(mica_graph *graph, const mica_graph *condition, const mica_graph *body,
                             uint64_t most, const mica_tensor *inputs, uint32_t input_count,
                             uint32_t carried_count, mica_tensor *outputs)
{
    if (!mica__graph_begins(graph, "while"))
        return 0;
    mica__body_data data = {.body = {copy_body(graph, "while", condition), copy_body(graph, "while", body)},
                            .most = most,
                            .carried = carried_count};
    return mica__graph_body_node(graph, MICA_NODE_WHILE, &data, inputs, input_count, outputs, carried_count);
}

mica_tensor mica_graph_scan(mica_graph *graph, const mica_graph *body, const mica_scan_desc *desc,
                            const mica_tensor *inputs, mica_tensor *outputs, uint32_t output_count)
{
    if (!mica__graph_begins(graph, "scan"))
        return 0;
    if (desc == NULL || desc->reverse > 1 || desc->carried > MICA_GRAPH_INPUTS ||
        desc->scanned > MICA_GRAPH_INPUTS || desc->others > MICA_GRAPH_INPUTS || desc->length > (1ull << 32))
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "scan", "desc is %s",
                                desc == NULL ? "NULL" : "out of range");
    mica__body_data data = {.body = {copy_body(graph, "scan", body), NULL}, .scan = *desc};
    return mica__graph_body_node(graph, MICA_NODE_SCAN, &data, inputs,
                                 desc->carried + desc->scanned + desc->others, outputs, output_count);
}
