/*
 * ops.h - one function per operation.
 *
 * Each takes an encoder (of a device, or of a session: mica_session_encoder), operands and parameters, checks
 * them, and adds one record; nothing runs before commit or replay. Inputs come first, outputs last. The same
 * call has the same meaning on every backend.
 *
 * Types: activations are f32, f16 or bf16, each operand its own; arithmetic is in f32 and rounds once on store.
 * Strides: elementwise ops and copy take any strides (inputs may repeat with stride 0); norms, softmax, rope,
 * attention and matmul activations need a contiguous last dimension and take any strides above it. Shapes of any
 * size; a zero dimension is INVALID_ARGUMENT. In place: an output may be the very same view as an input where
 * the op says so; any other overlap of an output with an operand is INVALID_ARGUMENT.
 * Index operands (positions, ids, pages) are u32 or i32 buffers read when the work runs: a value outside its
 * table gives a defined result (written as zeros, or nothing written) and the fence ends with FAULT.
 * Failure: INVALID_ARGUMENT names the operand; UNSUPPORTED where no kernel serves the types; STATE after
 * commit. On failure nothing is added. Operands are kept alive until the work is done. Threads: as the encoder.
 */
#ifndef MICA_OPS_H
#define MICA_OPS_H

#include "mica/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y = x, converting between any two of f32 f16 bf16 (round to nearest even), or bit for bit between equal
 * types of any non-block kind, or between equal contiguous block types. x broadcasts to y's shape as in mica_add
 * (block types: equal shapes). */
MICA_API mica_status mica_copy(mica_encoder *encoder, mica_buffer *x, mica_buffer *y);
/* Every element of y becomes `value` (converted to y's type: f32 f16 bf16 i32 u32). */
MICA_API mica_status mica_fill(mica_encoder *encoder, double value, mica_buffer *y);
/* Adds `delta` to every element of an i32 or u32 buffer: how a decode step moves its own position on. */
MICA_API mica_status mica_advance(mica_encoder *encoder, int32_t delta, mica_buffer *counters);

/* y = a + b. a and b broadcast to y's shape (dimensions aligned at the last one, size 1 repeats). In
 * place on a or b of y's own shape. */
MICA_API mica_status mica_add(mica_encoder *encoder, mica_buffer *a, mica_buffer *b, mica_buffer *y);
/* y = a * b, otherwise as mica_add. */
MICA_API mica_status mica_mul(mica_encoder *encoder, mica_buffer *a, mica_buffer *b, mica_buffer *y);
/* y = gate / (1 + exp(-gate)) * up. Equal shapes. In place. */
MICA_API mica_status mica_silu_mul(mica_encoder *encoder, mica_buffer *gate, mica_buffer *up, mica_buffer *y);
/* y = gelu(gate) * up with mica_gelu's formula. Equal shapes. In place. */
MICA_API mica_status mica_gelu_mul(mica_encoder *encoder, mica_buffer *gate, mica_buffer *up, mica_buffer *y);
/* y = 0.5 x (1 + tanh(clamp(0.7978845608 (x + 0.044715 x^3), -15, 15))). In place. */
MICA_API mica_status mica_gelu(mica_encoder *encoder, mica_buffer *x, mica_buffer *y);
/* y = 0.5 x (1 + erf(x / sqrt(2))): the form without tanh. In place. */
MICA_API mica_status mica_gelu_erf(mica_encoder *encoder, mica_buffer *x, mica_buffer *y);
/* y = cap tanh(x / cap), cap > 0 and finite. In place. */
MICA_API mica_status mica_softcap(mica_encoder *encoder, mica_buffer *x, float cap, mica_buffer *y);

/* y = x / sqrt(mean(x^2) + eps) * weight over the last dimension. weight [dim] or NULL. In place. eps >= 0. */
MICA_API mica_status mica_rms_norm(mica_encoder *encoder, mica_buffer *x, mica_buffer *weight, float eps,
                                   mica_buffer *y);
/* y = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias over the last dimension; var is the mean of (x - mean)^2.
 * weight [dim] or NULL, bias [dim] or NULL. In place. eps >= 0. */
MICA_API mica_status mica_layer_norm(mica_encoder *encoder, mica_buffer *x, mica_buffer *weight,
                                     mica_buffer *bias, float eps, mica_buffer *y);
/* Softmax over the last dimension of x * scale. A row of only -inf gives zeros, a row with NaN gives NaN. In place. */
MICA_API mica_status mica_softmax(mica_encoder *encoder, mica_buffer *x, float scale, mica_buffer *y);

typedef enum mica_rope_mode {
    MICA_ROPE_STANDARD = 0, /* pairs (2i, 2i+1) */
    MICA_ROPE_NEOX = 1      /* pairs (i, i + rotary_dims/2) */
} mica_rope_mode;

typedef struct mica_rope_params {
    mica_rope_mode mode;
    uint32_t rotary_dims; /* even, <= head size; 0 = the whole head; the rest is copied */
    uint32_t
        frequency_dims; /* divisor of the exponent 2i/frequency_dims; 0 = rotary_dims (some models use the head size) */
    float theta;           /* base, > 0 */
    float position_scale;  /* positions are multiplied by it; 0 = 1 */
    float attention_scale; /* cos and sin are multiplied by it; 0 = 1 */
} mica_rope_params;

/* Rotary embedding of x [tokens, heads, dim] (or [tokens, dim]) by positions [tokens]: angle of pair i is
 * position * position_scale * theta^(-2i/frequency_dims) / factors[i]. factors f32 [rotary_dims/2] or NULL. In place. */
MICA_API mica_status mica_rope(mica_encoder *encoder, mica_buffer *x, mica_buffer *positions,
                               mica_buffer *factors, const mica_rope_params *params, mica_buffer *y);

/*
 * A KV cache is f32, f16, bf16 or q8_0 (dim a multiple of 32), either [slots, heads, dim] (one sequence; any strides
 * above the last, so a head-major cache is a permuted view), or paged [pages, page_slots, heads, dim] with a page table
 * u32 [sequences, max_pages]: position p of sequence s is slot p % page_slots of page table[s][p / page_slots].
 * Entries of pages that no query sees are not looked at. `ring` 1 (unpaged only): slot = position % slots.
 */
typedef struct mica_kv_params {
    uint32_t ring;
} mica_kv_params;

/* Writes x [tokens, heads, dim] into `cache` at positions [tokens]. `sequences` [tokens] says whose row of the page
 * table (NULL: all 0). `pages` NULL: unpaged. A position or page outside: nothing is written for it, FAULT. */
MICA_API mica_status mica_kv_write(mica_encoder *encoder, mica_buffer *x, mica_buffer *positions,
                                   mica_buffer *sequences, mica_buffer *pages, const mica_kv_params *params,
                                   mica_buffer *cache);

typedef struct mica_attention_params {
    float scale;   /* scores are q.k * scale; 0 = 1/sqrt(dim) */
    float softcap; /* > 0: scores become softcap * tanh(score / softcap) before the mask */
    uint32_t
        window; /* > 0: keys before position - window + 1 are not seen: a causal query sees the last `window` */
    uint32_t bidirectional; /* 0: key j is seen by a query at position p only if j <= p */
    uint32_t ring;          /* as in mica_kv_params */
} mica_attention_params;

/* The operands of mica_attention. Query head h reads KV head h / (heads / kv_heads). */
typedef struct mica_attention_operands {
    mica_buffer *q;         /* [tokens, heads, dim] */
    mica_buffer *k, *v;     /* caches as above; v may have another dim */
    mica_buffer *positions; /* [tokens], absolute position of each query */
    mica_buffer *lengths;   /* [sequences], number of valid keys */
    mica_buffer *sequences; /* [tokens] or NULL */
    mica_buffer *pages;     /* [sequences, max_pages] or NULL */
    mica_buffer
        *mask; /* added to the scores: [tokens, keys] or [heads, tokens, keys], f32 f16 bf16; NULL = none.
                             * Keys beyond its width are not seen. */
} mica_attention_operands;

/* y [tokens, heads, v dim] = softmax(q k^T scale + mask) v. A query that sees no key gives zeros. A sequence, page or
 * position outside, or a length that the cache (without a ring) cannot hold: zeros, FAULT. */
MICA_API mica_status mica_attention(mica_encoder *encoder, const mica_attention_operands *operands,
                                    const mica_attention_params *params, mica_buffer *y);

/* How exactly activations enter a quantised matmul. A kernel may be finer than asked, never coarser. */
typedef enum mica_precision {
    MICA_PRECISION_DEFAULT = 0, /* what the fastest kernel of that weight type uses */
    MICA_PRECISION_F32,
    MICA_PRECISION_F16,
    MICA_PRECISION_Q8 /* blocks of 32 with one f32 scale: q = round_to_even(x * 127 / max|x|), x ~ q * max|x| / 127 */
} mica_precision;

typedef struct mica_matmul_params {
    mica_precision precision;
} mica_matmul_params;

/* y [.., M, N] = x [.., M, K] . weight [N, K]^T, or batched weight [B, N, K] with x [B', M, K], B' a multiple of B
 * (weight b' / (B'/B)). weight: f32 f16 bf16, every block type, affine2 to affine8; any layout. Activations as 8-bit
 * blocks, and so faster by default, with q4_0 q4_1 q5_0 q5_1 q8_0 q2_k q3_k q4_k q5_k q6_k iq4_nl iq4_xs, and with affine
 * types in groups of a multiple of 32 with f16 or bf16 scales; with other quantised weights they enter as f32.
 * `params` may be NULL. The bits of a row of y do not depend on the other rows. */
MICA_API mica_status mica_matmul(mica_encoder *encoder, mica_buffer *x, mica_buffer *weight,
                                 const mica_matmul_params *params, mica_buffer *y);
/* Expert-routed: ids [T, S] name for each slot an expert of weight [E, N, K]; x is [T, K] (each slot reads its
 * token's row) or [T, S, K]; y [T, S, N]. Experts may repeat. An id outside: that row of y is zero, FAULT. */
MICA_API mica_status mica_matmul_experts(mica_encoder *encoder, mica_buffer *x, mica_buffer *weight,
                                         mica_buffer *ids, const mica_matmul_params *params, mica_buffer *y);

typedef struct mica_route_params {
    uint32_t
        softmax_first;  /* 1: softmax over all experts, then the best; 0: the best, then softmax over them */
    uint32_t normalise; /* 1: the weights of a token are divided by their sum (left alone where it is 0) */
    float scale;        /* the weights are multiplied by it; 0 = 1 */
} mica_route_params;

/* The best S experts of each token: ids [T, S] (u32 or i32) and weights [T, S] from logits [T, E], S <= E. Best first;
 * the lower id among equals; NaN comes after every number. Weights are those of mica_softmax: a token with only -inf
 * has zeros, a NaN that takes part gives NaN. `params` may be NULL: all zero. */
MICA_API mica_status mica_route(mica_encoder *encoder, mica_buffer *logits, const mica_route_params *params,
                                mica_buffer *ids, mica_buffer *weights);
/* y [T, N] = sum over slots s of weights [T, S] times x [T, S, N], added in the order of the slots. */
MICA_API mica_status mica_expert_sum(mica_encoder *encoder, mica_buffer *x, mica_buffer *weights,
                                     mica_buffer *y);
/* y [T, dim] = rows ids [T] of table [rows, dim], any type matmul takes, any layout. An id outside: zeros, FAULT. */
MICA_API mica_status mica_embedding(mica_encoder *encoder, mica_buffer *table, mica_buffer *ids,
                                    mica_buffer *y);
/* ids [rows] (u32 or i32): index of the greatest element of each row of x [rows, n]; the lowest index among
 * equals; NaN never wins; a row with nothing but NaN gives 0. */
MICA_API mica_status mica_argmax(mica_encoder *encoder, mica_buffer *x, mica_buffer *ids);

#ifdef __cplusplus
}
#endif
#endif
