/*
 * precision.c - products, convolutions and attention in 16 bits, where options ask for that: their operands of f32 are cast, and what they give is 16 bits too and cast back, so that
 * what lies between two of them is read and written in 16 bits and computed in f32. Reductions, norms and losses stay in f32; operands that are no f32 (integers, indices, f64) are
 * left alone.
 */
#include "graph/passes/match.h"
#include "mica/ops.h"

typedef struct lowered {
    mica_op op;
    uint32_t operands; /* bit i: input i is cast */
} lowered;

static const lowered table[] = {
    {MICA_OP_PRODUCT, 3}, /* a, b; not what is added */
    {MICA_OP_MATMUL, ~0u},
    {MICA_OP_MATMUL_TRANSPOSED, ~0u},
    {MICA_OP_MATMUL_EXPERTS, ~0u},
    {MICA_OP_CONV, 3}, /* x, weight; not the bias */
    {MICA_OP_CONV_WEIGHT_BACKWARD, 3},
    {MICA_OP_ATTENTION, 7}, /* q, k, v */
};

static mica__visit visit(mica__walk *walk, uint32_t at)
{
    enum { MOST = 16 };
    const mica_graph_precision precision = walk->options->precision;
    const mica_dtype low = precision == MICA_GRAPH_PRECISION_F16 ? MICA_DTYPE_F16 : MICA_DTYPE_BF16;
    const mica__node *node = mica__walk_node(walk, at);
    const lowered *row = NULL;
    mica_tensor inputs[MOST];
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (node->kind == MICA_NODE_OP && node->code == (uint32_t)table[i].op)
            row = &table[i];
    if (precision == MICA_GRAPH_PRECISION_AS_WRITTEN || row == NULL || node->input_count > MOST)
        return MICA__VISIT_LEFT;
    const mica__op_data *data = node->data;
    const mica__type *was = mica__type_of(walk->rewrite.from, *mica__node_outputs(walk->rewrite.from, node));
    bool any = false;
    for (uint32_t i = 0; i < node->input_count; i++) {
        inputs[i] = mica__walk_input(walk, node, i);
        const bool cast = inputs[i] != 0 && (row->operands >> i & 1) != 0 &&
                          mica__type_of(walk->rewrite.to, inputs[i])->dtype == MICA_DTYPE_F32;
        any |= cast;
        if (cast)
            inputs[i] = mica_graph_cast(walk->rewrite.to, inputs[i], low);
    }
    if (!any || was->dtype != MICA_DTYPE_F32 || node->output_count > 2 ||
        (node->output_count == 2 && (data->wanted & 2) != 0))
        return MICA__VISIT_LEFT;
    const mica_operand_desc asked[] = {{.dtype = low, .ndim = MICA_RANK_UNKNOWN}, {.ndim = 0}};
    const mica_tensor y = mica_graph_op(walk->rewrite.to, (mica_op)node->code, mica__op_params(node), inputs,
                                        node->input_count, 1, asked, NULL, node->output_count);
    return mica__walk_gives(walk, node, mica_graph_cast(walk->rewrite.to, y, MICA_DTYPE_F32));
}

static bool concerns(const mica__node *node, const mica__pass_options *options)
{
    return node->kind == MICA_NODE_OP && options->precision != MICA_GRAPH_PRECISION_AS_WRITTEN;
}

const mica__graph_pass mica__graph_pass_precision = {
    "precision", "products, convolutions and attention in 16 bits, if asked for", concerns, visit, NULL,
    NULL};
