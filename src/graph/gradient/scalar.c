/*
 * scalar.c - derivatives of elementwise nodes: by the column `derivative` of scalars.def, step by step as nodes, so that they are differentiated again.
 */
#include <string.h>

#include "graph/gradient/rules.h"
#include "ops/region.h"

/* A program's steps as nodes: value i is `value[i]`, of which the inputs are there. */
typedef struct unroll {
    mica_graph *graph;
    const mica__region_program *program;
    mica_tensor value[MICA_REGION_INPUTS + MICA_REGION_STEPS];
    mica_tensor like; /* indices have its shape */
} unroll;

static const mica_dtype register_dtype[MICA_REGISTER_COUNT] = {
    [MICA_REGISTER_F32] = MICA_DTYPE_F32,  [MICA_REGISTER_F64] = MICA_DTYPE_F64,
    [MICA_REGISTER_I32] = MICA_DTYPE_I32,  [MICA_REGISTER_U32] = MICA_DTYPE_U32,
    [MICA_REGISTER_I64] = MICA_DTYPE_I64,  [MICA_REGISTER_U64] = MICA_DTYPE_U64,
    [MICA_REGISTER_BOOL] = MICA_DTYPE_BOOL};

/* Bit for bit, as a program has it. */
static mica_tensor constant_node(mica_graph *graph, const mica_region_step *step)
{
    const mica_dtype dtype = register_dtype[step->type];
    return mica_graph_constant(graph, dtype, 0, NULL, &step->constant, mica_dtype_block_bytes(dtype));
}

static mica_tensor index_node(const unroll *u, const mica_region_step *step)
{
    const mica__type type = mica__type_copy(u->graph, u->like);
    if (step->axis >= type.ndim)
        return mica_graph_number(u->graph, register_dtype[step->type], 0);
    const uint32_t axis = type.ndim - 1 - step->axis;
    mica_tensor index = mica__index_along(u->graph, u->like, axis);
    for (uint32_t d = 0; d < step->axis; d++)
        index = mica__widened(u->graph, index, 1);
    return mica_graph_cast(u->graph, index, register_dtype[step->type]);
}

/* The value of a step; a rounding is a cast there and back. */
static mica_tensor step_node(const unroll *u, const mica_region_step *step)
{
    static const mica_dtype rounds[] = {[MICA_SCALAR_ROUND_F16] = MICA_DTYPE_F16,
                                        [MICA_SCALAR_ROUND_BF16] = MICA_DTYPE_BF16,
                                        [MICA_SCALAR_ROUND_F8_E4M3] = MICA_DTYPE_F8_E4M3,
                                        [MICA_SCALAR_ROUND_F8_E5M2] = MICA_DTYPE_F8_E5M2,
                                        [MICA_SCALAR_ROUND_E8M0] = MICA_DTYPE_E8M0};
    mica_tensor in[3] = {0, 0, 0};
    for (uint32_t j = 0; j < 3 && step->value[j] != MICA_REGION_NONE; j++)
        in[j] = u->value[step->value[j]];
    if (step->scalar == MICA_SCALAR_CONSTANT)
        return constant_node(u->graph, step);
    if (step->scalar == MICA_SCALAR_INDEX)
        return index_node(u, step);
    if (step->scalar == MICA_SCALAR_CAST)
        return mica_graph_cast(u->graph, in[0], register_dtype[step->type]);
    if (step->scalar == MICA_SCALAR_BITS)
        return mica_graph_bits(u->graph, in[0], register_dtype[step->type]);
    if (step->scalar < sizeof rounds / sizeof rounds[0] && rounds[step->scalar] != MICA_DTYPE_NONE)
        return mica_graph_cast(u->graph, mica_graph_cast(u->graph, in[0], rounds[step->scalar]),
                               MICA_DTYPE_F32);
    return mica_graph_scalar(u->graph, (mica_scalar)step->scalar, in[0], in[1], in[2]);
}

/* ---- one scalar ---- */

/* The derivative of one scalar of register type `type`: inputs its values, then dy. */
static mica_region *derivative_of(mica_graph *graph, mica_scalar scalar, mica_register type, uint32_t arity,
                                  uint32_t wanted)
{
    mica__region_room room;
    mica_region *forward = NULL, *backward = NULL;
    mica__region_begin(&room.program, arity, 1);
    memset(room.program.input, (int)type, arity);
    if (scalar == MICA_SCALAR_SELECT)
        room.program.input[0] = MICA_REGISTER_BOOL;
    room.program.output[0] = mica__region_step(
        &room.program, scalar, type, 0, arity > 1 ? 1 : MICA_REGION_NONE, arity > 2 ? 2 : MICA_REGION_NONE);
    mica_status status = mica__region_copy("gradient", &room.program, &forward);
    if (status == MICA_OK)
        status = mica_region_backward(forward, wanted, &backward);
    mica_region_release(forward);
    if (status != MICA_OK) {
        char sentence[300];
        strncpy(sentence, mica_status_message(), sizeof sentence - 1);
        sentence[sizeof sentence - 1] = 0;
        (void)mica__graph_fail(graph, status, "gradient", "%s", sentence);
    }
    return backward;
}

mica__derived mica__derive_scalar(mica__back *b)
{
    mica_graph *graph = b->graph;
    const uint32_t arity = b->node.input_count;
    unroll u = {.graph = graph, .like = b->out[0]};
    uint32_t wanted = 0;
    for (uint32_t i = 0; i < arity; i++) {
        wanted |= (uint32_t)b->wanted[i] << i;
        u.value[i] = mica__wide(graph, b->in[i]);
    }
    u.value[arity] = mica__wide(graph, b->dy[0]);
    const mica_register type = mica_register_of(mica__type_of(graph, b->dy[0])->dtype);
    mica_region *region = derivative_of(graph, (mica_scalar)b->node.code, type, arity, wanted);
    if (region == NULL)
        return MICA__DERIVED;
    u.program = mica__region_program_of(region);
    /* The forward's own step is there already, unless it was rounded to a small type. */
    for (uint32_t s = 0; s < u.program->step_count && graph->status == MICA_OK; s++) {
        const mica_region_step *step = &u.program->step[s];
        bool forward = step->scalar == b->node.code &&
                       mica__type_of(graph, b->out[0])->dtype == register_dtype[step->type];
        for (uint32_t j = 0; j < arity; j++)
            forward = forward && step->value[j] == j;
        u.value[u.program->input_count + s] = forward ? b->out[0] : step_node(&u, step);
    }
    for (uint32_t i = 0, o = 0; i < arity && graph->status == MICA_OK; i++)
        if (b->wanted[i]) {
            const mica__type to = mica__type_copy(graph, b->in[i]);
            mica_tensor dx = u.value[u.program->output[o++]];
            dx = mica__repeat_to(graph, dx, b->out[0]); /* a constant, perhaps */
            b->dx[i] = mica__sum_to(graph, dx, &to);
        }
    mica_region_release(region);
    return MICA__DERIVED;
}

/* ---- regions ---- */

/* A region's outputs by its steps. */
void mica__expand_region(mica__back *b, mica_tensor *out)
{
    mica_graph *graph = b->graph;
    unroll u = {.graph = graph, .program = b->node.data, .like = b->out[0]};
    mica_tensor raw[MICA_REGION_INPUTS];
    for (uint32_t i = 0; i < u.program->input_count; i++) {
        raw[i] = b->in[i];
        const bool complex = mica__type_of(graph, raw[i])->dtype == MICA_DTYPE_C64;
        u.value[i] = complex ? mica__complex_part(graph, raw[i], 0)
                             : mica_graph_cast(graph, raw[i], register_dtype[u.program->input[i]]);
    }
    for (uint32_t s = 0; s < u.program->step_count && graph->status == MICA_OK; s++) {
        const mica_region_step *step = &u.program->step[s];
        u.value[u.program->input_count + s] = step->scalar == MICA_SCALAR_IMAG
                                                  ? mica__complex_part(graph, raw[step->value[0]], 1)
                                                  : step_node(&u, step);
    }
    for (uint32_t o = 0; o < b->node.output_count && graph->status == MICA_OK; o++) {
        if (b->dy[o] == 0)
            continue;
        const uint8_t imag = u.program->output_imag[o];
        mica_tensor y = u.value[u.program->output[o]];
        if (imag != MICA_REGION_NONE)
            y = mica__complex_join(graph, y, u.value[imag]);
        else
            y = mica_graph_cast(graph, y, mica__type_of(graph, b->out[o])->dtype);
        out[o] = mica__repeat_to(graph, y, b->out[o]);
    }
}

/* What the parts of a number have to do with each other: a part, or two joined. */
static bool derive_complex(mica__back *b)
{
    const mica__region_program *program = b->node.data;
    mica_graph *graph = b->graph;
    const bool part = mica__complex_is_part(program), joined = mica__complex_is_join(program);
    if (part && mica__type_of(graph, b->in[0])->dtype == MICA_DTYPE_C64) {
        const mica_tensor zero = mica_graph_number(graph, MICA_DTYPE_F32, 0);
        const bool imag = program->step_count == 1;
        b->dx[0] =
            imag ? mica__complex_join(graph, zero, b->dy[0]) : mica__complex_join(graph, b->dy[0], zero);
        return true;
    }
    for (uint32_t i = 0; i < 2 && joined; i++)
        if (b->wanted[i]) {
            const mica__type to = mica__type_copy(graph, b->in[i]);
            b->dx[i] = mica__sum_to(graph, mica__complex_part(graph, b->dy[0], i), &to);
        }
    return joined;
}

static bool has_complex(const mica__back *b)
{
    bool any = false;
    for (uint32_t i = 0; i < b->node.input_count; i++)
        any |= mica__type_of(b->graph, b->in[i])->dtype == MICA_DTYPE_C64;
    for (uint32_t i = 0; i < b->node.output_count; i++)
        any |= mica__type_of(b->graph, b->out[i])->dtype == MICA_DTYPE_C64;
    return any;
}

/* Outputs of whole numbers have no gradient, which regions of derivatives do not take: then, and where the region would be too large, steps are nodes. */
mica__derived mica__derive_region(mica__back *b)
{
    mica_graph *graph = b->graph;
    const mica__region_program *program = b->node.data;
    const uint32_t in = program->input_count, out = program->output_count;
    mica_region *forward = NULL, *backward = NULL;
    mica_tensor inputs[2 * MICA_REGION_INPUTS], results[MICA_REGION_OUTPUTS];
    mica_dtype dtypes[MICA_REGION_OUTPUTS];
    uint32_t wanted = 0, count = 0;
    if (has_complex(b))
        return derive_complex(b) ? MICA__DERIVED : MICA__DERIVE_EXPANDS;
    for (uint32_t i = 0; i < in; i++)
        if (b->wanted[i]) {
            wanted |= 1u << i;
            dtypes[count++ % MICA_REGION_OUTPUTS] =
                register_dtype[program->input[i]]; /* summed before it is rounded */
        }
    mica_status status = mica__region_copy("gradient", program, &forward);
    if (status == MICA_OK)
        status = mica_region_backward(forward, wanted, &backward);
    mica_region_release(forward);
    if (status == MICA_ERR_UNSUPPORTED || status == MICA_ERR_INVALID_ARGUMENT)
        return mica_region_release(backward), MICA__DERIVE_EXPANDS;
    if (status != MICA_OK)
        return (void)mica__graph_fail(graph, status, "gradient", "a region"), MICA__DERIVED;
    memcpy(inputs, b->in, in * sizeof *inputs);
    for (uint32_t o = 0; o < out; o++)
        inputs[in + o] = b->dy[o] != 0
                             ? b->dy[o]
                             : mica__zeros_like(graph, b->out[o], mica__type_of(graph, b->out[o])->dtype);
    (void)mica_graph_region(graph, backward, inputs, dtypes, results);
    mica_region_release(backward);
    for (uint32_t i = 0, r = 0; i < in && graph->status == MICA_OK; i++)
        if (b->wanted[i]) {
            const mica__type to = mica__type_copy(graph, b->in[i]);
            b->dx[i] = mica__sum_to(graph, results[r++], &to);
        }
    return MICA__DERIVED;
}

mica__derived mica__derive_cast(mica__back *b)
{
    b->dx[0] = b->dy[0]; /* whose type the walk settles */
    return MICA__DERIVED;
}
