/*
 * oracle_ops.h - every op in plain double precision, from its formula.
 *
 * Operands are dense arrays of double, row by row. Beside each result stands `error`: what the rounding of f32
 * arithmetic may do to it, in units of one f32 rounding (ORACLE_F32_EPS), derived from the absolute terms of the
 * formula. A negative error means that the result has one right value in f32 and must be met to the bit.
 */
#ifndef ORACLE_OPS_H
#define ORACLE_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "oracle/oracle_blocks.h"

#define ORACLE_EXACT (-1.0)

void oracle_add(size_t count, const double *a, const double *b, double *y, double *error);
void oracle_mul(size_t count, const double *a, const double *b, double *y, double *error);
void oracle_silu_mul(size_t count, const double *gate, const double *up, double *y, double *error);
void oracle_gelu_mul(size_t count, const double *gate, const double *up, double *y, double *error);
void oracle_gelu(size_t count, const double *x, double *y, double *error);
void oracle_gelu_erf(size_t count, const double *x, double *y, double *error);
void oracle_softcap(size_t count, const double *x, double cap, double *y, double *error);

/* weight may be NULL. */
void oracle_rms_norm(size_t rows, size_t dim, const double *x, const double *weight, double eps, double *y,
                     double *error);
/* weight and bias may be NULL. */
void oracle_layer_norm(size_t rows, size_t dim, const double *x, const double *weight, const double *bias,
                       double eps, double *y, double *error);
/* The Walsh-Hadamard transform of rows of `dim`: signs (may be NULL) come first, or last with `undo`. */
void oracle_hadamard(size_t rows, size_t dim, const double *x, const double *signs, double scale, bool undo,
                     double *y, double *error);
typedef enum oracle_scan { ORACLE_SCAN_SUM, ORACLE_SCAN_PROD, ORACLE_SCAN_MAX, ORACLE_SCAN_MIN } oracle_scan;
typedef struct oracle_scan_case {
    oracle_scan kind;
    bool exclusive, reverse; /* without the own element; from the last one back */
    size_t rows, dim;
    const double *x;
    double nothing; /* greatest or least of nothing */
} oracle_scan_case;
void oracle_scan_rows(const oracle_scan_case *scan, double *y, double *error);
typedef enum oracle_reduce {
    ORACLE_REDUCE_SUM,
    ORACLE_REDUCE_MEAN,
    ORACLE_REDUCE_MAX,
    ORACLE_REDUCE_MIN,
    ORACLE_REDUCE_PROD,
    ORACLE_REDUCE_VAR,
    ORACLE_REDUCE_LOGSUMEXP
} oracle_reduce;
/* Of the n terms of one output; `ends` are the greatest of nothing and the least of nothing. */
double oracle_reduce_one(oracle_reduce kind, size_t n, const double *x, const double *ends, double correction,
                         double *error);
void oracle_softmax(size_t rows, size_t dim, const double *x, double scale, double *y, double *error);
void oracle_argmax(size_t rows, size_t dim, const double *x, bool least, double *ids);
/* Where the first `count` of each row in order stood; NaN last, the lower index among equals. */
void oracle_sort(size_t rows, size_t dim, size_t count, const double *x, bool descending, double *ids);

/* Routing: a score is the logit, its sigmoid, or its softmax; the best by score + bias, in the best groups, are chosen. */
typedef struct oracle_route {
    size_t rows, experts, slots;
    const double *logits, *bias, *expert_scale; /* bias, expert_scale [experts] or NULL */
    bool softmax_first, sigmoid, normalise;
    size_t groups, top_groups, group_best; /* 1 group: none */
    double scale;
} oracle_route;
/* What the experts of a row are chosen by; `values` has room for all of them. */
void oracle_route_values(const oracle_route *route, size_t row, double *values);
/* How good a group is, by those values. */
double oracle_route_group(const oracle_route *route, const double *values, size_t group);
/* The `slots` best of each row: best first, lower ids first among equals, NaN last. */
void oracle_route_ids(const oracle_route *route, double *ids);
/* The weights of those ids. */
void oracle_route_weights(const oracle_route *route, const double *ids, double *weights, double *error);
/* What reaches logits [rows, experts] from dweights [rows, slots] of those ids; ids outside take no part. */
void oracle_route_backward(const oracle_route *route, const double *ids, const double *dweights,
                           double *dlogits, double *error);
/* Places in the lines of experts that take `capacity` each, and how many wanted each. */
void oracle_expert_places(size_t rows, size_t slots, size_t experts, size_t capacity, bool by_choice,
                          const double *ids, double *places, double *counts);
/* y [rows, dim] = sum over slots of weights [rows, slots] * x [rows, slots, dim]. */
/* One element of a product of two matrices: k terms, `step` apart. */
double oracle_dot(size_t k, const double *a, size_t a_step, const double *b, size_t b_step, double *error);
/* shared [rows, dim], gate [rows], residual [rows, dim]: or NULL. */
typedef struct oracle_sum_rest {
    const double *shared, *gate, *residual;
} oracle_sum_rest;
void oracle_expert_sum(size_t rows, size_t slots, size_t dim, const double *x, const double *weights,
                       const oracle_sum_rest *rest, double *y, double *error);

typedef enum oracle_rope_axes {
    ORACLE_AXES_ONE,
    ORACLE_AXES_SECTIONS,
    ORACLE_AXES_INTERLEAVED,
    ORACLE_AXES_SEPARATE
} oracle_rope_axes;
typedef struct oracle_rope {
    size_t tokens, heads, dim;
    const double *x, *positions, *factors; /* positions [axes, tokens]; factors may be NULL */
    bool neox;
    size_t rotary_dims, frequency_dims;
    double theta, position_scale, attention_scale;
    oracle_rope_axes sharing;
    size_t axes, sections[4];
} oracle_rope;
void oracle_rope_run(const oracle_rope *rope, double *y, double *error);

/* Where position p of a sequence lies in a cache. Unpaged caches have pages 1 and page_slots = slots. */
typedef struct oracle_cache {
    size_t pages, page_slots, heads;
    const double *table; /* [sequences, max_pages] or NULL: unpaged */
    size_t sequences, max_pages;
    bool ring;
} oracle_cache;
/* Slot number over all pages, or -1 when there is none. */
int64_t oracle_cache_slot(const oracle_cache *cache, int64_t sequence, int64_t position);

typedef struct oracle_attention {
    size_t tokens, heads, dim, v_dim;
    oracle_cache cache;
    const double *q, *k, *v, *positions, *lengths;
    const double *sequences; /* or NULL */
    const double *mask;      /* or NULL */
    size_t mask_heads, mask_keys;
    bool mask_hides;              /* the mask is of bool: keys of 0 have no weight */
    const double *sinks, *slopes; /* [heads] or NULL */
    const double *keys;           /* [tokens, key_count] or NULL: the only keys of each token */
    size_t key_count;
    double scale, softcap;
    size_t window;
    bool bidirectional;
    double *lse, *lse_error; /* [tokens, heads], written; or NULL */
} oracle_attention;
/* False when an index pointed outside its table; the row of such a token is zero. */
bool oracle_attention_run(const oracle_attention *attention, double *y, double *error);

/* The gradient of an attention without pages, ring or list of keys, whose sums (y, lse) are given. Errors as elsewhere. */
typedef struct oracle_attention_backward {
    const oracle_attention *forward;
    const double *y, *lse, *dy;
    double *dq, *dk, *dv, *dsinks; /* written; dsinks NULL without sinks */
    double *dq_error, *dk_error, *dv_error, *dsinks_error;
} oracle_attention_backward;
/* False when an index pointed outside; such a token gives nothing. */
bool oracle_attention_backward_run(const oracle_attention_backward *backward);

/* Weight rows as stored, with the affine parts decoded to double: scales and biases [rows, groups]. */
typedef struct oracle_weight {
    mica_dtype dtype;
    const uint8_t *data;
    size_t rows, columns;
    const double *scales, *biases;
    uint32_t group_size;
} oracle_weight;
/* y[n] = sum over k of x[k] * weight[first + n][k]: oracle A, or oracle B with `quantised` activations. */
void oracle_matmul_row(const oracle_weight *weight, size_t first, size_t rows, const double *x,
                       bool quantised, double *y, double *error);
/* y[k] = sum over n of x[n] * weight[first + n][k]. */
void oracle_matmul_transposed_row(const oracle_weight *weight, size_t first, size_t rows, const double *x,
                                  double *y, double *error);
/* Row `row` of the table as values. */
void oracle_embedding_row(const oracle_weight *table, size_t row, double *y, double *error);

#endif
