/*
 * graph_ops.h - nodes for each family of ops: what ops.h and its ops_*.h have, in the words that users of
 * numpy and PyTorch have for it. As graph.h says of all functions that add; what is computed is said where
 * the op is. This header: numbers with parameters, products, reductions, order, indexing, shapes.
 * graph_layers.h: norms, attention, experts, images, recurrence. graph_numeric.h: transforms, random numbers,
 * codes, linear algebra, losses, optimisers.
 *
 * Axes count from the first dimension; those below 0 from the last: -1 is the last. Tensors that a function may
 * go without are 0; `out_` tensors may be NULL. Ids are of any integer type. Sizes may be symbols unless a
 * function says which must be numbers.
 */
#ifndef MICA_GRAPH_OPS_H
#define MICA_GRAPH_OPS_H

#include "mica/graph.h"
#include "mica/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- elementwise, with numbers ---- */

/* `value` in each element of a tensor of this shape: a number that repeats, without memory of its own. */
MICA_API mica_tensor mica_graph_fill(mica_graph *graph, mica_dtype dtype, uint32_t ndim,
                                     const uint64_t *shape, double value);
/* a where the condition holds, else b: numpy.where. A condition of numbers holds where it is not 0. */
MICA_API mica_tensor mica_graph_where(mica_graph *graph, mica_tensor condition, mica_tensor a, mica_tensor b);
/* x > 0 ? x : slope x. */
MICA_API mica_tensor mica_graph_leaky_relu(mica_graph *graph, mica_tensor x, float slope);
/* x > 0 ? x : alpha (e^x - 1). */
MICA_API mica_tensor mica_graph_elu(mica_graph *graph, mica_tensor x, float alpha);
/* min(max(x, low), high) of any numbers; either may be infinite. */
MICA_API mica_tensor mica_graph_clamp(mica_graph *graph, mica_tensor x, double low, double high);
/* cap tanh(x / cap). */
MICA_API mica_tensor mica_graph_softcap(mica_graph *graph, mica_tensor x, float cap);
/* act(gate) up, rounded once; act is a scalar of one value: MICA_SCALAR_SILU, GELU, SIGMOID, QUICK_GELU, RELU_SQUARED
 * .. */
MICA_API mica_tensor mica_graph_gate(mica_graph *graph, mica_scalar act, mica_tensor gate, mica_tensor up);
/* The same of the two halves of x along `axis`, the first of which is the gate (`gate_first` 1) or what is gated
 * (0). */
MICA_API mica_tensor mica_graph_gate_halves(mica_graph *graph, mica_scalar act, mica_tensor x, int32_t axis,
                                            uint32_t gate_first);
/* mica_clipped_swiglu. */
MICA_API mica_tensor mica_graph_clipped_swiglu(mica_graph *graph, mica_tensor gate, mica_tensor up,
                                               float alpha, float limit);
/* x + gate branch; gate repeats. */
MICA_API mica_tensor mica_graph_gated_residual(mica_graph *graph, mica_tensor x, mica_tensor gate,
                                               mica_tensor branch);

/* ---- products ---- */

/* a [.., M, K] times b [.., K, N], leading dimensions broadcast; a vector is a row on the left and a column on
 * the right, as numpy.matmul has it. */
MICA_API mica_tensor mica_graph_matmul(mica_graph *graph, mica_tensor a, mica_tensor b);
/* x [.., K] times weight [N, K] turned, plus bias [N] or 0: weights of every type (mica_matmul). */
MICA_API mica_tensor mica_graph_linear(mica_graph *graph, mica_tensor x, mica_tensor weight,
                                       mica_tensor bias);
/* x times each of `count` weights [N, K] of one type, which are read once for all rows; or a batched weight [B, N, K]
 * with x [B', M, K]. x has 2 to 4 dimensions. `params` may be NULL. `outputs` gets `count` values; returns the
 * first. */
MICA_API mica_tensor mica_graph_linear_many(mica_graph *graph, mica_tensor x, const mica_tensor *weights,
                                            uint32_t count, const mica_matmul_params *params,
                                            mica_tensor *outputs);
/* x [.., N] times weight [N, K] (or [E, N, K], with ids as mica_matmul_transposed has them): a product with a
 * weight of any type where it lies. */
MICA_API mica_tensor mica_graph_matmul_transposed(mica_graph *graph, mica_tensor x, mica_tensor weight,
                                                  mica_tensor ids);
/* mica_graph_linear without bias, plus scale (x a^T) b^T: a [R, K] and b [N, R] are an adapter beside a weight of
 * any type. x has 2 to 4 dimensions. */
MICA_API mica_tensor mica_graph_lora(mica_graph *graph, mica_tensor x, mica_tensor weight, mica_tensor a,
                                     mica_tensor b, float scale);
/* mica_product: a [.., M, K] times b [.., K, N], plus add (or 0). */
MICA_API mica_tensor mica_graph_product(mica_graph *graph, mica_tensor a, mica_tensor b, mica_tensor add);
/* mica_product_codes: (a - a_zero) (b - b_zero) + add in i32; zeros and add may be 0.
 * mica_graph_requantize makes codes of it. */
MICA_API mica_tensor mica_graph_product_codes(mica_graph *graph, mica_tensor a, mica_tensor a_zero,
                                              mica_tensor b, mica_tensor b_zero, mica_tensor add);
/* a [.., M] and b [.., N] as [.., M, N]: each element with each. */
MICA_API mica_tensor mica_graph_outer(mica_graph *graph, mica_tensor a, mica_tensor b);

/* Which axes of a and b go together, pair by pair. */
typedef struct mica_contraction {
    uint32_t batch_count, contract_count;
    int32_t a_batch[MICA_MAX_DIMS], b_batch[MICA_MAX_DIMS];
    int32_t a_contract[MICA_MAX_DIMS], b_contract[MICA_MAX_DIMS];
} mica_contraction;
/* Sums over the axes that are contracted, for each place of the batch axes: XLA's DotGeneral, numpy.tensordot. The
 * result has the batch axes as listed, then those of a that are left, then those of b, in their order. */
MICA_API mica_tensor mica_graph_dot_general(mica_graph *graph, mica_tensor a, mica_tensor b,
                                            const mica_contraction *axes);
/* numpy.einsum of 1 to 8 tensors, from the left: "bij,bjk->bik", "...d,d", "ii->i"; without "->" what
 * stands once, in the order of letters. */
MICA_API mica_tensor mica_graph_einsum(mica_graph *graph, const char *equation, const mica_tensor *tensors,
                                       uint32_t count);

/* ---- reductions ---- */

/* Over `count` axes (0: all); `keep` 1: they stay with size 1. Var takes the correction 0. */
MICA_API mica_tensor mica_graph_reduce(mica_graph *graph, mica_reduce_kind kind, mica_tensor x,
                                       const int32_t *axes, uint32_t count, uint32_t keep);
/* The variance with `correction` (0, or 1: of a sample), and its root. */
MICA_API mica_tensor mica_graph_variance(mica_graph *graph, mica_tensor x, const int32_t *axes,
                                         uint32_t count, uint32_t correction, uint32_t keep);
/* The root of the variance. */
MICA_API mica_tensor mica_graph_deviation(mica_graph *graph, mica_tensor x, const int32_t *axes,
                                          uint32_t count, uint32_t correction, uint32_t keep);
/* (sum |x|^p)^(1/p); p infinite: the greatest |x|, or below 0 the least; p 0: how many are not 0. */
MICA_API mica_tensor mica_graph_vector_norm(mica_graph *graph, mica_tensor x, double p, const int32_t *axes,
                                            uint32_t count, uint32_t keep);
/* The index (i32) of the greatest or the least element along `axis`: mica_argmax. */
MICA_API mica_tensor mica_graph_argmax(mica_graph *graph, mica_tensor x, int32_t axis, uint32_t keep);
/* Of the least. */
MICA_API mica_tensor mica_graph_argmin(mica_graph *graph, mica_tensor x, int32_t axis, uint32_t keep);

/* ---- order ---- */

/* Running sums, products, greatest or least elements along `axis`: mica_scan. */
MICA_API mica_tensor mica_graph_cumulate(mica_graph *graph, mica_scan_kind kind, mica_tensor x, int32_t axis,
                                         uint32_t exclusive, uint32_t reverse);
/* In order along `axis`, stable, NaN last; and where the elements stood (i32). */
MICA_API mica_tensor mica_graph_sort(mica_graph *graph, mica_tensor x, int32_t axis, uint32_t descending);
/* The order itself: mica_argsort. */
MICA_API mica_tensor mica_graph_argsort(mica_graph *graph, mica_tensor x, int32_t axis, uint32_t descending);
/* The k greatest (`least` 1: the k least) along `axis`, in order; `out_ids` (i32): where they stood. */
MICA_API mica_tensor mica_graph_top_k(mica_graph *graph, mica_tensor x, uint64_t k, int32_t axis,
                                      uint32_t least, mica_tensor *out_ids);

/* ---- indexing. An id outside, also one below 0, gives zeros or writes nothing, and the run ends with FAULT ---- */

/* Ids below 0 become those that they mean where they count from the end of n. */
MICA_API mica_tensor mica_graph_wrap_ids(mica_graph *graph, mica_tensor ids, uint64_t n);
/* x [.., n, ..] at ids of any shape along `axis`: numpy.take. The shape of ids stands in the place of n. */
MICA_API mica_tensor mica_graph_gather(mica_graph *graph, mica_tensor x, mica_tensor ids, int32_t axis);
/* ids has as many dimensions as x, of its sizes or 1 but along `axis`: numpy.take_along_axis, torch.gather. */
MICA_API mica_tensor mica_graph_take_along_axis(mica_graph *graph, mica_tensor x, mica_tensor ids,
                                                int32_t axis);
/* ids [batch.., .., k] are places in the k dimensions of x behind its first `batch_dims`: ONNX GatherND. */
MICA_API mica_tensor mica_graph_gather_nd(mica_graph *graph, mica_tensor x, mica_tensor ids,
                                          uint32_t batch_dims);
/* x with updates where ids say: mica_scatter. ids [n] name slices along `axis`, or have the
 * dimensions of updates (torch.scatter). */
MICA_API mica_tensor mica_graph_scatter(mica_graph *graph, mica_tensor x, mica_tensor ids,
                                        mica_tensor updates, int32_t axis, mica_scatter_mode mode);
/* ids [.., k] are places in the first k dimensions of x, updates [.., the other sizes]: ONNX ScatterND. */
MICA_API mica_tensor mica_graph_scatter_nd(mica_graph *graph, mica_tensor x, mica_tensor ids,
                                           mica_tensor updates, mica_scatter_mode mode);
/* mica_nonzero: places [room, dims] (i32) of what is not 0, rows of -1 behind them; room 0: as many as
 * x has elements. `out_count` [1]. */
MICA_API mica_tensor mica_graph_nonzero(mica_graph *graph, mica_tensor x, uint64_t room,
                                        mica_tensor *out_count);
/* mica_compress: slices along `axis` where condition [L] is not 0, L of them, zeros behind `out_count` [1]. */
MICA_API mica_tensor mica_graph_compress(mica_graph *graph, mica_tensor x, mica_tensor condition,
                                         int32_t axis, mica_tensor *out_count);
/* [.., classes]: 1 where the id is the class, else 0. */
MICA_API mica_tensor mica_graph_one_hot(mica_graph *graph, mica_tensor ids, uint64_t classes,
                                        mica_dtype dtype);
/* Rows ids of table [rows, D], of any type that mica_matmul takes; ids of any shape: [.., D]. NONE:
 * f32, or the table's float type. */
MICA_API mica_tensor mica_graph_embedding(mica_graph *graph, mica_tensor table, mica_tensor ids,
                                          mica_dtype dtype);
/* The lower or the upper triangle of each matrix [.., R, C], 0 elsewhere: column <= row + diagonal, or >= it. */
MICA_API mica_tensor mica_graph_tril(mica_graph *graph, mica_tensor x, int32_t diagonal);
/* The same above: mica_triu. */
MICA_API mica_tensor mica_graph_triu(mica_graph *graph, mica_tensor x, int32_t diagonal);
/* start + step i, `count` of them (a symbol may be): mica_arange. */
MICA_API mica_tensor mica_graph_arange(mica_graph *graph, mica_dtype dtype, double start, double step,
                                       uint64_t count);
/* [rows, columns]: 1 where column = row + diagonal, else 0. */
MICA_API mica_tensor mica_graph_eye(mica_graph *graph, mica_dtype dtype, uint64_t rows, uint64_t columns,
                                    int32_t diagonal);

/* ---- shapes ---- */

/* A dimension of size 1 before dimension `axis` (-1: behind the last); `count` dimensions of size 1 away (0: all of
 * them). */
MICA_API mica_tensor mica_graph_unsqueeze(mica_graph *graph, mica_tensor x, int32_t axis);
/* Takes dimensions of size 1 away; count 0: all of them. */
MICA_API mica_tensor mica_graph_squeeze(mica_graph *graph, mica_tensor x, const int32_t *axes,
                                        uint32_t count);
/* Dimensions `first` to `last` as one. */
MICA_API mica_tensor mica_graph_flatten(mica_graph *graph, mica_tensor x, int32_t first, int32_t last);
/* Two dimensions exchanged. */
MICA_API mica_tensor mica_graph_swap_axes(mica_graph *graph, mica_tensor x, int32_t a, int32_t b);
/* Tensors of one shape as slices of a new dimension `axis`. */
MICA_API mica_tensor mica_graph_stack(mica_graph *graph, const mica_tensor *tensors, uint32_t count,
                                      int32_t axis);
/* Parts of these sizes along `axis`, which are all of it; sizes NULL: `count` equal ones of a size that
 * is a number. Returns the first. */
MICA_API mica_tensor mica_graph_split(mica_graph *graph, mica_tensor x, int32_t axis, const uint64_t *sizes,
                                      uint32_t count, mica_tensor *outputs);
/* mica_pad; `params` in the order of the dimensions. */
MICA_API mica_tensor mica_graph_pad(mica_graph *graph, mica_tensor x, const mica_pad_params *params);
/* The other way round along `count` axes (0: all). */
MICA_API mica_tensor mica_graph_flip(mica_graph *graph, mica_tensor x, const int32_t *axes, uint32_t count);
/* Element i goes to (i + shift) mod n along `axis`: numpy.roll. */
MICA_API mica_tensor mica_graph_roll(mica_graph *graph, mica_tensor x, int64_t shift, int32_t axis);
/* x again and again, times[d] times in dimension d; each element `times` times in a row. */
MICA_API mica_tensor mica_graph_tile(mica_graph *graph, mica_tensor x, const uint64_t *times);
/* Each element `times` times in a row: mica_repeat. */
MICA_API mica_tensor mica_graph_repeat(mica_graph *graph, mica_tensor x, uint64_t times, int32_t axis);

/* ---- short names ---- */

static inline mica_tensor mica_graph_silu_mul(mica_graph *graph, mica_tensor gate, mica_tensor up)
{
    return mica_graph_gate(graph, MICA_SCALAR_SILU, gate, up);
}
static inline mica_tensor mica_graph_gelu_mul(mica_graph *graph, mica_tensor gate, mica_tensor up)
{
    return mica_graph_gate(graph, MICA_SCALAR_GELU, gate, up);
}
static inline mica_tensor mica_graph_sum(mica_graph *graph, mica_tensor x, int32_t axis)
{
    return mica_graph_reduce(graph, MICA_REDUCE_SUM, x, &axis, 1, 0);
}
static inline mica_tensor mica_graph_mean(mica_graph *graph, mica_tensor x, int32_t axis)
{
    return mica_graph_reduce(graph, MICA_REDUCE_MEAN, x, &axis, 1, 0);
}
static inline mica_tensor mica_graph_logsumexp(mica_graph *graph, mica_tensor x, int32_t axis)
{
    return mica_graph_reduce(graph, MICA_REDUCE_LOGSUMEXP, x, &axis, 1, 0);
}
static inline mica_tensor mica_graph_cumsum(mica_graph *graph, mica_tensor x, int32_t axis)
{
    return mica_graph_cumulate(graph, MICA_SCAN_SUM, x, axis, 0, 0);
}
static inline mica_tensor mica_graph_cumprod(mica_graph *graph, mica_tensor x, int32_t axis)
{
    return mica_graph_cumulate(graph, MICA_SCAN_PROD, x, axis, 0, 0);
}
static inline mica_tensor mica_graph_cummax(mica_graph *graph, mica_tensor x, int32_t axis)
{
    return mica_graph_cumulate(graph, MICA_SCAN_MAX, x, axis, 0, 0);
}
/* The last two dimensions exchanged. */
static inline mica_tensor mica_graph_transpose(mica_graph *graph, mica_tensor x)
{
    return mica_graph_swap_axes(graph, x, -2, -1);
}

#ifdef __cplusplus
}
#endif

#include "mica/graph_layers.h"
#include "mica/graph_numeric.h"

#endif
