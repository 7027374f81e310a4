/* case_node.h - a case of conformance as a node of a graph. */
#ifndef TEST_CASE_NODE_H
#define TEST_CASE_NODE_H

#include "conform/conform_op.h"
#include "conform/conform_rows.h"
#include "support/status.h"

typedef struct case_node {
    uint32_t slots[CONFORM_OPERANDS], count; /* of the case, by the operands of the table */
    uint32_t output[CONFORM_OPERANDS];       /* which of the node's outputs an operand is; UINT32_MAX: none */
    bool reads[CONFORM_OPERANDS];
    mica_tensor outputs[CONFORM_OPERANDS];
} case_node;

/* "p3": operand 3. */
static inline void case_name(char name[16], uint32_t operand)
{
    snprintf(name, 16, "p%u", operand);
}

/* The case over parameters, or over inputs where its types are fed. Returns the first output; 0: the graph has failed. */
static inline mica_tensor case_add(mica_graph *g, conform_case *c, bool fed, case_node *node)
{
    uint32_t inputs = 0, outputs = 0, wanted = 0;
    mica_tensor input[CONFORM_OPERANDS];
    mica_operand_desc asked[CONFORM_OPERANDS];
    *node = (case_node){.count = 0};
    node->count = conform_operands(c, node->slots);
    for (uint32_t i = 0; i < node->count; i++) {
        char name[16];
        const mica_operand_desc desc = conform_describe_operand(c, node->slots[i]);
        const mica_op_operand operand = conform_table_operand(c->row->op, i);
        const bool in = (operand.access & MICA_ACCESS_READ) != 0 || operand.part != 0;
        node->reads[i] = in && desc.dtype != MICA_DTYPE_NONE;
        node->output[i] = UINT32_MAX;
        case_name(name, i);
        if (in && desc.dtype == MICA_DTYPE_NONE)
            input[inputs++] = 0;
        else if (in && fed && mica_register_of(desc.dtype) != MICA_REGISTER_NONE)
            input[inputs++] = mica_graph_input(g, name, desc.dtype, desc.ndim, desc.shape);
        else if (in)
            input[inputs++] = mica_graph_parameter_scaled(g, name, desc.dtype, desc.ndim, desc.shape,
                                                          desc.group_size, desc.scale_dtype);
        if ((operand.access & MICA_ACCESS_WRITE) == 0)
            continue;
        wanted |= (uint32_t)(desc.dtype != MICA_DTYPE_NONE) << outputs;
        node->output[i] = outputs;
        asked[outputs++] = in ? (mica_operand_desc){.ndim = 0} : desc;
    }
    return mica_graph_op(g, c->row->op, &c->params, input, inputs, wanted, asked, node->outputs, outputs);
}

#endif
