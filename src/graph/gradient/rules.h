/*
 * rules.h - how the derivative of a node is written: as nodes, by a rule for its kind or its op. The walk (reverse.c) knows no op, rules know nothing of the
 * walk but what reaches their node.
 *
 * A rule either derives (what reaches the inputs, out of what reaches the outputs) or expands (the node once more, in nodes that have rules, which the walk
 * then goes back through). An op has one of them, or both: then deriving comes first, and gives way where it cannot (false).
 */
#ifndef MICA_GRAPH_GRADIENT_RULES_H
#define MICA_GRAPH_GRADIENT_RULES_H

#include "graph/ir.h"
#include "mica/gradient.h"
#include "mica/ops.h"

/* A node on the way back. Its inputs and outputs are copies: the graph's lists move while nodes are added. */
typedef struct mica__back {
    mica_graph *graph;
    uint32_t at; /* the node */
    mica__node node;
    const mica_tensor *in, *out; /* 0: absent, not wanted */
    const mica_tensor *dy;       /* what reaches each output; 0: nothing does */
    const bool *wanted;          /* whether the gradient of an input is asked for; these are floats */
    mica_tensor *dx;             /* written: what reaches each input; 0: nothing */
} mica__back;

typedef enum mica__derived {
    MICA__DERIVED,
    MICA__DERIVE_EXPANDS /* the other way is to be taken */
} mica__derived;

typedef mica__derived mica__derive(mica__back *b);
/* out[i]: output i in nodes that have rules; 0 where it was not wanted. */
typedef void mica__expand(mica__back *b, mica_tensor *out);

typedef struct mica__gradient_rule {
    mica__derive *derive;
    mica__expand *expand;
} mica__gradient_rule;

/* NULL: there is none. */
const mica__gradient_rule *mica__rule_of(const mica__node *node);
const mica__gradient_rule *mica__rule_of_op(mica_op op);

/* UNSUPPORTED: the node stands in the way, and why. */
void mica__back_refuses(mica__back *b, const char *format, ...) MICA__PRINTF(2, 3) MICA__COLD;

/* What tensors reach each other by, over nodes from `first` on: as mica_graph_gradients. */
bool mica__gradients(mica_graph *graph, const mica_tensor *values, const mica_tensor *seeds,
                     uint32_t value_count, const mica_tensor *of, uint32_t count, mica_tensor *out);

/* ---- sub-graphs ---- */

/* Whether a scan has so many rounds that it is split before it is differentiated. */
bool mica__scan_is_long(const mica_graph *graph, const mica__node *node, const mica_tensor *in);

/* ---- words in which rules are written ---- */

static inline mica__type mica__type_copy(const mica_graph *graph, mica_tensor x)
{
    return *mica__type_of(graph, x); /* a copy: the graph's moves */
}
static inline bool mica__is_real(mica_dtype dtype)
{
    return dtype == MICA_DTYPE_F32 || dtype == MICA_DTYPE_F64 || dtype == MICA_DTYPE_F16 ||
           dtype == MICA_DTYPE_BF16;
}
/* Types through which gradients go. */
static inline bool mica__is_float(mica_dtype dtype)
{
    return mica__is_real(dtype) || dtype == MICA_DTYPE_C64;
}

/* f16 and bf16 as f32, others as they are: formulas round once. */
mica_tensor mica__wide(mica_graph *graph, mica_tensor x);
/* A number of the type of `like`; beside f16 and bf16 of f32. */
mica_tensor mica__number(mica_graph *graph, mica_tensor like, double value);
mica_tensor mica__times(mica_graph *graph, mica_tensor x, double factor);
mica_tensor mica__plus(mica_graph *graph, mica_tensor x, double term);
/* x where the condition holds, 0 elsewhere. */
mica_tensor mica__where(mica_graph *graph, mica_tensor condition, mica_tensor x);
/* 1 where the condition holds, 0 elsewhere, as a number of the type of `like`. */
mica_tensor mica__indicator(mica_graph *graph, mica_tensor condition, mica_tensor like);
/* x repeated to the shape of `like`; zeros of its shape and of a type. */
mica_tensor mica__repeat_to(mica_graph *graph, mica_tensor x, mica_tensor like);
mica_tensor mica__zeros_like(mica_graph *graph, mica_tensor like, mica_dtype dtype);
/* x, which has a shape that something of `type` repeats to, summed to that shape. */
mica_tensor mica__sum_to(mica_graph *graph, mica_tensor x, const mica__type *type);
mica_tensor mica__reshape_to(mica_graph *graph, mica_tensor x, const mica__type *type);
/* Another name for a value: what reaches it goes no further. */
mica_tensor mica__another(mica_graph *graph, mica_tensor x);
/* The last two dimensions exchanged. */
mica_tensor mica__transposed(mica_graph *graph, mica_tensor x);
mica_tensor mica__product(mica_graph *graph, mica_tensor a, mica_tensor b);
/* Over the last `dims` dimensions, which stay with size 1. */
mica_tensor mica__reduce_last(mica_graph *graph, mica_reduce_kind kind, mica_tensor x, uint32_t dims);
/* With a dimension of size 1 put in before dimension `at`. */
mica_tensor mica__widened(mica_graph *graph, mica_tensor x, uint32_t at);
/* Rank and sizes of ids for a gather along the last dimension, or a scatter: those of their operand. */
mica_tensor mica__take(mica_graph *graph, mica_tensor x, mica_tensor ids, uint32_t axis);
/* Zeros of the shape of `like`, with `updates` added (or set) at ids along the axis. */
mica_tensor mica__put(mica_graph *graph, mica_scatter_mode mode, mica_tensor updates, mica_tensor ids,
                      uint32_t axis, mica_tensor like);
/* The element's index along an axis of the shape of `like`, in i32, as a vector of that size or one that repeats to the shape. */
mica_tensor mica__index_along(mica_graph *graph, mica_tensor like, uint32_t axis);
/* An op of one wanted output. */
mica_tensor mica__op1(mica_graph *graph, mica_op op, const void *params, const mica_tensor *inputs,
                      uint32_t count);

/* ---- complex numbers: c64 goes through regions alone ---- */

/* The real or (imag 1) the imaginary part of x; re + i im, which broadcast; a + b; x times a real number. */
mica_tensor mica__complex_part(mica_graph *graph, mica_tensor x, uint32_t imag);
mica_tensor mica__complex_join(mica_graph *graph, mica_tensor re, mica_tensor im);
mica_tensor mica__complex_add(mica_graph *graph, mica_tensor a, mica_tensor b);
mica_tensor mica__complex_scale(mica_graph *graph, mica_tensor x, mica_tensor by);
/* Whether a program is what the first two are made of. */
bool mica__complex_is_part(const mica__region_program *program);
bool mica__complex_is_join(const mica__region_program *program);

/* ---- rules, by what they are of ---- */

mica__derive mica__derive_scalar, mica__derive_region, mica__derive_cast, mica__derive_reshape,
    mica__derive_permute, mica__derive_slice, mica__derive_expand, mica__derive_concat, mica__derive_call,
    mica__derive_if, mica__derive_scan_node;
mica__expand mica__expand_region, mica__expand_call, mica__expand_while, mica__expand_scan_node;

mica__derive mica__derive_copy, mica__derive_pad, mica__derive_gather, mica__derive_scatter,
    mica__derive_gather_nd, mica__derive_scatter_nd, mica__derive_compress, mica__derive_embedding,
    mica__derive_sort, mica__derive_scan;
mica__derive mica__derive_product, mica__derive_matmul, mica__derive_transposed, mica__derive_experts,
    mica__derive_expert_sum, mica__derive_route;
mica__derive mica__derive_reduce, mica__derive_rms_norm, mica__derive_layer_norm, mica__derive_normalize,
    mica__derive_softmax, mica__derive_cross_entropy;
mica__derive mica__derive_ssm_conv, mica__derive_delta_net, mica__derive_selective_scan, mica__derive_rnn;
mica__derive mica__derive_attention, mica__derive_rope, mica__derive_hadamard, mica__derive_fft;
mica__derive mica__derive_conv, mica__derive_conv_weight, mica__derive_pool, mica__derive_pool_backward,
    mica__derive_im2col, mica__derive_col2im, mica__derive_resize, mica__derive_resize_backward,
    mica__derive_grid;
mica__derive mica__derive_triangular, mica__derive_cholesky, mica__derive_solve, mica__derive_inverse,
    mica__derive_determinant, mica__derive_qr, mica__derive_eigh, mica__derive_svd;
mica__expand mica__expand_normalize, mica__expand_normalize_backward, mica__expand_softmax_backward,
    mica__expand_cross_entropy, mica__expand_cross_entropy_backward, mica__expand_attention,
    mica__expand_attention_backward, mica__expand_route_backward, mica__expand_ssm_conv_backward,
    mica__expand_delta_net_backward, mica__expand_selective_scan_backward, mica__expand_rnn_backward,
    mica__expand_pool_backward, mica__expand_grid_sample_backward;

#endif
