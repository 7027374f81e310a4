/*
 * model.c - mica/onnx.h: a model that is open, what it says of itself, and the whole of it as a graph.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/work.h"
#include "format/chunks.h"
#include "graph/onnx/rows.h"

struct mica_onnx {
    mica__onnx *file;
    uint32_t input_count;
    const mica__onnx_value **input; /* without those that are initialisers */
};

static bool is_initialiser(const mica__onnx_graph *graph, const char *name)
{
    for (uint32_t i = 0; i < graph->tensor_count; i++)
        if (strcmp(graph->tensor[i].name, name) == 0)
            return true;
    return false;
}

static mica_status list_inputs(mica_onnx *model)
{
    const mica__onnx_graph *graph = &model->file->graph;
    model->input = mica__calloc((size_t)graph->input_count + 1, sizeof *model->input);
    if (model->input == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for a model");
    for (uint32_t i = 0; i < graph->input_count; i++) {
        MICA__TRY(mica__spend(graph->tensor_count + 1));
        if (!is_initialiser(graph, graph->input[i].name))
            model->input[model->input_count++] = &graph->input[i];
    }
    return MICA_OK;
}

void mica_onnx_release(mica_onnx *model)
{
    if (model == NULL)
        return;
    mica__onnx_close(model->file);
    mica__free(model->input);
    mica__free(model);
}

/* A model around the file that `status` says was read. */
static mica_status wrap(mica_status status, mica__onnx *file, mica_onnx **out_model)
{
    MICA__TRY(status);
    mica_onnx *model = mica__calloc(1, sizeof *model);
    if (model == NULL) {
        mica__onnx_close(file);
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for a model");
    }
    model->file = file;
    status = list_inputs(model);
    if (status == MICA_OK)
        *out_model = model;
    else
        mica_onnx_release(model);
    return status;
}

mica_status mica__ox_open_bytes(const char *name, const void *bytes, size_t size, mica_onnx **out_model)
{
    mica__onnx *file = NULL;
    *out_model = NULL;
    const mica_status status = mica__onnx_open_bytes(name, bytes, size, &file);
    return wrap(status, file, out_model);
}

static mica_status onnx_open(const char *path, mica_onnx **out_model)
{
    mica__onnx *file = NULL;
    if (path == NULL || out_model == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s is NULL", path == NULL ? "path" : "out_model");
    *out_model = NULL;
    const mica_status status = mica__onnx_open(path, &file);
    return wrap(status, file, out_model);
}

mica_status mica_onnx_open(const char *path, mica_onnx **out_model)
{
    mica__call call;
    mica__call_begin(&call, "onnx_open");
    return mica__call_end(&call, onnx_open(path, out_model));
}

/* ---- facts ---------------------------------------------------------------------------------------------- */

uint32_t mica_onnx_input_count(const mica_onnx *model)
{
    return model == NULL ? 0 : model->input_count;
}

uint32_t mica_onnx_output_count(const mica_onnx *model)
{
    return model == NULL ? 0 : model->file->graph.output_count;
}

static void describe(const mica__onnx_value *value, mica_onnx_info *out)
{
    const mica__onnx_type_info *type = value->kind == 1 ? mica__onnx_type_get(value->type) : NULL;
    *out = (mica_onnx_info){.name = value->name, .type_name = "", .ndim = MICA_RANK_UNKNOWN};
    for (uint32_t d = 0; d < MICA_MAX_DIMS; d++)
        out->symbol[d] = "";
    if (type != NULL) {
        out->type_name = type->name;
        out->dtype = type->dtype;
    }
    if (!value->ranked || value->ndim > MICA_MAX_DIMS)
        return;
    out->ndim = value->ndim;
    for (uint32_t d = 0; d < value->ndim; d++) {
        out->shape[d] = value->dim[d].known ? value->dim[d].size : MICA_SIZE_UNKNOWN;
        out->symbol[d] = value->dim[d].known ? "" : value->dim[d].name;
    }
}

mica_status mica_onnx_get_input(const mica_onnx *model, uint32_t i, mica_onnx_info *out_info)
{
    if (model == NULL || out_info == NULL || i >= model->input_count)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "onnx_get_input: %u of %u inputs", i,
                          mica_onnx_input_count(model));
    describe(model->input[i], out_info);
    return MICA_OK;
}

mica_status mica_onnx_get_output(const mica_onnx *model, uint32_t i, mica_onnx_info *out_info)
{
    if (model == NULL || out_info == NULL || i >= model->file->graph.output_count)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "onnx_get_output: %u of %u outputs", i,
                          mica_onnx_output_count(model));
    describe(&model->file->graph.output[i], out_info);
    return MICA_OK;
}

uint64_t mica_onnx_opset(const mica_onnx *model, const char *domain)
{
    for (uint32_t i = 0; model != NULL && domain != NULL && i < model->file->opset_count; i++)
        if (strcmp(model->file->opset[i].domain, domain) == 0)
            return model->file->opset[i].version;
    return 0;
}

/* ---- the graph ------------------------------------------------------------------------------------------ */

typedef struct whole {
    mica__ox im;
    const mica_onnx *model;
    mica_graph *graph;
    const mica_onnx_tensor *given;
    uint32_t given_count;
} whole;

static const mica_onnx_tensor *given_of(const whole *w, const char *name)
{
    for (uint32_t i = 0; i < w->given_count; i++)
        if (strcmp(w->given[i].name, name) == 0)
            return &w->given[i];
    return NULL;
}

/* What an input's symbol is, as the inputs that were given say. */
static uint64_t size_of_symbol(const whole *w, const char *symbol)
{
    for (uint32_t i = 0; i < w->model->input_count; i++) {
        const mica__onnx_value *value = w->model->input[i];
        const mica_onnx_tensor *given = given_of(w, value->name);
        if (given == NULL || !value->ranked || value->ndim != given->ndim)
            continue;
        for (uint32_t d = 0; d < value->ndim; d++)
            if (!value->dim[d].known && strcmp(value->dim[d].name, symbol) == 0)
                return given->shape[d];
    }
    return mica_graph_symbol(w->graph, symbol);
}

static mica_status input_shape(const whole *w, const mica__onnx_value *value, uint64_t *shape, uint32_t *ndim)
{
    const mica_onnx_tensor *given = given_of(w, value->name);
    if (given != NULL) {
        bool fits = given->ndim <= MICA_MAX_DIMS && (!value->ranked || value->ndim == given->ndim);
        for (uint32_t d = 0; d < given->ndim && fits && value->ranked; d++)
            fits = !value->dim[d].known || value->dim[d].size == given->shape[d];
        if (!fits)
            return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                              "input \"%.200s\": the shape that is given is not the one that the model has",
                              value->name);
        *ndim = given->ndim;
        memcpy(shape, given->shape, given->ndim * sizeof *shape);
        return MICA_OK;
    }
    if (!value->ranked || value->ndim > MICA_MAX_DIMS)
        return mica__fail(MICA_ERR_UNSUPPORTED, "input \"%.200s\" has %s: give its shape", value->name,
                          value->ranked ? "too many dimensions" : "no shape");
    *ndim = value->ndim;
    for (uint32_t d = 0; d < value->ndim; d++)
        shape[d] = value->dim[d].known             ? value->dim[d].size
                   : value->dim[d].name[0] == '\0' ? MICA_SIZE_UNKNOWN
                                                   : size_of_symbol(w, value->dim[d].name);
    return MICA_OK;
}

/* An input whose elements are given: a constant. */
static mica_status known_input(whole *w, const mica_onnx_tensor *given, mica_dtype dtype, mica__ox_value *out)
{
    mica__ox_host *host = mica__ox_memory(&w->im, 1, sizeof *host);
    if (host == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    *host = (mica__ox_host){.dtype = dtype, .ndim = given->ndim, .elements = 1, .data = given->data};
    for (uint32_t d = 0; d < given->ndim; d++) {
        host->shape[d] = given->shape[d];
        host->elements *= given->shape[d];
    }
    host->bytes = host->elements * mica_dtype_block_bytes(dtype);
    out->host = host;
    return given->bytes == host->bytes
               ? MICA_OK
               : mica__fail(MICA_ERR_INVALID_ARGUMENT, "input \"%.200s\" takes %llu bytes, not %llu",
                            given->name, (unsigned long long)host->bytes, (unsigned long long)given->bytes);
}

static mica_status import_input(whole *w, mica__ox_scope *scope, const mica__onnx_value *value)
{
    const mica__onnx_type_info *type = mica__onnx_type_get(value->type);
    const mica_onnx_tensor *given = given_of(w, value->name);
    uint64_t shape[MICA_MAX_DIMS];
    uint32_t ndim = 0;
    mica__ox_value out = {0};
    if (value->kind != 1 || type == NULL || type->dtype == MICA_DTYPE_NONE)
        return mica__fail(MICA_ERR_UNSUPPORTED, "input \"%.200s\" is %s", value->name,
                          value->kind != 1 || type == NULL ? "no tensor" : type->name);
    MICA__TRY(input_shape(w, value, shape, &ndim));
    if (given != NULL && given->data != NULL)
        MICA__TRY(known_input(w, given, type->dtype, &out));
    else
        out.tensor = mica_graph_input(w->graph, value->name, type->dtype, ndim, shape);
    MICA__TRY(mica_graph_status(w->graph));
    return mica__ox_define(&w->im, scope, value->name, out);
}

static bool is_output(const whole *w, const char *name)
{
    const mica__onnx_graph *graph = &w->model->file->graph;
    for (uint32_t i = 0; i < graph->output_count; i++)
        if (strcmp(graph->output[i].name, name) == 0)
            return true;
    return false;
}

/* An output of as many rows as the run finds: another one, "NAME rows", says how many. */
static mica_status count_rows(whole *w, const char *name, const mica__ox_value *value)
{
    char text[MICA_GRAPH_NAME_BYTES];
    for (uint32_t i = 0; i < 100; i++) {
        const int length = i == 0 ? snprintf(text, sizeof text, "%s rows", name)
                                  : snprintf(text, sizeof text, "%s rows %u", name, i);
        if (length < 0 || (size_t)length >= sizeof text)
            break;
        if (mica_graph_find(w->graph, text) != 0 || is_output(w, text))
            continue;
        (void)mica_graph_output(w->graph, text, value->rows->count);
        return mica_graph_output_rows(w->graph, name, value->axis, text);
    }
    return mica__fail(MICA_ERR_UNSUPPORTED,
                      "output \"%.200s\" has as many rows as the run finds, and no name for their number",
                      name);
}

static mica_status import_outputs(whole *w, const mica__ox_scope *scope)
{
    const mica__onnx_graph *graph = &w->model->file->graph;
    for (uint32_t i = 0; i < graph->output_count; i++) {
        const mica__ox_scope *owner = NULL;
        mica__ox_value value = {0};
        if (!mica__ox_find(&w->im, scope, graph->output[i].name, &value, &owner))
            return mica__fail(MICA_ERR_MALFORMED_FILE, "output \"%.200s\" is given by nothing",
                              graph->output[i].name);
        MICA__TRY(mica__ox_settle(&w->im, w->graph, &value));
        (void)mica_graph_output(w->graph, graph->output[i].name, mica__ox_materialise(w->graph, &value));
        if (value.rows != NULL)
            MICA__TRY(count_rows(w, graph->output[i].name, &value));
    }
    return mica_graph_status(w->graph);
}

/* All operators that no row and no function has, at once. */
typedef struct missing {
    char text[400];
    size_t length;
} missing;

static void note_missing(missing *all, const mica__onnx_node *node)
{
    char name[160];
    snprintf(name, sizeof name, "%s%.60s%s%.60s,", all->length == 0 ? "" : " ", node->domain,
             node->domain[0] != '\0' ? "." : "", node->op);
    if (strstr(all->text, name + (all->length != 0)) == NULL &&
        all->length + strlen(name) < sizeof all->text) {
        memcpy(all->text + all->length, name, strlen(name) + 1);
        all->length += strlen(name);
    }
}

static mica_status find_missing(const mica__onnx *model, const mica__onnx_node *node, uint32_t count,
                                missing *all)
{
    for (uint32_t i = 0; i < count; i++) {
        bool known = false;
        MICA__TRY(mica__spend(64 + model->function_count));
        for (uint32_t r = 0; r < mica__ox_row_count && !known; r++)
            known = strcmp(mica__ox_rows[r].name, node[i].op) == 0 &&
                    strcmp(mica__ox_rows[r].domain, node[i].domain) == 0;
        for (uint32_t f = 0; f < model->function_count && !known; f++)
            known = strcmp(model->function[f].name, node[i].op) == 0 &&
                    strcmp(model->function[f].domain, node[i].domain) == 0;
        if (!known)
            note_missing(all, &node[i]);
        for (uint32_t a = 0; a < node[i].attribute_count; a++)
            for (uint32_t g = 0; g < node[i].attribute[a].count && node[i].attribute[a].graphs != NULL; g++)
                MICA__TRY(find_missing(model, node[i].attribute[a].graphs[g].node,
                                       node[i].attribute[a].graphs[g].node_count, all));
    }
    return MICA_OK;
}

static mica_status check_operators(const mica__onnx *model)
{
    missing all = {.text = ""};
    MICA__TRY(find_missing(model, model->graph.node, model->graph.node_count, &all));
    for (uint32_t f = 0; f < model->function_count; f++)
        MICA__TRY(find_missing(model, model->function[f].node, model->function[f].node_count, &all));
    if (all.length != 0)
        return mica__fail(MICA_ERR_UNSUPPORTED, "\"%s\": operators that are not known: %.*s", model->path,
                          (int)all.length - 1, all.text);
    return MICA_OK;
}

static mica_status check_versions(const mica__onnx *model)
{
    for (uint32_t i = 0; i < model->opset_count; i++)
        if (model->opset[i].domain[0] == '\0' && model->opset[i].version > MICA__OX_NEWEST)
            return mica__fail(MICA_ERR_UNSUPPORTED, "\"%s\": opset %llu; up to %u are read", model->path,
                              (unsigned long long)model->opset[i].version, MICA__OX_NEWEST);
    return MICA_OK;
}

static mica_status import_all(whole *w, mica__ox_scope *scope)
{
    for (uint32_t i = 0; i < w->model->input_count; i++) {
        MICA__TRY(mica__spend(16 + w->given_count));
        MICA__TRY(import_input(w, scope, w->model->input[i]));
    }
    MICA__TRY(mica__ox_body(&w->im, scope, &w->model->file->graph));
    return import_outputs(w, scope);
}

static mica_status check_given(const mica_onnx *model, const mica_onnx_tensor *inputs, uint32_t count)
{
    if (inputs == NULL && count != 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "inputs is NULL");
    for (uint32_t i = 0; i < count; i++) {
        bool found = false;
        for (uint32_t k = 0; k < model->input_count && inputs[i].name != NULL && !found; k++)
            found = strcmp(model->input[k]->name, inputs[i].name) == 0;
        if (!found)
            return mica__fail(MICA_ERR_INVALID_ARGUMENT, "the model has no input \"%.200s\"",
                              inputs[i].name == NULL ? "" : inputs[i].name);
    }
    return MICA_OK;
}

static mica_status onnx_graph(const mica_onnx *model, const mica_onnx_tensor *inputs, uint32_t count,
                              mica_graph **out_graph)
{
    mica__ox_scope scope = {0};
    if (model == NULL || out_graph == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s is NULL", model == NULL ? "model" : "out_graph");
    *out_graph = NULL;
    MICA__TRY(check_given(model, inputs, count));
    MICA__TRY(check_versions(model->file));
    MICA__TRY(check_operators(model->file));
    whole w = {.im = {.model = model->file, .seed = mica__hash_seed()},
               .model = model,
               .given = inputs,
               .given_count = count};
    MICA__TRY(mica_graph_create(&w.graph));
    mica_status status = mica__ox_scope_open(&w.im, &scope, NULL, w.graph);
    if (status == MICA_OK)
        status = import_all(&w, &scope);
    mica__ox_scope_close(&scope);
    mica__chunks_free(&w.im.chunks);
    if (status == MICA_OK)
        status = mica_graph_label(w.graph, NULL);
    if (status == MICA_OK)
        *out_graph = w.graph;
    else
        mica_graph_release(w.graph);
    return status;
}

mica_status mica_onnx_graph(const mica_onnx *model, const mica_onnx_tensor *inputs, uint32_t count,
                            mica_graph **out_graph)
{
    mica__call call;
    mica__call_begin(&call, "onnx_graph");
    return mica__call_end(&call, onnx_graph(model, inputs, count, out_graph));
}
