/*
 * gradient.h - derivatives of graphs: reverse mode, as nodes that are added to the graph itself. So a gradient is a
 * value like any other: it can be printed, compiled, and differentiated again.
 *
 * Which op has which derivative is in docs/gradients.md; at kinks it is that of one of the sides (scalars.def). What
 * depends on integers, bools, comparisons and mica_graph_stop_gradient has none there. UNSUPPORTED names the node
 * that stands in the way and has no derivative. Failure as in graph.h: 0s, and the graph keeps the sentence.
 *
 * What has a first derivative has a second one; that of an op whose gradient is an op of its own goes through nodes,
 * which is slower, and needs sizes that are numbers. Elements that tie for a greatest or least one share what reaches
 * it in mica_reduce and mica_scatter; in running ones the last of them gets it, in pools the first. A loop without a
 * bound has no gradient; one of more than 256 rounds keeps what it carries for about the root of their number, and
 * computes the rest again.
 */
#ifndef MICA_GRADIENT_H
#define MICA_GRADIENT_H

#include "mica/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* out_gradients[i] = the derivative of `value`, times `seed` (of its shape and type; 0: ones), summed over its
 * elements, with respect to of[i], of whose type and shape it is; zeros where value does not depend on it. `of` are
 * any floats: inputs, parameters, inner values. */
MICA_API mica_status mica_graph_gradient(mica_graph *graph, mica_tensor value, mica_tensor seed,
                                         const mica_tensor *of, uint32_t count, mica_tensor *out_gradients);
/* Of several values at once, each with its seed. */
MICA_API mica_status mica_graph_gradients(mica_graph *graph, const mica_tensor *values,
                                          const mica_tensor *seeds, uint32_t value_count,
                                          const mica_tensor *of, uint32_t count, mica_tensor *out_gradients);
/* Forward mode: out[i] is what values[i] changes by, to first order, where of[j] changes by tangents[j] (of its type
 * and shape; 0: not at all). The tangents of gradients are a Hessian times a vector. Nodes whose gradient is not
 * differentiated again stand in the way: UNSUPPORTED names them. */
MICA_API mica_status mica_graph_jvp(mica_graph *graph, const mica_tensor *values, uint32_t value_count,
                                    const mica_tensor *of, const mica_tensor *tangents, uint32_t count,
                                    mica_tensor *out);

/* What `body` (graph.h: sub-graphs) gives of each slice, along a new first dimension, of the inputs i whose mapped[i]
 * is not 0, which are [n, ..]; the others are whole for every slice. outputs[j] is [n, ..] of output j, as many as
 * the body has; returns the first. Elementwise work, views, reductions, products, norms, softmax, picks, convolutions
 * and what else works row by row is written once for all slices; other nodes become a mica_graph_scan over them. */
MICA_API mica_tensor mica_graph_vmap(mica_graph *graph, const mica_graph *body, const uint8_t *mapped,
                                     const mica_tensor *inputs, uint32_t input_count, mica_tensor *outputs,
                                     uint32_t output_count);

#ifdef __cplusplus
}
#endif
#endif
