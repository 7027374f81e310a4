/*
 * gpu_region_text.c - the text of a region's program: constants of region.kc, which is straight-line code once they are put in.
 *
 * Constants of a kernel text are parted by '|' and kept under their text, which is so the key of the compiled program.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "backend/gpu/gpu_region.h"

typedef struct writer {
    char *text;
    size_t used, room;
} writer;

static void put(writer *w, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(w->text + w->used, w->room - w->used, format, arguments);
    va_end(arguments);
    w->used = length < 0 || (size_t)length >= w->room - w->used ? w->room - 1 : w->used + (size_t)length;
}

/* ---- formulas ---- */

static const char *const formulas[MICA_SCALAR_COUNT] = {
    [MICA__SCALAR_random] = "mk_random(a, b)",
    [MICA__SCALAR_round_f16] = "mk_from_f16(mk_bits_as_f16(a))",
    [MICA__SCALAR_round_bf16] = "mk_from_bf16(mk_bits_as_bf16(a))",
    [MICA__SCALAR_round_f8_e4m3] = "mk_from_f8_e4m3(mk_bits_as_f8_e4m3(a))",
    [MICA__SCALAR_round_f8_e5m2] = "mk_from_f8_e5m2(mk_bits_as_f8_e5m2(a))",
    [MICA__SCALAR_round_e8m0] = "mk_from_e8m0(mk_bits_as_e8m0(a))",
    [MICA__SCALAR_wrap_i8] = "mk_from_i8(a)",
    [MICA__SCALAR_wrap_i16] = "mk_from_i16(a)",
    [MICA__SCALAR_wrap_u8] = "mk_from_u8(a)",
    [MICA__SCALAR_wrap_u16] = "mk_from_u16(a)",
#define STEP(name, ...)
#define STEP_OF(name, arity, in, out, operations, vector, plain, kernel, formula, domain, derivative) \
    [MICA__SCALAR_##name] = #kernel,
#define PUBLIC STEP_OF
#include "backend/scalars.def"
#undef STEP
#undef STEP_OF
#undef PUBLIC
};

static const char *type_of(const mica__region_program *program, uint32_t value)
{
    return mica_register_name(mica__region_value_type(program, value));
}

static void put_formula(writer *w, const mica__region_program *program, uint32_t value,
                        const mica_region_step *step)
{
    const uint32_t arity = mica__scalar_of(step->scalar)->arity;
    put(w, "MK_STEP%u(%u,%s,%s,%s", arity, value, mica_register_name((mica_register)step->type),
        type_of(program, step->value[0]), formulas[step->scalar]);
    for (uint32_t i = 0; i < arity; i++)
        put(w, ",%u", step->value[i]);
    put(w, ") ");
}

static void put_step(writer *w, const mica__region_program *program, uint32_t s, uint32_t *given)
{
    const mica_region_step *step = &program->step[s];
    const uint32_t value = program->input_count + s, a = step->value[0];
    const char *type = mica_register_name((mica_register)step->type);
    switch (step->scalar) {
    case MICA__SCALAR_constant: put(w, "MK_CONSTANT(%u,%s,%u) ", value, type, (*given)++); break;
    case MICA__SCALAR_index: put(w, "MK_INDEX(%u,%s,%u) ", value, type, step->axis); break;
    case MICA__SCALAR_imag: put(w, "MK_IMAG(%u,%u) ", value, a); break;
    case MICA__SCALAR_cast: put(w, "MK_CAST(%u,%s,%u) ", value, type, a); break;
    case MICA__SCALAR_bits: put(w, "MK_SAME_BITS(%u,%s,%s,%u) ", value, type, type_of(program, a), a); break;
    case MICA__SCALAR_select:
        put(w, "MK_SELECT(%u,%s,%u,%u,%u) ", value, type, a, step->value[1], step->value[2]);
        break;
    default: put_formula(w, program, value, step);
    }
}

static void put_inputs(writer *w, const mica__gpu_region *region)
{
    const mica__region_program *program = region->program;
    put(w, "INPUTS(X)=");
    for (uint32_t i = 0; i < program->input_count; i++)
        put(w, "X(%u,%s,%s,%s) ", i, mica_register_name((mica_register)program->input[i]),
            mica__gpu_memory_of(region->dtype[i]).name,
            region->view[i].stride[region->ndim - 1] == 0 ? "one" : "each");
}

static void put_outputs(writer *w, const mica__gpu_region *region)
{
    const mica__region_program *program = region->program;
    put(w, "|OUTPUTS(X)=");
    for (uint32_t o = 0; o < program->output_count; o++) {
        const char *memory = mica__gpu_memory_of(region->dtype[program->input_count + o]).name;
        put(w, "X(%u,%s,%u,0) ", o, memory, program->output[o]);
        if (program->output_imag[o] != MICA_REGION_NONE)
            put(w, "X(%u,%s,%u,4) ", o, memory, program->output_imag[o]);
    }
    put(w, "|RESULTS(Y)=");
    for (uint32_t o = 0; o < program->output_count; o++)
        put(w, "Y(%u) ", o);
}

bool mica__gpu_region_text(const mica__gpu_region *region, const mica__gpu_region_shape *shape, char *out,
                           size_t out_bytes)
{
    const mica__region_program *program = region->program;
    writer w = {out, 0, out_bytes};
    uint32_t given = 0;
    put_inputs(&w, region);
    put(&w, "|STEPS=");
    for (uint32_t s = 0; s < program->step_count; s++)
        put_step(&w, program, s, &given);
    put_outputs(&w, region);
    put(&w, "|INPUT_COUNT=%u|OPERANDS=%u|CONSTANTS=%u|DIMS=%u|WIDTH=%u|BATCH=%u", program->input_count,
        region->operands, given > 0 ? given : 1, shape->dims, shape->width, shape->batch);
    return w.used + 1 < w.room;
}

uint32_t mica__gpu_region_given(const mica__region_program *program, uint64_t *out)
{
    uint32_t count = 0;
    for (uint32_t s = 0; s < program->step_count; s++)
        if (program->step[s].scalar == MICA__SCALAR_constant) {
            const mica_region_step *step = &program->step[s];
            const bool wide = mica__register_bytes(step->type) == 8;
            out[count++] = wide ? step->constant.u64 : (uint32_t)step->constant.u64;
        }
    return count;
}
