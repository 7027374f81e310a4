/*
 * rows.h - dimensions of which the run finds how much is there: what NonZero, Compress, TopK and NonMaxSuppression give, and what is made of it.
 *
 * Such a tensor has as many places along one dimension as there may be; a number that the run finds says how many of them, the first ones, are ONNX's. What lies behind
 * them is anything: it is masked before an operator sees it that lets one place reach another. Operators without a rule here are refused. docs/decisions/031.
 */
#ifndef MICA_GRAPH_ONNX_ROWS_H
#define MICA_GRAPH_ONNX_ROWS_H

#include "graph/onnx/importer.h"

/* How a number of rows comes about. Two that are made of the same are one. */
typedef enum mica__ox_rows_kind {
    MICA__OX_ROWS_TRUE = 0, /* places where `tensor` holds, of the rows a where it has some */
    MICA__OX_ROWS_SLICE,    /* of a: those from p to q */
    MICA__OX_ROWS_JOIN,     /* a (or p), then b (or q) */
    MICA__OX_ROWS_SCALE,    /* a times p */
    MICA__OX_ROWS_FIRST     /* at most `tensor` (or p) of a (or q) */
} mica__ox_rows_kind;

typedef struct mica__ox_found {
    mica__ox_rows_kind kind;
    uint64_t most;
    mica_tensor count; /* i32 without dimensions, 0 to most */
    const struct mica__ox_found *a, *b;
    mica_tensor tensor;
    int64_t p, q;
    uint64_t serial; /* of the graph whose tensors these are */
    uint32_t number; /* in mica__ox.rows */
} mica__ox_found;

/* Whether a value, or a number in it, is known to the run alone. */
static inline bool mica__ox_value_open(const mica__ox_value *value)
{
    return value->rows != NULL || (value->host != NULL && value->host->sized);
}

/* ---- rows (rows.c) ---- */

/* The rows that are made as `key` says (kind, a, b, tensor, p, q); NULL: there are none yet. */
const mica__ox_found *mica__ox_rows_find(const mica__ox_op *o, const mica__ox_found *key);
/* Makes them: `count` is an integer tensor of one element, which is clamped to 0 .. most. */
mica_status mica__ox_rows_make(mica__ox_op *o, const mica__ox_found *key, uint64_t most, mica_tensor count,
                               const mica__ox_found **out);
/* How many of `most` there are, as `count` says: of the places, `inside` of rows or NULL, where `of` holds. */
mica_status mica__ox_rows_counted(mica__ox_op *o, mica_tensor of, const mica__ox_found *inside, uint64_t most,
                                  mica_tensor count, const mica__ox_found **out);
mica_status mica__ox_rows_slice(mica__ox_op *o, const mica__ox_found *rows, int64_t start, int64_t end,
                                const mica__ox_found **out);
/* rows times `multiple`, by `part`; refused where that need not be whole. */
mica_status mica__ox_rows_scale(mica__ox_op *o, const mica__ox_found *rows, uint64_t multiple, uint64_t part,
                                const mica__ox_found **out);
/* One behind another; NULL: all of the size beside it. */
mica_status mica__ox_rows_join(mica__ox_op *o, const mica__ox_found *const *rows, const uint64_t *size,
                               uint32_t count, const mica__ox_found **out);
/* Of `rows`, or of `size` places where that is NULL, at most as many as `k` says, or k_number where that is 0. */
mica_status mica__ox_rows_at_most(mica__ox_op *o, const mica__ox_found *rows, uint64_t size, mica_tensor k,
                                  int64_t k_number, const mica__ox_found **out);
/* Whether a place along dimension `axis` of `ndim` is there: bool [1, .., most, .., 1]. */
mica_tensor mica__ox_there(const mica__ox_op *o, const mica__ox_found *rows, uint32_t ndim, uint32_t axis);
/* x, and `otherwise` (one number, or of x's shape) in the places that are not there. */
mica_tensor mica__ox_masked(const mica__ox_op *o, mica_tensor x, const mica__ox_found *rows, uint32_t axis,
                            mica_tensor otherwise);

/* ---- shapes in which numbers of rows stand (rows.c) ---- */

/* Whether a node only moves the numbers of such a shape, which is done while importing. */
bool mica__ox_moves_sizes(const mica__ox_op *o);
/* Whatever the node was given in place of a number of rows is one behind it too. */
mica_status mica__ox_note_sizes(mica__ox_op *o);
/* A shape that an operator reads as numbers becomes a tensor of the run. */
mica_status mica__ox_settle_sizes(mica__ox_op *o);
mica_status mica__ox_settle(mica__ox *im, mica_graph *graph, mica__ox_value *value);
/* The rows for which a number of a host stands; NULL: it is itself. */
const mica__ox_found *mica__ox_size_rows(const mica__ox *im, const mica__ox_host *host, uint64_t i);
/* A number that stands for rows. */
int64_t mica__ox_size_of(const mica__ox_found *rows);

/* ---- operators (rows_rules.c, rows_places.c) ---- */

/* What an operator does with an input of such rows: builds the node, and says which dimension of its outputs they are. */
typedef struct mica__ox_rule {
    mica__ox_build *build, *rule;
    uint32_t sizes; /* bit i: input i may be a shape in which numbers of rows stand */
} mica__ox_rule;

const mica__ox_rule *mica__ox_rule_of(const mica__ox_op *o);
/* Whether the node has to be built by its rule. */
bool mica__ox_is_open(const mica__ox_op *o);
mica_status mica__ox_build_open(mica__ox_op *o);
/* Refuses an input by name. */
mica_status mica__ox_rows_refuse(const mica__ox_op *o, uint32_t input, const char *why);
/* Input i is another tensor from here on, of known sizes. */
void mica__ox_put(mica__ox_op *o, uint32_t i, mica_tensor tensor);
void mica__ox_out_rows(mica__ox_op *o, uint32_t i, const mica__ox_found *rows, uint32_t axis);
/* The extreme number of a type, a tensor without dimensions. */
mica_tensor mica__ox_extreme(const mica__ox_op *o, mica_dtype dtype, bool high);

/* NonZero, Compress of what the run finds; `axis` NULL: of all elements. */
mica_status mica__ox_places_found(mica__ox_op *o);
mica_status mica__ox_compressed(mica__ox_op *o, const mica__onnx_attribute *axis);

mica__ox_build mica__ox_rows_gather, mica__ox_rows_gather_elements, mica__ox_rows_gather_nd,
    mica__ox_rows_scatter_nd, mica__ox_rows_scatter_elements, mica__ox_rows_slice_op, mica__ox_rows_concat,
    mica__ox_rows_split, mica__ox_rows_transpose, mica__ox_rows_unsqueeze_op, mica__ox_rows_squeeze,
    mica__ox_rows_flatten, mica__ox_rows_reshape_op, mica__ox_rows_expand, mica__ox_rows_tile,
    mica__ox_rows_pad, mica__ox_rows_one_hot, mica__ox_rows_shape, mica__ox_rows_size,
    mica__ox_rows_constant_of_shape, mica__ox_rows_range;

#endif
