/*
 * graph_ops.h - a node, or a few, for each family of ops (ops.h and its ops_*.h say what each op computes). As graph.h says of all functions that add.
 *
 * Axes count from the first dimension; those below 0 from the last: -1 is the last.
 */
#ifndef MICA_GRAPH_OPS_H
#define MICA_GRAPH_OPS_H

#include "mica/graph.h"
#include "mica/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- products ---- */

/* a [.., M, K] times b [.., K, N], leading dimensions broadcast; a vector is a row on the left and a column on the right, as numpy.matmul has it. */
MICA_API mica_tensor mica_graph_matmul(mica_graph *graph, mica_tensor a, mica_tensor b);
/* x [.., K] times weight [N, K] turned, plus bias [N] or 0: weights of every type (mica_matmul). */
MICA_API mica_tensor mica_graph_linear(mica_graph *graph, mica_tensor x, mica_tensor weight,
                                       mica_tensor bias);

/* ---- reductions ---- */

/* Over `count` axes (0: all); `keep` 1: they stay with size 1. Var takes the correction 0. */
MICA_API mica_tensor mica_graph_reduce(mica_graph *graph, mica_reduce_kind kind, mica_tensor x,
                                       const int32_t *axes, uint32_t count, uint32_t keep);

#ifdef __cplusplus
}
#endif
#endif
