/* ops_heads.h - tensors of heads, wherever their sequences, tokens and heads stand. */
#ifndef MICA_GRAPH_OPS_HEADS_H
#define MICA_GRAPH_OPS_HEADS_H

#include "graph/ops_build.h"

typedef struct mica__heads {
    mica_tensor tensor;
    mica_head_layout layout;
    mica_dtype dtype;
    uint64_t batch, tokens, heads, dim; /* numbers or symbols */
} mica__heads;

/* `heads` is looked at where they stand together with their numbers. */
bool mica__heads_take(mica_graph *graph, const char *call, const char *argument, mica_tensor x,
                      mica_head_layout layout, uint64_t heads, mica__heads *out);

#endif
