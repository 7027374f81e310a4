/*
 * graph.h - describe a computation once: a graph of tensor operations, which is checked while it is written, printed,
 * saved, differentiated (gradient.h) and compiled for any device (executable.h). One screen:
 *
 *     mica_graph *graph;
 *     mica_graph_create(&graph);
 *     const uint64_t batch = mica_graph_symbol(graph, "batch");
 *     mica_tensor x = mica_graph_input(graph, "x", MICA_DTYPE_F32, 2, (uint64_t[]){batch, 784});
 *     mica_tensor w = mica_graph_parameter(graph, "w", MICA_DTYPE_F32, 2, (uint64_t[]){784, 10});
 *     mica_tensor b = mica_graph_parameter(graph, "b", MICA_DTYPE_F32, 1, (uint64_t[]){10});
 *     mica_tensor y = mica_graph_add(graph, mica_graph_matmul(graph, x, w), b);
 *     mica_graph_output(graph, "y", y);
 *     mica_executable *run;
 *     if (mica_graph_compile(graph, device, NULL, &run) != MICA_OK)
 *         fputs(mica_status_message(), stderr);
 *         // "graph: matmul: b [785, 10] must be [784, N] as a [batch, 784] says"
 *
 * Tensors. A mica_tensor is a value of a graph: a type, a shape, and the node that gives it. A function that adds
 * a node takes values and gives a value, 0 where it fails: nothing is added then, and the graph keeps the first
 * failure. Whoever gets a 0 gives 0 on, so that expressions are written without looking; mica_graph_status, and
 * every call that uses the whole graph, ends with that failure and its sentence. (docs/decisions/028: why
 * builders do not return a status.)
 *
 * Order. Nodes are kept in the order in which they were added, which is one in which they can run: a
 * node takes values that are there.
 *
 * Shapes. A size is a number, or a symbol that stands for one until the graph is compiled and run: equal symbols are
 * equal sizes. A size that follows from symbols in another way than being one (of a concatenation, of windows) is
 * MICA_SIZE_UNKNOWN until they are known; then everything is inferred, and checked, again.
 *
 * Types are those of the ops below (ops.h, scalars.h). Elementwise nodes broadcast as numpy does. Values are never
 * written in place: an op that updates an operand takes the old value and gives the new one, and the executable finds
 * out where it may be the same memory.
 *
 * Ownership: a graph owns its nodes, its constants and its sub-graphs. Threads: one graph, one thread at a time.
 */
#ifndef MICA_GRAPH_H
#define MICA_GRAPH_H

#include "mica/op.h"
#include "mica/region.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mica_graph mica_graph;
typedef uint32_t mica_tensor; /* of one graph; 0: none */

#define MICA_GRAPH_NAME_BYTES 256u /* of inputs, parameters, outputs, symbols; their end included */
#define MICA_GRAPH_INPUTS 65535u   /* that a node may take at the most */

/* An empty graph. Owned by the caller. */
MICA_API mica_status mica_graph_create(mica_graph **out_graph);
/* NULL is fine. Executables keep what they need of it. */
MICA_API void mica_graph_release(mica_graph *graph);
/* A copy, sub-graphs and constants included; values keep their numbers. The failure of a graph that failed. */
MICA_API mica_status mica_graph_clone(const mica_graph *graph, mica_graph **out_graph);
/* OK, or the first failure of a function that adds, with its sentence (mica_status_message) once more. */
MICA_API mica_status mica_graph_status(const mica_graph *graph);

/* ---- leaves and outputs ---- */

/* A size that is known when the graph is run; the same name gives the same symbol. MICA_SIZE_UNKNOWN where there is
 * no memory for it, which is the graph's failure. */
MICA_API uint64_t mica_graph_symbol(mica_graph *graph, const char *name);
/* What is fed with each run. `shape` may hold symbols and MICA_SIZE_UNKNOWN; block types are not fed. Names
 * of inputs and parameters differ. */
MICA_API mica_tensor mica_graph_input(mica_graph *graph, const char *name, mica_dtype dtype, uint32_t ndim,
                                      const uint64_t *shape);
/* What is set once and kept across runs: weights of any type, of known sizes. */
MICA_API mica_tensor mica_graph_parameter(mica_graph *graph, const char *name, mica_dtype dtype,
                                          uint32_t ndim, const uint64_t *shape);
/* A weight with tables of scales (mica_buffer_affine): `dtype` affine, fp4 or f8_e4m3, [.., N, K]. */
MICA_API mica_tensor mica_graph_parameter_scaled(mica_graph *graph, const char *name, mica_dtype dtype,
                                                 uint32_t ndim, const uint64_t *shape, uint32_t group_size,
                                                 mica_dtype scale_dtype);
/* `bytes` of contiguous elements at `data`, which are copied. Any type, block types too. */
MICA_API mica_tensor mica_graph_constant(mica_graph *graph, mica_dtype dtype, uint32_t ndim,
                                         const uint64_t *shape, const void *data, uint64_t bytes);
/* A scalar (no dimensions) of a plain type; as mica_fill takes it. */
MICA_API mica_tensor mica_graph_number(mica_graph *graph, mica_dtype dtype, double value);
/* Gives the value a name outside. Names of outputs differ; a value may have several. Returns the value. */
MICA_API mica_tensor mica_graph_output(mica_graph *graph, const char *name, mica_tensor value);
/* Of the places that output `name` has along `axis`, the first so many are there as output `count` says, which is i32
 * or i64 and one element (mica_graph_nonzero's count): a run gives the output with that size, at most its own. */
MICA_API mica_status mica_graph_output_rows(mica_graph *graph, const char *name, uint32_t axis,
                                            const char *count);
/* Nodes added from here on have this text in the sentences of failures, profiles and prints ("layer 3"); NULL or "":
 * none. */
MICA_API mica_status mica_graph_label(mica_graph *graph, const char *text);

#define MICA_GRAPH_PLACES 64u

/* Nodes added from here on belong to this place, 0 to begin with: a number for the device that is going to run them
 * (mica_compile_options.devices). Values go from place to place by themselves: compiling puts a copy where a node
 * takes a value of another place, once for each value and place; views and constants are made where they are needed.
 * Inputs and parameters lie at the place that uses them; where several do, at their own if it is one of them.
 * Derivatives belong to the place of the node that they are of, and passes join no nodes of two places. In a
 * sub-graph 0 is the place of the node that runs it. mica_graph_choose_places (cost.h) finds places.
 * INVALID_ARGUMENT from MICA_GRAPH_PLACES on. */
MICA_API mica_status mica_graph_place(mica_graph *graph, uint32_t place);

/* ---- nodes ---- */

/* A node of one scalar function (region.h, scalars.h): as many values as it takes, 0 for others. They broadcast to
 * each other and load to one register type; of two types the result has the wider one (f16 and bf16: f32),
 * comparisons give bool. Scalars of sources and casts have calls of their own. */
MICA_API mica_tensor mica_graph_scalar(mica_graph *graph, mica_scalar scalar, mica_tensor a, mica_tensor b,
                                       mica_tensor c);
/* A node of any op of the table (docs/ops.md). `inputs` are the operands that it reads, updates or writes in part, in
 * the table's order, 0 for absent ones; groups that repeat follow one another. `params` as for mica_op_apply, copied.
 * `outputs` gets a value for each operand that the op writes, updates or writes in part, in the table's order;
 * `wanted` has bit i where output i is wanted (those that are needed or updated always are), others become 0.
 * `asked`, NULL or one for each output: its type (NONE: the one that follows) and its shape (ndim MICA_RANK_UNKNOWN,
 * or type NONE and ndim 0: the one that follows). Returns the first wanted output. */
MICA_API mica_tensor mica_graph_op(mica_graph *graph, mica_op op, const void *params,
                                   const mica_tensor *inputs, uint32_t input_count, uint32_t wanted,
                                   const mica_operand_desc *asked, mica_tensor *outputs,
                                   uint32_t output_count);
/* A node of a region (region.h), which is copied: values broadcast. `dtypes`: the type of each
 * output. Returns the first output. */
MICA_API mica_tensor mica_graph_region(mica_graph *graph, const mica_region *region,
                                       const mica_tensor *inputs, const mica_dtype *dtypes,
                                       mica_tensor *outputs);

/* x in another plain type, as mica_cast; x itself where it has the type. */
MICA_API mica_tensor mica_graph_cast(mica_graph *graph, mica_tensor x, mica_dtype dtype);
/* The element's index along `axis` of a tensor of this shape, in i32, u32, i64 or u64. */
MICA_API mica_tensor mica_graph_index(mica_graph *graph, mica_dtype dtype, uint32_t ndim,
                                      const uint64_t *shape, uint32_t axis);
/* 64 random bits (u64) for each element of `counter` (u64) under `key` (u64): as the scalar
 * `random` has them. They broadcast. */
MICA_API mica_tensor mica_graph_random_bits(mica_graph *graph, mica_tensor counter, mica_tensor key);
/* The bits of x as another type of the same size. */
MICA_API mica_tensor mica_graph_bits(mica_graph *graph, mica_tensor x, mica_dtype dtype);

/* ---- views: no work unless somebody needs the elements in a row ---- */

#define MICA_SIZE_REST (MICA_SIZE_UNKNOWN - 1u) /* in a shape of mica_graph_reshape, once: what is left */

/* The same elements in another shape. */
MICA_API mica_tensor mica_graph_reshape(mica_graph *graph, mica_tensor x, uint32_t ndim,
                                        const uint64_t *shape);
/* Dimension i of the result is dimension order[i] of x. */
MICA_API mica_tensor mica_graph_permute(mica_graph *graph, mica_tensor x, const uint32_t *order);
/* Elements start, start + step, .. of `axis`, `count` of them. step below 0 counts backwards (a pad, then). */
MICA_API mica_tensor mica_graph_slice(mica_graph *graph, mica_tensor x, uint32_t axis, uint64_t start,
                                      uint64_t count, int64_t step);
/* x repeated to `shape`, dimensions aligned at the last. */
MICA_API mica_tensor mica_graph_expand(mica_graph *graph, mica_tensor x, uint32_t ndim,
                                       const uint64_t *shape);
/* The values one behind another along `axis`; types and other sizes are equal. */
MICA_API mica_tensor mica_graph_concat(mica_graph *graph, const mica_tensor *values, uint32_t count,
                                       uint32_t axis);
/* x itself, through which no gradient goes. */
MICA_API mica_tensor mica_graph_stop_gradient(mica_graph *graph, mica_tensor x);

/* ---- sub-graphs ---- */

/*
 * A sub-graph is a graph of its own, whose inputs, in the order in which they were added, get values of
 * the graph around it, and whose outputs are those of the node. It has no parameters: they come in as
 * values. Each call keeps a copy of it.
 */

#define MICA_CALL_CHECKPOINT 1u /* its gradient computes what is inside again, instead of keeping it */

/* What the sub-graph gives of `inputs`. `gradient` NULL, or a sub-graph that is used for its gradient: of the
 * inputs, then the outputs, then what reaches each output; it gives what reaches each input. `outputs` gets as many
 * as the body has; returns the first. */
MICA_API mica_tensor mica_graph_call(mica_graph *graph, const mica_graph *body, const mica_graph *gradient,
                                     uint32_t flags, const mica_tensor *inputs, uint32_t input_count,
                                     mica_tensor *outputs, uint32_t output_count);
/* What `then_body` or `else_body` gives of `inputs`: one of them runs. `predicate` is one bool. Both have the same
 * inputs, and outputs of equal types and shapes. */
MICA_API mica_tensor mica_graph_if(mica_graph *graph, mica_tensor predicate, const mica_graph *then_body,
                                   const mica_graph *else_body, const mica_tensor *inputs,
                                   uint32_t input_count, mica_tensor *outputs, uint32_t output_count);
/* carried = inputs[0 .. carried_count); while `condition` (of all inputs; one bool) holds: carried = body(all
 * inputs). The inputs behind the carried ones stay. The body gives what is carried, types and shapes unchanged.
 * `most` 0: no bound (it has no gradient then, and a run is ended by the limit of the executable with BUDGET); else
 * the loop ends after so many rounds. */
MICA_API mica_tensor mica_graph_while(mica_graph *graph, const mica_graph *condition, const mica_graph *body,
                                      uint64_t most, const mica_tensor *inputs, uint32_t input_count,
                                      uint32_t carried_count, mica_tensor *outputs);
/* For t = 0 .. length - 1: carried, slices = body(carried, x[t] of each scanned input, other inputs).
 * `inputs` are the carried ones, then the scanned ones [length, ..], then others. `outputs`: carried at the
 * end, then the slices that the body gives besides, stacked [length, ..]. `reverse` 1: from the last to the
 * first; slice t stays at place t. */
typedef struct mica_scan_desc {
    uint32_t carried, scanned, others; /* of the inputs */
    uint32_t reverse;
    uint64_t length; /* needed where nothing is scanned; else 0 or the length */
} mica_scan_desc;
/* See mica_scan_desc; returns the first output. */
MICA_API mica_tensor mica_graph_scan(mica_graph *graph, const mica_graph *body, const mica_scan_desc *desc,
                                     const mica_tensor *inputs, mica_tensor *outputs, uint32_t output_count);

/* ---- what a graph is ---- */

typedef enum mica_node_kind {
    MICA_NODE_NONE = 0,
    MICA_NODE_INPUT,
    MICA_NODE_PARAMETER,
    MICA_NODE_CONSTANT,
    MICA_NODE_SCALAR, /* `code` is a mica_scalar */
    MICA_NODE_OP,     /* `code` is a mica_op */
    MICA_NODE_REGION,
    MICA_NODE_CAST,
    MICA_NODE_INDEX,
    MICA_NODE_BITS,
    MICA_NODE_RESHAPE,
    MICA_NODE_PERMUTE,
    MICA_NODE_SLICE,
    MICA_NODE_EXPAND,
    MICA_NODE_CONCAT,
    MICA_NODE_STOP_GRADIENT,
    MICA_NODE_CALL,
    MICA_NODE_IF,
    MICA_NODE_WHILE,
    MICA_NODE_SCAN,
    MICA_NODE_CUSTOM, /* custom.h */
    MICA_NODE_COUNT
} mica_node_kind;

typedef struct mica_graph_tensor_info {
    mica_dtype dtype;
    uint32_t ndim;
    uint64_t shape[MICA_MAX_DIMS]; /* numbers, symbols, MICA_SIZE_UNKNOWN */
    uint32_t group_size;           /* of weights with tables of scales; else 0 */
    mica_dtype scale_dtype;
    uint32_t node;   /* that gives it */
    uint32_t output; /* which of its outputs it is */
} mica_graph_tensor_info;

typedef struct mica_graph_node_info {
    mica_node_kind kind;
    uint32_t code; /* mica_scalar or mica_op */
    uint32_t input_count, output_count;
    const mica_tensor *inputs;  /* 0: absent. Borrowed until a node is added */
    const mica_tensor *outputs; /* 0: not wanted. Likewise */
    const char *name;           /* of inputs and parameters; "" */
    const char *label;          /* mica_graph_label's; "" */
    uint32_t place;             /* mica_graph_place's */
} mica_graph_node_info;

/* Type and shape. INVALID_ARGUMENT for a value that the graph does not have. */
MICA_API mica_status mica_graph_get_tensor(const mica_graph *graph, mica_tensor value,
                                           mica_graph_tensor_info *out);
/* Nodes are numbered from 0. INVALID_ARGUMENT past the last. */
MICA_API mica_status mica_graph_get_node(const mica_graph *graph, uint32_t node, mica_graph_node_info *out);
/* The number of nodes, and of named things; 0 for NULL. */
MICA_API uint32_t mica_graph_node_count(const mica_graph *graph);
/* Of inputs. */
MICA_API uint32_t mica_graph_input_count(const mica_graph *graph);
/* Of parameters. */
MICA_API uint32_t mica_graph_parameter_count(const mica_graph *graph);
/* Of outputs. */
MICA_API uint32_t mica_graph_output_count(const mica_graph *graph);
/* The i-th in the order in which they were added; name borrowed, NULL and 0 past the last. Either out may be NULL. */
MICA_API mica_tensor mica_graph_get_input(const mica_graph *graph, uint32_t i, const char **out_name);
/* Likewise of the parameters. */
MICA_API mica_tensor mica_graph_get_parameter(const mica_graph *graph, uint32_t i, const char **out_name);
/* Likewise of the outputs: the tensor that has the name. */
MICA_API mica_tensor mica_graph_get_output(const mica_graph *graph, uint32_t i, const char **out_name);
/* Of the i-th output, the name of the output that counts its places along `out_axis` (mica_graph_output_rows); NULL:
 * none does. `out_axis` may be NULL. */
MICA_API const char *mica_graph_get_output_rows(const mica_graph *graph, uint32_t i, uint32_t *out_axis);
/* The input, parameter or output of that name; 0: there is none. */
MICA_API mica_tensor mica_graph_find(const mica_graph *graph, const char *name);
/* The name of a symbol of the graph; "?" for MICA_SIZE_UNKNOWN, NULL for a number. Borrowed. */
MICA_API const char *mica_graph_symbol_name(const mica_graph *graph, uint64_t size);

/* Everything that building checked, once more: numbers of values, arity, types, shapes, names, sub-graphs. INTERNAL
 * never; INVALID_ARGUMENT says what and where. For graphs that were loaded, and after passes. */
MICA_API mica_status mica_graph_verify(const mica_graph *graph);

/* One line a node, cut at `capacity` (NUL-terminated when capacity > 0); `out_length` is the full length without the
 * NUL. mica_graph_parse reads it back. */
MICA_API mica_status mica_graph_print(const mica_graph *graph, char *text, uint64_t capacity,
                                      uint64_t *out_length);
/* The same for Graphviz. */
MICA_API mica_status mica_graph_print_dot(const mica_graph *graph, char *text, uint64_t capacity,
                                          uint64_t *out_length);
/* A graph from its text; MALFORMED names the line. Constants of more than 64 elements are not in a
 * text: they are parsed as parameters. */
MICA_API mica_status mica_graph_parse(const char *text, uint64_t length, mica_graph **out_graph);
/* One file: structure as JSON in the metadata of a safetensors file, constants as its tensors. Written whole or not
 * at all. */
MICA_API mica_status mica_graph_save(const mica_graph *graph, const char *path);
/* Reads one back, and checks all of it. MALFORMED_FILE says where; IO. */
MICA_API mica_status mica_graph_load(const char *path, mica_graph **out_graph);

#ifdef __cplusplus
}
#endif

#include "mica/graph_ops.h"
#include "mica/graph_scalars.h"

#endif
