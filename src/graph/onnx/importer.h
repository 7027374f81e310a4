/*
 * importer.h - what the importer of ONNX models shares between its operators: values by name, scopes, attributes, and what is known while importing.
 *
 * An operator is a row of onnx_ops.def and a function over mica__ox_op, which reads inputs and attributes and gives outputs. An attribute that it did not read is
 * refused by name afterwards. A value is a tensor of the graph, or known: constants, shapes, and what follows from them, so that chains of Shape, Gather, Concat and
 * Reshape vanish. Knows the graph and the file; no device.
 */
#ifndef MICA_GRAPH_ONNX_IMPORTER_H
#define MICA_GRAPH_ONNX_IMPORTER_H

#include "format/onnx.h"
#include "graph/ir.h"
#include "mica/graph.h"
#include "mica/onnx.h"

#define MICA__OX_FOLD \
    4096u /* elements of what is computed while importing; larger constants are the graph's to fold */
#define MICA__OX_NEWEST 28u /* operator set of ONNX's own domain */
#define MICA__OX_DEPTH 32u  /* bodies and functions inside of one another */

/* A tensor that is known while importing: contiguous elements, of any alignment; 4-bit ones as i8 or u8. */
typedef struct mica__ox_host {
    mica_dtype dtype;
    uint32_t ndim;
    uint64_t shape[MICA_MAX_DIMS];
    uint64_t elements, bytes;
    const void *data;
    bool sized; /* some of its numbers stand for numbers of rows (rows.h) */
} mica__ox_host;

struct mica__ox_found;

typedef struct mica__ox_value {
    mica_tensor tensor;        /* of the graph of its scope; 0: known, and no node needed it yet */
    const mica__ox_host *host; /* NULL: known when the graph runs */
    const struct mica__ox_found
        *rows; /* NULL, or: of dimension `axis` only the first so many are ONNX's (rows.h) */
    uint32_t axis;
} mica__ox_value;

typedef struct mica__ox_entry {
    const char *name; /* NULL: free */
    mica__ox_value value;
} mica__ox_entry;

/* Names of one graph, body or function that is being imported. */
typedef struct mica__ox_scope {
    struct mica__ox_scope *outer; /* whose names are seen; NULL: none */
    mica_graph *graph;            /* that nodes go to; another one than the outer's in a body */
    mica__ox_entry *entry;        /* [slots], a power of 2 */
    uint32_t count, slots, depth;
    uint64_t serial;                     /* of the graph, among those of this import */
    const mica__onnx_function *function; /* whose nodes these are; NULL */
    const mica__onnx_node *call;         /* of that function, whose attributes it refers to */
    struct mica__ox_scope *caller;       /* where that call stands */
} mica__ox_scope;

typedef struct mica__ox {
    const mica__onnx *model;
    struct mica__chunk *chunks;
    uint64_t seed;
    uint64_t draws;               /* of random operators without a seed, so that no two are alike */
    struct mica__ox_found **rows; /* all that were made, by number */
    uint32_t rows_count, rows_room;
    uint64_t serials;
} mica__ox;

typedef struct mica__ox_op mica__ox_op;
typedef mica_status mica__ox_build(mica__ox_op *o);

typedef struct mica__ox_row {
    const char *domain, *name;
    uint32_t since; /* the first version of the operator set that is read */
    mica__ox_build *build;
    int32_t argument;         /* of functions that serve several rows */
    uint32_t inputs, outputs; /* most; UINT32_MAX: any */
} mica__ox_row;

/* One node while it is imported. */
struct mica__ox_op {
    mica__ox *im;
    mica__ox_scope *scope;
    mica_graph *graph;
    const mica__onnx_node *node;
    const mica__ox_row *row;
    uint64_t version; /* of the operator set of its domain */
    uint64_t seen;    /* attributes that were read */
    mica__ox_value *in, *out;
    uint32_t input_count, output_count;
};

extern const mica__ox_row mica__ox_rows[];
extern const uint32_t mica__ox_row_count;

/* A model of bytes that live as long as it, for who has no file; `name` is for sentences (model.c). */
mica_status mica__ox_open_bytes(const char *name, const void *bytes, size_t size, mica_onnx **out_model);

/* ---- importing (import.c) ---- */

mica_status mica__ox_scope_open(mica__ox *im, mica__ox_scope *scope, mica__ox_scope *outer,
                                mica_graph *graph);
void mica__ox_scope_close(mica__ox_scope *scope);
mica_status mica__ox_define(mica__ox *im, mica__ox_scope *scope, const char *name, mica__ox_value value);
/* The value of a name as the scope sees it; false: there is none. A tensor of another graph is not brought in here. */
bool mica__ox_find(const mica__ox *im, const mica__ox_scope *scope, const char *name, mica__ox_value *out,
                   const mica__ox_scope **out_owner);
/* Initialisers and nodes of a graph. */
mica_status mica__ox_body(mica__ox *im, mica__ox_scope *scope, const mica__onnx_graph *body);
/* Memory until the import is over; NULL with a sentence. */
void *mica__ox_memory(mica__ox *im, uint64_t count, size_t size);
mica_status mica__ox_tensor_host(mica__ox *im, const mica__onnx_tensor *tensor, const mica__ox_host **out);
/* The tensor of a value in a graph: a constant where it is only known. */
mica_tensor mica__ox_materialise(mica_graph *graph, mica__ox_value *value);

/* ---- operators: inputs, outputs, attributes (operator.c) ---- */

/* UNSUPPORTED with operator and node before the sentence. */
mica_status mica__ox_fail(const mica__ox_op *o, const char *format, ...) MICA__PRINTF(2, 3) MICA__COLD;
bool mica__ox_has(const mica__ox_op *o, uint32_t i);
/* The tensor of an input, 0 where it is absent. */
mica_tensor mica__ox_in(mica__ox_op *o, uint32_t i);
/* Type and shape; all zero for 0. */
mica__type mica__ox_type(const mica__ox_op *o, mica_tensor tensor);
mica__type mica__ox_in_type(mica__ox_op *o, uint32_t i);
/* What is known of an input; NULL: nothing. */
const mica__ox_host *mica__ox_known(const mica__ox_op *o, uint32_t i);
/* Refuses an input that is not known while importing, by name. */
mica_status mica__ox_need(const mica__ox_op *o, uint32_t i, const mica__ox_host **out);
/* The numbers of a known input of integers (or bools) of at most 2^20 elements; memory of the import. */
mica_status mica__ox_need_ints(const mica__ox_op *o, uint32_t i, int64_t **out, uint32_t *out_count);
/* One number of a known input. */
mica_status mica__ox_need_int(const mica__ox_op *o, uint32_t i, int64_t *out);
mica_status mica__ox_need_number(const mica__ox_op *o, uint32_t i, double *out);
/* Whether all sizes are known; else refused by name. */
mica_status mica__ox_need_shape(const mica__ox_op *o, mica_tensor tensor, const char *what);
bool mica__ox_wants(const mica__ox_op *o, uint32_t i);
void mica__ox_out(mica__ox_op *o, uint32_t i, mica_tensor tensor);
mica_status mica__ox_out_host(mica__ox_op *o, uint32_t i, mica_dtype dtype, uint32_t ndim,
                              const uint64_t *shape, const void *data);

const mica__onnx_attribute *mica__ox_attribute(mica__ox_op *o, const char *name, mica__onnx_kind kind);
int64_t mica__ox_int(mica__ox_op *o, const char *name, int64_t otherwise);
float mica__ox_float(mica__ox_op *o, const char *name, float otherwise);
/* The attribute is one of these words; the last is NULL. UINT32_MAX: another one, and the operator is refused behind it. */
uint32_t mica__ox_word(mica__ox_op *o, const char *name, uint32_t otherwise, const char *const *words);
/* NULL and 0 where it is absent. */
const int64_t *mica__ox_ints(mica__ox_op *o, const char *name, uint32_t *out_count);
/* An axis counted from the first, of `ndim` dimensions. */
mica_status mica__ox_axis(const mica__ox_op *o, int64_t axis, uint32_t ndim, uint32_t *out);
mica_dtype mica__ox_dtype(const mica__ox_op *o, int64_t onnx_type); /* NONE, with a sentence: mica has none */

/* ---- small pieces of graphs (pieces.c); 0 gives 0 ---- */

mica_tensor mica__ox_number(const mica__ox_op *o, mica_tensor like, double value); /* of like's type */
mica_tensor mica__ox_scalar(const mica__ox_op *o, mica_scalar scalar, mica_tensor a, mica_tensor b);
mica_tensor mica__ox_select(const mica__ox_op *o, mica_tensor condition, mica_tensor yes, mica_tensor no);
mica_tensor mica__ox_cast(const mica__ox_op *o, mica_tensor x, mica_dtype dtype);
mica_tensor mica__ox_reduce(const mica__ox_op *o, mica_reduce_kind kind, mica_tensor x, uint32_t axes_mask,
                            bool keep); /* bit d: dimension d from the first; 0: none */
mica_tensor mica__ox_op1(const mica__ox_op *o, mica_op op, const void *params, const mica_tensor *inputs,
                         uint32_t count);
/* x with dimension `axis` moved to `to`. */
mica_tensor mica__ox_move(const mica__ox_op *o, mica_tensor x, uint32_t axis, uint32_t to);
mica_tensor mica__ox_swap(const mica__ox_op *o, mica_tensor x, uint32_t a, uint32_t b);
mica_tensor mica__ox_reshape(const mica__ox_op *o, mica_tensor x, uint32_t ndim, const uint64_t *shape);
/* x [n] as [.., n, ..] with 1s, where n is dimension `axis` of `ndim`. */
mica_tensor mica__ox_along(const mica__ox_op *o, mica_tensor x, uint32_t ndim, uint32_t axis);
mica_tensor mica__ox_expand_like(const mica__ox_op *o, mica_tensor x, const mica__type *type);
mica_tensor mica__ox_unsqueeze(const mica__ox_op *o, mica_tensor x, uint32_t axis);
mica_tensor mica__ox_slice(const mica__ox_op *o, mica_tensor x, uint32_t axis, uint64_t start,
                           uint64_t count);
/* Indices of ONNX as ids of mica: those below 0 count from the end of `size`; i32. */
mica_tensor mica__ox_ids(mica__ox_op *o, uint32_t i, uint64_t size);
/* Every index of a shape's elements along an axis, i32. */
mica_tensor mica__ox_iota(const mica__ox_op *o, uint32_t ndim, const uint64_t *shape, uint32_t axis,
                          mica_dtype dtype);
mica_tensor mica__ox_constant(const mica__ox_op *o, mica_dtype dtype, uint32_t ndim, const uint64_t *shape,
                              const void *data);

/* ---- what is known (known.c) ---- */

int64_t mica__ox_host_int(const mica__ox_host *host, uint64_t i);
double mica__ox_host_number(const mica__ox_host *host, uint64_t i);
/* Computes the outputs of a small graph of constants; false: some node is none that is computed here. */
bool mica__ox_evaluate(mica__ox *im, const mica_graph *graph, const mica_tensor *tensors, uint32_t count,
                       const mica__ox_host **out);

#endif
