/*
 * graph_layers.h - what networks are made of, as nodes: norms, softmax, attention, rope, transformer layers, experts,
 * images, recurrence. As graph_ops.h says of its functions, which includes this.
 */
#ifndef MICA_GRAPH_LAYERS_H
#define MICA_GRAPH_LAYERS_H

#include "mica/graph.h"
#include "mica/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- softmax ---- */

/* Softmax, or its logarithm, of x * scale along `axis`. */
MICA_API mica_tensor mica_graph_softmax(mica_graph *graph, mica_tensor x, float scale, int32_t axis);
/* Its logarithm: mica_log_softmax. */
MICA_API mica_tensor mica_graph_log_softmax(mica_graph *graph, mica_tensor x, float scale, int32_t axis);
/* Of x * scale + mask along `axis`; a mask of bool leaves out where it is false. It broadcasts to x. */
MICA_API mica_tensor mica_graph_masked_softmax(mica_graph *graph, mica_tensor x, mica_tensor mask,
                                               float scale, int32_t axis);
/* Of y = softmax(x * scale), or with `log` of its logarithm, along the last axis: what reaches x. */
MICA_API mica_tensor mica_graph_softmax_backward(mica_graph *graph, mica_tensor y, mica_tensor dy,
                                                 float scale, uint32_t log);

/* ---- norms. Weights and biases may be 0 ---- */

/* mica_normalize over the last params.dims dimensions; weight and bias repeat to x.
 * `out_mean`, `out_var`: the statistics. */
MICA_API mica_tensor mica_graph_normalize(mica_graph *graph, mica_tensor x, mica_tensor weight,
                                          mica_tensor bias, const mica_normalize_params *params,
                                          mica_tensor *out_mean, mica_tensor *out_var);
/* What reaches x of a mica_graph_normalize, its weight and its bias. */
MICA_API mica_tensor mica_graph_normalize_backward(mica_graph *graph, mica_tensor x, mica_tensor dy,
                                                   mica_tensor weight, const mica_normalize_params *params,
                                                   mica_tensor *out_dweight, mica_tensor *out_dbias);
/* Over the last dimension. */
MICA_API mica_tensor mica_graph_rms_norm(mica_graph *graph, mica_tensor x, mica_tensor weight, float eps);
/* mica_layer_norm over the last dimension; weight and bias may be 0. */
MICA_API mica_tensor mica_graph_layer_norm(mica_graph *graph, mica_tensor x, mica_tensor weight,
                                           mica_tensor bias, float eps);
/* x / sqrt(sum(x^2) + eps) along `axis`. */
MICA_API mica_tensor mica_graph_l2_norm(mica_graph *graph, mica_tensor x, float eps, int32_t axis);
/* Of x [n, channels, ..]: over groups of channels, over each channel, over all channels of a
 * place. weight and bias [channels]. */
MICA_API mica_tensor mica_graph_group_norm(mica_graph *graph, mica_tensor x, uint32_t groups,
                                           mica_tensor weight, mica_tensor bias, float eps);
/* mica_instance_norm: a group for each channel. */
MICA_API mica_tensor mica_graph_instance_norm(mica_graph *graph, mica_tensor x, mica_tensor weight,
                                              mica_tensor bias, float eps);
/* Over the channels at each place. */
MICA_API mica_tensor mica_graph_channel_norm(mica_graph *graph, mica_tensor x, mica_tensor weight,
                                             mica_tensor bias, float eps);
/* x [n, channels, ..] with statistics [channels] that are given: a norm of inference. */
MICA_API mica_tensor mica_graph_batch_norm(mica_graph *graph, mica_tensor x, mica_tensor mean,
                                           mica_tensor var, mica_tensor weight, mica_tensor bias, float eps);
/* mica_batch_norm_train: statistics of the batch. running_mean and running_var, both or neither, give the new ones;
 * then all sizes of x are numbers. */
typedef struct mica_graph_batch_norm_outputs {
    mica_tensor y, mean, var, running_mean, running_var;
} mica_graph_batch_norm_outputs;
/* With the statistics of the batch: mica_batch_norm_train. */
MICA_API mica_tensor mica_graph_batch_norm_train(mica_graph *graph, mica_tensor x, mica_tensor weight,
                                                 mica_tensor bias, mica_tensor running_mean,
                                                 mica_tensor running_var,
                                                 const mica_batch_norm_params *params,
                                                 mica_graph_batch_norm_outputs *out);
/* norm(x) (1 + scale) + shift over the last dimension, LAYER or RMS; scale and shift repeat to x. */
MICA_API mica_tensor mica_graph_ada_norm(mica_graph *graph, mica_normalize_kind kind, mica_tensor x,
                                         mica_tensor scale, mica_tensor shift, float eps);
/* The norm of x + residual (+ add, or 0) over the last dimension; `out_sum`: what is normed. */
MICA_API mica_tensor mica_graph_residual_norm(mica_graph *graph, mica_normalize_kind kind, mica_tensor x,
                                              mica_tensor residual, mica_tensor add, mica_tensor weight,
                                              mica_tensor bias, float eps, mica_tensor *out_sum);

/* ---- attention ---- */

/* Where heads stand. B sequences of S tokens, H heads of D numbers. */
typedef enum mica_head_layout {
    MICA_HEADS_TOKENS = 0,   /* [S, H, D] */
    MICA_HEADS_FIRST = 1,    /* [B, H, S, D] */
    MICA_HEADS_BEHIND = 2,   /* [B, S, H, D] */
    MICA_HEADS_TOGETHER = 3, /* [B, S, H D] */
} mica_head_layout;

/* All zero: every query sees every key, with the scale 1/sqrt(D). */
typedef struct mica_graph_attention_desc {
    mica_head_layout layout; /* of q, k, v and the result */
    uint32_t heads;          /* of q: with TOGETHER; those of k and v are as many as fit */
    float scale;             /* 0: 1/sqrt(D) */
    float softcap;           /* 0: none */
    uint32_t causal;         /* 1: a query sees keys up to its own place */
    uint32_t window;         /* > 0: of these the last `window` */
    /* A query's place is its index + offset, and, but with `from_start`, how many keys there are more than queries:
     * the last query is at the last key. Sizes of queries and keys are numbers or one symbol, or from_start is 1. */
    int64_t offset;
    uint32_t from_start;
    mica_tensor positions; /* [S] instead of all this, or 0 */
    /* Broadcasts to [B, H, S, keys] (TOKENS: [H, S, keys]): floats are added to the scores, of bool
     * the keys of 0 get no weight. Or 0 */
    mica_tensor mask;
    mica_tensor slopes; /* [H]: ALiBi, as mica_attention has it; or 0 */
    mica_tensor sinks;  /* [H], or 0 */
} mica_graph_attention_desc;

/* softmax(q k^T scale + mask) v. k and v have as many heads as q or a divisor of them; the dim of v may be another. A
 * query that sees nothing gives zeros. `out_lse`: the logarithm of the sum of e^score, in the layout without D
 * (TOGETHER: [B, S, H]). Differentiable: one sequence over B H heads. */
MICA_API mica_tensor mica_graph_attention(mica_graph *graph, mica_tensor q, mica_tensor k, mica_tensor v,
                                          const mica_graph_attention_desc *desc, mica_tensor *out_lse);

/* The operands of mica_attention as tensors: caches, pages, lengths that are read when the graph runs. */
typedef struct mica_graph_attention_operands {
    mica_tensor q, k, v, positions, lengths, sequences, pages, mask, sinks, slopes, keys;
} mica_graph_attention_operands;
/* mica_attention in full. */
MICA_API mica_tensor mica_graph_attention_cached(mica_graph *graph,
                                                 const mica_graph_attention_operands *operands,
                                                 const mica_attention_params *params, mica_tensor *out_lse);
/* mica_attention_backward, of operands without sequences, pages and keys: gives dq. dk, dv and dsinks may be NULL. */
MICA_API mica_tensor mica_graph_attention_backward(mica_graph *graph,
                                                   const mica_graph_attention_operands *operands,
                                                   const mica_attention_params *params, mica_tensor y,
                                                   mica_tensor lse, mica_tensor dy, mica_tensor *out_dk,
                                                   mica_tensor *out_dv, mica_tensor *out_dsinks);
/* mica_kv_write: the cache with x [tokens, heads, dim] at positions; sequences and pages may be 0. */
MICA_API mica_tensor mica_graph_kv_write(mica_graph *graph, mica_tensor cache, mica_tensor x,
                                         mica_tensor positions, mica_tensor sequences, mica_tensor pages,
                                         const mica_kv_params *params);

/* ---- rope ---- */

/* mica_rope of x [tokens, heads, dim] or [tokens, dim]; factors may be 0. */
MICA_API mica_tensor mica_graph_rope(mica_graph *graph, mica_tensor x, mica_tensor positions,
                                     mica_tensor factors, const mica_rope_params *params);
/* Its gradient. */
MICA_API mica_tensor mica_graph_rope_backward(mica_graph *graph, mica_tensor dy, mica_tensor positions,
                                              mica_tensor factors, const mica_rope_params *params);
/* mica_rope_2d: positions [2, tokens]. */
MICA_API mica_tensor mica_graph_rope_2d(mica_graph *graph, mica_tensor x, mica_tensor positions,
                                        const mica_rope_params *params);
/* The rope of x in any layout (TOGETHER: `heads` says how many). positions [S], or [B, S] of
 * layouts with sequences; 0: from 0 on. */
MICA_API mica_tensor mica_graph_rope_heads(mica_graph *graph, mica_tensor x, mica_head_layout layout,
                                           uint32_t heads, mica_tensor positions, mica_tensor factors,
                                           const mica_rope_params *params);
/* The rotation by cos and sin [.., n / 2], which broadcast to the pairs of x [.., D]; n <= D is their width
 * doubled, what is behind it stays. */
MICA_API mica_tensor mica_graph_rope_tables(mica_graph *graph, mica_tensor x, mica_tensor cosines,
                                            mica_tensor sines, mica_rope_mode mode);
/* Images of columns x rows tokens, row by row, each token `repeat` times: x [B, columns rows repeat, heads dim], the
 * first half of a head turned by the column, the second by the row, in adjacent pairs. */
MICA_API mica_tensor mica_graph_rope_axial(mica_graph *graph, mica_tensor x, uint32_t columns, uint32_t rows,
                                           uint32_t repeat, uint32_t heads, float theta);

/* ---- transformer layers ---- */

/* The weights of attention over `hidden` [B, S, E]: weights [N, K] of any type that
 * mica_graph_linear takes; biases may be 0. */
typedef struct mica_attention_block {
    mica_tensor qkv_weight; /* [E + 2 kv_heads dim, E]: q, then k, then v */
    mica_tensor qkv_bias;
    mica_tensor out_weight; /* [E, heads dim] */
    mica_tensor out_bias;
    mica_tensor cosines, sines; /* [S, dim / 2] of the rope of q and k (pairs i, i + dim / 2), or 0 */
    uint32_t heads, kv_heads;   /* 0: as many as heads */
    mica_graph_attention_desc attention; /* `layout` and `heads` are not looked at */
} mica_attention_block;
/* The block as nodes; the sum that comes out is of the type of `hidden`. */
MICA_API mica_tensor mica_graph_attention_block(mica_graph *graph, mica_tensor hidden,
                                                const mica_attention_block *block);

/* A layer whose norms come behind (BERT): h = LN(x + attention(x)); LN(h + act(h fc1) fc2). */
typedef struct mica_transformer_layer {
    mica_attention_block attention;
    mica_tensor norm1_weight, norm1_bias, norm2_weight, norm2_bias; /* [E]; biases may be 0 */
    mica_tensor up_weight, up_bias;                                 /* [I, E], [I] or 0 */
    mica_tensor down_weight, down_bias;                             /* [E, I], [E] or 0 */
    mica_scalar activation;                                         /* MICA_SCALAR_GELU_ERF .. */
    float eps1, eps2;
} mica_transformer_layer;
/* The layer as nodes. */
MICA_API mica_tensor mica_graph_transformer_layer(mica_graph *graph, mica_tensor hidden,
                                                  const mica_transformer_layer *layer);

/* ---- experts ---- */

/* mica_route: the ids [T, count] and (out_weights) the weights of the best experts; bias and expert_scale may be 0. */
MICA_API mica_tensor mica_graph_route(mica_graph *graph, mica_tensor logits, mica_tensor bias,
                                      mica_tensor expert_scale, uint64_t count,
                                      const mica_route_params *params, mica_tensor *out_weights);
/* What reaches the logits of a routing: mica_route_backward. */
MICA_API mica_tensor mica_graph_route_backward(mica_graph *graph, mica_tensor logits,
                                               mica_tensor expert_scale, mica_tensor ids,
                                               mica_tensor dweights, const mica_route_params *params);
/* mica_matmul_experts: x [T, K] or [T, S, K], weight [E, N, K] of any type, ids [T, S]: [T, S, N]. */
MICA_API mica_tensor mica_graph_matmul_experts(mica_graph *graph, mica_tensor x, mica_tensor weight,
                                               mica_tensor ids, const mica_matmul_params *params);
/* mica_expert_sum; shared, shared_gate and residual may be 0. */
MICA_API mica_tensor mica_graph_expert_sum(mica_graph *graph, mica_tensor x, mica_tensor weights,
                                           mica_tensor shared, mica_tensor shared_gate, mica_tensor residual);
/* mica_expert_places of ids [T, S] among `experts` experts; `out_counts` [experts]. */
MICA_API mica_tensor mica_graph_expert_places(mica_graph *graph, mica_tensor ids, uint64_t experts,
                                              const mica_expert_places_params *params,
                                              mica_tensor *out_counts);
/* x [M, K] with row i times the [K, N] matrix of expert ids [i] of weight [E, N, K]: one expert a row. */
MICA_API mica_tensor mica_graph_grouped_matmul(mica_graph *graph, mica_tensor x, mica_tensor weight,
                                               mica_tensor ids);

/* A whole block over x [.., K]: the router's product, the choice, the gated product of each expert, their sum. */
typedef struct mica_moe_block {
    mica_tensor router_weight;             /* [E, K] */
    mica_tensor router_bias;               /* [E], added to the logits, or 0 */
    mica_tensor choice_bias, expert_scale; /* of mica_route, or 0 */
    mica_tensor gate_weight, up_weight;    /* [E, I, K]; gate 0: act(x up) alone */
    mica_tensor down_weight;               /* [E, K, I] */
    mica_tensor shared_gate, shared_up,
        shared_down;          /* of an expert of all tokens, [J, K], [J, K], [K, J]; or 0 */
    mica_tensor shared_scale; /* [1, K]: sigmoid(x . it) multiplies the shared expert; or 0 */
    uint32_t experts_used;    /* of each token */
    mica_scalar activation;   /* of the gate: MICA_SCALAR_SILU .. */
    mica_route_params route;
} mica_moe_block;
/* The whole mixture as nodes. */
MICA_API mica_tensor mica_graph_moe(mica_graph *graph, mica_tensor x, const mica_moe_block *block);

/* ---- images: [n, channels, spatial..] of one to three dimensions ---- */

/* mica_conv, transposed ones too; bias may be 0. */
MICA_API mica_tensor mica_graph_conv(mica_graph *graph, mica_tensor x, mica_tensor weight, mica_tensor bias,
                                     const mica_conv_params *params);
/* What reaches x of a convolution whose input had the spatial sizes `sizes`; what reaches its
 * weight, of kernel sizes params.kernel. */
MICA_API mica_tensor mica_graph_conv_input_backward(mica_graph *graph, mica_tensor dy, mica_tensor weight,
                                                    const mica_conv_params *params, const uint64_t *sizes);
/* What reaches the weight: mica_conv_weight_backward. */
MICA_API mica_tensor mica_graph_conv_weight_backward(mica_graph *graph, mica_tensor x, mica_tensor dy,
                                                     const mica_conv_params *params);
/* A convolution of codes: (x - x_zero) * (weight - weight_zero) + bias in i32, for x i8 or u8 [n, C, spatial..] and
 * weight i8 or u8 [O, C / groups, kernel..]; places outside of x count as x_zero. zeros are numbers; bias i32 [O] or
 * 0. mica_graph_requantize makes codes of it. */
MICA_API mica_tensor mica_graph_conv_codes(mica_graph *graph, mica_tensor x, int32_t x_zero,
                                           mica_tensor weight, int32_t weight_zero, mica_tensor bias,
                                           const mica_conv_params *params);
/* mica_pool_windows; `out_indices` (i32) of MAX and MIN. */
MICA_API mica_tensor mica_graph_pool(mica_graph *graph, mica_tensor x, const mica_pool_windows_params *params,
                                     mica_tensor *out_indices);
/* What reaches x: mica_pool_windows_backward. */
MICA_API mica_tensor mica_graph_pool_backward(mica_graph *graph, mica_tensor x, mica_tensor dy,
                                              const mica_pool_windows_params *params);
/* Over all spatial dimensions, which stay with size 1: `kind` as mica_graph_reduce has it. */
MICA_API mica_tensor mica_graph_global_pool(mica_graph *graph, mica_reduce_kind kind, mica_tensor x);
/* mica_im2col, and mica_col2im to images of params.size. */
MICA_API mica_tensor mica_graph_im2col(mica_graph *graph, mica_tensor x, const mica_im2col_params *params);
/* The way back: mica_col2im. */
MICA_API mica_tensor mica_graph_col2im(mica_graph *graph, mica_tensor x, const mica_im2col_params *params);
/* mica_resize to params.size; and what reaches x, of params.size. */
MICA_API mica_tensor mica_graph_resize(mica_graph *graph, mica_tensor x, const mica_resize_params *params);
/* What reaches x: mica_resize_backward. */
MICA_API mica_tensor mica_graph_resize_backward(mica_graph *graph, mica_tensor dy,
                                                const mica_resize_params *params);
/* mica_grid_sample; and what reaches x and (out_dgrid) the grid. */
MICA_API mica_tensor mica_graph_grid_sample(mica_graph *graph, mica_tensor x, mica_tensor grid,
                                            const mica_grid_params *params);
/* What reaches image and grid: mica_grid_sample_backward. */
MICA_API mica_tensor mica_graph_grid_sample_backward(mica_graph *graph, mica_tensor x, mica_tensor grid,
                                                     mica_tensor dy, const mica_grid_params *params,
                                                     mica_tensor *out_dgrid);

/* ---- recurrence ---- */

/* ops_recurrent.h's sequences as tensors, each of which may be 0; the whole may be NULL. */
typedef struct mica_graph_sequences {
    mica_tensor state, starts, read_slots, write_slots;
    mica_tensor next_state; /* what it holds beforehand; 0: what state holds */
} mica_graph_sequences;
/* mica_ssm_conv. `out_state` of these: next_state, where it is asked for. */
MICA_API mica_tensor mica_graph_ssm_conv(mica_graph *graph, mica_tensor x, mica_tensor weight,
                                         mica_tensor bias, const mica_graph_sequences *sequences,
                                         const mica_ssm_conv_params *params, mica_tensor *out_state);
/* mica_delta_net: g, beta and skip may be 0. */
typedef struct mica_graph_delta_operands {
    mica_tensor q, k, v, g, beta, skip;
} mica_graph_delta_operands;
/* mica_delta_net; new states come out beside the result. */
MICA_API mica_tensor mica_graph_delta_net(mica_graph *graph, const mica_graph_delta_operands *operands,
                                          const mica_graph_sequences *sequences,
                                          const mica_delta_params *params, mica_tensor *out_state);
/* mica_delta_gates gives g and (out_beta) beta; mica_ssm_gates g and (out_dt) dt. */
MICA_API mica_tensor mica_graph_delta_gates(mica_graph *graph, mica_tensor a, mica_tensor b,
                                            mica_tensor a_log, mica_tensor dt_bias, mica_tensor *out_beta);
/* mica_ssm_gates. */
MICA_API mica_tensor mica_graph_ssm_gates(mica_graph *graph, mica_tensor a, mica_tensor a_log,
                                          mica_tensor dt_bias, mica_tensor *out_dt);
/* mica_selective_scan: skip, dt_bias and z may be 0. */
typedef struct mica_graph_selective_operands {
    mica_tensor x, dt, a, b, c, skip, dt_bias, z;
} mica_graph_selective_operands;
/* mica_selective_scan; new states come out beside the result. */
MICA_API mica_tensor mica_graph_selective_scan(mica_graph *graph,
                                               const mica_graph_selective_operands *operands,
                                               const mica_graph_sequences *sequences,
                                               const mica_selective_params *params, mica_tensor *out_state);
/* mica_rnn: x [T, F] is the product of the input with its weights. */
MICA_API mica_tensor mica_graph_rnn_cells(mica_graph *graph, mica_tensor x, mica_tensor weight,
                                          mica_tensor bias, const mica_graph_sequences *sequences,
                                          const mica_rnn_params *params, mica_tensor *out_state);
/* A layer of cells over x [B, S, I], forwards, and backwards too where directions is 2: weights of
 * each direction one behind another, G 1, 3 or 4 as the kind has gates. Returns [B, S, directions H];
 * layers are calls one behind another. */
typedef struct mica_rnn_layer {
    mica_rnn_kind kind;
    uint32_t directions;      /* 1 or 2; 0: 1 */
    mica_tensor input_weight; /* [directions, G H, I] */
    mica_tensor state_weight; /* [directions, G H, H] */
    mica_tensor input_bias;   /* [directions, G H], or 0 */
    mica_tensor state_bias;   /* likewise */
    mica_tensor state;        /* [directions, B, 1, H], of LSTM [directions, B, 2, H]: h, then c; 0: zeros */
} mica_rnn_layer;
/* A layer of cells: mica_rnn. */
MICA_API mica_tensor mica_graph_rnn_layer(mica_graph *graph, mica_tensor x, const mica_rnn_layer *layer,
                                          mica_tensor *out_state);
/* mica_hadamard along the last dimension; signs may be 0. */
MICA_API mica_tensor mica_graph_hadamard(mica_graph *graph, mica_tensor x, mica_tensor signs,
                                         const mica_hadamard_params *params);

#ifdef __cplusplus
}
#endif
#endif
