/*
 * graph.c - a graph's life, its names and its failure, and the one place where a node is added.
 */
#include "graph/ir.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"

#define CHUNK_BYTES \
    (64u << 10) /* of large graphs; small ones, of which there are many within others, begin with 1 KiB */

/* Memory of node attributes: never moved, freed with the graph. */
struct mica__graph_chunk {
    struct mica__graph_chunk *next;
    size_t used, bytes;
    _Alignas(16) unsigned char data[];
};

/* ---- failure ---- */

mica_tensor mica__graph_fail(mica_graph *graph, mica_status code, const char *call, const char *format, ...)
{
    char text[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (graph == NULL) {
        (void)mica__fail(code, "graph_%s: %s", call, text);
        return 0;
    }
    const char *label = graph->text != NULL ? graph->text + graph->label : "";
    (void)mica__fail(code, "graph_%s%s%s%s: %s", call, *label != 0 ? " (" : "", label, *label != 0 ? ")" : "",
                     text);
    if (graph->status == MICA_OK) {
        graph->status = code;
        snprintf(graph->sentence, sizeof graph->sentence, "%s", mica_status_message());
    }
    return 0;
}

bool mica__graph_begins(mica_graph *graph, const char *call)
{
    if (graph == NULL)
        (void)mica__fail(MICA_ERR_INVALID_ARGUMENT, "graph_%s: graph is NULL", call);
    return graph != NULL && graph->status == MICA_OK;
}

mica_status mica_graph_status(const mica_graph *graph)
{
    if (graph == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "graph_status: graph is NULL");
    if (graph->status != MICA_OK)
        mica__status_set(graph->status, graph->sentence);
    return graph->status;
}

const mica__type *mica__graph_takes(mica_graph *graph, const char *call, const char *argument,
                                    mica_tensor tensor)
{
    if (tensor != 0 && tensor < graph->tensor_count)
        return &graph->tensor[tensor].type;
    if (tensor == 0)
        (void)mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, call, "%s is no tensor", argument);
    else
        (void)mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, call,
                               "%s is tensor %u, but the graph has %u", argument, tensor,
                               graph->tensor_count - 1);
    return NULL;
}

static bool no_memory(mica_graph *graph)
{
    (void)mica__graph_fail(graph, MICA_ERR_OUT_OF_MEMORY, "memory", "no memory for a graph of %u nodes",
                           graph->node_count);
    return false;
}

/* ---- memory ---- */

/* Makes room for `more` elements behind `count`. */
static bool room(mica_graph *graph, void **list, uint32_t count, uint32_t more, uint32_t *capacity,
                 size_t element)
{
    const uint64_t needed = (uint64_t)count + more;
    if (needed <= *capacity)
        return true;
    uint64_t wanted = (uint64_t)*capacity * 2;
    if (wanted < needed)
        wanted = needed;
    if (wanted < 8)
        wanted = 8;
    void *grown = wanted >= UINT32_MAX ? NULL : mica__realloc(*list, (size_t)wanted * element);
    if (grown == NULL)
        return no_memory(graph);
    *list = grown;
    *capacity = (uint32_t)wanted;
    return true;
}

void *mica__graph_memory(mica_graph *graph, size_t bytes)
{
    struct mica__graph_chunk *chunk = graph->chunks;
    const size_t taken = (bytes + 15u) & ~(size_t)15u;
    if (chunk == NULL || chunk->bytes - chunk->used < taken) {
        const size_t more = chunk == NULL                    ? 1024
                            : chunk->bytes < CHUNK_BYTES / 2 ? chunk->bytes * 2
                                                             : CHUNK_BYTES;
        const size_t size = taken > more ? taken : more;
        chunk = mica__alloc(sizeof *chunk + size);
        if (chunk == NULL) {
            (void)no_memory(graph);
            return NULL;
        }
        *chunk = (struct mica__graph_chunk){.next = graph->chunks, .bytes = size};
        graph->chunks = chunk;
    }
    void *memory = chunk->data + chunk->used;
    chunk->used += taken;
    return memory;
}

uint32_t mica__graph_text(mica_graph *graph, const char *text)
{
    const size_t bytes = text == NULL ? 0 : strlen(text);
    if (bytes == 0)
        return 0;
    if (bytes >= MICA_GRAPH_NAME_BYTES) {
        (void)mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "text", "a name has %zu bytes, over %u",
                               bytes, MICA_GRAPH_NAME_BYTES - 1);
        return UINT32_MAX;
    }
    void *list = graph->text;
    const bool fits = room(graph, &list, graph->text_bytes, (uint32_t)bytes + 1, &graph->text_capacity, 1);
    graph->text = list;
    if (!fits)
        return UINT32_MAX;
    const uint32_t at = graph->text_bytes;
    memcpy(graph->text + at, text, bytes + 1);
    graph->text_bytes += (uint32_t)bytes + 1;
    return at;
}

mica__blob *mica__blob_create(const void *data, uint64_t bytes)
{
    mica__blob *blob = bytes > SIZE_MAX / 2 ? NULL : mica__alloc(sizeof *blob + 64 + (size_t)bytes);
    if (blob == NULL)
        return NULL;
    unsigned char *inside = (unsigned char *)blob + ((sizeof *blob + 63u) & ~(size_t)63u);
    if (data != NULL && bytes != 0)
        memcpy(inside, data, (size_t)bytes);
    else
        memset(inside, 0, (size_t)bytes);
    *blob = (mica__blob){.bytes = bytes, .data = inside};
    atomic_init(&blob->uses, 1);
    return blob;
}

void mica__blob_release(mica__blob *blob)
{
    if (blob == NULL || atomic_fetch_sub(&blob->uses, 1) != 1)
        return;
    if (blob->free != NULL)
        blob->free(blob->context);
    mica__free(blob);
}

/* ---- life ---- */

mica_status mica_graph_create(mica_graph **out_graph)
{
    if (out_graph == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "graph_create: out_graph is NULL");
    *out_graph = NULL;
    mica_graph *graph = mica__calloc(1, sizeof *graph);
    if (graph == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "graph_create: no memory");
    graph->seed = mica__hash_seed();
    void *text = NULL, *tensor = NULL;
    if (!room(graph, &text, 0, 64, &graph->text_capacity, 1) ||
        !room(graph, &tensor, 0, 1, &graph->tensor_capacity, sizeof(mica__tensor))) {
        mica__free(text);
        mica__free(graph);
        return MICA_ERR_OUT_OF_MEMORY;
    }
    graph->text = text;
    graph->text[0] = 0;
    graph->text_bytes = 1;
    graph->tensor = tensor;
    memset(&graph->tensor[0], 0, sizeof graph->tensor[0]);
    graph->tensor_count = 1;
    *out_graph = graph;
    return MICA_OK;
}

static void release_data(mica__node *node)
{
    if (node->kind == MICA_NODE_CONSTANT && node->data != NULL)
        mica__blob_release(((mica__constant_data *)node->data)->blob);
    if (node->kind >= MICA_NODE_CALL && node->kind <= MICA_NODE_SCAN && node->data != NULL) {
        mica__body_data *data = node->data;
        mica_graph_release(data->body[0]);
        mica_graph_release(data->body[1]);
    }
}

void mica_graph_release(mica_graph *graph)
{
    if (graph == NULL)
        return;
    for (uint32_t i = 0; i < graph->node_count; i++)
        release_data(&graph->node[i]);
    for (struct mica__graph_chunk *chunk = graph->chunks; chunk != NULL;) {
        struct mica__graph_chunk *next = chunk->next;
        mica__free(chunk);
        chunk = next;
    }
    void *const lists[] = {graph->node,         graph->tensor,        graph->list,   graph->text,
                           graph->leaves.list,  graph->leaves.table,  graph->inputs, graph->parameters,
                           graph->outputs.list, graph->outputs.table, graph->symbol, graph->symbols.list,
                           graph->symbols.table};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        mica__free(lists[i]);
    mica__free(graph);
}

mica_status mica_graph_label(mica_graph *graph, const char *text)
{
    if (!mica__graph_begins(graph, "label"))
        return mica_graph_status(graph);
    if (strcmp(graph->text + graph->label, text != NULL ? text : "") == 0)
        return MICA_OK;
    const uint32_t at = mica__graph_text(graph, text);
    if (at != UINT32_MAX)
        graph->label = at;
    return graph->status;
}

mica_status mica_graph_place(mica_graph *graph, uint32_t place)
{
    if (!mica__graph_begins(graph, "place"))
        return graph == NULL ? MICA_ERR_INVALID_ARGUMENT : mica_graph_status(graph);
    if (place >= MICA_GRAPH_PLACES)
        (void)mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "place", "place is %u, but there are %u",
                               place, MICA_GRAPH_PLACES);
    else
        graph->place = (uint8_t)place;
    return graph->status;
}

/* ---- names ---- */

static uint32_t slot_of(const mica_graph *graph, const mica__names *names, const char *name)
{
    uint32_t slot = (uint32_t)mica__hash_bytes(name, strlen(name), graph->seed) & (names->slots - 1);
    while (names->table[slot] != 0 &&
           strcmp(graph->text + names->list[names->table[slot] - 1].name, name) != 0)
        slot = (slot + 1) & (names->slots - 1);
    return slot;
}

mica_tensor mica__names_find(const mica_graph *graph, const mica__names *names, const char *name)
{
    if (names->slots == 0)
        return 0;
    const uint32_t slot = slot_of(graph, names, name);
    return names->table[slot] == 0 ? 0 : names->list[names->table[slot] - 1].tensor;
}

static bool grow_table(mica_graph *graph, mica__names *names)
{
    const uint32_t slots = names->slots == 0 ? 64 : names->slots * 2;
    uint32_t *table = mica__calloc(slots, sizeof *table);
    if (table == NULL)
        return no_memory(graph);
    mica__free(names->table);
    names->table = table;
    names->slots = slots;
    for (uint32_t i = 0; i < names->count; i++)
        table[slot_of(graph, names, graph->text + names->list[i].name)] = i + 1;
    return true;
}

static bool add_name(mica_graph *graph, mica__names *names, uint32_t name, mica_tensor tensor)
{
    void *list = names->list;
    const bool fits = room(graph, &list, names->count, 1, &names->capacity, sizeof *names->list);
    names->list = list;
    if (!fits || ((names->count + 1) * 2 > names->slots && !grow_table(graph, names)))
        return false;
    names->list[names->count] = (mica__named){.name = name, .tensor = tensor};
    const uint32_t slot = slot_of(graph, names, graph->text + name);
    names->table[slot] = ++names->count;
    return true;
}

/* A name that may be given: UINT32_MAX where not. */
static uint32_t take_name(mica_graph *graph, const char *call, const mica__names *names, const char *name)
{
    if (name == NULL || *name == 0) {
        (void)mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, call, "name is %s",
                               name == NULL ? "NULL" : "empty");
        return UINT32_MAX;
    }
    if (mica__names_find(graph, names, name) != 0) {
        (void)mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, call, "the graph has a '%s' already", name);
        return UINT32_MAX;
    }
    return mica__graph_text(graph, name);
}

/* ---- symbols ---- */

uint64_t mica_graph_symbol(mica_graph *graph, const char *name)
{
    if (!mica__graph_begins(graph, "symbol"))
        return MICA_SIZE_UNKNOWN;
    if (name == NULL || *name == 0) {
        (void)mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "symbol", "name is %s",
                               name == NULL ? "NULL" : "empty");
        return MICA_SIZE_UNKNOWN;
    }
    const mica_tensor found = mica__names_find(graph, &graph->symbols, name); /* its number */
    if (found != 0)
        return MICA_SIZE_UNKNOWN + found;
    void *list = graph->symbol;
    const bool fits =
        room(graph, &list, graph->symbol_count, 1, &graph->symbol_capacity, sizeof *graph->symbol);
    graph->symbol = list;
    const uint32_t at = fits ? mica__graph_text(graph, name) : UINT32_MAX;
    if (at == UINT32_MAX)
        return MICA_SIZE_UNKNOWN;
    if (!add_name(graph, &graph->symbols, at, graph->symbol_count + 1))
        return MICA_SIZE_UNKNOWN;
    graph->symbol[graph->symbol_count++] = at;
    return MICA_SIZE_UNKNOWN + graph->symbol_count;
}

const char *mica_graph_symbol_name(const mica_graph *graph, uint64_t size)
{
    if (graph == NULL || mica__size_known(size))
        return NULL;
    const uint64_t i = size - MICA_SIZE_UNKNOWN - 1;
    return size != MICA_SIZE_UNKNOWN && i < graph->symbol_count ? graph->text + graph->symbol[i] : "?";
}

/* ---- nodes ---- */

static bool make_room(mica_graph *graph, uint32_t ids, uint32_t outputs)
{
    void *node = graph->node, *tensor = graph->tensor, *list = graph->list;
    const bool fits =
        room(graph, &node, graph->node_count, 1, &graph->node_capacity, sizeof *graph->node) &&
        room(graph, &tensor, graph->tensor_count, outputs, &graph->tensor_capacity, sizeof *graph->tensor) &&
        room(graph, &list, graph->list_count, ids, &graph->list_capacity, sizeof *graph->list);
    graph->node = node;
    graph->tensor = tensor;
    graph->list = list;
    return fits;
}

/* Whether a type is one that a tensor may have: no computed size goes beyond what can be counted. */
static bool is_countable(const mica_graph *graph, const mica__type *type)
{
    uint64_t elements = 1;
    bool fits = type->ndim <= MICA_MAX_DIMS;
    for (uint32_t d = 0; d < type->ndim && fits; d++) {
        const uint64_t size = type->shape[d];
        if (mica__size_known(size)) {
            fits = size == 0 || elements <= (1ull << 56) / size;
            elements *= size == 0 ? 1 : size;
        } else {
            fits = size <= MICA_SIZE_UNKNOWN + graph->symbol_count;
        }
    }
    return fits;
}

mica_tensor mica__graph_add_node(mica_graph *graph, mica_node_kind kind, uint32_t code,
                                 const mica_tensor *inputs, uint32_t input_count, const mica__type *types,
                                 uint32_t output_count, const void *data, uint32_t data_bytes)
{
    if (input_count > MICA_GRAPH_INPUTS || output_count > MICA_GRAPH_INPUTS)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "node", "%u inputs, over %u",
                                input_count > output_count ? input_count : output_count, MICA_GRAPH_INPUTS);
    for (uint32_t i = 0; i < output_count; i++)
        if (types[i].dtype != MICA_DTYPE_NONE && !is_countable(graph, &types[i]))
            return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "node",
                                    "output %u would have over 2^56 elements, or a size that is no symbol",
                                    i);
    void *copy = data_bytes == 0 ? NULL : mica__graph_memory(graph, data_bytes);
    if (!make_room(graph, input_count + output_count, output_count) || (data_bytes != 0 && copy == NULL))
        return 0;
    if (data_bytes != 0)
        memcpy(copy, data, data_bytes);
    mica_tensor first = 0;
    mica__node *node = &graph->node[graph->node_count];
    *node = (mica__node){.kind = (uint8_t)kind,
                         .code = (uint16_t)code,
                         .input_count = (uint16_t)input_count,
                         .output_count = (uint16_t)output_count,
                         .inputs = graph->list_count,
                         .outputs = graph->list_count + input_count,
                         .label = graph->label,
                         .round = graph->round,
                         .place = graph->place,
                         .data_bytes = data_bytes,
                         .data = copy};
    if (input_count != 0)
        memcpy(graph->list + node->inputs, inputs, input_count * sizeof *inputs);
    for (uint32_t i = 0; i < output_count; i++) {
        const bool wanted = types[i].dtype != MICA_DTYPE_NONE;
        graph->list[node->outputs + i] = wanted ? graph->tensor_count : 0;
        if (!wanted)
            continue;
        if (first == 0)
            first = graph->tensor_count;
        graph->tensor[graph->tensor_count++] =
            (mica__tensor){.type = types[i], .node = graph->node_count, .output = i};
    }
    graph->list_count += input_count + output_count;
    graph->node_count++;
    return first;
}

/* ---- leaves ---- */

static bool takes_shape(mica_graph *graph, const char *call, mica_dtype dtype, uint32_t ndim,
                        const uint64_t *shape)
{
    uint64_t elements = 1;
    if (dtype <= MICA_DTYPE_NONE || dtype >= MICA_DTYPE_COUNT)
        (void)mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, call, "dtype is %d", (int)dtype);
    else if (ndim > MICA_MAX_DIMS)
        (void)mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, call, "ndim is %u, over %u", ndim,
                               MICA_MAX_DIMS);
    else if (ndim != 0 && shape == NULL)
        (void)mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, call, "shape is NULL");
    for (uint32_t d = 0; d < ndim && graph->status == MICA_OK; d++) {
        const uint64_t size = shape[d];
        if (mica__size_known(size) && size > (1ull << 48))
            (void)mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, call, "shape[%u] is over 2^48", d);
        else if (size > MICA_SIZE_UNKNOWN + graph->symbol_count)
            (void)mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, call,
                                   "shape[%u] is a symbol that the graph does not have", d);
        else if (mica__size_known(size) && size != 0 && elements > (1ull << 56) / size)
            (void)mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, call,
                                   "the shape has over 2^56 elements");
        else if (mica__size_known(size) && size != 0)
            elements *= size;
    }
    const uint32_t block = graph->status == MICA_OK ? mica_dtype_block_elements(dtype) : 1;
    if (block > 1 && (ndim == 0 || !mica__size_known(shape[ndim - 1]) || shape[ndim - 1] % block != 0))
        (void)mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, call,
                               "the last dimension of %s must be a multiple of %u", mica_dtype_name(dtype),
                               block);
    return graph->status == MICA_OK;
}

static mica_tensor add_leaf(mica_graph *graph, const char *call, mica_node_kind kind, const char *name,
                            const mica__type *type)
{
    const uint32_t at = take_name(graph, call, &graph->leaves, name);
    if (at == UINT32_MAX)
        return 0;
    const bool input = kind == MICA_NODE_INPUT;
    void *list = input ? graph->inputs : graph->parameters;
    uint32_t *count = input ? &graph->input_count : &graph->parameter_count;
    const bool fits = room(graph, &list, *count, 1,
                           input ? &graph->input_capacity : &graph->parameter_capacity, sizeof(mica_tensor));
    if (input)
        graph->inputs = list;
    else
        graph->parameters = list;
    const mica__leaf_data data = {.name = at, .index = *count};
    const mica_tensor leaf =
        fits ? mica__graph_add_node(graph, kind, 0, NULL, 0, type, 1, &data, sizeof data) : 0;
    if (leaf == 0 || !add_name(graph, &graph->leaves, at, leaf))
        return 0;
    ((mica_tensor *)list)[(*count)++] = leaf;
    return leaf;
}

static mica__type type_of(mica_dtype dtype, uint32_t ndim, const uint64_t *shape)
{
    mica__type type = {.dtype = dtype, .ndim = ndim};
    if (ndim != 0)
        memcpy(type.shape, shape, ndim * sizeof *shape);
    return type;
}

mica_tensor mica_graph_input(mica_graph *graph, const char *name, mica_dtype dtype, uint32_t ndim,
                             const uint64_t *shape)
{
    if (!mica__graph_begins(graph, "input") || !takes_shape(graph, "input", dtype, ndim, shape))
        return 0;
    if (mica_dtype_block_elements(dtype) != 1)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "input", "%s is %s: blocks are parameters",
                                name != NULL ? name : "it", mica_dtype_name(dtype));
    const mica__type type = type_of(dtype, ndim, shape);
    return add_leaf(graph, "input", MICA_NODE_INPUT, name, &type);
}

mica_tensor mica_graph_parameter_scaled(mica_graph *graph, const char *name, mica_dtype dtype, uint32_t ndim,
                                        const uint64_t *shape, uint32_t group_size, mica_dtype scale_dtype)
{
    if (!mica__graph_begins(graph, "parameter") || !takes_shape(graph, "parameter", dtype, ndim, shape))
        return 0;
    mica__type type = type_of(dtype, ndim, shape);
    for (uint32_t d = 0; d < ndim; d++)
        if (!mica__size_known(shape[d]))
            return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "parameter",
                                    "shape[%u] of '%s' must be a number", d, name != NULL ? name : "");
    if ((group_size != 0) != (scale_dtype != MICA_DTYPE_NONE) || scale_dtype < 0 ||
        scale_dtype >= MICA_DTYPE_COUNT)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "parameter",
                                "group_size is %u and scale_dtype %d", group_size, (int)scale_dtype);
    type.group_size = group_size;
    type.scale_dtype = scale_dtype;
    return add_leaf(graph, "parameter", MICA_NODE_PARAMETER, name, &type);
}

mica_tensor mica_graph_parameter(mica_graph *graph, const char *name, mica_dtype dtype, uint32_t ndim,
                                 const uint64_t *shape)
{
    return mica_graph_parameter_scaled(graph, name, dtype, ndim, shape, 0, MICA_DTYPE_NONE);
}

mica_tensor mica__graph_constant_blob(mica_graph *graph, const mica__type *type, mica__blob *blob)
{
    const mica__constant_data data = {.blob = blob};
    const mica_tensor tensor =
        mica__graph_add_node(graph, MICA_NODE_CONSTANT, 0, NULL, 0, type, 1, &data, sizeof data);
    if (tensor == 0)
        mica__blob_release(blob);
    return tensor;
}

mica_tensor mica_graph_constant(mica_graph *graph, mica_dtype dtype, uint32_t ndim, const uint64_t *shape,
                                const void *data, uint64_t bytes)
{
    if (!mica__graph_begins(graph, "constant") || !takes_shape(graph, "constant", dtype, ndim, shape))
        return 0;
    const mica__type type = type_of(dtype, ndim, shape);
    for (uint32_t d = 0; d < ndim; d++)
        if (!mica__size_known(shape[d]))
            return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "constant",
                                    "shape[%u] must be a number", d);
    if (bytes != mica__type_bytes(&type) || (data == NULL && bytes != 0))
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "constant",
                                "%llu bytes%s, but the shape takes %llu", (unsigned long long)bytes,
                                data == NULL ? " at NULL" : "", (unsigned long long)mica__type_bytes(&type));
    mica__blob *blob = mica__blob_create(data, bytes);
    if (blob == NULL)
        return mica__graph_fail(graph, MICA_ERR_OUT_OF_MEMORY, "constant", "no memory for %llu bytes",
                                (unsigned long long)bytes);
    return mica__graph_constant_blob(graph, &type, blob);
}

mica_tensor mica_graph_output(mica_graph *graph, const char *name, mica_tensor tensor)
{
    if (!mica__graph_begins(graph, "output") || mica__graph_takes(graph, "output", "tensor", tensor) == NULL)
        return 0;
    const uint32_t at = take_name(graph, "output", &graph->outputs, name);
    return at != UINT32_MAX && add_name(graph, &graph->outputs, at, tensor) ? tensor : 0;
}

uint32_t mica__graph_output_of(const mica_graph *graph, const char *name)
{
    const mica__names *names = &graph->outputs;
    return name == NULL || names->slots == 0 ? UINT32_MAX : names->table[slot_of(graph, names, name)] - 1;
}

mica_status mica_graph_output_rows(mica_graph *graph, const char *name, uint32_t axis, const char *count)
{
    if (!mica__graph_begins(graph, "output_rows"))
        return graph == NULL ? MICA_ERR_INVALID_ARGUMENT : mica_graph_status(graph);
    const uint32_t output = mica__graph_output_of(graph, name), counted = mica__graph_output_of(graph, count);
    if (output == UINT32_MAX || counted == UINT32_MAX || output == counted) {
        (void)mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "output_rows", "%s '%s' is no %soutput",
                               output == UINT32_MAX ? "name" : "count",
                               output != UINT32_MAX ? (count != NULL ? count : "(NULL)")
                               : name != NULL       ? name
                                                    : "(NULL)",
                               output == UINT32_MAX || counted == UINT32_MAX ? "" : "other ");
        return graph->status;
    }
    mica__named *named = &graph->outputs.list[output];
    const mica__type *type = mica__type_of(graph, named->tensor),
                     *number = mica__type_of(graph, graph->outputs.list[counted].tensor);
    const uint64_t elements = mica__type_elements(number);
    if (axis >= type->ndim || mica_dtype_block_elements(type->dtype) != 1 || named->rows != 0)
        (void)mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "output_rows",
                               "axis is %u of the %u dimensions of '%s'%s", axis, type->ndim, name,
                               named->rows != 0 ? ", which is counted already" : "");
    else if ((number->dtype != MICA_DTYPE_I32 && number->dtype != MICA_DTYPE_I64) ||
             (elements != 1 && elements != MICA_SIZE_UNKNOWN))
        (void)mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "output_rows",
                               "count '%s' is not one i32 or i64", count);
    else {
        named->rows = counted + 1;
        named->axis = axis;
    }
    return graph->status;
}

/* ---- facts ---- */

mica_status mica_graph_get_tensor(const mica_graph *graph, mica_tensor tensor, mica_graph_tensor_info *out)
{
    if (out != NULL)
        memset(out, 0, sizeof *out);
    if (graph == NULL || out == NULL || tensor == 0 || tensor >= graph->tensor_count)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "graph_get_tensor: %s",
                          graph == NULL ? "graph is NULL"
                          : out == NULL ? "out is NULL"
                                        : "the graph has no such tensor");
    const mica__tensor *t = &graph->tensor[tensor];
    *out = (mica_graph_tensor_info){.dtype = t->type.dtype,
                                    .ndim = t->type.ndim,
                                    .group_size = t->type.group_size,
                                    .scale_dtype = t->type.scale_dtype,
                                    .node = t->node,
                                    .output = t->output};
    memcpy(out->shape, t->type.shape, sizeof out->shape);
    return MICA_OK;
}

mica_status mica_graph_get_node(const mica_graph *graph, uint32_t node, mica_graph_node_info *out)
{
    if (out != NULL)
        memset(out, 0, sizeof *out);
    if (graph == NULL || out == NULL || node >= graph->node_count)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "graph_get_node: %s",
                          graph == NULL ? "graph is NULL"
                          : out == NULL ? "out is NULL"
                                        : "the graph has no such node");
    const mica__node *n = &graph->node[node];
    const bool leaf = n->kind == MICA_NODE_INPUT || n->kind == MICA_NODE_PARAMETER;
    *out = (mica_graph_node_info){.kind = (mica_node_kind)n->kind,
                                  .code = n->code,
                                  .input_count = n->input_count,
                                  .output_count = n->output_count,
                                  .inputs = mica__node_inputs(graph, n),
                                  .outputs = mica__node_outputs(graph, n),
                                  .name = graph->text + (leaf ? ((mica__leaf_data *)n->data)->name : 0),
                                  .label = graph->text + n->label,
                                  .place = n->place};
    return MICA_OK;
}

uint32_t mica_graph_node_count(const mica_graph *graph)
{
    return graph == NULL ? 0 : graph->node_count;
}
uint32_t mica_graph_input_count(const mica_graph *graph)
{
    return graph == NULL ? 0 : graph->input_count;
}
uint32_t mica_graph_parameter_count(const mica_graph *graph)
{
    return graph == NULL ? 0 : graph->parameter_count;
}
uint32_t mica_graph_output_count(const mica_graph *graph)
{
    return graph == NULL ? 0 : graph->outputs.count;
}

static mica_tensor get_leaf(const mica_graph *graph, mica_tensor tensor, const char **out_name)
{
    if (out_name != NULL)
        *out_name = tensor == 0
                        ? NULL
                        : graph->text + ((const mica__leaf_data *)mica__node_of(graph, tensor)->data)->name;
    return tensor;
}

mica_tensor mica_graph_get_input(const mica_graph *graph, uint32_t i, const char **out_name)
{
    return get_leaf(graph, graph != NULL && i < graph->input_count ? graph->inputs[i] : 0, out_name);
}

mica_tensor mica_graph_get_parameter(const mica_graph *graph, uint32_t i, const char **out_name)
{
    return get_leaf(graph, graph != NULL && i < graph->parameter_count ? graph->parameters[i] : 0, out_name);
}

mica_tensor mica_graph_get_output(const mica_graph *graph, uint32_t i, const char **out_name)
{
    const bool is = graph != NULL && i < graph->outputs.count;
    if (out_name != NULL)
        *out_name = is ? graph->text + graph->outputs.list[i].name : NULL;
    return is ? graph->outputs.list[i].tensor : 0;
}

const char *mica_graph_get_output_rows(const mica_graph *graph, uint32_t i, uint32_t *out_axis)
{
    const bool is = graph != NULL && i < graph->outputs.count && graph->outputs.list[i].rows != 0;
    if (out_axis != NULL)
        *out_axis = is ? graph->outputs.list[i].axis : 0;
    return is ? graph->text + graph->outputs.list[graph->outputs.list[i].rows - 1].name : NULL;
}

mica_tensor mica_graph_find(const mica_graph *graph, const char *name)
{
    if (graph == NULL || name == NULL)
        return 0;
    const mica_tensor leaf = mica__names_find(graph, &graph->leaves, name);
    return leaf != 0 ? leaf : mica__names_find(graph, &graph->outputs, name);
}
