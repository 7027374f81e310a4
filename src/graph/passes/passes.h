/*
 * passes.h - what a graph becomes before it is compiled: a table of passes in order, each of which writes the graph again. They change how a result
 * is computed, never what it is called: inputs and outputs keep names, types and order; parameters that nobody needs are left out.
 *
 * A pass visits the nodes in order. It may add what it likes to the new graph and say which of its tensors stand for the node's outputs; what it leaves alone
 * is written again as it was. Knows no device, but for folding, which runs ops on the cpu.
 */
#ifndef MICA_GRAPH_PASSES_PASSES_H
#define MICA_GRAPH_PASSES_PASSES_H

#include "graph/ir.h"
#include "mica/executable.h"

typedef struct mica__pass_options {
    uint32_t flags; /* MICA_COMPILE_* */
    mica_graph_precision precision;
    mica_device *folds; /* of the cpu, for constants; NULL: one is opened where there are some to compute */
} mica__pass_options;

/* The graph behind all passes, owned by the caller; sub-graphs too. `options` may be NULL. The failure of a graph that failed. */
mica_status mica__graph_optimise(const mica_graph *from, const mica__pass_options *options,
                                 mica_graph **out_graph);

/* The graph with every value that one place takes of another as a copy of its own there, and everything in the place where it runs: the last that is done to a
 * graph. In it a copy whose operand lies at another place is what crosses (mica__crosses), and crosses once for each value and place; views lie where what they show
 * does, leaves where they are used, and 0 in a sub-graph has become a place. UNSUPPORTED names a node of a place from `count` on. */
mica_status mica__graph_cross(const mica_graph *from, uint32_t count, mica_graph **out_graph);
/* Whether any node, of sub-graphs too, is of another place than 0. */
bool mica__graph_is_placed(const mica_graph *graph);

/* ---- for passes ---- */

typedef enum mica__visit {
    MICA__VISIT_LEFT = 0, /* not this node: it is written as it was */
    MICA__VISIT_DONE,     /* its outputs have their places in the map, and are what they were */
    MICA__VISIT_CHANGED   /* likewise, by other means */
} mica__visit;

typedef struct mica__walk {
    mica__rewrite rewrite;
    const mica__pass_options *options;
    uint32_t *uses; /* of from's tensors: by nodes, and as outputs */
    void *state;    /* of the pass */
    uint64_t changes;
    uint32_t rounds;    /* the last that some node has, where a pass needs others */
    mica_status status; /* a failure that is not the new graph's */
} mica__walk;

typedef struct mica__graph_pass {
    const char *name, *meaning;
    /* Whether a graph with such a node may change; where no node is one the pass is left out. NULL: any graph may. */
    bool (*concerns)(const mica__node *node, const mica__pass_options *options);
    mica__visit (*visit)(mica__walk *walk, uint32_t node);
    bool (*begin)(mica__walk *walk); /* NULL: nothing to begin. False: walk->status, or nothing to do */
    void (*end)(mica__walk *walk);
} mica__graph_pass;

/* The table; lives for ever. */
const mica__graph_pass *const *mica__graph_passes(uint32_t *out_count);
/* One pass of it. `out_changes`, NULL or the number of nodes that it wrote otherwise. */
mica_status mica__graph_pass_run(const mica__graph_pass *pass, const mica_graph *from,
                                 const mica__pass_options *options, mica_graph **out_graph,
                                 uint64_t *out_changes);

/* The node's first output becomes `tensor` of the new graph, which has its type; LEFT where `tensor` is 0. */
mica__visit mica__walk_gives(mica__walk *walk, const mica__node *node, mica_tensor tensor);
/* The new graph's tensor for input `i` of a node; 0 for an absent one. */
static inline mica_tensor mica__walk_input(const mica__walk *walk, const mica__node *node, uint32_t i)
{
    return i < node->input_count ? walk->rewrite.map[mica__node_inputs(walk->rewrite.from, node)[i]] : 0;
}
static inline const mica__node *mica__walk_node(const mica__walk *walk, uint32_t node)
{
    return &walk->rewrite.from->node[node];
}

/* Equal types and shapes, every size known or the same symbol. */
bool mica__types_equal(const mica__type *a, const mica__type *b);
/* Whether all elements of a constant, which may be repeated, reshaped or permuted, are one number; which. */
bool mica__graph_number(const mica_graph *graph, mica_tensor tensor, double *out_number);

/* ---- the passes ---- */

extern const mica__graph_pass mica__graph_pass_inlining, mica__graph_pass_bodies, mica__graph_pass_merging,
    mica__graph_pass_dead, mica__graph_pass_algebra, mica__graph_pass_folding, mica__graph_pass_norms,
    mica__graph_pass_attention, mica__graph_pass_weights, mica__graph_pass_precision,
    mica__graph_pass_routing;

#endif
