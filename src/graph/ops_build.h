/*
 * ops_build.h - what builders of nodes share: operands by name, axes, ops of one output, regions. As of all that adds: 0 or false where the graph has
 * failed, and the sentence names the builder, the argument and its shape.
 */
#ifndef MICA_GRAPH_OPS_BUILD_H
#define MICA_GRAPH_OPS_BUILD_H

#include <string.h>

#include "graph/ir.h"
#include "mica/ops.h"
#include "ops/programs.h"

/* A copy of an operand's type: what is pointed to moves when a node is added. */
bool mica__build_takes(mica_graph *graph, const char *call, const char *argument, mica_tensor tensor,
                       mica__type *out);
/* The same, of `least` to `most` dimensions. */
bool mica__build_takes_rank(mica_graph *graph, const char *call, const char *argument, mica_tensor tensor,
                            uint32_t least, uint32_t most, mica__type *out);
/* "call: argument f32 [2, 3] WHY"; 0. */
mica_tensor mica__build_refuse(mica_graph *graph, const char *call, const char *argument,
                               const mica__type *type, const char *format, ...) MICA__PRINTF(5, 6) MICA__COLD;
/* An axis that counts from the first dimension, or below 0 from the last. */
bool mica__build_axis(mica_graph *graph, const char *call, int32_t axis, uint32_t ndim, uint32_t *out);
/* The failure of a call of another room, whose sentence is in mica_status_message. */
mica_tensor mica__build_failed(mica_graph *graph, const char *call, mica_status status);
/* What a builder of several nodes gives: where one of them failed its sentence says for whom it was. */
mica_tensor mica__build_end(mica_graph *graph, const char *call, mica_tensor result);

/* A node of an op, its first output alone. */
mica_tensor mica__build_op(mica_graph *graph, mica_op op, const void *params, const mica_tensor *inputs,
                           uint32_t count);
/* Two dimensions exchanged; `axis` moved to the end, the others in their order; and back. */
mica_tensor mica__build_swap(mica_graph *graph, mica_tensor x, uint32_t a, uint32_t b);
mica_tensor mica__build_last(mica_graph *graph, mica_tensor x, uint32_t axis);
mica_tensor mica__build_unlast(mica_graph *graph, mica_tensor x, uint32_t axis);
/* mica_graph_reshape, where one size may be unknown: it is what is left, and found again once symbols are known. */
mica_tensor mica__build_reshape(mica_graph *graph, mica_tensor x, uint32_t ndim, const uint64_t *shape);
/* A dimension of size 1 before dimension `at`; the same elements in the shape of `type`; dimensions `begin` up to `end` as one. */
mica_tensor mica__build_insert(mica_graph *graph, mica_tensor x, uint32_t at);
mica_tensor mica__build_as(mica_graph *graph, mica_tensor x, const mica__type *type);
mica_tensor mica__build_merge(mica_graph *graph, mica_tensor x, uint32_t begin, uint32_t end);
/* Before dimension `at` one of size `size` (a number or a symbol), along which x repeats. */
mica_tensor mica__build_repeat(mica_graph *graph, mica_tensor x, uint32_t at, uint64_t size);
/* x repeated to a shape in which no size is unknown. */
mica_tensor mica__build_expand(mica_graph *graph, const char *call, const char *argument, mica_tensor x,
                               uint32_t ndim, const uint64_t *shape);
/* A number of x's type. */
mica_tensor mica__build_number(mica_graph *graph, mica_tensor x, double value);
/* a times b, either of which may be a symbol; what is not one of them is unknown. */
uint64_t mica__build_times(uint64_t a, uint64_t b);
/* Ids of any integer type as u32 or i32; what lies outside of them stays outside of every table. */
mica_tensor mica__build_ids(mica_graph *graph, const char *call, const char *argument, mica_tensor ids);
/* The register type that floats compute in: f64 of f64, else f32. */
mica_register mica__build_real(mica_dtype dtype);
/* The type of what is made of two: the wider one, of two types of 16 bits f32. */
mica_dtype mica__build_join(mica_dtype a, mica_dtype b);
static inline bool mica__build_is_float(mica_dtype dtype)
{
    const mica_register type = mica_register_of(dtype);
    return (type == MICA_REGISTER_F32 || type == MICA_REGISTER_F64) && dtype != MICA_DTYPE_C64;
}

/* ---- regions ---- */

/* A node of a program of the ops room: `names`, `inputs` and `dtypes` as many as it has. Returns the first output. */
mica_tensor mica__build_region(mica_graph *graph, const char *call, const mica__region_program *program,
                               const char *const *names, const mica_tensor *inputs, const mica_dtype *dtypes,
                               mica_tensor *outputs);

/* A region that is written step by step: first all inputs, then steps, then outputs. Where it has failed its steps are harmless. */
typedef struct mica__writer {
    mica_graph *graph;
    const char *call;
    mica__steps steps;
    const char *name[MICA_REGION_INPUTS];
    mica_tensor input[MICA_REGION_INPUTS];
    mica_dtype dtype[MICA_REGION_OUTPUTS];
    mica__region_room room; /* last: its steps have no end */
} mica__writer;

void mica__write_begin(mica__writer *w, mica_graph *graph, const char *call);
st_value mica__write_input(mica__writer *w, const char *name, mica_tensor tensor);
void mica__write_output(mica__writer *w, st_value value, mica_dtype dtype);
mica_tensor mica__write_end(mica__writer *w, mica_tensor *outputs);

#endif
