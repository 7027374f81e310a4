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
 * size. Where no output has elements nothing is done; an input without elements, where an output has some, is
 * INVALID_ARGUMENT unless the op says what that gives. In place: an output may be the very same view as an input
 * where the op says so; any other overlap of an output with an operand is INVALID_ARGUMENT.
 * Index operands (positions, ids, pages) are u32 or i32 buffers read when the work runs: a value outside its
 * table gives a defined result (written as zeros, or nothing written) and the fence ends with FAULT.
 * Failure: INVALID_ARGUMENT names the operand; UNSUPPORTED where no kernel serves the types; STATE after
 * commit. On failure nothing is added. Operands are kept alive until the work is done. Threads: as the encoder.
 */
#ifndef MICA_OPS_H
#define MICA_OPS_H

#include "mica/device.h"
#include "mica/op.h"
#include "mica/ops_experts.h"
#include "mica/ops_matrix.h"
#include "mica/ops_turbo.h"
#include "mica/ops_image.h"
#include "mica/ops_random.h"
#include "mica/ops_recurrent.h"
#include "mica/ops_sort.h"
#include "mica/region.h"
#include "mica/scalars.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y = x, converting between any two of f32 f16 bf16 (round to nearest even), or bit for bit between equal
 * types of any non-block kind, or between equal contiguous block types. x broadcasts to y's shape as in mica_add
 * (block types: equal shapes). */
MICA_API mica_status mica_copy(mica_encoder *encoder, mica_buffer *x, mica_buffer *y);
/* Every element of y becomes `value`, rounded once to y's type (any plain one); integers drop the fraction, and a
 * value out of their range is INVALID_ARGUMENT; bool takes 0 and 1. */
MICA_API mica_status mica_fill(mica_encoder *encoder, double value, mica_buffer *y);
/* Adds `delta` to every element of an integer buffer, wrapping: how a decode step moves its own position on. */
MICA_API mica_status mica_advance(mica_encoder *encoder, int32_t delta, mica_buffer *counters);

/* mica_add, mica_mul, mica_gelu and all other functions of single values: scalars.h. Of these ops too f32 stands for
 * every dtype that loads to it; gated products take f64 as well, on the cpu. */
/* y = gate / (1 + exp(-gate)) * up. Equal shapes. In place. */
MICA_API mica_status mica_silu_mul(mica_encoder *encoder, mica_buffer *gate, mica_buffer *up, mica_buffer *y);
/* y = gelu(gate) * up with mica_gelu's formula. Equal shapes. In place. */
MICA_API mica_status mica_gelu_mul(mica_encoder *encoder, mica_buffer *gate, mica_buffer *up, mica_buffer *y);
/* y = sigmoid(gate) * up. Equal shapes. In place. */
MICA_API mica_status mica_sigmoid_mul(mica_encoder *encoder, mica_buffer *gate, mica_buffer *up,
                                      mica_buffer *y);
/* y = gate sigmoid(1.702 gate) * up. Equal shapes. In place. */
MICA_API mica_status mica_quick_gelu_mul(mica_encoder *encoder, mica_buffer *gate, mica_buffer *up,
                                         mica_buffer *y);
/* y = max(gate, 0)^2 * up. Equal shapes. In place. */
MICA_API mica_status mica_relu_squared_mul(mica_encoder *encoder, mica_buffer *gate, mica_buffer *up,
                                           mica_buffer *y);
/* y = (u + 1) g sigmoid(alpha g), g = min(gate, limit), u = clamp(up, -limit, limit): the gate of GPT-OSS, whose
 * alpha is 1.702 and limit 7. NaN stays. Equal shapes. In place. alpha finite, limit > 0. */
MICA_API mica_status mica_clipped_swiglu(mica_encoder *encoder, mica_buffer *gate, mica_buffer *up,
                                         float alpha, float limit, mica_buffer *y);
/* y = x > 0 ? x : slope x, slope finite. f32 or f64. In place. */
MICA_API mica_status mica_leaky_relu(mica_encoder *encoder, mica_buffer *x, float slope, mica_buffer *y);
/* y = x > 0 ? x : alpha (e^x - 1), alpha finite. f32 or f64. In place. */
MICA_API mica_status mica_elu(mica_encoder *encoder, mica_buffer *x, float alpha, mica_buffer *y);
/* y = min(max(x, low), high), low <= high, which may be infinite; NaN stays. Any numbers, x and y of one register
 * type; of integers the bounds are the whole numbers inside of them that the type has. In place. */
MICA_API mica_status mica_clamp(mica_encoder *encoder, mica_buffer *x, double low, double high,
                                mica_buffer *y);
/* y = cap tanh(x / cap), cap > 0 and finite. In place. */
MICA_API mica_status mica_softcap(mica_encoder *encoder, mica_buffer *x, float cap, mica_buffer *y);

typedef struct mica_norm_params {
    float eps; /* >= 0 */
} mica_norm_params;

/* y = x / sqrt(mean(x^2) + eps) * weight over the last dimension. weight [dim] or NULL. In place. eps >= 0. All
 * f64, on the cpu: as mica_normalize. */
MICA_API mica_status mica_rms_norm(mica_encoder *encoder, mica_buffer *x, mica_buffer *weight, float eps,
                                   mica_buffer *y);
/* y = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias over the last dimension; var is the mean of (x - mean)^2.
 * weight [dim] or NULL, bias [dim] or NULL. In place. eps >= 0. All f64, on the cpu: as mica_normalize. */
MICA_API mica_status mica_layer_norm(mica_encoder *encoder, mica_buffer *x, mica_buffer *weight,
                                     mica_buffer *bias, float eps, mica_buffer *y);
typedef struct mica_softmax_params {
    float scale;
    uint32_t log; /* 1: the logarithm of it, mica_log_softmax */
} mica_softmax_params;

/* Softmax over the last dimension of x * scale. A row of only -inf gives zeros, a row with NaN gives NaN. Any
 * strides, so that a permuted view gives any other dimension. In place. Both f64, on the cpu. */
MICA_API mica_status mica_softmax(mica_encoder *encoder, mica_buffer *x, float scale, mica_buffer *y);
/* Softmax over the last dimension of x * scale + mask, in f32 (f64 with f64). mask is f32, f16 or bf16 (f64 with
 * f64), or bool: where that is false the element has no part and gives 0, whatever x is there. It broadcasts to x;
 * any strides of all. A row that is masked wholly gives zeros, one with NaN (or inf - inf) in what has a part NaN.
 * mask NULL: mica_softmax. In place on x. Its gradient is mica_softmax_backward, of y as here. */
MICA_API mica_status mica_masked_softmax(mica_encoder *encoder, mica_buffer *x, mica_buffer *mask,
                                         float scale, mica_buffer *y);

typedef enum mica_reduce_kind {
    MICA_REDUCE_SUM = 0,
    MICA_REDUCE_MEAN = 1,
    MICA_REDUCE_MAX = 2,
    MICA_REDUCE_MIN = 3,
    MICA_REDUCE_PROD = 4,
    MICA_REDUCE_ANY = 5,
    MICA_REDUCE_ALL = 6,
    MICA_REDUCE_VAR = 7,         /* sum of (x - mean)^2, over how many there are less `correction` */
    MICA_REDUCE_LOGSUMEXP = 8,   /* log of the sum of e^x */
    MICA_REDUCE_SUM_SQUARES = 9, /* sum of x^2 */
    MICA_REDUCE_MAX_ABS = 10     /* the greatest |x| */
} mica_reduce_kind;

typedef struct mica_reduce_params {
    uint32_t kind; /* mica_reduce_kind */
    /* bit a: the a-th dimension of x counted from the last, 0 being the last. 0: all of them */
    uint32_t axes;
    uint32_t keep_dims;  /* 1: reduced dimensions stay in y, with size 1 */
    uint32_t correction; /* of VAR: 0, or 1 for the variance of a sample */
} mica_reduce_params;

/* y = x reduced over `axes`; y has the other dimensions. Any strides, any rank. f32, f16 and bf16, of which y may be
 * another than x; f64 where the device has it, i32, u32 and i64 (which wrap; SUM, MAX, MIN and PROD), y of the type
 * of x; ANY and ALL of bool. MAX and MIN are NaN if an element is, 0 is above -0. LOGSUMEXP is -inf of nothing but
 * -inf. Of nothing: SUM 0, PROD 1, MAX -inf or the least integer, MIN inf or the greatest, ANY 0, ALL 1, MEAN and VAR
 * NaN, LOGSUMEXP -inf, SUM_SQUARES and MAX_ABS 0 (floats alone). f32 sums are within about sqrt(n) roundings of n
 * terms; their order depends on shapes, strides and types alone. `params` may be NULL: the sum of all. */
MICA_API mica_status mica_reduce(mica_encoder *encoder, mica_buffer *x, const mica_reduce_params *params,
                                 mica_buffer *y);

typedef enum mica_rope_mode {
    MICA_ROPE_STANDARD = 0, /* pairs (2i, 2i+1) */
    MICA_ROPE_NEOX = 1      /* pairs (i, i + rotary_dims/2) */
} mica_rope_mode;

/* How pairs share the axes of positions [axes, tokens]. Pair i stands for i modulo the sum of sections. */
typedef enum mica_rope_axes {
    MICA_ROPE_AXES_ONE = 0, /* positions [tokens] */
    /* the first sections[0] pairs turn by axis 0, the next sections[1] by axis 1, and so on (Qwen2-VL) */
    MICA_ROPE_AXES_SECTIONS = 1,
    /* pair i turns by axis a = i % 3 where i < 3 sections[a]; the others by axis 3, or by axis 0 where
     * there are three axes (Qwen3-VL) */
    MICA_ROPE_AXES_INTERLEAVED = 2,
    /* as SECTIONS, and frequencies begin anew with each section: i is counted from its first pair (vision towers) */
    MICA_ROPE_AXES_SEPARATE = 3
} mica_rope_axes;

typedef struct mica_rope_params {
    mica_rope_mode mode;
    uint32_t rotary_dims; /* even, <= head size; 0 = the whole head; the rest is copied */
    /* divisor of the exponent 2i/frequency_dims; 0 = rotary_dims (some models use the head size), with
     * SEPARATE twice the greatest section */
    uint32_t frequency_dims;
    float theta;           /* base, > 0 */
    float position_scale;  /* positions are multiplied by it; 0 = 1 */
    float attention_scale; /* cos and sin are multiplied by it; 0 = 1 */
    uint32_t axes;         /* mica_rope_axes */
    /* pairs of each axis, those of axes that positions does not have 0; sum at most rotary_dims/2 */
    uint32_t sections[4];
} mica_rope_params;

/* Rotary embedding of x [tokens, heads, dim] (or [tokens, dim]) by positions [tokens], or [1 to 4 axes, tokens] where
 * params.axes says whose position a pair has: angle of pair i is position * position_scale *
 * theta^(-2i/frequency_dims) / factors[i]. factors f32 [rotary_dims/2] or NULL. In place. Linear scaling is
 * position_scale, NTK a greater theta, Llama 3 and LongRoPE are factors, YaRN factors and attention_scale. f32, f16
 * or bf16; or x and y f64 on the cpu, its angles in f64 too. */
MICA_API mica_status mica_rope(mica_encoder *encoder, mica_buffer *x, mica_buffer *positions,
                               mica_buffer *factors, const mica_rope_params *params, mica_buffer *y);
/* Its gradient: dx is dy turned back by the same angles. dx may be dy. */
MICA_API mica_status mica_rope_backward(mica_encoder *encoder, mica_buffer *dy, mica_buffer *positions,
                                        mica_buffer *factors, const mica_rope_params *params,
                                        mica_buffer *dx);
/* The first half of each head by positions[0], the second by positions[1], each half a mica_rope of its own: x
 * [tokens, heads, dim] or [tokens, dim] with dim a multiple of 4, positions [2, tokens]; pairs of NEOX are (i, i +
 * dim/4) within a half. params.rotary_dims and params.axes are 0. Two records. In place. */
MICA_API mica_status mica_rope_2d(mica_encoder *encoder, mica_buffer *x, mica_buffer *positions,
                                  const mica_rope_params *params, mica_buffer *y);

/*
 * A KV cache is f32, f16, bf16, or q8_0, q4_0, q4_1, q5_0, q5_1, iq4_nl (dim a multiple of 32; the same blocks as
 * conversion of files makes without an importance matrix), either [slots, heads, dim] (one sequence; any strides
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
    /* > 0: keys before position - window + 1 are not seen: a causal query sees the last `window` */
    uint32_t window;
    uint32_t bidirectional; /* 0: key j is seen by a query at position p only if j <= p */
    uint32_t ring;          /* as in mica_kv_params */
} mica_attention_params;

/* The operands of mica_attention. Query head h reads KV head h / (heads / kv_heads). */
typedef struct mica_attention_operands {
    mica_buffer *q; /* [tokens, heads, dim] */
    /* caches as above, or f64; each of its own type; v may have another dim, and lie in k */
    mica_buffer *k, *v;
    mica_buffer *positions; /* [tokens], absolute position of each query */
    mica_buffer *lengths;   /* [sequences], number of valid keys */
    mica_buffer *sequences; /* [tokens] or NULL */
    mica_buffer *pages;     /* [sequences, max_pages] or NULL */
    /* [tokens, keys] or [heads, tokens, keys]: f32 f16 bf16 are added to the scores, of bool the keys of 0 get no
     * weight; NULL = none. Keys beyond its width are not seen. */
    mica_buffer *mask;
    /* [heads] or NULL: a score of each head's own that joins the sum of its softmax, with no value (GPT-OSS) */
    mica_buffer *sinks;
    /* [heads] or NULL: slope * (key's position - query's position) is added to the scores, beside the mask (ALiBi) */
    mica_buffer *slopes;
    /* [tokens, count] or NULL: positions of the only keys that the query looks at, of those that it would see;
     * others, and negative ones, are passed over, and one that stands twice counts twice */
    mica_buffer *keys;
    /* [tokens, heads] f32 or NULL, written: log of the sum of e^score over the keys seen and the
     * sink; -inf where there are none */
    mica_buffer *lse;
} mica_attention_operands;

/* y [tokens, heads, v dim] = softmax(q k^T scale + mask) v. A query that sees no key gives zeros. A sequence, page or
 * position outside, or a length that the cache (without a ring) cannot hold: zeros as if there were no key, FAULT. q,
 * k, v and y may be f64, all four together with lse; mask, sinks and slopes may then be f64 as well.
 * docs/attention.md has recipes: batches of sequences of different lengths one behind another, cross attention,
 * latent attention, keys that an index chooses. */
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
 * (weight b' / (B'/B)). weight: f32 f16 bf16, every block type, every type with scales that mica_buffer_affine joins;
 * any layout. Activations as 8-bit blocks, and so faster by default, with q4_0 q4_1 q5_0 q5_1 q8_0 q2_k q3_k q4_k
 * q5_k q6_k iq4_nl iq4_xs mxfp4 nvfp4, with affine types in groups of a multiple of 32 with f16 or bf16 scales, and
 * with fp4 in groups of 32 with e8m0 or of 16 with f8_e4m3 scales; with other quantised weights they enter as f32. A
 * device that multiplies 16-bit numbers may take both operands as such (bf16 with bf16 weights, else f16, each row of
 * x times a power of two) with weights of 16 bits, of every block type, and of those that would take 8-bit blocks,
 * unless F32, or with bf16 weights F16, or with quantised ones Q8, is asked for.
 * `params` may be NULL. The bits of a row of y do not depend on what stands in other rows; on the CPU not on how many
 * there are either, while a GPU has other kernels for one, for a few and for many. */
MICA_API mica_status mica_matmul(mica_encoder *encoder, mica_buffer *x, mica_buffer *weight,
                                 const mica_matmul_params *params, mica_buffer *y);
/* Expert-routed: ids [T, S] name for each slot an expert of weight [E, N, K]; x is [T, K] (each slot reads its
 * token's row) or [T, S, K]; y [T, S, N]. Experts may repeat. An id outside: that row of y is zero, FAULT.
 * x, weight and y may be f64, all three, on the cpu. */
MICA_API mica_status mica_matmul_experts(mica_encoder *encoder, mica_buffer *x, mica_buffer *weight,
                                         mica_buffer *ids, const mica_matmul_params *params, mica_buffer *y);

/* y [T, dim] = rows ids [T] of table [rows, dim], any type matmul takes, any layout. An id outside: zeros, FAULT. It
 * is also how a cache is decoded, of every type that mica_kv_write codes, turbo types too: the table is a view
 * [slots, heads * dim] of it, ids are slots. */
MICA_API mica_status mica_embedding(mica_encoder *encoder, mica_buffer *table, mica_buffer *ids,
                                    mica_buffer *y);
/* ---- layout. Permuting, slicing with steps and repeating are views (device.h), which every op and mica_copy read
 * ---- */

/* y = x converted to y's type, any plain one: floats to nearest even, too large ones infinite (f8_e4m3: NaN); floats
 * to integers towards 0, NaN to 0, beyond the range of 32 or 64 bits its nearest end; what is narrower, and integers,
 * by their low bits; to bool: x != 0. Of a c64 the real part, but to c64. x broadcasts to y's shape. Fusion joins it
 * with its neighbours, where mica_copy moves memory. */
MICA_API mica_status mica_cast(mica_encoder *encoder, mica_buffer *x, mica_buffer *y);

/* y = the `count` inputs one behind another along dimension `axis`: a mica_copy each into its slice of y, converting
 * as it does. All have y's other sizes; empty ones are fine. Nothing is added where one is refused. */
MICA_API mica_status mica_concat(mica_encoder *encoder, mica_buffer *const *inputs, uint32_t count,
                                 uint32_t axis, mica_buffer *y);
/* y [.., n * times, ..] = each element of x [.., n, ..] `times` times in a row along `axis`: a
 * mica_copy. x has at most 7 dimensions. */
MICA_API mica_status mica_repeat(mica_encoder *encoder, mica_buffer *x, uint32_t axis, mica_buffer *y);

typedef enum mica_pad_mode {
    MICA_PAD_CONSTANT = 0, /* v v | a b c | v v */
    MICA_PAD_EDGE,         /* a a | a b c | c c */
    MICA_PAD_REFLECT,      /* c b | a b c | b a */
    MICA_PAD_SYMMETRIC,    /* b a | a b c | c b */
    MICA_PAD_WRAP          /* b c | a b c | a b */
} mica_pad_mode;

typedef struct mica_pad_params {
    /* elements before and behind x in each dimension; below 0 x is cut */
    int64_t low[MICA_MAX_DIMS], high[MICA_MAX_DIMS];
    double value;  /* of MICA_PAD_CONSTANT, as mica_fill takes it; in types of 8-bit floats 0 alone */
    uint32_t mode; /* mica_pad_mode; pads may be longer than x */
    uint32_t reserved;
} mica_pad_params;

/* y = x with more around it: size low + n + high in each dimension. Any plain type, bit for bit. `params` NULL: y =
 * x. */
MICA_API mica_status mica_pad(mica_encoder *encoder, mica_buffer *x, const mica_pad_params *params,
                              mica_buffer *y);
/* y [.., (i + shift) mod n, ..] = x [.., i, ..] along `axis`, `shift` of any sign: a mica_pad. */
MICA_API mica_status mica_roll(mica_encoder *encoder, mica_buffer *x, uint32_t axis, int64_t shift,
                               mica_buffer *y);
/* y [.., n - 1 - i, ..] = x [.., i, ..] along every dimension d with bit d of `axes`: a
 * mica_pad, since strides are not below 0. */
MICA_API mica_status mica_flip(mica_encoder *encoder, mica_buffer *x, uint32_t axes, mica_buffer *y);
/* y = x again and again in each dimension, whose size in y is a multiple of that in x: a mica_pad. */
MICA_API mica_status mica_tile(mica_encoder *encoder, mica_buffer *x, mica_buffer *y);

typedef struct mica_gather_params {
    uint32_t axis; /* dimension of x, from the first */
} mica_gather_params;

/* y [.., i, ..] = x [.., id, ..] along params.axis, any plain type, bit for bit. ids (u32 or i32) is a vector, y's
 * size along the axis (numpy.take); or has as many dimensions as x, of y's sizes or 1 (take_along_axis). y has x's
 * other sizes. An id outside, also one below 0: zeros, FAULT. `params` NULL: axis 0. */
MICA_API mica_status mica_gather(mica_encoder *encoder, mica_buffer *x, mica_buffer *ids,
                                 const mica_gather_params *params, mica_buffer *y);

typedef enum mica_scatter_mode {
    MICA_SCATTER_SET = 0, /* the last one stays */
    MICA_SCATTER_ADD,
    MICA_SCATTER_MUL,
    MICA_SCATTER_MAX, /* NaN if either is */
    MICA_SCATTER_MIN
} mica_scatter_mode;

typedef struct mica_scatter_params {
    uint32_t axis; /* dimension of y, from the first */
    uint32_t mode; /* mica_scatter_mode */
} mica_scatter_params;

/* y [.., id, ..] = updates [.., i, ..], or y (+ * max min) it, along params.axis; what no id names stays. ids as in
 * mica_gather, by the sizes of updates. Where ids are equal their updates come in the order of i, on every device and
 * with any number of threads; a sum of floats is as if it rounded once.
 * SET: any plain type, bit for bit; else f32, f16, bf16, 32- and 64-bit integers (wrapping), f64 on the cpu alone. An
 * id outside writes nothing: FAULT. `params` NULL: axis 0, SET. */
MICA_API mica_status mica_scatter(mica_encoder *encoder, mica_buffer *updates, mica_buffer *ids,
                                  const mica_scatter_params *params, mica_buffer *y);

typedef struct mica_gather_nd_params {
    uint32_t batch_dims; /* leading dimensions that x, ids and y have in common */
} mica_gather_nd_params;

/* y [b.., m.., r..] = x [b.., ids [b.., m.., 0], .., ids [b.., m.., K - 1], r..]: the last dimension of ids (u32 or
 * i32), K from 1 on, is a place in K dimensions of x behind the batch (tf.gather_nd, ONNX GatherND). Any plain type,
 * bit for bit. Each coordinate is compared with its own dimension: where one is outside, or below 0, the r..
 * elements are zeros, FAULT. `params` NULL: no batch. ONNX's GatherElements and numpy.take_along_axis are
 * mica_gather with ids of as many dimensions as x. */
MICA_API mica_status mica_gather_nd(mica_encoder *encoder, mica_buffer *x, mica_buffer *ids,
                                    const mica_gather_nd_params *params, mica_buffer *y);

typedef struct mica_scatter_nd_params {
    uint32_t mode; /* mica_scatter_mode */
} mica_scatter_nd_params;

/* y [ids [m.., 0], .., ids [m.., K - 1], r..] = updates [m.., r..], or y (+ * max min) it; what no place of ids
 * [m.., K] names stays (ONNX ScatterND, on a y that has what its data has). Types, orders and sums as
 * mica_scatter, equal places in the order of m... Each coordinate is compared with its own dimension: a place with
 * one outside, or below 0, writes nothing: FAULT. `params` NULL: SET. ONNX's ScatterElements is mica_scatter with
 * ids of as many dimensions as updates. */
MICA_API mica_status mica_scatter_nd(mica_encoder *encoder, mica_buffer *updates, mica_buffer *ids,
                                     const mica_scatter_nd_params *params, mica_buffer *y);

/* places [M, dims] = the coordinates of the elements of x [..] that are not 0 (-0 is 0, NaN is not; a c64 of which
 * neither part is anything else is), in the order of x, last dimension fastest (numpy.nonzero, whose tuple are the
 * columns; ONNX's [dims, M] is a permuted view). How many there are is known when the work has run: count [1] gets
 * it, and rows behind it are -1 (u32: 2^32 - 1). M is the caller's: x's elements are always enough; where it is less
 * the first M are written and count is that of all. u32 or i32 both; places may be NULL: they are only counted. Any
 * plain type, at most 2^31 - 1 elements. */
MICA_API mica_status mica_nonzero(mica_encoder *encoder, mica_buffer *x, mica_buffer *places,
                                  mica_buffer *count);

typedef struct mica_compress_params {
    uint32_t axis; /* dimension of x, from the first */
    uint32_t flat; /* 1: of all elements of x in their order, y is a vector and axis 0 */
} mica_compress_params;

/* y [.., j, ..] = x [.., i, ..] along params.axis for the j-th place i where condition [L] is not 0 (numpy.compress,
 * ONNX Compress). L may be shorter than the axis, then the rest is left out. y has any size along the axis: L is
 * always enough; behind the last one it is zeros, and what there is no room for is not written. count [1] (u32 or
 * i32) = how many the condition admits, room or not. x and condition any plain type, bit for bit, at most 2^31 - 1
 * elements of a condition, or of a flat x. `params` NULL: axis 0. */
MICA_API mica_status mica_compress(mica_encoder *encoder, mica_buffer *x, mica_buffer *condition,
                                   const mica_compress_params *params, mica_buffer *y, mica_buffer *count);

/* y [.., i] = 1 where ids [..] is i, else 0; an id outside gives zeros. ids u32 or i32, y any plain type but c64. */
MICA_API mica_status mica_one_hot(mica_encoder *encoder, mica_buffer *ids, mica_buffer *y);
/* y [.., r, c] = x where c <= r + diagonal, else 0. Any plain type but c64; x broadcasts to y's shape and
 * converts as in mica_cast. In place. */
MICA_API mica_status mica_tril(mica_encoder *encoder, mica_buffer *x, int32_t diagonal, mica_buffer *y);
/* The same where c >= r + diagonal. */
MICA_API mica_status mica_triu(mica_encoder *encoder, mica_buffer *x, int32_t diagonal, mica_buffer *y);
/* y [.., i] = start + step * i, in f64 where y is, in i64 (wrapping) where it is an integer, else in f32.
 * Integers take whole numbers only. */
MICA_API mica_status mica_arange(mica_encoder *encoder, double start, double step, mica_buffer *y);

/*
 * Sampling: mica_penalize changes logits, mica_sample picks one token of each row. Everything that differs from request
 * to request or from step to step is read from `settings`, a u32 buffer [rows, MICA_SAMPLE_WORDS] whose rows are
 * mica_sample_settings, when the work runs: one recording serves every request.
 *
 * A history is [rows, width], u32 or i32: a ring of the tokens chosen before. Tokens enter at `history_next`, which
 * then moves on by one and wraps at width; entry e counts if (history_next + width - 1 - e) % width < history_last.
 * history_next is taken modulo width, history_last is cut to it. An entry of -1 (u32: 2^32 - 1) is none; another one
 * outside [0, vocabulary) is passed over, FAULT.
 */
#define MICA_SAMPLE_WORDS 16u
#define MICA_SAMPLE_MASKED 1u /* flags: the row of the mask holds; else it is not looked at */

/* One row, 16 words of 32 bits. Fields of another value than told count as the nearest that is, NaN as no filter. */
typedef struct mica_sample_settings {
    uint32_t seed_low, seed_high; /* one number of 64 bits */
    uint32_t pick_low, pick_high; /* which draw of that seed this is; mica_sample adds 1 */
    float temperature;            /* 0, and anything not above 2^-126: the most likely token */
    uint32_t top_k;               /* 0: all */
    float top_p;                  /* 1 or more: all */
    float min_p;                  /* 0 or less: all */
    float typical_p;              /* 1 or more: all */
    uint32_t keep;                /* tokens that no filter goes below; 0 = 1 */
    float repeat_penalty;         /* > 0; 1: none */
    float presence_penalty;       /* 0: none */
    float frequency_penalty;      /* 0: none */
    uint32_t history_last;        /* tokens that penalties look back on */
    uint32_t history_next;        /* where the next token enters the history; mica_sample moves it */
    uint32_t flags;               /* MICA_SAMPLE_MASKED */
} mica_sample_settings;

typedef struct mica_penalize_operands {
    mica_buffer *logits;   /* [rows, vocabulary] */
    mica_buffer *settings; /* u32 [rows, MICA_SAMPLE_WORDS] */
    /* u32 or i32 [rows, slots] or NULL; -1 is none, another id outside: passed over, FAULT */
    mica_buffer *bias_ids;
    mica_buffer *bias; /* f32 f16 bf16 [rows, slots]; NULL without bias_ids */
    /* u32 [rows, words] or NULL, words * 32 >= vocabulary: bit i % 32 of word i / 32 admits i */
    mica_buffer *mask;
    mica_buffer *history; /* [rows, width] or NULL */
} mica_penalize_operands;

/* y [rows, vocabulary] = logits, then in this order: the bias of each slot is added to the logit it names, in the order
 * of the slots where several name one; logits that a mask does not admit become -inf; each token that counts in the
 * history, unless its logit is NaN or -inf by now, gets its logit l changed once: l * repeat_penalty where l <= 0, else
 * l / repeat_penalty, minus (frequency_penalty * times + presence_penalty), kept finite, where `times` is how often it
 * counts. f32, each step rounded. In place on logits. */
MICA_API mica_status mica_penalize(mica_encoder *encoder, const mica_penalize_operands *operands,
                                   mica_buffer *y);

typedef struct mica_sample_operands {
    mica_buffer *logits;   /* [rows, vocabulary] */
    mica_buffer *raw;      /* [rows, vocabulary]: what log-probabilities are of; NULL = logits */
    mica_buffer *settings; /* u32 [rows, MICA_SAMPLE_WORDS]: pick and history_next move on */
    mica_buffer *history;  /* [rows, width] or NULL: the token enters it */
} mica_sample_operands;

/*
 * One token of each row: ids [rows] (u32 or i32), and log_probabilities [rows] (f32 f16 bf16; NULL: not asked for),
 * the natural logarithm of the chosen token's part in the softmax of raw (of candidates there, as below).
 *
 * The candidates are all tokens whose logit is neither NaN nor -inf; +inf counts as the highest finite number. Each
 * filter that is not neutral takes candidates away and looks at those that the ones before left; with m their
 * greatest logit, v(i) = m - logit(i) and c(i) = exp(-v(i)) / sum of exp(-v):
 *   top_k      the first max(top_k, keep) in the order of (v, id);
 *   typical_p  with a = sum of c v: in the order of (|v - a|, id), which is the distance of -log(c) from the entropy,
 *              the shortest run whose c add up to more than typical_p, at least keep;
 *   top_p      in the order of (v, id) the shortest run whose c add up to top_p or more, at least keep;
 *   min_p      those with v <= -log(min_p), and the first keep in the order of (v, id).
 * Then w(i) = exp(-v(i) / temperature) with the m of what is left, and the chosen token is the first in the order of
 * the ids where the running sum of w is above r times their whole sum (the last with w > 0 if rounding leaves none).
 * r is a multiple of 2^-24 in [0, 1), the upper 24 bits of
 *   mix(mix(seed + g) + g * (2 * pick + 1)), g = 0x9e3779b97f4a7c15, in 64 bits, where mix(x) is
 *   x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9; x = (x ^ x >> 27) * 0x94d049bb133111eb; x ^ x >> 31.
 * Temperature 0 takes the first candidate in the order of (v, id) and draws nothing, though pick moves on. A kernel
 * may add up in any order, in f32 or finer: where a sum meets its bound, or r its place, to that rounding, either is
 * right. On the cpu the bits do not depend on threads or on other rows.
 *
 * Without any candidate the id is -1 (u32: 2^32 - 1), its log-probability -inf, and neither pick nor history move.
 */
MICA_API mica_status mica_sample(mica_encoder *encoder, const mica_sample_operands *operands,
                                 mica_buffer *ids, mica_buffer *log_probabilities);

#ifdef __cplusplus
}
#endif

#include "mica/ops_quantize.h"
#include "mica/ops_train.h"
#include "mica/ops_attention.h"
#include "mica/ops_norm.h"
#include "mica/ops_fourier.h"
#include "mica/ops_linear.h"

#endif
