/*
 * match.h - what passes that recognise ops written out in small ones ask of the graph that they read. A match is complete or it is none: what lies within is used by nothing
 * else, so that nothing is computed twice, and no output of the graph is lost.
 */
#ifndef MICA_GRAPH_PASSES_MATCH_H
#define MICA_GRAPH_PASSES_MATCH_H

#include "graph/passes/passes.h"

/* The node that gives a tensor; NULL for none. */
static inline const mica__node *mica__match_node(const mica__walk *walk, mica_tensor tensor)
{
    return tensor == 0 ? NULL : mica__node_of(walk->rewrite.from, tensor);
}
static inline mica_tensor mica__match_input(const mica__walk *walk, const mica__node *node, uint32_t i)
{
    return i < node->input_count ? mica__node_inputs(walk->rewrite.from, node)[i] : 0;
}
/* Whether a node belongs to the place of the one that is visited: nodes of two places never become one. */
static inline bool mica__match_here(const mica__walk *walk, const mica__node *node)
{
    return node->place == walk->rewrite.to->place;
}
/* The node, where it is this scalar and used `uses` times. */
static inline const mica__node *mica__match_scalar(const mica__walk *walk, mica_tensor tensor,
                                                   mica_scalar scalar, uint32_t uses)
{
    const mica__node *node = mica__match_node(walk, tensor);
    return node != NULL && node->kind == MICA_NODE_SCALAR && node->code == (uint32_t)scalar &&
                   walk->uses[tensor] == uses && mica__match_here(walk, node)
               ? node
               : NULL;
}
static inline const mica__node *mica__match_op(const mica__walk *walk, mica_tensor tensor, mica_op op,
                                               uint32_t uses)
{
    const mica__node *node = mica__match_node(walk, tensor);
    return node != NULL && node->kind == MICA_NODE_OP && node->code == (uint32_t)op &&
                   walk->uses[tensor] == uses && mica__match_here(walk, node)
               ? node
               : NULL;
}
/* Of a node with two operands in any order: the other one, where one of them is this tensor; 0. */
mica_tensor mica__match_other(const mica__walk *walk, const mica__node *node, mica_tensor tensor);
/* The other one, where one of them is this number throughout, up to a part in 10^6; 0. */
mica_tensor mica__match_with(const mica__walk *walk, const mica__node *node, double number);
/* The other one, where one of them is a number throughout, which goes to `out`; 0. `ordered`: the second must be. */
mica_tensor mica__match_number(const mica__walk *walk, const mica__node *node, bool ordered, double *out);
/* Whether `tensor` is `x` reduced over its last dimension, which stays with size 1. */
bool mica__match_reduced(const mica__walk *walk, mica_tensor tensor, uint32_t kind, mica_tensor x,
                         uint32_t uses);
/* x^2, of any way to write it; x, or 0. */
mica_tensor mica__match_square(const mica__walk *walk, mica_tensor tensor, uint32_t uses);
/* f32, f16, bf16. */
bool mica__is_small_float(mica_dtype dtype);
/* A number as a parameter of an op; false where f32 does not have it. */
bool mica__as_f32(double number, float *out);
/* The type that the node's first output has; the shape follows. */
mica_operand_desc mica__match_asked(const mica__walk *walk, const mica__node *node);
/* x before a cast to f32 that f16 or bf16 loses nothing in: ops load it as such. Of the new graph. */
mica_tensor mica__match_bare(const mica__walk *walk, mica_tensor x);

#endif
