/* ragged.h - which tokens are of which sequence, as ops_recurrent.h says of `starts`, in nodes. */
#ifndef MICA_GRAPH_GRADIENT_RAGGED_H
#define MICA_GRAPH_GRADIENT_RAGGED_H

#include "graph/gradient/rules.h"

/* N sequences in T tokens; places are i32. */
typedef struct mica__ragged {
    uint64_t tokens, count;
    mica_tensor begin,
        end; /* [N]: its tokens are those from `begin` up to, and without, `end`; both equal where the starts say nothing that can be */
    mica_tensor member; /* [T, N] bool */
    mica_tensor of;     /* [T]: the sequence of a token; 0 where it has none */
    mica_tensor has;    /* [T] bool: whether it has one */
} mica__ragged;

void mica__ragged_make(mica_graph *graph, mica_tensor starts, uint64_t tokens, mica__ragged *out);
/* [T] bool: where sequences begin when they are gone through from the first token, or with `reverse` from the last. */
mica_tensor mica__ragged_first(mica_graph *graph, const mica__ragged *r, bool reverse);
/* What each sequence ends with, [N, ..]: of values [T, ..] that of its last token; without tokens `otherwise` [N, ..], or 0: zeros. */
mica_tensor mica__ragged_last(mica_graph *graph, const mica__ragged *r, bool reverse, mica_tensor values,
                              mica_tensor otherwise);
/* condition [n] ? a : b over rows [n, ..]; b 0: zeros. */
mica_tensor mica__ragged_choose(mica_graph *graph, mica_tensor condition, mica_tensor a, mica_tensor b);

#endif
