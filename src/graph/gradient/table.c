/*
 * table.c - which rule a node has. An op that ops.def says has a gradient, and that has no row here, fails a test by name.
 */
#include "graph/gradient/rules.h"

static const mica__gradient_rule kinds[MICA_NODE_COUNT] = {
    [MICA_NODE_SCALAR] = {mica__derive_scalar, NULL},
    [MICA_NODE_REGION] = {mica__derive_region, mica__expand_region},
    [MICA_NODE_CAST] = {mica__derive_cast, NULL},
    [MICA_NODE_RESHAPE] = {mica__derive_reshape, NULL},
    [MICA_NODE_PERMUTE] = {mica__derive_permute, NULL},
    [MICA_NODE_SLICE] = {mica__derive_slice, NULL},
    [MICA_NODE_EXPAND] = {mica__derive_expand, NULL},
    [MICA_NODE_CONCAT] = {mica__derive_concat, NULL},
    [MICA_NODE_CALL] = {mica__derive_call, mica__expand_call},
    [MICA_NODE_IF] = {mica__derive_if, NULL},
    [MICA_NODE_WHILE] = {NULL, mica__expand_while},
    [MICA_NODE_SCAN] = {mica__derive_scan_node, mica__expand_scan_node},
};

static const mica__gradient_rule ops[MICA_OP_COUNT] = {
    [MICA_OP_COPY] = {mica__derive_copy, NULL},
    [MICA_OP_RMS_NORM] = {mica__derive_rms_norm, NULL},
    [MICA_OP_LAYER_NORM] = {mica__derive_layer_norm, NULL},
    [MICA_OP_SOFTMAX] = {mica__derive_softmax, NULL},
    [MICA_OP_REDUCE] = {mica__derive_reduce, NULL},
    [MICA_OP_ROPE] = {mica__derive_rope, NULL},
    [MICA_OP_ATTENTION] = {mica__derive_attention, mica__expand_attention},
    [MICA_OP_MATMUL] = {mica__derive_matmul, NULL},
    [MICA_OP_MATMUL_EXPERTS] = {mica__derive_experts, NULL},
    [MICA_OP_EMBEDDING] = {mica__derive_embedding, NULL},
    [MICA_OP_PAD] = {mica__derive_pad, NULL},
    [MICA_OP_GATHER] = {mica__derive_gather, NULL},
    [MICA_OP_SCATTER] = {mica__derive_scatter, NULL},
    [MICA_OP_GATHER_ND] = {mica__derive_gather_nd, NULL},
    [MICA_OP_SCATTER_ND] = {mica__derive_scatter_nd, NULL},
    [MICA_OP_COMPRESS] = {mica__derive_compress, NULL},
    [MICA_OP_SCAN] = {mica__derive_scan, NULL},
    [MICA_OP_SORT] = {mica__derive_sort, NULL},
    [MICA_OP_NORMALIZE] = {mica__derive_normalize, mica__expand_normalize},
    [MICA_OP_NORMALIZE_BACKWARD] = {NULL, mica__expand_normalize_backward},
    [MICA_OP_SOFTMAX_BACKWARD] = {NULL, mica__expand_softmax_backward},
    [MICA_OP_PRODUCT] = {mica__derive_product, NULL},
    [MICA_OP_MATMUL_TRANSPOSED] = {mica__derive_transposed, NULL},
    [MICA_OP_ATTENTION_BACKWARD] = {NULL, mica__expand_attention_backward},
    [MICA_OP_ROUTE] = {mica__derive_route, NULL},
    [MICA_OP_EXPERT_SUM] = {mica__derive_expert_sum, NULL},
    [MICA_OP_ROUTE_BACKWARD] = {NULL, mica__expand_route_backward},
    [MICA_OP_SSM_CONV] = {mica__derive_ssm_conv, NULL},
    [MICA_OP_SSM_CONV_BACKWARD] = {NULL, mica__expand_ssm_conv_backward},
    [MICA_OP_DELTA_NET] = {mica__derive_delta_net, NULL},
    [MICA_OP_DELTA_NET_BACKWARD] = {NULL, mica__expand_delta_net_backward},
    [MICA_OP_SELECTIVE_SCAN] = {mica__derive_selective_scan, NULL},
    [MICA_OP_SELECTIVE_SCAN_BACKWARD] = {NULL, mica__expand_selective_scan_backward},
    [MICA_OP_RNN] = {mica__derive_rnn, NULL},
    [MICA_OP_RNN_BACKWARD] = {NULL, mica__expand_rnn_backward},
    [MICA_OP_HADAMARD] = {mica__derive_hadamard, NULL},
    [MICA_OP_CONV] = {mica__derive_conv, NULL},
    [MICA_OP_CONV_WEIGHT_BACKWARD] = {mica__derive_conv_weight, NULL},
    [MICA_OP_POOL_WINDOWS] = {mica__derive_pool, NULL},
    [MICA_OP_POOL_WINDOWS_BACKWARD] = {mica__derive_pool_backward, mica__expand_pool_backward},
    [MICA_OP_IM2COL] = {mica__derive_im2col, NULL},
    [MICA_OP_COL2IM] = {mica__derive_col2im, NULL},
    [MICA_OP_RESIZE] = {mica__derive_resize, NULL},
    [MICA_OP_RESIZE_BACKWARD] = {mica__derive_resize_backward, NULL},
    [MICA_OP_GRID_SAMPLE] = {mica__derive_grid, NULL},
    [MICA_OP_GRID_SAMPLE_BACKWARD] = {NULL, mica__expand_grid_sample_backward},
    [MICA_OP_FFT] = {mica__derive_fft, NULL},
    [MICA_OP_TRIANGULAR_SOLVE] = {mica__derive_triangular, NULL},
    [MICA_OP_CHOLESKY] = {mica__derive_cholesky, NULL},
    [MICA_OP_SOLVE] = {mica__derive_solve, NULL},
    [MICA_OP_INVERSE] = {mica__derive_inverse, NULL},
    [MICA_OP_DETERMINANT] = {mica__derive_determinant, NULL},
    [MICA_OP_QR] = {mica__derive_qr, NULL},
    [MICA_OP_EIGH] = {mica__derive_eigh, NULL},
    [MICA_OP_SVD] = {mica__derive_svd, NULL},
    [MICA_OP_CROSS_ENTROPY] = {mica__derive_cross_entropy, mica__expand_cross_entropy},
    [MICA_OP_CROSS_ENTROPY_BACKWARD] = {NULL, mica__expand_cross_entropy_backward},
};

static const mica__gradient_rule *filled(const mica__gradient_rule *rule)
{
    return rule->derive != NULL || rule->expand != NULL ? rule : NULL;
}

const mica__gradient_rule *mica__rule_of_op(mica_op op)
{
    return op > 0 && op < MICA_OP_COUNT ? filled(&ops[op]) : NULL;
}

const mica__gradient_rule *mica__rule_of(const mica__node *node)
{
    return node->kind == MICA_NODE_OP ? mica__rule_of_op((mica_op)node->code) : filled(&kinds[node->kind]);
}
