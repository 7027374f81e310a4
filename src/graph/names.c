/*
 * names.c - what nodes are called.
 */
#include "graph/ir.h"

static const char *const kinds[MICA_NODE_COUNT] = {[MICA_NODE_INPUT] = "input",
                                                   [MICA_NODE_PARAMETER] = "parameter",
                                                   [MICA_NODE_CONSTANT] = "constant",
                                                   [MICA_NODE_REGION] = "region",
                                                   [MICA_NODE_CAST] = "cast",
                                                   [MICA_NODE_INDEX] = "index",
                                                   [MICA_NODE_BITS] = "bits",
                                                   [MICA_NODE_RESHAPE] = "reshape",
                                                   [MICA_NODE_PERMUTE] = "permute",
                                                   [MICA_NODE_SLICE] = "slice",
                                                   [MICA_NODE_EXPAND] = "expand",
                                                   [MICA_NODE_CONCAT] = "concat",
                                                   [MICA_NODE_STOP_GRADIENT] = "stop_gradient",
                                                   [MICA_NODE_CALL] = "call",
                                                   [MICA_NODE_IF] = "if",
                                                   [MICA_NODE_WHILE] = "while",
                                                   [MICA_NODE_SCAN] = "for" /* scan is an op */,
                                                   [MICA_NODE_CUSTOM] = "custom"};

const char *mica__kind_name(mica_node_kind kind)
{
    const char *name = (uint32_t)kind < MICA_NODE_COUNT ? kinds[kind] : NULL;
    return name == NULL ? "" : name;
}

const char *mica__node_name(const mica__node *node)
{
    return node->kind == MICA_NODE_OP       ? mica_op_name((mica_op)node->code)
           : node->kind == MICA_NODE_SCALAR ? mica_scalar_name(node->code)
                                            : mica__kind_name((mica_node_kind)node->kind);
}
