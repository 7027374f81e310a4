/* body.c - sub-graphs of ONNX nodes. */
#include "graph/onnx/body.h"

#include <stdio.h>
#include <string.h>

#include "base/work.h"
#include "graph/onnx/rows.h"

const mica__onnx_graph *mica__ox_body_attribute(mica__ox_op *o, const char *name)
{
    const mica__onnx_attribute *a = mica__ox_attribute(o, name, MICA__ONNX_KIND_GRAPH);
    return a == NULL ? NULL : a->graphs;
}

/* ---- what is captured ----------------------------------------------------------------------------------- */

static mica_status keep_name(mica__ox_op *o, const char *name, mica__ox_captures *all)
{
    mica__ox_value value = {0};
    const mica__ox_scope *owner = NULL;
    MICA__TRY(mica__spend(4 + all->count));
    if (name[0] == '\0' || !mica__ox_find(o->im, o->scope, name, &value, &owner))
        return MICA_OK; /* of the body itself */
    if (mica__ox_value_open(&value))
        return mica__ox_fail(o, "\"%.100s\" has as many rows as the run finds, and no body reads it", name);
    if (value.host != NULL && value.host->elements <= MICA__OX_FOLD)
        return MICA_OK;
    for (uint32_t i = 0; i < all->count; i++)
        if (strcmp(all->name[i], name) == 0)
            return MICA_OK;
    if (owner->graph != o->scope->graph)
        value.tensor = 0;
    const mica_tensor tensor = mica__ox_materialise(o->graph, &value);
    if (tensor == 0)
        return mica__ox_fail(o, "\"%.100s\" of a graph around is not there", name);
    if (all->count == all->capacity) {
        const uint32_t capacity = all->capacity * 2 + 8;
        const char **names = mica__ox_memory(o->im, capacity, sizeof *names);
        mica_tensor *tensors = mica__ox_memory(o->im, capacity, sizeof *tensors);
        if (names == NULL || tensors == NULL)
            return MICA_ERR_OUT_OF_MEMORY;
        if (all->count != 0) {
            memcpy(names, all->name, all->count * sizeof *names);
            memcpy(tensors, all->tensor, all->count * sizeof *tensors);
        }
        *all = (mica__ox_captures){names, tensors, all->count, capacity};
    }
    all->name[all->count] = name;
    all->tensor[all->count++] = tensor;
    return MICA_OK;
}

mica_status mica__ox_capture(mica__ox_op *o, const mica__onnx_graph *body, mica__ox_captures *all)
{
    for (uint32_t n = 0; n < body->node_count; n++) {
        const mica__onnx_node *node = &body->node[n];
        for (uint32_t i = 0; i < node->input_count; i++)
            MICA__TRY(keep_name(o, node->input[i], all));
        for (uint32_t a = 0; a < node->attribute_count; a++)
            for (uint32_t g = 0;
                 node->attribute[a].kind == MICA__ONNX_KIND_GRAPH && g < node->attribute[a].count; g++)
                MICA__TRY(mica__ox_capture(o, &node->attribute[a].graphs[g], all));
    }
    for (uint32_t i = 0; i < body->output_count; i++)
        MICA__TRY(keep_name(o, body->output[i].name, all));
    return MICA_OK;
}

/* ---- graphs --------------------------------------------------------------------------------------------- */

void mica__ox_body_end(mica__ox_body_graph *body)
{
    mica__ox_scope_close(&body->scope);
    mica_graph_release(body->graph);
    body->graph = NULL;
}

mica_status mica__ox_body_begin(mica__ox_op *o, mica__ox_body_graph *body)
{
    *body = (mica__ox_body_graph){.graph = NULL};
    MICA__TRY(mica_graph_create(&body->graph));
    const mica_status status = mica__ox_scope_open(o->im, &body->scope, o->scope, body->graph);
    if (status != MICA_OK)
        mica__ox_body_end(body);
    return status;
}

mica_tensor mica__ox_body_input(mica__ox_body_graph *body, const mica__type *type, uint32_t drop)
{
    uint64_t shape[MICA_MAX_DIMS];
    char name[24];
    for (uint32_t d = drop; d < type->ndim; d++)
        shape[d - drop] = mica__size_known(type->shape[d]) ? type->shape[d] : MICA_SIZE_UNKNOWN;
    snprintf(name, sizeof name, "i%u", mica_graph_input_count(body->graph));
    return mica_graph_input(body->graph, name, type->dtype, type->ndim - drop, shape);
}

mica_status mica__ox_body_captures(mica__ox_op *o, mica__ox_body_graph *body, const mica__ox_captures *all)
{
    for (uint32_t i = 0; i < all->count; i++) {
        const mica__type type = *mica__type_of(o->graph, all->tensor[i]);
        const mica__ox_value value = {.tensor = mica__ox_body_input(body, &type, 0)};
        MICA__TRY(mica__ox_define(o->im, &body->scope, all->name[i], value));
    }
    return mica_graph_status(body->graph);
}

void mica__ox_body_output(mica__ox_body_graph *body, mica_tensor tensor)
{
    char name[24];
    snprintf(name, sizeof name, "o%u", body->outputs++);
    (void)mica_graph_output(body->graph, name, tensor);
}

mica_status mica__ox_body_result(const mica__ox_op *o, mica__ox_scope *scope, const char *name,
                                 mica__ox_value *out)
{
    const mica__ox_scope *owner = NULL;
    if (!mica__ox_find(o->im, scope, name, out, &owner))
        return mica__fail(MICA_ERR_MALFORMED_FILE, "body output \"%.200s\" is given by nothing", name);
    if (mica__ox_value_open(out))
        return mica__ox_fail(o, "\"%.100s\" has as many rows as the run finds, and no body gives it", name);
    if (owner->graph != scope->graph)
        out->tensor = 0;
    return out->tensor != 0 || out->host != NULL
               ? MICA_OK
               : mica__ox_fail(o, "body output \"%.100s\" is a sequence, or of another graph", name);
}
