/*
 * steps.h - words in which regions are written: a value of a program, and st_<scalar> for each row of scalars.def, which adds the step and gives its
 * value. A step that is there already is not added again. Types follow from the values.
 */
#ifndef MICA_OPS_STEPS_H
#define MICA_OPS_STEPS_H

#include <math.h>

#include "ops/region.h"

/* A program that is being written. It may grow to `room` steps; then `full` is set and steps are no longer added. */
typedef struct mica__steps {
    mica__region_program *program;
    uint32_t room;
    bool full;
} mica__steps;

/* A value of the program. `of` NULL: none. */
typedef struct st_value {
    mica__steps *of;
    uint8_t at;
} st_value;

static const st_value st_none = {NULL, MICA_REGION_NONE};

static inline st_value st_input(mica__steps *of, uint32_t i)
{
    return (st_value){of, (uint8_t)i};
}

static inline mica_register st_type(st_value a)
{
    return mica__region_value_type(a.of->program, a.at);
}

static inline bool st_same_step(const mica_region_step *a, const mica_region_step *b)
{
    return a->scalar == b->scalar && a->type == b->type && a->value[0] == b->value[0] &&
           a->value[1] == b->value[1] && a->value[2] == b->value[2] && a->axis == b->axis &&
           a->constant.u64 == b->constant.u64;
}

/* Adds a step, or finds the one that is the same. */
static inline st_value st_add_step(mica__steps *of, const mica_region_step *step)
{
    mica__region_program *program = of->program;
    for (uint32_t s = 0; s < program->step_count; s++)
        if (st_same_step(&program->step[s], step))
            return st_input(of, program->input_count + s);
    if (program->step_count >= of->room) {
        of->full = true;
        return st_input(of, program->input_count + program->step_count - 1u);
    }
    program->step[program->step_count] = *step;
    return st_input(of, (uint32_t)program->input_count + program->step_count++);
}

static inline st_value st_step(uint32_t scalar, mica_register type, st_value a, st_value b, st_value c)
{
    mica_region_step step;
    memset(&step, 0, sizeof step);
    step.scalar = (uint8_t)scalar;
    step.type = (uint8_t)type;
    step.value[0] = a.at;
    step.value[1] = b.at;
    step.value[2] = c.at;
    return st_add_step(a.of, &step);
}

/* The type that a scalar of the table gives of its values. */
static inline mica_register st_result(uint32_t scalar, st_value a, st_value b)
{
    if (scalar == MICA_SCALAR_SELECT)
        return st_type(b);
    return mica__scalar_of(scalar)->out == 0 ? st_type(a) : MICA_REGISTER_BOOL;
}

/* ---- one word for each row of the table ---- */

#define ST_1(name)                                                                                      \
    static inline st_value st_##name(st_value a)                                                        \
    {                                                                                                   \
        return st_step(MICA__SCALAR_##name, st_result(MICA__SCALAR_##name, a, a), a, st_none, st_none); \
    }
#define ST_2(name)                                                                                \
    static inline st_value st_##name(st_value a, st_value b)                                      \
    {                                                                                             \
        return st_step(MICA__SCALAR_##name, st_result(MICA__SCALAR_##name, a, b), a, b, st_none); \
    }
#define ST_3(name)                                                                          \
    static inline st_value st_##name(st_value a, st_value b, st_value c)                    \
    {                                                                                       \
        return st_step(MICA__SCALAR_##name, st_result(MICA__SCALAR_##name, a, b), a, b, c); \
    }
#define STEP(...)
#define STEP_OF(name, arity, ...) ST_##arity(name)
#define PUBLIC(name, arity, ...) ST_##arity(name)
#include "backend/scalars.def"
#undef STEP
#undef STEP_OF
#undef PUBLIC
#undef ST_1
#undef ST_2
#undef ST_3

/* ---- numbers, casts, places ---- */

/* A constant; of integers a whole number that the type has. */
static inline st_value st_constant(mica__steps *of, mica_register type, double number)
{
    mica_region_step step;
    memset(&step, 0, sizeof step);
    step.scalar = MICA_SCALAR_CONSTANT;
    step.type = (uint8_t)type;
    memset(step.value, MICA_REGION_NONE, sizeof step.value);
    if (type == MICA_REGISTER_F32)
        step.constant.f32 = (float)number;
    else if (type == MICA_REGISTER_F64)
        step.constant.f64 = number;
    else if (number < 0)
        step.constant.i64 = (int64_t)number;
    else
        step.constant.u64 = (uint64_t)number;
    return st_add_step(of, &step);
}

/* A constant of the type of `like`. */
static inline st_value st_number(st_value like, double number)
{
    return st_constant(like.of, st_type(like), number);
}

static inline st_value st_cast(st_value a, mica_register type)
{
    return st_type(a) == type ? a : st_step(MICA_SCALAR_CAST, type, a, st_none, st_none);
}

/* The element's index along an axis, counted from the last. */
static inline st_value st_index(mica__steps *of, mica_register type, uint8_t axis)
{
    mica_region_step step;
    memset(&step, 0, sizeof step);
    step.scalar = MICA_SCALAR_INDEX;
    step.type = (uint8_t)type;
    step.axis = axis;
    memset(step.value, MICA_REGION_NONE, sizeof step.value);
    of->program->axes |= (uint8_t)(1u << axis);
    of->program->special = 1;
    return st_add_step(of, &step);
}

static inline st_value st_scale(st_value a, double factor)
{
    return st_mul(a, st_number(a, factor));
}

static inline st_value st_shift(st_value a, double term)
{
    return st_add(a, st_number(a, term));
}

/* The lesser of a and a number; the greater. */
static inline st_value st_least(st_value a, double most)
{
    return st_min(a, st_number(a, most));
}

static inline st_value st_greatest(st_value a, double least)
{
    return st_max(a, st_number(a, least));
}

static inline st_value st_clamp(st_value a, double low, double high)
{
    return st_least(st_greatest(a, low), high);
}

/* a where the condition holds, 0 elsewhere. */
static inline st_value st_where(st_value condition, st_value a)
{
    return st_select(condition, a, st_number(a, 0));
}

#endif
