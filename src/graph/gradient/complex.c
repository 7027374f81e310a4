/*
 * complex.c - complex numbers as rules take them: in two parts. What reaches a complex number is complex too: what reaches its real part, and i times what
 * reaches its imaginary one.
 */
#include <string.h>

#include "graph/gradient/rules.h"
#include "ops/region.h"

/* A region of one output over inputs that load to f32. */
static mica_tensor apply(mica_graph *graph, const mica__region_program *program, const mica_tensor *inputs,
                         mica_dtype dtype)
{
    mica_region *region = NULL;
    const mica_status status = mica__region_copy("gradient", program, &region);
    if (status != MICA_OK)
        return mica__graph_fail(graph, status, "gradient", "no memory for a region");
    const mica_tensor y = mica_graph_region(graph, region, inputs, &dtype, NULL);
    mica_region_release(region);
    return y;
}

static void begin(mica__region_small *room, uint32_t inputs)
{
    mica__region_begin(&room->program, inputs, 1);
    memset(room->program.input, MICA_REGISTER_F32, inputs);
}

static uint8_t imag_of(mica__region_program *program, uint8_t input)
{
    program->special = 1;
    return mica__region_step(program, MICA_SCALAR_IMAG, MICA_REGISTER_F32, input, MICA_REGION_NONE,
                             MICA_REGION_NONE);
}

mica_tensor mica__complex_part(mica_graph *graph, mica_tensor x, uint32_t imag)
{
    mica__region_small room;
    begin(&room, 1);
    room.program.output[0] = imag != 0 ? imag_of(&room.program, 0) : 0;
    return apply(graph, &room.program, &x, MICA_DTYPE_F32);
}

mica_tensor mica__complex_join(mica_graph *graph, mica_tensor re, mica_tensor im)
{
    mica__region_small room;
    begin(&room, 2);
    room.program.output[0] = 0;
    room.program.output_imag[0] = 1;
    return apply(graph, &room.program, (const mica_tensor[]){re, im}, MICA_DTYPE_C64);
}

static uint8_t two(mica__region_program *program, mica_scalar scalar, uint8_t a, uint8_t b)
{
    return mica__region_step(program, scalar, MICA_REGISTER_F32, a, b, MICA_REGION_NONE);
}

mica_tensor mica__complex_add(mica_graph *graph, mica_tensor a, mica_tensor b)
{
    mica__region_small room;
    begin(&room, 2);
    const uint8_t x = imag_of(&room.program, 0), y = imag_of(&room.program, 1);
    room.program.output[0] = two(&room.program, MICA_SCALAR_ADD, 0, 1);
    room.program.output_imag[0] = two(&room.program, MICA_SCALAR_ADD, x, y);
    return apply(graph, &room.program, (const mica_tensor[]){a, b}, MICA_DTYPE_C64);
}

mica_tensor mica__complex_scale(mica_graph *graph, mica_tensor x, mica_tensor by)
{
    mica__region_small room;
    begin(&room, 2);
    const uint8_t imag = imag_of(&room.program, 0);
    room.program.output[0] = two(&room.program, MICA_SCALAR_MUL, 0, 1);
    room.program.output_imag[0] = two(&room.program, MICA_SCALAR_MUL, imag, 1);
    return apply(graph, &room.program, (const mica_tensor[]){x, by}, MICA_DTYPE_C64);
}

bool mica__complex_is_part(const mica__region_program *program)
{
    const bool real = program->step_count == 0 && program->output[0] == 0;
    const bool imag = program->step_count == 1 && program->step[0].scalar == MICA_SCALAR_IMAG &&
                      program->output[0] == program->input_count;
    return program->input_count == 1 && program->output_count == 1 &&
           program->output_imag[0] == MICA_REGION_NONE && (real || imag);
}

bool mica__complex_is_join(const mica__region_program *program)
{
    return program->input_count == 2 && program->output_count == 1 && program->step_count == 0 &&
           program->output[0] == 0 && program->output_imag[0] == 1;
}
