/*
 * order.h - in which order the nodes of a graph run, and how that is cut into steps: runs of nodes of one place, which are submitted together, and nodes that the host looks at.
 *
 * With one place that is the graph's own order, cut at control. With several, what depends on the same values of other places is one step, and what others wait
 * for comes first, so that a device begins as soon as it can. Knows graphs alone.
 */
#ifndef MICA_GRAPH_ORDER_H
#define MICA_GRAPH_ORDER_H

#include "graph/ir.h"

typedef struct mica__step {
    uint32_t begin, end; /* of mica__order.node */
    uint8_t place;
    bool control; /* one node: a choice or a loop */
    bool last;    /* of its place: nothing of it comes behind */
} mica__step;

typedef struct mica__order {
    uint32_t *node; /* as they run; with several places leaves, views and what nobody needs are left out */
    uint32_t count;
    uint32_t *at, *step; /* by node: where it stands in the order, and in which step */
    mica__step *steps;
    uint32_t step_count;
} mica__order;

/* `used` by tensor: 1 where somebody needs it. `places`: how many there are; each has a step that is the last, which may be empty. */
mica_status mica__order_make(const mica_graph *graph, const uint8_t *used, uint32_t places, mica__order *out);
void mica__order_free(mica__order *order);

/* Whether some output of a node is needed. */
bool mica__node_is_used(const mica_graph *graph, const uint8_t *used, const mica__node *node);
/* IF, WHILE, SCAN, and a caller's op that the host computes. */
bool mica__is_control(const mica__node *node);

#endif
