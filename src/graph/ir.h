/*
 * ir.h - the graph as this room has it: nodes in the order in which they were added, tensors by number, and the one way to add a node.
 *
 * Passes, derivatives and importers do not change nodes: they add to a graph, or write another one with mica__graph_again. Knows no device.
 */
#ifndef MICA_GRAPH_IR_H
#define MICA_GRAPH_IR_H

#include <stdatomic.h>
#include <stdbool.h>

#include "backend/op_table.h"
#include "backend/region.h"
#include "base/status.h"
#include "mica/graph.h"

/* Type and shape of a tensor. Sizes are numbers, symbols of the graph or MICA_SIZE_UNKNOWN. */
typedef struct mica__type {
    mica_dtype dtype;
    uint32_t ndim;
    uint64_t shape[MICA_MAX_DIMS];
    uint32_t group_size; /* weights with tables of scales; else 0 */
    mica_dtype scale_dtype;
} mica__type;

/* Bytes of a constant; shared by clones, never written. */
typedef struct mica__blob {
    atomic_uint uses;
    uint64_t bytes;
    void (*free)(void *context); /* NULL: the bytes follow this struct */
    void *context;
    const void *data;
} mica__blob;

typedef struct mica__node {
    uint8_t kind;  /* mica_node_kind */
    uint8_t place; /* where it runs (mica_graph_place) */
    uint16_t code; /* mica_scalar, mica_op */
    uint16_t
        round; /* equal nodes of different rounds are never one: what a checkpoint computes again is not what it computed first */
    uint16_t input_count, output_count;
    uint32_t inputs, outputs; /* where they begin in graph->list */
    uint32_t label;           /* in graph->text */
    uint32_t data_bytes;
    void *data; /* attributes: a struct below, or parameters of the op; of the graph's chunks */
} mica__node;

typedef struct mica__tensor {
    mica__type type;
    uint32_t node, output;
} mica__tensor;

typedef struct mica__named {
    uint32_t name; /* in graph->text */
    mica_tensor tensor;
    uint32_t rows,
        axis; /* of an output: the number of that which counts its places along `axis`, + 1; 0: none */
} mica__named;

typedef struct mica__names { /* a list, and a table that finds them: places in the list + 1, 0 free */
    mica__named *list;
    uint32_t *table;
    uint32_t count, capacity, slots;
} mica__names;

struct mica__graph_chunk;

struct mica_graph {
    mica__node *node;
    mica__tensor *tensor; /* [0] is none */
    mica_tensor *list;    /* inputs and outputs of all nodes */
    char *text;           /* names and labels, each with its end; [0] is "" */
    uint32_t node_count, node_capacity, tensor_count, tensor_capacity, list_count, list_capacity;
    uint32_t text_bytes, text_capacity;
    mica__names leaves; /* inputs and parameters */
    mica__names outputs;
    mica_tensor *inputs, *parameters; /* of `leaves`, by kind */
    uint32_t input_count, input_capacity, parameter_count, parameter_capacity;
    uint32_t *symbol;    /* names in text */
    mica__names symbols; /* the same by name; their tensors are numbers from 1 on */
    uint64_t seed;       /* of tables of names, which come from files */
    uint32_t symbol_count, symbol_capacity;
    uint32_t label; /* of nodes to come */
    uint16_t round; /* likewise; 0 but where something is computed again */
    uint8_t place;  /* likewise */
    struct mica__graph_chunk *chunks;
    mica_status status; /* the first failure */
    char sentence[512];
};

/* ---- attributes of nodes, by kind ---- */

typedef struct mica__leaf_data { /* INPUT, PARAMETER */
    uint32_t name, index;        /* index: among the inputs, or the parameters */
} mica__leaf_data;
typedef struct mica__constant_data {
    mica__blob *blob;
} mica__constant_data;
typedef struct mica__permute_data {
    uint32_t order[MICA_MAX_DIMS];
} mica__permute_data;
typedef struct mica__shape_data { /* RESHAPE, EXPAND, INDEX: as it was asked for */
    uint32_t ndim, axis;
    uint64_t shape[MICA_MAX_DIMS];
} mica__shape_data;
typedef struct mica__slice_data {
    uint32_t axis;
    uint64_t start, count;
    int64_t step;
} mica__slice_data;
typedef struct mica__concat_data {
    uint32_t axis;
} mica__concat_data;
typedef struct mica__op_data { /* then asked[output_count], then the op's parameters */
    uint32_t wanted, params_bytes;
    mica_operand_desc asked[];
} mica__op_data;
typedef struct mica__body_data { /* CALL, IF, WHILE, SCAN */
    mica_graph *body[2];         /* owned: body and gradient; then, else; condition, body; body */
    uint64_t most;               /* WHILE */
    uint32_t carried, flags;     /* WHILE; CALL */
    mica_scan_desc scan;
} mica__body_data;
/* REGION: mica__region_program and its steps. */

static inline const mica__node *mica__node_at(const mica_graph *graph, uint32_t node)
{
    return &graph->node[node];
}
static inline const mica_tensor *mica__node_inputs(const mica_graph *graph, const mica__node *node)
{
    return graph->list + node->inputs;
}
static inline const mica_tensor *mica__node_outputs(const mica_graph *graph, const mica__node *node)
{
    return graph->list + node->outputs;
}
static inline const mica__type *mica__type_of(const mica_graph *graph, mica_tensor tensor)
{
    return &graph->tensor[tensor].type;
}
static inline const mica__node *mica__node_of(const mica_graph *graph, mica_tensor tensor)
{
    return &graph->node[graph->tensor[tensor].node];
}
static inline const void *mica__op_params(const mica__node *node)
{
    const mica__op_data *data = node->data;
    return data->params_bytes == 0 ? NULL : (const void *)&data->asked[node->output_count];
}
/* Whether a node is the copy of a value of another place (mica__graph_cross). */
static inline bool mica__crosses(const mica_graph *graph, const mica__node *node)
{
    return node->kind == MICA_NODE_OP && node->code == MICA_OP_COPY &&
           mica__node_of(graph, *mica__node_inputs(graph, node))->place != node->place;
}
/* "conv", "add", "reshape": of a node, for sentences and prints. */
const char *mica__node_name(const mica__node *node);
/* What a node of a kind is called where the kind says it all; "" for ops and scalars. No two nodes that differ have one name. */
const char *mica__kind_name(mica_node_kind kind);

/* ---- adding ---- */

/* Keeps the first failure, with the name of the call and the label before it; gives 0. */
mica_tensor mica__graph_fail(mica_graph *graph, mica_status code, const char *call, const char *format, ...)
    MICA__PRINTF(4, 5) MICA__COLD;
/* Whether a call may go on: a graph, without a failure. */
bool mica__graph_begins(mica_graph *graph, const char *call);
/* The type of an operand of a call; NULL and a failure where the graph has no such tensor. */
const mica__type *mica__graph_takes(mica_graph *graph, const char *call, const char *argument,
                                    mica_tensor tensor);
/* Adds a node whose types are checked: `types[i]` of output i; dtype NONE: it is not wanted, and its tensor 0. `data` is copied. The node's outputs are in its list; returns the first
 * that is wanted. 0: no memory, and the graph has failed. */
mica_tensor mica__graph_add_node(mica_graph *graph, mica_node_kind kind, uint32_t code,
                                 const mica_tensor *inputs, uint32_t input_count, const mica__type *types,
                                 uint32_t output_count, const void *data, uint32_t data_bytes);
/* Memory of the graph. NULL: it has failed. */
void *mica__graph_memory(mica_graph *graph, size_t bytes);
/* A text of the graph: where it begins. UINT32_MAX: it has failed. */
uint32_t mica__graph_text(mica_graph *graph, const char *text);
/* The tensor of a name; 0. */
mica_tensor mica__names_find(const mica_graph *graph, const mica__names *names, const char *name);
/* The output of a name, by number; UINT32_MAX. */
uint32_t mica__graph_output_of(const mica_graph *graph, const char *name);
/* A constant of bytes that are shared, not copied; takes over one use of the blob in any case. */
mica_tensor mica__graph_constant_blob(mica_graph *graph, const mica__type *type, mica__blob *blob);
mica__blob *mica__blob_create(const void *data, uint64_t bytes); /* a copy, or zeros; NULL: no memory */
void mica__blob_release(mica__blob *blob);
/* A sub-graph's node over bodies that the graph takes over in any case (NULL where the caller failed to copy them). */
mica_tensor mica__graph_body_node(mica_graph *graph, mica_node_kind kind, mica__body_data *data,
                                  const mica_tensor *inputs, uint32_t input_count, mica_tensor *outputs,
                                  uint32_t output_count);

/* ---- writing a graph again ---- */

typedef struct mica__rewrite {
    const mica_graph *from;
    mica_graph *to;
    mica_tensor *map;         /* of from's tensors: those in `to`; 0: not there */
    const uint64_t *binding;  /* what from's symbols become, MICA_SIZE_UNKNOWN: they stay; NULL: all stay */
    const mica__type *inputs; /* types of from's inputs in the new graph; NULL: as they are */
    uint16_t round_base;      /* is added to the rounds of nodes that have one */
    uint32_t label, label_of; /* of `to`, the last that was taken from label `label_of` of `from` */
    bool placed;              /* nodes get `place`, not their own */
    uint8_t place;
} mica__rewrite;

/* Gives nodes to come in `to` label, round and place of a node of `from`; one without them leaves those that are there. */
void mica__rewrite_mark(mica__rewrite *rewrite, const mica__node *node);

/* Adds node `node` of `from` to `to`, over inputs that `map` has, and puts its outputs there. Inputs and parameters become ones of the same name, constants share their
 * bytes. False: `to` has failed. */
bool mica__graph_again(mica__rewrite *rewrite, uint32_t node);
/* A size of `from` as `to` has it. */
uint64_t mica__rewrite_size(mica__rewrite *rewrite, uint64_t size);
/* All nodes, and the outputs. */
mica_status mica__graph_again_all(mica__rewrite *rewrite);
mica_status mica__rewrite_begin(mica__rewrite *rewrite, const mica_graph *from, const uint64_t *binding);
/* Ends it: gives the new graph, or its failure. */
mica_status mica__rewrite_end(mica__rewrite *rewrite, mica_graph **out_graph);

/* The nodes of `body` added to `to`, over `inputs`; `outputs` gets one tensor for each of its outputs. False: `to` has failed. */
bool mica__graph_inline(mica_graph *to, const mica_graph *body, const mica_tensor *inputs,
                        mica_tensor *outputs);
/* The graph for inputs of such types: of known sizes, without calls; control takes no views. */
mica_status mica__graph_concrete(const mica_graph *from, const mica__type *inputs, mica_graph **out_graph);
/* The same; `begins`, of one more than from's nodes, gets where the nodes begin that each of them became. */
mica_status mica__graph_concrete_nodes(const mica_graph *from, const mica__type *inputs, uint32_t *begins,
                                       mica_graph **out_graph);
/* What a body's symbols become where its inputs have such types; UNKNOWN where nothing says it. False: they do not fit. */
bool mica__graph_bind(const mica_graph *body, const mica__type *inputs, uint64_t *out_sizes);

/* ---- shapes ---- */

/* The shape that two broadcast to; false where they do not. */
bool mica__broadcast(uint32_t *ndim, uint64_t *shape, uint32_t other_ndim, const uint64_t *other);
/* As an operand that need not exist. */
mica_operand_desc mica__type_desc(const mica__type *type);
/* Number of elements; MICA_SIZE_UNKNOWN where a size is not known. Shapes of tensors never overflow. */
uint64_t mica__type_elements(const mica__type *type);
/* Bytes of contiguous elements of known sizes. */
uint64_t mica__type_bytes(const mica__type *type);
/* "[batch, 784]". */
const char *mica__shape_words(const mica_graph *graph, uint32_t ndim, const uint64_t *shape, char out[160]);
/* The operands of an op's node in the table's order; what is updated is one operand, of both values. Returns their number: at most its inputs and outputs. */
uint32_t mica__op_operands(const mica_graph *graph, const mica__node *node, mica_operand_desc *operand);
/* How many tensors an op takes and gives. */
typedef struct mica__op_arity {
    uint32_t inputs, outputs, groups;
} mica__op_arity;
/* Of so many groups. */
mica__op_arity mica__op_count(mica_op op, uint32_t groups);

#endif
