/*
 * import.c - names and scopes of a model that becomes a graph, initialisers, and one node behind another.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/hash.h"
#include "base/work.h"
#include "format/chunks.h"
#include "graph/onnx/rows.h"

#define NODE_STEPS 256u /* of one node: some microseconds */

void *mica__ox_memory(mica__ox *im, uint64_t count, size_t size)
{
    uint64_t bytes = 0;
    void *memory = NULL;
    if (mica__mul_u64(count, size, &bytes) && bytes < SIZE_MAX / 2)
        memory = mica__chunks_alloc(&im->chunks, (size_t)bytes + 1);
    if (memory == NULL)
        (void)mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for %llu bytes while importing",
                         (unsigned long long)bytes);
    else
        memset(memory, 0, (size_t)bytes + 1);
    return memory;
}

/* ---- scopes --------------------------------------------------------------------------------------------- */

mica_status mica__ox_scope_open(mica__ox *im, mica__ox_scope *scope, mica__ox_scope *outer, mica_graph *graph)
{
    *scope = (mica__ox_scope){.outer = outer, .graph = graph, .slots = 64};
    scope->serial = outer != NULL && outer->graph == graph ? outer->serial : ++im->serials;
    scope->depth = outer == NULL ? 0 : outer->depth + 1;
    if (scope->depth >= MICA__OX_DEPTH)
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "bodies and functions inside of one another, more than %u deep", MICA__OX_DEPTH);
    scope->entry = mica__calloc(scope->slots, sizeof *scope->entry);
    return scope->entry != NULL ? MICA_OK : mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for names");
}

void mica__ox_scope_close(mica__ox_scope *scope)
{
    mica__free(scope->entry);
    scope->entry = NULL;
}

static mica__ox_entry *slot_of(const mica__ox *im, mica__ox_entry *entry, uint32_t slots, const char *name)
{
    uint64_t at = mica__hash_bytes(name, strlen(name), im->seed);
    while (entry[at & (slots - 1)].name != NULL && strcmp(entry[at & (slots - 1)].name, name) != 0)
        at++;
    return &entry[at & (slots - 1)];
}

static mica_status grow(const mica__ox *im, mica__ox_scope *scope)
{
    const uint32_t slots = scope->slots * 2;
    mica__ox_entry *entry = mica__calloc(slots, sizeof *entry);
    if (entry == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for %u names", slots);
    for (uint32_t i = 0; i < scope->slots; i++)
        if (scope->entry[i].name != NULL)
            *slot_of(im, entry, slots, scope->entry[i].name) = scope->entry[i];
    mica__free(scope->entry);
    scope->entry = entry;
    scope->slots = slots;
    return MICA_OK;
}

mica_status mica__ox_define(mica__ox *im, mica__ox_scope *scope, const char *name, mica__ox_value value)
{
    if (name[0] == '\0')
        return MICA_OK;
    if (scope->count * 2 >= scope->slots)
        MICA__TRY(grow(im, scope));
    mica__ox_entry *entry = slot_of(im, scope->entry, scope->slots, name);
    if (entry->name != NULL)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "value \"%.200s\" is given twice", name);
    *entry = (mica__ox_entry){name, value};
    scope->count++;
    return MICA_OK;
}

/* The entry of a name in the scope or those around it, and whose it is. */
static mica__ox_entry *find_entry(const mica__ox *im, const mica__ox_scope *scope, const char *name,
                                  const mica__ox_scope **owner)
{
    for (; scope != NULL; scope = scope->outer) {
        mica__ox_entry *entry = slot_of(im, scope->entry, scope->slots, name);
        if (entry->name != NULL) {
            *owner = scope;
            return entry;
        }
    }
    return NULL;
}

bool mica__ox_find(const mica__ox *im, const mica__ox_scope *scope, const char *name, mica__ox_value *out,
                   const mica__ox_scope **out_owner)
{
    const mica__ox_entry *entry = find_entry(im, scope, name, out_owner);
    if (entry != NULL)
        *out = entry->value;
    return entry != NULL;
}

/* ---- tensors of the file -------------------------------------------------------------------------------- */

/* Elements of 4 bits as bytes. */
static mica_status unpack(mica__ox *im, const mica__onnx_tensor *t, mica__ox_host *host)
{
    uint8_t *data = mica__ox_memory(im, t->elements, 1);
    if (data == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    for (uint64_t i = 0; i < t->elements; i++) {
        const uint8_t code = (uint8_t)(t->data[i / 2] >> 4 * (i % 2) & 15);
        data[i] = t->type == MICA__ONNX_INT4 && code > 7 ? (uint8_t)(code | 0xf0) : code;
    }
    host->dtype = t->type == MICA__ONNX_INT4 ? MICA_DTYPE_I8 : MICA_DTYPE_U8;
    host->data = data;
    host->bytes = t->elements;
    return mica__spend(t->elements);
}

mica_status mica__ox_tensor_host(mica__ox *im, const mica__onnx_tensor *tensor, const mica__ox_host **out)
{
    const mica__onnx_type_info *info = mica__onnx_type_get(tensor->type);
    mica__ox_host *host = mica__ox_memory(im, 1, sizeof *host);
    *out = host;
    if (host == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    if (tensor->ndim > MICA_MAX_DIMS)
        return mica__fail(MICA_ERR_UNSUPPORTED, "tensor \"%.200s\" has %u dimensions, more than %u",
                          tensor->name, tensor->ndim, MICA_MAX_DIMS);
    *host = (mica__ox_host){.dtype = info->dtype,
                            .ndim = tensor->ndim,
                            .elements = tensor->elements,
                            .bytes = tensor->bytes,
                            .data = tensor->data};
    memcpy(host->shape, tensor->dims, tensor->ndim * sizeof *host->shape);
    if (tensor->type == MICA__ONNX_INT4 || tensor->type == MICA__ONNX_UINT4)
        return unpack(im, tensor, host);
    return info->dtype != MICA_DTYPE_NONE
               ? MICA_OK
               : mica__fail(MICA_ERR_UNSUPPORTED, "tensor \"%.200s\" is of type %s", tensor->name,
                            info->name);
}

mica_tensor mica__ox_materialise(mica_graph *graph, mica__ox_value *value)
{
    static const uint8_t nothing = 0;
    if (value->tensor == 0 && value->host != NULL)
        value->tensor =
            mica_graph_constant(graph, value->host->dtype, value->host->ndim, value->host->shape,
                                value->host->bytes == 0 ? &nothing : value->host->data, value->host->bytes);
    return value->tensor;
}

/* ---- nodes ---------------------------------------------------------------------------------------------- */

static const mica__ox_row *row_of(const mica__onnx_node *node)
{
    for (uint32_t i = 0; i < mica__ox_row_count; i++)
        if (strcmp(mica__ox_rows[i].name, node->op) == 0 &&
            strcmp(mica__ox_rows[i].domain, node->domain) == 0)
            return &mica__ox_rows[i];
    return NULL;
}

static const mica__onnx_function *function_of(const mica__onnx *model, const mica__onnx_node *node)
{
    for (uint32_t i = 0; i < model->function_count; i++) {
        const mica__onnx_function *f = &model->function[i];
        if (strcmp(f->name, node->op) == 0 && strcmp(f->domain, node->domain) == 0 &&
            strcmp(f->overload, node->overload) == 0)
            return f;
    }
    return NULL;
}

static uint64_t version_of(const mica__ox *im, const mica__ox_scope *scope, const char *domain)
{
    const mica__onnx_opset *opset = im->model->opset;
    uint32_t count = im->model->opset_count;
    const mica__ox_scope *at = scope;
    while (at != NULL && at->function == NULL)
        at = at->outer;
    if (at != NULL && at->function->opset_count != 0) {
        opset = at->function->opset;
        count = at->function->opset_count;
    }
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(opset[i].domain, domain) == 0)
            return opset[i].version;
    return 0;
}

static mica_status name_node(const mica__onnx_node *node, mica_status status)
{
    char sentence[400];
    snprintf(sentence, sizeof sentence, "%s", mica_status_message());
    return mica__fail(status, "%.60s%s\"%.100s\": %s", node->op, node->name[0] != '\0' ? " " : " giving ",
                      node->name[0] != '\0'     ? node->name
                      : node->output_count != 0 ? node->output[0]
                                                : "",
                      sentence);
}

/* The inputs as the scope sees them. A tensor of a graph around this one was brought in by whoever began the body. */
static mica_status find_inputs(mica__ox_op *o)
{
    for (uint32_t i = 0; i < o->input_count; i++) {
        const mica__ox_scope *owner = NULL;
        const char *name = o->node->input[i];
        if (name[0] == '\0')
            continue;
        if (!mica__ox_find(o->im, o->scope, name, &o->in[i], &owner))
            return mica__fail(MICA_ERR_MALFORMED_FILE, "input \"%.200s\" is given by nothing before it",
                              name);
        if (owner->graph != o->scope->graph)
            o->in[i].tensor = 0;
        if (o->in[i].tensor == 0 && o->in[i].host == NULL)
            return mica__fail(MICA_ERR_UNSUPPORTED, "input \"%.200s\" is a sequence, or of another graph",
                              name);
    }
    return MICA_OK;
}

/* A constant that a node needed is kept where it was found, so that there is one of it. */
static void keep_constants(const mica__ox_op *o)
{
    for (uint32_t i = 0; i < o->input_count; i++) {
        const mica__ox_scope *owner = NULL;
        if (o->node->input[i][0] == '\0' || o->in[i].tensor == 0)
            continue;
        mica__ox_entry *entry = find_entry(o->im, o->scope, o->node->input[i], &owner);
        if (entry != NULL && owner->graph == o->graph && entry->value.tensor == 0 &&
            entry->value.host == o->in[i].host)
            entry->value.tensor = o->in[i].tensor;
    }
}

static mica_status refuse_unread(const mica__ox_op *o)
{
    for (uint32_t i = 0; i < o->node->attribute_count; i++)
        if (i >= 64 || (o->seen >> i & 1) == 0)
            return mica__fail(MICA_ERR_UNSUPPORTED, "attribute \"%.100s\" is not read in opset %llu",
                              o->node->attribute[i].name, (unsigned long long)o->version);
    return MICA_OK;
}

static mica_status build_into(mica__ox_op *o, mica_graph *graph)
{
    o->graph = graph;
    o->seen = 0;
    MICA__TRY(mica__ox_is_open(o) ? mica__ox_build_open(o) : o->row->build(o));
    MICA__TRY(mica_graph_status(graph));
    MICA__TRY(refuse_unread(o));
    for (uint32_t i = 0; i < o->output_count; i++)
        if (o->node->output[i][0] != '\0' && o->out[i].tensor == 0 && o->out[i].host == NULL)
            return mica__fail(MICA_ERR_UNSUPPORTED, "output %u (\"%.100s\") is not given", i,
                              o->node->output[i]);
    return MICA_OK;
}

/* Whether all inputs are known and small, so that the outputs may be computed now. */
static bool may_fold(const mica__ox_op *o)
{
    uint64_t elements = 0;
    for (uint32_t i = 0; i < o->input_count; i++) {
        if (o->node->input[i][0] == '\0')
            continue;
        if (o->in[i].host == NULL || o->in[i].host->elements > MICA__OX_FOLD)
            return false;
        elements += o->in[i].host->elements;
    }
    for (uint32_t i = 0; i < o->node->attribute_count; i++)
        if (o->node->attribute[i].kind == MICA__ONNX_KIND_GRAPH)
            return false; /* a body sees names around it */
    return o->input_count != 0 && elements <= MICA__OX_FOLD;
}

/* Builds the node into a graph of its own and computes that; false: it goes into the real graph. */
static bool fold(mica__ox_op *o)
{
    mica_graph *scratch = NULL;
    mica_graph *const graph = o->graph;
    mica_tensor tensors[8] = {0};
    const mica__ox_host *hosts[8] = {0};
    bool done = o->output_count <= 8 && mica_graph_create(&scratch) == MICA_OK;
    for (uint32_t i = 0; i < o->input_count && done; i++)
        o->in[i].tensor = 0;
    done = done && build_into(o, scratch) == MICA_OK;
    for (uint32_t i = 0; i < o->output_count && done; i++)
        tensors[i] = o->out[i].host == NULL ? o->out[i].tensor : 0;
    for (uint32_t i = 0; i < o->output_count; i++)
        done = done && o->out[i].rows == NULL; /* what is computed here has the rows of ONNX, no more */
    done = done && mica__ox_evaluate(o->im, scratch, tensors, o->output_count, hosts);
    for (uint32_t i = 0; i < o->output_count && done; i++)
        o->out[i] = (mica__ox_value){.host = o->out[i].host != NULL ? o->out[i].host : hosts[i]};
    mica_graph_release(scratch);
    o->graph = graph;
    return done;
}

static mica_status import_row(mica__ox_op *o)
{
    MICA__TRY(find_inputs(o));
    const bool moves = mica__ox_moves_sizes(o);
    if (!moves)
        MICA__TRY(mica__ox_settle_sizes(o));
    if (may_fold(o) && !mica__ox_is_open(o)) {
        if (fold(o))
            return moves ? mica__ox_note_sizes(o) : MICA_OK;
        memset(o->out, 0, o->output_count * sizeof *o->out);
        MICA__TRY(find_inputs(o));
        MICA__TRY(mica__ox_settle_sizes(o));
    }
    (void)mica_graph_label(o->graph, o->node->name);
    MICA__TRY(build_into(o, o->scope->graph));
    keep_constants(o);
    return MICA_OK;
}

/* A function of the model: its nodes, in a scope of their own. */
static mica_status import_function(mica__ox_op *o, const mica__onnx_function *f);

static mica_status import_node(mica__ox *im, mica__ox_scope *scope, const mica__onnx_node *node)
{
    const mica__onnx_function *function = function_of(im->model, node);
    mica__ox_op o = {.im = im, .scope = scope, .graph = scope->graph, .node = node, .row = row_of(node)};
    const uint32_t values = node->input_count + node->output_count;
    MICA__TRY(mica__spend(NODE_STEPS + values));
    o.version = version_of(im, scope, node->domain);
    o.input_count = node->input_count;
    o.output_count = node->output_count;
    o.in = mica__calloc((size_t)values + 1, sizeof *o.in);
    if (o.in == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for a node");
    o.out = o.in + node->input_count;
    mica_status status;
    if (function != NULL)
        status = import_function(&o, function);
    else if (o.row == NULL)
        status = mica__fail(MICA_ERR_UNSUPPORTED, "operator %.60s is not known", node->op);
    else if (o.version < o.row->since)
        status = mica__fail(MICA_ERR_UNSUPPORTED, "of opset %llu; it is read from %u on",
                            (unsigned long long)o.version, o.row->since);
    else if (o.input_count > o.row->inputs || o.output_count > o.row->outputs)
        status = mica__fail(MICA_ERR_UNSUPPORTED, "%u inputs and %u outputs, more than are known of it",
                            o.input_count, o.output_count);
    else
        status = import_row(&o);
    for (uint32_t i = 0; i < node->output_count && status == MICA_OK; i++)
        status = mica__ox_define(im, scope, node->output[i], o.out[i]);
    mica__free(o.in);
    return status == MICA_OK || status == MICA_ERR_BUDGET || status == MICA_ERR_CANCELLED
               ? status
               : name_node(node, status);
}

static mica_status import_nodes(mica__ox *im, mica__ox_scope *scope, const mica__onnx_node *node,
                                uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        MICA__TRY(import_node(im, scope, &node[i]));
    return MICA_OK;
}

static mica_status function_body(mica__ox_op *o, const mica__onnx_function *f, mica__ox_scope *scope)
{
    for (uint32_t i = 0; i < o->input_count; i++)
        if (o->node->input[i][0] != '\0')
            MICA__TRY(mica__ox_define(o->im, scope, f->input[i], o->in[i]));
    MICA__TRY(import_nodes(o->im, scope, f->node, f->node_count));
    for (uint32_t i = 0; i < o->output_count; i++) {
        const mica__ox_scope *owner = NULL;
        if (o->node->output[i][0] != '\0' && !mica__ox_find(o->im, scope, f->output[i], &o->out[i], &owner))
            return mica__fail(MICA_ERR_MALFORMED_FILE, "function output \"%.200s\" is given by nothing",
                              f->output[i]);
    }
    return MICA_OK;
}

static mica_status import_function(mica__ox_op *o, const mica__onnx_function *f)
{
    mica__ox_scope scope;
    if (o->input_count > f->input_count || o->output_count > f->output_count)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "more inputs or outputs than the function has");
    MICA__TRY(find_inputs(o));
    const mica_status opened = mica__ox_scope_open(o->im, &scope, NULL, o->scope->graph);
    MICA__TRY(opened);
    scope.depth = o->scope->depth + 1;
    scope.serial = o->scope->serial;
    scope.function = f;
    scope.call = o->node;
    scope.caller = o->scope;
    const mica_status status =
        scope.depth < MICA__OX_DEPTH
            ? function_body(o, f, &scope)
            : mica__fail(MICA_ERR_UNSUPPORTED, "functions that call one another too deep");
    mica__ox_scope_close(&scope);
    return status;
}

mica_status mica__ox_body(mica__ox *im, mica__ox_scope *scope, const mica__onnx_graph *body)
{
    for (uint32_t i = 0; i < body->tensor_count; i++) {
        mica__ox_value value = {0};
        const mica__ox_scope *owner = NULL;
        MICA__TRY(mica__spend(16));
        if (mica__ox_find(im, scope, body->tensor[i].name, &value, &owner) && owner == scope)
            continue; /* an input that was given takes the place of its initialiser */
        MICA__TRY(mica__ox_tensor_host(im, &body->tensor[i], &value.host));
        value.tensor = 0;
        MICA__TRY(mica__ox_define(im, scope, body->tensor[i].name, value));
    }
    return import_nodes(im, scope, body->node, body->node_count);
}
