/*
 * body.h - sub-graphs of ONNX nodes: a graph of its own, a scope that sees the names around it, and what it captures of them.
 */
#ifndef MICA_GRAPH_ONNX_BODY_H
#define MICA_GRAPH_ONNX_BODY_H

#include "graph/onnx/importer.h"

/* Tensors of the graph around that bodies use, which come in as inputs. Constants that are known and small are made anew inside. */
typedef struct mica__ox_captures {
    const char **name;
    mica_tensor *tensor; /* of the graph around */
    uint32_t count, capacity;
} mica__ox_captures;

/* Adds what a body, and those inside of it, take of the scope of `o`. */
mica_status mica__ox_capture(mica__ox_op *o, const mica__onnx_graph *body, mica__ox_captures *all);

typedef struct mica__ox_body_graph {
    mica_graph *graph;
    mica__ox_scope scope;
    uint32_t outputs;
} mica__ox_body_graph;

mica_status mica__ox_body_begin(mica__ox_op *o, mica__ox_body_graph *body);
void mica__ox_body_end(mica__ox_body_graph *body);
/* An input like `type`, without its first `drop` dimensions. Sizes that are symbols of the graph around are not known inside. */
mica_tensor mica__ox_body_input(mica__ox_body_graph *body, const mica__type *type, uint32_t drop);
/* Inputs for all captures, under their names. */
mica_status mica__ox_body_captures(mica__ox_op *o, mica__ox_body_graph *body, const mica__ox_captures *all);
void mica__ox_body_output(mica__ox_body_graph *body, mica_tensor tensor);
/* The value that a body gives under a name. */
mica_status mica__ox_body_result(const mica__ox_op *o, mica__ox_scope *scope, const char *name,
                                 mica__ox_value *out);
const mica__onnx_graph *mica__ox_body_attribute(mica__ox_op *o, const char *name);

#endif
