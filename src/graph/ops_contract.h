/* ops_contract.h - one sum of products over axes that were looked at. */
#ifndef MICA_GRAPH_OPS_CONTRACT_H
#define MICA_GRAPH_OPS_CONTRACT_H

#include "graph/ops_build.h"

/* Every dimension of an operand, by what becomes of it. */
typedef struct mica__side {
    uint32_t batch_count, contract_count, free_count;
    uint32_t batch[MICA_MAX_DIMS], contract[MICA_MAX_DIMS], free[MICA_MAX_DIMS];
} mica__side;

/* [batch.., free of a.., free of b..]; batch sizes of 1 repeat. */
mica_tensor mica__build_contract(mica_graph *graph, mica_tensor a, const mica__side *left, mica_tensor b,
                                 const mica__side *right);

#endif
