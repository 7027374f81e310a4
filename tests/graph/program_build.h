/*
 * program_build.h - a program as a graph. With symbols: sizes of inputs above 1 are ones, equal sizes equal symbols, so that the graph knows no shape before it runs.
 */
#ifndef TEST_PROGRAM_BUILD_H
#define TEST_PROGRAM_BUILD_H

#include "program.h"

typedef struct built {
    mica_graph *graph;
    mica_tensor tensor[PROGRAM_STEPS];
} built;

static inline mica_graph *program_body(const program *p, const built *outer, const program_step *step);

static inline uint64_t size_as(mica_graph *graph, uint64_t size, bool symbol)
{
    char name[16];
    snprintf(name, sizeof name, "n%u", (unsigned)size);
    return symbol && size > 1 ? mica_graph_symbol(graph, name) : size;
}

static inline mica_tensor build_constant(mica_graph *graph, const program_shape *t, uint64_t seed)
{
    uint64_t bytes[PROGRAM_ELEMENTS];
    for (uint64_t i = 0; i < shape_count(t); i++)
        put_bytes(t->dtype, bytes, i, drawn_number(t->dtype, seed, i));
    return mica_graph_constant(graph, t->dtype, t->ndim, t->size, bytes,
                               shape_count(t) * mica_dtype_block_bytes(t->dtype));
}

static inline mica_tensor build_ids(mica_graph *graph, mica_tensor ids, uint64_t n)
{
    return mica_graph_mod(graph, ids, mica_graph_number(graph, MICA_DTYPE_I32, (double)n));
}

static inline mica_tensor build_view(mica_graph *graph, const program_step *step, const mica_tensor *in)
{
    mica_pad_params pad = {.value = (double)(int32_t)step->seed};
    switch (step->kind) {
    case STEP_RESHAPE: return mica_graph_reshape(graph, in[0], step->type.ndim, step->type.size);
    case STEP_PERMUTE: return mica_graph_permute(graph, in[0], step->order);
    case STEP_EXPAND: return mica_graph_expand(graph, in[0], step->type.ndim, step->type.size);
    case STEP_CONCAT: return mica_graph_concat(graph, in, step->in_count, step->axis);
    case STEP_STOP: return mica_graph_stop_gradient(graph, in[0]);
    case STEP_SLICE: return mica_graph_slice(graph, in[0], step->axis, step->start, step->count, step->step);
    default:
        memcpy(pad.low, step->low, sizeof step->low);
        memcpy(pad.high, step->high, sizeof step->high);
        return mica_graph_pad(graph, in[0], &pad);
    }
}

static inline mica_tensor build_op(mica_graph *graph, const program *p, const program_step *step,
                                   const mica_tensor *in)
{
    int32_t axes[PROGRAM_RANK];
    uint32_t count = 0;
    for (int32_t d = 0; d < PROGRAM_RANK; d++)
        if ((step->axes >> d & 1) != 0)
            axes[count++] = d;
    const uint64_t n = p->step[step->in[0]].type.size[step->axis];
    switch (step->kind) {
    case STEP_REDUCE:
        return mica_graph_reduce(graph, (mica_reduce_kind)step->code, in[0], axes, count, step->keep);
    case STEP_CUMSUM: return mica_graph_cumulate(graph, MICA_SCAN_SUM, in[0], -1, 0, 0);
    case STEP_SOFTMAX: return mica_graph_softmax(graph, in[0], 1, -1);
    case STEP_SORT: return mica_graph_sort(graph, in[0], -1, 0);
    case STEP_GATHER: return mica_graph_gather(graph, in[0], build_ids(graph, in[1], n), (int32_t)step->axis);
    case STEP_SCATTER:
        return mica_graph_scatter(graph, in[0], build_ids(graph, in[1], n), in[2], (int32_t)step->axis,
                                  (mica_scatter_mode)step->code);
    default: return mica_graph_matmul(graph, in[0], in[1]);
    }
}

/* counter, others -> counter < count */
static inline mica_graph *build_condition(const built *b, const program_step *step)
{
    program condition = {.inputs = step->in_count, .count = step->in_count};
    for (uint32_t i = 0; i < step->in_count; i++)
        condition.step[i] = (program_step){.kind = STEP_INPUT, .type = step->body[0]->step[i].type};
    mica_graph *graph = program_body(&condition, b, step);
    const mica_tensor counter = mica_graph_get_input(graph, 0, NULL);
    mica_graph_output(
        graph, "go",
        mica_graph_less(graph, counter, mica_graph_number(graph, MICA_DTYPE_I32, (double)step->count)));
    return graph;
}

static inline mica_tensor build_control(const built *b, const program_step *step, const mica_tensor *in,
                                        mica_tensor *out)
{
    mica_graph *bodies[2] = {0}, *condition = NULL;
    mica_tensor first = 0;
    for (int i = 0; i < 2 && step->body[i] != NULL; i++)
        bodies[i] = program_body(step->body[i], b, step);
    if (step->kind == STEP_CALL)
        first = mica_graph_call(b->graph, bodies[0], NULL, step->code, in, step->in_count, out, step->parts);
    if (step->kind == STEP_IF)
        first = mica_graph_if(b->graph, in[0], bodies[0], bodies[1], in + 1, step->in_count - 1, out,
                              step->parts);
    if (step->kind == STEP_WHILE) {
        condition = build_condition(b, step);
        first = mica_graph_while(b->graph, condition, bodies[0], step->start, in, step->in_count,
                                 step->carried, out);
    }
    const mica_scan_desc desc = {step->carried, step->scanned, step->in_count - step->carried - step->scanned,
                                 step->keep, step->scanned == 0 ? step->count : 0};
    if (step->kind == STEP_SCAN)
        first = mica_graph_scan(b->graph, bodies[0], &desc, in, out, step->parts);
    mica_graph_release(bodies[0]);
    mica_graph_release(bodies[1]);
    mica_graph_release(condition);
    return first;
}

static inline mica_tensor build_step(built *b, const program *p, uint32_t i)
{
    const program_step *step = &p->step[i];
    mica_graph *graph = b->graph;
    mica_tensor in[PROGRAM_INPUTS] = {0}, out[PROGRAM_INPUTS] = {0};
    for (uint32_t k = 0; k < step->in_count; k++)
        in[k] = b->tensor[step->in[k]];
    switch (step->kind) {
    case STEP_CONSTANT: return build_constant(graph, &step->type, step->seed);
    case STEP_UNARY:
    case STEP_BINARY:
    case STEP_SELECT: return mica_graph_scalar(graph, (mica_scalar)step->code, in[0], in[1], in[2]);
    case STEP_CAST: return mica_graph_cast(graph, in[0], step->type.dtype);
    case STEP_INDEX:
        return mica_graph_index(graph, step->type.dtype, step->type.ndim, step->type.size, step->axis);
    case STEP_CALL:
    case STEP_IF:
    case STEP_WHILE:
    case STEP_SCAN:
        (void)build_control(b, step, in, out);
        for (uint32_t k = 0; k < step->parts; k++)
            b->tensor[i + k] = out[k];
        return out[0];
    case STEP_PART: return b->tensor[i]; /* its step has filled it */
    case STEP_REDUCE:
    case STEP_CUMSUM:
    case STEP_SOFTMAX:
    case STEP_SORT:
    case STEP_GATHER:
    case STEP_SCATTER:
    case STEP_MATMUL: return build_op(graph, p, step, in);
    default: return build_view(graph, step, in);
    }
}

static inline void build_outputs(built *b, const program *p)
{
    for (uint32_t i = 0; i < p->output_count; i++) {
        char name[16];
        snprintf(name, sizeof name, "y%u", i);
        mica_graph_output(b->graph, name, b->tensor[p->output[i]]);
    }
}

/* Input k of the body is a value, a slice or nothing of what the step takes. */
static inline mica_graph *program_body(const program *p, const built *outer, const program_step *step)
{
    built b = {0};
    must(mica_graph_create(&b.graph));
    for (uint32_t i = 0; i < p->count; i++) {
        const program_shape *t = &p->step[i].type;
        if (p->step[i].kind == STEP_INPUT) {
            mica_graph_tensor_info info = {0};
            const uint32_t at = i + (step->kind == STEP_IF);
            const uint32_t lead =
                step->kind == STEP_SCAN && i >= step->carried && i < step->carried + step->scanned;
            uint64_t shape[PROGRAM_RANK];
            char name[16];
            (void)mica_graph_get_tensor(outer->graph, outer->tensor[step->in[at]], &info);
            for (uint32_t d = 0; d < t->ndim; d++)
                shape[d] = size_as(b.graph, t->size[d], info.shape[d + lead] != t->size[d]);
            snprintf(name, sizeof name, "x%u", i);
            b.tensor[i] = mica_graph_input(b.graph, name, t->dtype, t->ndim, shape);
        } else {
            b.tensor[i] = build_step(&b, p, i);
        }
    }
    build_outputs(&b, p);
    if (getenv("DRAWN_SAYS") != NULL && mica_graph_status(b.graph) != MICA_OK)
        print_message("body: %s\n", mica_status_message());
    return b.graph;
}

/* Inputs with their bit in `parameters` are parameters. The graph is the caller's, and may have failed. */
static inline mica_graph *program_build(const program *p, uint32_t parameters, bool symbols)
{
    built b = {0};
    must(mica_graph_create(&b.graph));
    for (uint32_t i = 0; i < p->count; i++) {
        const program_shape *t = &p->step[i].type;
        uint64_t shape[PROGRAM_RANK];
        char name[16];
        if (p->step[i].kind != STEP_INPUT) {
            b.tensor[i] = build_step(&b, p, i);
            continue;
        }
        const bool fixed = (parameters >> i & 1) != 0;
        snprintf(name, sizeof name, "x%u", i);
        for (uint32_t d = 0; d < t->ndim; d++)
            shape[d] = size_as(b.graph, t->size[d], symbols && !fixed);
        b.tensor[i] = fixed ? mica_graph_parameter(b.graph, name, t->dtype, t->ndim, shape)
                            : mica_graph_input(b.graph, name, t->dtype, t->ndim, shape);
    }
    build_outputs(&b, p);
    return b.graph;
}

#endif
