/*
 * view.h - where the elements of two operands of one storage lie to each other, and the nodes that take one of them out of the other.
 *
 * An operand is a box of places: an offset and a size and stride for each dimension. Its tensor has the elements in the order of its dimensions.
 */
#ifndef MICA_GRAPH_LIFT_VIEW_H
#define MICA_GRAPH_LIFT_VIEW_H

#include "backend/record.h"
#include "mica/graph.h"

typedef enum mica__meet {
    MICA__MEET_APART,  /* they share no byte */
    MICA__MEET_INSIDE, /* every element is one of the whole: mica__view_take gives them */
    MICA__MEET_MIXED,  /* neither, or not in one piece; parts of the view are one or the other */
    MICA__MEET_UNCLEAR, /* an element of one lies across those of the other, or blocks do not lie as they were written */
} mica__meet;

/* How the elements of `view` lie to those of `whole`. */
mica__meet mica__view_meet(const mica__operand *view, const mica__operand *whole);
/* Of the tensor of `whole` what `view` has, in its shape and type. INSIDE alone. */
mica_tensor mica__view_take(mica_graph *graph, mica_tensor tensor, const mica__operand *whole,
                            const mica__operand *view);
/* Elements [first, first + count) of a dimension. */
mica__operand mica__view_part(const mica__operand *view, uint32_t dim, uint64_t first, uint64_t count);

#endif
