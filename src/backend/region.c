/*
 * region.c - the table of scalars, and the checks that make a description a program.
 */
#include "backend/region.h"

#include <string.h>

#include "base/status.h"

_Static_assert(MICA__REGION_MOST_BYTES <= MICA__MAX_PARAM_BYTES, "a record holds every program");
_Static_assert(MICA_REGION_INPUTS + MICA_REGION_OUTPUTS <= MICA__MAX_OPERANDS, "a record holds its operands");
_Static_assert((int)MICA__SCALAR_count == (int)MICA_SCALAR_COUNT, "scripts/generate");
_Static_assert(sizeof(mica_region_step) == 16, "no padding in what is compared as bytes");

/* ---- the tables ---- */

/* The column `derivative`: 1 for BY(..), 0 for NONE. */
#define HAS_BY(...) 1
#define HAS_NONE 0
#define STEP(name, arity, in, out, operations, ...) \
    {#name, arity, MICA__SET_##in, MICA__SET_##out, operations, 0, 0, MICA__KERNEL_SET_##in, 0},
#define STEP_OF(name, arity, in, out, operations, vector, plain, kernel, formula, domain, derivative) \
    {#name, arity, MICA__SET_##in,        MICA__SET_##out, operations,                                \
     1,     0,     MICA__KERNEL_SET_##in, HAS_##derivative},
#define PUBLIC(name, arity, in, out, operations, vector, plain, kernel, formula, domain, derivative) \
    {#name, arity, MICA__SET_##in,        MICA__SET_##out, operations,                               \
     1,     1,     MICA__KERNEL_SET_##in, HAS_##derivative},
static const mica__scalar_info scalars[MICA_SCALAR_COUNT] = {
    {"none", 0, 0, 0, 0, 0, 0, 0, 0},
#include "backend/scalars.def"
};
#undef STEP
#undef STEP_OF
#undef PUBLIC

const mica__scalar_info *mica__scalar_of(uint32_t scalar)
{
    return scalar > MICA_SCALAR_NONE && scalar < MICA_SCALAR_COUNT ? &scalars[scalar] : NULL;
}

const char *mica_scalar_name(uint32_t scalar)
{
    return scalars[scalar < MICA_SCALAR_COUNT ? scalar : 0].name;
}

mica_status mica_scalar_get_info(uint32_t scalar, mica_scalar_info *out_info)
{
    const mica__scalar_info *info = mica__scalar_of(scalar);
    if (out_info == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "scalar_get_info: out_info is NULL");
    memset(out_info, 0, sizeof *out_info);
    if (info == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "scalar_get_info: scalar is %u, not 1 to %u", scalar,
                          MICA_SCALAR_COUNT - 1u);
    *out_info =
        (mica_scalar_info){info->arity, info->in, info->out, info->operations, info->is_op, info->derivative};
    return MICA_OK;
}

static const struct {
    const char *name;
    uint8_t bytes;
} registers[MICA_REGISTER_COUNT] = {{"none", 0}, {"f32", 4}, {"f64", 8}, {"i32", 4},
                                    {"u32", 4},  {"i64", 8}, {"u64", 8}, {"bool", 1}};

const char *mica_register_name(mica_register type)
{
    return registers[(unsigned)type < MICA_REGISTER_COUNT ? type : 0].name;
}

uint32_t mica__register_bytes(uint32_t type)
{
    return registers[type < MICA_REGISTER_COUNT ? type : 0].bytes;
}

const uint8_t mica__registers[MICA_DTYPE_COUNT] = {
    [MICA_DTYPE_F32] = MICA_REGISTER_F32,     [MICA_DTYPE_F16] = MICA_REGISTER_F32,
    [MICA_DTYPE_BF16] = MICA_REGISTER_F32,    [MICA_DTYPE_F8_E4M3] = MICA_REGISTER_F32,
    [MICA_DTYPE_F8_E5M2] = MICA_REGISTER_F32, [MICA_DTYPE_E8M0] = MICA_REGISTER_F32,
    [MICA_DTYPE_C64] = MICA_REGISTER_F32,     [MICA_DTYPE_F64] = MICA_REGISTER_F64,
    [MICA_DTYPE_I8] = MICA_REGISTER_I32,      [MICA_DTYPE_I16] = MICA_REGISTER_I32,
    [MICA_DTYPE_I32] = MICA_REGISTER_I32,     [MICA_DTYPE_U8] = MICA_REGISTER_U32,
    [MICA_DTYPE_U16] = MICA_REGISTER_U32,     [MICA_DTYPE_U32] = MICA_REGISTER_U32,
    [MICA_DTYPE_I64] = MICA_REGISTER_I64,     [MICA_DTYPE_U64] = MICA_REGISTER_U64,
    [MICA_DTYPE_BOOL] = MICA_REGISTER_BOOL};

mica_register mica_register_of(mica_dtype dtype)
{
    return (unsigned)dtype < MICA_DTYPE_COUNT ? mica__register_of(dtype) : MICA_REGISTER_NONE;
}

/* ---- asking a program ---- */

mica_register mica__region_value_type(const mica__region_program *program, uint32_t value)
{
    if (value < program->input_count)
        return (mica_register)program->input[value];
    value -= program->input_count;
    return value < program->step_count ? (mica_register)program->step[value].type : MICA_REGISTER_NONE;
}

const mica__region_program *mica__region_of(const mica__record *record)
{
    return record->op == MICA_OP_REGION ? record->params : NULL;
}

bool mica__region_is(const mica__record *record, mica_scalar scalar)
{
    const mica__region_program *program = mica__region_of(record);
    if (program == NULL || program->step_count != 1 || program->step[0].scalar != scalar ||
        program->output_count != 1 || program->input_count != scalars[scalar].arity ||
        program->output[0] != program->input_count || program->output_imag[0] != MICA_REGION_NONE)
        return false;
    for (uint32_t v = 0; v < program->input_count; v++)
        if (program->step[0].value[v] != v)
            return false;
    return true;
}

/* A region of these two steps and nothing else, whose result is the second one. */
static const mica__region_program *of_two(const mica__record *record, uint32_t inputs)
{
    const mica__region_program *program = mica__region_of(record);
    if (program == NULL || program->step_count != 2 || program->input_count != inputs ||
        program->output_count != 1 || program->output[0] != inputs + 1 ||
        program->output_imag[0] != MICA_REGION_NONE)
        return NULL;
    return program;
}

bool mica__region_is_softcap(const mica__record *record, float *out_cap)
{
    const mica__region_program *program = of_two(record, 1);
    if (program == NULL || program->step[0].scalar != MICA_SCALAR_CONSTANT ||
        program->step[1].scalar != MICA_SCALAR_SOFTCAP || program->step[1].value[0] != 0 ||
        program->step[1].value[1] != 1)
        return false;
    *out_cap = program->step[0].constant.f32;
    return true;
}

bool mica__region_is_gate(const mica__record *record, mica_scalar *out_act, uint32_t *out_gate,
                          uint32_t *out_up)
{
    const mica__region_program *program = of_two(record, 2);
    if (program == NULL || program->step[1].scalar != MICA_SCALAR_MUL ||
        (program->step[0].scalar != MICA_SCALAR_SILU && program->step[0].scalar != MICA_SCALAR_GELU))
        return false;
    const uint8_t *factor = program->step[1].value, gate = program->step[0].value[0];
    const uint32_t up = factor[0] == 2 ? factor[1] : factor[0];
    if ((factor[0] != 2 && factor[1] != 2) || up != 1u - gate)
        return false;
    *out_act = (mica_scalar)program->step[0].scalar;
    *out_gate = gate;
    *out_up = up;
    return true;
}

mica_scalar mica__region_rounding(mica_dtype dtype)
{
    switch (dtype) {
    case MICA_DTYPE_F16: return MICA_SCALAR_ROUND_F16;
    case MICA_DTYPE_BF16: return MICA_SCALAR_ROUND_BF16;
    case MICA_DTYPE_F8_E4M3: return MICA_SCALAR_ROUND_F8_E4M3;
    case MICA_DTYPE_F8_E5M2: return MICA_SCALAR_ROUND_F8_E5M2;
    case MICA_DTYPE_E8M0: return MICA_SCALAR_ROUND_E8M0;
    case MICA_DTYPE_I8: return MICA_SCALAR_WRAP_I8;
    case MICA_DTYPE_I16: return MICA_SCALAR_WRAP_I16;
    case MICA_DTYPE_U8: return MICA_SCALAR_WRAP_U8;
    case MICA_DTYPE_U16: return MICA_SCALAR_WRAP_U16;
    default: return MICA_SCALAR_NONE;
    }
}

uint32_t mica__region_operations(const mica__region_program *program)
{
    uint32_t sum = 0;
    for (uint32_t s = 0; s < program->step_count; s++)
        sum += scalars[program->step[s].scalar].operations;
    return sum;
}

/* ---- checks ---- */

typedef struct check {
    const char *who;
    mica__region_program *program; /* as far as it was checked */
} check;

#define REFUSE(c, format, ...) mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: " format, (c)->who, __VA_ARGS__)
#define TYPE_NAME(type) mica_register_name((mica_register)(type))

static bool is_register(uint32_t type)
{
    return type > MICA_REGISTER_NONE && type < MICA_REGISTER_COUNT;
}

static mica_status check_values(const check *c, uint32_t s, const mica_region_step *step,
                                const mica__scalar_info *info)
{
    const uint32_t given = (uint32_t)c->program->input_count + s;
    for (uint32_t j = 0; j < 3; j++) {
        if (j >= info->arity && step->value[j] != MICA_REGION_NONE)
            return REFUSE(c, "step %u (%s): value[%u] is %u, but it takes %u values", s, info->name, j,
                          step->value[j], info->arity);
        if (j < info->arity && step->value[j] >= given)
            return REFUSE(c, "step %u (%s): value[%u] is %u, which nobody gave yet (%u are there)", s,
                          info->name, j, step->value[j], given);
    }
    return MICA_OK;
}

/* The type that its values have, in *out; NONE where it takes none. */
static mica_status check_types_in(const check *c, uint32_t s, const mica_region_step *step,
                                  const mica__scalar_info *info, mica_register *out)
{
    const uint32_t first = step->scalar == MICA_SCALAR_SELECT ? 1 : 0;
    *out = MICA_REGISTER_NONE;
    for (uint32_t j = 0; j < info->arity; j++) {
        const mica_register type = mica__region_value_type(c->program, step->value[j]);
        if (j < first) {
            if (type != MICA_REGISTER_BOOL)
                return REFUSE(c, "step %u (%s): value[%u] is %s, not bool", s, info->name, j,
                              TYPE_NAME(type));
            continue;
        }
        if ((info->in >> type & 1) == 0)
            return REFUSE(c, "step %u (%s): value[%u] is %s, which it does not take", s, info->name, j,
                          TYPE_NAME(type));
        if (j == first)
            *out = type;
        if (type != *out)
            return REFUSE(c, "step %u (%s): value[%u] is %s, but value[%u] is %s", s, info->name, j,
                          TYPE_NAME(type), first, TYPE_NAME(*out));
    }
    return MICA_OK;
}

static mica_status check_constant(const check *c, uint32_t s, const mica_region_step *step,
                                  mica_region_step *out)
{
    const int64_t i = step->constant.i64;
    const uint64_t u = step->constant.u64;
    switch (step->type) {
    case MICA_REGISTER_F32: out->constant.f32 = step->constant.f32; return MICA_OK;
    case MICA_REGISTER_I32:
        if (i < INT32_MIN || i > INT32_MAX)
            return REFUSE(c, "step %u (constant): %lld does not fit i32", s, (long long)i);
        break;
    case MICA_REGISTER_U32:
        if (u > UINT32_MAX)
            return REFUSE(c, "step %u (constant): %llu does not fit u32", s, (unsigned long long)u);
        break;
    case MICA_REGISTER_BOOL:
        if (u > 1)
            return REFUSE(c, "step %u (constant): %llu is not a bool, 0 or 1", s, (unsigned long long)u);
        break;
    default: break;
    }
    out->constant.u64 = u;
    return MICA_OK;
}

/* What some scalars ask beyond their row. */
static mica_status check_own(const check *c, uint32_t s, const mica_region_step *step, mica_register in,
                             mica_region_step *out)
{
    if (step->scalar != MICA_SCALAR_INDEX ? step->axis != 0 : step->axis >= MICA_MAX_DIMS)
        return REFUSE(c, "step %u (%s): axis is %u", s, mica_scalar_name(step->scalar), step->axis);
    c->program->special |= step->scalar == MICA_SCALAR_INDEX || step->scalar == MICA_SCALAR_IMAG;
    switch (step->scalar) {
    case MICA_SCALAR_CONSTANT: return check_constant(c, s, step, out);
    case MICA_SCALAR_INDEX: c->program->axes |= (uint8_t)(1u << step->axis); return MICA_OK;
    case MICA_SCALAR_IMAG:
        if (step->value[0] >= c->program->input_count)
            return REFUSE(c, "step %u (imag): value[0] is %u, which is no input", s, step->value[0]);
        return MICA_OK;
    case MICA_SCALAR_BITS:
        if (mica__register_bytes(step->type) != mica__register_bytes(in))
            return REFUSE(c, "step %u (bits): %s and %s differ in size", s, TYPE_NAME(in),
                          TYPE_NAME(step->type));
        return MICA_OK;
    default: return MICA_OK;
    }
}

static mica_status check_step(const check *c, uint32_t s, const mica_region_step *step)
{
    mica_region_step *out = &c->program->step[s];
    const mica__scalar_info *info = mica__scalar_of(step->scalar);
    mica_register in = MICA_REGISTER_NONE;
    if (info == NULL)
        return REFUSE(c, "step %u: there is no scalar %u", s, step->scalar);
    if (step->reserved[0] != 0 || step->reserved[1] != 0)
        return REFUSE(c, "step %u (%s): reserved is not 0", s, info->name);
    MICA__TRY(check_values(c, s, step, info));
    MICA__TRY(check_types_in(c, s, step, info, &in));
    const uint32_t may_give = info->out != 0 ? info->out : 1u << in;
    if (!is_register(step->type) || (may_give >> step->type & 1) == 0)
        return REFUSE(c, "step %u (%s): type is %s, which it does not give%s%s", s, info->name,
                      TYPE_NAME(step->type), in != MICA_REGISTER_NONE ? " from " : "",
                      in != MICA_REGISTER_NONE ? TYPE_NAME(in) : "");
    *out = *step;
    out->constant.u64 = 0;
    MICA__TRY(check_own(c, s, step, in, out));
    c->program->step_count = (uint8_t)(s + 1);
    return MICA_OK;
}

static mica_status check_output(const check *c, uint32_t o, uint32_t value, uint32_t imag)
{
    mica__region_program *program = c->program;
    const uint32_t count = (uint32_t)program->input_count + program->step_count;
    if (value >= count)
        return REFUSE(c, "output[%u] is value %u, but there are %u", o, value, count);
    if (imag != MICA_REGION_NONE) {
        if (imag >= count)
            return REFUSE(c, "output_imag[%u] is value %u, but there are %u", o, imag, count);
        const mica_register a = mica__region_value_type(program, value);
        const mica_register b = mica__region_value_type(program, imag);
        if (a != MICA_REGISTER_F32 || b != MICA_REGISTER_F32)
            return REFUSE(c, "output[%u] is of %s and %s, not of two f32", o, TYPE_NAME(a), TYPE_NAME(b));
    }
    program->output[o] = (uint8_t)value;
    program->output_imag[o] = (uint8_t)imag;
    return MICA_OK;
}

static mica_status check_counts(const check *c, const mica_region_desc *desc)
{
    if (desc->input_count > MICA_REGION_INPUTS)
        return REFUSE(c, "input_count is %u, not 0 to %u", desc->input_count, MICA_REGION_INPUTS);
    if (desc->output_count == 0 || desc->output_count > MICA_REGION_OUTPUTS)
        return REFUSE(c, "output_count is %u, not 1 to %u", desc->output_count, MICA_REGION_OUTPUTS);
    if (desc->step_count > MICA_REGION_STEPS)
        return REFUSE(c, "step_count is %u, not 0 to %u", desc->step_count, MICA_REGION_STEPS);
    if (desc->step_count > 0 && desc->step == NULL)
        return REFUSE(c, "step is NULL, but step_count is %u", desc->step_count);
    return MICA_OK;
}

mica_status mica__region_check(const char *who, const mica_region_desc *desc, mica__region_room *out)
{
    const check c = {who, &out->program};
    mica__region_begin(&out->program, 0, 0);
    MICA__TRY(check_counts(&c, desc));
    for (uint32_t i = 0; i < desc->input_count; i++) {
        if (!is_register(desc->input[i]))
            return REFUSE(&c, "input[%u] is %u, which is no register type", i, desc->input[i]);
        out->program.input[i] = desc->input[i];
    }
    out->program.input_count = (uint8_t)desc->input_count;
    for (uint32_t s = 0; s < desc->step_count; s++)
        MICA__TRY(check_step(&c, s, &desc->step[s]));
    for (uint32_t o = 0; o < desc->output_count; o++)
        MICA__TRY(check_output(&c, o, desc->output[o], desc->output_imag[o]));
    out->program.output_count = (uint8_t)desc->output_count;
    return MICA_OK;
}
