/*
 * ops_experts.h - mixtures of experts: which experts a token goes to, and the sum of what they give. The products
 * between are mica_matmul_experts. What ops.h says of all ops holds here; ops.h includes this.
 */
#ifndef MICA_OPS_EXPERTS_H
#define MICA_OPS_EXPERTS_H

#include "mica/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mica_route_scoring {
    MICA_ROUTE_SOFTMAX = 0, /* as `softmax_first` says */
    MICA_ROUTE_SIGMOID = 1  /* a score is 1 / (1 + e^-logit) */
} mica_route_scoring;

typedef struct mica_route_params {
    /* Of SOFTMAX. 1: softmax over all experts, then the best; 0: the best logits, then softmax over them */
    uint32_t softmax_first;
    uint32_t normalise; /* 1: the weights of a token are divided by their sum (left alone where it is 0) */
    float scale;        /* the weights are multiplied by it; 0 = 1 */
    uint32_t scoring;   /* mica_route_scoring */
    /* Experts e * groups / E are a group, E a multiple of groups; only those of the best `top_groups` groups are
     * chosen among. 0 or 1 groups: no groups. */
    uint32_t groups, top_groups;
    uint32_t group_best; /* a group is as good as its best expert (0 or 1), or as its best two together (2) */
} mica_route_params;

/* The best S experts of each token: ids [T, S] (u32 or i32) and weights [T, S] from logits [T, E], S <= E (of groups:
 * <= the experts of top_groups groups). The best have the greatest score + bias [E] (or NULL: none); a score is the
 * logit, its sigmoid or, with softmax_first, its softmax. Best first; the lower id among equals; NaN comes after
 * every number. A weight is the score of its expert, without bias, as mica_softmax gives it: a token with only -inf
 * has zeros, a NaN that takes part gives NaN. Weights are normalised, then multiplied by `scale` and by expert_scale
 * [E] of their expert (or NULL: none). `params` may be NULL: all zero. f32, f16 and bf16, each operand its own,
 * or all f64 on the cpu. DeepSeek V3: SIGMOID, bias, normalise, groups with group_best 2; V2:
 * softmax_first and groups; Gemma 4: expert_scale. */
MICA_API mica_status mica_route(mica_encoder *encoder, mica_buffer *logits, mica_buffer *bias,
                                mica_buffer *expert_scale, const mica_route_params *params, mica_buffer *ids,
                                mica_buffer *weights);
/* y [T, N] = sum over slots s of weights [T, S] times x [T, S, N], added in the order of the slots; + shared [T, N]
 * (or NULL), an expert of all tokens, times sigmoid(shared_gate [T]) (or NULL: 1); + residual [T, N] (or NULL). y may
 * be the view of shared or of residual. f32, f16 and bf16, each operand its own, or all f64 on the cpu. */
MICA_API mica_status mica_expert_sum(mica_encoder *encoder, mica_buffer *x, mica_buffer *weights,
                                     mica_buffer *shared, mica_buffer *shared_gate, mica_buffer *residual,
                                     mica_buffer *y);

/* dlogits [T, E]: the gradient of mica_route's weights with respect to logits, for dweights [T, S], the gradient of
 * the weights, and the ids that were chosen, with the same params and expert_scale (or NULL). The choice itself has
 * no gradient: biases and groups, which decide it alone, get none. With g = dweights scale expert_scale: normalised
 * v' = (g - sum g v / sum v) / sum v, else v' = g, with v the scores of the chosen; then through the sigmoid, v (1
 * - v) v', or softmax, p (p' - sum p p'), over all experts with softmax_first, over the chosen without. Others get
 * 0. An id outside takes no part: FAULT. All of f32, f16 and bf16, each operand its own, or f64 on the cpu.
 * `params` may be NULL: all zero. */
MICA_API mica_status mica_route_backward(mica_encoder *encoder, mica_buffer *logits,
                                         mica_buffer *expert_scale, mica_buffer *ids, mica_buffer *dweights,
                                         const mica_route_params *params, mica_buffer *dlogits);

typedef struct mica_expert_places_params {
    uint32_t capacity; /* slots that an expert takes, 1 or more */
    /* 0: slots stand in line in the order of tokens, those of a token in their order; 1: the first of all
     * tokens, then the second of all .. */
    uint32_t by_choice;
} mica_expert_places_params;

/* Experts of limited capacity: places [T, S] = id capacity + how many stand before it in the line of its expert, for
 * those that are taken; E capacity for those that find it full, and are dropped. counts [E]: how many wanted each
 * expert. ids, places and counts u32 or i32; E capacity is below 2^31. An id outside: E capacity, FAULT.
 * Dispatch: mica_scatter of the rows of x, repeated for each slot, by places into [E capacity + 1, N], of which all
 * but the last are [E, capacity, N]; then a weight for each expert is a batched product. Combine: mica_gather by
 * places, the last row being zeros, and mica_expert_sum. */
MICA_API mica_status mica_expert_places(mica_encoder *encoder, mica_buffer *ids,
                                        const mica_expert_places_params *params, mica_buffer *places,
                                        mica_buffer *counts);

#ifdef __cplusplus
}
#endif
#endif
