/*
 * prepare.c - parting a graph into what follows from parameters and constants alone, and the rest.
 */
#include "graph/exec/prepare.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "device/objects.h"

#define PREFIX "prepared/"

/* What a tensor follows from: something that comes with a run; constants alone; parameters and constants. */
enum { VARIES, CONSTANT, PREPARED };

typedef struct parting {
    const mica_graph *graph;
    uint8_t *kind;    /* by tensor */
    uint8_t *handed;  /* by tensor: 1: it goes from one graph to the other */
    uint64_t allowed; /* bytes that may still be prepared */
} parting;

static bool is_control(const mica__node *node)
{
    return node->kind >= MICA_NODE_CALL;
}

/* Whether the shape of what the node gives is known only as the graph runs: that varies too. */
static bool has_symbols(const mica_graph *graph, const mica__node *node)
{
    for (uint32_t i = 0; i < node->output_count; i++) {
        const mica_tensor out = mica__node_outputs(graph, node)[i];
        if (out != 0 && mica__type_elements(mica__type_of(graph, out)) == MICA_SIZE_UNKNOWN)
            return true;
    }
    return false;
}

/* A parameter as another place has it. */
static bool is_carried(const mica_graph *graph, const mica__node *node)
{
    return mica__crosses(graph, node) &&
           mica__node_of(graph, *mica__node_inputs(graph, node))->kind == MICA_NODE_PARAMETER;
}

/* `all` false: but for parameters as other places have them everything varies. */
static void find_kinds(parting *p, const uint8_t *changes, bool all)
{
    const mica_graph *graph = p->graph;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const mica__node *node = &graph->node[n];
        const bool varies = node->input_count == 0 || is_control(node) || has_symbols(graph, node) ||
                            !(all || is_carried(graph, node));
        uint8_t kind = node->kind == MICA_NODE_PARAMETER  ? PREPARED
                       : node->kind == MICA_NODE_CONSTANT ? CONSTANT
                       : varies                           ? VARIES
                                                          : CONSTANT;
        for (uint32_t i = 0; i < node->input_count && kind != VARIES; i++) {
            const mica_tensor in = mica__node_inputs(graph, node)[i];
            if (in != 0)
                kind = p->kind[in] == VARIES ? VARIES : p->kind[in] > kind ? p->kind[in] : kind;
        }
        for (uint32_t i = 0; i < node->output_count; i++)
            p->kind[mica__node_outputs(graph, node)[i]] = kind;
        if (node->kind == MICA_NODE_PARAMETER && changes[*mica__node_outputs(graph, node)] != 0)
            p->kind[*mica__node_outputs(graph, node)] = VARIES;
    }
    p->kind[0] = CONSTANT;
}

/* Whether the tensor is more than another view of a leaf. */
static bool is_computed(const mica_graph *graph, mica_tensor tensor)
{
    const mica__node *node = mica__node_of(graph, tensor);
    while (mica__is_view(node))
        node = mica__node_of(graph, *mica__node_inputs(graph, node));
    return !mica__is_leaf(node);
}

static bool is_known(const mica__type *type)
{
    return mica__type_elements(type) != MICA_SIZE_UNKNOWN;
}

/* A tensor that what varies reads: views of parameters are read as they are, but by matmuls, whose weights lie in rows. */
static void hand_over(parting *p, mica_tensor tensor, bool weight)
{
    const mica__node *node = mica__node_of(p->graph, tensor);
    const mica__type *type = mica__type_of(p->graph, tensor);
    const bool carried = is_carried(p->graph, node);
    if (p->kind[tensor] == VARIES || mica__is_leaf(node) || p->handed[tensor] != 0 || !is_known(type) ||
        !(weight || is_computed(p->graph, tensor)) || (!carried && mica__type_bytes(type) > p->allowed))
        return;
    p->allowed -= carried ? 0 : mica__type_bytes(type);
    p->handed[tensor] = 1;
}

static uint32_t find_handed(parting *p)
{
    const mica_graph *graph = p->graph;
    uint32_t count = 0;
    p->allowed = 1u << 20;
    for (uint32_t i = 0; i < graph->parameter_count; i++)
        if (p->kind[graph->parameters[i]] == PREPARED)
            p->allowed += 2 * mica__type_bytes(mica__type_of(graph, graph->parameters[i]));
    for (uint32_t n = 0; n < graph->node_count; n++)
        if (graph->node[n].kind == MICA_NODE_CONSTANT)
            p->allowed +=
                2 * mica__type_bytes(mica__type_of(graph, *mica__node_outputs(graph, &graph->node[n])));
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const mica__node *node = &graph->node[n];
        const bool varies = node->output_count != 0 && p->kind[mica__node_outputs(graph, node)[0]] == VARIES;
        const bool matmul = node->kind == MICA_NODE_OP && node->code == MICA_OP_MATMUL;
        for (uint32_t i = 0; i < node->input_count && varies; i++)
            if (mica__node_inputs(graph, node)[i] != 0)
                hand_over(p, mica__node_inputs(graph, node)[i], matmul && i > 0);
    }
    for (mica_tensor t = 1; t < graph->tensor_count; t++)
        count += p->handed[t];
    return count;
}

static void name_of(mica_tensor tensor, char out[32])
{
    snprintf(out, 32, PREFIX "%u", tensor);
}

/* The nodes that make what is handed over, and no others. */
static mica_status write_before(const parting *p, mica_graph **out)
{
    const mica_graph *graph = p->graph;
    mica__rewrite rewrite;
    uint8_t *needed = mica__calloc(graph->tensor_count, 1);
    if (needed == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "graph: no memory");
    for (uint32_t n = graph->node_count; n-- > 0;) {
        const mica__node *node = &graph->node[n];
        bool need = false;
        for (uint32_t i = 0; i < node->output_count; i++) {
            const mica_tensor t = mica__node_outputs(graph, node)[i];
            need |= t != 0 && (needed[t] != 0 || p->handed[t] != 0);
        }
        for (uint32_t i = 0; i < node->input_count && need; i++)
            needed[mica__node_inputs(graph, node)[i]] = 1;
        for (uint32_t i = 0; i < node->output_count && need; i++)
            needed[mica__node_outputs(graph, node)[i]] = 1;
    }
    needed[0] = 0;
    mica_status status = mica__rewrite_begin(&rewrite, graph, NULL);
    for (uint32_t n = 0; status == MICA_OK && n < graph->node_count; n++) {
        const mica__node *node = &graph->node[n];
        bool need = false;
        for (uint32_t i = 0; i < node->output_count; i++)
            need |= needed[mica__node_outputs(graph, node)[i]] != 0;
        if (need)
            (void)mica__graph_again(&rewrite, n);
    }
    for (mica_tensor t = 1; status == MICA_OK && t < graph->tensor_count; t++)
        if (p->handed[t] != 0) {
            char name[32];
            name_of(t, name);
            (void)mica_graph_output(rewrite.to, name, rewrite.map[t]);
        }
    if (status == MICA_OK)
        status = mica_graph_status(rewrite.to);
    mica__free(needed);
    mica__free(rewrite.map);
    if (status != MICA_OK)
        mica_graph_release(rewrite.to);
    *out = status == MICA_OK ? rewrite.to : NULL;
    return status;
}

/* The graph with what is handed over as parameters; what made it is dead, and is not emitted. */
static mica_status write_main(const parting *p, mica_graph **out)
{
    const mica_graph *graph = p->graph;
    mica__rewrite rewrite;
    mica_status status = mica__rewrite_begin(&rewrite, graph, NULL);
    for (uint32_t n = 0; status == MICA_OK && n < graph->node_count; n++) {
        const mica__node *node = &graph->node[n];
        const mica_tensor first = node->output_count != 0 ? mica__node_outputs(graph, node)[0] : 0;
        if (!mica__graph_again(&rewrite, n))
            break;
        for (uint32_t i = 0; i < node->output_count && first != 0; i++) {
            const mica_tensor t = mica__node_outputs(graph, node)[i];
            char name[32];
            if (t == 0 || p->handed[t] == 0)
                continue;
            const mica__type *type = mica__type_of(graph, t);
            name_of(t, name);
            rewrite.to->place = node->place;
            rewrite.map[t] = mica_graph_parameter_scaled(rewrite.to, name, type->dtype, type->ndim,
                                                         type->shape, type->group_size, type->scale_dtype);
            rewrite.to->place = 0;
        }
    }
    return status == MICA_OK ? mica__rewrite_end(&rewrite, out) : status;
}

mica_status mica__prepare_part(const mica_graph *graph, const uint8_t *changes, bool all, mica__prepared *out)
{
    *out = (mica__prepared){.stale = true};
    parting p = {.graph = graph,
                 .kind = mica__calloc(graph->tensor_count, 1),
                 .handed = mica__calloc(graph->tensor_count, 1)};
    mica_status status =
        p.kind == NULL || p.handed == NULL ? mica__fail(MICA_ERR_OUT_OF_MEMORY, "graph: no memory") : MICA_OK;
    if (status == MICA_OK) {
        find_kinds(&p, changes, all);
        out->count = find_handed(&p);
    }
    if (status == MICA_OK && out->count == 0)
        status = mica_graph_clone(graph, &out->main);
    else if (status == MICA_OK) {
        out->ready = mica__calloc(out->count, sizeof *out->ready);
        out->packed = mica__calloc(out->count, sizeof *out->packed);
        status = out->ready == NULL || out->packed == NULL
                     ? mica__fail(MICA_ERR_OUT_OF_MEMORY, "graph: no memory")
                     : write_before(&p, &out->before);
        if (status == MICA_OK)
            status = write_main(&p, &out->main);
    }
    mica__free(p.kind);
    mica__free(p.handed);
    if (status != MICA_OK)
        mica__prepare_release(out);
    return status;
}

void mica__prepare_release(mica__prepared *prepared)
{
    for (uint32_t i = 0; i < prepared->count; i++) {
        if (prepared->ready != NULL)
            mica_buffer_release(prepared->ready[i]);
        if (prepared->packed != NULL)
            mica_buffer_release(prepared->packed[i]);
    }
    mica__free(prepared->ready);
    mica__free(prepared->packed);
    mica_graph_release(prepared->main);
    mica_graph_release(prepared->before);
    memset(prepared, 0, sizeof *prepared);
}

uint32_t mica__prepare_index(const mica__prepared *prepared, const char *name)
{
    if (prepared->before == NULL || strncmp(name, PREFIX, sizeof PREFIX - 1) != 0)
        return UINT32_MAX;
    for (uint32_t i = 0; i < prepared->count; i++)
        if (strcmp(prepared->before->text + prepared->before->outputs.list[i].name, name) == 0)
            return i;
    return UINT32_MAX;
}

/* ---- weights ---- */

/* What every use of a leaf is the weight of. */
typedef struct weight_use {
    bool none;                    /* of nothing, or of things that take it in several ways */
    const mica_conv_params *conv; /* NULL: of matmuls */
} weight_use;

static weight_use find_use(const mica_graph *graph, mica_tensor leaf)
{
    weight_use use = {.none = true};
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const mica__node *node = &graph->node[n];
        for (uint32_t i = 0; i < node->input_count; i++) {
            if (mica__node_inputs(graph, node)[i] != leaf || is_carried(graph, node))
                continue; /* another place's copy is one of what it was */
            const bool op = node->kind == MICA_NODE_OP && i > 0;
            const bool matmul = op && node->code == MICA_OP_MATMUL;
            const mica_conv_params *conv =
                op && i == 1 && node->code == MICA_OP_CONV ? mica__op_params(node) : NULL;
            const bool as_before = use.none || ((conv == NULL) == (use.conv == NULL) &&
                                                (conv == NULL || conv->groups == use.conv->groups));
            if (!(matmul || (conv != NULL && conv->transposed == 0)) || !as_before)
                return (weight_use){.none = true};
            use = (weight_use){.conv = conv};
        }
    }
    for (uint32_t i = 0; i < graph->outputs.count; i++)
        if (graph->outputs.list[i].tensor == leaf)
            return (weight_use){.none = true};
    return use;
}

/* A view of [C, kernel.., O] as [O, C, kernel..]. */
static mica_status outputs_inner(mica_buffer *weight, mica_buffer **out)
{
    uint32_t there[MICA_MAX_DIMS], back[MICA_MAX_DIMS];
    mica__type type = {.dtype = weight->dtype, .ndim = weight->ndim};
    mica_buffer *turned = NULL, *row = NULL;
    for (uint32_t d = 0; d < weight->ndim; d++) {
        there[d] = (d + 1) % weight->ndim;
        back[there[d]] = d;
        type.shape[d] = weight->shape[there[d]];
    }
    MICA__TRY(mica_buffer_permute(weight, there, &turned));
    mica_status status = mica__buffer_for(weight->storage->device, &type, &row);
    if (status == MICA_OK)
        status = mica__pack_into(turned, row);
    if (status == MICA_OK)
        status = mica_buffer_permute(row, back, out);
    mica_buffer_release(turned);
    mica_buffer_release(row);
    return status;
}

mica_status mica__prepare_weight(const mica_graph *graph, mica_tensor leaf, mica_buffer *buffer, bool ours,
                                 mica_buffer **out)
{
    const weight_use use = find_use(graph, leaf);
    const mica_device *device = buffer->storage->device;
    if (!use.none && use.conv == NULL)
        return mica_buffer_pack(buffer, out);
    mica__operand operand;
    mica__operand_from(buffer, MICA_ACCESS_READ, &operand);
    const uint32_t groups = use.conv != NULL && use.conv->groups > 0 ? use.conv->groups : 1;
    const bool inner = use.conv != NULL && ours && buffer->length != 0 &&
                       device->backend->outputs_inner != NULL &&
                       device->backend->outputs_inner(&operand, groups, &device->info);
    if (inner)
        return outputs_inner(buffer, out);
    *out = mica_buffer_retain(buffer);
    return MICA_OK;
}

/* ---- running ---- */

static mica_status take_leaves(const mica_graph *graph, mica_device *const *device,
                               mica_status (*held)(void *context, const char *name, mica_buffer **out),
                               void *context, mica_buffer **leaf)
{
    for (mica_tensor t = 1; t < graph->tensor_count; t++) {
        const mica__node *node = mica__node_of(graph, t);
        if (node->kind == MICA_NODE_PARAMETER)
            MICA__TRY(held(context, graph->text + ((const mica__leaf_data *)node->data)->name, &leaf[t]));
        if (node->kind != MICA_NODE_CONSTANT)
            continue;
        const mica__blob *blob = ((const mica__constant_data *)node->data)->blob;
        MICA__TRY(mica__buffer_of(device[node->place], graph, t, &leaf[t]));
        MICA__TRY(mica__buffer_put(leaf[t], 0, blob->data, blob->bytes));
    }
    return MICA_OK;
}

/* Weights as what reads them takes them fastest; what they were is not needed any more. */
static mica_status pack(mica__prepared *prepared)
{
    for (uint32_t i = 0; i < prepared->main->parameter_count; i++) {
        const mica_tensor leaf = prepared->main->parameters[i];
        const mica__leaf_data *data = mica__node_of(prepared->main, leaf)->data;
        const uint32_t at = mica__prepare_index(prepared, prepared->main->text + data->name);
        mica_buffer *packed = NULL;
        if (at == UINT32_MAX)
            continue;
        mica_buffer_release(prepared->packed[at]);
        prepared->packed[at] = NULL;
        MICA__TRY(mica__prepare_weight(prepared->main, leaf, prepared->ready[at], true, &packed));
        if (packed == prepared->ready[at]) {
            mica_buffer_release(packed);
            continue;
        }
        prepared->packed[at] = packed;
        mica_buffer_release(prepared->ready[at]);
        prepared->ready[at] = NULL;
    }
    return MICA_OK;
}

mica_status mica__prepare_run(mica__prepared *prepared, mica_device *const *device, uint32_t device_count,
                              mica_status (*held)(void *context, const char *name, mica_buffer **out),
                              void *context)
{
    const mica_graph *graph = prepared->before;
    if (graph == NULL || !prepared->stale)
        return MICA_OK;
    mica_graph *concrete = NULL;
    mica__schedule *schedule = NULL;
    MICA__TRY(mica__graph_concrete(graph, NULL, &concrete));
    mica_buffer **leaf = mica__calloc(concrete->tensor_count, sizeof *leaf);
    mica__station *station = mica__calloc(device_count, sizeof *station);
    for (uint32_t p = 0; p < device_count && station != NULL; p++)
        station[p].device = device[p];
    mica_status status =
        leaf == NULL || station == NULL ? mica__fail(MICA_ERR_OUT_OF_MEMORY, "graph: no memory") : MICA_OK;
    if (status == MICA_OK)
        status = take_leaves(concrete, device, held, context, leaf);
    for (uint32_t i = 0; i < prepared->count && status == MICA_OK; i++) {
        const mica_tensor tensor = concrete->outputs.list[i].tensor;
        if (prepared->ready[i] == NULL)
            status = mica__buffer_of(device[mica__node_of(concrete, tensor)->place], concrete, tensor,
                                     &prepared->ready[i]);
    }
    const mica__schedule_desc desc = {.graph = concrete,
                                      .station = station,
                                      .station_count = device_count,
                                      .mode = MICA_MODE_LAZY,
                                      .leaf = leaf,
                                      .output = prepared->ready};
    if (status == MICA_OK)
        status = mica__schedule_create(&desc, &schedule);
    if (status == MICA_OK)
        status = mica__schedule_run(schedule);
    mica__schedule_release(schedule);
    for (mica_tensor t = 1; leaf != NULL && t < concrete->tensor_count; t++)
        mica_buffer_release(leaf[t]);
    mica__free(leaf);
    mica__free(station);
    mica_graph_release(concrete);
    if (status == MICA_OK)
        status = pack(prepared);
    prepared->stale = status != MICA_OK;
    return status;
}
