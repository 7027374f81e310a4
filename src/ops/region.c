/*
 * region.c - regions, and every op that is one: a checked program and its operands become a record.
 */
#include "ops/programs.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "quant/dtype.h"

#define NONE MICA_REGION_NONE

/* ---- a program and its operands ---- */

/* The operand does not hold what the program has there. */
static MICA__COLD void refuse_type(mica__op_builder *op, uint32_t slot, mica_register type)
{
    mica__op_refuse(op, "%s is %s, not of register %s", mica__op_argument(op, slot),
                    mica_dtype_name((mica_dtype)op->record.operand[slot].dtype), mica_register_name(type));
}

static inline void fit_type(mica__op_builder *op, uint32_t slot, mica_register type)
{
    if (mica__op_ok(op) && mica__register_of(op->record.operand[slot].dtype) != type)
        refuse_type(op, slot, type);
}

/* What single steps ask of the operands. */
static void fit_steps(mica__op_builder *op, const mica__region_program *program)
{
    const mica__operand *operand = op->record.operand;
    for (uint32_t s = 0; s < program->step_count; s++) {
        const mica_region_step *step = &program->step[s];
        if (step->scalar == MICA_SCALAR_IMAG)
            mica__op_require(op, operand[step->value[0]].dtype == MICA_DTYPE_C64,
                             "%s is %s, but step %u takes its imaginary part",
                             mica__op_argument(op, step->value[0]),
                             mica_dtype_name((mica_dtype)operand[step->value[0]].dtype), s);
        if (step->scalar == MICA_SCALAR_INDEX)
            mica__op_require(
                op, step->axis < operand[program->input_count].ndim,
                "step %u asks for the index along axis %u from the last, but %s has %u dimensions", s,
                step->axis, mica__op_argument(op, program->input_count), operand[program->input_count].ndim);
    }
}

static void fit_output(mica__op_builder *op, const mica__region_program *program, uint32_t o)
{
    const uint32_t slot = program->input_count + o;
    fit_type(op, slot, mica__region_value_type(program, program->output[o]));
    if (!mica__op_ok(op))
        return;
    const bool pair = op->record.operand[slot].dtype == MICA_DTYPE_C64;
    mica__op_require(op, pair == (program->output_imag[o] != NONE), "%s is %s, but the region gives it %s",
                     mica__op_argument(op, slot), mica_dtype_name((mica_dtype)op->record.operand[slot].dtype),
                     pair ? "one value" : "two values");
    if (o > 0)
        mica__op_same_shape(op, slot, program->input_count);
}

/* Shapes of all, once they are there. */
static void fit_shapes(mica__op_builder *op, const mica__region_program *program, bool equal_shapes)
{
    for (uint32_t i = 0; i < program->input_count; i++)
        if (equal_shapes)
            mica__op_same_shape(op, i, program->input_count);
        else
            mica__op_broadcast(op, i, program->input_count);
    if (mica__op_ok(op) && program->special)
        fit_steps(op, program);
}

static void begin(mica__op_builder *op, mica_encoder *encoder, const mica__region_names *names,
                  const mica__region_program *program)
{
    mica__op_begin(op, encoder, MICA_OP_REGION, program->input_count + program->output_count, names, program,
                   mica__region_bytes(program->step_count));
}

static const mica__slot_info *slot_of(const mica__region_program *program, uint32_t slot)
{
    return &mica__ops[MICA_OP_REGION]
                .slot[slot < program->input_count ? MICA__REGION_INPUT : MICA__REGION_OUTPUT];
}

static inline void put(mica__op_builder *op, const mica__region_program *program, uint32_t slot,
                       const mica_buffer *buffer)
{
    mica__op_put(op, slot, slot_of(program, slot), buffer);
    if (mica__op_ok(op) && buffer->scales != NULL)
        mica__op_refuse(op, "%s has scales, which regions do not read", mica__op_argument(op, slot));
}

mica_status mica__region_add(mica_encoder *encoder, const mica__region_names *names,
                             const mica__region_program *program, mica_buffer *const *inputs,
                             bool equal_shapes, mica_buffer *const *outputs)
{
    mica__op_builder op;
    const uint32_t count = program->input_count;
    begin(&op, encoder, names, program);
    mica__op_require(&op, encoder != NULL, "encoder is NULL");
    for (uint32_t i = 0; i < count; i++) {
        put(&op, program, i, inputs[i]);
        fit_type(&op, i, (mica_register)program->input[i]);
    }
    for (uint32_t o = 0; o < program->output_count; o++) {
        put(&op, program, count + o, outputs[o]);
        fit_output(&op, program, o);
    }
    fit_shapes(&op, program, equal_shapes);
    return mica__op_add(&op);
}

/* ---- operands that need not exist ---- */

static void put_descs(mica__op_builder *op, const mica__region_program *program,
                      const mica_operand_desc *inputs, const mica_operand_desc *outputs)
{
    const uint32_t count = program->input_count;
    for (uint32_t i = 0; i < count; i++) {
        mica__op_put_desc(op, i, slot_of(program, i), &inputs[i]);
        fit_type(op, i, (mica_register)program->input[i]);
    }
    for (uint32_t o = 0; o < program->output_count; o++) {
        mica__op_put_desc(op, count + o, slot_of(program, count + o), &outputs[o]);
        fit_output(op, program, o);
    }
    fit_shapes(op, program, false);
}

/* The size of two that broadcast: one that is not known is taken not to be 1 beside one that is. */
static uint64_t joined_size(uint64_t a, uint64_t b)
{
    if (a == 1 || a == b)
        return b;
    if (b == 1 || mica__size_known(a))
        return a;
    return mica__size_known(b) ? b : MICA_SIZE_UNKNOWN;
}

static mica_operand_desc joined_shape(const mica__region_program *program, const mica_operand_desc *inputs)
{
    mica_operand_desc joined = {.ndim = 0};
    for (uint32_t i = 0; i < program->input_count; i++)
        joined.ndim =
            inputs[i].ndim > joined.ndim && inputs[i].ndim <= MICA_MAX_DIMS ? inputs[i].ndim : joined.ndim;
    for (uint32_t d = 0; d < joined.ndim; d++) {
        uint64_t size = 1;
        for (uint32_t i = 0; i < program->input_count; i++)
            if (d < inputs[i].ndim && inputs[i].ndim <= MICA_MAX_DIMS)
                size = joined_size(size, inputs[i].shape[inputs[i].ndim - 1 - d]);
        joined.shape[joined.ndim - 1 - d] = size;
    }
    return joined;
}

static mica_dtype default_dtype(const mica__region_program *program, const mica_operand_desc *inputs,
                                uint32_t o)
{
    const mica_register type = mica__region_value_type(program, program->output[o]);
    if (program->output_imag[o] != NONE)
        return MICA_DTYPE_C64;
    for (uint32_t i = 0; i < program->input_count; i++)
        if (program->input[i] == type && inputs[i].dtype != MICA_DTYPE_C64)
            return inputs[i].dtype;
    for (mica_dtype d = MICA_DTYPE_NONE + 1; d < MICA_DTYPE_COUNT; d++)
        if (mica_register_of(d) == type && mica__dtype_bytes(d) == mica__register_bytes(type))
            return d;
    return MICA_DTYPE_NONE;
}

/* Names of the operands of a caller's region. */
static const char *const input_names[MICA_REGION_INPUTS] = {
    "inputs[0]",  "inputs[1]",  "inputs[2]",  "inputs[3]", "inputs[4]",  "inputs[5]",
    "inputs[6]",  "inputs[7]",  "inputs[8]",  "inputs[9]", "inputs[10]", "inputs[11]",
    "inputs[12]", "inputs[13]", "inputs[14]", "inputs[15]"};
static const char *const output_names[MICA_REGION_OUTPUTS] = {"outputs[0]", "outputs[1]", "outputs[2]",
                                                              "outputs[3]", "outputs[4]", "outputs[5]",
                                                              "outputs[6]", "outputs[7]"};

/* ---- regions of the caller ---- */

struct mica_region {
    mica__region_program program; /* and its steps */
};

const mica__region_program *mica__region_program_of(const mica_region *region)
{
    return &region->program;
}

mica_status mica__region_copy(const char *who, const mica__region_program *program, mica_region **out_region)
{
    const size_t bytes = mica__region_bytes(program->step_count);
    mica_region *region = mica__alloc(bytes);
    if (region == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "%s: no memory for %u steps", who, program->step_count);
    memcpy(&region->program, program, bytes);
    *out_region = region;
    return MICA_OK;
}

mica_status mica_region_create(const mica_region_desc *desc, mica_region **out_region)
{
    if (out_region == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "region_create: out_region is NULL");
    *out_region = NULL;
    if (desc == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "region_create: desc is NULL");
    mica__region_room room;
    MICA__TRY(mica__region_check("region_create", desc, &room));
    return mica__region_copy("region_create", &room.program, out_region);
}

void mica_region_release(mica_region *region)
{
    mica__free(region);
}

mica_status mica_region_apply(mica_encoder *encoder, const mica_region *region, mica_buffer *const *inputs,
                              mica_buffer *const *outputs)
{
    static const mica__region_names names = {"region_apply", input_names, output_names};
    if (region == NULL || outputs == NULL || (inputs == NULL && region->program.input_count > 0))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "region_apply: %s is NULL",
                          region == NULL    ? "region"
                          : outputs == NULL ? "outputs"
                                            : "inputs");
    return mica__region_add(encoder, &names, &region->program, inputs, false, outputs);
}

static mica_status check_asked(const char *call, const mica_region *region, const mica_operand_desc *inputs,
                               const mica_operand_desc *outputs)
{
    if (region != NULL && outputs != NULL && (inputs != NULL || region->program.input_count == 0))
        return MICA_OK;
    return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: %s is NULL", call,
                      region == NULL    ? "region"
                      : outputs == NULL ? "outputs"
                                        : "inputs");
}

mica_status mica_region_infer(const mica_region *region, const mica_operand_desc *inputs,
                              mica_operand_desc *outputs)
{
    static const mica__region_names names = {"region_infer", input_names, output_names};
    mica__op_builder op;
    MICA__TRY(check_asked("region_infer", region, inputs, outputs));
    const mica__region_program *program = &region->program;
    const mica_operand_desc joined = joined_shape(program, inputs);
    for (uint32_t o = 0; o < program->output_count; o++) {
        if (outputs[o].ndim != MICA_RANK_UNKNOWN)
            continue;
        outputs[o].ndim = joined.ndim;
        memcpy(outputs[o].shape, joined.shape, sizeof joined.shape);
        if (outputs[o].dtype == MICA_DTYPE_NONE)
            outputs[o].dtype = default_dtype(program, inputs, o);
    }
    begin(&op, NULL, &names, program);
    put_descs(&op, program, inputs, outputs);
    return mica__op_end(&op);
}

mica_status mica_region_supported(mica_device *device, const mica_region *region,
                                  const mica_operand_desc *inputs, const mica_operand_desc *outputs,
                                  mica_op_route *out_route)
{
    static const mica__region_names names = {"region_supported", input_names, output_names};
    mica__op_builder op;
    if (out_route != NULL)
        memset(out_route, 0, sizeof *out_route);
    if (device == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "region_supported: device is NULL");
    MICA__TRY(check_asked("region_supported", region, inputs, outputs));
    begin(&op, NULL, &names, &region->program);
    op.device = device;
    mica__op_clear(&op);
    put_descs(&op, &region->program, inputs, outputs);
    return mica__op_plan_route(&op, out_route);
}

/* ---- one op for each scalar that works on buffers alone ---- */

static const char *const value_names[] = {"a", "b", "c"};
static const char *const result_names[] = {"y"};

/* Such an op: its row, and its program for each type of registers, which need not be made and looked at in every call. */
typedef struct scalar_op {
    const char *name;
    uint8_t arity, in; /* set of types; of select those of the last two values */
    uint8_t first;     /* the value whose type decides; those before it are bool */
} scalar_op;

/* A mica__region_program of one step. */
typedef struct one_step {
    uint8_t input_count, output_count, step_count, axes;
    uint8_t input[MICA_REGION_INPUTS], output[MICA_REGION_OUTPUTS], output_imag[MICA_REGION_OUTPUTS];
    uint8_t special, reserved[3];
    _Alignas(8) mica_region_step step;
} one_step;
_Static_assert(offsetof(one_step, output_imag) == offsetof(mica__region_program, output_imag) &&
                   offsetof(one_step, special) == offsetof(mica__region_program, special) &&
                   offsetof(one_step, step) == offsetof(mica__region_program, step),
               "the same, with its step");

typedef union scalar_program {
    one_step made;
    mica__region_program program;
} scalar_program;

#define STEP(...)
#define STEP_OF(...)
enum {
#define PUBLIC(name, ...) ROW_##name,
#include "backend/scalars.def"
#undef PUBLIC
    ROWS
};

#define FIRST(name) (MICA__SCALAR_##name == MICA__SCALAR_select)
static const scalar_op scalar_ops[ROWS] = {
#define PUBLIC(name, arity, in, ...) {#name, arity, MICA__SET_##in, FIRST(name)},
#include "backend/scalars.def"
#undef PUBLIC
};

#define OUT(out, type) (MICA__SET_##out == MICA__SET_SAME ? (type) : MICA_REGISTER_BOOL)
#define NONES NONE, NONE, NONE, NONE, NONE, NONE, NONE
#define OF_TYPE(name, arity, out, type)                                                                      \
    {                                                                                                        \
        {                                                                                                    \
            arity, 1, 1, 0,                                                                                  \
                {FIRST(name) ? MICA_REGISTER_BOOL : (type), (arity) > 1 ? (type) : 0,                        \
                 (arity) > 2 ? (type) : 0},                                                                  \
                {arity, NONES}, {NONE, NONES}, 0, {0},                                                       \
            {                                                                                                \
                MICA__SCALAR_##name, OUT(out, type), {0, (arity) > 1 ? 1 : NONE, (arity) > 2 ? 2 : NONE}, 0, \
                    {0},                                                                                     \
                {                                                                                            \
                    0                                                                                        \
                }                                                                                            \
            }                                                                                                \
        }                                                                                                    \
    }
static const scalar_program programs[ROWS][MICA_REGISTER_COUNT] = {
#define PUBLIC(name, arity, in, out, ...)          \
    {{{0}},                                        \
     OF_TYPE(name, arity, out, MICA_REGISTER_F32), \
     OF_TYPE(name, arity, out, MICA_REGISTER_F64), \
     OF_TYPE(name, arity, out, MICA_REGISTER_I32), \
     OF_TYPE(name, arity, out, MICA_REGISTER_U32), \
     OF_TYPE(name, arity, out, MICA_REGISTER_I64), \
     OF_TYPE(name, arity, out, MICA_REGISTER_U64), \
     OF_TYPE(name, arity, out, MICA_REGISTER_BOOL)},
#include "backend/scalars.def"
#undef PUBLIC
};

/* Whether input j may be what it is, beside the one whose type decides. */
static inline bool fits(const scalar_op *info, mica_register type, const mica_buffer *input, uint32_t j)
{
    const mica_register own = mica__register_of(input->dtype);
    return j < info->first ? own == MICA_REGISTER_BOOL : own == type && input->dtype != MICA_DTYPE_C64;
}

static MICA__COLD mica_status refuse_value(const scalar_op *info, mica_buffer *const *inputs, uint32_t j)
{
    const char *name = mica_dtype_name(inputs[j]->dtype);
    if (j <= info->first || inputs[j]->dtype == MICA_DTYPE_C64 ||
        (info->in >> mica__register_of(inputs[j]->dtype) & 1) == 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: %s is %s, which it does not take", info->name,
                          value_names[j], name);
    return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: %s is %s, but %s is %s", info->name, value_names[j],
                      name, value_names[info->first], mica_dtype_name(inputs[info->first]->dtype));
}

static mica_status apply_scalar(mica_encoder *encoder, uint32_t row, mica_buffer *const *inputs,
                                mica_buffer *y)
{
    const scalar_op *info = &scalar_ops[row];
    const mica__region_names names = {info->name, value_names, result_names};
    mica_register type = MICA_REGISTER_F32; /* what is NULL is found where all operands are looked at */
    bool all = encoder != NULL;
    for (uint32_t j = 0; j < info->arity; j++)
        all = all && inputs[j] != NULL;
    if (inputs[info->first] != NULL)
        type = mica__register_of(inputs[info->first]->dtype);
    for (uint32_t j = 0; all && j < info->arity; j++)
        if (!fits(info, type, inputs[j], j) || (info->in >> type & 1) == 0)
            return refuse_value(info, inputs, j);
    const mica__region_program *program = &programs[row][type].program;
    mica__op_builder op;
    begin(&op, encoder, &names, program);
    mica__op_require(&op, encoder != NULL, "encoder is NULL");
    for (uint32_t j = 0; j < info->arity; j++)
        put(&op, program, j, inputs[j]);
    put(&op, program, info->arity, y);
    fit_type(&op, info->arity, (mica_register)program->step[0].type);
    mica__op_require(&op, !mica__op_ok(&op) || y->dtype != MICA_DTYPE_C64,
                     "y is c64, but the region gives it one value");
    for (uint32_t j = 0; mica__op_ok(&op) && j < info->arity; j++)
        if (!mica__operands_alike(&op.record.operand[j], &op.record.operand[info->arity]))
            mica__op_broadcast(&op, j, info->arity);
    return mica__op_add(&op);
}

#define PUBLIC(name, arity, ...) SCALAR_##arity(mica_##name, ROW_##name)
#define SCALAR_1(name, row)                                                 \
    mica_status name(mica_encoder *encoder, mica_buffer *a, mica_buffer *y) \
    {                                                                       \
        return apply_scalar(encoder, row, (mica_buffer *const[]){a}, y);    \
    }
#define SCALAR_2(name, row)                                                                 \
    mica_status name(mica_encoder *encoder, mica_buffer *a, mica_buffer *b, mica_buffer *y) \
    {                                                                                       \
        return apply_scalar(encoder, row, (mica_buffer *const[]){a, b}, y);                 \
    }
#define SCALAR_3(name, row)                                                                                 \
    mica_status name(mica_encoder *encoder, mica_buffer *a, mica_buffer *b, mica_buffer *c, mica_buffer *y) \
    {                                                                                                       \
        return apply_scalar(encoder, row, (mica_buffer *const[]){a, b, c}, y);                              \
    }
#include "backend/scalars.def"
#undef PUBLIC

/* ---- ops of a few steps ---- */

/* f64 where the first operand is that, f32 else. */
static mica_register real_of(const mica_buffer *buffer)
{
    return buffer != NULL && buffer->dtype == MICA_DTYPE_F64 ? MICA_REGISTER_F64 : MICA_REGISTER_F32;
}

void mica__gate_program(mica_scalar act, mica_register type, mica__region_program *out)
{
    mica__region_begin(out, 2, 1);
    out->input[0] = out->input[1] = (uint8_t)type;
    const uint8_t open = mica__region_step(out, act, type, 0, NONE, NONE);
    out->output[0] = mica__region_step(out, MICA_SCALAR_MUL, type, open, 1, NONE);
}

static mica_status gate(mica_encoder *encoder, const char *name, mica_scalar act, mica_buffer *gate_values,
                        mica_buffer *up, mica_buffer *y)
{
    static const char *const inputs[] = {"gate", "up"};
    const mica__region_names names = {name, inputs, result_names};
    mica__region_small small;
    mica__gate_program(act, real_of(gate_values), &small.program);
    return mica__region_add(encoder, &names, &small.program, (mica_buffer *const[]){gate_values, up}, true,
                            &y);
}

mica_status mica_silu_mul(mica_encoder *encoder, mica_buffer *gate_values, mica_buffer *up, mica_buffer *y)
{
    return gate(encoder, "silu_mul", MICA_SCALAR_SILU, gate_values, up, y);
}

mica_status mica_gelu_mul(mica_encoder *encoder, mica_buffer *gate_values, mica_buffer *up, mica_buffer *y)
{
    return gate(encoder, "gelu_mul", MICA_SCALAR_GELU, gate_values, up, y);
}

mica_status mica_sigmoid_mul(mica_encoder *encoder, mica_buffer *gate_values, mica_buffer *up, mica_buffer *y)
{
    return gate(encoder, "sigmoid_mul", MICA_SCALAR_SIGMOID, gate_values, up, y);
}

mica_status mica_quick_gelu_mul(mica_encoder *encoder, mica_buffer *gate_values, mica_buffer *up,
                                mica_buffer *y)
{
    return gate(encoder, "quick_gelu_mul", MICA_SCALAR_QUICK_GELU, gate_values, up, y);
}

mica_status mica_relu_squared_mul(mica_encoder *encoder, mica_buffer *gate_values, mica_buffer *up,
                                  mica_buffer *y)
{
    return gate(encoder, "relu_squared_mul", MICA_SCALAR_RELU_SQUARED, gate_values, up, y);
}

mica_status mica_clipped_swiglu(mica_encoder *encoder, mica_buffer *gate_values, mica_buffer *up, float alpha,
                                float limit, mica_buffer *y)
{
    static const char *const inputs[] = {"gate", "up"};
    static const mica__region_names names = {"clipped_swiglu", inputs, result_names};
    mica__region_room room;
    MICA__TRY(mica__clipped_swiglu("clipped_swiglu", real_of(gate_values), alpha, limit, &room));
    return mica__region_add(encoder, &names, &room.program, (mica_buffer *const[]){gate_values, up}, true,
                            &y);
}

mica_status mica__number_program(const char *who, mica_scalar scalar, mica_register type, float number,
                                 mica__region_program *out)
{
    const bool cap = scalar == MICA_SCALAR_SOFTCAP;
    if (!isfinite(number) || (cap && !(number > 0.0f)))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: %s is %g, not %sfinite", who,
                          cap                         ? "cap"
                          : scalar == MICA_SCALAR_ELU ? "alpha"
                                                      : "slope",
                          (double)number, cap ? "above 0 and " : "");
    mica__scalar_value value = {.f32 = number};
    if (type == MICA_REGISTER_F64)
        value.f64 = (double)number;
    mica__region_begin(out, 1, 1);
    out->input[0] = (uint8_t)type;
    const uint8_t constant = mica__region_constant(out, type, value);
    out->output[0] = mica__region_step(out, scalar, type, 0, constant, NONE);
    return MICA_OK;
}

/* A scalar of x and a number. */
static mica_status with_number(mica_encoder *encoder, mica_scalar scalar, mica_buffer *x, float number,
                               mica_buffer *y)
{
    static const char *const inputs[] = {"x"};
    const mica__scalar_info *info = mica__scalar_of(scalar);
    const mica__region_names names = {info->name, inputs, result_names};
    const bool wide = x != NULL && x->dtype == MICA_DTYPE_F64 && (info->in >> MICA_REGISTER_F64 & 1) != 0;
    mica__region_small small;
    MICA__TRY(mica__number_program(info->name, scalar, wide ? MICA_REGISTER_F64 : MICA_REGISTER_F32, number,
                                   &small.program));
    return mica__region_add(encoder, &names, &small.program, &x, true, &y);
}

mica_status mica_softcap(mica_encoder *encoder, mica_buffer *x, float cap, mica_buffer *y)
{
    return with_number(encoder, MICA_SCALAR_SOFTCAP, x, cap, y);
}

mica_status mica_leaky_relu(mica_encoder *encoder, mica_buffer *x, float slope, mica_buffer *y)
{
    return with_number(encoder, MICA_SCALAR_LEAKY_RELU, x, slope, y);
}

mica_status mica_elu(mica_encoder *encoder, mica_buffer *x, float alpha, mica_buffer *y)
{
    return with_number(encoder, MICA_SCALAR_ELU, x, alpha, y);
}

/* A bound in a register of x's type: of integers the nearest that it holds, to the inside. */
static mica__scalar_value bound_of(mica_register type, double value, bool low)
{
    const bool is_signed = type == MICA_REGISTER_I32 || type == MICA_REGISTER_I64;
    const int bits = type == MICA_REGISTER_I32 || type == MICA_REGISTER_U32 ? 32 : 64;
    const double most = ldexp(1.0, is_signed ? bits - 1 : bits), least = is_signed ? -most : 0.0;
    if (type == MICA_REGISTER_F64)
        return (mica__scalar_value){.f64 = value};
    if (type == MICA_REGISTER_F32)
        return (mica__scalar_value){.f32 = (float)value};
    value = low ? ceil(value) : floor(value);
    if (value >= most)
        return (mica__scalar_value){.u64 = UINT64_MAX >> (64 - bits + (is_signed ? 1 : 0))};
    if (value <= least)
        return (mica__scalar_value){.i64 = (int64_t)least};
    if (is_signed)
        return (mica__scalar_value){.i64 = (int64_t)value};
    return (mica__scalar_value){.u64 = (uint64_t)value};
}

mica_status mica__clamp_program(const char *who, mica_register type, double low, double high,
                                mica__region_program *out)
{
    if (!(low <= high))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: low is %g and high %g, which is not above it", who,
                          low, high);
    mica__region_begin(out, 1, 1);
    out->input[0] = (uint8_t)type;
    const uint8_t bottom = mica__region_constant(out, type, bound_of(type, low, true));
    const uint8_t top = mica__region_constant(out, type, bound_of(type, high, false));
    const uint8_t above = mica__region_step(out, MICA_SCALAR_MAX, type, 0, bottom, NONE);
    out->output[0] = mica__region_step(out, MICA_SCALAR_MIN, type, above, top, NONE);
    return MICA_OK;
}

mica_status mica_clamp(mica_encoder *encoder, mica_buffer *x, double low, double high, mica_buffer *y)
{
    static const char *const inputs[] = {"x"};
    static const mica__region_names names = {"clamp", inputs, result_names};
    const mica_register type = x != NULL ? mica__register_of(x->dtype) : MICA_REGISTER_NONE;
    mica__region_small small;
    if (encoder != NULL && x != NULL && ((MICA__SET_NUMBER >> type & 1) == 0 || x->dtype == MICA_DTYPE_C64))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "clamp: x is %s, which it does not take",
                          mica_dtype_name(x->dtype));
    MICA__TRY(mica__clamp_program("clamp", type, low, high, &small.program));
    return mica__region_add(encoder, &names, &small.program, &x, true, &y);
}

/* The f32 from which every smaller float rounds as from `value` itself: towards 0, the last bit set where some was lost. */
static float odd_float(double value)
{
    float near = (float)value;
    uint32_t bits;
    if (isnan(value) || (double)near == value)
        return near;
    memcpy(&bits, &near, sizeof bits);
    if (fabs((double)near) > fabs(value))
        bits--; /* the magnitude below, of infinity the greatest finite one */
    bits |= 1;
    memcpy(&near, &bits, sizeof near);
    return near;
}

bool mica__constant_of(double value, mica_dtype dtype, mica__scalar_value *out)
{
    const double bits = (double)mica__dtype_bytes(dtype) * 8.0;
    out->u64 = 0;
    switch (mica__register_of(dtype)) {
    case MICA_REGISTER_F64: out->f64 = value; return true;
    case MICA_REGISTER_I32:
    case MICA_REGISTER_I64:
        if (!(value >= -ldexp(1.0, (int)bits - 1) && value < ldexp(1.0, (int)bits - 1)))
            return false;
        out->i64 = (int64_t)value;
        return true;
    case MICA_REGISTER_U32:
    case MICA_REGISTER_U64:
        if (!(value >= 0.0 && value < ldexp(1.0, (int)bits)))
            return false;
        out->u64 = (uint64_t)value;
        return true;
    case MICA_REGISTER_BOOL: out->u64 = value != 0.0; return value == 0.0 || value == 1.0;
    default: out->f32 = dtype == MICA_DTYPE_F32 ? (float)value : odd_float(value); return true;
    }
}

mica_status mica_fill(mica_encoder *encoder, double value, mica_buffer *y)
{
    static const mica__region_names names = {"fill", NULL, result_names};
    mica__region_small small;
    mica__region_program *program = &small.program;
    mica__scalar_value constant = {.u64 = 0};
    const mica_register type = y != NULL ? mica__register_of(y->dtype) : MICA_REGISTER_NONE;
    if (encoder != NULL && type != MICA_REGISTER_NONE && !mica__constant_of(value, y->dtype, &constant))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "fill: value %g does not fit %s", value,
                          mica_dtype_name(y->dtype));
    mica__region_begin(program, 0, 1);
    program->output[0] = mica__region_constant(program, type, constant);
    if (y != NULL && y->dtype == MICA_DTYPE_C64)
        program->output_imag[0] = mica__region_constant(program, type, (mica__scalar_value){.f32 = 0.0f});
    return mica__region_add(encoder, &names, program, NULL, false, &y);
}

mica_status mica_advance(mica_encoder *encoder, int32_t delta, mica_buffer *counters)
{
    static const char *const operands[] = {"counters"};
    static const mica__region_names names = {"advance", operands, operands};
    mica__region_small small;
    mica__region_program *program = &small.program;
    const mica_register type = counters != NULL ? mica__register_of(counters->dtype) : MICA_REGISTER_NONE;
    if (encoder != NULL && counters != NULL && (MICA__SET_INTEGER >> type & 1) == 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "advance: counters is %s, not an integer type",
                          mica_dtype_name(counters->dtype));
    mica__region_begin(program, 1, 1);
    program->input[0] = (uint8_t)type;
    const mica__scalar_value step = {.i64 = type == MICA_REGISTER_U32 ? (int64_t)(uint32_t)delta : delta};
    const uint8_t by = mica__region_constant(program, type, step);
    program->output[0] = mica__region_step(program, MICA_SCALAR_ADD, type, 0, by, NONE);
    return mica__region_add(encoder, &names, program, &counters, true, &counters);
}
