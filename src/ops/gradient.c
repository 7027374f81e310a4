/*
 * gradient.c - derivatives of elementwise work: a region's steps are walked back, and what reaches a step's result reaches its values by the
 * column `derivative` of scalars.def. What comes out is a region again, with steps that nobody needs left out.
 */
#include "ops/steps.h"

enum { ROOM = 224 }; /* steps before those that nobody needs are left out */

/* A program with so much room. Values are bytes. */
typedef union wide {
    mica__region_program program;
    _Alignas(8) unsigned char bytes[sizeof(mica__region_program) + ROOM * sizeof(mica_region_step)];
} wide;
_Static_assert(ROOM + MICA_REGION_INPUTS < MICA_REGION_NONE, "values are bytes");

/* ---- what several derivatives, or long ones, are made of ---- */

/* 1 - a^2, without its cancellation */
static st_value st_below_one(st_value a)
{
    return st_mul(st_sub(st_number(a, 1), a), st_shift(a, 1));
}

/* b a^(b - 1), which is 0 for b = 0 */
static st_value st_power_slope(st_value a, st_value b)
{
    const st_value slope = st_mul(b, st_pow(a, st_shift(b, -1)));
    return st_select(st_equal(b, st_number(b, 0)), st_number(b, 0), slope);
}

/* y log(a), which is 0 where y is */
static st_value st_exponent_slope(st_value a, st_value b, st_value y)
{
    (void)b;
    return st_select(st_equal(y, st_number(y, 0)), st_number(y, 0), st_mul(y, st_log(a)));
}

/* a / (a^2 + b^2), by the greater of the two */
static st_value st_angle_slope(st_value a, st_value b)
{
    const st_value most = st_max(st_abs(a), st_abs(b)), p = st_div(a, most), q = st_div(b, most);
    const st_value sum = st_add(st_square(p), st_square(q));
    return st_div(p, st_mul(most, sum));
}

/* Of a sigmoid(k a). */
static st_value st_swish_slope(st_value a, double k)
{
    const st_value z = k == 1 ? a : st_scale(a, k);
    const st_value rise = st_mul(z, st_sigmoid(st_neg(z)));
    return st_mul(st_sigmoid(z), st_shift(rise, 1));
}

/* tanh is 1 to the last bit beyond 10, where a^2 need not be finite. */
static st_value st_gelu_slope(st_value a)
{
    const double k = 0.044715, c = 0.7978845608;
    const st_value x = st_clamp(a, -10, 10), square = st_square(x);
    const st_value inner = st_mul(st_scale(x, c), st_shift(st_scale(square, k), 1));
    const st_value t = st_tanh(inner);
    const st_value rise = st_mul(st_scale(x, c), st_shift(st_scale(square, 3 * k), 1));
    return st_scale(st_add(st_shift(t, 1), st_mul(st_below_one(t), rise)), 0.5);
}

/* Phi(a) + a phi(a) of the normal distribution */
static st_value st_gelu_erf_slope(st_value a)
{
    const st_value below = st_scale(st_erfc(st_scale(a, -0.70710678118654752)), 0.5);
    const st_value density = st_exp(st_scale(st_square(a), -0.5));
    return st_add(below, st_mul(a, st_scale(density, 0.39894228040143268)));
}

/* dy where |a| < bound */
static st_value st_inside(st_value a, double bound, st_value dy)
{
    return st_where(st_less(st_abs(a), st_number(a, bound)), dy);
}

static st_value st_hard_swish_slope(st_value a)
{
    const st_value rise = st_shift(st_scale(a, 1.0 / 3), 0.5);
    const st_value upper = st_select(st_greater(a, st_number(a, 3)), st_number(a, 1), rise);
    return st_select(st_less(a, st_number(a, -3)), st_number(a, 0), upper);
}

static st_value st_mish_slope(st_value a)
{
    const st_value t = st_tanh(st_softplus(a));
    return st_add(t, st_mul(st_mul(a, st_sigmoid(a)), st_below_one(t)));
}

/* Of a > 0 ? a : b (e^a - 1), by a. */
static st_value st_elu_slope(st_value a, st_value b)
{
    return st_select(st_greater(a, st_number(a, 0)), st_number(a, 1), st_mul(b, st_exp(a)));
}

/* Of b tanh(a / b), by b. */
static st_value st_cap_slope(st_value a, st_value b)
{
    const st_value z = st_div(a, b), t = st_tanh(z);
    return st_sub(t, st_mul(z, st_below_one(t)));
}

/* ---- the table ---- */

/* out[j]: what reaches value j. */
typedef void derivative(st_value dy, st_value a, st_value b, st_value c, st_value y, st_value *out);

#define DERIVE_BY(...)                            \
    const st_value by[] = {__VA_ARGS__};          \
    (void)dy, (void)a, (void)b, (void)c, (void)y; \
    memcpy(out, by, sizeof by);
#define DERIVE_NONE (void)dy, (void)a, (void)b, (void)c, (void)y, (void)out;
#define STEP(...)
#define STEP_OF(name, arity, in, out_types, operations, vector, plain, kernel, formula, domain, derivative) \
    static void derive_##name(st_value dy, st_value a, st_value b, st_value c, st_value y, st_value *out)   \
    {                                                                                                       \
        DERIVE_##derivative                                                                                 \
    }
#define PUBLIC STEP_OF
#include "backend/scalars.def"
#undef STEP
#undef STEP_OF
#undef PUBLIC

#define STEP(...)
#define STEP_OF(name, ...) [MICA__SCALAR_##name] = derive_##name,
#define PUBLIC STEP_OF
static derivative *const derivatives[MICA_SCALAR_COUNT] = {
#include "backend/scalars.def"
};
#undef STEP
#undef STEP_OF
#undef PUBLIC

/* ---- walking back ---- */

typedef struct walk {
    const char *who;
    const mica__region_program *forward;
    mica__steps steps;                                        /* the program that is written */
    st_value value[MICA_REGION_INPUTS + MICA_REGION_STEPS];   /* of the forward, in it */
    st_value reaches[MICA_REGION_INPUTS + MICA_REGION_STEPS]; /* what reaches each; st_none: nothing */
    bool depends[MICA_REGION_INPUTS + MICA_REGION_STEPS];     /* on an input that is asked about */
} walk;

static bool is_real(mica_register type)
{
    return type == MICA_REGISTER_F32 || type == MICA_REGISTER_F64;
}

/* Values that roundings of stores, casts between floats and the like hand on as they are. */
static bool passes(uint32_t scalar)
{
    return scalar == MICA_SCALAR_CAST ||
           (scalar >= MICA_SCALAR_ROUND_F16 && scalar <= MICA_SCALAR_ROUND_E8M0);
}

/* The forward's steps, as they are, and which of them depend on what is asked about. */
static void repeat_forward(walk *w, uint32_t wanted)
{
    const mica__region_program *forward = w->forward;
    for (uint32_t i = 0; i < forward->input_count; i++) {
        w->value[i] = st_input(&w->steps, i);
        w->depends[i] = (wanted >> i & 1) != 0;
    }
    for (uint32_t s = 0; s < forward->step_count; s++) {
        const uint32_t at = (uint32_t)forward->input_count + s;
        mica_region_step step = forward->step[s];
        for (uint32_t j = 0; j < 3 && step.value[j] != MICA_REGION_NONE; j++) {
            w->depends[at] |= w->depends[step.value[j]];
            step.value[j] = w->value[step.value[j]].at;
        }
        w->value[at] = st_add_step(&w->steps, &step);
        w->depends[at] = w->depends[at] && is_real((mica_register)step.type);
    }
}

static void reach(walk *w, uint32_t value, st_value by)
{
    if (!w->depends[value])
        return;
    w->reaches[value] = w->reaches[value].of == NULL ? by : st_add(w->reaches[value], by);
}

static mica_status step_back(walk *w, uint32_t s)
{
    const mica__region_program *forward = w->forward;
    const mica_region_step *step = &forward->step[s];
    const uint32_t at = (uint32_t)forward->input_count + s;
    const mica__scalar_info *info = mica__scalar_of(step->scalar);
    const st_value dy = w->reaches[at];
    st_value value[3] = {st_none, st_none, st_none}, out[3] = {st_none, st_none, st_none};
    if (dy.of == NULL)
        return MICA_OK;
    for (uint32_t j = 0; j < info->arity; j++)
        value[j] = w->value[step->value[j]];
    if (passes(step->scalar)) {
        if (is_real(st_type(value[0])))
            reach(w, step->value[0], st_cast(dy, st_type(value[0])));
        return MICA_OK;
    }
    if (!info->derivative)
        return mica__fail(MICA_ERR_UNSUPPORTED, "%s: step %u (%s) has no derivative", w->who, s, info->name);
    derivatives[step->scalar](dy, value[0], value[1], value[2], w->value[at], out);
    for (uint32_t j = 0; j < info->arity; j++)
        if (is_real(st_type(value[j])))
            reach(w, step->value[j], out[j]);
    return MICA_OK;
}

/* What the outputs do not come from goes out of the program: steps, and inputs where `inputs` is true; *out_inputs are those that stay. */
static void leave_out(wide *room, bool inputs, uint32_t *out_inputs)
{
    mica__region_program *program = &room->program;
    const uint32_t count = program->input_count;
    bool needed[MICA_REGION_INPUTS + ROOM] = {false};
    uint8_t place[MICA_REGION_INPUTS + ROOM];
    uint32_t kept_inputs = 0, kept = 0;
    for (uint32_t o = 0; o < program->output_count; o++)
        needed[program->output[o]] = true;
    for (uint32_t s = program->step_count; s-- > 0;)
        for (uint32_t j = 0; j < 3 && needed[count + s] && program->step[s].value[j] != MICA_REGION_NONE; j++)
            needed[program->step[s].value[j]] = true;
    *out_inputs = 0;
    for (uint32_t i = 0; i < count; i++)
        if (needed[i] || !inputs) {
            *out_inputs |= 1u << i;
            program->input[kept_inputs] = program->input[i];
            place[i] = (uint8_t)kept_inputs++;
        }
    for (uint32_t s = 0; s < program->step_count; s++) {
        mica_region_step step = program->step[s];
        if (!needed[count + s])
            continue;
        for (uint32_t j = 0; j < 3; j++)
            step.value[j] = step.value[j] != MICA_REGION_NONE ? place[step.value[j]] : step.value[j];
        program->step[kept] = step;
        place[count + s] = (uint8_t)(kept_inputs + kept++);
    }
    for (uint32_t o = 0; o < program->output_count; o++)
        program->output[o] = place[program->output[o]];
    program->input_count = (uint8_t)kept_inputs;
    program->step_count = (uint8_t)kept;
}

/* Checked as a description is: `special` and `axes` come from there, and that it fits. */
static mica_status finish(const char *who, const wide *room, mica__region_room *out)
{
    const mica__region_program *program = &room->program;
    mica_region_desc desc = {.input_count = program->input_count,
                             .output_count = program->output_count,
                             .step_count = program->step_count,
                             .step = program->step};
    memcpy(desc.input, program->input, sizeof desc.input);
    memcpy(desc.output, program->output, sizeof desc.output);
    memcpy(desc.output_imag, program->output_imag, sizeof desc.output_imag);
    if (program->step_count > MICA_REGION_STEPS)
        return mica__fail(MICA_ERR_UNSUPPORTED, "%s: the derivative takes %u steps, of which regions have %u",
                          who, program->step_count, MICA_REGION_STEPS);
    return mica__region_check(who, &desc, out);
}

static mica_status check_forward(const char *who, const mica__region_program *forward, uint32_t wanted)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < MICA_REGION_INPUTS; i++) {
        count += wanted >> i & 1;
        if ((wanted >> i & 1) != 0 &&
            (i >= forward->input_count || !is_real((mica_register)forward->input[i])))
            return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: wanted has input %u, which is %s", who, i,
                              i >= forward->input_count
                                  ? "not there"
                                  : mica_register_name((mica_register)forward->input[i]));
    }
    if (wanted >> MICA_REGION_INPUTS != 0 || count == 0 || count > MICA_REGION_OUTPUTS)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: wanted is 0x%x, not 1 to %u of the inputs", who,
                          wanted, MICA_REGION_OUTPUTS);
    if ((uint32_t)forward->input_count + forward->output_count > MICA_REGION_INPUTS)
        return mica__fail(MICA_ERR_UNSUPPORTED, "%s: the derivative has %u inputs, of which regions have %u",
                          who, forward->input_count + forward->output_count, MICA_REGION_INPUTS);
    for (uint32_t o = 0; o < forward->output_count; o++)
        if (!is_real(mica__region_value_type(forward, forward->output[o])) ||
            forward->output_imag[o] != MICA_REGION_NONE)
            return mica__fail(MICA_ERR_UNSUPPORTED, "%s: output %u is no real float", who, o);
    return MICA_OK;
}

/* The program of derivatives: inputs those of the forward, then what reaches each of its outputs; where `prune` is true only those that are
 * read, which *out_inputs tells. Outputs what reaches each input that is wanted, in order. */
static mica_status derive(const char *who, const mica__region_program *forward, uint32_t wanted, bool prune,
                          uint32_t *out_inputs, mica__region_room *out)
{
    wide room;
    walk w = {.who = who, .forward = forward, .steps = {&room.program, ROOM, false}};
    const uint32_t count = forward->input_count;
    uint32_t outputs = 0;
    MICA__TRY(check_forward(who, forward, wanted));
    mica__region_begin(&room.program, count + forward->output_count, 0);
    memcpy(room.program.input, forward->input, count);
    for (uint32_t o = 0; o < forward->output_count; o++)
        room.program.input[count + o] = (uint8_t)mica__region_value_type(forward, forward->output[o]);
    repeat_forward(&w, wanted);
    for (uint32_t o = 0; o < forward->output_count; o++)
        reach(&w, forward->output[o], st_input(&w.steps, count + o));
    for (uint32_t s = forward->step_count; s-- > 0;)
        MICA__TRY(step_back(&w, s));
    for (uint32_t i = 0; i < count; i++) {
        if ((wanted >> i & 1) == 0)
            continue;
        const st_value dx = w.reaches[i].of != NULL
                                ? w.reaches[i]
                                : st_constant(&w.steps, (mica_register)forward->input[i], 0);
        room.program.output[outputs++] = dx.at;
    }
    if (w.steps.full)
        return mica__fail(MICA_ERR_UNSUPPORTED, "%s: the derivative takes too many steps", who);
    room.program.output_count = (uint8_t)outputs;
    leave_out(&room, prune, out_inputs);
    return finish(who, &room, out);
}

/* ---- what callers have ---- */

mica_status mica_region_backward(const mica_region *region, uint32_t wanted, mica_region **out_backward)
{
    mica__region_room room;
    uint32_t inputs;
    if (out_backward == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "region_backward: out_backward is NULL");
    *out_backward = NULL;
    if (region == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "region_backward: region is NULL");
    MICA__TRY(derive("region_backward", mica__region_program_of(region), wanted, false, &inputs, &room));
    return mica__region_copy("region_backward", &room.program, out_backward);
}

/* Adds the derivative of a program whose inputs have these buffers; those that are not read need not be there. dx[i] NULL: not asked for. */
static mica_status add_backward(mica_encoder *encoder, const mica__region_names *names,
                                const mica__region_program *forward, mica_buffer *const *inputs,
                                mica_buffer *dy, mica_buffer *const *dx)
{
    mica__region_room room;
    mica_buffer *in[MICA_REGION_INPUTS], *out[MICA_REGION_OUTPUTS];
    const char *in_name[MICA_REGION_INPUTS], *out_name[MICA_REGION_OUTPUTS];
    uint32_t wanted = 0, read = 0, in_count = 0, out_count = 0;
    for (uint32_t i = 0; i < forward->input_count; i++)
        if (dx[i] != NULL) {
            wanted |= 1u << i;
            out_name[out_count] = names->output[i];
            out[out_count++] = dx[i];
        }
    if (wanted == 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: no derivative is asked for", names->op);
    MICA__TRY(derive(names->op, forward, wanted, true, &read, &room));
    for (uint32_t i = 0; i <= forward->input_count; i++)
        if ((read >> i & 1) != 0) {
            in_name[in_count] = i < forward->input_count ? names->input[i] : "dy";
            in[in_count++] = i < forward->input_count ? inputs[i] : dy;
        }
    return mica__region_add(encoder, &(mica__region_names){names->op, in_name, out_name}, &room.program, in,
                            false, out);
}

static mica_register real_of(const mica_buffer *buffer)
{
    return buffer != NULL && buffer->dtype == MICA_DTYPE_F64 ? MICA_REGISTER_F64 : MICA_REGISTER_F32;
}

mica_status mica_scalar_backward(mica_encoder *encoder, mica_scalar scalar, mica_buffer *const *inputs,
                                 mica_buffer *dy, mica_buffer *const *dx)
{
    static const char *const in[] = {"inputs[0]", "inputs[1]", "inputs[2]"};
    static const char *const out[] = {"dx[0]", "dx[1]", "dx[2]"};
    static const mica__region_names names = {"scalar_backward", in, out};
    const mica__scalar_info *info = mica__scalar_of(scalar);
    mica__region_small small;
    mica__region_program *program = &small.program;
    if (encoder == NULL || inputs == NULL || dy == NULL || dx == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "scalar_backward: %s is NULL",
                          encoder == NULL  ? "encoder"
                          : inputs == NULL ? "inputs"
                          : dy == NULL     ? "dy"
                                           : "dx");
    if (info == NULL || !info->derivative)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "scalar_backward: scalar is %u (%s), which has no derivative", (unsigned)scalar,
                          mica_scalar_name(scalar));
    const mica_register type = real_of(dy);
    if ((info->in >> type & 1) == 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "scalar_backward: dy is %s, which %s does not take",
                          mica_dtype_name(dy->dtype), info->name);
    mica__region_begin(program, info->arity, 1);
    memset(program->input, (int)type, info->arity);
    if (scalar == MICA_SCALAR_SELECT) {
        program->input[0] = MICA_REGISTER_BOOL;
        if (dx[0] != NULL)
            return mica__fail(MICA_ERR_INVALID_ARGUMENT, "scalar_backward: dx[0] of select is not NULL");
    }
    program->output[0] = mica__region_step(program, scalar, type, 0, info->arity > 1 ? 1 : MICA_REGION_NONE,
                                           info->arity > 2 ? 2 : MICA_REGION_NONE);
    return add_backward(encoder, &names, program, inputs, dy, dx);
}

mica_status mica_gate_backward(mica_encoder *encoder, mica_scalar act, mica_buffer *gate, mica_buffer *up,
                               mica_buffer *dy, mica_buffer *dgate, mica_buffer *dup)
{
    static const char *const in[] = {"gate", "up"}, *const out[] = {"dgate", "dup"};
    static const mica__region_names names = {"gate_backward", in, out};
    const mica__scalar_info *info = mica__scalar_of(act);
    const mica_register type = real_of(gate);
    mica__region_small small;
    mica__steps steps = {&small.program, 4, false};
    if (info == NULL || info->arity != 1 || !info->derivative || (info->in >> type & 1) == 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "gate_backward: act is %u (%s), not a scalar of one float with a derivative",
                          (unsigned)act, mica_scalar_name(act));
    mica__region_begin(&small.program, 2, 1);
    memset(small.program.input, (int)type, 2);
    const st_value open = st_step(act, type, st_input(&steps, 0), st_none, st_none);
    small.program.output[0] = st_mul(open, st_input(&steps, 1)).at;
    return add_backward(encoder, &names, &small.program, (mica_buffer *const[]){gate, up}, dy,
                        (mica_buffer *const[]){dgate, dup});
}

mica_status mica__clipped_swiglu(const char *who, mica_register type, float alpha, float limit,
                                 mica__region_room *out)
{
    mica__steps steps = {&out->program, MICA_REGION_STEPS, false};
    if (!isfinite(alpha) || !(limit > 0.0f))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: alpha is %g and limit %g, not finite and above 0",
                          who, (double)alpha, (double)limit);
    mica__region_begin(&out->program, 2, 1);
    memset(out->program.input, (int)type, 2);
    const st_value g = st_least(st_input(&steps, 0), (double)limit);
    const st_value u = st_clamp(st_input(&steps, 1), -(double)limit, (double)limit);
    const st_value open = st_mul(st_sigmoid(st_scale(g, (double)alpha)), g);
    out->program.output[0] = st_mul(st_shift(u, 1), open).at;
    return MICA_OK;
}

mica_status mica_clipped_swiglu_backward(mica_encoder *encoder, mica_buffer *gate, mica_buffer *up,
                                         float alpha, float limit, mica_buffer *dy, mica_buffer *dgate,
                                         mica_buffer *dup)
{
    static const char *const in[] = {"gate", "up"}, *const out[] = {"dgate", "dup"};
    static const mica__region_names names = {"clipped_swiglu_backward", in, out};
    mica__region_room room;
    MICA__TRY(mica__clipped_swiglu("clipped_swiglu_backward", real_of(gate), alpha, limit, &room));
    return add_backward(encoder, &names, &room.program, (mica_buffer *const[]){gate, up}, dy,
                        (mica_buffer *const[]){dgate, dup});
}
