/* program_run.h - a whole program in double: steps in order, choices and loops by their bodies. */
#ifndef TEST_PROGRAM_RUN_H
#define TEST_PROGRAM_RUN_H

#include "program_value.h"

typedef struct program_values {
    program_value of[PROGRAM_STEPS];
} program_values;

static inline program_value value_new(uint64_t count)
{
    double *x = calloc(2 * count, sizeof *x);
    assert_non_null(x);
    return (program_value){x, x + count};
}
static inline void values_free(program_values *v)
{
    for (uint32_t i = 0; i < PROGRAM_STEPS; i++)
        free(v->of[i].x);
    free(v);
}
static inline void value_copy(program_value *to, const program_value *from, uint64_t offset, uint64_t count)
{
    memcpy(to->x, from->x + offset, count * sizeof *to->x);
    memcpy(to->error, from->error + offset, count * sizeof *to->error);
}

static inline program_values *program_compute(const program *p, const program_value *inputs);

static inline void compute_elements(const at_step *s)
{
    const program_step *step = s->step;
    for (uint64_t i = 0; i < shape_count(&step->type); i++) {
        uint64_t place[PROGRAM_RANK], at[3] = {0};
        place_of(&step->type, i, place);
        for (uint32_t k = 0; k < step->in_count; k++)
            at[k] = element_at(s->from[k], place, step->type.ndim);
        switch (step->kind) {
        case STEP_UNARY: put_unary(s, i); break;
        case STEP_BINARY: put_binary(s, i, at[0], at[1]); break;
        case STEP_SELECT: put_select(s, i, at[0], at[1], at[2]); break;
        case STEP_CAST: put_cast(s, i); break;
        case STEP_INDEX: s->out->x[i] = (double)place[step->axis]; break;
        default: s->out->x[i] = drawn_number(step->type.dtype, step->seed, i); break;
        }
    }
}

/* Outputs of a body to the parts of the step. */
static inline void take_outputs(const program *body, const program_values *from, uint32_t first,
                                uint32_t count, program_value *out)
{
    for (uint32_t i = 0; i < count; i++)
        value_copy(&out[first + i], &from->of[body->output[first + i]], 0,
                   shape_count(&body->step[body->output[first + i]].type));
}

static inline void make_uncertain(const program_step *parts, uint32_t count, program_value *out)
{
    for (uint32_t i = 0; i < count; i++)
        for (uint64_t e = 0; e < shape_count(&parts[i].type); e++)
            out[i].error[e] = INFINITY;
}

static inline void compute_choice(const at_step *s)
{
    const bool choice = s->step->kind == STEP_IF;
    const program *body = s->step->body[choice && s->in[0].x[0] == 0];
    program_values *inner = program_compute(body, s->in + choice);
    take_outputs(body, inner, 0, s->step->parts, s->out);
    if (choice && s->in[0].error[0] != 0)
        make_uncertain(s->step, s->step->parts, s->out); /* parts lie behind it */
    values_free(inner);
}

static inline void compute_while(const at_step *s)
{
    const program_step *step = s->step;
    program_value carried[PROGRAM_INPUTS];
    memcpy(carried, s->in, sizeof carried);
    for (uint32_t i = 0; i < step->carried; i++) {
        const uint64_t count = shape_count(s->from[i]);
        value_copy(&s->out[i], &s->in[i], 0, count);
        carried[i] = s->out[i];
    }
    for (uint64_t round = 0; s->out[0].x[0] < (double)step->count; round++) {
        if (step->start != 0 && round == step->start) /* the bound */
            break;
        program_values *inner = program_compute(step->body[0], carried);
        take_outputs(step->body[0], inner, 0, step->carried, s->out);
        values_free(inner);
    }
}

/* in: carried, scanned, others. Slices of the body come behind what is carried. */
static inline void compute_scan(const at_step *s)
{
    const program_step *step = s->step;
    const program *body = step->body[0];
    program_value in[PROGRAM_INPUTS];
    memcpy(in, s->in, sizeof in);
    for (uint32_t i = 0; i < step->carried; i++) {
        value_copy(&s->out[i], &s->in[i], 0, shape_count(s->from[i]));
        in[i] = s->out[i];
    }
    for (uint64_t round = 0; round < step->count; round++) {
        const uint64_t t = step->keep ? step->count - 1 - round : round;
        for (uint32_t i = step->carried; i < step->carried + step->scanned; i++) {
            const uint64_t slice = shape_count(s->from[i]) / step->count;
            in[i] = (program_value){s->in[i].x + t * slice, s->in[i].error + t * slice};
        }
        program_values *inner = program_compute(body, in);
        for (uint32_t i = step->carried; i < step->parts; i++) {
            const uint64_t slice = shape_count(&body->step[body->output[i]].type);
            program_value at = {s->out[i].x + t * slice, s->out[i].error + t * slice};
            value_copy(&at, &inner->of[body->output[i]], 0, slice);
        }
        take_outputs(body, inner, 0, step->carried, s->out);
        values_free(inner);
    }
}

static inline void compute_step(const at_step *s)
{
    switch (s->step->kind) {
    case STEP_RESHAPE:
    case STEP_PERMUTE:
    case STEP_SLICE:
    case STEP_EXPAND:
    case STEP_STOP:
    case STEP_PAD: compute_view(s); break;
    case STEP_CONCAT: compute_concat(s); break;
    case STEP_REDUCE: compute_reduce(s); break;
    case STEP_CUMSUM:
    case STEP_SOFTMAX:
    case STEP_SORT: compute_rows(s); break;
    case STEP_GATHER: compute_gather(s); break;
    case STEP_SCATTER: compute_scatter(s); break;
    case STEP_MATMUL: compute_matmul(s); break;
    case STEP_CALL:
    case STEP_IF: compute_choice(s); break;
    case STEP_WHILE: compute_while(s); break;
    case STEP_SCAN: compute_scan(s); break;
    case STEP_PART: break; /* its step has filled it */
    default: compute_elements(s); break;
    }
}

/* Owned by the caller: values_free. Inputs are copied. */
static inline program_values *program_compute(const program *p, const program_value *inputs)
{
    program_values *v = calloc(1, sizeof *v);
    assert_non_null(v);
    for (uint32_t i = 0; i < p->count; i++)
        v->of[i] = value_new(shape_count(&p->step[i].type));
    for (uint32_t i = 0; i < p->count; i++) {
        const program_step *step = &p->step[i];
        at_step s = {.step = step, .out = &v->of[i]};
        if (step->kind == STEP_INPUT) {
            value_copy(s.out, &inputs[i], 0, shape_count(&step->type));
            continue;
        }
        for (uint32_t k = 0; k < step->in_count; k++) {
            s.from[k] = &p->step[step->in[k]].type;
            s.in[k] = v->of[step->in[k]];
        }
        compute_step(&s);
    }
    return v;
}

#endif
